"""From what recall, state and summaries give to a block, and the state after a turn (Pure, glue).

Strategy: ``preflow`` before a turn changes nothing; ``commit`` is the change for
``Registry.update`` when the turn really happens. Bodies come from the index at every call, so what
was forgotten meanwhile is in no layer. Whoever calls brings the functions that read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from h2ams.active.block import SUMMARY_ID, Candidate, Layer, MemoryBlock, Rejection
from h2ams.active.packing import build_block
from h2ams.memory.record import Hit, Record
from h2ams.settings import DEFAULTS

if TYPE_CHECKING:
    from h2ams.active.ams import ActiveSet
    from h2ams.settings import Settings
    from h2ams.tokens import TokenCounter

Fetch = Callable[[Sequence[str]], Mapping[str, Record]]  # addresses -> records that may be read
Closeness = Callable[[str], int]  # canonical scope -> 0 for the closest


@dataclass(frozen=True, slots=True)
class ScopeSummary:
    """The resident text of one scope. ``date`` may be followed by a time; ``tokens`` counts the
    text (0 = unknown)."""

    scope: str
    text: str
    path: str
    date: str | None = None
    source_session: str | None = None
    tokens: int = 0


def preflow(
    query: str,
    state: ActiveSet,
    hits: Iterable[Hit],
    summaries: Iterable[ScopeSummary],
    *,
    task: str,
    fetch: Fetch,
    closeness: Closeness,
    total: int,
    counter: TokenCounter,
    settings: Settings,
    now: str,
    rejected: Sequence[Rejection] = (),
    language: str = "en",
) -> MemoryBlock:
    """The block for ``query``: summaries, what was used lately, matches and pins.

    ``task`` is the query's ``ams.task_fingerprint``: another task than before sees no pins and no
    evictions. ``fetch`` gives, in one call, those records that this access may read now.
    """
    candidates, evicted = gather(
        state.enter_task(task),
        hits,
        summaries,
        fetch=fetch,
        closeness=closeness,
        most_chars=settings.max_segment_chars,
    )
    return build_block(
        query,
        candidates,
        rejected=(*evicted, *rejected),
        total=total,
        counter=counter,
        settings=settings,
        now=now,
        language=language,
    )


def gather(
    state: ActiveSet,
    hits: Iterable[Hit],
    summaries: Iterable[ScopeSummary],
    *,
    fetch: Fetch,
    closeness: Closeness,
    most_chars: int = DEFAULTS.max_segment_chars,
) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
    """The candidates of all layers, and the matches that were evicted.

    A segment over the limit is offered by its first ``most_chars``.
    An address that ``fetch`` does not give is not mentioned: it is gone, or not for this access.
    """
    found = list(hits)
    named = state.on_demand(hit.record.address for hit in found)
    records = fetch([*state.pinned, *(use.address for use in state.recent)])

    def of(layer: Layer, record: Record, score: float, terms: Mapping[str, float]) -> Candidate:
        made = _candidate(layer, record, closeness(record.scope), score, terms)
        return replace(made, body=made.body[:most_chars]) if made.shortened else made

    candidates = [_resident(each, closeness(each.scope)) for each in summaries if each.text.strip()]
    for use in state.recent:
        record = records.get(use.address)
        if record is not None:
            candidates.append(of("recent", record, float(use.turn), {}))
    for address in state.pinned:
        record = records.get(address)
        if record is not None:
            candidates.append(replace(of("on_demand", record, 0.0, {}), pinned=True))
    evicted: list[Rejection] = []
    for hit in found:
        if hit.record.address in named:
            candidates.append(of("on_demand", hit.record, hit.score, hit.terms))
        else:
            evicted.append(Rejection(hit.record.address, "evicted"))
    return tuple(candidates), tuple(evicted)


def commit(state: ActiveSet, block: MemoryBlock, *, task: str, recent_count: int) -> ActiveSet:
    """The state after a turn with ``block`` as its memory: what this query picked was used.

    Picked is what is shown on demand, and what is shown as recent and matched again. What is only
    shown because it was used before grows older.
    """
    layers = block.receipt.layers
    picked = [item.address for item in layers["on_demand"].items]
    picked += [item.address for item in layers["recent"].items if item.terms]
    return state.enter_task(task).next_turn().touch(picked, keep=recent_count)


def _resident(summary: ScopeSummary, closeness: int) -> Candidate:
    return Candidate(
        layer="resident",
        scope=summary.scope,
        id=SUMMARY_ID,
        kind="summary",
        body=summary.text,
        date=_day(summary.date),
        path=summary.path,
        line=1,
        closeness=closeness,
        source_session=summary.source_session,
        is_summary=True,
        tokens=summary.tokens,
    )


def _candidate(
    layer: Layer, record: Record, closeness: int, score: float, terms: Mapping[str, float]
) -> Candidate:
    return Candidate(
        layer=layer,
        scope=record.scope,
        id=record.id,
        kind=record.kind,
        body=record.body,
        date=_day(record.updated_at or record.created_at),
        path=record.path,
        line=record.line,
        score=score,
        terms=terms,
        closeness=closeness,
        source_session=record.source_session,
        stale=record.stale,
        tokens=0 if record.over_limit else record.tokens,
        heading=record.heading,
        shortened=record.over_limit,
    )


def _day(time: str | None) -> str | None:
    """The day of an ISO 8601 time, ``None`` where it is none."""
    if time is None:
        return None
    try:
        return date.fromisoformat(time[:10]).isoformat()
    except ValueError:
        return None
