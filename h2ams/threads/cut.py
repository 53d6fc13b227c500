"""Where a window is cut (Pure): what is folded into the summary, what stays verbatim.

Head and tail stay: the first turn on the first pass, the freshest units within the tail's tokens,
the last message of the user, and every unit with an open call. Cuts fall between units. A unit that
has to stay although later ones are folded is *carried*: it is shown behind the summary, so that one
call that never ends blocks nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2ams.threads.prompt import Limits, Window
from h2ams.threads.unit import Entry, Unit, units
from h2ams.threads.window import last_user_entry

_GIVEN_UP = 0.5  # of the tail, at most, so that it begins with a question


@dataclass(frozen=True, slots=True)
class Cut:
    """How a window is divided. ``folded``: rows that the summary will cover, in order.

    ``boundary`` is the last of them; ``carried`` are ids of rows before it that stay. ``old``: ids
    of the rows that a pre-pass may shorten. ``abandoned``: calls whose result never came.
    """

    folded: tuple[Entry, ...]
    carried: tuple[str, ...]
    old: frozenset[str]
    covers_start: bool
    abandoned: tuple[str, ...] = ()

    @property
    def boundary(self) -> Entry | None:
        return max(self.folded, key=lambda entry: entry.seq, default=None)

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.folded)


def cut(window: Window, limits: Limits, *, has_new: bool) -> Cut:
    """Divide ``window``. ``has_new``: a new message of the user follows it."""
    flexible = limits.flexible(window.system_tokens)
    first_pass = window.summary is None
    head_tokens = sum(entry.tokens for entry in window.head)
    keeps_head = first_pass and head_tokens <= flexible * limits.head_share
    entries = window.entries if keeps_head else (*window.head, *window.entries)
    pinned = None if has_new else last_user_entry(window)
    grouped = units(entries)
    tail = _tail_start(grouped, int(flexible * limits.tail_share))
    stays = [unit.state == "pending" or pinned in unit.entries for unit in grouped[:tail]]
    folded = [unit for unit, kept in zip(grouped, stays, strict=False) if not kept]
    rows = tuple(entry for unit in folded for entry in unit.entries)
    last = max((entry.seq for entry in rows), default=0)
    carried = tuple(
        entry.id
        for unit, kept in zip(grouped, stays, strict=False)
        if kept
        for entry in unit.entries
        if entry.seq < last
    )
    old = frozenset(
        entry.id for unit in grouped[:tail] for entry in unit.entries if entry is not pinned
    )
    return Cut(
        folded=rows,
        carried=carried,
        old=old,
        covers_start=not (keeps_head and window.head),
        abandoned=tuple(
            call.id for unit in folded if unit.state == "abandoned" for call in unit.open_calls
        ),
    )


def _tail_start(grouped: Sequence[Unit], most_tokens: int) -> int:
    """The place of the first unit of the tail: the newest always, more while they fit.

    The tail begins with what a person says where that is possible, so that no answer is parted from
    its question: an answered question in the summary reads as if it were still to be done.
    """
    left = most_tokens
    start = len(grouped)
    while start > 0 and (start == len(grouped) or grouped[start - 1].tokens <= left):
        start -= 1
        left -= grouped[start].tokens
    if start == 0 or start == len(grouped) or grouped[start].has_user_turn:
        return start
    skipped = 0
    for at in range(start, len(grouped)):
        if grouped[at].has_user_turn:
            return at
        skipped += grouped[at].tokens
        if skipped > most_tokens * _GIVEN_UP:
            break
    question = grouped[start - 1]
    return (
        start - 1
        if question.has_user_turn and question.tokens <= left + most_tokens // 10
        else (start)
    )
