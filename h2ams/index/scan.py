"""What is on the disk: one walk over folders, names and stat values only (reads, never writes).

The walk is the whole cost of a sync that finds nothing changed, so it does no more per file than
``os.scandir`` and one ``stat``. What a name means is asked of ``memory.layout``; a folder that
cannot be read is reported and the rest goes on, and what was known below it is not taken as gone.
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from h2ams.errors import RootError, UnsafePathError
from h2ams.files import Root
from h2ams.memory import layout
from h2ams.memory.layout import Place, Role
from h2ams.memory.scope import Scope
from h2ams.memory.segment import Problem

# Files with these roles are kept in the table `files`; the others are read where they are needed.
TRACKED = frozenset({Role.MEMORY, Role.CONTENT, Role.NOTE, Role.SESSION_CARD})

# A change this shortly before it was read may be followed by another one with the same time stamp:
# kernels keep times in ticks of up to 10 ms.
RACY_NS = 20_000_000
RACY_COARSE_NS = 2_000_000_000  # file systems that keep whole or even seconds (FAT, some network)


@dataclass(frozen=True, slots=True)
class Found:
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


@dataclass(slots=True)
class Scan:
    """All that one walk saw. ``blind`` are folders that could not be read."""

    files: dict[str, Found] = field(default_factory=dict)
    folders: dict[str, tuple[str, int]] = field(default_factory=dict)  # path -> scope, mtime_ns
    problems: list[Problem] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    skipped_links: int = 0
    started_ns: int = 0

    def blinded(self, path: str) -> bool:
        """Whether ``path`` lies below a folder that could not be read."""
        return any(path.startswith(f"{folder}/") or not folder for folder in self.blind)

    def settles_in_ns(self) -> int:
        """How long until a further change of what was found must carry another time stamp."""
        times = [max(each.mtime_ns, each.ctime_ns) for each in self.files.values()]
        times += [mtime_ns for _, mtime_ns in self.folders.values()]
        latest = max((each for each in times if each <= self.started_ns), default=0)
        return max(0, latest + RACY_NS - time.time_ns())


def is_racy(mtime_ns: int, ctime_ns: int, read_ns: int) -> bool:
    """Whether a later change could carry the very same time stamps."""
    latest = max(mtime_ns, ctime_ns)
    window = RACY_COARSE_NS if mtime_ns % 1_000_000_000 == 0 else RACY_NS
    return latest >= read_ns - window


def scan(root: Root, folders: Iterable[str] = ("",), *, recursive: bool = True) -> Scan:
    """Walk ``folders`` (relative, ``""`` is the root) and everything below them.

    ``RootError`` where the root itself is missing or cannot be read: an absent root never looks
    like an empty one.
    """
    result = Scan(started_ns=time.time_ns())
    for folder in folders:
        place = place_of(folder)
        if place is not None:
            _walk(root, folder, place, result, recursive)
    return result


def place_of(folder: str) -> Place | None:
    """Where the relative ``folder`` stands in the grammar; None where it is not read."""
    place: Place | None = layout.ROOT
    for name in folder.split("/") if folder else ():
        place = layout.enter(place, name) if place is not None else None
    return place


def scope_of_path(path: str) -> Scope | None:
    """The scope that the file at the relative ``path`` belongs to; None where it has none."""
    place = place_of(path.rpartition("/")[0])
    return None if place is None or place.problem else place.scope


def found_file(path: str, place: Place, role: Role, status: os.stat_result) -> Found:
    """A tracked file of the folder at ``place``, which belongs to a scope."""
    scope = place.scope
    assert scope is not None
    whole = scope == layout.UNFILED and place.unfiled
    name = path if whole else path.split("/", scope.text.count("/") + 1)[-1]
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    return Found(
        path,
        scope.text,
        name,
        role,
        place.layout,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


def _walk(root: Root, top: str, top_place: Place, result: Scan, recursive: bool) -> None:
    stack = [(top, top_place, 0)]
    base = root.path
    max_depth = 64  # a loop of bind mounts must end; settings.max_depth_count reports far earlier
    while stack:
        folder, place, depth = stack.pop()
        absolute = f"{base}/{folder}" if folder else base
        try:
            mtime_ns = os.stat(absolute).st_mtime_ns
            with os.scandir(absolute) as entries:
                listed = list(entries)
        except OSError as error:
            _unreadable(folder, absolute, error, result)
            continue
        result.folders[folder] = (_scope_text(place), mtime_ns)
        for entry in listed:
            name = entry.name
            path = f"{folder}/{name}" if folder else name
            if entry.is_dir(follow_symlinks=False):
                inner = layout.enter(place, name)
                if inner is None:
                    continue
                if inner.problem and not place.problem:
                    code, _, text = inner.problem.partition(": ")
                    result.problems.append(Problem(code, text or code, 0, path))
                if recursive and depth < max_depth and not inner.problem:
                    stack.append((path, inner, depth + 1))
            else:
                _file(root, entry, path, place, result, stack, depth, recursive)


def _file(
    root: Root,
    entry: os.DirEntry[str],
    path: str,
    place: Place,
    result: Scan,
    stack: list[tuple[str, Place, int]],
    depth: int,
    recursive: bool,
) -> None:
    name = entry.name
    if entry.is_symlink():
        if name.startswith(".") or not _safe_link(root, path, result):
            return
        if entry.is_dir():
            inner = layout.enter(place, name)
            if recursive and inner is not None and not inner.problem and depth < 8:
                stack.append((path, inner, depth + 1))
            return
    role, detail = layout.role(place, name)
    code, colon, text = detail.partition(": ")
    if colon:  # a quiet reason has no colon
        result.problems.append(Problem(code, text, 0, path))
    if role not in TRACKED:
        return
    if place.scope is None or place.problem:
        return
    try:
        status = entry.stat()
    except FileNotFoundError:
        return
    except OSError as error:
        result.problems.append(Problem("unreadable", error.strerror or str(error), 0, path))
        return
    if not stat_module.S_ISREG(status.st_mode):
        return
    result.files[path] = found_file(path, place, role, status)


def _safe_link(root: Root, path: str, result: Scan) -> bool:
    try:
        root.absolute(path)
    except UnsafePathError as error:
        result.skipped_links += 1
        result.problems.append(Problem("unsafe-link", error.message, 0, path))
        return False
    return True


def _unreadable(folder: str, absolute: str, error: OSError, result: Scan) -> None:
    if not folder:
        raise RootError(
            f"cannot read the memory folder {absolute}: {error.strerror}",
            path=absolute,
            hint="nothing was removed from the index; make the folder readable and try again",
        ) from error
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return  # gone between the listing and now: the next scan sees the truth
    result.blind.append(folder)
    name = errno.errorcode.get(error.errno or 0, "")
    result.problems.append(Problem("unreadable", f"{error.strerror} ({name})", 0, folder))


def _scope_text(place: Place) -> str:
    return place.scope.text if place.scope is not None else ""
