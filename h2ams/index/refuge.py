"""Where an index lives that cannot be kept: a folder that goes with its process (Derived).

In the machine's memory where there is such a folder (the disk may be what is full), else among the
platform's temporary files. Whoever uses one holds a lock in it, so that the next one can tell what
killed processes left, and clear it: the text of a memory must not stay behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows: leftovers stay with the user's temporary files
    fcntl = None  # type: ignore[assignment]  # the one platform without it

MEMORY_FOLDER = "/dev/shm"  # Linux: files that are on no disk
_LOCKS = fcntl is not None
PREFIX = "h2ams-index-"
LOCK_FILE = "in-use"


class Refuge:
    """One folder of this process's own, mode 0700; ``leave`` removes it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._lock = os.open(os.path.join(folder, LOCK_FILE), os.O_CREAT | os.O_RDWR, 0o600)
        if _LOCKS:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def leave(self) -> None:
        if self._pid != os.getpid():
            return  # a forked child: the folder is its parent's
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            os.close(self._lock)


def refuges() -> Iterator[Refuge]:
    """Folders to try in turn; what killed processes left there is cleared first."""
    for place in (MEMORY_FOLDER, tempfile.gettempdir()):
        if not os.path.isdir(place):
            continue
        with suppress(OSError):  # it cannot be written either: the next one may do
            clear_leftovers(place)
            yield Refuge(tempfile.mkdtemp(prefix=PREFIX, dir=place))


def clear_leftovers(place: str) -> int:
    """Remove the folders in ``place`` that no living process uses; how many there were."""
    count = 0
    for name in os.listdir(place):
        folder = os.path.join(place, name)
        if name.startswith(PREFIX) and _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)
            count += 1
    return count


def _is_left(folder: str) -> bool:
    """Whether the folder is ours and its lock is free; not one that is being made right now."""
    if not _LOCKS:
        return False
    try:
        if os.lstat(folder).st_uid != os.geteuid():
            return False
        lock = os.open(os.path.join(folder, LOCK_FILE), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False  # its process lives
    finally:
        os.close(lock)
    return True
