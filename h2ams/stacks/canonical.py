"""The one deterministic text of a stack: what is measured is what is submitted (Pure).

Form: for the summary, then for both halves of each exchange, one part

    [user 12]
    <the text, 12 code points>
    <an empty line>

The number is the length of the text in code points, so no text can be taken for a label: the form
can be read back (``parse``), and two stacks have the same canonical text only if they say the same.
A part knows nothing of its neighbours, so lengths add up and are kept incrementally.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator

from h2ams.errors import UsageError
from h2ams.stacks.exchange import Exchange, Stack, Summary

_LABEL = re.compile(r"\[(summary|user|assistant) (0|[1-9][0-9]{0,15})\]\n")
_END = "\n\n"
_FRAME_CHARS = {who: len(f"[{who} ]\n{_END}") for who in ("summary", "user", "assistant")}


def part(who: str, text: str) -> str:
    """One labelled part."""
    return f"[{who} {len(text)}]\n{text}{_END}"


def part_chars(who: str, chars: int) -> int:
    """Code points of the part that holds a text of ``chars``."""
    return _FRAME_CHARS[who] + len(str(chars)) + chars


def exchange_text(exchange: Exchange) -> str:
    return part("user", exchange.user) + part("assistant", exchange.assistant)


def exchange_chars(exchange: Exchange) -> int:
    """Code points that one exchange adds to a canonical text."""
    halves = part_chars("user", len(exchange.user))
    return halves + part_chars("assistant", len(exchange.assistant))


def summary_chars(summary: Summary) -> int:
    """Code points that the summary adds to a canonical text."""
    return part_chars("summary", len(summary.text))


def parts(summary: Summary | None, exchanges: Iterable[Exchange]) -> Iterator[str]:
    """The canonical text piece by piece."""
    if summary is not None:
        yield part("summary", summary.text)
    for each in exchanges:
        yield exchange_text(each)


def text_of(summary: Summary | None, exchanges: Iterable[Exchange]) -> str:
    """The canonical text of a summary and the exchanges that follow it."""
    return "".join(parts(summary, exchanges))


def stack_text(stack: Stack) -> str:
    """The canonical text of a stack."""
    return text_of(stack.summary, stack.exchanges)


def chars_of(summary: Summary | None, exchanges: Iterable[Exchange]) -> int:
    """The length of ``text_of`` in code points, without making the text."""
    first = 0 if summary is None else summary_chars(summary)
    return first + sum(map(exchange_chars, exchanges))


def sha256_of(text: str) -> str:
    """SHA-256 of a canonical text, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def parse(text: str) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """(summary or None, the exchanges as user and assistant); ``UsageError`` for another text."""
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        end = label.end() + int(label[2]) if label else 0
        if label is None or text[end : end + len(_END)] != _END:
            raise UsageError(f"no canonical text: no part begins and ends at character {at}")
        found.append((label[1], text[label.end() : end]))
        at = end + len(_END)
    summary = found.pop(0)[1] if found and found[0][0] == "summary" else None
    if [who for who, _ in found] != ["user", "assistant"] * (len(found) // 2):
        raise UsageError("no canonical text: user and assistant do not alternate")
    return summary, tuple((found[at][1], found[at + 1][1]) for at in range(0, len(found), 2))
