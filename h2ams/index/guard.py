"""What every read passes first: the access becomes a gate, its scopes are made fresh (Derived).

A related session counts only on the same agent, which its card says; so the cards are part of what
is checked for changes, before the gate is trusted.
"""

from __future__ import annotations

from h2ams import sqlite
from h2ams.errors import LimitError
from h2ams.index.freshness import Watched, watched
from h2ams.index.reach import Reach, Reaches
from h2ams.index.read import Reader, session_agents
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer
from h2ams.memory.access import Access, Gate, check_access
from h2ams.memory.record import Degraded
from h2ams.memory.scope import parse_scope


class Guard:
    """Gates and freshness for one index and its syncer."""

    def __init__(self, index: Index, syncer: Syncer) -> None:
        self.index = index
        self.syncer = syncer
        self._reaches = Reaches(index)

    def gate(self, connection: sqlite.Connection, access: Access | None) -> Gate:
        """The judge of ``access``, with what the index knows of the sessions that it names."""
        if access is None or not access.related_sessions:
            return Gate(access)
        return Gate(access, session_agents(connection, access))

    def fresh(self, access: Access | None) -> tuple[Gate, tuple[Degraded, ...]]:
        """The gate, after a check of its scopes for changes on the disk; call with the lock held.

        The second value names files, of scopes that the gate may read, whose last good text stands
        in for what is there now: unreadable or half-written ones.
        """
        check_access(access)
        if access is None:
            behind = self._refresh(None)
        else:
            with self.index.reading() as connection:
                known = self.reach(connection, access).watched
            behind = self._refresh(known)
        with self.index.reading() as connection:
            gate = self.reach(connection, access).gate
            return gate, (*behind, *_not_read_yet(connection, gate))

    def reach(self, connection: sqlite.Connection, access: Access | None) -> Reach:
        """What ``access`` reaches in the state that ``connection`` sees."""
        found = self._reaches.get(connection, access)
        if found is None:
            found = Reach(self.gate(connection, access))
            if access is not None:
                names = Reader(connection, found.gate).tracked_scopes(access)
                expected = [scope.text for scope in found.gate.own_scopes()]
                found.watched = watched(connection, self.syncer.root.path, names, expected)
            self._reaches.keep(access, found)
        return found

    def known(self, connection: sqlite.Connection, gate: Gate) -> Reach | None:
        """What was kept for ``gate``, if nothing was written since it was made."""
        found = self._reaches.get(connection, gate.access)
        return found if found is not None and found.gate is gate else None

    def _refresh(self, known: Watched | None) -> tuple[Degraded, ...]:
        """Bring the index up to date; where the disk is full or busy, the turn goes on without."""
        try:
            self.syncer.refresh(known)
        except sqlite.HINDERED as error:
            return (
                Degraded("index-behind", f"the index could not be brought up to date: {error}"),
            )
        except LimitError as error:
            return (Degraded("over-limit", error.message),)
        return ()


def _not_read_yet(connection: sqlite.Connection, gate: Gate) -> tuple[Degraded, ...]:
    rows = sqlite.rows(
        connection,
        "SELECT f.path, f.scope, coalesce(min(p.line), 0), coalesce(p.message, 'it is being saved')"
        " FROM files f LEFT JOIN problems p ON p.file = f.no AND NOT p.notice"
        " WHERE f.pending <> '' GROUP BY f.no ORDER BY f.path",
    )
    return tuple(
        Degraded("not-read-yet", f"{path}:{line}: {message}; its last good text is used")
        for path, scope, line, message in rows
        if gate.may_read(parse_scope(scope))
    )
