"""The footprint of a workflow, kept incrementally (Pure).

    footprint = len(utf8(json(workflowStore))) + len(utf8(json(workflowStoreChangeLog)))

Both are JSON objects with sorted keys, separators ``,`` and ``:``, nothing escaped that need not
be; a deleted key stands in the log as ``null``. An object costs its braces, the commas between its
members and its members, so a change costs what changes and never the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from h2ams.errors import QuotaExceeded
from h2ams.stacks.exchange import to_json

DELETED = "null"
QUOTA_BYTES = 30 * 1024 * 1024  # seed 000, "Persistence quota and atomicity"


def utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def key_bytes(key: str) -> int:
    """Bytes of ``"key":``."""
    return utf8_bytes(to_json(key)) + 1


def member_bytes(key: str, value: str | None) -> int:
    """Bytes of one member of the object; ``value`` is JSON text, None a deleted key."""
    return key_bytes(key) + utf8_bytes(DELETED if value is None else value)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many members an object has and how many bytes those take."""

    members: int = 0
    members_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of the whole object as JSON."""
        return 2 + self.members_bytes + max(0, self.members - 1)

    def changed(self, old: int | None, new: int | None) -> Tally:
        """The tally after a member of ``old`` bytes became one of ``new`` (None: no member)."""
        more = (new is not None) - (old is not None)
        return Tally(self.members + more, self.members_bytes + (new or 0) - (old or 0))


@dataclass(frozen=True, slots=True)
class Footprint:
    """The figures of the quota."""

    store: Tally = Tally()
    log: Tally = Tally()

    @property
    def bytes(self) -> int:
        return self.store.bytes + self.log.bytes


def recomputed(store: Mapping[str, str], log: Mapping[str, str | None]) -> Footprint:
    """The footprint counted from nothing: what the incremental one must always equal."""

    def tally(members: Mapping[str, str | None]) -> Tally:
        return Tally(len(members), sum(member_bytes(key, value) for key, value in members.items()))

    return Footprint(tally(store), tally(log))


def preflight(before: Footprint, after: Footprint, limit_bytes: int) -> None:
    """``QuotaExceeded`` where a projection may not be written.

    One that does not grow the footprint always may: it must stay possible to get below a limit
    that was lowered.
    """
    if after.bytes > limit_bytes and after.bytes > before.bytes:
        raise QuotaExceeded(needed=after.bytes, limit=limit_bytes)
