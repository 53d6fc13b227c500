"""A deterministic digest of a text: its own most telling sentences, in their order (Pure).

Strategy: a sentence is worth what it tells (``ledger.telling``), how central its words are (words
that several sentences share), and where it stands (the first and the last ones of a text say what
it is about). Best first, repetitions left out, until the length is used up. Words are those of
``words``' scripts: letters for alphabets, pairs of characters for dense scripts.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from h2ams.text.ledger import telling
from h2ams.text.scripts import classes, fold
from h2ams.text.sentences import clip, sentences, squeeze

MAX_SENTENCES = 4_000  # looked at: from the beginning and the end of a longer text
_LEAST_CHARS = 24  # a shorter rest is not worth a cut sentence
_RUN = re.compile(r"(?P<word>[Aa0m]{3,})|(?P<dense>[hkt]{2,})")
_CENTRAL_TERMS = 40  # a sentence counts no more of its words: length alone is no merit


@dataclass(frozen=True)
class _Sentence:
    text: str
    at: int

    @cached_property
    def terms(self) -> frozenset[str]:
        folded = fold(self.text)
        found: set[str] = set()
        for run in _RUN.finditer(classes(folded)):
            piece = folded[run.start() : run.end()]
            if run["dense"]:
                found.update(piece[at : at + 2] for at in range(len(piece) - 1))
            else:
                found.add(piece)
        return frozenset(found)


def extract(text: str, *, most_chars: int) -> str:
    """A digest of ``text`` of at most ``most_chars`` chars, whole sentences where possible.

    A text that is short enough comes back as it is, trimmed. The same text always gives the same
    digest; a digest of a digest of the same length is that digest.
    """
    bare = text.strip()
    if len(bare) <= most_chars:
        return bare
    if most_chars <= 0:
        return ""
    chosen: list[_Sentence] = []
    left = most_chars + 1
    ranked = _ranked(_distinct(bare))
    for each in ranked:
        if len(each.text) + 1 <= left:
            chosen.append(each)
            left -= len(each.text) + 1
    if not chosen or (left > most_chars // 2 and left > _LEAST_CHARS):
        first = next((each for each in ranked if each not in chosen), None)
        if first is not None:
            chosen.append(_Sentence(clip(first.text, left - 1), first.at))
    return "\n".join(each.text for each in sorted(chosen, key=lambda each: each.at))


def _distinct(text: str) -> list[_Sentence]:
    """Sentences, each once (the first copy), few enough to rank them."""
    all_of_them = sentences(text)
    if len(all_of_them) > MAX_SENTENCES:
        half = MAX_SENTENCES // 2
        all_of_them = [*all_of_them[:half], *all_of_them[-half:]]
    first: dict[str, _Sentence] = {}
    for at, sentence in enumerate(all_of_them):
        first.setdefault(fold(squeeze(sentence)), _Sentence(sentence, at))
    return list(first.values())


def _ranked(found: list[_Sentence]) -> list[_Sentence]:
    frequency = Counter(term for each in found for term in each.terms)

    def worth(each: _Sentence) -> tuple[float, int]:
        shared = sorted((frequency[term] - 1 for term in each.terms), reverse=True)
        central = sum(min(count, 5) for count in shared[:_CENTRAL_TERMS])
        central_share = central / (5 * max(1, min(len(each.terms), _CENTRAL_TERMS)))
        edge = 1.5 if each.at == 0 else 1.0 if each is found[-1] else 0.0
        return -(telling(each.text) + 4 * central_share + edge), each.at

    return sorted(found, key=worth)
