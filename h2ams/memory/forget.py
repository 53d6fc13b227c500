"""Forgetting a segment, bringing it back, and making it gone for good (Truth).

Strategy: the undo record is made durable before the text leaves the file, so that at each moment
the text is in one of the two. A segment is cut from every layout that holds it, or an older copy
would come up in its place. Purging leaves it nowhere: no file, archive, undo record or copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from h2ams.errors import ConflictError, NotFoundError
from h2ams.files import Root
from h2ams.memory import folders as on_disk
from h2ams.memory import segment as segments
from h2ams.memory.forgotten import Cut, Keep, Part, UndoRecord, cut_part, index_of, restored
from h2ams.memory.merge import unified_diff
from h2ams.memory.places import Places
from h2ams.memory.scope import Scope
from h2ams.memory.scope_files import (
    ARCHIVE_FILE,
    MEMORY_FILE,
    Plan,
    Read,
    ScopeFiles,
    WriteResult,
    missing,
    result_of,
)
from h2ams.memory.values import format_time
from h2ams.settings import Settings
from h2ams.trees import Trees

_SEGMENT_FILES = (MEMORY_FILE, ARCHIVE_FILE)


class Forgetting:
    """The part of the store that takes segments out and brings them back."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        files: ScopeFiles,
        keep: Keep,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._root = root
        self._settings = settings
        self._files = files
        self._keep = keep
        self._clock = clock

    def remove(
        self,
        scope: Scope,
        id: str,
        *,
        expect: str | None,
        dry_run: bool,
        purge: bool,
        force: bool,
    ) -> WriteResult:
        """``Store.remove``."""
        target = self._files.canonical(scope)
        if dry_run:
            plans = [
                self._plan_cut(read, id, digest, force=force)
                for read, digest in self._holders(scope, id, expect, purge=purge)
            ]
            if not plans and not self._keep.count(target, id):
                raise missing(scope, id)
            return _cut_result(target, id, [plan.result for plan in plans])
        with self._files.lock(target):
            holders = self._holders(scope, id, expect, purge=purge)
            parts = self._cut_all(target, id, holders, purge=purge, force=force)
            kept_count = 0
            if purge:
                self._files.sweep(scope)
                kept_count = self._keep.purge(target, id) + self._purge_aside(target, id)
        if not parts and not kept_count:
            raise missing(scope, id)
        return _cut_result(target, id, parts)

    def _purge_aside(self, scope: Scope, id: str) -> int:
        """Cut the segment out of what migrations set aside; from how many files that was."""
        count = 0
        for path in Places(self._root, Trees(self._root)).aside_files(scope, _SEGMENT_FILES):
            state = self._root.read(path)
            document = self._files.parse(state.data) if state else None
            while document is not None:
                index = next(
                    (
                        n
                        for n, e in enumerate(document.entries)
                        if id in (e.address_id, e.segment.id)
                    ),
                    None,
                )
                if index is None:
                    break
                document = self._files.parse(segments.remove(document, index, force=True))
            data = segments.render(document) if document else b""
            if state is not None and data != state.data:
                self._root.replace(path, data, expect=state)
                count += 1
        return count

    def _holders(
        self, scope: Scope, id: str, expect: str | None, *, purge: bool
    ) -> list[tuple[Read, str]]:
        """The files that hold ``id`` with the digests of its entries, the one in use first."""
        live = self._files.reads(scope, MEMORY_FILE)
        retired = self._files.reads(scope, ARCHIVE_FILE)
        found = [
            (read, entry.digest)
            for reads in (live, retired)
            for read in reads
            for entry in read.document.entries
            if entry.address_id == id
        ]
        used = self._files.held(scope, id)
        if used is not None:
            found.sort(key=lambda item: item[0].path != used[0].path)
            if not purge:
                found = [item for item in found if item[0] in live]
        actual = found[0][1] if found else ""
        if expect is not None and expect != actual:
            raise ConflictError(
                f"{scope}#{id} is not what it was: nothing was removed",
                hint="look at it again",
                path=found[0][0].path if found else None,
                expected=expect,
                actual=actual,
            )
        if not found and not purge:
            raise missing(scope, id)
        return found

    def _cut_all(
        self,
        target: Scope,
        id: str,
        holders: list[tuple[Read, str]],
        *,
        purge: bool,
        force: bool,
    ) -> list[Cut]:
        """Cut the entry out of one file after the other; the undo record grows before each."""
        cuts: list[Cut] = []
        removed_at = format_time(self._clock())

        def journal(cut: Cut) -> None:
            if not purge:
                parts = tuple(each.part for each in (*cuts, cut) if each.part is not None)
                self._keep.save(UndoRecord(target.text, id, removed_at, parts))

        for read, digest in holders:
            cuts.append(
                self._files.run(
                    target,
                    partial(self._plan_cut, read, id, digest, force=force),
                    journal=journal,
                )
            )
        return [cut for cut in cuts if cut.part is not None]

    def _plan_cut(self, seen: Read, id: str, digest: str, *, force: bool) -> Plan[Cut]:
        """Cut the entry that was seen; no edit where somebody else has done so meanwhile."""
        read = self._files.read(seen.path, seen.scope)
        index = None if read is None else index_of(read.document, id)
        if read is None or index is None:
            return Plan(Cut(seen.path))
        entry = read.document.entries[index]
        if entry.digest != digest:
            raise ConflictError(
                f"{seen.scope}#{id} was changed at this moment: nothing was removed",
                hint="look at it again",
                path=read.path,
                expected=digest,
                actual=entry.digest,
            )
        self._files.check_writable(read, force=force)
        self._files.check_entry(read, entry, force=force)
        after = segments.remove(read.document, index, force=force)
        part = cut_part(read.path, read.document, index, read.state.data, after)
        diff = unified_diff(read.state.data, after, read.path)
        return Plan(Cut(read.path, part, diff), read.path, read.state, after)

    def restore(self, scope: Scope, id: str) -> WriteResult:
        """``Store.unforget``."""
        target = self._files.canonical(scope)
        with self._files.lock(target):
            record = self._keep.load(target, id)
            if record is None:
                raise NotFoundError(
                    f"{scope}#{id} is not among the forgotten segments",
                    hint="it was never forgotten, or it has been purged",
                )
            results = [
                self._files.run(target, partial(self._plan_restore, scope, target, id, part))
                for part in record.parts
            ]
            self._keep.drop(target, id)
        diff = "".join(result.diff for result in results)
        changed = any(result.changed for result in results)
        others = tuple(result.path for result in results[1:])
        return replace(results[0], changed=changed, diff=diff, other_paths=others)

    def _plan_restore(self, scope: Scope, target: Scope, id: str, part: Part) -> Plan[WriteResult]:
        folder, _, name = part.path.rpartition("/")
        if folder not in [name for name, _ in self._files.folders(scope)]:
            folder = on_disk.home(self._root, target)  # the old layout is gone: migrated
        path = f"{folder}/{name}"
        read = self._files.read(path, target)
        self._files.check_writable(read)
        before = read.state.data if read else b""
        after = restored(before, part, id, self._settings)
        result = result_of(target, id, path, changed=before != after)
        return self._files.plan(result, path, read.state if read else None, after)


def _cut_result(scope: Scope, id: str, cuts: list[Cut]) -> WriteResult:
    diff = "".join(cut.diff for cut in cuts)
    made = result_of(scope, id, cuts[0].path if cuts else "", changed=bool(cuts))
    others = tuple(cut.path for cut in cuts[1:])
    return replace(made, removed=True, diff=diff, other_paths=others)
