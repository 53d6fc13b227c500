"""kill -9 at random moments of real processes: no byte of another segment is lost, the index heals.

What a call had returned before the kill is in the files; what other segments held is unchanged byte
for byte; the next opening finds an index that a sync makes equal to a rebuild.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from folder import opened, segment_text, write

from h2ams.memory.segment import parse

WORKER = Path(__file__).with_name("engine_worker.py")
KEPT = 12  # segments that no worker touches


def start(root: Path, kind: str, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), str(root), kind, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def kill_after(process: subprocess.Popen[str], seconds: float) -> list[str]:
    """Let it work for a while after its first call returned, kill it; the lines it had printed."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    first = process.stdout.readline().strip()
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
    timer.start()
    with process.stdout:
        lines = [first, *process.stdout.read().splitlines()]
    timer.join()
    assert process.wait() == -signal.SIGKILL
    return lines


def planted(root: Path) -> dict[str, str]:
    """Segments in odd but legal hand-written form, and their raw text by id."""
    for scope in ("user", "sessions/s1", "sessions/s1/vp/ada"):
        file = root / scope / "memory.md"
        texts = [
            segment_text(f"kept{n}", f"Kept text {n}  \n\n---\n\nrule {n}", zeta="x  # comment")
            for n in range(KEPT)
        ]
        write(root, str(file.relative_to(root)), *texts)
    return raw_texts(root, "kept")


def raw_texts(root: Path, prefix: str) -> dict[str, str]:
    found = {}
    for file in sorted(root.glob("**/memory.md")):
        for entry in parse(file.read_bytes()).entries:
            if entry.segment.id.startswith(prefix):
                found[f"{file.parent.relative_to(root)}#{entry.segment.id}"] = entry.raw
    return found


def check_after(root: Path, before: dict[str, str], lines: list[str]) -> None:
    assert raw_texts(root, "kept") == before
    alive: set[str] = set()
    for line in lines:
        kind, _, address = line.partition(" ")
        if kind == "remember":
            alive.add(address)
        elif kind == "forget":
            alive.discard(address)
    present = set(raw_texts(root, "seg_"))
    # The call that was running when the process died may or may not have happened.
    assert len(alive - present) <= 1
    assert not [line for line in lines if not line.strip()]
    with opened(root) as memory:
        memory.sync()
        checked = memory.verify()
        assert checked.ok, checked
        found = {record.address for record in memory.list()}
        assert present <= found


def run_kills(root: Path, kind: str, kills: int, seed: int) -> None:
    before = planted(root)
    source = random.Random(seed)
    said = 0
    for number in range(kills):
        lines = kill_after(start(root, kind, number), source.uniform(0.0, 0.25))
        said += len(lines)
        check_after(root, before, lines)
    assert said > 0, "no call ever returned: nothing was tested"


@pytest.mark.parametrize("kind", ["remember", "edit", "forget", "sync", "rebuild"])
def test_a_kill_loses_nothing_and_the_index_heals(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    run_kills(root, kind, 4, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["remember", "edit", "forget", "sync", "rebuild", "mixed"])
def test_forty_kills_of_each_kind_lose_nothing(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    run_kills(root, kind, 40, seed=2)


def write_many(root: Path, count: int) -> None:
    """Two processes remember at once in one scope; nothing is lost."""
    code = (
        "import sys\n"
        "from h2ams import Memory, Settings\n"
        "with Memory.open(sys.argv[1], settings=Settings(encoding='estimate')) as memory:\n"
        "    for number in range(int(sys.argv[3])):\n"
        "        memory.remember('user', f'process {sys.argv[2]} number {number}')\n"
    )
    root.mkdir()
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(root), name, str(count)])
        for name in ("one", "two")
    ]
    assert [process.wait() for process in running] == [0, 0]
    entries = parse((root / "user/memory.md").read_bytes()).entries
    bodies = {entry.segment.body for entry in entries}
    wanted = {f"process {name} number {n}" for name in ("one", "two") for n in range(count)}
    assert bodies == wanted
    assert len(entries) == 2 * count
    with opened(root) as memory:
        assert len(memory.list("user")) == 2 * count
        assert memory.verify().ok


def test_two_processes_that_remember_at_once_lose_nothing(tmp_path: Path) -> None:
    write_many(tmp_path / "root", 40)


@pytest.mark.long
def test_two_processes_write_five_hundred_segments_each(tmp_path: Path) -> None:
    write_many(tmp_path / "root", 500)


def test_k29_two_processes_that_open_and_write_at_once_are_never_busy(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    code = (
        "import sys, os\n"
        "from h2ams import Memory, Settings\n"
        "for number in range(25):\n"
        "    with Memory.open(sys.argv[1], settings=Settings(encoding='estimate')) as memory:\n"
        "        path = os.path.join(memory.root, 'vp', sys.argv[2], 'memory.md')\n"
        "        os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "        with open(path, 'a') as file:\n"
        "            file.write(f'\\n---\\nid: n{number}\\n---\\nword{number}\\n')\n"
        "        memory.sync()\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(root), name]) for name in "ab"]
    assert [process.wait() for process in running] == [0, 0]
    with opened(root) as memory:
        assert len(memory.list()) == 51
        assert memory.verify().ok


def test_a_worker_needs_no_network_and_no_terminal(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    process = start(root, "remember", 3)
    lines = kill_after(process, 0.3)
    assert all(line.startswith("remember user#") or "sessions/s1" in line for line in lines)
    assert os.path.exists(root / ".h2ams")
