"""A workflow's store in one SQLite file: the embedded default (Truth).

``synchronous=FULL``, one transaction per projection: what ``project`` returned from is on the disk.
The file is a record, not an index: nothing can rebuild it, so a damaged one is never set aside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from h2ams import sqlite
from h2ams.errors import ConflictError, DamagedError, IndexFaultError, StoreError
from h2ams.stacks import log
from h2ams.stacks.quota import QUOTA_BYTES, Footprint, Tally
from h2ams.stacks.workflow_store import (
    Put,
    Row,
    Snapshot,
    StoreHook,
    TransactionalStore,
    check_prefix,
)

APPLICATION_ID = 0x68327773  # "h2ws"
SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE item (key TEXT NOT NULL PRIMARY KEY, bytes INTEGER NOT NULL, value TEXT NOT NULL);
CREATE TABLE log (
    key TEXT NOT NULL PRIMARY KEY, based INTEGER NOT NULL, deleted INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE total (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    store_members INTEGER NOT NULL, store_bytes INTEGER NOT NULL,
    log_members INTEGER NOT NULL, log_bytes INTEGER NOT NULL
);
INSERT INTO total VALUES (1, 0, 0, 0, 0);
"""


class SqliteWorkflowStore(TransactionalStore):
    """The workflow in the file ``path``; its folder must exist. See ``WorkflowStore``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        quota_bytes: int = QUOTA_BYTES,
        hook: StoreHook | None = None,
        create: bool = True,
    ) -> None:
        super().__init__(quota_bytes, hook)
        self.path = os.path.abspath(path)
        if not create and not os.path.exists(self.path):
            raise StoreError(f"workflow store {self.path}: there is none", path=self.path)
        with self._reported():
            self._connection = sqlite.connect(self.path)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA synchronous = FULL")
        with sqlite.immediate(self._connection):
            version = sqlite.value(self._connection, "PRAGMA user_version")
            application = sqlite.value(self._connection, "PRAGMA application_id")
            if not version and not sqlite.value(
                self._connection, "SELECT count(*) FROM sqlite_schema"
            ):
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif (application, version) != (APPLICATION_ID, SCHEMA_VERSION):
                raise DamagedError(
                    f"{self.path} is no workflow store of this version",
                    path=self.path,
                    hint="name another file, or use the version of h2ams that made it",
                )

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of the database as ``StoreError``, by kind and file: never with a value."""
        try:
            yield
        except (sqlite.Error, IndexFaultError) as error:
            cannot_open = isinstance(error, IndexFaultError)
            kind = "cannot be opened" if cannot_open else type(error).__name__
            raised = DamagedError if isinstance(error, sqlite.DAMAGED) else StoreError
            raise raised(
                f"workflow store {self.path}: {kind}",
                path=self.path,
                hint="check the disk and the permissions; nothing was written",
            ) from None

    def get(self, key: str) -> str | None:
        with self._lock, self._reported():
            found = sqlite.value(self._connection, "SELECT value FROM item WHERE key = ?", (key,))
        return None if found is None else str(found)

    def items(self, prefix: str) -> list[tuple[str, str]]:
        statement = "SELECT key, value FROM item WHERE key >= ? AND key < ? ORDER BY key"
        with self._lock, self._reported():
            found = sqlite.rows(self._connection, statement, check_prefix(prefix))
        return [(str(key), str(value)) for key, value in found]

    def footprint(self) -> Footprint:
        with self._lock, self._reported():
            return _Transaction(self._connection).footprint()

    def snapshot(self) -> Snapshot:
        """Everything, of one instant."""
        with self._lock, self._reported(), sqlite.snapshot(self._connection):
            items = dict(sqlite.rows(self._connection, "SELECT key, value FROM item ORDER BY key"))
            statement = "SELECT key, based, deleted FROM log ORDER BY key"
            logged = sqlite.rows(self._connection, statement)
        entries = {key: log.Entry(bool(based), bool(gone)) for key, based, gone in logged}
        return Snapshot.of(items, entries)

    @contextmanager
    def _writing(self) -> Iterator[_Transaction]:
        with self._reported(), sqlite.immediate(self._connection):
            yield _Transaction(self._connection)

    def settle(self) -> None:
        """Bring everything into the one file: before it is copied or renamed."""
        with self._lock, self._reported():
            if not sqlite.truncate_wal(self._connection):
                raise ConflictError(
                    f"workflow store {self.path}: somebody else reads it", path=self.path
                )

    def close(self) -> None:
        with self._lock:
            self._connection.close()


class _Transaction:
    """See ``workflow_store.Transaction``."""

    def __init__(self, connection: sqlite.Connection) -> None:
        self._connection = connection

    def footprint(self) -> Footprint:
        store, store_bytes, logged, log_bytes = sqlite.only(
            self._connection,
            "SELECT store_members, store_bytes, log_members, log_bytes FROM total",
        )
        return Footprint(Tally(store, store_bytes), Tally(logged, log_bytes))

    def rows(self, keys: Sequence[str]) -> dict[str, Row]:
        found = sqlite.rows(
            self._connection,
            "SELECT k.value, item.bytes, log.based, log.deleted FROM carray(?) AS k"
            " LEFT JOIN item ON item.key = k.value LEFT JOIN log ON log.key = k.value",
            (sqlite.texts(keys),),
        )
        return {
            key: Row(size, None if based is None else log.Entry(bool(based), bool(deleted)))
            for key, size, based, deleted in found
        }

    def values(self, keys: Sequence[str]) -> dict[str, str]:
        statement = "SELECT key, item.value FROM carray(?) AS k JOIN item ON item.key = k.value"
        return dict(sqlite.rows(self._connection, statement, (sqlite.texts(keys),)))

    def put(self, puts: Sequence[Put]) -> None:
        self._connection.executemany(
            "INSERT INTO item (key, value, bytes) VALUES (?, ?, ?)"
            " ON CONFLICT (key) DO UPDATE SET value = excluded.value, bytes = excluded.bytes",
            puts,
        )

    def drop(self, keys: Sequence[str]) -> None:
        self._connection.execute(
            "DELETE FROM item WHERE key IN (SELECT value FROM carray(?))", (sqlite.texts(keys),)
        )

    def put_entries(self, entries: Sequence[tuple[str, log.Entry]]) -> None:
        self._connection.executemany(
            "INSERT OR REPLACE INTO log (key, based, deleted) VALUES (?, ?, ?)",
            [(key, entry.based, entry.deleted) for key, entry in entries],
        )

    def drop_entries(self, keys: Sequence[str]) -> None:
        self._connection.execute(
            "DELETE FROM log WHERE key IN (SELECT value FROM carray(?))", (sqlite.texts(keys),)
        )

    def clear_log(self) -> None:
        self._connection.execute("DELETE FROM log")

    def set_footprint(self, footprint: Footprint) -> None:
        store, logged = footprint.store, footprint.log
        self._connection.execute(
            "UPDATE total SET store_members = ?, store_bytes = ?, log_members = ?, log_bytes = ?",
            (store.members, store.members_bytes, logged.members, logged.members_bytes),
        )
