"""Keeping the index equal to the files (Derived).

scan -> compare -> read what changed -> write only the segments that differ. A sync that finds
nothing changed writes nothing at all. ``refresh`` is the short form that a recall runs first: it
looks only at the files and folders of the scopes that the recall may read.

``rebuild`` builds a second database aside and copies it over the old one in one transaction
(SQLite's backup), so readers in any process see the old index or the new one, nothing between.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.errors import RootError, UnsafePathError
from h2ams.files import Root
from h2ams.index import vector_sync
from h2ams.index.freshness import Watched
from h2ams.index.plan import Found, Known, Plan, plan_sync
from h2ams.index.scan import Places, Scan, check_room, found_file, is_racy, no_collections, scan
from h2ams.index.schema import Index
from h2ams.memory import layout
from h2ams.memory.layout import SEGMENT_ROLES, TRACKED, Role, place_of
from h2ams.memory.values import Problem
from h2ams.settings import Settings

if TYPE_CHECKING:
    from h2ams.index.apply import Applier
    from h2ams.index.vectors import Vectors

BATCH_FILES = 2_000  # files read in one write transaction

_KNOWN = (
    "SELECT no, path, scope, name, role, layout, size, mtime_ns, ctime_ns, inode, racy, digest,"
    " pending, pending_ns FROM files"
)

# Codes that mean: this text could not be read as its writer meant it.
FAILED = frozenset(
    {
        "invalid-yaml",
        "unterminated-header",
        "leading-rule",
        "yaml-alias",
        "over-limit",
        "repeated-key",
        "invalid-utf-8",
        "utf-16",
        "file-too-large",
        "unreadable",
        "no-such-path",
    }
)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one sync did. ``problems`` are those of the files that were read in it, without notices.

    ``errors`` are the problems that kept some text from being indexed as it was meant.
    """

    scanned: int = 0
    changed: int = 0
    added: int = 0
    updated: int = 0
    deleted: int = 0
    problems: tuple[Problem, ...] = ()
    skipped_links: int = 0
    elapsed_ms: float = 0.0

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems because of which a file or path could not be read."""
        return tuple(each for each in self.problems if each.code in FAILED)

    @property
    def failed(self) -> int:
        """How many of the problems are errors."""
        return len(self.errors)


class Syncer:
    """Syncs one root with one index. ``count`` counts tokens; ``clock_ns`` gives the wall time."""

    def __init__(
        self,
        root: Root,
        index: Index,
        settings: Settings,
        *,
        count: Callable[[str], int],
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.root = root
        self.index = index
        self.settings = settings
        self.count = count
        self.clock_ns = clock_ns
        self.vectors: Vectors | None = None  # set where the semantic side is on
        self._places: Places = {}
        self.folder_problems: tuple[Problem, ...] = ()  # of the last walk over everything
        # Set by a watch in this process: whether the index has all that was written until now.
        self.settled: Callable[[], bool] | None = None

    # -- full and partial syncs ------------------------------------------------------------------

    def sync(
        self, paths: Iterable[str] = (), *, trusted: Iterable[str] = (), settle: bool = True
    ) -> SyncReport:
        """Bring the index up to date with ``paths`` (relative files or folders), or with all.

        ``trusted`` files were just written by the engine: nothing about them is half-written.
        ``settle`` waits up to 20 ms where something changed this very moment; without it such files
        are read again by the next sync.
        Raises ``RootError`` where the root is missing, unreadable or suddenly empty.
        """
        started = time.perf_counter()
        targets = [path.strip("/") for path in paths]
        with self._healing(), no_collections():
            seen = self._seen(targets)
            wait_ns = 0 if trusted or not settle else seen.settles_in_ns()
            if wait_ns:  # look again when nothing can hide behind a time stamp any more
                time.sleep(wait_ns / 1e9)
                seen = self._seen(targets)
            if not targets:
                self._refuse_a_scan_without_files(seen)
                check_room(seen, self.settings)
                self.folder_problems = tuple(seen.problems)
            report = self._run(seen, targets, frozenset(trusted))
            vector_sync.keep(self.index, self.vectors)
        self.index.made_new = self.index.made_new and bool(targets)
        return replace(report, elapsed_ms=(time.perf_counter() - started) * 1000)

    def _seen(self, targets: Sequence[str]) -> Scan:
        return self._scan_targets(targets) if targets else self._scan(("",))

    def _scan(self, folders: Iterable[str]) -> Scan:
        return scan(self.root, self.settings, folders, places=self._places)

    def unknown(self, paths: Iterable[str]) -> tuple[Problem, ...]:
        """Those of ``paths`` that are neither on the disk nor in the index: mistyped, most likely.

        A path that was just removed is in the index: ask before the sync.
        """
        with self.index.reading() as connection:
            return tuple(
                Problem("no-such-path", "neither on the disk nor in the index", 0, path)
                for path in paths
                if path and not os.path.lexists(f"{self.root.path}/{path}")
                if not self._known(connection, (path,))
            )

    def count_scopes_beside(self, scope: str) -> int:
        """How many scopes the index knows; 0 where ``scope`` is one of them."""
        with self.index.reading() as connection:
            if sqlite.value(connection, "SELECT 1 FROM folders WHERE scope = ? LIMIT 1", (scope,)):
                return 0
            return int(sqlite.value(connection, "SELECT count(*) FROM scopes WHERE segments > 0"))

    def _scan_targets(self, targets: Sequence[str]) -> Scan:
        folders: list[str] = []
        files: list[str] = []
        problems: list[Problem] = []
        for target in targets:
            try:
                is_folder = os.path.isdir(self.root.absolute(target))
            except UnsafePathError as error:  # it became a link that leads outside: not read
                problems.append(Problem("unsafe-link", error.message, 0, target))
                continue
            (folders if is_folder else files).append(target)
        seen = self._scan(folders)
        seen.problems += problems
        seen.skipped_links += len(problems)
        for path in files:
            found = self._stat(path)
            if found is not None:
                seen.files[path] = found
        return seen

    def _stat(self, path: str) -> Found | None:
        folder, _, name = path.rpartition("/")
        place = place_of(folder)
        if place is None or place.scope is None or place.problem:
            return None
        role, _ = layout.role(place, name)
        if role not in TRACKED:
            return None
        try:
            status = os.stat(f"{self.root.path}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:  # it is there but cannot be looked at: reading it will say why
            status = os.stat_result((0, 0, 0, 0, 0, 0, -1, 0, 0, 0))
        return found_file(path, place, role, status)

    def refuse_sudden_emptiness(self) -> None:
        """``RootError`` where the root is bare and the index knows of files: a disk is missing."""
        if self.root.is_bare() and self._knows_files():
            raise self.root.emptied()

    def _refuse_a_scan_without_files(self, seen: Scan) -> None:
        if seen.files or seen.blind or any(seen.folders.keys() - {""}):
            return
        if self._knows_files():
            raise self.root.emptied()

    def _knows_files(self) -> bool:
        """Whether the index has more files than one person would delete without a thought."""
        with self.index.reading() as connection:
            count = sqlite.value(connection, "SELECT count(*) FROM files WHERE pending = ''")
        return int(count) > 1

    def _run(self, seen: Scan, targets: Sequence[str], trusted: frozenset[str]) -> SyncReport:
        with self.index.reading() as connection:
            known = self._known(connection, targets)
            plan = plan_sync(seen.files, known, seen.blinded)
            folders = self._changed_folders(connection, seen, targets)
        report = SyncReport(
            scanned=plan.scanned,
            problems=tuple(seen.problems),
            skipped_links=seen.skipped_links,
        )
        if plan.is_empty and not folders:
            return report
        return self._apply(plan, folders, seen, targets, trusted, report)

    def _known(self, connection: sqlite.Connection, targets: Sequence[str]) -> dict[str, Known]:
        if not targets or "" in targets:
            rows = sqlite.rows(connection, _KNOWN)
            return {row[1]: Known._make(row) for row in rows}
        known = {}
        for target in targets:
            for row in sqlite.rows(
                connection,
                f"{_KNOWN} WHERE path = ? OR (path >= ? AND path < ?)",
                (target, f"{target}/", f"{target}0"),
            ):
                known[row[1]] = Known(*row)
        return known

    def _changed_folders(
        self, connection: sqlite.Connection, seen: Scan, targets: Sequence[str]
    ) -> list[tuple[str, tuple[str, int] | None]]:
        """Folders whose row differs: (path, (scope, mtime_ns) or None for gone)."""
        if not targets or "" in targets:
            rows = sqlite.rows(connection, "SELECT path, scope, mtime_ns, racy FROM folders")
        else:
            rows = []
            for target in targets:
                rows += sqlite.rows(
                    connection,
                    "SELECT path, scope, mtime_ns, racy FROM folders"
                    " WHERE path = ? OR (path >= ? AND path < ?)",
                    (target, f"{target}/", f"{target}0"),
                )
        changed: list[tuple[str, tuple[str, int] | None]] = []
        known = 0
        for path, scope, mtime_ns, racy in rows:
            value = seen.folders.get(path)
            if value is None:
                if not seen.blinded(path) and path not in seen.blind:
                    changed.append((path, None))
                continue
            known += 1
            settled = racy and not is_racy(value[1], value[1], seen.started_ns)
            if value != (scope, mtime_ns) or settled:
                changed.append((path, value))
        if known < len(seen.folders):
            have = {path for path, *_ in rows}
            changed += [(path, value) for path, value in seen.folders.items() if path not in have]
        return changed

    def build(self, plan: Plan, seen: Scan) -> SyncReport:
        """Fill an empty index with everything in ``plan``."""
        report = SyncReport(
            scanned=plan.scanned, problems=tuple(seen.problems), skipped_links=seen.skipped_links
        )
        folders: list[tuple[str, tuple[str, int] | None]] = list(seen.folders.items())
        return self._apply(plan, folders, seen, (), frozenset(), report)

    # -- applying --------------------------------------------------------------------------------

    def _apply(
        self,
        plan: Plan,
        folders: list[tuple[str, tuple[str, int] | None]],
        seen: Scan,
        targets: Sequence[str],
        trusted: frozenset[str],
        report: SyncReport,
    ) -> SyncReport:
        # Parsing takes 0.1 s to import: a recall that finds nothing changed does without it.
        from h2ams.index.apply import Applier, Clock
        from h2ams.index.row_writer import Writer

        batches = list(_batches(plan)) or [Plan()]
        for number, batch in enumerate(batches):
            with self.index.writing() as connection:
                writer = Writer(connection)
                clock = Clock(self.clock_ns(), trusted)
                applier = Applier(self.root, connection, writer, self.settings, self.count, clock)
                with vector_sync.around(connection, self.vectors, batch):
                    self._apply_batch(applier, batch, connection)
                    writer.flush()
                if number == len(batches) - 1:
                    _save_folders(connection, folders, seen.started_ns)
            report = replace(
                report,
                changed=report.changed + applier.tally.changed_files,
                added=report.added + writer.added,
                updated=report.updated + writer.updated,
                deleted=report.deleted + writer.deleted,
                problems=report.problems + _told(applier.tally.problems, seen),
            )
        return report

    def _apply_batch(self, applier: Applier, plan: Plan, connection: sqlite.Connection) -> None:
        """Apply one batch, group by group. What is gone is found by reading it: it is not there."""
        from h2ams.index.apply import group_of

        found: dict[tuple[str, str], dict[str, Found]] = defaultdict(dict)
        for each in plan.read:
            if each.role in SEGMENT_ROLES:
                found[group_of(each.scope, each.name, each.role.value)][each.path] = each
            else:  # cards are read first: they say what a session belongs to
                applier.single(each.path, each, self._known_of(connection, each.path))
        for old in (*plan.gone, *plan.unseen):
            if Role(old.role) in SEGMENT_ROLES:
                found.setdefault(group_of(old.scope, old.name, old.role), {})
            else:
                applier.single(old.path, None, self._known_of(connection, old.path))
        for (scope, name), files in found.items():
            if name:
                where, bindings = "name = ? AND role = ?", (name, Role.NOTE.value)
            else:
                where, bindings = "role IN (?, ?)", (Role.MEMORY.value, Role.CONTENT.value)
            known = sqlite.rows(
                connection, f"{_KNOWN} WHERE scope = ? AND {where}", (scope, *bindings)
            )
            applier.group(scope, files, [Known(*row) for row in known])

    @staticmethod
    def _known_of(connection: sqlite.Connection, path: str) -> Known | None:
        row = sqlite.row(connection, f"{_KNOWN} WHERE path = ?", (path,))
        return None if row is None else Known(*row)

    # -- freshness of a recall -------------------------------------------------------------------

    def refresh(self, watched: Watched | None) -> SyncReport:
        """Sync what of ``watched`` (None: everything) changed on the disk."""
        if self.vectors is not None and not self.index.made_new:
            vector_sync.keep(self.index, self.vectors)
        if self.settled is not None and not self.index.made_new and self.settled():
            return SyncReport()
        if watched is None or self.index.made_new:
            return self.sync(settle=False)
        targets = watched.stale()
        if not os.path.isdir(watched.base):
            if not targets:
                raise RootError(
                    f"the memory folder {watched.base} is gone",
                    path=watched.base,
                    hint="is the disk mounted?",
                )
            targets = [""]  # the full scan says what is wrong with the root
        if targets:
            self.refuse_sudden_emptiness()
        return self.sync(targets, settle=False) if targets else SyncReport()

    # -- rebuild and verify ----------------------------------------------------------------------

    def rebuild(self) -> SyncReport:
        """Make the whole index anew from the files; readers go on with the old one meanwhile."""
        from h2ams.index.rebuild import rebuild

        return rebuild(self)

    @contextlib.contextmanager
    def _healing(self) -> Iterator[None]:
        """A damaged index is set aside; the caller's caller tries once more on a new one."""
        try:
            yield
        except sqlite.DAMAGED as error:
            with self.index.lock:
                self.index.start_anew(f"the index was damaged ({error})")
            raise

    def digest(self, scopes: Iterable[str] | None = None) -> str:
        """The digest that is kept up to date by the syncs, over ``scopes`` or all."""
        with self.index.reading() as connection:
            rows = sqlite.rows(connection, "SELECT name, digest FROM scopes")
        from h2ams.index import digest as digest_module

        wanted = None if scopes is None else frozenset(scopes)
        return digest_module.combine(
            total for name, total in rows if wanted is None or name in wanted
        )


