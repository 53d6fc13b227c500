"""The fence around recalled memory: escape look-alikes, scrub it from a model's output (Pure).

The block stands between ``<memory-context>`` and ``</memory-context>``. ``escape`` keeps a body
from opening or closing it; ``scrub`` removes whole blocks from what a model wrote, so that what
was recalled is never learned again. Both know the tag in any case and width, with blanks,
invisible characters or letters of other alphabets that look the same inside.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

OPEN = "<memory-context>"
CLOSE = "</memory-context>"

_OPENERS = "<＜﹤‹〈⟨〈≺᚜˂ᐸ❮"
_CLOSERS = ">＞﹥›〉⟩〉≻᚛˃ᐳ❯"
_SLASHES = "/／∕⁄⧸╱\\\\"
_DASHES = "-_‐‑‒–—―−﹘﹣－＿·~"
# Never seen or never counted as a letter: blanks, controls, invisible characters, marks on letters.
_SKIPPED = (
    r"\s\x00-\x1f\x7f-\xa0\xad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e01ef"
)
_BORDER = "(?![A-Za-z0-9_-])"  # <memory-contexts> is another tag
_SKIP_COUNT = 8  # in a row inside a tag of a model's output; keeps what a stream holds back short
_TAIL_CHARS = 200  # more than the longest beginning of a tag with all its blanks

# Letters of other alphabets that look like those of the tag.
_TWINS = {
    "m": "мМΜ", "e": "еЕΕє℮", "o": "оОοΟσօ", "r": "гᴦ", "y": "уУүҮγΥ",
    "c": "сСϲϹ", "n": "пΝո", "t": "тТτΤ", "x": "хХχΧ",
}  # fmt: skip
# Where letters that are compatible with ASCII ones live: widths, mathematical, circled, small.
_STYLED = (
    (0x1D00, 0x1DBF), (0x2070, 0x209C), (0x2100, 0x217F), (0x249C, 0x24E9), (0xFF21, 0xFF5A),
    (0x1D400, 0x1D6A5), (0x1F110, 0x1F169),
)  # fmt: skip


@cache
def _letters() -> dict[str, str]:
    """For each letter of the tag the characters that stand for it, as the inside of a set."""
    found = {letter: letter + letter.upper() + twins for letter, twins in _TWINS.items()}
    for first, last in _STYLED:
        for code in range(first, last + 1):
            plain = unicodedata.normalize("NFKC", chr(code)).strip("()").casefold()
            if plain in found:
                found[plain] += chr(code)
    return found


def _name(dash: str) -> list[str]:
    """Patterns for the characters of the tag's name, in order."""
    letters = _letters()
    return [dash if each == "-" else f"[{letters[each]}]" for each in "memory-context"]


@cache
def _lookalike() -> re.Pattern[str]:
    """An opener that begins a tag, however it is written; also without any dash."""
    skip = f"[{_SKIPPED}]*+"  # possessive: nothing that may be skipped is part of the name
    name = skip.join(_name(f"[{_DASHES}{_SKIPPED}]*+"))
    return re.compile(rf"[{_OPENERS}](?={skip}(?:[{_SLASHES}]{skip})?{name}{_BORDER})")


def escape(text: str) -> str:
    """``text`` that neither opens nor closes the fence: ``&lt;`` instead of ``<``, else as it is.

    Only an opener before something that reads as the tag is touched. Idempotent and linear.
    """
    return _lookalike().sub("&lt;", text)


# ---------------------------------------------------------------- output of a model


@cache
def _tags() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """(opening tag up to its name, closing tag, what may still become one of them)."""
    skip = f"[{_SKIPPED}]{{0,{_SKIP_COUNT}}}"
    start = f"[{_OPENERS}]{skip}"
    slash = f"[{_SLASHES}]{skip}"
    name = _name(f"[{_DASHES}]")
    whole = skip.join(name)
    rest = ""
    for each in reversed(name):
        rest = f"(?:{each}{skip}{rest})?"
    return (
        re.compile(f"{start}{whole}{_BORDER}"),
        re.compile(f"{start}{slash}{whole}{skip}[{_CLOSERS}]"),
        re.compile(rf"{start}(?:{slash})?{rest}\Z"),
    )


class StreamScrubber:
    """``scrub`` for text that comes in chunks: the same result however it is cut.

    Holds back only what may still become a tag (under 200 characters). Inside a block nothing is
    given out; a block that never ends hides everything up to the end, as ``scrub`` does. Where
    the text before a removed tag could form a new tag with the text behind it, ``…`` stands
    between them: so the result holds no tag either.
    """

    def __init__(self) -> None:
        self._opening, self._closing, self._partial = _tags()
        self._opener = re.compile(f"[{_OPENERS}]")
        self._held = ""
        self._tail = ""  # end of what was given out
        self._depth = 0

    def feed(self, chunk: str) -> str:
        """What is certain to stay of everything fed so far and not yet given out."""
        return self._advance(self._held + chunk, last=False)

    def finish(self) -> str:
        """The rest, after the last chunk. The scrubber is as new afterwards."""
        rest = self._advance(self._held, last=True)
        self._held, self._tail, self._depth = "", "", 0
        return rest

    def _advance(self, text: str, *, last: bool) -> str:
        kept: list[str] = []
        start = 0  # of what is neither given out nor dropped yet
        found = self._opener.search(text)
        while found:
            at = found.start()
            if not last and self._partial.match(text, at):
                break
            end, change = self._tag(text, at)
            if end > at:
                if not self._depth:
                    self._give(kept, text[start:at])
                    self._give(kept, self._seam())
                start = end
                self._depth = max(0, self._depth + change)
            found = self._opener.search(text, max(end, at + 1))
        held = len(text) if found is None else found.start()
        if not self._depth:
            self._give(kept, text[start:held])
        self._held = text[held:]
        return "".join(kept)

    def _give(self, kept: list[str], text: str) -> None:
        kept.append(text)
        self._tail = (self._tail + text[-_TAIL_CHARS:])[-_TAIL_CHARS:]

    def _seam(self) -> str:
        """What separates the text given out from the text behind the tag to be removed."""
        openers = self._opener.finditer(self._tail)
        return "…" if any(self._partial.match(self._tail, each.start()) for each in openers) else ""

    def _tag(self, text: str, at: int) -> tuple[int, int]:
        """End of the tag at ``at`` and its change of depth; ``(at, 0)`` where there is none."""
        closing = self._closing.match(text, at)
        if closing:
            return closing.end(), -1
        opening = self._opening.match(text, at)
        return (opening.end(), 1) if opening else (at, 0)


def scrub(text: str) -> str:
    """``text`` without memory blocks, nested ones included; an unclosed one hides the rest.

    A closing tag with nothing to close is removed. Everything else stays character for character.
    """
    scrubber = StreamScrubber()
    return scrubber.feed(text) + scrubber.finish()
