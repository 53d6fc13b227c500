"""Reported cases of the layer *index*: two processes, no ghosts, no harm from any byte.

The exact inputs of K25, K26 and K95 to K98 stand in tests/index/test_sync.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cases.kit import cli, few, ids, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st
from surfaces.command_line import environment


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K29 -------------------------------------------------------------------------------------------

WORKER = """
import sys
from h2ams import Memory, Settings

name = sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
with Memory.open(sys.argv[1], settings=Settings(encoding="estimate")) as memory:
    for number in range(50):
        memory.list(f"vp/{name}")
        memory.recall("word")
        memory.remember(f"vp/{name}", f"word {name} {number}")
        memory.remember("vp/both", f"word of {name} {number}")
"""


def test_k29_two_processes_that_read_and_write_are_never_busy(root: Path) -> None:
    root.mkdir()
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(root.parent),
            text=True,
        )
        for name in ("a", "b")
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    outputs = []
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    for worker in workers:
        outputs.append(worker.communicate(timeout=120))
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    with opened(root) as memory:
        counts = {scope: len(memory.list(scope)) for scope in ("vp/a", "vp/b", "vp/both")}
        assert counts == {"vp/a": 50, "vp/b": 50, "vp/both": 100}
        assert memory.verify().ok


# -- K25, K96, K97, K98: whatever the order of changes ---------------------------------------------

WORDS = ["alpha", "beta", "zebra"]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "update", "forget", "purge", "unforget"]),
        st.integers(0, 4),
        st.sampled_from(WORDS),
        st.sampled_from(WORDS),
    ),
    max_size=10,
)


@few
@given(changes=CHANGES)
def test_k25_k96_k97_what_was_there_is_found_by_nobody(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[str, int, str, str]]
) -> None:
    with opened(tmp_path_factory.mktemp("changes")) as memory:
        live: dict[str, set[str]] = {}
        gone: list[str] = []
        for what, place, word, tag in changes:
            known = sorted(live)
            if what == "add":
                done = memory.remember("user", f"{word} {len(live)}{place}", tags=[tag])
                live.setdefault(done.address, {word, tag} if done.created else set())
            elif what == "update" and known:
                address = known[place % len(known)]
                memory.update(address, body=f"{word} of {address[-4:]}", tags=[tag])
                live[address] = {word, tag}
            elif what in ("forget", "purge") and known:
                address = known[place % len(known)]
                memory.forget(address, purge=what == "purge")
                gone = [*gone, address] if what == "forget" else gone
                del live[address]
            elif what == "unforget" and gone and gone[-1] not in live:
                record = memory.unforget(gone.pop()).address
                body = memory.get(record)
                live[record] = {body.body.split()[0], *body.tags}
        for word in WORDS:
            wanted = {address for address, words in live.items() if word in words}
            found = {hit.record.address for hit in memory.recall(word, limit=100).hits}
            assert found == wanted
            for limit in range(1, 3):  # no ghost takes a place
                hits = memory.recall(word, limit=limit).hits
                assert len(hits) == min(limit, len(wanted))
        assert memory.verify().ok


@pytest.mark.parametrize(
    "way", ["purge", "forget then purge", "edit by hand", "file removed", "command line"]
)
def test_k98_gone_text_is_in_no_file_of_the_folder(root: Path, way: str) -> None:
    canary = "canaryzebraquartz"
    file = write(root, "user/memory.md", segment_text("a", canary), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        memory.remember("user", f"another {canary} text", tags=[canary])
        for record in memory.list("user"):
            if record.id != "b" and way == "purge":
                memory.forget(record.address, purge=True)
            elif record.id != "b" and way == "forget then purge":
                memory.forget(record.address)
                memory.forget(record.address, purge=True)
        if way == "edit by hand":
            file.write_text(segment_text("b", "beta"))
        elif way == "file removed":
            file.unlink()
        memory.sync()
        addresses = [record.address for record in memory.list("user") if canary in record.body]
    for address in addresses:
        assert cli(root, "forget", address, "--purge").code == 0
    with opened(root) as memory:
        assert ids(memory, canary) == []
        assert memory.verify().ok
    left = [
        path for path in root.rglob("*") if path.is_file() and canary.encode() in path.read_bytes()
    ]
    assert left == []


# -- K95 -------------------------------------------------------------------------------------------


def test_k95_a_run_of_nul_harms_no_other_segment_and_no_byte(root: Path) -> None:
    body = "before-nuls " + "\0" * 10_291 + " after-nuls"
    file = write(root, "user/memory.md", segment_text("n", body))
    write(root, "user/three.md")
    write(root, "vp/a/memory.md", *(segment_text(f"s{n}", f"normal{n}") for n in range(3)))
    data = file.read_bytes()
    with opened(root) as memory:
        memory.sync()
        assert memory.verify().ok
        assert ids(memory, "nuls") == ["n"]
        assert [ids(memory, f"normal{n}") for n in range(3)] == [["s0"], ["s1"], ["s2"]]
        memory.update("vp/a#s1", body="changed")
        memory.rebuild()
        assert memory.verify().ok
    assert file.read_bytes() == data


ODD = st.text(
    st.sampled_from(
        "\0\x01\x1b\x7f\x85\xad\u200b\u200d\u2028\ufeff\ufffd\ufffe\U000e0001\U0010ffff a\"'"
    ),
    min_size=1,
    max_size=30,
)


@few
@given(runs=st.lists(ODD, min_size=1, max_size=4))
def test_k95_no_odd_characters_harm_the_index_or_hide_their_neighbours(
    tmp_path_factory: pytest.TempPathFactory, runs: list[str]
) -> None:
    root = tmp_path_factory.mktemp("odd")
    texts = (segment_text(f"s{n}", f"first{n} {run} last{n}") for n, run in enumerate(runs))
    file = write(root, "sessions/s/memory.md", *texts)
    data = file.read_bytes()
    with opened(root) as memory:
        memory.sync()
        assert memory.verify().ok
        for number in range(len(runs)):
            assert ids(memory, f"first{number}") == ids(memory, f"last{number}") == [f"s{number}"]
        memory.rebuild()
        assert memory.verify().ok
    assert file.read_bytes() == data
