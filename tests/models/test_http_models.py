"""The HTTP transports against a real server on its bad days."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from models.server import (
    Answer,
    ModelServer,
    chat,
    claude,
    cut,
    drop,
    good,
    hang,
    page,
    raw,
    reply,
    status,
    trickle,
)

from h2ams.errors import ConfigError, ModelError
from h2ams.models.anthropic import Anthropic
from h2ams.models.http_json import Patience
from h2ams.models.openai_compatible import OpenAiCompatible
from h2ams.models.request import Completion, Model, ModelMessage, Request

KEY = "sk-THE-KEY-OF-A-PERSON-0123456789"
NOW = datetime(2026, 5, 1, tzinfo=UTC)
ASK = Request("test", (ModelMessage("system", "Be short."), ModelMessage("user", "SECRET-PROMPT")))
LONG = Request("test", (ModelMessage("user", "word and another one " * 4_000),))
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


class Time:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def openai(server: ModelServer, time: Time, **how: object) -> OpenAiCompatible:
    patience = how.pop("patience", Patience(total_s=5.0))
    seams = {"clock": time.clock, "sleep": time.sleep, "chance": lambda: 1.0, "now": lambda: NOW}
    return OpenAiCompatible(f"{server.url}/v1", "small", key=KEY, patience=patience, **seams, **how)  # type: ignore[arg-type]


def anthropic(server: ModelServer, time: Time, **how: object) -> Anthropic:
    patience = how.pop("patience", Patience(total_s=5.0))
    seams = {"clock": time.clock, "sleep": time.sleep, "chance": lambda: 1.0, "now": lambda: NOW}
    return Anthropic("c", key=KEY, base_url=server.url, patience=patience, **seams, **how)  # type: ignore[arg-type]


def ask(
    *script: Answer, request: Request = ASK, **how: object
) -> tuple[Completion, ModelServer, Time]:
    time = Time()
    with ModelServer(script) as server:
        return openai(server, time, **how).complete(request), server, time


def failure(
    *script: Answer, request: Request = ASK, **how: object
) -> tuple[ModelError, ModelServer, Time]:
    time = Time()
    with ModelServer(script) as server:
        model = openai(server, time, **how)
        with pytest.raises(ModelError) as caught:
            model.complete(request)
        return caught.value, server, time


def test_an_answer_carries_text_finish_reason_usage_and_model() -> None:
    answer, server, _ = ask(good("hello"))
    assert (answer.text, answer.finish_reason, answer.model) == ("hello", "stop", "small")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (10, 3)
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["messages"][1] == {"role": "user", "content": "SECRET-PROMPT"}
    assert body["max_tokens"] == ASK.max_output_tokens and "tools" not in body


@pytest.mark.parametrize(
    ("said", "expected"),
    [("length", "length"), ("tool_calls", "tool-call"), ("content_filter", "filtered"),
     (None, "unknown"), ("eos", "unknown")],
)  # fmt: skip
def test_a_finish_that_is_not_stop_is_told(said: str | None, expected: str) -> None:
    answer, _, _ = ask(good("half an ans", finish=said))
    assert (answer.text, answer.finish_reason) == ("half an ans", expected)


def test_a_tool_call_is_told_even_where_the_server_says_stop() -> None:
    answer, _, _ = ask(reply(chat(None, finish="stop", tool_calls=[{"id": "1"}])))
    assert (answer.text, answer.finish_reason) == ("", "tool-call")


@pytest.mark.parametrize(
    "document",
    [
        chat(""),
        chat(" \n"),
        chat(None),
        chat("", reasoning_content="let me think"),
        chat("<think>let me think</think>\n"),
        chat("<think>let me think and never stop", finish="length"),
        chat([{"type": "reasoning", "text": "hm"}]),
    ],
    ids=["empty", "blank", "null", "reasoning", "think", "open think", "parts"],
)
def test_an_answer_without_visible_text_is_asked_again_and_then_an_error(
    document: dict[str, object],
) -> None:
    error, server, _ = failure(reply(document))
    assert error.failure == "empty" and len(server.requests) == 3
    answer, _, _ = ask(reply(document), good("at last"))
    assert answer.text == "at last"


def test_reasoning_before_the_answer_is_left_out() -> None:
    assert ask(good("<think>hm\nhm</think>\n\nYes."))[0].text == "Yes."
    parts = [{"type": "text", "text": "Ye"}, {"type": "image"}, {"type": "text", "text": "s."}]
    assert ask(reply(chat(parts)))[0].text == "Yes."


BAD_DAYS: list[tuple[str, Callable[[], Answer], str, int]] = [
    ("500", lambda: status(500), "unavailable", 3),
    ("503", lambda: status(503), "unavailable", 3),
    ("504", lambda: status(504), "timeout", 3),
    ("429", lambda: status(429), "rate-limited", 3),
    ("400", lambda: status(400), "refused", 1),
    ("401", lambda: status(401), "refused", 1),
    ("404", lambda: status(404), "refused", 1),
    ("moved", lambda: status(302, Location="http://127.0.0.1:9/steal"), "refused", 1),
    ("page", page, "bad-reply", 3),
    ("cut", cut, "bad-reply", 3),
    ("drop", drop, "unavailable", 3),
    ("no json", lambda: raw(b"data: {}\n\n"), "bad-reply", 3),
    ("list", lambda: raw(b"[]"), "bad-reply", 3),
    ("deep", lambda: raw(b"[" * 100_000), "bad-reply", 3),
    ("no choice", lambda: raw(b'{"choices": []}'), "bad-reply", 3),
    ("odd choice", lambda: raw(b'{"choices": [7]}'), "bad-reply", 3),
    ("nothing", lambda: raw(b""), "bad-reply", 3),
]


@pytest.mark.parametrize(
    ("day", "expected", "asked"),
    [each[1:] for each in BAD_DAYS],
    ids=[each[0] for each in BAD_DAYS],
)
def test_a_bad_day_is_named_tried_again_where_that_helps_and_tells_no_text(
    day: Callable[[], Answer], expected: str, asked: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    error, server, time = failure(day())
    assert error.failure == expected
    assert error.retryable == (asked == 3)
    assert len(server.requests) == asked
    assert time.slept == [0.5, 1.0][: asked - 1]
    told = "".join(traceback.format_exception(error)) + caplog.text + str(error.hint)
    assert KEY not in told and "SECRET-PROMPT" not in told


@pytest.mark.parametrize(
    "day", [each[1] for each in BAD_DAYS if each[3] == 3], ids=[e[0] for e in BAD_DAYS if e[3] == 3]
)
def test_one_bad_moment_does_not_cost_the_answer(day: Callable[[], Answer]) -> None:
    assert ask(day(), good("fine"))[0].text == "fine"


@pytest.mark.parametrize("day", [hang, trickle])
def test_a_server_that_hangs_or_trickles_is_left_in_time(day: Callable[[], Answer]) -> None:
    from time import monotonic

    with ModelServer([day()]) as server:
        patience = Patience(total_s=0.3, attempts_count=1)
        model = OpenAiCompatible(f"{server.url}/v1", "small", patience=patience)
        begin = monotonic()
        with pytest.raises(ModelError) as caught:
            model.complete(ASK)
        assert caught.value.failure == "timeout"
        assert monotonic() - begin < 5


def test_nobody_listening_is_unavailable() -> None:
    with ModelServer([good("x")]) as server:
        url = server.url
    model = OpenAiCompatible(url, "small", patience=Patience(attempts_count=1))
    with pytest.raises(ModelError) as caught:
        model.complete(ASK)
    assert caught.value.failure == "unavailable"


@pytest.mark.parametrize(
    ("asked", "slept"),
    [("7", 7.0), (format_datetime(NOW + timedelta(seconds=9), usegmt=True), 9.0), ("soon", 0.5)],
)
def test_the_wait_that_a_server_asks_for_is_kept(asked: str, slept: float) -> None:
    answer, _, time = ask(status(429, Retry_After=asked), good("later"))
    assert (answer.text, time.slept) == ("later", [slept])


def test_a_wait_beyond_the_bound_is_not_waited_for() -> None:
    error, server, time = failure(status(429, Retry_After="3600"))
    assert (error.failure, len(server.requests), time.slept) == ("rate-limited", 1, [])


def test_after_failures_in_a_row_calls_fail_at_once_until_the_cool_down_has_passed() -> None:
    time = Time()
    patience = Patience(total_s=5, attempts_count=1, strikes_count=2, cooldown_s=60)
    with ModelServer([status(500), status(500), good("back")]) as server:
        model = openai(server, time, patience=patience)
        for _ in range(2):
            with pytest.raises(ModelError):
                model.complete(ASK)
        with pytest.raises(ModelError) as caught:
            model.complete(ASK)
        assert caught.value.failure == "unavailable" and len(server.requests) == 2
        time.now_s += 61
        assert model.complete(ASK).text == "back"


def test_a_prompt_that_the_server_cut_silently_is_caught() -> None:
    error, server, _ = failure(good("sure", prompt_tokens=2_048), request=LONG)
    assert error.failure == "truncated-input" and len(server.requests) == 1
    assert "2048" in error.message


@pytest.mark.parametrize("counted", [None, 0, 9_000, 20_000])
def test_a_prompt_that_was_read_whole_or_not_counted_passes(counted: int | None) -> None:
    assert ask(good("sure", prompt_tokens=counted), request=LONG)[0].text == "sure"


def test_a_schema_is_enforced_where_the_server_can_and_asked_for_where_it_cannot() -> None:
    request = Request("test", ASK.messages, schema=SCHEMA)
    _, server, _ = ask(good("{}"), request=request)
    sent = server.requests[0][2]["response_format"]
    assert sent["type"] == "json_schema" and sent["json_schema"]["schema"] == SCHEMA

    time = Time()
    with ModelServer([status(400), good("{}"), good("{}")]) as server:
        model = openai(server, time)
        assert model.complete(request).text == model.complete(request).text == "{}"
    bodies = [body for _, _, body in server.requests]
    assert ["response_format" in body for body in bodies] == [True, False, False]
    assert '"properties"' in bodies[1]["messages"][-1]["content"]


def test_a_request_that_is_refused_with_and_without_a_schema_is_refused() -> None:
    error, server, _ = failure(status(400), request=Request("t", ASK.messages, schema=SCHEMA))
    assert error.failure == "refused" and len(server.requests) == 2


def test_an_idempotency_key_travels_in_its_header() -> None:
    _, server, _ = ask(good("x"), request=Request("t", ASK.messages, idempotency_key="abc-1"))
    assert server.requests[0][1]["Idempotency-Key"] == "abc-1"


def test_a_key_that_the_server_throws_back_is_in_no_error() -> None:
    error, _, _ = failure(reply({"error": {"code": KEY, "message": KEY}}, 401))
    assert KEY not in str(error) + str(error.hint)


@pytest.mark.parametrize("model", ["openai", "anthropic"])
def test_neither_repr_nor_name_shows_the_key_or_the_address(model: str) -> None:
    with ModelServer([good("x")]) as server:
        made: Model = (openai if model == "openai" else anthropic)(server, Time())
        assert KEY not in repr(made) + made.name + repr(vars(made)["_client"])
        assert "127.0.0.1" not in made.name


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://user:pw@host/v1", "file:///etc", "http://h/v1?key=1", "//elsewhere"],
)
def test_an_address_that_is_none_or_carries_a_key_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAiCompatible(url, "small")
    assert not url or url not in str(caught.value)


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAiCompatible("http://h/v1", "small", key=key)
    assert key not in str(caught.value)


# -- Anthropic -----------------------------------------------------------------------------------


def text_block(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def ask_claude(*script: Answer, request: Request = ASK) -> tuple[Completion, ModelServer]:
    with ModelServer(script) as server:
        return anthropic(server, Time()).complete(request), server


def test_the_messages_protocol_is_spoken() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "x"}
    document = claude(thought, text_block("Yes"), text_block("."), cache_read_input_tokens=90)
    answer, server = ask_claude(reply(document))
    assert (answer.text, answer.finish_reason) == ("Yes.", "stop")
    assert answer.usage.input_tokens == 100
    path, headers, body = server.requests[0]
    assert path == "/v1/messages" and headers["x-api-key"] == KEY
    assert headers["anthropic-version"] == "2023-06-01"
    assert body["system"] == "Be short."
    assert body["messages"] == [{"role": "user", "content": "SECRET-PROMPT"}]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        ("max_tokens", "length"),
        ("tool_use", "tool-call"),
        ("refusal", "filtered"),
        ("new", "unknown"),
    ],
)
def test_a_stop_reason_is_told(stop: str, expected: str) -> None:
    assert ask_claude(reply(claude(text_block("x"), stop=stop)))[0].finish_reason == expected


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (reply(claude()), "empty"),
        (reply(claude({"type": "thinking", "thinking": "hm"})), "empty"),
        (reply({"type": "message"}), "bad-reply"),
        (reply({"type": "error", "error": {"type": "overloaded_error"}}, 529), "unavailable"),
        (status(429), "rate-limited"),
        (status(401), "refused"),
        (page(), "bad-reply"),
        (cut(), "bad-reply"),
    ],
)
def test_bad_days_of_the_messages_protocol_are_named(day: Answer, expected: str) -> None:
    with ModelServer([day]) as server, pytest.raises(ModelError) as caught:
        anthropic(server, Time()).complete(ASK)
    assert caught.value.failure == expected


def test_the_schema_stands_in_the_prompt_of_a_server_that_cannot_enforce_it() -> None:
    request = Request("t", ASK.messages, schema=SCHEMA)
    _, server = ask_claude(reply(claude(text_block("{}"))), request=request)
    assert '"properties"' in server.requests[0][2]["messages"][-1]["content"]
