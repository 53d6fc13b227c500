"""doctor: what is wrong is listed, what needs no guess is repaired, twice is once."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest
from folder import opened, segment_text, write

from h2ams import Access, AccessError
from h2ams.memory import segment
from h2ams.memory.scope import parse_scope
from h2ams.upkeep.doctor import with_own_ids


def test_a_second_segment_with_the_same_id_gets_its_own(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first = segment_text("a", "alpha  ", zeta="z # comment")
    file = write(root, "user/memory.md", first, segment_text("a", "beta"), segment_text("b", "g"))
    with opened(root) as memory:
        assert {record.id for record in memory.list()} == {"a", "a~2", "b"}
        found = memory.doctor()
        assert [(p.code, p.path, p.line, p.fixable) for p in found.problems if not p.notice] == [
            ("duplicate-id", "user/memory.md", 8, True)
        ]
        before = file.read_bytes()
        dry = memory.doctor(fix=True, dry_run=True)
        assert file.read_bytes() == before
        assert "+id: seg_" in dry.diff and len(dry.fixed) == 1
        fixed = memory.doctor(fix=True)
        assert len(fixed.fixed) == 1
        assert not [p for p in fixed.problems if not p.notice]
        ids = [record.id for record in memory.list()]
        assert ids[0] == "a" and ids[1].startswith("seg_") and ids[2] == "b"
        assert first.encode() in file.read_bytes()
        assert memory.doctor(fix=True).fixed == ()
        assert memory.verify().ok


def test_an_id_of_the_engine_written_by_hand_is_replaced(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("note_0123456789abcdef", "alpha"))
    with opened(root) as memory:
        assert memory.list()[0].id == "note_0123456789abcdef~2"
        memory.doctor(fix=True)
        assert memory.list()[0].id.startswith("seg_")


def test_an_index_that_differs_is_built_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        connection = apsw.Connection(str(root / ".h2ams/index.db"))
        connection.execute("UPDATE memory_segments SET words = 'zebra'")
        connection.close()
        codes = {problem.code for problem in memory.doctor().problems if not problem.notice}
        assert "index-differs" in codes
        assert [each.code for each in memory.doctor(fix=True).fixed] == ["index-rebuilt"]
        assert memory.verify().ok


def test_what_only_a_person_can_mend_is_listed_with_file_and_line(tmp_path: Path) -> None:
    root = tmp_path / "root"
    broken = "---\nid: [unclosed\nkind: fact\n---\nbody\n"
    write(root, "user/memory.md", segment_text("a", "alpha"), broken)
    write(root, "sessions/bad id!/memory.md", segment_text("x", "beta"))
    with opened(root) as memory:
        found = {(p.code, p.path) for p in memory.doctor(fix=True).problems if not p.notice}
        assert ("invalid-yaml", "user/memory.md") in found
        assert ("invalid-scope-folder", "sessions/bad id!") in found


def test_doctor_is_the_owners(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as memory, pytest.raises(AccessError):
        memory.doctor(access=Access(session="s"))


def parses_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the texts that are parsed from now on."""
    sizes: list[int] = []
    parse = segment.parse

    def counted(data: bytes, **how: object) -> segment.Document:
        sizes.append(len(data))
        return parse(data, **how)

    monkeypatch.setattr(segment, "parse", counted)
    return sizes


