"""Transports, against a real HTTP server with good and bad days."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from stacks import kit, service
from stacks.kit import rounds_of

from h2ams.errors import UsageError
from h2ams.stacks import canonical
from h2ams.stacks.compress import (
    Compressed,
    CompressRequest,
    CompressResult,
    Refused,
    TransportFailed,
    result_of,
)
from h2ams.stacks.exchange import Exchange
from h2ams.stacks.transports import CallableCompressor, ExtractiveCompressor, HttpCompressor

KIND = "paxhistoria.game-agent-stack.v1"
TEXT = canonical.text_of(
    None, [Exchange(f"question {n} {kit.MARKER}", "long answer " * 20) for n in range(3)]
)
REQUEST = CompressRequest(KIND, TEXT, "call-00000001")


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with service.running() as found:
        yield found


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(server: Any, waits: list[float]) -> Iterator[HttpCompressor]:
    server.day.switch("ok")
    server.day.seen.clear()
    server.day.replies.clear()
    people = itertools.count(1)
    found = HttpCompressor(
        server.url,
        beneficiaries=lambda: [f"human-{next(people)}"],
        timeout_ms=5_000,
        sleep=waits.append,
    )
    yield found
    found.close()


def test_a_good_day_gives_a_summary(client: HttpCompressor, server: Any) -> None:
    result = client.compress(REQUEST)
    assert isinstance(result, Compressed)
    assert result.represented_count == 3 and 0 < len(result.text) < len(TEXT)
    assert server.day.seen == [
        {
            "key": "call-00000001",
            "mode": "ok",
            "version": "compress.v2",
            "kind": KIND,
            "canonicalText": TEXT,
            "beneficiaries": ["human-1"],
            "callId": "call-00000001",
        }
    ]


def test_a_refusal_is_a_value_and_is_not_repeated(client: HttpCompressor, server: Any) -> None:
    server.day.switch("refuse")
    assert client.compress(REQUEST) == Refused("policy", "call-00000001")
    assert len(server.day.seen) == 1


@pytest.mark.parametrize(
    ("mode", "error"), [("429", "rate-limited"), ("500", "server-error"), ("cut", "connection")]
)
def test_transient_failures_are_repeated_a_bounded_number_of_times(
    client: HttpCompressor, server: Any, mode: str, error: str
) -> None:
    server.day.switch(mode)
    assert client.compress(REQUEST) == TransportFailed(error, "call-00000001")
    assert len(server.day.seen) == 3


@pytest.mark.parametrize("mode", ["429*2", "500*1", "cut*1", "html*1"])
def test_a_repeated_attempt_succeeds_under_the_same_key(
    client: HttpCompressor, server: Any, mode: str
) -> None:
    server.day.switch(mode)
    assert isinstance(client.compress(REQUEST), Compressed)
    assert {each["key"] for each in server.day.seen} == {"call-00000001"}
    assert len(server.day.replies) == 1


def test_beneficiaries_are_asked_for_anew_before_every_attempt(
    client: HttpCompressor, server: Any
) -> None:
    server.day.switch("500*2")
    assert isinstance(client.compress(REQUEST), Compressed)  # and change no idempotency
    assert [each["beneficiaries"] for each in server.day.seen] == [
        ["human-1"],
        ["human-2"],
        ["human-3"],
    ]


def test_waits_grow_unless_the_service_says_when(
    client: HttpCompressor, server: Any, waits: list[float]
) -> None:
    server.day.switch("500")
    client.compress(REQUEST)
    assert waits == [0.0, 0.0]  # Retry-After: 0
    waits.clear()
    server.day.switch("cut")
    client.compress(REQUEST)
    assert waits == [0.25, 0.5]


@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_a_service_that_hangs_or_drips_is_left_after_the_time_out(server: Any, mode: str) -> None:
    server.day.switch(mode)
    server.day.replies.clear()
    client = HttpCompressor(server.url, timeout_ms=150, attempts_count=2, sleep=lambda _: None)
    assert client.compress(REQUEST) == TransportFailed("timeout", "call-00000001")
    client.close()
    server.day.switch("ok")


@pytest.mark.parametrize("mode", ["html", "redirect"])
def test_what_is_not_the_protocol_is_a_bad_reply(
    client: HttpCompressor, server: Any, mode: str
) -> None:
    server.day.switch(mode)
    assert client.compress(REQUEST) == TransportFailed("bad-reply", "call-00000001")
    assert len(server.day.seen) == 3


def test_a_reply_to_another_call_is_none(client: HttpCompressor, server: Any) -> None:
    server.day.switch("foreign-id")
    assert client.compress(REQUEST) == TransportFailed("call-id-mismatch", "call-00000001")


def test_another_text_under_a_used_key_is_a_conflict(client: HttpCompressor) -> None:
    client.compress(REQUEST)
    other = kit.replace(REQUEST, canonical_text=TEXT + TEXT)
    assert client.compress(other) == Refused("conflict", "call-00000001")


def test_an_unknown_kind_is_refused(client: HttpCompressor) -> None:
    result = client.compress(kit.replace(REQUEST, kind="something.v9"))
    assert result == Refused("unsupported-kind", "call-00000001")


def test_nobody_listening_is_a_failed_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/compress"
        client = HttpCompressor(address, attempts_count=2, sleep=lambda _: None)
        assert client.compress(REQUEST) == TransportFailed("connection", "call-00000001")
        client.close()


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"version": "compress.v1", "status": "compressed", "callId": "call-00000001"},
        {"version": "compress.v2", "status": "done", "callId": "call-00000001"},
        {
            "version": "compress.v2",
            "status": "compressed",
            "callId": "call-00000001",
            "text": "x",
            "representedCount": True,
        },
        {
            "version": "compress.v2",
            "status": "compressed",
            "callId": "call-00000001",
            "text": 7,
            "representedCount": 1,
        },
    ],
)
def test_a_malformed_document_is_a_bad_reply(document: object) -> None:
    assert result_of(document, "call-00000001") == TransportFailed("bad-reply", "call-00000001")


def test_reasons_that_are_no_known_code_go_nowhere() -> None:
    assert Refused(f"cannot: {kit.MARKER}", "call-00000001").reason == "other"
    assert TransportFailed(kit.MARKER, "call-00000001").error == "other"


def test_an_address_that_is_none_is_refused() -> None:
    for url in ("file:///etc/passwd", "localhost:80"):
        with pytest.raises(UsageError):
            HttpCompressor(url)


def test_a_function_gets_the_beneficiaries_of_that_moment() -> None:
    seen: list[tuple[str, ...]] = []

    def function(request: CompressRequest) -> CompressResult:
        seen.append(request.beneficiaries)
        return kit.good(request)

    present = ["ada"]
    compressor = CallableCompressor(function, beneficiaries=lambda: present)
    compressor.compress(REQUEST)
    present.append("bo")
    compressor.compress(REQUEST)
    assert seen == [("ada",), ("ada", "bo")]


def test_the_extractive_compressor_needs_no_model_and_always_says_the_same() -> None:
    first, second = (ExtractiveCompressor().compress(REQUEST) for _ in range(2))
    assert first == second and isinstance(first, Compressed)
    assert first.represented_count == 3
    assert canonical.part_chars("summary", len(first.text)) < len(TEXT) / 2


def test_the_extractive_compressor_condenses_a_whole_game(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, compressor=ExtractiveCompressor(most_chars=140)) as bench:
        for first in range(1, 40, 4):
            for each in rounds_of(*range(first, first + 4)):
                bench.workflow.append_round(each)
            assert bench.workflow.before_generation().outcome.outcome == "compressed"
            assert not bench.workflow.over_threshold()


def test_the_extractive_compressor_refuses_what_is_too_short() -> None:
    tiny = CompressRequest(KIND, canonical.text_of(None, [Exchange("a", "b")]), "call-00000001")
    assert ExtractiveCompressor().compress(tiny) == Refused("too-short", "call-00000001")


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        ("ok", "compressed"),
        ("refuse", "refused"),
        ("429", "failed"),
        ("html", "failed"),
        ("cut", "failed"),
        ("over-claiming", "invalid-count"),
        ("empty", "empty"),
        ("not-smaller", "not-smaller"),
    ],
)
def test_a_workflow_over_http_lives_through_every_kind_of_day(
    client: HttpCompressor, server: Any, tmp_path: Path, mode: str, outcome: str
) -> None:
    server.day.switch(mode)
    with kit.on_disk(tmp_path, compressor=client) as bench:
        bench.fill(4)
        before = bench.content()
        assert bench.workflow.before_generation().outcome.outcome == outcome
        assert (bench.content() == before) == (outcome != "compressed")


def test_not_one_line_of_log_telemetry_or_error_holds_a_text(
    client: HttpCompressor, server: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("urllib3").setLevel(logging.DEBUG)
    told: list[str] = []
    for mode in service.module().MODES:
        if mode in ("hang", "drip"):
            continue
        server.day.switch(mode)
        with kit.on_disk(tmp_path, name=mode, compressor=client, quota_bytes=9_000) as bench:
            for number in range(4):
                bench.workflow.append_round(kit.round_of(number, f"{kit.MARKER} {number}"))
            told.append(repr(bench.workflow.compress()))
            told.append(repr(bench.workflow.before_generation()))
            told += [repr(each) for each in bench.attempts]
            told.append(repr(bench.workflow.stack()))
            for call in (
                lambda: bench.workflow.append_round(kit.round_of(9, kit.MARKER * 900)),
                lambda: bench.workflow.edit_history([kit.Round("a", kit.MARKER, "")] * 2),
                lambda: bench.workflow.cheat({"a": [kit.MARKER, object()]}),
                lambda: bench.workflow.intervene(kit.round_of(9, kit.MARKER + "\ud800")),
            ):
                with pytest.raises(Exception) as caught:
                    call()
                told.append(f"{caught.value!r} {caught.value.__dict__}")
    told += [record.getMessage() for record in caplog.records]
    assert len([each for each in told if "compression attempt" in each]) >= 11
    assert len(told) > 80 and not [each for each in told if kit.MARKER in each]


def test_the_reference_service_runs_as_a_program() -> None:
    process = subprocess.Popen(
        [sys.executable, str(service.FILE), "--mode", "500"],
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    with process.stdout:
        url = process.stdout.readline().strip()
        client = HttpCompressor(url, attempts_count=1)
        assert client.compress(REQUEST) == TransportFailed("server-error", "call-00000001")
        pool = urllib3.PoolManager()
        switched = pool.request("POST", url.replace("/compress", "/mode"), body=b"ok")
        assert switched.status == 200
        assert isinstance(client.compress(REQUEST), Compressed)
        pool.clear()
        client.close()
        process.terminate()
        process.wait()


def test_a_slow_answer_holds_no_lock(tmp_path: Path) -> None:
    """While a compressor works, another worker appends and reads."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(request: CompressRequest) -> CompressResult:
        begun.set()
        assert go_on.wait(10)
        return kit.good(request)

    with kit.on_disk(tmp_path, behaviour=slow) as bench, kit.on_disk(tmp_path) as other:
        bench.fill(4)
        thread = threading.Thread(target=bench.workflow.before_generation)
        thread.start()
        assert begun.wait(10)
        other.workflow.append_round(kit.round_of(5))
        assert len(other.workflow.stack().exchanges) == 5
        go_on.set()
        thread.join()
        assert [each.round_id for each in other.workflow.stack().exchanges] == ["r5"]
