"""Threads in PostgreSQL, for many brains on one server (extra ``[postgres]``, psycopg 3).

A write locks its thread's row, so brains on one thread take turns and others do not wait. The right
to compact is an advisory lock, which the server takes back when its holder's connection ends. The
search is full text over the same analysed words as in SQLite; with ``embed`` given and the
extension pgvector there, the nearest meanings are found too and both orders are fused.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from h2ams.errors import ConfigError, StoreError
from h2ams.threads.thread_sql import TABLES, SqlThreadStore
from h2ams.threads.thread_store import NewMessage, SearchTerm

if TYPE_CHECKING:
    import psycopg


class Embed(Protocol):
    """Vectors for texts; ``size`` is how many numbers each has."""

    @property
    def size(self) -> int: ...

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


_SERIAL = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
_MOST_POSITION = 16_000  # tsvector keeps positions up to 16,383
_MOST_WORDS = 40_000  # of one message; a tsvector holds at most 1 MB
_FUSION = 60  # reciprocal rank fusion: Cormack et al. 2009
_LAST_MADE = "thread_words_gin"  # where it is, all tables are
_SCHEMA_LOCK = 0x68326D73  # two processes that make the tables at once
_logger = logging.getLogger(__name__)


class PostgresThreadStore(SqlThreadStore):
    """Threads in the database at ``address`` (a URL or key=value text as psycopg takes it).

    ``embed`` gives vectors for texts; without it, or without pgvector, search is by words alone.
    """

    def __init__(self, address: str, *, embed: Embed | None = None) -> None:
        self._address = address
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._closed = False
        self._in_transaction = False
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._embed = embed
        self.semantic = False
        self._vector_schema = "public"
        with self._lock:
            self._make_tables()

    # -- connection ------------------------------------------------------------------------------

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            import psycopg
        except ImportError as error:
            raise ConfigError(
                "threads in PostgreSQL need the package psycopg",
                hint="pip install 'h2ams[postgres]'",
            ) from error
        try:
            return psycopg.connect(self._address, autocommit=True)
        except psycopg.Error as error:
            raise StoreError(
                f"PostgreSQL cannot be reached: {str(error).splitlines()[0]}",
                hint="check the address and that the server is running",
            ) from error

    @property
    def _open_connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._closed:
            raise StoreError("this thread store is closed", hint="open it again")
        if self._pid != os.getpid():
            self._connection, self._pid, self._in_transaction = None, os.getpid(), False
        if self._connection is None or (self._connection.broken and not self._in_transaction):
            self._connection = self._open()
        return self._connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def _there_is(self, name: str) -> bool:
        # By the catalogue itself: to_regclass answers from a cache that may be a moment old.
        return bool(
            self._all(
                "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE n.nspname = current_schema() AND c.relname = ?",
                (name,),
            )
        )

    def _make_tables(self) -> None:
        """All tables where there are none. Where there are, nothing is asked to be made: even
        ``IF NOT EXISTS`` locks whole tables, and would lock itself up with a brain that writes."""
        if not self._there_is(_LAST_MADE):
            self._make_all()
        if self._embed is not None:
            self._make_vectors(self._embed.size)

    def _make_all(self) -> None:
        with self._writing():
            self._all(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
            if self._there_is(_LAST_MADE):  # another process was first
                return
            for table in TABLES:
                self._all(table.format(serial=_SERIAL, suffix=""))
            self._all(
                "CREATE TABLE IF NOT EXISTS thread_words (thread BIGINT NOT NULL,"
                " seq BIGINT NOT NULL, words TSVECTOR NOT NULL, PRIMARY KEY (thread, seq))"
            )
            self._all(f"CREATE INDEX {_LAST_MADE} ON thread_words USING gin (words)")

    def _make_vectors(self, size: int) -> None:
        try:
            with self._writing():
                self._all(f"SELECT pg_advisory_xact_lock({_SCHEMA_LOCK})")
                # In a schema of its own choice the next search path would not find it.
                self._all("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
                (schema,) = self._all(
                    "SELECT quote_ident(n.nspname) FROM pg_extension e"
                    " JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
                )[0]
                self._vector_schema = str(schema)
                if self._there_is("thread_vectors"):
                    self.semantic = True
                    return
                self._all(
                    "CREATE TABLE thread_vectors (thread BIGINT NOT NULL,"
                    f" seq BIGINT NOT NULL, meaning {schema}.vector({size}) NOT NULL,"
                    " PRIMARY KEY (thread, seq))"
                )
            self.semantic = True
        except StoreError as error:
            _logger.warning("no pgvector, past chats are searched by words alone: %s", error)

    # -- what a database brings ------------------------------------------------------------------

    def _all(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            connection = self._open_connection
            import psycopg  # there, since there is a connection

            try:
                # Statements are constants of this package; every value is bound.
                cursor = connection.execute(
                    statement.replace("?", "%s").encode(), tuple(bindings) or None
                )
            except psycopg.Error as error:
                raise StoreError(
                    f"PostgreSQL: {str(error).splitlines()[0]}", hint="is the server running?"
                ) from error
            return cursor.fetchall() if cursor.description else []

    @contextlib.contextmanager
    def _transaction(self, first: str = "") -> Iterator[None]:
        with self._lock, self._open_connection.transaction():
            nested, self._in_transaction = self._in_transaction, True
            try:
                if first and not nested:
                    self._all(first)
                yield
            finally:
                self._in_transaction = nested

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        return self._transaction()

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        return self._transaction("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def _lock_thread(self, thread: str) -> tuple[Any, ...] | None:
        found = self._all(
            "SELECT no, message_count, edits, next_seq FROM threads WHERE id = ? FOR UPDATE",
            (thread,),
        )
        return found[0] if found else None

    @contextlib.contextmanager
    def claim(self, thread: str) -> Iterator[bool]:
        key = int.from_bytes(
            hashlib.sha256(thread.encode("utf-8", "surrogatepass")).digest()[:7], "big"
        )
        # A connection of its own: the right must not end with a transaction, only with its holder.
        connection = self._open()
        try:
            found = connection.execute(
                "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()) # %s)",
                (key & 0x7FFFFFFF, (key >> 31) & 0x7FFFFFFF),
            ).fetchone()
            yield bool(found and found[0])
        finally:
            connection.close()

    # -- words and meanings ----------------------------------------------------------------------

    def _index_words(self, no: int, seq: int, message: NewMessage) -> None:
        self._all(
            "INSERT INTO thread_words (thread, seq, words) VALUES (?, ?, ?::tsvector)",
            (no, seq, _vector_text(message.words, message.forms)),
        )
        if self.semantic and self._embed is not None and message.text.strip():
            meaning = _pgvector(self._embed((message.text,))[0])
            self._all(
                "INSERT INTO thread_vectors (thread, seq, meaning)"
                f" VALUES (?, ?, ?::{self._vector_schema}.vector)",
                (no, seq, meaning),
            )

    def _unindex(self, no: int, seq: int | None) -> None:
        for table in ("thread_words", *(("thread_vectors",) if self._has_vectors() else ())):
            if seq is None:
                self._all(f"DELETE FROM {table} WHERE thread = ?", (no,))
            else:
                self._all(f"DELETE FROM {table} WHERE thread = ? AND seq = ?", (no, seq))

    def _has_vectors(self) -> bool:
        return self._there_is("thread_vectors")

    def _copy_index(self, no: int, copy: int) -> None:
        self._all(
            "INSERT INTO thread_words (thread, seq, words)"
            f" SELECT {int(copy)}, seq, words FROM thread_words WHERE thread = ?",
            (no,),
        )
        if self._has_vectors():
            self._all(
                "INSERT INTO thread_vectors (thread, seq, meaning)"
                f" SELECT {int(copy)}, seq, meaning FROM thread_vectors WHERE thread = ?",
                (no,),
            )

    def _erase(self) -> None:
        """Rows are gone with the commit; their bytes with the server's next vacuum."""

    def _matches(
        self, terms: Sequence[SearchTerm], where: str, bindings: list[Any], limit: int, text: str
    ) -> list[tuple[int, int, float]]:
        query = " | ".join(map(_query, terms))
        found = self._all(
            "SELECT w.thread, w.seq, ts_rank(w.words, ?::tsquery) AS score FROM thread_words w"
            f" JOIN threads t ON t.no = w.thread WHERE w.words @@ ?::tsquery AND {where}"
            " ORDER BY score DESC, w.thread, w.seq LIMIT ?",
            (query, query, *bindings, limit),
        )
        if not (self.semantic and self._embed is not None and text.strip()):
            return [(no, seq, score) for no, seq, score in found]
        near = self._all(
            "SELECT v.thread, v.seq FROM thread_vectors v JOIN threads t ON t.no = v.thread"
            f" WHERE {where} ORDER BY v.meaning OPERATOR({self._vector_schema}.<=>)"
            f" ?::{self._vector_schema}.vector,"
            " v.thread, v.seq LIMIT ?",
            (*bindings, _pgvector(self._embed((text,))[0]), limit),
        )
        return _fused([row[:2] for row in found], near, limit)


