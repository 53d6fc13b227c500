"""The first pass over the rows of very many scopes at once (Derived, read-only).

``field.FirstPass.order`` looks at one row after the other. Here each segment of the area has a
byte, four terms share a *plane* of such bytes (bits 0-3: the term is in the segment, 4-7: only a
word with its root), and what stands around all segments is found by shifting whole planes. Bytes
again are what each segment can score at most; only those that may be among the first window are
looked at one by one, with the very formula of the other way. So the hits, scores and reports are
those of the other way, which a test compares.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from h2ams import sqlite
from h2ams.index import field, places, schema
from h2ams.index import reading as readings
from h2ams.index.chart import GROUP, Chart
from h2ams.index.field import Bases, Field, FirstPass, Row
from h2ams.index.lookup import Area, match_of, match_of_any
from h2ams.index.reading import Reading, strong_terms, too_many
from h2ams.index.score import Question, Statistics, idf
from h2ams.memory import access
from h2ams.settings import Settings
from h2ams.text.cues import ASKS
from h2ams.text.words import roots_of

if TYPE_CHECKING:
    from h2ams.index.chart import Positions

_TERMS = 4  # of one plane
_STEP = 6  # places before and behind that count around a segment: field.STEPS
_ONES = bytes([0, *[255] * 255])


class Rows(NamedTuple):
    """Positions of the rows of each term, and of those that only have a word with its root."""

    direct: tuple[Positions, ...]
    related: tuple[Positions, ...]


class Planes:
    """The terms of one question over a chart."""

    def __init__(self, chart: Chart, rows: Rows, statistics: Statistics, strong: int) -> None:
        self.chart = chart
        self.statistics = statistics
        self.strong = strong
        self.rows = rows
        self.count = len(rows.direct)
        self.own: list[bytearray] = []
        for place, (direct, related) in enumerate(zip(*rows, strict=True)):
            if place % _TERMS == 0:
                self.own.append(bytearray(chart.size))
            plane, bit = self.own[-1], 1 << place % _TERMS
            for at in direct:
                plane[at] |= bit
            bit <<= _TERMS
            for at in related:
                plane[at] |= bit
        self.around = [_around(plane[chart.singles :]) for plane in self.own]  # who is alone: own
        self.masks = [_masks(place, self.count) for place in range(0, self.count, _TERMS)]

    def mask(self, at: int) -> int:
        """What the segment at a position has."""
        found = 0
        for masks, plane in zip(self.masks, self.own, strict=True):
            found |= masks[plane[at]]
        return found

    def mask_around(self, at: int) -> int:
        """What it has and what stands around it."""
        at -= self.chart.singles
        if at < 0:
            return self.mask(at + self.chart.singles)
        found = 0
        for masks, plane in zip(self.masks, self.around, strict=True):
            found |= masks[plane[at]]
        return found

    def lonely(self) -> Iterator[tuple[int, Positions]]:
        """Masks of a term that is no match by itself, and the positions that may have it alone."""
        if self.count < 2 or self.strong == -1:
            return
        for place, (direct, related) in enumerate(zip(*self.rows, strict=True)):
            if not self.strong >> place & 1:
                yield 1 << place, direct
            yield 1 << place + self.count, related

    def bounds(self) -> tuple[bytes, float]:
        """What each segment can score at most before closeness, day and cues: a byte times a unit.

        0 where none of the terms is.
        """
        values = [self._weights(first) for first in range(0, self.count, _TERMS)]
        longest = self.statistics.length_factor(0)
        share = field.NEAR_SHARE * self.statistics.settings.weight_context
        most = sum(map(max, values)) * (longest + share)
        unit = most / (255 - 2 * len(values)) or 1.0  # each is rounded up
        alone, own, around = (
            [bytes([0, *[int(each * factor / unit) + 1 for each in of[1:]]]) for of in values]
            for factor in (longest + share, longest, share)
        )
        singles = self.chart.singles
        heads = _translated((plane[:singles] for plane in self.own), alone)
        rest = [bytes(plane[singles:]) for plane in self.own]
        there = _sum([plane.translate(_ONES) for plane in rest], any_of=True)
        tails = _translated(rest, own) + _translated(self.around, around)
        tail = int.from_bytes(_sum(tails), "little") & int.from_bytes(there, "little")
        return _sum(heads) + tail.to_bytes(len(there), "little"), unit

    def _weights(self, first: int) -> list[float]:
        """Weight of the terms of one plane, from the ``first`` on, by its byte."""
        every = (1 << self.count) - 1
        related = self.statistics.settings.weight_related
        of = [self.statistics.weight(mask << first & every) for mask in range(1 << _TERMS)]
        return [of[byte & 15] + related * of[byte >> _TERMS & ~byte & 15] for byte in range(256)]


def _translated(planes: Iterable[bytes | bytearray], tables: Iterable[bytes]) -> list[bytes]:
    return [bytes(plane.translate(table)) for plane, table in zip(planes, tables, strict=True)]


def _sum(planes: Sequence[bytes], *, any_of: bool = False) -> bytes:
    """The sums of the planes' bytes, which are below 256, or what is in any of them."""
    if len(planes) == 1:
        return planes[0]
    numbers = [int.from_bytes(plane, "little") for plane in planes]
    together = reduce(or_, numbers) if any_of else sum(numbers)
    return together.to_bytes(len(planes[0]), "little")


