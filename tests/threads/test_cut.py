"""Where a window is cut: between units, with head, tail, last message and open calls kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from threads.kit import COUNT, assistant, chat, entries, tool, tool_turns, user

from h2ams.text.ledger import Ledger
from h2ams.threads.cut import Cut, cut
from h2ams.threads.prompt import Limits, SummaryInWindow, Window
from h2ams.threads.unit import units
from h2ams.threads.view import summary_tokens
from h2ams.threads.window import first_turn

LIMITS = Limits(2_000, 0)


def divided(messages: list[Any], *, has_new: bool = True, summarised: bool = False) -> Cut:
    rows = entries(messages)
    head = len(first_turn(rows))
    summary = None
    if summarised:
        tokens = summary_tokens("x", Ledger(), COUNT)
        summary = SummaryInWindow("s", "r0", "x", Ledger(), tokens, False)
    made = Window("t", head=rows[:head], entries=rows[head:], summary=summary)
    return cut(made, LIMITS, has_new=has_new)


def ids(found: Cut) -> list[str]:
    return [entry.id for entry in found.folded]


def test_head_and_tail_stay_and_the_middle_is_folded() -> None:
    found = divided(chat(40))
    assert ids(found)[0] == "r3"  # the first turn stays
    assert found.boundary is not None and 40 < found.boundary.seq < 80
    assert not found.covers_start and found.carried == ()
    tail = entries(chat(40))[found.boundary.seq :]
    assert 0.3 * 2_000 < sum(entry.tokens for entry in tail) <= 0.4 * 2_000


def test_the_tail_begins_with_a_question_so_that_no_answer_stands_alone() -> None:
    for shift in range(6):
        messages = [*chat(30), user("short " * (1 + 9 * shift)), assistant("x"), *chat(4)]
        found = divided(messages)
        assert found.boundary is not None
        following = entries(messages)[found.boundary.seq]
        assert following.message.role == "user"
    loop: list[Any] = [*chat(30), user("the long one")]
    for n in range(30):
        loop += [assistant("", (f"x{n}", "run", "{}")), tool(f"x{n}", "output " * 60)]
    assert divided(loop).boundary is not None  # a long turn is cut all the same


def test_the_first_turn_folds_on_the_second_pass() -> None:
    found = divided(chat(40), summarised=True)
    assert ids(found)[:2] == ["r1", "r2"] and found.covers_start


def test_a_first_turn_larger_than_its_share_is_not_kept_for_ever() -> None:
    found = divided([user("huge " * 900), assistant("ok"), *chat(40)])
    assert "r1" in ids(found) and found.covers_start


def test_the_last_message_of_the_user_is_never_folded() -> None:
    loop: list[Any] = [*chat(3), user("the question")]
    for n in range(40):
        loop += [assistant("", (f"x{n}", "run", "{}")), tool(f"x{n}", "output " * 60)]
    found = divided(loop, has_new=False)
    question = entries(loop)[6]
    assert question.id not in ids(found) and question.id in found.carried
    assert ids(found)


def test_open_calls_are_carried_and_block_nothing() -> None:
    messages = [
        *chat(2),
        assistant("", ("c1", "deploy", "{}")),
        tool("c1", "[interim] 3 %"),
        *chat(40),
    ]
    found = divided(messages)
    assert found.carried == ("r5", "r6")
    assert "r7" in ids(found) and "r5" not in ids(found)


def test_an_abandoned_call_is_folded_and_reported() -> None:
    messages = [*chat(2), assistant("", ("c1", "deploy", "{}")), *chat(40)]
    found = divided(messages)
    assert "r5" in ids(found) and found.abandoned == ("c1",)


def test_a_window_that_is_all_tail_folds_nothing() -> None:
    found = divided(chat(3))
    assert found.folded == () and found.boundary is None


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.booleans(), st.booleans())
def test_cuts_fall_between_units_for_any_history(
    kinds: list[int], has_new: bool, summarised: bool
) -> None:
    messages: list[Any] = []
    for n, kind in enumerate(kinds):
        messages += [
            chat(1, start=n),
            tool_turns(1, 600, start=n),
            [assistant("", (f"p{n}", "run", "{}"))],
            [assistant("", (f"p{n}", "run", "{}"), (f"q{n}", "run", "{}")), tool(f"q{n}", "x")],
            [assistant("", (f"p{n}", "run", "{}")), tool(f"p{n}", "[interim]")],
        ][kind]
    found = divided(messages, has_new=has_new, summarised=summarised)
    folded = set(ids(found))
    for unit in units(entries(messages)):
        inside = {entry.id for entry in unit.entries} & folded
        assert not inside or inside == {entry.id for entry in unit.entries}
        assert not (inside and unit.state == "pending")
    seqs = [entry.seq for entry in found.folded]
    assert seqs == sorted(seqs)
    assert not folded & set(found.carried)
    if not has_new and found.folded:
        people = [e.id for e in entries(messages) if e.message.is_user_turn]
        assert people[-1:] == [] or people[-1] not in folded