def _fused(
    first: Sequence[tuple[Any, ...]], second: Sequence[tuple[Any, ...]], limit: int
) -> list[tuple[int, int, float]]:
    """Two orders as one, by the sum of reciprocal ranks."""
    scores: dict[tuple[int, int], float] = {}
    for order in (first, second):
        for rank, (no, seq) in enumerate(order, start=1):
            scores[no, seq] = scores.get((no, seq), 0.0) + 1 / (_FUSION + rank)
    best = sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [(no, seq, score) for (no, seq), score in best]


def _quoted(token: str) -> str:
    doubled = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"


def _vector_text(words: str, forms: str) -> str:
    """A tsvector as text: the words with their places, other forms without."""
    found = [
        f"{_quoted(token)}:{min(at, _MOST_POSITION)}"
        for at, token in enumerate(words.split()[:_MOST_WORDS], start=1)
    ]
    return " ".join([*found, *map(_quoted, forms.split()[:_MOST_WORDS])])


def _query(term: SearchTerm) -> str:
    if term.prefix:
        return f"{_quoted(term.tokens[0])}:*"
    found = " <-> ".join(map(_quoted, term.tokens))
    return f"(({found}) | {_quoted(term.exact)})" if term.exact else f"({found})"


def _pgvector(values: Sequence[float]) -> str:
    return "[" + ",".join(f"{float(each):.6f}" for each in values) + "]"
