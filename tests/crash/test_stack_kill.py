"""kill -9 at every write of a store, in real processes, with both stores: old or new, exactly.

A reference run without a kill gives the states between projections. After each kill the store is
opened again: it holds byte for byte the state after the last projection that was committed, log
and footprint agree with it, and the next transition works.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash import stack_worker
from stacks import kit

from h2ams.stacks import quota
from h2ams.stacks.log import replay
from h2ams.stacks.workflow_store import Snapshot, TransactionalStore

OPERATIONS = (
    *("transition", "split", "intervene", "intervene-in-vain"),
    *("end-scene", "edit", "append"),
)
TESTS = Path(__file__).resolve().parents[1]


class Killer:
    """The worker process, and one store after the other for it to be killed on."""

    def __init__(self, store: str, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.count = 0
        self.kills = 0
        environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
        self.worker = subprocess.Popen(
            [sys.executable, str(TESTS / "crash" / "stack_worker.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )
        with self.fresh() as bench:
            self.base = stack_worker.prepared(bench)
            self.start = bench.store.snapshot()

    def close(self) -> None:
        assert self.worker.stdin is not None and self.worker.stdout is not None
        self.worker.stdin.close()
        self.worker.stdout.close()
        assert self.worker.wait() == 0

    def fresh(self, content: Snapshot | None = None, hook: object = None) -> Opened:
        """A new workflow, with ``content``."""
        self.count += 1
        return self.again(content, hook)

    def again(self, content: Snapshot | None = None, hook: object = None) -> Opened:
        name = f"w{self.count}"
        store = stack_worker.opened(self.store, name, hook)  # type: ignore[arg-type]
        if content is not None:
            store.load(content)
        cold = stack_worker.cold_of(str(self.folder), name)
        return Opened(kit.bench(store, cold=cold), store)

    def states(self, operation: str) -> tuple[list[Snapshot], list[str]]:
        """The states between the projections of an undisturbed run, and its steps by name."""
        found: list[Snapshot] = [self.start]
        steps: list[str] = []
        with self.fresh(self.start) as bench:

            def hook(step: str) -> None:
                steps.append(step)
                if step == "committed":
                    found.append(bench.store.snapshot())

            bench.store._hook = hook  # type: ignore[attr-defined]
            stack_worker.operate(bench, operation)
        return found, steps

    def run(self, operation: str, kill_at: int = 0, delay: float = 0.0) -> tuple[str, int]:
        with self.fresh(self.start):
            pass
        asked = {"store": self.store, "workflow": f"w{self.count}", "operation": operation}
        asked |= {"kill_at": kill_at, "delay": delay, "cold": str(self.folder)}  # type: ignore[dict-item]
        assert self.worker.stdin is not None and self.worker.stdout is not None
        self.worker.stdin.write(json.dumps(asked) + "\n")
        self.worker.stdin.flush()
        how, committed = self.worker.stdout.readline().split()
        assert how in ("killed", "done")
        self.kills += how == "killed"
        return how, int(committed)

    def check(self, allowed: list[Snapshot]) -> None:
        """What is there now is one of ``allowed``, sound, and can be worked with."""
        with self.again() as bench:
            found = bench.store.snapshot()
            assert found in allowed
            assert bench.store.footprint() == quota.recomputed(found.items, found.log)
            assert replay(self.base, found.log) == found.items
            stack = bench.workflow.stack()
            assert bench.workflow.chars() == len(bench.workflow.canonical_text())
            assert stack.summary is not None or stack.exchanges
            before = len(stack.exchanges)
            bench.compressor.behaviour = kit.good
            assert bench.workflow.compress().outcome == "compressed" or before == 0
            bench.workflow.append_round(kit.round_of("after"))


class Opened:
    """A bench that is closed at the end of a ``with`` statement."""

    def __init__(self, bench: kit.Bench, store: TransactionalStore) -> None:
        self.bench, self.store = bench, store

    def __enter__(self) -> kit.Bench:
        return self.bench

    def __exit__(self, *_: object) -> None:
        self.store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def killer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Killer]:
    store = str(tmp_path)
    if request.param == "postgres":
        store = request.getfixturevalue("postgres_url")
    found = Killer(store, tmp_path)
    yield found
    found.close()


def kill_at_every_step(killer: Killer, operation: str) -> int:
    """Kill at the first step, the second, … until it passes; the number of steps."""
    states, names = killer.states(operation)
    steps = len(names)
    assert len(states) > 1 and states[0] != states[-1]
    for kill_at in range(1, steps + 1):
        how, committed = killer.run(operation, kill_at)
        assert how == "killed", (operation, kill_at)
        # In the step after a commit it could not tell of that one any more.
        killer.check([states[committed + (names[kill_at - 1] == "committed")]])
    how, committed = killer.run(operation, steps + 1)
    assert how == "done" and committed == len(states) - 1
    killer.check([states[-1]])
    return steps


@pytest.mark.parametrize("operation", ["transition", "intervene"])
def test_a_kill_at_any_write_leaves_the_old_state_or_the_new_one(
    killer: Killer, operation: str
) -> None:
    steps = kill_at_every_step(killer, operation)
    assert killer.kills == steps >= 8


def kill_at_random(killer: Killer, operation: str, times: int, seed: int) -> None:
    """Kill from outside, whenever it happens: within a write, within the commit."""
    states, _ = killer.states(operation)
    source = random.Random(seed)
    for _ in range(times):
        killer.run(operation, delay=source.uniform(0.001, 0.03))
        killer.check(states)


@pytest.mark.long
def test_five_hundred_kills_of_every_operation_lose_nothing(killer: Killer) -> None:
    while killer.kills < 250:
        for operation in OPERATIONS:
            kill_at_every_step(killer, operation)
    before = killer.kills
    while killer.kills < before + 250:
        for seed, operation in enumerate(OPERATIONS):
            kill_at_random(killer, operation, 20, seed)
    assert killer.kills >= 500
