"""What a question is looked up as: readings of it, and the rows of each term (Derived, read-only).

The strict reading comes first; the relaxed ones only where it found nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from h2ams.index.lookup import Area, Lookup, match_of, match_of_any
from h2ams.index.score import idf
from h2ams.settings import Settings
from h2ams.text.cues import asks_time, may_name_days
from h2ams.text.words import Query, Term, parse_query, roots_of

COUNTED_TERMS = 512  # terms of a very long query whose rows are counted to find the rarest
COMMON_ROWS = 4_096  # a word in more of the authorised rows is common: see Reading
LONG_SPAN_DAYS = 62  # a longer one says too little to be looked up
DATE_WORD = 0.3  # of its weight: a word that names a day which is looked up as such
LONGER_SPAN = 2 / 3  # of what a day counts: weeks and months
PREFIX_TERMS = 8  # of one question; each is read over all words that begin so
KEPT_TERMS = 4
ROWS_PER_SEGMENT = 2
SMALL_ROWS = 8_000
_PREFIX_CHARS = 3  # shorter words are no prefixes in the relaxed reading

Dated = tuple[Term, int, int]  # days that a question names as a term, the first and the last


class Reading(NamedTuple):
    """One way of reading the query: its terms and the rows of the term at a place.

    ``few`` gives the rows of a term, or None where it is *common*. Common words count in the
    segments that have them, not in those around, and are no reason to list what the gate holds
    back: so the rows that have nothing else need not be fetched if enough better ones are there.
    ``factors``: what each term counts, as a multiple of its weight; empty: all alike.
    ``related``: the rows of other words with the term's root, for a term that few rows have.
    """

    terms: tuple[Term, ...]
    rows: Callable[[int], list[int]]
    few: Callable[[int], list[int] | None]
    related: Callable[[int], list[int]] | None = None
    factors: tuple[float, ...] = ()
    relaxed: bool = True
    inside_words: bool = False
    asks_time: bool = False


class Held(NamedTuple):
    """How many rows hold each term, what it weighs, the mask of the common ones, the rows of the
    others with their masks, and the terms that are not looked up: they have too many rows."""

    counts: tuple[int, ...]
    weights: tuple[float, ...]
    common: int
    masks: dict[int, int]
    dropped: tuple[str, ...]


def bounded(
    terms: tuple[Term, ...], lookup: Lookup, settings: Settings
) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """At most ``query_terms_count`` terms: the rarest here, in the order of the query."""
    most = settings.query_terms_count
    prefixes = [place for place, term in enumerate(terms) if term.kind == "prefix"]
    over = set(prefixes[PREFIX_TERMS:])
    if len(terms) <= most and not over:
        return terms, ()
    counted = [
        (lookup.count(match_of(term)), place)
        for place, term in enumerate(terms[:COUNTED_TERMS])
        if place not in over
    ]
    rarest = sorted(each for each in counted if each[0])[:most]
    kept = {place for _, place in rarest}
    unknown = {place for count, place in counted if not count}
    dropped = (term.text for place, term in enumerate(terms) if place not in kept | unknown)
    return tuple(terms[place] for place in sorted(kept)), tuple(dict.fromkeys(dropped))


def dates_in(query: Query, settings: Settings, today: int) -> tuple[Dated, ...]:
    """Days that the question names, as terms with their first and last day."""
    if not may_name_days(query.text):
        return ()
    from h2ams.text.dates import spans_in  # its patterns take 4 ms to make

    return tuple(
        (Term(span.text, "date", ()), span.first, span.last + settings.date_after_days)
        for span in spans_in(query.text, today)
        if span.last - span.first <= LONG_SPAN_DAYS
    )


def readings(
    query: Query,
    terms: tuple[Term, ...],
    dates: tuple[Dated, ...],
    lookup: Lookup,
    settings: Settings,
) -> Iterator[Reading]:
    """The strict reading, then the relaxed ones; the next only if one found nothing."""
    cache: dict[int, list[int]] = {}
    asked = (*terms, *(term for term, _, _ in dates))
    most = int(settings.related_share * lookup.area.segments)

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
        if found is None or len(found) > most or settings.weight_related == 0:
            return []
        tokens = roots_of(asked[place])
        return lookup.rows(match_of_any(tokens)) if tokens else []

    when = asks_time(query.text)
    factors = _factors(terms, dates, settings)
    yield Reading(asked, plain, few, related, factors, relaxed=False, asks_time=when)
    if not _only_days(asked, factors):  # then what the gate held back for its day stays away
        asked, factors = terms, factors[: len(terms)]
    yield Reading(asked, plain, few, related, factors, asks_time=when)
    prefixes = tuple(_as_prefix(term) for term in terms if _may_be_prefix(term))
    if prefixes:

        def beginning(place: int) -> list[int]:
            return lookup.rows(match_of(prefixes[place]))

        yield Reading(prefixes, beginning, beginning)
    pieces = tuple(
        Term(text=piece, kind="word", tokens=(piece,), exact=None)
        for piece in query.fragments[: settings.query_terms_count]
    )
    if pieces:
        limit = settings.substring_segments_count

        def containing(place: int) -> list[int]:
            return lookup.containing(pieces[place].tokens[0], limit)[0]

        yield Reading(pieces, containing, containing, inside_words=True)


def _factors(
    terms: tuple[Term, ...], dates: tuple[Dated, ...], settings: Settings
) -> tuple[float, ...]:
    """What each term counts, as a multiple of its weight: days more, the words naming them less.

    A day is said by when a text was written; the same number or month in a text is mostly chance.
    """
    naming = {
        each.tokens
        for term, _, _ in dates
        for each in parse_query(term.text, max_chars=len(term.text)).terms
    }
    of_day = settings.weight_date
    return (
        *(DATE_WORD if term.tokens in naming else 1.0 for term in terms),
        *(
            of_day if last - first <= settings.date_after_days else of_day * LONGER_SPAN
            for _, first, last in dates
        ),
    )


def _only_days(terms: tuple[Term, ...], factors: tuple[float, ...]) -> bool:
    """Whether nothing is asked for but days: by themselves, and by the words that name them."""
    pairs = zip(terms, factors, strict=True)
    return all(term.kind == "date" or factor == DATE_WORD for term, factor in pairs)


def held_by(reading: Reading, area: Area, lookup: Lookup) -> Held:
    """The rows of all terms of ``reading`` that are not common."""
    masks: dict[int, int] = {}
    get = masks.get
    count = len(reading.terms)
    weights = []
    common = 0
    found = [reading.few(place) for place in range(count)]
    counts = [
        lookup.count(match_of(term)) if rows is None else len(rows)
        for term, rows in zip(reading.terms, found, strict=True)
    ]
    dropped = too_many(counts, area.segments)
    for place, term in enumerate(reading.terms):
        bit = 1 << place
        rows = found[place]
        if place in dropped:
            counts[place] = 0
            weights.append(0.0)
            continue
        if rows is None:
            common |= bit
            weights.append(idf(area.segments, counts[place]))
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
        factor = reading.factors[place] if reading.factors else 1.0
        weights.append(factor * idf(area.segments, both) if both else 0.0)
    texts = tuple(reading.terms[place].text for place in sorted(dropped))
    return Held(tuple(counts), tuple(weights), common, masks, texts)


def too_many(counts: Sequence[int], segments: int) -> frozenset[int]:
    """Places of the commonest terms that are left out, so that a question has a greatest cost.

    The rarest are kept as long as their rows are not more than ``ROWS_PER_SEGMENT`` times the
    segments; ``KEPT_TERMS`` of them in any case, and all in a small area.
    """
    budget = max(SMALL_ROWS, ROWS_PER_SEGMENT * segments)
    if sum(counts) <= budget:
        return frozenset()
    dropped = set()
    rows = 0
    for number, (count, place) in enumerate(sorted((n, at) for at, n in enumerate(counts))):
        rows += count
        if number >= KEPT_TERMS and rows > budget:
            dropped.add(place)
    return frozenset(dropped)


def with_common(held: Held, reading: Reading, lookup: Lookup, complete: bool) -> dict[int, int]:
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


def strong_terms(
    reading: Reading, holding: Sequence[int], segments: int, settings: Settings
) -> int:
    """Mask of the terms that are a match by themselves: exact ones and rare ones.

    A day is one only where nothing else is asked for: much that was written then is about other
    things.
    """
    most = max(2, int(settings.gate_share * segments))
    mask = 0
    other = bool(reading.factors) and not _only_days(reading.terms, reading.factors)
    for place, term in enumerate(reading.terms):
        if other and term.kind == "date":
            continue
        exact = term.kind in ("identifier", "phrase", "prefix") or term.quoted
        if exact or holding[place] <= most:
            mask |= 1 << place
    return mask


def _may_be_prefix(term: Term) -> bool:
    return (
        term.kind in ("word", "identifier") and len(term.exact or term.tokens[0]) >= _PREFIX_CHARS
    )


def _as_prefix(term: Term) -> Term:
    """The term as the beginning of a word: its surface form, which `forms` keeps unstemmed."""
    return Term(
        text=f"{term.text}*", kind="prefix", tokens=(term.exact or term.tokens[0],), exact=None
    )
