"""One compression transition: measure, ask, judge, publish in one projection.

Strategy: nothing is locked while the compressor works. What it gives is published only onto the
very prefix that was submitted (by SHA-256); what was appended meanwhile stays exact behind it.
Every other end leaves the stack byte for byte as it was, and only the record of attempts changes.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from h2ams.errors import ConflictError, QuotaExceeded
from h2ams.settings import Settings
from h2ams.stacks import canonical, compress, plan
from h2ams.stacks.cold import ColdCopies, ColdName
from h2ams.stacks.compress import (
    AttemptRecord,
    Compressed,
    Compressor,
    CompressRequest,
    CompressResult,
    Judged,
    Outcome,
    TransportFailed,
)
from h2ams.stacks.exchange import Attempt, Names, Stack, State, Summary
from h2ams.stacks.workflow_store import WorkflowStore

MOST_TRIES = 2  # unsuccessful outcomes on one canonical text before calls stop
MOST_CONFLICTS = 1_000  # of one projection; each means that another writer got on

_log = logging.getLogger("h2ams.stacks")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a workflow takes from outside: clock, chance, and where telemetry goes."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    new_call_id: Callable[[], str] = lambda: secrets.token_hex(16)
    timer: Callable[[], float] = time.monotonic
    telemetry: Callable[[AttemptRecord], None] | None = None

    def now(self) -> str:
        """The time as it is stored."""
        return self.clock().astimezone(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Target:
    """The stack that is to be compressed: its keys, its request kind, its threshold."""

    names: Names
    kind: str
    threshold_chars: int


def project(store: WorkflowStore, planned: Callable[[], plan.Projection]) -> plan.Projection:
    """Plan and project; plan again where another writer was faster. What was projected."""
    for _ in range(MOST_CONFLICTS - 1):
        projection = planned()
        try:
            store.project(projection.changes, expect=projection.expect)
        except ConflictError:
            continue
        return projection
    projection = planned()
    store.project(projection.changes, expect=projection.expect)
    return projection


def read_stack(store: WorkflowStore, names: Names) -> Stack:
    """The whole stack, of one instant."""
    return Stack.of(names, store.items(names.all))


class Transitions:
    """Runs transitions of one workflow."""

    def __init__(
        self,
        store: WorkflowStore,
        compressor: Compressor | None,
        settings: Settings,
        surroundings: Surroundings,
        cold: ColdCopies | None,
    ) -> None:
        self._store = store
        self._compressor = compressor
        self._settings = settings
        self._outside = surroundings
        self._cold = cold
        # Attempts that a full store had no room for: better remembered here than not at all.
        self._unrecorded: dict[str, Attempt] = {}

    def run(self, target: Target, *, forced: bool) -> Outcome:
        """Compress the stack if it is due or ``forced``; what came of it."""
        text = self._store.get(target.names.state)
        state = plan.read_state(text)
        if not state.exchanges or not (forced or state.chars >= target.threshold_chars):
            return Outcome("below-threshold", state.chars, state.chars)
        stack = read_stack(self._store, target.names)
        if stack.state is None or not stack.chunks:  # gone meanwhile
            return Outcome("below-threshold", 0, 0)
        submitted = canonical.stack_text(stack)
        attempt = self.attempt_on(stack, canonical.sha256_of(submitted))
        if attempt.tries >= MOST_TRIES and not forced:
            return Outcome("exhausted", len(submitted), len(submitted), reason=attempt.outcome)
        if self._compressor is None:  # no attempt: one that is there later is asked at once
            return Outcome("failed", len(submitted), len(submitted), reason="no-compressor")
        call_id = attempt.call_id or self._outside.new_call_id()
        request = CompressRequest(target.kind, submitted, call_id)
        started = self._outside.timer()
        result = _called(self._compressor, request)
        duration_ms = round((self._outside.timer() - started) * 1000, 3)
        outcome = self._settle(stack, request, result, attempt)
        self._tell(request, outcome, duration_ms, forced)
        return outcome

    def attempt_on(self, stack: Stack, sha256: str) -> Attempt:
        """What is remembered of attempts on the canonical text with that SHA-256."""
        stored = None if stack.state is None else stack.state.attempt
        for known in (self._unrecorded.get(stack.names.prefix), stored):
            if known is not None and known.sha256 == sha256:
                return known
        return Attempt(sha256)

    def _settle(
        self, stack: Stack, request: CompressRequest, result: CompressResult, attempt: Attempt
    ) -> Outcome:
        """Publish or leave alone; remember what has to be remembered."""
        before = len(request.canonical_text)
        judged = self._judged(stack, request, result)
        if isinstance(judged, Compressed):
            published = self._publish(stack, judged)
            if isinstance(published, int):
                return Outcome(
                    "compressed", before, published, judged.call_id, judged.represented_count
                )
            judged = published
        if judged.outcome != "superseded":
            keep = request.call_id if judged.outcome == "failed" else ""
            tries = attempt.tries + 1
            self._remember(stack, Attempt(attempt.sha256, tries, judged.outcome, keep))
        count = result.represented_count if isinstance(result, Compressed) else 0
        return Outcome(judged.outcome, before, before, request.call_id, count, reason=judged.reason)

    def _judged(
        self, stack: Stack, request: CompressRequest, result: CompressResult
    ) -> Compressed | Judged:
        first = 0 if stack.summary is None else canonical.summary_chars(stack.summary)
        lengths = [first, *map(canonical.exchange_chars, stack.exchanges)]
        new = 0
        if isinstance(result, Compressed):
            if not _encodable(result.text):
                return Judged("failed", "bad-reply")
            new = canonical.part_chars("summary", len(result.text))
        most = self._settings.stack_summary_max_chars
        return compress.judge(result, request, lengths, new, most_chars=most)

    def _publish(self, submitted: Stack, result: Compressed) -> int | Judged:
        """Canonical length after the one projection, or why there was none."""
        count = result.represented_count
        sha256 = plan.prefix_sha256(submitted, count)
        ledger = self._ledger(submitted, count)
        stack = submitted
        for _ in range(MOST_CONFLICTS):
            if len(stack.exchanges) < count or plan.prefix_sha256(stack, count) != sha256:
                return self._without_cold(stack, result.call_id, Judged("superseded"))
            projection = plan.publish(stack, self._summary(stack, result, sha256, ledger))
            # After any other error it is not known whether it was written: the copy stays, and an
            # opening sorts it out.
            self._keep_cold(stack, result)
            try:
                self._store.project(projection.changes, expect=projection.expect)
            except ConflictError:
                stack = read_stack(self._store, stack.names)
                continue
            except QuotaExceeded:
                return self._without_cold(stack, result.call_id, Judged("quota-exceeded"))
            self._unrecorded.pop(stack.names.prefix, None)
            return State.of(projection.changes[stack.names.state] or "").chars
        return self._without_cold(stack, result.call_id, Judged("superseded"))

    def _summary(
        self, stack: Stack, result: Compressed, sha256: str, ledger: tuple[str, ...]
    ) -> Summary:
        count = result.represented_count
        represented = stack.exchanges[:count]
        covered = 0 if stack.summary is None else stack.summary.covers
        return Summary(
            text=result.text,
            call_id=result.call_id,
            sha256=sha256,
            exchanges=count,
            chars=canonical.chars_of(stack.summary, represented),
            covers=covered + count,
            at=self._outside.now(),
            ledger=ledger,
        )

    def _ledger(self, stack: Stack, count: int) -> tuple[str, ...]:
        """What must not be lost of the prefix, with what was kept of the one before it."""
        most_chars = self._settings.stack_ledger_chars
        if not most_chars:
            return ()
        from h2ams.text.ledger import Ledger, harvest, merge  # late: appends do without

        texts = [text for each in stack.exchanges[:count] for text in (each.user, each.assistant)]
        found = harvest(texts, most_chars=most_chars)
        if stack.summary is not None:
            found = merge(Ledger(stack.summary.ledger), found, most_chars=most_chars)
        return found.entries

    def _keep_cold(self, stack: Stack, result: Compressed) -> None:
        if self._cold is not None:
            previous = "" if stack.summary is None else stack.summary.call_id
            name = ColdName(stack.names.prefix, result.call_id, previous)
            text = plan.cold_text(stack, result.represented_count, result.call_id)
            self._cold.put(name, text)

    def _without_cold(self, stack: Stack, call_id: str, judged: Judged) -> Judged:
        """Nothing was published under ``call_id`` here: its copy goes, unless it is needed.

        Another worker may have had the same call, after a failed transport, and published it.
        """
        if self._cold is not None:
            text = self._store.get(stack.names.summary)
            needed = {each.previous for each in self._cold.names(stack.names.prefix)}
            if text is not None:
                needed.add(Summary.of(text).call_id)
            if call_id not in needed:
                self._cold.delete(stack.names.prefix, call_id)
        return judged

    def _remember(self, stack: Stack, attempt: Attempt) -> None:
        """Keep ``attempt`` durably, while the stack is still the one it was about."""
        assert stack.state is not None
        head = stack.state.head
        for _ in range(MOST_CONFLICTS):
            text = self._store.get(stack.names.state)
            if text is None or State.of(text).head != head:
                return
            projection = plan.record_attempt(stack.names, text, attempt)
            try:
                self._store.project(projection.changes, expect=projection.expect)
            except ConflictError:
                continue
            except QuotaExceeded:
                self._unrecorded[stack.names.prefix] = attempt
                return
            self._unrecorded.pop(stack.names.prefix, None)
            return

    def _tell(
        self, request: CompressRequest, outcome: Outcome, duration_ms: float, forced: bool
    ) -> None:
        record = AttemptRecord(
            request.call_id,
            request.kind,
            len(request.canonical_text),
            outcome.represented,
            outcome.outcome,
            outcome.reason,
            duration_ms,
            forced,
        )
        _log.info("compression attempt %s", record.fields())
        if self._outside.telemetry is not None:
            self._outside.telemetry(record)


def _called(compressor: Compressor, request: CompressRequest) -> CompressResult:
    try:
        result: object = compressor.compress(request)
    except Exception:  # noqa: BLE001 - a host's transport must not stop the game
        # Its message may quote the text: it goes nowhere.
        return TransportFailed("callable-raised", request.call_id)
    if isinstance(result, CompressResult):
        return result
    return TransportFailed("bad-reply", request.call_id)


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
