"""What every read passes first: the access becomes a gate, its scopes are made fresh (Derived).

A related session counts only on the same agent, which its card says; so the cards are part of what
is checked for changes, before the gate is trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from h2ams import sqlite
from h2ams.errors import LimitError
from h2ams.index.read import Reader, session_agents
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer
from h2ams.memory.access import Access, Gate
from h2ams.memory.record import Degraded
from h2ams.memory.scope import parse_scope


class Guard:
    """Gates and freshness for one index and its syncer."""

    def __init__(self, index: Index, syncer: Syncer) -> None:
        self.index = index
        self.syncer = syncer

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
        if access is None:
            gate = Gate(None)
            behind = self._refresh(None, ())
        else:
            with self.index.reading() as connection:
                gate = self.gate(connection, access)
                names = Reader(connection, gate).tracked_scopes(access)
            behind = self._refresh(names, [scope.text for scope in gate.own_scopes()])
            if access.related_sessions:
                with self.index.reading() as connection:
                    gate = self.gate(connection, access)
        with self.index.reading() as connection:
            return gate, (*behind, *_not_read_yet(connection, gate))

    def _refresh(
        self, names: Sequence[str] | None, expected: Sequence[str]
    ) -> tuple[Degraded, ...]:
        """Bring the index up to date; where the disk is full or busy, the turn goes on without."""
        try:
            self.syncer.refresh(names, expected)
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
