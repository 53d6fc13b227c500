"""What both stores of threads do alike, in SQL that both databases understand.

A subclass gives connection, transactions, placeholders, tables and search. Statements here use
``?``. Numbers of rows are given under the lock of their thread's row in ``threads``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from h2ams.errors import ConflictError, NotFoundError, StoreError
from h2ams.threads.message import derived_id
from h2ams.threads.thread_store import (
    Appended,
    Committed,
    Found,
    NewMessage,
    NewSummary,
    Row,
    SearchTerm,
    Stored,
    ThreadInfo,
)

_INFO = "id, scope, system, created_at, message_count, edits"
_ROW = (
    "id, seq, kind, payload, created_at, shape, role, tokens, encoding, name, boundary,"
    " boundary_seq, first_seq, origin, valid"
)
_INSERT = f"INSERT INTO thread_rows (thread, {_ROW}) VALUES (?{', ?' * 15})"
EDITED = "edited"  # the origin of a message row that a person has changed
TABLES = (
    """CREATE TABLE IF NOT EXISTS threads (
        no {serial},
        id TEXT NOT NULL UNIQUE,
        scope TEXT NOT NULL,
        system TEXT NOT NULL,
        created_at TEXT NOT NULL,
        message_count BIGINT NOT NULL DEFAULT 0,
        edits BIGINT NOT NULL DEFAULT 0,
        next_seq BIGINT NOT NULL DEFAULT 1
    )""",
    "CREATE INDEX IF NOT EXISTS threads_by_scope ON threads (scope)",
    """CREATE TABLE IF NOT EXISTS thread_rows (
        thread BIGINT NOT NULL,
        id TEXT NOT NULL,
        seq BIGINT NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_at TEXT NOT NULL,
        shape TEXT NOT NULL,
        role TEXT NOT NULL,
        tokens BIGINT NOT NULL,
        encoding TEXT NOT NULL,
        name TEXT NOT NULL,
        boundary TEXT NOT NULL,
        boundary_seq BIGINT NOT NULL,
        first_seq BIGINT NOT NULL,
        origin TEXT NOT NULL,
        valid BIGINT NOT NULL,
        PRIMARY KEY (thread, seq)
    ){suffix}""",
    "CREATE UNIQUE INDEX IF NOT EXISTS thread_rows_by_id ON thread_rows (thread, id)",
    """CREATE UNIQUE INDEX IF NOT EXISTS one_summary_a_boundary
        ON thread_rows (thread, boundary_seq, origin) WHERE kind = 'summary' AND valid = 1""",
    """CREATE INDEX IF NOT EXISTS thread_states
        ON thread_rows (thread, name, seq) WHERE kind = 'state'""",
)


def to_json(value: object) -> str:
    """JSON in ASCII: a text that no encoding and no database refuses."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))


