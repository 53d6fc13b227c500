"""A day that a question names counts by when a text was written, not by the same numbers in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, opened, segment_text, write

from h2ams import Access, Memory

QUESTION = "What dinner did Ada cook on 24 October 2023?"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    for scope, body, day in (
        ("sessions/a", "Ada made a soup for dinner", "2023-10-24"),
        ("sessions/b", "Ada made a salad for dinner", "2023-06-01"),
        ("sessions/c", "room 24 costs 2023 crowns for a dinner in October", "2023-06-01"),
        ("sessions/d", "the weather was fine", "2023-10-24"),
    ):
        name = scope[-1]
        write(root, f"{scope}/memory.md", segment_text(name, body, createdAt=f"{day}T10:00:00Z"))
    filler = [segment_text(f"f{number}", f"filler number {number}") for number in range(40)]
    write(root, "global/memory.md", *filler)
    return root


def first(memory: Memory, question: str) -> str:
    return memory.recall(question, limit=5).hits[0].record.id


def test_what_was_written_on_the_day_comes_before_what_has_its_words(root: Path) -> None:
    with opened(root) as memory:
        assert first(memory, QUESTION) == "a"
        assert first(memory, "What dinner did Ada cook in October 2023?") == "a"


def test_without_a_weight_of_days_their_words_decide(root: Path) -> None:
    """The check above can fail: the numbers in a text win where a day counts nothing."""
    with opened(root, settings=replace(PLAIN, weight_date=0.0)) as memory:
        assert first(memory, "dinner 24 October 2023") == "c"


def test_words_of_a_day_still_find_texts_where_nothing_was_written_then(root: Path) -> None:
    with opened(root) as memory:
        assert first(memory, "dinner in May 1999 with 24 crowns") == "c"
        hits = memory.recall("crowns 24 October 1987").hits
        assert [hit.record.id for hit in hits][:1] == ["c"]


@pytest.mark.parametrize(
    "question", ["may I deploy today?", "is it cold today", "ist es heute kalt"]
)
def test_a_day_alone_brings_nothing_from_broad_scopes_where_more_is_asked(
    tmp_path: Path, question: str
) -> None:
    with opened(tmp_path / "new", create=True) as memory:
        memory.remember("user", "Prefers two blanks over spaces.")
        memory.remember("global", "Kubernetes rollouts wait for Bob.")
        access = Access(session="s2", user="read")
        assert memory.recall(question, access=access).hits == ()
        assert memory.context(question, access=access, budget=300).text == ""
        days_alone = memory.recall("today", access=access).hits
        assert {hit.record.scope for hit in days_alone} == {"user", "global"}


def test_a_day_alone_brings_what_the_session_itself_said_then(tmp_path: Path) -> None:
    with opened(tmp_path / "new", create=True) as memory:
        memory.remember("sessions/s2", "We talked about the garden.")
        hits = memory.recall("what happened today?", access=Access(session="s2")).hits
        assert [hit.record.scope for hit in hits] == ["sessions/s2"]
