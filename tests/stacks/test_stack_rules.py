"""Rules of the stacks: keys, when compression runs, what a transition does.

Each test is named after its rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stacks import kit
from stacks.kit import Bench, round_of, rounds_of

from h2ams.errors import QuotaExceeded
from h2ams.stacks import canonical
from h2ams.stacks.compress import Compressed, CompressRequest, CompressResult
from h2ams.stacks.scenes import Prefixes
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow import Workflow


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with kit.on_disk(tmp_path) as found:
        yield found


# -- words and keys --------------------------------------------------------------------------------


def test_the_game_uses_chunks_and_one_optional_summary(bench: Bench) -> None:
    bench.fill(4)
    assert [key for key in bench.everything() if "chunk" in key] == [
        f"jfGameStack.chunk.0000000{n}" for n in (1, 2, 3, 4)
    ]
    assert "jfGameStack.summary" not in bench.everything()
    bench.workflow.before_generation()
    assert list(bench.everything()) == ["jfGameStack.state", "jfGameStack.summary"]


def test_chunk_numbers_are_padded_so_that_keys_sort(bench: Bench) -> None:
    bench.fill(12)
    assert [each.round_id for each in bench.workflow.stack().exchanges] == [
        f"r{n}" for n in range(1, 13)
    ]


def test_each_scene_uses_its_own_chunks_and_summary(bench: Bench) -> None:
    for scene in ("s1", "s2"):
        bench.workflow.begin_scene(scene, round_id="r1")
        bench.workflow.append_scene_round(scene, round_of(scene))
    assert "jfCatalystStack.s1.chunk.00000001" in bench.everything()
    bench.workflow.compress("s2")
    assert "jfCatalystStack.s2.summary" in bench.everything()
    assert "jfCatalystStack.s1.summary" not in bench.everything()


@pytest.mark.parametrize("scene", ["a.b", "a", "a.chunk", "Ä/\\ 😀", "A", "x" * 300, "x" * 301])
def test_no_scene_id_gets_into_the_keys_of_another(bench: Bench, scene: str) -> None:
    ids = ["a", "a.b", "a.chunk", "A", "Ä/\\ 😀", "x" * 300, "x" * 301]
    for each in ids:
        bench.workflow.begin_scene(each, round_id="r1")
        bench.workflow.append_scene_round(each, round_of(1, each))
    assert sorted(bench.workflow.scenes()) == sorted(ids)
    bench.workflow.end_scene(scene, closing_summary="c", meanwhile_event="m")
    assert sorted(bench.workflow.scenes()) == sorted(set(ids) - {scene})
    for each in set(ids) - {scene}:
        assert bench.workflow.stack(each).exchanges[0].user == f"ask {each}"


def test_prefixes_and_kinds_are_parameters(tmp_path: Path) -> None:
    store = SqliteWorkflowStore(tmp_path / "w.db")
    workflow = Workflow(store, prefixes=Prefixes("chat", "side", "done"))
    workflow.append_round(round_of(1))
    assert [key for key, _ in store.items("chat.")] == ["chat.chunk.00000001", "chat.state"]
    store.close()


def test_exchanges_are_exact(bench: Bench) -> None:
    odd = "  spaces \r\n\t[user 3]\n\0 \u2028 e\u0301 \U0001f600\n\n"
    bench.workflow.append_round(kit.Round("r1", odd, odd[::-1]))
    found = bench.workflow.stack().exchanges[0]
    assert (found.user, found.assistant) == (odd, odd[::-1])


# -- when compression runs -------------------------------------------------------------------------


def test_the_default_thresholds_are_those_of_the_seed() -> None:
    assert kit.DEFAULTS.stack_game_chars == 300_000
    assert kit.DEFAULTS.stack_catalyst_chars == 150_000
    assert kit.DEFAULTS.stack_quota_bytes == 30 * 1024 * 1024


@pytest.mark.parametrize(("less", "calls"), [(0, 1), (1, 0)])
def test_reaching_the_threshold_triggers_and_below_it_nothing_is_called(
    tmp_path: Path, less: int, calls: int
) -> None:
    with kit.on_disk(tmp_path) as bench:
        empty = canonical.exchange_chars(kit.Round("r", "", "").exchange())
        size = kit.SMALL.stack_game_chars - less - empty - len("399") + len("0")
        bench.workflow.append_round(kit.Round("r1", "x" * size, ""))
        assert bench.workflow.chars() == kit.SMALL.stack_game_chars - less
        outcome = bench.workflow.before_generation().outcome
        assert len(bench.compressor.requests) == calls
        assert outcome.outcome == ("compressed" if calls else "below-threshold")


def test_length_is_counted_in_code_points_never_in_rounds_or_bytes(bench: Bench) -> None:
    bench.workflow.append_round(kit.Round("r1", "😀" * 150, "é" * 150))
    assert bench.workflow.chars() == len(bench.workflow.canonical_text()) == 331
    for number in range(3):  # many small rounds are no reason either
        bench.workflow.append_round(kit.Round(f"s{number}", "", ""))
    assert bench.workflow.chars() == 331 + 3 * len("[user 0]\n\n\n[assistant 0]\n\n\n")
    assert len(bench.workflow.canonical_text()) == bench.workflow.chars()


def test_the_text_that_is_measured_is_the_text_that_is_submitted(bench: Bench) -> None:
    bench.fill(4)
    text = bench.workflow.canonical_text()
    outcome = bench.workflow.before_generation().outcome
    assert bench.compressor.requests[0].canonical_text == text
    assert outcome.before_chars == len(text)


def test_a_catalyst_stack_has_a_threshold_and_a_request_kind_of_its_own(bench: Bench) -> None:
    bench.workflow.begin_scene("s", round_id="r1")
    for number in (1, 2):
        bench.workflow.append_scene_round("s", round_of(number))
    assert bench.workflow.before_generation().outcome.outcome == "below-threshold"
    assert bench.workflow.before_generation("s").outcome.outcome == "compressed"
    bench.fill(4)
    bench.workflow.before_generation()
    assert [each.kind for each in bench.compressor.requests] == [
        "paxhistoria.catalyst-agent-stack.v1",
        "paxhistoria.game-agent-stack.v1",
    ]


# -- a transition ----------------------------------------------------------------------------------


def test_the_prefix_becomes_one_summary_and_the_suffix_stays_exact(bench: Bench) -> None:
    bench.fill(5)
    bench.compressor.behaviour = kit.partly(3)
    before = bench.everything()
    bench.workflow.before_generation()
    stack = bench.workflow.stack()
    assert stack.summary is not None and stack.summary.text == "sum"
    assert [each.round_id for each in stack.exchanges] == ["r4", "r5"]
    for number in (4, 5):
        key = f"jfGameStack.chunk.0000000{number}"
        assert bench.everything()[key] == before[key]


def test_a_partly_represented_chunk_is_split(bench: Bench) -> None:
    made = rounds_of(*range(1, 6))
    bench.workflow.edit_history(made)
    assert len(bench.workflow.stack().chunks) == 1
    bench.compressor.behaviour = kit.partly(2)
    bench.workflow.before_generation()
    stack = bench.workflow.stack()
    assert [each.round_id for each in stack.exchanges] == ["r3", "r4", "r5"]
    assert stack.exchanges == tuple(each.exchange() for each in made[2:])


def test_the_next_summary_stands_for_the_old_one_too(bench: Bench) -> None:
    bench.fill(4)
    bench.workflow.before_generation()
    bench.fill(3, first=5)
    before = bench.workflow.canonical_text()
    bench.workflow.before_generation()
    assert bench.compressor.requests[1].canonical_text == before
    assert before.startswith("[summary 8]\nsum of 4\n\n[user ")
    summary = bench.workflow.stack().summary
    assert summary is not None and (summary.exchanges, summary.covers) == (3, 7)
    assert summary.sha256 == canonical.sha256_of(before) and summary.chars == len(before)


def test_the_summary_record_holds_call_id_hash_counts_and_time(bench: Bench) -> None:
    bench.fill(4)
    text = bench.workflow.canonical_text()
    outcome = bench.workflow.before_generation().outcome
    record = json.loads(bench.everything()["jfGameStack.summary"])
    assert record.pop("ledger")
    assert record == {
        "text": "sum of 4",
        "compressionCallId": outcome.call_id,
        "sha256": canonical.sha256_of(text),
        "exchanges": 4,
        "chars": len(text),
        "covers": 4,
        "at": "2026-12-01T12:00:00.000+00:00",
    }


@pytest.mark.parametrize(
    ("behaviour", "outcome", "reason"),
    [
        (kit.refused, "refused", "policy"),
        (kit.failed, "failed", "unavailable"),
        (kit.raising, "failed", "callable-raised"),
        (kit.foreign, "failed", "call-id-mismatch"),
        (kit.nonsense, "failed", "bad-reply"),
        (kit.empty, "empty", ""),
        (kit.over_claiming, "invalid-count", ""),
        (kit.counting_nothing, "invalid-count", ""),
        (kit.echo, "not-smaller", ""),
        (kit.over_cap, "not-smaller", "over-cap"),
    ],
)
def test_no_usable_result_leaves_every_exact_exchange_intact(
    bench: Bench, behaviour: kit.Behaviour, outcome: str, reason: str
) -> None:
    bench.fill(5)
    bench.compressor.behaviour = behaviour
    before, text = bench.content(), bench.workflow.canonical_text()
    found = bench.workflow.before_generation().outcome
    assert (found.outcome, found.reason) == (outcome, reason)
    assert bench.content() == before and bench.workflow.canonical_text() == text
    assert found.before_chars == found.after_chars == len(text)


@pytest.mark.parametrize(("more", "outcome"), [(0, "not-smaller"), (-1, "compressed")])
def test_a_summary_must_be_strictly_smaller_than_what_it_replaces(
    tmp_path: Path, more: int, outcome: str
) -> None:
    """Measured as it will stand in the canonical text, old summary included."""
    settings = kit.replace(kit.SMALL, stack_summary_max_chars=10_000)
    with kit.on_disk(tmp_path, settings=settings) as bench:
        bench.fill(4)
        bench.workflow.before_generation()
        bench.fill(4, first=5)
        replaced = canonical.text_of(
            bench.workflow.stack().summary, bench.workflow.stack().exchanges[:2]
        )
        size = len(replaced) + more - canonical.part_chars("summary", 100) + 100
        assert canonical.part_chars("summary", size) == len(replaced) + more

        def sized(request: CompressRequest) -> CompressResult:
            return Compressed("s" * size, 2, request.call_id)

        bench.compressor.behaviour = sized
        assert bench.workflow.before_generation().outcome.outcome == outcome


def test_what_was_appended_meanwhile_survives_untouched(bench: Bench) -> None:
    bench.fill(4)

    def slow(request: CompressRequest) -> CompressResult:
        bench.workflow.append_round(round_of(5))
        return kit.good(request)

    bench.compressor.behaviour = slow
    assert bench.workflow.before_generation().outcome.outcome == "compressed"
    stack = bench.workflow.stack()
    assert stack.summary is not None
    assert stack.exchanges == (round_of(5).exchange(),)
    assert bench.workflow.chars() == len(bench.workflow.canonical_text())


def test_an_answer_about_a_prefix_that_changed_is_superseded(bench: Bench) -> None:
    bench.fill(4)

    def late(request: CompressRequest) -> CompressResult:
        bench.workflow.edit_history([round_of(1, "edited"), *rounds_of(2, 3, 4)])
        return kit.good(request)

    bench.compressor.behaviour = late
    assert bench.workflow.before_generation().outcome.outcome == "superseded"
    stack = bench.workflow.stack()
    assert stack.summary is None and stack.exchanges[0].user == "ask edited"


def test_an_edit_behind_the_represented_prefix_does_not_supersede_it(bench: Bench) -> None:
    bench.fill(4)

    def late(request: CompressRequest) -> CompressResult:
        bench.workflow.edit_history([*rounds_of(1, 2, 3), round_of(4, "edited")])
        return Compressed("sum", 3, request.call_id)

    bench.compressor.behaviour = late
    assert bench.workflow.before_generation().outcome.outcome == "compressed"
    assert [each.user for each in bench.workflow.stack().exchanges] == ["ask edited"]


def test_of_two_answers_to_the_same_prefix_one_is_superseded(bench: Bench) -> None:
    bench.fill(4)

    def twice(request: CompressRequest) -> CompressResult:
        bench.compressor.behaviour = kit.good
        assert bench.workflow.before_generation().outcome.outcome == "compressed"
        return kit.good(request)

    bench.compressor.behaviour = twice
    before = bench.workflow.before_generation().outcome
    assert before.outcome == "superseded"
    assert bench.workflow.stack().summary is not None


def test_a_stack_at_its_quota_can_still_be_compressed(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path) as bench:
        bench.fill(9)
        full = bench.workflow.footprint().bytes
    with kit.on_disk(tmp_path, quota_bytes=full) as bench:
        with pytest.raises(QuotaExceeded):
            bench.workflow.append_round(round_of(10))
        assert bench.workflow.before_generation().outcome.outcome == "compressed"
        bench.workflow.append_round(round_of(10))
        assert bench.workflow.footprint().bytes <= full


def test_a_summary_that_would_exceed_the_quota_is_not_published(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path) as bench:
        bench.workflow.append_round(kit.Round("r1", "x" * 450, ""))
        bench.workflow.checkpoint()
        full = bench.workflow.footprint().bytes
    with kit.on_disk(tmp_path, quota_bytes=full + 50) as bench:
        before = bench.everything()
        for _ in range(2):
            assert bench.workflow.before_generation().outcome.outcome == "quota-exceeded"
            assert bench.everything() == before
        # There was no room to keep a record of the attempts: they count nevertheless.
        assert bench.workflow.before_generation().outcome.outcome == "exhausted"
        assert len(bench.compressor.requests) == 2
