"""The memory folder on disk: confined paths, reading, replacing, locks, internal state (Truth).

The only module through which user files are written (the steps themselves are in ``atomic``).
Every relative path is checked part by part; a link is followed only where it ends inside the root,
and then its target is read or replaced, never the link. Among the engine's own files (locks, state)
no link is followed at all. Nothing here makes the root but ``Root.create``.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from h2ams.atomic import (
    NOFOLLOW,
    Changed,
    FaultHook,
    FileState,
    Writer,
    errors_named,
    read,
    reason,
    sha256_hex,
    store_error,
)
from h2ams.errors import LockTimeoutError, RootError, UnsafePathError
from h2ams.lease import leased

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["STATE_FOLDER", "Changed", "FaultHook", "FileState", "Root"]

STATE_FOLDER = ".h2ams"
LOCK_POLL_MS = 10
# One test for every path of a scan; what it catches is looked at slowly, and may be harmless.
_DOUBTFUL = re.compile(r"\A\Z|[\0\\]|\A/|/\Z|//|\A[A-Za-z]:|(?:\A|/)\.\.?(?:/|\Z)")
_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: junctions are links too


class Root:
    """One memory folder. ``path`` and ``state`` are absolute and free of links.

    ``hook`` is called with (operation, path) before each file operation; tests fail or kill there.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        lock_timeout_ms: int = 10_000,
        hook: FaultHook | None = None,
    ) -> None:
        self.path = _existing_folder(os.fspath(path))
        own = os.path.join(self.path, STATE_FOLDER)
        self.state = own if not state else os.path.realpath(state)
        self._own_state = own
        self._lock_timeout_ms = lock_timeout_ms
        self._writer = Writer(hook)
        self._locks: dict[str, BaseFileLock] = {}
        self._locks_guard = threading.Lock()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        state: str | os.PathLike[str] | None = None,
        lock_timeout_ms: int = 10_000,
        hook: FaultHook | None = None,
    ) -> Root:
        """The root at ``path``, made with its parents where missing (``init``, ``remember``)."""
        text = os.fspath(path)
        try:
            if not os.path.exists(text):
                os.makedirs(text)
        except (OSError, ValueError) as error:
            raise _root_error(text, error) from error
        return cls(path, state=state, lock_timeout_ms=lock_timeout_ms, hook=hook)

    def writable(self) -> bool:
        """Whether this process may add files to the root folder."""
        effective = os.access in os.supports_effective_ids
        return os.access(self.path, os.W_OK | os.X_OK, effective_ids=effective)

    # Paths

    def absolute(self, relative: str) -> str:
        """Absolute path of ``relative`` ("" is the root), links inside the root resolved.

        ``UnsafePathError`` names the part that is absolute, climbs, or is a link that leads out of
        the root, into its state folder, or nowhere.
        """
        try:
            return self._resolve(_parts(relative))
        except OSError as error:
            raise store_error("look at", relative, error) from error

    def _resolve(self, parts: list[str]) -> str:
        current = self.path
        for index, part in enumerate(parts):
            current = f"{current.rstrip(os.sep)}{os.sep}{part}"
            try:
                status = os.lstat(current)
            except (FileNotFoundError, NotADirectoryError):
                return os.path.join(current, *parts[index + 1 :])
            if _is_link(status):
                inside = self._target(current, "/".join(parts[: index + 1]))
                return self._resolve([*inside, *parts[index + 1 :]])
        return current

    def _target(self, link: str, shown: str) -> list[str]:
        """Parts below the root of where ``link`` ends; the end holds no further link."""
        try:
            real = os.path.realpath(link, strict=True)
        except (FileNotFoundError, NotADirectoryError):
            raise _unsafe(shown, "is a link that leads nowhere") from None
        except OSError as error:
            raise _unsafe(shown, f"is a link that cannot be followed: {reason(error)}") from error
        if real != self.path and not real.startswith(self.path.rstrip(os.sep) + os.sep):
            raise _unsafe(shown, "is a link that leads out of the memory folder")
        parts = [part for part in os.path.relpath(real, self.path).split(os.sep) if part != "."]
        if parts[:1] == [STATE_FOLDER]:
            raise _unsafe(shown, "is a link into the engine's own folder")
        return parts

    # User files

    def read(self, relative: str, *, settled: bool = False) -> FileState | None:
        """The file as it is now, None if it is not there. ``StoreError`` for what is no file.

        ``settled`` waits while another program writes to it, where the system can tell.
        """
        path = self.absolute(relative)
        try:
            self._writer.at("read", path)
            if settled:
                with leased(path, relative):
                    found = read(path, relative)
            else:
                found = read(path, relative)
        except OSError as error:
            raise store_error("read", relative, error) from error
        if found is None:
            self._require_root()
        return found

    def replace(
        self,
        relative: str,
        data: bytes,
        *,
        expect: FileState | None,
        make_folders: bool = False,
    ) -> FileState:
        """Put ``data`` where the file is that is ``expect`` (None: no file), in one step.

        Owner and permission bits survive. ``Changed`` where the file is not ``expect`` (any more):
        nothing is written. Errors name the path; after any, the file is the old or the new one.
        """
        path = self.absolute(relative)
        with errors_named("write", relative):
            if make_folders:
                self._require_root()
                self._writer.make_folders(os.path.dirname(path), self.path)
            return self._writer.replace(path, relative, data, expect)

    def remove(self, relative: str, *, expect: FileState) -> None:
        """Remove the file that is ``expect``, and the link that led to it if there is one."""
        path = self.absolute(relative)
        with errors_named("remove", relative):
            self._writer.remove(path, relative, expect)
            link = os.path.join(self.path, *_parts(relative))
            if link != path and os.path.islink(link):
                self._writer.at("unlink", link)
                os.unlink(link)

    def remove_empty_folder(self, folder: str) -> bool:
        """Remove ``folder`` (relative, not the root) if nothing is in it; whether it is gone."""
        parts = _parts(folder.replace(os.sep, "/"))
        path = self._resolve(parts)
        if path == self.path:
            return False
        try:
            self._writer.at("remove-folder", path)
            os.rmdir(path)
        except OSError:  # something is in it, or somebody else was faster
            return not os.path.lexists(path)
        return True

    def sweep_temps(self, folder: str) -> int:
        """Clear what dead writers left in ``folder``; call it under the lock of that folder.

        The number of leftovers. One that may hold a person's text becomes a visible conflict copy,
        which ``doctor`` reports.
        """
        path = self.absolute(folder)
        with errors_named("clear up", folder):
            return self._writer.sweep(path)

    def _require_root(self) -> None:
        """Nothing is missing *in* a folder that is gone: an unmounted root is not an empty one."""
        _existing_folder(self.path)

    # Locks

    @contextmanager
    def lock(self, name: str, *, timeout_ms: int | None = None) -> Iterator[None]:
        """Hold the lock ``name`` (a scope's text, ``"index"`` …), re-entrant within one thread.

        A lock of the operating system: it ends with its holder's process. Names that differ only
        by case or Unicode form share one lock. ``LockTimeoutError`` names lock file and holder.
        """
        from filelock import Timeout  # 40 ms, and a recall needs no lock

        path = self._lock_path(name)
        wait_ms = self._lock_timeout_ms if timeout_ms is None else timeout_ms
        lock = self._lock_object(path)
        with errors_named("lock", path):
            self._writer.at("lock", path)
            try:
                lock.acquire(timeout=wait_ms / 1000, poll_interval=LOCK_POLL_MS / 1000)
            except Timeout:
                holder = _holder(path)
                message = f"lock {path} was not free in {wait_ms} ms: held by {holder or 'unknown'}"
                raise LockTimeoutError(message, path=path, holder=holder) from None
        try:
            if lock.lock_counter == 1:
                with errors_named("lock", path):
                    _write_holder(path)
            yield
        finally:
            lock.release()

    def _lock_path(self, name: str) -> str:
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        readable = re.sub(r"[^\w.-]", "+", folded)[:40].strip(".")
        mark = sha256_hex(folded.encode("utf-8", "replace"))[:16]
        # Always below the root: two processes with different state folders share the files.
        folder = self._private_folder(self._own_state, ["locks"])
        path = os.path.join(folder, f"{readable}.{mark}.lock")
        _refuse_link(path, path)
        return path

    def _lock_object(self, path: str) -> BaseFileLock:
        from filelock import FileLock

        with self._locks_guard:
            if path not in self._locks:
                self._locks[path] = FileLock(path, mode=0o600)
            return self._locks[path]

    # Internal state

    def read_state(self, name: str) -> bytes | None:
        """Bytes of the state file ``name``, None if it is not there."""
        path = os.path.join(self.state, *_parts(name))
        with errors_named("read", path):
            self._refuse_state_links(_parts(name))
            self._writer.at("read", path)
            found = read(path, path)
        return found.data if found else None

    def write_state(self, name: str, data: bytes) -> None:
        """Put ``data`` into the state file ``name`` (mode 0600), in one step; the last one wins."""
        path = self.state_path(name)
        with errors_named("write", path):
            _refuse_link(path, path)
            self._writer.overwrite(path, data, mode=0o600)

    def state_path(self, name: str) -> str:
        """Absolute path of ``name`` below the state folder; its folders are made, mode 0700."""
        parts = _parts(name)
        folder = self._private_folder(self.state, parts[:-1])
        return os.path.join(folder, *parts[-1:])

    def _private_folder(self, base: str, folders: list[str]) -> str:
        with errors_named("make", base):
            if base != self._own_state:
                os.makedirs(base, mode=0o700, exist_ok=True)
            for count in range(len(folders) + 1):
                folder = os.path.join(base, *folders[:count])
                _refuse_link(folder, folder)
                if not os.path.isdir(folder):
                    self._writer.at("make-folder", folder)
                    with suppress(FileExistsError):  # another process was faster
                        os.mkdir(folder, 0o700)
            return os.path.join(base, *folders)

    def _refuse_state_links(self, parts: list[str]) -> None:
        for count in range(len(parts) + 1):
            path = os.path.join(self.state, *parts[:count])
            _refuse_link(path, path)


