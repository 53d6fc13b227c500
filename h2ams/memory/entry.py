"""The values of a memory file: segment, entry, document (Pure).

``segment`` gives them out again and is the module to import; this one only breaks the circle
between reading and writing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from h2ams.memory import values
from h2ams.memory.values import Problem


@dataclass(frozen=True, slots=True)
class Segment:
    """One atomic memory. Normalised when made, so equal contents are equal values.

    ``body`` has no blank lines at its ends and only characters that UTF-8 can encode; otherwise it
    is any text. ``kind`` is one of ``KINDS``. ``tags`` and ``source_messages`` are in order, once
    each. Times are as written; ``values.parse_time`` reads them. ``UsageError`` for an unknown
    kind, control characters in the id, or a source message that is no id.
    """

    body: str
    id: str = ""
    scope: str = ""
    kind: str = values.DEFAULT_KIND
    tags: tuple[str, ...] = ()
    source_messages: tuple[str, ...] = ()
    created_at: str | None = None
    updated_at: str | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__  # only where something changes: files of thousands are read
        body = values.trim_blank_lines(values.clean_text(self.body))
        if body is not self.body:
            put(self, "body", body)
        if self.id:
            put(self, "id", values.check_id(self.id))
        if not self.scope.isascii() or self.scope.strip() != self.scope:
            put(self, "scope", values.clean_text(self.scope).strip())
        values.check_kind(self.kind)
        put(self, "tags", values.clean_tags(self.tags) if self.tags else ())
        sources = values.check_sources(self.source_messages) if self.source_messages else ()
        put(self, "source_messages", sources)
        put(self, "created_at", _time_text(self.created_at))
        put(self, "updated_at", _time_text(self.updated_at))


def of_normal_values(
    body: str,
    id: str,
    scope: str,
    kind: str,
    tags: tuple[str, ...],
    source_messages: tuple[str, ...],
    created_at: str,
    updated_at: str,
) -> Segment:
    """A segment of values that need no normalising, without looking at them again.

    For the reader of the writer's exact form, which lets nothing else through: a third of the time
    of reading a file. ``Segment(...)`` with the same values is equal to it (property test).
    """
    made = object.__new__(Segment)
    put = object.__setattr__
    put(made, "body", body)
    put(made, "id", id)
    put(made, "scope", scope)
    put(made, "kind", kind)
    put(made, "tags", tags)
    put(made, "source_messages", source_messages)
    put(made, "created_at", created_at)
    put(made, "updated_at", updated_at)
    return made


@dataclass(frozen=True, slots=True)
class Entry:
    """A segment with its place in a ``Document``.

    ``start`` and ``end`` are offsets in the document's text: header and body, without the line
    break and blank lines behind. ``line`` and ``last_line`` are 1-based. ``address_id`` is the id
    under which it is addressed in its file (``id``, ``id~2``, ``anon_…``). ``read_only`` is the
    reason why the engine must not rewrite it, or empty.
    """

    segment: Segment
    line: int
    last_line: int
    start: int
    end: int
    raw: str
    has_header: bool
    read_only: str
    address_id: str
    body_start: int  # offset of the first line behind the header; ``start`` without a header
    crlf: bool  # line breaks of this entry, as its first line has them
    escaped: bool  # the body is protected: one backslash a line is not part of it

    @property
    def digest(self) -> str:
        """SHA-256 hex of the entry's own bytes: the ``expect`` of a write."""
        return hashlib.sha256(self.raw.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True, slots=True)
class Document:
    """A memory file as read. ``text`` holds all of it but a BOM; bytes that are not UTF-8 stand
    in it as surrogates, and make the file ``read_only`` (a reason, or empty). ``tail_start`` is
    the offset of a dream-state block that ends the file. ``problems`` are in order of lines.
    ``encoding`` is ``utf-8``, ``utf-16-le``, ``utf-16-be``, or ``unreadable`` (no entries)."""

    text: str
    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    newline: str = "\n"
    bom: bool = False
    read_only: str = ""
    tail_start: int | None = None
    encoding: str = "utf-8"


def _time_text(text: str | None) -> str | None:
    if not text:
        return None
    return (text if text.isascii() else values.clean_text(text)).strip() or None
