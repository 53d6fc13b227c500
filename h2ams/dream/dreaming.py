"""A pass: collect, slice, extract, validate, merge, write, sync, summaries, watermark.

Strategy: nothing is written before all slices are extracted; then the plan (validated changes and
the next watermark) is made durable, then one scope after the other is written with its undo record
first, and the watermark last. A crash leaves the plan: the next call goes on with it, asks nobody
again, and ends with the bytes that it would have had. One pass at a time across processes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from h2ams.dream.journal import Journal
from h2ams.dream.knowing import Knowing
from h2ams.dream.model_extractor import ModelExtractor
from h2ams.dream.records import PassRecord, Plan, Thread, Touched
from h2ams.dream.slicing import Slice, Unread, Watermark, again, slices, unread
from h2ams.dream.summarise import Refreshed, Summariser, wrote
from h2ams.errors import ConflictError, LockTimeoutError, NotFoundError
from h2ams.files import Changed, Root
from h2ams.memory.absorb import Absorbed, FileChange, write_changes
from h2ams.memory.extraction import ExtractionRequest, Extractor, SourceMessage, targets_of
from h2ams.memory.presence import gone
from h2ams.memory.scope import Scope
from h2ams.memory.store import Store
from h2ams.memory.validation import Change, Refusal, Rules, Validated, extract_changes
from h2ams.memory.values import format_time
from h2ams.settings import Settings
from h2ams.tokens import TokenCounter

LOCK = "dream"
MOST_TRIES = 3  # passes that ask again about a slice whose answer could not be read

Outcome = Literal["done", "nothing-new", "too-few", "already-running", "partial", "failed"]
Progress = Callable[[int, int, str], None]  # done, of how many, what


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one call did, or would do. ``failures`` name scopes or slices with the reason.

    ``refusals`` are of this call's slices. ``found`` tells how the watermark's place was found:
    ``time`` and ``lost`` mean that its message is gone.
    """

    outcome: Outcome
    thread: str
    pass_id: str = ""
    extractor: str = ""
    new_count: int = 0
    slice_count: int = 0
    resumed: bool = False
    found: str = "start"
    scopes: tuple[Absorbed, ...] = ()
    summaries: tuple[Refreshed, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    failures: tuple[str, ...] = ()
    diff: str = ""

    @property
    def changed(self) -> bool:
        return any(each.changed for each in self.scopes) or bool(wrote(self.summaries))


@dataclass(frozen=True, slots=True)
class _Extracted:
    """The changes of all slices that gave an answer, in their order."""

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    failures: tuple[str, ...] = ()
    mark: Watermark = field(default_factory=Watermark)
    slice_count: int = 0
    stopped: bool = False


class Dream:
    """Passes over the threads of one root.

    ``existing`` gives the scopes that there are; ``synced`` gets the paths of written files, so
    that the index follows; ``counter`` bounds summaries, ``estimate`` measures slices.
    """

    def __init__(
        self,
        root: Root,
        store: Store,
        settings: Settings,
        *,
        extractor: Extractor,
        summariser: Summariser,
        estimate: TokenCounter,
        clock: Callable[[], datetime],
        existing: Callable[[], Iterable[Scope]],
        synced: Callable[[Sequence[str]], None],
    ) -> None:
        self._root = root
        self._store = store
        self._settings = settings
        self._extractor = extractor
        self._summariser = summariser
        self._estimate = estimate
        self._clock = clock
        self._existing = existing
        self._synced = synced
        self.journal = Journal(root)

    def run(
        self,
        thread: Thread,
        messages: Sequence[SourceMessage],
        *,
        by_hand: bool = True,
        dry_run: bool = False,
        keep_debug: bool = False,
        progress: Progress | None = None,
    ) -> PassReport:
        """One pass over what is new in ``messages``, the whole thread in its order.

        Not ``by_hand``, fewer than ``dream_min_new_count`` new messages wait. ``dry_run`` gives
        the diff and writes nothing, not even state.
        """
        try:
            with self._root.lock(LOCK, timeout_ms=0):
                return self._run(
                    thread,
                    messages,
                    by_hand=by_hand,
                    dry_run=dry_run,
                    keep_debug=keep_debug,
                    progress=progress or _silent,
                )
        except LockTimeoutError as error:
            if error.path != self._root.lock_file(LOCK):
                raise
            return PassReport("already-running", thread.scope.text)

    # -- the steps -------------------------------------------------------------------------------

    def _run(
        self,
        thread: Thread,
        messages: Sequence[SourceMessage],
        *,
        by_hand: bool,
        dry_run: bool,
        keep_debug: bool,
        progress: Progress,
    ) -> PassReport:
        plan = self.journal.plan(thread)
        if plan is not None and not dry_run:
            resumed = self._write(
                plan, PassReport("done", thread.scope.text, resumed=True), progress
            )
            if resumed.outcome != "done":
                return resumed
            later = self._run(
                thread,
                messages,
                by_hand=by_hand,
                dry_run=False,
                keep_debug=keep_debug,
                progress=progress,
            )
            return resumed if later.outcome in ("nothing-new", "too-few") else later
        mark = self._mark(thread)
        fresh = unread(messages, mark)
        waiting = again(messages, mark, context_count=self._settings.dream_context_count)
        report = PassReport(
            "done",
            thread.scope.text,
            extractor=self._extractor.name,
            new_count=len(fresh.new),
            found=fresh.found,
        )
        if not fresh.new and not (waiting and by_hand):
            return replace(report, outcome="nothing-new")
        if not by_hand and len(fresh.new) < self._settings.dream_min_new_count:
            return replace(report, outcome="too-few")
        started_at = format_time(self._clock())
        began = self._store.presence(thread.scope)
        pass_id = _pass_id(thread, mark, fresh.new, started_at)
        self._debugging(thread, pass_id, keep=keep_debug and not dry_run)
        found = self._extract(thread, fresh, waiting, mark, progress)
        report = replace(
            report,
            pass_id=pass_id,
            slice_count=found.slice_count,
            refusals=found.refusals,
            failures=found.failures,
        )
        if found.stopped and not found.changes and found.mark == mark:
            return replace(report, outcome="failed")
        counts = {"messages": len(fresh.new), "slices": found.slice_count}
        made = Plan(pass_id, thread, started_at, found.changes, found.mark, counts)
        if dry_run:
            return self._dry(made, report)
        with self._store.lock(thread.scope):  # no operation on the scope begins in between
            began.check()
            if self._mark(thread) != mark:
                raise gone(thread.scope.text)
            self.journal.save_plan(made)
        return self._write(made, report, progress)

    def _mark(self, thread: Thread) -> Watermark:
        """The own watermark, else the historical one of the session, else the beginning."""
        mark = self.journal.mark(thread)
        if mark is not None:
            return mark
        old = None if thread.name else self._store.dream_state(thread.scope)
        return Watermark() if old is None else Watermark(old.last_message_id, old.last_at)

    def _extract(
        self,
        thread: Thread,
        fresh: Unread,
        waiting: Sequence[Slice],
        mark: Watermark,
        progress: Progress,
    ) -> _Extracted:
        """Ask about one slice after the other; each sees what the ones before it have changed."""
        cut = slices(
            fresh.new,
            fresh.before,
            most_tokens=self._settings.dream_slice_tokens,
            context_count=self._settings.dream_context_count,
            count=self._estimate.count,
        )
        todo = [*waiting, *cut]
        existing = tuple(self._existing())
        knowing = Knowing(self._store, self._settings, self._extractor, format_time(self._clock()))
        changes: list[Change] = []
        refusals: list[Refusal] = []
        failures: list[str] = []
        pending: list[tuple[tuple[str, ...], int]] = []
        stopped, last = False, (mark.last, mark.at)
        for at, piece in enumerate(todo):
            progress(at, len(todo), "extracting")
            found = self._ask(thread, piece, knowing, existing)
            refusals += found.refusals
            if any(each.code == "model-failed" for each in found.refusals):
                failures.append("the model gave no answer: the rest is tried again next time")
                pending += [(each.ids, each.tries_count) for each in todo[at:] if each in waiting]
                stopped = True
                break
            if found.failed:
                tries = piece.tries_count + 1
                given_up = tries >= MOST_TRIES
                what = "given up" if given_up else "tried again next time"
                failures.append(f"{len(piece.ids)} messages: unreadable answers: {what}")
                if not given_up:
                    pending.append((piece.ids, tries))
            changes += found.changes
            knowing.learn(found.changes)
            if piece not in waiting:
                newest = max((each.created_at or "" for each in piece.messages), default="")
                last = piece.messages[-1].id, max(newest, last[1] or "") or None
        progress(len(todo), len(todo), "extracting")
        after = Watermark(last[0], last[1], tuple(pending))
        return _Extracted(
            tuple(changes), tuple(refusals), tuple(failures), after, len(todo), stopped
        )

    def _ask(
        self, thread: Thread, piece: Slice, knowing: Knowing, existing: Iterable[Scope]
    ) -> Validated:
        vps = [each.vp for each in piece.messages if each.vp is not None]
        scopes = targets_of(
            session=thread.scope.session,
            chat=thread.scope.chat,
            vps=vps,
            existing=existing,
        )
        targets = knowing.targets(scopes, piece.messages)
        request = ExtractionRequest(piece.messages, targets, piece.context)
        return extract_changes(self._extractor, request, Rules(self._settings))

    def _dry(self, plan: Plan, report: PassReport) -> PassReport:
        done = write_changes(
            lambda scope, changes: self._store.absorb(
                scope, changes, now=plan.started_at, dry_run=True
            ),
            plan.changes,
        )
        failures = [f"{scope}: {error.message}" for scope, error in done.failed]
        return replace(
            report,
            scopes=done.done,
            diff="".join(each.diff for each in done.done),
            failures=(*report.failures, *failures),
        )

    # -- writing ---------------------------------------------------------------------------------

    def _write(self, plan: Plan, report: PassReport, progress: Progress) -> PassReport:
        """Make a plan true: scopes, summaries, the record of the pass, and at last the mark."""
        scopes = list(dict.fromkeys(change.scope for change in plan.changes))

        def absorb(scope: Scope, changes: Sequence[Change]) -> Absorbed:
            progress(scopes.index(scope), len(scopes), "writing")
            return self._absorb(plan, scope, changes)

        done = write_changes(absorb, plan.changes)
        summaries: list[Refreshed] = []
        for each in done.done:
            summaries += self._refresh(plan, each)
        progress(len(scopes), len(scopes), "writing")
        paths = [path for each in done.done for path in each.paths]
        self._synced([*dict.fromkeys((*paths, *wrote(summaries)))])
        failures = [f"{scope}: {error.message}" for scope, error in done.failed]
        failures += [f"{s.path}: {s.message}" for s in summaries if s.status == "failed"]
        report = replace(
            report,
            pass_id=plan.pass_id,
            extractor=self._extractor.name,
            scopes=done.done,
            summaries=tuple(summaries),
            failures=(*report.failures, *failures),
        )
        if done.failed:  # the plan stays: the next call goes on with what is missing
            return replace(report, outcome="partial")
        ended_at = format_time(self._clock())
        with self._store.lock(plan.thread.scope):
            self._check_wanted(plan)
            self.journal.save_pass(_record(plan, report, ended_at))
            self.journal.save_mark(plan.thread, plan.mark, ended_at)
            self.journal.drop_plan(plan.thread)
        self.journal.prune(self._settings.dream_undo_count)
        return replace(report, outcome="partial" if report.failures else "done")

    def _check_wanted(self, plan: Plan) -> None:
        """``ConflictError`` where the plan is gone: with its scope, or purged for its text."""
        if self.journal.plan(plan.thread) is None:
            raise gone(plan.thread.scope.text)

    def _absorb(self, plan: Plan, scope: Scope, changes: Sequence[Change]) -> Absorbed:
        """Write one scope; what an interrupted pass had decided for its files is made true."""
        target = self._store.canonical(scope)
        with self._store.lock(target):
            self._check_wanted(plan)
            record = self.journal.touched(plan.pass_id, target)
            if record is not None:
                files = [each for each in record.files if not _is_summary(each.path)]
                if self._replayed(files):
                    return Absorbed(target.text, files=tuple(map(_file_change, files)))

            def journal(files: tuple[FileChange, ...]) -> None:
                touched = [Touched(each.path, each.before, each.after) for each in files]
                self.journal.save_touched(plan.pass_id, target, touched)

            return self._store.absorb(target, changes, now=plan.started_at, journal=journal)

    def _replayed(self, files: Sequence[Touched]) -> bool:
        """Write what is missing of ``files``; False where a file is neither old nor new."""
        if not files:
            return False
        states = {each.path: self._root.read(each.path) for each in files}
        for each in files:
            state = states[each.path]
            if (state.data if state else None) not in (each.before, each.after):
                return False
        for each in files:
            state = states[each.path]
            if each.after is not None and (state is None or state.data != each.after):
                try:
                    self._root.replace(each.path, each.after, expect=state, make_folders=True)
                except Changed:
                    return False
        return True

    def _refresh(self, plan: Plan, absorbed: Absorbed) -> tuple[Refreshed, ...]:
        if not absorbed.changed:
            return ()
        scope = next(
            each.scope
            for each in plan.changes
            if self._store.canonical(each.scope).text == absorbed.scope
        )
        target = self._store.canonical(scope)

        def is_wanted() -> bool:
            return self.journal.plan(plan.thread) is not None  # else it is said at the pass's end

        with self._store.lock(target):
            record = self.journal.touched(plan.pass_id, target) if is_wanted() else None
            if record is not None:  # what an interrupted pass had written or was about to
                self._replayed([each for each in record.files if _is_summary(each.path)])
        return self._summariser.refresh(
            target,
            journal=lambda file: self.journal.save_touched(plan.pass_id, target, [file]),
            now=plan.started_at,
            is_wanted=is_wanted,
        )

    def _debugging(self, thread: Thread, pass_id: str, *, keep: bool) -> None:
        if not isinstance(self._extractor, ModelExtractor):
            return
        count = 0

        def save(text: str) -> None:
            nonlocal count
            count += 1
            self.journal.save_debug(thread, pass_id, count, text)

        self._extractor.debug = save if keep else None


def undo_pass(
    root: Root, store: Store, pass_id: str, synced: Callable[[Sequence[str]], None]
) -> tuple[str, ...]:
    """Put back, byte for byte, every file that a pass changed; the files that were.

    Scope by scope: where somebody changed a file since, or purged something, that scope stays as it
    is and ``ConflictError`` names it at the end.
    """
    journal = Journal(root)
    with root.lock(LOCK):
        record = journal.find_pass(pass_id)
        if record is None:
            raise NotFoundError(
                f"there is no pass {pass_id!r} to undo", hint="h2ams dream status lists them"
            )
        if record.undone:
            return ()
        done: list[str] = []
        records = journal.undo_records(pass_id)
        known = {each.scope.text for each in records}
        held_back = [f"{name} (purged)" for name in record.scopes if name not in known]
        for each in records:
            with store.lock(each.scope):
                written = _put_back(root, each.files)
            if written is None:
                held_back.append(each.scope.text)
            else:
                done += written
        synced(done)
        if held_back:
            raise ConflictError(
                f"changed since pass {pass_id}, not undone: {', '.join(held_back)}",
                hint="undo later passes first; what was purged stays gone",
            )
        journal.drop_undo(pass_id)
        journal.save_pass(replace(record, undone=True))
    return tuple(done)


def _put_back(root: Root, files: Sequence[Touched]) -> list[str] | None:
    """Restore the last written file first; None where one is not what the pass left."""
    states = {each.path: root.read(each.path) for each in files}
    for each in files:
        state = states[each.path]
        if (state.data if state else None) not in (each.before, each.after):
            return None
    done = []
    for each in reversed(files):
        state = states[each.path]
        if (state.data if state else None) == each.before:
            continue
        if each.before is not None:
            root.replace(each.path, each.before, expect=state, make_folders=True)
        elif state is not None:
            root.remove(each.path, expect=state)
        done.append(each.path)
    return done


def _silent(done: int, total: int, what: str) -> None:
    """No progress is shown."""


def _is_summary(path: str) -> bool:
    return path.rpartition("/")[2].startswith("summary.")


def _file_change(touched: Touched) -> FileChange:
    return FileChange(touched.path, touched.before, touched.after or b"")


def _pass_id(thread: Thread, mark: Watermark, new: Sequence[SourceMessage], started_at: str) -> str:
    """Its time, and a digest of what it reads: two passes never share one."""
    key = "\0".join((thread.key, repr(mark), *(each.id for each in new)))
    moment = started_at.replace("-", "").replace(":", "")
    return f"{moment}-{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _record(plan: Plan, report: PassReport, ended_at: str) -> PassRecord:
    counts = dict(plan.counts)
    for name in ("added", "updated", "merged", "archived"):
        counts[name] = sum(len(getattr(each, name)) for each in report.scopes)
    counts["summaries"] = len(wrote(report.summaries))
    return PassRecord(
        plan.pass_id,
        plan.thread.scope.text,
        plan.thread.name,
        plan.started_at,
        ended_at,
        report.extractor,
        tuple(each.scope for each in report.scopes if each.changed),
        counts,
        dict(sorted(Counter(each.code for each in report.refusals).items())),
    )
