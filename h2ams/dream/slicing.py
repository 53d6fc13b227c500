"""Which messages a pass reads, and in which pieces (Pure).

Strategy: after the watermark; where its message is gone, by time; where that is unknown too, all
of them again (nothing is lost by reading twice: what is known already is merged). A slice holds
whole messages within a number of tokens; a longer message has a slice of its own. A few messages
before a slice travel along as context, which may not be cited.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from h2ams.memory.extraction import SourceMessage

_OVERHEAD_TOKENS = 12  # id, role and time of a message in a request

Found = Literal["start", "id", "time", "lost"]


@dataclass(frozen=True, slots=True)
class Watermark:
    """Up to where the messages of one thread are done. ``at`` is the last message's time.

    ``pending`` are slices (ids) whose answers could not be read, with the number of tries so far.
    """

    last: str | None = None
    at: str | None = None
    pending: tuple[tuple[tuple[str, ...], int], ...] = ()


@dataclass(frozen=True, slots=True)
class Unread:
    """The messages behind a watermark, the ones before them, and how the place was found."""

    new: tuple[SourceMessage, ...]
    before: tuple[SourceMessage, ...]
    found: Found


@dataclass(frozen=True, slots=True)
class Slice:
    """Messages for one request with their context. ``tries_count`` of earlier passes."""

    messages: tuple[SourceMessage, ...]
    context: tuple[SourceMessage, ...] = ()
    tries_count: int = 0

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(each.id for each in self.messages)


def unread(messages: Sequence[SourceMessage], mark: Watermark) -> Unread:
    """What is new since ``mark``. Never empty for ever because a message was deleted."""
    if mark.last is None and mark.at is None:
        return Unread(tuple(messages), (), "start")
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].id == mark.last:
            return Unread(tuple(messages[at + 1 :]), tuple(messages[: at + 1]), "id")
    if mark.at is not None and any(each.created_at for each in messages):
        # The same second counts as new: what is read twice is merged.
        first = next(
            (n for n, each in enumerate(messages) if (each.created_at or "") >= mark.at),
            len(messages),
        )
        return Unread(tuple(messages[first:]), tuple(messages[:first]), "time")
    return Unread(tuple(messages), (), "lost")


def slices(
    new: Sequence[SourceMessage],
    before: Sequence[SourceMessage],
    *,
    most_tokens: int,
    context_count: int,
    count: Callable[[str], int],
) -> tuple[Slice, ...]:
    """``new`` in slices of at most ``most_tokens``, each with its context."""
    pieces: list[list[SourceMessage]] = []
    room = 0
    for each in new:
        size = count(each.text) + _OVERHEAD_TOKENS
        if not pieces or size > room:
            pieces.append([])
            room = most_tokens
        pieces[-1].append(each)
        room -= size
    made: list[Slice] = []
    known = list(before)
    for piece in pieces:
        context = known[-context_count:] if context_count else []
        made.append(Slice(tuple(piece), tuple(context)))
        known += piece
    return tuple(made)


def again(
    messages: Sequence[SourceMessage], mark: Watermark, *, context_count: int
) -> tuple[Slice, ...]:
    """The pending slices of ``mark``, as far as their messages are still there."""
    places = {each.id: at for at, each in enumerate(messages)}
    made: list[Slice] = []
    for ids, tries_count in mark.pending:
        found = [places[id] for id in ids if id in places]
        if found:
            first = min(found)
            context = messages[max(0, first - context_count) : first]
            made.append(Slice(tuple(messages[at] for at in found), tuple(context), tries_count))
    return tuple(made)
