"""Workflows in a state folder, and as state that follows its owner."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import pytest
from folder import PLAIN, opened
from stacks import kit

from h2ams.errors import ConflictError, NotFoundError, StoreError, UsageError
from h2ams.memory.scope import parse_scope
from h2ams.stacks.folder import StackState, WorkflowFolder, WorkflowName, decoded
from h2ams.stacks.scenes import encoded_name
from h2ams.stacks.transports import CallableCompressor


def name(id: str, owner: str | None = None) -> WorkflowName:
    return WorkflowName(id, None if owner is None else parse_scope(owner))


def fill(folder: WorkflowFolder, *names: WorkflowName, cold: bool = False) -> None:
    compressor = CallableCompressor(kit.good)
    for each in names:
        with folder.open(each, compressor=compressor, cold_copy=cold) as workflow:
            workflow.append_round(kit.round_of(each.id))
            workflow.append_round(kit.round_of("second"))
            if cold:
                workflow.compress()


def files(folder: WorkflowFolder) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(place, file), folder.path)
        for place, _, found in os.walk(folder.path)
        for file in found
    )


@pytest.fixture
def folder(tmp_path: Path) -> WorkflowFolder:
    return WorkflowFolder(tmp_path / "workflows")


def test_a_workflow_is_one_file_that_only_its_owner_may_read(folder: WorkflowFolder) -> None:
    fill(folder, name("game-1"))
    path = os.path.join(folder.path, "game-1.db")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    with folder.open(name("game-1"), create=False) as workflow:
        assert len(workflow.stack().exchanges) == 2


IDS = ["a", "A", "a.db", "../x", "a/b", "Zürich 😀", ".", "con", "a%41", "x" * 110]


def test_any_id_is_a_safe_name_and_can_be_read_back(folder: WorkflowFolder) -> None:
    names = [name(id) for id in IDS]
    fill(folder, *names)
    assert sorted(each.id for each in folder.names()) == sorted(IDS)
    assert all("/" not in each or each.endswith((".db-wal", ".db-shm")) for each in files(folder))
    lower = [each.path.lower() for each in names]
    assert len(set(lower)) == len(lower)
    for each in names:
        with folder.open(each, create=False) as workflow:
            assert workflow.stack().exchanges[0].user.startswith(f"ask text of round {each.id}")


@pytest.mark.parametrize("text", ["%zz", "A", "%41x%", "%FF", "", "a.b", "%2f"])
def test_names_that_nobody_coded_are_not_read(text: str) -> None:
    assert decoded(text) is None
    assert decoded(encoded_name("a.b", "id")) == "a.b"


def test_an_id_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError):
        name("x" * 200)


def test_there_is_none_where_none_was_made(folder: WorkflowFolder) -> None:
    with pytest.raises(NotFoundError):
        folder.open(name("game-1"), create=False)
    assert folder.names() == [] and not os.path.exists(folder.path)


LONG = "sessions/" + "語" * 80


@pytest.mark.parametrize("owner", ["sessions/s1", "chat/c", "vp/ada", "sessions/s1/vp/ada", LONG])
def test_a_workflow_belongs_to_a_scope_and_goes_with_it(folder: WorkflowFolder, owner: str) -> None:
    fill(folder, name("g", owner), name("g"), cold=True)
    fill(folder, name("g", "sessions/other"))
    state = StackState(folder)
    assert state.list(parse_scope(owner)) == (f"{owner}: g",)
    assert state.delete(parse_scope(owner)) == ()
    assert state.delete(parse_scope(owner)) == ()  # once more after a crash
    assert [str(each) for each in folder.names()] == ["g", "sessions/other: g"]
    with folder.open(name("g", owner)) as workflow:
        assert workflow.canonical_text() == ""


def test_deleting_a_session_takes_what_its_vps_own_and_a_vp_what_it_owns_anywhere(
    folder: WorkflowFolder,
) -> None:
    owners = ("sessions/s1", "sessions/s1/vp/ada", "sessions/s10", "chat/c/vp/ada", "vp/ada")
    fill(folder, *(name("g", owner) for owner in owners))
    state = StackState(folder)
    assert len(state.list(parse_scope("sessions/s1"))) == 2
    assert len(state.list(parse_scope("vp/ada"))) == 3
    state.delete(parse_scope("sessions/s1"))
    assert [str(each.owner) for each in folder.names()] == [
        "chat/c/vp/ada",
        "sessions/s10",
        "vp/ada",
    ]


def test_nothing_of_a_deleted_workflow_is_left(folder: WorkflowFolder) -> None:
    owner = "sessions/s1"
    compressor = CallableCompressor(kit.good)
    with folder.open(name("g", owner), compressor=compressor, cold_copy=True) as workflow:
        workflow.append_round(kit.round_of(1, kit.MARKER))
        workflow.append_round(kit.round_of(2, kit.MARKER))
        workflow.compress()
    StackState(folder).delete(parse_scope(owner))
    assert files(folder) == [] and os.listdir(folder.path) == []


def test_what_interrupted_calls_left_goes_too(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "sessions/s1"))
    place = Path(folder.path) / "sessions%2Fs1"
    for leftover in ("h.db-wal", "i.new", "i.new-wal"):
        (place / leftover).write_bytes(kit.MARKER.encode())
    (place / "h.cold").mkdir()
    StackState(folder).rename(parse_scope("sessions/s1"), parse_scope("sessions/s2"))
    assert not place.exists()
    Path(folder.path, "sessions%2Fs2", "h.db-wal").write_bytes(kit.MARKER.encode())
    StackState(folder).delete(parse_scope("sessions/s2"))
    assert files(folder) == []


@pytest.mark.parametrize("new", ["sessions/s2", LONG])
def test_a_renamed_owner_keeps_its_workflows_with_their_cold_copies(
    folder: WorkflowFolder, new: str
) -> None:
    old, target = parse_scope("sessions/s1"), parse_scope(new)
    fill(folder, name("g", "sessions/s1"), name("h", "sessions/s1/vp/ada"), cold=True)
    with folder.open(name("g", "sessions/s1")) as workflow:
        before = workflow.stack()
        assert before.summary is not None
    state = StackState(folder)
    state.rename(old, target)
    state.rename(old, target)  # once more after a crash
    assert state.list(old) == ()
    assert state.list(target) == (f"{new}: g", f"{new}/vp/ada: h")
    with folder.open(name("g", new), create=False) as workflow:
        assert workflow.stack() == before
        workflow.restore(before.summary.call_id)
        assert len(workflow.stack().exchanges) == 2


def test_a_rename_within_the_same_name_loses_nothing(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "sessions/s1"))
    StackState(folder).rename(parse_scope("sessions/s1"), parse_scope("sessions/s1"))
    assert len(folder.names()) == 1


def test_a_renamed_vp_keeps_what_it_owns_anywhere(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "vp/ada"), name("g", "sessions/s1/vp/ada"), name("g", "vp/bo"))
    StackState(folder).rename(parse_scope("vp/ada"), parse_scope("vp/cy"))
    assert [str(each.owner) for each in folder.names()] == [
        "sessions/s1/vp/cy",
        "vp/bo",
        "vp/cy",
    ]


def test_a_copy_shares_nothing_with_the_original(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "sessions/s1"), cold=True)
    old, new = parse_scope("sessions/s1"), parse_scope("sessions/s2")
    state = StackState(folder)
    state.clone(old, new)
    state.clone(old, new)  # once more after a crash
    with (
        folder.open(name("g", "sessions/s1")) as first,
        folder.open(name("g", "sessions/s2"), create=False) as second,
    ):
        summary = first.stack().summary
        assert summary is not None and second.stack() == first.stack()
        second.append_round(kit.round_of("only here"))
        assert first.stack().exchanges == ()
        first.reset()
        second.restore(summary.call_id)
        assert len(second.stack().exchanges) == 3


def test_an_interrupted_copy_is_made_anew(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "sessions/s1"))
    leftover = Path(folder.path) / "sessions%2Fs2" / "g.new"
    leftover.parent.mkdir()
    leftover.write_bytes(b"half of a copy")
    StackState(folder).clone(parse_scope("sessions/s1"), parse_scope("sessions/s2"))
    with folder.open(name("g", "sessions/s2"), create=False) as workflow:
        assert len(workflow.stack().exchanges) == 2
    assert not leftover.exists()


def test_a_workflow_is_never_put_over_another(folder: WorkflowFolder) -> None:
    fill(folder, name("g", "sessions/s1"), name("g", "sessions/s2"))
    with pytest.raises(ConflictError):
        folder.move(name("g", "sessions/s1"), name("g", "sessions/s2"))
    with pytest.raises(ConflictError):
        folder.copy(name("g", "sessions/s1"), name("g", "sessions/s2"))
    assert len(folder.names()) == 2


def test_memory_opens_workflows_in_its_state_folder(tmp_path: Path) -> None:
    settings = kit.replace(PLAIN, stack_game_chars=100)
    with opened(tmp_path / "root", settings=settings) as memory:
        assert not os.path.exists(os.path.join(memory.state, "workflows"))
        with memory.stack("g", compressor=CallableCompressor(kit.good), cold_copy=True) as game:
            game.append_round(kit.round_of(1))
            assert game.before_generation().outcome.outcome == "compressed"
        with memory.stack("g", owner="sessions/s1") as other:
            assert other.canonical_text() == ""
        assert sorted(os.listdir(os.path.join(memory.state, "workflows")))[:1] == ["g.cold"]
        with pytest.raises(NotFoundError):
            memory.stack("h", create=False)


# -- damage that must not hold up a memory ---------------------------------------------------------


def owned_workflow(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with sessions/s1, which owns a workflow with a cold copy; root and workflow file."""
    root = tmp_path / "root"
    with opened(root, create=True, settings=PLAIN) as memory:
        memory.remember("sessions/s1", "Deploys run on Friday.")
    state = WorkflowFolder(root / ".h2ams/workflows")
    fill(state, name("fine", "sessions/s1"), name("game", "sessions/s1"), cold=True)
    return root, root / ".h2ams/workflows/sessions%2Fs1/game.db"


