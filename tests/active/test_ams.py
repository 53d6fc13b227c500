"""The state between turns: recent, pins, evictions, the task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from h2ams.active.ams import (
    EVICTED_COUNT,
    PINNED_COUNT,
    ActiveSet,
    Use,
    continues,
    task_fingerprint,
)


def _recent(state: ActiveSet) -> list[str]:
    return [use.address for use in state.recent]


def test_touch_puts_the_last_used_first_and_forgets_the_least_recent() -> None:
    state = ActiveSet(turn=1).touch(["a", "b", "c"], keep=4).next_turn().touch(["d", "b"], keep=4)
    assert _recent(state) == ["d", "b", "a", "c"]
    assert state.recent[0] == Use(2, "d")
    assert _recent(state.next_turn().touch(["e"], keep=4)) == ["e", "d", "b", "a"]


def test_a_touch_for_an_earlier_turn_does_not_make_anything_younger() -> None:
    state = ActiveSet().touch(["a"], turn=5, keep=9).touch(["b"], turn=3, keep=9)
    assert _recent(state) == ["a", "b"]
    assert state.touch(["a"], turn=2, keep=9) == state
    assert state.turn == 5


def test_nothing_is_remembered_where_nothing_is_to_be_kept() -> None:
    assert ActiveSet().touch(["a"], keep=0).recent == ()


def test_on_demand_is_pinned_and_matches_minus_evicted() -> None:
    state = ActiveSet().pin(["p", "q"]).evict(["m", "q"])
    assert state.on_demand(["m", "n", "p"]) == ("p", "n")


def test_pinning_takes_back_an_eviction_and_the_other_way_round() -> None:
    state = ActiveSet().evict(["a", "b"]).pin(["a"])
    assert (state.pinned, state.evicted) == (("a",), ("b",))
    state = state.evict(["a"])
    assert (state.pinned, state.evicted) == ((), ("a", "b"))


def test_an_evicted_segment_leaves_recent_and_comes_back_when_it_is_used() -> None:
    state = ActiveSet(turn=1).touch(["a", "b"], keep=9).evict(["a"])
    assert _recent(state) == ["b"]
    state = state.touch(["a"], keep=9)
    assert (_recent(state), state.evicted) == (["a", "b"], ())


def test_pins_and_evictions_are_bounded_and_keep_the_newest() -> None:
    state = ActiveSet().pin(f"p{at}" for at in range(PINNED_COUNT)).pin(["new"])
    assert len(state.pinned) == PINNED_COUNT and state.pinned[0] == "new"
    state = state.evict(f"e{at}" for at in range(EVICTED_COUNT)).evict(["newer"])
    assert len(state.evicted) == EVICTED_COUNT and state.evicted[0] == "newer"


def test_corrections_survive_the_next_query_of_the_task_and_end_with_it() -> None:
    first = task_fingerprint(["refresh", "token", "rotation"])
    again = task_fingerprint(["token", "tests"])
    other = task_fingerprint(["holiday", "plans"])
    state = ActiveSet().enter_task(first).pin(["p"]).evict(["e"])
    kept = state.enter_task(again)
    assert (kept.pinned, kept.evicted) == (("p",), ("e",))
    assert kept.enter_task(task_fingerprint(["rotation"])).pinned == ("p",)  # words add up
    assert kept.enter_task(task_fingerprint([])) == kept  # "yes, go on"
    ended = kept.enter_task(other)
    assert (ended.pinned, ended.evicted, ended.task) == ((), (), other)


def test_an_unknown_task_takes_the_first_one_without_loss() -> None:
    state = ActiveSet(pinned=("p",)).enter_task(task_fingerprint(["token"]))
    assert state.pinned == ("p",) and state.task


def test_a_fingerprint_holds_no_word_and_does_not_depend_on_order() -> None:
    words = ["password", "reset", "用户", "\ud800"]
    fingerprint = task_fingerprint(words)
    assert fingerprint == task_fingerprint([*words[::-1], "reset"])
    assert not any(word in fingerprint for word in words)
    assert continues(fingerprint, task_fingerprint(["reset"]))
    assert not continues(fingerprint, task_fingerprint(["other"]))


def test_the_fingerprint_of_a_long_task_is_bounded() -> None:
    state = ActiveSet().enter_task(task_fingerprint(str(at) for at in range(500)))
    for at in range(50):
        state = state.enter_task(f"{state.task.split()[0]} {at:08x}")
    assert len(state.task.split()) <= 32


def test_hydrating_takes_the_flag_and_what_still_resolves() -> None:
    state = ActiveSet(
        turn=4,
        recent=(Use(4, "user#a"), Use(3, "user#gone"), Use(2, "seg_old")),
        pinned=("vp/x#private", "user#p"),
        evicted=("user#gone", "user#e"),
        adjust_ran=True,
    )
    names = {"user#a": "user#a", "seg_old": "topic/t#seg_old", "user#p": "user#p"}
    found = state.resolved(names.get)
    assert _recent(found) == ["user#a", "topic/t#seg_old"]
    assert (found.pinned, found.evicted, found.adjust_ran, found.turn) == (("user#p",), (), True, 4)


_ADDRESSES = st.sampled_from("abcdefg")
_CHANGES = st.one_of(
    st.tuples(st.just("touch"), st.lists(_ADDRESSES), st.integers(0, 9)),
    st.tuples(st.just("pin"), st.lists(_ADDRESSES), st.just(0)),
    st.tuples(st.just("evict"), st.lists(_ADDRESSES), st.just(0)),
    st.tuples(st.just("turn"), st.just([]), st.just(0)),
    st.tuples(st.just("task"), st.lists(_ADDRESSES), st.just(0)),
)


@given(st.lists(_CHANGES, max_size=20))
def test_any_history_leaves_a_valid_state(changes: list) -> None:
    state = ActiveSet()
    for name, addresses, turn in changes:
        match name:
            case "touch":
                state = state.touch(addresses, turn, keep=4)
                assert len(state.recent) <= 4
            case "pin":
                state = state.pin(addresses)
                assert set(addresses) <= set(state.pinned)
            case "evict":
                state = state.evict(addresses)
                assert not set(addresses) & {*state.pinned, *state.on_demand("abcdefg")}
            case "turn":
                state = state.next_turn()
            case _:
                state = state.enter_task(task_fingerprint(addresses))
        names = _recent(state)
        assert len(names) == len(set(names))
        assert [use.turn for use in state.recent] == sorted(
            (use.turn for use in state.recent), reverse=True
        )
        assert not set(state.pinned) & set(state.evicted)
        assert state.turn >= max((use.turn for use in state.recent), default=0)
        assert state.resolved(lambda each: each) == state
