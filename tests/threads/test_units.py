"""What may not be cut apart, and mending what a cut has left."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from threads import recorded
from threads.kit import assistant, entries, tool, user

from h2ams.threads import shapes
from h2ams.threads.message import Message
from h2ams.threads.unit import ABANDONED, RUNNING, Unit, mend, units


def sizes(messages: list[Any]) -> list[int]:
    return [len(unit.entries) for unit in units(entries(messages))]


def read(*messages: Any) -> list[Message]:
    return [shapes.read(each) for each in messages]


def sent(messages: list[Message]) -> list[Any]:
    return [each.original for each in messages]


CALL = assistant("", ("c1", "run", "{}"))
BOTH = assistant("", ("c1", "run", "{}"), ("c2", "run", "{}"))


def test_a_call_and_all_its_results_are_one_unit() -> None:
    assert sizes([user("a"), BOTH, tool("c2", "x"), tool("c1", "y"), assistant("done")]) == [
        1,
        3,
        1,
    ]


def test_a_late_result_binds_everything_between() -> None:
    late = [user("a"), CALL, user("still there?"), assistant("yes"), tool("c1", "x"), user("b")]
    assert sizes(late) == [1, 4, 1]


def test_ids_that_are_used_again_pair_with_the_newest_call() -> None:
    again = [user("a"), CALL, tool("c1", "1"), user("b"), CALL, tool("c1", "2")]
    assert sizes(again) == [1, 2, 1, 2]


def test_a_loop_with_signed_thinking_is_one_unit_up_to_the_next_word_of_a_person() -> None:
    found = units(entries(recorded.ANTHROPIC[:6]))
    assert [len(unit.entries) for unit in found] == [1, 4, 1]
    assert found[1].sealed
    plain = [
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "r", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        {"role": "assistant", "content": "next"},
    ]
    assert sizes(plain) == [2, 1]


def test_reasoning_items_stay_with_what_follows_them() -> None:
    found = units(entries(recorded.OPENAI_RESPONSES[:7]))
    assert [len(unit.entries) for unit in found] == [1, 6]
    alone = [recorded.OPENAI_RESPONSES[5], recorded.OPENAI_RESPONSES[6]]
    assert sizes(alone) == [2]


def test_a_call_without_a_result_is_pending() -> None:
    found = units(entries([user("a"), CALL]))
    assert found[1].state == "pending" and [c.id for c in found[1].open_calls] == ["c1"]


def test_an_interim_result_resolves_nothing() -> None:
    waiting = [user("a"), CALL, tool("c1", '{"status": "running"}'), user("b"), assistant("ok")]
    assert units(entries(waiting))[1].state == "pending"
    done = [*waiting, tool("c1", "finished")]
    assert units(entries(done))[1].state == "closed"


def test_one_of_two_parallel_results_leaves_the_unit_open() -> None:
    found = units(entries([user("a"), BOTH, tool("c1", "x")]))
    assert found[1].state == "pending" and [c.id for c in found[1].open_calls] == ["c2"]


def test_a_call_that_the_conversation_left_behind_is_abandoned() -> None:
    found = units(entries([user("a"), CALL, user("never mind"), assistant("fine"), user("c")]))
    assert [unit.state for unit in found] == ["closed", "abandoned", "closed", "closed", "closed"]


@given(st.lists(st.sampled_from(range(8)), max_size=25))
def test_units_are_all_rows_in_order_and_never_part_a_call_from_its_result(
    kinds: list[int],
) -> None:
    make = [
        lambda n: user(f"u{n}"),
        lambda n: assistant(f"a{n}"),
        lambda n: assistant("", (f"c{n % 3}", "run", "{}")),
        lambda n: assistant("", (f"c{n % 3}", "run", "{}"), (f"c{(n + 1) % 3}", "run", "{}")),
        lambda n: tool(f"c{n % 3}", f"result {n}"),
        lambda n: tool(f"c{(n + 1) % 3}", "[interim] wait"),
        lambda n: tool("nobody", "orphan"),
        lambda n: recorded.OPENAI_RESPONSES[1],
    ]
    rows = entries([make[kind](n) for n, kind in enumerate(kinds)])
    found = units(rows)
    assert [entry for unit in found for entry in unit.entries] == list(rows)
    origin: dict[str, Unit] = {}
    for unit in found:
        for entry in unit.entries:
            for result in entry.message.results:
                assert origin.get(result.call_id, unit) is unit
            for call in entry.message.calls:
                origin[call.id] = unit


# ---------------------------------------------------------------- mending


def test_sound_messages_come_back_as_the_same_objects() -> None:
    for family, messages in recorded.ALL.items():
        sound = [shapes.read(each, family) for each in messages]  # type: ignore[arg-type]
        if family == "openai-chat":
            sound = [sound[0], sound[1], sound[2], sound[4], sound[5], *sound[6:]]
        mended = mend(sound)
        assert [*mended.messages] == sound and not mended.closed and not mended.dropped
        assert all(new is old for new, old in zip(mended.messages, sound, strict=True))


def test_a_result_whose_call_is_gone_is_left_out_and_named() -> None:
    mended = mend(read(user("a"), tool("gone", "x"), assistant("b")))
    assert sent([*mended.messages]) == [user("a"), assistant("b")]
    assert mended.dropped == ("gone",)


def test_the_words_of_a_person_beside_an_orphan_result_stay() -> None:
    mixed = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "gone", "content": "x"},
            {"type": "text", "text": "please go on"},
        ],
    }
    mended = mend(read(mixed))
    assert sent([*mended.messages]) == [
        {"role": "user", "content": [{"type": "text", "text": "please go on"}]}
    ]
    assert len(mixed["content"]) == 2


def test_a_missing_result_becomes_a_notice() -> None:
    mended = mend(read(user("a"), BOTH, tool("c1", "x"), user("b")))
    assert sent([*mended.messages]) == [
        user("a"), BOTH, tool("c1", "x"), tool("c2", ABANDONED), user("b"),
    ]  # fmt: skip
    assert mended.closed == ("c2",)
    running = mend(read(user("a"), CALL, user("b")), running={"c1"})
    assert running.messages[2].results[0].text == RUNNING


def test_a_notice_for_anthropic_stands_with_the_other_results() -> None:
    call = {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "t1", "name": "r", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "r", "input": {}},
        ],
    }
    answer = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "x"},
            {"type": "text", "text": "go on"},
        ],
    }
    mended = mend(read(call, answer))
    blocks = mended.messages[1].original["content"]
    assert [each.get("tool_use_id") for each in blocks] == ["t1", "t2", None]
    assert len(mended.messages) == 2
    alone = mend(read(call))
    assert len(alone.messages) == 2 and len(alone.messages[1].results) == 2


def test_results_that_a_message_parts_from_their_call_move_next_to_it() -> None:
    mended = mend(read(user("a"), CALL, user("wait"), tool("c1", "x")))
    assert sent([*mended.messages]) == [user("a"), CALL, tool("c1", "x"), user("wait")]


@given(st.lists(st.sampled_from(range(5)), max_size=20))
def test_after_mending_every_call_has_a_result_and_every_result_a_call(kinds: list[int]) -> None:
    make = [
        lambda n: user(f"u{n}"),
        lambda n: assistant("", (f"c{n}", "run", "{}")),
        lambda n: assistant("", (f"c{n}", "run", "{}"), (f"d{n}", "run", "{}")),
        lambda n: tool(f"c{n - 1}", "x"),
        lambda n: tool(f"d{n - 1}", "x"),
    ]
    mended = mend(read(*(make[kind](n) for n, kind in enumerate(kinds))))
    known: set[str] = set()
    answered: set[str] = set()
    for message in mended.messages:
        assert {result.call_id for result in message.results} <= known
        known |= {call.id for call in message.calls}
        answered |= {result.call_id for result in message.results}
    assert answered == known
    people = [message.text for message in mended.messages if message.role == "user"]
    assert people == [f"u{n}" for n, kind in enumerate(kinds) if kind == 0]
