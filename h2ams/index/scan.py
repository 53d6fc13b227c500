"""What is on the disk: one walk over folders, names and stat values only (reads, never writes).

The walk is the whole cost of a sync that finds nothing changed, so it does no more per file than
``os.scandir`` and one ``stat``. What a name means is asked of ``memory.layout``; a folder that
cannot be read is reported and the rest goes on, and what was known below it is not taken as gone.
"""

from __future__ import annotations

import errno
import gc
import os
import stat as stat_module
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from h2ams.errors import LimitError, RootError, UnsafePathError
from h2ams.files import Root
from h2ams.index.plan import Found
from h2ams.memory import layout
from h2ams.memory.layout import TRACKED, Place, Role, place_of
from h2ams.memory.scope import Scope
from h2ams.memory.values import Problem
from h2ams.settings import Settings

# A change this shortly before it was read may be followed by another one with the same time stamp:
# kernels keep times in ticks of up to 10 ms.
RACY_NS = 20_000_000
RACY_COARSE_NS = 2_000_000_000  # file systems that keep whole or even seconds (FAT, some network)


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
        found = self.files.values()
        times = [*map(_MTIME, found), *map(_CTIME, found), *map(_SECOND, self.folders.values())]
        latest = max(times, default=0)
        if latest > self.started_ns:  # times of the future say nothing about now
            latest = max((each for each in times if each <= self.started_ns), default=0)
        return max(0, latest + RACY_NS - time.time_ns())


_MTIME, _CTIME = attrgetter("mtime_ns"), attrgetter("ctime_ns")
_SECOND = itemgetter(1)


