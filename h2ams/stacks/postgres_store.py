"""A workflow's store in a shared PostgreSQL server, for stateless workers (Truth).

All workflows of a database share three tables. A projection is one transaction that first locks
the workflow's row, so writers of one workflow follow each other and those of others do not wait.
A connection that broke is made anew by the next call; the call that saw it break fails, and what it
was about to write is then either there wholly or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from h2ams.errors import ConfigError, StoreError
from h2ams.stacks import log
from h2ams.stacks.exchange import check_text
from h2ams.stacks.quota import QUOTA_BYTES, Footprint, Tally
from h2ams.stacks.workflow_store import (
    Put,
    Row,
    Snapshot,
    StoreHook,
    TransactionalStore,
    check_prefix,
)

if TYPE_CHECKING:
    import psycopg

_LOCK = 0x68327773  # of the schema's creation

_SCHEMA = """
CREATE TABLE IF NOT EXISTS h2ams_workflow (
    workflow text COLLATE "C" PRIMARY KEY,
    store_members bigint NOT NULL DEFAULT 0, store_bytes bigint NOT NULL DEFAULT 0,
    log_members bigint NOT NULL DEFAULT 0, log_bytes bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS h2ams_workflow_item (
    workflow text COLLATE "C" NOT NULL
        REFERENCES h2ams_workflow ON DELETE CASCADE ON UPDATE CASCADE,
    key text COLLATE "C" NOT NULL, bytes bigint NOT NULL, value text NOT NULL,
    PRIMARY KEY (workflow, key)
);
CREATE TABLE IF NOT EXISTS h2ams_workflow_log (
    workflow text COLLATE "C" NOT NULL
        REFERENCES h2ams_workflow ON DELETE CASCADE ON UPDATE CASCADE,
    key text COLLATE "C" NOT NULL, based boolean NOT NULL, deleted boolean NOT NULL,
    PRIMARY KEY (workflow, key)
);
"""


def _driver() -> Any:
    """psycopg, loaded late; ``ConfigError`` says how to get it."""
    try:
        import psycopg
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs psycopg, which is not installed",
            hint="pip install 'h2ams[postgres]'",
        ) from None
    return psycopg


class PostgresWorkflowStore(TransactionalStore):
    """The workflow ``workflow`` in the database at ``url``. See ``WorkflowStore``.

    ``create`` makes the tables and the workflow where they are missing.
    """

    def __init__(
        self,
        url: str,
        workflow: str,
        *,
        quota_bytes: int = QUOTA_BYTES,
        hook: StoreHook | None = None,
        create: bool = True,
    ) -> None:
        super().__init__(quota_bytes, hook)
        check_text(workflow, "workflow id")
        self.workflow = workflow
        self._url = url
        self._psycopg = _driver()
        self._open_connection: psycopg.Connection[tuple[Any, ...]] | None = None
        try:
            with self._reported():
                if create:
                    self._create()
                elif not self._exists():
                    raise StoreError(f"workflow {workflow!a}: there is none in this database")
        except BaseException:
            self.close()
            raise

    def _create(self) -> None:
        with self._connection().transaction():
            run = self._connection().execute
            if run("SELECT to_regclass('h2ams_workflow_log')").fetchone() == (None,):
                run("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                run(_SCHEMA)
            run(
                "INSERT INTO h2ams_workflow (workflow) VALUES (%s) ON CONFLICT DO NOTHING",
                (self.workflow,),
            )

    def _exists(self) -> bool:
        run = self._connection().execute
        if run("SELECT to_regclass('h2ams_workflow_log')").fetchone() == (None,):
            return False
        found = run("SELECT 1 FROM h2ams_workflow WHERE workflow = %s", (self.workflow,))
        return found.fetchone() is not None

    def _connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._open_connection is None or self._open_connection.closed:
            made = self._psycopg.connect(self._url, autocommit=True)
            made.prepare_threshold = None  # poolers between us and the server keep none
            self._open_connection = made
        return self._open_connection

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of the database as ``StoreError``, by kind: never with a value or the address."""
        try:
            yield
        except self._psycopg.Error as error:
            broken = self._open_connection is not None and self._open_connection.broken
            if broken and self._open_connection is not None:
                self._open_connection.close()
            kind = f"{type(error).__name__} {error.sqlstate or ''}".strip()
            raise StoreError(
                f"workflow {self.workflow!a} in PostgreSQL: {kind}",
                hint="check the server and its address; repeat the call",
            ) from None

    def get(self, key: str) -> str | None:
        with self._lock, self._reported():
            found = self._connection().execute(
                "SELECT value FROM h2ams_workflow_item WHERE workflow = %s AND key = %s",
                (self.workflow, key),
            )
            row = found.fetchone()
        return None if row is None else str(row[0])

    def items(self, prefix: str) -> list[tuple[str, str]]:
        with self._lock, self._reported():
            found = self._connection().execute(
                "SELECT key, value FROM h2ams_workflow_item"
                " WHERE workflow = %s AND key >= %s AND key < %s ORDER BY key",
                (self.workflow, *check_prefix(prefix)),
            )
            return [(str(key), str(value)) for key, value in found.fetchall()]

    def footprint(self) -> Footprint:
        with self._lock, self._reported():
            return _Transaction(self._connection(), self.workflow).footprint()

    def snapshot(self) -> Snapshot:
        """Everything, of one instant."""
        with self._lock, self._reported():
            connection = self._connection()
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                found = connection.execute(
                    "SELECT key, value FROM h2ams_workflow_item WHERE workflow = %s ORDER BY key",
                    (self.workflow,),
                )
                items = {str(key): str(value) for key, value in found.fetchall()}
                logged = connection.execute(
                    "SELECT key, based, deleted FROM h2ams_workflow_log"
                    " WHERE workflow = %s ORDER BY key",
                    (self.workflow,),
                ).fetchall()
        return Snapshot.of(items, {key: log.Entry(based, gone) for key, based, gone in logged})

    @contextmanager
    def _writing(self) -> Iterator[_Transaction]:
        with self._reported():
            connection = self._connection()
            with connection.transaction():
                locked = connection.execute(
                    "SELECT 1 FROM h2ams_workflow WHERE workflow = %s FOR UPDATE", (self.workflow,)
                )
                if locked.fetchone() is None:
                    raise StoreError(f"workflow {self.workflow!a}: it was deleted")
                yield _Transaction(connection, self.workflow)

    def close(self) -> None:
        with self._lock, suppress(self._psycopg.Error):
            if self._open_connection is not None:
                self._open_connection.close()


class _Transaction:
    """See ``workflow_store.Transaction``."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], workflow: str) -> None:
        self._connection = connection
        self._workflow = workflow

    def footprint(self) -> Footprint:
        found = self._connection.execute(
            "SELECT store_members, store_bytes, log_members, log_bytes"
            " FROM h2ams_workflow WHERE workflow = %s",
            (self._workflow,),
        ).fetchone()
        if found is None:
            raise StoreError(f"workflow {self._workflow!a}: it was deleted")
        store, store_bytes, logged, log_bytes = found
        return Footprint(Tally(store, store_bytes), Tally(logged, log_bytes))

    def rows(self, keys: Sequence[str]) -> dict[str, Row]:
        found = self._connection.execute(
            "SELECT k.key, item.bytes, entry.based, entry.deleted"
            " FROM unnest(%s::text[]) AS k(key)"
            " LEFT JOIN h2ams_workflow_item AS item"
            " ON item.workflow = %s AND item.key = k.key"
            " LEFT JOIN h2ams_workflow_log AS entry"
            " ON entry.workflow = %s AND entry.key = k.key",
            (list(keys), self._workflow, self._workflow),
        )
        return {
            key: Row(size, None if based is None else log.Entry(based, deleted))
            for key, size, based, deleted in found.fetchall()
        }

    def values(self, keys: Sequence[str]) -> dict[str, str]:
        found = self._connection.execute(
            "SELECT key, value FROM h2ams_workflow_item WHERE workflow = %s AND key = ANY(%s)",
            (self._workflow, list(keys)),
        )
        return {str(key): str(value) for key, value in found.fetchall()}

    def put(self, puts: Sequence[Put]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO h2ams_workflow_item (workflow, key, value, bytes)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (workflow, key)"
                " DO UPDATE SET value = excluded.value, bytes = excluded.bytes",
                [(self._workflow, *put) for put in puts],
            )

    def drop(self, keys: Sequence[str]) -> None:
        self._connection.execute(
            "DELETE FROM h2ams_workflow_item WHERE workflow = %s AND key = ANY(%s)",
            (self._workflow, list(keys)),
        )

    def put_entries(self, entries: Sequence[tuple[str, log.Entry]]) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO h2ams_workflow_log (workflow, key, based, deleted)"
                " VALUES (%s, %s, %s, %s) ON CONFLICT (workflow, key)"
                " DO UPDATE SET based = excluded.based, deleted = excluded.deleted",
                [(self._workflow, key, entry.based, entry.deleted) for key, entry in entries],
            )

    def drop_entries(self, keys: Sequence[str]) -> None:
        self._connection.execute(
            "DELETE FROM h2ams_workflow_log WHERE workflow = %s AND key = ANY(%s)",
            (self._workflow, list(keys)),
        )

    def clear_log(self) -> None:
        self._connection.execute(
            "DELETE FROM h2ams_workflow_log WHERE workflow = %s", (self._workflow,)
        )

    def set_footprint(self, footprint: Footprint) -> None:
        store, logged = footprint.store, footprint.log
        self._connection.execute(
            "UPDATE h2ams_workflow SET store_members = %s, store_bytes = %s,"
            " log_members = %s, log_bytes = %s WHERE workflow = %s",
            (
                store.members,
                store.members_bytes,
                logged.members,
                logged.members_bytes,
                self._workflow,
            ),
        )
