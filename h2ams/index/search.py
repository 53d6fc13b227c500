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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from h2ams import sqlite
from h2ams.index import places, schema
from h2ams.index.lookup import Area, Lookup, area_of, match_of, match_of_any, stats
from h2ams.index.score import DIGITS, Question, Sight, Statistics, idf, recency, total
from h2ams.memory.access import Gate
from h2ams.memory.record import Hit, Record
from h2ams.memory.scope import Scope, parse_scope
from h2ams.settings import Settings
from h2ams.text.cues import ASKS, asks_time
from h2ams.text.dates import spans_in
from h2ams.text.words import Query, Term, roots_of

COUNTED_TERMS = 512  # terms of a very long query whose rows are counted to find the rarest
REPORTED_REJECTIONS = 20
_PREFIX_CHARS = 3  # shorter words are no prefixes in the relaxed reading

# What a word counts so many places before (-) or behind, as a share of one in the segment itself;
# the greatest first. Measured: docs/benchmarks.md.
STEPS = (
    (-1, 0.4), (1, 0.4), (-2, 0.25), (2, 0.25), (-3, 0.2), (-4, 0.2), (3, 0.15), (-5, 0.15),
    (-6, 0.15), (4, 0.1), (5, 0.1), (6, 0.1),
)  # fmt: skip
ANSWERED = 0.9  # in place of the first: the segment before only asks, so this one answers
NEAR_SHARE = 0.4  # of a word's weight in the first pass, for a word in the same or the next group
GROUP_BITS = 2  # places looked at together in the first pass
COMMON_ROWS = 4_096  # a word in more of the authorised rows is common: see _Reading
LONG_SPAN_DAYS = 62  # a longer one says too little to be looked up

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


class _Candidate(NamedTuple):
    """A row of the first pass. Bit i of the mask: term i is in the segment; above these bits, as
    many for words with the same root."""

    score: float
    rowid: int
    mask: int
    place: int


class _Reading(NamedTuple):
    """One way of reading the query: its terms and the rows of the term at a place.

    ``few`` gives the rows of a term, or None where it is *common*. Common words count in the
    segments that have them, not in those around, and are no reason to list what the gate holds
    back: so the rows that have nothing else need not be fetched if enough better ones are there.
    ``related``: the rows of other words with the term's root, for a term that few rows have.
    """

    terms: tuple[Term, ...]
    rows: Callable[[int], list[int]]
    few: Callable[[int], list[int] | None]
    related: Callable[[int], list[int]] | None = None
    relaxed: bool = True
    inside_words: bool = False
    asks_time: bool = False


class _Held(NamedTuple):
    """How many rows hold each term, what it weighs, the mask of the common ones, and the rows of
    the others with their masks."""

    counts: tuple[int, ...]
    weights: tuple[float, ...]
    common: int
    masks: dict[int, int]


class _Scored(NamedTuple):
    """A row of the second pass. ``tokens`` counts its body."""

    rowid: int
    mask: int
    tokens: int
    address: str
    terms: dict[str, float]


class _Bases(dict[int, int]):
    """Numbers far enough from each other that places of different scopes never meet."""

    def __missing__(self, scope: int) -> int:
        value = self[scope] = len(self) + 1 << places.PLACE_BITS
        return value


class _Field(NamedTuple):
    """All that matched, before it is ranked. ``near`` has the masks by place: what is around."""

    masks: dict[int, int]
    statistics: Statistics
    blocks: dict[int, memoryview]
    strong: int
    common: int
    near: dict[int, int]
    bases: _Bases

    def figures(self, rowid: int) -> int:
        return self.blocks[rowid >> schema.BLOCK_BITS][2 * (rowid & schema.BLOCK_MASK)]

    def place(self, rowid: int) -> int:
        block = self.blocks[rowid >> schema.BLOCK_BITS]
        return self.bases[rowid >> schema.LOCAL_BITS] + block[2 * (rowid & schema.BLOCK_MASK) + 1]


