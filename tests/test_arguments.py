"""Wrong arguments of the Python interface: an error that names them, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folder import opened

from h2ams import Memory, UsageError

Wrong = Callable[[Any], object]

# Each call with the argument that its error names, what was given, and what is expected.
WRONG: list[tuple[Wrong, str, str, str]] = [
    (lambda m: m.remember("user", None), "body", "None", "a text"),
    (lambda m: m.remember("user", 5), "body", "5", "a text"),
    (lambda m: m.remember(b"user", "x"), "scope", "b'user'", "a text"),
    (lambda m: m.remember("user", "x", kind=1), "kind", "1", "a text"),
    (lambda m: m.remember("user", "x", tags="abc"), "tags", "'abc'", "a list of texts"),
    (lambda m: m.remember("user", "x", tags=[1]), "tags", "[1]", "a list of texts"),
    (lambda m: m.remember("user", "x", tags=None), "tags", "None", "a list of texts"),
    (lambda m: m.remember("user", "x", source_messages="m1"), "source_messages", "'m1'", "a list"),
    (lambda m: m.remember("user", "x", access="s1"), "access", "'s1'", "an Access"),
    (lambda m: m.remember("user", "x", expect=1), "expect", "1", "a text"),
    (lambda m: m.update(7), "address", "7", "a text"),
    (lambda m: m.update("user#a", body=5), "body", "5", "a text"),
    (lambda m: m.update("user#a", tags="abc"), "tags", "'abc'", "a list of texts"),
    (lambda m: m.update("user#a", source_messages=3), "source_messages", "3", "a list"),
    (lambda m: m.update("user#a", body="x", access={}), "access", "{}", "an Access"),
    (lambda m: m.recall(None), "query", "None", "a text"),
    (lambda m: m.recall("x", limit="3"), "limit", "'3'", "a whole number"),
    (lambda m: m.recall("x", limit=True), "limit", "True", "a whole number"),
    (lambda m: m.recall("x", min_score="0"), "min_score", "'0'", "a number"),
    (lambda m: m.recall("x", budget=1.5), "budget", "1.5", "a whole number"),
    (lambda m: m.recall("x", kinds="fact"), "kinds", "'fact'", "a list of texts"),
    (lambda m: m.recall("x", tags="abc"), "tags", "'abc'", "a list of texts"),
    (lambda m: m.recall("x", scopes="user"), "scopes", "'user'", "a list of texts"),
    (lambda m: m.recall("x", after=2026), "after", "2026", "a text"),
    (lambda m: m.recall("x", access="s1"), "access", "'s1'", "an Access"),
    (lambda m: m.recall("x", access={"session": "s1"}), "access", "{'session'", "an Access"),
    (lambda m: m.context(["x"]), "query", "['x']", "a text"),
    (lambda m: m.context("x", budget="9"), "budget", "'9'", "a whole number"),
    (lambda m: m.context("x", language=None), "language", "None", "a text"),
    (lambda m: m.context("x", access="s1"), "access", "'s1'", "an Access"),
    (lambda m: m.list(3), "scope", "3", "a text"),
    (lambda m: m.list("user", access="s1"), "access", "'s1'", "an Access"),
    (lambda m: Memory.open(5), "root", "5", "a path"),
    (lambda m: Memory.open(m.root, state=5), "state", "5", "a path"),
    (lambda m: Memory.open(m.root, settings={"a": "b"}), "settings", "{'a'", "Settings"),
    (lambda m: Memory.open(m.root, overrides="a"), "overrides", "'a'", "a mapping"),
    (lambda m: Memory.open(m.root, overrides={"a": 1}), "overrides: a", "1", "a text"),
]


def files(root: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in root.rglob("*.md")}


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_a_wrong_argument_is_named_and_nothing_is_written(tmp_path: Path, at: int) -> None:
    call, name, given, expected = WRONG[at]
    with opened(tmp_path / "memory") as memory:
        memory.remember("user", "Prefers tabs.")
        before = files(tmp_path)
        with pytest.raises(UsageError) as caught:
            call(memory)
        assert caught.value.message.startswith(f"{name}: {given}"), caught.value.message
        assert expected in (caught.value.hint or "")
        assert files(tmp_path) == before


def test_a_long_wrong_argument_is_shown_shortened(tmp_path: Path) -> None:
    with opened(tmp_path / "memory") as memory, pytest.raises(UsageError) as caught:
        memory.recall(["word"] * 1000)
    assert len(caught.value.message) < 100


def test_any_iterable_of_texts_is_a_list_of_texts(tmp_path: Path) -> None:
    with opened(tmp_path / "memory") as memory:
        made = memory.remember("user", "Prefers tabs.", tags=(each for each in ("a", "b")))
        assert memory.get(made.address).tags == ("a", "b")
        memory.update(made.address, tags={"c": 1}.keys())
        assert memory.get(made.address).tags == ("c",)
