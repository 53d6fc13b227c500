"""Reading rows of the index by name rather than by rank (Derived, read-only).

Every method sees the scopes that its gate may read and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from h2ams import sqlite
from h2ams.index.lookup import area_of, beginning
from h2ams.index.search import RECORD_COLUMNS, RECORD_TABLES, Searcher
from h2ams.memory.access import Access, Gate
from h2ams.memory.record import Page, Record
from h2ams.memory.scope import Scope, parse_scope
from h2ams.settings import DEFAULTS


class Reader:
    """Look-ups by address, scope and source message, inside one read transaction."""

    def __init__(self, connection: sqlite.Connection, gate: Gate) -> None:
        self.connection = connection
        self.gate = gate
        self._searcher = Searcher(connection, gate, DEFAULTS, today=0)

    def get(self, scope: Scope, id: str) -> Record | None:
        """The segment ``id`` of ``scope``; None where it is not there or not to be seen."""
        if not self.gate.may_read(scope):
            return None
        row = sqlite.row(
            self.connection,
            f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} JOIN scopes s ON s.no = m.scope"
            " WHERE s.name = ? AND m.id = ?",
            (scope.text, id),
        )
        return None if row is None else self._searcher.record(row)

    def list(self, scope: Scope | None) -> tuple[Record, ...]:
        """All segments of ``scope`` or of all readable scopes, by scope, file and line."""
        if scope is not None and not self.gate.may_read(scope):
            return ()
        only = None if scope is None else [scope.text]
        records: list[Record] = []
        for low, high in area_of(self.connection, self.gate, only).ranges:
            rows = sqlite.rows(
                self.connection,
                f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE m.rowid BETWEEN ? AND ?",
                (low, high),
            )
            records.extend(self._searcher.record(row) for row in rows)
        return tuple(sorted(records, key=lambda each: (each.scope, each.path, each.line, each.id)))

    def page(self, scope: Scope | None, after: tuple[str, str] | None, limit: int) -> Page:
        """Up to ``limit`` segments by scope and id behind ``after``; None begins at the front.

        No row of any other segment is read, so that a page costs the same in a long list, and a
        segment that is written or removed meanwhile moves no other one.
        """
        first, id = after or ("", "")
        records: list[Record] = []
        for number, name in self._scopes_from(scope, first, limit + 1):
            rows = sqlite.rows(
                self.connection,
                f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES}"
                " WHERE m.scope = ? AND m.id > ? ORDER BY m.id LIMIT ?",
                (number, id if name == first else "", limit + 1 - len(records)),
            )
            records.extend(self._searcher.record(row) for row in rows)
            if len(records) > limit:
                break
        kept = tuple(records[:limit])
        more = len(records) > limit and limit > 0
        return Page(kept, self._count(scope), (kept[-1].scope, kept[-1].id) if more else None)

    def addresses(self, beginning: str = "", limit: int | None = None) -> tuple[str, ...]:
        """The readable addresses that begin with ``beginning``, in order; no body is read."""
        named, mark, id = beginning.partition("#")
        found: list[str] = []
        for number, name in self._scopes_from(None, named, limit):
            if not name.startswith(named) or (mark and name != named):
                break  # in the order of names, nothing further begins like this
            rows = sqlite.rows(
                self.connection,
                "SELECT id FROM memory_segments WHERE scope = ? AND id >= ? ORDER BY id LIMIT ?",
                (number, id, -1 if limit is None else limit - len(found)),
            )
            found += [f"{name}#{each}" for (each,) in rows if each.startswith(id)]
            if limit is not None and len(found) >= limit:
                break
        return tuple(found)

    def scope_names(self, beginning: str = "", limit: int | None = None) -> tuple[str, ...]:
        """The readable scopes that hold something and begin with ``beginning``, in order."""
        found = (name for _, name in self._scopes_from(None, beginning, limit))
        return tuple(name for name in found if name.startswith(beginning))

    def _scopes_from(
        self, scope: Scope | None, first: str, most: int | None = None
    ) -> Sequence[tuple[int, str]]:
        """Number and name of the readable scopes that hold something, from ``first`` on."""
        if scope is not None and not self.gate.may_read(scope):
            return ()
        where, bindings = self._within(scope)
        rows = sqlite.rows(
            self.connection,
            f"SELECT no, name FROM scopes WHERE {where} AND segments > 0 AND name >= ?"
            " ORDER BY name LIMIT ?",
            (*bindings, first, -1 if most is None else most),
        )
        return [(number, name) for number, name in rows]

    def _count(self, scope: Scope | None) -> int:
        """How many segments ``scope`` or all readable scopes hold."""
        if scope is not None and not self.gate.may_read(scope):
            return 0
        where, bindings = self._within(scope)
        counted = f"SELECT coalesce(sum(segments), 0) FROM scopes WHERE {where}"
        return int(sqlite.value(self.connection, counted, bindings))

    def _within(self, scope: Scope | None) -> tuple[str, tuple[object, ...]]:
        """A condition on ``scopes``, and what it binds: ``scope``, or all that the gate opens."""
        if scope is not None:
            return "name = ?", (scope.text,)
        if self.gate.is_owner:
            return "TRUE", ()
        numbers = area_of(self.connection, self.gate).numbers
        return "no IN carray(?)", (sqlite.integers(numbers),)

    def sources(self, message: str) -> tuple[Record, ...]:
        """The readable segments that cite ``message``."""
        rows = sqlite.rows(
            self.connection,
            f"SELECT {RECORD_COLUMNS} FROM source_msgs x JOIN memory_segments m"
            " ON m.rowid = x.segment JOIN files f ON f.no = m.file WHERE x.message = ?",
            (message,),
        )
        records = [self._searcher.record(row) for row in rows]
        readable = [each for each in records if self.gate.may_read(parse_scope(each.scope))]
        return tuple(sorted(readable, key=lambda each: (each.scope, each.path, each.line)))

    def scopes(self) -> tuple[Scope, ...]:
        """All readable scopes that have a folder, in the order of their names."""
        rows = sqlite.rows(self.connection, "SELECT DISTINCT scope FROM folders WHERE scope <> ''")
        names = [parse_scope(name) for (name,) in rows]
        return tuple(sorted(scope for scope in names if self.gate.may_read(scope)))

    def open_ended_scopes(self) -> tuple[Scope, ...]:
        """The existing scopes of the access's open-ended families: topics and features."""
        rows = sqlite.rows(
            self.connection,
            f"SELECT DISTINCT f.scope {beginning('folders f', 'f.scope')}",
            (sqlite.texts(self.gate.families()),),
        )
        return tuple(sorted(parse_scope(name) for (name,) in rows))

    def scopes_with_summary(self, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
        """Those of ``scopes`` that have a summary or a historical ``content.md``, in order."""
        wanted = {scope.text: scope for scope in scopes}
        rows = sqlite.rows(
            self.connection,
            "SELECT DISTINCT scope FROM files"
            " WHERE scope IN carray(?) AND role IN ('summary', 'content')",
            (sqlite.texts(wanted),),
        )
        have = {name for (name,) in rows}
        return tuple(scope for text, scope in wanted.items() if text in have)

    def by_bare_id(self, id: str) -> Record | None:
        """The readable segment with this id, of the closest scope that has it."""
        if self.gate.is_owner:
            return None
        names = area_of(self.connection, self.gate).names
        scopes = sorted(map(parse_scope, names), key=lambda each: (self.gate.closeness(each), each))
        for scope in scopes:
            record = self.get(scope, id)
            if record is not None:
                return record
        return None

    def tracked_scopes(self, access: Access | None) -> Sequence[str]:
        """Names whose files and folders a recall with this access must check for changes."""
        names = {scope.text for scope in self.gate.own_scopes()}
        names.update(scope.text for scope in self.open_ended_scopes())
        if access is not None:  # whether a related session counts is said by its card
            names.update(f"sessions/{each}" for each in access.related_sessions)
        return sorted(names)


def session_agents(connection: sqlite.Connection, access: Access) -> dict[str, str | None]:
    """The recorded agent of the current and the related sessions."""
    ids: Sequence[str] = [access.session or "", *access.related_sessions]
    statement = "SELECT id, agent FROM sessions WHERE id IN carray(?)"
    return dict(sqlite.rows(connection, statement, (sqlite.texts(ids),)))
