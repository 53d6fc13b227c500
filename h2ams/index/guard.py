"""What every read passes first: the access becomes a gate, its scopes are made fresh (Derived).

A related session counts only on the same agent, which its card says; so the cards are part of what
is checked for changes, before the gate is trusted.
"""

from __future__ import annotations

from h2ams import sqlite
from h2ams.index.read import Reader, session_agents
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer
from h2ams.memory.access import Access, Gate
from h2ams.memory.record import Degraded


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

    def fresh(self, access: Access | None) -> tuple[Gate, list[Degraded]]:
        """The gate, after a check of its scopes for changes on the disk; call with the lock held.

        The second value names files that could not be read; only the owner is told.
        """
        if access is None:
            report = self.syncer.refresh(None)
            unreadable = [each for each in report.problems if each.code == "unreadable"]
            return Gate(None), [
                Degraded("unreadable", f"{each.path}: {each.message}") for each in unreadable
            ]
        with self.index.reading() as connection:
            gate = self.gate(connection, access)
            names = Reader(connection, gate).tracked_scopes(access)
        report = self.syncer.refresh(names, [scope.text for scope in gate.own_scopes()])
        if report.changed and access.related_sessions:
            with self.index.reading() as connection:
                gate = self.gate(connection, access)
        return gate, []
