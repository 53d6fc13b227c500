"""Bringing one session's historical folders into the canonical layout (Truth).

    copy every file that is missing, unite what is there twice -> compare: every segment that was
    read before is read from the canonical folder alone -> set the old folders aside

Nothing is removed: old folders go to ``.h2ams/migrated/<op>/`` as they are, and so does the old
version of a canonical file that changes. Until the last step both layouts are there and reading
gives the same at each moment; so an interruption loses nothing, and running it again finishes it.
Where the comparison fails, or a file cannot be united, the old folders stay where they are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from h2ams.errors import H2amsError, StoreError
from h2ams.files import STATE_FOLDER, Changed, FileState, Root
from h2ams.memory import folders as on_disk
from h2ams.memory import layout
from h2ams.memory import segment as segments
from h2ams.memory.layout import Role
from h2ams.memory.legacy import union
from h2ams.memory.lifecycle_plan import (
    MIGRATED,
    Failed,
    FileChange,
    Operation,
    Place,
    ScopeChange,
)
from h2ams.memory.migration_plan import Decision, decide
from h2ams.memory.places import HISTORICAL, Places
from h2ams.memory.scope import Scope, fold
from h2ams.memory.segment import Segment
from h2ams.settings import Settings
from h2ams.trees import Trees

_TRIES = 8  # an editor that saves more often than this during one write stops the migration
_UNITED = frozenset({Role.MEMORY, Role.ARCHIVE})

# What a reader finds: role and scope -> address id -> segment.
Census = dict[tuple[Role, str], dict[str, Segment]]


@dataclass(slots=True)
class _Run:
    """One run: what was planned or done so far."""

    op: str  # "" for a preview
    files: list[FileChange] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    wanted: dict[str, str] = field(default_factory=dict)  # path -> digest that it must have

    def aside(self, path: str) -> str:
        """Where ``path`` is kept."""
        return "/".join(part for part in (STATE_FOLDER, MIGRATED, self.op, path) if part)


class Migration:
    """Migrates the sessions, and chats, of one root."""

    def __init__(self, root: Root, settings: Settings, trees: Trees, places: Places) -> None:
        self._root = root
        self._settings = settings
        self._trees = trees
        self._places = places

    def preview(self, scope: Scope) -> ScopeChange:
        """What ``run`` would do."""
        return self._attempt(scope, _Run(""))

    def run(self, operation: Operation) -> ScopeChange:
        """Migrate; ``failed`` says why the old folders stay, where they do."""
        return self._attempt(operation.scope, _Run(operation.op))

    def _attempt(self, scope: Scope, run: _Run) -> ScopeChange:
        sources = self._places.historical(scope)
        before = self._census(self._places.of(scope))
        failed: tuple[Failed, ...] = ()
        after = before
        try:
            self._copy(scope, sources, run)
            if run.op:
                after = self._compared(scope, before, run)
                for source in sources:
                    self._set_aside(source.path, run)
        except (H2amsError, OSError) as error:
            path = getattr(error, "path", None) or scope.text
            failed = (Failed(path, str(error)),)
        return ScopeChange(
            "migrate",
            scope.text,
            files=tuple(run.files),
            kept=tuple(run.kept),
            failed=failed,
            segments_before=_count(before),
            segments_after=_count(after),
            dry_run=not run.op,
        )

    # Copying

    def _copy(self, scope: Scope, sources: Iterable[Place], run: _Run) -> None:
        home = on_disk.home(self._root, scope)
        for source in sources:
            if self._trees.seen(source.path).kind == "link":
                raise StoreError(
                    f"{source.path} is a link: it is not brought over",
                    path=source.path,
                    hint="put the folder itself in its place, then migrate again",
                )
            for path in self._places.files(source.path):
                rest = path[len(source.path) + 1 :] or source.parts[-1]
                target = self._spelled(home, rest)
                self._bring(path, target, source, run)

    def _bring(self, path: str, target: str, source: Place, run: _Run) -> None:
        """Bring one file over: made, united, kept beside, or left to be set aside."""
        if self._trees.seen(path).kind != "file":
            self._bring_link(path, target, run)
            return
        if run.op:
            self._root.sweep_temps(target.rpartition("/")[0])  # ours, if we were interrupted here
        for _ in range(_TRIES):
            there = self._root.read(path)
            if there is None:
                return  # somebody removed it meanwhile
            here = self._root.read(target)
            decision = self._decision(path, target, here.data if here else None, there.data)
            if decision.beside:
                self._bring(path, _beside(target, source.parts[0]), source, run)
                return
            try:
                if decision.data is not None and run.op:
                    self._write(path, target, here, decision.data, run)
            except Changed:
                continue  # an editor saved: decide anew
            self._note(path, target, here, there, decision, run)
            return
        raise StoreError(f"{target} changes all the time", path=target, hint="try again later")

    def _write(
        self, path: str, target: str, here: FileState | None, data: bytes, run: _Run
    ) -> None:
        if here is None:
            self._trees.copy(path, target, data)
        else:
            self._keep_version(target, run)
            self._root.replace(target, data, expect=here)

    def _note(
        self,
        path: str,
        target: str,
        here: FileState | None,
        there: FileState,
        decision: Decision,
        run: _Run,
    ) -> None:
        """Keep account of what happened to one file."""
        taken = decision.data is not None or (here is not None and here.data == there.data)
        to = target if taken or _segments_at(target)[0] is not None else run.aside(path)
        run.files.append(FileChange(path, to, there.size, there.sha256))
        run.kept += [f"{path}: {told}" for told in decision.told]
        if taken and _segments_at(target)[0] is None:
            run.wanted[target] = there.sha256

    def _decision(self, path: str, target: str, here: bytes | None, there: bytes) -> Decision:
        folder, _, name = target.rpartition("/")
        place = layout.place_of(folder)
        role = layout.role(place, name)[0] if place is not None else Role.IGNORED
        try:
            return decide(role, here, there, self._settings)
        except H2amsError as error:
            raise StoreError(f"{path} {error}", path=path, hint=error.hint) from error

    def _bring_link(self, path: str, target: str, run: _Run) -> None:
        seen = self._trees.seen(path)
        if seen.kind == "link" and not self._trees.exists(target):
            run.files.append(FileChange(path, target, seen.size_bytes, seen.sha256))
            if run.op:
                self._trees.copy(path, target)
        elif seen.kind != "link" or self._trees.seen(target).sha256 != seen.sha256:
            run.kept.append(f"{path}: a {seen.kind} that is set aside and not brought over")

    def _keep_version(self, path: str, run: _Run) -> None:
        """Keep the canonical file as it was before the first change of this migration."""
        kept = run.aside(path)
        self._root.sweep_temps(kept.rpartition("/")[0])
        if not self._trees.exists(kept):
            self._trees.copy(path, kept)

    def _set_aside(self, path: str, run: _Run) -> None:
        kept = run.aside(path)
        if self._trees.exists(path):
            self._trees.move(path, kept)

    def _spelled(self, home: str, rest: str) -> str:
        """Where ``rest`` goes: below folders that are there in another Unicode form too.

        ``StoreError`` where a name differs from one that is there only by case: on some systems
        they are one file.
        """
        parent = home
        for part in rest.split("/"):
            wanted = unicodedata.normalize("NFC", part)
            name = part
            for there in self._trees.names(parent):
                if unicodedata.normalize("NFC", there) == wanted:
                    name = there
                    break
                if fold(there) == fold(wanted):
                    raise StoreError(
                        f"{parent}/{part}: {there} is there and differs only by case",
                        path=f"{parent}/{part}",
                        hint="rename one of the two, then migrate again",
                    )
            parent = f"{parent}/{name}"
        return parent

    # Comparing

    def _compared(self, scope: Scope, before: Census, run: _Run) -> Census:
        """The census of the canonical folder alone; ``StoreError`` where anything is missing."""
        for path, digest in run.wanted.items():
            if not self._trees.exists(path) or self._trees.seen(path).sha256 != digest:
                raise StoreError(
                    f"{path} is not what was copied: the old folder stays",
                    path=path,
                    hint="somebody changed it meanwhile? migrate again",
                )
        canonical = [p for p in self._places.of(scope) if p.pattern[0] not in HISTORICAL]
        after = self._census(canonical)
        for key, wanted in before.items():
            found = after.get(key, {})
            lost = [id for id in wanted if not _says(found.get(id), wanted[id])]
            if lost:
                raise StoreError(
                    f"{key[1]}: {len(lost)} segments are not in the canonical folder, the first is"
                    f" {lost[0]}: the old folder stays",
                    path=key[1],
                    hint="somebody changed it meanwhile? migrate again",
                )
        return after

    def _census(self, found: Iterable[Place]) -> Census:
        documents: dict[tuple[Role, str], list[tuple[str, segments.Document]]] = {}
        for place in found:
            for path in self._places.files(place.path):
                role, scope = _segments_at(path)
                state = self._root.read(path) if role is not None else None
                if role is not None and state is not None:
                    document = segments.parse(state.data, settings=self._settings)
                    documents.setdefault((role, scope), []).append((path, document))
        return {key: _addresses(each) for key, each in documents.items()}


def _addresses(documents: list[tuple[str, segments.Document]]) -> dict[str, Segment]:
    held = union(documents).held
    return {each.entry.address_id: each.entry.segment for each in held}


def _says(found: Segment | None, wanted: Segment) -> bool:
    """Whether the segment is there, the same or (changed by hand meanwhile) with another text."""
    return found is not None and found.kind == wanted.kind and found.body == wanted.body


def _segments_at(path: str) -> tuple[Role | None, str]:
    folder, _, name = path.rpartition("/")
    place = layout.place_of(folder)
    role = layout.role(place, name)[0] if place is not None else None
    if place is None or role not in _UNITED or place.scope is None:
        return None, ""
    return role, place.scope.text


def _count(census: Mapping[tuple[Role, str], Mapping[str, Segment]]) -> int:
    return sum(len(found) for found in census.values())


def _beside(path: str, source: str) -> str:
    """``note (from group).md`` for ``note.md``."""
    folder, _, name = path.rpartition("/")
    stem, dot, extension = name.rpartition(".")
    return f"{folder}/{stem} (from {source}){dot}{extension}"
