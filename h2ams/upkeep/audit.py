"""What is doubtful in a memory folder: counted, placed, and mended where nothing is lost by it.

Reads the files, not the index, which masks secrets. The plan is a list of changes as Dream makes
them: ``fix`` applies it as a pass, with an undo record, so ``dream undo`` takes it back. What needs
a judgement (contradictions, secrets, echoes) is told with file and line and left to a person.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from h2ams.dream.journal import Journal
from h2ams.dream.records import PassRecord, Thread, Touched
from h2ams.errors import H2amsError
from h2ams.memory.absorb import Absorbed, FileChange, write_changes
from h2ams.memory.layout import UNFILED, Role, place_of, role
from h2ams.memory.scope import Scope
from h2ams.memory.summary import parse_summary
from h2ams.memory.validation import Change
from h2ams.memory.values import format_time
from h2ams.upkeep import audit_rules
from h2ams.upkeep.audit_rules import Code, Finding, Placed

if TYPE_CHECKING:
    from h2ams.dream.summarise import Summariser
    from h2ams.files import Root
    from h2ams.memory.store import Store
    from h2ams.settings import Settings

UNUSED_DAYS = 90  # docs/dream.md, "Audit": younger segments may still be waiting for their question
LOCK = "dream"
_ORDER: tuple[Code, ...] = (
    "secret",
    "instruction",
    "echo",
    "contradiction",
    "exact-duplicate",
    "near-duplicate",
    "broken-provenance",
    "stale-summary",
    "over-budget",
    "orphan-scope",
    "never-recalled",
)

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``findings`` by weight, then place; ``counts`` per code; ``diff`` of what the plan changes.

    ``pass_id`` names the pass that applied the plan; ``failures`` scopes that could not be mended.
    """

    segment_count: int
    scope_count: int
    findings: tuple[Finding, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)
    plan: tuple[Change, ...] = ()
    diff: str = ""
    pass_id: str = ""
    failures: tuple[str, ...] = ()


