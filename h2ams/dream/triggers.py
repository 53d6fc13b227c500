"""When a pass is due (Pure): after so many messages of the user, after a time, at start when stale.

A host asks; nothing here runs by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from h2ams.settings import Settings

Cause = Literal["by-hand", "messages", "interval", "start", "not-due"]


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a pass is due, and why (not)."""

    due: bool
    cause: Cause


def due(
    *,
    new_count: int,
    new_user_count: int,
    last_pass: datetime | None,
    now: datetime,
    settings: Settings,
    at_start: bool = False,
    by_hand: bool = False,
) -> Due:
    """Judge one thread: ``new_count`` messages are new, ``new_user_count`` of them the user's.

    ``last_pass`` is when a pass of this thread last ended, None for never. ``at_start`` says that
    the host has just started: a last pass older than the interval is then reason enough.
    """
    if by_hand:
        return Due(new_count > 0, "by-hand")
    if new_count == 0:
        return Due(False, "not-due")
    elapsed_ms = None if last_pass is None else (now - last_pass).total_seconds() * 1_000
    stale = elapsed_ms is None or elapsed_ms >= settings.dream_interval_ms
    if at_start and stale:
        return Due(True, "start")
    if new_count < settings.dream_min_new_count:
        return Due(False, "not-due")
    if new_user_count >= settings.dream_after_count:
        return Due(True, "messages")
    if stale:
        return Due(True, "interval")
    return Due(False, "not-due")
