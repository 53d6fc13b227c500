"""A real process that writes to a store, for tests that kill it or run two of it.

store_worker.py adds ROOT NAME COUNT      COUNT adds to one scope, after a line on stdin
store_worker.py churn ROOT SEED           add, update, remove without end; says each on stdout
store_worker.py deaths ROOT OPERATION     OPERATION in ROOT/<n>, killed at its n-th file operation
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from h2ams.files import FaultHook, Root
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Segment
from h2ams.memory.store import Store
from h2ams.settings import DEFAULTS

SCOPE = parse_scope("sessions/s1")
LATE = 1_000  # no operation of the store has that many file operations


class WordCounter:
    """Tokens are words: no encoder is loaded."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())

    def cut(self, text: str, limit: int) -> str:
        return " ".join(text.split()[:limit])


OPERATIONS: dict[str, Callable[[Store], object]] = {
    "add": lambda store: store.add(SCOPE, "new", kind="fact"),
    "update": lambda store: store.update(SCOPE, "seg_2", body="changed"),
    "both": lambda store: store.update(
        SCOPE, "seg_2", body="the agent's", base=Segment(body="an older text", kind="fact")
    ),
    "remove": lambda store: store.remove(SCOPE, "seg_2"),
    "purge": lambda store: store.remove(SCOPE, "seg_2", purge=True),
    "unforget": lambda store: store.unforget(SCOPE, "seg_9"),
    "summary": lambda store: store.write_summary(SCOPE, "A new summary."),
}


def open_store(folder: Path, hook: FaultHook | None = None) -> Store:
    def clock() -> datetime:
        return datetime(2026, 5, 1, 8, 0, 0, tzinfo=UTC)

    root = Root(folder, lock_timeout_ms=60_000, hook=hook)
    return Store(root, DEFAULTS, clock=clock, counter=WordCounter())


def say(**what: object) -> None:
    """One line of JSON that is with the reader before the next step."""
    print(json.dumps(what), flush=True)


def adds(folder: Path, name: str, count: int) -> None:
    store = open_store(folder)
    say(ready=name)
    sys.stdin.readline()
    for number in range(count):
        store.add(SCOPE, f"{name} wrote {number}", kind="fact")
    say(done=count)


def churn(folder: Path, seed: int) -> None:
    """Say what is tried, do it, say that it is done."""
    store = open_store(folder)
    dice = random.Random(seed)
    known = [held.entry.address_id for held in store.union(SCOPE).held]
    for number in range(10**9):
        what = dice.choice(["add", "add", "update", "remove"]) if known else "add"
        body = f"body {seed} {number} " + "word " * dice.randrange(60)
        body = body.strip()
        if what == "add":
            say(tried="add", body=body)
            id = store.add(SCOPE, body, kind="fact").id
            known.append(id)
        elif what == "update":
            id = dice.choice(known)
            say(tried="update", id=id, body=body)
            store.update(SCOPE, id, body=body)
        else:
            id = known.pop(dice.randrange(len(known)))
            say(tried="remove", id=id)
            store.remove(SCOPE, id)
        say(did=what, id=id, body=body)


def deaths(template: Path, operation: str) -> None:
    """One copy of ``template/0`` for each n; the process that works in it dies at step n."""
    for number in range(1, LATE):
        folder = template / str(number)
        shutil.copytree(template / "0", folder)
        child = os.fork()
        if child == 0:
            _die_at(folder, operation, number)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0, "the operation failed by itself"
            say(survived=number)
            return


def _die_at(folder: Path, operation: str, number: int) -> None:
    count = 0

    def hook(_: str, __: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    OPERATIONS[operation](open_store(folder, hook))
    os._exit(0)


if __name__ == "__main__":
    command, where, *rest = sys.argv[1:]
    if command == "adds":
        adds(Path(where), rest[0], int(rest[1]))
    elif command == "churn":
        churn(Path(where), int(rest[0]))
    else:
        deaths(Path(where), rest[0])
