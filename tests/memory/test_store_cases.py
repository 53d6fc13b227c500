"""Faults that memory stores were reported for, each as it was seen; K… are the ids of the cases."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from memory.store_kit import (
    SESSION,
    USER,
    bodies,
    entries,
    everything,
    open_store,
    put,
    save,
    segment_text,
    snapshot,
)

from h2ams.errors import ConflictError, LimitError, StoreError, UnsafePathError, UsageError
from h2ams.memory.scope import parse_scope
from h2ams.memory.scope_files import WRITE_TRIES
from h2ams.settings import Settings

HAND_MADE = (
    "---\nz: 1\nid: seg_1\na: 2\nm: 3\n# why z comes first\ntags: [x]\n---\nFirst.  \n"
    "with blanks  \n\n<!-- a note between segments -->\n\n"
    "---\nid: seg_2\nz: 1\nkind:   fact   # a comment\ntags:\n  - one\n  - two\n---\nSecond.\n\n\n"
    "---\nid: seg_3\n---\nThird.\n\n\n"
)


def test_k08_a_change_of_one_segment_touches_its_lines_only(tmp_path: Path):
    put(tmp_path, {"user/memory.md": HAND_MADE})
    store = open_store(tmp_path)
    store.update(USER, "seg_2", body="Second, changed.")
    after = (tmp_path / "user/memory.md").read_text(encoding="utf-8")
    first, rest = HAND_MADE.split("---\nid: seg_2", 1)
    third = rest[rest.index("\n\n\n---\nid: seg_3") :]
    assert after.startswith(first) and after.endswith(third)
    changed = after[len(first) : -len(third)]
    assert changed == (
        "---\nid: seg_2\nz: 1\nkind:   fact   # a comment\ntags:\n  - one\n  - two\n"
        "updatedAt: 2026-05-01T08:01:00Z\n---\nSecond, changed."
    )


def test_k08_a_write_without_a_change_writes_no_byte(tmp_path: Path):
    put(tmp_path, {"user/memory.md": HAND_MADE})
    store = open_store(tmp_path)
    for entry in entries(store, USER):
        segment = entry.segment
        done = store.update(USER, entry.address_id, body=segment.body, tags=segment.tags)
        assert not done.changed
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == HAND_MADE


def test_k09_text_that_an_editor_appended_survives_an_agents_update(tmp_path: Path):
    put(tmp_path, {"user/memory.md": segment_text("seg_1", "One.")})
    store = open_store(tmp_path)
    assert bodies(store, USER) == ["One."]
    with (tmp_path / "user/memory.md").open("a", encoding="utf-8") as file:
        file.write("\n" + segment_text("seg_2", "By hand."))
    store.update(USER, "seg_1", body="One, by the agent.")
    assert bodies(store, USER) == ["One, by the agent.", "By hand."]


def test_k09_the_same_segment_changed_on_both_sides_is_a_conflict_and_a_copy_is_kept(
    tmp_path: Path,
):
    put(tmp_path, {"user/memory.md": segment_text("seg_1", "One.")})
    store = open_store(tmp_path)
    seen = entries(store, USER)[0].digest
    by_hand = segment_text("seg_1", "One, by hand.")
    put(tmp_path, {"user/memory.md": by_hand})
    with pytest.raises(ConflictError) as caught:
        store.update(USER, "seg_1", body="One, by the agent.", expect=seen)
    assert (caught.value.expected, caught.value.actual) == (seen, entries(store, USER)[0].digest)
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == by_hand
    (copy,) = (tmp_path / ".h2ams/conflicts").iterdir()
    assert "One, by the agent." in copy.read_text(encoding="utf-8")
    assert str(copy) in (caught.value.hint or "")


@pytest.mark.parametrize("operation", ["check", "rename", "swap"])
def test_k09_an_editor_that_saves_during_the_write_loses_nothing(tmp_path: Path, operation: str):
    path = tmp_path / "user/memory.md"
    saves = iter(
        [
            segment_text("seg_1", "One.") + "\n" + segment_text("seg_2", "Appended by hand."),
            segment_text("seg_1", "One, by hand.") + "\n" + segment_text("seg_2", "Two by hand."),
        ]
    )

    def editor(at: str, where: str) -> None:
        if at == operation and "memory.md" in where and (text := next(saves, None)):
            save(path, text)

    put(tmp_path, {"user/memory.md": segment_text("seg_1", "One.")})
    store = open_store(tmp_path, hook=editor)
    done = store.update(USER, "seg_1", body="One, by the agent.")
    assert sorted(bodies(store, USER)) == ["One, by hand.", "One, by the agent.", "Two by hand."]
    assert done.conflict is not None
    assert bodies(store, USER)[0] == "One, by hand.", "what a person wrote stays in its place"


def test_k09_a_segment_changed_by_hand_at_the_moment_it_is_forgotten_stays(tmp_path: Path):
    path = tmp_path / "user/memory.md"
    by_hand = segment_text("seg_1", "One, by hand.")

    def editor(at: str, where: str) -> None:
        if at == "check" and where.endswith("memory.md"):
            save(path, by_hand)

    put(tmp_path, {"user/memory.md": segment_text("seg_1", "One.")})
    with pytest.raises(ConflictError):
        open_store(tmp_path, hook=editor).remove(USER, "seg_1")
    assert path.read_text(encoding="utf-8") == by_hand


def test_k09_a_file_that_never_stops_changing_is_a_conflict(tmp_path: Path):
    path = tmp_path / "user/memory.md"
    count = 0

    def editor(at: str, where: str) -> None:
        nonlocal count
        if at == "check" and where.endswith("memory.md"):
            count += 1
            save(path, segment_text("seg_1", f"Save {count}."))

    put(tmp_path, {"user/memory.md": segment_text("seg_1", "One.")})
    with pytest.raises(ConflictError, match=f"changed {WRITE_TRIES} times"):
        open_store(tmp_path, hook=editor).add(USER, "more", kind="fact")


def test_k14_forgetting_all_of_one_session_leaves_the_other_byte_for_byte(tmp_path: Path):
    one, other = parse_scope("sessions/a"), parse_scope("sessions/b")
    store = open_store(tmp_path)
    for number in range(2):
        store.add(one, f"a {number}", kind="fact")
    for number in range(3):
        store.add(other, f"b {number}", kind="fact")
    before = (tmp_path / "sessions/b/memory.md").read_bytes()
    for entry in entries(store, one):
        store.remove(one, entry.address_id)
    assert bodies(store, one) == []
    assert (tmp_path / "sessions/a/memory.md").read_bytes() == b""
    assert (tmp_path / "sessions/b/memory.md").read_bytes() == before
    assert bodies(store, other) == ["b 0", "b 1", "b 2"]


def test_k17_a_write_never_follows_a_link_out_of_the_root(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "t"
    outside.mkdir()
    (root / "user").mkdir(parents=True)
    victim = outside / "victim.md"
    victim.write_text("original", encoding="utf-8")
    (root / "user/memory.md").symlink_to(victim)
    (root / "user/summary.md").symlink_to(outside / "new.md")
    (root / "user/.lock").symlink_to(outside / "lock")
    store = open_store(root)
    with pytest.raises(UnsafePathError):
        store.add(USER, "text", kind="fact")
    with pytest.raises(UnsafePathError):
        store.write_summary(USER, "text")
    assert victim.read_text(encoding="utf-8") == "original"
    assert [path.name for path in outside.iterdir()] == ["victim.md"]


def test_k17_a_scope_folder_that_is_a_link_out_of_the_root_is_refused(tmp_path: Path):
    root, outside = tmp_path / "root", tmp_path / "t"
    outside.mkdir()
    (root / "sessions").mkdir(parents=True)
    (root / "sessions/s1").symlink_to(outside, target_is_directory=True)
    with pytest.raises(UnsafePathError):
        open_store(root).add(SESSION, "text", kind="fact")
    assert list(outside.iterdir()) == []


SECRETS = {
    "key": "sk-" + "a1B2" * 10,
    "token": "ghp_" + "a1B2c3" * 6,
    "access": "AKIA" + "ABCDEFGH12345678",
    "bearer": "Authorization: Bearer " + "a1B2" * 10,
    "password": "export DB_PASSWORD=hunter2hunter2",
    "pem": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAu1SU1LfVLPHCozMx"
        "\n-----END RSA PRIVATE KEY-----"
    ),
}
RAW = {
    **SECRETS,
    "bearer": "a1B2" * 10,
    "password": "hunter2hunter2",
    "pem": "MIIEowIBAAKCAQEAu1SU1LfVLPHCozMx",
}


@pytest.mark.parametrize("name", list(SECRETS))
def test_k59_a_secret_is_nowhere_on_disk_and_its_words_around_are(tmp_path: Path, name: str):
    secret, raw = SECRETS[name], RAW[name]
    store = open_store(tmp_path)
    made = store.add(USER, f"before {secret} after", kind="fact")
    assert made.redacted
    store.update(USER, made.id, body=f"earlier {secret} later")
    with pytest.raises(ConflictError):
        store.update(USER, made.id, body=f"refused {secret}", expect="0" * 64)
    store.remove(USER, made.id)
    store.add(USER, f"again {secret} too", kind="fact", tags=["tag"])
    store.write_summary(USER, f"sum {secret} up")
    disk = everything(tmp_path)
    assert raw.encode() not in disk
    for word in (b"earlier", b"later", b"again", b"too", b"refused", b"sum", b"up"):
        assert word in disk


def test_k59_text_that_a_person_wrote_is_not_touched(tmp_path: Path):
    hand_made = segment_text("seg_1", f"mine: {SECRETS['key']}")
    put(tmp_path, {"user/memory.md": hand_made})
    store = open_store(tmp_path)
    store.add(USER, "more", kind="fact")
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8").startswith(hand_made)


def test_k74_a_link_inside_the_root_stays_a_link_and_its_target_gets_the_text(tmp_path: Path):
    put(tmp_path, {"store/user.md": segment_text("seg_1", "One.")})
    (tmp_path / "user").mkdir()
    link = tmp_path / "user/memory.md"
    link.symlink_to(os.path.join("..", "store", "user.md"))
    store = open_store(tmp_path)
    made = store.add(USER, "two", kind="fact")
    store.update(USER, "seg_1", body="One, changed.")
    store.remove(USER, made.id)
    assert link.is_symlink()
    target = tmp_path / "store/user.md"
    assert not target.is_symlink()
    assert "One, changed." in target.read_text(encoding="utf-8")
    assert bodies(store, USER) == ["One, changed."]


def test_k75_texts_that_begin_alike_are_three_segments_and_an_equal_one_is_none(tmp_path: Path):
    store = open_store(tmp_path)
    texts = [f"User: thanks that helps a lot {word}" for word in ("ALPHA", "BRAVO", "CHARLIE")]
    made = [store.add(USER, text, kind="fact") for text in texts]
    assert len({each.id for each in made}) == 3
    again = store.add(USER, texts[0], kind="fact")
    assert (again.created, again.id) == (False, made[0].id)
    assert bodies(store, USER) == texts


def test_k76_fields_that_join_to_the_same_text_are_different_segments(tmp_path: Path):
    store = open_store(tmp_path)
    first = store.add(parse_scope("sessions/s-abc"), "debugx", kind="fact")
    second = store.add(parse_scope("sessions/s-ab"), "cdebugx", kind="fact")
    third = store.add(parse_scope("sessions/s-abc"), "debugx", kind="goal")
    assert len({first.id, second.id, third.id}) == 3
    assert all(each.created for each in (first, second, third))


def test_k78_each_writing_path_of_the_library_refuses_a_text_over_the_limit(tmp_path: Path):
    store = open_store(tmp_path, settings=Settings(max_segment_chars=4_000, summary_tokens=10))
    made = store.add(USER, "short", kind="fact")
    before = snapshot(tmp_path)
    for call in (
        lambda: store.add(USER, "x" * 4_001, kind="fact"),
        lambda: store.update(USER, made.id, body="x" * 4_001),
    ):
        with pytest.raises(LimitError) as caught:
            call()
        error = caught.value
        assert (error.name, error.limit, error.size) == ("max_segment_chars", 4_000, 4_001)
        assert all(str(number) in str(error) for number in (4_000, 4_001, error.current))
    with pytest.raises(LimitError) as caught:
        store.write_summary(USER, "word " * 11)
    assert (caught.value.name, caught.value.size) == ("summary_tokens", 11)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "kept", "hidden"),
    [
        ("a <private>code 4711</private> b", ["a ", " b"], "4711"),
        ("open <private>x4711", ["open"], "x4711"),
        ("n <PRIVATE>1 <private>4711</private> 2</PRIVATE> m", ["n ", " m"], "4711"),
    ],
)
def test_k137_private_text_is_nowhere_on_disk(
    tmp_path: Path, text: str, kept: list[str], hidden: str
):
    store = open_store(tmp_path)
    made = store.add(USER, text, kind="fact")
    store.update(USER, made.id, tags=[f"t {text}"])
    store.remove(USER, made.id)
    disk = everything(tmp_path)
    assert hidden.encode() not in disk
    for part in kept:
        assert part.encode() in disk


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path):
    put(tmp_path, {"user": "a file where a folder should be"})
    with pytest.raises(StoreError) as caught:
        open_store(tmp_path).add(USER, "text", kind="fact")
    assert "user" in str(caught.value)


def test_an_empty_text_is_refused_before_anything_is_touched(tmp_path: Path):
    with pytest.raises(UsageError):
        open_store(tmp_path).add(USER, "", kind="fact")
    assert list(tmp_path.iterdir()) == []