def _payload(values: Sequence[Any]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(values[3])
    except (ValueError, RecursionError) as error:
        raise StoreError(
            f"row {values[0]} of a thread cannot be read: {error}",
            hint="restore the threads from a backup",
        ) from error
    return found


def _row(values: Sequence[Any]) -> Row:
    return Row(
        id=values[0],
        seq=int(values[1]),
        kind=values[2],
        payload=_payload(values),
        created_at=values[4],
        shape=values[5],
        role=values[6],
        tokens=int(values[7]),
        encoding=values[8],
        name=values[9],
        boundary=values[10],
        boundary_seq=int(values[11]),
        first_seq=int(values[12]),
        origin=values[13],
        valid=bool(values[14]),
    )


def _info(values: Sequence[Any]) -> ThreadInfo:
    id, scope, system, created_at, count, edits = values
    return ThreadInfo(id, scope, system, created_at, int(count), int(edits))


class SqlThreadStore(ABC):
    """See ``thread_store.ThreadStore`` for what each method promises."""

    # -- what a database brings ------------------------------------------------------------------

    @abstractmethod
    def _all(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a statement; in a transaction where one is open."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[None]:
        """A write transaction: all or nothing, also when the process is killed."""

    @abstractmethod
    def _reading(self) -> AbstractContextManager[None]:
        """A transaction in which all statements see one state."""

    @abstractmethod
    def _lock_thread(self, thread: str) -> tuple[Any, ...] | None:
        """``(no, message_count, edits, next_seq)`` of a thread, locked until the end."""

    @abstractmethod
    def _index_words(self, no: int, seq: int, message: NewMessage) -> None:
        """Make a message findable."""

    @abstractmethod
    def _unindex(self, no: int, seq: int | None) -> None:
        """Forget the words of a message, or of all messages of a thread."""

    @abstractmethod
    def _copy_index(self, no: int, copy: int) -> None:
        """Make the words of thread ``no`` those of thread ``copy`` too."""

    @abstractmethod
    def _erase(self) -> None:
        """Take traces of what was deleted out of the files, outside of a transaction."""

    @abstractmethod
    def _matches(
        self, terms: Sequence[SearchTerm], where: str, bindings: list[Any], limit: int, text: str
    ) -> list[tuple[int, int, float]]:
        """``(no, seq, score)`` of matching messages in threads ``t`` that ``where`` allows."""

    # -- threads ---------------------------------------------------------------------------------

    def create(self, info: ThreadInfo) -> ThreadInfo:
        with self._writing():
            self._all(
                "INSERT INTO threads (id, scope, system, created_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (id) DO NOTHING",
                (info.id, info.scope, info.system, info.created_at),
            )
            found = self.info(info.id)
        assert found is not None
        if (found.scope, found.system) != (info.scope, info.system):
            what = "scope" if found.scope != info.scope else "system prompt"
            raise ConflictError(
                f"thread {info.id} exists with another {what}",
                hint="use another name; a thread keeps the system prompt of its start",
            )
        return found

    def info(self, thread: str) -> ThreadInfo | None:
        found = self._all(f"SELECT {_INFO} FROM threads WHERE id = ?", (thread,))
        return _info(found[0]) if found else None

    def list(self, scopes: Sequence[str] | None = None) -> tuple[ThreadInfo, ...]:
        where, bindings = _in_scopes(scopes, "scope")
        found = self._all(f"SELECT {_INFO} FROM threads WHERE {where} ORDER BY id", bindings)
        return tuple(map(_info, found))

    def _required(self, thread: str) -> tuple[Any, ...]:
        found = self._lock_thread(thread)
        if found is None:
            raise NotFoundError(f"there is no thread {thread}", hint="make it first: thread new")
        return found

    # -- rows ------------------------------------------------------------------------------------

    def append(
        self, thread: str, messages: Sequence[NewMessage], at: int | None = None
    ) -> Appended:
        with self._writing():
            no, count, _, next_seq = self._required(thread)
            if at is not None and not 0 <= at <= count:
                raise ConflictError(f"thread {thread} has {count} messages, none before {at}")
            rows: list[Row] = []
            new: set[str] = set()
            position, seq = count if at is None else at, next_seq
            for message in messages:
                id = message.id or derived_id(thread, position, message.payload)
                known = self._by_id(no, id)
                if known is not None and known.kind == "message":
                    # A derived id is that of the text as it was first said: what a person made of
                    # it since stays, also when the first text is delivered once more.
                    if message.id and known.origin != EDITED and known.payload != message.payload:
                        raise ConflictError(f"thread {thread} has another message {id}")
                    rows.append(known)
                    position += 1
                    continue
                if position < count:
                    raise ConflictError(f"thread {thread} has another message at {position}")
                row = _message_row(id, seq, message)
                self._insert(no, row)
                if message.words or message.forms:
                    self._index_words(no, seq, message)
                rows.append(row)
                new.add(id)
                position, seq, count = position + 1, seq + 1, count + 1
            self._all(
                "UPDATE threads SET next_seq = ?, message_count = ? WHERE no = ?", (seq, count, no)
            )
        return Appended(tuple(rows), frozenset(new))

    def _insert(self, no: int, row: Row) -> None:
        self._all(
            _INSERT,
            (
                no, row.id, row.seq, row.kind, to_json(row.payload), row.created_at, row.shape,
                row.role, row.tokens, row.encoding, row.name, row.boundary, row.boundary_seq,
                row.first_seq, row.origin, int(row.valid),
            ),
        )  # fmt: skip

    def _by_id(self, no: int, id: str) -> Row | None:
        found = self._all(f"SELECT {_ROW} FROM thread_rows WHERE thread = ? AND id = ?", (no, id))
        return _row(found[0]) if found else None

    def _select(self, where: str, bindings: Sequence[Any]) -> tuple[Row, ...]:
        found = self._all(f"SELECT {_ROW} FROM thread_rows WHERE {where}", bindings)
        return tuple(map(_row, found))

    def load(self, thread: str) -> Stored:
        with self._reading():
            found = self._all(f"SELECT no, {_INFO} FROM threads WHERE id = ?", (thread,))
            if not found:
                raise NotFoundError(f"there is no thread {thread}", hint="make it: thread new")
            no, info = found[0][0], _info(found[0][1:])
            summary = self._newest_summary(no)
            boundary = summary.boundary_seq if summary else 0
            behind = self._select(
                "thread = ? AND seq > ? AND kind <> 'summary' ORDER BY seq", (no, boundary)
            )
            rows = [row for row in behind if row.kind == "message"]
            if summary is not None:
                rows = [*self._before_and_carried(no, summary), *rows]
            of_kind = "thread = ? AND kind = 'state' AND name = 'breaker'"
            newest = f"SELECT seq FROM thread_rows WHERE {of_kind} ORDER BY seq DESC LIMIT 1"
            breaker = self._select(f"thread = ? AND seq = ({newest})", (no, no))
        states = tuple(row for row in behind if row.name == "prepass")
        return Stored(info, summary, tuple(rows), states, breaker[0] if breaker else None)

    def _newest_summary(self, no: int) -> Row | None:
        of_thread = "thread = ? AND kind = 'summary' AND valid = 1"
        # By the index alone to the boundary: sorting would read every summary there ever was.
        boundary = (
            f"SELECT boundary_seq FROM thread_rows WHERE {of_thread}"
            " ORDER BY boundary_seq DESC LIMIT 1"
        )
        found = self._select(
            f"{of_thread} AND boundary_seq = ({boundary}) ORDER BY seq DESC LIMIT 1", (no, no)
        )
        return found[0] if found else None

    def _before_and_carried(self, no: int, summary: Row) -> Iterable[Row]:
        if summary.first_seq > 1:
            yield from self._select(
                "thread = ? AND seq < ? AND kind = 'message' ORDER BY seq", (no, summary.first_seq)
            )
        carried = [self._by_id(no, id) for id in summary.payload.get("carried", ())]
        yield from sorted(
            (
                row
                for row in carried
                if row is not None and summary.first_seq <= row.seq <= summary.boundary_seq
            ),
            key=lambda row: row.seq,
        )

    def rows(self, thread: str, after_seq: int = 0, limit: int | None = None) -> tuple[Row, ...]:
        with self._reading():
            found = self._all("SELECT no FROM threads WHERE id = ?", (thread,))
            if not found:
                raise NotFoundError(f"there is no thread {thread}", hint="make it: thread new")
            most = 1 << 60 if limit is None else limit
            return self._select(
                "thread = ? AND seq > ? ORDER BY seq LIMIT ?", (found[0][0], after_seq, most)
            )

    def states(self, thread: str, name: str) -> tuple[Row, ...]:
        return self._select(
            "thread = (SELECT no FROM threads WHERE id = ?) AND kind = 'state' AND name = ?"
            " ORDER BY seq",
            (thread, name),
        )

    # -- summaries and states --------------------------------------------------------------------

    def add_summary(self, thread: str, summary: NewSummary, edits: int) -> Committed:
        with self._writing():
            no, _, edits_now, seq = self._required(thread)
            known = self._by_id(no, summary.id)
            if known is not None and known.valid:
                return Committed(known, False)
            if edits_now != edits:
                return Committed(None, False)
            same = self._select(
                "thread = ? AND boundary_seq = ? AND origin = ? AND kind = 'summary' AND valid = 1",
                (no, summary.boundary_seq, summary.origin),
            )
            newest = self._newest_summary(no)
            if same:
                return Committed(same[0], False)
            if newest is not None and (
                newest.boundary_seq > summary.boundary_seq
                or (newest.boundary_seq == summary.boundary_seq and summary.origin == "compaction")
            ):
                return Committed(newest, False)
            if known is not None:  # taken back by an edit that was taken back itself
                self._all("DELETE FROM thread_rows WHERE thread = ? AND seq = ?", (no, known.seq))
            row = _summary_row(seq, summary)
            self._insert(no, row)
            self._all("UPDATE threads SET next_seq = ? WHERE no = ?", (seq + 1, no))
        return Committed(row, True)

    def add_state(self, thread: str, id: str, name: str, payload: Any, created_at: str) -> bool:
        with self._writing():
            no, _, _, seq = self._required(thread)
            if self._by_id(no, id) is not None:
                return False
            self._insert(no, Row(id, seq, "state", payload, created_at, name=name))
            self._all("UPDATE threads SET next_seq = ? WHERE no = ?", (seq + 1, no))
        return True

    def edit(self, thread: str, id: str, message: NewMessage) -> tuple[str, ...]:
        with self._writing():
            no, _, edits, _ = self._required(thread)
            row = self._by_id(no, id)
            if row is None or row.kind != "message":
                raise NotFoundError(f"thread {thread} has no message {id}")
            covering = self._select(
                "thread = ? AND kind = 'summary' AND valid = 1 AND boundary_seq >= ?"
                " AND first_seq <= ? ORDER BY seq",
                (no, row.seq, row.seq),
            )
            self._all(
                "UPDATE thread_rows SET payload = ?, shape = ?, role = ?, tokens = ?, encoding = ?,"
                " origin = ? WHERE thread = ? AND seq = ?",
                (
                    to_json(message.payload), message.shape, message.role, message.tokens,
                    message.encoding, EDITED, no, row.seq,
                ),
            )  # fmt: skip
            for each in covering:
                self._all(
                    "UPDATE thread_rows SET valid = 0 WHERE thread = ? AND seq = ?", (no, each.seq)
                )
            self._all("UPDATE threads SET edits = ? WHERE no = ?", (edits + 1, no))
            self._unindex(no, row.seq)
            if message.words or message.forms:
                self._index_words(no, row.seq, message)
        return tuple(each.id for each in covering)

    # -- search ----------------------------------------------------------------------------------

    def search(
        self,
        terms: Sequence[SearchTerm],
        *,
        scopes: Sequence[str] | None,
        but: str = "",
        limit: int = 10,
        text: str = "",
    ) -> tuple[Found, ...]:
        if not terms or limit <= 0 or (scopes is not None and not scopes):
            return ()
        where, bindings = _in_scopes(scopes, "t.scope")
        with self._reading():
            matches = self._matches(terms, f"{where} AND t.id <> ?", [*bindings, but], limit, text)
            found = []
            for no, seq, score in matches:
                thread = self._all("SELECT id, scope FROM threads WHERE no = ?", (no,))[0]
                row = self._select("thread = ? AND seq = ?", (no, seq))[0]
                found.append(Found(thread[0], thread[1], row, round(float(score), 6)))
        found.sort(key=lambda each: (-each.score, each.thread, each.row.seq))
        return tuple(found[:limit])

    # -- lifecycle -------------------------------------------------------------------------------

    def delete(self, thread: str) -> bool:
        with self._writing():
            found = self._lock_thread(thread)
            if found is None:
                return False
            self._unindex(found[0], None)
            self._all("DELETE FROM thread_rows WHERE thread = ?", (found[0],))
            self._all("DELETE FROM threads WHERE no = ?", (found[0],))
        self._erase()
        return True

    def rename(self, thread: str, new: str) -> None:
        with self._writing():
            found = self._required(thread)
            self._free(new)
            self._all("UPDATE threads SET id = ? WHERE no = ?", (new, found[0]))

    def move(self, scope: str, new: str) -> int:
        with self._writing():
            found = self._all("SELECT count(*) FROM threads WHERE scope = ?", (scope,))
            self._all("UPDATE threads SET scope = ? WHERE scope = ?", (new, scope))
        return int(found[0][0])

    def clone(self, thread: str, new: str, scope: str | None = None) -> None:
        with self._writing():
            found = self._required(thread)
            self._free(new)
            self._all(
                "INSERT INTO threads"
                " (id, scope, system, created_at, message_count, edits, next_seq)"
                " SELECT ?, coalesce(?, scope), system, created_at, message_count, edits, next_seq"
                " FROM threads WHERE no = ?",
                (new, scope, found[0]),
            )
            copy = self._all("SELECT no FROM threads WHERE id = ?", (new,))[0][0]
            self._all(
                f"INSERT INTO thread_rows (thread, {_ROW})"
                f" SELECT {int(copy)}, {_ROW} FROM thread_rows WHERE thread = ?",
                (found[0],),
            )
            self._copy_index(found[0], copy)

    def _free(self, name: str) -> None:
        if self.info(name) is not None:
            raise ConflictError(f"there is a thread {name} already", hint="use another name")


def _in_scopes(scopes: Sequence[str] | None, column: str) -> tuple[str, list[Any]]:
    if scopes is None:
        return "1 = 1", []
    marks = ", ".join("?" for _ in scopes) or "NULL"
    return f"{column} IN ({marks})", list(scopes)


def _message_row(id: str, seq: int, message: NewMessage) -> Row:
    return Row(
        id, seq, "message", message.payload, message.created_at, message.shape, message.role,
        message.tokens, message.encoding,
    )  # fmt: skip


def _summary_row(seq: int, summary: NewSummary) -> Row:
    return Row(
        id=summary.id,
        seq=seq,
        kind="summary",
        payload=summary.payload,
        created_at=summary.created_at,
        tokens=summary.tokens,
        encoding=summary.encoding,
        boundary=summary.boundary,
        boundary_seq=summary.boundary_seq,
        first_seq=summary.first_seq,
        origin=summary.origin,
    )
