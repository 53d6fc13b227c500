"""tools/fuzz.py in short: every target with some cases, and that a finding would be seen."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from folder import opened, segment_text, write
from surfaces.command_line import REPOSITORY

from h2ams import Access, ScopeError, StoreError, UnsafePathError

TARGETS = {"parse": 60, "edit": 60, "folder": 8, "query": 60, "ids": 40, "state": 8, "journal": 8,
           "config": 20, "command": 25}  # fmt: skip


def fuzz(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, 'tools')\n{before}\nimport fuzz\n"
    start += "sys.exit(fuzz.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", start, *words],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )


def test_every_target_is_run_here() -> None:
    done = subprocess.run(
        [sys.executable, "tools/fuzz.py", "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    listed = done.stdout.partition("{")[2].partition("}")[0]
    assert set(listed.replace("\n", "").replace(" ", "").split(",")) == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_random_bad_input_is_answered_or_refused(target: str) -> None:
    done = fuzz("--target", target, "--cases", str(TARGETS[target]))
    assert done.returncode == 0, done.stdout
    assert f"{TARGETS[target]} cases" in done.stdout and "0 findings" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_much_random_bad_input_is_answered_or_refused(target: str) -> None:
    done = fuzz("--target", target, "--cases", str(TARGETS[target] * 50), "--seed", "1000")
    assert done.returncode == 0, done.stdout


def test_a_finding_is_printed_with_its_input_and_the_command_that_runs_it_again(
    tmp_path: Path,
) -> None:
    broken = (
        "from h2ams.memory import summary\n"
        "def refuse(data, **how):\n    raise KeyError('planted')\n"
        "summary.parse_summary = refuse"
    )
    done = fuzz("--target", "parse", "--cases", "2", "--seed", "7", before=broken)
    assert done.returncode == 1 and "2 findings" in done.stdout
    assert "KeyError: 'planted'" in done.stdout and "data: b" in done.stdout
    assert "again: python tools/fuzz.py --target parse --seed 8 --cases 1" in done.stdout


# -- findings, each with a name --------------------------------------------------------------------


@pytest.mark.parametrize("text", ["🟠", "…", "—", "( ) [ ]"])
def test_a_text_without_any_word_is_in_the_way_of_no_recall(tmp_path: Path, text: str) -> None:
    root = tmp_path / "root"
    write(root, "topic/summaries/note.md", f"{text}\n")
    write(root, "user/memory.md", segment_text("a", text, tags="[summaries]"))
    with opened(root) as memory:
        memory.sync()
        assert {hit.record.scope for hit in memory.recall("summaries").hits} == {
            "topic/summaries",
            "user",
        }
        memory.context("summaries", budget=200)
        (root / "user/memory.md").write_text("", encoding="utf-8")
        assert len(memory.recall("summaries").hits) == 1
        assert memory.verify().ok


def test_an_index_that_lacks_what_a_text_without_words_needs_is_healed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "🟠", tags="[summaries]"))
    with opened(root) as memory:
        memory.sync()
    connection = apsw.Connection(str(root / ".h2ams/index.db"))
    connection.execute("DELETE FROM blocks")
    connection.close()
    with opened(root) as memory:
        assert not memory.verify().ok
        assert [hit.record.id for hit in memory.recall("summaries").hits] == ["a"]
        assert memory.verify().ok


def with_undo_record(root: Path, **changes: object) -> Path:
    """A folder with ``user#b`` forgotten, and ``changes`` in its undo record; the record."""
    write(root, "user/memory.md", segment_text("a", "alpha"), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.forget("user#b")
    (path,) = (root / ".h2ams/forgotten").glob("*.json")
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes), encoding="utf-8")
    return path


@pytest.mark.parametrize("parts", ["", [], {}, None, [{}], "x"])
def test_an_undo_record_without_parts_is_one_clear_error(tmp_path: Path, parts: object) -> None:
    root = tmp_path / "root"
    record = with_undo_record(root, parts=parts)
    with opened(root) as memory:
        with pytest.raises(StoreError, match=r"undo record .* cannot be read") as caught:
            memory.unforget("user#b")
        assert caught.value.hint
        assert record.exists() and [each.id for each in memory.list()] == ["a"]
        memory.forget("user#a")  # others are not kept back by it
        assert memory.unforget("user#a").changed


def test_an_undo_record_of_thousands_of_levels_is_one_clear_error(tmp_path: Path) -> None:
    root = tmp_path / "root"
    record = with_undo_record(root)
    record.write_text("[" * 6_000, encoding="utf-8")
    with opened(root) as memory, pytest.raises(StoreError, match=r"undo record .* cannot be read"):
        memory.unforget("user#b")


@pytest.mark.parametrize("path", ["user/summary.md", "user/note.md", "user/x", "memory.md/.."])
def test_an_undo_record_that_names_another_file_writes_into_none(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    record = with_undo_record(root)
    parts = json.loads(record.read_bytes())["parts"]
    record.unlink()
    (root / "user/memory.md").unlink()
    record = with_undo_record(root, parts=[each | {"path": path} for each in parts])
    before = {each: each.read_bytes() for each in root.rglob("*.md")}
    with opened(root) as memory, pytest.raises(StoreError, match="no file of segments"):
        memory.unforget("user#b")
    assert {each: each.read_bytes() for each in root.rglob("*.md")} == before


def test_an_undo_record_that_names_a_foreign_scope_writes_into_its_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    record = with_undo_record(root)
    value = json.loads(record.read_bytes())
    for part in value["parts"]:
        part["path"] = "vp/bob/memory.md"
    record.write_text(json.dumps(value), encoding="utf-8")
    file = write(root, "vp/bob/memory.md", segment_text("z", "bob's own"))
    before = file.read_bytes()
    with opened(root) as memory:
        memory.unforget("user#b", access=Access(session="s", user="write"))
        assert file.read_bytes() == before
        assert [each.id for each in memory.list("user")] == ["a", "b"]


@pytest.mark.parametrize("path", ["//\0", "/tmp/\0x", "user/\0", "\0"])
def test_a_path_with_a_nul_is_refused_by_sync_whether_absolute_or_not(
    tmp_path: Path, path: str
) -> None:
    with opened(tmp_path / "root") as memory, pytest.raises(UnsafePathError, match="NUL"):
        memory.sync([path])


def test_half_a_surrogate_pair_names_nothing(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    half = "a\ud800b"
    with opened(root) as memory:
        assert memory.sources(half) == () and memory.recall(half).hits == ()
        calls = [memory.get, memory.forget, memory.unforget, lambda text: memory.touch([text])]
        for call in calls:
            with pytest.raises(ScopeError, match="UTF-8"):
                call(f"user#{half}")
        with pytest.raises(UnsafePathError, match="UTF-8"):
            memory.sync([f"user/{half}.md"])
        assert [each.id for each in memory.list()] == ["a"]
