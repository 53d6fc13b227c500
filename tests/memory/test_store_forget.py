"""Forgetting, bringing back, and making sure that nothing is left."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.store_kit import (
    SESSION,
    USER,
    bodies,
    entries,
    everything,
    open_store,
    put,
    segment_text,
    snapshot,
)

from h2ams.errors import ConflictError, NotFoundError, StoreError
from h2ams.memory.scope import parse_scope

THREE = "\n".join(segment_text(f"seg_{number}", f"Body {number}.") for number in (1, 2, 3))
TAIL = "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n"
ODD = (
    "Prose on top.\n\n"
    "---\nid: seg_1\n# a comment\nodd: key\n---\nFirst.  \n\n\n\n"
    "---\nid: seg_2\n---\nSecond.\n<!-- a comment of its own -->\n\n"
    + segment_text("seg_3", "Third.").rstrip("\n")
)


@pytest.mark.parametrize("ending", ["", "\n", "\n\n", TAIL, f"\n{TAIL}"])
@pytest.mark.parametrize("start", [THREE, ODD + "\n", "Prose.\n"])
def test_remembering_and_forgetting_leaves_the_file_as_it_was(
    tmp_path: Path, start: str, ending: str
) -> None:
    put(tmp_path, {"user/memory.md": start + ending})
    path = tmp_path / "user/memory.md"
    before = path.read_bytes()
    store = open_store(tmp_path)
    ids = [store.add(USER, f"New number {at}.", kind="fact").id for at in range(3)]
    for id in (ids[1], ids[0], ids[2]):
        store.remove(USER, id)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", [THREE, ODD, ODD.replace("\n", "\r\n"), "\ufeff" + THREE])
def test_forget_and_unforget_give_the_same_bytes(tmp_path: Path, text: str):
    put(tmp_path, {"user/memory.md": text})
    store = open_store(tmp_path)
    before = (tmp_path / "user/memory.md").read_bytes()
    for entry in entries(store, USER):
        done = store.remove(USER, entry.address_id)
        assert done.removed and done.changed
        assert store.find(USER, entry.address_id) is None
        assert [record.id for record in store.forgotten(USER)] == [entry.address_id]
        back = store.unforget(USER, entry.address_id)
        assert back.changed
        assert (tmp_path / "user/memory.md").read_bytes() == before
        assert store.forgotten(USER) == ()


def test_the_undo_record_is_for_the_owner_alone(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    open_store(tmp_path).remove(USER, "seg_2")
    (record,) = (tmp_path / ".h2ams/forgotten").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert b"Body 2." in record.read_bytes()


def test_a_segment_comes_back_before_the_one_that_followed_it(tmp_path: Path):
    put(tmp_path, {"user/memory.md": ODD})
    store = open_store(tmp_path)
    store.remove(USER, "seg_1")
    store.add(USER, "meanwhile", kind="fact")
    store.unforget(USER, "seg_1")
    after = (tmp_path / "user/memory.md").read_text(encoding="utf-8")
    assert "---\nid: seg_1\n# a comment\nodd: key\n---\nFirst.  \n\n---\nid: seg_2\n" in after
    assert [entry.segment.body for entry in entries(store, USER)] == [
        "Prose on top.",
        "First.  ",
        "Second.\n<!-- a comment of its own -->",
        "Third.",
        "meanwhile",
    ]


def test_the_last_segment_comes_back_at_the_end_and_text_without_header_keeps_its_address(
    tmp_path: Path,
):
    put(tmp_path, {"user/memory.md": "Only prose.\n"})
    store = open_store(tmp_path)
    address = entries(store, USER)[0].address_id
    store.remove(USER, address)
    store.add(USER, "meanwhile", kind="fact")
    assert store.unforget(USER, address).id == address
    assert bodies(store, USER) == ["meanwhile", "Only prose."]
    assert store.find(USER, address) is not None


def test_bringing_back_what_is_there_again_writes_nothing(tmp_path: Path):
    store = open_store(tmp_path)
    made = store.add(USER, "text", kind="fact")
    store.remove(USER, made.id)
    assert store.add(USER, "text", kind="fact").id == made.id
    before = snapshot(tmp_path)
    assert not store.unforget(USER, made.id).changed
    assert snapshot(tmp_path) == before


def test_another_text_under_the_same_id_is_not_overwritten(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    store.remove(USER, "seg_2")
    put(tmp_path, {"user/memory.md": segment_text("seg_2", "Something else.")})
    with pytest.raises(ConflictError):
        store.unforget(USER, "seg_2")
    assert [record.id for record in store.forgotten(USER)] == ["seg_2"]


def test_a_segment_in_two_layouts_is_forgotten_in_both_and_comes_back_in_both(tmp_path: Path):
    put(
        tmp_path,
        {
            "sessions/s1/memory.md": segment_text("a", "newer", updated="2026-05-02T00:00:00Z"),
            "group/s1/memory.md": segment_text("a", "older") + "\n" + segment_text("b", "kept"),
        },
    )
    store = open_store(tmp_path)
    before = snapshot(tmp_path)
    done = store.remove(SESSION, "a")
    assert (done.path, done.other_paths) == ("sessions/s1/memory.md", ("group/s1/memory.md",))
    assert bodies(store, SESSION) == ["kept"], "the older copy does not come up again"
    store.unforget(SESSION, "a")
    assert snapshot(tmp_path) == before


def test_a_segment_comes_back_in_the_new_layout_after_the_old_one_is_gone(tmp_path: Path):
    put(tmp_path, {"group/s1/memory.md": segment_text("a", "old")})
    store = open_store(tmp_path)
    store.remove(SESSION, "a")
    (tmp_path / "group").rename(tmp_path / "elsewhere")
    assert store.unforget(SESSION, "a").path == "sessions/s1/memory.md"
    assert bodies(store, SESSION) == ["old"]


def test_a_retired_segment_can_be_forgotten_too(tmp_path: Path):
    put(tmp_path, {"user/archive.md": segment_text("old", "retired"), "user/memory.md": THREE})
    store = open_store(tmp_path)
    assert store.remove(USER, "old").path == "user/archive.md"
    assert (tmp_path / "user/archive.md").read_bytes() == b""
    store.unforget(USER, "old")
    assert [path for path, _ in store.archived(USER)] == ["user/archive.md"]
    assert "retired" in (tmp_path / "user/archive.md").read_text(encoding="utf-8")


def test_forgetting_a_segment_leaves_its_retired_namesake_alone(tmp_path: Path):
    put(tmp_path, {"user/archive.md": segment_text("a", "retired")})
    put(tmp_path, {"user/memory.md": segment_text("a", "alive")})
    store = open_store(tmp_path)
    store.remove(USER, "a")
    assert "retired" in (tmp_path / "user/archive.md").read_text(encoding="utf-8")


def test_what_is_purged_is_nowhere(tmp_path: Path):
    marker = "MARKER-4711"
    put(
        tmp_path,
        {
            "sessions/s1/memory.md": segment_text("a", f"{marker} new") + "\n" + THREE,
            "group/s1/memory.md": segment_text("a", f"{marker} old"),
            "sessions/s1/archive.md": segment_text("a", f"{marker} retired"),
        },
    )
    store = open_store(tmp_path)
    with pytest.raises(ConflictError):
        store.update(SESSION, "a", body=f"{marker} refused", expect="0" * 64)
    store.remove(SESSION, "a")
    store.unforget(SESSION, "a")
    store.remove(SESSION, "a")
    assert marker.encode() in everything(tmp_path)
    done = store.remove(SESSION, "a", purge=True)
    assert done.removed
    assert marker.encode() not in everything(tmp_path)
    with pytest.raises(NotFoundError):
        store.unforget(SESSION, "a")
    assert "Body 1." in bodies(store, SESSION)


def test_purging_a_forgotten_segment_and_purging_a_scope_clear_what_was_kept(tmp_path: Path):
    store = open_store(tmp_path)
    first = store.add(USER, "first", kind="fact")
    second = store.add(USER, "second", kind="fact")
    other = store.add(SESSION, "other", kind="fact")
    for scope, made in ((USER, first), (USER, second), (SESSION, other)):
        store.remove(scope, made.id)
    assert store.remove(USER, first.id, purge=True).removed
    assert [record.id for record in store.forgotten(USER)] == [second.id]
    assert store.purge_forgotten(USER) == 1
    assert store.purge_forgotten(USER) == 0
    assert [record.id for record in store.forgotten(SESSION)] == [other.id]
    assert store.purge_forgotten(SESSION, other.id) == 1
    assert b"second" not in everything(tmp_path)


def test_leftovers_of_killed_writers_are_purged_too(tmp_path: Path):
    marker = "MARKER-4711"
    store = open_store(tmp_path)
    made = store.add(USER, f"{marker} text", kind="fact")
    store.remove(USER, made.id)
    (record,) = (tmp_path / ".h2ams/forgotten").iterdir()
    put(
        record.parent,
        {f".{record.name}.0123456789abcdef.tmp": f"{marker} in a temporary of the state"},
    )
    put(tmp_path, {"user/.memory.md.0123456789abcdef.tmp": f"{marker} in a temporary"})
    assert store.remove(USER, made.id, purge=True).removed
    assert marker.encode() not in everything(tmp_path)


def test_a_redirected_topics_own_segment_comes_back_where_it_was(tmp_path: Path):
    topic = parse_scope("topic/login")
    put(
        tmp_path,
        {
            "topic/login/redirect.json": '{"version":1,"canonical":"auth"}',
            "topic/login/memory.md": segment_text("a", "left behind"),
            "topic/auth/memory.md": segment_text("b", "successor"),
        },
    )
    store = open_store(tmp_path)
    before = snapshot(tmp_path)
    store.remove(topic, "a")
    assert store.unforget(topic, "a").path == "topic/login/memory.md"
    assert snapshot(tmp_path) == before


def test_a_damaged_undo_record_is_named_and_can_be_purged(tmp_path: Path):
    store = open_store(tmp_path)
    made = store.add(USER, "text", kind="fact")
    store.remove(USER, made.id)
    (record,) = (tmp_path / ".h2ams/forgotten").iterdir()
    record.write_bytes(b"{}")
    with pytest.raises(StoreError) as caught:
        store.unforget(USER, made.id)
    assert record.name in str(caught.value)
    assert store.purge_forgotten(USER, made.id) == 1


pieces = st.sampled_from(
    [
        "prose\n",
        "\n",
        "\n\n",
        "\r\n",
        "---\n",
        "```\n",
        "<!-- c -->\n",
        "<!-- dream-state -->\nx: y\n<!-- /dream-state -->\n",
        segment_text("a", "one"),
        segment_text("b", "two\n\nparts"),
        segment_text("a", "again"),
        "---\nid: c\nodd: 1 # why\n---\nthree  \n",
        "no break",
    ]
)
files = st.lists(pieces, max_size=8).map("".join)


@given(files, st.integers(0, 7))
def test_unforget_undoes_forget_in_any_file(
    tmp_path_factory: pytest.TempPathFactory, text: str, number: int
):
    folder = tmp_path_factory.mktemp("root")
    put(folder, {"user/memory.md": text})
    store = open_store(folder)
    found = entries(store, USER)
    if not found:
        return
    id = found[number % len(found)].address_id
    store.remove(USER, id)
    assert (folder / "user/memory.md").read_bytes() != text.encode()
    store.unforget(USER, id)
    assert (folder / "user/memory.md").read_bytes() == text.encode()


@given(files, files, st.integers(0, 7))
def test_unforget_into_a_changed_file_keeps_every_other_entry(
    tmp_path_factory: pytest.TempPathFactory, text: str, other: str, number: int
):
    folder = tmp_path_factory.mktemp("root")
    scope = parse_scope("user")
    put(folder, {"user/memory.md": text})
    store = open_store(folder)
    found = entries(store, scope)
    if not found:
        return
    forgotten = found[number % len(found)]
    store.remove(scope, forgotten.address_id)
    put(folder, {"user/memory.md": other})
    before = [entry.segment.body for entry in entries(store, scope)]
    try:
        store.unforget(scope, forgotten.address_id)
    except ConflictError:
        assert (folder / "user/memory.md").read_bytes() == other.encode()
        return
    after = [entry.segment.body for entry in entries(store, scope)]
    assert forgotten.segment.body in after
    for body in before:
        assert body in after
