"""Reported cases of the layer *sync*: partial failures stay partial, nothing is taken for deleted.

The exact inputs of most cases stand in tests/index/test_sync.py; here are those that need another
user or the real sizes, and what the cases are examples of.
"""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import pytest
from cases.kit import (
    cli,
    cli_ids,
    document,
    few,
    give_away,
    ids,
    mode,
    opened,
    segment_text,
    unprivileged,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from h2ams import RootError, Settings

posix = pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K20 ------------------------------------------------------------------------------------------


@posix
def test_k20_what_cannot_be_read_is_listed_and_the_rest_is_indexed(tmp_path: Path) -> None:
    with unprivileged(tmp_path) as (folder, who):
        root = folder / "memory"
        for number in range(10):
            write(root, f"sessions/s{number}/memory.md", segment_text("a", f"word{number}"))
        give_away(folder)
        closed = root / "sessions/s2/memory.md", root / "sessions/s7"
        with mode(closed[0], 0), mode(closed[1], 0):
            first = cli(root, "sync", "--json", **who)
            report = document(first)
            assert first.code == 1 and report["added"] == 8
            messages = {each["path"]: each["message"] for each in report["errors"]}
            assert set(messages) == {"sessions/s2/memory.md", "sessions/s7"}
            assert all("EACCES" in each or "ermission denied" in each for each in messages.values())
            plain = cli(root, "sync", **who)
            assert plain.code == 1
            assert "sessions/s2/memory.md" in plain.err and "sessions/s7" in plain.err
        assert cli(root, "sync", **who).code == 0
        # Once indexed, what becomes unreadable keeps its rows.
        with mode(closed[0], 0), mode(closed[1], 0):
            done = cli(root, "sync", "--json", **who)
            assert (done.code, document(done)["deleted"]) == (1, 0)
            hits = document(cli(root, "recall", "word2 word7 word3", "--json", **who))["hits"]
            stale = {hit["scope"]: hit["stale"] for hit in hits}
            assert stale == {"sessions/s2": True, "sessions/s7": True, "sessions/s3": False}


# -- K21 ------------------------------------------------------------------------------------------


@posix
def test_k21_an_unreadable_root_is_an_error_and_deletes_nothing(tmp_path: Path) -> None:
    with unprivileged(tmp_path) as (folder, who):
        root, state = folder / "memory", folder / "state"
        for number in range(5):
            texts = (segment_text(f"a{n}", f"word{n} scope{number}") for n in range(10))
            write(root, f"vp/v{number}/memory.md", *texts)
        give_away(folder)
        how = {"env": {"H2AMS_STATE_DIR": str(state)}, **who}
        assert document(cli(root, "sync", "--json", **how))["added"] == 50
        with mode(root, 0):
            done = cli(root, "sync", "--json", **how)
            error = document(done)["error"]
            assert (done.code, error["code"]) == (1, "root")
            assert str(root) in error["message"] and "denied" in error["message"].lower()
        report = document(cli(root, "sync", "--json", **how))
        counts = [report[name] for name in ("changed", "added", "updated", "deleted")]
        assert counts == [0, 0, 0, 0]
        root.rename(folder / "away")
        assert cli(root, "sync", "--json", **how).code == 1
        assert not root.exists()
        (folder / "away").rename(root)
        report = document(cli(root, "sync", "--json", **how))
        counts = [report[name] for name in ("changed", "added", "updated", "deleted")]
        assert counts == [0, 0, 0, 0]
        assert len(document(cli(root, "list", "--json", **how))["segments"]) == 50


def test_k21_no_command_but_init_and_remember_makes_a_missing_root(tmp_path: Path) -> None:
    root = tmp_path / "missing"
    for words in (["sync"], ["recall", "x"], ["list"], ["status"], ["verify"], ["rebuild"],
                  ["doctor"], ["context", "x"], ["forget", "user#x"], ["show", "user#x"]):  # fmt: skip
        done = cli(root, *words, "--json")
        assert done.code == 1 and document(done)["error"]["code"] == "root", (words, done)
        assert not root.exists(), words
    assert cli(root, "remember", "user", "text").code == 0
    assert root.is_dir()


# -- K22, K26, K89, K92: any edits, any paths -------------------------------------------------------

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


# -- K90 ------------------------------------------------------------------------------------------

GOOD = segment_text("S1", "alpha words", tags="[x]", updatedAt="2026-01-01T00:00:00Z")


@pytest.mark.parametrize("cut", range(1, GOOD.index("alpha")))
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


# -- K94 ------------------------------------------------------------------------------------------


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("settings", [{}, {"max_file_bytes": 64 << 20}], ids=["default", "raised"])
def test_k94_one_line_of_twenty_megabytes_stops_nothing(
    root: Path, settings: dict[str, int]
) -> None:
    file = write(root, "user/memory.md")
    file.write_bytes(b"word and more " * (20_000_000 // 14))
    write(root, "vp/a/memory.md", segment_text("a", "alpha"))
    with opened(root, settings=Settings(encoding="estimate", **settings)) as memory:
        before, started = peak_kib(), time.process_time()
        report = memory.sync()
        assert ids(memory, "alpha") == ["a"]
        if not settings:
            assert [each.code for each in report.errors] == ["file-too-large"]
            assert time.process_time() - started < 5
            assert peak_kib() - before < 200 * 1024
        else:
            (record,) = memory.list("user")
            assert record.over_limit
        assert memory.sync().changed == 0


def test_k21_a_root_that_is_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file")
    with pytest.raises(RootError), opened(tmp_path / "memory") as memory:
        memory.sync()
    assert cli_ids(tmp_path, "x") == []
