"""What an event of the file system means, and when to sync because of it (Pure).

An event is only a hint that a path should be looked at: it is mapped to what a sync can be asked
for, and noise is dropped. Hints are gathered in a ``Batch``, a value: each call gives a new one,
and the time comes in. A batch is due when it has been quiet for the debounce time, or has waited
four times that long; after a failure it is given back and waits longer each time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from h2ams.memory import layout
from h2ams.memory.layout import TRACKED, Role, place_of

MOST_PATHS = 200  # more changed paths than this: one scan of everything is the cheaper look
MOST_WAITS = 4  # debounce times that steady changes may put a sync off
RETRY_FIRST_MS = 250.0  # doubled with each failure in a row
RETRY_MOST_MS = 5_000.0
_TEMPORARY_ENDS = ("~", ".tmp", ".swp", ".swx")


class Entry(Enum):
    """What a path was when the event came. ``EITHER``: the platform does not tell."""

    FILE = "file"
    FOLDER = "folder"
    EITHER = "either"


def target_of(path: str, entry: Entry, *, linked: bool = False) -> str | None:
    """The path to sync because of an event at the relative ``path``; None where it does not matter.

    ``""`` is everything. ``linked``: the folder holds links that are followed, so that a change
    anywhere may change what is read elsewhere.
    """
    if path == "":
        return ""
    if linked and entry is not Entry.FOLDER and not _is_noise(path):
        return ""
    if entry is not Entry.FOLDER and _is_tracked(path):
        return path
    if entry is Entry.FILE:
        return None
    place = place_of(path)
    if place is None or place.problem is not None:
        return None
    return "" if linked else path


def _is_tracked(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    place = place_of(folder)
    if place is None or place.problem is not None or place.scope is None:
        return False
    role: Role = layout.role(place, name)[0]
    return role in TRACKED


def _is_noise(path: str) -> bool:
    """Temporary files, and everything in the engine's own folder."""
    return path.startswith(".h2ams/") or path.endswith(_TEMPORARY_ENDS)


@dataclass(frozen=True, slots=True)
class Work:
    """One sync to run: ``paths`` (outermost ones, sorted), or everything where there are none.

    ``periodic``: nothing said that there is a change; it is only time to look.
    """

    paths: tuple[str, ...] = ()
    periodic: bool = False


EVERYTHING = Work()


@dataclass(frozen=True, slots=True)
class Batch:
    """Hints that wait for a sync. All times are milliseconds of one clock that never goes back.

    ``again`` are paths to look at once more at ``again_ms`` whether or not an event comes (a file
    that was half-written). ``not_before_ms`` and ``failures`` belong to failed syncs.
    """

    debounce_ms: float
    paths: frozenset[str] = frozenset()
    full: bool = False
    first_ms: float = 0.0
    last_ms: float = 0.0
    again: frozenset[str] = frozenset()
    again_ms: float = 0.0
    not_before_ms: float = 0.0
    failures: int = 0

    @property
    def has_hints(self) -> bool:
        return self.full or bool(self.paths)

    @property
    def is_empty(self) -> bool:
        return not (self.has_hints or self.again)

    def noted(self, target: str, now_ms: float) -> Batch:
        """With one more hint; ``target`` as ``target_of`` gives it."""
        full = self.full or target == ""
        paths = self.paths if full else self.paths | {target}
        if len(paths) > MOST_PATHS:
            full = True
        first_ms = self.first_ms if self.has_hints else now_ms
        return replace(
            self,
            full=full,
            paths=frozenset() if full else paths,
            first_ms=first_ms,
            last_ms=now_ms,
        )

    def all_at_once(self, now_ms: float) -> Batch:
        """Everything is to be looked at, without waiting for quiet."""
        settled_ms = now_ms - self.debounce_ms
        return replace(self, full=True, paths=frozenset(), first_ms=settled_ms, last_ms=settled_ms)

    def with_again(self, paths: frozenset[str], at_ms: float) -> Batch:
        """With ``paths`` to be looked at again at ``at_ms``, or earlier with those that wait."""
        if not paths:
            return self
        at_ms = min(at_ms, self.again_ms) if self.again else at_ms
        return replace(self, again=self.again | paths, again_ms=at_ms)

    def due_ms(self) -> float | None:
        """When to sync; None: not before another hint."""
        times = []
        if self.has_hints:
            quiet_ms = self.last_ms + self.debounce_ms
            times.append(min(quiet_ms, self.first_ms + MOST_WAITS * self.debounce_ms))
        if self.again:
            times.append(self.again_ms)
        return max(min(times), self.not_before_ms) if times else None

    def take(self, now_ms: float) -> tuple[Work, Batch] | None:
        """The sync that is due at ``now_ms`` and the batch without it; None: not yet."""
        due_ms = self.due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        again_due = bool(self.again) and (self.full or self.again_ms <= now_ms)
        paths = self.paths | self.again if again_due else self.paths
        rest = replace(self, paths=frozenset(), full=False)
        if again_due:
            rest = replace(rest, again=frozenset())
        return (EVERYTHING if self.full else Work(outermost(paths))), rest

    def failed(self, work: Work, now_ms: float) -> Batch:
        """With ``work`` given back after a failure: no hint is ever lost."""
        wait_ms = min(RETRY_FIRST_MS * 2.0 ** min(self.failures, 16), RETRY_MOST_MS)
        batch = self if self.has_hints else replace(self, first_ms=now_ms, last_ms=now_ms)
        full = self.full or not work.paths
        return replace(
            batch,
            full=full,
            paths=frozenset() if full else self.paths.union(work.paths),
            not_before_ms=now_ms + wait_ms,
            failures=self.failures + 1,
        )

    def succeeded(self) -> Batch:
        return replace(self, not_before_ms=0.0, failures=0)


def outermost(paths: frozenset[str]) -> tuple[str, ...]:
    """``paths`` without those that lie below another one of them, sorted."""
    return tuple(sorted(path for path in paths if not _is_covered(path, paths)))


def _is_covered(path: str, paths: frozenset[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:count]) in paths for count in range(1, len(parts)))
