"""Assembly of one turn's prompt (Pure): what is in it, in which order, and why.

    1 system prompt · 1b first turn, while no summary covers it · 2 running summary ·
    3 tail: freshest units verbatim · 4 recalled memory · 5 the new message, verbatim, always

The total, with the tools' cost, never exceeds window minus reserve. What may not be left out
(system prompt, tools, the last message of the user) and does not fit is a ``ContextOverflow``;
whatever else does not fit is left out, oldest units first, and listed in the receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from h2ams.errors import ContextOverflow
from h2ams.text import fences
from h2ams.text.sentences import clip
from h2ams.threads import shapes
from h2ams.threads.message import (
    MESSAGE_TOKENS,
    Edits,
    Image,
    Message,
    Shape,
    count_message,
    image_bytes,
)
from h2ams.threads.prompt import (
    Context,
    ContextReceipt,
    Limits,
    Part,
    PartName,
    Window,
)
from h2ams.threads.unit import ABANDONED, Entry, Unit, mend, units

_LEAST_RESULT_CHARS = 400  # a tool's output is not cut to less than this
_CUT_NOTICE = "\n[… {count} chars of this output left out: it did not fit into the window]\n"
_FRAME_TOKENS = 8  # a memory text that fits into so little more than its fence is not asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """What one assembly is asked for. ``memory(query, budget)`` gives recalled text or ""."""

    new: Entry | None
    limits: Limits
    count: Callable[[str], int]
    shape: Shape = "openai-chat"
    memory: Callable[[str, int], str] | None = None
    notes: tuple[str, ...] = ()
    compaction: str = ""


def first_turn(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The first turn of a thread: the first message of a person and the answer to it.

    All rows up to the second message of a person; of a thread with only one, that message alone.
    """
    found: list[Entry] = []
    seen = False
    whole = units(entries)
    for unit in whole:
        if unit.has_user_turn:
            if seen:
                return tuple(found)
            seen = True
        found += unit.entries
    start = next((at for at, unit in enumerate(whole) if unit.has_user_turn), None)
    if start is None:
        return ()
    return tuple(entry for unit in whole[: start + 1] for entry in unit.entries)


def query_of(window: Window, new: Entry | None) -> str:
    """What memory is asked for: the new message, or the last one of the user."""
    last = new or last_user_entry(window)
    return last.message.text if last is not None else ""


def last_user_entry(window: Window) -> Entry | None:
    """The last row in which a person says something."""
    rows = (*window.head, *window.entries)
    return next((entry for entry in reversed(rows) if entry.message.is_user_turn), None)


# ---------------------------------------------------------------- assembly


@dataclass(slots=True)
class _Choice:
    """Work in progress: tokens left, and what was decided."""

    room: int
    notice_tokens: int  # what a notice in the place of a missing result may cost
    left_out: list[Entry] = field(default_factory=list)
    shortened: list[str] = field(default_factory=list)


def assemble(window: Window, asked: Asked) -> Context:
    """The prompt for ``window``; ``ContextOverflow`` where what must be in it does not fit."""
    must = _mandatory(window, asked)
    notice_tokens = asked.count(ABANDONED) + 2 * MESSAGE_TOKENS
    choice = _Choice(asked.limits.budget_tokens - sum(must.values()), notice_tokens)
    if choice.room < 0:
        needed = sum(must.values())
        raise ContextOverflow(needed, asked.limits.budget_tokens, must)
    parts: dict[PartName, Part] = {}
    if window.system:
        why = "the snapshot of the thread's start"
        parts["system"] = Part("system", window.system_tokens, why=why)
    if asked.limits.tools_tokens:
        parts["tools"] = Part("tools", asked.limits.tools_tokens, why="the host's tools")
    summary = _summary(window, asked, choice)
    memory = _memory(window, asked, choice)
    pinned = None if asked.new else last_user_entry(window)
    head, tail = _rows(window, asked, choice, pinned)
    rows = _within_image_bytes([*head, *tail], asked, choice, pinned)
    head, tail = rows[: len(head)], rows[len(head) :]
    shown = [*head, *([summary] if summary else []), *tail]
    sent = _mended(shown, memory, asked, window)
    return _context(window, asked, sent, head, tail, memory, parts, choice)


def _mandatory(window: Window, asked: Asked) -> dict[str, int]:
    last = asked.new or last_user_entry(window)
    found = {"system": window.system_tokens, "tools": asked.limits.tools_tokens}
    if last is not None:
        found["message"] = last.tokens
    return found


def _summary(window: Window, asked: Asked, choice: _Choice) -> Entry | None:
    summary = window.summary
    if summary is None or not summary.rendered:
        return None
    message = shapes.make(asked.shape, "user", summary.rendered)
    entry = Entry(summary.id, 0, message, count_message(message, asked.count))
    if entry.tokens > choice.room:
        choice.left_out.append(entry)
        return None
    choice.room -= entry.tokens
    return entry


