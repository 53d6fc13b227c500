"""The memory flush before a summary (Pure): what it is asked, and which rows it has seen.

Before rows are folded, their durable facts go into the agent's Markdown memory. Who does that is
injected, since threads know nothing of memory. Each row is flushed once, whatever triggers the
compaction: what was flushed is a row of the thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from h2ams.threads.thread_store import Row
from h2ams.threads.unit import Entry

FlushMode = Literal["optional", "required", "off"]
Trigger = Literal["automatic", "overflow", "forced", "manual", "restart"]


@dataclass(frozen=True, slots=True)
class FlushMessage:
    """A message to learn from: redacted, without tool output and without recalled memory."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    created_at: str


@dataclass(frozen=True, slots=True)
class FlushRequest:
    """``scope`` is the thread's: ``sessions/<id>``, ``chat/<id>`` or ""."""

    thread: str
    scope: str
    boundary: str
    trigger: Trigger
    messages: tuple[FlushMessage, ...]


@dataclass(frozen=True, slots=True)
class FlushReport:
    """What came of it. ``addresses`` of the segments that were written, ``refused`` operations."""

    addresses: tuple[str, ...] = ()
    refused: int = 0
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        """All fields under their names."""
        return {
            "addresses": list(self.addresses), "refused": self.refused, "detail": self.detail
        }  # fmt: skip


class Flush(Protocol):
    """Writes what is durable in a request; raises an ``H2amsError`` where it could not."""

    def __call__(self, request: FlushRequest) -> FlushReport: ...


def unflushed(entries: Sequence[Entry], done: Iterable[Row]) -> tuple[Entry, ...]:
    """Those of ``entries`` that no flush in ``done`` has seen."""
    ranges = [
        (int(row.payload["first"]), int(row.payload["last"]), frozenset(row.payload["but"]))
        for row in done
    ]
    return tuple(
        entry
        for entry in entries
        if not any(
            first <= entry.seq <= last and entry.seq not in but for first, last, but in ranges
        )
    )


def flushed_range(entries: Sequence[Entry], report: FlushReport) -> dict[str, Any]:
    """The payload of the row that says that these rows were flushed."""
    seqs = {entry.seq for entry in entries}
    first, last = min(seqs), max(seqs)
    return {
        "first": first,
        "last": last,
        "but": [seq for seq in range(first, last) if seq not in seqs],
        **report.to_json(),
    }