@lru_cache(maxsize=64)
def _masks(first: int, count: int) -> list[int]:
    """Mask of the whole question, as in ``field.Candidate``, by the byte of one plane."""
    return [(byte & 15) << first | (byte >> 4) << count + first for byte in range(256)]


def _around(own: bytearray) -> bytes:
    """All that is in the group of each position and the groups beside it."""
    if not own:
        return b""
    group = int.from_bytes(own, "little")
    group |= group >> 8
    group |= group >> 16
    group &= int.from_bytes(b"\xff\0\0\0" * (len(own) // GROUP), "little")
    group |= group << 8 * GROUP | group >> 8 * GROUP
    group |= group << 8
    group |= group << 16
    return group.to_bytes(len(own), "little")


def narrowed(
    connection: sqlite.Connection,
    chart: Chart,
    reading: Reading,
    area: Area,
    first_pass: FirstPass,
) -> Narrowed | None:
    """The strict ``reading`` of a question over ``chart``; None where it is for the other way: no
    word is there, a day is asked for, or a word has too many rows to fetch them all."""
    settings = first_pass.settings
    if any(term.kind == "date" for term in reading.terms):
        return None
    rows = _rows(connection, chart, reading, area, settings)
    if rows is None:
        return None
    weights = tuple(
        idf(area.segments, len(direct) + len(related)) if direct or related else 0.0
        for direct, related in zip(*rows, strict=True)
    )
    question = Question(reading.terms, weights, reading.asks_time, reading.inside_words)
    statistics = Statistics(question, area.average_length or 1.0, first_pass.today, settings)
    counts = [len(direct) for direct in rows.direct]
    strong = strong_terms(reading, counts, area.segments, settings)
    return Narrowed(first_pass, Planes(chart, rows, statistics, strong))


def _rows(
    connection: sqlite.Connection, chart: Chart, reading: Reading, area: Area, settings: Settings
) -> Rows | None:
    matches = [match_of(term) for term in reading.terms]
    found = chart.positions(connection, matches)
    direct = [found[match] for match in matches]
    counts = [len(each) for each in direct if each is not None]
    if len(counts) < len(direct) or not any(counts) or too_many(counts, area.segments):
        return None
    if max(counts) > readings.COMMON_ROWS:
        return None
    most = int(settings.related_share * area.segments) if settings.weight_related else -1
    roots = {}
    for place, term in enumerate(reading.terms):
        tokens = roots_of(term) if counts[place] <= most else ()
        if tokens:
            roots[place] = match_of_any(tokens)
    found = chart.positions(connection, tuple(roots.values()))
    if None in found.values():
        return None
    none = array("i")
    related = [none] * len(direct)
    for place, match in roots.items():
        related[place] = array("i", set(found[match] or none).difference(direct[place] or none))
    return Rows(tuple(each or none for each in direct), tuple(related))


class Narrowed:
    """The first window of ``planes``, ties with its last included, and what the gate holds back."""

    def __init__(self, first_pass: FirstPass, planes: Planes) -> None:
        self._pass = first_pass
        self._planes = planes
        self._chart = planes.chart
        self._factors = first_pass.factors(planes.statistics)
        self._lonely = frozenset(mask for mask, _ in planes.lonely())
        self._of_rank = [
            1 + planes.statistics.closeness_factor(rank) for rank in range(access.OTHER + 1)
        ]
        self._found: list[tuple[float, int]] = []  # score and position
        masks: dict[int, int] = {}
        self.field = Field(
            masks, planes.statistics, planes.chart.blocks, planes.strong, 0, {}, Bases()
        )

    def candidates(self) -> list[Row]:
        """The first window, best first."""
        window = self._pass.settings.rerank_count
        bounds, unit = self._planes.bounds()
        closeness = self._of_rank[self._chart.farthest]
        unit *= self._planes.statistics.greatest_factor(closeness) * (1 + 1e-9)
        there = bounds.translate(None, b"\0")
        high, left, enough = 256, len(there), 2 * window
        while left:
            low = high
            taken = 0
            while low > 1 and taken < enough:
                low -= 1
                taken += there.count(low)
            left -= taken
            self._look_at(_where(bounds, low, high))
            high = low
            self._found.sort(reverse=True)
            if len(self._found) >= window:
                least = int(self._found[window - 1][0] / unit)
                if low <= least:
                    break
                enough = sum(there.count(level) for level in range(max(1, least), low))
                if not enough:
                    break
        # The bound does not hold for the closer ones.
        self._look_at([at for at in self._chart.closer if 0 < bounds[at] < high])
        self._found.sort(reverse=True)
        return self._window(window)

    def _look_at(self, positions: Iterable[int]) -> None:
        """Score these segments, but those that the gate holds back."""
        chart, planes, lonely = self._chart, self._planes, self._lonely
        rowids, all_figures, ranks, singles = (
            chart.rowids,
            chart.figures,
            chart.ranks,
            chart.singles,
        )
        weight_of, near_of, of_length, length_bit, of_cue, of_day, _, _ = self._factors
        of_rank = self._of_rank
        pairs = list(zip(planes.masks, planes.own, strict=True))
        found = self._found
        for at in positions:
            number = rowids[at] >> schema.LOCAL_BITS
            mask = 0
            for masks, plane in pairs:
                mask |= masks[plane[at]]
            if mask in lonely and chart.broad[number]:
                continue
            around = mask if at < singles else planes.mask_around(at)
            figures = all_figures[at]
            score = (
                weight_of[mask] * of_length[figures >> length_bit & places.MAX_LENGTH]
                + near_of[around]
            )
            bonus = of_rank[ranks[number]] + of_day[figures >> places.DAY_BIT & 65_535]
            score *= bonus * of_cue[figures >> places.CUES_BIT]
            found.append((score, at))

    def _window(self, window: int) -> list[Row]:
        end = min(window, len(self._found))
        while 0 < end < len(self._found) and self._found[end][0] == self._found[end - 1][0]:
            end += 1
        planes, chart, beheld = self._planes, self._chart, self.field
        asking = ASKS << 2 * planes.count
        rows = []
        for score, at in self._found[:end]:
            rowid = chart.rowids[at]
            mask = beheld.masks[rowid] = planes.mask(at)
            rows.append((score, rowid, mask, beheld.place(rowid)))
            beside = range(max(0, at - _STEP), at + _STEP + 1) if at >= chart.singles else ()
            for other in beside:
                if other >= chart.size or not chart.rowids[other]:
                    continue
                around = planes.mask(other)
                if around:
                    cues = chart.figures[other] >> places.CUES_BIT
                    around |= asking if cues & ASKS else 0
                    beheld.near[beheld.place(chart.rowids[other])] = around
        return rows

    def held_back(self, most: int) -> list[int]:
        """Rowids that the gate holds back: all of the first scopes that have ``most`` of them."""
        chart = self._chart
        found: list[int] = []
        for mask, positions in self._planes.lonely():
            rising = sorted(positions)
            border = bisect_left(rising, chart.singles)
            for part in (rising[:border], rising[border:]):
                scope, count = -1, 0
                for at in part:
                    number = chart.rowids[at] >> schema.LOCAL_BITS
                    if number != scope and count >= most:
                        break
                    if chart.broad[number] and self._planes.mask(at) == mask:
                        scope = number
                        count += 1
                        found.append(chart.rowids[at])
        return sorted(found)


def _where(plane: bytes, low: int, high: int) -> Iterator[int]:
    """Positions of the bytes from ``low`` to below ``high``."""
    table = bytes(low <= byte < high for byte in range(256))
    marked = plane.translate(table)
    at = marked.find(1)
    while at >= 0:
        yield at
        at = marked.find(1, at + 1)
