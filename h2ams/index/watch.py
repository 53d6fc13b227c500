"""Syncing on every change for as long as a host wants (Derived).

Events say *when* to look (``observers``), ``watch_plan`` says *at what*; what has changed is found
by the sync's own stat scan, which is the truth. So nothing depends on an event being right: lost
events, a limit on watches, a root that vanishes all end in a scan of everything. Where there are no
events the scan runs every ``watch_poll_ms``. Whatever fails is tried again; nothing is printed.
"""

from __future__ import annotations

import copy
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from h2ams import sqlite
from h2ams.errors import H2amsError, RootError, StoreError, UnsafePathError
from h2ams.files import Root
from h2ams.index.apply import GRACE_NS, UNREADABLE
from h2ams.index.inotify import InotifyObserver
from h2ams.index.observers import (
    Listener,
    Loss,
    Observer,
    ObserverFactory,
    WatchdogObserver,
    is_limit,
    limit_message,
)
from h2ams.index.sync import Syncer, SyncReport
from h2ams.index.watch_plan import EVERYTHING, Batch, Entry, Work, target_of
from h2ams.settings import Settings

STATE_FILE = "watch.json"
SAFETY_SCAN_MS = 600_000.0  # hard links, mmap, mounts inside the root: changes that make no event
SHORTEST_LOOK_MS = 20.0  # whatever watch_poll_ms says
POLL_SHARE = 4  # a poll that takes long is followed by this many times its own length of rest
PUBLISH_MS = 60_000.0  # how often a trouble that lasts is written down again
PUBLISHED_S = 150.0  # and how long it is believed
AGAIN_MS = GRACE_NS / 1e6 + 100.0

# Codes of ``report`` and ``Watching.troubles``.
LIMIT, NO_EVENTS, OVERFLOW = "watch-limit", "watch-no-events", "watch-overflow"
ROOT, RETRY, OBSERVER = "watch-root", "watch-retry", "watch-observer"
_ROOT_ERRNOS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP})
_FAILURES = (H2amsError, OSError, sqlite.Error)

Trouble = tuple[str, str]  # code, message


def default_observer(path: str, listener: Listener) -> Observer:
    """The best source of events for the absolute folder ``path`` on this platform."""
    return (InotifyObserver if sys.platform == "linux" else WatchdogObserver)(path, listener)


