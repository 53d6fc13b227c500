"""Reading one file and replacing it in one step (Truth; serves ``files``, which confines paths).

New bytes go to a unique ``.<file>.<random>.tmp`` beside the target, are synced, and are published
in one step; the folder is synced after it. An editor may save between the last look at the file
and that step, so:

* a new file is linked into place, which fails where one has appeared;
* an existing one is *swapped* with the temporary where the system can (Linux). What was really
  there is then in our hands: if it is not what the caller read, it is swapped back, and ``Changed``
  tells the caller to start again from the new bytes. Elsewhere the last look comes directly before
  ``os.replace`` and the window is a few microseconds;
* a file to be removed is first renamed, then compared, then removed or given back.

What no scheme can see is a program that opened the old file before that step and writes into it
afterwards. At each moment the target is the old file or the new one, so a crash leaves one of them.
A leftover ``.tmp`` holds bytes that nobody published. A leftover ``.swap`` may hold a person's:
its name carries the digests of the two versions that the engine knew, and with any other content
it becomes a visible conflict copy instead of being removed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache

from h2ams.errors import ConflictError, StoreError
from h2ams.lease import Lease, leased

FaultHook = Callable[[str, str], None]  # (operation, path), called before each file operation

_TEMP = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_SWAP = re.compile(r"\.(.+)\.([0-9a-f]{16})\.([0-9a-f]{16})\.([0-9a-f]{16})\.swap")
_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))
_NO_SWAP = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV))
_NO_FOLDER_SYNC = frozenset((errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF))
_NAME_BYTES = 160  # of the file's own name in ours: a name may have 255 bytes, our marks take 60
_HINTS = {
    errno.EACCES: "check the permissions of the file and its folders",
    errno.EPERM: "check the permissions of the file and its folders",
    errno.EROFS: "the disk is mounted read-only",
    errno.ENOSPC: "free some space on the disk",
    errno.ENAMETOOLONG: "use shorter names",
}
NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)

Swap = Callable[[str, str], int]  # exchanges what two names mean in one step; 0 or an errno


class Changed(ConflictError):
    """The file is no longer the one that was read: read it again and apply the change anew."""


def sha256_hex(data: bytes) -> str:
    """SHA-256 of ``data`` in hexadecimal."""
    import hashlib  # late: OpenSSL is a good part of a cold start that needs no digest

    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, slots=True)
class FileState:
    """One version of a file: its bytes, and the stat values by which a scan knows it again."""

    data: bytes = field(repr=False)
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    mode: int  # permission bits

    @property
    def sha256(self) -> str:
        """Digest of ``data`` in hex."""
        return sha256_hex(self.data)


class Writer:
    """The writing steps on absolute paths; ``shown`` is how an error names the file.

    ``hook`` is called with (operation, path) before each operation; tests fail or kill there.
    """

    def __init__(self, hook: FaultHook | None = None) -> None:
        self._hook = hook

    def at(self, operation: str, path: str) -> None:
        """Announce the operation that comes next."""
        if self._hook is not None:
            self._hook(operation, path)

    def replace(self, path: str, shown: str, data: bytes, expect: FileState | None) -> FileState:
        """Put ``data`` where ``expect`` is (None: no file) or raise ``Changed``.

        Owner and permission bits of an existing file survive.
        """
        temp = self._write_temp(path, data, shown=shown, like=expect is not None)
        try:
            written = os.lstat(temp)
            if expect is None:
                self._publish_new(temp, path, shown)
            else:
                self._publish_over(temp, path, shown, data, expect)
        except BaseException:
            with suppress(FileNotFoundError):  # it was published, or is a .swap now
                os.unlink(temp)
            raise
        self.sync_folder(os.path.dirname(path))
        return _published(path, data, written)

    def overwrite(self, path: str, data: bytes, *, mode: int) -> None:
        """Put ``data`` at ``path`` whatever is there: for the engine's own state."""
        temp = self._write_temp(path, data, shown=path, like=False, mode=mode)
        try:
            self.at("replace", path)
            os.replace(temp, path)
        except BaseException:
            os.unlink(temp)
            raise
        self.sync_folder(os.path.dirname(path))

    def remove(self, path: str, shown: str, expect: FileState) -> None:
        """Remove the file that is ``expect`` or raise ``Changed`` and leave what is there."""
        with leased(path, shown) as lease:
            self._check(path, shown, expect)
            aside = _swap_name(path, expect.data, expect.data)
            self.at("rename", path)
            os.rename(path, aside)
            if content(aside) != expect.data or lease.broken():
                self._give_back(aside, path)
                raise _changed(shown, expect, None)
            self.at("unlink", aside)
            os.unlink(aside)
        self.sync_folder(os.path.dirname(path))

    def sweep(self, folder: str) -> int:
        """Clear the leftovers of dead writers; the count of them. See ``Root.sweep_temps``."""
        count = 0
        try:
            names = sorted(os.listdir(folder))
        except FileNotFoundError:
            return 0
        for name in names:
            leftover = os.path.join(folder, name)
            if not is_leftover(name) or not stat.S_ISREG(os.lstat(leftover).st_mode):
                continue
            count += 1
            swap = _SWAP.fullmatch(name)
            if swap and _digest(content(leftover) or b"") not in swap.groups()[2:]:
                self._keep_visibly(leftover)
                continue
            self.at("unlink", leftover)
            os.unlink(leftover)
        return count

    def make_folders(self, folder: str, base: str) -> None:
        """Make ``folder``, below the existing ``base``, part by part, each one durable."""
        missing = []
        while folder != base and not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for each in reversed(missing):
            self.at("make-folder", each)
            with suppress(FileExistsError):  # another writer was faster; no link is accepted
                os.mkdir(each)
            if not stat.S_ISDIR(os.lstat(each).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each)
            self.sync_folder(os.path.dirname(each))

    def sync_folder(self, folder: str) -> None:
        """Make the names in ``folder`` durable."""
        if os.name == "nt":
            return  # folders cannot be opened there; NTFS journals its names
        self.at("fsync-folder", folder)
        descriptor = os.open(folder, os.O_RDONLY | NOFOLLOW)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:  # some network file systems cannot
                raise
        finally:
            os.close(descriptor)

    def _write_temp(
        self, path: str, data: bytes, *, shown: str, like: bool, mode: int = 0o666
    ) -> str:
        """A synced temporary beside ``path``; ``like``: owner and mode of what is there."""
        folder, name = os.path.split(path)
        temp = os.path.join(folder, f".{_shortened(name)}.{os.urandom(8).hex()}.tmp")
        self.at("open-temp", temp)
        create = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW
        descriptor = os.open(temp, create, 0o600 if like else mode)
        try:
            with open(descriptor, "wb", buffering=0) as file:
                self.at("write", temp)
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                if like:
                    self.at("chmod", temp)
                    _copy_owner_and_mode(path, descriptor, shown)
                self.at("fsync", temp)
                os.fsync(descriptor)
        except BaseException:
            os.unlink(temp)
            raise
        return temp

    def _check(self, path: str, shown: str, expect: FileState | None) -> None:
        self.at("check", path)
        now = read(path, shown)
        if (now.data if now else None) != (expect.data if expect else None):
            raise _changed(shown, expect, now)

    def _publish_new(self, temp: str, path: str, shown: str) -> None:
        self._check(path, shown, None)
        try:
            self.at("link", path)
            os.link(temp, path)
        except FileExistsError:
            raise _changed(shown, None, read(path, shown)) from None
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._check(path, shown, None)
            self.at("replace", path)
            os.replace(temp, path)
        else:
            self.at("unlink", temp)
            os.unlink(temp)

    def _publish_over(
        self, temp: str, path: str, shown: str, data: bytes, expect: FileState
    ) -> None:
        swap = swapper()
        with leased(path, shown) as lease:
            self._check(path, shown, expect)
            if swap is not None and self._swap_over(temp, path, shown, data, expect, swap, lease):
                return
            self._check(path, shown, expect)
            if lease.broken():
                raise _changed(shown, expect, None)
            self.at("replace", path)
            os.replace(temp, path)

    def _swap_over(
        self,
        temp: str,
        path: str,
        shown: str,
        data: bytes,
        expect: FileState,
        swap: Swap,
        lease: Lease,
    ) -> bool:
        """Publish by swapping; False where this file system cannot, and ``temp`` is as before.

        The temporary has a ``.swap`` name from here on, and whatever interrupts us leaves it: only
        its content tells then on which side of the swap we were.
        """
        aside = _swap_name(path, data, expect.data)
        self.at("rename", temp)
        os.rename(temp, aside)
        self.at("swap", path)
        failed = swap(aside, path)
        if failed:
            os.rename(aside, temp)
            if failed in _NO_SWAP:
                return False
            if failed == errno.ENOENT:
                raise _changed(shown, expect, None)
            raise OSError(failed, os.strerror(failed), path)
        self.at("verify", aside)
        if content(aside) != expect.data or lease.broken():
            self._swap_back(aside, path, data, swap)
            raise _changed(shown, expect, None)
        self.at("unlink", aside)
        os.unlink(aside)
        return True

    def _swap_back(self, aside: str, path: str, data: bytes, swap: Swap) -> None:
        """Put back what somebody saved between our last look and the swap."""
        self.at("put-back", path)
        if swap(aside, path) != 0:  # and removed again
            self._give_back(aside, path)
        elif content(aside) == data:
            self.at("unlink", aside)
            os.unlink(aside)
        else:
            # A second save fell between the two swaps: the newer one stays, the older is kept.
            self.at("put-back", path)
            swap(aside, path)
            self._keep_visibly(aside)

    def _give_back(self, aside: str, path: str) -> None:
        """Return a file that was set aside to ``path``, or beside it where one is there again."""
        try:
            self.at("link", path)
            os.link(aside, path)
        except FileExistsError:
            self._keep_visibly(aside)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self.at("rename", aside)
            os.rename(aside, path)
        else:
            self.at("unlink", aside)
            os.unlink(aside)

    def _keep_visibly(self, aside: str) -> None:
        """Rename a ``.swap`` to what ``layout`` knows as a conflict copy."""
        folder, name = os.path.split(aside)
        match = _SWAP.fullmatch(name)
        assert match is not None, name
        stem, extension = os.path.splitext(match[1])
        self.at("rename", aside)
        os.rename(aside, os.path.join(folder, f"{stem} (conflicted copy {match[2]}){extension}"))


