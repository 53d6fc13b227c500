"""Applying one planned edit to one file, whoever else writes it (Truth).

Strategy: under the scope's lock a plan is made from the bytes that are there now, and applied only
if they still are; else it is made anew, a bounded number of times. A plan names one file, so one
``os.replace`` makes it true. Editors do not know the lock: the check before the replace finds them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from h2ams.errors import ConflictError, NotFoundError, ReadOnlyError
from h2ams.files import Changed, FileState, Root
from h2ams.memory import folders as on_disk
from h2ams.memory import journal
from h2ams.memory.draft import check_size
from h2ams.memory.growth import grown
from h2ams.memory.legacy import union
from h2ams.memory.merge import unified_diff
from h2ams.memory.scope import Scope
from h2ams.memory.segment import Document, Entry, parse
from h2ams.memory.values import Problem
from h2ams.settings import Settings

MEMORY_FILE = "memory.md"
ARCHIVE_FILE = "archive.md"
WRITE_TRIES = 64  # a file that changes more often than this during one write is a conflict
PATIENCE_TRIES = 8  # after so many, others get time to finish before the next
PATIENCE_MS = 20
_PARSED_FILES = 4  # files that one process reads and edits in turn, kept parsed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Read:
    """One file of a scope as read: ``scope`` is the one whose folder it lies in."""

    path: str
    scope: Scope
    state: FileState
    document: Document


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a write did, or would do with ``dry_run``.

    ``path`` is relative to the root, ``other_paths`` are more files that changed (a segment that
    several layouts held); ``diff`` is the unified diff of what changed. ``redacted``
    names the kinds of secrets that were replaced in the caller's text. ``conflict`` is the address
    of the segment that keeps the caller's text where somebody else changed the same segment.
    """

    scope: str
    id: str
    address: str
    path: str
    created: bool = False
    changed: bool = False
    removed: bool = False
    diff: str = ""
    problems: tuple[Problem, ...] = ()
    redacted: tuple[str, ...] = ()
    conflict: str | None = None
    other_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan(Generic[T]):
    """One edit of one file and what the caller is told once it is applied.

    ``before`` None: the file must not exist. ``after`` equal to the bytes of ``before`` (or
    ``path`` empty) is no edit: nothing is touched.
    """

    result: T
    path: str = ""
    before: FileState | None = None
    after: bytes = b""

    @property
    def changes(self) -> bool:
        return bool(self.path) and (self.before is None or self.before.data != self.after)