class Auditor:
    """Audits one root. ``used`` gives the addresses that active sets know; ``synced`` as in Dream.

    ``messages``, where it is given, are the ids of all messages that there are: a source that is
    not among them is broken provenance.
    """

    def __init__(
        self,
        root: Root,
        store: Store,
        settings: Settings,
        summariser: Summariser,
        *,
        used: Callable[[], Collection[str]],
        clock: Callable[[], datetime],
        synced: Callable[[Sequence[str]], None],
        messages: Collection[str] | None = None,
    ) -> None:
        self._root = root
        self._store = store
        self._settings = settings
        self._summariser = summariser
        self._used = used
        self._clock = clock
        self._synced = synced
        self._messages = messages

    def audit(
        self,
        scopes: Sequence[Scope],
        *,
        fix: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> AuditReport:
        """Look at ``scopes``. ``fix`` unites duplicates, unless ``dry_run``: then its diff only."""
        tell = progress or _silent
        placed: list[Placed] = []
        findings: list[Finding] = []
        for at, scope in enumerate(scopes):
            tell(at, len(scopes), "reading")
            of_scope = self._placed(scope)
            placed += of_scope
            findings += self._of_scope(scope, of_scope, scopes)
        tell(len(scopes), len(scopes), "comparing")
        now = self._clock()
        found, plan = audit_rules.duplicates(placed, format_time(now))
        findings += found
        known = {(each.address, each.other) for each in findings}
        for each in audit_rules.contradictions(placed):
            if not {(each.address, each.other), (each.other, each.address)} & known:
                findings.append(each)
        findings += audit_rules.texts(placed)
        before = (now - timedelta(days=UNUSED_DAYS)).date().isoformat()
        findings += audit_rules.never_recalled(placed, self._used(), before)
        findings.sort(key=lambda f: (_ORDER.index(f.code), f.path, f.line, f.address, f.other))
        report = AuditReport(
            len(placed),
            len({each.scope for each in placed}),
            tuple(findings),
            dict(Counter(each.code for each in findings)),
            plan,
        )
        return self._mended(report, dry_run=dry_run) if fix and plan else report

    # -- looking ---------------------------------------------------------------------------------

    def _placed(self, scope: Scope) -> list[Placed]:
        found = []
        for held in self._store.union(scope).held:
            entry, document = held.entry, held.document
            complaints = {
                problem.message
                for problem in document.problems
                if problem.code == "source-without-id"
                and entry.line <= problem.line <= entry.last_line
            }
            missing = [
                each
                for each in entry.segment.source_messages
                if self._messages is not None and each not in self._messages
            ]
            if missing:
                complaints.add(f"cites messages that are gone: {', '.join(missing[:5])}")
            found.append(
                Placed(
                    scope.text,
                    entry.address_id,
                    entry.segment,
                    held.path,
                    entry.line,
                    bool(entry.read_only or document.read_only),
                    "; ".join(sorted(complaints)),
                )
            )
        return found

    def _of_scope(
        self, scope: Scope, placed: Sequence[Placed], scopes: Sequence[Scope]
    ) -> list[Finding]:
        findings = list(self._summaries(scope, placed))
        most = self._settings.dream_segments_count
        if len(placed) > most:
            path = placed[0].path
            message = f"{len(placed)} segments, Dream keeps {most}"
            findings.append(Finding("over-budget", scope.text, scope.text, path, 1, message))
        why = self._orphan(scope, placed, scopes)
        if why:
            folder = next(iter(self._store.folders(scope)), scope.text)
            findings.append(Finding("orphan-scope", scope.text, scope.text, folder, 0, why))
        return findings

    def _summaries(self, scope: Scope, placed: Sequence[Placed]) -> Iterable[Finding]:
        newest = max((each.segment.updated_at or "" for each in placed), default="")
        for each in self._summariser.state(scope):
            address = f"{scope.text}#summary"
            if each.tokens > self._settings.summary_tokens:
                message = f"{each.tokens} tokens, the limit is {self._settings.summary_tokens}"
                yield Finding("over-budget", scope.text, address, each.path, 1, message)
            if each.status == "stale":
                message = "made from other segments than there are now"
                yield Finding("stale-summary", scope.text, address, each.path, 1, message)
            elif each.status == "hand-edited":
                written = self._written_at(each.path)
                if written and newest and written < newest:
                    message = f"written {written[:10]}, the newest segment is of {newest[:10]}"
                    yield Finding("stale-summary", scope.text, address, each.path, 1, message)

    def _written_at(self, path: str) -> str:
        state = self._root.read(path)
        if state is None:
            return ""
        return parse_summary(state.data, settings=self._settings).updated_at or ""

    def _orphan(self, scope: Scope, placed: Sequence[Placed], scopes: Sequence[Scope]) -> str:
        """Why nobody will miss this scope; "" where somebody may."""
        if scope == UNFILED:
            return ""  # no folder of its own: whatever lies outside of the families
        roles = self._roles(scope)
        if not placed and Role.NOTE not in roles and Role.CONTENT not in roles:
            kept = Role.SUMMARY in roles or Role.ARCHIVE in roles
            is_owner = (
                any(other.text.startswith(f"{scope.text}/") for other in scopes)
                or Role.SESSION_CARD in roles
            )
            if kept:
                return "a summary or an archive without a single segment"
            return "" if is_owner else "an empty folder"
        if scope.session is not None and scope.member:
            owner = next((s for s in scopes if s.text == f"sessions/{scope.session}"), None)
            if owner is None or not self._roles(owner):
                return f"the session {scope.session} has no card, memory or summary of its own"
        return ""

    def _roles(self, scope: Scope) -> frozenset[Role]:
        found = set()
        for folder in self._store.folders(scope):
            place = place_of(folder)
            if place is not None:
                names = os.listdir(self._root.absolute(folder))
                found |= {role(place, name)[0] for name in names}
        return frozenset(found - {Role.IGNORED})

    # -- mending ---------------------------------------------------------------------------------

    def _mended(self, report: AuditReport, *, dry_run: bool) -> AuditReport:
        """Apply the plan as a pass that can be undone, or give its diff."""
        if dry_run:
            done = write_changes(
                lambda scope, changes: self._store.absorb(scope, changes, dry_run=True),
                report.plan,
            )
            return self._with(report, done.done, done.failed)
        with self._root.lock(LOCK):
            journal = Journal(self._root)
            started_at = format_time(self._clock())
            moment = started_at.replace("-", "").replace(":", "")
            number = len([p for p in journal.passes() if p.pass_id.startswith(f"{moment}-audit")])
            pass_id = f"{moment}-audit{number}"

            def absorb(scope: Scope, changes: Sequence[Change]) -> Absorbed:
                target = self._store.canonical(scope)

                def keep(files: tuple[FileChange, ...]) -> None:
                    touched = [Touched(each.path, each.before, each.after) for each in files]
                    journal.save_touched(pass_id, target, touched)

                return self._store.absorb(target, changes, now=started_at, journal=keep)

            done = write_changes(absorb, report.plan)
            journal.save_pass(
                PassRecord(
                    pass_id,
                    Thread(report.plan[0].scope).scope.text,
                    "audit",
                    started_at,
                    format_time(self._clock()),
                    "audit",
                    tuple(each.scope for each in done.done if each.changed),
                    {"archived": sum(len(each.archived) for each in done.done)},
                )
            )
        self._synced([path for each in done.done for path in each.paths])
        return replace(self._with(report, done.done, done.failed), pass_id=pass_id)

    @staticmethod
    def _with(
        report: AuditReport,
        done: Sequence[Absorbed],
        failed: Sequence[tuple[Scope, H2amsError]],
    ) -> AuditReport:
        failures = tuple(f"{scope}: {error.message}" for scope, error in failed)
        return replace(report, diff="".join(each.diff for each in done), failures=failures)


def _silent(done: int, total: int, what: str) -> None:
    """No progress is shown."""
