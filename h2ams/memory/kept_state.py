"""Undo records and kept conflict copies as state that scopes own (state).

Their file names hold digests of scope names; which scope a file is of stands inside of it, before
any text. On a rename they follow, so that what was forgotten can still be brought back; a clone
gets none; a deletion takes them all, leftovers of dead writers too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from h2ams.errors import ScopeError, StoreError
from h2ams.files import Root
from h2ams.memory.forgotten import CONFLICTS, UNDO, Keep, Part, key_of, record_of
from h2ams.memory.layout import folder_names
from h2ams.memory.lifecycle_plan import holds, renamed
from h2ams.memory.relabel import with_scope_lines
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import parse
from h2ams.settings import Settings

_JSON_SCOPE = re.compile(rb'"scope": ("(?:[^"\\]|\\.)*")')
_NAMED = re.compile(r"\.?([0-9a-f]{16})-")


@dataclass(frozen=True, slots=True)
class _File:
    name: str  # below the state folder
    scope: Scope


class KeptState:
    """The ``OwnedState`` of ``forgotten/`` and ``conflicts/``.

    ``scopes`` gives names of scopes that are known: they tell whose a file is that was cut short.
    """

    name = "undo"
    is_cloned = False
    lock: str | None = None
    may_be_late = False

    def __init__(
        self, root: Root, settings: Settings, scopes: Callable[[], Iterable[str]] = tuple
    ) -> None:
        self._root = root
        self._settings = settings
        self._scopes = scopes
        self._keep = Keep(root)

    def list(self, scope: Scope) -> tuple[str, ...]:
        return tuple(each.name for each in self._of(scope))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        for each in list(self._of(scope)):
            self._root.remove_state(each.name)
        return ()

    def rename(self, old: Scope, new: Scope) -> None:
        if old == new:
            return  # its files have moved within: records find them
        for each in list(self._of(new)):
            if "/." in each.name:  # ours, if we were interrupted here
                self._root.remove_state(each.name)
        for each in list(self._of(old)):
            if each.name.startswith(f"{UNDO}/") and each.name.endswith(".json"):
                self._rename_record(each, old, new)
            elif each.name.endswith(".md"):
                self._rename_copy(each, old, new)
            self._root.remove_state(each.name)

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        """Nothing: what was forgotten stays with the original."""
        return ()

    def _of(self, family: Scope) -> Iterator[_File]:
        known = {key_of(name): name for name in self._scopes()} | {key_of(family.text): family.text}
        for folder in (UNDO, CONFLICTS):
            for name in self._root.state_names(folder):
                path = f"{folder}/{name}"
                scope = self._scope_of(path, known)
                if scope is not None and holds(family, scope):
                    yield _File(path, scope)

    def _scope_of(self, path: str, known: dict[str, str]) -> Scope | None:
        named = _NAMED.match(path.rpartition("/")[2])
        text = known.get(named[1]) if named else None
        if text is None:
            text = _written_scope(self._root.read_state(path) or b"")
        try:
            return parse_scope(text) if text else None
        except ScopeError:
            return None

    def _rename_record(self, each: _File, old: Scope, new: Scope) -> None:
        data = self._root.read_state(each.name)
        if data is None:
            return
        try:
            record = record_of(data, each.name)
        except StoreError:
            return  # damaged: it could not be brought back under the old name either
        scope = renamed(each.scope, old, new)
        parts = tuple(
            self._renamed_part(part, each.scope, scope, old, new) for part in record.parts
        )
        self._keep.save(replace(record, scope=scope.text, parts=parts))

    def _renamed_part(self, part: Part, at: Scope, to: Scope, old: Scope, new: Scope) -> Part:
        folder, _, name = part.path.rpartition("/")
        names = dict(zip(folder_names(at), folder_names(to), strict=True))
        raw = part.raw.encode("utf-8", "surrogateescape")
        changed = with_scope_lines(raw, old, new, self._settings)
        return replace(
            part,
            path=f"{names.get(folder, folder_names(to)[0])}/{name}",
            raw=changed.decode("utf-8", "surrogateescape"),
            # The bytes around it may have changed with the name: it goes back by its neighbours.
            after=part.after if changed == raw else "",
        )

    def _rename_copy(self, each: _File, old: Scope, new: Scope) -> None:
        data = self._root.read_state(each.name)
        entries = parse(data, settings=self._settings).entries if data else ()
        if entries:
            segment = entries[0].segment
            scope = renamed(each.scope, old, new)
            self._keep.keep_conflict(scope, replace(segment, scope=scope.text))


def _written_scope(data: bytes) -> str:
    """The scope that a record or a copy names, be it cut short; "" for none."""
    found = _JSON_SCOPE.search(data)
    if found is not None:
        return str(json.loads(found[1]))
    entries = parse(data).entries
    return entries[0].segment.scope if entries else ""