class ScopeFiles:
    """Reads and edits the files of one root; every edit of memory goes through ``run``."""

    def __init__(
        self, root: Root, settings: Settings, *, settle: Callable[[], None] = lambda: None
    ) -> None:
        self._root = root
        self._settings = settings
        self._settle = settle
        self._held = threading.local()
        self._parsed: dict[str, tuple[bytes, Document]] = {}
        self._parsed_guard = threading.Lock()

    @contextmanager
    def lock(self, scope: Scope) -> Iterator[None]:
        """The lock of a scope (canonical, redirects followed); re-entrant within a thread.

        ``ConflictError`` while the scope is being deleted, renamed or the like.
        """
        held: set[str] = self._held.__dict__.setdefault("scopes", set())
        if scope.text in held:  # an operation that begins now waits for the outer one
            yield
            return
        self._settle()
        with self._root.lock(scope.text):
            journal.check_free(self._root, scope)
            held.add(scope.text)
            try:
                yield
            finally:
                held.discard(scope.text)

    def canonical(self, scope: Scope) -> Scope:
        """The scope that is written to: redirects followed."""
        return on_disk.followed(self._root, scope).scope

    def folders(self, scope: Scope) -> list[tuple[str, Scope]]:
        """Existing folders with the scope that each belongs to, that of a redirect's end first."""
        target = self.canonical(scope)
        scopes = (target,) if target == scope else (target, scope)
        return [(name, each) for each in scopes for name in on_disk.existing(self._root, each)]

    def reads(self, scope: Scope, name: str) -> list[Read]:
        """The file ``name`` of every folder of ``scope`` that has one."""
        found = (self.read(f"{folder}/{name}", at) for folder, at in self.folders(scope))
        return [read for read in found if read is not None]

    def held(self, scope: Scope, id: str) -> tuple[Read, int] | None:
        """The entry that has the address ``id`` in ``scope``: its file and its index there."""
        reads = self.reads(scope, MEMORY_FILE)
        for held in union([(read.path, read.document) for read in reads]).held:
            if held.entry.address_id == id:
                return next(read for read in reads if read.path == held.path), held.index
        return None

    def read(self, path: str, scope: Scope) -> Read | None:
        """One file, parsed; None where it is not there."""
        on_disk.check_own(self._root, path, scope)
        state = self._root.read(path, settled=True)
        if state is None:
            return None
        return Read(path, scope, state, self._document(path, state.data))

    def parse(self, data: bytes) -> Document:
        """``data`` parsed with the settings of this store."""
        return parse(data, settings=self._settings)

    def sweep(self, scope: Scope) -> None:
        """Clear what killed writers left in the scope's folders; call it under its lock."""
        for folder, _ in self.folders(scope):
            self._root.sweep_temps(folder)

    def run(
        self,
        scope: Scope,
        plan: Callable[[], Plan[T]],
        *,
        journal: Callable[[T], None] | None = None,
        dry_run: bool = False,
    ) -> T:
        """Make a plan and apply it; the result of the plan that was applied.

        ``plan`` reads for itself and is called again where the file changed in between.
        ``journal`` gets the result directly before the edit, whenever there is one.
        """
        if dry_run:
            return plan().result
        with self.lock(scope):
            for number in range(WRITE_TRIES):
                if number >= PATIENCE_TRIES:
                    time.sleep(PATIENCE_MS / 1000)
                made = plan()
                if journal is not None and made.changes:
                    journal(made.result)
                if self._applied(made):
                    return made.result
        raise ConflictError(
            f"{made.path}: changed {WRITE_TRIES} times while it was written; nothing was written",
            hint="try again when the other program has finished",
            path=made.path,
        )

    def plan(
        self, result: WriteResult, path: str, before: FileState | None, after: bytes
    ) -> Plan[WriteResult]:
        """A plan whose result carries its diff. ``LimitError`` where the file gets too long."""
        size = before.size if before else 0
        if len(after) > size:
            check_size("max_file_bytes", self._settings.max_file_bytes, len(after), size, path)
        diff = unified_diff(before.data if before else None, after, path)
        return Plan(replace(result, diff=diff), path, before, after)

    def check_writable(self, read: Read | None, *, force: bool = False) -> None:
        """``ReadOnlyError`` where a file may only be read, ``LimitError`` where it is too long."""
        if read is None:
            return
        limit = self._settings.max_file_bytes
        check_size("max_file_bytes", limit, read.state.size, read.state.size, read.path)
        if read.document.read_only and not force:
            raise ReadOnlyError(
                f"{read.path}: {read.document.read_only}; it is read but not rewritten",
                hint="save it as UTF-8, or write with --force",
                path=read.path,
            )

    def check_entry(self, read: Read, entry: Entry, *, force: bool = False) -> None:
        """``ReadOnlyError`` where this one segment may not be rewritten."""
        if entry.read_only and not force:
            raise ReadOnlyError(
                f"{read.path}:{entry.line}: {entry.read_only}; the segment is not rewritten",
                hint="put its header right in the file first, or write with --force",
                path=read.path,
            )

    def _applied(self, plan: Plan[T]) -> bool:
        """Whether the plan is true on disk now; False where the file changed meanwhile."""
        if not plan.changes:
            return True
        self._root.sweep_temps(plan.path.rpartition("/")[0])
        try:
            self._root.replace(plan.path, plan.after, expect=plan.before, make_folders=True)
        except Changed:
            return False
        return True

    def _document(self, path: str, data: bytes) -> Document:
        """The file parsed, from what was parsed before where only segments were appended."""
        with self._parsed_guard:
            known = self._parsed.pop(path, None)
        document = None
        if known is not None:
            old_data, old = known
            document = old if old_data == data else grown(old, old_data, data, self._settings)
        if document is None:
            document = self.parse(data)
        with self._parsed_guard:
            self._parsed[path] = (data, document)
            while len(self._parsed) > _PARSED_FILES:
                del self._parsed[next(iter(self._parsed))]
        return document


def result_of(
    scope: Scope,
    id: str,
    path: str,
    *,
    created: bool = False,
    changed: bool = False,
    problems: tuple[Problem, ...] = (),
    redacted: tuple[str, ...] = (),
    conflict: str | None = None,
) -> WriteResult:
    """A result for the address of ``id`` in ``scope``, without a diff."""
    return WriteResult(
        scope=scope.text,
        id=id,
        address=f"{scope}#{id}",
        path=path,
        created=created,
        changed=changed,
        problems=problems,
        redacted=redacted,
        conflict=conflict,
    )


def missing(scope: Scope, id: str) -> NotFoundError:
    """The error for an address that is not there."""
    return NotFoundError(f"{scope}#{id}: there is no such segment", hint="h2ams list shows them")
