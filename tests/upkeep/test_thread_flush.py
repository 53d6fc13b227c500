"""What a thread folds is in the memory folder before it is gone from the window."""

from __future__ import annotations

from pathlib import Path

import pytest

from h2ams import Access, Memory, StoreError
from h2ams.errors import ModelError
from h2ams.models.function import FunctionModel
from h2ams.models.request import Completion, Request
from h2ams.threads.flush import FlushMessage, FlushRequest
from h2ams.upkeep.thread_flush import ThreadFlush

ACCESS = Access(session="s1")
SMALL = {"window": 1_600, "reserve": 100}
FACT = "Remember that the staging server listens on port 8123."


def talk(memory: Memory, count: int = 12) -> None:
    thread = memory.thread("t", access=ACCESS, **SMALL)
    thread.append({"role": "user", "content": "Hello."})  # the first turn is not folded at first
    thread.append({"role": "assistant", "content": "Hello."})
    thread.append({"role": "user", "content": FACT})
    thread.append({"role": "assistant", "content": "Noted."})
    for number in range(count):
        thread.append({"role": "user", "content": f"question {number} about tabs " * 20})
        thread.append({"role": "assistant", "content": f"answer {number} " * 30})


def bodies(memory: Memory) -> list[str]:
    return [each.body for each in memory.list()]


def test_a_compaction_writes_what_was_stated_with_its_source_first(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        talk(memory)
        done = memory.thread("t", access=ACCESS, **SMALL).compact(force=True)
        assert done.outcome == "compacted" and done.flush is not None and not done.flush_error
        assert len(done.flush.addresses) == 1
        record = memory.get(done.flush.addresses[0])
        assert "8123" in record.body and record.source_messages
        assert [hit.record.address for hit in memory.recall("staging port", access=ACCESS).hits]


def test_what_was_flushed_is_not_written_twice(tmp_path: Path) -> None:
    with Memory.open(tmp_path) as memory:
        talk(memory)
        memory.thread("t", access=ACCESS, **SMALL).compact(force=True)
        before = {p: p.read_bytes() for p in tmp_path.rglob("memory.md")}
        talk(memory)  # says it again
        memory.thread("t", access=ACCESS, **SMALL).compact(force=True)
        assert sum("8123" in body for body in bodies(memory)) == 1
        assert set(before) == set(tmp_path.rglob("memory.md"))


def test_a_model_that_gives_no_answer_fails_the_flush_and_writes_nothing(tmp_path: Path) -> None:
    def answer(request: Request) -> Completion:
        raise ModelError("unavailable", "the model is not there")

    with Memory.open(tmp_path) as memory:
        flush = ThreadFlush(
            memory.store,
            memory.settings,
            clock=memory._now,
            model=lambda: FunctionModel(answer),
            existing=tuple,
            synced=lambda paths: None,
        )
        message = FlushMessage("m_1", "user", FACT, "2026-11-01T10:00:00Z")
        request = FlushRequest("t", "sessions/s1", "m_1", "forced", (message,))
        with pytest.raises(StoreError, match="model-failed"):
            flush(request)
        assert bodies(memory) == []


def test_a_flush_writes_no_scope_but_those_of_its_own_session(tmp_path: Path) -> None:
    def answer(request: Request) -> Completion:
        operation = (
            '{"op": "add", "scope": "%s", "kind": "fact", "tags": [], "body": "%s",'
            ' "sourceMessages": ["m_1"]}'
        )
        stated = "The staging server listens on port 8123."
        scopes = ("global", "sessions/other", "sessions/s1", "vp/bob", "sessions/s1/vp/bob")
        text = ",".join(operation % (scope, stated) for scope in scopes)
        return Completion(f'{{"operations": [{text}]}}')

    with Memory.open(tmp_path) as memory:
        flush = ThreadFlush(
            memory.store,
            memory.settings,
            clock=memory._now,
            model=lambda: FunctionModel(answer),
            existing=tuple,
            synced=memory.sync,
        )
        message = FlushMessage("m_1", "user", FACT, "2026-11-01T10:00:00Z")
        report = flush(FlushRequest("t", "sessions/s1", "m_1", "forced", (message,)))
        assert report.refused == 4
        assert [each.scope for each in memory.list()] == ["sessions/s1"]
        assert not (tmp_path / "sessions/other").exists() and not (tmp_path / "global").exists()
