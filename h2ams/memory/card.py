"""A session's card, ``sessions/<id>/session.md`` (Pure): who runs the session and for what.

Frontmatter with ``agent``, ``project``, ``workspace`` and ``title``; the text below is a person's.
It is not a note and never recalled. Related sessions count only on the same agent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from h2ams.memory.values import Problem

_KEYS = ("agent", "project", "workspace", "title")


@dataclass(frozen=True, slots=True)
class Card:
    """The values of a card; ``None`` where it does not say."""

    agent: str | None = None
    project: str | None = None
    workspace: str | None = None
    title: str | None = None


def parse_card(data: bytes, path: str = "") -> tuple[Card, tuple[Problem, ...]]:
    """Read any bytes as a card. What cannot be read is reported and leaves the values empty."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        return Card(), (Problem("invalid-utf-8", "the card is not UTF-8", 1, path),)
    if not text.lstrip().startswith("---"):
        return Card(), ()
    if not text.startswith("---\n"):
        return Card(), (
            Problem("unterminated-header", "the card's header must come first", 1, path),
        )
    end = text.find("\n---", 3)
    if end < 0:
        return Card(), (Problem("unterminated-header", "the card's header has no end", 1, path),)
    import yaml  # 10 ms that only a changed card needs

    header = text[4 : end + 1]
    repeated = [key for key in _KEYS if len(re.findall(rf"(?m)^{key}[ \t]*:", header)) > 1]
    if repeated:
        return Card(), (Problem("repeated-key", f"the card says {repeated[0]} twice", 1, path),)
    try:
        values = yaml.load(header, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        return Card(), (Problem("invalid-yaml", f"the card's header: {reason}", 1, path),)
    if not isinstance(values, dict):
        return Card(), ()

    def value(key: str) -> str | None:
        found = values.get(key)
        return found if isinstance(found, str) and found else None

    return Card(value("agent"), value("project"), value("workspace"), value("title")), ()
