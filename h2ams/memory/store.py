"""Adding, changing and forgetting segments in the Markdown files (Truth).

Strategy: an edit is planned from the bytes that are on disk now and touches one entry's span; it is
applied under the scope's lock, or planned again where the file changed. Text of a caller that
cannot be written is kept beside the files, and so is what is forgotten, until it is purged.

A scope may lie in several folders (historical layouts, redirected topics): reads see their union,
an edit of an existing segment happens where it stands, new segments go to the canonical layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import NoReturn

from h2ams.errors import ConflictError, ReadOnlyError
from h2ams.files import Root
from h2ams.memory import folders as on_disk
from h2ams.memory import segment as segments
from h2ams.memory.absorb import Absorbed, Absorbing, Journal
from h2ams.memory.consolidation import Held
from h2ams.memory.draft import Draft, check_segment, draft
from h2ams.memory.forget import Forgetting
from h2ams.memory.forgotten import Keep, UndoRecord
from h2ams.memory.legacy import (
    DREAM_STATE_FILE,
    DreamState,
    Followed,
    Union,
    parse_dream_state,
    union,
)
from h2ams.memory.merge import CONFLICT_TAG, merge_segment
from h2ams.memory.presence import Presence
from h2ams.memory.scope import Scope
from h2ams.memory.scope_files import (
    ARCHIVE_FILE,
    MEMORY_FILE,
    Plan,
    Read,
    ScopeFiles,
    missing,
    result_of,
)
from h2ams.memory.scope_files import WriteResult as WriteResult
from h2ams.memory.segment import Document, Entry, Segment
from h2ams.memory.summaries import Summaries, SummaryJournal
from h2ams.memory.summary import Summary
from h2ams.memory.validation import Change
from h2ams.memory.values import Problem, format_time
from h2ams.settings import Settings
from h2ams.tokens import TokenCounter


class Store:
    """The segments and summaries of one root. Safe to call from several threads.

    ``clock`` gives the aware time of a write. ``counter`` bounds summaries; without one the
    encoding of the settings is loaded when the first summary is written. ``settle`` finishes
    operations on scopes that died; it is called before a write.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        *,
        clock: Callable[[], datetime],
        counter: TokenCounter | None = None,
        settle: Callable[[], None] = lambda: None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._clock = clock
        self._files = ScopeFiles(root, settings, settle=settle)
        self._keep = Keep(root)
        self._forgetting = Forgetting(root, settings, self._files, self._keep, clock=clock)
        self._summaries = Summaries(
            root, settings, self._files, self._keep, clock=clock, counter=counter
        )
        self._absorbing = Absorbing(root, settings, self._files, clock=clock)

    @property
    def files(self) -> ScopeFiles:
        """The files of the scopes: for parts that edit many segments at once, or whole files."""
        return self._files

    # Places

    def canonical(self, scope: Scope) -> Scope:
        """The scope that is written to: redirects of a topic followed, else ``scope`` itself."""
        return self._files.canonical(scope)

    def followed(self, scope: Scope) -> Followed:
        """Where redirects lead, with the problems of those that stop."""
        return on_disk.followed(self._root, scope)

    def folders(self, scope: Scope) -> tuple[str, ...]:
        """Existing folders as they are spelled on disk, canonical layout first.

        Those of a redirect's target come before those of the redirected topic itself.
        """
        return tuple(folder for folder, _ in self._files.folders(scope))

    def home(self, scope: Scope) -> str:
        """The folder that new text of ``scope`` goes to, existing or not."""
        return on_disk.home(self._root, self.canonical(scope))

    def check_creatable(self, scope: Scope) -> None:
        """``ScopeError`` where an id differs from an existing one only by case or Unicode form."""
        on_disk.check_creatable(self._root, scope)

    def lock(self, scope: Scope) -> AbstractContextManager[None]:
        """The lock that every write to ``scope`` takes; re-entrant within a thread."""
        return self._files.lock(self.canonical(scope))

    def presence(self, scope: Scope) -> Presence:
        """How ``scope`` stands now, to be checked before what took long is written to it."""
        return Presence.seen(self._root, scope)

    # Reading

    def documents(self, scope: Scope) -> tuple[tuple[str, Document], ...]:
        """Path and parsed ``memory.md`` of every folder that has one."""
        return tuple((read.path, read.document) for read in self._files.reads(scope, MEMORY_FILE))

    def archived(self, scope: Scope) -> tuple[tuple[str, Document], ...]:
        """Path and parsed ``archive.md`` of every folder that has one."""
        return tuple((read.path, read.document) for read in self._files.reads(scope, ARCHIVE_FILE))

    def union(self, scope: Scope) -> Union:
        """The segments of all layouts as one list; the newer of one id in two layouts wins."""
        return union(self.documents(scope))

    def find(self, scope: Scope, id: str) -> tuple[str, Document, int] | None:
        """Path, document and index of the entry addressed by ``id``; None where there is none."""
        for held in self.union(scope).held:
            if held.entry.address_id == id:
                return held.path, held.document, held.index
        return None

    def summary(self, scope: Scope, language: str = "en") -> tuple[str, Summary] | None:
        """Path and text that stands for the scope in a prompt; None where there is none.

        ``content.md`` where it exists; else the summary in ``language``; else the default one.
        English never reads another language. Blank texts and stubs count as missing.
        """
        return self._summaries.read(self.folders(scope), language)

    def dream_state(self, scope: Scope) -> DreamState | None:
        """The historical ``.dream-state`` of a session, the newest of its layouts; never written.

        None where there is none. The engine's own watermark, where it exists, comes before it.
        """
        states = (self._root.read(f"{name}/{DREAM_STATE_FILE}") for name in self.folders(scope))
        read = [parse_dream_state(state.data) for state in states if state is not None]
        return max(read, key=lambda state: state.last_at or "", default=None)

    # Adding

    def add(
        self,
        scope: Scope,
        body: str,
        *,
        kind: str,
        tags: Iterable[str] = (),
        source_messages: Iterable[str] = (),
        expect: str | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> WriteResult:
        """Add a segment at the end of the scope's ``memory.md``; its address is in the result.

        The same body and kind in the scope already: nothing is written and that address is given
        (``created`` False). ``expect`` is the SHA-256 of the whole file, "" for "no file yet".
        ``force`` writes to a file that is not UTF-8 too, its own bytes kept.
        ``UsageError``, ``ScopeError``, ``LimitError``, ``ReadOnlyError``, ``ConflictError``.
        """
        target = self.canonical(scope)
        values = draft(
            self._settings, body=body, kind=kind, tags=tags, source_messages=source_messages
        )
        now = format_time(self._clock())
        made = Segment(
            body=values.body or "",
            scope=target.text,
            kind=kind,
            tags=values.tags or (),
            source_messages=values.source_messages or (),
            created_at=now,
            updated_at=now,
        )
        check_segment(made, None, self._settings)

        def plan() -> Plan[WriteResult]:
            path = f"{on_disk.home(self._root, target)}/{MEMORY_FILE}"
            reads = self._files.reads(target, MEMORY_FILE)
            here = next((read for read in reads if read.path == path), None)
            if expect is not None:
                actual = here.state.sha256 if here else ""
                if expect != actual:
                    self._refuse(path, target, "", made, expect, actual, keep=not dry_run)
            same = _same_text(reads, made)
            if same is not None:
                read, id = same
                return Plan(result_of(read.scope, id, read.path, redacted=values.redacted))
            if not on_disk.existing(self._root, target):
                self.check_creatable(target)
            self._files.check_writable(here, force=force)
            return self._plan_add(target, path, here, reads, made, values, force=force)

        return self._files.run(target, plan, dry_run=dry_run)

    def _plan_add(
        self,
        target: Scope,
        path: str,
        here: Read | None,
        reads: list[Read],
        made: Segment,
        values: Draft,
        *,
        force: bool,
    ) -> Plan[WriteResult]:
        id = self._new_id(target, made, reads)
        document = here.document if here else self._files.parse(b"")
        after = segments.append(
            document, replace(made, id=id), settings=self._settings, force=force
        )
        result = result_of(target, id, path, created=True, changed=True, redacted=values.redacted)
        return self._files.plan(result, path, here.state if here else None, after)

    def _new_id(self, scope: Scope, made: Segment, reads: list[Read]) -> str:
        """An id that no segment of the scope has, retired ones included."""
        taken = {
            id
            for read in (*reads, *self._files.reads(scope, ARCHIVE_FILE))
            for entry in read.document.entries
            for id in (entry.segment.id, entry.address_id)
        }
        return segments.new_id(scope.text, made.kind, made.body, taken)

    # Changing

    def update(
        self,
        scope: Scope,
        id: str,
        *,
        body: str | None = None,
        kind: str | None = None,
        tags: Iterable[str] | None = None,
        source_messages: Iterable[str] | None = None,
        expect: str | None = None,
        base: Segment | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> WriteResult:
        """Change values of one segment where it stands; None leaves a value as it is.

        ``expect`` is the digest of the entry as the caller saw it: another one refuses the write.
        ``base`` is the segment that the caller's values were made from: what changed since is
        merged; where it cannot be, the text on disk stays and the caller's becomes a new segment
        tagged ``conflict``. Nothing different: no byte changes.
        ``NotFoundError``, ``UsageError``, ``LimitError``, ``ReadOnlyError``, ``ConflictError``.
        """
        target = self.canonical(scope)
        values = draft(
            self._settings, body=body, kind=kind, tags=tags, source_messages=source_messages
        )
        seen = base

        def plan() -> Plan[WriteResult]:
            nonlocal seen
            held = self._files.held(scope, id)
            if held is None and seen is None and expect is None:
                raise missing(scope, id)
            actual = held[0].document.entries[held[1]].digest if held else ""
            if held is None or (expect is not None and expect != actual):
                made = _changed(seen or Segment(body="", id=id, scope=target.text), values)
                path = held[0].path if held else scope.text
                self._refuse(path, target, id, made, expect, actual, keep=not dry_run)
            if seen is None:
                seen = held[0].document.entries[held[1]].segment
            self._files.check_writable(held[0], force=force)
            return self._plan_update(target, *held, seen, values, force=force)

        return self._files.run(target, plan, dry_run=dry_run)

    def _plan_update(
        self,
        target: Scope,
        read: Read,
        index: int,
        seen: Segment,
        values: Draft,
        *,
        force: bool,
    ) -> Plan[WriteResult]:
        entry = read.document.entries[index]
        current = entry.segment
        merged = merge_segment(seen, _changed(seen, values), current)
        after, loser_id, now = read.state.data, None, format_time(self._clock())
        if merged.segment != current:
            self._files.check_entry(read, entry, force=force)
            made = _dated(merged.segment, entry, target, now)
            check_segment(made, current, self._settings)
            after = self._replaced(read, index, made, force=force)
        if merged.loser is not None:
            after, loser_id = self._with_loser(target, read, after, merged.loser, now, force=force)
        id = entry.address_id
        problems = () if loser_id is None else (_conflict_problem(read, entry.line, loser_id),)
        result = result_of(
            read.scope,
            id,
            read.path,
            changed=after != read.state.data,
            problems=problems,
            redacted=values.redacted,
            conflict=None if loser_id is None else f"{read.scope}#{loser_id}",
        )
        return self._files.plan(result, read.path, read.state, after)

    def _replaced(self, read: Read, index: int, made: Segment, *, force: bool) -> bytes:
        try:
            return segments.replace(
                read.document, index, made, settings=self._settings, force=force
            )
        except ReadOnlyError as error:
            where = f"{read.path}:{read.document.entries[index].line}"
            raise ReadOnlyError(
                f"{where}: {error.message}", hint=error.hint, path=read.path
            ) from error

    def _with_loser(
        self,
        target: Scope,
        read: Read,
        data: bytes,
        loser: Segment,
        now: str,
        *,
        force: bool,
    ) -> tuple[bytes, str]:
        """The file with the losing text as one more segment, unless it is there already; its id."""
        document = self._files.parse(data)
        for entry in document.entries:
            found = entry.segment
            if (found.body, found.kind) == (loser.body, loser.kind) and CONFLICT_TAG in found.tags:
                return data, entry.address_id
        made = replace(loser, scope=read.scope.text, created_at=now, updated_at=now)
        check_segment(made, None, self._settings)
        id = self._new_id(read.scope, made, self._files.reads(target, MEMORY_FILE))
        made = replace(made, id=id)
        return segments.append(document, made, settings=self._settings, force=force), id

    def _refuse(
        self,
        path: str,
        target: Scope,
        id: str,
        made: Segment,
        expected: str | None,
        actual: str,
        *,
        keep: bool,
    ) -> NoReturn:
        """Raise ``ConflictError`` after the caller's text was put where it is not lost."""
        name = f"{target}#{id}" if id else path
        what = "is gone" if not actual else "is not what it was"
        hint = "read it again and repeat the change"
        if keep:
            made = replace(made, id=id or segments.new_id(target.text, made.kind, made.body, ()))
            kept = self._keep.keep_conflict(target, made)
            hint = f"{hint}; your text is kept in {kept}"
        raise ConflictError(
            f"{name} {what}: nothing was written",
            hint=hint,
            path=path,
            expected=expected,
            actual=actual,
        )

    # Taking in what was extracted

    def absorb(
        self,
        scope: Scope,
        changes: Sequence[Change],
        *,
        now: str | None = None,
        journal: Journal | None = None,
        dry_run: bool = False,
    ) -> Absorbed:
        """Apply validated changes of one scope: merged with what is there, all or nothing.

        ``now`` (ISO) dates what no message dates. ``journal`` gets every file before and after.
        """
        return self._absorbing.absorb(scope, changes, now=now, journal=journal, dry_run=dry_run)

    def held(self, scope: Scope) -> tuple[tuple[Held, ...], tuple[Held, ...]]:
        """The segments of a scope and those of its archive, as ``consolidation`` takes them."""
        return self._absorbing.held(scope)

    # Forgetting

    def remove(
        self,
        scope: Scope,
        id: str,
        *,
        expect: str | None = None,
        dry_run: bool = False,
        purge: bool = False,
        force: bool = False,
    ) -> WriteResult:
        """Take one segment out of every layout that holds it; ``unforget`` brings it back.

        With ``purge`` it is gone for good: from the archives, from undo records and from kept
        conflict copies too. A retired segment (``archive.md``) can be forgotten as well.
        ``NotFoundError``, ``ReadOnlyError``; ``ConflictError`` where ``expect`` (the entry's
        digest) does not hold or somebody changed the segment at this very moment.
        """
        return self._forgetting.remove(
            scope, id, expect=expect, dry_run=dry_run, purge=purge, force=force
        )

    def unforget(self, scope: Scope, id: str) -> WriteResult:
        """Bring a forgotten segment back, byte for byte where the file is still the same.

        ``NotFoundError`` where nothing is kept; ``ConflictError`` where another text has the id.
        """
        return self._forgetting.restore(scope, id)

    def forgotten(self, scope: Scope) -> tuple[UndoRecord, ...]:
        """What ``unforget`` can bring back in this scope, by id."""
        return self._keep.records(self.canonical(scope))

    def purge_forgotten(self, scope: Scope, id: str | None = None) -> int:
        """Remove undo records and conflict copies of one address or the whole scope; how many."""
        target = self.canonical(scope)
        with self._files.lock(target):
            return self._keep.purge(target, id)

    # Summaries

    def write_summary(
        self,
        scope: Scope,
        text: str,
        language: str = "en",
        *,
        basis: str | None = None,
        expect: str | None = None,
        dry_run: bool = False,
        now: str | None = None,
        journal: SummaryJournal | None = None,
    ) -> WriteResult:
        """Replace the scope's summary; other values in front of its text stay.

        ``basis`` is the digest of what it was made from, ``now`` (ISO) its date; ``journal`` gets
        the file before and after.
        ``expect`` is the SHA-256 of the summary file, "" for "no file yet". ``LimitError`` over
        ``summary_tokens``; ``ConflictError`` where ``expect`` fails or somebody saved meanwhile.
        """
        target = self.canonical(scope)
        if not on_disk.existing(self._root, target):
            self.check_creatable(target)
        return self._summaries.write(
            target,
            text,
            language,
            basis=basis,
            expect=expect,
            dry_run=dry_run,
            now=now,
            journal=journal,
        )


def _changed(segment: Segment, values: Draft) -> Segment:
    """``segment`` with the values of a draft that are given."""
    return replace(
        segment,
        body=segment.body if values.body is None else values.body,
        kind=segment.kind if values.kind is None else values.kind,
        tags=segment.tags if values.tags is None else values.tags,
        source_messages=(
            segment.source_messages if values.source_messages is None else values.source_messages
        ),
    )


def _dated(segment: Segment, entry: Entry, target: Scope, now: str) -> Segment:
    """The changed segment with its time; one without an id keeps the address it had."""
    return replace(
        segment,
        id=segment.id or entry.address_id,
        scope=segment.scope if entry.has_header else target.text,
        updated_at=now,
    )


def _same_text(reads: list[Read], made: Segment) -> tuple[Read, str] | None:
    """File and address id of an entry with the same body and kind."""
    for read in reads:
        for entry in read.document.entries:
            if entry.segment.body == made.body and entry.segment.kind == made.kind:
                return read, entry.address_id
    return None


def _conflict_problem(read: Read, line: int, loser_id: str) -> Problem:
    return Problem(
        code="edit-conflict",
        message=f"changed by somebody else meanwhile: your text is {read.scope}#{loser_id}",
        line=line,
        path=read.path,
    )
