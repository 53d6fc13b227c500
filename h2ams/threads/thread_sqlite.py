"""Threads in SQLite: ``<state>/threads.db``, a record and not derived.

It is never set aside and begun anew: what cannot be read is an error that says so. Nor is a file
that somebody has emptied, which SQLite takes for a new one: ``threads.db.begun`` beside it tells
that there was a store, until the file itself is moved away. Commits are on
the disk when they return. The search over past chats is an FTS5 table over analysed words; deleted
ones are merged out of it when a thread is deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from h2ams import sqlite
from h2ams.atomic import errors_named
from h2ams.errors import IndexFaultError, StoreError
from h2ams.index.schema import TOKENIZER
from h2ams.index.score import idf
from h2ams.settings import DEFAULTS
from h2ams.threads.thread_sql import TABLES, SqlThreadStore
from h2ams.threads.thread_store import NewMessage, SearchTerm

_SEQ_BITS = 32  # rowids of the words: number of the thread, then the row's own
_DOOR_WAIT_S = 5.0  # for others to open or remove a lock file: it takes them microseconds
_SERIAL = "INTEGER PRIMARY KEY"


class SqliteThreadStore(SqlThreadStore):
    """Threads in the database at ``path``; made where there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        self._begun = f"{self.path}.begun"
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._left_behind: list[sqlite.Connection] = []
        self._depth = 0
        self._connection: sqlite.Connection | None = self._open()

    def _open(self) -> sqlite.Connection:
        self._refuse_emptied()
        with self._reported():
            connection = sqlite.connect(self.path)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                with sqlite.immediate(connection):
                    for table in TABLES:
                        connection.execute(table.format(serial=_SERIAL, suffix=" WITHOUT ROWID"))
                    connection.execute(
                        "CREATE VIRTUAL TABLE IF NOT EXISTS thread_words USING fts5("
                        f'words, forms, tokenize="{TOKENIZER}")'
                    )
            except BaseException:
                connection.close()
                raise
        with contextlib.suppress(OSError):  # only a later emptying would not be noticed
            os.close(os.open(self._begun, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return connection

    def _refuse_emptied(self) -> None:
        """``StoreError`` for an empty file that was a store; one that is gone may be begun anew."""
        try:
            is_empty = os.stat(self.path).st_size == 0
        except FileNotFoundError:  # it was moved away: that is how to begin anew
            with contextlib.suppress(OSError):
                os.unlink(self._begun)
            return
        except OSError:
            return  # opening it says why it cannot be looked at
        if is_empty and os.path.lexists(self._begun):
            raise StoreError(
                f"the threads in {self.path} are gone: the file is empty",
                path=self.path,
                hint="restore the file from a backup, or move it away to begin anew",
            )

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        """What the database raises as ``StoreError``: the file, why, and what to do."""
        try:
            yield
        except (*sqlite.DAMAGED, sqlite.MISFIT) as error:
            raise StoreError(
                f"the threads in {self.path} cannot be read: {error}",
                path=self.path,
                hint="restore the file from a backup, or move it away to begin anew",
            ) from error
        except IndexFaultError as error:
            raise StoreError(
                f"the threads in {self.path} cannot be opened: {error.reason}",
                path=self.path,
                hint="it must be a file that can be written, below a path in UTF-8",
            ) from error
        except sqlite.HINDERED as error:
            raise StoreError(
                f"the threads in {self.path}: {error}: nothing was written",
                path=self.path,
                hint="free some space, or wait for the other process, and try again",
            ) from error

    @property
    def _open_connection(self) -> sqlite.Connection:
        if self._pid != os.getpid():  # a forked child must not use its parent's connection
            if self._connection is not None:
                self._left_behind.append(self._connection)
            self._connection, self._pid, self._depth = self._open(), os.getpid(), 0
        if self._connection is None:
            raise StoreError("this thread store is closed", path=self.path, hint="open it again")
        return self._connection

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    # -- what a database brings ------------------------------------------------------------------

    def _all(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._reported():
            return sqlite.rows(self._open_connection, statement, bindings)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, self._reported(), sqlite.immediate(self._open_connection):
            yield

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, self._reported(), sqlite.snapshot(self._open_connection):
            yield

    def _lock_thread(self, thread: str) -> tuple[Any, ...] | None:
        found = self._all(
            "SELECT no, message_count, edits, next_seq FROM threads WHERE id = ?", (thread,)
        )
        return found[0] if found else None

    @contextlib.contextmanager
    def claim(self, thread: str) -> Iterator[bool]:
        """One lock file a thread, gone with its claim; of a process that died it stays, unlocked.

        Files are opened and removed behind a door, a lock of its own: a lock on a file that
        somebody has just removed would keep nobody out.
        """
        from filelock import FileLock, Timeout  # 40 ms to import, only compaction needs it

        key = hashlib.sha256(thread.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        door = FileLock(f"{self.path}.compact.lock")
        lock = FileLock(f"{self.path}.compact-{key}.lock")
        with errors_named("lock", lock.lock_file):
            try:
                with door.acquire(timeout=_DOOR_WAIT_S):
                    lock.acquire(timeout=0)
            except Timeout:
                yield False
                return
        try:
            yield True
        finally:
            # Without the door (a stopped process holds it) the file stays: the next claim takes it.
            with contextlib.suppress(Timeout, OSError), door.acquire(timeout=_DOOR_WAIT_S):
                lock.release()
                os.unlink(lock.lock_file)
            lock.release()

    # -- words -----------------------------------------------------------------------------------

    def _index_words(self, no: int, seq: int, message: NewMessage) -> None:
        self._all(
            "INSERT INTO thread_words (rowid, words, forms) VALUES (?, ?, ?)",
            (no << _SEQ_BITS | seq, message.words, message.forms),
        )

    def _unindex(self, no: int, seq: int | None) -> None:
        first = no << _SEQ_BITS | (seq or 0)
        last = first if seq is not None else (no + 1 << _SEQ_BITS) - 1
        self._all("DELETE FROM thread_words WHERE rowid BETWEEN ? AND ?", (first, last))

    def _copy_index(self, no: int, copy: int) -> None:
        self._all(
            "INSERT INTO thread_words (rowid, words, forms)"
            " SELECT rowid - ? + ?, words, forms FROM thread_words WHERE rowid BETWEEN ? AND ?",
            (no << _SEQ_BITS, copy << _SEQ_BITS, no << _SEQ_BITS, (no + 1 << _SEQ_BITS) - 1),
        )

    def _erase(self) -> None:
        with self._lock:
            with self._writing():
                self._all("INSERT INTO thread_words (thread_words) VALUES ('optimize')")
            sqlite.truncate_wal(self._open_connection)

    def _matches(
        self, terms: Sequence[SearchTerm], where: str, bindings: list[Any], limit: int, text: str
    ) -> list[tuple[int, int, float]]:
        # FTS5's own rank counts over all threads: what an access may not read would show in it.
        mask = (1 << _SEQ_BITS) - 1
        counted = self._all(f"SELECT sum(t.message_count) FROM threads t WHERE {where}", bindings)
        weights: dict[int, float] = {}
        lengths: dict[int, int] = {}
        for term in terms:
            found = self._all(
                "SELECT w.rowid, r.tokens FROM thread_words w"
                f" JOIN threads t ON t.no = w.rowid >> {_SEQ_BITS}"
                f" JOIN thread_rows r ON r.thread = t.no AND r.seq = w.rowid & {mask}"
                f" WHERE thread_words MATCH ? AND {where}",
                (_match(term), *bindings),
            )
            weight = idf(max(int(counted[0][0] or 0), len(found)), len(found))
            for rowid, tokens in found:
                weights[rowid] = weights.get(rowid, 0.0) + weight
                lengths[rowid] = int(tokens)
        average = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        scored = [
            (rowid, weight * _length_factor(lengths[rowid] / average))
            for rowid, weight in weights.items()
        ]
        scored.sort(key=lambda each: (-round(each[1], 6), each[0]))
        return [(rowid >> _SEQ_BITS, rowid & mask, score) for rowid, score in scored[:limit]]


def _length_factor(length: float) -> float:
    """BM25's for a word that a message has or has not; ``length`` in units of the average."""
    k1, b = DEFAULTS.bm25_k1, DEFAULTS.bm25_b
    return (k1 + 1) / (1 + k1 * (1 - b + b * length))


def _match(term: SearchTerm) -> str:
    """One term for FTS5; text is always quoted, so no input is syntax."""
    phrase = " ".join(term.tokens).replace('"', '""')
    if term.prefix:
        return f'"{phrase}" *'
    found = f'words : "{phrase}"' if len(term.tokens) > 1 else f'"{phrase}"'
    if term.exact:
        quoted = term.exact.replace('"', '""')
        return f'({found} OR "{quoted}")'
    return found
