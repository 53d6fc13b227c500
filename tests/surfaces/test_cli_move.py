"""``import`` and ``export`` as commands: places, exit codes, what stays untouched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from folder import segment_text, write
from surfaces.in_process import Run, runner

from h2ams.upkeep.importers import IN_PLACE

DATA = Path(__file__).resolve().parents[1] / "data/import"


@pytest.fixture
def h2ams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    return runner(tmp_path, monkeypatch, capsys)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("format", IN_PLACE)
def test_a_folder_is_opened_in_place_and_no_byte_of_it_changes(
    tmp_path: Path, h2ams: Run, format: str
) -> None:
    folder = tmp_path / "theirs"
    shutil.copytree(DATA / format, folder)
    before = snapshot(folder)
    dry = h2ams("import", format, str(folder), "--dry-run")
    assert dry.code == 0 and "would open" in dry.out
    assert not (tmp_path / "state").exists()
    for _ in range(2):
        done = h2ams("import", format, str(folder))
        assert done.code == 0, done
        assert "nothing was written into the folder" in done.out
    root = folder / "memory" if format == "claude-code" else folder
    question = {
        "claude-code": "real database",
        "openclaw": "winter berth",
        "obsidian": "deflection",
        "basic-memory": "ranking lexical",
    }[format]
    found = h2ams("--root", str(root), "recall", question)
    assert found.code == 0 and "1. topic/unfiled#note_" in found.out, found
    assert len(list((tmp_path / "state/h2ams").iterdir())) == 1
    assert snapshot(folder) == before
    assert not any(path.name == ".h2ams" for path in folder.rglob("*"))


def test_the_index_of_a_folder_in_place_stays_beside_it_after_a_write(
    tmp_path: Path, h2ams: Run
) -> None:
    folder = tmp_path / "vault"
    shutil.copytree(DATA / "obsidian", folder)
    assert h2ams("import", "obsidian", str(folder)).code == 0
    made = h2ams("--root", str(folder), "remember", "user", "My own text.")
    assert made.code == 0
    address = made.out.strip()
    assert h2ams("--root", str(folder), "forget", address).code == 0
    assert h2ams("--root", str(folder), "forget", address, "--undo").code == 0
    assert not (folder / ".h2ams/index.db").exists()
    assert (tmp_path / "state/h2ams").exists()


def test_records_go_into_the_root_and_partial_success_is_code_1(tmp_path: Path, h2ams: Run) -> None:
    root = tmp_path / "memory"
    root.mkdir()
    done = h2ams("--root", str(root), "import", "mem0", str(DATA / "mem0.json"))
    assert done.code == 0 and done.out.startswith("added 4 segments, 0 are there already\n")
    assert "left out: " in done.err and "no text" in done.err
    again = h2ams("--root", str(root), "import", "mem0", str(DATA / "mem0.json"))
    assert again.out == "added 0 segments, 4 are there already\n"
    other = str(DATA / "other.jsonl")
    partly = h2ams("--root", str(root), "import", "jsonl", other)
    assert partly.code == 1 and "not written: " in partly.err and "nonsense/x" in partly.err


def test_one_thing_is_told_in_the_singular(tmp_path: Path, h2ams: Run) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "one.jsonl").write_text('{"text": "Whole.", "scope": "user"}\n', encoding="utf-8")
    (tmp_path / "vault").mkdir()
    (tmp_path / "vault/a.md").write_text("# A\n\nText.\n", encoding="utf-8")

    def told(*words: str) -> str:
        return h2ams("--root", "memory", *words).out

    assert told("import", "jsonl", "one.jsonl") == (
        "added 1 segment, 0 are there already\n  user  1\n"
    )
    assert told("import", "jsonl", "one.jsonl") == "added 0 segments, 1 is there already\n"
    vault = h2ams("import", "obsidian", "vault").out
    assert "in place: 1 Markdown file\n1 section is indexed in " in vault
    assert "1 segment, 0 sections of notes, 0 summaries in " in told("export", "--output", "o")
    assert told("export", "--folder", "copy") == "copied 1 file to copy\n"
    assert told("sync").startswith("1 file, ")
    assert told("audit").endswith("1 segment in 1 scope: no doubts\n")


@pytest.mark.parametrize("line", ["not json", "[1]", '{"scope": "user"}', '{"text": "No scope."}'])
@pytest.mark.parametrize("others", ["", '{"text": "Whole.", "scope": "user"}\n'])
def test_a_broken_line_is_code_1_however_much_else_was_taken_in(
    tmp_path: Path, h2ams: Run, line: str, others: str
) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "lines.jsonl").write_text(f"{others}{line}\n", encoding="utf-8")
    for again in ("--dry-run", "--verbose", "--verbose"):
        done = h2ams("--root", "memory", "import", "jsonl", "lines.jsonl", again)
        assert done.code == 1 and done.err.count("left out: ") == 1
    told = json.loads(h2ams("--root", "memory", "import", "jsonl", "lines.jsonl", "--json").out)
    assert [each["broken"] for each in told["left_out"]] == [True]
    assert len(told["known"]) == others.count("\n")


def test_what_has_no_place_here_by_design_does_not_fail_an_import(
    tmp_path: Path, h2ams: Run
) -> None:
    (tmp_path / "memory").mkdir()
    lines = [
        '{"text": "Whole.", "scope": "user"}',
        '{"type": "note", "body": "A section.", "scope": "user", "path": "user/a.md"}',
        '{"type": "segment", "id": "x", "body": "Retired.", "scope": "user", "archived": true}',
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for added in (1, 0):
        done = h2ams("--root", "memory", "import", "jsonl", "lines.jsonl")
        assert done.code == 0 and done.out.startswith(f"added {added} ")
        assert done.err.count("left out: ") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["import", "nonsense", "x"],
        ["import", "obsidian", "x", "--scope", "user"],
        ["import", "mem0", str(DATA / "mem0-two-users.json")],
        ["import", "jsonl", str(DATA / "other.jsonl"), "--scope", "../x"],
        ["export", "--folder", "x", "--output", "y"],
        ["export", "--json"],
        ["export", "--folder", "memory/inside"],
        ["export", "--folder", "."],
    ],
)
def test_wrong_calls_are_usage_errors(tmp_path: Path, h2ams: Run, words: list[str]) -> None:
    (tmp_path / "memory").mkdir()
    done = h2ams("--root", str(tmp_path / "memory"), *words)
    assert done.code == 2, done
    assert not list((tmp_path / "memory").rglob("*.md"))


def test_import_in_place_is_the_owners(tmp_path: Path, h2ams: Run) -> None:
    folder = str(DATA / "obsidian")
    done = h2ams("import", "obsidian", folder, "--session", "s")
    assert done.code == 1 and "owner" in done.err
    assert not (tmp_path / "state").exists()


def test_a_folder_copy_holds_the_same_bytes_and_what_the_access_may_read(
    tmp_path: Path, h2ams: Run
) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Mine.\r\n"))
    write(root, "sessions/s/note.md", "# Note\n")
    write(root, "sessions/s/picture.png", "no memory")
    write(root, "sessions/other/memory.md", segment_text("s2", "Not for s."))
    all_ = h2ams("--root", "memory", "export", "--folder", "all")
    assert all_.code == 0 and "copied 3 files" in all_.out
    assert "left out: sessions/s/picture.png" in all_.err
    for path in ("user/memory.md", "sessions/s/note.md", "sessions/other/memory.md"):
        assert (tmp_path / "all" / path).read_bytes() == (root / path).read_bytes()
    some = h2ams("--root", "memory", "export", "--folder", "some", "--session", "s")
    assert some.code == 0
    copied = {path for path in snapshot(tmp_path / "some") if not path.startswith(".h2ams")}
    assert copied == {"user/memory.md", "sessions/s/note.md"}
    again = h2ams("--root", "memory", "export", "--folder", "all")
    assert again.code == 2 and "not empty" in again.err


def test_lines_go_to_standard_output_or_into_a_new_file(tmp_path: Path, h2ams: Run) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Mine."))
    write(root, "sessions/s/memory.md", segment_text("s2", "Ours."))
    printed = h2ams("--root", "memory", "export")
    assert printed.code == 0 and printed.out.count("\n") == 2
    done = h2ams("--root", "memory", "export", "--output", "all.jsonl")
    assert done.out == "2 segments, 0 sections of notes, 0 summaries in all.jsonl\n"
    assert (tmp_path / "all.jsonl").read_text("utf-8") == printed.out
    again = h2ams("--root", "memory", "export", "--output", "all.jsonl")
    assert again.code == 1 and "exists" in again.err
    one = h2ams("--root", "memory", "export", "--scope", "user")
    assert '"id": "s1"' in one.out and "s2" not in one.out
