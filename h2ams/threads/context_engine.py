"""The context engine: one thread's prompt for one turn, and everything a host does with a thread.

    engine = ContextEngine(SqliteThreadStore("threads.db"))
    thread = engine.thread("t1", system="You are …")
    context = thread.context({"role": "user", "content": "hello"}, record=True)
    send(context.messages); thread.append(reply)

Nothing lives here between turns: each call rehydrates the window from the store, compacts where it
is over its budget, and could be the last thing this process does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from h2ams.errors import NotFoundError, UsageError
from h2ams.settings import DEFAULTS, Settings
from h2ams.threads import running_summary, shapes
from h2ams.threads.compaction import Compaction, Compactor
from h2ams.threads.flush import Flush, FlushMode, Trigger
from h2ams.threads.message import Message, Shape, count_message
from h2ams.threads.past_chats import PastHit, past_chats
from h2ams.threads.prompt import Context, Limits
from h2ams.threads.thread_store import NewMessage, Row, ThreadInfo, ThreadStore
from h2ams.threads.unit import Entry
from h2ams.threads.view import View, view
from h2ams.threads.window import Asked, assemble
from h2ams.tokens import TokenCounter

if TYPE_CHECKING:
    from h2ams.models.request import Model

MemorySource = Callable[[str, int], str]
FLOOR_SHARE = 0.8  # of the budget: more than this cannot be compacted, and is said
FLOOR_NOTE = "incompressible-floor"
SYSTEM_NOTE = "system-prompt-differs"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class ContextEngine:
    """Threads of one store with what they need: counter, summariser, memory and its flush.

    ``summariser``: the cheap model for summaries; None is the built-in that needs none.
    ``memory(query, budget)``: recalled text for a prompt. ``revive``: makes objects of LangChain's
    dictionaries. ``now``: ISO 8601 time in UTC.
    """

    def __init__(
        self,
        store: ThreadStore,
        *,
        settings: Settings = DEFAULTS,
        counter: TokenCounter | None = None,
        summariser: Model | None = None,
        flush: Flush | None = None,
        flush_mode: FlushMode = "optional",
        memory: MemorySource | None = None,
        revive: Callable[[dict[str, Any]], Any] | None = None,
        now: Callable[[], str] = _now,
    ) -> None:
        if flush_mode == "required" and flush is None:
            raise UsageError("the flush is required, but there is none", hint="give flush=…")
        if counter is None:
            from h2ams.tokens import counter as counter_called

            counter = counter_called(settings.encoding)
        self.store = store
        self.settings = settings
        self.counter = counter
        self.memory = memory
        self.revive = revive
        self.now = now
        self.compactor = Compactor(
            store=store,
            count=counter.count,
            encoding=counter.name,
            now=now,
            load=self.load,
            model=summariser,
            model_window_tokens=settings.thread_summariser_window_tokens,
            flush=flush,
            flush_mode=flush_mode,
        )

    def thread(
        self,
        id: str,
        *,
        system: str | None = None,
        scope: str = "",
        window: int | None = None,
        reserve: int | None = None,
        tools: int | Sequence[Any] = 0,
        shape: Shape | None = None,
    ) -> Thread:
        """The thread called ``id``, made where there is none, with the budgets of this host.

        ``system`` is kept as it is at the start of the thread; another one later changes nothing
        and is noted in the receipt. ``tools``: their tokens, or their definitions.
        """
        if not id or len(id) > 256 or "\0" in id:
            raise UsageError(f"not a name for a thread: {id[:40]!r}", hint="1 to 256 characters")
        known = self.store.info(id)
        notes: tuple[str, ...] = ()
        if known is None:
            known = self.store.create(ThreadInfo(id, scope, system or "", self.now()))
        elif system is not None and known.system != system:
            notes = (SYSTEM_NOTE,)
        limits = Limits.of(
            self.settings, window=window, reserve=reserve, tools_tokens=self.tool_tokens(tools)
        )
        return Thread(self, id, limits, shape, notes)

    def tool_tokens(self, tools: int | Sequence[Any]) -> int:
        """What the definitions of tools cost in a prompt."""
        if isinstance(tools, int):
            return tools
        return sum(self.counter.count(json.dumps(each, default=str)) + 4 for each in tools)

    def load(self, thread: str) -> View:
        """The thread as it is stored now."""
        return view(self.store.load(thread), self.counter.count, self.counter.name)

    def context(self, thread: Thread | str, new_message: Any = None, **how: Any) -> Context:
        """``thread.context(new_message)``, for hosts that keep only names of threads."""
        found = thread if isinstance(thread, Thread) else self.thread(thread)
        return found.context(new_message, **how)

    def turn(self, thread: Thread | str, new_message: Any = None) -> Turn:
        """``thread.turn(new_message)``."""
        found = thread if isinstance(thread, Thread) else self.thread(thread)
        return found.turn(new_message)

    # -- messages --------------------------------------------------------------------------------

    def new_message(self, message: Message) -> NewMessage:
        """A message as the store takes it: counted, and analysed for the search."""
        searched = ""
        if message.role in ("user", "assistant"):
            searched = running_summary.scrub(message.text)
        words = forms = ""
        if searched.strip():
            from h2ams.text.words import analyse

            words, forms = analyse(searched)
        return NewMessage(
            payload=shapes.stored(message),
            shape=message.shape,
            role=message.role,
            tokens=count_message(message, self.counter.count),
            encoding=self.counter.name,
            created_at=self.now(),
            id=message.id,
            words=words,
            forms=forms,
            text=searched,
        )


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread with the budgets of one host. Holds no state of its own.

    ``memory`` stands before the engine's own; ``readable`` are the scopes whose threads may be
    searched (None: all).
    """

    engine: ContextEngine
    id: str
    limits: Limits
    shape: Shape | None = None
    notes: tuple[str, ...] = ()
    memory: MemorySource | None = None
    readable: tuple[str, ...] | None = None

    # -- writing ---------------------------------------------------------------------------------

    def append(self, *messages: Any, at: int | None = None) -> tuple[str, ...]:
        """Append messages in the shape they have; the ids of their rows.

        What the engine itself has put into a prompt (summary, memory block) is not kept. With
        ``at``, the position of the first, messages that are there already are not added again.
        """
        rows = self.engine.store.append(self.id, self._read(messages), at).rows
        return tuple(row.id for row in rows)

    def _read(self, messages: Sequence[Any]) -> list[NewMessage]:
        found = [shapes.read(each, default=self.shape or "openai-chat") for each in messages]
        return [self.engine.new_message(each) for each in found if self.keeps(each)]

    def keeps(self, message: Message) -> bool:
        """Whether a message belongs into the thread: not what the engine itself put into a prompt,
        and not the system prompt, of which the thread keeps its own snapshot."""
        if message.role == "system" and message.text == self.info.system:
            return False
        return not _is_own(message)

    def edit(self, id: str, message: Any) -> tuple[str, ...]:
        """Replace a message, as a person wishes; the summaries that it took back."""
        read = shapes.read(message, default=self.shape or "openai-chat")
        return self.engine.store.edit(self.id, id, self.engine.new_message(read))

    def restart(self, text: str = "") -> Compaction:
        """Start afresh: what was said so far is behind a line, with a person's summary or none."""
        return self.engine.compactor.restart(self.id, text)

    def compact(self, *, force: bool = False, trigger: Trigger = "manual") -> Compaction:
        """Compact now, whatever the breaker says. Without ``force``, only a window over its budget;
        ``trigger="overflow"``: a server has refused the prompt as too long."""
        return self.engine.compactor.run(
            self.id,
            self.limits,
            over=lambda seen: self._is_over(seen, 0),
            trigger="forced" if force else trigger,
        )

    # -- reading ---------------------------------------------------------------------------------

    @property
    def info(self) -> ThreadInfo:
        """The thread as stored; ``NotFoundError`` where it was deleted."""
        found = self.engine.store.info(self.id)
        if found is None:
            raise NotFoundError(f"there is no thread {self.id}")
        return found

    def rows(self) -> tuple[Row, ...]:
        """All rows in the order in which a person reads them: a summary stands behind its
        boundary, whenever it was written."""
        found = self.engine.store.rows(self.id)
        return tuple(sorted(found, key=_reading_order))

    def search(
        self, query: str, *, scopes: Sequence[str] | None = None, limit: int = 10
    ) -> tuple[PastHit, ...]:
        """What was said in other threads that may be read, or in those of ``scopes`` alone."""
        allowed = self.readable
        if scopes is not None:
            allowed = tuple(each for each in scopes if allowed is None or each in allowed)
        return past_chats(self.engine.store, query, scopes=allowed, but=self.id, limit=limit)

    def context(
        self,
        message: Any = None,
        *,
        record: bool = False,
        memory: MemorySource | None = None,
        compact: bool = True,
    ) -> Context:
        """The prompt for ``message`` (None: for what the thread ends with).

        ``record`` appends the message first. A message that is the thread's last row already is not
        shown twice. Compacts where the window is over its budget, if ``compact``.
        """
        read = None if message is None else shapes.read(message, default=self._default_shape())
        if read is not None and record:
            self.engine.store.append(self.id, self._read([read.original]))
            read = None
        return self._context(read, (), memory or self.source, compact)

    def turn(self, message: Any = None) -> Turn:
        """A growing turn: messages are kept in the process until a checkpoint or its end."""
        turn = Turn(self)
        if message is not None:
            turn.append(message)
        return turn

    @property
    def source(self) -> MemorySource | None:
        """Where recalled text comes from."""
        return self.memory or self.engine.memory

    # -- assembling ------------------------------------------------------------------------------

    def _default_shape(self) -> Shape:
        return self.shape or "openai-chat"

    def _context(
        self,
        new: Message | None,
        growing: Sequence[Entry],
        memory: MemorySource | None,
        compact: bool,
    ) -> Context:
        engine = self.engine
        seen = engine.load(self.id)
        if new is not None and _is_last(seen, new):
            new = None
        entry = None if new is None else self.entry(new, "new")
        waiting = (entry.tokens if entry else 0) + sum(each.tokens for each in growing)
        done = ""
        if compact and not growing and self._is_over(seen, waiting, memory):
            outcome = engine.compactor.run(
                self.id,
                self.limits,
                over=lambda each: self._is_over(each, waiting, memory),
                has_new=entry is not None,
            )
            done = outcome.code
            seen = engine.load(self.id)
        window = seen.window
        if growing:
            window = replace(window, entries=(*window.entries, *growing))
        asked = Asked(
            new=entry,
            limits=self.limits,
            count=engine.counter.count,
            shape=self._shape_of(seen, new, growing),
            memory=memory,
            notes=(*self.notes, *self._floor(seen, waiting)),
            compaction=done,
        )
        return _revived(assemble(window, asked), engine.revive)

    def entry(self, message: Message, id: str) -> Entry:
        """A message that is not stored yet, behind all rows."""
        tokens = count_message(message, self.engine.counter.count)
        return Entry(message.id or id, 1 << 62, message, tokens)

    def _shape_of(self, seen: View, new: Message | None, growing: Sequence[Entry]) -> Shape:
        """The shape that the host speaks: as it said, else that of the newest message."""
        if self.shape is not None:
            return self.shape
        for entry in reversed((*seen.window.entries, *growing)):
            if entry.message.shape != "openai-chat":
                return entry.message.shape
        return new.shape if new is not None else "openai-chat"

    def _is_over(self, seen: View, waiting: int, memory: MemorySource | None = None) -> bool:
        """Whether the window with all that comes to it exceeds the budget."""
        window, limits = seen.window, self.limits
        kept = int(limits.flexible(window.system_tokens) * limits.memory_share) if memory else 0
        return window.tokens + limits.tools_tokens + waiting + kept > limits.budget_tokens

    def _floor(self, seen: View, waiting: int) -> tuple[str, ...]:
        floor = seen.window.system_tokens + self.limits.tools_tokens + waiting
        return (FLOOR_NOTE,) if floor > self.limits.budget_tokens * FLOOR_SHARE else ()


