"""Sync: incremental, never stale, no ghosts, nothing lost to a bad moment."""

from __future__ import annotations

import os
import shutil
import unicodedata
from pathlib import Path

import apsw
import pytest
from folder import PLAIN, ids, opened, segment_text, write

from h2ams import Access, Memory, RootError, Settings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def rows(memory: Memory, sql: str, *bindings: object) -> list[tuple[object, ...]]:
    connection = apsw.Connection(os.path.join(memory.state, "index.db"))
    try:
        return connection.execute(sql, bindings).fetchall()
    finally:
        connection.close()


def test_a_second_sync_changes_nothing(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a1", "alpha"), segment_text("a2", "beta"))
    with opened(root) as memory:
        first = memory.sync()
        assert (first.scanned, first.changed, first.added) == (1, 1, 2)
        before = rows(memory, "SELECT * FROM memory_segments")
        second = memory.sync()
        assert (second.changed, second.added, second.updated, second.deleted) == (0, 0, 0, 0)
        assert rows(memory, "SELECT * FROM memory_segments") == before


def test_only_the_segment_that_differs_is_written(root: Path) -> None:
    file = write(root, "user/memory.md", *(segment_text(f"s{n}", f"body {n}") for n in range(5)))
    with opened(root) as memory:
        memory.sync()
        file.write_text(file.read_text().replace("body 3", "changed 3"))
        report = memory.sync()
        assert (report.changed, report.added, report.updated, report.deleted) == (1, 0, 1, 0)
        assert ids(memory, "changed") == ["s3"]


def test_k22_an_edit_and_a_deletion_reach_the_index(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "old words"))
    with opened(root) as memory:
        memory.sync()
        write(root, "user/memory.md", segment_text("a", "fresh text"))
        memory.sync()
        assert ids(memory, "old") == []
        assert ids(memory, "fresh") == ["a"]
        file.unlink()
        memory.sync()
        assert ids(memory, "fresh") == []
        assert memory.list() == ()


