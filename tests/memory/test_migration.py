"""Historical folders into the canonical layout: counted, compared, set aside, never half."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from folder import ids, write
from folder import opened as opened_anew
from memory.lifecycle_kit import holding, leftovers, plant, segment, tree

from h2ams import Memory, NotFoundError
from h2ams.memory.layout import Role
from h2ams.memory.migration_plan import decide
from h2ams.memory.segment import parse
from h2ams.settings import DEFAULTS

LEGACY = Path(__file__).resolve().parents[1] / "data" / "legacy"
OLDER, NEWER = "2026-01-01T00:00:00Z", "2026-06-01T00:00:00Z"


@contextmanager
def opened(root: Path) -> Iterator[Memory]:
    """The engine on ``root`` with an index that is up to date."""
    with opened_anew(root) as memory:
        memory.sync()
        yield memory


def read_by_address(memory: Memory) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    return {each.address: (each.body, each.kind, each.tags) for each in memory.list()}


def checked(memory: Memory) -> None:
    verification = memory.verify()
    assert verification.ok, verification
    assert leftovers(Path(memory.root)) == []


def is_canonical(root: Path) -> bool:
    return not any((root / name).exists() for name in ("group", "session", "groups", "chats"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    plant(tmp_path / "memory")
    return tmp_path / "memory"


def test_every_segment_has_its_address_and_text_afterwards(root: Path) -> None:
    with opened(root) as memory:
        before = read_by_address(memory)
        changes = memory.scopes.migrate()
        assert [change.scope for change in changes] == ["sessions/s1"]
        assert changes[0].failed == () and changes[0].changed
        assert changes[0].segments_before == changes[0].segments_after == 10
        assert is_canonical(root)
        assert read_by_address(memory) == before
        for old in ("group/s1#g", "session/s1#o", "group/s1/vp/ada#g", "sessions/s1#a"):
            assert memory.get(old).path.startswith("sessions/s1/"), old
        checked(memory)


def test_the_old_folders_are_kept_byte_for_byte_until_they_are_purged(root: Path) -> None:
    old = {p: d for p, d in tree(root).items() if p.startswith(("group/", "session/", "groups/"))}
    with opened(root) as memory:
        memory.scopes.migrate()
        (aside,) = (root / ".h2ams/migrated").iterdir()
        kept = tree(aside)
        assert {path: kept[path] for path in old} == old
        assert set(kept) - set(old) == {"sessions/s1/memory.md", "sessions/s1/vp/ada/memory.md"}
        (purged,) = memory.scopes.migrate(purge=True)
        assert purged.kind == "purge" and len(purged.files) == len(kept)
        assert not (root / ".h2ams/migrated").exists()
        assert memory.scopes.migrate(purge=True) == ()
        checked(memory)


def test_k144_a_second_run_changes_nothing(root: Path) -> None:
    with opened(root) as memory:
        memory.scopes.migrate()
        before = tree(root), sorted((root / ".h2ams/migrated").rglob("*"))
        assert memory.scopes.migrate() == ()
        assert memory.scopes.migrate("s1") == ()
        assert (tree(root), sorted((root / ".h2ams/migrated").rglob("*"))) == before


@pytest.mark.parametrize("name", ["group", "session", "groups", "chats"])
def test_k144_what_is_read_as_historical_is_what_is_moved(tmp_path: Path, name: str) -> None:
    root = tmp_path / "memory"
    if name in ("group", "session"):
        write(root, f"{name}/会话.一/memory.md", segment("a", "alpha", f"{name}/会话.一"))
    write(root, f"{name}/会话.一/ams.json", '{"version": 1, "recentIds": ["a"]}')
    write(root, f"{name}/会话.一/.dream-state", "lastDreamMessageId: m\n")
    home = root / ("chat" if name == "chats" else "sessions") / "会话.一"
    with opened(root) as memory:
        count = len(memory.list())
        (change,) = memory.scopes.migrate()
        assert change.failed == () and change.changed
        assert is_canonical(root)
        assert {p.name for p in home.iterdir()} >= {"ams.json", ".dream-state"}
        assert len(memory.list()) == count
        checked(memory)


def test_k144_an_emptier_folder_never_takes_the_place_of_a_fuller_one(root: Path) -> None:
    """The canonical folder is there and empty; all memory stands in the historical one."""
    shutil.rmtree(root / "sessions/s1")
    write(root, "sessions/s1/memory.md", "")
    write(root, "sessions/s1/summary.md", "  \n")
    write(root, "group/s1/summary.md", "The old summary.\n")
    with opened(root) as memory:
        before = read_by_address(memory)
        assert len([a for a in before if a.startswith("sessions/s1#")]) == 2
        (change,) = memory.scopes.migrate()
        assert change.segments_after == change.segments_before == 3
        assert read_by_address(memory) == before
        assert (root / "sessions/s1/summary.md").read_text() == "The old summary.\n"
        assert is_canonical(root)


def test_k66_of_one_id_in_two_layouts_the_newer_is_used_and_the_other_kept(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(
        root, "sessions/s/memory.md",
        segment("same", "alike", "sessions/s"),
        segment("old", "canonical is older", "sessions/s", OLDER),
        segment("new", "canonical is newer", "sessions/s", NEWER),
    )  # fmt: skip
    write(
        root, "group/s/memory.md",
        segment("new", "historical is older", "group/s", OLDER),
        segment("old", "historical is newer", "group/s", NEWER),
        segment("same", "alike", "group/s"),
        segment("more", "historical alone", "group/s"),
    )  # fmt: skip
    with opened(root) as memory:
        before = read_by_address(memory)
        assert before["sessions/s#old"][0] == "historical is newer"
        (planned,) = memory.scopes.migrate(dry_run=True)
        (change,) = memory.scopes.migrate()
        assert planned.kept == change.kept
        assert [line.split(" ")[1] for line in change.kept] == ["new", "old"]
        assert read_by_address(memory) == before
        assert (change.segments_before, change.segments_after) == (4, 4)
        for text in ("canonical is older", "historical is older"):
            places = [p for p in holding(root, text) if "index.db" not in p]
            assert places and all(p.startswith(".h2ams/migrated/") for p in places)
        checked(memory)


def test_text_between_segments_and_odd_forms_survive(tmp_path: Path) -> None:
    """No header, duplicate ids, CRLF, a dream-state tail, an open fence at the end."""
    root = tmp_path / "memory"
    write(root, "sessions/s/memory.md", segment("a", "one", ""), segment("f", "```\nopen", ""))
    data = """No header here.\n\n---\nid: a\n---\nother a\n\n---\nid: d\n---\nd1
