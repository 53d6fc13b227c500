"""What goes into the memory block and what came of it (Pure): values only.

A ``Candidate`` is offered; it becomes an ``Item`` of a layer or a ``Rejection`` with a reason. The
``Receipt`` holds both, so that a person and a machine can see why the block is what it is.
``packing.build_block`` makes a ``MemoryBlock`` of candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from h2ams.memory.record import Degraded

Layer = Literal["resident", "recent", "on_demand"]
Reason = Literal["acl", "budget", "duplicate", "stale", "below-gate", "evicted"]

LAYERS: tuple[Layer, ...] = ("resident", "recent", "on_demand")  # the order in the text
SUMMARY_ID = "summary"  # the id of a scope's summary in addresses and labels


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that could be shown.

    ``date`` is ``YYYY-MM-DD`` or ``None``; ``line`` is 1-based; ``closeness`` is 0 for the closest
    scope. ``score`` is the recall's score on demand and the turn of last use in recent. ``tokens``
    counts the body as this block's counter does (0 = unknown): it is not counted again.
    ``pinned`` ranks before every match. ``heading`` is a note section's own. ``shortened``: the
    body is only the beginning of a text over the limit for segments, and is marked as cut.
    """

    layer: Layer
    scope: str
    id: str
    kind: str
    body: str
    date: str | None
    path: str
    line: int
    score: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    closeness: int = 0
    source_session: str | None = None
    is_summary: bool = False
    stale: bool = False
    tokens: int = 0
    pinned: bool = False
    heading: str = ""
    shortened: bool = False

    @property
    def address(self) -> str:
        return f"{self.scope}#{self.id}"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that is not shown. ``detail`` names, for a duplicate, the copy that won."""

    address: str
    reason: Reason
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """``{"address", "reason", "detail"}``."""
        return {"address": self.address, "reason": self.reason, "detail": self.detail}


@dataclass(frozen=True, slots=True)
class Item:
    """One shown candidate. ``tokens`` counts its own rendered text, label included; ``cut`` says
    that the end of its body was left out."""

    address: str
    scope: str
    id: str
    kind: str
    path: str
    line: int
    tokens: int
    score: float
    terms: Mapping[str, float]
    source_session: str | None
    cut: bool = False

    def to_json(self) -> dict[str, object]:
        """All fields under their names, ``terms`` in the order of their names."""
        return {
            "address": self.address,
            "scope": self.scope,
            "id": self.id,
            "kind": self.kind,
            "path": self.path,
            "line": self.line,
            "tokens": self.tokens,
            "score": self.score,
            "terms": dict(sorted(self.terms.items())),
            "source_session": self.source_session,
            "cut": self.cut,
        }


@dataclass(frozen=True, slots=True)
class LayerReceipt:
    """One layer: its limit after borrowing, the sum of its items' tokens, the items as shown."""

    limit: int = 0
    used: int = 0
    items: tuple[Item, ...] = ()

    def to_json(self) -> dict[str, object]:
        """``{"limit", "used", "items"}``."""
        return {"limit": self.limit, "used": self.used, "items": [i.to_json() for i in self.items]}


@dataclass(frozen=True, slots=True)
class Receipt:
    """How the block came about. ``tokens`` = ``frame_tokens`` + the layers' ``used``.

    ``frame_tokens`` is what fence, headings, separators and notice cost beyond the items. ``now``
    is the time that ranking was done for; ``encoding`` the name of the token counter.
    """

    query: str
    budget: int
    tokens: int
    frame_tokens: int
    now: str
    encoding: str
    language: str
    layers: Mapping[str, LayerReceipt]
    rejected: tuple[Rejection, ...]

    def to_json(self) -> dict[str, object]:
        """All fields under their names; ``layers`` in the order of ``LAYERS``."""
        return {
            "query": self.query,
            "budget": self.budget,
            "tokens": self.tokens,
            "frame_tokens": self.frame_tokens,
            "now": self.now,
            "encoding": self.encoding,
            "language": self.language,
            "layers": {name: self.layers[name].to_json() for name in LAYERS},
            "rejected": [each.to_json() for each in self.rejected],
        }


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """The text for the prompt ("" when nothing fits), never longer than ``budget`` tokens.

    ``degraded`` says what was not as it should be while it was made.
    """

    text: str
    tokens: int
    budget: int
    receipt: Receipt
    degraded: tuple[Degraded, ...] = ()

    def __post_init__(self) -> None:
        if self.tokens > self.budget:
            raise ValueError(f"a block of {self.tokens} tokens exceeds its budget {self.budget}")
