"""How a match is scored (Pure).

score = bm25 + context + tags + exact + phrase + cues + closeness + recency, each reported. BM25's
statistics come from the authorised scopes alone. Context is what the segments around add to it. The
others that no word makes are shares of the two: they order what is about equally good, they never
lift what hardly matches.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from h2ams.index import places
from h2ams.memory.access import OTHER
from h2ams.settings import Settings
from h2ams.text.cues import ASKS, SELF, TIME
from h2ams.text.words import Term

DIGITS = 6  # scores are rounded to six digits, so that equal means equal on every machine
UNDATED = 0.25  # recency of a text without a usable date: as of two half-lives ago
AGAIN = 0.5  # at most, for a word around a segment that has it itself
MAX_DAY = 65_535  # days are kept in 16 bits
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def day_of(iso: str | None) -> int:
    """Whole UTC days since 1970 of an ISO time in UTC; 0 where undated or before 1970."""
    if not iso:
        return 0
    try:
        day = datetime.date.fromisoformat(iso[:10]).toordinal() - _EPOCH
    except ValueError:
        return 0
    return day if 0 < day <= MAX_DAY else 0


def idf(segments: int, holding: int) -> float:
    """Weight of a word that ``holding`` of ``segments`` segments hold; never negative."""
    return math.log(1 + (segments - holding + 0.5) / (holding + 0.5))


def recency(day: int, today: int, half_life_days: float) -> float:
    """1 for today, halved every ``half_life_days``; undated and future count as ``UNDATED``."""
    if not 0 < day <= today:
        return UNDATED
    return float(2.0 ** ((day - today) / half_life_days)) if half_life_days else UNDATED


def closeness_share(rank: int) -> float:
    """1 for the closest scope, 0 for the farthest."""
    return 1 - rank / OTHER


class Question(NamedTuple):
    """What is asked: terms in the order of the question, and whether it asks for a time.

    ``weights`` are the terms' own in the authorised scopes. ``inside_words``: a term may stand
    anywhere in a token.
    """

    terms: tuple[Term, ...]
    weights: tuple[float, ...]
    asks_time: bool = False
    inside_words: bool = False


class Sight(NamedTuple):
    """One segment as the second pass sees it. A *mask* has bit i set where term i is there.

    ``mask``: in the text or its labels; ``related``: only a word with the same root; ``named``:
    in the labels. ``near``: weight of what stands around, per term (place in the question).
    """

    text: Sequence[str]  # analysed words, forms and labels
    mask: int
    related: int
    named: int
    near: Mapping[int, float]
    figures: int
    rank: int

    def elsewhere(self) -> list[int]:
        """Places of the terms that are not in it but around, or in a related word; rising."""
        found = [place for place in self.near if not self.mask >> place & 1]
        rest = self.related
        for place in found:
            rest &= ~(1 << place)
        while rest:
            low = rest & -rest
            found.append(low.bit_length() - 1)
            rest ^= low
        found.sort()
        return found


class Statistics:
    """What the terms weigh in the authorised scopes, and the factors of a segment's own."""

    def __init__(
        self, question: Question, average_length: float, today: int, settings: Settings
    ) -> None:
        self.question = question
        self.terms = question.terms
        self.weights = question.weights
        self.today = today
        self.settings = settings
        with_context = settings.weight_context > 0
        self.length_bit = places.CONTEXT_BIT if with_context else 0  # which length of the figures
        self._average = average_length * (places.LONGER if with_context else 1)
        self._tables = [
            _sums(self.weights[start : start + 8]) for start in range(0, len(self.weights), 8)
        ]
        self._by_mask: dict[int, list[_Needle]] = {}
        self._cues = [self._cue_factor(cue, False) for cue in range(8)]
        self._own_cues = [self._cue_factor(cue, True) for cue in range(8)]

    def weight(self, mask: int) -> float:
        """Weight of all terms in ``mask`` together: looked up eight terms at a time."""
        found = 0.0
        for table in self._tables:
            found += table[mask & 255]
            mask >>= 8
        return found

    def norm(self, length: int) -> float:
        """BM25's length part: k1 * (1 - b + b * length / average), context counted with."""
        k1, b = self.settings.bm25_k1, self.settings.bm25_b
        return k1 * (1 - b + b * length / self._average)

    def length_factor(self, length: int) -> float:
        """What BM25 makes of one occurrence of a word in a segment of such a ``length``."""
        return (self.settings.bm25_k1 + 1) / (1 + self.norm(length))

    def closeness_factor(self, rank: int) -> float:
        return self.settings.weight_closeness * closeness_share(rank)

    def recency_factor(self, day: int) -> float:
        share = recency(day, self.today, self.settings.half_life_days)
        return self.settings.weight_recency * share

    def cue_factor(self, cue: int) -> float:
        """What the kind of statement makes of a score, whoever speaks."""
        return self._cues[cue & 7]

    def greatest_factor(self, closeness: float | None = None) -> float:
        """What closeness, recency and kind of statement can make of a score at most.

        ``closeness``: what it makes of one at most, if that is known to be less.
        """
        if closeness is None:
            closeness = 1 + self.settings.weight_closeness
        return (closeness + self.settings.weight_recency) * max(self._cues)

    def _cue_factor(self, cue: int, of_speaker: bool) -> float:
        factor = 1.0
        if cue & ASKS:
            factor *= 1 - min(1.0, self.settings.weight_asking)
        if cue & TIME and self.question.asks_time:
            factor *= 1 + self.settings.weight_time
        if cue & SELF and of_speaker:
            factor *= 1 + self.settings.weight_self
        return factor

    def named(self, mask: int, labels: str) -> int:
        """Those terms of ``mask`` that stand in the analysed ``labels``."""
        labels = f" {labels} "
        found = 0
        for needle in self._needles(mask):
            if needle.tokens and needle.tokens in labels:
                found |= 1 << needle.place
        return found

    def terms_of(self, seen: Sight, named: int) -> dict[str, float]:
        """The score's parts of one segment; ``named``: all terms that are a label of any."""
        words, forms, labels = (f" {each} " for each in seen.text)
        norm = self.norm(seen.figures >> self.length_bit & places.MAX_LENGTH)
        k1 = self.settings.bm25_k1
        bm25 = context = exact = phrase = 0.0
        for needle in self._needles(seen.mask):
            count = self._count(needle, words, forms)
            if (
                seen.named >> needle.place & 1
            ):  # in a tag or title: as good as once more in the text
                count += 1
            if count:
                part = needle.weight * count * (k1 + 1) / (count + norm)
                bm25 += part
                near = count + min(seen.near.get(needle.place, 0.0), AGAIN)
                context += needle.weight * near * (k1 + 1) / (near + norm) - part
            form = needle.form
            if form and (form in forms or form in words or form in labels):
                exact += needle.weight
        half = self.settings.weight_related
        for place in seen.elsewhere():
            weight = self.weights[place] * (k1 + 1)
            own = half if seen.related >> place & 1 else 0.0
            near = own + seen.near.get(place, 0.0)
            part = weight * own / (own + norm)
            bm25 += part
            context += weight * near / (near + norm) - part
        for text, weight in self._neighbours(seen.mask):
            if text in words:
                phrase += weight
        return self._parts(seen, named, bm25, context, exact, phrase)

    def _parts(
        self, seen: Sight, named: int, bm25: float, context: float, exact: float, phrase: float
    ) -> dict[str, float]:
        exact *= self.settings.weight_exact
        phrase *= self.settings.weight_phrase
        base = bm25 + context
        share = self.weight(seen.named) / self.weight(named) if seen.named else 0.0
        tags = base * share * self.settings.weight_tag
        base += tags
        factors = self._own_cues if named else self._cues
        cue = (base + exact + phrase) * (factors[places.cues_of(seen.figures) & 7] - 1)
        base += cue
        parts = {
            "bm25": bm25,
            "context": context,
            "tags": tags,
            "exact": exact,
            "phrase": phrase,
            "cues": cue,
            "closeness": base * self.closeness_factor(seen.rank),
            "recency": base * self.recency_factor(places.day_of(seen.figures)),
        }
        return {name: round(value, DIGITS) if value else 0.0 for name, value in parts.items()}

    def _count(self, needle: _Needle, words: str, forms: str) -> int:
        if not needle.tokens:  # a date
            return 1
        count = words.count(needle.tokens)
        if not count:
            return int(needle.tokens in forms)
        if not self.question.inside_words and (
            count > 1 or needle.tokens + needle.tokens[1:] in words
        ):
            return _count(needle.tokens, words)
        return count

    def _needles(self, mask: int) -> list[_Needle]:
        """What to look for in the text for the terms in ``mask``."""
        found = self._by_mask.get(mask)
        if found is None:
            found = self._by_mask[mask] = [
                self._needle(place, term)
                for place, term in enumerate(self.terms)
                if mask >> place & 1
            ]
        return found

    def _needle(self, place: int, term: Term) -> _Needle:
        weight = self.weights[place]
        if term.kind == "date":
            return _Needle(place, "", "", weight)
        if self.question.inside_words:
            return _Needle(place, term.tokens[0], "", weight)
        tokens = f" {' '.join(term.tokens)}"
        if term.kind == "prefix":
            return _Needle(place, tokens, "", weight)
        single = len(term.tokens) == 1
        form = f" {term.exact or term.tokens[0]} " if single else ""
        return _Needle(place, f"{tokens} ", form, weight)

    def _neighbours(self, mask: int) -> list[tuple[str, float]]:
        """Neighbouring terms of the query, to be found next to each other in the text too."""
        both = mask & mask >> 1
        if not both:
            return []
        found = []
        for place in range(both.bit_length()):
            left, right = self.terms[place], self.terms[place + 1]
            if both >> place & 1 and left.kind in _PLAIN and right.kind in _PLAIN:
                weight = min(self.weights[place], self.weights[place + 1])
                found.append((f" {left.tokens[-1]} {right.tokens[0]} ", weight))
        return found


def _sums(weights: Sequence[float]) -> list[float]:
    """The sum of each subset of at most eight ``weights``, by its mask."""
    sums = [0.0]
    for weight in weights:
        sums += [each + weight for each in sums]
    return sums


class _Needle(NamedTuple):
    """A term as it is looked for in a text: its tokens, and the very form asked for or ""."""

    place: int
    tokens: str
    form: str
    weight: float


_PLAIN = frozenset({"word", "pair"})


def _count(needle: str, words: str) -> int:
    """Occurrences of ``needle``, which begins with a blank and may end with one, overlaps too."""
    count = start = 0
    while (start := words.find(needle, start)) >= 0:
        count += 1
        start += len(needle) - 1
    return count


def total(terms: dict[str, float]) -> float:
    """The score: the sum of its reported parts, rounded like them."""
    return round(sum(terms.values()), DIGITS)
