"""What a sync has to do, as a value (Pure).

``plan_sync`` compares what the walk found with what the index knows. Tests, ``--dry-run`` and the
apply step all see the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from h2ams.memory.layout import Role


class Found(NamedTuple):
    """One tracked file as ``stat`` saw it."""

    path: str
    scope: str
    name: str  # path from the scope's folder on, NFC: the same in every layout and spelling
    role: Role
    layout: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


class Known(NamedTuple):
    """One row of ``files``: what the index last saw of a file."""

    no: int
    path: str
    scope: str
    name: str
    role: str
    layout: int
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    racy: bool
    digest: str
    pending: str
    pending_ns: int

    def same(self, found: Found) -> bool:
        """Whether the stat values prove that the bytes are those that were read."""
        return (
            not self.racy
            and not self.pending
            and self.mtime_ns == found.mtime_ns
            and self.size == found.size
            and self.ctime_ns == found.ctime_ns
            and self.inode == found.inode
            and self.scope == found.scope
            and self.role == found.role
        )


class Plan(NamedTuple):
    """Files to read, files that are gone, and files that could not be looked at."""

    read: tuple[Found, ...] = ()
    gone: tuple[Known, ...] = ()
    unseen: tuple[Known, ...] = ()
    scanned: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.read or self.gone or self.unseen)


def plan_sync(
    found: Mapping[str, Found], known: Mapping[str, Known], blinded: Callable[[str], bool]
) -> Plan:
    """Compare ``found`` (by path) with ``known`` (by path).

    ``blinded(path)`` tells that the walk could not look where ``path`` lies: such a file is
    *unseen*, never *gone*.
    """
    read: list[Found] = []
    gone: list[Known] = []
    unseen: list[Known] = []
    for path, each in found.items():
        old = known.get(path)
        if old is None or not old.same(each):
            read.append(each)
    if len(known) > len(found) - len(read):
        for path, old in known.items():
            if path not in found:
                (unseen if blinded(path) else gone).append(old)
    return Plan(tuple(read), tuple(gone), tuple(unseen), len(found))
