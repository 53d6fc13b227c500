"""Reported cases of the layer *sync*: partial failures stay partial, nothing is taken for deleted.

The exact inputs of most cases stand in tests/index/test_sync.py; here are those that need another
user or the real sizes, and what the cases are examples of.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path

import pytest
from cases.kit import (
    cli,
    document,
    few,
    ids,
    mode,
    opened,
    segment_text,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Memory, RootError
from h2ams.surfaces.cli import main

modes = pytest.mark.skipif(
    os.name == "nt" or (os.geteuid() == 0 and sys.platform != "linux"),
    reason="modes that hold for the user who runs the tests",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K20 -------------------------------------------------------------------------------------------


@modes
def test_k20_what_cannot_be_read_is_listed_and_the_rest_is_indexed(root: Path) -> None:
    for number in range(10):
        write(root, f"sessions/s{number}/memory.md", segment_text("a", f"word{number}"))
    closed = root / "sessions/s2/memory.md", root / "sessions/s7"
    with mode(closed[0], 0), mode(closed[1], 0):
        first = cli(root, "sync", "--json", unprivileged=True)
        report = document(first)
        assert first.code == 1 and report["added"] == 8
        messages = {each["path"]: each["message"] for each in report["errors"]}
        assert set(messages) == {"sessions/s2/memory.md", "sessions/s7"}
        assert all("ermission denied" in each for each in messages.values())
        plain = cli(root, "sync", unprivileged=True)
        assert plain.code == 1
        assert "sessions/s2/memory.md" in plain.err and "sessions/s7" in plain.err
    assert cli(root, "sync").code == 0
    # Once indexed, what becomes unreadable keeps its rows.
    with mode(closed[0], 0), mode(closed[1], 0):
        done = cli(root, "sync", "--json", unprivileged=True)
        assert (done.code, document(done)["deleted"]) == (1, 0)
        hits = document(cli(root, "recall", "word2 word7 word3", "--json", unprivileged=True))[
            "hits"
        ]
        stale = {hit["scope"]: hit["stale"] for hit in hits}
        assert stale == {"sessions/s2": True, "sessions/s7": True, "sessions/s3": False}


# -- K21 -------------------------------------------------------------------------------------------


def counts(report: dict[str, int]) -> list[int]:
    return [report[name] for name in ("changed", "added", "updated", "deleted")]


@modes
def test_k21_an_unreadable_or_missing_root_is_an_error_and_deletes_nothing(
    root: Path, tmp_path: Path
) -> None:
    for number in range(5):
        texts = (segment_text(f"a{n}", f"word{n} scope{number}") for n in range(10))
        write(root, f"vp/v{number}/memory.md", *texts)
    how = {"env": {"H2AMS_STATE_DIR": str(tmp_path / "state")}, "unprivileged": True}
    assert document(cli(root, "sync", "--json", **how))["added"] == 50
    with mode(root, 0):
        done = cli(root, "sync", "--json", **how)
        error = document(done)["error"]
        assert done.code != 0
        assert str(root) in error["message"] and "denied" in error["message"].lower()
    assert counts(document(cli(root, "sync", "--json", **how))) == [0, 0, 0, 0]
    root.rename(tmp_path / "away")
    assert cli(root, "sync", "--json", **how).code == 1
    assert not root.exists()
    (tmp_path / "away").rename(root)
    assert counts(document(cli(root, "sync", "--json", **how))) == [0, 0, 0, 0]
    assert len(document(cli(root, "list", "--json", **how))["segments"]) == 50


COMMANDS = ["sync", "recall x", "list", "status", "verify", "rebuild", "doctor", "context x"]
COMMANDS += ["forget user#x", "show user#x", "edit user#x --body y", "sources m", "config"]


@pytest.mark.parametrize("command", COMMANDS)
def test_k21_no_command_makes_a_missing_root(
    root: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code = main([*command.split(), "--root", str(root), "--json"])
    printed = capsys.readouterr()
    assert not root.exists()
    if command != "config":  # settings are the same whether the folder is there or not
        assert code == 1 and json.loads(printed.out)["error"]["code"] == "root"
        assert str(root) in printed.err
    assert main(["remember", "user", "text", "--root", str(root)]) == 0
    assert root.is_dir()


# -- K22, K26, K89, K92: any edits, any paths ------------------------------------------------------

FILES = [f"{scope}/memory.md" for scope in ("user", "chat/1", "chat/2", "sessions/s/topic/t")]
FILES += ["sessions/s/note.md"]
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "remove", "move", "copy", "sync", "sync one", "recall"]),
        st.sampled_from(FILES),
        st.sampled_from(FILES),
        st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, max_size=3),
    ),
    max_size=8,
)


@few
@given(edits=EDITS)
def test_k22_k26_k89_k92_after_any_edits_recall_finds_what_the_files_say(
    tmp_path_factory: pytest.TempPathFactory, edits: list[tuple[str, str, str, list[str]]]
) -> None:
    root = tmp_path_factory.mktemp("edits")
    write(root, "global/memory.md", segment_text("stays", "omega"))
    with opened(root) as memory:
        for what, path, other, words in edits:
            file, second = root / path, root / other
            if what == "write":
                texts = (segment_text(f"s{n}", word) for n, word in enumerate(words))
                write(root, path, *texts)
            elif what == "remove":
                file.unlink(missing_ok=True)
            elif what in ("move", "copy") and file.exists() and path != other:
                second.parent.mkdir(parents=True, exist_ok=True)
                (shutil.move if what == "move" else shutil.copyfile)(file, second)
            elif what == "sync":
                memory.sync()
            elif what == "sync one":
                memory.sync([path])
            else:
                memory.recall("alpha")
        memory.sync()
        again = memory.sync()
        assert (again.changed, again.deleted) == (0, 0)
        for word in ("alpha", "beta", "gamma", "delta", "omega"):
            found = {hit.record.path for hit in memory.recall(word, limit=100).hits}
            real = [p for p in root.rglob("*.md") if word in p.read_text()]
            assert found == {path.relative_to(root).as_posix() for path in real}
        assert memory.verify().ok


def test_k92_a_deleted_note_never_comes_back(root: Path) -> None:
    note = write(root, "chat/1/note.md", "# Alpha\n\nalpha\n")
    with opened(root) as memory:
        memory.sync()
        note.unlink()
        memory.sync()
        write(root, "chat/2/note.md", "# Alpha\n\nalpha\n")
        memory.sync()
        memory.rebuild()
        (hit,) = memory.recall("alpha").hits
        assert hit.record.scope == "chat/2"
        assert not hit.record.id.endswith("-1")


# -- K90 -------------------------------------------------------------------------------------------

GOOD = segment_text("S1", "alpha words", tags="[x]", updatedAt="2026-01-01T00:00:00Z")


# From behind the opening line to before the closing one: less is text without a header, more is
# a whole header with a shorter body; neither is half-written for sure.
@pytest.mark.parametrize("cut", range(4, GOOD.rindex("---")))
def test_k90_a_file_cut_at_any_place_of_its_header_keeps_its_segment(root: Path, cut: int) -> None:
    file = write(root, "user/memory.md", GOOD)
    with opened(root) as memory:
        memory.sync()
        file.write_text(GOOD[:cut])
        memory.sync()
        (hit,) = memory.recall("alpha").hits
        assert (hit.record.id, hit.record.stale) == ("S1", True)
        assert "user/memory.md" in {problem.path for problem in memory.status().problems}
        file.write_text(GOOD)
        memory.sync()
        (hit,) = memory.recall("alpha").hits
        assert not hit.record.stale
        assert memory.status().problems == ()


# -- K94 -------------------------------------------------------------------------------------------


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("size", [20_000_000, 7_900_000], ids=["over", "within the limit"])
def test_k94_one_huge_line_stops_nothing(root: Path, size: int) -> None:
    file = write(root, "user/memory.md")
    file.write_bytes(b"word and more " * (size // 14))
    write(root, "vp/a/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync(["vp"])
        before, started = peak_kib(), time.process_time()
        report = memory.sync()
        assert ids(memory, "alpha") == ["a"]
        assert time.process_time() - started < 5
        assert peak_kib() - before < 200 * 1024
        codes = [each.code for each in report.errors]
        assert codes == (["file-too-large"] if size > memory.settings.max_file_bytes else [])
        assert [record.over_limit for record in memory.list("user")] == [True][: not codes]
        assert memory.sync().changed == 0


def test_k21_a_root_that_is_a_file_is_no_folder(root: Path) -> None:
    root.write_text("a file")
    with pytest.raises(RootError):
        Memory.open(root)
    assert cli(root, "recall", "x").code == 1
    assert root.read_text() == "a file"
