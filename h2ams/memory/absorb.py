"""Writing validated changes into a scope: one plan, then one file after the other (Truth).

Strategy: under the scope's lock all its files are read, ``consolidation`` says what differs, and
the new bytes of every file are made before any is touched. ``journal`` gets them first. Archives
are written before the memory files: at each moment every text is in one of the two. A file that
somebody saves in between makes the plan anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from h2ams.errors import ConflictError, H2amsError
from h2ams.files import Changed, FileState, Root
from h2ams.memory import consolidation
from h2ams.memory import folders as on_disk
from h2ams.memory import segment as segments
from h2ams.memory.consolidation import Consolidated, Held
from h2ams.memory.draft import check_size
from h2ams.memory.legacy import union
from h2ams.memory.merge import unified_diff
from h2ams.memory.scope import Scope
from h2ams.memory.scope_files import ARCHIVE_FILE, MEMORY_FILE, WRITE_TRIES, Read, ScopeFiles
from h2ams.memory.segment import Document, Segment
from h2ams.memory.validation import Change
from h2ams.memory.values import format_time
from h2ams.settings import Settings


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file before and after; ``before`` None: it was not there."""

    path: str
    before: bytes | None
    after: bytes


Journal = Callable[[tuple[FileChange, ...]], None]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """What the changes did to one scope, or would do: ids in the order in which it was done."""

    scope: str
    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    archived: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    skipped_count: int = 0
    missed_count: int = 0
    files: tuple[FileChange, ...] = ()
    diff: str = ""

    @property
    def changed(self) -> bool:
        return bool(self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that changed, relative to the root."""
        return tuple(each.path for each in self.files)


@dataclass(frozen=True, slots=True)
class Absorption:
    """``write_changes``: what was done per scope, and the scopes that could not be written."""

    done: tuple[Absorbed, ...] = ()
    failed: tuple[tuple[Scope, H2amsError], ...] = ()


class Absorbing:
    """The part of the store that takes in changes. Safe to call from several threads."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        files: ScopeFiles,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._root = root
        self._settings = settings
        self._files = files
        self._clock = clock

    def absorb(
        self,
        scope: Scope,
        changes: Sequence[Change],
        *,
        now: str | None = None,
        journal: Journal | None = None,
        dry_run: bool = False,
    ) -> Absorbed:
        """``Store.absorb``."""
        target = self._files.canonical(scope)
        dated = now or format_time(self._clock())
        if dry_run:
            return self._plan(target, changes, dated)[0]
        with self._files.lock(target):
            for _ in range(WRITE_TRIES):
                absorbed, states = self._plan(target, changes, dated)
                if not absorbed.files:
                    return absorbed
                if journal is not None:
                    journal(absorbed.files)
                if self._applied(absorbed.files, states):
                    return absorbed
        raise ConflictError(
            f"{target}: changed {WRITE_TRIES} times while it was written",
            hint="try again when the other program has finished",
        )

    def held(self, scope: Scope) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
        """The segments of a scope and of its archive, as consolidation takes them."""
        target = self._files.canonical(scope)
        reads = self._files.reads(target, MEMORY_FILE)
        return _held(reads), _retired(self._files.reads(target, ARCHIVE_FILE))

    def _applied(self, files: Sequence[FileChange], states: dict[str, FileState | None]) -> bool:
        """Whether all files are written; False where one of them changed meanwhile."""
        for folder in {each.path.rpartition("/")[0] for each in files}:
            if states_in(folder, states):
                self._root.sweep_temps(folder)
        for each in files:
            try:
                self._root.replace(
                    each.path, each.after, expect=states[each.path], make_folders=True
                )
            except Changed:
                return False
        return True

    # -- planning --------------------------------------------------------------------------------

    def _plan(
        self, target: Scope, changes: Sequence[Change], now: str
    ) -> tuple[Absorbed, dict[str, FileState | None]]:
        reads = self._files.reads(target, MEMORY_FILE)
        archives = self._files.reads(target, ARCHIVE_FILE)
        made = consolidation.consolidate(
            target.text,
            _held(reads),
            _retired(archives),
            changes,
            now=now,
            most_count=self._settings.dream_segments_count,
            most_chars=self._settings.dream_body_chars,
        )
        if made.added and not on_disk.existing(self._root, target):
            on_disk.check_creatable(self._root, target)
        states: dict[str, FileState | None] = {
            each.path: each.state for each in (*reads, *archives)
        }
        after = self._archive_bytes(target, reads, archives, made)
        after |= self._memory_bytes(target, reads, made)
        files = []
        for path, data in after.items():
            state = states.setdefault(path, None)
            if state is None or state.data != data:
                size = len(data)
                check_size("max_file_bytes", self._settings.max_file_bytes, size, None, path)
                files.append(FileChange(path, state.data if state else None, data))
        diff = "".join(unified_diff(each.before, each.after, each.path) for each in files)
        absorbed = Absorbed(
            target.text,
            added=tuple(each.id for each in made.added),
            updated=tuple(made.replaced),
            merged=made.merged,
            archived=tuple(each.id for _, each in made.archived),
            conflicts=made.conflicts,
            skipped_count=made.skipped_count,
            missed_count=made.missed_count,
            files=tuple(files),
            diff=diff,
        )
        return absorbed, states

    def _archive_bytes(
        self, target: Scope, reads: Sequence[Read], archives: Sequence[Read], made: Consolidated
    ) -> dict[str, bytes]:
        """New bytes of the archives, beside the files that the texts stood in."""
        if not made.archived:
            return {}
        places = {held.id: read.path for read, held in _places(reads)}
        known = {read.path: read for read in archives}
        home = f"{on_disk.home(self._root, target)}/{MEMORY_FILE}"
        after: dict[str, bytes] = {}
        for address_id, segment in made.archived:
            folder = places.get(address_id, home).rpartition("/")[0]
            path = f"{folder}/{ARCHIVE_FILE}"
            if path in known:
                self._files.check_writable(known[path])
            if path not in after:
                after[path] = known[path].state.data if path in known else b""
            document = self._files.parse(after[path])
            after[path] = segments.append(document, segment, settings=self._settings)
        return after

    def _memory_bytes(
        self, target: Scope, reads: Sequence[Read], made: Consolidated
    ) -> dict[str, bytes]:
        after: dict[str, bytes] = {}
        for read in reads:
            edits: list[tuple[int, Segment | None]] = []
            for at, entry in enumerate(read.document.entries):
                if entry.address_id in made.removed:
                    edits.append((at, None))
                elif entry.address_id in made.replaced:
                    segment = made.replaced[entry.address_id]
                    scope = segment.scope if entry.has_header else target.text
                    id = segment.id or entry.address_id
                    edits.append((at, replace(segment, id=id, scope=scope)))
            if edits:
                self._files.check_writable(read)
                after[read.path] = self._edited(read.document, edits)
        home = f"{on_disk.home(self._root, target)}/{MEMORY_FILE}"
        if made.added:
            here = next((read for read in reads if read.path == home), None)
            self._files.check_writable(here)
            data = after.get(home, here.state.data if here else b"")
            for segment in made.added:
                document = self._files.parse(data)
                data = segments.append(document, segment, settings=self._settings)
            after[home] = data
        return after

    def _edited(self, document: Document, edits: Iterable[tuple[int, Segment | None]]) -> bytes:
        """From the last entry to the first, so that no edit moves what the next one names."""
        data = segments.render(document)
        for at, segment in sorted(edits, key=lambda edit: -edit[0]):
            if segment is None:
                data = segments.remove(document, at)
            else:
                data = segments.replace(document, at, segment, settings=self._settings)
            document = self._files.parse(data)
        return data


def states_in(folder: str, states: dict[str, FileState | None]) -> bool:
    """Whether ``folder`` is there: one of its files is."""
    return any(
        state is not None and path.rpartition("/")[0] == folder for path, state in states.items()
    )


def write_changes(
    absorb: Callable[[Scope, Sequence[Change]], Absorbed], changes: Iterable[Change]
) -> Absorption:
    """Validated changes to files: scope by scope, in the order in which scopes are first named.

    ``absorb`` is ``Store.absorb``, with what its caller adds. A scope that cannot be written
    holds no other one back.
    """
    by_scope: dict[Scope, list[Change]] = {}
    for change in changes:
        by_scope.setdefault(change.scope, []).append(change)
    done: list[Absorbed] = []
    failed: list[tuple[Scope, H2amsError]] = []
    for scope, of_scope in by_scope.items():
        try:
            done.append(absorb(scope, of_scope))
        except H2amsError as error:
            failed.append((scope, error))
    return Absorption(tuple(done), tuple(failed))


def _places(reads: Sequence[Read]) -> list[tuple[Read, Held]]:
    by_path = {read.path: read for read in reads}
    found = []
    for each in union([(read.path, read.document) for read in reads]).held:
        entry = each.entry
        fixed = bool(entry.read_only or each.document.read_only)
        found.append((by_path[each.path], Held(entry.address_id, entry.segment, fixed)))
    return found


def _held(reads: Sequence[Read]) -> tuple[Held, ...]:
    return tuple(held for _, held in _places(reads))


def _retired(reads: Sequence[Read]) -> tuple[Held, ...]:
    return tuple(
        Held(entry.address_id, entry.segment) for read in reads for entry in read.document.entries
    )
