"""A thread condensed by a model behind real HTTP, on its good days and on its bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import server as days
from models.server import Answer, ModelServer
from threads.kit import GOOD_SUMMARY, chat, engine, filled, user

from h2ams.models.http_json import Patience
from h2ams.models.openai_compatible import OpenAiCompatible

WINDOW = {"window": 1_600, "reserve": 100}
SHORT = Patience(connect_s=2.0, total_s=0.5, attempts_count=1, backoff_s=0.01)


def test_a_model_on_a_server_writes_the_summary(tmp_path: Path) -> None:
    with ModelServer([days.good(GOOD_SUMMARY, prompt_tokens=None)]) as server:
        model = OpenAiCompatible(f"{server.url}/v1", "small", patience=SHORT)
        thread = filled(engine(tmp_path, summariser=model), chat(20), **WINDOW)
        done = thread.compact(force=True)
        assert done.outcome == "compacted"
        assert "write the importer" in str(thread.context(user("x")).messages)
        _, _, body = server.requests[0]
        assert "tools" not in body
        assert "Question 1:" in body["messages"][-1]["content"]
        assert "Do not answer it" in body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("day", "code"),
    [
        (days.good(GOOD_SUMMARY, finish="length", prompt_tokens=None), "refused:truncated"),
        (days.good("", prompt_tokens=None), "failed:empty"),
        (days.good("<think>only thoughts</think>", prompt_tokens=None), "failed:empty"),
        (days.good("No headings at all.", prompt_tokens=None), "refused:missing-section"),
        (days.good(GOOD_SUMMARY, finish="tool_calls", prompt_tokens=None), "refused:tool-call"),
        (days.good(GOOD_SUMMARY, prompt_tokens=3), "failed:truncated-input"),
        (days.status(429), "failed:rate-limited"),
        (days.status(500), "failed:unavailable"),
        (days.hang(), "failed:timeout"),
        (days.page(), "failed:bad-reply"),
        (days.cut(), "failed:bad-reply"),
    ],
)
def test_on_a_bad_day_nothing_is_committed_and_the_host_is_told_which(
    tmp_path: Path, day: Answer, code: str
) -> None:
    with ModelServer([day]) as server:
        model = OpenAiCompatible(f"{server.url}/v1", "small", patience=SHORT)
        thread = filled(engine(tmp_path, summariser=model), chat(60), window=4_000, reserve=0)
        context = thread.context(user("x"))
        assert context.receipt.compaction == code
        assert context.tokens <= 4_000 and context.receipt.left_out
        assert not [row for row in thread.rows() if row.kind == "summary"]
        asked = len(server.requests)
        for _ in range(4):
            thread.context(user("x"))
        assert len(server.requests) <= asked * 2  # two strikes, then no more
        assert thread.context(user("x")).receipt.compaction == "breaker-open"
