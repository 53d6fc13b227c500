"""A session's card, ``sessions/<id>/session.md`` (Pure): who runs the session and for what.

Frontmatter with ``agent``, ``project``, ``workspace`` and ``title``; the text below is a person's.
It is not a note and never recalled. Related sessions count only on the same agent.
"""

from __future__ import annotations

from dataclasses import dataclass

from h2ams.memory.values import Problem


@dataclass(frozen=True, slots=True)
class Card:
    """The values of a card; ``None`` where it does not say."""

    agent: str | None = None
    project: str | None = None
    workspace: str | None = None
    title: str | None = None


def parse_card(data: bytes, path: str = "") -> tuple[Card, tuple[Problem, ...]]:
    """Read any bytes as a card. What cannot be read is reported and leaves the values empty."""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return Card(), ()
    end = text.find("\n---", 3)
    if end < 0:
        return Card(), (Problem("unterminated-header", "the card's header has no end", 1, path),)
    import yaml  # 10 ms that only a changed card needs

    try:
        values = yaml.load(text[4:end], Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        return Card(), (Problem("invalid-yaml", f"the card's header: {reason}", 1, path),)
    if not isinstance(values, dict):
        return Card(), ()

    def value(key: str) -> str | None:
        found = values.get(key)
        return found if isinstance(found, str) and found else None

    return Card(value("agent"), value("project"), value("workspace"), value("title")), ()
