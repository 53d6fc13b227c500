"""Reported cases of the layer *ams*: the prompt sees what is there, and no drop is silent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from cases.kit import cli, few, opened, segment_text, write
from folder import NOW
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, Memory
from h2ams.active.block import MemoryBlock

ACCESS = Access(session="s", vp="ada")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def layers(block: MemoryBlock) -> dict[str, list[str]]:
    return {name: [item.id for item in layer.items] for name, layer in block.receipt.layers.items()}


def shown(block: MemoryBlock) -> set[str]:
    return {id for items in layers(block).values() for id in items}


# -- K50 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["forget", "purge", "by hand"])
def test_k50_what_another_process_forgot_is_in_no_layer(root: Path, how: str) -> None:
    kept = segment_text("S2", "jwt keys rotate every month")
    file = write(root, "sessions/s/memory.md", segment_text("S1", "jwt tokens last an hour"), kept)
    with opened(root) as memory:
        for _ in range(2):
            block = memory.context("jwt", access=ACCESS, commit=True)
            assert shown(block) == {"S1", "S2"}
        assert sorted(layers(memory.context("next task", access=ACCESS))["recent"]) == ["S1", "S2"]
        if how == "by hand":
            file.write_text(kept)
        else:
            words = ["forget", "sessions/s#S1", *(["--purge"] if how == "purge" else [])]
            assert cli(root, *words).code == 0
        for query in ("jwt", "next task", "jwt tokens last an hour"):
            block = memory.context(query, access=ACCESS)
            assert shown(block) == {"S2"}
            assert "tokens last an hour" not in block.text
            assert "S1" not in repr(block.receipt)
    with opened(root) as again:  # hydrated after a restart
        for query in ("jwt", "next task"):
            block = again.context(query, access=ACCESS)
            assert shown(block) == {"S2"}
            assert "tokens last an hour" not in block.text and "S1" not in repr(block.receipt)
    done = cli(root, "context", "next task", "--session", "s", "--vp", "ada")
    assert "keys rotate" in done.out and "tokens last" not in done.out


# -- K51 -------------------------------------------------------------------------------------------

TIMES = {
    "S1": (NOW + timedelta(days=10)).isoformat(),
    "S2": NOW.isoformat(),
    "S3": (NOW + timedelta(days=365)).isoformat(),
    "S4": "not a date",
    "S5": "2026-11-30T10:00:00",
    "S6": "2026-11-30T10:00:00Z",
    "undated": "",
}


def recencies(memory: Memory) -> dict[str, float]:
    hits = memory.recall("kiwi", limit=100).hits
    return {hit.record.id: hit.terms["recency"] for hit in hits}


def test_k51_times_that_are_no_past_win_nothing(root: Path) -> None:
    texts = (segment_text(id, "kiwi", updatedAt=time) for id, time in TIMES.items())
    write(root, "sessions/s/memory.md", *texts)
    with opened(root) as memory:
        found = recencies(memory)
        assert set(found) == set(TIMES)
        assert max(found["S1"], found["S3"]) <= found["S2"]
        assert found["S1"] == found["S3"] == found["S4"] == found["undated"]  # the neutral value
        assert found["S5"] == found["S6"] and found["S4"] < found["S5"] < found["S2"]
        records = {record.id: record.updated_at for record in memory.list()}
        assert records["S5"] == records["S6"] == "2026-11-30T10:00:00Z"
        first = memory.recall("kiwi").hits[0].record.id
        assert first == "S2"
        block = memory.context("kiwi", access=ACCESS)
        assert "S2" in shown(block)


ANY_TIME = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='seconds')}+14:00"),
    st.datetimes().map(lambda moment: f"{moment.isoformat(timespec='milliseconds')}Z"),
    st.dates().map(str),
    st.sampled_from(["", "~", "never", "0", "1700000000", "9999-99-99", "2026-02-30", "now", "[]",
                     "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-30T24:00:00Z",
                     "2026-W48", "12:00", "-2026-01-01", "2026-11-30T10:00:00.123456789Z"]),
)  # fmt: skip


@few
@given(times=st.lists(ANY_TIME, min_size=1, max_size=8))
def test_k51_no_time_raises_or_outranks_today(
    tmp_path_factory: pytest.TempPathFactory, times: list[str]
) -> None:
    root = tmp_path_factory.mktemp("times")
    texts = [segment_text(f"x{n}", "kiwi", updatedAt=time) for n, time in enumerate(times)]
    write(root, "sessions/s/memory.md", *texts, segment_text("now", "kiwi", updatedAt=NOW.date()))
    with opened(root) as memory:
        found = recencies(memory)
        assert len(found) == len(times) + 1
        assert all(0 <= value <= found["now"] for value in found.values())
        memory.context("kiwi", access=ACCESS, commit=True)
        assert memory.verify().ok


# -- K128 ------------------------------------------------------------------------------------------

SEVEN = [f"kiwi text number {n} about {' '.join(['subject'] * 5)} {n * 37}" for n in range(7)]


def seven(root: Path) -> None:
    write(root, "sessions/s/memory.md", *(segment_text(f"S{n}", b) for n, b in enumerate(SEVEN)))


def test_k128_what_does_not_fit_is_listed_with_its_reason_in_a_fixed_order(root: Path) -> None:
    seven(root)
    with opened(root) as memory:
        blocks = (memory.context("kiwi", access=ACCESS, budget=budget) for budget in range(30, 400))
        block = next(block for block in blocks if len(shown(block)) == 3)
        rejected = block.receipt.rejected
        assert [each.reason for each in rejected] == ["budget"] * 4
        dropped = [each.address for each in rejected]
        assert {*dropped} == {f"sessions/s#S{n}" for n in range(7)} - {
            f"sessions/s#{id}" for id in shown(block)
        }
        again = memory.context("kiwi", access=ACCESS, budget=block.budget)
        assert (again.text, again.receipt) == (block.text, block.receipt)
        # The dropped ones are in the order of their rank.
        order = [hit.record.address for hit in memory.recall("kiwi", access=ACCESS).hits]
        assert dropped == [address for address in order if address in dropped]
    done = cli(
        root, "context", "kiwi", "--session=s", "--vp=ada", f"--budget={block.budget}", "--json"
    )
    assert [f'"{address}"' in done.out for address in dropped] == [True] * 4
    explained = cli(
        root, "context", "kiwi", "--session=s", "--vp=ada", f"--budget={block.budget}", "--explain"
    )
    assert all(address in explained.out for address in dropped)


def test_k128_a_match_that_is_too_long_hides_none_that_fits(root: Path) -> None:
    long = "kiwi kiwi kiwi " + " ".join(f"kiwi w{n}" for n in range(600))
    short = (segment_text(f"S{n}", body) for n, body in enumerate(SEVEN))
    write(root, "sessions/s/memory.md", segment_text("long", long), *short)
    with opened(root) as memory:
        assert memory.recall("kiwi").hits[0].record.id == "long"
        for budget in (500, 1000):
            block = memory.context("kiwi", access=ACCESS, budget=budget)
            assert shown(block) == {f"S{n}" for n in range(7)}
            assert [(each.address, each.reason) for each in block.receipt.rejected] == [
                ("sessions/s#long", "budget")
            ]


@pytest.mark.parametrize("summary", [False, True])
def test_k128_at_every_budget_each_candidate_is_shown_or_listed(root: Path, summary: bool) -> None:
    seven(root)
    wanted = {f"sessions/s#S{n}" for n in range(7)}
    if summary:
        write(
            root, "sessions/s/summary.md", "A summary of it.\n\n" + "More of the summary.\n\n" * 9
        )
        wanted.add("sessions/s#summary")
    with opened(root) as memory:
        for budget in range(0, 420, 7):
            block = memory.context("kiwi", access=ACCESS, budget=budget)
            items = [i.address for layer in block.receipt.layers.values() for i in layer.items]
            rejected = [each.address for each in block.receipt.rejected]
            assert sorted([*items, *rejected]) == sorted(wanted)
            assert all(each.reason == "budget" for each in block.receipt.rejected)