class Watching:
    """What a watch tells the rest of its process. Made by the host and given to ``watch``."""

    def __init__(self) -> None:
        self._ask: Callable[[], bool] | None = None
        self._troubles: dict[str, str] = {}

    def settled(self) -> bool:
        """Whether the index has everything that was written before this call.

        True only while the kernel itself can be asked (Linux, local file system, no links that are
        followed): it queues an event before the writing call returns, and the queue is emptied
        here. Costs some ten microseconds. Not seen are changes that make no event at all: through a
        hard link or a mount elsewhere, or a writable memory map. False means only: compare.
        """
        ask = self._ask
        return ask is not None and ask()

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong with the watch now: (code, message); empty while all is well."""
        return tuple(self._troubles.copy().items())


def watch(
    root: Root,
    syncer: Syncer,
    settings: Settings,
    *,
    stop: threading.Event,
    on_sync: Callable[[SyncReport], None] | None = None,
    report: Callable[[str, str], None] | None = None,
    watching: Watching | None = None,
    observer_factory: ObserverFactory = default_observer,
    now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
) -> None:
    """Sync once, then on every change, until ``stop`` is set; a sync under way is rolled back then.

    ``on_sync`` gets the report of every sync, but of a periodic one only where it found something.
    ``report`` gets (code, message) once for each trouble as it begins: ``watch-limit`` and
    ``watch-no-events`` (polling now), ``watch-overflow``, ``watch-observer`` (started anew),
    ``watch-root`` (nothing is removed; waits for it to come back), ``watch-retry``.
    """
    _Watch(
        root,
        _stoppable(syncer, stop),
        settings,
        stop,
        on_sync or (lambda _: None),
        report or (lambda code, message: None),
        watching or Watching(),
        observer_factory,
        now_ms,
    ).run()


def published_troubles(root: Root, *, now_s: float) -> tuple[Trouble, ...]:
    """What is wrong with a watch in whatever process, as it last wrote down; for ``status``."""
    data = root.read_state(STATE_FILE)
    try:
        value = json.loads(data or b"{}")
        if not -PUBLISHED_S < now_s - float(value.get("at_s", 0)) < PUBLISHED_S:
            return ()
        return tuple((str(code), str(message)) for code, message in value["troubles"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return ()  # not written by this version: nobody is served by an error here


class _Stopped(Exception):
    """``stop`` was set while a sync was writing; its transaction was rolled back."""


def _stoppable(syncer: Syncer, stop: threading.Event) -> Syncer:
    """``syncer`` for this watch alone: it gives up between two segments once ``stop`` is set."""
    count = syncer.count

    def count_or_stop(text: str) -> int:
        if stop.is_set():
            raise _Stopped
        return count(text)

    own = copy.copy(syncer)
    own.count = count_or_stop
    return own


class _Watch:
    """One running watch. Events come from the observer's threads, all else is in ``run``'s."""

    def __init__(
        self,
        root: Root,
        syncer: Syncer,
        settings: Settings,
        stop: threading.Event,
        on_sync: Callable[[SyncReport], None],
        report: Callable[[str, str], None],
        watching: Watching,
        observer_factory: ObserverFactory,
        now_ms: Callable[[], float],
    ) -> None:
        self.root = root
        self.syncer = syncer
        self.stop = stop
        self.on_sync = on_sync
        self.report = report
        self.watching = watching
        self.observer_factory = observer_factory
        self.now_ms = now_ms
        self.look_ms = max(settings.watch_poll_ms, SHORTEST_LOOK_MS)

        self._wake = threading.Condition()  # guards the next four
        self._batch = Batch(settings.watch_debounce_ms)
        self._losses: dict[Loss, str] = {}
        self._syncing = False
        self._complete = False  # everything was synced since the observer was started

        self._observer: Observer | None = None
        self._polling = False
        self._lost = False  # the root cannot be watched now: no sync until it can
        self._identity: tuple[int, int] | None = None  # device and inode of the watched root
        self._index_identity: tuple[int, int] | None = None
        self._next_look_ms = 0.0
        self._next_scan_ms = 0.0
        self._next_publish_ms = 0.0
        self._failed_before: tuple[object, ...] = ()
        self._has_pending = True  # files whose last good rows are kept: unknown before a look

    # -- told by the observer --------------------------------------------------------------------

    def changed(self, path: str, entry: Entry) -> None:
        observer = self._observer
        target = target_of(path, entry, linked=observer is not None and observer.linked)
        if target is None:
            return
        with self._wake:
            first = not self._batch.has_hints
            self._batch = self._batch.noted(target, self.now_ms())
            if first:
                self._wake.notify()

    def lost(self, loss: Loss, reason: str) -> None:
        with self._wake:
            self._losses.setdefault(loss, reason)
            self._wake.notify()

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        self.watching._ask = self._settled
        try:
            with self._waking_on_stop():
                while not self.stop.is_set():
                    self._step()
        except _Stopped:
            return
        finally:
            self.watching._ask = None
            self._close()
            self.watching._troubles.clear()
            self._publish()

    @contextmanager
    def _waking_on_stop(self) -> Iterator[None]:
        """Wake the loop when ``stop`` is set.

        The loop never takes the lock of ``stop`` itself: a signal handler may set it in this very
        thread at any instruction.
        """
        done = threading.Event()

        def wait() -> None:
            while not done.is_set() and not self.stop.wait(0.5):
                pass
            with self._wake:
                self._wake.notify()

        waiter = threading.Thread(target=wait, name="h2ams-watch-stop", daemon=True)
        waiter.start()
        try:
            yield
        finally:
            done.set()

    def _step(self) -> None:
        with self._wake:
            losses, self._losses = self._losses, {}
        if Loss.LIMIT in losses:
            self._poll_instead(LIMIT, losses[Loss.LIMIT])
        if Loss.OVERFLOW in losses:
            self._tell(OVERFLOW, f"{losses[Loss.OVERFLOW]}: everything is scanned again")
            self._open()
        now = self.now_ms()
        if now >= self._next_look_ms or Loss.ROOT in losses:
            self._look(now)
        with self._wake:
            taken = None if self._lost else self._batch.take(now)
            if taken is None:
                if not self._losses and not self.stop.is_set():
                    self._wake.wait(self._rest_s(now))
                return
            work, self._batch = taken
            self._syncing = True
        self._sync(work)

    def _rest_s(self, now: float) -> float:
        until = self._next_look_ms
        due = self._batch.due_ms()
        if due is not None and not self._lost:
            until = min(until, due)
        return max(until - now, 0.0) / 1000

    def _look(self, now: float) -> None:
        """What no event tells of: the root itself, the observer's health, time that has passed."""
        self._next_look_ms = now + self.look_ms
        identity = _identity(self.root.path)
        observer = self._observer
        if identity is None or identity != self._identity:
            self._open()
        elif observer is not None and not observer.is_alive():
            self._tell(OBSERVER, "the source of events ended; it was started anew")
            self._open()
        elif self._complete and self._index_is_new():
            self._sync_all()
        elif now >= self._next_scan_ms:
            with self._wake:
                idle = self._batch.is_empty
                self._syncing = idle
            if idle:
                self._sync(Work(periodic=True))
        if self.watching._troubles and now >= self._next_publish_ms:
            self._publish()

    # -- the observer ----------------------------------------------------------------------------

    def _open(self) -> None:
        """Start watching from nothing, and have everything synced after that."""
        self._close()
        self._identity = _identity(self.root.path)
        self._lost = self._identity is None
        if not self._lost and not self._polling:
            self._start()
        if self._lost:
            reason = "cannot be watched" if self._identity else "is gone"
            self._identity = None
            self._tell(ROOT, f"the memory folder {self.root.path} {reason}; nothing was removed")
            return
        self._sync_all()

    def _sync_all(self) -> None:
        with self._wake:
            self._batch = self._batch.succeeded().all_at_once(self.now_ms())

    def _start(self) -> None:
        """Start an observer; where the root cannot be watched now it is lost."""
        observer = self.observer_factory(self.root.path, self)
        self._observer = observer
        try:
            observer.start()
        except OSError as error:
            self._close()
            if error.errno in _ROOT_ERRNOS:
                self._lost = True
                return
            message = limit_message(error) if is_limit(error) else str(error.strerror or error)
            self._poll_instead(LIMIT if is_limit(error) else NO_EVENTS, message)

    def _poll_instead(self, code: str, reason: str) -> None:
        self._close()
        self._polling = True
        self._next_scan_ms = 0.0
        self._tell(code, f"{reason}; meanwhile all files are checked every {self.look_ms:g} ms")

    def _close(self) -> None:
        observer, self._observer = self._observer, None
        with self._wake:
            self._complete = False
        if observer is not None:
            observer.stop()

    # -- syncing ---------------------------------------------------------------------------------

    def _sync(self, work: Work) -> None:
        started = self.now_ms()
        try:
            done = self.syncer.sync(work.paths)
            again = self._pending(done)
        except _FAILURES as error:
            self._failed(work, error)
            return
        now = self.now_ms()
        is_new = self._index_is_new()
        self._index_identity = _identity(self.syncer.index.path)
        with self._wake:
            self._syncing = False
            self._batch = self._batch.succeeded().with_again(again, now + AGAIN_MS)
            self._complete = not work.paths or (self._complete and not is_new)
            if not self._complete:
                self._batch = self._batch.all_at_once(now)
        if not work.paths:
            rest = max(self.look_ms, POLL_SHARE * (now - started))
            self._next_scan_ms = now + (rest if self._polling else SAFETY_SCAN_MS)
            self._next_look_ms = min(self._next_look_ms, self._next_scan_ms)
        self._clear(RETRY, ROOT)
        if self._batch.is_empty and not self._losses:  # a storm of events is told of once
            self._clear(OVERFLOW, OBSERVER)
        found = done.changed or done.errors != self._failed_before
        if not work.paths:
            self._failed_before = done.errors
        if found or not work.periodic:
            self.on_sync(done)

    def _failed(self, work: Work, error: Exception) -> None:
        """Nothing of ``work`` is lost: it is tried again, and the watch goes on."""
        everything = isinstance(error, (*sqlite.DAMAGED, RootError, UnsafePathError))
        with self._wake:
            self._syncing = False
            work = EVERYTHING if everything else work
            self._batch = self._batch.failed(work, self.now_ms())
            self._complete = self._complete and not everything
        reason = error.message if isinstance(error, H2amsError) else str(error)
        code = ROOT if isinstance(error, RootError) else RETRY
        self._tell(code, f"{reason or type(error).__name__}: it is tried again")

    def _pending(self, done: SyncReport) -> frozenset[str]:
        """Files that a save seems to have left half-way: to be looked at again, event or not."""
        if not (self._has_pending or done.changed or done.problems):
            return frozenset()
        with self.syncer.index.reading() as connection:
            rows = sqlite.rows(
                connection,
                "SELECT path FROM files WHERE pending <> '' AND pending <> ?",
                (UNREADABLE,),
            )
        self._has_pending = bool(rows)
        return frozenset(str(path) for (path,) in rows)

    def _settled(self) -> bool:
        observer = self._observer
        if observer is None or not observer.exact:
            return False
        observer.drain()
        with self._wake:
            settled = (
                self._complete
                and observer is self._observer
                and not (self._syncing or self._losses)
                and self._batch.is_empty
            )
        return (
            settled
            and observer.is_alive()
            and _identity(self.root.path) == self._identity
            and not self._index_is_new()
        )

    def _index_is_new(self) -> bool:
        """Whether the index was removed or set aside, here or by another process."""
        index = self.syncer.index
        return index.made_new or _identity(index.path) != self._index_identity

    # -- telling ---------------------------------------------------------------------------------

    def _tell(self, code: str, message: str) -> None:
        """Report a trouble as it begins; while it lasts it is not told again."""
        if code in self.watching._troubles:
            return
        self.watching._troubles[code] = message
        self._publish()
        self.report(code, message)

    def _clear(self, *codes: str) -> None:
        known = [code for code in codes if self.watching._troubles.pop(code, None) is not None]
        if known:
            self._publish()

    def _publish(self) -> None:
        """Write the troubles down for ``status`` in other processes."""
        now = self.now_ms()
        self._next_publish_ms = now + PUBLISH_MS
        troubles = self.watching.troubles
        value = {"at_s": time.time(), "troubles": troubles}
        try:
            if troubles or published_troubles(self.root, now_s=time.time()):
                self.root.write_state(STATE_FILE, json.dumps(value).encode())
        except StoreError:
            return  # the state folder is gone or read-only: what was told to the host must do


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None  # the caller says what that means
    return status.st_dev, status.st_ino
