"""Whole scopes for hosts: ``memory.scopes`` lists, deletes, renames, clones and migrates them.

All of it is the owner's: each call says which scopes there are. The work is done by
``memory/lifecycle``; this face takes names as texts and migrates session by session.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from h2ams import sqlite
from h2ams.errors import AccessError, NotFoundError
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer
from h2ams.memory.access import Access
from h2ams.memory.layout import place_of
from h2ams.memory.lifecycle import Lifecycle
from h2ams.memory.lifecycle_plan import ScopeChange
from h2ams.memory.scope import Scope, parse_scope


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """One scope: its folders in every layout, relative to the root, and what the index has of it.

    A scope without folder holds files outside of all scope folders (``topic/unfiled``).
    """

    scope: str
    folders: tuple[str, ...]
    segments: int
    notes: int


class Scopes:
    """Operations on the scopes of one open memory. Each one is finished or undone, never half.

    ``dry_run`` tells every file, row and piece of state that an operation would touch. With an
    ``access``, that is, for anybody but the owner, all are refused (``AccessError``).
    """

    def __init__(self, lifecycle: Lifecycle, index: Index, syncer: Syncer) -> None:
        self._lifecycle = lifecycle
        self._index = index
        self._syncer = syncer

    def list(self, *, access: Access | None = None) -> tuple[ScopeInfo, ...]:
        """Every scope that has a folder or a segment, by name."""
        self._enter(access)
        self._syncer.sync()
        with self._index.reading() as connection:
            folders = sqlite.rows(connection, "SELECT path, scope FROM folders ORDER BY path")
            counts = sqlite.rows(
                connection,
                "SELECT s.name, sum(NOT m.note), sum(m.note) FROM memory_segments m"
                " JOIN scopes s ON s.no = m.scope GROUP BY s.no",
            )
        found: dict[str, list[str]] = defaultdict(list)
        for path, scope in folders:
            place = place_of(path)
            if place is not None and place.is_scope:
                found[scope].append(path)
        held = {name: (int(segments), int(notes)) for name, segments, notes in counts}
        return tuple(
            ScopeInfo(name, tuple(found.get(name, ())), *held.get(name, (0, 0)))
            for name in sorted({*found, *held})
        )

    def delete(
        self, scope: str, *, dry_run: bool = False, access: Access | None = None
    ) -> ScopeChange:
        """Remove ``scope`` with all that it owns, for good: no undo, no trace of its text.

        ``sessions/s`` with its users, VPs, topics and features; ``vp/v`` with what it owns in all
        sessions and chats. ``NotFoundError`` where there is nothing of it.
        """
        self._enter(access)
        return self._lifecycle.delete(parse_scope(scope), dry_run=dry_run)

    def rename(
        self, scope: str, target: str, *, dry_run: bool = False, access: Access | None = None
    ) -> ScopeChange:
        """Give ``scope`` with all that it owns the name ``target``; ids stay as they are.

        ``ScopeError`` where that name, or one that differs by case or Unicode form, is taken.
        """
        self._enter(access)
        return self._lifecycle.rename(parse_scope(scope), parse_scope(target), dry_run=dry_run)

    def clone(
        self, scope: str, target: str, *, dry_run: bool = False, access: Access | None = None
    ) -> ScopeChange:
        """Copy ``scope`` with all that it owns to the free name ``target``."""
        self._enter(access)
        return self._lifecycle.clone(parse_scope(scope), parse_scope(target), dry_run=dry_run)

    def migrate(
        self,
        session: str | None = None,
        *,
        purge: bool = False,
        dry_run: bool = False,
        access: Access | None = None,
    ) -> tuple[ScopeChange, ...]:
        """Bring historical folders of ``session`` (None: of all) into the canonical layout.

        ``session`` is an id or a scope. One change for each session that had something to bring
        over; none: all is canonical. ``purge`` removes instead what earlier migrations set aside.
        """
        self._enter(access)
        due = self._lifecycle.migrated() if purge else self._lifecycle.to_migrate()
        if session is not None:
            wanted = _session(session)
            known = wanted in due or self._lifecycle.folders(wanted)
            if not known and not purge:
                raise NotFoundError(f"there is no {wanted}", hint="h2ams scope list shows them")
            due = [each for each in due if each == wanted]
        work = self._lifecycle.purge_migrated if purge else self._lifecycle.migrate
        return tuple(work(each, dry_run=dry_run) for each in due)

    def _enter(self, access: Access | None) -> None:
        """Refuse anybody but the owner; finish what was interrupted before looking at anything."""
        if access is not None:
            raise AccessError(
                "scope works on the whole folder: it is the owner's",
                hint="leave the access flags out",
            )
        self._lifecycle.settle()


def _session(text: str) -> Scope:
    return parse_scope(text if "/" in text else f"sessions/{text}")
