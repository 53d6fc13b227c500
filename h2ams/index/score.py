"""How a match is scored (Pure).

score = bm25 + tags + exact + phrase + closeness + recency, each reported. BM25's statistics come
from the authorised scopes alone. Closeness and recency are shares of the BM25 part: they order what
is about equally good, they never lift what hardly matches.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

from h2ams.memory.access import OTHER
from h2ams.settings import Settings
from h2ams.text.words import Term

DIGITS = 6  # scores are rounded to six digits, so that equal means equal on every machine
UNDATED = 0.25  # recency of a text without a usable date: as of two half-lives ago


MAX_LENGTH = 65_535  # lengths and days are kept in 16 bits each
_EPOCH = datetime.date(1970, 1, 1).toordinal()


def day_of(iso: str | None) -> int:
    """Whole UTC days since 1970 of an ISO time in UTC; 0 where undated or before 1970."""
    if not iso:
        return 0
    try:
        day = datetime.date.fromisoformat(iso[:10]).toordinal() - _EPOCH
    except ValueError:
        return 0
    return day if 0 < day <= MAX_LENGTH else 0


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


class Statistics:
    """What the terms weigh in the authorised scopes, and the factors of a segment's own.

    A *mask* has bit i set where term i is in the segment.
    """

    def __init__(
        self,
        terms: tuple[Term, ...],
        weights: tuple[float, ...],
        average_length: float,
        today: int,
        settings: Settings,
        *,
        inside_words: bool = False,
    ) -> None:
        """``inside_words``: a term may stand anywhere in a token."""
        self.inside_words = inside_words
        self.terms = terms
        self.weights = weights
        self.average_length = average_length
        self.today = today
        self.settings = settings
        self._by_mask: dict[int, list[tuple[str, str, float]]] = {}

    def weight(self, mask: int) -> float:
        """Weight of all terms in ``mask`` together."""
        return sum(weight for place, weight in enumerate(self.weights) if mask >> place & 1)

    def norm(self, length: int) -> float:
        """BM25's length part: k1 * (1 - b + b * length / average)."""
        k1, b = self.settings.bm25_k1, self.settings.bm25_b
        return k1 * (1 - b + b * length / self.average_length)

    def length_factor(self, length: int) -> float:
        """What BM25 makes of one occurrence of a word in a segment of ``length`` words."""
        return (self.settings.bm25_k1 + 1) / (1 + self.norm(length))

    def closeness_factor(self, rank: int) -> float:
        return self.settings.weight_closeness * closeness_share(rank)

    def recency_factor(self, day: int) -> float:
        share = recency(day, self.today, self.settings.half_life_days)
        return self.settings.weight_recency * share

    def terms_of(
        self, text: Sequence[str], mask: int, *, length: int, rank: int, day: int
    ) -> dict[str, float]:
        """The score's parts of one segment from its analysed text: words, forms and labels."""
        words, forms, labels = (f" {each} " for each in text)
        norm = self.norm(length)
        k1 = self.settings.bm25_k1
        bm25 = tags = exact = phrase = 0.0
        for needle, exact_needle, weight in self._needles(mask):
            count = words.count(needle)
            if count:
                if not self.inside_words and (count > 1 or needle + needle[1:] in words):
                    count = _count(needle, words)
            elif needle in forms:
                count = 1
            if needle in labels:  # said in a tag or title: as good as said once more in the text
                count += 1
                tags += weight
            if count:
                bm25 += weight * count * (k1 + 1) / (count + norm)
            if exact_needle and (
                exact_needle in forms or exact_needle in words or exact_needle in labels
            ):
                exact += weight
        for needle, weight in self._neighbours(mask):
            if needle in words:
                phrase += weight
        tags *= self.settings.weight_tag
        base = bm25 + tags
        return {
            "bm25": round(bm25, DIGITS),
            "tags": round(tags, DIGITS),
            "exact": round(exact * self.settings.weight_exact, DIGITS),
            "phrase": round(phrase * self.settings.weight_phrase, DIGITS),
            "closeness": round(base * self.closeness_factor(rank), DIGITS),
            "recency": round(base * self.recency_factor(day), DIGITS),
        }

    def _needles(self, mask: int) -> list[tuple[str, str, float]]:
        """(tokens, the very form asked for or "", weight) of the terms in ``mask``.

        The form asked for is there too only if it is not another word with the same stem.
        """
        found = self._by_mask.get(mask)
        if found is None:
            found = self._by_mask[mask] = []
            for place, term in enumerate(self.terms):
                if not mask >> place & 1:
                    continue
                needle = f" {' '.join(term.tokens)}"
                if self.inside_words:
                    found.append((term.tokens[0], "", self.weights[place]))
                    continue
                if term.kind == "prefix":
                    found.append((needle, "", self.weights[place]))
                    continue
                single = len(term.tokens) == 1
                exact = f" {term.exact or term.tokens[0]} " if single else ""
                found.append((f"{needle} ", exact, self.weights[place]))
        return found

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
