"""What the engine is about to write, before it touches a file: cleaned and bounded (Pure).

Text is never refused for its content: private blocks and secrets are replaced, whatever else is in
it is written as it is. For size it is refused, by named limits that carry both sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from h2ams.errors import LimitError, UsageError
from h2ams.memory.segment import Segment
from h2ams.memory.values import check_kind, check_sources, clean_tags, clean_text, trim_blank_lines
from h2ams.settings import Settings
from h2ams.text.redact import redact


@dataclass(frozen=True, slots=True)
class Draft:
    """Values of one write, each None where the caller leaves it alone.

    ``redacted`` names the kinds of secrets that were replaced, each once, in order.
    """

    body: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] | None = None
    source_messages: tuple[str, ...] | None = None
    redacted: tuple[str, ...] = ()


def draft(
    settings: Settings,
    *,
    body: str | None = None,
    kind: str | None = None,
    tags: Iterable[str] | None = None,
    source_messages: Iterable[str] | None = None,
) -> Draft:
    """The values as they may be written. ``UsageError`` for values, ``LimitError`` for sizes."""
    kinds: dict[str, None] = {}

    def clean(text: str) -> str:
        found = redact(clean_text(text))
        kinds.update(dict.fromkeys(found.kinds))
        return found.text

    def items(values: Iterable[str], what: str) -> list[str]:
        if isinstance(values, str):
            raise UsageError(f"{what}: a list of texts is needed", hint=f"pass [{values!r}]")
        cleaned = [clean(value) for value in values]
        longest = max((len(value) for value in cleaned), default=0)
        check_size("max_scalar_chars", settings.max_scalar_chars, longest, None, what)
        return cleaned

    if body is not None:
        body = trim_blank_lines(clean(body))
        if not body:
            raise UsageError("there is no text to write", hint="give text outside of <private>")
    return Draft(
        body=body,
        kind=None if kind is None else check_kind(kind),
        tags=None if tags is None else clean_tags(items(tags, "a tag")),
        source_messages=(
            None
            if source_messages is None
            else check_sources(items(source_messages, "a source message id"))
        ),
        redacted=tuple(kinds),
    )


def check_segment(segment: Segment, current: Segment | None, settings: Settings) -> None:
    """``LimitError`` where ``segment`` is too long, unless ``current`` has that very body already.

    ``current`` is the segment on disk that it replaces: a longer one written by hand may still
    get another tag. Limits of the header are checked where it is written.
    """
    size = len(segment.body)
    if current is None or current.body != segment.body:
        now = 0 if current is None else len(current.body)
        check_size("max_segment_chars", settings.max_segment_chars, size, now, "the segment")


def check_size(name: str, limit: int, size: int, current: int | None, what: str) -> None:
    """``LimitError`` named ``name`` where ``size`` is over ``limit``; the unit ends the name."""
    if size > limit:
        now = "" if current is None else f", it is {current} now"
        unit = name.rpartition("_")[2]
        raise LimitError(
            f"{what} would have {size} {unit}{now}: the limit {name} is {limit}",
            name=name,
            limit=limit,
            size=size,
            current=current,
        )
