"""Keeping other programs from writing into a file for the moment in which it is replaced (Linux).

An editor that saves in place truncates the file and writes it anew. A replacement in between would
take away what it writes next. A *read lease* closes that gap: it cannot be had while anybody has
the file open for writing, and while it is held, whoever opens the file for writing waits. Where
somebody began to wait, the lease says so (``broken``), and the replacement is taken back before the
lease ends. Where there are no leases (other systems, some file systems, somebody else's file) the
comparison of the bytes right before the replacement is all there is.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from h2ams.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # the one platform without it

WAIT_MS = 5_000  # for a program that has the file open for writing
_POLL_MS = 2
_SET, _GET, _SET_SIGNAL = "F_SETLEASE", "F_GETLEASE", "F_SETSIG"
_SUPPORTED = fcntl is not None and all(hasattr(fcntl, name) for name in (_SET, _GET, _SET_SIGNAL))


class Lease:
    """A lease that is held; or, without a descriptor, none that can be had here."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor

    def broken(self) -> bool:
        """Whether somebody waits to write to the file since the lease was taken."""
        if self._descriptor is None:
            return False
        held = fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE)
        return held != fcntl.F_RDLCK


@contextmanager
def leased(path: str, shown: str, *, wait_ms: int = WAIT_MS) -> Iterator[Lease]:
    """Hold a lease on the regular file at ``path``; wait while somebody writes to it.

    ``StoreError`` where it is still open for writing after ``wait_ms``.
    """
    if not _SUPPORTED:
        yield Lease()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # whoever uses the path finds out and says so
        yield Lease()
        return
    try:
        yield Lease(descriptor if _take(descriptor, shown, wait_ms) else None)
    finally:
        os.close(descriptor)  # ends the lease


def _take(descriptor: int, shown: str, wait_ms: int) -> bool:
    deadline = time.monotonic() + wait_ms / 1000
    # The kernel's own choice, SIGIO, would end a process that does not expect it.
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
    while True:
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                return False
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{shown} is open for writing in another program; nothing was written",
                    path=shown,
                    hint="close it there and try again",
                ) from None
            time.sleep(_POLL_MS / 1000)
        else:
            return True