class Searcher:
    """One search: a connection inside a read transaction, what may be read, and the settings."""

    def __init__(
        self, connection: sqlite.Connection, gate: Gate, settings: Settings, *, today: int
    ) -> None:
        self.connection = connection
        self.gate = gate
        self.settings = settings
        self.today = today
        self.prunes = True  # off: every row is looked at; the result is the same
        self._scopes: dict[int, Scope] = {}

    def search(self, query: Query, *, wanted: Wanted, filters: Filters) -> Found:
        """The best hits, best first, as many as ``wanted``."""
        area = area_of(self.connection, self.gate, self._only(filters.scopes))
        lookup = Lookup(self.connection, area)
        terms, dropped = self._bounded(query.terms, lookup)
        found = Found(searched=area.names, dropped_terms=dropped)
        dates = self._dates(query)
        if not (terms or dates) or not area.segments:
            return found
        for reading in self._readings(query, terms, dates, lookup):
            ranked = self._ranked(reading, area, lookup, filters, wanted)
            if not found.below_gate:
                found = found._replace(below_gate=ranked.below_gate)
            if ranked.hits or ranked.beyond:
                return found._replace(
                    hits=ranked.hits, beyond=ranked.beyond, relaxed=reading.relaxed
                )
        complete = area.segments <= self.settings.substring_segments_count
        return found._replace(relaxed=True, cut_short=not complete)

    # -- terms -----------------------------------------------------------------------------------

    def _only(self, globs: Sequence[str] | None) -> tuple[str, ...] | None:
        if globs is None:
            return None
        import fnmatch

        names = area_of(self.connection, self.gate).names
        return tuple(
            name for name in names if any(fnmatch.fnmatchcase(name, glob) for glob in globs)
        )

    def _bounded(
        self, terms: tuple[Term, ...], lookup: Lookup
    ) -> tuple[tuple[Term, ...], tuple[str, ...]]:
        """At most ``query_terms_count`` terms: the rarest here, in the order of the query."""
        most = self.settings.query_terms_count
        if len(terms) <= most:
            return terms, ()
        counted = [
            (lookup.count(match_of(term)), place)
            for place, term in enumerate(terms[:COUNTED_TERMS])
        ]
        rarest = sorted(each for each in counted if each[0])[:most]
        kept = {place for _, place in rarest}
        unknown = {place for count, place in counted if not count}
        dropped = (term.text for place, term in enumerate(terms) if place not in kept | unknown)
        return tuple(terms[place] for place in sorted(kept)), tuple(dict.fromkeys(dropped))

    def _readings(
        self,
        query: Query,
        terms: tuple[Term, ...],
        dates: tuple[tuple[Term, int, int], ...],
        lookup: Lookup,
    ) -> Iterator[_Reading]:
        """The strict reading, then the relaxed ones; the next only if one found nothing."""
        cache: dict[int, list[int]] = {}
        asked = (*terms, *(term for term, _, _ in dates))
        most = int(self.settings.related_share * lookup.area.segments)

        def plain(place: int) -> list[int]:
            if place not in cache:
                if place < len(terms):
                    cache[place] = lookup.rows(match_of(terms[place]))
                else:
                    cache[place] = lookup.on_days(*dates[place - len(terms)][1:])
            return cache[place]

        def few(place: int) -> list[int] | None:
            if place < len(terms) and place not in cache:
                found = lookup.rows_up_to(match_of(terms[place]), COMMON_ROWS)
                if found is None:
                    return None
                cache[place] = found
            return plain(place)

        def related(place: int) -> list[int]:
            found = few(place)
            if found is None or len(found) > most or self.settings.weight_related == 0:
                return []
            tokens = roots_of(asked[place])
            return lookup.rows(match_of_any(tokens)) if tokens else []

        when = asks_time(query.text)
        yield _Reading(asked, plain, few, related, relaxed=False, asks_time=when)
        yield _Reading(asked, plain, few, related, asks_time=when)
        prefixes = tuple(_as_prefix(term) for term in terms if _may_be_prefix(term))
        if prefixes:

            def beginning(place: int) -> list[int]:
                return lookup.rows(match_of(prefixes[place]))

            yield _Reading(prefixes, beginning, beginning)
        pieces = tuple(
            Term(text=piece, kind="word", tokens=(piece,), exact=None)
            for piece in query.fragments[: self.settings.query_terms_count]
        )
        if pieces:
            limit = self.settings.substring_segments_count

            def containing(place: int) -> list[int]:
                return lookup.containing(pieces[place].tokens[0], limit)[0]

            yield _Reading(pieces, containing, containing, inside_words=True)

    def _dates(self, query: Query) -> tuple[tuple[Term, int, int], ...]:
        """Days that the question names, as terms with their first and last day."""
        return tuple(
            (Term(span.text, "date", ()), span.first, span.last + self.settings.date_after_days)
            for span in spans_in(query.text, self.today)
            if span.last - span.first <= LONG_SPAN_DAYS
        )

    # -- ranking ---------------------------------------------------------------------------------

    def _ranked(
        self, reading: _Reading, area: Area, lookup: Lookup, filters: Filters, wanted: Wanted
    ) -> Found:
        held = self._held(reading, area, lookup)
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
            strong = self._strong_terms(reading.terms, held.counts, area.segments)
        for complete in self._stages(held, wanted):
            masks = self._with_common(held, reading, lookup, complete)
            blocks = stats(self.connection, masks)
            field = _Field(masks, statistics, blocks, strong, held.common, {}, _Bases())
            kept = self._filtered(masks, filters) if filters.on_rows else masks
            candidates, weak = self._first_pass(field, kept)
            if complete or self._settled(candidates, field):
                break
        gated = self._addresses(weak) if weak else ()
        hits, beyond = self._second_pass(candidates, field, wanted)
        room = min(wanted.limit - len(hits) - len(beyond), self.settings.neighbour_hits_count)
        if room > 0 and not reading.relaxed:
            hits += self._beside(hits, field, filters, room)
        return Found(hits, below_gate=gated, beyond=beyond)

    def _held(self, reading: _Reading, area: Area, lookup: Lookup) -> _Held:
        masks: dict[int, int] = {}
        get = masks.get
        count = len(reading.terms)
        counts, weights = [], []
        common = 0
        for place, term in enumerate(reading.terms):
            bit = 1 << place
            rows = reading.few(place)
            if rows is None:
                common |= bit
                counts.append(lookup.count(match_of(term)))
                weights.append(idf(area.segments, counts[-1]))
                continue
            if term.kind == "date" and (masks or common):  # what else is asked was then
                held = [rowid for rowid in rows if rowid in masks]
            else:
                held = rows
            for rowid in held:
                masks[rowid] = get(rowid, 0) | bit
            both = len(rows)
            for rowid in reading.related(place) if reading.related else ():
                mask = get(rowid, 0)
                if not mask & bit:
                    both += 1
                    masks[rowid] = mask | bit << count
            counts.append(len(rows))
            weights.append(idf(area.segments, both) if both else 0.0)
        return _Held(tuple(counts), tuple(weights), common, masks)

    def _stages(self, held: _Held, wanted: Wanted) -> tuple[bool, ...]:
        """Whether all rows of common words are fetched: first not, where that may be enough."""
        may_prune = held.common and held.masks and wanted.limit <= self.settings.rerank_count
        return (False, True) if may_prune and self.prunes else (True,)

    def _with_common(
        self, held: _Held, reading: _Reading, lookup: Lookup, complete: bool
    ) -> dict[int, int]:
        """The masks with the common words too: of all rows, or of those that have another."""
        if not held.common:
            return held.masks
        masks = dict(held.masks)
        get = masks.get
        for place, term in enumerate(reading.terms):
            bit = 1 << place
            if not held.common & bit:
                continue
            match = match_of(term)
            for rowid in lookup.rows(match) if complete else lookup.among(match, held.masks):
                masks[rowid] = get(rowid, 0) | bit
        return masks

    def _settled(self, candidates: list[_Candidate], field: _Field) -> bool:
        """Whether no row with nothing but common words can be among the first window.

        Such a row has at most all of them once, in the shortest segment there can be, all other
        words around it, and the greatest of each factor.
        """
        window = self.settings.rerank_count
        if len(candidates) < window:
            return False
        statistics = field.statistics
        every = (1 << len(statistics.terms)) - 1
        near = NEAR_SHARE * self.settings.weight_context * statistics.weight(every & ~field.common)
        dates = statistics.weight(
            sum(1 << at for at, term in enumerate(statistics.terms) if term.kind == "date")
        )
        most = (statistics.weight(field.common) + dates) * statistics.length_factor(0) + near
        return candidates[window - 1].score > most * statistics.greatest_factor()

    def _first_pass(
        self, field: _Field, kept: dict[int, int]
    ) -> tuple[list[_Candidate], list[int]]:
        """Candidates, best first, and the rowids of those that the gate holds back.

        The inner loops of recall: factors are looked up, not computed, per row.
        """
        masks, statistics, blocks, strong, common, near, base_of = field
        count = len(statistics.terms)
        asking = ASKS << 2 * count
        rare = ~common  # what counts around a segment
        groups: dict[int, int] = {}
        rows: list[tuple[int, int, int, int]] = []
        get = groups.get
        for rowid, mask in masks.items():
            block = blocks[rowid >> schema.BLOCK_BITS]
            at = 2 * (rowid & schema.BLOCK_MASK)
            figures = block[at]
            place = base_of[rowid >> schema.LOCAL_BITS] + block[at + 1]
            seen = mask & rare
            near[place] = seen | asking if figures >> places.CUES_BIT & ASKS else seen
            group = place >> GROUP_BITS
            groups[group] = get(group, 0) | seen
            if kept is masks or rowid in kept:
                rows.append((rowid, mask, figures, place))
        weak_masks = self._weak_masks(set(masks.values()), strong, count)
        weight_of = _Table(lambda mask: self._mask_weight(statistics, mask, 1.0))
        share = NEAR_SHARE * self.settings.weight_context
        near_of = _Table(lambda mask: self._mask_weight(statistics, mask, share))
        around = _Table(
            lambda group: near_of[get(group - 1, 0) | groups[group] | get(group + 1, 0)]
        )
        of_length = _Table(statistics.length_factor)
        length_bit = statistics.length_bit
        of_cue = _Table(statistics.cue_factor)
        of_day = _recency_table(self.settings, self.today)
        of_scope = _Table(
            lambda number: 1 + statistics.closeness_factor(self.gate.closeness(self._scope(number)))
        )
        broad = _Table(lambda number: self.gate.broad(self._scope(number)))
        candidates: list[_Candidate] = []
        weak: list[int] = []
        for rowid, mask, figures, place in rows:
            if mask in weak_masks and broad[rowid >> schema.LOCAL_BITS]:
                if not mask & common:
                    weak.append(rowid)
                continue
            score = (
                weight_of[mask] * of_length[figures >> length_bit & places.MAX_LENGTH]
                + around[place >> GROUP_BITS]
            )
            bonus = (
                of_scope[rowid >> schema.LOCAL_BITS] + of_day[figures >> places.DAY_BIT & 65_535]
            )
            score *= bonus * of_cue[figures >> places.CUES_BIT]
            candidates.append(_Candidate(score, rowid, mask, place))
        candidates.sort(key=_by_score, reverse=True)
        weak.sort()
        return candidates, weak

    def _mask_weight(self, statistics: Statistics, mask: int, share: float) -> float:
        """Weight of the terms in ``mask``, those with only a related word counted less."""
        count = len(statistics.terms)
        direct = mask & (1 << count) - 1
        related = (mask >> count & (1 << count) - 1) & ~direct
        return share * (
            statistics.weight(direct) + self.settings.weight_related * statistics.weight(related)
        )

    def _strong_terms(self, terms: tuple[Term, ...], holding: Sequence[int], segments: int) -> int:
        """Mask of the terms that are a match by themselves: exact ones and rare ones."""
        most = max(2, int(self.settings.gate_share * segments))
        mask = 0
        for place, term in enumerate(terms):
            exact = term.kind in ("identifier", "phrase", "prefix") or term.quoted
            if exact or holding[place] <= most:
                mask |= 1 << place
        return mask

    @staticmethod
    def _weak_masks(masks: Iterable[int], strong: int, terms: int) -> frozenset[int]:
        """Masks of one common word, where more than one was asked for."""
        if terms < 2 or strong == -1:
            return frozenset()
        every = (1 << terms) - 1
        return frozenset(
            each
            for each in masks
            if ((each | each >> terms) & every).bit_count() == 1 and not each & every & strong
        )

    def _second_pass(
        self, candidates: list[_Candidate], field: _Field, wanted: Wanted
    ) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
        """Exact scores, window by window; a later window never ranks above an earlier one."""
        hits: list[Hit] = []
        beyond: list[str] = []
        start, tokens, ceiling, shortest = 0, 0, float("inf"), float("inf")
        while start < len(candidates) and len(hits) + len(beyond) < wanted.limit:
            end = self._window_end(candidates, start)
            window = self._exact(candidates[start:end], field, ceiling)
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
        self, hits: Sequence[Hit], field: _Field, filters: Filters, room: int
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
        window = [_Candidate(0.0, rowid, 0, place) for rowid, place in found.items()]
        scored = self._exact(window, field, hits[-1].score)[:room]
        records = self._records([each.rowid for each in scored])
        return tuple(
            Hit(records[each.rowid], total(each.terms), each.terms, (), "neighbour")
            for each in scored
        )

    def _adjacent(self, record: Record, field: _Field) -> Iterator[tuple[int, int]]:
        """(rowid, place) of the segments in the places next to that of ``record``."""
        rows = sqlite.rows(
            self.connection,
            "SELECT m.rowid, m.line FROM memory_segments m JOIN files f ON f.no = m.file"
            " WHERE f.path = ? AND m.line IN (?,"
            " (SELECT max(line) FROM memory_segments WHERE file = f.no AND line < ?),"
            " (SELECT min(line) FROM memory_segments WHERE file = f.no AND line > ?))",
            (record.path, record.line, record.line, record.line),
        )
        field.blocks.update(stats(self.connection, [rowid for rowid, _ in rows]))
        placed = [(rowid, field.place(rowid), line) for rowid, line in rows]
        own = next((place for _, place, line in placed if line == record.line), 0)
        yield from ((rowid, place) for rowid, place, _ in placed if abs(place - own) == 1)

    def _window_end(self, candidates: list[_Candidate], start: int) -> int:
        """``rerank_count`` further on, and behind all that have the same first-pass score.

        Without the ties the border would depend on rowids, and so on the history of the index.
        """
        end = min(start + self.settings.rerank_count, len(candidates))
        while end < len(candidates) and candidates[end].score == candidates[end - 1].score:
            end += 1
        return end

    def _exact(self, window: list[_Candidate], field: _Field, ceiling: float) -> list[_Scored]:
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
            over = total(terms) - ceiling
            if over > 0:  # the sum of the parts stays the score
                terms["window"] = round(-over, DIGITS)
            key = (-total(terms), rank, scope.text, id)
            address = f"{scope.text}#{id}"
            scored.append((key, _Scored(rowid, seen.mask | seen.related, tokens, address, terms)))
        scored.sort(key=lambda item: item[0])
        return [item for _, item in scored]

    @staticmethod
    def _direct(mask: int, field: _Field) -> int:
        return mask & (1 << len(field.statistics.terms)) - 1

    def _sight(
        self, candidate: _Candidate, text: Sequence[str], named: int, rank: int, field: _Field
    ) -> Sight:
        count = len(field.statistics.terms)
        direct = self._direct(candidate.mask, field)
        return Sight(
            text=text,
            mask=direct,
            related=(candidate.mask >> count) & ~direct,
            named=named,
            near=self._near(candidate.place, field.near, count),
            figures=field.figures(candidate.rowid),
            rank=rank,
        )

    def _near(self, place: int, masks: dict[int, int], count: int) -> dict[int, float]:
        """What the segments around count for each term: the greatest, not the sum."""
        found: dict[int, float] = {}
        scale = self.settings.weight_context
        if not scale:
            return found
        related: list[tuple[float, int]] = []
        every = (1 << count) - 1
        seen = 0
        for step, share in STEPS:
            mask = masks.get(place + step)
            if mask is None:
                continue
            if step == -1 and mask >> 2 * count & ASKS:
                share = ANSWERED
            new = mask & every & ~seen
            seen |= new
            while new:
                low = new & -new
                found[low.bit_length() - 1] = share * scale
                new ^= low
            if mask >> count & every:
                related.append(
                    (share * scale * self.settings.weight_related, mask >> count & every)
                )
        for share, mask in related:
            mask &= ~seen
            while mask:
                low = mask & -mask
                at = low.bit_length() - 1
                found[at] = max(found.get(at, 0.0), share)
                mask ^= low
        return found

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
        scope = self._scopes.get(number)
        if scope is None:
            name = sqlite.value(self.connection, "SELECT name FROM scopes WHERE no = ?", (number,))
            scope = self._scopes[number] = parse_scope(name)
        return scope

    def _addresses(self, rowids: Sequence[int]) -> tuple[str, ...]:
        """Addresses of at most ``REPORTED_REJECTIONS`` rows, the same ones on every machine."""
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


class _Table(dict[int, float]):
    """A function of small numbers that is computed once for each."""

    def __init__(self, function: Callable[[int], float]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: int) -> float:
        value = self[key] = self._function(key)
        return value


@lru_cache(maxsize=8)
def _recency_table(settings: Settings, today: int) -> _Table:
    half_life = settings.half_life_days
    return _Table(lambda day: settings.weight_recency * recency(day, today, half_life))


def _by_score(candidate: _Candidate) -> float:
    return candidate[0]


def _may_be_prefix(term: Term) -> bool:
    return (
        term.kind in ("word", "identifier") and len(term.exact or term.tokens[0]) >= _PREFIX_CHARS
    )


def _as_prefix(term: Term) -> Term:
    """The term as the beginning of a word: its surface form, which `forms` keeps unstemmed."""
    return Term(
        text=f"{term.text}*", kind="prefix", tokens=(term.exact or term.tokens[0],), exact=None
    )
