"""Where threads are kept: the protocol of a store and its values (Pure).

A thread is append-only rows. ``message`` rows hold what was said, ``summary`` rows what stands for
the rows up to their boundary, ``state`` rows committed pre-passes, the counters of the breaker and
the flushes that were done. Compaction adds rows and changes none; only ``edit``, a person's wish,
changes a message, and takes back every summary that covers it.

Every write is one transaction. Two writers on one thread are safe: numbers are given under the lock
of the thread, and what must exist once (a message, a summary of a boundary) is inserted or adopted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from h2ams.threads.message import Role, Shape

RowKind = Literal["message", "summary", "state"]
COMPACTION = "compaction"  # origins of a summary; the third is forced:<n>
RESTART = "restart"


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread. ``scope`` says whose it is: ``sessions/<id>``, ``chat/<id>`` or "" (the owner's).

    ``system`` is the snapshot of the system prompt, the same bytes every turn. ``message_count`` is
    the position that the next message gets; ``edits`` counts the changes that people made.
    """

    id: str
    scope: str = ""
    system: str = ""
    created_at: str = ""
    message_count: int = 0
    edits: int = 0


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to append. ``id`` "": derived from content and position. ``words``, ``forms``:
    analysed text for the search over past chats ("" where it is not searched)."""

    payload: Any
    shape: Shape
    role: Role
    tokens: int
    encoding: str
    created_at: str
    id: str = ""
    words: str = ""
    forms: str = ""
    text: str = field(default="", repr=False)  # what an embedding is made of


@dataclass(frozen=True, slots=True)
class Row:
    """A row as stored. ``seq`` orders the rows of a thread; ``payload`` is JSON.

    Of a summary: ``boundary`` and ``boundary_seq`` (the last message row that it covers),
    ``first_seq`` (the first), ``origin``, ``valid``. ``name`` is that of a state.
    """

    id: str
    seq: int
    kind: RowKind
    payload: Any
    created_at: str = ""
    shape: Shape = "openai-chat"
    role: Role = "other"
    tokens: int = 0
    encoding: str = ""
    name: str = ""
    boundary: str = ""
    boundary_seq: int = 0
    first_seq: int = 0
    origin: str = ""
    valid: bool = True


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary to append. ``payload``: text, ledger, carried rows, digests (``compaction``)."""

    id: str
    boundary: str
    boundary_seq: int
    first_seq: int
    origin: str
    payload: dict[str, Any]
    tokens: int
    encoding: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Stored:
    """What a brain needs of a thread for one turn, read in one transaction.

    ``rows``: message rows in order: those before the summary's range, carried ones, those behind
    its boundary. ``states``: committed pre-passes of these rows. ``breaker``: its newest counters.
    """

    info: ThreadInfo
    summary: Row | None
    rows: tuple[Row, ...]
    states: tuple[Row, ...] = ()
    breaker: Row | None = None


@dataclass(frozen=True, slots=True)
class Appended:
    """What came of an append: the rows of all messages given; ``new`` are the ids that were not
    there before (a message that is delivered twice is there once)."""

    rows: tuple[Row, ...]
    new: frozenset[str]


@dataclass(frozen=True, slots=True)
class Committed:
    """What came of adding a summary: the row that stands, ours or the winner's.

    ``row`` is ``None`` where a covered row was edited meanwhile: then nothing was added.
    """

    row: Row | None
    inserted: bool


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """One term of a search: ``tokens`` follow each other, ``exact`` is another form of it."""

    tokens: tuple[str, ...]
    exact: str | None = None
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A message that a search found; a higher score is a better match."""

    thread: str
    scope: str
    row: Row
    score: float


class ThreadStore(Protocol):
    """A place for threads. Safe to use from several threads, processes and machines at once."""

    def create(self, info: ThreadInfo) -> ThreadInfo:
        """Make the thread, or give the one that is there; ``ConflictError`` where that one has
        another scope or system prompt."""

    def info(self, thread: str) -> ThreadInfo | None:
        """The thread, or ``None``."""

    def list(self, scopes: Sequence[str] | None = None) -> tuple[ThreadInfo, ...]:
        """All threads (of these scopes), by name."""

    def append(
        self, thread: str, messages: Sequence[NewMessage], at: int | None = None
    ) -> Appended:
        """Append messages, each once. ``at``: the position of the first one; messages that stand
        there already are not added again, others there are a ``ConflictError``."""

    def load(self, thread: str) -> Stored:
        """What one turn needs; ``NotFoundError`` where there is no such thread."""

    def rows(self, thread: str, after_seq: int = 0, limit: int | None = None) -> tuple[Row, ...]:
        """All rows in the order of writing, for showing and auditing."""

    def add_summary(self, thread: str, summary: NewSummary, edits: int) -> Committed:
        """Add a summary made from a state with so many ``edits``; insert or adopt."""

    def add_state(self, thread: str, id: str, name: str, payload: Any, created_at: str) -> bool:
        """Add a state row; False where one with this id is there."""

    def states(self, thread: str, name: str) -> tuple[Row, ...]:
        """All state rows of one name, in order."""

    def edit(self, thread: str, id: str, message: NewMessage) -> tuple[str, ...]:
        """Replace a message; the ids of the summaries that were taken back by it."""

    def claim(self, thread: str) -> AbstractContextManager[bool]:
        """The right to compact the thread: True for one at a time; given back when its holder ends,
        however it ends."""

    def search(
        self,
        terms: Sequence[SearchTerm],
        *,
        scopes: Sequence[str] | None,
        but: str = "",
        limit: int = 10,
        text: str = "",
    ) -> tuple[Found, ...]:
        """Messages of people and assistants in the threads of ``scopes`` (None: of all), except
        thread ``but``, best first."""

    def delete(self, thread: str) -> bool:
        """Remove a thread and every trace of it."""

    def rename(self, thread: str, new: str) -> None:
        """Give a thread another name; ``ConflictError`` where it is taken."""

    def move(self, scope: str, new: str) -> int:
        """Give all threads of ``scope`` to scope ``new``; how many."""

    def clone(self, thread: str, new: str, scope: str | None = None) -> None:
        """Copy a thread with all its rows; ``ConflictError`` where the name is taken."""

    def close(self) -> None:
        """Close the store; it is not used again."""
