"""Which files and folders a recall has to look at, and what of them changed (Derived, reads only).

One ``stat`` for each known file and folder is the least that sees every edit without a watch. So
nothing else is done per path: paths and what they should look like are kept as lists, taken from
the index once for as long as it stays as it is, and compared as wholes; only where they differ is
it asked which of them. Folders that may come below one that is not there are not asked for.
"""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter, eq

from h2ams import sqlite
from h2ams.memory import layout
from h2ams.memory.scope import parse_scope

_Marks = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode
_GONE: _Marks = (-1, -1, -1, -1)
_MTIME = attrgetter("st_mtime_ns")
_MARKS = attrgetter("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino")


@dataclass(frozen=True, slots=True)
class Watched:
    """What the index knows of the files and folders of some scopes; paths are relative.

    ``unsure`` are to be read again whatever they look like. ``absent`` are folders that a scope may
    have and that are not known, by the folder above.
    """

    base: str
    folders: tuple[str, ...]
    folder_times: list[int]
    files: tuple[str, ...]
    file_marks: list[_Marks]
    unsure: tuple[str, ...]
    absent: dict[str, tuple[str, ...]]

    def stale(self) -> list[str]:
        """Those that look otherwise now, and absent folders that came."""
        found = [*self.unsure, *self._changed_folders(), *self._changed_files(), *self._come()]
        return list(dict.fromkeys(found))

    def _changed_folders(self) -> list[str]:
        with contextlib.suppress(OSError):
            if all(map(eq, map(_MTIME, map(os.stat, self.folders)), self.folder_times)):
                return []
        both = zip(self.folders, self.folder_times, strict=True)
        return [self._relative(path) for path, time_ns in both if _time_of(path) != time_ns]

    def _changed_files(self) -> list[str]:
        with contextlib.suppress(OSError):
            if all(map(eq, map(_MARKS, map(os.stat, self.files)), self.file_marks)):
                return []
        both = zip(self.files, self.file_marks, strict=True)
        return [self._relative(path) for path, marks in both if _marks_of(path) != marks]

    def _come(self) -> Iterator[str]:
        for parent, folders in self.absent.items():
            if os.path.isdir(f"{self.base}/{parent}"):
                yield from (each for each in folders if os.path.isdir(f"{self.base}/{each}"))

    def _relative(self, path: str) -> str:
        return path[len(self.base) + 1 :]


def _time_of(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def _marks_of(path: str) -> _Marks:
    try:
        size, mtime_ns, ctime_ns, inode = _MARKS(os.stat(path))
    except OSError:
        return _GONE
    return size, mtime_ns, ctime_ns, inode


def watched(
    connection: sqlite.Connection, base: str, scopes: Iterable[str], expected: Iterable[str]
) -> Watched:
    """What to look at below the root ``base`` for ``scopes``; ``expected`` are scopes that may
    exist on the disk without being known yet."""
    names = (sqlite.texts(scopes),)
    files = sqlite.rows(
        connection,
        "SELECT path, size, mtime_ns, ctime_ns, inode, racy OR pending <> ''"
        " FROM files WHERE scope IN carray(?)",
        names,
    )
    folders = sqlite.rows(
        connection, "SELECT path, mtime_ns, racy FROM folders WHERE scope IN carray(?)", names
    )
    unsure = [path for path, _, racy in folders if racy]
    unsure += [path for path, *_, racy in files if racy]
    known = {path for path, _, _ in folders}
    return Watched(
        base,
        tuple(f"{base}/{path}" for path, _, racy in folders if not racy),
        [time_ns for _, time_ns, racy in folders if not racy],
        tuple(f"{base}/{path}" for path, *_, racy in files if not racy),
        [(size, mtime, ctime, inode) for _, size, mtime, ctime, inode, racy in files if not racy],
        tuple(unsure),
        _absent(known, expected),
    )


def _absent(known: set[str], expected: Iterable[str]) -> dict[str, tuple[str, ...]]:
    by_parent: dict[str, list[str]] = {}
    for name in expected:
        for folder in _spellings(name):
            if folder not in known:
                by_parent.setdefault(folder.rpartition("/")[0], []).append(folder)
    return {parent: tuple(folders) for parent, folders in by_parent.items()}


def _spellings(scope: str) -> Sequence[str]:
    """Folders that may hold ``scope``: every layout, and names as macOS writes them."""
    folders = layout.folder_names(parse_scope(scope))
    if scope.isascii():
        return folders
    return [*folders, *(unicodedata.normalize("NFD", folder) for folder in folders)]
