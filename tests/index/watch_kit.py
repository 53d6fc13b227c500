"""A watch on a real folder in a thread, and waiting with a deadline instead of sleeping."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from h2ams.files import Root
from h2ams.index.inotify import InotifyObserver
from h2ams.index.observers import Listener, Loss, Observer, ObserverFactory, WatchdogObserver
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer, SyncReport
from h2ams.index.verify import verify
from h2ams.index.watch import Watching, default_observer, watch
from h2ams.index.watch_plan import Entry
from h2ams.settings import Settings
from h2ams.text.words import analyse

LINUX = sys.platform == "linux"
OBSERVERS: list[ObserverFactory] = [WatchdogObserver, *([InotifyObserver] if LINUX else [])]
PATIENCE_S = 8.0  # a bound for a loaded machine; nothing waits this long when all is well
SETTINGS = Settings(encoding="estimate", watch_debounce_ms=40, watch_poll_ms=150)


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> float:
    """Seconds until ``condition`` held; fails with ``what`` when it did not in time."""
    started = time.monotonic()
    tick = threading.Event()
    while not condition():
        assert time.monotonic() - started < patience_s, f"not in {patience_s} s: {what}"
        tick.wait(0.005)
    return time.monotonic() - started


def segment(body: str) -> str:
    return f"---\nkind: fact\ntags: []\n---\n\n{body}\n"


class Watched:
    """A memory folder below ``base`` with an index, and a watch from ``started`` on."""

    def __init__(
        self,
        base: Path,
        *,
        observer: ObserverFactory = default_observer,
        settings: Settings = SETTINGS,
        syncer: type[Syncer] = Syncer,
        count: Callable[[str], int] = len,
        state: Path | None = None,
    ) -> None:
        self.path = base / "memory"
        self.path.mkdir(exist_ok=True)
        self.root = Root(self.path, state=state)
        self.settings = settings
        self.index = Index(self.root.state_path("index.db"), encoding="estimate")
        self.syncer = syncer(self.root, self.index, settings, count=count)
        self.observer = observer
        self.stop = threading.Event()
        self.watching = Watching()
        self.reports: list[SyncReport] = []
        self.told: list[tuple[str, str]] = []
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="test-watch")
        self._running: Future[None] | None = None

    def _run(self) -> None:
        watch(
            self.root,
            self.syncer,
            self.settings,
            stop=self.stop,
            on_sync=self.reports.append,
            report=lambda code, message: self.told.append((code, message)),
            watching=self.watching,
            observer_factory=self.observer,
        )

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        try:
            self.wait_for_end()
        finally:
            self._pool.shutdown(wait=False)
            self.index.close()

    def begin(self) -> Watched:
        self._running = self._pool.submit(self._run)
        return self

    def started(self) -> Watched:
        """Start the watch and wait for its first sync."""
        running = self.begin()._running
        wait_until(lambda: bool(self.reports) or running.done(), "the first sync")
        return self

    def wait_for_end(self) -> None:
        """Raises what the watch raised."""
        if self._running is not None:
            self._running.result(PATIENCE_S)

    # -- files -----------------------------------------------------------------------------------

    def put(self, relative: str, *bodies: str) -> Path:
        """Write the file in place; its folders are made."""
        path = self.path / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(segment, bodies)), encoding="utf-8")
        return path

    def swap(self, relative: str, *bodies: str, temporary: str) -> None:
        """Replace the file as most editors do: a new file beside it, then a rename."""
        target = self.path / relative
        aside = self.put(str(target.with_name(temporary)), *bodies)
        os.replace(aside, target)

    # -- the index -------------------------------------------------------------------------------

    def bodies(self) -> list[str]:
        with self.index.reading() as connection:
            rows = connection.execute("SELECT body FROM memory_segments ORDER BY body").fetchall()
        return [body for (body,) in rows]

    def scopes(self) -> list[str]:
        with self.index.reading() as connection:
            rows = connection.execute(
                "SELECT DISTINCT name FROM scopes JOIN memory_segments ON scope = no ORDER BY name"
            ).fetchall()
        return [name for (name,) in rows]

    def finds(self, word: str) -> bool:
        """Whether the full-text index has ``word``."""
        token = analyse(word)[0].split()[0]
        with self.index.reading() as connection:
            return bool(
                connection.execute(
                    "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH ?", (f'"{token}"',)
                ).get
            )

    def until_found(self, word: str) -> float:
        return wait_until(lambda: self.finds(word), f"{word} is found")

    def until_gone(self, word: str) -> float:
        return wait_until(lambda: not self.finds(word), f"{word} is gone")

    def until_told(self, code: str) -> str:
        wait_until(lambda: code in dict(self.told), f"{code} is reported")
        return dict(self.told)[code]

    def is_right(self) -> bool:
        """Whether the index is what a rebuild would give."""
        return verify(self.root, self.index, self.settings).ok


class Ear:
    """A listener that keeps what it heard."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Entry]] = []
        self.losses: list[Loss] = []

    def changed(self, path: str, entry: Entry) -> None:
        self.heard.append((path, entry))

    def lost(self, loss: Loss, reason: str) -> None:
        self.losses.append(loss)


class StubObserver:
    """An observer that a test speaks for. ``error`` is what its start raises."""

    exact = False
    linked = False

    def __init__(self, listener: Listener, error: OSError | None = None) -> None:
        self.listener = listener
        self.error = error
        self.alive = False
        self.stopped = False

    def start(self) -> None:
        if self.error is not None:
            raise self.error
        self.alive = True

    def drain(self) -> None: ...

    def is_alive(self) -> bool:
        return self.alive

    def stop(self) -> None:
        self.alive, self.stopped = False, True


class Stubs:
    """A factory that keeps what it made; ``errors`` are for the first starts."""

    def __init__(self, *errors: OSError) -> None:
        self.errors = list(errors)
        self.made: list[StubObserver] = []

    def __call__(self, path: str, listener: Listener) -> Observer:
        error = self.errors.pop(0) if self.errors else None
        self.made.append(StubObserver(listener, error))
        return self.made[-1]


def faster(**changes: int) -> Settings:
    return replace(SETTINGS, **changes)
