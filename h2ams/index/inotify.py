"""Events of a tree of folders on Linux, from inotify itself (reads, never writes).

watchdog keeps quiet about sub-folders that it could not watch and, in the versions before 7, about
lost events; it holds every event back for half a second after a folder was moved away; and only
the owner of the descriptor can ask whether anything has happened *until now* (``drain``), which is
what makes a recall's freshness check free: the kernel queues an event before the writing call
returns. Only folders that a scan enters are watched: neither ``.h2ams`` nor ``.git`` makes noise.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import select
import struct
import threading
from collections.abc import Callable, Iterator

from h2ams.index.observers import JOIN_S, Links, Listener, Loss, folders, is_limit, limit_message
from h2ams.index.watch_plan import Entry

COALESCE_MS = 10  # the kernel merges equal events that wait this long
_READ_BYTES = 64 * 1024  # thousands of events; the longest single one has under 300 bytes

# File systems where another machine (or the host of this one) changes files without an event here.
REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "ceph", "lustre", "gpfs",
     "glusterfs", "virtiofs", "vboxsf", "prl_fs", "vmhgfs", "drvfs", "fakeowner", "grpcfuse",
     "fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.glusterfs", "fuse.vmhgfs-fuse",
     "fuse.grpcfuse", "fuse.osxfs", "osxfs"}
)  # fmt: skip

_IN_MODIFY = 0x2
_IN_ATTRIB = 0x4
_IN_MOVED_FROM = 0x40
_IN_MOVED_TO = 0x80
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_IN_DELETE_SELF = 0x400
_IN_MOVE_SELF = 0x800
_IN_UNMOUNT = 0x2000
_IN_Q_OVERFLOW = 0x4000
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_IN_EXCL_UNLINK = 0x4000000
_IN_ISDIR = 0x40000000
# Neither open nor close nor access: reading the files makes no event.
_MASK = (
    _IN_MODIFY | _IN_ATTRIB | _IN_MOVED_FROM | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE
    | _IN_ONLYDIR | _IN_EXCL_UNLINK
)  # fmt: skip
_ROOT_MASK = _MASK | _IN_DELETE_SELF | _IN_MOVE_SELF
_ROOT_GONE = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_IGNORED
_HEADER = struct.Struct("iIII")  # watch, mask, cookie, bytes of the name

AddWatch = Callable[[int, bytes, int], int]


class InotifyObserver:
    """One inotify descriptor over a tree of folders.

    ``add_watch`` stands in for ``watch_folder``.
    """

    def __init__(self, path: str, listener: Listener, *, add_watch: AddWatch | None = None) -> None:
        self._base = path
        self._listener = listener
        self._add_watch = add_watch or watch_folder
        self._lock = threading.RLock()
        self._links = Links(path)
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._inner: dict[str, set[str]] = {}  # watched folder -> watched folders directly in it
        self._descriptor = -1
        self._wake: tuple[int, int] = (-1, -1)
        self._thread: threading.Thread | None = None

    @property
    def exact(self) -> bool:
        return not self.linked

    @property
    def linked(self) -> bool:
        return self._links.found

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        kind = remote_type(self._base)
        if kind:
            raise OSError(errno.ENOTSUP, f"{kind} tells nothing of changes made elsewhere")
        with self._lock:
            self._descriptor = _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
            self._wake = os.pipe()
            self._watch_tree("")
        if "" not in self._numbers:
            raise OSError(errno.ENOENT, "the folder is gone", self._base)
        self._thread = threading.Thread(target=self._run, name="h2ams-inotify", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            os.write(self._wake[1], b"x")
            self._thread.join(JOIN_S)
            self._thread = None
        with self._lock:
            for descriptor in (self._descriptor, *self._wake):
                if descriptor >= 0:
                    os.close(descriptor)
            self._descriptor, self._wake = -1, (-1, -1)

    def drain(self) -> None:
        with self._lock:
            while self._descriptor >= 0:
                try:
                    data = os.read(self._descriptor, _READ_BYTES)
                except BlockingIOError:
                    return
                for number, mask, name in _parsed(data):
                    self._handle(number, mask, name)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        poll.register(self._wake[0], select.POLLIN)
        pause = select.poll()
        pause.register(self._wake[0], select.POLLIN)
        while all(descriptor != self._wake[0] for descriptor, _ in poll.poll()):
            self.drain()
            if pause.poll(COALESCE_MS):
                return

    # -- events; all under the lock --------------------------------------------------------------

    def _handle(self, number: int, mask: int, name: str) -> None:
        if mask & _IN_Q_OVERFLOW:
            self._listener.lost(Loss.OVERFLOW, "more events than the kernel keeps")
            return
        folder = self._folders.get(number)
        if folder is None:
            return  # of a watch that was given up: its folder was moved away
        if not name:
            self._itself(number, folder, mask)
            return
        path = f"{folder}/{name}" if folder else name
        arrived = mask & (_IN_CREATE | _IN_MOVED_TO)
        if not mask & _IN_ISDIR:
            if arrived and os.path.islink(f"{self._base}/{path}"):
                self._links.look(path)
                self._listener.changed(path, Entry.EITHER)
            else:
                self._listener.changed(path, Entry.FILE)
            return
        if mask & (_IN_MOVED_FROM | _IN_DELETE):
            self._forget_tree(path)
        elif arrived or path not in self._numbers:  # or it became readable
            self._watch_later(path)
        self._listener.changed(path, Entry.FOLDER)

    def _itself(self, number: int, folder: str, mask: int) -> None:
        """An event of a watched folder itself."""
        if not folder and mask & _ROOT_GONE:
            self._listener.lost(Loss.ROOT, "the memory folder was moved, removed or unmounted")
        elif mask & _IN_IGNORED:
            self._forget(number)
        elif mask & _IN_UNMOUNT:
            self._forget(number)
            self._watch_later(folder)
            self._listener.changed(folder, Entry.FOLDER)
        else:
            self._listener.changed(folder, Entry.FOLDER)

    def _watch_later(self, folder: str) -> None:
        """Watch a folder that came after the start."""
        try:
            self._watch_tree(folder)
        except OSError as error:
            self._listener.lost(Loss.LIMIT, limit_message(error))

    def _watch_tree(self, top: str) -> None:
        for folder in folders(self._base, top, self._links):
            self._watch(folder)

    def _watch(self, folder: str) -> None:
        path = f"{self._base}/{folder}" if folder else self._base
        try:
            number = self._add_watch(
                self._descriptor, os.fsencode(path), _MASK if folder else _ROOT_MASK
            )
        except OSError as error:
            if is_limit(error) or not folder:
                raise
            return  # gone again or not readable: the sync of this folder says so
        old = self._folders.get(number)
        if old is not None and old != folder:
            self._unlink(number, old)  # it was moved, and the event of that is still to come
        self._folders[number] = folder
        self._numbers[folder] = number
        if folder:
            self._inner.setdefault(folder.rpartition("/")[0], set()).add(folder)

    def _forget_tree(self, top: str) -> None:
        """A folder went away with all that is in it: it may go on living elsewhere."""
        stack = [top]
        while stack:
            folder = stack.pop()
            stack.extend(self._inner.get(folder, ()))
            number = self._numbers.get(folder)
            if number is not None:
                _libc().inotify_rm_watch(self._descriptor, number)  # EINVAL: it is gone already
                self._forget(number)

    def _forget(self, number: int) -> None:
        self._unlink(number, self._folders.pop(number))

    def _unlink(self, number: int, folder: str) -> None:
        if self._numbers.get(folder) == number:
            del self._numbers[folder]
            self._inner.pop(folder, None)
            self._inner.get(folder.rpartition("/")[0], set()).discard(folder)


def _parsed(data: bytes) -> Iterator[tuple[int, int, str]]:
    """(watch, mask, name) of each event in ``data``."""
    at = 0
    while at + _HEADER.size <= len(data):
        number, mask, _, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        yield number, mask, os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def watch_folder(descriptor: int, path: bytes, mask: int) -> int:
    """The number of the watch on ``path``; ``OSError`` says why there is none."""
    return _checked(_libc().inotify_add_watch(descriptor, path, ctypes.c_uint32(mask)))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def remote_type(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Type of the file system of ``path`` if other machines change it unseen, else ``""``."""
    try:
        device = os.stat(path).st_dev
        with open(mounts, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return ""  # no /proc: nothing is known against it
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in lines:
        head, _, tail = line.partition(" - ")
        if wanted in head.split()[2:3] and tail:
            kind = tail.split()[0]
            return kind if kind in REMOTE else ""
    return ""
