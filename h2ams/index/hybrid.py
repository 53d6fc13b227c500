"""Words and vectors together: one ranked list out of both (Derived, read-only, optional).

A lexical hit's score grows by ``semantic``: its cosine with the question, in units of the best
lexical score. Segments that share no word with the question but are like it enter with that part
alone. Adding up keeps what the words say; merging by rank lost four points of recall, since a
static vector's order is much the poorer one (docs/decisions/0022). The weight is zero for questions
that are not in Latin letters: the vectors know little of other scripts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from h2ams import sqlite
from h2ams.index.encoder import Question
from h2ams.index.lookup import Area, Lookup, match_of
from h2ams.index.score import DIGITS, idf, total
from h2ams.index.search import (
    RECORD_COLUMNS,
    RECORD_TABLES,
    Filters,
    Found,
    Searcher,
    Wanted,
)
from h2ams.index.vectors import Vectors
from h2ams.memory.record import Hit, Record
from h2ams.memory.scope import parse_scope
from h2ams.text.words import Query

DEPTH = 128  # lexical and semantic candidates that are looked at
WEIGHED_TERMS = 24  # of a long question; the first ones
LATIN_SHARE = 0.8  # of a question's letters, at least


def search(
    searcher: Searcher,
    vectors: Vectors,
    text: str,
    query: Query,
    *,
    wanted: Wanted,
    filters: Filters,
) -> Found:
    """Like ``searcher.search``, with the semantic part of the score.

    The order of the first ``DEPTH`` does not depend on how many are wanted.
    """
    weight = searcher.settings.weight_semantic if is_latin(text) else 0.0
    if not weight or not vectors.is_complete(searcher.connection):
        return searcher.search(query, wanted=wanted, filters=filters)
    found = searcher.search(query, wanted=Wanted(max(wanted.limit, DEPTH)), filters=filters)
    best = found.hits[0].score if found.hits else 1.0
    weight *= vectors.encoder.trust
    area = _area(searcher, filters.scopes)
    question = Question(text, _weighted(Lookup(searcher.connection, area), query))
    hits = _joined(searcher, vectors, question, area, found.hits, weight * best, filters)
    hits.sort(key=lambda each: _place(searcher, *each))
    taken = {hit.record.address for _, hit in hits}
    below = tuple(address for address in found.below_gate if address not in taken)
    return cut(found._replace(hits=tuple(hit for _, hit in hits), below_gate=below), wanted)


def is_latin(text: str) -> bool:
    """Whether nearly all letters of ``text`` are those of the basic Latin alphabet."""
    letters = [each for each in text if each.isalpha()]
    latin = sum(each.isascii() for each in letters)
    return bool(letters) and latin >= LATIN_SHARE * len(letters)


def _joined(
    searcher: Searcher,
    vectors: Vectors,
    question: Question,
    area: Area,
    lexical: tuple[Hit, ...],
    unit: float,
    filters: Filters,
) -> list[tuple[bool, Hit]]:
    """Lexical hits with their semantic part, and those that only the vectors find.

    The flag: only what stands around the segment was found, and it is not like the question itself.
    """
    connection = searcher.connection
    rowids = _rowids(connection, lexical)
    scanned = area.segments <= searcher.settings.semantic_segments_count
    best = DEPTH if scanned else 0
    looked_at = [rowids[hit.record.address] for hit in lexical[:DEPTH]]
    likeness = vectors.likeness(connection, question, area.ranges, looked_at, best)
    least = searcher.settings.semantic_floor
    hits = []
    for place, hit in enumerate(lexical):
        rowid = rowids[hit.record.address]
        cosine = likeness.pop(rowid, 0.0)
        part = round(unit * max(0.0, cosine), DIGITS)
        around = hit.through == "neighbour"
        if place < DEPTH:
            terms = {**hit.terms, "semantic": part}
            hit = replace(hit, score=total(terms), terms=terms)
            hits.append((around and cosine < least, hit))
        elif part > hit.score and cosine >= least:
            likeness[rowid] = cosine  # as if fewer were wanted: semantic alone
        else:
            hits.append((around, hit))
    near = {rowid: cosine for rowid, cosine in likeness.items() if cosine >= least}
    for rowid, record in _records(searcher, near, filters).items():
        terms = {"semantic": round(unit * near[rowid], DIGITS)}
        hits.append((False, Hit(record, total(terms), terms)))
    return hits


def _area(searcher: Searcher, globs: Sequence[str] | None) -> Area:
    """The readable scopes, narrowed to those that ``globs`` name; None does not narrow."""
    whole = searcher.area()
    if globs is None:
        return whole
    named = [name for name in whole.names if any(fnmatchcase(name, glob) for glob in globs)]
    return searcher.area(named)


def _records(searcher: Searcher, rowids: Iterable[int], filters: Filters) -> dict[int, Record]:
    """Records of those of ``rowids``, which are readable, that ``filters`` let through."""
    rows = sqlite.rows(
        searcher.connection,
        f"SELECT {RECORD_COLUMNS} FROM {RECORD_TABLES} WHERE m.rowid IN carray(?)",
        (sqlite.integers(rowids),),
    )
    found = {row[-1]: searcher.record(row) for row in rows}
    return {rowid: record for rowid, record in found.items() if _admitted(record, filters)}


def _admitted(record: Record, filters: Filters) -> bool:
    if filters.kinds and record.kind not in filters.kinds:
        return False
    wanted = {tag.casefold() for tag in filters.tags}
    if wanted and not wanted & {tag.casefold() for tag in record.tags}:
        return False
    moment = record.updated_at or record.created_at or ""
    if filters.after and moment < filters.after:
        return False
    return not filters.before or (bool(moment) and moment < filters.before)


def _weighted(lookup: Lookup, query: Query) -> tuple[tuple[str, float], ...]:
    """The question's words with their weights in the readable scopes: rare ones say more."""
    segments = lookup.area.segments
    return tuple(
        (term.text.rstrip("*"), idf(segments, lookup.count(match_of(term))))
        for term in query.terms[:WEIGHED_TERMS]
    )


def _rowids(connection: sqlite.Connection, hits: tuple[Hit, ...]) -> dict[str, int]:
    """Rowids of the hits by address."""
    asked = json.dumps([[hit.record.scope, hit.record.id] for hit in hits])
    rows = sqlite.rows(
        connection,
        "SELECT s.name, m.id, m.rowid FROM json_each(?) j JOIN scopes s ON s.name = j.value->>0"
        " JOIN memory_segments m ON m.scope = s.no AND m.id = j.value->>1",
        (asked,),
    )
    return {f"{scope}#{id}": rowid for scope, id, rowid in rows}


def _place(searcher: Searcher, around: bool, hit: Hit) -> tuple[bool, float, int, str, str]:
    """Order of hits: by score, ties by closeness and address, as in a lexical search."""
    scope = parse_scope(hit.record.scope)
    return (around, -hit.score, searcher.gate.closeness(scope), scope.text, hit.record.id)


def cut(found: Found, wanted: Wanted) -> Found:
    """``found`` with as many hits as are ``wanted``; the others are named as beyond."""
    shown: list[Hit] = []
    beyond: list[str] = []
    tokens, shortest = 0, float("inf")
    for hit in found.hits[: wanted.limit]:
        size = hit.record.tokens
        if tokens >= wanted.tokens and size >= shortest:
            beyond.append(hit.record.address)
            continue
        shown.append(hit)
        shortest = min(shortest, size)
        tokens += size if size <= wanted.room else 0
    return found._replace(hits=tuple(shown), beyond=tuple(beyond))
