"""The first pass over all that matched: who comes near enough to be looked at (Derived).

All rows with a word of the question are ordered by BM25 with every word counted once, what stands
near by in the same file, closeness and recency. What is around a row is known here only by groups
of places; ``near`` gives it exactly, for the rows of the second pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from h2ams.index import places, schema
from h2ams.index.score import Statistics, recency
from h2ams.memory.access import Gate
from h2ams.memory.scope import Scope
from h2ams.settings import Settings
from h2ams.text.cues import ASKS

# What a word counts so many places before (-) or behind, as a share of one in the segment itself;
# the greatest first. Measured: docs/benchmarks.md.
STEPS = (
    (-1, 0.4), (1, 0.4), (-2, 0.3), (2, 0.25), (-3, 0.2), (-4, 0.2), (-5, 0.2), (3, 0.15),
    (4, 0.15), (-6, 0.15), (5, 0.1), (6, 0.1),
)  # fmt: skip
ANSWERED = 1.2  # in place of the first: the segment before only asks, so this one answers
NEAR_SHARE = 0.4  # of a word's weight in the first pass, for a word in the same or the next group
GROUP_BITS = 2  # places looked at together in the first pass


class Candidate(NamedTuple):
    """A row of the first pass. Bit i of the mask: term i is in the segment; above these bits, as
    many for words with the same root."""

    score: float
    rowid: int
    mask: int
    place: int


Row = tuple[float, int, int, int]  # a Candidate while there are thousands of them


class Bases(dict[int, int]):
    """Numbers far enough from each other that places of different scopes never meet."""

    def __missing__(self, scope: int) -> int:
        value = self[scope] = len(self) + 1 << places.PLACE_BITS
        return value


class Field(NamedTuple):
    """All that matched, before it is ranked. ``near`` has the masks by place: what is around."""

    masks: dict[int, int]
    statistics: Statistics
    blocks: dict[int, memoryview]
    strong: int
    common: int
    near: dict[int, int]
    bases: Bases

    def figures(self, rowid: int) -> int:
        return self.blocks[rowid >> schema.BLOCK_BITS][2 * (rowid & schema.BLOCK_MASK)]

    def place(self, rowid: int) -> int:
        block = self.blocks[rowid >> schema.BLOCK_BITS]
        return self.bases[rowid >> schema.LOCAL_BITS] + block[2 * (rowid & schema.BLOCK_MASK) + 1]


@dataclass(frozen=True, slots=True)
class FirstPass:
    """Orders the rows of a field. ``scope_of`` gives the scope with a number."""

    gate: Gate
    settings: Settings
    today: int
    scope_of: Callable[[int], Scope]

    def order(self, field: Field, kept: dict[int, int]) -> tuple[list[Row], list[int]]:
        """Candidates, best first, and the rowids of those that the gate holds back.

        The inner loops of recall: factors are looked up, not computed, per row.
        """
        masks, statistics, blocks, strong, common, near, base_of = field
        count = len(statistics.terms)
        asking = ASKS << 2 * count
        rare = ~common  # what counts around a segment
        groups: dict[int, int] = {}
        rows: list[tuple[int, int, int, int]] = []
        get = groups.get
        for rowid, mask in masks.items():
            block = blocks[rowid >> schema.BLOCK_BITS]
            at = 2 * (rowid & schema.BLOCK_MASK)
            figures = block[at]
            place = base_of[rowid >> schema.LOCAL_BITS] + block[at + 1]
            seen = mask & rare
            near[place] = seen | asking if figures >> places.CUES_BIT & ASKS else seen
            group = place >> GROUP_BITS
            groups[group] = get(group, 0) | seen
            if kept is masks or rowid in kept:
                rows.append((rowid, mask, figures, place))
        weak_masks = _weak_masks(set(masks.values()), strong, count)
        weight_of, near_of, of_length, length_bit, of_cue, of_day, of_scope, broad = self.factors(
            statistics
        )
        candidates: list[Row] = []
        weak: list[int] = []
        for rowid, mask, figures, place in rows:
            if mask in weak_masks and broad[rowid >> schema.LOCAL_BITS]:
                if not mask & common:
                    weak.append(rowid)
                continue
            group = place >> GROUP_BITS
            score = (
                weight_of[mask] * of_length[figures >> length_bit & places.MAX_LENGTH]
                + near_of[get(group - 1, 0) | groups[group] | get(group + 1, 0)]
            )
            bonus = (
                of_scope[rowid >> schema.LOCAL_BITS] + of_day[figures >> places.DAY_BIT & 65_535]
            )
            score *= bonus * of_cue[figures >> places.CUES_BIT]
            candidates.append((score, rowid, mask, place))
        candidates.sort(key=_score, reverse=True)
        weak.sort()
        return candidates, weak

    def factors(self, statistics: Statistics) -> Factors:
        """What the scores of this pass are made of."""
        share = NEAR_SHARE * self.settings.weight_context
        return Factors(
            weight_of=Table(lambda mask: self._mask_weight(statistics, mask, 1.0)),
            near_of=Table(lambda mask: self._mask_weight(statistics, mask, share)),
            of_length=Table(statistics.length_factor),
            length_bit=statistics.length_bit,
            of_cue=Table(statistics.cue_factor),
            of_day=_recency_table(self.settings, self.today),
            of_scope=Table(
                lambda number: (
                    1 + statistics.closeness_factor(self.gate.closeness(self.scope_of(number)))
                )
            ),
            broad=Table(lambda number: self.gate.broad(self.scope_of(number))),
        )

    def _mask_weight(self, statistics: Statistics, mask: int, share: float) -> float:
        """Weight of the terms in ``mask``, those with only a related word counted less."""
        count = len(statistics.terms)
        direct = mask & (1 << count) - 1
        related = (mask >> count & (1 << count) - 1) & ~direct
        return share * (
            statistics.weight(direct) + self.settings.weight_related * statistics.weight(related)
        )

    def settled(self, candidates: list[Row], field: Field) -> bool:
        """Whether no row with nothing but common words can be among the first window.

        Such a row has at most all of them once, in the shortest segment there can be, all other
        words around it, and the greatest of each factor.
        """
        window = self.settings.rerank_count
        if len(candidates) < window:
            return False
        statistics = field.statistics
        every = (1 << len(statistics.terms)) - 1
        near = NEAR_SHARE * self.settings.weight_context * statistics.weight(every & ~field.common)
        dates = statistics.weight(
            sum(1 << at for at, term in enumerate(statistics.terms) if term.kind == "date")
        )
        most = (statistics.weight(field.common) + dates) * statistics.length_factor(0) + near
        return candidates[window - 1][0] > most * statistics.greatest_factor()

    def near(self, place: int, masks: dict[int, int], count: int) -> dict[int, float]:
        """What the segments around count for each term: the greatest, not the sum."""
        found: dict[int, float] = {}
        scale = self.settings.weight_context
        if not scale:
            return found
        related: list[tuple[float, int]] = []
        every = (1 << count) - 1
        seen = 0
        for step, share in STEPS:
            mask = masks.get(place + step)
            if mask is None:
                continue
            if step == -1 and mask >> 2 * count & ASKS:
                share = ANSWERED
            new = mask & every & ~seen
            seen |= new
            while new:
                low = new & -new
                found[low.bit_length() - 1] = share * scale
                new ^= low
            if mask >> count & every:
                related.append(
                    (share * scale * self.settings.weight_related, mask >> count & every)
                )
        for share, mask in related:
            mask &= ~seen
            while mask:
                low = mask & -mask
                at = low.bit_length() - 1
                found[at] = max(found.get(at, 0.0), share)
                mask ^= low
        return found


def _weak_masks(masks: Iterable[int], strong: int, terms: int) -> frozenset[int]:
    """Masks of one common word, where more than one was asked for."""
    if terms < 2 or strong == -1:
        return frozenset()
    every = (1 << terms) - 1
    return frozenset(
        each
        for each in masks
        if ((each | each >> terms) & every).bit_count() == 1 and not each & every & strong
    )


class Table(dict[int, float]):
    """A function of small numbers that is computed once for each."""

    def __init__(self, function: Callable[[int], float]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: int) -> float:
        value = self[key] = self._function(key)
        return value


class Factors(NamedTuple):
    """What a score of the first pass is made of, looked up: by mask of the segment and of what is
    around it, length, cue, day and number of the scope."""

    weight_of: Table
    near_of: Table
    of_length: Table
    length_bit: int
    of_cue: Table
    of_day: Table
    of_scope: Table
    broad: Table


@lru_cache(maxsize=8)
def _recency_table(settings: Settings, today: int) -> Table:
    half_life = settings.half_life_days
    return Table(lambda day: settings.weight_recency * recency(day, today, half_life))


def _score(row: Row) -> float:
    return row[0]