class Turn:
    """One long turn: the window grows in the process and is compacted under the same rules.

    Messages are kept until ``checkpoint``, until a compaction needs them stored, or until the
    turn's end, whether it ends well or not; a crash loses at most what came after that. Used in a
    ``with`` statement, or closed by hand.
    """

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self._growing: list[Entry] = []
        self._last: tuple[tuple[object, ...], Context] | None = None

    def append(self, *messages: Any) -> None:
        """Messages that come to the turn. Nothing is written yet."""
        for each in messages:
            read = shapes.read(each, default=self.thread._default_shape())
            if self.thread.keeps(read):
                self._growing.append(self.thread.entry(read, f"new-{len(self._growing) + 1}"))

    def context(self, *, memory: MemorySource | None = None) -> Context:
        """The prompt for what the turn has come to; the same object while nothing has changed."""
        thread = self.thread
        source = memory or thread.source
        seen = thread.engine.load(thread.id)
        waiting = sum(entry.tokens for entry in self._growing)
        if thread._is_over(seen, waiting, source):
            self.checkpoint()
            seen = thread.engine.load(thread.id)
        key = (seen.version, tuple(id(entry) for entry in self._growing), id(source))
        if self._last is not None and self._last[0] == key:
            return self._last[1]
        context = thread._context(None, tuple(self._growing), source, True)
        after = thread.engine.load(thread.id).version if context.receipt.compaction else key[0]
        self._last = ((after, *key[1:]), context)
        return context

    def checkpoint(self) -> tuple[str, ...]:
        """Store what has come so far; the ids of the rows."""
        if not self._growing:
            return ()
        engine = self.thread.engine
        new = [engine.new_message(entry.message) for entry in self._growing]
        rows = engine.store.append(self.thread.id, new).rows
        self._growing.clear()
        return tuple(row.id for row in rows)

    def close(self) -> None:
        """End the turn: everything is stored."""
        self.checkpoint()

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_own(message: Message) -> bool:
    """Whether a message is nothing but what the engine itself had put into a prompt."""
    return not message.calls and not message.results and running_summary.is_scaffold(message.text)


def _is_last(seen: View, new: Message) -> bool:
    """Whether ``new`` is what the thread ends with: a host that stores first, then asks."""
    entries = (*seen.window.head, *seen.window.entries)
    if not entries:
        return False
    last = max(entries, key=lambda entry: entry.seq)
    if new.id:
        return last.id == new.id
    return last.message.role == "user" and seen.payloads.get(last.id) == shapes.stored(new)


def _reading_order(row: Row) -> tuple[int, int, int]:
    return (row.boundary_seq, 1, row.seq) if row.kind == "summary" else (row.seq, 0, row.seq)


def _revived(context: Context, revive: Callable[[dict[str, Any]], Any] | None) -> Context:
    if revive is None or context.shape != "langchain":
        return context
    objects = tuple(
        revive(each) if isinstance(each, dict) and "data" in each else each
        for each in context.messages
    )
    return replace(context, messages=objects)
