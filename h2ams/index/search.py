"""Recall's ranked search over the authorised scopes (Derived, read-only).

Two passes, both inside the authorised rowid ranges. The first asks FTS5 for the rows of each word
(no ranking, no foreign statistics) and orders them by BM25 with every word counted once, what
stands near by in the same file, closeness and recency. The second looks at the text of the best
``Settings.rerank_count`` of them, and at what stands around each, and scores them exactly. The
order so defined does not depend on how many results are asked for, on rowids, or on anything
outside the authorised scopes.

If nothing is found there is one relaxed reading, in three steps: what the gate held back, prefixes,
substrings. The result says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from h2ams import sqlite
from h2ams.index import schema
from h2ams.index.field import Bases, Candidate, Field, FirstPass, Row
from h2ams.index.lookup import Area, Lookup, area_of
from h2ams.index.reach import Reach
from h2ams.index.reading import (
    Held,
    Reading,
    bounded,
    dates_in,
    held_by,
    readings,
    strong_terms,
    with_common,
)
from h2ams.index.score import DIGITS, Question, Sight, Statistics, total
from h2ams.memory.access import Gate
from h2ams.memory.record import Hit, Record
from h2ams.memory.scope import Scope
from h2ams.settings import Settings
from h2ams.text.words import Query

if TYPE_CHECKING:
    from h2ams.index.planes import Narrowed

REPORTED_REJECTIONS = 20
CHART_RANGES = 64  # with fewer, rows are looked at one by one
CHART_SEGMENTS = 250_000  # an area with more has no chart: it takes about 100 bytes a segment

RECORD_COLUMNS = (
    "m.scope, m.id, m.kind, m.tags, m.body, m.heading, m.created_at, m.updated_at, m.sources,"
    " f.path, m.line, m.tokens, m.digest, m.note, m.stale, m.over_limit, m.rowid"
)
RECORD_TABLES = "memory_segments m JOIN files f ON f.no = m.file"


class Filters(NamedTuple):
    """What a hit must be besides matching. Times are ISO in UTC.

    Empty kinds and tags and no time mean: no such filter. So does None for ``scopes``; an empty
    list of scopes is no scope, never all of them.
    """

    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None
    scopes: tuple[str, ...] | None = None  # names with * ? [ ]

    @property
    def on_rows(self) -> bool:
        return bool(self.kinds or self.tags or self.after or self.before)


class Wanted(NamedTuple):
    """How many hits: at most ``limit``, as long as they have fewer than ``tokens`` together.

    Hits that are longer than ``room`` tokens by themselves do not count; one that is shorter than
    all before it is taken even then. The others among those that were looked at are named in
    ``Found.beyond``; once the tokens are reached no further window of candidates is looked at.
    """

    limit: int
    tokens: float = float("inf")
    room: float = float("inf")


class Found(NamedTuple):
    """What a search gives.

    ``below_gate`` are addresses that one weak word matched, ``beyond`` those of further hits that
    were not wanted any more, best first.
    """

    hits: tuple[Hit, ...] = ()
    relaxed: bool = False
    searched: tuple[str, ...] = ()
    below_gate: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
    dropped_terms: tuple[str, ...] = ()
    cut_short: bool = False  # the substring reading did not read everything


class _Scored(NamedTuple):
    """A row of the second pass. ``tokens`` counts its body."""

    rowid: int
    mask: int
    tokens: int
    address: str
    terms: dict[str, float]


class Searcher:
    """One search: a connection inside a read transaction, what may be read, and the settings."""

    def __init__(
        self,
        connection: sqlite.Connection,
        gate: Gate,
        settings: Settings,
        *,
        today: int,
        reach: Reach | None = None,
    ) -> None:
        """``reach``: what is known already of ``gate`` in the state that ``connection`` sees."""
        self.connection = connection
        self.gate = gate
        self.settings = settings
        self.today = today
        self.prunes = True  # off: every row is looked at; the result is the same
        self.first_pass = FirstPass(gate, settings, today, self._scope)
        self.reach = reach or Reach(gate)

    def search(self, query: Query, *, wanted: Wanted, filters: Filters) -> Found:
        """The best hits, best first, as many as ``wanted``."""
        area = self.area(self._only(filters.scopes))
        lookup = Lookup(self.connection, area)
        terms, dropped = bounded(query.terms, lookup, self.settings)
        found = Found(searched=area.names, dropped_terms=dropped)
        dates = dates_in(query, self.settings, self.today)
        if not (terms or dates) or not area.segments:
            return found
        for reading in readings(query, terms, dates, lookup, self.settings):
            ranked = self._ranked(reading, area, lookup, filters, wanted)
            if not found.below_gate:
                found = found._replace(below_gate=ranked.below_gate)
            if ranked.hits or ranked.beyond:
                return found._replace(
                    hits=ranked.hits,
                    beyond=ranked.beyond,
                    relaxed=reading.relaxed,
                    dropped_terms=tuple(dict.fromkeys((*dropped, *ranked.dropped_terms))),
                )
        complete = area.segments <= self.settings.substring_segments_count
        return found._replace(relaxed=True, cut_short=not complete)

    # -- terms -----------------------------------------------------------------------------------

    def area(self, only: Sequence[str] | None = None) -> Area:
        """The readable part of the index, narrowed to the scopes in ``only`` where given."""
        if only is None:
            return self.reach.area(self.connection)
        return area_of(self.connection, self.gate, only)

    def _only(self, globs: Sequence[str] | None) -> tuple[str, ...] | None:
        if globs is None:
            return None
        import fnmatch

        names = self.area().names
        return tuple(
            name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)
        )

    # -- ranking ---------------------------------------------------------------------------------

    def _ranked(
        self, reading: Reading, area: Area, lookup: Lookup, filters: Filters, wanted: Wanted
    ) -> Found:
        narrowed = self._narrowed(reading, area, filters, wanted)
        if narrowed is not None:
            gated = self._addresses(narrowed.held_back(REPORTED_REJECTIONS))
            hits, beyond = self._second_pass(narrowed.candidates(), narrowed.field, wanted)
            return Found(hits, below_gate=gated, beyond=beyond)
        held = held_by(reading, area, lookup)
        if not any(held.counts) and not (reading.relaxed and held.masks):
            return Found()  # related words alone are a guess
        statistics = Statistics(
            Question(reading.terms, held.weights, reading.asks_time, reading.inside_words),
            area.average_length or 1.0,
            self.today,
            self.settings,
        )
        strong = -1
        if not reading.relaxed:
            strong = strong_terms(reading, held.counts, area.segments, self.settings)
        for complete in self._stages(held, wanted):
            masks = with_common(held, reading, lookup, complete)
            blocks = self.reach.blocks(self.connection, masks)
            field = Field(masks, statistics, blocks, strong, held.common, {}, Bases())
            kept = self._filtered(masks, filters) if filters.on_rows else masks
            candidates, weak = self.first_pass.order(field, kept)
            if complete or self.first_pass.settled(candidates, field):
                break
        gated = self._addresses(weak) if weak else ()
        hits, beyond = self._second_pass(candidates, field, wanted)
        room = min(wanted.limit - len(hits) - len(beyond), self.settings.neighbour_hits_count)
        if room > 0 and not reading.relaxed:
            hits += self._beside(hits, field, filters, room)
        return Found(hits, below_gate=gated, beyond=beyond, dropped_terms=held.dropped)

    def _narrowed(
        self, reading: Reading, area: Area, filters: Filters, wanted: Wanted
    ) -> Narrowed | None:
        """The first window of very many scopes; None where rows are looked at one by one."""
        if (
            len(area.ranges) <= CHART_RANGES
            or area.segments > CHART_SEGMENTS
            or area is not self.area()
            or reading.relaxed
            or filters.on_rows
            or wanted.limit > self.settings.rerank_count
            or self.settings.neighbour_hits_count
            or not self.prunes
        ):
            return None
        from h2ams.index.planes import narrowed  # not imported by a recall of a few scopes

        chart = self.reach.chart(self.connection)
        return narrowed(self.connection, chart, reading, area, self.first_pass)

    def _stages(self, held: Held, wanted: Wanted) -> tuple[bool, ...]:
        """Whether all rows of common words are fetched: first not, where that may be enough."""
        may_prune = held.common and held.masks and wanted.limit <= self.settings.rerank_count
        return (False, True) if may_prune and self.prunes else (True,)

    def _second_pass(
        self, candidates: list[Row], field: Field, wanted: Wanted
    ) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
        """Exact scores, window by window; a later window never ranks above an earlier one."""
        hits: list[Hit] = []
        beyond: list[str] = []
        start, tokens, ceiling, shortest = 0, 0, float("inf"), float("inf")
        while start < len(candidates) and len(hits) + len(beyond) < wanted.limit:
            end = self._window_end(candidates, start)
            rows = [Candidate(*each) for each in candidates[start:end]]
            window = self._exact(rows, field, ceiling)
            shown = []
            for each in window[: wanted.limit - len(hits) - len(beyond)]:
                if tokens >= wanted.tokens and each.tokens >= shortest:
                    beyond.append(each.address)
                    continue
                shown.append(each)
                shortest = min(shortest, each.tokens)
                tokens += each.tokens if each.tokens <= wanted.room else 0
            records = self._records([each.rowid for each in shown])
            for each in shown:
                bits = enumerate(field.statistics.terms)
                names = (term.text for place, term in bits if each.mask >> place & 1)
                found = tuple(dict.fromkeys(names))
                hits.append(Hit(records[each.rowid], total(each.terms), each.terms, found))
            if tokens >= wanted.tokens:  # enough text: a further window would only be rejected
                break
            start, ceiling = end, total(window[-1].terms)
        return tuple(hits), tuple(beyond)

    def _beside(
        self, hits: Sequence[Hit], field: Field, filters: Filters, room: int
    ) -> tuple[Hit, ...]:
        """Segments right before or behind the best ``hits`` that no word of the question is in."""
        found: dict[int, int] = {}
        for hit in hits[:room]:
            for rowid, place in self._adjacent(hit.record, field):
                if rowid not in field.masks:
                    found[rowid] = place
        if filters.on_rows and found:
            admitted = self._filtered(dict.fromkeys(found, 0), filters)
            found = {rowid: place for rowid, place in found.items() if rowid in admitted}
        if not found:
            return ()
        window = [Candidate(0.0, rowid, 0, place) for rowid, place in found.items()]
        scored = self._exact(window, field, hits[-1].score)[:room]
        records = self._records([each.rowid for each in scored])
        return tuple(
            Hit(records[each.rowid], total(each.terms), each.terms, (), "neighbour")
            for each in scored
        )

    def _adjacent(self, record: Record, field: Field) -> Iterator[tuple[int, int]]:
        """(rowid, place) of the segments in the places next to that of ``record``."""
        rows = sqlite.rows(
            self.connection,
            "SELECT m.rowid, m.line FROM memory_segments m JOIN files f ON f.no = m.file"
            " WHERE f.path = ? AND m.line IN (?,"
            " (SELECT max(line) FROM memory_segments WHERE file = f.no AND line < ?),"
            " (SELECT min(line) FROM memory_segments WHERE file = f.no AND line > ?))",
            (record.path, record.line, record.line, record.line),
        )
        field.blocks.update(self.reach.blocks(self.connection, [rowid for rowid, _ in rows]))
        placed = [(rowid, field.place(rowid), line) for rowid, line in rows]
        own = next((place for _, place, line in placed if line == record.line), 0)
        yield from ((rowid, place) for rowid, place, _ in placed if abs(place - own) == 1)

    def _window_end(self, candidates: list[Row], start: int) -> int:
        """``rerank_count`` further on, and behind all that have the same first-pass score.

        Without the ties the border would depend on rowids, and so on the history of the index.
        """
        end = min(start + self.settings.rerank_count, len(candidates))
        while end < len(candidates) and candidates[end][0] == candidates[end - 1][0]:
            end += 1
        return end

    def _exact(self, window: list[Candidate], field: Field, ceiling: float) -> list[_Scored]:
        """The window with exact scores, best first, ties by closeness and address."""
        statistics = field.statistics
        rows = {
            row[0]: row
            for row in sqlite.rows(
                self.connection,
                "SELECT rowid, id, tokens, words, forms, labels FROM memory_segments"
                " WHERE rowid IN carray(?)",
                (sqlite.integers([each.rowid for each in window]),),
            )
        }
        named = {
            each.rowid: statistics.named(self._direct(each.mask, field), rows[each.rowid][5])
            for each in window
        }
        all_named = 0
        for mask in named.values():
            all_named |= mask
        scored = []
        for each in window:
            rowid, id, tokens, *text = rows[each.rowid]
            scope = self._scope(rowid >> schema.LOCAL_BITS)
            rank = self.gate.closeness(scope)
            seen = self._sight(each, text, named[rowid], rank, field)
            terms = statistics.terms_of(seen, all_named)
            score = total(terms)
            if score > ceiling:  # the sum of the parts stays the score
                terms["window"] = round(ceiling - score, DIGITS)
                score = total(terms)
            key = (-score, rank, scope.text, id)
            address = f"{scope.text}#{id}"
            scored.append((key, _Scored(rowid, seen.mask | seen.related, tokens, address, terms)))
        scored.sort(key=lambda item: item[0])
        return [item for _, item in scored]

    @staticmethod
    def _direct(mask: int, field: Field) -> int:
        return mask & (1 << len(field.statistics.terms)) - 1

    def _sight(
        self, candidate: Candidate, text: Sequence[str], named: int, rank: int, field: Field
    ) -> Sight:
        count = len(field.statistics.terms)
        direct = self._direct(candidate.mask, field)
        return Sight(
            text=text,
            mask=direct,
            related=(candidate.mask >> count) & ~direct,
            named=named,
            near=self.first_pass.near(candidate.place, field.near, count),
            figures=field.figures(candidate.rowid),
            rank=rank,
        )

    # -- rows ------------------------------------------------------------------------------------

    def _filtered(self, masks: dict[int, int], filters: Filters) -> dict[int, int]:
        conditions = ["rowid IN carray(?)"]
        bindings: list[object] = [sqlite.integers(masks)]
        if filters.kinds:
            conditions.append(f"kind IN ({','.join('?' * len(filters.kinds))})")
            bindings += filters.kinds
        moment = "coalesce(updated_at, created_at)"
        for bound, operator in ((filters.after, ">="), (filters.before, "<")):
            if bound:
                conditions.append(f"{moment} {operator} ?")
                bindings.append(bound)
        rows = sqlite.rows(
            self.connection,
            f"SELECT rowid, tags FROM memory_segments WHERE {' AND '.join(conditions)}",
            tuple(bindings),
        )
        wanted = {tag.casefold() for tag in filters.tags}
        return {
            rowid: masks[rowid]
            for rowid, tags in rows
            if not wanted or wanted & {tag.casefold() for tag in json.loads(tags)}
        }

    def _scope(self, number: int) -> Scope:
        return self.reach.scope(self.connection, number)

    def _addresses(self, rowids: Sequence[int]) -> tuple[str, ...]:
        """Addresses of at most ``REPORTED_REJECTIONS`` rows, the first ones in their order.

        Only rows of as many scopes are read: each has one row at least.
        """
        numbers = {rowid >> schema.LOCAL_BITS for rowid in rowids}
        if len(numbers) > REPORTED_REJECTIONS:
            by_name = sorted(numbers, key=lambda number: f"{self._scope(number).text}#")
            numbers = set(by_name[:REPORTED_REJECTIONS])
            rowids = [rowid for rowid in rowids if rowid >> schema.LOCAL_BITS in numbers]
        rows = sqlite.rows(
            self.connection,
            "SELECT scope, id FROM memory_segments WHERE rowid IN carray(?)",
            (sqlite.integers(rowids),),
        )
        addresses = sorted(f"{self._scope(number).text}#{id}" for number, id in rows)
        return tuple(addresses[:REPORTED_REJECTIONS])

    def _records(self, rowids: Sequence[int]) -> dict[int, Record]:
        rows = sqlite.rows(
            self.connection,
            f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE m.rowid IN carray(?)",
            (sqlite.integers(rowids),),
        )
        return {row[-1]: self.record(row) for row in rows}

    def record(self, row: Sequence[Any]) -> Record:
        """The record of one row of ``RECORD_COLUMNS``."""
        number, id, kind, tags, body, heading, created, updated, sources = row[:9]
        path, line, tokens, digest, note, stale, over_limit, _ = row[9:]
        scope = self._scope(number)
        return Record(
            scope=scope.text,
            id=id,
            kind=kind,
            tags=tuple(json.loads(tags)),
            body=body,
            heading=heading,
            created_at=created,
            updated_at=updated,
            source_messages=tuple(json.loads(sources)),
            path=path,
            line=line,
            tokens=tokens,
            digest=digest,
            is_note=bool(note),
            stale=bool(stale),
            over_limit=bool(over_limit),
            source_session=self.gate.source_session(scope),
        )
