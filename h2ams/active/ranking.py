"""Which candidates come first and which say the same (Pure).

Strategy: one order per layer, total and independent of the order of the input. Texts are compared
in a conservative normal form (case, white space, list markers and the punctuation around words do
not count; symbols such as ``C++`` do). Of near duplicates the more detailed copy wins. Pairs are
found through rare word shingles, not by comparing all with all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date
from math import ceil

from h2ams.active.block import LAYERS, Candidate, Layer, Rejection
from h2ams.text.likeness import (
    CONTAINED_MIN_CHARS,
    JACCARD_MIN,
    ROUNDING,
    Shingle,
    Wording,
    alike,
    contained,
    may_be_alike,
    wording,
)

FEW_TEXTS = 16  # of one scope: compared pair by pair, which is cheaper than preparing for more
SCORE_DIGITS = 6  # scores are compared as they are shown

# Order of Recent within one turn: docs/domain.md, "Recent".
RECENT_KINDS = (
    "correction",
    "decision",
    "preference",
    "project-convention",
    "pitfall",
    "lesson",
    "goal",
    "fact",
    "workflow",
    "relation",
    "context",
)
_KIND_RANK = {kind: rank for rank, kind in enumerate(RECENT_KINDS)}
_LAYER_RANK = {layer: rank for rank, layer in enumerate(LAYERS)}


def day(text: str | None, now: str) -> str:
    """``YYYY-MM-DD`` of a date that ranks, "" for none, an impossible one, or one after ``now``.

    ``now`` is ISO 8601 in UTC. Days compare as text; undated ones come last.
    """
    if text is None:
        return ""
    try:
        found = date.fromisoformat(text[:10]).isoformat()
    except ValueError:
        return ""
    return found if found <= now[:10] else ""


def in_order(layer: Layer, candidates: Iterable[Candidate], now: str) -> tuple[Candidate, ...]:
    """``candidates`` of one layer, best first.

    Resident: by closeness of the scope. Recent: by turn (the score), then kind. On demand: pinned
    first, then score, newer date, closeness. The address decides ties.
    """
    chosen = [each for each in candidates if each.layer == layer]
    chosen.sort(key=lambda each: (each.address, each.is_summary))
    chosen.sort(key=lambda each: each.closeness)
    chosen.sort(key=lambda each: day(each.date, now), reverse=True)
    if layer == "recent":
        chosen.sort(key=lambda each: _KIND_RANK.get(each.kind, len(_KIND_RANK)))
    if layer == "resident":
        chosen.sort(key=lambda each: (each.closeness, each.scope))
    else:
        chosen.sort(key=lambda each: (not each.pinned, -round(each.score, SCORE_DIGITS)))
    return tuple(chosen)


def admit(
    candidates: Iterable[Candidate],
) -> tuple[tuple[Candidate, ...], tuple[Rejection, ...]]:
    """One candidate per address, the stale ones rejected.

    A segment offered in two layers is shown in the earlier one (its place in the prompt stays)
    with the better score's terms. A copy that is not stale beats one that is.
    """
    copies: dict[tuple[str, bool], list[Candidate]] = {}
    for each in candidates:
        copies.setdefault((each.address, each.is_summary), []).append(each)
    admitted: list[Candidate] = []
    rejected: list[Rejection] = []
    for (address, _), group in copies.items():
        fresh = [each for each in group if not each.stale]
        if fresh:
            admitted.append(_merged(fresh))
        else:
            rejected.append(Rejection(address, "stale"))
    return tuple(admitted), tuple(rejected)


def _merged(group: Sequence[Candidate]) -> Candidate:
    if len(group) == 1:
        return group[0]
    ordered = sorted(group, key=lambda c: (_LAYER_RANK[c.layer], -c.score, -len(c.body), c.body))
    terms = {name: value for each in reversed(ordered) for name, value in each.terms.items()}
    return replace(ordered[0], terms=terms, pinned=any(each.pinned for each in ordered))


def duplicates(
    candidates: Sequence[Candidate], now: str, shown: Sequence[Candidate] = ()
) -> dict[int, Candidate]:
    """Which of ``candidates`` say what another one says: position -> the copy that wins.

    The more detailed copy wins, then the newer, the closer, the earlier layer. ``shown`` are
    copies that have won already. Equal texts are duplicates in any two scopes; near ones (one
    contains the other, or nearly the same words) only within one scope.
    """
    offered = [*shown, *candidates]
    forms = [wording(each.body) for each in offered]
    first = len(shown)
    order = sorted(range(first, len(offered)), key=lambda at: _detail(offered[at]))
    order.sort(key=lambda at: day(offered[at].date, now), reverse=True)
    order.sort(key=lambda at: forms[at].chars, reverse=True)
    equal: dict[str, int] = {}
    scopes = {scope: _Kept(members, forms) for scope, members in _by_scope(offered).items()}
    found: dict[int, Candidate] = {}
    for at in [*range(first), *order]:
        kept = scopes[offered[at].scope]
        if at >= first:
            winner = equal.get(forms[at].text)
            if winner is None:
                winner = kept.near(at, both_ways=first > 0)
            if winner is not None:
                found[at - first] = offered[winner]
                continue
        equal.setdefault(forms[at].text, at)
        kept.add(at)
    return found


def _detail(candidate: Candidate) -> tuple[int, int, str]:
    return candidate.closeness, _LAYER_RANK[candidate.layer], candidate.address


def _by_scope(offered: Sequence[Candidate]) -> dict[str, list[int]]:
    scopes: dict[str, list[int]] = {}
    for at, each in enumerate(offered):
        scopes.setdefault(each.scope, []).append(at)
    return scopes


class _Kept:
    """The winners of one scope in the order they won, found again through their rare shingles.

    ``members`` are the positions of all texts of the scope in ``forms``.
    """

    def __init__(self, members: Sequence[int], forms: Sequence[Wording]) -> None:
        self._forms = forms
        self._winners: list[int] = []
        self._frequency: Counter[Shingle] = Counter()
        self._shared: dict[int, list[Shingle]] = {}  # shingles that occur in another text too
        if len(members) > FEW_TEXTS:
            for at in members:
                self._frequency.update(forms[at].shingles)
            for at in members:
                frequency = self._frequency
                self._shared[at] = [one for one in forms[at].shingles if frequency[one] > 1]
        self._few = len(members) <= FEW_TEXTS
        self._holders: dict[Shingle, list[int]] = {}  # numbers of winners, by shared shingle
        self._prefixes: dict[Shingle, list[int]] = {}  # the same, only those a near one must share

    def add(self, at: int) -> None:
        if self._few:
            self._winners.append(at)
        elif at in self._shared:
            number = len(self._winners)
            self._winners.append(at)
            for shingle in self._shared[at]:
                self._holders.setdefault(shingle, []).append(number)
            for shingle in self._telling(at):
                self._prefixes.setdefault(shingle, []).append(number)

    def near(self, at: int, *, both_ways: bool) -> int | None:
        """The first winner that ``at`` nearly repeats (or contains, where ``both_ways``)."""
        if not self._winners:
            return None
        form = self._forms[at]
        if self._few:
            return self._first_near(form, both_ways=both_ways)
        like = {number for one in self._telling(at) for number in self._prefixes.get(one, ())}
        close = [each for each in like if alike(form.shingles, self._form(each).shingles)]
        close += [each for each in self._around(at) if contained(form, self._form(each))]
        if both_ways:
            numbers = range(len(self._winners))
            close += [each for each in numbers if contained(self._form(each), form)]
        return self._winners[min(close)] if close else None

    def _first_near(self, form: Wording, *, both_ways: bool) -> int | None:
        """``near`` for a few texts: each is compared, most without their shingles."""
        for winner in self._winners:
            other = self._forms[winner]
            if contained(form, other) or (both_ways and contained(other, form)):
                return winner
            if may_be_alike(form, other) and alike(form.shingles, other.shingles):
                return winner
        return None

    def _form(self, number: int) -> Wording:
        return self._forms[self._winners[number]]

    def _around(self, at: int) -> Iterable[int]:
        """Numbers of winners that may contain ``at``.

        Its first and last word may be parts of theirs; so all but two shingles must be shared.
        """
        form, shared = self._forms[at], self._shared[at]
        if form.chars < CONTAINED_MIN_CHARS or len(form.shingles) - len(shared) > 2:
            return ()
        words = form.words[1:-1]
        inner = set(zip(words, words[1:], words[2:], strict=False))
        if not inner:
            return range(len(self._winners))
        rarest = min(inner, key=lambda one: (self._frequency[one], one))
        return self._holders.get(rarest, ())

    def _telling(self, at: int) -> list[Shingle]:
        """So many of the rarest shingles that a text with ``JACCARD_MIN`` must share one.

        None where enough of them are in no other text.
        """
        shared = self._shared[at]
        total = len(self._forms[at].shingles)
        count = total - ceil(JACCARD_MIN * total - ROUNDING) + 1
        wanted = count - (total - len(shared))
        if not shared or wanted <= 0:
            return []
        return sorted(shared, key=lambda one: (self._frequency[one], one))[:wanted]
