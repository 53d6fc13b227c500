"""The state of an active set between turns: addresses, never bodies (Pure).

One frozen value per session and VP; each change gives a new one. *Recent* is a list of what was
really used, most recent first. *Pinned* and *evicted* are corrections of on-demand; they last until
the task changes. A task is known by a fingerprint: hashes of the words asked for, so that no text
of a person is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from hashlib import sha256

PINNED_COUNT = 40  # newest pins that are kept; as many as matches are considered for the block
EVICTED_COUNT = 256  # newest evictions that are kept
TASK_WORDS_COUNT = 32  # newest words of a task that are kept as hashes

Resolve = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """A segment that was used, and the last turn (1-based) in which it was."""

    turn: int
    address: str


@dataclass(frozen=True, slots=True)
class ActiveSet:
    """What one session and VP carries from turn to turn.

    ``turn`` counts committed turns. ``recent`` has the last used first, each address once;
    ``pinned`` and ``evicted`` have the newest first and share no address. ``task`` is a fingerprint
    ("" = unknown). ``adjust_ran`` says whether the first adjustment has run.
    """

    turn: int = 0
    recent: tuple[Use, ...] = ()
    pinned: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()
    task: str = ""
    adjust_ran: bool = False

    def __post_init__(self) -> None:
        ordered = sorted(_newest(self.recent), key=lambda use: -use.turn)
        evicted = _distinct(self.evicted)
        pinned = tuple(each for each in _distinct(self.pinned) if each not in evicted)
        object.__setattr__(self, "turn", max(self.turn, *(use.turn for use in ordered), 0))
        object.__setattr__(self, "recent", tuple(ordered))
        object.__setattr__(self, "pinned", pinned[:PINNED_COUNT])
        object.__setattr__(self, "evicted", evicted[:EVICTED_COUNT])

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every address that is named here, each once."""
        used = (use.address for use in self.recent)
        return _distinct((*self.pinned, *used, *self.evicted))

    def touch(self, addresses: Iterable[str], turn: int | None = None, *, keep: int) -> ActiveSet:
        """``addresses`` were used in ``turn`` (default: the current one); ``keep`` are remembered.

        The first of ``addresses`` counts as the last used. What falls out is the least recent.
        Use takes back an eviction.
        """
        now = self.turn if turn is None else turn
        new = _distinct(addresses)
        uses = tuple(Use(now, address) for address in new)
        evicted = tuple(each for each in self.evicted if each not in new)
        merged = replace(self, recent=(*uses, *self.recent), evicted=evicted)
        return replace(merged, recent=merged.recent[:keep])

    def next_turn(self) -> ActiveSet:
        """A turn really begins."""
        return replace(self, turn=self.turn + 1)

    def pin(self, addresses: Iterable[str]) -> ActiveSet:
        """Keep ``addresses`` on demand until the task changes; takes back their eviction."""
        new = _distinct(addresses)
        evicted = tuple(each for each in self.evicted if each not in new)
        return replace(self, pinned=(*new, *self.pinned), evicted=evicted)

    def evict(self, addresses: Iterable[str]) -> ActiveSet:
        """Keep ``addresses`` out until the task changes or they are used; unpins them.

        They leave recent too, else they would be shown all the same.
        """
        new = _distinct(addresses)
        recent = tuple(use for use in self.recent if use.address not in new)
        return replace(self, evicted=(*new, *self.evicted), recent=recent)

    def enter_task(self, fingerprint: str) -> ActiveSet:
        """The task of this turn. Another one than before drops what was pinned and evicted.

        "" says nothing about the task and changes nothing.
        """
        if not fingerprint or fingerprint == self.task:
            return self
        if continues(self.task, fingerprint):
            return replace(self, task=_joined(fingerprint, self.task))
        return replace(self, task=fingerprint, pinned=(), evicted=())

    def adjusted(self) -> ActiveSet:
        """The first adjustment has run."""
        return replace(self, adjust_ran=True)

    def on_demand(self, matches: Iterable[str]) -> tuple[str, ...]:
        """Membership of on-demand: pinned, then this turn's ``matches``, minus the evicted."""
        members = _distinct((*self.pinned, *matches))
        return tuple(each for each in members if each not in self.evicted)

    def resolved(self, resolve: Resolve) -> ActiveSet:
        """Only what still resolves: ``resolve`` gives the address that stands for one, or None."""
        names = {each: resolve(each) for each in self.addresses}
        recent = ((use.turn, names[use.address]) for use in self.recent)
        return replace(
            self,
            recent=tuple(Use(turn, name) for turn, name in recent if name is not None),
            pinned=tuple(n for each in self.pinned if (n := names[each]) is not None),
            evicted=tuple(n for each in self.evicted if (n := names[each]) is not None),
        )


def task_fingerprint(words: Iterable[str]) -> str:
    """A fingerprint of the words of a query: eight hex digits each, joined by blanks.

    "" for a query without words of its own ("yes, go on"): it stays with the task before.
    """
    hashes = {sha256(word.encode("utf-8", "surrogatepass")).hexdigest()[:8] for word in words}
    return " ".join(sorted(hashes)[:TASK_WORDS_COUNT])


def continues(before: str, fingerprint: str) -> bool:
    """Whether two fingerprints may belong to one task: one is unknown, or they share a word.

    When in doubt the task has changed: a lost pin costs little, a wrong eviction hides memory.
    """
    return not before or not fingerprint or not {*before.split()}.isdisjoint(fingerprint.split())


def _joined(newer: str, older: str) -> str:
    return " ".join(_distinct((*newer.split(), *older.split()))[:TASK_WORDS_COUNT])


def _distinct(addresses: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(addresses))


def _newest(uses: Iterable[Use]) -> list[Use]:
    newest: dict[str, Use] = {}
    for use in uses:
        known = newest.get(use.address)
        if known is None or use.turn > known.turn:
            newest.pop(use.address, None)
            newest[use.address] = use
    return list(newest.values())
