"""Rules of rebuilds, catalyst scenes and interventions.

Each test is named after its rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from stacks import kit
from stacks.kit import Bench, round_of, rounds_of

from h2ams.errors import ConflictError, NotFoundError, UsageError
from h2ams.stacks import canonical
from h2ams.stacks.compress import CompressRequest, CompressResult
from h2ams.stacks.sqlite_store import SqliteWorkflowStore


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with kit.on_disk(tmp_path) as found:
        yield found


# -- never compressing -----------------------------------------------------------------------------


def test_reset_edits_duplication_creation_and_conversion_call_no_compressor(
    tmp_path: Path, bench: Bench
) -> None:
    many = rounds_of(*range(1, 10))
    bench.workflow.create_game()
    bench.workflow.convert_to_live(many)
    bench.workflow.edit_history(many[:7])
    bench.workflow.reset(many[:6])
    other = SqliteWorkflowStore(tmp_path / "other.db")
    bench.workflow.duplicate(other).reset()
    other.close()
    assert bench.compressor.requests == [] and bench.workflow.over_threshold()


def test_a_new_game_starts_with_no_ai_memory(bench: Bench) -> None:
    bench.workflow.create_game()
    assert bench.workflow.canonical_text() == "" and bench.workflow.archives() == ()
    bench.fill(1)
    with pytest.raises(ConflictError):
        bench.workflow.create_game()


def test_conversion_to_live_seeds_direct_exchanges(bench: Bench) -> None:
    bench.workflow.convert_to_live(rounds_of(1, 2, 3))
    assert bench.workflow.stack().exchanges == tuple(each.exchange() for each in rounds_of(1, 2, 3))
    with pytest.raises(ConflictError):
        bench.workflow.convert_to_live(rounds_of(1))


def test_the_same_rounds_give_byte_identical_stacks(tmp_path: Path) -> None:
    """Whatever the stack went through before."""
    found = []
    for name in ("one", "two"):
        with kit.on_disk(tmp_path, name=name) as bench:
            bench.fill(3)
            if name == "two":
                bench.workflow.compress()
                bench.fill(7, first=4)
                bench.workflow.begin_scene("s", round_id="r2")
                bench.workflow.end_scene(
                    "s", closing_summary="c", meanwhile_event="m", round_id="r2"
                )
                bench.compressor.behaviour = kit.failed
                bench.workflow.before_generation()
            bench.workflow.edit_history(rounds_of(1, 3, 8, 9, 20))
            found.append(bench.everything())
    assert found[0] == found[1]


def test_a_rebuild_puts_outcomes_back_at_their_rounds(bench: Bench) -> None:
    bench.fill(2)
    bench.workflow.begin_scene("s")
    bench.workflow.end_scene("s", closing_summary="closing", meanwhile_event="meanwhile")
    bench.fill(2, first=3)
    live = bench.workflow.stack().exchanges
    bench.workflow.compress()
    bench.workflow.edit_history(rounds_of(1, 2, 3, 4))
    assert bench.workflow.stack().exchanges == live
    bench.workflow.edit_history(rounds_of(2, 4))
    assert [each.user for each in bench.workflow.stack().exchanges] == [
        round_of(2).user,
        "closing",
        round_of(4).user,
    ]


def test_archives_and_running_scenes_whose_round_did_not_survive_go_in_one_projection(
    bench: Bench,
) -> None:
    bench.fill(3)
    bench.workflow.begin_scene("old", round_id="r1")
    bench.workflow.end_scene("old", closing_summary="c", meanwhile_event="m", round_id="r3")
    for scene, at in (("kept", "r1"), ("gone", "r2")):
        bench.workflow.begin_scene(scene, round_id=at)
        bench.workflow.append_scene_round(scene, round_of(scene))
    steps: list[str] = []
    bench.store._hook = steps.append  # type: ignore[attr-defined]
    bench.workflow.edit_history(rounds_of(1))
    assert steps.count("commit") == 1
    assert bench.workflow.scenes() == ("kept",) and bench.workflow.archives() == ()
    assert [each.round_id for each in bench.workflow.stack().exchanges] == ["r1"]
    assert not [key for key in bench.everything() if "gone" in key]


def test_what_a_scene_gets_while_its_round_is_edited_away_goes_with_it(
    tmp_path: Path,
) -> None:
    with kit.on_disk(tmp_path) as bench, kit.on_disk(tmp_path) as other:
        bench.fill(2)
        bench.workflow.begin_scene("s", round_id="r2")
        waiting = [round_of("late")]

        def hook(step: str) -> None:
            if step == "begin" and waiting:
                other.workflow.append_scene_round("s", waiting.pop())

        bench.store._hook = hook  # type: ignore[attr-defined]
        bench.workflow.edit_history(rounds_of(1))
        assert not waiting
        assert not [key for key in bench.everything() if key.startswith("jfCatalystStack")]


def test_a_reset_to_the_beginning_leaves_no_memory(bench: Bench) -> None:
    bench.fill(4)
    bench.workflow.before_generation()
    bench.workflow.begin_scene("s")
    bench.workflow.reset()
    assert list(bench.everything()) == ["jfGameStack.state"]
    assert bench.workflow.canonical_text() == ""


def test_a_rebuild_with_an_id_twice_is_refused(bench: Bench) -> None:
    bench.fill(2)
    before = bench.everything()
    with pytest.raises(UsageError):
        bench.workflow.edit_history([round_of(1), round_of(1)])
    assert bench.everything() == before


def test_a_copy_takes_stack_archive_flag_and_log_and_shares_nothing(
    tmp_path: Path, bench: Bench
) -> None:
    bench.fill(2)
    bench.workflow.checkpoint()
    bench.workflow.begin_scene("s")
    bench.workflow.end_scene("s", closing_summary="c", meanwhile_event="m")
    bench.compressor.behaviour = kit.failed
    bench.workflow.intervene(round_of(3))
    store = SqliteWorkflowStore(tmp_path / "copy.db")
    copy = bench.workflow.duplicate(store)
    assert copy.canonical_text() == bench.workflow.canonical_text()
    assert copy.archives() == bench.workflow.archives()
    assert copy.compression_due() == ("r3",)
    assert set(copy.change_log()) == set(bench.workflow.change_log())
    before = bench.everything()
    bench.compressor.behaviour = kit.good
    copy.before_generation()
    assert bench.everything() == before
    # Not even the call: the copy's is another one to the service.
    assert len({each.call_id for each in bench.compressor.requests}) == 2
    copy.close()


# -- catalyst scenes -------------------------------------------------------------------------------


def test_the_end_of_a_scene_is_one_projection(bench: Bench) -> None:
    bench.fill(1)
    bench.workflow.begin_scene("s")
    bench.workflow.append_scene_round("s", round_of("s1"))
    steps: list[str] = []
    bench.store._hook = steps.append  # type: ignore[attr-defined]
    archive = bench.workflow.end_scene("s", closing_summary="CLOSING", meanwhile_event="EVENT")
    assert steps.count("commit") == 1
    outcome = bench.workflow.stack().exchanges[-1]
    assert (outcome.user, outcome.assistant, outcome.synthetic) == ("CLOSING", "EVENT", True)
    assert bench.workflow.archives() == (archive,)
    assert json.loads(bench.everything()["jfCatalystArchives.00000001"]) == {
        "sceneId": "s",
        "roundId": "r1",
        "closingSummary": "CLOSING",
        "meanwhileEvent": "EVENT",
        "endedAt": "2026-12-01T12:00:00.000+00:00",
    }
    assert bench.workflow.scenes() == ()
    assert not [key for key in bench.everything() if key.startswith("jfCatalystStack")]


def test_no_byte_of_a_scene_reaches_the_game_or_a_request_about_it(
    tmp_path: Path,
) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(4)
        bench.workflow.begin_scene("s")
        for number in range(4):
            bench.workflow.append_scene_round("s", round_of(number, f"{kit.MARKER} {number}"))
        bench.compressor.behaviour = kit.partly(2)
        bench.workflow.before_generation("s")
        bench.compressor.behaviour = kit.good
        bench.workflow.end_scene("s", closing_summary="closing", meanwhile_event="event")
        bench.workflow.compress()
        bench.workflow.edit_history(rounds_of(1, 2, 3, 4))
        bench.workflow.compress()
        assert bench.workflow.stack().summary is not None
        asked = [each for each in bench.compressor.requests if each.kind == bench.attempts[-1].kind]
        assert len(asked) == 2 and not [each for each in asked if kit.MARKER in each.canonical_text]
        assert not [text for text in bench.everything().values() if kit.MARKER in text]
        bench.workflow.checkpoint()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert kit.MARKER.encode() not in file.read_bytes(), file


def test_a_scene_id_used_again_starts_empty(bench: Bench) -> None:
    bench.fill(1)
    for _ in range(2):
        bench.workflow.begin_scene("s")
        assert bench.workflow.canonical_text("s") == ""
        bench.workflow.append_scene_round("s", round_of("x"))
        bench.workflow.end_scene("s", closing_summary="c", meanwhile_event="m")
    assert [each.number for each in bench.workflow.archives()] == [1, 2]


def test_a_scene_that_does_not_run_takes_no_round(bench: Bench) -> None:
    bench.fill(1)
    for call in (
        lambda: bench.workflow.append_scene_round("s", round_of(1)),
        lambda: bench.workflow.end_scene("s", closing_summary="c", meanwhile_event="m"),
        lambda: bench.workflow.before_generation("s"),
        lambda: bench.workflow.stack("s"),
        lambda: bench.workflow.compress("s"),
    ):
        with pytest.raises(NotFoundError):
            call()
    bench.workflow.begin_scene("s")
    with pytest.raises(ConflictError):
        bench.workflow.begin_scene("s")


# -- intervene -------------------------------------------------------------------------------------


def test_intervene_publishes_the_revealed_prefix_only(bench: Bench) -> None:
    bench.fill(1)
    whole = kit.Round("r2", "go on", f"shown 😀{kit.MARKER} never shown")
    outcome = bench.workflow.intervene(whole, revealed_chars=7)
    assert outcome.outcome == "compressed"
    request = bench.compressor.requests[0]
    assert canonical.parse(request.canonical_text)[1][-1] == ("go on", "shown 😀")
    stored = " ".join(bench.everything().values())
    assert kit.MARKER not in request.canonical_text and kit.MARKER not in stored


def test_the_sanitised_exchange_is_compressed_below_the_threshold(bench: Bench) -> None:
    bench.fill(1)
    assert not bench.workflow.over_threshold()
    bench.workflow.intervene(round_of(2))
    assert bench.workflow.stack().exchanges == ()
    assert bench.workflow.compression_due() == ()


def test_the_request_holds_no_sign_of_an_intervention(bench: Bench) -> None:
    """It is, but for the call id, the request of an ordinary transition."""
    bench.fill(3)
    bench.compressor.behaviour = kit.refused
    bench.workflow.compress()
    bench.workflow.edit_history(rounds_of(1, 2))
    bench.workflow.intervene(round_of(3))
    plain, intervened = [each.document() for each in bench.compressor.requests]
    assert plain.pop("callId") != intervened.pop("callId")
    assert plain == intervened
    assert set(plain) == {"version", "kind", "canonicalText", "beneficiaries"}


@pytest.mark.parametrize("behaviour", [kit.failed, kit.refused, kit.empty, kit.over_claiming])
def test_every_outcome_but_compressed_sets_the_flag_with_the_exchange(
    bench: Bench, behaviour: kit.Behaviour
) -> None:
    steps: list[tuple[str, tuple[str, ...]]] = []

    def watch(request: CompressRequest) -> CompressResult:
        steps.append(("call", bench.workflow.compression_due()))
        return behaviour(request)

    bench.compressor.behaviour = watch
    bench.workflow.intervene(round_of(1))
    assert steps == [("call", ("r1",))]  # durable together, before anybody is asked
    assert bench.workflow.compression_due() == ("r1",)
    assert bench.workflow.stack().exchanges == (round_of(1).exchange(),)


@pytest.mark.parametrize("scene", [None, "s"])
def test_the_flagged_compression_is_tried_first_before_game_and_catalyst_generations(
    bench: Bench, scene: str | None
) -> None:
    bench.compressor.behaviour = kit.failed
    bench.workflow.intervene(round_of(1))
    bench.workflow.begin_scene("s")
    bench.workflow.append_scene_round("s", round_of("s"))
    retried = bench.workflow.before_generation(scene).retried
    assert retried is not None and retried.outcome == "failed"
    assert bench.workflow.compression_due() == ("r1",)  # and generation goes on
    bench.compressor.behaviour = kit.good
    assert bench.workflow.before_generation(scene).retried is not None
    assert bench.workflow.compression_due() == ()
    assert bench.workflow.before_generation(scene).retried is None
    kinds = [each.kind for each in bench.compressor.requests]
    assert kinds == ["paxhistoria.game-agent-stack.v1"] * 3


def test_a_flagged_compression_is_tried_as_often_as_it_takes(bench: Bench) -> None:
    bench.compressor.behaviour = kit.failed
    bench.workflow.intervene(round_of(1))
    for _ in range(5):
        bench.workflow.before_generation()
    assert len(bench.compressor.requests) == 6
    assert len({each.call_id for each in bench.compressor.requests}) == 1


def test_the_flag_survives_a_restart_and_is_not_in_the_canonical_text(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, behaviour=kit.failed) as bench:
        bench.workflow.intervene(round_of(1))
        plain = canonical.text_of(None, [round_of(1).exchange()])
        assert bench.workflow.canonical_text() == plain
    with kit.on_disk(tmp_path) as bench:
        assert bench.workflow.compression_due() == ("r1",)
        assert bench.workflow.before_generation().outcome.outcome == "compressed"


def test_the_flag_is_cleared_only_by_a_publication_with_its_exchange(bench: Bench) -> None:
    bench.fill(2)
    bench.compressor.behaviour = kit.failed
    bench.workflow.intervene(round_of(3))
    bench.workflow.intervene(round_of(4))
    bench.compressor.behaviour = kit.partly(2)
    bench.workflow.before_generation()
    assert bench.workflow.compression_due() == ("r3", "r4")
    bench.compressor.behaviour = kit.partly(1)
    bench.workflow.before_generation()
    assert bench.workflow.compression_due() == ("r4",)
    bench.compressor.behaviour = kit.good
    bench.workflow.before_generation()
    assert bench.workflow.compression_due() == ()


def test_the_flag_is_cleared_by_a_rebuild_without_its_exchange(bench: Bench) -> None:
    bench.compressor.behaviour = kit.failed
    bench.workflow.intervene(round_of(1))
    bench.workflow.edit_history(rounds_of(1, 2))
    assert bench.workflow.compression_due() == ("r1",)
    bench.workflow.edit_history(rounds_of(2))
    assert bench.workflow.compression_due() == ()
