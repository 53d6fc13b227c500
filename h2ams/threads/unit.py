"""What may not be cut apart (Pure): units of a conversation, and mending after a cut.

A unit is a run of rows: a user's message; an assistant's message with all results of its calls and
whatever stands between; a loop of tools with signed thinking or opaque items, up to the next
message of a person. A call is open while it has no result, or only an interim one. Open units are
never folded into a summary; where the conversation has gone on without ever getting a result, the
call is abandoned: it is closed with a notice and reported, and blocks nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from h2ams.threads import shapes
from h2ams.threads.message import Call, Message

State = Literal["closed", "pending", "abandoned"]

ABANDONED = "[no result was recorded: whether it ran is unknown; check before doing it again]"
RUNNING = "[still running: no result yet]"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message row as the window sees it. ``tokens`` is what it costs in a request."""

    id: str
    seq: int
    message: Message
    tokens: int
    created_at: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows that stay together. ``open_calls`` have no final result."""

    entries: tuple[Entry, ...]
    state: State = "closed"
    open_calls: tuple[Call, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)

    @property
    def has_user_turn(self) -> bool:
        return any(entry.message.is_user_turn for entry in self.entries)

    @property
    def sealed(self) -> bool:
        return any(entry.message.sealed for entry in self.entries)


def units(entries: Sequence[Entry]) -> tuple[Unit, ...]:
    """The units of ``entries``, in order; together they are all of them."""
    reach = _reaches(entries)
    runs: list[tuple[int, int]] = []
    start = 0
    while start < len(entries):
        end = at = start
        while at <= end:
            end = max(end, reach[at])
            at += 1
        runs.append((start, end + 1))
        start = end + 1
    moved_on = _moved_on(entries)
    return tuple(_unit(tuple(entries[first:end]), end < moved_on) for first, end in runs)


def _reaches(entries: Sequence[Entry]) -> list[int]:
    """For each row the last row that must stay with it."""
    reach = list(range(len(entries)))
    called: dict[str, int] = {}
    for at, entry in enumerate(entries):
        for result in entry.message.results:
            origin = called.get(result.call_id)
            if origin is not None:
                reach[origin] = max(reach[origin], at)
        for call in entry.message.calls:
            called[call.id] = at
        if entry.message.binds_next and at + 1 < len(entries):
            reach[at] = at + 1
    loop_end, has_call = len(entries) - 1, False
    for at in range(len(entries) - 1, -1, -1):
        message = entries[at].message
        if message.is_user_turn:
            loop_end, has_call = at - 1, False
            continue
        has_call = has_call or bool(message.calls)
        if message.sealed and has_call and message.role == "assistant":
            reach[at] = max(reach[at], loop_end)
    return reach


def _moved_on(entries: Sequence[Entry]) -> int:
    """Rows before this place are followed by a person's message and an answer to it."""
    answer = next(
        (at for at in range(len(entries) - 1, -1, -1) if _is_answer(entries[at].message)), -1
    )
    for at in range(answer - 1, -1, -1):
        if entries[at].message.is_user_turn:
            return at + 1
    return 0


def _is_answer(message: Message) -> bool:
    return message.role == "assistant" and bool(message.text.strip() or message.calls)


def _unit(entries: tuple[Entry, ...], moved_on: bool) -> Unit:
    calls: dict[str, Call] = {}
    interim: set[str] = set()
    for entry in entries:
        for call in entry.message.calls:
            calls[call.id] = call
        for result in entry.message.results:
            if result.call_id not in calls:
                continue
            if result.interim:
                interim.add(result.call_id)
            else:
                del calls[result.call_id]
                interim.discard(result.call_id)
    if not calls:
        return Unit(entries)
    state: State = "abandoned" if moved_on and not interim & calls.keys() else "pending"
    return Unit(entries, state, tuple(calls.values()))


# ---------------------------------------------------------------- mending, after the cut


@dataclass(frozen=True, slots=True)
class Mended:
    """Messages that can be sent. ``dropped``: ids of rows or calls whose results had no call."""

    messages: tuple[Message, ...]
    closed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def mend(messages: Sequence[Message], running: Iterable[str] = ()) -> Mended:
    """``messages`` with every call followed by a result and no result without its call.

    Run last, on what a cut has left. A missing result becomes a notice; a result whose call is gone
    is left out, but never what a person said. Sound messages come back as the same objects.
    """
    still_running = frozenset(running)
    kept, dropped = _without_orphans(messages)
    answered = {result.call_id for message in kept for result in message.results}
    mended: list[Message] = []
    closed: list[str] = []
    moved: set[int] = set()
    for at, message in enumerate(kept):
        if at in moved:
            continue
        mended.append(message)
        if not message.calls:
            continue
        for place in _later_results(kept, at):
            mended.append(kept[place])
            moved.add(place)
        missing = [call for call in message.calls if call.id not in answered]
        if missing:
            closed += [call.id for call in missing]
            notices = [
                (call, RUNNING if call.id in still_running else ABANDONED) for call in missing
            ]
            _close(mended, message, notices, kept, at, moved)
    return Mended(tuple(mended), tuple(closed), tuple(dropped))


def _without_orphans(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    kept: list[Message] = []
    dropped: list[str] = []
    known: set[str] = set()
    for message in messages:
        known.update(call.id for call in message.calls)
        gone = frozenset(each.call_id for each in message.results if each.call_id not in known)
        if not gone:
            kept.append(message)
            continue
        dropped += sorted(gone)
        rest = shapes.reader(message.shape).without_results(message.original, gone)
        if rest is not None:
            kept.append(replace(shapes.reader(message.shape).read(rest), id=message.id))
    return kept, dropped


def _later_results(messages: Sequence[Message], at: int) -> list[int]:
    """Places of results of message ``at`` that other messages separate from it (chat only)."""
    message = messages[at]
    if message.shape not in ("openai-chat", "langchain"):
        return []
    wanted = {call.id for call in message.calls}
    found: list[int] = []
    for place in range(at + 1, len(messages)):
        other = messages[place]
        if other.role == "tool" and any(each.call_id in wanted for each in other.results):
            found.append(place)
        wanted -= {call.id for call in other.calls}  # an id that is used again
        if not wanted:
            break
    return found


def _close(
    mended: list[Message],
    message: Message,
    notices: list[tuple[Call, str]],
    messages: Sequence[Message],
    at: int,
    moved: set[int],
) -> None:
    """Add notices behind ``message``; for Anthropic into the message with its other results."""
    shape = shapes.reader(message.shape)
    made = shape.make_results(notices)
    following = messages[at + 1] if at + 1 < len(messages) else None
    if message.shape == "anthropic" and following is not None and following.role == "user":
        content = following.original.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        results = [each for each in blocks if each.get("type") == "tool_result"]
        others = [each for each in blocks if each.get("type") != "tool_result"]
        joined = {**following.original, "content": [*results, *made[0]["content"], *others]}
        mended.append(replace(shape.read(joined), id=following.id))
        moved.add(at + 1)
    else:
        mended += [shape.read(each) for each in made]