def damaged(path: Path, how: str) -> bytes:
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    if how == "another program's":
        path.unlink()
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE other (x)")
        connection.close()
    elif how == "half":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"this is no database " * 500)
    return kept(path)


def kept(path: Path) -> bytes:
    """The bytes, but for the 100 of a header in which SQLite notes how the file is written."""
    return path.read_bytes()[100:]


@pytest.mark.parametrize("how", ["no database", "half", "another program's"])
def test_a_damaged_workflow_is_left_out_of_a_clone_told_and_blocks_nothing(
    tmp_path: Path, how: str
) -> None:
    root, path = owned_workflow(tmp_path)
    before = damaged(path, how)
    with opened(root, settings=PLAIN) as memory:
        done = memory.scopes.clone("sessions/s1", "sessions/s2")
        assert [each.path for each in done.failed] == ["exchange-stacks"]
        assert "game.db" in done.failed[0].message
    assert kept(path) == before
    with opened(root, settings=PLAIN) as memory:
        assert len(memory.recall("deploys").hits) == 2 and memory.verify().ok
        found = WorkflowFolder(root / ".h2ams/workflows").names()
        assert name("fine", "sessions/s2") in found and name("game", "sessions/s2") not in found
        memory.scopes.delete("sessions/s1")
    assert not path.exists() and not list((root / ".h2ams/journal").iterdir())