@pytest.mark.parametrize("body", ["text {}", "the same text"])
def test_five_thousand_segments_with_one_id_are_repaired_with_one_reading(
    monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    count = 5_000
    data = "\n".join(segment_text("a", body.format(n)) for n in range(count)).encode()
    sizes = parses_of(monkeypatch)
    mended, fixed = with_own_ids(data, parse_scope("user"), "user/memory.md")
    assert len(fixed) == count - 1
    assert sum(size == len(data) for size in sizes) == 1, "the file is read once"
    assert sum(size for size in sizes if size < len(data)) < 3 * len(data)
    ids = [entry.segment.id for entry in segment.parse(mended).entries]
    assert ids[0] == "a" and len(set(ids)) == count
    assert [entry.segment.body for entry in segment.parse(mended).entries] == [
        body.format(n) for n in range(count)
    ]
    assert with_own_ids(mended, parse_scope("user"), "user/memory.md") == (mended, [])


def test_the_diff_of_each_file_is_shown_before_it_is_written(tmp_path: Path) -> None:
    root = tmp_path / "root"
    texts = (segment_text("a", "alpha"), segment_text("a", "beta"))
    files = [write(root, f"{scope}/memory.md", *texts) for scope in ("global", "user")]
    before = files[0].read_bytes()
    seen: list[tuple[str, list[bool]]] = []

    def show(diff: str) -> None:
        seen.append((diff, [file.read_bytes() == before for file in files]))

    with opened(root) as memory:
        report = memory.doctor(fix=True, show=show)
    assert [unchanged for _, unchanged in seen] == [[True, True], [False, True]]
    assert "".join(diff for diff, _ in seen) == report.diff
    assert all(diff.startswith("--- a/") and "+id: seg_" in diff for diff, _ in seen)


def test_a_second_repair_changes_no_byte(tmp_path: Path) -> None:
    root = tmp_path / "root"
    odd = "---\nid: a\nid: b\nkind: fact\n---\nrepeated key\n"
    texts = [segment_text("a", f"text {n % 3}", zeta="z # c") for n in range(9)]
    write(root, "user/memory.md", *texts, odd, segment_text("note_0123456789abcdef", "x"))
    write(root, "user/.memory.md.0123456789abcdef.tmp", "left over")
    with opened(root) as memory:
        assert memory.doctor(fix=True).fixed
        before = {path: path.read_bytes() for path in root.rglob("*.md")}
        again = memory.doctor(fix=True)
        assert (again.fixed, again.diff) == ((), "")
        assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
        assert "repeated-key" in {problem.code for problem in again.problems}


def test_a_segment_that_only_a_person_can_change_stays_on_the_list(tmp_path: Path) -> None:
    root = tmp_path / "root"
    odd = "---\nid: a\nkind: fact\nkind: goal\n---\nrepeated key\n"
    write(root, "user/memory.md", segment_text("a", "x"), segment_text("a", "y"), odd)
    with opened(root) as memory:
        report = memory.doctor(fix=True)
        assert len(report.fixed) == 1
        left = [(each.code, each.line) for each in report.problems if not each.notice]
        assert left == [("duplicate-id", 13), ("repeated-key", 16)]


def test_what_dead_writers_left_is_cleared_and_a_hand_edit_in_it_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "x"))
    write(root, "user/.memory.md.0123456789abcdef.tmp", "nobody's")
    marks = f"{'1' * 16}.{'2' * 16}.{'3' * 16}"
    write(root, f"user/.memory.md.{marks}.swap", "a hand edit")
    with opened(root) as memory:
        assert [each.code for each in memory.doctor().problems if each.fixable] == ["leftover"] * 2
        assert [each.code for each in memory.doctor(fix=True).fixed] == ["cleared"] * 2
    kept = root / f"user/memory (conflicted copy {'1' * 16}).md"
    assert kept.read_text() == "a hand edit"
    assert not list((root / "user").glob(".memory*"))


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_an_open_state_folder_is_reported_and_closed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "x"))
    with opened(root) as memory:
        (root / ".h2ams").chmod(0o755)
        assert [each.code for each in memory.doctor().problems if each.fixable] == ["state-open"]
        assert [each.code for each in memory.doctor(fix=True).fixed] == ["state-closed"]
        assert (root / ".h2ams").stat().st_mode & 0o777 == 0o700
        assert memory.doctor(fix=True).fixed == ()


def test_records_that_cannot_be_read_are_named_and_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with opened(root) as memory:
        memory.remember("sessions/s1", "Deploys run on Friday.")
        memory.context("deploys", access=Access(session="s1"), commit=True)
        memory.dreams.run("sessions/s1", '{"id": "m1", "role": "user", "content": "Remember: go."}')
        memory.forget(memory.remember("user", "Old.").address)
        memory.thread("t1", scope="sessions/s1").append({"role": "user", "content": "Hello."})
        memory.stack("game").close()
        assert not [p for p in memory.doctor().problems if not p.notice]
    state = root / ".h2ams"
    broken = [
        *(state / "dream/marks").iterdir(),
        *(state / "dream/passes").iterdir(),
        *(state / "forgotten").iterdir(),
        *(state / "ams/s1").iterdir(),
        state / "threads.db",
        state / "workflows/game.db",
    ]
    for each in broken:
        for ending in ("-wal", "-shm"):
            each.with_name(each.name + ending).unlink(missing_ok=True)
        each.write_bytes(b"[" * 5_000)
    with opened(root) as memory:
        found = [p for p in memory.doctor().problems if not p.notice]
        assert {p.code for p in found} == {"state-unreadable"}
        assert {p.path for p in found} == {str(each.relative_to(root)) for each in broken}
        memory.doctor(fix=True)
        assert {p.path for p in memory.doctor().problems if not p.notice} == {p.path for p in found}
    assert all(each.read_bytes() == b"[" * 5_000 for each in broken)


def test_an_emptied_file_of_threads_is_named_and_not_begun_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with opened(root) as memory:
        memory.remember("user", "Prefers tabs.")
        memory.thread("t1").append({"role": "user", "content": "Hello."})
    threads = root / ".h2ams/threads.db"
    threads.write_bytes(b"")
    with opened(root) as memory:
        (problem,) = [p for p in memory.doctor(fix=True).problems if not p.notice]
        assert problem.code == "state-unreadable" and "the file is empty" in problem.message
        assert len(memory.recall("tabs").hits) == 1
    assert threads.read_bytes() == b""


def test_what_no_thread_and_no_workflow_made_is_no_problem(tmp_path: Path) -> None:
    with opened(tmp_path / "root") as memory:
        memory.remember("user", "Prefers tabs.")
        assert not [p for p in memory.doctor().problems if not p.notice]
    assert not (tmp_path / "root/.h2ams/threads.db").exists()