def _existing_folder(text: str) -> str:
    """Absolute real path of an existing, readable folder; ``RootError`` otherwise."""
    if not text:
        raise RootError("memory folder: empty path", hint="name a folder", path=text)
    try:
        path = os.path.realpath(text)
        with os.scandir(path):
            os.stat(os.path.join(path, "."))  # a folder without x can be listed but not entered
    except (OSError, ValueError) as error:
        raise _root_error(text, error) from error
    return path


def _root_error(text: str, error: OSError | ValueError) -> RootError:
    shown = os.path.abspath(text) if "\0" not in text else repr(text)
    missing = isinstance(error, FileNotFoundError)
    hint = "h2ams init makes it" if missing else "check the path, its mount and its permissions"
    return RootError(f"memory folder {shown}: {reason(error)}", hint=hint, path=shown)


def _parts(relative: str) -> list[str]:
    """Checked parts of a relative path with ``/`` between them; none for ""."""
    if not _DOUBTFUL.search(relative) and (relative.isascii() or _can_be_named(relative)):
        return relative.split("/")
    if relative == "":
        return []
    if "\0" in relative:
        raise _unsafe(relative, "holds a NUL")
    if "\\" in relative:
        raise _unsafe(relative, "holds a backslash, a separator on other systems")
    if relative[0] == "/":
        raise _unsafe(relative, "is absolute")
    if re.match(r"[A-Za-z]:(?:/|$)", relative) or os.path.splitdrive(relative)[0]:
        raise _unsafe(relative, "names a drive")
    if not _can_be_named(relative):
        raise _unsafe(relative, "is no text that a file name can hold")
    parts = relative.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise _unsafe(relative, f"holds the part {part!r}")
    return parts


