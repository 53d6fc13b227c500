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
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from h2ams.atomic import (
    NOFOLLOW,
    Changed,
    FaultHook,
    FileState,
    Writer,
    errors_named,
    is_leftover,
    read,
    reason,
    sha256_hex,
    store_error,
)
from h2ams.errors import LockTimeoutError, RootError
from h2ams.lease import leased
from h2ams.paths import (
    checked_parts,
    existing_folder,
    is_link,
    refuse_link,
    refuse_no_file,
    root_error,
    unsafe,
)

if TYPE_CHECKING:
    from filelock import BaseFileLock

__all__ = ["STATE_FOLDER", "Changed", "FaultHook", "FileState", "Root"]

STATE_FOLDER = ".h2ams"
LOCK_POLL_MS = 10
SAVE_WINDOW_S = 2.0  # a backup that is older says nothing about what happens now
SAVE_WAIT_S = 0.5  # for an editor between its backup and its new file


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
        self.path = existing_folder(os.fspath(path))
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
            raise root_error(text, error) from error
        return cls(path, state=state, lock_timeout_ms=lock_timeout_ms, hook=hook)

    @cached_property
    def folds_case(self) -> bool:
        """Whether names that differ by case alone (or by Unicode form) mean one file here."""
        for path in (self._own_state, self.path):
            folder, name = os.path.split(path)
            other = os.path.join(folder, name.swapcase())
            if name.swapcase() != name and os.path.exists(path):
                return os.path.exists(other) and os.path.samefile(path, other)
        return False

    @property
    def writer(self) -> Writer:
        """The writing steps themselves, with the fault hook: for ``trees``."""
        return self._writer

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
            return self._resolve(checked_parts(relative))
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
            if is_link(status):
                inside = self._target(current, "/".join(parts[: index + 1]))
                return self._resolve([*inside, *parts[index + 1 :]])
        return current

    def _target(self, link: str, shown: str) -> list[str]:
        """Parts below the root of where ``link`` ends; the end holds no further link."""
        try:
            real = os.path.realpath(link, strict=True)
        except (FileNotFoundError, NotADirectoryError):
            raise unsafe(shown, "is a link that leads nowhere") from None
        except OSError as error:
            raise unsafe(shown, f"is a link that cannot be followed: {reason(error)}") from error
        if real != self.path and not real.startswith(self.path.rstrip(os.sep) + os.sep):
            raise unsafe(shown, "is a link that leads out of the memory folder")
        parts = [part for part in os.path.relpath(real, self.path).split(os.sep) if part != "."]
        if parts[:1] == [STATE_FOLDER]:
            raise unsafe(shown, "is a link into the engine's own folder")
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
                _wait_for_save(path)
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
            link = os.path.join(self.path, *checked_parts(relative))
            if link != path and os.path.islink(link):
                self._writer.at("unlink", link)
                os.unlink(link)

    def remove_empty_folder(self, folder: str) -> bool:
        """Remove ``folder`` (relative, not the root) if nothing is in it; whether it is gone."""
        parts = checked_parts(folder.replace(os.sep, "/"))
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

    def leftovers(self, folder: str) -> list[str]:
        """Relative paths of what writers left in ``folder``; of living ones too, without its lock.

        ``folders_with_leftovers`` names the folders in which it is worth to ask.
        """
        path = self.absolute(folder)
        with errors_named("look into", folder):
            names = sorted(filter(is_leftover, os.listdir(path)))
        return [f"{folder}/{name}" if folder else name for name in names]

    def folders_with_leftovers(self) -> list[str]:
        """Relative paths of all folders that hold a writer's temporary file at this moment."""
        found = []
        for folder, folders, names in os.walk(self.path):
            folders[:] = [each for each in folders if not each.startswith(".")]
            if any(map(is_leftover, names)):
                relative = os.path.relpath(folder, self.path).replace(os.sep, "/")
                found.append("" if relative == "." else relative)
        return sorted(found)

    def _require_root(self) -> None:
        """Nothing is missing *in* a folder that is gone: an unmounted root is not an empty one."""
        existing_folder(self.path)

    def is_bare(self) -> bool:
        """Whether nothing but the engine's own folder is left; ``RootError`` for no root."""
        self._require_root()
        with os.scandir(self.path) as entries:
            return all(entry.name == STATE_FOLDER for entry in entries)

    def require_content(self) -> None:
        """``RootError`` where the root is missing or bare: for callers who know of files in it."""
        if self.is_bare():
            raise self.emptied()

    def emptied(self) -> RootError:
        """The error for a root in which nothing is left of what was known."""
        return RootError(
            f"the memory folder {self.path} is empty, but it held files: is the disk mounted?",
            path=self.path,
            hint="nothing was removed; if the folder is meant to be empty, run h2ams rebuild",
        )

    # Locks

    @contextmanager
    def lock(self, name: str, *, timeout_ms: int | None = None) -> Iterator[None]:
        """Hold the lock ``name`` (a scope's text, ``"index"`` …), re-entrant within one thread.

        A lock of the operating system: it ends with its holder's process. Names that differ only
        by case or Unicode form share one lock. ``LockTimeoutError`` names lock file and holder.
        """
        if not os.path.isdir(self.path):
            self._require_root()
        path = self._lock_path(name)
        with self._locked(path, self._lock_timeout_ms if timeout_ms is None else timeout_ms):
            yield

    @contextmanager
    def _locked(self, path: str, wait_ms: int) -> Iterator[None]:
        from filelock import Timeout  # 40 ms, and a recall needs no lock

        lock = self._lock_object(path)
        with errors_named("lock", path):
            self._writer.at("lock", path)
            refuse_no_file(path)
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

    def wait_for_holders(self, prefix: str) -> None:
        """Return when each lock whose name begins with ``prefix`` was free at some moment.

        Names are compared as lock files spell them, cut to 40 characters: a few more may be waited
        for. ``LockTimeoutError`` where one is not free in time.
        """
        folder = self._private_folder(self._own_state, ["locks"])
        start = _readable(_folded(prefix))
        for name in sorted(os.listdir(folder)):
            if name.startswith(start) and name.endswith(".lock"):
                with self._locked(os.path.join(folder, name), self._lock_timeout_ms):
                    pass

    def lock_file(self, name: str) -> str:
        """Absolute path of the file behind the lock ``name``: what a ``LockTimeoutError`` names."""
        return self._lock_path(name)

    def _lock_path(self, name: str) -> str:
        folded = _folded(name)
        readable = _readable(folded)
        mark = sha256_hex(folded.encode("utf-8", "replace"))[:16]
        # Always below the root: two processes with different state folders share the files.
        folder = self._private_folder(self._own_state, ["locks"])
        return os.path.join(folder, f"{readable}.{mark}.lock")

    def _lock_object(self, path: str) -> BaseFileLock:
        from filelock import FileLock

        with self._locks_guard:
            if path not in self._locks:
                self._locks[path] = FileLock(path, mode=0o600)
            return self._locks[path]

    # Internal state

    def read_state(self, name: str) -> bytes | None:
        """Bytes of the state file ``name``, None if it is not there."""
        path = os.path.join(self.state, *checked_parts(name))
        with errors_named("read", path):
            self._refuse_state_links(checked_parts(name))
            self._writer.at("read", path)
            found = read(path, path)
        return found.data if found else None

    def write_state(self, name: str, data: bytes) -> None:
        """Put ``data`` into the state file ``name`` (mode 0600), in one step; the last one wins."""
        path = self.state_path(name)
        with errors_named("write", path):
            refuse_link(path, path)
            self._writer.overwrite(path, data, mode=0o600)

    def remove_state(self, name: str) -> None:
        """Remove the state file ``name`` for good, where it is there."""
        self._remove_state(self.state, name)

    def state_names(self, folder: str) -> list[str]:
        """Names in the state folder ``folder``, sorted; none where it is not there."""
        with errors_named("list", folder):
            return _names(os.path.join(self.state, *checked_parts(folder)))

    def read_own(self, name: str) -> bytes | None:
        """Bytes of ``name`` below ``<root>/.h2ams``, wherever the state folder is."""
        path = os.path.join(self._own_state, *checked_parts(name))
        with errors_named("read", path):
            self._writer.at("read", path)
            found = read(path, path)
        return found.data if found else None

    def write_own(self, name: str, data: bytes) -> None:
        """Put ``data`` into ``name`` below ``<root>/.h2ams``: what all who open the root share."""
        parts = checked_parts(name)
        path = os.path.join(self._private_folder(self._own_state, parts[:-1]), parts[-1])
        with errors_named("write", path):
            refuse_link(path, path)
            self._writer.overwrite(path, data, mode=0o600)

    def remove_own(self, name: str) -> None:
        """Remove ``name`` below ``<root>/.h2ams`` for good, where it is there."""
        self._remove_state(self._own_state, name)

    def own_names(self, folder: str) -> list[str]:
        """Names in ``folder`` below ``<root>/.h2ams``; none where it is not there."""
        with errors_named("list", folder):
            return _names(os.path.join(self._own_state, *checked_parts(folder)))

    def _remove_state(self, base: str, name: str) -> None:
        path = os.path.join(base, *checked_parts(name))
        with errors_named("remove", path):
            self._writer.at("unlink", path)
            with suppress(FileNotFoundError):
                os.unlink(path)
                self._writer.sync_folder(os.path.dirname(path))

    def state_path(self, name: str) -> str:
        """Absolute path of ``name`` below the state folder; its folders are made, mode 0700."""
        parts = checked_parts(name)
        folder = self._private_folder(self.state, parts[:-1])
        return os.path.join(folder, *parts[-1:])

    def open_state(self) -> list[str]:
        """Absolute paths among the engine's own that others than the owner may read.

        Below ``.h2ams`` everything is closed with the folder; a folder chosen by the user is theirs
        to close, only the index in it is ours.
        """
        if os.name == "nt" or not os.path.isdir(self.state):
            return []
        paths = [self.state]
        if self.state != self._own_state:
            names = sorted(os.listdir(self.state))
            paths = [
                os.path.join(self.state, each) for each in names if each.startswith("index.db")
            ]
        return [path for path in paths if stat.S_IMODE(os.lstat(path).st_mode) & 0o077]

    def close_state(self, path: str) -> None:
        """Take the rights of all others than the owner from a path of ``open_state``."""
        with errors_named("close", path):
            refuse_link(path, path)
            self._writer.at("chmod", path)
            os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) & 0o700)

    def _private_folder(self, base: str, folders: list[str]) -> str:
        with errors_named("make", base):
            if base != self._own_state:
                os.makedirs(base, mode=0o700, exist_ok=True)
            for count in range(len(folders) + 1):
                folder = os.path.join(base, *folders[:count])
                refuse_link(folder, folder)
                if not os.path.isdir(folder):
                    self._writer.at("make-folder", folder)
                    with suppress(FileExistsError):  # another process was faster
                        os.mkdir(folder, 0o700)
            return os.path.join(base, *folders)

    def _refuse_state_links(self, parts: list[str]) -> None:
        for count in range(len(parts) + 1):
            path = os.path.join(self.state, *parts[:count])
            refuse_link(path, path)


def _wait_for_save(path: str) -> None:
    """Wait while an editor has moved the file to its backup name and not written the new one yet.

    That it did so just now shows in the backup's ctime; a file that was deleted has none.
    """
    if os.path.lexists(path):
        return
    try:
        age_s = time.time() - os.stat(f"{path}~").st_ctime
    except OSError:
        return
    deadline = time.monotonic() + SAVE_WAIT_S
    while abs(age_s) < SAVE_WINDOW_S and time.monotonic() < deadline:
        if os.path.lexists(path):
            return
        time.sleep(LOCK_POLL_MS / 1000)


def _folded(name: str) -> str:
    """A lock's name in one case and form."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _readable(folded: str) -> str:
    """The part of a lock file's name that a person can read."""
    return re.sub(r"[^\w.-]", "+", folded)[:40].strip(".")


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


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
