"""The summary of a scope: its text and what stands before it (Pure).

Three forms occur (docs/format.md): plain text; a first line ``<!-- updatedAt: ISO -->``; and
frontmatter with ``updatedAt`` and ``basis``. A summary that holds the historical stub marker says
nothing and is never shown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2ams.memory.front import read_front
from h2ams.memory.values import clean_text, trim_blank_lines
from h2ams.settings import DEFAULTS, Settings

if TYPE_CHECKING:
    from h2ams.tokens import TokenCounter

STUB_MARKER = "<!-- seed-backfill:vp-stub v1 -->"
_UPDATED_LINE = re.compile(r"\s*<!--[ \t]*updatedAt:[ \t]*([^\n]*?)[ \t]*-->[ \t\r]*(?:\n|\Z)")
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True)
class Summary:
    """``text`` without blank lines at its ends. ``updated_at`` is as written, ``basis`` the digest
    of the segments it was made from; ``None`` where the file does not say. A stub has no text
    worth showing, whatever ``text`` holds."""

    text: str
    updated_at: str | None = None
    basis: str | None = None
    is_stub: bool = False


def parse_summary(data: bytes, *, settings: Settings = DEFAULTS) -> Summary:
    """Read any bytes; never raises. Bytes that are not UTF-8 are read with replacement."""
    text = clean_text(data.decode("utf-8-sig", "replace")).replace("\r\n", "\n")
    is_stub = STUB_MARKER in text
    updated = _UPDATED_LINE.match(text)
    if updated is not None:
        body = trim_blank_lines(text[updated.end() :])
        return Summary(body, updated[1] or None, None, is_stub)
    front = read_front(text, settings)
    body = trim_blank_lines(text[front.body_start :])
    return Summary(body, _text(front.values, "updatedAt"), _text(front.values, "basis"), is_stub)


def bounded(text: str, limit_tokens: int, counter: TokenCounter) -> str:
    """The longest run of whole paragraphs from the start of ``text`` within ``limit_tokens``.

    A first paragraph that is too long alone is cut where the counter cuts.
    """
    if counter.count(text) <= limit_tokens:
        return text
    cut = counter.cut(text, limit_tokens)
    ends = [match.start() for match in _PARAGRAPH_END.finditer(text, 0, len(cut) + 1)]
    while ends and counter.count(text[: ends[-1]]) > limit_tokens:
        ends.pop()
    return text[: ends[-1]].rstrip() if ends else cut.rstrip()


def _text(values: dict[str, object], key: str) -> str | None:
    value = values.get(key)
    return value.strip() or None if isinstance(value, str) else None
