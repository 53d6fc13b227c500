"""A process that runs operations of a workflow in children of its own and kills them with SIGKILL.

Reads one JSON document a line: ``{"store", "workflow", "operation", "kill_at", "delay"}``. The
child works on that store and kills itself at its ``kill_at``-th step of the store (0: at none), or
is killed after ``delay`` seconds. Answers with one line: ``killed`` or ``done``, and the number of
projections that the child had committed when it ended (as far as it could say).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from stacks import kit

from h2ams.stacks.cold import ColdCopies
from h2ams.stacks.postgres_store import PostgresWorkflowStore
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow_store import StoreHook, TransactionalStore


def opened(store: str, workflow: str, hook: StoreHook | None = None) -> TransactionalStore:
    """The store that a test means: an address, or a folder."""
    if store.startswith("postgresql://"):
        return PostgresWorkflowStore(store, workflow, hook=hook)
    return SqliteWorkflowStore(Path(store) / f"{workflow}.db", hook=hook)


def cold_of(folder: str, workflow: str) -> ColdCopies:
    return ColdCopies(Path(folder) / f"{workflow}.cold")


def operate(bench: kit.Bench, operation: str) -> None:
    """One operation on the workflow that ``prepared`` made."""
    workflow = bench.workflow
    if operation in ("transition", "split"):
        bench.compressor.behaviour = kit.partly(5 if operation == "transition" else 3)
        workflow.before_generation()
    elif operation == "intervene":
        bench.compressor.behaviour = kit.good
        workflow.intervene(kit.round_of("shown"))
    elif operation == "intervene-in-vain":
        bench.compressor.behaviour = kit.failed
        workflow.intervene(kit.round_of("shown"))
    elif operation == "end-scene":
        workflow.end_scene("s", closing_summary="closing", meanwhile_event="meanwhile")
    elif operation == "edit":
        workflow.edit_history(kit.rounds_of(2, 3, 20))
    elif operation == "append":
        workflow.append_round(kit.round_of("more"))
    else:
        raise ValueError(operation)


def prepared(bench: kit.Bench) -> dict[str, str]:
    """A game with a summary, a chunk of several rounds, later chunks, an archive and a scene.

    What its last checkpoint holds.
    """
    workflow = bench.workflow
    workflow.edit_history(kit.rounds_of(*range(1, 7)))
    bench.compressor.behaviour = kit.partly(2)
    workflow.compress()
    workflow.checkpoint()
    base = bench.everything()
    bench.fill(3, first=7)
    for scene in ("old", "s"):
        workflow.begin_scene(scene)
        workflow.append_scene_round(scene, kit.round_of(scene))
        if scene == "old":
            workflow.end_scene(scene, closing_summary="c", meanwhile_event="m")
    return base


def child(asked: dict[str, object], told: int) -> None:
    """Work until the end, or until the step at which it dies."""
    seen = 0

    def hook(step: str) -> None:
        nonlocal seen
        seen += 1
        if seen == asked["kill_at"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == "committed":
            os.write(told, b"c")

    store = opened(str(asked["store"]), str(asked["workflow"]), hook)
    cold = cold_of(str(asked["cold"]), str(asked["workflow"]))
    operate(kit.bench(store, cold=cold), str(asked["operation"]))
    store.close()


def run(asked: dict[str, object]) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            child(asked, write)
        except BaseException as error:  # noqa: BLE001 - the parent is told
            sys.stderr.write(f"child: {error!r}\n")
            os._exit(1)
        os._exit(0)
    os.close(write)
    if asked["delay"]:
        time.sleep(float(str(asked["delay"])))
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(read, "rb") as pipe:
        committed = len(pipe.read())
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return f"killed {committed}"
    return f"done {committed}" if os.WEXITSTATUS(status) == 0 else "failed 0"


def main() -> None:
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)


if __name__ == "__main__":
    main()
