"""From recall and state to the block, and through turns, restarts and deletions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from active.samples import NOW, REAL, hit, reasons, record, shown

from h2ams.active import preflow
from h2ams.active.ams import ActiveSet, task_fingerprint
from h2ams.active.block import MemoryBlock
from h2ams.active.preflow import ScopeSummary
from h2ams.active.registry import Registry
from h2ams.files import Root
from h2ams.memory.record import Hit, Record
from h2ams.settings import DEFAULTS

_TASK = task_fingerprint(["token", "rotation"])
_CLOSENESS = {"sessions/s1": 0, "sessions/s1/vp/alice": 1, "user": 7, "sessions/s9": 9}


class _Index:
    """What the index gives: a dictionary that other processes change."""

    def __init__(self, *records: Record) -> None:
        self.records = {each.address: each for each in records}
        self.calls = 0

    def fetch(self, addresses: Sequence[str]) -> dict[str, Record]:
        self.calls += 1
        return {each: self.records[each] for each in addresses if each in self.records}

    def resolve(self, address: str) -> str | None:
        return address if address in self.records else None


def _block(
    state: ActiveSet, hits: Sequence[Hit], index: _Index, *summaries: ScopeSummary, **options: Any
) -> MemoryBlock:
    values = {
        "task": _TASK,
        "fetch": index.fetch,
        "closeness": lambda scope: _CLOSENESS.get(scope, 8),
        "total": 1_500,
        "counter": REAL,
        "settings": DEFAULTS,
        "now": NOW,
        **options,
    }
    return preflow.preflow("token rotation", state, hits, summaries, **values)


def _layer(block: MemoryBlock, name: str) -> list[str]:
    return [item.id for item in block.receipt.layers[name].items]


def test_the_three_layers_come_from_summaries_state_and_matches() -> None:
    index = _Index(record("Used before.", "used"), record("Pinned by a model.", "pin"))
    state = ActiveSet(turn=1).touch(["sessions/s1#used"], keep=9).pin(["sessions/s1#pin"])
    match = record(
        "Tokens rotate.", "match", kind="decision", path="sessions/s1/memory.md", line=12
    )
    text = ScopeSummary(
        "sessions/s1", "About tokens.", "sessions/s1/summary.md", "2026-05-01T08:00"
    )
    block = _block(state, [hit(match, 2.0)], index, text)
    assert _layer(block, "resident") == ["summary"]
    assert _layer(block, "recent") == ["used"]
    assert _layer(block, "on_demand") == ["pin", "match"]
    assert "[sessions/s1#summary · summary · 2026-05-01]\nAbout tokens." in block.text
    item = block.receipt.layers["on_demand"].items[1]
    assert (item.path, item.line, item.score) == ("sessions/s1/memory.md", 12, 2.0)
    assert dict(item.terms) == {"bm25": 2.0}
    assert index.calls == 1


def test_a_related_sessions_items_name_it() -> None:
    found = record("Shared.", "seg_x", "sessions/s9", source_session="s9")
    text = ScopeSummary("sessions/s9", "Sibling.", "sessions/s9/summary.md", source_session="s9")
    block = _block(ActiveSet(), [hit(found)], _Index(), text)
    assert block.text.count("from session s9") == 2


def test_a_notes_heading_is_shown_once() -> None:
    plain = record("Rotate weekly.", "note_1", heading="Keys > Rotation", is_note=True)
    again = record("Text.", "note_2", heading="Keys > Other", is_note=True)
    text = _block(ActiveSet(), [hit(plain), hit(again)], _Index()).text
    assert "Keys > Rotation · 2026-04-30]\nRotate weekly." in text
    assert text.count("Keys > Other") == 1


@pytest.mark.parametrize("time", [None, "not a date", "", "2026-13-40T00:00:00Z"])
def test_a_time_that_is_none_is_not_shown(time: str | None) -> None:
    """K51"""
    found = record("Body.", created_at=None, updated_at=time)
    assert "[sessions/s1#seg_1 · fact]" in _block(ActiveSet(), [hit(found)], _Index()).text


def test_blank_summaries_take_no_place() -> None:
    block = _block(ActiveSet(), [], _Index(), ScopeSummary("user", " \n", "user/summary.md"))
    assert block.text == "" and block.receipt.rejected == ()


def test_a_stale_match_is_rejected_as_stale() -> None:
    block = _block(ActiveSet(), [hit(record("Old rows.", stale=True))], _Index())
    assert reasons(block) == {"sessions/s1#seg_1": "stale"}


def test_an_evicted_match_is_listed_and_not_shown() -> None:
    state = ActiveSet().evict(["sessions/s1#out"])
    hits = [hit(record("In.", "in")), hit(record("Out.", "out"), 9.0)]
    block = _block(state, hits, _Index())
    assert shown(block) == ["sessions/s1#in"]
    assert reasons(block) == {"sessions/s1#out": "evicted"}


def test_what_another_process_forgot_is_in_no_layer(tmp_path: Path) -> None:
    """K50, at once and after a restart."""
    first, second = record("First fact.", "S1"), record("Second fact.", "S2")
    index = _Index(first, second)
    registry = Registry(Root(tmp_path))
    addresses = [first.address, second.address]
    state = registry.update(
        "s1", "alice", lambda s: s.next_turn().touch(addresses, keep=9).pin(addresses)
    )
    assert shown(_block(state, [hit(first), hit(second)], index)) == addresses
    del index.records[first.address]
    for live in (state, Registry(Root(tmp_path)).load("s1", "alice", resolve=index.resolve)):
        block = _block(live, [hit(second)], index)
        assert shown(block) == [second.address]
        assert "First fact" not in block.text and first.address not in str(block.receipt)


def test_a_new_session_with_the_id_of_a_deleted_one_has_an_empty_block(tmp_path: Path) -> None:
    """K19"""
    old = record("S1 of the old session.", "S1", "sessions/20261201_1")
    index = _Index(old)
    registry = Registry(Root(tmp_path))
    registry.update("20261201_1", None, lambda s: s.touch([old.address], keep=9))
    registry.drop("20261201_1")
    index.records.clear()
    state = registry.load("20261201_1", None, resolve=index.resolve)
    assert state == ActiveSet()
    assert _block(state, [], index).text == ""


def test_corrections_survive_the_next_preflow_and_a_restart_until_the_task_changes(
    tmp_path: Path,
) -> None:
    pinned, evicted = record("Pinned.", "pin"), record("Evicted.", "out")
    index = _Index(pinned, evicted)
    registry = Registry(Root(tmp_path))
    hits = [hit(evicted, 5.0)]

    def turn(task: str) -> list[str]:
        fresh = Registry(Root(tmp_path))
        block = _block(fresh.load("s1", "alice", resolve=index.resolve), hits, index, task=task)
        fresh.update("s1", "alice", lambda s: preflow.commit(s, block, task=task, recent_count=0))
        return shown(block)

    assert turn(_TASK) == [evicted.address]
    registry.update(
        "s1", "alice", lambda s: s.pin([pinned.address]).evict([evicted.address]).adjusted()
    )
    assert turn(_TASK) == [pinned.address]
    assert turn(task_fingerprint(["rotation", "tests"])) == [pinned.address]
    assert turn(task_fingerprint([])) == [pinned.address]
    assert turn(task_fingerprint(["holiday"])) == [evicted.address]
    assert registry.load("s1", "alice").adjust_ran


def test_a_dry_call_changes_nothing_and_equal_calls_give_equal_bytes() -> None:
    match = record("Tokens rotate.", "match")
    state = ActiveSet(turn=2).touch(["sessions/s1#used"], keep=9)
    index = _Index(record("Used.", "used"))
    first, second = (_block(state, [hit(match)], index) for _ in range(2))
    assert first == second and first.text == second.text


def test_a_committed_turn_makes_its_picks_recent_and_lets_the_others_age() -> None:
    one, other = record("Tokens rotate.", "one"), record("Cookies last a day.", "other")
    index = _Index(one, other)
    block = _block(ActiveSet(), [hit(one)], index)
    state = preflow.commit(ActiveSet(), block, task=_TASK, recent_count=9)
    assert (state.turn, [use.address for use in state.recent]) == (1, [one.address])
    block = _block(state, [hit(other)], index)
    assert (_layer(block, "recent"), _layer(block, "on_demand")) == (["one"], ["other"])
    state = preflow.commit(state, block, task=_TASK, recent_count=9)
    assert [(use.address, use.turn) for use in state.recent] == [
        (other.address, 2),
        (one.address, 1),
    ]
    block = _block(state, [hit(one)], index)
    assert _layer(block, "on_demand") == []
    again = next(i for i in block.receipt.layers["recent"].items if i.id == "one")
    assert dict(again.terms) == {"bm25": 1.0}
    state = preflow.commit(state, block, task=_TASK, recent_count=9)
    assert [use.address for use in state.recent] == [one.address, other.address]


def test_recent_orders_within_a_turn_by_kind() -> None:
    kinds = ["fact", "correction", "context", "decision"]
    index = _Index(*(record(f"About {kind}.", kind, kind=kind) for kind in kinds))
    state = ActiveSet(turn=1).touch(list(index.records), keep=9)
    assert _layer(_block(state, [], index), "recent") == [
        "correction",
        "decision",
        "fact",
        "context",
    ]


def test_unchanged_memory_keeps_the_text_while_only_the_clock_moves() -> None:
    hits = [hit(record(f"Fact number {at}.", f"seg_{at}"), 1.0) for at in range(9)]
    one = _block(ActiveSet(), hits, _Index(), now=NOW)
    other = _block(ActiveSet(), hits[::-1], _Index(), now="2027-01-01T00:00:00Z")
    assert one.text == other.text
    assert replace(one.receipt, now="") == replace(other.receipt, now="")
