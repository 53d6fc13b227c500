"""Cutting text of any script into sentences, and a text to a length (Pure).

A sentence ends at the end of a line, behind ``. ! ? …`` before a blank and something that is no
lower-case letter, or behind ``。！？`` and their like of other scripts. Lines inside a code fence
are one sentence each, whatever they hold. All functions are linear in the text.
"""

from __future__ import annotations

import re
import unicodedata

MARKER = "…"
_FENCES = ("```", "~~~")
_CLOSERS = "\"'»”’)\\]）】」』"
# Behind a full stop: a blank and no lower-case letter ("e.g. this", "v. 3" go on). Dense scripts
# and Devanagari put nothing behind their stops.
_END = re.compile(
    rf"(?<=[.!?…])[{_CLOSERS}]{{0,3}}(?P<blank>\s+)(?=[^\sa-zа-яё])"
    rf"|[。！？｡．।؟։።][{_CLOSERS}]{{0,3}}"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|no|nr|st|dr|mr|mrs|ms|prof|fig|sec|approx|bzw|z\.b|т\.е|т\.к|др)"
    r"|\b[^\W\d_]|^\W*\d{1,3})\.$",
    re.IGNORECASE,
)
_BLANKS = re.compile(r"[^\S\n]+")
_JOINER = "\u200d"


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, trimmed, none empty. Joined they hold all its words."""
    found: list[str] = []
    fence = ""
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith(_FENCES):
            mark = bare[:3]
            fence = "" if fence == mark else fence or mark
            found.append(bare)
        elif bare:
            found += [bare] if fence else _of_line(bare)
    return found


def _of_line(line: str) -> list[str]:
    found: list[str] = []
    start = 0
    for end in _END.finditer(line):
        stop = end.start("blank") if end["blank"] is not None else end.end()
        if end["blank"] is not None and _ABBREVIATED.search(line, max(start, stop - 12), stop):
            continue
        found.append(line[start:stop].strip())
        start = end.end()
    found.append(line[start:].strip())
    return [each for each in found if each]


def squeeze(text: str) -> str:
    """``text`` on one line, with single blanks and none around it."""
    return " ".join(text.split())


def clip(text: str, most_chars: int, marker: str = MARKER) -> str:
    """``text``, or a beginning of it with ``marker`` behind, of at most ``most_chars`` chars.

    It ends before a character of its own, never between a letter and its mark, and at a blank
    where one is near. Where the marker has no room there is none.
    """
    if len(text) <= most_chars:
        return text
    room = most_chars - len(marker)
    if room <= 0:
        return _beginning(text, max(0, most_chars))
    kept = _beginning(text, room)
    blank = max(kept.rfind(" "), kept.rfind("\n"))
    if blank > len(kept) * 3 // 4:
        kept = kept[:blank]
    return kept.rstrip() + marker


def _beginning(text: str, end: int) -> str:
    while 0 < end < len(text) and _joined(text, end):
        end -= 1
    return text[:end]


def _joined(text: str, at: int) -> bool:
    """Whether a reader sees what stands on both sides of ``at`` as one character."""
    before, after = text[at - 1], text[at]
    if before == _JOINER or after in "\u200d\ufe0e\ufe0f\u20e3":
        return True
    if unicodedata.category(after) in ("Mn", "Mc", "Me") or "\U0001f3fb" <= after <= "\U0001f3ff":
        return True
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return True
    if _is_flag(before) and _is_flag(after):
        start = at
        while start and _is_flag(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 1
    return before == "\r" and after == "\n"


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
