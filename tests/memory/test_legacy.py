"""Historical folders: several layouts as one scope, redirected topics, dream state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.store_kit import bodies, copy_legacy, entries, open_store, put, segment_text, snapshot

from h2ams.memory.legacy import DreamState, follow, parse_dream_state, parse_redirect, union
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import parse

OLD, NEW = "2026-05-01T00:00:00.000Z", "2026-05-02T00:00:00Z"


def test_every_segment_of_the_historical_folder_is_found_under_its_sessions_name(tmp_path: Path):
    root = copy_legacy(tmp_path)
    expected = json.loads((root / "expected.json").read_text(encoding="utf-8"))["segments"]
    before = snapshot(root)
    store = open_store(root)
    for item in expected:
        found = store.find(parse_scope(item["scope"]), item["id"])
        assert found is not None, item
        path, document, index = found
        segment = document.entries[index].segment
        assert (segment.body, segment.kind) == (item["body"], item["kind"])
        assert list(segment.tags) == item["tags"]
        assert list(segment.source_messages) == item["source_messages"]
        assert (root / path).is_file()
    assert snapshot(root) == before, "reading never migrates"


def test_the_three_spellings_of_a_session_are_one_scope(tmp_path: Path):
    put(
        tmp_path,
        {
            "sessions/g/memory.md": segment_text("a", "new", scope="sessions/g"),
            "session/g/memory.md": segment_text("b", "middle", scope="session/g"),
            "group/g/memory.md": segment_text("c", "old", scope="group/g"),
        },
    )
    store = open_store(tmp_path)
    assert store.folders(parse_scope("group/g")) == ("sessions/g", "session/g", "group/g")
    assert bodies(store, parse_scope("sessions/g")) == ["new", "middle", "old"]


@pytest.mark.parametrize(
    ("new_layout", "old_layout", "winner"),
    [(NEW, OLD, "sessions"), (OLD, NEW, "group"), (OLD, OLD, "sessions")],
)
def test_of_one_id_in_two_layouts_the_newer_wins_and_the_other_is_reported(
    tmp_path: Path, new_layout: str, old_layout: str, winner: str
):
    put(
        tmp_path,
        {
            "sessions/g/memory.md": segment_text("a", "sessions", updated=new_layout),
            "group/g/memory.md": segment_text("a", "group", updated=old_layout)
            + "\n"
            + segment_text("b", "only there"),
        },
    )
    store = open_store(tmp_path)
    found = store.union(parse_scope("sessions/g"))
    assert {held.entry.segment.body for held in found.held} == {winner, "only there"}
    (problem,) = found.problems
    assert problem.code == "duplicate-across-layouts"
    loser = "group" if winner == "sessions" else "sessions"
    assert (problem.path, problem.line) == (f"{loser}/g/memory.md", 1)


def test_k66_a_session_in_two_layouts_gives_all_distinct_segments(tmp_path: Path):
    same = segment_text("seg_11111111", "said in both", scope="group/g")
    put(
        tmp_path,
        {
            "group/g/memory.md": same + "\n" + segment_text("seg_22222222", "only old"),
            "sessions/g/memory.md": same.replace("group/g", "sessions/g"),
        },
    )
    store = open_store(tmp_path)
    before = snapshot(tmp_path)
    for _ in range(2):
        found = [entry.address_id for entry in entries(store, parse_scope("sessions/g"))]
        assert sorted(found) == ["seg_11111111", "seg_22222222"]
    assert snapshot(tmp_path) == before


def test_a_dated_entry_beats_an_undated_one_and_unreadable_times_count_as_none():
    dated = parse(segment_text("a", "dated").encode())
    undated = parse(segment_text("a", "undated", updated="soon").replace("2026", "").encode())
    found = union([("sessions/g/memory.md", undated), ("group/g/memory.md", dated)])
    assert [held.entry.segment.body for held in found.held] == ["dated"]
    assert [held.entry.segment.body for held in found.beaten] == ["undated"]


@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=4), max_size=3))
def test_a_union_holds_each_id_once_and_drops_none(layouts: list[list[str]]):
    documents = [
        (f"{number}/memory.md", parse("\n".join(segment_text(id, id) for id in ids).encode()))
        for number, ids in enumerate(layouts)
    ]
    found = union(documents)
    held = [each.entry.address_id for each in found.held]
    wanted = {entry.address_id for _, document in documents for entry in document.entries}
    assert sorted(held) == sorted(wanted)
    assert len(found.problems) == len(found.beaten)
    total = sum(len(document.entries) for _, document in documents)
    assert len(found.held) + len(found.beaten) == total


# Redirects


def test_a_redirect_leads_to_the_topic_that_took_over(tmp_path: Path):
    store = open_store(copy_legacy(tmp_path))
    login = parse_scope("sessions/s_demo/topic/login")
    assert store.canonical(login).text == "sessions/s_demo/topic/auth/refresh"
    assert store.find(login, "seg_88f3d811") is not None
    loop = parse_scope("sessions/s_demo/topic/loop")
    assert store.canonical(loop) == loop
    (problem,) = store.followed(loop).problems
    assert problem.code == "redirect-loop"
    assert problem.path == "sessions/s_demo/topic/loop/redirect.json"


def _follow(table: dict[str, str], start: str) -> tuple[str, list[str]]:
    topics = {f"topic/{name}": target for name, target in table.items()}

    def read(scope: Scope) -> tuple[str, bytes] | None:
        target = topics.get(scope.text)
        if target is None:
            return None
        data = json.dumps({"version": 1, "canonical": target}).encode()
        return f"{scope}/redirect.json", data

    known = set(topics) | {"topic/end", "topic/end/sub"}
    found = follow(parse_scope(f"topic/{start}"), read, lambda scope: scope.text in known)
    return found.scope.text, [problem.code for problem in found.problems]


def test_redirects_are_followed_to_their_end_and_broken_ones_stop_the_way():
    assert _follow({}, "a") == ("topic/a", [])
    assert _follow({"a": "b", "b": "end/sub"}, "a") == ("topic/end/sub", [])
    assert _follow({"a": "a"}, "a") == ("topic/a", ["redirect-loop"])
    assert _follow({"a": "b", "b": "c", "c": "b"}, "a") == ("topic/a", ["redirect-loop"])
    assert _follow({"a": "b", "b": "gone"}, "a") == ("topic/b", ["broken-redirect"])
    assert _follow({"a": "../../user"}, "a") == ("topic/a", ["broken-redirect"])
    assert _follow({"a": "x/y/z"}, "a") == ("topic/a", ["broken-redirect"])


@given(st.dictionaries(st.sampled_from("abcde"), st.sampled_from("abcde"), max_size=5))
def test_following_always_ends_and_ends_in_the_same_place(table: dict[str, str]):
    for start in "abcde":
        end, problems = _follow(table, start)
        assert _follow(table, start) == (end, problems)
        assert problems or table.get(end.removeprefix("topic/")) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"version":2,"canonical":"x"}',
        b'{"version":1}',
        b'{"version":1,"canonical":7}',
        b'{"version":1,"canonical":""}',
        b'{"version":1,"canonical":"' + b"x" * 5000 + b'"}',
        b"\xff\xfe",
        b"[" * 3000,
    ],
)
def test_a_redirect_that_is_none_is_a_reason_and_not_an_error(data: bytes):
    assert isinstance(parse_redirect(data, parse_scope("topic/a")), str)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_redirect_or_a_reason(data: bytes):
    assert isinstance(parse_redirect(data, parse_scope("sessions/s/topic/a")), Scope | str)


# Dream state


def test_the_dream_state_of_the_historical_folder_is_read():
    text = (
        b"lastDreamMessageId: m0015\r\nlastDreamAt: 2026-05-07T00:00:00.000Z\r\nmessageCount: \r\n"
    )
    assert parse_dream_state(text) == DreamState("m0015", "2026-05-07T00:00:00Z", None)
    assert parse_dream_state(b"messageCount: 12\nlastDreamAt:\n") == DreamState(None, None, 12)


def test_the_newest_dream_state_of_a_sessions_layouts_counts_and_none_is_none(tmp_path: Path):
    store = open_store(copy_legacy(tmp_path))
    demo = parse_scope("sessions/s_demo")
    assert store.dream_state(demo) == DreamState("m0015", "2026-05-07T00:00:00Z", None)
    newer = "lastDreamMessageId: m2\nlastDreamAt: 2026-05-08T00:00:00Z\n"
    put(tmp_path / "legacy", {"group/s_demo/.dream-state": newer})
    newest = store.dream_state(demo)
    assert newest is not None and newest.last_message_id == "m2"
    assert store.dream_state(parse_scope("user")) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_dream_state(data: bytes):
    assert isinstance(parse_dream_state(data), DreamState)
