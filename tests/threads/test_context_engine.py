"""Threads and turns as a host uses them: nothing lives between calls."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from threads.kit import (
    GOOD_SUMMARY,
    Script,
    assistant,
    chat,
    engine,
    filled,
    recount,
    tool,
    tool_turns,
    user,
)

from h2ams.errors import ContextOverflow, NotFoundError, UsageError
from h2ams.memory.access import Access
from h2ams.models.request import Completion, Request
from h2ams.threads.context_engine import Thread
from h2ams.threads.past_chats import thread_scopes
from h2ams.threads.running_summary import TEMPLATE_VERSION

WINDOW = {"window": 1_600, "reserve": 100}


def summaries(thread: Thread) -> list[Any]:
    return [row for row in thread.rows() if row.kind == "summary"]


def contents(messages: tuple[Any, ...]) -> list[str]:
    return [each["content"] for each in messages]


# ---------------------------------------------------------------- context


def test_a_new_engine_on_the_same_store_gives_the_same_prompt(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(20), system="Be kind.", **WINDOW)
    first = thread.context(user("x"))
    again = engine(tmp_path).thread("t1", **WINDOW).context(user("x"))
    assert again.messages == first.messages and again.receipt.compaction == ""
    assert engine(tmp_path).thread("t1", **WINDOW).context(user("x")) == again


def test_asking_changes_nothing_unless_it_is_recorded(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(2))
    thread.context(user("dry"))
    assert thread.info.message_count == 4
    context = thread.context(user("wet"), record=True)
    assert thread.info.message_count == 5 and contents(context.messages)[-1] == "wet"
    assert contents(thread.context().messages)[-1] == "wet"


def test_a_text_alone_is_a_message_of_the_user(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(1))
    assert thread.context("hello").messages[-1] == user("hello")
    anthropic = engine(tmp_path).thread("a", shape="anthropic", system="Be kind.")
    context = anthropic.context("hello")
    assert context.messages == (user("hello"),) and context.system == "Be kind."


def test_tokens_are_counted_once_and_stored(tmp_path: Path) -> None:
    class Counting:
        name = "estimate"
        calls = 0

        def count(self, text: str) -> int:
            self.calls += 1
            return len(text) // 3

        def cut(self, text: str, limit: int) -> str:
            return text[: limit * 3]

    from h2ams.threads.context_engine import ContextEngine
    from h2ams.threads.thread_sqlite import SqliteThreadStore

    counting = Counting()
    made = ContextEngine(SqliteThreadStore(tmp_path / "threads.db"), counter=counting)
    made.thread("t1").append(*chat(100))
    counting.calls = 0
    made.thread("t1").context(user("x"), compact=False)
    assert counting.calls < 420  # of 200 rows: no text again, only what is really sent
    stored = made.store.load("t1")
    assert all(row.tokens > 0 and row.encoding == "estimate" for row in stored.rows)


def test_rows_that_another_encoder_counted_are_counted_anew(tmp_path: Path) -> None:
    from h2ams.threads.context_engine import ContextEngine

    made = engine(tmp_path)
    filled(made, chat(3))
    other = ContextEngine(made.store)
    context = other.thread("t1").context(user("x"))
    assert context.tokens != made.thread("t1").context(user("x")).tokens


def test_the_host_is_told_what_overflows(tmp_path: Path) -> None:
    thread = engine(tmp_path).thread("t1", window=400, reserve=0, system="rule " * 100)
    with pytest.raises(ContextOverflow) as caught:
        thread.context(user("word " * 500))
    assert caught.value.parts["system"] > 90


def test_memory_comes_between_tail_and_message_and_its_share_is_kept_free(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def memory(query: str, budget: int) -> str:
        asked.append((query, budget))
        return "<memory-context>\n" + "fact " * (budget - 14) + "\n</memory-context>"

    thread = filled(engine(tmp_path, memory=memory), chat(20), **WINDOW)
    context = thread.context(user("which one?"))
    assert asked[-1][0] == "which one?"
    assert contents(context.messages)[-2].startswith("<memory-context>")
    assert context.tokens == recount(context) <= 1_500


# ---------------------------------------------------------------- compaction


def test_a_summary_is_a_row_at_its_place_that_says_what_it_covers(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path, summariser=Script()), chat(20), **WINDOW)
    thread.context(user("x"))
    rows = thread.rows()
    at = next(n for n, row in enumerate(rows) if row.kind == "summary")
    row = rows[at]
    assert rows[at - 1].id == row.boundary and at < len(rows) - 1  # shown where it cuts
    assert len([each for each in rows if each.kind == "message"]) == 40
    payload = row.payload
    assert payload["template"] == TEMPLATE_VERSION and len(payload["sha256"]) == 64
    assert payload["previous"] == "" and payload["call_id"] and payload["model"] == "scripted"
    assert payload["before_tokens"] > payload["after_tokens"] > 0
    assert payload["covered_rows"] == row.boundary_seq - 2 and isinstance(payload["ledger"], list)


def test_the_id_of_a_summary_follows_from_what_it_stands_for(tmp_path: Path) -> None:
    ids = []
    for name in "ab":
        (tmp_path / name).mkdir()
        thread = filled(engine(tmp_path / name), chat(20), **WINDOW)
        thread.context(user("x"))
        ids.append(summaries(thread)[0].id)
    assert ids[0] == ids[1] and uuid.UUID(ids[0]).version == 5
    (tmp_path / "c").mkdir()
    other = filled(engine(tmp_path / "c"), [user("!"), *chat(20)[1:]], **WINDOW)
    other.context(user("x"))
    changed = filled(engine(tmp_path / "c"), chat(20), id="t2", **WINDOW)
    changed.context(user("x"))
    assert len({ids[0], summaries(changed)[0].id}) == 2


def test_each_summary_is_merged_into_the_one_before(tmp_path: Path) -> None:
    script = Script()
    thread = filled(engine(tmp_path, summariser=script), chat(20), **WINDOW)
    thread.context(user("x"))
    thread.append(*chat(20, start=30))
    thread.context(user("x"))
    first, second = summaries(thread)
    assert second.payload["previous"] == first.id
    assert "<earlier-summary>" in script.asked[1].messages[-1].content
    assert "write the importer" in script.asked[1].messages[-1].content


def test_the_pre_pass_alone_can_be_enough_and_says_so(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), tool_turns(8, 1_200), window=2_400, reserve=100)
    context = thread.context(user("x"))
    assert context.receipt.compaction == "prepass" and summaries(thread) == []
    state = next(row for row in thread.rows() if row.name == "prepass")
    assert len(state.payload["replaced"]) >= 3
    originals = [row.payload for row in thread.rows() if row.kind == "message"]
    assert originals == tool_turns(8, 1_200)  # rows are never rewritten
    assert thread.context(user("x")).receipt.compaction == ""


def test_a_pre_pass_that_frees_little_is_not_committed(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), tool_turns(8, 1_200), window=1_600, reserve=100)
    thread = replace(thread, limits=replace(thread.limits, min_reclaim_tokens=10**6))
    assert thread.context(user("x")).receipt.compaction == "compacted"
    assert not [row for row in thread.rows() if row.name == "prepass"]


def test_a_summary_reads_what_a_pre_pass_has_left_out(tmp_path: Path) -> None:
    output = "commit 9f8e7d6c5b4a3921 was built\n" + "noise of a build\n" * 80
    messages = [
        user("build"),
        assistant("", ("b", "make", "{}")),
        tool("b", output),
        assistant("ok"),
    ]
    thread = filled(engine(tmp_path), [*chat(1), *messages, *tool_turns(8, 1_200)], **WINDOW)
    thread.context(user("x"))
    thread.append(*chat(14, start=20))
    thread.context(user("x"))
    assert any("9f8e7d6c5b4a3921" in json.dumps(row.payload) for row in summaries(thread))


def test_a_tail_result_is_never_shortened_by_the_pre_pass(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), tool_turns(8, 1_200), window=2_400, reserve=100)
    context = thread.context(user("x"))
    last = [each["content"] for each in context.messages if each["role"] == "tool"][-1]
    assert last == tool_turns(8, 1_200)[-2]["content"]


def test_an_edit_of_a_covered_row_takes_the_summary_back(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(20), **WINDOW)
    thread.context(user("x"))
    covered = thread.rows()[6].id
    assert thread.edit(covered, user("changed")) == (summaries(thread)[0].id,)
    assert thread.engine.load("t1").window.summary is None
    assert thread.context(user("x")).receipt.compaction == "compacted"
    assert sum(row.valid for row in summaries(thread)) == 1
    assert len(summaries(thread)) == 2


def test_an_edit_also_ends_what_a_pre_pass_made_of_the_row(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), tool_turns(8, 1_200), window=2_400, reserve=100)
    thread.context(user("x"))
    thread.edit(thread.rows()[6].id, tool("call_1", "the true output"))
    assert "the true output" in contents(thread.context(user("x"), compact=False).messages)


def test_manual_and_forced_passes_go_past_the_breaker(tmp_path: Path) -> None:
    bad = engine(tmp_path, summariser=Script("no"))
    thread = filled(bad, chat(20), **WINDOW)
    for _ in range(3):
        thread.context(user("x"))
    assert thread.context(user("x")).receipt.compaction == "breaker-open"
    good = engine(tmp_path).thread("t1", **WINDOW)
    script = Script("no")
    again = engine(tmp_path, summariser=script).thread("t1", **WINDOW)
    assert again.compact(force=True).outcome == "refused" and len(script.asked) == 1
    assert good.compact(force=True).outcome == "compacted"
    assert thread.context(user("x")).receipt.compaction == ""


def test_a_thread_that_somebody_compacts_is_left_to_them(tmp_path: Path) -> None:
    seen: list[str] = []

    def slow(request: Request) -> Completion:
        other = engine(tmp_path).thread("t1", **WINDOW)
        context = other.context(user("meanwhile"))
        seen.append(context.receipt.compaction)
        assert context.tokens <= 1_500 and context.receipt.left_out
        seen.append(other.compact(force=True).outcome)
        return Completion(GOOD_SUMMARY)

    thread = filled(engine(tmp_path, summariser=Script(slow)), chat(20), **WINDOW)
    assert thread.compact(force=True).inserted
    assert seen == ["already-running"] * 2 and len(summaries(thread)) == 1


def test_a_small_thread_needs_none(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(1), **WINDOW)
    assert thread.compact(force=True).outcome == "nothing-to-fold"
    assert thread.compact().outcome == "not-needed"
    larger = filled(engine(tmp_path), chat(8), id="t2", window=4_000, reserve=0)
    assert larger.compact().outcome == "not-needed" and summaries(larger) == []
    assert thread.context(user("x")).receipt.compaction == ""


def test_a_few_short_rows_are_not_replaced_by_a_longer_summary(tmp_path: Path) -> None:
    little = [user("hello there"), assistant("hello to you"), user("one two"), assistant("three")]
    middle = [user("what is the time by the way"), assistant("it is noon, as far as I see it")] * 2
    thread = filled(
        engine(tmp_path), [*little, *middle, user("long " * 400)], window=1_000, reserve=0
    )
    done = thread.compact(force=True)
    assert done.code == "refused:not-smaller" and summaries(thread) == []
    assert done.after_tokens == done.before_tokens


# ---------------------------------------------------------------- restart


def test_starting_afresh_is_the_same_line_set_on_purpose(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(5), system="Be kind.")
    done = thread.restart()
    assert done.outcome == "restarted" and done.inserted
    thread.append(user("new start"))
    assert contents(thread.context().messages) == ["Be kind.", "new start"]
    assert len(thread.rows()) == 12 and thread.rows()[10].kind == "summary"
    assert thread.rows()[10].origin == "restart"


def test_a_person_may_write_what_stands_for_the_past(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(5), **WINDOW)
    thread.restart("We build an importer.\nIt reads tar.")
    shown = contents(thread.context(user("x")).messages)[0]
    assert "We build an importer." in shown and shown.startswith("<running-summary")
    thread.append(*chat(20, start=9))
    thread.context(user("x"))
    assert "We build an importer." in contents(thread.context(user("x")).messages)[0]


def test_the_same_restart_twice_is_one_line_and_another_text_is_another(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(3))
    one = thread.restart("a")
    two = thread.restart("a")
    assert two.summary == one.summary and not two.inserted
    three = thread.restart("b")
    assert three.inserted and "b" in contents(thread.context(user("x")).messages)[0]
    assert engine(tmp_path).thread("empty").restart().outcome == "nothing-to-fold"


# ---------------------------------------------------------------- turns


def test_a_turn_grows_in_the_process_and_is_stored_at_its_end(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(2))
    with thread.turn(user("do it")) as turn:
        turn.append(assistant("", ("c", "run", "{}")), tool("c", "done"))
        assert contents(turn.context().messages)[-3:] == ["do it", "", "done"]
        assert thread.info.message_count == 4
        turn.append(assistant("all done"))
    assert thread.info.message_count == 8
    assert contents(thread.context().messages)[-1] == "all done"


def test_an_unchanged_turn_gives_the_same_object_back(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(2))
    turn = thread.turn(user("do it"))
    first = turn.context()
    assert turn.context() is first
    turn.append(assistant("x"))
    second = turn.context()
    assert second is not first and turn.context() is second
    thread.append(user("from elsewhere"))
    assert turn.context() is not second


def test_a_long_turn_is_compacted_under_the_same_rules(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(2), **WINDOW)
    with thread.turn(user("the one task")) as turn:
        for n in range(40):
            turn.append(assistant("", (f"c{n}", "run", "{}")), tool(f"c{n}", f"output {n} " * 40))
            context = turn.context()
            assert recount(context) <= context.tokens <= 1_500
            assert user("the one task") in context.messages
            assert f"output {n} output" in contents(context.messages)[-1]
    assert summaries(thread)
    assert thread.info.message_count == 85


def test_a_checkpoint_stores_earlier_and_a_crash_loses_only_what_came_after(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(1))
    turn = thread.turn(user("one"))
    assert len(turn.checkpoint()) == 1 and turn.checkpoint() == ()
    turn.append(assistant("lost with the process"))
    del turn  # never closed
    assert contents(engine(tmp_path).thread("t1").context().messages)[-1] == "one"


def test_a_turn_that_ends_with_an_error_is_stored_as_well(tmp_path: Path) -> None:
    thread = filled(engine(tmp_path), chat(1))
    call = assistant("", ("c", "charge_card", "{}"))

    def breaks() -> None:
        with thread.turn(user("one")) as turn:
            turn.append(call)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert thread.info.message_count == 4


# ---------------------------------------------------------------- search over past chats


def test_past_chats_are_searched_within_the_access_and_without_the_current_one(
    tmp_path: Path,
) -> None:
    made = engine(tmp_path)
    for id, scope in (("a", "sessions/s1"), ("b", "sessions/s1"), ("c", "sessions/s2"), ("d", "")):
        made.thread(id, scope=scope).append(user(f"the zebra of {id}"), tool("x", "zebra output"))
    here = made.thread("a")
    assert sorted(hit.thread for hit in here.search("zebra")) == ["b", "c", "d"]
    own = thread_scopes(Access(session="s1", related_sessions=["s2"]))
    assert [hit.thread for hit in here.search("zebra", scopes=own)] == ["b"]
    assert here.search("zebra", scopes=thread_scopes(Access())) == ()
    assert thread_scopes(Access(session="s1", chat="c1")) == ("sessions/s1", "chat/c1")
    assert thread_scopes(None) is None


def test_a_hit_is_short_redacted_and_free_of_what_was_recalled(tmp_path: Path) -> None:
    made = engine(tmp_path)
    key = "sk-" + "a1B2c3D4" * 5
    text = f"zebra key {key} <memory-context>\nrecalled zebra\n</memory-context> " + "word " * 400
    made.thread("a").append(user(text), user("<memory-context>\nonly zebra\n</memory-context>"))
    hits = made.thread("b").search("zebra")
    assert len(hits) == 1
    assert key not in hits[0].text and "recalled" not in hits[0].text and len(hits[0].text) <= 400
    assert made.thread("b").search("") == () and made.thread("b").search("recalled") == ()


# ---------------------------------------------------------------- misuse


def test_misuse_is_said_in_words(tmp_path: Path) -> None:
    made = engine(tmp_path)
    for name in ("", "x" * 300, "a\0b"):
        with pytest.raises(UsageError):
            made.thread(name)
    with pytest.raises(UsageError, match="flush"):
        engine(tmp_path, flush_mode="required")
    thread = made.thread("t1")
    made.store.delete("t1")
    with pytest.raises(NotFoundError):
        thread.context(user("x"))
    with pytest.raises(NotFoundError):
        _ = thread.info


def test_a_model_called_extractive_is_the_built_in_way(tmp_path: Path) -> None:
    script = Script(GOOD_SUMMARY, name="extractive")
    thread = filled(engine(tmp_path, summariser=script), chat(20), **WINDOW)
    assert thread.compact(force=True).outcome == "compacted" and script.asked == []


def test_the_engine_offers_the_same_by_name(tmp_path: Path) -> None:
    made = engine(tmp_path)
    filled(made, chat(1))
    assert made.context("t1", user("x")) == made.context(made.thread("t1"), user("x"))
    with made.turn("t1", user("y")) as turn:
        assert contents(turn.context().messages)[-1] == "y"
