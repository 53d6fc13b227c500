"""What one access reaches in one state of the index, kept for its next question (Derived).

Which scopes there are for an access, what they own, which files to look at, what stands where: all
of it follows from the access and the index alone. With a thousand related sessions, working it out
takes longer than a question. It is dropped as soon as the index is written to by anybody.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.index import schema
from h2ams.index.freshness import Watched
from h2ams.index.lookup import Area, area_of, stats
from h2ams.memory.access import Access, Gate
from h2ams.memory.scope import Scope, parse_scope

if TYPE_CHECKING:
    from h2ams.index.chart import Chart

MOST_ACCESSES = 8  # remembered at a time, in the order of their last use
MOST_BLOCK_BYTES = 16 << 20  # of figures and places, per access: 1,000,000 segments


class Reach:
    """One access in one state of the index. Call it inside a read transaction of that state."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.watched: Watched | None = None  # set by the guard
        self._area: Area | None = None
        self._scopes: dict[int, Scope] = {}
        self._blocks: dict[int, memoryview] = {}
        self._block_bytes = 0
        self._chart: Chart | None = None

    def area(self, connection: sqlite.Connection) -> Area:
        """All scopes that the gate may read."""
        if self._area is None:
            self._area = area_of(connection, self.gate)
        return self._area

    def scope(self, connection: sqlite.Connection, number: int) -> Scope:
        """The scope with ``number``."""
        scope = self._scopes.get(number)
        if scope is None:
            name = sqlite.value(connection, "SELECT name FROM scopes WHERE no = ?", (number,))
            scope = self._scopes[number] = parse_scope(name)
        return scope

    def chart(self, connection: sqlite.Connection) -> Chart:
        """Where all segments of the area stand; for many scopes (index/planes.py)."""
        if self._chart is None:
            from h2ams.index.chart import chart_of

            area = self.area(connection)
            scopes = {number: self.scope(connection, number) for number in area.numbers}
            self._chart = chart_of(connection, area, self.gate, scopes)
        return self._chart

    def blocks(self, connection: sqlite.Connection, rowids: Iterable[int]) -> dict[int, memoryview]:
        """Figures and places of ``rowids`` and of more: lookup.stats."""
        missing = {rowid >> schema.BLOCK_BITS for rowid in rowids}.difference(self._blocks)
        if not missing:
            return self._blocks
        found = stats(connection, [number << schema.BLOCK_BITS for number in missing])
        size = sum(each.nbytes for each in found.values())
        if self._block_bytes + size > MOST_BLOCK_BYTES:
            return {**self._blocks, **found}
        self._block_bytes += size
        self._blocks.update(found)
        return self._blocks


class Reaches:
    """The last few of them, in the state that the index has now."""

    def __init__(self, index: schema.Index) -> None:
        self._index = index
        self._state: tuple[int, ...] = ()
        self._kept: dict[Access | None, Reach] = {}

    def get(self, connection: sqlite.Connection, access: Access | None) -> Reach | None:
        """What was kept for ``access``, if the index is as it was then."""
        state = self._index.state(connection)
        if state != self._state:
            self._kept.clear()
            self._state = state
        found = self._kept.pop(access, None)
        if found is not None:
            self._kept[access] = found  # the last used one is the last
        return found

    def keep(self, access: Access | None, reach: Reach) -> None:
        """Keep ``reach``, made since the last ``get`` in the same transaction."""
        if len(self._kept) >= MOST_ACCESSES:
            del self._kept[next(iter(self._kept))]
        self._kept[access] = reach
