"""When two texts say the same: equal, one inside the other, or nearly the same words (Pure).

Texts are compared in a conservative normal form: case, white space, list markers and the
punctuation around words do not count; symbols such as ``C++`` do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from unicodedata import normalize

CONTAINED_MIN_CHARS = 80  # docs/domain.md, "Near duplicates"
JACCARD_MIN = 0.9  # the same
ROUNDING = 1e-9  # a share is a fraction of whole numbers

# Scripts written without blanks: each character is a word of its own.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_UNSPACED += "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
_UNSPACED_CHAR = re.compile(f"[{_UNSPACED}]")
_LINE_MARKER = re.compile(r"^[ \t]*(?:(?:[-*+>]|#{1,6}|\d{1,3}[.)])[ \t]+)+", re.MULTILINE)
_OPENING = "\"'`“‘([{*_「『（《【，。、；：！？…"
_CLOSING = "\"'`”’)]}*_」』）》】，。、；：！？….,;:!?"

Shingle = tuple[str, str, str]


@dataclass(frozen=True)
class Wording:
    """The normal form of a text. ``chars`` is its length without the joints of unspaced scripts."""

    words: tuple[str, ...]
    text: str
    chars: int

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The distinct words."""
        return frozenset(self.words)

    @cached_property
    def shingles(self) -> frozenset[Shingle]:
        """Three words each, in their order."""
        words = self.words
        return frozenset(zip(words, words[1:], words[2:], strict=False))


def wording(text: str) -> Wording:
    """The normal form in which texts are compared."""
    spaced = text.isascii() or _UNSPACED_CHAR.search(text) is None
    folded = text.casefold() if text.isascii() else normalize("NFC", text).casefold()
    folded = _LINE_MARKER.sub("", folded)
    pieces = folded.split() if spaced else _PIECE.findall(folded)
    words = tuple(
        filter(None, [p if p.isalnum() else p.lstrip(_OPENING).rstrip(_CLOSING) for p in pieces])
    )
    joined = " ".join(words)
    chars = len(joined)
    if not spaced:
        chars -= len(_UNSPACED_CHAR.findall(joined))
    return Wording(words, joined, chars)


def may_be_alike(one: Wording, other: Wording) -> bool:
    """False only where ``alike`` of the shingles is False too.

    A text of n words has at most n - 2 shingles. A word of one text alone stands in a shingle of
    that text alone, which holds three words at most. With J = common / all >= JACCARD_MIN, all is
    at most (n - 2) / JACCARD_MIN for either text, so unshared words are at most three times
    (1 - JACCARD_MIN) of that.
    """
    most = min(len(one.words), len(other.words)) - 2
    # Each further distinct word begins a shingle that was not there before.
    least = max(len(one.vocabulary), len(other.vocabulary)) - 2
    if most < JACCARD_MIN * least - ROUNDING:
        return False
    unshared = len(one.vocabulary ^ other.vocabulary)
    return most > 0 and unshared <= 3 * (1 - JACCARD_MIN) * most / JACCARD_MIN + ROUNDING


def alike(one: frozenset[Shingle], other: frozenset[Shingle]) -> bool:
    """Whether two sets of shingles are nearly the same."""
    if not one or min(len(one), len(other)) < JACCARD_MIN * max(len(one), len(other)):
        return False
    common = len(one & other)
    return common >= JACCARD_MIN * (len(one) + len(other) - common) - ROUNDING


def contained(one: Wording, other: Wording) -> bool:
    """Whether ``one`` is long enough to tell something and stands in ``other``."""
    return one.chars >= CONTAINED_MIN_CHARS and one.text in other.text