@pytest.mark.parametrize("how", ["no database", "half", "another program's"])
def test_a_damaged_workflow_follows_a_rename_as_it_is(tmp_path: Path, how: str) -> None:
    root, path = owned_workflow(tmp_path)
    before = damaged(path, how)
    with opened(root, settings=PLAIN) as memory:
        assert memory.scopes.rename("sessions/s1", "sessions/s2").failed == ()
    moved = root / ".h2ams/workflows/sessions%2Fs2/game.db"
    assert kept(moved) == before and not path.exists()
    assert (moved.parent / "game.cold").is_dir()
    with opened(root, settings=PLAIN) as memory:
        assert len(memory.recall("deploys").hits) == 1 and memory.verify().ok


@pytest.mark.parametrize("how", ["no zlib", "empty", "folder", "link to nowhere"])
def test_a_damaged_cold_copy_blocks_no_clone(tmp_path: Path, how: str) -> None:
    root, path = owned_workflow(tmp_path)
    (copy,) = (path.parent / "game.cold").iterdir()
    if how in ("no zlib", "empty"):
        copy.write_bytes(b"no zlib" if how == "no zlib" else b"")
    else:
        copy.unlink()
        copy.mkdir() if how == "folder" else copy.symlink_to(tmp_path / "gone")
    with opened(root, settings=PLAIN) as memory:
        assert memory.scopes.clone("sessions/s1", "sessions/s2").failed == ()
    with opened(root, settings=PLAIN) as memory:
        assert len(memory.recall("deploys").hits) == 2
    state = WorkflowFolder(root / ".h2ams/workflows")
    with state.open(name("game", "sessions/s2"), create=False) as workflow:
        summary = workflow.stack().summary
        assert summary is not None
        with pytest.raises((StoreError, NotFoundError)):
            workflow.restore(summary.call_id)
