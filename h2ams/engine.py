"""The composition root: one open memory folder with everything wired to it.

``Memory`` is what hosts and surfaces call. It resolves where things are, builds the parts, checks
the access at its border and hands each call to the part that knows how. It keeps no rules of its
own; what it adds is the order: authorise, make fresh, read or write, sync.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.errors import (
    H2amsError,
    NotFoundError,
    ReadOnlyError,
    ScopeError,
    UsageError,
)
from h2ams.index.read import Reader
from h2ams.index.search import Filters, Searcher, Wanted
from h2ams.index.sync import SyncReport
from h2ams.memory.access import Access, Gate
from h2ams.memory.layout import scope_of_path
from h2ams.memory.record import Degraded, Hit, Recall, Record
from h2ams.memory.scope import Scope, canonical_glob, is_utf8, parse_address, parse_scope
from h2ams.memory.values import Problem, check_kind, is_note_id, parse_time
from h2ams.parts import SUSPICIOUS, Parts, healing, real_folder
from h2ams.text.words import parse_query

if TYPE_CHECKING:
    from h2ams.active.adjust import Adjustment
    from h2ams.active.block import MemoryBlock
    from h2ams.active.reuse import Excerpt, Reuse, WorkItem
    from h2ams.active.turn import Turn
    from h2ams.index.verify import Verification
    from h2ams.memory.intake import Incoming, Taken
    from h2ams.memory.store import WriteResult
    from h2ams.memory.tree import FileTree
    from h2ams.models.request import Model
    from h2ams.threads.context_engine import Thread
    from h2ams.threads.message import Shape
    from h2ams.upkeep.doctor import DoctorReport
    from h2ams.upkeep.importers import SummaryText
    from h2ams.upkeep.status import Status

_log = logging.getLogger(__name__)

MOST_HITS = 1_000  # a recall gives no more, whatever is asked for
COVERED = 1.25  # matches of so many times its budget are considered for a block


class Memory(Parts):
    """An open memory folder. Use ``Memory.open``; close it, or use it in a ``with`` statement.

    Every method that takes ``access`` does what that access allows and no more; left out, it is the
    owner's. Safe to call from several threads, and from several processes on one folder.
    """

    # -- reading ---------------------------------------------------------------------------------

    @healing
    def recall(
        self,
        query: str,
        *,
        access: Access | None = None,
        limit: int | None = None,
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        after: str | None = None,
        before: str | None = None,
        scopes: Sequence[str] | None = None,
        min_score: float | None = None,
        budget: int | None = None,
    ) -> Recall:
        """The segments that match ``query`` best, inside the scopes that ``access`` may read.

        ``kinds`` and ``tags``: any of them; ``after`` (inclusive) and ``before`` (exclusive) are
        ISO times of the last change; ``scopes`` are names with wildcards, and an empty list of them
        is no scope at all; ``budget`` bounds the sum of the bodies' tokens. No text of a query is
        syntax but ``"quoted phrases"`` and ``curr*``.
        """
        started = time.perf_counter()
        filters = Filters(
            tuple(check_kind(kind) for kind in kinds),
            tuple(tags),
            _moment(after, "after"),
            _moment(before, "before"),
            None if scopes is None else tuple(map(canonical_glob, scopes)),
        )
        with self._index.lock:
            gate, stale = self._guard.fresh(access)
            with self._index.reading() as connection:
                most = self.settings.recall_limit_count if limit is None else limit
                wanted = Wanted(max(0, min(most, MOST_HITS)))
                found = self._recall(connection, gate, query, wanted, filters, stale)
        elapsed_ms = round((time.perf_counter() - started) * 1000, 3)
        hits = found.hits
        if min_score is not None:
            hits = tuple(hit for hit in hits if hit.score >= min_score)
        if budget is not None:
            hits = _within(hits, budget)
        return replace(found, hits=hits, elapsed_ms=elapsed_ms)

    def _recall(
        self,
        connection: sqlite.Connection,
        gate: Gate,
        query: str,
        wanted: Wanted,
        filters: Filters,
        stale: Sequence[Degraded] = (),
    ) -> Recall:
        parsed = parse_query(query, max_chars=self.settings.query_chars)
        searcher = Searcher(connection, gate, self.settings, today=self._today())
        found = self._search(searcher, query, parsed, wanted, filters)
        degraded = [*self._degraded(), *stale]
        if found.cut_short:
            most = f"{self.settings.substring_segments_count} segments"
            degraded.append(Degraded("substring-limit", f"substrings: only {most} were read"))
        return Recall(
            query=query,
            keywords=parsed.keywords,
            relaxed=found.relaxed,
            hits=found.hits,
            searched_scopes=found.searched,
            degraded=tuple(degraded),
            dropped_terms=found.dropped_terms,
            below_gate=found.below_gate,
            beyond=found.beyond,
        )

    @healing
    def context(
        self,
        query: str,
        *,
        access: Access | None = None,
        budget: int | None = None,
        window: int | None = None,
        commit: bool = False,
        language: str = "en",
    ) -> MemoryBlock:
        """The memory block for a prompt that asks ``query``, never more than its budget of tokens.

        ``budget`` in tokens, else a share of the model's ``window``. ``commit`` tells that the turn
        really happens: what the block shows counts as used. Without it no state changes.
        """
        from h2ams.active.budget import total_budget

        with self._index.lock:
            gate, stale = self._guard.fresh(access)
            with self._index.reading() as connection:  # one state for the matches and the rest
                total = total_budget(budget, window, self.settings)
                wanted = Wanted(self.settings.on_demand_count, total * COVERED, total)
                recall = self._recall(connection, gate, query, wanted, Filters(), stale)
                return self._turn(connection, gate, access).block(
                    recall, budget=budget, window=window, commit=commit, language=language
                )

    @healing
    def get(self, address: str, *, access: Access | None = None) -> Record:
        """The segment at ``address`` (``scope#id``); ``NotFoundError`` where there is none."""
        scope, id = parse_address(address)
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            scope = self._canonical(scope, gate)
            with self._index.reading() as connection:
                record = Reader(connection, gate).get(scope, id)
        if record is None and self._reads_wholly(gate, scope):
            from h2ams.upkeep.archive import archived_records

            retired = archived_records(self.store, [scope], self._count)
            record = next((each for each in retired if each.id == id), None)
        if record is None:
            raise NotFoundError(f"there is no {address}", hint="h2ams list shows what there is")
        return record

    @healing
    def list(
        self,
        scope: str | None = None,
        *,
        access: Access | None = None,
        archived: bool = False,
    ) -> tuple[Record, ...]:
        """All segments of ``scope`` (None: of all scopes) in the order of their files."""
        named = None if scope is None else parse_scope(scope)
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            one = None if named is None else self._canonical(named, gate)
            with self._index.reading() as connection:
                reader = Reader(connection, gate)
                if not archived:
                    return reader.list(one)
                scopes = [one] if one is not None else reader.scopes()
        from h2ams.upkeep.archive import archived_records

        readable = [each for each in scopes if self._reads_wholly(gate, each)]
        return archived_records(self.store, readable, self._count)

    @healing
    def sources(self, message_id: str, *, access: Access | None = None) -> tuple[Record, ...]:
        """The segments that cite the source message ``message_id``."""
        if not is_utf8(message_id):
            return ()  # nobody could have cited it
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            with self._index.reading() as connection:
                return Reader(connection, gate).sources(message_id)

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
        target = self._writable(parse_scope(scope), access)
        if access is not None:
            self._check_name(target)
        self._check_room(target)
        result = self.store.add(
            target,
            body,
            kind=check_kind(kind),
            tags=tuple(tags),
            source_messages=tuple(source_messages),
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
        scope, id = self._for_writing(address, access)
        result = self.store.update(
            scope,
            id,
            body=body,
            kind=None if kind is None else check_kind(kind),
            tags=None if tags is None else tuple(tags),
            source_messages=None if source_messages is None else tuple(source_messages),
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

    def touch(self, addresses: Iterable[str], *, access: Access | None = None) -> None:
        """Segments that this turn really used: picked, cited or written. They become recent."""
        known = tuple(self.get(address, access=access).address for address in addresses)
        with self._index.lock, self._index.reading() as connection:
            gate = self._guard.gate(connection, access)
            self._turn(connection, gate, access).touch(known)

    def thread(
        self,
        id: str,
        *,
        access: Access | None = None,
        system: str | None = None,
        scope: str | None = None,
        window: int | None = None,
        reserve: int | None = None,
        tools: int | Sequence[object] = 0,
        shape: Shape | None = None,
        create: bool = True,
    ) -> Thread:
        """The conversation called ``id``: ``thread(id).context(message)`` is the context call.

        Its recalled part is the block that ``access`` sees. A new thread belongs to the session or
        chat of ``access``, or to ``scope``. See docs/threads.md.
        """
        from h2ams.upkeep.thread_folder import open_thread

        def memory(query: str, budget: int) -> str:
            return self.context(query, access=access, budget=budget).text

        return open_thread(
            self.threads,
            id,
            access=access,
            memory=memory,
            system=system,
            scope=scope,
            window=window,
            reserve=reserve,
            tools=tools,
            shape=shape,
            create=create,
        )

    # -- after a turn, and for work items --------------------------------------------------------

    def adjust(
        self,
        query: str,
        block: MemoryBlock,
        *,
        access: Access,
        answer: str = "",
        wrote_memory: bool = False,
        model: Model | None = None,
    ) -> Adjustment:
        """Let a model correct which segments the task needs, where that is due after a turn.

        ``block`` is what ``context`` gave for ``query``. The correction shows in the next block and
        lasts until the task changes. Without ``model`` the configured one is asked; failure and a
        time-out of 30 s change nothing.
        """
        from h2ams.active import adjusting
        from h2ams.active.adjust import Adjustment

        chosen = model or self.model
        if chosen is None:
            return Adjustment("not-due", failure="no model is configured")
        with self._index.lock:
            gate, stale = self._guard.fresh(access)
            with self._index.reading() as connection:
                wanted = Wanted(self.settings.on_demand_count)
                recall = self._recall(connection, gate, query, wanted, Filters(), stale)
                turn = self._turn(connection, gate, access)
                due = adjusting.prepare(turn, recall, block, answer, wrote_memory=wrote_memory)
        if due is None:
            return Adjustment("not-due")
        found = adjusting.consult(chosen, due)
        with self._index.lock, self._index.reading() as connection:
            gate = self._guard.gate(connection, access)
            adjusting.keep(self._turn(connection, gate, access), due, found)
        return found

    def reuse(
        self,
        item: WorkItem,
        *,
        completed: Iterable[WorkItem] = (),
        excerpts: Iterable[Excerpt] = (),
        owner: str = "",
        reuse_memory: bool = True,
    ) -> Reuse:
        """The candidates that a work item may be given: memory, completed items, excerpts.

        ``completed`` and ``excerpts`` are the host's; what is not of the item's workspace (by real
        path) and ``owner`` is left out. ``reuse.render`` appends them, or does not, by schema.
        """
        from h2ams.active import reuse

        if not reuse_memory:
            return reuse.Reuse()
        trusted = item.producer == "trusted-session" and item.source_session is not None
        access = Access(
            session=item.source_session if trusted else None,
            vp=item.vp if trusted else None,
            user="read",
        )
        scopes = reuse.allowed_scopes(item)
        found = self.recall(item.summary, access=access, limit=reuse.MEMORY_PICKS, scopes=scopes)
        return reuse.Reuse(
            reuse.from_memory(item, found.hits, self.tokens),
            reuse.from_items(item, completed, real_folder, self.tokens),
            reuse.from_sessions(item, excerpts, real_folder, self.tokens, owner=owner),
        )

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
            self._root, self.settings, gate, count=self._count, synced=self._files_written
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

    def _turn(self, connection: sqlite.Connection, gate: Gate, access: Access | None) -> Turn:
        from h2ams.active.registry import Registry
        from h2ams.active.turn import Turn

        return Turn(
            Registry(self._root),
            self.store,
            Reader(connection, gate),
            gate,
            access,
            self.settings,
            self.tokens,
            self._date(),
        )

    def _tell_summary(self, scope: Scope) -> None:
        """A summary of ours does not go on saying what was just forgotten."""
        found = self.store.summary(scope)
        if found is None or found[1].basis is None:
            return  # none, or a person's: that one is told of by the audit
        try:
            self.dreams.refresh(scope.text, model="rules")
        except H2amsError as error:
            _log.warning("%s: its summary could not follow: %s", scope, error.message)

    # -- access and freshness --------------------------------------------------------------------

    def _reads_wholly(self, gate: Gate, scope: Scope) -> bool:
        """Whether the access may read ``scope`` and the one that its redirects lead to."""
        if not gate.may_read(scope):
            return False
        return not scope.topic or gate.may_read(self.store.canonical(scope))

    def _canonical(self, scope: Scope, gate: Gate) -> Scope:
        """``scope`` with topic redirects followed, where the access may read both ends."""
        if not scope.topic or not gate.may_read(scope):
            return scope
        target = self.store.canonical(scope)
        return target if gate.may_read(target) else scope

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


def _moment(text: str | None, name: str) -> str | None:
    if text is None:
        return None
    iso = parse_time(text).iso
    if iso is None:
        raise UsageError(
            f"{name}: {text!r} is not a date or time", hint="use 2026-04-29 or 2026-04-29T10:00:00Z"
        )
    return iso


def _within(hits: Sequence[Hit], budget: int) -> tuple[Hit, ...]:
    """The best hits whose bodies fit into ``budget`` tokens; a smaller later one may still fit."""
    kept: list[Hit] = []
    used = 0
    for hit in hits:
        if used + hit.record.tokens <= budget:
            kept.append(hit)
            used += hit.record.tokens
    return tuple(kept)
