"""Locks between threads and processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from roots import NOTE, data_of, put

from h2ams.errors import LockTimeoutError, UnsafePathError
from h2ams.files import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root.create(tmp_path / "mem")


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )


@contextmanager
def holder(root: Root, name: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until a line is written to it."""
    script = """
        import sys
        from h2ams.files import Root
        with Root(sys.argv[1]).lock(sys.argv[2]):
            print("held", flush=True)
            sys.stdin.readline()
    """
    with start(script, root.path, name) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def lock_file(root: Root) -> Path:
    (found,) = Path(root.path, ".h2ams", "locks").iterdir()
    return found


def test_k67_a_timeout_names_the_lock_file_and_its_living_holder(root: Root) -> None:
    with holder(root, "sessions/s1") as process:
        with pytest.raises(LockTimeoutError) as caught, root.lock("sessions/s1", timeout_ms=30):
            pass
        assert caught.value.holder == f"pid {process.pid} on {socket.gethostname()}"
        assert caught.value.path == str(lock_file(root))
        assert caught.value.holder in str(caught.value) and str(lock_file(root)) in str(
            caught.value
        )
        with root.lock("sessions/s2", timeout_ms=0):
            pass


def test_k67_a_living_holder_is_waited_for(root: Root) -> None:
    got = threading.Event()

    def wait() -> None:
        with root.lock("user", timeout_ms=60_000):
            got.set()

    with holder(root, "user") as process:
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not got.is_set()
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        waiting.join(timeout=60)
    assert got.is_set()


def test_k67_a_killed_holder_leaves_a_free_lock(root: Root) -> None:
    with holder(root, "user") as process:
        process.kill()
        process.wait(timeout=60)
        with root.lock("user", timeout_ms=1_000):
            pass


@pytest.mark.parametrize(
    "text",
    [b"", b"not_a_pid", b"\0pid 999999999 on here", b"\0pid 1 on elsewhere", b"\xff" * 5_000],
)
def test_k67_what_an_old_lock_file_says_blocks_nobody(root: Root, text: bytes) -> None:
    with root.lock("user"):
        pass
    path = lock_file(root)
    path.write_bytes(text)
    with root.lock("user", timeout_ms=0):
        # Byte 0 says nothing: it is the one that Windows locks.
        holds = f"pid {os.getpid()} on {socket.gethostname()}\n"
        assert path.read_bytes()[1:].decode() == holds
    assert path.exists()
    path.write_bytes(text)
    with holder(root, "user"):
        path.write_bytes(text)
        with pytest.raises(LockTimeoutError) as caught, root.lock("user", timeout_ms=0):
            pass
        assert str(caught.value).isprintable()


def test_the_lock_is_re_entrant_in_one_thread_and_excludes_other_threads(root: Root) -> None:
    refused = []

    def other() -> None:
        try:
            with root.lock("user", timeout_ms=0):
                pass
        except LockTimeoutError as error:
            refused.append(error.holder)

    with root.lock("user"), root.lock("user"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(timeout=60)
    assert refused == [f"pid {os.getpid()} on {socket.gethostname()}"]
    with root.lock("user", timeout_ms=0):
        pass


def test_an_error_inside_releases_the_lock_and_keeps_its_type(root: Root) -> None:
    with pytest.raises(PermissionError), root.lock("user"):
        raise PermissionError
    with holder(root, "user"):
        pass


def test_names_that_are_one_id_share_one_lock_and_others_do_not(root: Root) -> None:
    composed = "sessions/Żółć"
    for name in (composed, unicodedata.normalize("NFD", composed), composed.upper()):
        with root.lock(name):
            pass
    assert lock_file(root).name.startswith("sessions+żółć.")
    for name in ("sessions/a+b", "sessions/a/b", "../../x", "x" * 5_000, "", "a\nb\0\ud800"):
        with root.lock(name):
            pass
    assert len(os.listdir(os.path.join(root.path, ".h2ams", "locks"))) == 7
    assert os.listdir(root.path) == [".h2ams"]


def test_a_lock_file_that_is_a_link_is_refused(root: Root, tmp_path: Path) -> None:
    with root.lock("user"):
        pass
    path = lock_file(root)
    path.unlink()
    path.symlink_to(tmp_path / "lock")
    with pytest.raises(UnsafePathError), root.lock("user"):
        pass
    assert not (tmp_path / "lock").exists()


def test_two_processes_that_write_under_the_lock_lose_no_update(root: Root) -> None:
    put(root, b"")
    script = """
        import sys
        from h2ams.files import Root
        root = Root(sys.argv[1], lock_timeout_ms=60_000)
        for _ in range(25):
            with root.lock("user"):
                state = root.read("user/memory.md")
                root.replace("user/memory.md", state.data + sys.argv[2].encode(), expect=state)
    """
    processes = [start(script, root.path, mark) for mark in "ab"]
    for process in processes:
        with process:
            assert process.wait(timeout=120) == 0
    found = data_of(root, NOTE)
    assert found is not None
    assert (found.count(b"a"), found.count(b"b")) == (25, 25)


@pytest.mark.parametrize(
    ("held", "prefix"),
    [
        ("sessions/s1", "sessions/s1"),
        ("sessions/s1/vp/ada", "sessions/s1"),
        ("sessions/" + "long" * 30 + "/topic/t", "sessions/" + "long" * 30),
        ("sessions/ÉCOLE.一/vp/a", "sessions/École.一"),
        ("chat/c/vp/ada", "chat/"),
    ],
)
def test_waiting_for_holders_waits_for_each_lock_below_a_name(
    root: Root, held: str, prefix: str
) -> None:
    impatient = Root(root.path, lock_timeout_ms=30)
    with holder(root, held):
        with pytest.raises(LockTimeoutError, match="pid"):
            impatient.wait_for_holders(prefix)
        impatient.wait_for_holders("user")
    impatient.wait_for_holders(prefix)
    with impatient.lock(held):
        impatient.wait_for_holders(prefix)  # one's own is no obstacle
