"""Where all segments of many scopes stand, in one line (Derived, read-only).

A question to a thousand scopes matches thousands of rows. What stands around each is found for all
of them at once (index/planes.py) if every segment has a position in one line: those that are alone
in their run first, then run after run, each from a multiple of ``GROUP`` on and with one empty
group behind it, so that groups of places are the same as those of ``index/field``.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from operator import rshift
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.index import field, schema
from h2ams.index.lookup import Area
from h2ams.index.places import ORDINAL_BITS
from h2ams.memory.access import Gate
from h2ams.memory.scope import Scope

GROUP = 1 << field.GROUP_BITS
FEW = 0.1  # of all segments
MOST_ROWS = 16_384  # of one expression; with more it is for the other way
MOST_ROWS_KEPT = 1_000_000  # of words asked for before: 4 MiB
_BLOCK_BITS = schema.LOCAL_BITS - schema.BLOCK_BITS  # of the blocks of one scope
_BLOCK_MASK = (1 << _BLOCK_BITS) - 1

# Rows of each expression in the authorised scopes, as text; null where there are none. One more
# than wanted at most: then there are too many.
_ROWS = (
    "SELECT (SELECT group_concat(rowid) FROM (SELECT rowid FROM memory_fts"
    "  WHERE memory_fts MATCH w.value AND rowid >> ?3 IN (SELECT value FROM carray(?2)) LIMIT ?4))"
    " FROM json_each(?1) w"
)


if TYPE_CHECKING:
    Positions = array[int]
    _Found = dict[str, Positions | None]
_Row = tuple[int, int, int]  # place, rowid, figures


class Chart:
    """Positions of the segments of one area in one state of the index.

    ``figures`` and ``rowids`` are by position; a gap has 0. Positions below ``singles`` are of
    segments that are alone in their run; both parts are in the order of the scopes' names. By
    number of the scope: ``ranks`` is its closeness, ``broad`` whether one weak word is no match.
    """

    def __init__(
        self,
        area: Area,
        gate: Gate,
        blocks: dict[int, memoryview],
        scopes: Mapping[int, Scope],
    ) -> None:
        self.blocks = blocks
        self.figures = array("Q")
        self.rowids = array("q")
        self.ranks = {number: gate.closeness(scope) for number, scope in scopes.items()}
        self.broad = {number: gate.broad(scope) for number, scope in scopes.items()}
        self._numbers = array("q", area.numbers)
        self._bases: dict[int, int] = {}  # of a scope in `_positions`, by its number
        self._positions = array("i")  # by base and place in the scope
        self._kept: dict[str, Positions] = {}
        self._kept_rows = 0
        by_scope: dict[int, list[int]] = {}
        for block in sorted(blocks):
            by_scope.setdefault(block >> _BLOCK_BITS, []).append(block)
        runs: list[list[_Row]] = []
        for number in sorted(scopes, key=lambda each: f"{scopes[each].text}#"):
            own = by_scope.get(number, [])
            self._bases[number] = len(self._positions)
            if own:
                size = (own[-1] & _BLOCK_MASK) << schema.BLOCK_BITS
                self._positions.extend(repeat(0, size + len(blocks[own[-1]]) // 2))
            for run in _runs((block, blocks[block]) for block in own):
                if len(run) == 1:
                    self._put(run[0])
                else:
                    runs.append(run)
        self._gap(-self.size % GROUP)
        self.singles = self.size
        for run in runs:
            self._lay(run)
        self.farthest, self.closer = self._far_and_close()

    def _far_and_close(self) -> tuple[int, tuple[int, ...]]:
        """The closeness of most segments, and the positions of the few that are closer.

        Where they are not few it is that of the closest.
        """
        farthest = max(self.ranks.values(), default=0)
        close = {number for number, rank in self.ranks.items() if rank < farthest}
        numbers = map(rshift, self.rowids, repeat(schema.LOCAL_BITS))
        flags = map(close.__contains__, numbers)
        closer = tuple(compress(range(self.size), flags)) if close else ()
        if len(closer) > self.size * FEW:
            return min(self.ranks.values()), ()
        return farthest, closer

    @property
    def size(self) -> int:
        return len(self.rowids)

    def positions(self, connection: sqlite.Connection, matches: Sequence[str]) -> _Found:
        """Positions of the rows that match, by expression; None where they are more than
        ``MOST_ROWS``.

        What was looked up lately is kept: questions that follow each other have words in common.
        """
        new = [each for each in dict.fromkeys(matches) if each not in self._kept]
        if new:
            self._look_up(connection, new)
        found = {match: self._kept.pop(match) for match in dict.fromkeys(matches)}
        self._kept.update(found)  # the last used ones are the last
        while self._kept_rows > MOST_ROWS_KEPT and len(self._kept) > len(found):
            self._kept_rows -= len(self._kept.pop(next(iter(self._kept))))
        return {match: None if len(at) > MOST_ROWS else at for match, at in found.items()}

    def _look_up(self, connection: sqlite.Connection, matches: Sequence[str]) -> None:
        rows = sqlite.rows(
            connection,
            _ROWS,
            (json.dumps(matches), sqlite.integers(self._numbers), schema.LOCAL_BITS, MOST_ROWS + 1),
        )
        positions, bases = self._positions, self._bases
        local_bits, local_mask = schema.LOCAL_BITS, schema.LOCAL_MASK
        for match, (text,) in zip(matches, rows, strict=True):
            rowids = json.loads(f"[{text}]") if text else []
            self._kept[match] = array(
                "i",
                [positions[bases[each >> local_bits] + (each & local_mask)] for each in rowids],
            )
            self._kept_rows += len(rowids)

    def _put(self, row: _Row) -> None:
        _, rowid, figures = row
        base = self._bases[rowid >> schema.LOCAL_BITS]
        self._positions[base + (rowid & schema.LOCAL_MASK)] = len(self.rowids)
        self.rowids.append(rowid)
        self.figures.append(figures)

    def _lay(self, run: list[_Row]) -> None:
        run.sort()
        first = run[0][0] & -GROUP
        start = self.size
        for row in run:
            self._gap(start + row[0] - first - self.size)
            self._put(row)
        self._gap(GROUP + -self.size % GROUP)

    def _gap(self, size: int) -> None:
        self.rowids.extend(repeat(0, size))
        self.figures.extend(repeat(0, size))


def _runs(blocks: Iterable[tuple[int, memoryview]]) -> Iterable[list[_Row]]:
    """The segments of one scope, by run."""
    runs: dict[int, list[_Row]] = {}
    for block, packed in blocks:
        figures, places = packed[0::2].tolist(), packed[1::2].tolist()
        for rowid, place in enumerate(places, block << schema.BLOCK_BITS):
            if place:
                row = (place, rowid, figures[rowid & schema.BLOCK_MASK])
                runs.setdefault(place >> ORDINAL_BITS, []).append(row)
    return runs.values()


def chart_of(
    connection: sqlite.Connection, area: Area, gate: Gate, scopes: Mapping[int, Scope]
) -> Chart:
    """The chart of all segments of ``area``."""
    rows = sqlite.rows(
        connection,
        "SELECT b.block, b.stats FROM carray(?) s CROSS JOIN blocks b"
        " ON b.block BETWEEN s.value << ? AND s.value << ? | ?",
        (sqlite.integers(area.numbers), _BLOCK_BITS, _BLOCK_BITS, _BLOCK_MASK),
    )
    blocks = {block: memoryview(each).cast("Q") for block, each in rows}
    return Chart(area, gate, blocks, scopes)
