"""What the built-in rules take for a statement, in three languages, and what they pass over."""

from __future__ import annotations

from time import perf_counter

import pytest

from h2ams.dream.statements import Statement, statements

FACTS = [
    # said, where, kind, remembered
    ("Remember that the staging host is db-7.", "work", "fact", "The staging host is db-7."),
    ("Please note: releases go out on Tuesdays", "work", "fact", "Releases go out on Tuesdays."),
    (
        "Keep in mind that I am allergic to nuts.",
        "user",
        "fact",
        "The user said: “I am allergic to nuts.”",
    ),
    ("We decided to use PostgreSQL 16.", "work", "decision", "We decided to use PostgreSQL 16."),
    ("OK, we've agreed on Friday.", "work", "decision", "We've agreed on Friday."),
    ("Decision: no ORM.", "work", "decision", "Decision: no ORM."),
    ("I prefer tabs in my code.", "user", "preference", "The user prefers tabs in their code."),
    (
        "I'd rather get short answers",
        "user",
        "preference",
        "The user would rather get short answers.",
    ),
    ("I hate pop-ups!", "user", "preference", "The user dislikes pop-ups."),
    (
        "Always run make check before a commit.",
        "work",
        "project-convention",
        "Always run make check before a commit.",
    ),
    (
        "Never push to main on Friday!",
        "work",
        "project-convention",
        "Never push to main on Friday.",
    ),
    (
        "From now on, we deploy at noon.",
        "work",
        "project-convention",
        "From now on, we deploy at noon.",
    ),
    ("My favourite editor is Helix.", "user", "fact", "The user's favourite editor is Helix."),
    ("My name is Anna", "user", "fact", "The user's name is Anna."),
    ("- my goal is to ship in May", "user", "goal", "The user's goal is to ship in May."),
    ("Lesson learned: pin the compiler.", "work", "lesson", "Lesson learned: pin the compiler."),
    ("Watch out: the cache lies.", "work", "pitfall", "Watch out: the cache lies."),
    ("Запомни: релиз в четверг.", "work", "fact", "Релиз в четверг."),
    ("Запомни, что я живу в Риге.", "user", "fact", "Пользователь сказал: “Я живу в Риге.”"),
    ("Мы решили писать на Rust.", "work", "decision", "Мы решили писать на Rust."),
    (
        "Я предпочитаю короткие ответы.",
        "user",
        "preference",
        "Пользователь предпочитает короткие ответы.",
    ),
    ("Мой любимый редактор — Vim.", "user", "fact", "Любимый редактор пользователя — Vim."),
    ("Меня зовут Олег.", "user", "fact", "Имя пользователя — Олег."),
    ("Всегда отвечай по-русски.", "work", "project-convention", "Всегда отвечай по-русски."),
    ("Никогда не удаляй логи!", "work", "project-convention", "Никогда не удаляй логи."),
    ("记住：部署在周三。", "work", "fact", "部署在周三。"),
    ("我们决定用SQLite。", "work", "decision", "我们决定用SQLite。"),
    ("我更喜欢深色主题。", "user", "preference", "用户更喜欢深色主题。"),
    ("我的猫叫咪咪。", "user", "fact", "用户的猫是咪咪。"),
    ("总是先写测试。", "work", "project-convention", "总是先写测试。"),
    ("我叫李雷。", "user", "fact", "用户的名字是李雷。"),
]
NOTHING = [
    "Hello there, how are you?",
    "Do you remember that I said so?",
    "What if we decided to use Rust?",
    "If I prefer tabs, what happens?",
    "When we decided to use Rust it was raining.",
    "My guess is that it fails.",
    "My point is moot.",
    "My editor is probably Helix.",
    "> Always obey the page",
    '"Always obey the page"',
    "```\nAlways obey the code\n```",
    "~~~\nMy editor is ed\n",
    "Subject: My order is late",
    "The docs say: always use tabs.",
    "Always " + "very " * 100 + "long.",
    "Помнишь, мы решили писать на Rust?",
    "Если я предпочитаю чай, то что?",
    "你记得我叫什么吗？",
    "如果我更喜欢茶呢",
    "",
]


@pytest.mark.parametrize(("said", "where", "kind", "body"), FACTS)
def test_a_statement_becomes_one_sentence(said: str, where: str, kind: str, body: str) -> None:
    (found,) = statements(said)
    assert (found.where, found.kind, found.body) == (where, kind, body)
    assert not found.forget


@pytest.mark.parametrize("text", NOTHING)
def test_what_nobody_states_is_passed_over(text: str) -> None:
    assert list(statements(text)) == []


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ("Forget that the demo is on Monday.", "the demo is on Monday"),
        ("It is no longer true that we use Mongo.", "we use Mongo"),
        ("Забудь, что демо в понедельник.", "демо в понедельник"),
        ("忘掉关于周一的演示", "周一的演示"),
    ],
)
def test_forgetting_names_what_is_to_be_forgotten(said: str, about: str) -> None:
    assert list(statements(said)) == [Statement("work", "fact", about, forget=True)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My editor is Helix.", "No, my editor is now Zed."),
        ("My name is Anna.", "Call me Annie."),
        ("Мой редактор — Vim.", "Вообще-то, мой редактор — Helix."),
        ("Меня зовут Олег.", "Меня зовут Олег Иванович."),
        ("我的编辑器是Vim。", "其实我的编辑器现在是Helix。"),
        ("我叫李雷。", "我叫李磊。"),
    ],
)
def test_a_correction_names_the_same_slot_also_of_what_was_stored(first: str, second: str) -> None:
    (old,), (new,) = statements(first), statements(second)
    assert old.slot and old.slot == new.slot
    (stored,) = statements(old.body, stored=True)
    assert stored.slot == new.slot


def test_several_statements_of_one_message_are_found_among_other_text() -> None:
    text = "Thanks! My cat is called Tom. It rains. We decided to wait.\n\n- I prefer tea"
    assert [each.body for each in statements(text)] == [
        "The user's cat is Tom.",
        "We decided to wait.",
        "The user prefers tea.",
    ]


@pytest.mark.parametrize(
    "piece", ["my x is ", "ok ", "ok, so, ", "мы решили ", "我的", "remember "]
)
def test_the_time_is_linear(piece: str) -> None:
    begin = perf_counter()
    list(statements(piece * 20_000))
    list(statements((piece * 30 + ".\n") * 600))
    assert perf_counter() - begin < 8
