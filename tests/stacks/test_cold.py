"""Cold copies: durable before the projection, proven when they come back, never left behind."""

from __future__ import annotations

import itertools
import json
import os
import zlib
from pathlib import Path

import pytest
from stacks import kit
from stacks.kit import rounds_of

from h2ams.errors import NotFoundError, StoreError
from h2ams.stacks.cold import ColdCopies, ColdName
from h2ams.stacks.compress import CompressRequest, CompressResult
from h2ams.stacks.scenes import encoded_name


def copies(folder: Path) -> list[Path]:
    return sorted((folder / "w.cold").glob("*"))


def compressed(folder: Path) -> str:
    """A game that was compressed twice; the call id of the second time."""
    with kit.on_disk(folder, cold=True) as bench:
        bench.fill(4)
        bench.workflow.compress()
        bench.fill(4, first=5)
        return bench.workflow.compress().call_id


def test_a_copy_is_on_the_disk_before_the_projection_begins(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path, cold=True) as bench:
        bench.fill(4)
        seen: list[list[Path]] = []
        bench.store._hook = lambda step: seen.append(copies(tmp_path))  # type: ignore[attr-defined]
        bench.workflow.compress()
        assert seen and all(len(each) == 1 for each in seen)


def test_a_copy_is_the_owners_alone(tmp_path: Path) -> None:
    compressed(tmp_path)
    assert [file.stat().st_mode & 0o777 for file in copies(tmp_path)] == [0o600, 0o600]
    assert (tmp_path / "w.cold").stat().st_mode & 0o777 == 0o700


def test_a_damaged_copy_is_reported_and_nothing_changes(tmp_path: Path) -> None:
    call_id = compressed(tmp_path)
    for file in copies(tmp_path):
        file.write_bytes(file.read_bytes()[:-5])
    with kit.on_disk(tmp_path, cold=True) as bench:
        before = bench.everything()
        with pytest.raises(StoreError, match="damaged"):
            bench.workflow.restore(call_id)
        assert bench.everything() == before


@pytest.mark.parametrize("what", ["text", "call", "summary"])
def test_a_copy_that_is_not_what_was_represented_is_refused(tmp_path: Path, what: str) -> None:
    call_id = compressed(tmp_path)
    file = next(each for each in copies(tmp_path) if call_id in each.name.split("~")[1])
    record = json.loads(zlib.decompress(file.read_bytes()))
    if what == "text":
        record["chunks"][0][1] = record["chunks"][0][1].replace("ask", "told")
    elif what == "call":
        record["callId"] = "call-00000001"
    else:
        record["summary"] = None
    file.write_bytes(zlib.compress(json.dumps(record).encode()))
    with kit.on_disk(tmp_path, cold=True) as bench:
        before = bench.everything()
        with pytest.raises(StoreError, match="SHA-256"):
            bench.workflow.restore(call_id)
        assert bench.everything() == before


def test_a_summary_without_room_leaves_no_copy(tmp_path: Path) -> None:
    with kit.on_disk(tmp_path) as bench:
        bench.workflow.append_round(kit.Round("r1", "x" * 450, ""))
        bench.workflow.checkpoint()
        full = bench.workflow.footprint().bytes
    with kit.on_disk(tmp_path, cold=True, quota_bytes=full + 50) as bench:
        assert bench.workflow.before_generation().outcome.outcome == "quota-exceeded"
        assert copies(tmp_path) == []


@pytest.mark.parametrize("more", [False, True])
def test_a_worker_that_comes_too_late_with_the_same_call_takes_no_copy_away(
    tmp_path: Path, more: bool
) -> None:
    ids = (f"call-{number:08d}" for number in itertools.count(1))
    both = {"cold": True, "ids": ids}
    with kit.on_disk(tmp_path, **both) as bench, kit.on_disk(tmp_path, **both) as rival:
        bench.fill(4)
        bench.compressor.behaviour = kit.failed
        bench.workflow.before_generation()

        def late(request: CompressRequest) -> CompressResult:
            first = rival.workflow.before_generation().outcome
            assert (first.outcome, first.call_id) == ("compressed", request.call_id)
            if more:
                rival.fill(4, first=5)
                rival.workflow.compress()
            return kit.good(request)

        bench.compressor.behaviour = late
        outcome = bench.workflow.before_generation().outcome
        assert outcome.outcome == "superseded"
        bench.workflow.restore(outcome.call_id)
        assert len(bench.workflow.stack().exchanges) == (8 if more else 4)


def test_copies_that_no_summary_leads_to_go_at_an_opening_once_they_are_old(
    tmp_path: Path,
) -> None:
    call_id = compressed(tmp_path)
    cold = ColdCopies(tmp_path / "w.cold")
    for number, stack in enumerate(("jfGameStack", "jfCatalystStack.gone")):
        cold.put(ColdName(stack, f"orphan-{number:04d}", ""), "{}")
    with kit.on_disk(tmp_path, cold=True):
        assert len(copies(tmp_path)) == 4  # somebody else may be about to publish them
    for file in copies(tmp_path):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    with kit.on_disk(tmp_path, cold=True) as bench:
        assert len(copies(tmp_path)) == 2  # both that the summary leads to, however old
        bench.workflow.restore(call_id)
        bench.workflow.restore("call-00000001")
        assert bench.workflow.stack().exchanges == tuple(
            each.exchange() for each in rounds_of(*range(1, 9))
        )


def test_a_missing_copy_in_the_middle_is_said_to_be_missing(tmp_path: Path) -> None:
    compressed(tmp_path)
    last = next(each for each in copies(tmp_path) if "call-00000002" in each.name.split("~")[1])
    last.unlink()
    with kit.on_disk(tmp_path, cold=True) as bench:
        before = bench.everything()
        with pytest.raises(NotFoundError, match="call-00000002"):
            bench.workflow.restore("call-00000001")
        assert bench.everything() == before


@pytest.mark.parametrize("scene", ["s", "x" * 300, "~", "a~b~c"])
def test_names_can_be_read_back(scene: str) -> None:
    stack = f"jfCatalystStack.{encoded_name(scene, 'scene')}"
    for previous in ("", "call-0000"):
        name = ColdName(stack, "call-0001", previous)
        assert ColdName.of(name.file) == name
    assert ColdName.of("note.txt") is None and ColdName.of("a.z") is None
