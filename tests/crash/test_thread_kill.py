"""kill -9 at every write of a thread, and two processes that compact one thread, on both stores."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from h2ams.threads.thread_postgres import PostgresThreadStore
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.threads.thread_store import ThreadStore

WORKER = Path(__file__).with_name("thread_worker.py")


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def address(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "threads.db")


def work(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def kills(kind: str, address: str, step: int, offset: int) -> int:
    process = work("kill", kind, address, str(step), str(offset))
    printed, _ = process.communicate()
    assert process.returncode == 0
    return int(printed)


def test_a_kill_at_a_write_leaves_the_old_state_or_the_new(kind: str, address: str) -> None:
    assert kills(kind, address, step=17, offset=3) >= 6


@pytest.mark.long
def test_a_kill_at_every_write_leaves_the_old_state_or_the_new(kind: str, address: str) -> None:
    assert kills(kind, address, step=1, offset=1) >= 120


def compact_at_once(kind: str, address: str, count: int) -> None:
    running = [work("compact", kind, address, "t1", name, str(count)) for name in ("ann", "bob")]
    for process in running:
        process.communicate()
    assert [process.returncode for process in running] == [0, 0]
    store: ThreadStore = (
        PostgresThreadStore(address) if kind == "postgres" else SqliteThreadStore(address)
    )
    rows = store.rows("t1")
    store.close()
    texts = [row.payload["content"].strip() for row in rows if row.kind == "message"]
    said = [each.split(" ")[0] for each in texts]
    assert Counter(said) == {"ann": 2 * count, "bob": 2 * count}
    boundaries = [(row.boundary, row.origin) for row in rows if row.kind == "summary" and row.valid]
    assert len(boundaries) == len(set(boundaries)) > count // 10
    for name in ("ann", "bob"):
        own = [each for each in texts if each.startswith(name)]
        numbers = [int(text.split(" ")[-1]) for text in own]
        assert numbers == sorted(numbers)


def test_two_processes_compact_one_thread_and_each_boundary_has_one_summary(
    kind: str, address: str
) -> None:
    compact_at_once(kind, address, 25)


@pytest.mark.long
def test_two_processes_compact_one_thread_two_hundred_times(kind: str, address: str) -> None:
    compact_at_once(kind, address, 200)
