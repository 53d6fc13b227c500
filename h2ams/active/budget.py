"""How many tokens the block and its layers may use, and how a long text is cut (Pure).

Strategy: the split is by settings. What a layer does not need is lent: to on-demand, then recent,
then resident. Cutting works on whole paragraphs, then lines, then sentences, never inside one, so
that no character is ever halved and a marker never makes a text longer than its limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from math import floor
from typing import TYPE_CHECKING

from h2ams.active.block import LAYERS, Layer
from h2ams.errors import UsageError

if TYPE_CHECKING:
    from h2ams.settings import Settings

BORROWERS: tuple[Layer, ...] = ("on_demand", "recent", "resident")  # docs/domain.md, "Budget"

_CODE_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])(?=\w)")


def total_budget(budget: int | None, window: int | None, settings: Settings) -> int:
    """Tokens of the whole block: ``budget`` if given, else the setting bounded by the window.

    ``window`` is the model's context window in tokens. ``UsageError`` for a negative number.
    """
    for name, value in (("budget", budget), ("window", window)):
        if value is not None and value < 0:
            raise UsageError(f"{name}: must not be negative: {value}")
    if budget is not None:
        return budget
    if window is None:
        return settings.budget_tokens
    return min(settings.budget_tokens, floor(window * settings.budget_window_share))


def base_shares(total: int, settings: Settings) -> dict[Layer, int]:
    """``total`` split by the settings; the rounding goes to on-demand. The sum is ``total``."""
    resident = min(total, floor(total * settings.share_resident))
    recent = min(total - resident, floor(total * settings.share_recent))
    return {"resident": resident, "recent": recent, "on_demand": total - resident - recent}


def allocate(total: int, demand: Mapping[Layer, int], settings: Settings) -> dict[Layer, int]:
    """The limit of each layer, summing up to ``total``, given what each could use.

    A layer keeps its share as far as it needs it; the rest is lent in the order of ``BORROWERS``.
    What nobody needs stays where it was.
    """
    base = base_shares(total, settings)
    limits = {layer: min(base[layer], max(0, demand[layer])) for layer in LAYERS}
    spare = total - sum(limits.values())
    for layer in BORROWERS:
        lent = min(max(0, demand[layer] - limits[layer]), spare)
        limits[layer] += lent
        spare -= lent
    for layer in LAYERS:
        back = min(max(0, base[layer] - limits[layer]), spare)
        limits[layer] += back
        spare -= back
    limits["on_demand"] += spare
    return limits


def cut_to_fit(
    text: str, limit: int, count: Callable[[str], int], finish: Callable[[str], str]
) -> str | None:
    """``finish(beginning)`` for the longest beginning of ``text`` that counts at most ``limit``.

    ``finish`` adds what surrounds the text (label, notice) and is part of the count. ``None`` if
    not even one sentence fits with that.
    """
    for split in (paragraphs, _lines, _sentences):
        pieces = tuple(split(text))
        kept = _longest(pieces, limit, count, finish)
        if kept is not None:
            return kept
        text = pieces[0] if pieces else ""
    return None


def paragraphs(text: str) -> Iterator[str]:
    """``text`` in pieces that join to it; each ends with the blank lines behind a paragraph.

    A fenced code block is not taken apart.
    """
    piece: list[str] = []
    fence = ""
    blank = False
    for line in text.splitlines(keepends=True):
        if blank and line.strip() and not fence:
            yield "".join(piece)
            piece = []
        blank = not line.strip()
        match = _CODE_FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence) and not line.strip(" \t\r\n`~"):
            fence = ""
        piece.append(line)
    if piece:
        yield "".join(piece)


def _lines(text: str) -> Iterator[str]:
    yield from text.splitlines(keepends=True)


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match.end() > start:
            yield text[start : match.end()]
            start = match.end()
    if start < len(text):
        yield text[start:]


def _longest(
    pieces: tuple[str, ...], limit: int, count: Callable[[str], int], finish: Callable[[str], str]
) -> str | None:
    """Guess from the pieces' own counts, then shorten until the finished text really fits."""
    counts: list[int] = []
    used = 0
    for piece in pieces[:-1]:
        counts.append(count(piece))
        used += counts[-1]
        if used > limit:
            break
    while counts:
        beginning = "".join(pieces[: len(counts)]).rstrip()
        if not beginning:
            return None
        finished = finish(beginning)
        excess = count(finished) - limit
        if excess <= 0:
            return finished
        while counts and excess > 0:
            excess -= counts.pop()
    return None
