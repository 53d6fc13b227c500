"""Rules of call ids, attempts, quota, and what goes beyond the seed.

Each test is named after its rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stacks import kit
from stacks.kit import Bench, round_of, rounds_of

from h2ams.errors import NotFoundError, QuotaExceeded, StoreError, UsageError
from h2ams.stacks.compress import Compressed, CompressRequest, CompressResult
from h2ams.stacks.exchange import State
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow import Workflow


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with kit.on_disk(tmp_path) as found:
        yield found


# -- call ids and attempts -------------------------------------------------------------------------


def test_one_call_id_links_request_result_summary_and_attempt_record(bench: Bench) -> None:
    bench.fill(4)
    outcome = bench.workflow.before_generation().outcome
    summary = bench.workflow.stack().summary
    assert summary is not None
    ids = {outcome.call_id, summary.call_id, bench.attempts[0].call_id}
    assert ids == {bench.compressor.requests[0].call_id} == {"call-00000001"}


def test_the_id_is_used_again_after_a_transport_failure_only(bench: Bench) -> None:
    bench.fill(4)
    for behaviour in (kit.failed, kit.refused, kit.good):
        bench.compressor.behaviour = behaviour
        bench.workflow.compress()
    first, second, third = [each.call_id for each in bench.compressor.requests]
    assert first == second != third


def test_the_id_is_not_used_again_once_the_canonical_text_changed(bench: Bench) -> None:
    bench.compressor.behaviour = kit.failed
    bench.fill(4)
    bench.workflow.before_generation()
    bench.fill(1, first=5)
    bench.workflow.before_generation()
    assert len({each.call_id for each in bench.compressor.requests}) == 2


def test_the_id_that_has_to_be_used_again_survives_a_restart(tmp_path: Path) -> None:
    ids = (f"call-{number:04d}" for number in range(10))
    seen = []
    for _ in range(2):
        with kit.on_disk(tmp_path, ids=ids, behaviour=kit.failed) as bench:
            if not seen:
                bench.fill(4)
            bench.workflow.before_generation()
            seen += [each.call_id for each in bench.compressor.requests]
    assert seen == ["call-0000", "call-0000"]


def test_attempt_records_hold_numbers_and_codes_only(bench: Bench) -> None:
    bench.fill(4)
    bench.compressor.behaviour = kit.refused
    bench.workflow.before_generation()
    bench.compressor.behaviour = kit.good
    bench.workflow.compress()
    assert [each.fields() for each in bench.attempts] == [
        {
            "call_id": f"call-0000000{number}",
            "kind": "paxhistoria.game-agent-stack.v1",
            "canonical_chars": 608,
            "represented": represented,
            "outcome": outcome,
            "reason": reason,
            "duration_ms": 0.0,
            "forced": forced,
        }
        for number, represented, outcome, reason, forced in (
            (1, 0, "refused", "policy", False),
            (2, 4, "compressed", "", True),
        )
    ]


@pytest.mark.parametrize("behaviour", [kit.echo, kit.empty, kit.raising, kit.over_cap, kit.barely])
def test_k57_after_two_vain_attempts_on_a_text_there_is_no_call_until_it_changes(
    tmp_path: Path, behaviour: kit.Behaviour
) -> None:
    calls = 0
    for turn in range(10):  # each turn in a new process, as it were: the count is durable
        with kit.on_disk(tmp_path, behaviour=behaviour) as bench:
            if turn == 0:
                bench.fill(5)
                before = bench.content()
            outcome = bench.workflow.before_generation().outcome
            calls += len(bench.compressor.requests)
            assert outcome.called == (turn < 2)
            assert outcome.outcome != "compressed" and (turn < 2 or outcome.outcome == "exhausted")
            assert bench.content() == before
            state = State.of(bench.everything()["jfGameStack.state"])
            assert state.attempt is not None and state.attempt.outcome
    assert calls == 2
    with kit.on_disk(tmp_path, behaviour=behaviour) as bench:
        bench.fill(1, first=6)
        assert bench.workflow.before_generation().outcome.called
        assert bench.workflow.before_generation().outcome.called
        assert not bench.workflow.before_generation().outcome.called
        assert bench.workflow.compress().called  # forced


def test_k133_summaries_that_copy_their_input_are_refused_and_never_nest(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, behaviour=kit.echo) as bench:
        for number in range(6):
            bench.fill(3, first=3 * number + 1)
            assert bench.workflow.before_generation().outcome.outcome in (
                "not-smaller",
                "below-threshold",
            )
        assert bench.workflow.stack().summary is None

        def copying(request: CompressRequest) -> CompressResult:
            count = kit.submitted_count(request)
            return Compressed(
                request.canonical_text[:-1][: 150 + 10 * count], count, request.call_id
            )

        bench.compressor.behaviour = copying
        assert bench.workflow.compress().reason == "over-cap"
        bench.compressor.behaviour = lambda request: Compressed(
            request.canonical_text[:150], kit.submitted_count(request), request.call_id
        )
        for number in range(6, 12):
            bench.fill(3, first=3 * number + 1)
            bench.workflow.before_generation()
            summary = bench.workflow.stack().summary
            assert summary is not None and len(summary.text) <= 150
            assert [key for key in bench.everything() if "summary" in key] == [
                "jfGameStack.summary"
            ]
            assert bench.workflow.chars() < kit.SMALL.stack_game_chars


def test_an_attempt_on_a_text_that_changed_meanwhile_is_not_recorded(bench: Bench) -> None:
    bench.fill(4)

    def late(request: CompressRequest) -> CompressResult:
        bench.workflow.append_round(round_of(5))
        return kit.refused(request)

    bench.compressor.behaviour = late
    assert bench.workflow.before_generation().outcome.outcome == "refused"
    assert State.of(bench.everything()["jfGameStack.state"]).attempt is None


def test_without_a_compressor_everything_stays_exact_and_no_attempt_counts(tmp_path: Path) -> None:
    store = SqliteWorkflowStore(tmp_path / "w.db")
    workflow = Workflow(store, settings=kit.SMALL)
    for each in rounds_of(1, 2, 3, 4):
        workflow.append_round(each)
    before = dict(store.items(""))
    for _ in range(3):
        outcome = workflow.before_generation().outcome
        assert (outcome.outcome, outcome.reason) == ("failed", "no-compressor")
        assert not outcome.called
    assert dict(store.items("")) == before
    store.close()


@pytest.mark.parametrize("text", ["{", "[]", '{"exchanges":[]}', '{"exchanges":[{"user":"MARK"}]}'])
def test_a_record_that_is_none_is_reported_without_its_text(bench: Bench, text: str) -> None:
    bench.fill(1)
    bench.store.project({"jfGameStack.chunk.00000001": text})
    with pytest.raises(StoreError) as caught:
        bench.workflow.stack()
    assert "jfGameStack.chunk.00000001" in str(caught.value) and "MARK" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


# -- quota -----------------------------------------------------------------------------------------


def test_every_write_path_preflights_the_same_footprint(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path) as bench:
        bench.fill(2)
        bench.workflow.begin_scene("s")
        full = bench.workflow.footprint().bytes
    many = rounds_of(*range(1, 30))
    with kit.on_disk(tmp_path, quota_bytes=full) as bench:
        workflow, before = bench.workflow, bench.everything()
        small = SqliteWorkflowStore(tmp_path / "small.db", quota_bytes=full - 1)
        for call in (
            lambda: workflow.append_round(round_of(3)),
            lambda: workflow.append_scene_round("s", round_of(3)),
            lambda: workflow.edit_history(many),
            lambda: workflow.reset(many),
            lambda: workflow.cheat({"gold": "9" * 100}),
            lambda: workflow.end_scene("s", closing_summary="c" * 500, meanwhile_event="m"),
            lambda: workflow.intervene(round_of(3)),
            lambda: workflow.begin_scene("t"),
            lambda: workflow.duplicate(small),
        ):
            with pytest.raises(QuotaExceeded) as caught:
                call()
            assert caught.value.needed > caught.value.limit
            assert bench.everything() == before and small.items("") == []
        small.close()
        assert bench.compressor.requests == []


def test_one_figure_covers_store_and_change_log(bench: Bench) -> None:
    bench.fill(3)
    found = bench.workflow.footprint()
    assert found.store == found.log and found.bytes == 2 * found.store.bytes
    bench.workflow.checkpoint()
    after = bench.workflow.footprint()
    assert after.bytes == found.store.bytes + len("{}")


def test_a_cheat_writes_the_hosts_own_keys_and_no_stacks(bench: Bench) -> None:
    bench.fill(1)
    bench.workflow.cheat({"gold": 99, "name": "Ada"})
    bench.workflow.cheat({"name": None})
    assert bench.everything()["gold"] == "99" and "name" not in bench.everything()
    before = bench.everything()
    for key in ("jfGameStack.chunk.00000001", "jfGameStack", "jfCatalystArchives.x", ""):
        with pytest.raises(UsageError):
            bench.workflow.cheat({key: 1})
    for value in (float("nan"), object(), "\ud800"):
        with pytest.raises(UsageError):
            bench.workflow.cheat({"gold": value})
    assert bench.everything() == before


# -- beyond the seed -------------------------------------------------------------------------------


def test_a_plan_says_what_would_happen_without_a_call(bench: Bench) -> None:
    bench.fill(2)
    assert bench.workflow.plan().trigger == "none"
    assert bench.workflow.plan(force=True).trigger == "forced"
    bench.fill(3, first=3)
    planned = bench.workflow.plan()
    assert planned.trigger == "threshold" and planned.calls and planned.exchanges == 5
    assert (planned.chars, planned.threshold_chars) == (760, 400)
    assert planned.before_bytes == bench.workflow.footprint().bytes > planned.least_bytes
    assert bench.compressor.requests == []
    bench.compressor.behaviour = lambda request: Compressed("-", 5, request.call_id)
    bench.workflow.before_generation()
    ledger = json.loads(bench.everything()["jfGameStack.summary"]).get("ledger", [])
    extra = 2 * len(f',"ledger":{json.dumps(ledger, separators=(",", ":"))}') if ledger else 0
    difference = bench.workflow.footprint().bytes - extra - planned.least_bytes
    assert abs(difference) <= 2 * 32  # the call id is shorter here, nothing else differs


def test_a_plan_names_a_due_retry_and_exhausted_attempts(bench: Bench) -> None:
    bench.compressor.behaviour = kit.failed
    bench.fill(4)
    for _ in range(2):
        bench.workflow.before_generation()
    assert bench.workflow.plan().trigger == "exhausted" and bench.workflow.plan().tries == 2
    bench.workflow.intervene(round_of(5))
    assert bench.workflow.plan().trigger == "retry"


def test_restore_rebuilds_the_exact_stack_across_transitions(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        made = rounds_of(*range(1, 6))
        bench.workflow.edit_history(made)
        bench.workflow.checkpoint()
        before = bench.workflow.stack()
        bench.compressor.behaviour = kit.partly(2)  # splits the only chunk
        first = bench.workflow.compress().call_id
        bench.workflow.compress()
        bench.fill(2, first=6)
        bench.workflow.restore(first)
        after = bench.workflow.stack()
        assert after.summary is None and after.chunks[:1] == before.chunks
        assert after.exchanges == tuple(
            each.exchange() for each in (*made, round_of(6), round_of(7))
        )
        assert bench.workflow.chars() == len(bench.workflow.canonical_text())
        assert list((tmp_path / "w.cold").iterdir()) == []


def test_restore_of_the_last_transition_leaves_the_one_before(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(4)
        bench.workflow.compress()
        bench.fill(4, first=5)
        before = bench.workflow.stack()
        last = bench.workflow.compress().call_id
        bench.workflow.restore(last)
        after = bench.workflow.stack()
        assert after.summary == before.summary and after.chunks == before.chunks


def test_restore_preflights_the_quota(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(9)
        call_id = bench.workflow.compress().call_id
        small = bench.workflow.footprint().bytes + 100
    with kit.on_disk(tmp_path, cold=True, quota_bytes=small) as bench:
        before = bench.everything()
        with pytest.raises(QuotaExceeded):
            bench.workflow.restore(call_id)
        assert bench.everything() == before


def test_ids_that_lead_to_no_cold_copy_are_said_to(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(4)
        bench.workflow.compress()
        before = bench.everything()
        with pytest.raises(NotFoundError):
            bench.workflow.restore("call-99999999")
        assert bench.everything() == before
    with kit.on_disk(tmp_path) as bench, pytest.raises(NotFoundError):
        bench.workflow.restore("call-00000001")


def test_reset_edits_and_the_end_of_a_scene_delete_cold_copies(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        cold = tmp_path / "w.cold"
        bench.fill(4)
        bench.workflow.compress()
        bench.workflow.begin_scene("s")
        bench.workflow.append_scene_round("s", round_of(1))
        bench.workflow.compress("s")
        assert len(list(cold.iterdir())) == 2
        bench.workflow.end_scene("s", closing_summary="c", meanwhile_event="m")
        assert len(list(cold.iterdir())) == 1
        bench.workflow.edit_history(rounds_of(1, 2))
        assert list(cold.iterdir()) == []


def test_a_transition_that_publishes_nothing_leaves_no_cold_copy(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(4)

        def late(request: CompressRequest) -> CompressResult:
            bench.workflow.edit_history(rounds_of(1))
            return kit.good(request)

        bench.compressor.behaviour = late
        assert bench.workflow.compress().outcome == "superseded"
        assert not list((tmp_path / "w.cold").glob("*"))


def test_the_ledger_keeps_what_free_summaries_lose(tmp_path: Path) -> None:
    settings = kit.replace(kit.SMALL, stack_ledger_chars=400)
    with kit.on_disk(tmp_path, settings=settings) as bench:
        bench.workflow.append_round(
            kit.Round("r1", "Never deploy on Fridays.", "Noted. The port is 8443, id JUDGE-004.")
        )
        bench.workflow.compress()
        bench.workflow.append_round(kit.Round("r2", "The budget is $800.", "Understood."))
        bench.workflow.compress()
        kept = "\n".join(bench.workflow.ledger())
        for each in ("Never deploy on Fridays", "8443", "JUDGE-004", "$800"):
            assert each in kept
        assert len(kept) <= 400
        assert kept not in bench.workflow.canonical_text()
