"""Whole folders: seen, moved, copied, removed (Truth; the second module that touches user files).

For operations on scopes, which take folders as they are: a move is one ``rename``, whatever stands
in the folder comes along, links are moved as links and never followed. Paths are relative to the
root and may lie in ``.h2ams``, where no link is passed. Each step is announced to the fault hook of
the root, so that tests can break before any of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from h2ams.atomic import NOFOLLOW, errors_named, read, reason, sha256_hex
from h2ams.errors import UnsafePathError
from h2ams.files import STATE_FOLDER, Root

_TEMPORARY_ENDS = (".tmp", ".swap")  # of our own writers; they begin with a dot


@dataclass(frozen=True, slots=True)
class Seen:
    """One file of a tree. ``kind``: ``file``, ``link`` or ``other`` (a pipe, a device).

    ``sha256`` is "" where the bytes could not be read, for links that of where they lead.
    """

    path: str
    kind: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Failure:
    """One path that could not be worked on, and why."""

    path: str
    message: str


class Trees:
    """Folder operations below one root."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._writer = root.writer

    # Looking

    def exists(self, path: str) -> bool:
        """Whether something has this name, be it a link that leads nowhere."""
        return os.path.lexists(self._place(path))

    def folders(self, path: str) -> list[str]:
        """Names of the folders in ``path`` (links to folders count), sorted.

        ``UnsafePathError`` where ``path`` is a link that leads out of the root.
        """
        own = path.split("/", 1)[0] == STATE_FOLDER
        place = self._place(path) if own else self._root.absolute(path)
        with errors_named("list", path):
            try:
                with os.scandir(place) as entries:
                    return sorted(entry.name for entry in entries if entry.is_dir())
            except (FileNotFoundError, NotADirectoryError):
                return []

    def names(self, path: str) -> list[str]:
        """All names in the folder ``path``, sorted; none where it is not there."""
        with errors_named("list", path):
            try:
                return sorted(os.listdir(self._place(path)))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def walk(self, path: str) -> Iterator[str]:
        """Every file, link and pipe at or below ``path``, in order; links are not followed."""
        status = _lstat(self._place(path))
        if status is None:
            return
        if not stat.S_ISDIR(status.st_mode):
            yield path
            return
        with errors_named("list", path):
            names = sorted(os.listdir(self._place(path)))
        for name in names:
            yield from self.walk(f"{path}/{name}")

    def seen(self, path: str) -> Seen:
        """What ``path`` is, with its digest; it must be there."""
        place = self._place(path)
        with errors_named("look at", path):
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                target = os.fsencode(os.readlink(place))
                return Seen(path, "link", len(target), sha256_hex(target))
        if not stat.S_ISREG(status.st_mode):
            return Seen(path, "other", 0, "")
        try:
            found = read(place, path)
        except OSError:
            return Seen(path, "file", status.st_size, "")
        return Seen(path, "file", found.size if found else 0, found.sha256 if found else "")

    # Changing

    def move(self, source: str, target: str) -> None:
        """Give ``source`` the free name ``target`` in one step; parents of ``target`` are made."""
        here, there = self._place(source), self._place(target)
        with errors_named("move", source):
            self._make_parents(target)
            if os.path.lexists(there):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
            self._writer.at("rename", here)
            os.rename(here, there)
            self._writer.sync_folder(os.path.dirname(there))
            self._writer.sync_folder(os.path.dirname(here))

    def copy(self, source: str, target: str, data: bytes | None = None) -> None:
        """Make ``target`` a copy of the file or link ``source``, durable; it must not be there.

        ``data`` is written in place of the source's own bytes. Mode and times are kept.
        """
        here, there = self._place(source), self._place(target)
        with errors_named("copy", source):
            self._make_parents(target)
            status = os.lstat(here)
            if stat.S_ISLNK(status.st_mode):
                self._writer.at("symlink", there)
                os.symlink(os.readlink(here), there)
            else:
                found = read(here, source) if data is None else None
                self._write_new(there, found.data if found else data or b"", status)
            self._writer.sync_folder(os.path.dirname(there))

    def clear(self, path: str) -> list[Failure]:
        """Remove ``path`` with all below it; what could not be removed, and why."""
        place = self._place(path)
        status = _lstat(place)
        if status is None:
            return []
        failures: list[Failure] = []
        try:
            if stat.S_ISDIR(status.st_mode):
                for name in sorted(os.listdir(place)):
                    failures += self.clear(f"{path}/{name}")
                if failures:
                    return failures
                self._writer.at("remove-folder", place)
                os.rmdir(place)
            else:
                self._writer.at("unlink", place)
                os.unlink(place)
            self._writer.sync_folder(os.path.dirname(place))
        except OSError as error:
            failures.append(Failure(path, reason(error)))
        return failures

    def prune(self, path: str) -> None:
        """Remove the folder ``path`` if it is empty."""
        place = self._place(path)
        with suppress(OSError):  # not empty, not there, not ours: it may as well stay
            self._writer.at("remove-folder", place)
            os.rmdir(place)

    # Paths

    def _place(self, path: str) -> str:
        """Absolute path of ``path`` itself: links are passed on the way there, not at its end."""
        if not path:
            return self._root.path
        parent, _, name = path.rpartition("/")
        if path.split("/", 1)[0] != STATE_FOLDER:
            return os.path.join(self._root.absolute(parent), name)
        place = os.path.join(self._root.path, *path.split("/"))
        folder = self._root.path
        for part in path.split("/")[:-1]:
            if part in ("", ".", ".."):
                raise UnsafePathError(f"path {path!a} climbs", path=path)
            folder = os.path.join(folder, part)
            if os.path.islink(folder):
                raise UnsafePathError(f"{folder} is a link among the engine's files", path=path)
        return place

    def _make_parents(self, path: str) -> None:
        folder = os.path.dirname(self._place(path))
        if not os.path.isdir(folder):
            self._writer.make_folders(folder, self._root.path)

    def _write_new(self, path: str, data: bytes, like: os.stat_result) -> None:
        """The file ``path``, whole or not at all, with mode and times of ``like``."""
        folder, name = os.path.split(path)
        temp = os.path.join(folder, f".{name[-40:]}.{os.urandom(8).hex()}.tmp")
        self._writer.at("copy", temp)
        descriptor = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if os.name != "nt":
                    os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
                self._writer.at("fsync", temp)
                os.fsync(file.fileno())
            os.utime(temp, ns=(like.st_atime_ns, like.st_mtime_ns))
            self._writer.at("rename", temp)
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            os.rename(temp, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temp)
            raise


def is_leftover(path: str) -> bool:
    """Whether ``path`` is named like what a writer of ours leaves when it dies."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(_TEMPORARY_ENDS)


def _lstat(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
