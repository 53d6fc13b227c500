"""Which rows hold a word, inside the authorised scopes only (Derived, read-only).

All reading of ``memory_fts`` goes through here. Foreign rows are never touched: a look-up is a scan
of the authorised rowid ranges, so that neither a result nor a count nor a statistic can depend on
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from h2ams import sqlite
from h2ams.index import schema
from h2ams.memory.access import Gate
from h2ams.memory.scope import parse_scope
from h2ams.text.words import Term

# Above this many ranges it can be cheaper to read all rows of a rare word and filter them.
_MANY_RANGES = 64
_ROWS_PER_RANGE = 64  # a word with fewer rows than this times the ranges is rare: 8 against 0.1 µs
_VALUES_LIMIT = 250  # pairs written into the statement; more travel as JSON


class Area(NamedTuple):
    """The authorised part of the index: its scopes by name and the rowid ranges that they own."""

    names: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    segments: int
    words: int
    numbers: tuple[int, ...]  # of the scopes, rising

    @property
    def average_length(self) -> float:
        return self.words / self.segments if self.segments else 1.0


def area_of(connection: sqlite.Connection, gate: Gate, only: Sequence[str] | None = None) -> Area:
    """The scopes that ``gate`` may read, narrowed to the names in ``only`` where given."""
    if gate.is_owner and only is None:
        rows = sqlite.rows(connection, "SELECT no, name, segments, words FROM scopes ORDER BY no")
        return _area(rows, ((0, (1 << 63) - 1),) if rows else ())
    rows = _authorised(connection, gate, only)
    return _area(rows, _coalesce(connection, [no for no, _, _, _ in rows]))


def _area(rows: Sequence[tuple[int, str, int, int]], ranges: tuple[tuple[int, int], ...]) -> Area:
    return Area(
        tuple(sorted(name for _, name, _, _ in rows)),
        ranges,
        sum(segments for _, _, segments, _ in rows),
        sum(words for _, _, _, words in rows),
        tuple(no for no, _, _, _ in rows),
    )


def _authorised(
    connection: sqlite.Connection, gate: Gate, only: Sequence[str] | None
) -> list[tuple[int, str, int, int]]:
    columns = "SELECT no, name, segments, words FROM scopes"
    if only is not None:
        names = [name for name in only if gate.may_read(parse_scope(name))]
    else:
        names = [scope.text for scope in gate.own_scopes()]
    rows = []
    if names:
        where = f"{columns} WHERE name IN carray(?)"
        rows = sqlite.rows(connection, where, (sqlite.texts(names),))
    families = gate.families() if only is None else ()
    if families:
        rows += sqlite.rows(
            connection,
            f"SELECT s.no, s.name, s.segments, s.words {beginning('scopes s', 's.name')}",
            (sqlite.texts(families),),
        )
    return sorted({row for row in rows if gate.may_read(parse_scope(row[1]))})


def beginning(table: str, column: str) -> str:
    """``FROM`` clause for the rows of ``table`` whose ``column`` begins with one of the prefixes
    that are bound, each of which ends in a slash; one search in the index of the column each."""
    end = "substr(p.value, 1, length(p.value) - 1) || '0'"  # 0 comes right after the slash
    return f"FROM carray(?) p CROSS JOIN {table} ON {column} >= p.value AND {column} < {end}"


def _coalesce(connection: sqlite.Connection, numbers: list[int]) -> tuple[tuple[int, int], ...]:
    """Ranges over ``numbers`` (rising), joined wherever no foreign scope lies between them."""
    ranges: list[tuple[int, int]] = []
    next_number = dict(
        sqlite.rows(
            connection,
            "SELECT value, (SELECT no FROM scopes WHERE no > value ORDER BY no LIMIT 1)"
            " FROM carray(?)",
            (sqlite.integers(numbers),),
        )
    )
    previous = None
    for number in numbers:
        first, last = schema.rowid_range(number)
        if previous is not None and next_number[previous] == number:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))
        previous = number
    return tuple(ranges)


def match_of(term: Term) -> str:
    """The FTS5 expression of one term. Text is always quoted: no input is FTS5 syntax."""
    phrase = " ".join(term.tokens).replace('"', '""')
    if term.kind == "prefix":
        return f'"{phrase}" *'
    if len(term.tokens) > 1:
        return f'words : "{phrase}"'
    return f'"{phrase}"'


def match_of_any(tokens: Iterable[str]) -> str:
    """The FTS5 expression of any of single ``tokens``."""
    return " OR ".join(match_of(Term(token, "word", (token,))) for token in tokens)


class Lookup:
    """Look-ups inside one area, in one read transaction."""

    def __init__(self, connection: sqlite.Connection, area: Area) -> None:
        self.connection = connection
        self.area = area
        self._counts: dict[str, int] = {}

    def _clause(self, match: str) -> tuple[str, tuple[object, ...]]:
        """``FROM`` clause for the authorised rows that ``match``, and its bindings.

        With many ranges FTS5 begins anew in each; what has few rows for that is read as a whole and
        filtered. So is a prefix: beginning anew, it would read all words that begin so each time.
        """
        count = len(self.area.ranges)
        if count > _MANY_RANGES and (match.endswith("*") or self._is_rare(match, count)):
            bits = schema.LOCAL_BITS
            return (
                f"FROM memory_fts f WHERE f.rowid >> {bits} IN (SELECT value FROM carray(?1))"
                " AND memory_fts MATCH ?2",
                (sqlite.integers(self.area.numbers), match),
            )
        clause, bindings = self._source
        return clause, (*bindings, match)

    def _is_rare(self, match: str, ranges: int) -> bool:
        most = _ROWS_PER_RANGE * ranges
        rows = "SELECT count(*) FROM (SELECT 1 FROM memory_fts WHERE memory_fts MATCH ? LIMIT ?)"
        return int(sqlite.value(self.connection, rows, (match, most + 1))) <= most

    @cached_property
    def _source(self) -> tuple[str, tuple[object, ...]]:
        """``FROM`` clause that gives the rows of ``memory_fts`` in the ranges, and its bindings."""
        ranges = self.area.ranges
        if len(ranges) <= _VALUES_LIMIT:
            values = ",".join(f"({low},{high})" for low, high in ranges)
            table = f"(SELECT column1 lo, column2 hi FROM (VALUES {values}))"
            bindings: tuple[object, ...] = ()
        else:
            table = "(SELECT value->>0 lo, value->>1 hi FROM json_each(?))"
            bindings = (json.dumps(ranges),)
        return (
            f"FROM {table} r CROSS JOIN memory_fts f"
            " WHERE memory_fts MATCH ? AND f.rowid BETWEEN r.lo AND r.hi",
            bindings,
        )

    def rows(self, match: str) -> list[int]:
        """Rowids, rising inside each range, of the rows that ``match``."""
        if not self.area.ranges:
            return []
        clause, bindings = self._clause(match)
        found = sqlite.rows(self.connection, f"SELECT f.rowid {clause}", bindings)
        return [row[0] for row in found]

    def rows_up_to(self, match: str, most: int) -> list[int] | None:
        """The rows that ``match``, or None where they are more than ``most``."""
        if not self.area.ranges:
            return []
        if self._counts.get(match, 0) > most:
            return None
        clause, bindings = self._clause(match)
        found = sqlite.rows(
            self.connection, f"SELECT f.rowid {clause} LIMIT ?", (*bindings, most + 1)
        )
        return [row[0] for row in found] if len(found) <= most else None

    def among(self, match: str, rowids: Iterable[int]) -> list[int]:
        """Those of ``rowids``, all of the area, that ``match``: read past, not fetched, are others.

        The plus keeps SQLite from looking each of them up by itself.
        """
        clause, bindings = self._clause(match)
        found = sqlite.rows(
            self.connection,
            f"SELECT f.rowid {clause} AND +f.rowid IN carray(?)",
            (*bindings, sqlite.integers(rowids)),
        )
        return [row[0] for row in found]

    def on_days(self, first: int, last: int) -> list[int]:
        """Rows dated from day ``first`` to day ``last``, rising."""
        found = sqlite.rows(
            self.connection,
            "SELECT rowid FROM memory_segments WHERE scope IN carray(?) AND day BETWEEN ? AND ?",
            (sqlite.integers(self.area.numbers), first, last),
        )
        return sorted(row[0] for row in found)

    def count(self, match: str) -> int:
        """How many rows match, without fetching them."""
        if not self.area.ranges:
            return 0
        if match not in self._counts:
            clause, bindings = self._clause(match)
            found = sqlite.value(self.connection, f"SELECT count(*) {clause}", bindings)
            self._counts[match] = int(found)
        return self._counts[match]

    def containing(self, fragment: str, limit: int) -> tuple[list[int], bool]:
        """Rows whose analysed text contains ``fragment``; reads at most ``limit`` segments.

        The second value tells whether all segments of the area were read.
        """
        found: list[int] = []
        left = limit
        for low, high in self.area.ranges:
            if left <= 0:
                return found, False
            rows = sqlite.rows(
                self.connection,
                "SELECT rowid, instr(words || ' ' || forms || ' ' || labels, ?) FROM"
                " (SELECT rowid, words, forms, labels FROM memory_segments"
                "  WHERE rowid BETWEEN ? AND ? LIMIT ?)",
                (fragment, low, high, left),
            )
            left -= len(rows)
            found += [rowid for rowid, place in rows if place]
        return found, self.area.segments <= limit


def stats(connection: sqlite.Connection, rowids: Iterable[int]) -> dict[int, memoryview]:
    """Blocks of pairs (figures, place) that cover ``rowids``, by block number: places.py."""
    numbers = {rowid >> schema.BLOCK_BITS for rowid in rowids}
    if not numbers:
        return {}
    return {
        number: memoryview(packed).cast("Q")
        for number, packed in sqlite.rows(
            connection,
            "SELECT block, stats FROM blocks WHERE block IN carray(?)",
            (sqlite.integers(numbers),),
        )
    }
