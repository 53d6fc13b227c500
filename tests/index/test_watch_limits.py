"""No room for more watches, or no events at all: files are polled, and that is said."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from index.watch_kit import LINUX, Stubs, Watched, faster, wait_until

from h2ams.index.inotify import InotifyObserver, remote_type, watch_folder
from h2ams.index.observers import Listener, Observer
from h2ams.index.sync import Syncer, SyncReport

only_linux = pytest.mark.skipif(not LINUX, reason="inotify")


def limited(folders: int) -> Callable[[str, Listener], Observer]:
    """Inotify that can watch no more than ``folders``."""
    left = [folders]

    def add_watch(descriptor: int, path: bytes, mask: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return watch_folder(descriptor, path, mask)

    return lambda path, listener: InotifyObserver(path, listener, add_watch=add_watch)


@only_linux
def test_k125_at_the_limit_of_watches_files_are_polled(tmp_path: Path) -> None:
    with Watched(tmp_path, observer=limited(10)) as watched:
        for number in range(20):
            watched.put(f"chat/{number}/memory.md", f"text{number}")
        watched.started()
        assert len(watched.bodies()) == 20
        for number in range(20):
            watched.put(f"chat/{number}/memory.md", f"other{number}")
        assert wait_until(lambda: watched.finds("other19"), "the change is polled") < 2
        ((code, message),) = watched.told
        assert code == "watch-limit"
        assert "fs.inotify.max_user_watches" in message
        assert f"every {watched.settings.watch_poll_ms} ms" in message
        assert watched.watching.troubles == tuple(watched.told)
        assert not watched.watching.settled()


@only_linux
def test_a_limit_that_is_met_later_is_told_and_nothing_is_missed(tmp_path: Path) -> None:
    with Watched(tmp_path, observer=limited(10)) as watched:
        watched.put("chat/1/memory.md", "apples")
        watched.started()
        assert not watched.told
        for number in range(20):
            watched.put(f"topic/t{number}/memory.md", f"text{number}")
        watched.until_told("watch-limit")
        watched.put("topic/t19/memory.md", "pears")
        watched.until_found("pears")
        wait_until(watched.is_right, "the index is right")


@only_linux
def test_a_folder_that_becomes_readable_is_watched_from_then_on(tmp_path: Path) -> None:
    readable = False

    def add_watch(descriptor: int, path: bytes, mask: int) -> int:
        if path.endswith(b"chat/1") and not readable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return watch_folder(descriptor, path, mask)

    def observer(path: str, listener: Listener) -> Observer:
        return InotifyObserver(path, listener, add_watch=add_watch)

    with Watched(tmp_path, observer=observer) as watched:
        watched.put("chat/1/deep/note.md", "apples")
        watched.started()
        readable = True
        os.chmod(watched.path / "chat/1", 0o755)
        wait_until(lambda: len(watched.reports) == 2, "the folder is looked at")
        watched.put("chat/1/memory.md", "pears")
        watched.until_found("pears")
        assert not watched.told


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_any_limit_at_the_start_names_the_setting(tmp_path: Path, number: int) -> None:
    with Watched(tmp_path, observer=Stubs(OSError(number, os.strerror(number)))) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        assert "fs.inotify.max_user_watches" in watched.until_told("watch-limit")
        watched.put("user/memory.md", "pears")
        watched.until_found("pears")


def test_where_a_platform_gives_no_events_files_are_polled(tmp_path: Path) -> None:
    stubs = Stubs(OSError(errno.ENOTSUP, "this platform gives no events"))
    with Watched(tmp_path, observer=stubs) as watched:
        watched.put("user/memory.md", "apples")
        watched.put("chat/1/memory.md", "plums")
        watched.started()
        assert "no events" in watched.until_told("watch-no-events")
        os.rename(watched.path / "user/memory.md", watched.path / "user/other.md")
        watched.put("user/memory.md", "pears")
        watched.until_found("pears")
        shutil.rmtree(watched.path / "user")
        watched.until_gone("apples")


def test_a_poll_that_finds_nothing_is_not_reported(tmp_path: Path) -> None:
    polls = 0

    class Counting(Syncer):
        def sync(self, paths: Iterable[str] = (), *, trusted: Iterable[str] = ()) -> SyncReport:
            nonlocal polls
            polls += 1
            return super().sync(paths, trusted=trusted)

    stubs = Stubs(OSError(errno.ENOTSUP, "no events"))
    settings = faster(watch_poll_ms=20)
    with Watched(tmp_path, observer=stubs, syncer=Counting, settings=settings) as watched:
        watched.put("user/memory.md", "apples")
        watched.started()
        wait_until(lambda: polls >= 5, "several polls")
        assert len(watched.reports) == 1


def test_a_root_that_vanishes_while_it_is_polled_loses_no_rows(tmp_path: Path) -> None:
    stubs = Stubs(OSError(errno.ENOTSUP, "no events"))
    with Watched(tmp_path, observer=stubs) as watched:
        watched.put("user/memory.md", "apples")
        watched.put("chat/1/memory.md", "pears")
        watched.started()
        os.rename(watched.path, tmp_path / "away")
        watched.until_told("watch-root")
        os.rename(tmp_path / "away", watched.path)
        wait_until(lambda: "watch-root" not in dict(watched.watching.troubles), "it is over")
        assert watched.bodies() == ["apples", "pears"]
        assert sum(report.deleted for report in watched.reports) == 0


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("36 25 {device} / /mnt rw,relatime shared:1 - nfs4 server:/x rw", "nfs4"),
        ("36 25 {device} / /mnt rw,relatime - fuse.sshfs me@there: rw", "fuse.sshfs"),
        ("36 25 {device} / /mnt rw - ext4 /dev/sda1 rw", ""),
        ("36 25 9999:1 / /mnt rw - nfs4 server:/x rw", ""),
        ("broken", ""),
    ],
)
@only_linux
def test_a_file_system_that_others_change_unseen_is_known_by_its_type(
    tmp_path: Path, line: str, kind: str
) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    text = line.format(device=f"{os.major(device)}:{os.minor(device)}")
    mounts.write_text(f"21 1 0:20 / /proc rw - proc proc rw\n{text}\n", encoding="utf-8")
    assert remote_type(str(tmp_path), str(mounts)) == kind
    assert remote_type(str(tmp_path), str(tmp_path / "none")) == ""
