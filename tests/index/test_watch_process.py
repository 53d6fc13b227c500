"""A watch as a process of its own: signals, a real overflow, a real limit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from index.watch_kit import LINUX, PATIENCE_S, Watched, segment, wait_until
from surfaces.command_line import PROGRAM, environment

only_linux = pytest.mark.skipif(not LINUX, reason="signals and limits of Linux")

# Runs a watch until SIGTERM, then prints what it was told. Argument: the folder.
WORKER = """
import json, signal, sys, threading
from h2ams.files import Root
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer
from h2ams.index.watch import watch
from h2ams.settings import Settings

stop, told = threading.Event(), []
signal.signal(signal.SIGTERM, lambda *_: stop.set())
root, settings = Root(sys.argv[1]), Settings(encoding="estimate", watch_poll_ms=150)
syncer = Syncer(root, Index(root.state_path("index.db"), encoding="estimate"), settings, count=len)
watch(root, syncer, settings, stop=stop, report=lambda *words: told.append(words))
print(json.dumps(told))
"""


@contextmanager
def running(*command: str, base: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=environment(base),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What the process printed when it was asked to end; it has a second for that."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - started < 1
    assert process.returncode == 0, err
    return out, err


def is_stopped(pid: int) -> bool:
    """Whether every thread of a process has stopped."""
    states = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(
        each.read_text(encoding="ascii").rpartition(")")[2].split()[0] == "T" for each in states
    )


def written(watched: Watched, count: int, word: str) -> None:
    for number in range(count):
        watched.put(f"chat/{number}/memory.md", f"{word}{number}")


@only_linux
def test_the_command_ends_at_once_on_sigterm_with_one_document(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    written(watched, 3, "text")
    words = ("watch", "--json", "--root", str(watched.path), "--set", "encoding=estimate")
    with running(sys.executable, "-c", PROGRAM, *words, base=tmp_path) as process:
        wait_until(lambda: len(watched.bodies()) == 3, "the first sync", 20)
        written(watched, 4, "other")
        watched.until_found("other3")
        out, err = ended(process)
    document = json.loads(out)
    assert document["added"] == 7
    assert "Traceback" not in err
    assert watched.is_right()
    watched.index.close()


@only_linux
def test_changes_that_the_kernel_dropped_are_found_all_the_same(tmp_path: Path) -> None:  # K46
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))
    if limit > 50_000:
        pytest.skip(f"it takes {limit} events to overflow the queue here")
    watched = Watched(tmp_path)
    written(watched, 100, "text")
    with running(sys.executable, "-c", WORKER, str(watched.path), base=tmp_path) as process:
        wait_until(lambda: len(watched.bodies()) == 100, "the first sync", 20)
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_stopped(process.pid), "it reads no events any more", 20)
        files = [watched.path / f"chat/{number}/memory.md" for number in (0, 1)]
        for number in range(limit + 100):  # two in turn: the kernel merges equal neighbours
            os.utime(files[number % 2])
        written(watched, 100, "other")  # these events are lost
        process.send_signal(signal.SIGCONT)
        watched.until_found("other99")
        wait_until(watched.is_right, "the index equals a fresh build")
        out, err = ended(process)
    assert [code for code, _ in json.loads(out)] == ["watch-overflow"]
    assert err == ""
    watched.index.close()


@only_linux
def test_a_real_limit_on_watches_ends_in_polling(tmp_path: Path) -> None:  # K125
    script = 'echo 10 > /proc/sys/user/max_inotify_watches && exec "$@"'
    limited = ("unshare", "--user", "--map-root-user", "sh", "-c", script, "sh")
    if not shutil.which("unshare") or subprocess.run((*limited, "true"), check=False).returncode:
        pytest.skip("this user may not make a name space of its own")
    watched = Watched(tmp_path)
    written(watched, 30, "text")
    command = (*limited, sys.executable, "-c", WORKER, str(watched.path))
    with running(*command, base=tmp_path) as process:
        wait_until(lambda: len(watched.bodies()) == 30, "the first sync", 20)
        written(watched, 30, "other")
        watched.until_found("other29")
        out, err = ended(process)
    ((code, message),) = json.loads(out)
    assert code == "watch-limit"
    assert "fs.inotify.max_user_watches" in message
    assert err == ""
    watched.index.close()


@only_linux
def test_a_watch_that_is_killed_leaves_an_index_that_the_next_one_completes(
    tmp_path: Path,
) -> None:
    watched = Watched(tmp_path)
    written(watched, 300, "text")
    with running(sys.executable, "-c", WORKER, str(watched.path), base=tmp_path) as process:
        wait_until(lambda: os.path.exists(watched.index.path), "the index is made", 20)
        process.kill()
        process.wait()
    watched.put("chat/7/memory.md", "pears")
    with watched.started():
        assert watched.is_right()
        assert watched.finds("pears")
        (watched.path / "chat/7/memory.md").write_text(segment("plums"), encoding="utf-8")
        watched.until_found("plums")