def _told(problems: Iterable[Problem], seen: Scan) -> tuple[Problem, ...]:
    """Without those of files in a folder that could not be read: the folder is reported."""
    return tuple(
        each for each in problems if each.code != "unreadable" or not seen.blinded(each.path)
    )


def _save_folders(
    connection: sqlite.Connection,
    folders: list[tuple[str, tuple[str, int] | None]],
    read_ns: int,
) -> None:
    for path, value in folders:
        if value is None:
            connection.execute("DELETE FROM folders WHERE path = ?", (path,))
        else:
            scope, mtime_ns = value
            connection.execute(
                "INSERT OR REPLACE INTO folders VALUES (?, ?, ?, ?)",
                (path, scope, mtime_ns, is_racy(mtime_ns, mtime_ns, read_ns)),
            )


def _batches(plan: Plan) -> Iterator[Plan]:
    """The plan in pieces of whole scopes, so that no write transaction is very long."""
    by_scope: dict[str, tuple[list[Found], list[Known], list[Known]]] = {}
    for each in plan.read:
        by_scope.setdefault(each.scope, ([], [], []))[0].append(each)
    for old in plan.gone:
        by_scope.setdefault(old.scope, ([], [], []))[1].append(old)
    for old in plan.unseen:
        by_scope.setdefault(old.scope, ([], [], []))[2].append(old)
    read: list[Found] = []
    gone: list[Known] = []
    unseen: list[Known] = []
    for scope_read, scope_gone, scope_unseen in by_scope.values():
        read += scope_read
        gone += scope_gone
        unseen += scope_unseen
        if len(read) + len(gone) + len(unseen) >= BATCH_FILES:
            yield Plan(tuple(read), tuple(gone), tuple(unseen))
            read, gone, unseen = [], [], []
    if read or gone or unseen:
        yield Plan(tuple(read), tuple(gone), tuple(unseen))
