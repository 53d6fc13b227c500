"""Where on this disk the folders of a scope are: every layout, every spelling (Truth; reads only).

The patterns of ``lifecycle_plan`` are matched level by level, names compared in NFC. What
migrations set aside (``.h2ams/migrated/<op>/…``) has the same layouts and is searched alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator

from h2ams.errors import ScopeError, UnsafePathError
from h2ams.files import STATE_FOLDER, Root
from h2ams.memory import layout
from h2ams.memory.layout import Role
from h2ams.memory.lifecycle_plan import (
    DATA_FILES,
    MIGRATED,
    Pattern,
    Place,
    data_places,
    places,
)
from h2ams.memory.scope import NEVER_READ, Scope, parse_scope, session_scope
from h2ams.trees import Trees, is_leftover

HISTORICAL = ("session", "group")  # folders of sessions that a migration empties, in this order
DATA_HOLDERS = ("groups/", "chats/")  # historical folders that hold files of state only
_SCOPE_LINES = frozenset({Role.MEMORY, Role.ARCHIVE})


class Places:
    """Finds folders and files of scopes below one root."""

    def __init__(self, root: Root, trees: Trees) -> None:
        self._root = root
        self._trees = trees

    def of(self, scope: Scope) -> list[Place]:
        """The folders of the family ``scope`` that are read, canonical layout first."""
        return self._found("", scope)

    def aside(self, scope: Scope) -> list[Place]:
        """Its folders among those that migrations set aside."""
        bases = self._trees.folders(f"{STATE_FOLDER}/{MIGRATED}")
        return [
            place
            for base in bases
            for place in self._found(f"{STATE_FOLDER}/{MIGRATED}/{base}", scope)
        ]

    def aside_files(self, scope: Scope, names: Iterable[str]) -> list[str]:
        """Files of ``scope`` itself with one of ``names`` among what migrations set aside."""
        paths = [f"{place.path}/{name}" for place in self.aside(scope) for name in names]
        return [path for path in paths if self._trees.exists(path)]

    def data(self, scope: Scope, base: str = "") -> list[Place]:
        """Historical state files of a session or chat that lie outside of its folders."""
        chat_exists = scope.session is not None and bool(
            list(self._match(base, ("chat", scope.session)))
        )
        return [
            Place(_join(base, *parts, name), (*parts, name), (*pattern, name), number, base)
            for number, pattern in enumerate(data_places(scope, chat_exists=chat_exists))
            for parts in self._match(base, pattern)
            for name in DATA_FILES
            if self._trees.exists(_join(base, *parts, name))
        ]

    def data_aside(self, scope: Scope) -> list[Place]:
        """Such state files among what migrations set aside."""
        bases = self._trees.folders(f"{STATE_FOLDER}/{MIGRATED}")
        return [
            place
            for base in bases
            for place in self.data(scope, f"{STATE_FOLDER}/{MIGRATED}/{base}")
        ]

    def files(self, path: str) -> list[str]:
        """Files and links at or below ``path``, without what dead writers left."""
        return [each for each in self._trees.walk(path) if not is_leftover(each)]

    def to_migrate(self) -> list[Scope]:
        """Sessions and chats that have a folder or state in a historical layout, by name."""
        found: set[Scope] = set()
        for family in (*HISTORICAL, "groups"):
            found.update(self._sessions(family))
        for session in self._sessions("chats"):
            is_session = self.of(session) and not self.of(_chat(session))
            found.add(session if is_session else _chat(session))
        return sorted(scope for scope in found if self.is_due(scope))

    def is_due(self, scope: Scope) -> bool:
        """Whether anything of ``scope`` is in a historical place."""
        return bool(self.historical(scope))

    def historical(self, scope: Scope) -> list[Place]:
        """Historical folders of a session, then single files of its state."""
        found = [place for place in self.of(scope) if place.pattern[0] in HISTORICAL]
        return [*found, *self.data(scope)]

    def migrated(self) -> list[Scope]:
        """Sessions and chats of which a migration set something aside, by name."""
        found: set[Scope] = set()
        for base in self._trees.folders(f"{STATE_FOLDER}/{MIGRATED}"):
            for family in (*HISTORICAL, "sessions", "groups"):
                found.update(self._sessions(f"{STATE_FOLDER}/{MIGRATED}/{base}/{family}"))
            for family in ("chat", "chats"):
                sessions = self._sessions(f"{STATE_FOLDER}/{MIGRATED}/{base}/{family}")
                found.update(map(_chat, sessions))
        return sorted(found)

    def _sessions(self, folder: str) -> Iterator[Scope]:
        for name in self._trees.folders(folder):
            try:
                yield session_scope(unicodedata.normalize("NFC", name))
            except ScopeError:
                continue  # reported by every scan

    def _found(self, base: str, scope: Scope) -> list[Place]:
        found: list[Place] = []
        seen: set[str] = set()
        for number, pattern in enumerate(places(scope)):
            for parts in self._match(base, pattern):
                path = _join(base, *parts)
                real = self._root.absolute(path.rpartition("/")[0]) + "/" + parts[-1]
                if real not in seen:  # reached through a link too
                    seen.add(real)
                    found.append(Place(path, parts, pattern, number, base))
        return found

    def _match(self, base: str, pattern: Pattern) -> Iterator[tuple[str, ...]]:
        """Existing folders below ``base`` that fit ``pattern``, as they are spelled."""
        found: list[tuple[str, ...]] = [()]
        for part in pattern:
            found = [(*parts, name) for parts in found for name in self._level(base, parts, part)]
        yield from found

    def _level(self, base: str, parts: tuple[str, ...], wanted: str | None) -> list[str]:
        try:
            names = self._trees.folders(_join(base, *parts))
        except UnsafePathError:
            return []  # a link that leads out of the folder: nothing of ours is there
        if wanted is None:
            return [name for name in names if name[:1] != "." and name != NEVER_READ]
        return [name for name in names if unicodedata.normalize("NFC", name) == wanted]


def has_scope_lines(path: str) -> bool:
    """Whether the file at ``path`` is a ``memory.md`` or ``archive.md`` of a scope."""
    folder, _, name = path.rpartition("/")
    place = layout.place_of(folder)
    return place is not None and layout.role(place, name)[0] in _SCOPE_LINES


def scope_of(place: Place) -> Scope:
    """The scope whose folder ``place`` is."""
    return parse_scope(unicodedata.normalize("NFC", "/".join(place.parts)))


def moved_scopes(found: Iterable[Place]) -> list[Scope]:
    """The scopes whose folders are among ``found``, each once."""
    folders = (place for place in found if f"{place.parts[0]}/" not in DATA_HOLDERS)
    return sorted({scope_of(place) for place in folders})


def _chat(session: Scope) -> Scope:
    return parse_scope(f"chat/{session.session}")


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
