"""Where events come from: what an observer is, and watchdog's for most platforms (never writes).

Events are hints only. An observer watches the folders that a scan would enter and says what it
heard to a ``Listener``, from its own thread. ``inotify`` is the observer for Linux.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from h2ams.files import STATE_FOLDER
from h2ams.index.watch_plan import Entry
from h2ams.memory import layout
from h2ams.memory.layout import TRACKED, Place, place_of

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver

MAX_DEPTH = 64  # as in a scan: a loop of bind mounts must end
JOIN_S = 2.0
# Not being able to watch is one thing; a folder that is gone or not readable is another.
_LIMITS = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


class Loss(Enum):
    """Why events were lost, or may be from now on."""

    OVERFLOW = "overflow"  # some were: look at everything
    LIMIT = "limit"  # some folders cannot be watched
    ROOT = "root"  # the watched folder itself was moved, removed or unmounted


class Listener(Protocol):
    """Who is told. Called from an observer's thread, or from inside ``drain``; never blocks."""

    def changed(self, path: str, entry: Entry) -> None:
        """Something happened at the relative ``path``."""

    def lost(self, loss: Loss, reason: str) -> None: ...


class Observer(Protocol):
    """A source of events below one folder; used once: start, then stop."""

    @property
    def exact(self) -> bool:
        """Whether ``drain`` tells of every change that was finished before it was called."""

    @property
    def linked(self) -> bool:
        """Whether links were seen through which a file is read under a second path."""

    def start(self) -> None:
        """Returns when all folders are watched; ``OSError`` where that is not possible."""

    def drain(self) -> None:
        """Tell the listener now what the platform already knows."""

    def is_alive(self) -> bool: ...

    def stop(self) -> None: ...


ObserverFactory = Callable[[str, Listener], Observer]


class Links:
    """Whether a walk met a link that a scan follows."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.found = False

    def look(self, path: str) -> None:
        """``path`` (relative) is a link."""
        folder, _, name = path.rpartition("/")
        place = place_of(folder)
        if self.found or name[:1] == "." or place is None or place.problem is not None:
            return
        self.found = layout.role(place, name)[0] in TRACKED or os.path.isdir(f"{self.base}/{path}")


def folders(base: str, top: str, links: Links) -> Iterator[str]:
    """``top`` and the folders below it that a scan enters; each is given before it is listed."""
    place = place_of(top)
    if place is None or place.problem is not None:
        return
    stack: list[tuple[str, Place, int]] = [(top, place, 0)]
    while stack:
        folder, place, depth = stack.pop()
        yield folder
        try:
            with os.scandir(f"{base}/{folder}") as entries:
                listed = list(entries)
        except OSError:
            continue  # gone again or not readable: the sync of this folder says so
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_symlink():
                links.look(path)
            elif depth < MAX_DEPTH and entry.is_dir(follow_symlinks=False):
                inner = layout.enter(place, entry.name)
                if inner is not None and inner.problem is None:
                    stack.append((path, inner, depth + 1))


def limit_message(error: OSError) -> str:
    """What to do about an observer that could not watch everything."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        names = "fs.inotify.max_user_instances (and fs.inotify.max_user_watches)"
    else:
        names = "fs.inotify.max_user_watches"
    return f"not all folders can be watched ({error.strerror}): raise {names}"


def is_limit(error: OSError) -> bool:
    return error.errno in _LIMITS


class WatchdogObserver:
    """watchdog's observer for this platform, with the events that a change makes and no others."""

    exact = False  # its threads may still hold what has happened

    def __init__(self, path: str, listener: Listener) -> None:
        self._base = path
        self._prefix = path.rstrip(os.sep) + os.sep
        self._listener = listener
        self._links = Links(path)
        self._observer: BaseObserver | None = None
        self._tap = _LogTap(lambda text: listener.lost(Loss.OVERFLOW, text))

    @property
    def linked(self) -> bool:
        return self._links.found

    def is_alive(self) -> bool:
        observer = self._observer
        return (
            observer is not None
            and observer.is_alive()
            and all(each.is_alive() for each in observer.emitters)
        )

    def start(self) -> None:
        from watchdog import events
        from watchdog.observers import Observer as PlatformObserver
        from watchdog.observers.polling import PollingObserver

        observer = PlatformObserver()
        if isinstance(observer, PollingObserver):
            raise OSError(errno.ENOTSUP, "this platform gives no events")
        wanted = (
            "FileCreatedEvent", "FileModifiedEvent", "FileDeletedEvent", "FileMovedEvent",
            "DirCreatedEvent", "DirDeletedEvent", "DirMovedEvent",
            "FileAttribEvent", "DirAttribEvent",  # watchdog 7
        )  # fmt: skip
        self._observer = observer
        self._tap.attach()
        observer.schedule(
            _handler(self._tell),
            self._base,
            recursive=True,
            event_filter=[getattr(events, name) for name in wanted if hasattr(events, name)],
        )
        observer.start()
        for _ in folders(self._base, "", self._links):
            pass  # for the links alone

    def stop(self) -> None:
        observer, self._observer = self._observer, None
        self._tap.is_closing = True  # it logs its own end as an error
        if observer is not None:
            observer.stop()
            if observer.is_alive():
                observer.join(JOIN_S)
        self._tap.detach()

    def drain(self) -> None:
        """Nothing can be asked: what has happened comes when it comes."""

    def _tell(self, event: FileSystemEvent) -> None:
        if event.is_directory:
            entry = Entry.FOLDER
        elif event.event_type in ("deleted", "moved"):
            entry = Entry.EITHER  # Windows tells no more of what is gone
        else:
            entry = Entry.FILE
        for raw in (event.src_path, event.dest_path):
            if raw:
                self._tell_path(os.fsdecode(raw), entry)

    def _tell_path(self, absolute: str, entry: Entry) -> None:
        if absolute == self._base:
            self._listener.changed("", Entry.FOLDER)
        elif absolute.startswith(self._prefix):
            path = absolute[len(self._prefix) :].replace(os.sep, "/")
            if path.startswith(STATE_FOLDER):
                return
            if os.path.islink(absolute):
                self._links.look(path)
                entry = Entry.EITHER
            self._listener.changed(path, entry)


def _handler(tell: Callable[[FileSystemEvent], None]) -> FileSystemEventHandler:
    from watchdog.events import FileSystemEventHandler

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:
            tell(event)

    return Handler()


class _LogTap(logging.Handler):
    """watchdog only logs that it lost events: each of its warnings counts as that."""

    LOGGERS = ("watchdog", "fsevents")

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self.is_closing = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.is_closing:
            self._tell(record.getMessage())

    def attach(self) -> None:
        for name in self.LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        for name in self.LOGGERS:
            logging.getLogger(name).removeHandler(self)