def _memory(window: Window, asked: Asked, choice: _Choice) -> Entry | None:
    if asked.memory is None:
        return None
    share = int(asked.limits.flexible(window.system_tokens) * asked.limits.memory_share)
    budget = min(share, choice.room) - _FRAME_TOKENS
    if budget <= 0:
        return None
    text = _fenced(asked.memory(query_of(window, asked.new), budget))
    if not text:
        return None
    message = shapes.make(asked.shape, "user", text)
    entry = Entry("memory", 0, message, count_message(message, asked.count))
    if entry.tokens > choice.room:
        choice.left_out.append(entry)
        return None
    choice.room -= entry.tokens
    return entry


def _fenced(text: str) -> str:
    bare = text.strip()
    if not bare or (bare.startswith(fences.OPEN) and bare.endswith(fences.CLOSE)):
        return bare
    return f"{fences.OPEN}\n{fences.escape(bare)}\n{fences.CLOSE}"


def _rows(
    window: Window, asked: Asked, choice: _Choice, pinned: Entry | None
) -> tuple[list[Entry], list[Entry]]:
    """Head and tail that fit: the newest units first, then the first turn, open units before all.

    ``pinned`` is the last message of the user, whose tokens are already taken.
    """
    grouped = units(window.entries)
    chosen: dict[int, Unit] = {}
    for at, unit in enumerate(grouped):
        if unit.state == "pending" and _fits(unit, choice, pinned):
            chosen[at] = unit
    head = _head(window, choice, pinned)
    full = False
    for at in range(len(grouped) - 1, -1, -1):
        unit = grouped[at]
        if at in chosen:
            continue
        if not full and _fits(unit, choice, pinned):
            chosen[at] = unit
            continue
        shorter = None
        if not full and not any(at < other for other in chosen):
            room = choice.room - len(unit.open_calls) * choice.notice_tokens
            shorter = _cut_results(unit, room, pinned, asked.count)
        if shorter is not None and _fits(shorter, choice, pinned):
            chosen[at] = shorter
            choice.shortened += [
                new.id
                for new, old in zip(shorter.entries, unit.entries, strict=True)
                if new is not old
            ]
            continue
        full = True
        kept = tuple(entry for entry in unit.entries if entry is pinned)
        choice.left_out += [entry for entry in unit.entries if entry is not pinned]
        if kept:
            chosen[at] = Unit(kept)
    tail = [entry for at in sorted(chosen) for entry in chosen[at].entries]
    return head, tail


def _fits(unit: Unit, choice: _Choice, pinned: Entry | None) -> bool:
    cost = sum(entry.tokens for entry in unit.entries if entry is not pinned)
    cost += len(unit.open_calls) * choice.notice_tokens
    if cost > choice.room:
        return False
    choice.room -= cost
    return True


def _head(window: Window, choice: _Choice, pinned: Entry | None) -> list[Entry]:
    cost = sum(entry.tokens for entry in window.head if entry is not pinned)
    cost += sum(len(unit.open_calls) for unit in units(window.head)) * choice.notice_tokens
    if cost <= choice.room:
        choice.room -= cost
        return list(window.head)
    choice.left_out += [entry for entry in window.head if entry is not pinned]
    return [entry for entry in window.head if entry is pinned]


def _cut_results(
    unit: Unit, room: int, pinned: Entry | None, count: Callable[[str], int]
) -> Unit | None:
    """The newest unit with its tool output cut so that it fits; ``None`` where that cannot be.

    A result that is left out whole would make the model call the tool again, for ever.
    """
    most = max((len(each.text) for e in unit.entries for each in e.message.results), default=0)
    while most > _LEAST_RESULT_CHARS:
        most //= 2
        entries = tuple(_cut_entry(entry, most, count) for entry in unit.entries)
        cost = sum(entry.tokens for entry in entries if entry is not pinned)
        if cost <= room:
            return replace(unit, entries=entries)
    return None


def _cut_entry(entry: Entry, most_chars: int, count: Callable[[str], int]) -> Entry:
    longer = {
        each.call_id: cut_middle(each.text, most_chars)
        for each in entry.message.results
        if len(each.text) > most_chars
    }
    edited = shapes.edit(entry.message, Edits(results=longer)) if longer else entry.message
    if edited is entry.message:
        return entry
    return replace(entry, message=edited, tokens=count_message(edited, count))


