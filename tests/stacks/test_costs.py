"""What may not grow does not: counted in steps of SQLite's machine, not in time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from stacks import kit

from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow import Workflow

HALF = "x" * 700


def long_round(number: int) -> kit.Round:
    return kit.Round(f"r{number:04d}", HALF, HALF)


def game(folder: Path, *, keys: int = 0, rounds: int = 0) -> tuple[Workflow, SqliteWorkflowStore]:
    """A workflow with so many keys of the host, and so many chunks."""
    folder.mkdir(exist_ok=True)
    store = SqliteWorkflowStore(folder / f"{keys}-{rounds}.db")
    workflow = kit.bench(store, settings=kit.DEFAULTS).workflow
    workflow.cheat({f"host.{number:06d}": "v" * 200 for number in range(keys)})
    for number in range(rounds):
        workflow.append_round(long_round(number))
    return workflow, store


def steps(store: SqliteWorkflowStore, act: Callable[[], object]) -> int:
    """Steps of the virtual machine while ``act`` runs."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    store._connection.set_progress_handler(step, 1)
    try:
        act()
    finally:
        store._connection.set_progress_handler(None)
    return count


def appended(workflow: Workflow, store: SqliteWorkflowStore) -> int:
    return steps(store, lambda: workflow.append_round(long_round(9_999)))


def transition(workflow: Workflow, store: SqliteWorkflowStore) -> int:
    for number in range(9_000, 9_010):
        workflow.append_round(long_round(number))
    return steps(store, workflow.compress)


@pytest.mark.parametrize("act", [appended, transition])
def test_append_and_transition_cost_the_same_in_a_small_store_and_a_large_one(
    tmp_path: Path, act: Callable[[Workflow, SqliteWorkflowStore], int]
) -> None:
    counts = []
    for keys in (10, 20_000):
        workflow, store = game(tmp_path, keys=keys)
        counts.append(act(workflow, store))
        store.close()
    assert counts[0] > 20 and counts[1] <= 1.05 * counts[0]


def test_an_append_costs_the_same_behind_a_short_stack_and_a_long_one(tmp_path: Path) -> None:
    counts = []
    for rounds in (2, 200):
        workflow, store = game(tmp_path, rounds=rounds)
        counts.append(appended(workflow, store))
        store.close()
    assert counts[0] == counts[1]


def test_asking_for_the_threshold_costs_the_same_for_300000_chars_as_for_3000(
    tmp_path: Path,
) -> None:
    counts = []
    for rounds, over in ((2, False), (212, True)):
        workflow, store = game(tmp_path, rounds=rounds)
        assert workflow.over_threshold() is over
        assert (workflow.chars() >= 300_000) is over
        counts.append(steps(store, workflow.over_threshold))
        store.close()
    assert counts[0] == counts[1] < 60


def test_planning_is_linear_in_the_stack(tmp_path: Path) -> None:
    counts = []
    for rounds in (20, 200):
        workflow, store = game(tmp_path, rounds=rounds)
        counts.append(steps(store, workflow.plan))
        store.close()
    assert counts[1] <= 10.5 * counts[0]


def test_a_footprint_is_not_counted_anew(tmp_path: Path) -> None:
    counts = []
    for keys in (10, 5_000):
        workflow, store = game(tmp_path, keys=keys)
        counts.append(steps(store, workflow.footprint))
        store.close()
    assert counts[0] == counts[1]
