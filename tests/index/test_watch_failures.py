"""What goes wrong while watching: nothing is lost, nothing is removed, the watch goes on."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw
import pytest
from index.watch_kit import LINUX, Ear, Stubs, Watched, faster, segment, wait_until

from h2ams.errors import StoreError
from h2ams.files import Root
from h2ams.index.inotify import InotifyObserver
from h2ams.index.observers import Listener, Loss, Observer, WatchdogObserver
from h2ams.index.sync import Syncer, SyncReport
from h2ams.index.watch import PUBLISHED_S, default_observer, published_troubles
from h2ams.index.watch_plan import Entry

# watchdog's own thread ends by this on Linux where warnings are errors
pytestmark = pytest.mark.filterwarnings("ignore:Callback with id:RuntimeWarning")
only_linux = pytest.mark.skipif(not LINUX, reason="inotify")


def failing(*errors: Exception) -> type[Syncer]:
    """A syncer whose first syncs end with ``errors``."""
    left = list(errors)

    class Failing(Syncer):
        def sync(self, paths: Iterable[str] = (), *, trusted: Iterable[str] = ()) -> SyncReport:
            if left:
                raise left.pop(0)
            return super().sync(paths, trusted=trusted)

    return Failing


# -- a sync that fails -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        apsw.BusyError("database is locked"),  # K126
        OSError(errno.EIO, "Input/output error"),
        StoreError("cannot read user/memory.md"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_k126_a_failed_sync_is_tried_again_without_a_further_edit(
    tmp_path: Path, error: Exception
) -> None:
    with Watched(tmp_path, syncer=failing(error)) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        assert watched.finds("apples")
        assert [code for code, _ in watched.told] == ["watch-retry"]
        wait_until(lambda: not watched.watching.troubles, "the trouble is over")


def test_a_failure_that_lasts_is_told_once_and_tried_until_it_ends(tmp_path: Path) -> None:
    errors = [apsw.BusyError("database is locked")] * 3
    with Watched(tmp_path, syncer=failing(*errors)) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        assert watched.finds("apples")
        assert len(watched.told) == 1


def test_an_index_that_is_damaged_while_watching_is_built_anew(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.put("user/memory.md", "apples")
        watched.put("chat/1/memory.md", "pears")
        watched.started()
        with watched.index.lock:
            watched.index._drop()
            for path in Path(watched.index.path).parent.glob("index.db*"):
                path.write_bytes(b"not a database at all" * 500)
        watched.put("user/memory.md", "plums")
        wait_until(lambda: watched.bodies() == ["pears", "plums"], "all is there again")
        wait_until(watched.is_right, "the index is right")


def test_an_index_that_is_removed_while_watching_is_built_anew(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        for path in Path(watched.index.path).parent.glob("index.db*"):
            path.unlink()
        assert not watched.watching.settled()
        wait_until(lambda: watched.bodies() == ["apples"], "it is there again without an edit")


# -- the root --------------------------------------------------------------------------------------


def test_a_root_that_vanishes_loses_no_rows_and_is_taken_up_again(tmp_path: Path) -> None:  # K21
    with Watched(tmp_path) as watched:
        for number in range(50):
            watched.put(f"chat/{number}/memory.md", f"text{number}")
        watched.started()
        os.rename(watched.path, tmp_path / "away")
        message = watched.until_told("watch-root")
        assert str(watched.path) in message
        assert not watched.path.exists()
        (tmp_path / "away/user").mkdir()
        (tmp_path / "away/user/memory.md").write_text(segment("pears"), encoding="utf-8")
        syncs = len(watched.reports)
        os.rename(tmp_path / "away", watched.path)
        wait_until(lambda: len(watched.reports) > syncs, "a sync after the return")
        assert watched.reports[-1].deleted == 0
        assert watched.reports[-1].changed == 1
        watched.put("user/memory.md", "plums")  # it is watched again
        watched.until_found("plums")
        assert len(watched.bodies()) == 51
        assert not watched.watching.troubles


def test_an_empty_folder_in_the_place_of_the_root_removes_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Watched(tmp_path, state=state) as watched:
        watched.put("user/memory.md", "apples")
        watched.put("chat/1/memory.md", "pears")
        watched.started()
        os.rename(watched.path, tmp_path / "away")
        watched.path.mkdir()  # as an unmounted mount point looks
        assert "is the disk mounted" in watched.until_told("watch-root")
        assert watched.bodies() == ["apples", "pears"]
        watched.path.rmdir()
        os.rename(tmp_path / "away", watched.path)
        wait_until(lambda: not watched.watching.troubles, "the trouble is over")
        assert watched.bodies() == ["apples", "pears"]
        assert sum(report.deleted for report in watched.reports) == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOENT])
def test_a_root_that_cannot_be_watched_at_first_is_tried_until_it_can(
    tmp_path: Path, number: int
) -> None:
    stubs = Stubs(OSError(number, os.strerror(number)), OSError(number, os.strerror(number)))
    with Watched(tmp_path, observer=stubs) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        assert watched.finds("apples")
        assert [code for code, _ in watched.told] == ["watch-root"]
        assert len(stubs.made) == 3


def test_a_removed_root_is_never_made_again(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        shutil.rmtree(watched.path)
        watched.until_told("watch-root")
        watched.stop.set()
        watched.wait_for_end()
        assert not watched.path.exists()


# -- lost events -----------------------------------------------------------------------------------


def test_k46_an_overflow_ends_in_one_warning_and_a_scan_of_everything(tmp_path: Path) -> None:
    stubs = Stubs()
    with Watched(tmp_path, observer=stubs) as watched:
        for number in range(100):
            watched.put(f"chat/{number}/memory.md", f"text{number}")
        watched.started()
        for number in range(100):  # no event tells of any of these
            watched.put(f"chat/{number}/memory.md", f"other{number}")
        for _ in range(5):
            stubs.made[0].listener.lost(Loss.OVERFLOW, "too many")
        wait_until(watched.is_right, "the index equals a fresh build")
        assert [code for code, _ in watched.told] == ["watch-overflow"]
        assert stubs.made[0].stopped  # whoever lost events may have lost folders too
        assert watched.finds("other99")


def test_what_watchdog_only_logs_counts_as_lost_events(tmp_path: Path) -> None:
    import logging

    with Watched(tmp_path, observer=WatchdogObserver) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        logging.getLogger("watchdog.observers.inotify_c").warning("events were lost")
        assert "events were lost" in watched.until_told("watch-overflow")
        wait_until(lambda: len(watched.reports) == 2, "everything is scanned")
        watched.put("user/memory.md", "pears")
        watched.until_found("pears")


def test_a_source_of_events_that_ends_is_started_anew(tmp_path: Path) -> None:
    stubs = Stubs()
    with Watched(tmp_path, observer=stubs) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        watched.put("user/memory.md", "pears")
        stubs.made[0].alive = False
        watched.until_found("pears")
        assert len(stubs.made) == 2
        assert [code for code, _ in watched.told] == ["watch-observer"]


# -- status in other processes ---------------------------------------------------------------------


def test_another_process_can_say_that_a_watch_is_in_trouble(tmp_path: Path) -> None:
    stubs = Stubs(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    with Watched(tmp_path, observer=stubs) as watched:
        watched.started()
        other = Root(watched.path)
        assert published_troubles(other, now_s=time.time()) == tuple(watched.told)
        assert published_troubles(other, now_s=time.time() + PUBLISHED_S + 1) == ()
        watched.stop.set()
        watched.wait_for_end()
        assert published_troubles(other, now_s=time.time()) == ()


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"at_s": "x"}', b'{"troubles": 5}', b"3"])
def test_what_no_watch_wrote_is_no_trouble(tmp_path: Path, data: bytes) -> None:
    root = Root(tmp_path)
    assert published_troubles(root, now_s=0) == ()
    root.write_state("watch.json", data)
    assert published_troubles(root, now_s=0) == ()


# -- is everything known? --------------------------------------------------------------------------


@only_linux
def test_a_settled_watch_means_that_no_write_before_it_is_missing(tmp_path: Path) -> None:
    """The very instant after a write ``settled`` is either false or already right."""
    with Watched(tmp_path, settings=faster(watch_debounce_ms=2)) as watched:
        assert not watched.watching.settled()
        watched.put("user/memory.md", "start")
        watched.started()
        wait_until(watched.watching.settled, "it is settled after the first sync")
        chooser = random.Random(7)
        settled = 0
        for number in range(150):
            _change_something(watched, chooser, number)
            for _ in range(chooser.randrange(4)):
                if watched.watching.settled():
                    settled += 1
                    assert watched.is_right()
            if number % 10 == 0:
                wait_until(watched.watching.settled, "it settles again")
                settled += 1
                assert watched.is_right()
        assert settled


@pytest.mark.parametrize("observer", [default_observer, WatchdogObserver])
@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 20))]
)
def test_after_any_changes_the_index_is_what_a_rebuild_would_give(
    tmp_path: Path, observer: Callable[[str, Listener], Observer], seed: int
) -> None:
    with Watched(tmp_path, observer=observer, settings=faster(watch_debounce_ms=5)) as watched:
        watched.started()
        chooser = random.Random(seed)
        for number in range(150):
            _change_something(watched, chooser, number, out=observer is default_observer)
        wait_until(watched.is_right, "the index is right")
        assert not watched.told


def _change_something(
    watched: Watched, chooser: random.Random, number: int, *, out: bool = True
) -> None:
    """One of the things that happen to files and folders."""
    base = watched.path
    scopes = ["user", "chat/1", "sessions/s1", "sessions/s1/topic/a", "sessions/s2/vp/v", "vault/x"]
    scope = chooser.choice(scopes)
    other = base / chooser.choice(scopes)
    name = chooser.choice(["memory.md", "note.md", "deep/er/idea.md"])
    kind = chooser.randrange(10)
    if kind < 4:
        watched.put(f"{scope}/{name}", f"text{number}", f"more{number % 3}")
    elif kind < 6:
        watched.swap(f"{scope}/{name}", f"text{number}", temporary="new.tmp")
    elif kind == 6:
        (base / scope / name).unlink(missing_ok=True)
    elif kind == 7:
        shutil.rmtree(base / scope, ignore_errors=True)
    elif kind == 8 and out and (base / scope).exists():
        away = base.parent / "away"
        os.rename(base / scope, away)
        (base / scope).parent.mkdir(parents=True, exist_ok=True)
        os.rename(away, base / scope)
    elif (base / scope).exists() and not other.exists() and base / scope not in other.parents:
        other.parent.mkdir(parents=True, exist_ok=True)
        os.rename(base / scope, other)


@only_linux
def test_the_observer_itself_tells_of_each_change_before_drain_returns(tmp_path: Path) -> None:
    (tmp_path / "root/chat/1").mkdir(parents=True)
    ear = Ear()
    observer = InotifyObserver(str(tmp_path / "root"), ear)
    observer.start()
    try:
        for number in range(200):
            path = tmp_path / f"root/chat/1/{number % 7}.md"
            path.write_text(f"{number}", encoding="utf-8")
            observer.drain()
            assert ear.heard[-1] == (f"chat/1/{number % 7}.md", Entry.FILE)
            ear.heard.clear()
        os.rename(tmp_path / "root", tmp_path / "moved")
        observer.drain()
        assert Loss.ROOT in ear.losses
    finally:
        observer.stop()
