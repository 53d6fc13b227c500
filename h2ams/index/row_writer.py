"""Writing rows and everything that is counted over them (Derived).

One ``Writer`` lives for one write transaction. Rows go to SQLite at once; what is kept per scope
(number of segments, words, digest) and per block of rowids (lengths and days for the ranking) is
collected and written by ``flush`` at the end: a thousand changes to a scope cost one update.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from h2ams import sqlite
from h2ams.errors import IndexFaultError
from h2ams.index import digest, places, schema
from h2ams.index.rows import Row

_INSERT = """
INSERT INTO memory_segments (
    rowid, scope, file, stale, id, line, last_line, note, over_limit, kind, tags, created_at,
    updated_at, day, length, tokens, digest, row_digest, words, forms, labels, roots, sources,
    heading, body
) VALUES (?,?,?,0, ?,?,?,?,?,?,?,?, ?,?,?,?,?,?,?,?,?,?,?,?,?)
"""
_UPDATE = """
UPDATE memory_segments SET
    file = ?, stale = 0, id = ?, line = ?, last_line = ?, note = ?, over_limit = ?, kind = ?,
    tags = ?, created_at = ?, updated_at = ?, day = ?, length = ?, tokens = ?, digest = ?,
    row_digest = ?, words = ?, forms = ?, labels = ?, roots = ?, sources = ?, heading = ?,
    body = ?
