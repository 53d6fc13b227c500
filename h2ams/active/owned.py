"""Active sets as state that scopes own: they go, and are renamed, with their session or VP (state).

A set belongs to a session or chat, and to a VP in it; its file says to which. Sets of *other*
sessions may hold addresses of a scope that goes (related sessions, a VP's own memory): those are
taken out or renamed too, since the same text in a new scope of that name has the same address.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from h2ams.active.ams import ActiveSet
from h2ams.active.registry import CHATS, LOCK, Family, Owner, decode, encode, file_name
from h2ams.errors import ScopeError
from h2ams.files import Root
from h2ams.memory.lifecycle_plan import holds, renamed
from h2ams.memory.scope import Scope, parse_address, parse_scope

_FOLDER = "ams"
Mapping = Callable[[str], str | None]  # an address to what stands for it, None for nothing


@dataclass(frozen=True, slots=True)
class _File:
    """One file below ``ams/``. ``owner`` None: it cannot be read, its folder says whose it is."""

    name: str
    folder: str
    family: Family
    owner: Owner | None
    state: ActiveSet


class ActiveState:
    """The ``OwnedState`` of the registry's files."""

    name = "active-sets"
    is_cloned = True
    lock: str | None = LOCK
    may_be_late = True  # addresses only: those of a scope that has gone lead nowhere

    def __init__(self, root: Root) -> None:
        self._root = root

    def list(self, scope: Scope) -> tuple[str, ...]:
        return tuple(each.name for each in self._files() if _belongs(each, scope))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        with self._root.lock(LOCK):
            self._sweep()
            for each in list(self._files()):
                if _belongs(each, scope):
                    self._root.remove_state(each.name)
                    self._prune(each.folder)
                else:
                    self._map(each, lambda address: None if _lies_in(address, scope) else address)
        return ()

    def rename(self, old: Scope, new: Scope) -> None:
        if old == new:
            return
        with self._root.lock(LOCK):
            self._sweep()
            for each in list(self._files()):
                if not _belongs(each, old):
                    self._map(each, _renaming(old, new))
                    continue
                self._copy(each, old, new)
                self._root.remove_state(each.name)
                self._prune(each.folder)

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        with self._root.lock(LOCK):
            self._sweep()
            for each in list(self._files()):
                if _belongs(each, old):
                    self._copy(each, old, new)
        return ()

    def _copy(self, each: _File, old: Scope, new: Scope) -> None:
        """The set under its new owner's name; one that cannot be read has nothing to copy."""
        if each.owner is None:
            return
        scope = renamed(each.owner.scope, old, new)
        owner = Owner(scope.session or scope.chat or "", scope.vp, each.family)
        name = owner.marker if each.name == each.owner.marker else owner.name
        self._root.write_state(name, encode(owner, _mapped(each.state, _renaming(old, new))))

    def _map(self, each: _File, mapping: Mapping) -> None:
        if each.owner is None:
            return
        after = _mapped(each.state, mapping)
        if after != each.state:
            self._root.write_state(each.name, encode(each.owner, after))

    def _files(self) -> Iterator[_File]:
        for folder, family in self._folders():
            for name in self._root.state_names(folder):
                yield self._read(f"{folder}/{name}", folder, family)

    def _folders(self) -> Iterator[tuple[str, Family]]:
        for name in self._root.state_names(_FOLDER):
            if name != CHATS:
                yield f"{_FOLDER}/{name}", "sessions"
        for name in self._root.state_names(f"{_FOLDER}/{CHATS}"):
            yield f"{_FOLDER}/{CHATS}/{name}", "chat"

    def _sweep(self) -> None:
        """Remove what dead writers left; all who write here hold the lock."""
        for folder, _ in self._folders():
            for name in self._root.state_names(folder):
                if name.startswith(".") and name.endswith(".tmp"):
                    self._root.remove_state(f"{folder}/{name}")

    def _read(self, name: str, folder: str, family: Family) -> _File:
        unread = _File(name, folder, family, None, ActiveSet())
        if not name.endswith(".json"):
            return unread  # set aside, or cut short
        data = self._root.read_state(name)
        try:
            fields = json.loads(data or b"")
            owner = Owner(fields["session"], fields["vp"], family)
            state = decode(owner, data or b"")
            assert owner.scope  # ids of the grammar
        except (ValueError, KeyError, TypeError, RecursionError, ScopeError):
            return unread
        if name not in (owner.name, owner.marker):
            return unread
        return replace(unread, owner=owner, state=state)

    def _prune(self, folder: str) -> None:
        path = os.path.join(self._root.state, *folder.split("/"))
        with suppress(OSError):  # not empty, or not to be removed: it does no harm
            self._root.writer.at("remove-folder", path)
            os.rmdir(path)


def _belongs(each: _File, scope: Scope) -> bool:
    """Whether a set goes with ``scope``: a session, a chat, a VP in one, or a VP everywhere."""
    if each.owner is not None:
        return holds(scope, each.owner.scope)
    name = each.name.rpartition("/")[2].removeprefix(".")
    if scope.vp is not None and not name.startswith(f"{file_name(scope.vp)}.json"):
        return False
    if scope.family == "vp":
        return True
    if scope.member not in ("", "vp") or scope.family != each.family:
        return False
    return each.folder.rpartition("/")[2] == file_name(scope.session or scope.chat or "")


def _mapped(state: ActiveSet, mapping: Mapping) -> ActiveSet:
    uses = ((use, mapping(use.address)) for use in state.recent)
    return replace(
        state,
        recent=tuple(replace(use, address=to) for use, to in uses if to is not None),
        pinned=tuple(to for each in state.pinned if (to := mapping(each)) is not None),
        evicted=tuple(to for each in state.evicted if (to := mapping(each)) is not None),
    )


def _renaming(old: Scope, new: Scope) -> Mapping:
    def mapping(address: str) -> str:
        if not _lies_in(address, old):
            return address
        scope, mark, id = address.partition("#")
        return f"{renamed(parse_scope(scope), old, new)}{mark}{id}"

    return mapping


def _lies_in(address: str, scope: Scope) -> bool:
    """Whether an address is of ``scope``; historical ids without a scope are of none."""
    try:
        return holds(scope, parse_address(address)[0])
    except ScopeError:
        return False