def test_an_edit_of_the_same_size_and_time_is_seen(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        status = file.stat()
        file.write_text(file.read_text().replace("alpha", "gamma"))
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert ids(memory, "gamma") == ["a"]
        assert ids(memory, "alpha") == []


def test_a_recall_sees_a_hand_edit_without_a_sync(root: Path) -> None:
    access = Access(session="s1", vp="ada")
    write(root, "sessions/s1/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        assert ids(memory, "alpha", access=access) == ["a"]
        write(root, "sessions/s1/vp/ada/memory.md", segment_text("b", "alpha beta"))
        write(root, "sessions/s1/topic/new/memory.md", segment_text("c", "alpha gamma"))
        write(root, "user/note.md", "# Alpha\n\nalpha in a note\n")
        assert set(ids(memory, "alpha", access=access)) >= {"a", "b", "c"}
        assert len(ids(memory, "alpha", access=access)) == 4


def test_k25_re_synced_text_leaves_no_full_text_rows(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        for body in ("beta", "beta again"):
            write(root, "user/memory.md", segment_text("a", body))
            memory.sync()
        file.unlink()
        memory.sync()
        assert memory.verify().ok
        assert ids(memory, "alpha") == ids(memory, "beta") == []


def test_k25_a_tampered_row_is_found_by_verify(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        connection = apsw.Connection(os.path.join(memory.state, "index.db"))
        connection.execute("UPDATE memory_segments SET words = 'zebra'")
        connection.close()
        checked = memory.verify()
        assert not checked.ok
        assert checked.digest != checked.rebuild_digest
        memory.rebuild()
        assert memory.verify().ok


def test_k26_a_file_that_shrinks_leaves_no_tail(root: Path) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"word{n}") for n in (1, 2, 3)))
    with opened(root) as memory:
        memory.sync()
        write(root, "user/memory.md", segment_text("s1", "word1"))
        memory.sync()
        assert ids(memory, "word2 word3") == []
        assert rows(memory, "SELECT count(*) FROM memory_segments") == [(1,)]


def test_k89_a_partial_sync_touches_nothing_else(root: Path) -> None:
    write(root, "vp/a/memory.md", segment_text("a", "alpha"))
    write(root, "vp/b/memory.md", segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        before = rows(memory, "SELECT * FROM memory_segments WHERE id = 'b'")
        (root / "vp/b/memory.md").unlink()
        memory.sync(["vp/a/memory.md"])
        assert rows(memory, "SELECT * FROM memory_segments WHERE id = 'b'") == before
        memory.sync(["vp/b"])
        assert rows(memory, "SELECT * FROM memory_segments WHERE id = 'b'") == []


def test_k92_a_move_leaves_no_old_rows_and_a_copy_is_its_own(root: Path) -> None:
    write(root, "chat/1/memory.md", segment_text("a", "alpha"), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        shutil.move(root / "chat/1", root / "chat/2")
        shutil.copytree(root / "chat/2", root / "chat/3")
        memory.sync()
        found = [(record.scope, record.id) for record in memory.list()]
        assert found == [("chat/2", "a"), ("chat/2", "b"), ("chat/3", "a"), ("chat/3", "b")]
        assert memory.verify().ok


def test_k18_a_folder_in_another_unicode_form_is_the_same_scope(root: Path) -> None:
    name = unicodedata.normalize("NFC", "żółć")
    write(root, f"chat/{name}/memory.md", segment_text("a", "alpha"), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        decomposed = root / "chat" / unicodedata.normalize("NFD", name)
        (root / "chat" / name).rename(decomposed)
        file = decomposed / "memory.md"
        file.write_text(file.read_text().replace("beta", "gamma"))
        memory.sync()
        assert [(r.scope, r.id) for r in memory.list()] == [(f"chat/{name}", each) for each in "ab"]
        for form in ("NFC", "NFD"):
            scope = unicodedata.normalize(form, f"chat/{name}")
            assert len(memory.list(scope)) == 2
        assert ids(memory, "gamma") == ["b"]


def test_k21_a_root_that_vanishes_is_an_error_and_deletes_no_row(
    root: Path, tmp_path: Path
) -> None:
    for number in range(5):
        write(root, f"vp/v{number}/memory.md", segment_text("a", f"word{number}"))
    state = tmp_path / "state"
    with opened(root, state=state) as memory:
        memory.sync()
        root.rename(tmp_path / "away")
        with pytest.raises(RootError):
            memory.sync()
        assert not root.exists()
        root.mkdir()  # an unmounted folder: there, but empty
        with pytest.raises(RootError):
            memory.sync()
        root.rmdir()
        (tmp_path / "away").rename(root)
        report = memory.sync()
        assert (report.changed, report.added, report.deleted) == (0, 0, 0)


def test_k90_a_half_written_file_keeps_its_rows_as_stale(root: Path) -> None:
    good = segment_text("a", "alpha words")
    file = write(root, "user/memory.md", good)
    with opened(root) as memory:
        memory.sync()
        file.write_text("---\nid: a\nkind: fa")
        memory.sync()
        (hit,) = memory.recall("alpha").hits
        assert hit.record.stale
        status = memory.status()
        assert not status.index.fresh
        assert [problem.path for problem in status.problems] == ["user/memory.md"]
        assert memory.verify().ok
        file.write_text(good)
        memory.sync()
        (hit,) = memory.recall("alpha").hits
        assert not hit.record.stale
        assert memory.status().index.fresh


def test_half_written_bytes_that_stay_are_read_as_they_are(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha words"))
    with opened(root) as memory:
        now = memory._syncer.clock_ns()
        memory._syncer.clock_ns = lambda: now
        memory.sync()
        file.write_text("---\nid: a\nomega never ends")
        memory.sync()
        assert ids(memory, "omega") == []
        now += 3_000_000_000
        memory.sync()
        assert ids(memory, "alpha") == []
        assert ids(memory, "omega") != []
        assert memory.verify().ok


def test_k45_the_gap_of_a_backup_and_rename_save_loses_no_row(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha words"))
    with opened(root) as memory:
        memory.sync()
        file.rename(root / "user/memory.md~")
        memory.sync()
        (hit,) = memory.recall("alpha").hits
        assert hit.record.stale
        write(root, "user/memory.md", segment_text("a", "omega words"))
        (root / "user/memory.md~").unlink()
        assert ids(memory, "omega") == ["a"]
        assert ids(memory, "alpha") == []


def test_k94_a_file_over_the_limit_is_reported_and_the_others_are_read(root: Path) -> None:
    write(root, "user/memory.md", "x" * 20_000)
    write(root, "vp/a/memory.md", segment_text("a", "alpha"))
    with opened(root, settings=Settings(encoding="estimate", max_file_bytes=10_000)) as memory:
        report = memory.sync()
        assert [(p.code, p.path) for p in report.errors] == [("file-too-large", "user/memory.md")]
        assert ids(memory, "alpha") == ["a"]


def test_k95_a_long_run_of_nul_harms_nothing(root: Path) -> None:
    body = "before-nuls " + "\0" * 10_291 + " after-nuls"
    file = write(root, "user/memory.md", segment_text("n", body))
    data = file.read_bytes()
    write(root, "vp/a/memory.md", *(segment_text(f"s{n}", f"normal{n}") for n in range(3)))
    with opened(root) as memory:
        memory.sync()
        assert memory.verify().ok
        assert ids(memory, "nuls") == ["n"]
        assert [ids(memory, f"normal{n}") for n in range(3)] == [["s0"], ["s1"], ["s2"]]
    assert file.read_bytes() == data


def test_k96_tag_words_do_not_survive_and_reads_write_nothing(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha", tags="[zebra]"))
    write(root, "vp/a/memory.md", segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        assert ids(memory, "zebra") == ["a"]
        file.unlink()
        memory.sync()
        assert ids(memory, "zebra") == []
        before = rows(memory, "PRAGMA data_version"), (Path(memory.state) / "index.db").read_bytes()
        changes = memory._index.connection.total_changes()
        for _ in range(100):
            memory.recall("beta")
        assert memory._index.connection.total_changes() == changes
        assert (Path(memory.state) / "index.db").read_bytes() == before[1]


def test_k97_a_deleted_segment_takes_no_place_in_the_result(root: Path) -> None:
    write(root, "user/memory.md", segment_text("s1", "jwt jwt"), segment_text("s2", "about jwt"))
    with opened(root) as memory:
        assert ids(memory, "jwt", limit=1) == ["s1"]
        memory.forget("user#s1")
        assert ids(memory, "jwt", limit=1) == ["s2"]


def test_k98_purged_text_is_gone_from_the_database_files(root: Path) -> None:
    secret = b"canaryzebraquartz"
    write(root, "user/memory.md", segment_text("a", secret.decode()), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        assert any(secret in file.read_bytes() for file in Path(memory.state).glob("index.db*"))
        memory.forget("user#a", purge=True)
        left = [p for p in root.rglob("*") if p.is_file() and secret in p.read_bytes()]
        assert left == []
        assert ids(memory, "beta") == ["b"]


def test_k121_zero_hits_start_no_rebuild(root: Path) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"body number {n}") for n in range(300)))
    with opened(root) as memory:
        memory.sync()
        changes = memory._index.connection.total_changes()
        assert ids(memory, "zzqqxx") == []
        assert memory._index.connection.total_changes() == changes


def test_a_damaged_index_is_set_aside_and_built_anew(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        path = Path(memory.state) / "index.db"
    path.write_bytes(b"this is no database" * 500)
    with opened(root) as memory:
        assert ids(memory, "alpha") == ["a"]
        assert [note.code for note in memory.recall("alpha").degraded] == ["index-rebuilt"]
        assert memory.verify().ok


@pytest.mark.parametrize("page", range(24))
def test_a_page_of_noise_never_stops_a_recall(root: Path, page: int) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"alpha {n} words") for n in range(60)))
    with opened(root) as memory:
        memory.sync()
        memory._index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path = Path(memory.state) / "index.db"
    data = bytearray(path.read_bytes())
    if page * 4096 >= len(data):
        return
    data[page * 4096 : (page + 1) * 4096] = bytes(range(256)) * 16
    path.write_bytes(bytes(data))
    with opened(root) as memory:
        memory.recall("alpha")
        memory.rebuild()
        assert len(ids(memory, "alpha", limit=100)) == 60
        assert memory.verify().ok


def test_another_encoding_builds_the_index_anew(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha beta gamma"))
    with opened(root) as memory:
        memory.sync()
    with opened(root, settings=Settings()) as memory:
        assert ids(memory, "alpha") == ["a"]
        assert "index-version" in [note.code for note in memory.recall("alpha").degraded]


def test_index_files_are_the_owners_alone(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        state = Path(memory.state)
        assert state.stat().st_mode & 0o777 == 0o700
        modes = {file.name: file.stat().st_mode & 0o777 for file in state.glob("index.db*")}
        assert set(modes.values()) == {0o600}


def test_k76_fields_do_not_run_into_each_other(root: Path) -> None:
    write(root, "sessions/s-abc/memory.md", segment_text("x", "x", tags="[debug]"))
    write(root, "sessions/s-ab/memory.md", segment_text("x", "x", tags="[cdebug]"))
    with opened(root) as memory:
        memory.sync()
        digests = rows(memory, "SELECT DISTINCT row_digest FROM memory_segments")
        assert len(digests) == 2


def test_the_union_of_layouts_is_one_scope_and_the_newer_wins(root: Path) -> None:
    old = segment_text("a", "old words", updatedAt="2026-01-01T00:00:00Z")
    new = segment_text("a", "new words", updatedAt="2026-02-01T00:00:00Z")
    write(root, "sessions/s/memory.md", old)
    write(root, "group/s/memory.md", new, segment_text("b", "only here"))
    with opened(root) as memory:
        memory.sync()
        assert [(r.scope, r.id, r.path) for r in memory.list()] == [
            ("sessions/s", "a", "group/s/memory.md"),
            ("sessions/s", "b", "group/s/memory.md"),
        ]
        assert ids(memory, "old") == []
        codes = [problem.code for problem in memory.status().problems]
        assert codes == ["duplicate-across-layouts"]
        (root / "group/s/memory.md").unlink()
        assert ids(memory, "old") == ["a"]
        assert memory.verify().ok


def test_rebuild_and_sync_agree_on_everything_but_places(root: Path) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"word{n} alpha") for n in range(20)))
    write(root, "sessions/s/note.md", "# One\n\nalpha\n\n# Two\n\nbeta\n")
    with opened(root) as memory:
        memory.sync()
        one = memory.recall("alpha", limit=50).hits
        memory.rebuild()
        assert memory.recall("alpha", limit=50).hits == one


def test_settings_of_tests_need_no_encoder() -> None:
    assert PLAIN.encoding == "estimate"
