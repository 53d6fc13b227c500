"""Operations on whole scopes: what moves, what stays, what is refused, what is gone for good."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from folder import ids, segment_text, write
from folder import opened as opened_anew
from memory.lifecycle_kit import holding, leftovers, on, plant, segment, tree, used

from h2ams import (
    Access,
    ConflictError,
    H2amsError,
    Memory,
    NotFoundError,
    ScopeError,
    UnsafePathError,
    UsageError,
)
from h2ams.files import Root
from h2ams.memory.lifecycle_plan import Operation, ScopeChange, holds, parse, render
from h2ams.memory.scope import parse_scope

OWN = ("sessions/s1/", "group/s1/", "session/s1/", "groups/s1/")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    plant(tmp_path / "memory")
    return tmp_path / "memory"


def checked(memory: Memory) -> None:
    """The index is what a rebuild would give, by a path of small syncs."""
    verification = memory.verify()
    assert verification.ok, verification
    assert leftovers(Path(memory.root)) == []


@contextmanager
def opened(root: Path) -> Iterator[Memory]:
    """The engine on ``root`` with an index that is up to date."""
    with opened_anew(root) as memory:
        memory.sync()
        yield memory


# -- deleting --------------------------------------------------------------------------------------


def test_deleting_a_session_clears_every_layout_and_leaves_every_other_byte(root: Path) -> None:
    others = tree(root, without=OWN)
    with opened(root) as memory:
        memory.sync()
        change = memory.scopes.delete("sessions/s1")
        assert change.failed == () and change.changed
        assert tree(root) == others
        assert ids(memory, "zebrafish") == []
        assert memory.list("sessions/s1") == ()
        checked(memory)


def test_no_byte_of_a_deleted_session_is_left_below_the_root(root: Path) -> None:
    with opened(root) as memory:
        used(memory)
        stale = memory.get("sessions/s1#a")
        with pytest.raises(ConflictError):
            memory.update(stale.address, body="refused zebrafish", expect="0" * 64)
        assert len(holding(root, "zebrafish")) > 10 and holding(root, "axolotlword")
        memory.scopes.delete("sessions/s1")
        assert holding(root, "zebrafish") == []
        assert holding(root, "axolotlword") == []
    assert holding(root, "zebrafish") == []


def test_a_set_aside_index_goes_with_the_text_in_it(root: Path) -> None:
    with opened(root) as memory:
        memory.sync()
    (root / ".h2ams/index.db.aside").write_bytes((root / ".h2ams/index.db").read_bytes())
    with opened(root) as memory:
        memory.scopes.delete("sessions/s1")
    assert holding(root, "zebrafish") == []


def test_what_a_killed_writer_left_of_a_record_goes_too(root: Path) -> None:
    with opened(root) as memory:
        used(memory)
        record = next((root / ".h2ams/forgotten").iterdir())
        torn = record.with_name(f".{record.name}.0123456789abcdef.tmp")
        torn.write_bytes(record.read_bytes()[:-20])
        write(root, "sessions/s1/.memory.md.0123456789abcdef.tmp", "torn axolotlword")
        memory.scopes.delete("sessions/s1")
    assert holding(root, "axolotlword") == []


def test_k19_a_new_session_of_the_same_id_sees_nothing_of_the_deleted_one(root: Path) -> None:
    access = Access(session="s1", vp="ada")
    with opened(root) as memory, opened(root) as other:
        used(memory)
        assert other.context("zebrafish", access=access).tokens
        assert memory.scopes.delete("sessions/s1").failed == ()
        for each in (memory, other):
            assert "zebrafish" not in each.context("zebrafish of old", access=access).text
            assert ids(each, "zebrafish", access=access) == []
        for vp in ("ada", None):
            for family in ("sessions", "chat"):
                state = _active_set(memory, "s1", vp, family)
                assert state == _active_set(memory, "never", None, "sessions")
        with pytest.raises(NotFoundError):
            memory.unforget("sessions/s1#a")
        # The same text again: the same id, and still no state of the old one.
        memory.remember("sessions/s1", "forgotten axolotlword")
        block = other.context("something else", access=access)
        assert "axolotlword" not in block.text
        assert memory.store.summary(parse_scope("sessions/s1")) is None
        checked(memory)


def _active_set(memory: Memory, session: str, vp: str | None, family: str) -> object:
    from h2ams.active.registry import Registry

    return Registry(memory._root).load(session, vp, family=family)  # type: ignore[arg-type]


def test_deleting_a_vp_clears_what_it_owns_in_every_session_and_chat(root: Path) -> None:
    gone = ("vp/ada/", "sessions/s1/vp/ada/", "group/s1/vp/ada/", "sessions/s2/vp/ada/",
            "chat/c1/vp/ada/")  # fmt: skip
    others = tree(root, without=gone)
    with opened(root) as memory:
        used(memory)
        memory.scopes.delete("vp/ada")
        assert tree(root) == others | {"sessions/s1/memory.md": tree(root)["sessions/s1/memory.md"]}
        assert not any("vp/ada" in record.scope for record in memory.list())
        assert [path.name for path in (root / ".h2ams/ams/s1").iterdir()] == ["@none.json"]
        checked(memory)


@pytest.mark.parametrize(
    ("scope", "gone"),
    [
        ("sessions/s1/topic/t", ("sessions/s1/topic/t/",)),
        ("sessions/s1/topic/t/deep", ("sessions/s1/topic/t/deep/",)),
        ("sessions/s1/feature/f", ("sessions/s1/feature/",)),
        ("sessions/s1/user", ("sessions/s1/user/",)),
        ("sessions/s1/vp/ada", ("sessions/s1/vp/", "group/s1/vp/")),
        ("chat/c1", ("chat/",)),
        ("user", ("user/",)),
        ("group/s1", OWN),
        ("session/s2", ("sessions/s2/",)),
    ],
)
def test_one_scope_goes_with_what_lies_in_it_and_nothing_else(
    root: Path, scope: str, gone: tuple[str, ...]
) -> None:
    others = tree(root, without=gone)
    with opened(root) as memory:
        memory.sync()
        memory.scopes.delete(scope)
        assert tree(root) == others
        checked(memory)


def test_a_scope_that_is_not_there_is_said_to_be_missing(root: Path) -> None:
    with opened(root) as memory:
        before = tree(root)
        for scope in ("sessions/none", "sessions/s", "sessions/s1/vp/none", "agent/a"):
            with pytest.raises(NotFoundError):
                memory.scopes.delete(scope)
            with pytest.raises(NotFoundError):
                memory.scopes.rename(scope, scope + "x")
        memory.scopes.delete("chat/c1")
        with pytest.raises(NotFoundError):
            memory.scopes.delete("chat/c1")
        assert tree(root) == {path: data for path, data in before.items() if "c1" not in path}
        checked(memory)


def test_what_lies_outside_of_all_scopes_is_not_taken_for_a_scope(root: Path) -> None:
    with opened(root) as memory, pytest.raises(UsageError):
        memory.scopes.delete("topic/unfiled")
    assert (root / "readme.md").exists()


def test_the_last_scope_of_a_folder_can_be_deleted(tmp_path: Path) -> None:
    write(tmp_path / "m", "user/memory.md", segment("a", "alone", "user"))
    write(tmp_path / "m", "user/note.md", "# two files\n")
    with opened(tmp_path / "m") as memory:
        memory.sync()
        memory.scopes.delete("user")
        assert memory.list() == ()
        checked(memory)


def test_a_link_goes_and_what_it_leads_to_stays(root: Path) -> None:
    write(root, "shelf/memory.md", segment("x", "on the shelf", ""))
    (root / "sessions/linked").symlink_to("../shelf")
    outside = write(root.parent, "outside/memory.md", segment("x", "outside", ""))
    (root / "sessions/s1/leads-out").symlink_to(outside.parent)
    with opened(root) as memory:
        assert "is a link" in memory.scopes.delete("sessions/linked").kept[0]
        memory.scopes.delete("sessions/s1")
    assert (root / "shelf/memory.md").exists() and outside.exists()
    assert not os.path.lexists(root / "sessions/linked")


def test_an_index_in_use_is_told_and_the_words_go_when_it_is_free(root: Path) -> None:
    with opened(root) as memory, opened(root) as reader:
        memory.sync()
        with reader._index.reading() as connection:
            connection.execute("SELECT count(*) FROM memory_segments").fetchall()
            failed = memory.scopes.delete("sessions/s1").failed
        assert [each.path for each in failed] == ["index"]
    assert holding(root, "zebrafish") == []


def test_trash_that_cannot_be_removed_is_told_and_tried_again(root: Path) -> None:
    stuck = True

    def hook(operation: str, path: str) -> None:
        if stuck and operation == "unlink" and "/trash/" in path and path.endswith("picture.bin"):
            raise PermissionError(13, "simulated", path)

    with on(root, hook) as memory:
        memory.sync()
        failed = memory.scopes.delete("sessions/s1").failed
        assert [each.path.endswith("picture.bin") for each in failed] == [True]
        assert memory.list("sessions/s1") == ()
        memory.remember("sessions/s1", "the name is free")
        degraded = [each.code for each in memory.status().degraded]
        assert degraded == ["not-removed-yet"]
        for access in (Access(session="s2"), Access(session="s1"), Access()):
            assert memory.status(access=access).degraded == ()
            assert memory.recall("free", access=access).degraded == ()
        assert holding(root, "zebrafish") == [p for p in holding(root, "zebrafish") if "trash" in p]
        stuck = False
        assert memory.status().degraded == ()
        assert [record.body for record in memory.list("sessions/s1")] == ["the name is free"]
        checked(memory)
    assert holding(root, "zebrafish") == []


def test_a_damaged_journal_is_said_and_nothing_is_read(root: Path) -> None:
    write(root, ".h2ams/journal/0123456789abcdef.json", "{ torn")
    with pytest.raises(H2amsError, match="0123456789abcdef"), opened_anew(root):
        pass
    (root / ".h2ams/journal/0123456789abcdef.json").unlink()
    with opened(root) as memory:
        assert memory.list("sessions/s1")


def test_a_damaged_index_stops_no_operation(root: Path) -> None:
    with opened(root) as memory:
        assert memory.list()
    index = root / ".h2ams/index.db"
    data = bytearray(index.read_bytes())
    data[4096 : 4096 * 4] = b"\xff" * (4096 * 3)
    index.write_bytes(bytes(data))
    with opened_anew(root) as memory:
        memory.scopes.rename("sessions/s1", "sessions/neu")
        memory.scopes.delete("sessions/neu")
        assert memory.list()  # the rest is indexed anew when it is needed
        checked(memory)
    assert holding(root, "zebrafish") == []


# -- looking first ---------------------------------------------------------------------------------


def test_a_dry_run_lists_every_file_row_and_state_and_changes_nothing(root: Path) -> None:
    with opened(root) as memory:
        used(memory)
        before, state = tree(root), sorted((root / ".h2ams").rglob("*.json"))
        change = memory.scopes.delete("sessions/s1", dry_run=True)
        assert change.dry_run
        listed = {each.path: each.size_bytes for each in change.files}
        assert listed == {path: len(d) for path, d in before.items() if path.startswith(OWN)}
        assert all(len(each.sha256) == 64 for each in change.files)
        owners = {each.owner for each in change.state}
        assert owners == {"index", "active-sets", "undo"}
        assert "sessions/s1/topic/t: 1 segment" in {each.what for each in change.state}
        renamed = memory.scopes.rename("sessions/s1", "sessions/n", dry_run=True)
        assert {each.to for each in renamed.files} == {p.replace("/s1/", "/n/") for p in listed}
        assert tree(root) == before
        assert sorted((root / ".h2ams").rglob("*.json")) == state


def test_the_plan_is_what_happens(root: Path) -> None:
    with opened(root) as memory:
        used(memory)
        for name, call in {
            "clone": lambda **how: memory.scopes.clone("sessions/s1", "sessions/n", **how),
            "rename": lambda **how: memory.scopes.rename("sessions/s1", "sessions/m", **how),
            "delete": lambda **how: memory.scopes.delete("sessions/m", **how),
        }.items():
            planned: ScopeChange = call(dry_run=True)
            done: ScopeChange = call()
            assert (planned.files, planned.state) == (done.files, done.state), name
        checked(memory)


# -- renaming --------------------------------------------------------------------------------------


def test_a_renamed_session_keeps_every_segment_id_and_byte(root: Path) -> None:
    before = tree(root)
    with opened(root) as memory:
        addresses = {record.address for record in memory.list()}
        memory.scopes.rename("sessions/s1", "sessions/neu")
        wanted = {address.replace("sessions/s1", "sessions/neu") for address in addresses
                  if address.split("#")[0].split("/")[1:2] == ["s1"]}  # fmt: skip
        kept = {
            address for address in addresses if "sessions/s1" not in address or "s11" in address
        }
        assert {record.address for record in memory.list()} == wanted | kept
        after = tree(root)
        assert after.keys() == {
            path.replace("/s1/", "/neu/") if path.startswith(OWN) else path for path in before
        }
        for path, data in before.items():
            there = after[path.replace("/s1/", "/neu/") if path.startswith(OWN) else path]
            lines = [(a, b) for a, b in zip(data.split(b"\n"), there.split(b"\n"), strict=True)]
            assert all(a == b or a.startswith(b"scope: ") for a, b in lines), path
        assert not [p for p in memory.doctor().problems if p.code == "scope-disagrees"]
        checked(memory)


def test_scope_lines_that_a_person_wrote_stay(root: Path) -> None:
    hand = "---\nscope: sessions/s1   # mine\nid: h\n---\nby hand\n"
    write(
        root, "sessions/s1/topic/t/memory.md", hand, segment("z", "engine", "sessions/s1/topic/t")
    )
    broken = write(root, "sessions/s1/feature/f/memory.md", "")
    broken.write_bytes(b"---\nid: x\n---\n\xff\xfe broken\n")
    with opened(root) as memory:
        memory.scopes.rename("sessions/s1", "sessions/neu")
        text = (root / "sessions/neu/topic/t/memory.md").read_text()
        assert text.startswith(hand) and "scope: sessions/neu/topic/t\n" in text
        assert (
            (root / "sessions/neu/feature/f/memory.md").read_bytes().endswith(b"\xff\xfe broken\n")
        )
        checked(memory)


def test_what_was_forgotten_comes_back_under_the_new_name(root: Path) -> None:
    with opened(root) as memory:
        before = memory.get("sessions/s1#a")
        memory.forget("sessions/s1#a")
        memory.forget("sessions/s1/vp/ada#g")
        memory.scopes.rename("sessions/s1", "sessions/neu")
        memory.unforget("sessions/neu#a")
        memory.unforget("sessions/neu/vp/ada#g")
        after = memory.get("sessions/neu#a")
        assert (after.body, after.tags) == (before.body, before.tags)
        assert (root / "group/neu/vp/ada/memory.md").read_text().count("old ada") == 1
        assert not [p for p in memory.doctor().problems if p.code == "scope-disagrees"]
        with pytest.raises(NotFoundError):
            memory.unforget("sessions/s1#a")


def test_active_sets_follow_and_addresses_in_other_sets_too(root: Path) -> None:
    with opened(root) as memory:
        used(memory)
        related = Access(session="s2", vp="ada", related_sessions=["s1"])
        memory.touch(["sessions/s1#a", "vp/ada#v"], access=related)
        memory.scopes.rename("sessions/s1", "sessions/neu")
        memory.scopes.rename("vp/ada", "vp/grace")
        assert not (root / ".h2ams/ams/s1").exists()
        names = sorted(p.name for p in (root / ".h2ams/ams/neu").iterdir())
        assert names == ["@none.json", "grace.json"]
        saved = json.loads((root / ".h2ams/ams/s2/grace.json").read_text())
        assert {use[0] for use in saved["recent"]} == {"sessions/neu#a", "vp/grace#v"}
        block = memory.context("of old", access=Access(session="neu", vp="grace"))
        assert block.receipt.layers["recent"].items
        checked(memory)


def test_a_renamed_session_is_still_the_related_one_of_its_agent(root: Path) -> None:
    with opened(root) as memory:
        memory.scopes.rename("sessions/s1", "sessions/neu")
        related = Access(session="s2", related_sessions=["neu"])
        found = {hit.record.scope for hit in memory.recall("zebrafish", access=related).hits}
        assert found == {
            "sessions/neu", "sessions/neu/topic/t", "sessions/neu/topic/t/deep",
            "sessions/neu/feature/f",
        }  # fmt: skip
        memory.scopes.delete("sessions/neu")
        write(root, "sessions/neu/memory.md", segment("z", "zebrafish anew", ""))
        assert memory.recall("zebrafish", access=related).hits == ()  # a new one without a card


def test_what_an_editor_saves_between_the_move_and_the_new_name_stays(root: Path) -> None:
    edited: list[str] = []

    def save(operation: str, path: str) -> None:
        if operation == "check" and path.endswith("neu/memory.md") and not edited:
            edited.append(path)
            text = Path(path).read_text().replace("zebrafish of", "edited by hand:")
            Path(path + ".editor").write_text(text)
            os.replace(path + ".editor", path)

    with on(root, save) as memory:
        memory.sync()
        assert memory.scopes.rename("sessions/s1", "sessions/neu").failed == ()
        assert edited
        assert "edited by hand" in memory.get("sessions/neu#a").body
        assert "scope: sessions/neu\n" in Path(edited[0]).read_text()
        checked(memory)


def test_files_of_every_name_and_kind_come_along(root: Path) -> None:
    folder = root / "sessions/s1"
    for name in (
        b"undecodable \xff.bin",
        b"line\nbreak.md",
        b"x" * 250,
        b".hidden",
        b"memory.md~",
    ):
        (Path(os.fsdecode(os.path.join(os.fsencode(folder), name)))).write_bytes(b"kept " + name)
    os.mkfifo(folder / "pipe")
    write(root, "sessions/s1/.obsidian/app.json", "{}")
    write(root, "group/s1/deep/" + "/".join("abcdefghijklmnop") + "/x.md", "# deep\n")
    with opened(root) as memory:
        before = set(os.listdir(folder))
        memory.scopes.clone("sessions/s1", "sessions/kopie")
        assert before - set(os.listdir(root / "sessions/kopie")) == {"pipe"}
        memory.scopes.migrate("s1")
        memory.scopes.rename("sessions/s1", "sessions/neu")
        assert before <= set(os.listdir(root / "sessions/neu"))
        memory.scopes.delete("sessions/neu")
        memory.scopes.delete("sessions/kopie")
        checked(memory)


def test_a_renamed_vp_takes_its_memory_in_every_session_along(root: Path) -> None:
    with opened(root) as memory:
        memory.scopes.rename("vp/ada", "vp/grace")
        scopes = {record.scope for record in memory.list() if record.scope.endswith("grace")}
        assert scopes == {
            "vp/grace", "sessions/s1/vp/grace", "sessions/s2/vp/grace", "chat/c1/vp/grace",
        }  # fmt: skip
        assert memory.get("sessions/s1/vp/grace#g").path == "group/s1/vp/grace/memory.md"
        checked(memory)


def test_redirects_to_a_renamed_topic_lead_to_its_new_name(root: Path) -> None:
    redirect = root / "sessions/s1/topic/old/redirect.json"
    write(root, "sessions/s1/topic/old/redirect.json", '{ "version": 1, "canonical": "t/deep" }\n')
    with opened(root) as memory:
        memory.scopes.rename("sessions/s1/topic/t", "sessions/s1/topic/új")
        assert redirect.read_text() == '{ "version": 1, "canonical": "új/deep" }\n'
        assert memory.get("sessions/s1/topic/old#a").scope == "sessions/s1/topic/új/deep"
        memory.scopes.delete("sessions/s1/topic/új")
        followed = memory.store.followed(parse_scope("sessions/s1/topic/old"))
        assert [problem.code for problem in followed.problems] == ["broken-redirect"]
        checked(memory)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("sessions/s1", "sessions/s2", "sessions/s2"),
        ("sessions/s2", "sessions/s1", "sessions/s1"),
        ("sessions/s1", "sessions/S2", "sessions/s2"),
        ("sessions/s2", "sessions/S2", "sessions/s2"),
        ("vp/ada", "vp/bob", "vp/bob"),
        ("vp/bob", "vp/Ada", "vp/ada"),
        ("sessions/s1/topic/t", "sessions/s1/topic/T", "sessions/s1/topic/t"),
    ],
)
def test_a_name_that_is_taken_is_refused_with_the_one_that_has_it(
    root: Path, old: str, new: str, named: str
) -> None:
    before = tree(root)
    with opened(root) as memory:
        for call in (memory.scopes.rename, memory.scopes.clone):
            with pytest.raises(ScopeError) as caught:
                call(old, new)
            assert named in str(caught.value)
            with pytest.raises(ScopeError):
                call(old, new, dry_run=True)
        assert tree(root) == before
        checked(memory)


def test_a_name_taken_in_another_unicode_form_is_refused(root: Path) -> None:
    write(root, "sessions/caf\u00e9/memory.md", segment("a", "x", ""))
    write(root, "group/nai\u0308ve/memory.md", segment("a", "x", ""))
    with opened(root) as memory:
        for name in ("cafe\u0301", "CAF\u00c9", "na\u00efve", "NA\u00cfVE"):
            with pytest.raises(ScopeError):
                memory.scopes.rename("sessions/s1", f"sessions/{name}")
        memory.scopes.rename("sessions/na\u00efve", "sessions/plain")
        assert (root / "group/plain/memory.md").exists()
        checked(memory)


def test_a_vp_is_not_renamed_to_one_that_has_memory_in_some_session(root: Path) -> None:
    write(root, "sessions/s2/vp/Grace/memory.md", segment("a", "x", ""))
    with opened(root) as memory:
        for new in ("vp/Grace", "vp/grace"):
            with pytest.raises(ScopeError):
                memory.scopes.rename("vp/ada", new)


def test_state_left_of_a_name_keeps_it_taken_until_it_is_deleted(root: Path) -> None:
    import shutil

    with opened(root) as memory:
        used(memory)
        for folder in OWN:
            shutil.rmtree(root / folder)
        with pytest.raises(ScopeError) as caught:
            memory.scopes.rename("sessions/s2", "sessions/s1")
        assert "scope delete sessions/s1" in str(caught.value.hint)
        memory.scopes.delete("sessions/s1")
        memory.scopes.rename("sessions/s2", "sessions/s1")
        checked(memory)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("sessions/s1", "chat/x"),
        ("sessions/s1", "sessions/s1"),
        ("sessions/s1", "group/s1"),
        ("sessions/s1/topic/t", "sessions/s1/topic/t/x"),
        ("sessions/s1/topic/t", "topic/t"),
        ("user", "global"),
        ("vp/ada", "sessions/s1/vp/x"),
        ("topic/unfiled", "topic/x"),
        ("sessions/s1", "sessions/con"),
        ("sessions/s1", "sessions/../x"),
    ],
)
def test_a_scope_becomes_no_other_kind_of_scope(root: Path, old: str, new: str) -> None:
    before = tree(root)
    with opened(root) as memory:
        for call in (memory.scopes.rename, memory.scopes.clone):
            with pytest.raises(UsageError):
                call(old, new)
    assert tree(root) == before


def test_one_scope_in_two_unicode_forms_is_not_renamed_by_half(root: Path) -> None:
    write(root, "sessions/caf\u00e9/memory.md", segment("a", "composed", ""))
    write(root, "sessions/cafe\u0301/memory.md", segment("b", "decomposed", ""))
    before = tree(root)
    with opened(root) as memory:
        for call in (memory.scopes.rename, memory.scopes.clone):
            with pytest.raises(H2amsError, match="two Unicode forms"):
                call("sessions/caf\u00e9", "sessions/tea")
        assert tree(root) == before
        memory.scopes.delete("sessions/caf\u00e9")
        assert len(tree(root)) == len(before) - 2
        checked(memory)


# -- cloning ---------------------------------------------------------------------------------------


def test_a_clone_holds_the_same_under_its_own_name_and_the_original_is_untouched(
    root: Path,
) -> None:
    (root / "sessions/s1/link.md").symlink_to("note.md")
    (root / "sessions/s1/memory.md").chmod(0o600)
    before = tree(root)
    with opened(root) as memory:
        used(memory)
        before["sessions/s1/memory.md"] = (root / "sessions/s1/memory.md").read_bytes()
        memory.scopes.clone("sessions/s1", "sessions/kopie")
        after = tree(root)
        assert {path: after[path] for path in before} == before
        assert (root / "sessions/kopie/link.md").is_symlink()
        assert (root / "sessions/kopie/memory.md").stat().st_mode & 0o777 == 0o600
        originals = memory.list("sessions/s1")
        copies = memory.list("sessions/kopie")
        assert [(r.id, r.body) for r in originals] == [(r.id, r.body) for r in copies]
        assert (root / ".h2ams/ams/kopie/ada.json").exists()
        with pytest.raises(NotFoundError):
            memory.unforget("sessions/kopie#a")
        assert not [p for p in memory.doctor().problems if p.code == "scope-disagrees"]
        memory.scopes.delete("sessions/kopie")
        assert tree(root) == before
        checked(memory)


def test_a_changed_original_stops_a_clone_before_anything_is_there(root: Path) -> None:
    def edit(operation: str, path: str) -> None:
        if operation == "copy" and "/.memory.md" in path:  # notes are copied later
            (root / "sessions/s1/note.md").write_text("# changed meanwhile\n")

    memory = on(root, edit)
    with memory, pytest.raises(H2amsError, match="changed while it was copied"):
        memory.scopes.clone("sessions/s1", "sessions/kopie")
    assert not (root / "sessions/kopie").exists()
    assert leftovers(root) == []


# -- what owned state locks ------------------------------------------------------------------------


def _in_place_of_the_active_sets_lock(root: Path, what: str) -> Path:
    """Something that is no file where the lock of the active sets belongs."""
    place = Path(Root(root).lock_file("ams"))
    place.unlink(missing_ok=True)
    if what == "folder":
        place.mkdir()
    else:
        place.symlink_to(root / "nowhere")
    return place


@pytest.mark.parametrize("what", ["folder", "link"])
@pytest.mark.parametrize("kind", ["clone", "rename", "delete"])
def test_what_stands_in_place_of_a_lock_refuses_an_operation_before_a_folder_moves(
    root: Path, kind: str, what: str
) -> None:
    with opened(root) as memory:
        used(memory)
        before = tree(root)
        place = _in_place_of_the_active_sets_lock(root, what)
        names = ["sessions/s1"] if kind == "delete" else ["sessions/s1", "sessions/n"]
        with pytest.raises(UnsafePathError) as refused:
            getattr(memory.scopes, kind)(*names)
        assert str(place) in refused.value.message and refused.value.path == str(place)
        assert refused.value.hint is not None and what in refused.value.hint
        assert tree(root) == before and leftovers(root) == []
    with opened(root) as memory:
        assert memory.get("sessions/s1#a").body == "zebrafish of sessions/s1"
        place.rmdir() if what == "folder" else place.unlink()
        assert getattr(memory.scopes, kind)(*names).failed == ()
        checked(memory)


@pytest.mark.parametrize("what", ["folder", "link"])
@pytest.mark.parametrize("kind", ["clone", "rename", "delete"])
def test_a_lock_that_is_lost_after_the_folders_moved_keeps_no_reader_out(
    root: Path, kind: str, what: str
) -> None:
    """Put there at the last moment: what is read is right, and all is done when it is gone."""
    names = ["sessions/s1"] if kind == "delete" else ["sessions/s1", "sessions/n"]

    def lose(operation: str, path: str) -> None:
        if operation == "lock" and path == str(place) and (root / ".h2ams/journal").exists():
            journal = list((root / ".h2ams/journal").glob("*.json"))
            if journal and json.loads(journal[0].read_bytes())["phase"] == "settling":
                _in_place_of_the_active_sets_lock(root, what)

    with opened(root) as memory:
        used(memory)
    place = Path(Root(root).lock_file("ams"))
    with on(root, lose) as memory:
        change = getattr(memory.scopes, kind)(*names)
    assert [each.path for each in change.failed] == ["active-sets"]
    assert str(place) in change.failed[0].message
    assert kind != "delete" or holding(root, "zebrafish") == []
    with opened(root) as memory:
        found = {hit.record.address for hit in memory.recall("zebrafish", limit=50).hits}
        assert ("sessions/s1#a" in found) == (kind == "clone")
        assert ("sessions/n#a" in found) == (kind != "delete")
        assert str(place) in memory.status().degraded[0].message
        with pytest.raises(ConflictError):
            memory.remember("sessions/s1", "too early")
        place.rmdir() if what == "folder" else place.unlink()
        assert memory.status().degraded == ()
        access = Access(session="s1" if kind == "delete" else "n", vp="ada")
        assert _active_set(memory, access.session or "", "ada", "sessions").turn == (
            0 if kind == "delete" else 1
        )
        checked(memory)


# -- listing, access -------------------------------------------------------------------------------


def test_the_list_names_every_scope_with_its_folders(root: Path) -> None:
    with opened(root) as memory:
        found = {info.scope: info for info in memory.scopes.list()}
    assert found["sessions/s1"].folders == ("group/s1", "session/s1", "sessions/s1")
    assert found["sessions/s1"].segments == 3 and found["sessions/s1"].notes == 2
    assert found["topic/unfiled"].folders == () and found["topic/unfiled"].notes == 1
    assert found["sessions/s1/vp/ada"].segments == 2


def test_only_the_owner_may_touch_whole_scopes(root: Path) -> None:
    from h2ams import AccessError

    before = tree(root)
    access = Access(session="s1", vp="ada", user="write")
    with opened(root) as memory:
        calls = [
            lambda: memory.scopes.list(access=access),
            lambda: memory.scopes.delete("sessions/s1", access=access),
            lambda: memory.scopes.delete("sessions/none", access=access, dry_run=True),
            lambda: memory.scopes.rename("sessions/s1", "sessions/n", access=access),
            lambda: memory.scopes.clone("sessions/s1", "sessions/n", access=access),
            lambda: memory.scopes.migrate(access=access),
        ]
        for call in calls:
            with pytest.raises(AccessError):
                call()
    assert tree(root) == before


# -- values ----------------------------------------------------------------------------------------


def test_a_line_of_the_journal_is_read_as_it_was_written() -> None:
    operation = Operation(
        "0123456789abcdef", "rename", parse_scope("sessions/会话"), parse_scope("sessions/b"),
        "moving", (), "/state",
    )  # fmt: skip
    assert parse(render(operation)) == operation
    for data in (b"", b"{}", b"[]", b'{"version": 2}', render(operation)[:-9], b"\xff"):
        with pytest.raises(ValueError):
            parse(data)


@pytest.mark.parametrize(
    ("family", "inside", "outside"),
    [
        ("sessions/s1", ["sessions/s1", "sessions/s1/vp/a", "group/s1/user"], ["sessions/s11"]),
        ("vp/a", ["vp/a", "sessions/x/vp/a", "chat/y/vp/a"], ["vp/ab", "sessions/a", "sessions/x"]),
        ("topic/t", ["topic/t/x"], ["sessions/s/topic/t", "topic/tt"]),
    ],
)
def test_a_family_holds_what_lies_in_it(family: str, inside: list[str], outside: list[str]) -> None:
    assert all(holds(parse_scope(family), parse_scope(each)) for each in inside)
    assert not any(holds(parse_scope(family), parse_scope(each)) for each in outside)


def test_segment_text_is_what_the_kit_takes_it_for() -> None:
    assert "scope: user" in segment("a", "b", "user") and segment_text("a", "b")