@contextmanager
def no_collections() -> Iterator[None]:
    """Pause the collector of reference cycles: a walk makes many small objects and no cycle.

    It took a fifth of the time of a sync of 10,000 folders.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def is_racy(mtime_ns: int, ctime_ns: int, read_ns: int) -> bool:
    """Whether a later change could carry the very same time stamps."""
    latest = max(mtime_ns, ctime_ns)
    window = RACY_COARSE_NS if mtime_ns % 1_000_000_000 == 0 else RACY_NS
    return latest >= read_ns - window


Places = dict[str, Place | None]  # path of a folder -> where it stands in the grammar
MOST_PLACES = 200_000  # remembered from one walk to the next


def scan(
    root: Root,
    settings: Settings,
    folders: Iterable[str] = ("",),
    *,
    places: Places | None = None,
) -> Scan:
    """Walk ``folders`` (relative, ``""`` is the root) and everything below them.

    A folder deeper than ``max_depth_count`` is reported and not entered. ``places`` remembers from
    one walk to the next what a path means, which its text alone decides.

    ``RootError`` where the root itself is missing or cannot be read: an absent root never looks
    like an empty one.
    """
    result = Scan(started_ns=time.time_ns())
    places = {} if places is None else places
    if len(places) > MOST_PLACES:
        places.clear()
    for folder in folders:
        place = place_of(folder)
        if place is not None:
            _walk(root, folder, place, result, settings.max_depth_count, places)
    return result


def check_room(seen: Scan, settings: Settings) -> None:
    """``LimitError`` where a whole folder holds more scopes than ``max_scopes_count``."""
    limit = settings.max_scopes_count
    if len(seen.folders) <= limit:  # each scope has a folder of its own
        return
    size = len({each.scope for each in seen.files.values()})
    if size > limit:
        raise LimitError(
            f"the memory folder holds {size} scopes: the limit max_scopes_count is {limit}",
            name="max_scopes_count",
            limit=limit,
            size=size,
        )


def found_file(path: str, place: Place, role: Role, status: os.stat_result) -> Found:
    """A tracked file of the folder at ``place``, which belongs to a scope."""
    scope = place.scope_text
    assert scope, f"{path} belongs to no scope"
    if place.is_scope:
        name = path[path.rfind("/") + 1 :]
    else:
        name = path if place.unfiled else path.split("/", scope.count("/") + 1)[-1]
    if not name.isascii():
        name = unicodedata.normalize("NFC", name)
    return Found(
        path,
        scope,
        name,
        role,
        place.layout,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    )


def _walk(
    root: Root, top: str, top_place: Place, result: Scan, max_depth: int, places: Places
) -> None:
    base = root.path
    try:
        mtime_ns = os.stat(f"{base}/{top}").st_mtime_ns
    except OSError as error:
        _unreadable(top, f"{base}/{top}".rstrip("/"), error, result)
        return
    stack = [(top, top_place, top.count("/") + 1 if top else 0, mtime_ns)]
    while stack:
        folder, place, depth, mtime_ns = stack.pop()
        absolute = f"{base}/{folder}" if folder else base
        try:
            with os.scandir(absolute) as entries:
                listed = list(entries)
        except OSError as error:
            _unreadable(folder, absolute, error, result)
            continue
        # The time was taken before the listing: what comes in between shows at the next scan.
        scope = place.scope_text
        result.folders[folder] = (scope, mtime_ns)
        for entry in listed:
            name = entry.name
            path = f"{folder}/{name}" if folder else name
            if entry.is_dir(follow_symlinks=False):
                try:
                    inner = places[path]
                except KeyError:
                    inner = places[path] = layout.enter(place, name)
                if inner is None:
                    continue
                if inner.problem and not place.problem:
                    code, _, text = inner.problem.partition(": ")
                    result.problems.append(Problem(code, text or code, 0, path))
                if not inner.problem:
                    _push(stack, entry, (path, inner, depth + 1), max_depth, result)
            elif entry.is_symlink():
                try:
                    if name.startswith(".") or not _safe_link(root, path, result):
                        continue
                    linked = _linked_folder(root, entry, path, place, result)
                    if linked is not None:
                        _push(stack, entry, (path, linked, depth + 1), max_depth, result)
                    elif entry.is_file() and not _crosses(
                        root, path, path, place.scope or layout.UNFILED, result
                    ):
                        _file(entry, path, place, scope, result)
                except OSError as error:  # a link to itself, or to a name that is too long
                    text = f"a link that cannot be followed: {error.strerror}"
                    result.problems.append(Problem("unsafe-link", text, 0, path))
            else:
                _file(entry, path, place, scope, result)


def _push(
    stack: list[tuple[str, Place, int, int]],
    entry: os.DirEntry[str],
    found: tuple[str, Place, int],
    max_depth: int,
    result: Scan,
) -> None:
    path, _, depth = found
    if depth > max_depth:  # a loop of links or mounts ends here too
        text = f"deeper than max_depth_count ({max_depth}): not read"
        result.problems.append(Problem("too-deep", text, 0, path))
        return
    try:
        stack.append((*found, entry.stat().st_mtime_ns))
    except FileNotFoundError:
        return  # gone between the listing and now
    except OSError as error:
        _unreadable(path, path, error, result)


def _linked_folder(
    root: Root, entry: os.DirEntry[str], path: str, place: Place, result: Scan
) -> Place | None:
    """The place of a link to a folder inside the root, if it is read."""
    if not entry.is_dir():
        return None
    inner = layout.enter(place, entry.name)
    if inner is None or inner.problem or inner.scope is None:
        return None
    return None if _crosses(root, path, f"{path}/x", inner.scope, result) else inner


def _crosses(root: Root, path: str, inside: str, scope: Scope, result: Scan) -> bool:
    """Whether a link leads into another scope's folder; then it is reported, not followed."""
    real = os.path.relpath(root.absolute(path), root.path).replace(os.sep, "/")
    if not layout.crosses_scopes(f"{real}/x" if inside != path else real, scope):
        return False
    result.skipped_links += 1
    text = f"a link into the scope folder {real}: not followed"
    result.problems.append(Problem("unsafe-link", text, 0, path))
    return True


def _file(entry: os.DirEntry[str], path: str, place: Place, scope: str, result: Scan) -> None:
    """One entry that is no folder; ``scope`` is that of ``place`` ("" for none)."""
    role, detail = layout.role(place, entry.name)
    if detail:
        code, colon, text = detail.partition(": ")
        if colon:  # a quiet reason has no colon
            result.problems.append(Problem(code, text, 0, path))
    if role not in TRACKED or not scope:
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
