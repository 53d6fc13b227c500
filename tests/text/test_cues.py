"""Cues of a text and of a question: what its words show, in any of the languages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.text.cues import ASKS, SELF, TIME, asks_time, cues
from h2ams.text.words import analyse


def found(text: str) -> int:
    return cues(text, analyse(text)[0])


@pytest.mark.parametrize(
    "text",
    [
        "What do you think?",
        "真的吗？",
        "Really?!",
        '"Are you sure?"',
        "And you? (a photo of a cat)",
    ],
)
def test_a_text_that_ends_with_a_question_asks(text: str) -> None:
    assert found(text) & ASKS


@pytest.mark.parametrize("text", ["Why not? Because it rained.", "See https://x.org/?q=1", ""])
def test_a_question_followed_by_something_else_does_not_only_ask(text: str) -> None:
    assert not found(text) & ASKS


@pytest.mark.parametrize(
    "text",
    [
        "We met yesterday.",
        "It broke in 2019.",
        "Gestern war es kalt.",
        "Это было в прошлом году",
        "我昨天去了北京",
        "先週、東京に行きました",
        "어제 만났어요",
    ],
)
def test_words_of_time_are_seen(text: str) -> None:
    assert found(text) & TIME


@pytest.mark.parametrize("text", ["The lid is round.", "Port 8080 is open.", "盖子是圆的"])
def test_other_words_and_numbers_tell_no_time(text: str) -> None:
    assert not found(text) & TIME


@pytest.mark.parametrize(
    "text", ["I like tea", "Mein Hund", "Мы пришли", "我喜欢茶", "j'ai faim, moi"]
)
def test_the_first_person_is_seen(text: str) -> None:
    assert found(text) & SELF


@pytest.mark.parametrize("text", ["She likes tea", "Der Hund", "Он пришёл", "他喜欢茶"])
def test_the_third_person_is_not_the_first(text: str) -> None:
    assert not found(text) & SELF


@pytest.mark.parametrize(
    "text",
    [
        "When did they leave?",
        "Since when is it open?",
        "Which year was that",
        "How long did it take?",
        "Wann war das?",
        "Когда он пришёл?",
        "В каком году это было?",
        "他什么时候来的？",
        "いつ来ましたか",
    ],
)
def test_questions_for_a_time_are_told(text: str) -> None:
    assert asks_time(text)


@pytest.mark.parametrize("text", ["What does she do when she writes?", "Who came?", "谁来了？", ""])
def test_other_questions_ask_for_no_time(text: str) -> None:
    assert not asks_time(text)


@given(st.text(max_size=200))
def test_any_text_has_cues_and_never_raises(text: str) -> None:
    assert found(text) in range(8)
    assert asks_time(text) in (True, False)
