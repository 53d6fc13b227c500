"""What there is of a scope now, and so what an operation would do (Truth; reads only).

The plans that ``lifecycle`` carries out and that ``--dry-run`` shows: every file with its digest
and where it goes, every piece of owned state. A plan is made when writers are kept out, or as a
preview without an operation's name (``op`` "").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from h2ams.errors import NotFoundError, ScopeError, StoreError
from h2ams.files import STATE_FOLDER, Root
from h2ams.memory import folders as on_disk
from h2ams.memory import lifecycle_plan
from h2ams.memory.lifecycle_plan import (
    BUILD,
    TRASH,
    FileChange,
    Kind,
    Move,
    OwnedState,
    Place,
    ScopeChange,
    StateChange,
    target_of,
)
from h2ams.memory.places import Places, moved_scopes
from h2ams.memory.scope import Scope
from h2ams.trees import Trees


class Survey:
    """Makes plans of operations on the scopes of one root."""

    def __init__(
        self,
        root: Root,
        trees: Trees,
        places: Places,
        owned: Callable[[], Sequence[OwnedState]],
    ) -> None:
        self._root = root
        self._trees = trees
        self._places = places
        self._owned = owned

    def removal(self, kind: Kind, op: str, scope: Scope) -> tuple[ScopeChange, tuple[Move, ...]]:
        """What a deletion, or a purge of what was set aside, takes with it."""
        found = [*self._places.aside(scope), *self._places.data_aside(scope)]
        state: tuple[StateChange, ...] = ()
        if kind == "delete":
            found = [*self._places.of(scope), *self._places.data(scope), *found]
            state = self._state_of(scope)
            self._require(scope, found, state)
        moves = tuple(
            Move(place.path, f"{STATE_FOLDER}/{TRASH}/{op}/{number}")
            for number, place in enumerate(found)
        )
        files = tuple(
            self._removed(path) for place in found for path in self._trees.walk(place.path)
        )
        kept = self._links(found)
        change = ScopeChange(kind, scope.text, files=files, state=state, kept=kept, dry_run=not op)
        return change, moves

    def transfer(
        self, kind: Kind, op: str, old: Scope, new: Scope
    ) -> tuple[ScopeChange, tuple[Move, ...]]:
        """What goes to the new name, by a move or by a copy."""
        found = [*self._places.of(old), *self._places.data(old)]
        state = self._state_of(old, cloned=kind == "clone")
        self._require(old, found, state)
        self._check_free_name(old, new, found)
        if kind == "rename":
            found += [*self._places.aside(old), *self._places.data_aside(old)]
        moves: list[Move] = []
        files: list[FileChange] = []
        kept = list(self._links(found))
        for number, (place, target) in enumerate(_targets(found, new)):
            changes = list(self._changes(kind, place, target, kept))
            if kind == "clone" and not changes:
                kept.append(f"{place.path}: empty, not copied")
                continue
            aside = f"{STATE_FOLDER}/{BUILD}/{op}/{number}"
            moves.append(Move(aside if kind == "clone" else place.path, target))
            files += changes
        change = ScopeChange(
            kind, old.text, new.text, tuple(files), state, tuple(kept), dry_run=not op
        )
        return change, tuple(moves)

    def _changes(
        self, kind: Kind, place: Place, target: str, kept: list[str]
    ) -> Iterator[FileChange]:
        """The files at ``place`` with their new paths; what a copy leaves out goes to ``kept``."""
        for path in self._places.files(place.path):
            seen = self._trees.seen(path)
            if kind == "clone" and seen.kind == "other":
                kept.append(f"{path}: neither a file nor a link, not copied")
                continue
            to = target + path[len(place.path) :]
            yield FileChange(path, to, seen.size_bytes, seen.sha256)

    def _removed(self, path: str) -> FileChange:
        seen = self._trees.seen(path)
        return FileChange(path, "", seen.size_bytes, seen.sha256)

    def _state_of(self, scope: Scope, *, cloned: bool = False) -> tuple[StateChange, ...]:
        return tuple(
            StateChange(owner.name, what)
            for owner in self._owned()
            if owner.is_cloned or not cloned
            for what in owner.list(scope)
        )

    def _links(self, found: Sequence[Place]) -> tuple[str, ...]:
        return tuple(
            f"{place.path} is a link: what it leads to stays"
            for place in found
            if self._trees.exists(place.path) and self._trees.seen(place.path).kind == "link"
        )

    @staticmethod
    def _require(scope: Scope, found: Sequence[Place], state: Sequence[StateChange]) -> None:
        if not found and not state:
            raise NotFoundError(f"there is no {scope}", hint="h2ams scope list shows what there is")

    def _check_free_name(self, old: Scope, new: Scope, found: Sequence[Place]) -> None:
        """``ScopeError`` where ``new``, or a twin of it, is there, or something is left of it."""
        taken = [*self._places.of(new), *self._places.data(new)]
        if taken:
            raise ScopeError(f"{new}: {taken[0].path} exists", hint="name one that does not")
        wanted = {new, *(lifecycle_plan.renamed(each, old, new) for each in moved_scopes(found))}
        for scope in sorted(wanted):
            on_disk.check_creatable(self._root, scope)
        state = self._state_of(new)
        if state:
            raise ScopeError(
                f"{new}: {state[0].owner} still holds {state[0].what}",
                hint=f"h2ams scope delete {new} clears what is left of it",
            )


def _targets(found: Sequence[Place], new: Scope) -> list[tuple[Place, str]]:
    """Each place with the path that it gets; ``StoreError`` where two would get the same."""
    taken: dict[str, Place] = {}
    for place in found:
        target = target_of(place, new)
        if target in taken:
            raise StoreError(
                f"{taken[target].path} and {place.path} are one scope in two Unicode forms",
                path=place.path,
                hint="move the files of one into the other first",
            )
        taken[target] = place
    return [(place, target) for target, place in taken.items()]
