"""Characters: their class, their folded form (Pure). The ground that ``words`` stands on.

A text is translated to a string of the same length with one class letter a character, so that
plain regular expressions over few ASCII letters cut words of any script. The class letters:

    A  upper-case letter        h  Han, Hiragana, Katakana, Bopomofo   s  emoji or other symbol
    a  any other letter         k  Hangul                              '  apostrophe
    0  decimal digit            t  Thai, Lao, Khmer, Myanmar, Tai      (blank) all that separates
    m  mark on a letter         other ASCII punctuation stands for itself

``h``, ``k`` and ``t`` are the dense scripts: written without blanks between words.
All functions take any ``str`` whatever, lone surrogates included, and are linear in its length.
"""

from __future__ import annotations

import re
import unicodedata

_MAX_MARKS = 32  # in a row; sorting longer runs is quadratic in unicodedata.normalize
_SHORT_CHARS = 256  # below this even the worst run of marks costs nothing

_DENSE = (
    ("h", ((0x3005, 0x3007), (0x3021, 0x3035), (0x3038, 0x30FF), (0x3105, 0x312F))),
    ("h", ((0x31A0, 0x31BF), (0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF))),
    ("h", ((0xF900, 0xFAFF), (0x1AFF0, 0x1B16F), (0x20000, 0x3FFFF))),
    ("k", ((0x1100, 0x11FF), (0x3130, 0x318F), (0xA960, 0xA97F), (0xAC00, 0xD7FF))),
    ("t", ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF))),
    ("t", ((0x1A20, 0x1AAF), (0xA9E0, 0xA9FF), (0xAA60, 0xAADF))),
)


def _dense_class(code: int) -> str | None:
    for letter, ranges in _DENSE:
        if any(first <= code <= last for first, last in ranges):
            return letter
    return None


def _class(code: int) -> str:
    character = chr(code)
    category = unicodedata.category(character)
    if category == "Nd":
        return "0"
    if category[0] in "LMN":
        dense = _dense_class(code)
        if dense:
            return dense
        if category[0] == "M":
            return "m"
        return "A" if category in ("Lu", "Lt") else "a"
    if category == "So":
        return "s"
    return character if 0x20 < code < 0x7F and character != '"' else " "


class _Classes(dict[int, str]):
    """Filled as characters are met: at most one entry for each code point there is."""

    def __missing__(self, code: int) -> str:
        value = self[code] = _class(code)
        return value


class _Reordered(dict[int, str]):
    """``c`` for characters that canonical ordering may move, a blank for all others."""

    def __missing__(self, code: int) -> str:
        value = self[code] = "c" if unicodedata.combining(chr(code)) else " "
        return value


_CLASSES = _Classes()
_REORDERED = _Reordered()


def classes(text: str) -> str:
    """The class letter of each character of ``text``; same length."""
    return text.translate(_CLASSES)


# Characters without a shape of their own (soft hyphen, joiners, directions, variation selectors,
# tags) would make two words of one; typographic apostrophes and hyphens are typed as ASCII.
_INVISIBLE = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x20E3, 0x20E3), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFF9, 0xFFFB), (0xE0000, 0xE01EF),
)  # fmt: skip
_PLAIN: dict[int, str | None] = {
    code: None for first, last in _INVISIBLE for code in range(first, last + 1)
}
_PLAIN |= {0x2018: "'", 0x2019: "'", 0x02BC: "'", 0x2010: "-", 0x2011: "-", 0x0149: "'n"}
_ODD = re.compile(
    "["  # by ranges: a set of as many single characters is a hundred times slower
    + "".join(f"{chr(first)}-{chr(last)}" for first, last in _INVISIBLE)
    + "\u2018\u2019\u02bc\u2010\u2011\u0149]"
)


_LONG_MARKS = re.compile(f"c{{{_MAX_MARKS + 1},}}")


def _squeeze(text: str) -> str:
    """``text`` with no more than ``_MAX_MARKS`` reorderable marks in a row."""
    kept: list[str] = []
    position = 0
    for run in _LONG_MARKS.finditer(text.translate(_REORDERED)):
        kept.append(text[position : run.start() + _MAX_MARKS])
        position = run.end()
    return "".join(kept) + text[position:] if kept else text


def normalise(text: str) -> str:
    """NFKC without invisible characters and with ASCII apostrophes and hyphens; case is kept."""
    if text.isascii():
        return text
    if _ODD.search(text):
        text = text.translate(_PLAIN)
    if len(text) > _SHORT_CHARS:
        text = _squeeze(text)
    return unicodedata.normalize("NFKC", text)


# й, ў and ї are letters of their own; every other mark of this block is a diacritic of Latin,
# Greek or Cyrillic letters. Marks of other scripts lie elsewhere and are kept.
_DIACRITICS = re.compile("(?<![иу])\u0306|(?<!і)\u0308|[\u0300-\u0305\u0307\u0309-\u036f]")
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe"}
)


def fold(text: str) -> str:
    """``text`` as it is compared: case, width, ligatures and Latin, Greek, Cyrillic marks gone."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFD", normalise(text).casefold())
    return unicodedata.normalize("NFC", _DIACRITICS.sub("", text).translate(_LETTERS))
