"""The optimized change log: what happened to each key since the last checkpoint (Pure).

One entry a key. A later write supersedes an earlier one, a set followed by a delete leaves the
delete alone, and a key that was not there at the last checkpoint vanishes with its delete. The
value of an entry that is no delete is the value in the store, so it need not be kept twice.
Replaying the log on the checkpoint gives the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """``based``: the key was in the store at the last checkpoint; only then can it be a delete."""

    based: bool
    deleted: bool = False

    def __post_init__(self) -> None:
        assert self.based or not self.deleted


def after_set(entry: Entry | None, existed: bool) -> Entry:
    """The entry of a key that is set. ``existed``: it was in the store before."""
    return Entry(existed if entry is None else entry.based)


def after_delete(entry: Entry | None, existed: bool) -> Entry | None:
    """The entry of a key that is deleted, None where the log says nothing of it any more."""
    based = existed if entry is None else entry.based
    return Entry(True, deleted=True) if based else None


def replay(checkpoint: Mapping[str, str], log: Mapping[str, str | None]) -> dict[str, str]:
    """The store that ``log`` (key to JSON, None for a delete) makes of ``checkpoint``."""
    merged: dict[str, str | None] = {**checkpoint, **log}
    return {key: value for key, value in merged.items() if value is not None}
