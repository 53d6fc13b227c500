"""What is new, in which pieces, and when a pass is due."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dream.dream_kit import START, say
from hypothesis import given
from hypothesis import strategies as st

from h2ams.dream.slicing import Watermark, again, slices, unread
from h2ams.dream.triggers import due
from h2ams.settings import Settings


def words(text: str) -> int:
    return len(text.split())


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 80), st.integers(0, 5))
def test_slices_hold_every_message_once_in_order_within_the_bound(
    lengths: list[int], most: int, context: int
) -> None:
    messages = say(*(" ".join(["w"] * n) for n in lengths))
    made = slices(messages, (), most_tokens=most, context_count=context, count=words)
    assert [each.id for piece in made for each in piece.messages] == [e.id for e in messages]
    for piece in made:
        sizes = [words(each.text) + 12 for each in piece.messages]
        assert sum(sizes) <= most or len(sizes) == 1
        first = messages.index(piece.messages[0])
        assert list(piece.context) == messages[max(0, first - context) : first]


def test_new_is_what_stands_behind_the_last_message() -> None:
    messages = say("a", "b", "c")
    found = unread(messages, Watermark("m2", "2026-05-01T10:00:00Z"))
    assert ([each.id for each in found.new], found.found) == (["m3"], "id")
    assert [each.id for each in unread(messages, Watermark()).new] == ["m1", "m2", "m3"]


def test_the_second_of_the_watermark_counts_as_new_when_its_message_is_gone() -> None:
    messages = say("a", "b", "c", hours=0)
    found = unread(messages, Watermark("gone", messages[0].created_at))
    assert (len(found.new), found.found) == (3, "time")


def test_messages_that_were_waiting_are_found_again_with_their_context() -> None:
    messages = say("a", "b", "c", "d")
    mark = Watermark("m4", None, ((("m2", "m3"), 1), (("gone",), 2)))
    (piece,) = again(messages, mark, context_count=3)
    assert (piece.ids, piece.tries_count) == (("m2", "m3"), 1)
    assert [each.id for each in piece.context] == ["m1"]


SETTINGS = Settings(dream_min_new_count=5, dream_after_count=10, dream_interval_ms=3_600_000)


@pytest.mark.parametrize(
    ("new", "user", "hours", "start", "hand", "expected"),
    [
        (0, 0, None, True, True, (False, "by-hand")),
        (1, 1, 0.1, False, True, (True, "by-hand")),
        (0, 0, 9, True, False, (False, "not-due")),
        (4, 4, 9, False, False, (False, "not-due")),
        (4, 4, 9, True, False, (True, "start")),
        (4, 4, 0.1, True, False, (False, "not-due")),
        (6, 3, 0.1, False, False, (False, "not-due")),
        (12, 10, 0.1, False, False, (True, "messages")),
        (6, 3, 2, False, False, (True, "interval")),
        (6, 3, None, False, False, (True, "interval")),
    ],
)
def test_when_a_pass_is_due(
    new: int, user: int, hours: float | None, start: bool, hand: bool, expected: tuple[bool, str]
) -> None:
    found = due(
        new_count=new,
        new_user_count=user,
        last_pass=None if hours is None else START - timedelta(hours=hours),
        now=START,
        settings=SETTINGS,
        at_start=start,
        by_hand=hand,
    )
    assert (found.due, found.cause) == expected
