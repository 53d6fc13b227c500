"""Editors that save in place, truncating the file and writing it anew, lose nothing to the engine.

Real programs: one truncates, writes half, waits, writes the rest; the engine writes meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from folder import opened, segment_text, write

from h2ams import StoreError, lease
from h2ams.files import Root
from h2ams.memory.segment import parse

pytestmark = pytest.mark.skipif(not lease._SUPPORTED, reason="this system has no leases")

SLOW_EDITOR = """
import sys, time
path, pause = sys.argv[1], float(sys.argv[2])
data = sys.stdin.buffer.read()
with open(path, "wb", buffering=0) as file:
    file.write(data[: len(data) // 2])
    print("half", flush=True)
    time.sleep(pause)
    file.write(data[len(data) // 2 :])
"""


def start_editor(path: Path, text: str, pause_s: float) -> subprocess.Popen[bytes]:
    """An editor that has just written the first half of ``text``."""
    command = [sys.executable, "-c", SLOW_EDITOR, str(path), str(pause_s)]
    editor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert editor.stdin is not None and editor.stdout is not None
    with editor.stdin:
        editor.stdin.write(text.encode())
    assert editor.stdout.readline() == b"half\n"
    editor.stdout.close()
    return editor


def ids(path: Path) -> set[str]:
    return {entry.segment.id for entry in parse(path.read_bytes()).entries}


@pytest.mark.parametrize("kind", ["remember", "update", "forget"])
def test_an_edit_waits_until_a_save_in_place_is_complete(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    texts = [segment_text(f"kept{n}", f"text {n}") for n in range(100)]
    file = write(root, "user/memory.md", *texts)
    edited = "\n".join([*texts, segment_text("by-hand", "a hand edit")])
    with opened(root) as memory:
        memory.sync()
        editor = start_editor(file, edited, 0.3)
        if kind == "remember":
            memory.remember("user", "by the agent")
        elif kind == "update":
            memory.update("user#kept99", body="changed by the agent")
        else:
            memory.forget("user#kept99")
        assert editor.wait() == 0
        found = ids(file)
        assert {f"kept{n}" for n in range(99)} <= found
        assert "by-hand" in found
        assert ("kept99" in found) == (kind != "forget")
        assert memory.verify().ok or memory.sync().changed  # the editor's own last write


def test_a_program_that_keeps_the_file_open_for_writing_is_an_error_and_loses_nothing(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("a", "alpha"))
    holder = Root(root)
    state = holder.read("user/memory.md")
    with (
        file.open("ab"),
        pytest.raises(StoreError, match="open for writing"),
        lease.leased(str(file), "user/memory.md", wait_ms=50),
    ):
        raise AssertionError("the lease was given")
    assert holder.replace("user/memory.md", state.data + b"\n", expect=state).size
    assert ids(file) == {"a"}


def test_many_editors_in_place_and_an_agent_lose_no_edit(tmp_path: Path) -> None:
    """An editor process that reads, adds its own line and saves in place, over and over."""
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("first", "alpha"))
    code = (
        "import sys, time\n"
        "path = sys.argv[1]\n"
        "for number in range(40):\n"
        "    with open(path, 'r+b', buffering=0) as file:\n"
        "        data = file.read()\n"
        "        text = f'\\n---\\nid: hand{number}\\nkind: fact\\n---\\nedit {number}\\n'\n"
        "        file.seek(0); file.truncate()\n"
        "        file.write(data); file.write(text.encode())\n"
        "    time.sleep(0.004)\n"
    )
    with opened(root) as memory:
        editor = subprocess.Popen([sys.executable, "-c", code, str(file)])
        added = []
        deadline = time.monotonic() + 60
        while editor.poll() is None and time.monotonic() < deadline:
            added.append(memory.remember("user", f"agent {len(added)}").id)
        assert editor.wait() == 0
        found = ids(file)
        assert {f"hand{n}" for n in range(40)} <= found
        assert set(added) <= found
        memory.sync()
        assert memory.verify().ok
