"""JSON of thousands of levels, from a model or a host: refused or left alone, never in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from threads.kit import assistant, chat, engine, filled, tool, user

from h2ams.errors import UsageError
from h2ams.threads.prepass import shorten_arguments

DEEP = {
    "list": "[" * 6_000 + "]" * 6_000,
    "unclosed": "[" * 6_000,
    "object": '{"a":' * 6_000 + "1" + "}" * 6_000,
    "below the reader's own limit": '{"a":' * 900 + "1" + "}" * 900,
    "digits": '{"a":' + "9" * 6_000 + "}",
}


@pytest.mark.parametrize("name", DEEP)
def test_deep_arguments_of_a_call_do_not_keep_a_thread_from_its_next_turn(
    tmp_path: Path, name: str
) -> None:
    talk = [*chat(3), user("go"), assistant("", ("c1", "shell", DEEP[name])), tool("c1", "done")]
    thread = filled(engine(tmp_path), [*talk, *chat(6, start=3)], window=1_400, reserve=100)
    context = thread.context(user("and now?"))
    assert context.messages[-1]["content"] == "and now?"
    assert thread.compact(force=True).outcome != "failed"
    assert shorten_arguments(DEEP[name]) == DEEP[name]


@pytest.mark.parametrize("text", DEEP.values())
def test_a_result_of_deep_json_is_read_as_text(tmp_path: Path, text: str) -> None:
    talk = [user("go"), assistant("", ("c1", "shell", "{}")), tool("c1", '{"status":' + text)]
    thread = filled(engine(tmp_path), [*talk, *chat(2)])
    assert len(thread.context(user("and now?")).messages) > 3


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def test_a_message_of_more_levels_than_every_reader_can_go_is_refused(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(1))
    for levels in (200, 900, 50_000):
        with pytest.raises(UsageError, match="more than 100 levels"):
            thread.append({"role": "user", "content": "x", "meta": nested(levels)})
    thread.append({"role": "user", "content": "x", "meta": nested(90)})
    assert json.dumps(thread.rows()[-1].payload).count("[") == 90