def cut_middle(text: str, most_chars: int) -> str:
    """Beginning and end of ``text`` with a notice between them, about ``most_chars`` long."""
    head = clip(text, most_chars * 2 // 3, "")
    tail = text[len(text) - most_chars // 3 :]
    return head + _CUT_NOTICE.format(count=len(text) - len(head) - len(tail)) + tail


def _within_image_bytes(
    rows: list[Entry], asked: Asked, choice: _Choice, pinned: Entry | None
) -> list[Entry]:
    """``rows`` with images within the bound: of the oldest ones a line stays."""
    new = image_bytes(asked.new.message) if asked.new else 0
    total = new + sum(image_bytes(entry.message) for entry in rows)
    kept = list(rows)
    for at, entry in enumerate(rows):
        if total <= asked.limits.image_bytes:
            break
        size = image_bytes(entry.message)
        if not size or entry is pinned:
            continue
        edited = shapes.edit(entry.message, Edits(image=_no_image))
        tokens = count_message(edited, asked.count)
        if edited is entry.message or tokens > entry.tokens:
            continue
        kept[at] = replace(entry, message=edited, tokens=tokens)
        choice.shortened.append(entry.id)
        total -= size
    return kept


def _no_image(image: Image) -> str:
    return f"[image left out: {clip(image.media, 40)}, {image.size_bytes // 1024} KiB]"


# ---------------------------------------------------------------- the messages


def _mended(
    shown: Sequence[Entry], memory: Entry | None, asked: Asked, window: Window
) -> tuple[tuple[Message, ...], tuple[str, ...], tuple[str, ...]]:
    running = {
        call.id for unit in units(window.entries) if unit.state == "pending"
        for call in unit.open_calls
    }  # fmt: skip
    mended = mend([entry.message for entry in shown], running)
    messages = [*mended.messages]
    if memory is not None:
        at = len(messages) if asked.new is not None else _question_at(messages)
        messages.insert(at, memory.message)
    if asked.new is not None:
        messages.append(asked.new.message)
    return tuple(messages), mended.closed, mended.dropped


def _question_at(messages: Sequence[Message]) -> int:
    """Where recalled memory stands in a turn that goes on: before the question that it is for.

    Never between a call and its results; a question that carries results has it behind itself.
    """
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].is_user_turn:
            return len(messages) if messages[at].results else at
    return len(messages)


def _context(
    window: Window,
    asked: Asked,
    sent: tuple[tuple[Message, ...], tuple[str, ...], tuple[str, ...]],
    head: list[Entry],
    tail: list[Entry],
    memory: Entry | None,
    parts: dict[PartName, Part],
    choice: _Choice,
) -> Context:
    messages, closed, dropped = sent
    if head:
        parts["first-turn"] = _part("first-turn", head, "no summary covers it yet")
    summary = window.summary
    if summary is not None and summary.rendered:
        shown = summary.id not in {entry.id for entry in choice.left_out}
        if shown:
            why = f"stands for the rows up to {summary.boundary}"
            made = shapes.make(asked.shape, "user", summary.rendered)
            tokens = count_message(made, asked.count)
            parts["summary"] = Part("summary", tokens, (summary.id,), why)
    if tail:
        parts["tail"] = _part("tail", tail, "freshest messages")
    if memory is not None:
        parts["memory"] = Part("memory", memory.tokens, (), "recalled for this message")
    if asked.new is not None:
        parts["new"] = Part("new", asked.new.tokens, (asked.new.id,), "the message to answer")
    listed = tuple(parts.values())
    notices = sum(count_message(each, asked.count) for each in messages) - sum(
        part.tokens for part in listed if part.name not in ("system", "tools")
    )
    if notices > 0:  # what mending added
        name: PartName = "tail" if tail else "first-turn"
        parts[name] = replace(parts[name], tokens=parts[name].tokens + notices)
        listed = tuple(parts.values())
    total = sum(part.tokens for part in listed)
    assert total <= asked.limits.budget_tokens, (total, asked.limits)
    apart = asked.shape == "anthropic"
    originals = [message.original for message in messages]
    if window.system and not apart:
        originals.insert(0, shapes.make(asked.shape, "system", window.system).original)
    receipt = ContextReceipt(
        tokens=total,
        budget=asked.limits.budget_tokens,
        window=asked.limits.window_tokens,
        reserve=asked.limits.reserve_tokens,
        parts=listed,
        left_out=tuple(entry.id for entry in sorted(choice.left_out, key=lambda each: each.seq)),
        shortened=tuple(choice.shortened),
        closed=closed,
        dropped=dropped,
        compaction=asked.compaction,
        notes=asked.notes,
    )
    return Context(tuple(originals), window.system, asked.shape, receipt, messages)


def _part(name: PartName, entries: Sequence[Entry], why: str) -> Part:
    tokens = sum(entry.tokens for entry in entries)
    return Part(name, tokens, tuple(entry.id for entry in entries), why)
