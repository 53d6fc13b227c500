"""What a folder holds, for an access: counts, tokens, the index, known problems (read-only)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from h2ams import sqlite
from h2ams.files import Root
from h2ams.index import digest
from h2ams.memory.access import Gate
from h2ams.memory.record import Degraded
from h2ams.memory.scope import parse_scope
from h2ams.memory.values import Problem


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """``fresh``: no file waits for being read (half-written, unreadable)."""

    path: str
    fresh: bool
    digest: str


@dataclass(frozen=True, slots=True)
class Status:
    """Counts cover the scopes that the access may read. ``tokens`` is the sum over all bodies."""

    root: str
    state: str
    scopes: int
    segments: int
    notes: int
    tokens: int
    index: IndexStatus
    problems: tuple[Problem, ...]
    degraded: tuple[Degraded, ...]


@dataclass(frozen=True, slots=True)
class ScopeCount:
    """What one scope holds. ``tokens`` is the sum over its bodies."""

    scope: str
    segments: int
    notes: int
    tokens: int


def status(
    root: Root,
    connection: sqlite.Connection,
    gate: Gate,
    index_path: str,
    degraded: Iterable[Degraded] = (),
    folder_problems: Iterable[Problem] = (),
) -> Status:
    """Read the counts of the index. ``folder_problems`` are those of the last walk."""
    readable = _readable_scopes(connection, gate)
    numbers = [no for no, _, _ in readable]
    segments, notes, tokens = _counts(connection, numbers, whole=gate.is_owner)
    names = {name for _, name, _ in readable}
    return Status(
        root=root.path,
        state=root.state,
        scopes=len(names | _scopes_with_files(connection, gate)),
        segments=segments,
        notes=notes,
        tokens=tokens,
        index=IndexStatus(
            index_path,
            not _waiting(connection, gate),
            digest.combine(total for _, _, total in readable),
        ),
        problems=_distinct([*known_problems(connection, gate), *folder_problems]),
        degraded=tuple(degraded),
    )


def known_problems(
    connection: sqlite.Connection, gate: Gate, *, notices: bool = False
) -> list[Problem]:
    """The problems of the indexed files that the gate may read, by path and line."""
    rows = sqlite.rows(
        connection,
        "SELECT f.path, f.scope, p.line, p.code, p.message, p.fixable, p.notice, f.pending"
        " FROM problems p JOIN files f ON f.no = p.file ORDER BY f.path, p.line, p.code",
    )
    return [
        Problem(code, message, line, path, bool(fixable), bool(notice))
        for path, scope, line, code, message, fixable, notice, _ in rows
        if (notices or not notice) and gate.may_read(parse_scope(scope))
    ]


def scope_counts(connection: sqlite.Connection, gate: Gate) -> tuple[ScopeCount, ...]:
    """The scopes that the gate may read and that have a file, by name, with what they hold."""
    rows = sqlite.rows(
        connection,
        "SELECT s.name, count(*) FILTER (WHERE NOT m.note), count(*) FILTER (WHERE m.note),"
        " coalesce(sum(m.tokens), 0) FROM scopes s JOIN memory_segments m ON m.scope = s.no"
        " GROUP BY s.no",
    )
    held = {name: (segments, notes, tokens) for name, segments, notes, tokens in rows}
    names = {name for _, name, _ in _readable_scopes(connection, gate)}
    return tuple(
        ScopeCount(name, *map(int, held.get(name, (0, 0, 0))))
        for name in sorted(names | _scopes_with_files(connection, gate))
    )


def _readable_scopes(connection: sqlite.Connection, gate: Gate) -> list[tuple[int, str, str]]:
    rows = sqlite.rows(connection, "SELECT no, name, digest FROM scopes")
    if gate.is_owner:
        return rows
    return [row for row in rows if gate.may_read(parse_scope(row[1]))]


def _counts(
    connection: sqlite.Connection, numbers: list[int], *, whole: bool
) -> tuple[int, int, int]:
    where = "" if whole else "WHERE scope IN carray(?)"
    bindings = () if whole else (sqlite.integers(numbers),)
    if not whole and not numbers:
        return 0, 0, 0
    row = sqlite.row(
        connection,
        "SELECT count(*) FILTER (WHERE NOT note), count(*) FILTER (WHERE note),"
        f" coalesce(sum(tokens), 0) FROM memory_segments {where}",
        bindings,
    )
    assert row is not None  # an aggregate always gives a row
    return int(row[0]), int(row[1]), int(row[2])


def _scopes_with_files(connection: sqlite.Connection, gate: Gate) -> set[str]:
    rows = sqlite.rows(connection, "SELECT DISTINCT scope FROM files")
    return {name for (name,) in rows if gate.may_read(parse_scope(name))}


def _waiting(connection: sqlite.Connection, gate: Gate) -> bool:
    rows = sqlite.rows(connection, "SELECT DISTINCT scope FROM files WHERE pending <> ''")
    return any(gate.may_read(parse_scope(name)) for (name,) in rows)


def _distinct(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(set(problems), key=lambda each: (each.path, each.line, each.code)))
