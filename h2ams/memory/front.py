"""Frontmatter of a note or a summary: values and where the text behind it begins (Pure).

Strategy: lines that mean the same in YAML are read at once; anything else goes through
python-frontmatter with a handler of ours, whose loader takes all scalars as text and refuses
anchors. A file without frontmatter, or with a rule as its first line, is all text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from h2ams.memory import header as headers
from h2ams.memory.header import HeaderFault
from h2ams.memory.values import Problem
from h2ams.settings import Settings

if TYPE_CHECKING:
    from frontmatter.default_handlers import YAMLHandler

_BOUNDARY = re.compile(r"^---[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Front:
    """``values`` by key: text, ``None``, lists or mappings of text. ``body_start`` is an offset."""

    values: dict[str, object] = field(default_factory=dict)
    body_start: int = 0
    problems: tuple[Problem, ...] = ()


def read_front(text: str, settings: Settings) -> Front:
    """The frontmatter at the start of ``text``; never raises."""
    opening = _BOUNDARY.match(text)
    closing = _BOUNDARY.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return Front()
    region = text[opening.end() + 1 : closing.start()]
    body_start = min(closing.end() + 1, len(text))
    size = len(region.encode("utf-8", "surrogateescape"))
    if size > settings.max_header_bytes:
        if not headers.has_header_lines(region):
            return Front()
        message = f"max_header_bytes: the frontmatter has {size}, limit {settings.max_header_bytes}"
        return Front({}, body_start, (Problem("over-limit", message, 1),))
    values = headers.read_simple(region, settings)
    if values is not None:
        return Front(values, body_start) if values else Front()
    handler = _handler()
    try:
        metadata, content = handler.split(text)
        loaded = handler.load(metadata)
    except HeaderFault as fault:
        if not headers.has_header_lines(region):
            return Front()
        return Front({}, body_start, (Problem(fault.code, fault.message, fault.line + 1),))
    assert len(text) - len(content) <= body_start, "both find the same end"
    return Front(loaded, body_start) if loaded else Front()


@cache
def _handler() -> YAMLHandler:
    from frontmatter.default_handlers import YAMLHandler  # late: 24 ms

    class TextHandler(YAMLHandler):
        """Frontmatter between ``---`` lines, all of whose scalars are text."""

        def load(self, fm: str, **kwargs: object) -> dict[str, object]:
            root, aliases = headers.compose(fm)
            if aliases is not None:
                raise HeaderFault(aliases.code, aliases.message, aliases.line)
            return (headers.to_values(root) if root is not None else None) or {}

    return TextHandler(fm_boundary=_BOUNDARY)
