"""``memory.dreams``: passes, their undo, and summaries, for hosts and surfaces. The owner's.

Wires Dream to one open folder: existing scopes from the index, written files back into it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from h2ams import tokens
from h2ams.dream import collect
from h2ams.dream.dreaming import Dream, PassReport, Progress, undo_pass
from h2ams.dream.journal import Journal
from h2ams.dream.model_extractor import ModelExtractor
from h2ams.dream.records import PassRecord, Thread
from h2ams.dream.rules import RulesExtractor
from h2ams.dream.slicing import unread
from h2ams.dream.summarise import Refreshed, Summariser, wrote
from h2ams.dream.triggers import Due, due
from h2ams.errors import NotFoundError, UsageError
from h2ams.index.read import Reader
from h2ams.memory.extraction import Extractor, SourceMessage
from h2ams.memory.merge import unified_diff
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.values import Problem, parse_time

if TYPE_CHECKING:
    from h2ams.files import Root
    from h2ams.index.guard import Guard
    from h2ams.index.schema import Index
    from h2ams.memory.store import Store
    from h2ams.models.request import Model
    from h2ams.settings import Settings
    from h2ams.tokens import TokenCounter
    from h2ams.upkeep.audit import AuditReport

Messages = Iterable[Mapping[str, object] | SourceMessage] | str


@dataclass(frozen=True, slots=True)
class ThreadStatus:
    """One thread: up to where it is done, and what is left over."""

    scope: str
    name: str
    last: str | None
    at: str | None
    ended_at: str
    pending_count: int
    interrupted: bool


@dataclass(frozen=True, slots=True)
class DreamStatus:
    """All threads that were read, and the passes on record, the oldest first."""

    threads: tuple[ThreadStatus, ...]
    passes: tuple[PassRecord, ...]


@dataclass(frozen=True, slots=True)
class PassChange:
    """What a pass did to one file of a scope, as a unified diff."""

    scope: str
    path: str
    diff: str


@dataclass(frozen=True, slots=True)
class DreamRun:
    """A pass and what its input was like: problems name lines, never their text."""

    report: PassReport
    problems: tuple[Problem, ...] = ()
    left_out_count: int = 0


class Dreams:
    """Durable maintenance of one folder. ``model`` gives the configured model, None without one."""

    def __init__(
        self,
        root: Root,
        store: Store,
        index: Index,
        guard: Guard,
        settings: Settings,
        *,
        counter: Callable[[], TokenCounter],
        clock: Callable[[], datetime],
        model: Callable[[], Model | None],
        synced: Callable[[Sequence[str]], None],
    ) -> None:
        self._root = root
        self._store = store
        self._index = index
        self._guard = guard
        self._settings = settings
        self._counter = counter
        self._clock = clock
        self._model = model
        self._synced = synced
        self._estimate = tokens.counter(tokens.ESTIMATE)

    def run(
        self,
        scope: str,
        messages: Messages,
        *,
        thread: str = "",
        by_hand: bool = True,
        dry_run: bool = False,
        keep_debug: bool = False,
        model: Model | Literal["rules"] | None = None,
        progress: Progress | None = None,
    ) -> DreamRun:
        """One pass over what is new in ``messages`` of the session or chat ``scope``.

        ``messages`` is the whole thread in its order: mappings as hosts have them, or JSON lines.
        ``model`` None is the configured one, or the built-in rules where there is none.
        """
        found = self._collected(messages)
        chosen = self._model() if model is None else None if model == "rules" else model
        report = self._dream(chosen).run(
            _thread(scope, thread),
            found.messages,
            by_hand=by_hand,
            dry_run=dry_run,
            keep_debug=keep_debug,
            progress=progress,
        )
        return DreamRun(report, found.problems, found.left_out_count)

    def due(
        self, scope: str, messages: Messages, *, thread: str = "", at_start: bool = False
    ) -> Due:
        """Whether a pass over the thread is due, for a host that asks after its turns."""
        of = _thread(scope, thread)
        journal = Journal(self._root)
        known = {each.key: ended_at for each, _, ended_at in journal.marks()}
        mark = journal.mark(of)
        new = self._collected(messages).messages
        if mark is not None:
            new = unread(new, mark).new
        return due(
            new_count=len(new),
            new_user_count=sum(each.role == "user" for each in new),
            last_pass=_moment(known.get(of.key)),
            now=self._clock(),
            settings=self._settings,
            at_start=at_start,
        )

    def status(self) -> DreamStatus:
        """What has been read so far, and what the passes did."""
        journal = Journal(self._root)
        threads = [
            ThreadStatus(
                thread.scope.text,
                thread.name,
                mark.last,
                mark.at,
                ended_at,
                sum(len(ids) for ids, _ in mark.pending),
                journal.plan(thread) is not None,
            )
            for thread, mark, ended_at in journal.marks()
        ]
        return DreamStatus(tuple(threads), journal.passes())

    def changes(self, pass_id: str) -> tuple[PassRecord, tuple[PassChange, ...]]:
        """A pass and what it changed, by scope; no change where it was undone or purged since.

        ``NotFoundError`` where no such pass is on record.
        """
        journal = Journal(self._root)
        record = journal.find_pass(pass_id)
        if record is None:
            raise NotFoundError(f"there is no pass {pass_id}", hint="h2ams dream status lists them")
        found = tuple(
            PassChange(each.scope.text, file.path, unified_diff(file.before, file.after, file.path))
            for each in journal.undo_records(pass_id)
            for file in each.files
        )
        return record, found

    def undo(self, pass_id: str) -> tuple[str, ...]:
        """Put back every file that a pass changed, byte for byte; the files that were.

        ``NotFoundError``; ``ConflictError`` names scopes that somebody has changed since.
        """
        return undo_pass(self._root, self._store, pass_id, self._synced)

    def refresh(
        self,
        scope: str,
        *,
        force: bool = False,
        dry_run: bool = False,
        model: Model | Literal["rules"] | None = None,
    ) -> tuple[Refreshed, ...]:
        """Bring the summaries of ``scope`` up to date; hand-edited ones only with ``force``."""
        chosen = self._model() if model is None else None if model == "rules" else model
        target = parse_scope(scope)
        done = self._summariser(chosen).refresh(target, force=force, dry_run=dry_run)
        if not dry_run:
            self._synced(wrote(done))
        return done

    def summaries(self, scope: str) -> tuple[Refreshed, ...]:
        """The summaries of ``scope`` with their state: fresh, stale or hand-edited."""
        return self._summariser(None).state(parse_scope(scope))

    def audit(
        self,
        scopes: Iterable[str] = (),
        *,
        fix: bool = False,
        dry_run: bool = False,
        messages: Collection[str] | None = None,
        progress: Progress | None = None,
    ) -> AuditReport:
        """What is doubtful in ``scopes`` (default: all); ``fix`` unites duplicates, undoably.

        ``messages`` are the ids of all messages that there are, where the host knows them.
        """
        from h2ams.active.registry import Registry
        from h2ams.upkeep.audit import Auditor

        auditor = Auditor(
            self._root,
            self._store,
            self._settings,
            self._summariser(None),
            used=Registry(self._root).used,
            clock=self._clock,
            synced=self._synced,
            messages=messages,
        )
        named = tuple(parse_scope(each) for each in scopes) or self.scopes()
        return auditor.audit(named, fix=fix, dry_run=dry_run, progress=progress)

    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that there are."""
        with self._index.lock:
            gate, _ = self._guard.fresh(None)
            with self._index.reading() as connection:
                return Reader(connection, gate).scopes()

    def _collected(self, messages: Messages) -> collect.Collected:
        if isinstance(messages, str):
            return collect.from_json_lines(messages, self._settings)
        return collect.collect(messages, self._settings)

    def _summariser(self, model: Model | None) -> Summariser:
        return Summariser(self._root, self._store, self._settings, self._counter(), model)

    def _dream(self, model: Model | None) -> Dream:
        extractor: Extractor = RulesExtractor()
        if model is not None:
            extractor = ModelExtractor(model, answer_tokens=self._settings.dream_answer_tokens)
        return Dream(
            self._root,
            self._store,
            self._settings,
            extractor=extractor,
            summariser=self._summariser(model),
            estimate=self._estimate,
            clock=self._clock,
            existing=self.scopes,
            synced=self._synced,
        )


def _thread(scope: str, name: str) -> Thread:
    found = parse_scope(scope)
    if found.family not in ("sessions", "chat") or found.member:
        raise UsageError(
            f"{found.text} has no messages of its own", hint="name a session or a chat: sessions/ID"
        )
    return Thread(found, name)


def _moment(text: str | None) -> datetime | None:
    iso = parse_time(text).iso
    return None if iso is None else datetime.fromisoformat(iso)
