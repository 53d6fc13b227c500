"""What one open memory folder answers: the reading half of ``Memory``.

Each call authorises, makes fresh what it may read, and hands on to the part that knows how. What a
turn reads (``context``, a thread, a correction, a work item) is here too; what it leaves behind is
state of the active set, never a segment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.errors import (
    NotFoundError,
    UsageError,
)
from h2ams.index.read import Reader
from h2ams.index.search import Filters, Searcher, Wanted
from h2ams.memory.access import Access, Gate
from h2ams.memory.record import Degraded, Hit, Page, Recall, Record
from h2ams.memory.scope import Scope, canonical_glob, is_utf8, parse_address, parse_scope
from h2ams.memory.values import check_kind, check_number, check_text, check_texts, parse_time
from h2ams.parts import Parts, healing
from h2ams.text.words import parse_query

if TYPE_CHECKING:
    from h2ams.active.adjust import Adjustment
    from h2ams.active.block import MemoryBlock
    from h2ams.active.reuse import Excerpt, Reuse, WorkItem
    from h2ams.active.turn import Turn
    from h2ams.memory.summary import Summary
    from h2ams.models.request import Model
    from h2ams.stacks.compress import AttemptRecord, Compressor
    from h2ams.stacks.folder import WorkflowName
    from h2ams.stacks.workflow import Workflow
    from h2ams.threads.context_engine import Thread
    from h2ams.threads.message import Shape
    from h2ams.upkeep.status import ScopeCount

MOST_HITS = 1_000  # a recall gives no more, whatever is asked for
COVERED = 1.25  # matches of so many times its budget are considered for a block


class Reads(Parts):
    """Recall, the memory block, and what a turn needs of them. ``Memory`` adds the rest."""

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
        check_text(query, "query")
        for name, number in (("limit", limit), ("budget", budget)):
            check_number(number, name)
        check_number(min_score, "min_score", whole=False)
        filters = Filters(
            tuple(check_kind(kind) for kind in check_texts(kinds, "kinds")),
            check_texts(tags, "tags"),
            _moment(after, "after"),
            _moment(before, "before"),
            None if scopes is None else tuple(map(canonical_glob, check_texts(scopes, "scopes"))),
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
        reach = self._guard.known(connection, gate)
        searcher = Searcher(connection, gate, self.settings, today=self._today(), reach=reach)
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
        for name, text in (("query", query), ("language", language)):
            check_text(text, name)
        for name, number in (("budget", budget), ("window", window)):
            check_number(number, name)
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
        named = _named(scope)
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
    def page(
        self,
        scope: str | None = None,
        *,
        access: Access | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> Page:
        """Up to ``limit`` segments of ``scope`` (None: of all scopes) in the order of scope and id.

        ``after`` is the ``after`` of the page before. A walk sees every segment that is there all
        the time exactly once, whatever is written meanwhile, and no page reads more than itself.
        """
        named = _named(scope)
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            one = None if named is None else self._canonical(named, gate)
            with self._index.reading() as connection:
                return Reader(connection, gate).page(one, after, max(0, limit))

    @healing
    def addresses(
        self,
        beginning: str = "",
        *,
        access: Access | None = None,
        limit: int | None = None,
        fresh: bool = True,
    ) -> tuple[str, ...]:
        """The addresses that begin with ``beginning``, in order; no text is read.

        ``fresh=False``: as the index has them, without a look at the files.
        """
        with self._reader(access, fresh=fresh) as reader:
            return reader.addresses(beginning, limit)

    @healing
    def scope_names(
        self,
        beginning: str = "",
        *,
        access: Access | None = None,
        limit: int | None = None,
        fresh: bool = True,
    ) -> tuple[str, ...]:
        """The scopes that hold something and begin with ``beginning``; ``fresh`` as above."""
        with self._reader(access, fresh=fresh) as reader:
            return reader.scope_names(beginning, limit)

    @contextmanager
    def _reader(self, access: Access | None, *, fresh: bool) -> Iterator[Reader]:
        """A reader of what ``access`` may read, after a look at the files where ``fresh``."""
        with self._index.lock:
            known = self._guard.fresh(access)[0] if fresh else None
            with self._index.reading() as connection:
                yield Reader(connection, known or self._guard.gate(connection, access))

    @healing
    def sources(self, message_id: str, *, access: Access | None = None) -> tuple[Record, ...]:
        """The segments that cite the source message ``message_id``."""
        if not is_utf8(message_id):
            return ()  # nobody could have cited it
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            with self._index.reading() as connection:
                return Reader(connection, gate).sources(message_id)

    @healing
    def scope_counts(self, *, access: Access | None = None) -> tuple[ScopeCount, ...]:
        """The scopes that ``access`` may read, by name, with what each holds."""
        from h2ams.upkeep.status import scope_counts

        with self._index.lock:
            gate, _ = self._guard.fresh(access)
            with self._index.reading() as connection:
                return scope_counts(connection, gate)

    @healing
    def summary(
        self, scope: str, *, access: Access | None = None, language: str = "en"
    ) -> tuple[str, Summary]:
        """Path and text of what stands for ``scope`` in a prompt, secrets masked.

        ``NotFoundError`` where there is none that ``access`` may read.
        """
        from h2ams.text.redact import redact

        target = parse_scope(scope)
        with self._index.lock:
            gate, _ = self._guard.fresh(access)
        found = None
        if self._reads_wholly(gate, target):
            found = self.store.summary(target, language)
        if found is None:
            raise NotFoundError(f"{target} has no summary", hint="h2ams summary refresh makes it")
        path, summary = found
        return path, replace(summary, text=redact(summary.text).text)

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

    def stacks(self) -> tuple[WorkflowName, ...]:
        """The workflows of this folder with the scopes that they go with. The owner's."""
        from h2ams.stacks.folder import FOLDER, WorkflowFolder

        self._settle()  # nothing of a deleted scope is listed
        return tuple(WorkflowFolder(os.path.join(self.state, FOLDER)).names())

    def stack(
        self,
        id: str,
        *,
        owner: str | None = None,
        compressor: Compressor | None = None,
        telemetry: Callable[[AttemptRecord], None] | None = None,
        cold_copy: bool = False,
        create: bool = True,
    ) -> Workflow:
        """The exchange stacks of the workflow ``id``; close it, or use it in a ``with`` statement.

        With ``owner``, a scope, it is deleted, renamed and cloned with that scope. Without a
        ``compressor`` everything stays exact.
        """
        from h2ams.stacks.folder import opened

        self._settle()  # nothing of a deleted scope is opened
        return opened(
            self._root,
            id,
            owner=owner,
            settings=self.settings,
            clock=self._now,
            telemetry=telemetry,
            compressor=compressor,
            cold_copy=cold_copy,
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


def real_folder(path: str) -> str | None:
    """The real path of an existing folder: what workspaces are compared by; None for no folder."""
    try:
        real = os.path.realpath(path, strict=True)
    except (OSError, ValueError):
        return None
    return real if os.path.isdir(real) else None


def _named(scope: str | None) -> Scope | None:
    if scope is None:
        return None
    check_text(scope, "scope")
    return parse_scope(scope)


def _moment(text: str | None, name: str) -> str | None:
    if text is None:
        return None
    check_text(text, name)
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
