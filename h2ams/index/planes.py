"""The first pass over the rows of very many scopes at once (Derived, read-only).

``field.FirstPass.order`` looks at one row after the other. Here each segment of the area has a
byte, four terms share a *plane* of such bytes (bits 0-3: the term is in the segment, 4-7: only a
word with its root), and what stands around all segments is found by shifting whole planes. Bytes
again are what each segment can score at most; only those that may be among the first window are
looked at one by one, with the very formula of the other way. So the hits, scores and reports are
those of the other way, which a test compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

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

_TERMS = 4  # of one plane
_STEP = 6  # places before and behind that count around a segment: field.STEPS
_ONES = bytes([0, *[255] * 255])


class Rows(NamedTuple):
    """Positions of the rows of each term, and of those that only have a word with its root."""

    direct: tuple[tuple[int, ...], ...]
    related: tuple[tuple[int, ...], ...]


class Planes:
    """The terms of one question over a chart."""

    def __init__(self, chart: Chart, rows: Rows, statistics: Statistics, strong: int) -> None:
        self.chart = chart
        self.statistics = statistics
        self.strong = strong
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
        self.around = [_around(plane, chart.singles) for plane in self.own]
        self.masks = [_masks(place, self.count) for place in range(0, self.count, _TERMS)]

    def mask(self, planes: Sequence[bytes | bytearray], at: int) -> int:
        found = 0
        for masks, plane in zip(self.masks, planes, strict=True):
            found |= masks[plane[at]]
        return found

    def lonely(self) -> bytes:
        """1 where a segment has one term that is not strong, and nothing else."""
        if self.count < 2 or self.strong == -1:
            return bytes(self.chart.size)
        found = 0
        for number, plane in enumerate(self.own):
            table = _lonely_table(self.strong >> number * _TERMS & 15)
            found += int.from_bytes(plane.translate(table), "little")
        return found.to_bytes(self.chart.size, "little")

    def bounds(self) -> tuple[bytes, float]:
        """What each segment can score at most before closeness, day and cues: a byte times a unit.

        0 where none of the terms is.
        """
        every = (1 << self.count) - 1
        longest = self.statistics.length_factor(0)
        related = self.statistics.settings.weight_related
        share = field.NEAR_SHARE * self.statistics.settings.weight_context
        scores = []
        for first in range(0, self.count, _TERMS):
            of = [self.statistics.weight(mask << first & every) for mask in range(1 << _TERMS)]
            own = [of[byte & 15] + related * of[byte >> 4 & ~byte & 15] for byte in range(256)]
            scores.append(([each * longest for each in own], [each * share for each in own]))
        most = sum(max(own) + max(around) for own, around in scores)
        unit = most / (255 - 2 * len(scores)) or 1.0  # each is rounded up
        found = there = 0
        for at, (own, around) in enumerate(scores):
            for plane, values in ((self.own[at], own), (self.around[at], around)):
                table = bytes([0, *[int(value / unit) + 1 for value in values[1:]]])
                found += int.from_bytes(plane.translate(table), "little")
            there |= int.from_bytes(self.own[at].translate(_ONES), "little")
        return (found & there).to_bytes(self.chart.size, "little"), unit


@lru_cache(maxsize=64)
def _masks(first: int, count: int) -> list[int]:
    """Mask of the whole question, as in ``field.Candidate``, by the byte of one plane."""
    return [(byte & 15) << first | (byte >> 4) << count + first for byte in range(256)]


@lru_cache(maxsize=16)
def _lonely_table(strong: int) -> bytes:
    """1 for one term, directly or by its root, that is not among ``strong``; 2 for more."""
    table = []
    for byte in range(256):
        terms = ((byte | byte >> _TERMS) & 15).bit_count()
        table.append(1 if terms == 1 and not byte & strong else min(2 * terms, 2))
    return bytes(table)


def _around(own: bytearray, singles: int) -> bytes:
    """All that is in the group of each position and the groups beside it."""
    size = len(own) - singles
    if not size:
        return bytes(own)
    group = int.from_bytes(own[singles:], "little")
    group |= group >> 8
    group |= group >> 16
    group &= int.from_bytes(b"\xff\0\0\0" * (size // GROUP), "little")
    group |= group << 8 * GROUP | group >> 8 * GROUP
    group |= group << 8
    group |= group << 16
    return bytes(own[:singles]) + group.to_bytes(size, "little")


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
    strong = strong_terms(reading.terms, counts, area.segments, settings)
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
    related: list[tuple[int, ...]] = [()] * len(direct)
    for place, match in roots.items():
        related[place] = tuple(set(found[match] or ()).difference(direct[place] or ()))
    return Rows(tuple(each or () for each in direct), tuple(related))


class Narrowed:
    """The first window of ``planes``, ties with its last included, and what the gate holds back."""

    def __init__(self, first_pass: FirstPass, planes: Planes) -> None:
        self._pass = first_pass
        self._planes = planes
        self._chart = planes.chart
        self._factors = first_pass.factors(planes.statistics)
        self._lonely = planes.lonely()
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
            self._found.sort(key=_score, reverse=True)
            if len(self._found) >= window:
                least = int(self._found[window - 1][0] / unit)
                if low <= least:
                    break
                enough = sum(there.count(level) for level in range(max(1, least), low))
                if not enough:
                    break
        # The bound does not hold for the closer ones.
        self._look_at([at for at in self._chart.closer if 0 < bounds[at] < high])
        self._found.sort(key=_score, reverse=True)
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
            if lonely[at] == 1 and chart.broad[number]:
                continue
            mask = 0
            for masks, plane in pairs:
                mask |= masks[plane[at]]
            around = mask if at < singles else planes.mask(planes.around, at)
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
            mask = beheld.masks[rowid] = planes.mask(planes.own, at)
            rows.append((score, rowid, mask, beheld.place(rowid)))
            beside = range(max(0, at - _STEP), at + _STEP + 1) if at >= chart.singles else ()
            for other in beside:
                if other >= chart.size or not chart.rowids[other]:
                    continue
                around = planes.mask(planes.own, other)
                if around:
                    cues = chart.figures[other] >> places.CUES_BIT
                    around |= asking if cues & ASKS else 0
                    beheld.near[beheld.place(chart.rowids[other])] = around
        return rows

    def held_back(self, most: int) -> list[int]:
        """Rowids that the gate holds back: all of the first scopes that have ``most`` of them."""
        chart = self._chart
        found: list[int] = []
        for first, last in ((0, chart.singles), (chart.singles, chart.size)):
            scope, count = -1, 0
            for at in _where(self._lonely[first:last], 1, 2):
                rowid = chart.rowids[first + at]
                number = rowid >> schema.LOCAL_BITS
                if not chart.broad[number]:
                    continue
                if number != scope and count >= most:
                    break
                scope = number
                count += 1
                found.append(rowid)
        return sorted(found)


def _where(plane: bytes, low: int, high: int) -> Iterator[int]:
    """Positions of the bytes from ``low`` to below ``high``."""
    table = bytes(low <= byte < high for byte in range(256))
    marked = plane.translate(table)
    at = marked.find(1)
    while at >= 0:
        yield at
        at = marked.find(1, at + 1)


def _score(item: tuple[float, int]) -> float:
    return item[0]