\n---\nid: d\n---\nd2\n\n<!-- dream-state -->\nx: 1\n<!-- /dream-state -->\n"""
    (write(root, "group/s/memory.md")).write_bytes(data.replace("\n", "\r\n").encode())
    with opened(root) as memory:
        before = read_by_address(memory)
        assert "sessions/s#d~2" in before
        (change,) = memory.scopes.migrate()
        assert change.failed == ()
        assert read_by_address(memory) == before
        assert is_canonical(root)
        checked(memory)


def test_notes_that_differ_both_stay_and_other_files_are_told(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    for name, text in {"sessions": "canonical", "group": "historical"}.items():
        write(root, f"{name}/s/note.md", f"# Note\n\n{text} notetext\n")
        write(root, f"{name}/s/content.md", f"{text} contenttext\n")
        write(root, f"{name}/s/summary.md", f"{text} summary\n")
        write(root, f"{name}/s/session.md", f"---\nagent: {text}\n---\n")
        write(root, f"{name}/s/sub/same.md", "# The same\n")
        write(root, f"{name}/s/picture.bin", text)
    write(root, "sessions/s/.dream-state", "lastDreamAt: 2026-01-01T00:00:00Z\n")
    write(root, "group/s/.dream-state", "lastDreamAt: 2026-02-01T00:00:00Z\n")
    (root / "group/s/link.bin").symlink_to("note.md")
    with opened(root) as memory:
        (change,) = memory.scopes.migrate()
        assert change.failed == ()
        assert len(ids(memory, "notetext")) == 2 and len(ids(memory, "contenttext")) == 2
        told = {line.partition(":")[0] for line in change.kept}
        assert told == {f"group/s/{n}" for n in
                        ("summary.md", "session.md", "picture.bin", ".dream-state")}  # fmt: skip
        assert (root / "sessions/s/note (from group).md").exists()
        assert (root / "sessions/s/summary.md").read_text() == "canonical summary\n"
        assert "2026-02" in (root / "sessions/s/.dream-state").read_text()
        assert (root / "sessions/s/link.bin").is_symlink()
        assert len(list((root / ".h2ams/migrated").rglob("picture.bin"))) == 1
        checked(memory)


def test_what_cannot_be_united_stays_where_it_is_and_is_told(root: Path) -> None:
    (root / "group/s1/memory.md").write_bytes(b"---\nid: x\n---\n\xff\xfe broken bytes\n")
    write(root, "session/s9/memory.md", segment("n", "goes well", "session/s9"))
    with opened(root) as memory:
        before = read_by_address(memory)
        changes = {change.scope: change for change in memory.scopes.migrate()}
        (failed,) = changes["sessions/s1"].failed
        assert failed.path == "group/s1/memory.md"
        assert (root / "group/s1/memory.md").exists()
        assert changes["sessions/s9"].failed == () and not (root / "session/s9").exists()
        assert read_by_address(memory) == before
        checked(memory)
        (root / "group/s1/memory.md").write_text(segment("g", "mended", "group/s1"))
        assert [change.failed for change in memory.scopes.migrate()] == [()]
        assert is_canonical(root)
        checked(memory)


def test_names_that_differ_by_case_are_not_brought_together(root: Path) -> None:
    write(root, "group/s1/vp/Ada/memory.md", segment("x", "another Ada", ""))
    with opened(root) as memory:
        (change,) = memory.scopes.migrate()
        assert "case" in change.failed[0].message
        assert (root / "group/s1/vp/Ada/memory.md").exists()
        checked(memory)


def test_a_decomposed_folder_is_brought_into_the_composed_one(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "sessions/caf\u00e9/memory.md", segment("a", "composed", ""))
    write(root, "group/cafe\u0301/memory.md", segment("b", "decomposed", ""))
    with opened(root) as memory:
        before = read_by_address(memory)
        memory.scopes.migrate("caf\u00e9")
        assert read_by_address(memory) == before and is_canonical(root)
        checked(memory)


def test_deleting_and_renaming_take_what_was_set_aside_along(root: Path) -> None:
    with opened(root) as memory:
        memory.scopes.migrate()
        memory.scopes.rename("sessions/s1", "sessions/neu")
        assert not list((root / ".h2ams/migrated").rglob("s1"))
        memory.scopes.delete("sessions/neu/vp/ada")
        assert holding(root, "old ada") == []
        memory.scopes.delete("sessions/neu")
        assert holding(root, "zebrafish") == []
        checked(memory)


def test_one_session_or_all_and_none_that_is_not_there(root: Path) -> None:
    write(root, "group/s2/memory.md", segment("z", "zeta", "group/s2"))
    with opened(root) as memory:
        assert [c.scope for c in memory.scopes.migrate(dry_run=True)] == [
            "sessions/s1",
            "sessions/s2",
        ]
        assert [c.scope for c in memory.scopes.migrate("group/s2")] == ["sessions/s2"]
        assert (root / "group/s1").exists() and not (root / "group/s2").exists()
        with pytest.raises(NotFoundError):
            memory.scopes.migrate("none")
        assert [c.scope for c in memory.scopes.migrate()] == ["sessions/s1"]


def test_a_dry_run_lists_each_file_and_changes_nothing(root: Path) -> None:
    before = tree(root)
    with opened(root) as memory:
        (planned,) = memory.scopes.migrate(dry_run=True)
        assert tree(root) == before and not (root / ".h2ams/migrated").exists()
        (done,) = memory.scopes.migrate()
    assert [(f.path, f.sha256) for f in planned.files] == [(f.path, f.sha256) for f in done.files]
    assert {f.path for f in planned.files} == {p for p in before if p.startswith("group")} | {
        "session/s1/memory.md"
    }


def test_what_was_forgotten_in_an_old_layout_comes_back_in_the_new_one(root: Path) -> None:
    with opened(root) as memory:
        memory.forget("group/s1#g")
        memory.scopes.migrate()
        assert memory.unforget("group/s1#g").path == "sessions/s1/memory.md"
        assert memory.get("sessions/s1#g").body == "zebrafish old group"


def test_the_real_historical_folders_migrate_without_a_difference(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    shutil.copytree(LEGACY, root)
    with opened(root) as memory:
        before = read_by_address(memory)
        problems = {problem.code for problem in memory.doctor().problems}
        for change in memory.scopes.migrate():
            assert change.failed == ()
            assert change.segments_after == change.segments_before
        assert is_canonical(root)
        assert read_by_address(memory) == before
        after = {problem.code for problem in memory.doctor().problems}
        assert after <= problems
        checked(memory)


def test_purging_a_segment_takes_it_out_of_what_was_set_aside_too(root: Path) -> None:
    write(
        root, "group/s1/memory.md",
        segment("g", "zebrafish secretword", "group/s1"), segment("h", "stays here", "group/s1"),
    )  # fmt: skip
    with opened(root) as memory:
        memory.scopes.migrate()
        assert [p for p in holding(root, "secretword") if "migrated" in p]
        memory.forget("group/s1#g", purge=True)
        assert holding(root, "secretword") == []
        assert [p for p in holding(root, "stays here") if "migrated" in p]
        checked(memory)


def test_a_segment_that_was_forgotten_after_a_migration_can_be_purged(root: Path) -> None:
    with opened(root) as memory:
        memory.scopes.migrate()
        memory.forget("sessions/s1#o")
        memory.forget("sessions/s1#o", purge=True)
    assert holding(root, "zebrafish older") == []


# -- the plan of one file --------------------------------------------------------------------------


@pytest.mark.parametrize("role", [Role.MEMORY, Role.ARCHIVE, Role.SUMMARY, Role.IGNORED,
                                  Role.AMS_STATE, Role.DREAM_STATE, Role.SESSION_CARD])  # fmt: skip
def test_a_decision_made_again_is_that_nothing_is_to_be_done(role: Role) -> None:
    old = segment("a", "old", "group/s", OLDER) + "\n" + segment("b", "more", "group/s")
    for here in (None, b"", segment("a", "x", "sessions/s", NEWER).encode(), b"\n\n"):
        decision = decide(role, here, old.encode(), DEFAULTS)
        result = here if decision.data is None else decision.data
        assert decide(role, result, old.encode(), DEFAULTS).data is None


def test_segments_are_added_in_their_own_bytes() -> None:
    hand = "---\nid:   h   # by hand\nkind: fact\ntags:\n  - x\n---\n\n\nBody  \n"
    decision = decide(Role.MEMORY, segment("a", "one", "").encode(), hand.encode(), DEFAULTS)
    assert decision.data is not None
    assert hand.rstrip().encode() in decision.data
    assert [e.address_id for e in parse(decision.data).entries] == ["a", "h"]
