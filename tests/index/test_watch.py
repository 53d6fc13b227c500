"""A running watch on real files: what people and editors do is in the index soon after."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
from index.watch_kit import LINUX, OBSERVERS, Ear, Watched, faster, segment, wait_until

from h2ams.index.observers import ObserverFactory
from h2ams.index.watch import default_observer, watch

# watchdog's own thread ends by this on Linux where warnings are errors
pytestmark = pytest.mark.filterwarnings("ignore:Callback with id:RuntimeWarning")
every_observer = pytest.mark.parametrize(
    "observer", OBSERVERS, ids=[each.__name__ for each in OBSERVERS]
)


def test_what_changed_while_no_watch_was_running_is_found_at_its_start(tmp_path: Path) -> None:
    with Watched(tmp_path) as one:
        one.put("user/memory.md", "apples")
        one.put("chat/1/memory.md", "pears")
        one.started()
    shutil.rmtree(tmp_path / "memory/chat")
    with Watched(tmp_path) as two:
        two.put("user/memory.md", "quinces")
        two.started()
        assert two.bodies() == ["quinces"]


@every_observer
@pytest.mark.parametrize("temporary", ["memory.md.tmp", "memory.md~", ".memory.md.x7", "new.md"])
def test_a_save_by_rename_is_found_within_two_seconds(  # K45 a
    tmp_path: Path, observer: ObserverFactory, temporary: str
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        watched.swap("user/memory.md", "pears", temporary=temporary)
        assert watched.until_found("pears") < 2
        watched.until_gone("apples")
        assert watched.bodies() == ["pears"]


@every_observer
def test_rows_are_never_gone_while_an_editor_makes_its_backup(  # K45 b
    tmp_path: Path, observer: ObserverFactory
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        file = watched.put("chat/1/memory.md", "apples", "plums")
        watched.started()
        lowest = 2

        def polled() -> bool:
            nonlocal lowest
            lowest = min(lowest, len(watched.bodies()))
            return False

        backup = file.with_name("memory.md~")
        os.rename(file, backup)
        _gap(polled)
        watched.put("chat/1/memory.md", "apples", "plums", "pears")
        _gap(polled)
        os.unlink(backup)
        assert watched.until_found("pears") < 2
        assert lowest == 2
        assert watched.bodies() == ["apples", "pears", "plums"]


def _gap(poll: object) -> None:
    """300 ms in which ``poll`` is called all the time."""
    until = time.monotonic() + 0.3
    wait_until(lambda: poll() or time.monotonic() > until, "the gap")


@every_observer
def test_text_appended_in_place_is_found_even_while_the_file_stays_open(  # K45 c
    tmp_path: Path, observer: ObserverFactory
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        path = watched.put("user/memory.md", "apples")
        watched.started()
        with open(path, "a", encoding="utf-8") as file:
            file.write("\n" + segment("pears"))
            file.flush()
            assert watched.until_found("pears") < 2
            file.write("\n" + segment("plums"))
        assert watched.until_found("plums") < 2


@every_observer
def test_a_same_size_edit_directly_after_the_first_sync_is_found(
    tmp_path: Path, observer: ObserverFactory
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        watched.put("user/memory.md", "grapes")
        watched.until_found("grapes")
        watched.until_gone("apples")


@every_observer
def test_a_renamed_folder_moves_its_rows(tmp_path: Path, observer: ObserverFactory) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("chat/1/memory.md", "apples")
        watched.put("chat/1/notes/deep/idea.md", "pears")
        watched.started()
        os.rename(watched.path / "chat/1", watched.path / "chat/2")
        wait_until(lambda: watched.scopes() == ["chat/2"], "the rows are in chat/2")
        watched.put("chat/2/notes/deep/idea.md", "plums")  # the moved folders are still watched
        watched.until_found("plums")
        assert watched.is_right()


@every_observer
def test_a_deleted_folder_leaves_no_rows(tmp_path: Path, observer: ObserverFactory) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("user/memory.md", "apples")
        watched.put("sessions/s1/memory.md", "pears")
        watched.put("sessions/s1/vp/v/memory.md", "plums")
        watched.started()
        shutil.rmtree(watched.path / "sessions")
        wait_until(lambda: watched.bodies() == ["apples"], "the session's rows are gone")
        assert watched.is_right()


@every_observer
def test_a_folder_that_is_moved_in_is_read_and_watched(
    tmp_path: Path, observer: ObserverFactory
) -> None:
    outside = tmp_path / "outside/s1/topic/rust"
    outside.mkdir(parents=True)
    (outside / "memory.md").write_text(segment("apples"), encoding="utf-8")
    with Watched(tmp_path, observer=observer) as watched:
        (watched.path / "sessions").mkdir()
        watched.started()
        os.rename(tmp_path / "outside/s1", watched.path / "sessions/s1")
        watched.until_found("apples")
        watched.put("sessions/s1/topic/rust/memory.md", "pears")
        watched.until_found("pears")
        watched.until_gone("apples")


@pytest.mark.skipif(not LINUX, reason="watchdog's thread ends by its own warning here")
def test_a_folder_that_is_moved_out_is_no_longer_listened_to(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.put("chat/1/deep/note.md", "apples")
        watched.put("user/memory.md", "plums")
        watched.started()
        os.rename(watched.path / "chat/1", tmp_path / "elsewhere")
        watched.until_gone("apples")
        wait_until(watched.watching.settled, "all is quiet")
        syncs = len(watched.reports)
        (tmp_path / "elsewhere/deep/note.md").write_text("figs", encoding="utf-8")
        assert watched.watching.settled()
        assert len(watched.reports) == syncs
        os.rename(tmp_path / "elsewhere", watched.path / "chat/2")  # and back, by another name
        watched.until_found("figs")
        watched.put("chat/2/deep/note.md", "dates")
        watched.until_found("dates")
        assert watched.is_right()


@every_observer
def test_folders_made_and_filled_at_once_are_found(
    tmp_path: Path, observer: ObserverFactory
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.started()
        for number in range(20):
            watched.put(f"sessions/s{number}/topic/a/notes/b/c/note.md", f"text{number}")
        wait_until(lambda: len(watched.bodies()) == 20, "all twenty are found")
        watched.put("sessions/s7/topic/a/notes/b/c/note.md", "pears")
        watched.until_found("pears")


@every_observer
def test_temporary_files_give_no_rows_and_no_errors(  # K124
    tmp_path: Path, observer: ObserverFactory
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        names = ("memory~.md", ".memory.md.swp", ".#memory.md", "memory.md.tmp", "4913",
                 "memory.md.bak", "memory.md~", "~$memory.md")  # fmt: skip
        for name in names:
            (watched.path / "user" / name).write_text(segment("ghost"), encoding="utf-8")
        for name in names:
            (watched.path / "user" / name).unlink()
        watched.put("chat/1/memory.md", "pears")  # something that is waited for, after all that
        watched.until_found("pears")
        assert not watched.finds("ghost")
        assert not watched.told
        wait_until(lambda: len(watched.reports) > 1, "the sync is reported")
        assert sum(report.changed for report in watched.reports[1:]) == 1
        assert not any(report.errors for report in watched.reports)


@every_observer
@pytest.mark.parametrize(
    "idle_s", [1.0, pytest.param(10.0, marks=pytest.mark.long)], ids=["1s", "10s"]
)
def test_k44_reading_and_indexing_cause_no_further_sync(
    tmp_path: Path, observer: ObserverFactory, idle_s: float
) -> None:
    with Watched(tmp_path, observer=observer) as watched:
        for number in range(200):
            watched.put(f"chat/{number}/memory.md", f"text{number}")
        watched.started()
        for path in watched.path.rglob("*.md"):
            path.read_text(encoding="utf-8")
            os.stat(path)
        cpu_s = time.process_time()
        assert not watched.stop.wait(idle_s)  # nobody sets it: this is the idle time
        spent_s = time.process_time() - cpu_s
        assert len(watched.reports) == 1
        assert spent_s / idle_s < 0.02


@every_observer
def test_a_watch_ends_at_once_and_leaves_no_thread(
    tmp_path: Path, observer: ObserverFactory
) -> None:
    before = set(threading.enumerate())
    with Watched(tmp_path, observer=observer) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        started = time.monotonic()
        watched.stop.set()
        watched.wait_for_end()
        assert time.monotonic() - started < 1
    wait_until(lambda: not set(threading.enumerate()) - before, "all threads have ended")


def test_a_watch_that_is_stopped_before_it_starts_does_nothing(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.stop.set()
        watched.begin().wait_for_end()
        assert not watched.reports


def test_a_long_sync_is_given_up_and_rolled_back_when_the_watch_ends(tmp_path: Path) -> None:
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += 1
        if counted == 10:
            watched.stop.set()
        return len(text)

    watched = Watched(tmp_path, count=count)
    for number in range(500):
        watched.put(f"chat/{number}/memory.md", f"text{number}")
    with watched:
        watched.begin().wait_for_end()
        assert counted == 10
        assert not watched.bodies()
        assert not watched.reports
    assert Watched(tmp_path).syncer.sync().added == 500


def test_what_a_host_raises_in_its_callback_ends_the_watch_in_order(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    before = set(threading.enumerate())

    def fail(_: object) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        watch(watched.root, watched.syncer, watched.settings, stop=watched.stop, on_sync=fail)
    watched.index.close()
    wait_until(lambda: not set(threading.enumerate()) - before, "all threads have ended")


def test_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Watched(tmp_path) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        watched.put("user/memory.md", "pears")
        watched.until_found("pears")
        shutil.rmtree(watched.path)
        watched.until_told("watch-root")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not LINUX, reason="links need a privilege on some platforms")
def test_a_change_behind_a_link_is_found_under_both_paths(tmp_path: Path) -> None:
    with Watched(tmp_path) as watched:
        watched.put("vault/memory/notes.md", "apples")
        (watched.path / "topic").mkdir()
        os.symlink("../vault/memory", watched.path / "topic/rust")
        watched.started()
        assert watched.scopes() == ["topic/rust", "topic/unfiled"]
        watched.put("vault/memory/notes.md", "pears")
        wait_until(lambda: watched.bodies() == ["pears", "pears"], "both rows are new")
        assert not watched.watching.settled()  # a change may come by a way that nobody watches


@pytest.mark.skipif(not LINUX, reason="links need a privilege on some platforms")
def test_a_link_out_of_the_folder_does_not_keep_other_changes_out(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text(segment("secret"), encoding="utf-8")
    with Watched(tmp_path) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        os.symlink(tmp_path / "secret.md", watched.path / "user/leak.md")
        watched.put("chat/1/memory.md", "pears")
        watched.until_found("pears")
        wait_until(lambda: watched.reports[-1].skipped_links == 1, "the link is reported")
        assert not watched.finds("secret")


def test_steady_writing_does_not_keep_a_change_out(tmp_path: Path) -> None:
    with Watched(tmp_path, settings=faster(watch_debounce_ms=100)) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        busy = threading.Event()

        def write() -> None:
            number = 0
            while not busy.wait(0.01):
                number += 1
                watched.put("chat/1/memory.md", f"text{number}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            watched.put("user/memory.md", "pears")
            assert watched.until_found("pears") < 2
        finally:
            busy.set()
            writer.join()


def test_a_half_written_file_settles_without_a_further_event(tmp_path: Path) -> None:  # K90
    with Watched(tmp_path) as watched:
        path = watched.put("user/memory.md", "apples")
        watched.started()
        path.write_text("---\nkind: fact\ntags: [oops", encoding="utf-8")
        wait_until(lambda: len(watched.reports) > 1, "the sync of the half-written file")
        assert watched.bodies() == ["apples"]
        wait_until(lambda: watched.bodies() != ["apples"], "the tolerant reading holds")
        assert watched.is_right()


def test_the_default_observer_is_the_exact_one_where_there_is_one(tmp_path: Path) -> None:
    made = default_observer(str(tmp_path), Ear())
    assert made.exact is (sys.platform == "linux")
