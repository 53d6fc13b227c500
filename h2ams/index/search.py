"""Recall's ranked search over the authorised scopes (Derived, read-only).

Two passes, both inside the authorised rowid ranges. The first asks FTS5 for the rows of each word
(no ranking, no foreign statistics) and orders them by BM25 with every word counted once, closeness
and recency. The second looks at the text of the best ``Settings.rerank_count`` of them and scores
them exactly. The order so defined does not depend on how many results are asked for, on rowids, or
on anything outside the authorised scopes.

If nothing is found there is one relaxed reading, in three steps: what the gate held back, prefixes,
substrings. The result says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from h2ams import sqlite
from h2ams.index import schema
from h2ams.index.lookup import Area, Lookup, area_of, match_of
from h2ams.index.score import DIGITS, Statistics, idf, recency, total
from h2ams.memory.access import Gate
from h2ams.memory.record import Hit, Record
from h2ams.memory.scope import Scope, parse_scope
from h2ams.settings import Settings
from h2ams.text.words import Query, Term

COUNTED_TERMS = 512  # terms of a very long query whose rows are counted to find the rarest
REPORTED_REJECTIONS = 20
_PREFIX_CHARS = 3  # shorter words are no prefixes in the relaxed reading

RECORD_COLUMNS = (
    "m.scope, m.id, m.kind, m.tags, m.body, m.heading, m.created_at, m.updated_at, m.sources,"
    " f.path, m.line, m.tokens, m.digest, m.note, m.stale, m.over_limit, m.rowid"
)
RECORD_TABLES = "memory_segments m JOIN files f ON f.no = m.file"


class Filters(NamedTuple):
    """What a hit must be besides matching. Empty means: no such filter. Times are ISO in UTC."""

    kinds: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    after: str | None = None
    before: str | None = None
    scopes: tuple[str, ...] = ()  # names with * ? [ ]

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


# A row of the first pass: (score, rowid, mask); bit i of the mask: term i is in the segment.
_Candidate = tuple[float, int, int]


class _Reading(NamedTuple):
    """One way of reading the query: its terms and the rows of the term at a place."""

    terms: tuple[Term, ...]
    rows: Callable[[int], list[int]]
    relaxed: bool = True
    inside_words: bool = False


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
        self, connection: sqlite.Connection, gate: Gate, settings: Settings, *, today: int
    ) -> None:
        self.connection = connection
        self.gate = gate
        self.settings = settings
        self.today = today
        self._scopes: dict[int, Scope] = {}

    def search(self, query: Query, *, wanted: Wanted, filters: Filters) -> Found:
        """The best hits, best first, as many as ``wanted``."""
        area = area_of(self.connection, self.gate, self._only(filters.scopes))
        lookup = Lookup(self.connection, area)
        terms, dropped = self._bounded(query.terms, lookup)
        found = Found(searched=area.names, dropped_terms=dropped)
        if not terms or not area.segments:
            return found
        for reading in self._readings(query, terms, lookup):
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

    def _only(self, globs: Sequence[str]) -> tuple[str, ...] | None:
        if not globs:
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
        self, query: Query, terms: tuple[Term, ...], lookup: Lookup
    ) -> Iterator[_Reading]:
        """The strict reading, then the relaxed ones; the next only if one found nothing."""
        cache: dict[int, list[int]] = {}

        def plain(place: int) -> list[int]:
            if place not in cache:
                cache[place] = lookup.rows(match_of(terms[place]))
            return cache[place]

        yield _Reading(terms, plain, relaxed=False)
        yield _Reading(terms, plain)
        prefixes = tuple(_as_prefix(term) for term in terms if _may_be_prefix(term))
        if prefixes:
            yield _Reading(prefixes, lambda place: lookup.rows(match_of(prefixes[place])))
        pieces = tuple(
            Term(text=piece, kind="word", tokens=(piece,), exact=None)
            for piece in query.fragments[: self.settings.query_terms_count]
        )
        if pieces:
            most = self.settings.substring_segments_count
            yield _Reading(
                pieces,
                lambda place: lookup.containing(pieces[place].tokens[0], most)[0],
                inside_words=True,
            )

    # -- ranking ---------------------------------------------------------------------------------

    def _ranked(
        self, reading: _Reading, area: Area, lookup: Lookup, filters: Filters, wanted: Wanted
    ) -> Found:
        terms = reading.terms
        masks: dict[int, int] = {}
        holding = []
        for place in range(len(terms)):
            bit, get = 1 << place, masks.get
            rows = reading.rows(place)
            holding.append(len(rows))
            for rowid in rows:
                masks[rowid] = get(rowid, 0) | bit
        if filters.on_rows and masks:
            masks = self._filtered(masks, filters)
        if not masks:
            return Found()
        weights = tuple(idf(area.segments, each) if each else 0.0 for each in holding)
        statistics = Statistics(
            terms,
            weights,
            area.average_length or 1.0,
            self.today,
            self.settings,
            inside_words=reading.inside_words,
        )
        strong = -1 if reading.relaxed else self._strong_terms(terms, holding, area.segments)
        blocks = lookup.stats(masks)
        candidates, weak = self._first_pass(masks, statistics, blocks, strong)
        gated = self._addresses(weak) if weak else ()
        hits, beyond = self._second_pass(candidates, statistics, blocks, wanted)
        return Found(hits, below_gate=gated, beyond=beyond)

    def _first_pass(
        self,
        masks: dict[int, int],
        statistics: Statistics,
        blocks: dict[int, memoryview],
        strong: int,
    ) -> tuple[list[_Candidate], list[int]]:
        """Candidates, best first, and the rowids of those that the gate holds back.

        The inner loop of recall: factors are looked up, not computed, per row.
        """
        weights = {mask: statistics.weight(mask) for mask in set(masks.values())}
        weak_masks = self._weak_masks(weights, strong, len(statistics.terms))
        of_length = _Table(statistics.length_factor)
        of_day = _recency_table(self.settings, self.today)
        of_scope = _Table(
            lambda number: 1 + statistics.closeness_factor(self.gate.closeness(self._scope(number)))
        )
        broad = _Table(lambda number: self.gate.broad(self._scope(number)))
        candidates: list[_Candidate] = []
        weak: list[int] = []
        for rowid, mask in masks.items():
            if mask in weak_masks and broad[rowid >> schema.LOCAL_BITS]:
                weak.append(rowid)
                continue
            block = blocks[rowid >> schema.BLOCK_BITS]
            place = 2 * (rowid & schema.BLOCK_MASK)
            bonus = of_scope[rowid >> schema.LOCAL_BITS] + of_day[block[place + 1]]
            candidates.append((weights[mask] * of_length[block[place]] * bonus, rowid, mask))
        candidates.sort(key=_by_score, reverse=True)
        weak.sort()
        return candidates, weak

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
        return frozenset(each for each in masks if each.bit_count() == 1 and not each & strong)

    def _second_pass(
        self,
        candidates: list[_Candidate],
        statistics: Statistics,
        blocks: dict[int, memoryview],
        wanted: Wanted,
    ) -> tuple[tuple[Hit, ...], tuple[str, ...]]:
        """Exact scores, window by window; a later window never ranks above an earlier one."""
        hits: list[Hit] = []
        beyond: list[str] = []
        start, tokens, ceiling, shortest = 0, 0, float("inf"), float("inf")
        while start < len(candidates) and len(hits) + len(beyond) < wanted.limit:
            end = self._window_end(candidates, start)
            window = self._exact(candidates[start:end], statistics, blocks, ceiling)
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
                bits = enumerate(statistics.terms)
                names = (term.text for place, term in bits if each.mask >> place & 1)
                found = tuple(dict.fromkeys(names))
                hits.append(Hit(records[each.rowid], total(each.terms), each.terms, found))
            if tokens >= wanted.tokens:  # enough text: a further window would only be rejected
                break
            start, ceiling = end, total(window[-1].terms)
        return tuple(hits), tuple(beyond)

    def _window_end(self, candidates: list[_Candidate], start: int) -> int:
        """``rerank_count`` further on, and behind all that have the same first-pass score.

        Without the ties the border would depend on rowids, and so on the history of the index.
        """
        end = min(start + self.settings.rerank_count, len(candidates))
        while end < len(candidates) and candidates[end][0] == candidates[end - 1][0]:
            end += 1
        return end

    def _exact(
        self,
        window: list[_Candidate],
        statistics: Statistics,
        blocks: dict[int, memoryview],
        ceiling: float,
    ) -> list[_Scored]:
        """The window with exact scores, best first, ties by closeness and address."""
        masks = {rowid: mask for _, rowid, mask in window}
        rows = sqlite.rows(
            self.connection,
            "SELECT rowid, id, tokens, words, forms, labels FROM memory_segments"
            " WHERE rowid IN carray(?)",
            (sqlite.integers(masks),),
        )
        scored = []
        for rowid, id, tokens, *text in rows:
            block = blocks[rowid >> schema.BLOCK_BITS]
            place = 2 * (rowid & schema.BLOCK_MASK)
            scope = self._scope(rowid >> schema.LOCAL_BITS)
            rank = self.gate.closeness(scope)
            terms = statistics.terms_of(
                text, masks[rowid], length=block[place], rank=rank, day=block[place + 1]
            )
            over = total(terms) - ceiling
            if over > 0:  # the sum of the parts stays the score
                terms["window"] = round(-over, DIGITS)
            key = (-total(terms), rank, scope.text, id)
            address = f"{scope.text}#{id}"
            scored.append((key, _Scored(rowid, masks[rowid], tokens, address, terms)))
        scored.sort(key=lambda item: item[0])
        return [item for _, item in scored]

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
