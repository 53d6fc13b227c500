"""``h2ams thread``: actions, their exit codes, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from surfaces.command_line import h2ams

from h2ams.surfaces.cli import main


class Desk:
    """Runs ``h2ams thread`` in one folder."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys
        assert main(["init", "--root", str(root)]) == 0
        capsys.readouterr()

    def __call__(self, *words: str, code: int = 0) -> str:
        got = main(["thread", *words, "--root", str(self.root)])
        out, err = self.capsys.readouterr()
        assert got == code, (out, err)
        return out + err

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self(*words, "--json", code=code))


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path / "memory", capsys)


def fill(desk: Desk, turns: int) -> None:
    for n in range(turns):
        desk("append", "t1", f"question {n} about the importer " * 10)
        desk("append", "t1", "--role", "assistant", f"answer {n} is fine " * 12)


def test_show_draws_the_line_where_the_thread_was_condensed(desk: Desk) -> None:
    desk("new", "t1")
    fill(desk, 12)
    small = ("--window", "1600", "--reserve", "100")
    text = desk("context", "t1", "and now?", "--receipt", *small)
    assert "compaction compacted" in text and "kept free" in text
    shown = desk("show", "t1").splitlines()
    line = next(n for n, each in enumerate(shown) if "──── summary of" in each)
    assert shown[line - 1].startswith("assistant") and "Active task" in shown[line + 1]
    assert any("ledger:" in each for each in shown)
    assert sum(each.startswith("user") for each in shown) == 12
    assert len(desk("show", "t1", "-n", "3").splitlines()) == 3


def test_an_empty_answer_says_so_to_a_person_alone(desk: Desk) -> None:
    desk("new", "t1")
    assert desk("search", "t1", "zebra") == "h2ams: no matches\n"
    assert desk.json("search", "t1", "zebra")["hits"] == []


def test_messages_of_any_shape_come_as_json_lines(desk: Desk, tmp_path: Path) -> None:
    desk("new", "t1")
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "read it"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "text"},
    ]
    lines = "\n".join(map(json.dumps, messages)).encode()
    done = h2ams(
        "thread",
        "append",
        "t1",
        "-",
        "--messages",
        "--root",
        str(desk.root),
        cwd=tmp_path,
        stdin=lines,
    )
    assert done.code == 0 and len(done.out.splitlines()) == 3
    assert desk.json("context", "t1")["messages"] == messages
    assert "read({})" in desk("show", "t1") and "= text" in desk("show", "t1")
    assert "line 1 is not JSON" in desk("append", "t1", "{", "--messages", code=2)
    assert "nested too deeply" in desk("append", "t1", "[" * 6_000, "--messages", code=2)


def test_another_store_is_a_file_or_a_server(desk: Desk, tmp_path: Path, postgres_url: str) -> None:
    for place in (str(tmp_path / "other.db"), postgres_url):
        desk("new", "t9", "--store", place)
        desk("append", "t9", "hello", "--store", place)
        assert "hello" in desk("show", "t9", "--store", place)
        assert "t9  1 message" in desk("list", "--store", place)
    assert desk("list") == ""


def test_access_flags_show_the_threads_of_that_session_alone(desk: Desk) -> None:
    desk("new", "a", "--session", "s1")
    desk("new", "b", "--owner", "sessions/s2")
    assert desk("list", "--session", "s1") == "a  0 messages  sessions/s1\n"
    missing = desk("show", "b", "--session", "s1", code=1)
    assert missing == desk("show", "none", "--session", "s1", code=1).replace("none", "b")
    assert "no session and no chat" in desk("new", "c", "--user", code=1)


def test_compact_says_what_came_of_it_by_its_exit_code(desk: Desk) -> None:
    desk("new", "t1")
    assert desk("compact", "t1") == "not-needed\n"
    fill(desk, 12)
    small = ("--window", "1600", "--reserve", "100")
    done = desk.json("compact", "t1", "--force", *small)
    assert done["outcome"] == "compacted" and done["after_tokens"] < done["before_tokens"]


def test_wrong_words_are_usage_errors_that_say_what_is_right(desk: Desk) -> None:
    assert "no such action" in desk("draw", "t1", code=2)
    assert "needs the name" in desk("show", code=2)
    assert "too many words" in desk("list", "t1", code=2)
    assert "too many words" in desk("show", "t1", "t2", code=2)
    desk("new", "t1")
    assert "no text" in desk("append", "t1", code=2)
    assert "user or assistant" in desk("append", "t1", "--role", "tool", "x", code=2)
    assert "not a message" in desk("append", "t1", '{"a": 1}', "--messages", code=2)


def test_recalled_memory_can_be_left_out(desk: Desk) -> None:
    main(["remember", "user", "Ann prefers tabs.", "--root", str(desk.root)])
    desk.capsys.readouterr()
    desk("new", "t1")
    assert "prefers tabs" in desk("context", "t1", "tabs?")
    assert "prefers tabs" not in desk("context", "t1", "tabs?", "--no-memory")
