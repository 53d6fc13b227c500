"""The composition root: one open memory folder with everything wired to it.

``Memory`` is what hosts and surfaces call. It resolves where things are, builds the parts, checks
the access at its border and hands each call to the part that knows how. It keeps no rules of its
own; what it adds is the order: authorise, make fresh, read or write, sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.errors import (
    H2amsError,
    ReadOnlyError,
    ScopeError,
)
from h2ams.index.sync import SyncReport
from h2ams.memory.access import Access, Gate
from h2ams.memory.layout import scope_of_path
from h2ams.memory.scope import Scope, parse_address, parse_scope
from h2ams.memory.values import (
    Problem,
    check_kind,
    check_several,
    check_text,
    check_texts,
    is_note_id,
)
from h2ams.parts import SUSPICIOUS, healing
from h2ams.reads import Reads

if TYPE_CHECKING:
    from h2ams.index.verify import Verification
    from h2ams.memory.intake import Incoming, Taken
    from h2ams.memory.store import WriteResult
    from h2ams.memory.tree import FileTree
    from h2ams.upkeep.doctor import DoctorReport
    from h2ams.upkeep.importers import SummaryText
    from h2ams.upkeep.status import Status

MOST_HITS = 1_000  # a recall gives no more, whatever is asked for
COVERED = 1.25  # matches of so many times its budget are considered for a block


class Memory(Reads):
    """An open memory folder. Use ``Memory.open``; close it, or use it in a ``with`` statement.

    Every method that takes ``access`` does what that access allows and no more; left out, it is the
    owner's. Safe to call from several threads, and from several processes on one folder.
    """

    # -- writing ---------------------------------------------------------------------------------

    def remember(
        self,
        scope: str,
        body: str,
        *,
        kind: str = "fact",
        tags: Iterable[str] = (),
        source_messages: Iterable[str] = (),
        access: Access | None = None,
        expect: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> WriteResult:
        """Add a segment to ``scope``. The same text with the same kind again changes nothing.

        Secrets and ``<private>`` parts are replaced before anything is written. ``expect`` is the
        SHA-256 of the whole file as seen before, or ``""`` for a file that must not exist.
        """
        for name, text in (("scope", scope), ("body", body), ("kind", kind)):
            check_text(text, name)
        if expect is not None:
            check_text(expect, "expect")
        given = check_texts(tags, "tags"), check_several(source_messages, "source_messages")
        target = self._writable(parse_scope(scope), access)
        if access is not None:
            self._check_name(target)
        self._check_room(target)
        result = self.store.add(
            target,
            body,
            kind=check_kind(kind),
            tags=given[0],
            source_messages=given[1],
            expect=expect,
            force=force,
            dry_run=dry_run,
        )
        return self._written(result, dry_run)

    def update(
        self,
        address: str,
        *,
        body: str | None = None,
        kind: str | None = None,
        tags: Iterable[str] | None = None,
        source_messages: Iterable[str] | None = None,
        access: Access | None = None,
        expect: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> WriteResult:
        """Change parts of a segment; its id and every other byte of the file stay.

        ``expect`` is the digest of the segment as seen before (``Record.digest``).
        """
        check_text(address, "address")
        for name, text in (("body", body), ("kind", kind), ("expect", expect)):
            if text is not None:
                check_text(text, name)
        sources = source_messages
        given = (
            None if tags is None else check_texts(tags, "tags"),
            None if sources is None else check_several(sources, "source_messages"),
        )
        scope, id = self._for_writing(address, access)
        result = self.store.update(
            scope,
            id,
            body=body,
            kind=None if kind is None else check_kind(kind),
            tags=given[0],
            source_messages=given[1],
            expect=expect,
            force=force,
            dry_run=dry_run,
        )
        return self._written(result, dry_run)

    def forget(
        self,
        address: str,
        *,
        access: Access | None = None,
        expect: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        purge: bool = False,
    ) -> WriteResult:
        """Remove a segment. ``unforget`` brings it back, unless ``purge`` removed every trace."""
        scope, id = self._for_writing(address, access)
        result = self.store.remove(
            scope, id, expect=expect, force=force, dry_run=dry_run, purge=purge
        )
        result = self._written(result, dry_run)
        if not dry_run:
            self._tell_summary(scope)
        if purge and not dry_run and not self._erase_deleted():
            text = "another process reads the index: forget --purge again when it has finished"
            problem = Problem("not-erased-yet", text, 0, result.path)
            result = replace(result, problems=(*result.problems, problem))
        return result

    def unforget(self, address: str, *, access: Access | None = None) -> WriteResult:
        """Bring a forgotten segment back; ``NotFoundError`` where nothing is kept of it."""
        scope, id = self._for_writing(address, access)
        return self._written(self.store.unforget(scope, id), False)

    def take_in(
        self,
        incoming: Sequence[Incoming],
        *,
        summaries: Sequence[SummaryText] = (),
        access: Access | None = None,
        dry_run: bool = False,
    ) -> Taken:
        """Add segments from elsewhere with their own ids and times; what is known already stays.

        What cannot be written is listed in the result; ``AccessError`` before anything is written.
        """
        from h2ams.upkeep.intake import take_in

        for scope in {each.scope for each in incoming} if access is not None else ():
            self._writable(parse_scope(scope), access)
        taken = take_in(self._root, self.settings, self.store, incoming, summaries, dry_run=dry_run)
        if not dry_run:
            self._files_written(taken.paths)
        return taken

    def tree(self, *, access: Access | None = None) -> FileTree:
        """The folder as a tree of files, for tools that look at and edit whole files."""
        from h2ams.memory.tree import FileTree

        with self._index.lock:
            gate, _ = self._guard.fresh(access)
        return FileTree(
            self._root,
            self.settings,
            gate,
            count=self._count,
            synced=self._files_written,
            files=self.store.files,
        )

    # -- index and hygiene: the owner's ----------------------------------------------------------

    @healing
    def sync(self, paths: Iterable[str] = (), *, access: Access | None = None) -> SyncReport:
        """Bring the index up to date, with all files or with ``paths`` (relative) alone.

        A path that neither the disk nor the index knows is among the report's errors.
        """
        self._owner_only(access, "sync")
        wanted = self._relative(paths)
        if wanted:
            self._syncer.refuse_sudden_emptiness()
        unknown = self._syncer.unknown(wanted)
        report = self._syncer.sync(wanted)
        return replace(report, problems=(*unknown, *report.problems)) if unknown else report

    @healing
    def rebuild(self, *, access: Access | None = None) -> SyncReport:
        """Make the index anew from the files; readers go on with the old one meanwhile."""
        self._owner_only(access, "rebuild")
        return self._syncer.rebuild()

    @healing
    def verify(self, *, access: Access | None = None) -> Verification:
        """Whether the index equals what a rebuild would give, and is sound."""
        from h2ams.index.verify import verify

        self._owner_only(access, "verify")
        with self._index.lock:
            self._syncer.refuse_sudden_emptiness()
            if self._index.is_new():  # there was none: nothing that could differ
                self._syncer.sync()
            return verify(self._root, self._index, self.settings, self._vectors)

    @healing
    def status(self, *, access: Access | None = None) -> Status:
        """What the folder holds, for the scopes that ``access`` may read."""
        from h2ams.upkeep.status import status

        with self._index.lock:
            gate, stale = self._guard.fresh(access)
            folder = self._syncer.folder_problems if access is None else ()
            with self._index.reading() as connection:
                degraded = (*self._degraded(), *stale, *self._watch_troubles())
                degraded += self._not_removed(access)
                return status(self._root, connection, gate, self._index.path, degraded, folder)

    @healing
    def doctor(
        self,
        *,
        fix: bool = False,
        dry_run: bool = False,
        show: Callable[[str], object] | None = None,
        access: Access | None = None,
    ) -> DoctorReport:
        """Everything that is wrong in the folder; ``fix`` repairs what needs no guess.

        ``show`` gets the unified diff of each file directly before it is written.
        """
        from h2ams.index.verify import verify
        from h2ams.upkeep.doctor import doctor
        from h2ams.upkeep.status import known_problems

        self._owner_only(access, "doctor")
        seen = self._syncer.sync()
        with self._index.lock:
            checked = verify(self._root, self._index, self.settings, self._vectors)
            with self._index.reading() as connection:
                problems = [
                    *seen.problems,
                    *known_problems(connection, Gate(None), notices=True),
                    *checked.problems,
                ]
        report = doctor(
            self._root,
            self.store,
            problems,
            scope_of_path,
            self._syncer.rebuild,
            fix=fix,
            dry_run=dry_run,
            show=show,
        )
        if report.fixed and not dry_run:
            self._syncer.sync()
        return report

    def watch(
        self,
        *,
        stop: threading.Event,
        on_sync: Callable[[SyncReport], None] | None = None,
        report: Callable[[str, str], None] | None = None,
        access: Access | None = None,
    ) -> None:
        """Sync on every change until ``stop`` is set; blocks. Recalls of other threads of this
        process then skip their own check wherever the watch can vouch for the index.

        ``on_sync`` gets what each sync did, ``report`` code and message of each trouble, once.
        """
        from h2ams.index.watch import Watching, watch

        self._owner_only(access, "watch")
        watching = Watching()
        self._syncer.settled = watching.settled
        try:
            watch(
                self._root,
                self._syncer,
                self.settings,
                stop=stop,
                on_sync=on_sync,
                report=report,
                watching=watching,
            )
        finally:
            self._syncer.settled = None

    def _tell_summary(self, scope: Scope) -> None:
        """A summary of ours does not go on saying what was just forgotten."""
        found = self.store.summary(scope)
        if found is None or found[1].basis is None:
            return  # none, or a person's: that one is told of by the audit
        try:
            self.dreams.refresh(scope.text, model="rules")
        except H2amsError as error:
            import logging  # 5 ms that a recall does not need

            log = logging.getLogger(__name__)
            log.warning("%s: its summary could not follow: %s", scope, error.message)

    # -- access -----------------------------------------------------------------------------------

    def _check_name(self, scope: Scope) -> None:
        """Refuse a name that another one has in other letters, without naming that one."""
        try:
            self.store.check_creatable(scope)
        except ScopeError:
            raise ScopeError(
                f"{scope}: an id that differs only by case or Unicode form is taken",
                hint="use another id",
            ) from None

    def _for_writing(self, address: str, access: Access | None) -> tuple[Scope, str]:
        scope, id = parse_address(address)
        self._writable(scope, access)
        if is_note_id(id):
            record = self.get(address, access=access)
            if not record.is_note:
                return scope, id
            raise ReadOnlyError(
                f"{record.path}:{record.line}: a section of a note, which is never rewritten",
                hint="edit the file itself",
                path=record.path,
            )
        return scope, id

    def _writable(self, scope: Scope, access: Access | None) -> Scope:
        """``scope``, if ``access`` may write there and where its redirects lead."""
        gate = Gate(access)
        gate.check_write(scope)
        self._refuse_unmounted()
        if scope.topic and access is not None:
            gate.check_write(self.store.canonical(scope))
        return scope

    def _files_written(self, paths: Sequence[str]) -> None:
        from h2ams.memory.store import WriteResult

        first, *rest = paths or [""]
        self._written(WriteResult("", "", "", first, other_paths=tuple(rest)), False)

    def _written(self, result: WriteResult, dry_run: bool) -> WriteResult:
        """Sync the file that was just written, so that the next recall sees it at no cost.

        The files are the truth: where the index cannot follow, the write has happened all the same,
        and the next sync or recall brings the index up to date.
        """
        if dry_run or not result.path:
            return result
        paths = [result.path, *result.other_paths]
        try:
            try:
                self._syncer.sync(paths, trusted=paths)
            except SUSPICIOUS as error:
                if not self._is_damage(error):
                    raise
                self._heal(error)
        except (H2amsError, sqlite.Error, OSError) as error:
            text = f"written, but the index could not follow: {error}"
            problem = Problem("index-behind", text, 0, result.path)
            return replace(result, problems=(*result.problems, problem))
        return result
