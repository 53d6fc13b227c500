"""Compaction: what is done when a window is over its budget. Five steps, then one row.

    1 pre-pass without a model   2 cut: head, tail and open units stay   3 memory flush
    4 summarise the middle, check it   5 breaker   ->  append the summary row

Everything up to the row happens on values; nothing is written of a pass that is given up, but for
its strike. Rows that arrive meanwhile lie behind the boundary and are neither covered nor lost.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from h2ams.errors import H2amsError, ModelError
from h2ams.models.request import Model
from h2ams.text.ledger import Ledger
from h2ams.threads import shapes
from h2ams.threads.cut import Cut, cut
from h2ams.threads.digesting import Digest, Task, clean, digest_of
from h2ams.threads.flush import (
    Flush,
    FlushMessage,
    FlushMode,
    FlushReport,
    FlushRequest,
    Trigger,
    flushed_range,
    unflushed,
)
from h2ams.threads.message import canonical_json
from h2ams.threads.prepass import shrink
from h2ams.threads.prompt import Limits
from h2ams.threads.running_summary import TEMPLATE_VERSION, Flaw, Sections
from h2ams.threads.thread_store import COMPACTION, RESTART, NewSummary, ThreadStore
from h2ams.threads.unit import Entry
from h2ams.threads.view import View, digest, ledger_of, sections_of, summary_tokens

Outcome = Literal[
    "compacted",  # a summary row was added (or another brain's was adopted)
    "prepass",  # the pre-pass alone was enough
    "not-needed",  # within the budget
    "nothing-to-fold",  # everything has to stay
    "breaker-open",  # two passes were no use: not tried again until something changes
    "flush-failed",  # the memory flush is required and failed
    "refused",  # what the model wrote is no summary; reason says why
    "failed",  # the model gave no answer; reason says how
    "already-running",  # another brain compacts this thread
    "superseded",  # a covered row was edited meanwhile, or the thread went elsewhere
    "restarted",
]
NAMESPACE = uuid.UUID("6f6d1f0e-6c3a-5b0e-9a55-2f1f0c1f7a10")
_LEAST_CAP_TOKENS = 48


@dataclass(frozen=True, slots=True)
class Compaction:
    """What came of a pass. Tokens are those of the window, without tools, memory, new message."""

    outcome: Outcome
    before_tokens: int
    after_tokens: int
    reason: str = ""
    summary: str = ""
    boundary: str = ""
    inserted: bool = False
    flush: FlushReport | None = None
    flush_error: str = ""
    abandoned: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """One code for receipts and logs: the outcome, with the reason where there is one."""
        return f"{self.outcome}:{self.reason}" if self.reason else self.outcome

    def to_json(self) -> dict[str, object]:
        """All fields under their names."""
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "before_tokens": self.before_tokens,
            "after_tokens": self.after_tokens,
            "summary": self.summary,
            "boundary": self.boundary,
            "inserted": self.inserted,
            "flush": self.flush.to_json() if self.flush else None,
            "flush_error": self.flush_error,
            "abandoned": list(self.abandoned),
            "invented": list(self.invented),
        }


@dataclass(frozen=True, slots=True)
class Compactor:
    """The parts that a pass needs. ``load`` gives the thread as it is now."""

    store: ThreadStore
    count: Callable[[str], int]
    encoding: str
    now: Callable[[], str]
    load: Callable[[str], View]
    model: Model | None = None
    model_window_tokens: int = 8_000
    flush: Flush | None = None
    flush_mode: FlushMode = "optional"

    @property
    def model_name(self) -> str:
        return self.model.name if self.model is not None else "extractive"

    def run(
        self,
        thread: str,
        limits: Limits,
        *,
        over: Callable[[View], bool],
        trigger: Trigger = "automatic",
        has_new: bool = False,
    ) -> Compaction:
        """One pass over ``thread``, if ``over`` says that its window needs one.

        ``automatic`` heeds the breaker, ``manual`` goes past it, the others also past ``over``.
        """
        with self.store.claim(thread) as ours:
            seen = self.load(thread)
            tokens = seen.window.tokens
            if not ours:
                return Compaction("already-running", tokens, tokens)
            if trigger in ("automatic", "manual") and not over(seen):
                return Compaction("not-needed", tokens, tokens)
            if trigger == "automatic" and not seen.breaker.allows(tokens, self.model_name):
                return Compaction("breaker-open", tokens, tokens)
            done = _Pass(self, seen, limits, trigger, has_new).run(over)
            self._remember(seen, done, limits, trigger)
            return done

    def _remember(self, seen: View, done: Compaction, limits: Limits, trigger: Trigger) -> None:
        """Count the pass, as a row of the thread."""
        saved = done.before_tokens - done.after_tokens
        useful = saved >= done.before_tokens * limits.min_saving and saved > 0
        counts = done.outcome not in ("superseded", "already-running") and trigger == "automatic"
        if (useful and not seen.breaker.strikes) or not (useful or counts):
            return
        after = (
            type(seen.breaker)()
            if useful
            else (seen.breaker.strike(done.after_tokens, self.model_name))
        )
        payload = after.to_json()
        key = f"{seen.info.id}\0breaker\0{seen.version}\0{canonical_json(payload)}"
        id = str(uuid.uuid5(NAMESPACE, key))
        self.store.add_state(seen.info.id, id, "breaker", payload, self.now())

    def restart(self, thread: str, text: str = "") -> Compaction:
        """The same line set on purpose: everything so far is behind a summary of a person's words
        (or none). Durable facts are flushed first, as always."""
        seen = self.load(thread)
        entries = (*seen.window.head, *seen.window.entries)
        tokens = seen.window.tokens
        last = max(entries, key=lambda entry: entry.seq, default=_boundary_of(seen))
        if last is None:
            return Compaction("nothing-to-fold", tokens, tokens)
        work = _Pass(self, seen, Limits(1 << 30, 0), "restart", False)
        failed = work.flush_before(entries, last)
        if failed is not None:
            return failed
        text = clean(text).strip()
        origin = RESTART
        if seen.summary is not None and seen.summary.boundary == last.id:
            if seen.summary.origin == RESTART and seen.summary.payload.get("text", "") == text:
                return work.adopted(seen.summary.id, last, "restarted", inserted=False)
            origin = f"forced:{seen.summary.seq}"
        made = work.row(
            origin, last, 1, entries, (), {"text": text, "sections": None}, Ledger(),
            summary_tokens(text, Ledger(), self.count),
        )  # fmt: skip
        covered = tokens - seen.window.system_tokens
        return work.commit(made, "restarted", summary_after=made.tokens, covered=covered)


@dataclass(slots=True)
class _Pass:
    """One pass over one state of a thread."""

    parts: Compactor
    seen: View
    limits: Limits
    trigger: Trigger
    has_new: bool
    flushed: FlushReport | None = None
    flush_error: str = ""
    abandoned: tuple[str, ...] = ()
    invented: tuple[str, ...] = ()
    freed: int = field(default=0)

    @property
    def tokens(self) -> int:
        return self.seen.window.tokens

    def run(self, over: Callable[[View], bool]) -> Compaction:
        found = cut(self.seen.window, self.limits, has_new=self.has_new)
        self.abandoned = found.abandoned
        shortened = self.prepass(found, over)
        if shortened is not None:
            return shortened
        boundary = found.boundary
        if boundary is None:
            return self.gave_up("nothing-to-fold")
        failed = self.flush_before(found.folded, boundary)
        if failed is not None:
            return failed
        return self.summarise(found, boundary)

    # -- step 1 ----------------------------------------------------------------------------------

    def prepass(self, found: Cut, over: Callable[[View], bool]) -> Compaction | None:
        """Commit the pre-pass if it frees enough; the outcome if that was all that was needed."""
        entries = self.seen.window.entries
        done = shrink(entries, lambda entry: entry.id in found.old, self.parts.count)
        if done.freed_tokens < self.limits.min_reclaim_tokens:
            return None
        replaced = {
            entry.id: {
                "payload": shapes.stored(entry.message),
                "tokens": entry.tokens,
                "of": digest(self.seen.payloads[entry.id]),
            }
            for entry in done.entries
            if entry.id in done.replaced
        }
        payload = {"encoding": self.parts.encoding, "replaced": replaced}
        thread = self.seen.info.id
        id = str(uuid.uuid5(NAMESPACE, f"{thread}\0prepass\0{canonical_json(payload)}"))
        self.parts.store.add_state(thread, id, "prepass", payload, self.parts.now())
        before = self.tokens
        self.freed = done.freed_tokens
        self.seen = self.parts.load(thread)
        if self.trigger == "automatic" and not over(self.seen):
            return Compaction("prepass", before, self.tokens)
        return None

    # -- step 3 ----------------------------------------------------------------------------------

    def flush_before(self, entries: tuple[Entry, ...], boundary: Entry) -> Compaction | None:
        """Flush what no flush has seen; an outcome where the pass may not go on without."""
        parts = self.parts
        if parts.flush is None or parts.flush_mode == "off" or not entries:
            return None
        thread = self.seen.info.id
        new = unflushed(entries, parts.store.states(thread, "flush"))
        if not new:
            return None
        request = FlushRequest(
            thread, self.seen.info.scope, boundary.id, self.trigger, _learnable(new)
        )
        try:
            self.flushed = parts.flush(request) if request.messages else FlushReport()
        except H2amsError as error:
            self.flush_error = error.message
            now = parts.store.info(thread)
            if now is None or now.scope != self.seen.info.scope:
                return self.gave_up("superseded", "moved")  # the next pass flushes it there
            stops = parts.flush_mode == "required"
            return self.gave_up("flush-failed", type(error).__name__) if stops else None
        id = str(uuid.uuid5(NAMESPACE, f"{thread}\0flush\0{boundary.id}\0{new[0].id}"))
        parts.store.add_state(thread, id, "flush", flushed_range(new, self.flushed), parts.now())
        return None

    # -- step 4 ----------------------------------------------------------------------------------

    def summarise(self, found: Cut, boundary: Entry) -> Compaction:
        window = self.seen.window
        original = self._folded_now(found)
        replaced_tokens = sum(entry.tokens for entry in original)
        if window.summary is not None:
            replaced_tokens += window.summary.tokens
        flexible = self.limits.flexible(window.system_tokens)
        cap = min(int(flexible * self.limits.summary_share), replaced_tokens - 1)
        if cap < _LEAST_CAP_TOKENS:
            return self.gave_up("refused", "not-smaller")
        first = 1 if found.covers_start else self._first_seq(original)
        previous = sections_of(self.seen.summary)
        covered = self._covered_digest(original)
        task = Task(
            entries=self._as_said(original),
            previous=previous,
            previous_text=window.summary.text if window.summary else "",
            ledger=ledger_of(self.seen.summary),
            system=window.system,
            cap_tokens=cap,
            prose_tokens=self.limits.summary_tokens,
            ledger_chars=self.limits.ledger_chars,
            key=_uuid(self.seen.info.id, boundary.id, covered, self.parts.model_name),
        )
        made = self._digest(task)
        if isinstance(made, Compaction):
            return made
        self.invented = made.invented
        if made.tokens >= replaced_tokens:
            return self.gave_up("refused", "not-smaller")
        payload: dict[str, object] = {
            "text": made.sections.text, "sections": _sections_json(made.sections),
        }  # fmt: skip
        row = self.row(
            self._origin(boundary), boundary, first, original, found.carried, payload,
            made.ledger, made.tokens,
        )  # fmt: skip
        return self.commit(row, "compacted", made.tokens, replaced_tokens)

    def _folded_now(self, found: Cut) -> tuple[Entry, ...]:
        """The folded rows with what they cost after the pre-pass."""
        now = {entry.id: entry for entry in (*self.seen.window.head, *self.seen.window.entries)}
        return tuple(now.get(entry.id, entry) for entry in found.folded)

    def _as_said(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Rows as they were said: what a pre-pass has left out can still be summarised."""
        return tuple(
            replace(entry, message=shapes.read(self.seen.payloads[entry.id], entry.message.shape))
            for entry in entries
        )

    def _first_seq(self, folded: tuple[Entry, ...]) -> int:
        first = min(entry.seq for entry in folded)
        return min(first, self.seen.summary.first_seq) if self.seen.summary else first

    def _digest(self, task: Task) -> Digest | Compaction:
        parts = self.parts
        try:
            made = digest_of(
                task,
                parts.model,
                lambda text, ledger: summary_tokens(text, ledger, parts.count),
                parts.count,
                parts.model_window_tokens,
            )
        except ModelError as error:
            return self.gave_up("failed", error.failure)
        return self.gave_up("refused", made.code) if isinstance(made, Flaw) else made

    def _origin(self, boundary: Entry) -> str:
        summary = self.seen.summary
        if summary is not None and summary.boundary == boundary.id:
            return f"forced:{summary.seq}"
        return COMPACTION

    def _covered_digest(self, entries: tuple[Entry, ...]) -> str:
        """SHA-256 of what a summary covers: the summary before, and the rows that are new in it."""
        found = hashlib.sha256()
        found.update((self.seen.summary.id if self.seen.summary else "").encode())
        for entry in entries:
            payload = canonical_json(self.seen.payloads.get(entry.id))
            found.update(f"\0{entry.id}\0{payload}".encode("utf-8", "surrogatepass"))
        return found.hexdigest()

    # -- the row ---------------------------------------------------------------------------------

    def row(
        self,
        origin: str,
        boundary: Entry,
        first_seq: int,
        entries: tuple[Entry, ...],
        carried: tuple[str, ...],
        payload: dict[str, object],
        ledger: Ledger,
        tokens: int,
    ) -> NewSummary:
        """The summary row of this pass; its id follows from what it stands for."""
        covered = self._covered_digest(entries)
        thread = self.seen.info.id
        id = _uuid(thread, boundary.id, covered, origin)
        return NewSummary(
            id=id,
            boundary=boundary.id,
            boundary_seq=boundary.seq,
            first_seq=first_seq,
            origin=origin,
            payload={
                **payload,
                "ledger": list(ledger.entries),
                "carried": list(carried),
                "sha256": covered,
                "template": TEMPLATE_VERSION,
                "model": self.parts.model_name,
                "call_id": _uuid(thread, boundary.id, covered, self.parts.model_name),
                "previous": self.seen.summary.id if self.seen.summary else "",
                "before_tokens": self.tokens,
                "covered_rows": len(entries),
                "trigger": self.trigger,
            },
            tokens=tokens,
            encoding=self.parts.encoding,
            created_at=self.parts.now(),
        )

    def commit(
        self, row: NewSummary, outcome: Outcome, summary_after: int, covered: int
    ) -> Compaction:
        after = max(0, self.tokens - covered + summary_after)
        row.payload["after_tokens"] = after
        done = self.parts.store.add_summary(self.seen.info.id, row, self.seen.info.edits)
        if done.row is None:
            return self.gave_up("superseded")
        return Compaction(
            outcome,
            self.tokens + self.freed,
            after,
            summary=done.row.id,
            boundary=done.row.boundary,
            inserted=done.inserted,
            flush=self.flushed,
            flush_error=self.flush_error,
            abandoned=self.abandoned,
            invented=self.invented,
        )

    def adopted(self, id: str, boundary: Entry, outcome: Outcome, *, inserted: bool) -> Compaction:
        return Compaction(
            outcome, self.tokens, self.tokens, summary=id, boundary=boundary.id, inserted=inserted
        )

    def gave_up(self, outcome: Outcome, reason: str = "") -> Compaction:
        return Compaction(
            outcome,
            self.tokens + self.freed,
            self.tokens,
            reason,
            flush=self.flushed,
            flush_error=self.flush_error,
            abandoned=self.abandoned,
        )


def _boundary_of(seen: View) -> Entry | None:
    """The row that the newest summary ends with, where nothing has been said since."""
    if seen.summary is None:
        return None
    nothing = shapes.make("openai-chat", "user", "")
    return Entry(seen.summary.boundary, seen.summary.boundary_seq, nothing, 0)


def _uuid(*parts: str) -> str:
    return str(uuid.uuid5(NAMESPACE, "\0".join(parts)))


def _sections_json(sections: Sections) -> dict[str, list[str]]:
    names = ("active_task", "pending", "resolved", "constraints", "decisions", "files")
    return {name: list(getattr(sections, name)) for name in names}


def _learnable(entries: tuple[Entry, ...]) -> tuple[FlushMessage, ...]:
    found = []
    for entry in entries:
        role = entry.message.role
        text = clean(entry.message.text).strip()
        if role in ("user", "assistant") and text:
            found.append(
                FlushMessage(
                    entry.id, "user" if role == "user" else "assistant", text, entry.created_at
                )
            )
    return tuple(found)
