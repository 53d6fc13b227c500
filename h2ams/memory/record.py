"""One indexed segment, as every reader sees it (Pure).

A ``Record`` is what the index gives back: values of the segment plus where it stands. The engine,
the active set and the surfaces pass it around; nothing below ``index`` knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Record:
    """One segment or note section with its place.

    ``scope`` is canonical (``sessions/s1``), ``id`` unique within it, ``address`` is
    ``scope#id``. ``created_at`` and ``updated_at`` are ISO 8601 in UTC or ``None`` (undated).
    ``path`` is relative to the root with ``/``; ``line`` is 1-based and names the header's first
    line (the body's where there is no header). ``tokens`` counts the body. ``digest`` is the
    SHA-256 hex of the segment's own bytes in the file: the ``expect`` of a write.
    ``source_session`` is set only where the record came through a related session.
    """

    scope: str
    id: str
    kind: str
    tags: tuple[str, ...]
    body: str
    heading: str
    created_at: str | None
    updated_at: str | None
    source_messages: tuple[str, ...]
    path: str
    line: int
    tokens: int
    digest: str = ""
    is_note: bool = False
    stale: bool = False
    over_limit: bool = False
    source_session: str | None = None

    @property
    def address(self) -> str:
        """``scope#id``: what every other call takes."""
        return f"{self.scope}#{self.id}"


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the segments of a list by scope and id, and how many the whole list has.

    ``after`` is scope and id of the last one where more follow: what the next page begins behind.
    """

    records: tuple[Record, ...]
    total: int
    after: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One ranked match. ``score`` is higher-is-better and equals the sum of ``terms``.

    ``matched`` are the words of the question that were found. ``through`` is ``neighbour`` where
    none was, only beside it in the same file; such a hit stands behind all direct ones.
    """

    record: Record
    score: float
    terms: dict[str, float] = field(default_factory=dict)
    matched: tuple[str, ...] = ()
    through: Literal["direct", "neighbour"] = "direct"


@dataclass(frozen=True, slots=True)
class Degraded:
    """Something works less well than it should. ``code`` is stable, ``message`` is for people."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Recall:
    """What a recall gives: ``hits`` best first, and how they were found.

    ``keywords`` are what was looked up; ``dropped_terms`` the commonest words of a very long query
    that were not. ``relaxed`` tells that the strict reading found nothing. ``below_gate`` are
    addresses that a single common word matched in a broad scope, ``beyond`` those of further
    matches of a context that its budget could not hold. Times in milliseconds.
    """

    query: str
    keywords: tuple[str, ...] = ()
    relaxed: bool = False
    hits: tuple[Hit, ...] = ()
    searched_scopes: tuple[str, ...] = ()
    elapsed_ms: float = 0.0
    degraded: tuple[Degraded, ...] = ()
    dropped_terms: tuple[str, ...] = ()
    below_gate: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()
