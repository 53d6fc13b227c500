"""One turn of a host: state, summaries and matches read, the block made, use recorded.

The glue between the parts that are pure and those that read. ``Turn`` lives for one call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from h2ams.active import preflow
from h2ams.active.ams import ActiveSet, task_fingerprint
from h2ams.active.block import MemoryBlock, Rejection
from h2ams.active.budget import total_budget
from h2ams.active.registry import Family, Registry
from h2ams.errors import ScopeError, StoreError
from h2ams.index.read import Reader
from h2ams.memory.access import Access, Gate
from h2ams.memory.record import Degraded, Recall, Record
from h2ams.memory.scope import Scope, parse_address, parse_scope
from h2ams.memory.store import Store
from h2ams.settings import Settings
from h2ams.tokens import TokenCounter

RESIDENT_SCOPES = 48  # summaries considered; closer scopes first

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a turn needs: where state, truth and index are, and today's date (ISO)."""

    registry: Registry
    store: Store
    reader: Reader
    gate: Gate
    access: Access | None
    settings: Settings
    counter: TokenCounter
    today: str

    def block(
        self,
        recall: Recall,
        *,
        budget: int | None,
        window: int | None,
        commit: bool,
        language: str,
    ) -> MemoryBlock:
        """The block for the matches of ``recall``; with ``commit`` its use is recorded."""
        total = total_budget(budget, window, self.settings)
        task = task_fingerprint(recall.keywords)
        state = self.state()
        block = preflow.preflow(
            recall.query,
            state,
            recall.hits,
            self._summaries(recall, language),
            task=task,
            fetch=self._fetch,
            closeness=lambda scope: self.gate.closeness(parse_scope(scope)),
            total=total,
            counter=self.counter,
            settings=self.settings,
            now=self.today,
            rejected=(
                *(Rejection(each, "below-gate") for each in recall.below_gate),
                *(Rejection(each, "budget") for each in recall.beyond),
            ),
            language=language,
        )
        degraded = recall.degraded
        if commit:
            keep = self.settings.recent_count
            try:
                self.change(lambda now: preflow.commit(now, block, task=task, recent_count=keep))
            except StoreError as error:  # a read-only folder, a full disk: the turn goes on
                text = f"what this turn used could not be recorded: {error.message}"
                degraded = (*degraded, Degraded("use-not-recorded", text))
        return replace(block, degraded=degraded) if degraded else block

    def touch(self, addresses: Sequence[str]) -> None:
        """These segments were really used in the current turn."""
        keep = self.settings.recent_count
        self.change(lambda now: now.touch(addresses, keep=keep))

    def state(self) -> ActiveSet:
        """The active set of this session and VP: what still resolves and is still allowed."""
        owner = self._owner()
        if owner is None:
            return ActiveSet()
        session, family = owner
        vp = self.access.vp if self.access is not None else None
        return self.registry.load(session, vp, resolve=self._resolve, family=family)

    @property
    def has_turns(self) -> bool:
        """Whether there is a session or chat whose state this is."""
        return self._owner() is not None

    def change(self, change: Callable[[ActiveSet], ActiveSet]) -> None:
        """Change the state on disk; what no longer resolves is left out on the way."""
        owner = self._owner()
        if owner is None:  # the owner at the command line has no turns
            return
        session, family = owner
        vp = self.access.vp if self.access is not None else None
        # Historical ids get their scope here, so that the new file holds addresses alone.
        self.registry.update(
            session, vp, lambda now: change(now.resolved(self._resolve)), family=family
        )

    def _owner(self) -> tuple[str, Family] | None:
        if self.access is None:
            return None
        if self.access.session is not None:
            return self.access.session, "sessions"
        if self.access.chat is not None:
            return self.access.chat, "chat"
        return None

    def _fetch(self, addresses: Iterable[str]) -> dict[str, Record]:
        records = {}
        for address in addresses:
            record = self.reader.get(*parse_address(address))
            if record is not None:
                records[address] = record
        return records

    def _resolve(self, address: str) -> str | None:
        """The full address that ``address`` (or a historical bare id) stands for now."""
        if "#" in address:
            try:
                record = self.reader.get(*parse_address(address))
            except ScopeError:  # somebody edited the state file
                return None
        else:
            record = self.reader.by_bare_id(address)
        return None if record is None else record.address

    def _summaries(self, recall: Recall, language: str) -> list[preflow.ScopeSummary]:
        found = []
        for scope in self._resident_scopes(recall):
            try:
                if scope.topic and not self.gate.may_read(self.store.canonical(scope)):
                    continue  # its redirect leads to a topic that this access may not read
                read = self.store.summary(scope, language)
            except StoreError as error:  # an unsafe link, an unreadable file: the turn goes on
                _log.warning("%s: no summary: %s", scope, error)
                continue
            if read is None:
                continue
            path, summary = read
            found.append(
                preflow.ScopeSummary(
                    scope.text,
                    summary.text,
                    path,
                    date=summary.updated_at,
                    source_session=self.gate.source_session(scope),
                )
            )
        return found

    def _resident_scopes(self, recall: Recall) -> list[Scope]:
        """Scopes whose summary is relevant: the access's own, and those that matched."""
        matched = [parse_scope(hit.record.scope) for hit in recall.hits]
        own = [] if self.gate.is_owner else list(self.reader.open_ended_scopes())
        wanted = dict.fromkeys([*self.gate.own_scopes(), *own, *matched])
        readable = [scope for scope in wanted if self.gate.may_read(scope)]
        have = list(self.reader.scopes_with_summary(readable))
        have.sort(key=lambda scope: (self.gate.closeness(scope), scope.text))
        return have[:RESIDENT_SCOPES]