def is_leftover(name: str) -> bool:
    """Whether a file of this name is a writer's, alive or dead."""
    return bool(_TEMP.fullmatch(name) or _SWAP.fullmatch(name))


def read(path: str, shown: str) -> FileState | None:
    """The regular file at ``path``, which holds no link; None where there is none.

    Its stat precedes its bytes: if it grows meanwhile, the next scan sees a difference.
    """
    try:
        # Not blocking: opening a pipe that nobody writes to would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | NOFOLLOW | getattr(os, "O_NONBLOCK", 0))
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{shown} is not a regular file", path=shown)
        pieces = []
        while piece := os.read(descriptor, status.st_size + 1):
            pieces.append(piece)
    finally:
        os.close(descriptor)
    return _state(b"".join(pieces), status)


def content(path: str) -> bytes | None:
    """Bytes of a regular file; None for anything else, links included."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    found = read(path, path)
    return found.data if found else None


def _state(data: bytes, status: os.stat_result) -> FileState:
    return FileState(
        data=data,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        inode=status.st_ino,
        mode=stat.S_IMODE(status.st_mode),
    )


def _published(path: str, data: bytes, written: os.stat_result) -> FileState:
    """The state of what was published.

    Publishing changes the ctime, so the file is looked at again, but only believed while it is
    still ours: else a scan must see a difference and read it.
    """
    try:
        now = os.lstat(path)
    except FileNotFoundError:
        return _state(data, written)
    ours = ("st_ino", "st_size", "st_mtime_ns")
    same = all(getattr(now, name) == getattr(written, name) for name in ours)
    return _state(data, now if same else written)


def _copy_owner_and_mode(path: str, descriptor: int, shown: str) -> None:
    try:
        wanted = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        raise _changed(shown, None, None) from None
    if os.name == "nt":
        return
    have = os.fstat(descriptor)
    if (have.st_uid, have.st_gid) != (wanted.st_uid, wanted.st_gid):
        with suppress(PermissionError):  # only root may give a file away; the mode is kept anyhow
            os.fchown(descriptor, wanted.st_uid, wanted.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(wanted.st_mode))


def _changed(shown: str, expect: FileState | None, now: FileState | None) -> Changed:
    return Changed(
        f"{shown} changed meanwhile",
        path=shown,
        hint="read it again and repeat the change",
        expected=expect.sha256 if expect else None,
        actual=now.sha256 if now else None,
    )


def _digest(data: bytes) -> str:
    return sha256_hex(data)[:16]


def _swap_name(path: str, new: bytes, old: bytes) -> str:
    folder, name = os.path.split(path)
    marks = f"{os.urandom(8).hex()}.{_digest(new)}.{_digest(old)}"
    return os.path.join(folder, f".{_shortened(name)}.{marks}.swap")


def _shortened(name: str) -> str:
    """The end of ``name``, so that with our marks around it it stays below 255 bytes."""
    while len(os.fsencode(name)) > _NAME_BYTES:
        name = name[1:]
    return name


@cache
def swapper() -> Swap | None:
    """A function that exchanges two names in one step, where the system has one."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes  # only writers need it

    library = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(library, "renameat2", None)
    if renameat2 is None:
        return None
    renameat2.argtypes = [
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    ]
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE

    def swap(first: str, second: str) -> int:
        done = renameat2(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0
        return 0 if done else ctypes.get_errno()

    return swap


@contextmanager
def errors_named(verb: str, shown: str) -> Iterator[None]:
    """Turn an ``OSError`` into a ``StoreError`` that names path and reason."""
    try:
        yield
    except OSError as error:
        raise store_error(verb, shown, error) from error


def store_error(verb: str, shown: str, error: OSError) -> StoreError:
    """``cannot read user/memory.md: Permission denied (EACCES)``."""
    hint = _HINTS.get(error.errno or 0, "look at the path; nothing else was touched")
    message = f"cannot {verb} {shown or 'the memory folder'}: {reason(error)}"
    return StoreError(message, path=shown, hint=hint)


def reason(error: OSError | ValueError) -> str:
    """``Permission denied (EACCES)``."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return f"{os.strerror(error.errno)} ({errno.errorcode.get(error.errno, error.errno)})"
