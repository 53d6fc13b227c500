"""External commands, functions and the built-in digest as models."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from h2ams import tokens
from h2ams.errors import ConfigError, ModelError
from h2ams.models.command import CommandModel
from h2ams.models.extractive import Extractive
from h2ams.models.function import FunctionModel
from h2ams.models.request import Completion, ModelMessage, Request

ASK = Request("test", (ModelMessage("system", "Be short."), ModelMessage("user", "Привет, 世界")))


def python(code: str, **how: object) -> CommandModel:
    return CommandModel([sys.executable, "-c", code], **how)  # type: ignore[arg-type]


def failed(model: CommandModel, request: Request = ASK) -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.complete(request)
    return caught.value


def test_a_command_gets_the_messages_and_its_output_is_the_answer() -> None:
    answer = python("import sys; sys.stdout.write(sys.stdin.read()[::-1])").complete(ASK)
    assert answer.text == "\n界世 ,тевирП\n\n.trohs eB"
    assert answer.finish_reason == "stop"


def test_a_command_may_get_the_request_as_json() -> None:
    code = "import json, sys; d = json.load(sys.stdin); print(d['messages'][1]['content'], d['schema'])"  # noqa: E501
    assert python(code, input="json").complete(ASK).text == "Привет, 世界 None\n"


def test_no_shell_reads_the_words_of_a_command(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = "import sys; print(sys.argv[1])"
    model = CommandModel([sys.executable, "-c", code, f"$(touch {mark}); `touch {mark}`"])
    assert model.complete(ASK).text.startswith("$(touch")
    assert not mark.exists()


def test_a_command_that_reads_nothing_of_a_large_request_still_answers() -> None:
    large = Request("test", (ModelMessage("user", "x" * 4_000_000),))
    assert python("print('done')").complete(large).text == "done\n"


def test_large_input_and_output_at_once_do_not_block_each_other() -> None:
    code = "import sys\nfor line in sys.stdin: sys.stdout.write(line)"
    text = "a line of some words\n" * 100_000
    answer = python(code).complete(Request("test", (ModelMessage("user", text),)))
    assert answer.text.strip() == text.strip()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_command_that_hangs_is_killed_with_everything_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)"
    )
    begin = monotonic()
    assert failed(python(code, timeout_s=1.5)).failure == "timeout"
    assert monotonic() - begin < 10
    started = [int(each) for each in pids.read_text().split()]
    until = monotonic() + 5
    while any(map(is_running, started)) and monotonic() < until:
        sleep(0.01)
    assert len(started) == 2 and not any(map(is_running, started))


def test_a_command_that_closed_its_output_but_lives_on_is_killed() -> None:
    code = "import os, time; os.write(1, b'said'); os.close(1); time.sleep(60)"
    assert failed(python(code, timeout_s=1.0)).failure == "timeout"


def test_a_command_that_never_stops_talking_is_stopped() -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536)"
    assert failed(python(code, timeout_s=30)).failure == "bad-reply"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; sys.exit(3)", "unavailable"),
        ("pass", "empty"),
        ("print()", "empty"),
        ("import os; os.write(1, b'\\xff\\xfe\\xff')", "bad-reply"),
        ("import sys; print('half'); sys.stdin.read(); raise ValueError('SECRET')", "unavailable"),
    ],
)
def test_a_command_that_fails_is_named_and_its_words_are_not_kept(code: str, expected: str) -> None:
    error = failed(python(code))
    assert error.failure == expected
    assert "SECRET" not in str(error)


def test_a_command_that_is_not_there_is_unavailable() -> None:
    assert failed(CommandModel(["/nowhere/model"])).failure == "unavailable"


@pytest.mark.parametrize("argv", ["rm -rf x", [], [""], ["a\0b"]])
def test_a_command_is_a_list_of_words(argv: object) -> None:
    with pytest.raises(ConfigError):
        CommandModel(argv)  # type: ignore[arg-type]


def test_the_environment_of_a_command_can_be_replaced() -> None:
    os.environ["H2AMS_TEST_SECRET"] = "secret"
    try:
        code = "import os; print(os.environ.get('H2AMS_TEST_SECRET'), os.environ.get('X'))"
        assert python(code, environ={"X": "1"}).complete(ASK).text.strip() == "None 1"
    finally:
        del os.environ["H2AMS_TEST_SECRET"]


def test_a_function_is_a_model() -> None:
    assert FunctionModel(lambda request: request.purpose).complete(ASK).text == "test"
    answer = Completion("x", "length")
    assert FunctionModel(lambda _: answer, "mine").complete(ASK) is answer


def test_what_a_function_raises_becomes_an_error_without_its_text() -> None:
    def broken(request: Request) -> str:
        raise RuntimeError(request.messages[1].content)

    with pytest.raises(ModelError) as caught:
        FunctionModel(broken).complete(ASK)
    assert caught.value.failure == "unavailable"
    assert "RuntimeError" in str(caught.value) and "Привет" not in str(caught.value)
    with pytest.raises(ModelError) as caught:
        FunctionModel(lambda _: "  ").complete(ASK)
    assert caught.value.failure == "empty"


@pytest.mark.parametrize("limit", [1, 20, 100, 10_000])
def test_the_built_in_digest_keeps_to_its_tokens_and_says_the_same_each_time(limit: int) -> None:
    text = "The build broke on 3 May. We fixed it by pinning apsw 3.46. 我们决定用 SQLite。\n" * 40
    request = Request("test", (), max_output_tokens=limit, source_text=text)
    if limit == 1:
        with pytest.raises(ModelError):
            Extractive().complete(request)
        return
    first = Extractive().complete(request)
    assert first == Extractive().complete(request)
    assert 0 < tokens.counter(tokens.ESTIMATE).count(first.text) <= limit
    assert all(line in text for line in first.text.rstrip("…").splitlines())


def test_the_built_in_digest_refuses_a_schema_and_has_nothing_to_say_of_nothing() -> None:
    with pytest.raises(ModelError) as caught:
        Extractive().complete(Request("test", (), schema=json.loads("{}"), source_text="x"))
    assert caught.value.failure == "refused"
    with pytest.raises(ModelError) as caught:
        Extractive().complete(Request("test", (), source_text=" "))
    assert caught.value.failure == "empty"