def _can_be_named(relative: str) -> bool:
    try:
        os.fsencode(relative)
    except UnicodeEncodeError:
        return False
    return True


def _unsafe(shown: str, why: str) -> UnsafePathError:
    return UnsafePathError(
        f"path {shown!a} {why}",
        path=shown,
        hint="paths are relative to the memory folder and stay inside it",
    )


def _refuse_link(path: str, shown: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if _is_link(status):
        raise _unsafe(shown, "is a link; the engine follows none among its own files")


def _is_link(status: os.stat_result) -> bool:
    attributes: int = getattr(status, "st_file_attributes", 0)
    return stat.S_ISLNK(status.st_mode) or bool(attributes & _REPARSE_POINT)


def _write_holder(path: str) -> None:
    """Say in the lock file who holds it. From byte 1 on: Windows locks byte 0 against everybody."""
    import platform

    descriptor = os.open(path, os.O_WRONLY | NOFOLLOW)
    with open(descriptor, "wb", buffering=0) as file:
        file.truncate(1)
        file.seek(1)
        file.write(f"pid {os.getpid()} on {platform.node()}\n".encode())


def _holder(path: str) -> str | None:
    """What the lock file says, in one short line; None where it says nothing."""
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(1)
            text = (file.read(200) or b"").decode("utf-8", "replace")
    except OSError:
        return None  # only for the message of an error that is raised anyhow
    return " ".join(text.replace("\0", " ").split()) or None
