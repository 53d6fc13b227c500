"""doctor: what is wrong is listed, what needs no guess is repaired, twice is once."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from folder import opened, segment_text, write

from h2ams import Access, AccessError


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