WHERE rowid = ?
"""


_FTS_INSERT = "INSERT INTO memory_fts (rowid, words, forms, labels, roots) VALUES (?, ?, ?, ?, ?)"
# FTS5 keeps no copy of the text: to take a row out it must be told what stood there.
_FTS_DELETE = (
    "INSERT INTO memory_fts (memory_fts, rowid, words, forms, labels, roots)"
    " VALUES ('delete', ?, ?, ?, ?, ?)"
)
_OLD = "SELECT length, row_digest, words, forms, labels, roots FROM memory_segments WHERE rowid = ?"


def _bindings(row: Row) -> tuple[object, ...]:
    return (
        row.id,
        row.line,
        row.last_line,
        row.note,
        row.over_limit,
        row.kind,
        row.tags,
        row.created_at,
        row.updated_at,
        row.day,
        row.length,
        row.tokens,
        row.digest,
        row.row_digest,
        row.words,
        row.forms,
        row.labels,
        row.roots,
        row.sources,
        row.heading,
        row.body,
    )


class Writer:
    """Inserts, updates and deletes rows inside the caller's write transaction."""

    def __init__(self, connection: sqlite.Connection) -> None:
        self.connection = connection
        self.added = self.updated = self.deleted = 0
        self._blocks: dict[int, array[int]] = {}
        self._scopes: dict[int, list[int]] = {}  # number -> [segments, words, digest, next place]

    def insert(self, scope: int, file: int, row: Row) -> int:
        """Add a row to the scope with this number, at its next free place; gives its rowid."""
        totals = self._totals(scope)
        place = totals[3]
        if place > schema.LOCAL_MASK:
            place = self._free_place(scope)
        else:
            totals[3] = place + 1
        rowid = (scope << schema.LOCAL_BITS) | place
        execute = self.connection.execute
        execute(_INSERT, (rowid, scope, file, *_bindings(row)))
        execute(_FTS_INSERT, (rowid, row.words, row.forms, row.labels, row.roots))
        self._sources(rowid, row.source_ids)
        totals[0] += 1
        totals[1] += row.length
        totals[2] += int(row.row_digest, 16)
        self._set_block(rowid, places.figures(row.length, row.day, row.cues))
        self.added += 1
        return rowid

    def update(self, rowid: int, file: int, row: Row) -> None:
        """Replace the row's content; its rowid and so its address in the index stay."""
        length, old, *text = sqlite.only(self.connection, _OLD, (rowid,))
        self.connection.execute(_UPDATE, (file, *_bindings(row), rowid))
        new = [row.words, row.forms, row.labels, row.roots]
        if text != new:
            self.connection.execute(_FTS_DELETE, (rowid, *text))
            self.connection.execute(_FTS_INSERT, (rowid, *new))
        self.connection.execute("DELETE FROM source_msgs WHERE segment = ?", (rowid,))
        self._sources(rowid, row.source_ids)
        totals = self._totals(rowid >> schema.LOCAL_BITS)
        totals[1] += row.length - length
        totals[2] += int(row.row_digest, 16) - int(old, 16)
        self._set_block(rowid, places.figures(row.length, row.day, row.cues))
        self.updated += 1

    def move(self, rowid: int, file: int, line: int, last_line: int) -> None:
        """The same text stands at other lines (or in another file) now."""
        self.connection.execute(
            "UPDATE memory_segments SET file = ?, line = ?, last_line = ?, stale = 0"
            " WHERE rowid = ?",
            (file, line, last_line, rowid),
        )

    def delete(self, rowid: int) -> None:
        """Take a row out of every table."""
        length, old, *text = sqlite.only(self.connection, _OLD, (rowid,))
        self.connection.execute("DELETE FROM memory_segments WHERE rowid = ?", (rowid,))
        self.connection.execute(_FTS_DELETE, (rowid, *text))
        self.connection.execute("DELETE FROM source_msgs WHERE segment = ?", (rowid,))
        totals = self._totals(rowid >> schema.LOCAL_BITS)
        totals[0] -= 1
        totals[1] -= length
        totals[2] -= int(old, 16)
        self._set_block(rowid, 0, 0)
        self.deleted += 1

    def _sources(self, rowid: int, ids: tuple[str, ...]) -> None:
        for each in ids:
            self.connection.execute(
                "INSERT OR IGNORE INTO source_msgs VALUES (?, ?)", (each, rowid)
            )

    def _free_place(self, scope: int) -> int:
        """The lowest place that a deletion left, once all have been given out."""
        first, last = schema.rowid_range(scope)
        expected = first
        for (rowid,) in sqlite.rows(
            self.connection,
            "SELECT rowid FROM memory_segments WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
            (first, last),
        ):
            if rowid != expected:
                return expected & schema.LOCAL_MASK
            expected += 1
        raise IndexFaultError(f"more than {1 << schema.LOCAL_BITS} segments in one scope")

    def _totals(self, scope: int) -> list[int]:
        totals = self._scopes.get(scope)
        if totals is None:
            segments, words, total, place = sqlite.only(
                self.connection,
                "SELECT segments, words, digest, next_place FROM scopes WHERE no = ?",
                (scope,),
            )
            totals = self._scopes[scope] = [segments, words, int(total, 16), place]
        return totals

    def arrange(self, rows: Sequence[tuple[int, str]]) -> None:
        """Say in which order ``rows`` stand: (rowid, run it belongs to) of one file, from above.

        Segments next to each other in one run are context for each other: index/places.py.
        """
        figures = [self._figures(rowid) for rowid, _ in rows]
        for at, (rowid, place, length) in enumerate(places.arranged(rows, figures)):
            figure = places.with_context(figures[at], length)
            self._set_block(rowid, figure, place)

    def _block(self, number: int) -> array[int]:
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = array("Q")
            stored = sqlite.row(
                self.connection, "SELECT stats FROM blocks WHERE block = ?", (number,)
            )
            if stored is not None:
                block.frombytes(stored[0])
        return block

    def _figures(self, rowid: int) -> int:
        return self._block(rowid >> schema.BLOCK_BITS)[2 * (rowid & schema.BLOCK_MASK)]

    def _set_block(self, rowid: int, figures: int, place: int | None = None) -> None:
        block = self._block(rowid >> schema.BLOCK_BITS)
        at = 2 * (rowid & schema.BLOCK_MASK)
        if len(block) < at + 2:
            block.extend([0] * (at + 2 - len(block)))
        block[at] = figures
        if place is not None:
            block[at + 1] = place

    def flush(self) -> None:
        """Write what was collected. Call once, before the transaction ends."""
        for scope, (segments, words, total, place) in self._scopes.items():
            assert segments >= 0 and words >= 0, f"scope {scope} counts below zero"
            if not segments:
                self._drop(scope)
                continue
            self.connection.execute(
                "UPDATE scopes SET segments = ?, words = ?, digest = ?, next_place = ?"
                " WHERE no = ?",
                (segments, words, f"{total % digest.MODULUS:x}", place, scope),
            )
        for number, block in self._blocks.items():
            # A row may have no words and no date: zeros alone do not say that there is none.
            if not any(block) and not self._has_rows(number):
                self.connection.execute("DELETE FROM blocks WHERE block = ?", (number,))
                continue
            self.connection.execute(
                "INSERT OR REPLACE INTO blocks VALUES (?, ?)", (number, block.tobytes())
            )
        if self.updated or self.deleted:
            self.connection.execute(
                "INSERT OR REPLACE INTO meta VALUES (?, '1')", (schema.UNERASED,)
            )
        self._scopes.clear()
        self._blocks.clear()

    def _has_rows(self, block: int) -> bool:
        first = block << schema.BLOCK_BITS
        return bool(
            sqlite.value(
                self.connection,
                "SELECT 1 FROM memory_segments WHERE rowid BETWEEN ? AND ? LIMIT 1",
                (first, first | schema.BLOCK_MASK),
            )
        )

    def _drop(self, scope: int) -> None:
        """A scope without segments leaves nothing behind: no number, no name."""
        self.connection.execute("DELETE FROM scopes WHERE no = ?", (scope,))
        first, last = schema.rowid_range(scope)
        bounds = (first >> schema.BLOCK_BITS, last >> schema.BLOCK_BITS)
        self.connection.execute("DELETE FROM blocks WHERE block BETWEEN ? AND ?", bounds)
        for number in [each for each in self._blocks if bounds[0] <= each <= bounds[1]]:
            del self._blocks[number]
