"""Processes that work on a thread until they are killed, or beside each other.

    python thread_worker.py kill KIND ADDRESS STEP OFFSET     KIND: sqlite, postgres
    python thread_worker.py compact KIND ADDRESS THREAD NAME COUNT

``kill`` runs a scenario in a forked child that kills itself at its n-th write (a statement that
writes, the moment before a commit, the moment after), for n = OFFSET, OFFSET + STEP, … until the
scenario ends unharmed; after each kill the state is checked and the scenario run to its end. Prints
how many kills there were. ``compact`` appends to a thread and compacts it, COUNT times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from h2ams.settings import Settings
from h2ams.threads.context_engine import ContextEngine
from h2ams.threads.flush import FlushReport, FlushRequest
from h2ams.threads.thread_postgres import PostgresThreadStore
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.tokens import counter

WINDOW = {"window": 1_600, "reserve": 100}
COUNTER = counter("estimate")


class Deadly:
    """Counts writes and kills the process at the one it was given (0: never)."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0

    def hit(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def store(kind: str, address: str, deadly: Deadly) -> Any:
    base: Any = SqliteThreadStore if kind == "sqlite" else PostgresThreadStore

    class Store(base):  # type: ignore[misc]
        def _all(self, statement: str, bindings: Sequence[Any] = ()) -> Any:
            found = super()._all(statement, bindings)
            if statement.lstrip()[:6] in ("INSERT", "UPDATE", "DELETE"):
                deadly.hit()
            return found

        @contextlib.contextmanager
        def _writing(self) -> Iterator[None]:
            with super()._writing():
                yield
                deadly.hit()
            deadly.hit()

    return Store(address)


def engine(kind: str, address: str, deadly: Deadly | None = None) -> ContextEngine:
    return ContextEngine(
        store(kind, address, deadly or Deadly(0)),
        settings=Settings(encoding="estimate"),
        counter=COUNTER,
        now=lambda: "2026-12-01T12:00:00Z",
        flush=flush,
    )


def flush(request: FlushRequest) -> FlushReport:
    return FlushReport((f"user#{len(request.messages)}",))


def batch(number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for n in range(number * 5, number * 5 + 5):
        call = {"name": "read", "arguments": f'{{"n": {n}}}'}
        found += [
            {"role": "user", "content": f"question {n} " * 12},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"output {n} " * 60},
            {"role": "assistant", "content": f"answer {n} " * 12},
        ]
    return found


BATCHES = [batch(number) for number in range(3)]
QUESTION = {"role": "user", "content": "and now?"}


def scenario(made: ContextEngine, id: str, said: int = -1) -> None:
    """Everything that writes, each step repeatable; what has returned is written to ``said``."""

    def returned(what: str) -> None:
        if said >= 0:
            os.write(said, f"{what}\n".encode())

    thread = made.thread(id, system="Be kind.", **WINDOW)
    returned("made")
    position = 0
    for number, messages in enumerate(BATCHES):
        thread.append(*messages, at=position)
        position += len(messages)
        returned(f"batch {number}")
        thread.context(QUESTION)
        returned(f"context {number}")
    thread.compact(force=True)
    first = next(row for row in thread.rows() if row.kind == "message")
    thread.edit(first.id, {"role": "user", "content": "changed"})
    returned("edit")
    thread.context(QUESTION)
    thread.restart("a new start")
    returned("restart")


def check(made: ContextEngine, id: str, said: list[str]) -> None:
    """Old or new, nothing between; what a call had returned is there."""
    if made.store.info(id) is None:
        assert "made" not in said, said
        return
    rows = made.store.rows(id)
    messages = [row.payload for row in rows if row.kind == "message"]
    whole = [each for messages in BATCHES for each in messages]
    done = sum(each.startswith("batch") for each in said) * 20
    assert len(messages) in (done, done + 20), (len(messages), done)
    assert messages[1:] == whole[1 : len(messages)]
    assert made.store.info(id).message_count == len(messages)  # type: ignore[union-attr]
    valid = [(row.boundary, row.origin) for row in rows if row.kind == "summary" and row.valid]
    assert len(valid) == len(set(valid))
    if "edit" in said:
        assert messages[0]["content"] == "changed"
    context = made.thread(id, **WINDOW).context(QUESTION)
    assert context.tokens <= 1_500 and context.messages[-1] == QUESTION


def final(made: ContextEngine, id: str) -> tuple[Any, ...]:
    rows = made.store.rows(id)
    messages = [row.payload for row in rows if row.kind == "message"]
    return messages, made.thread(id, **WINDOW).context(QUESTION).messages


def kill_everywhere(kind: str, address: str, step: int, offset: int) -> int:
    made = engine(kind, address)
    scenario(made, "reference")
    expected = final(made, "reference")
    made.store.close()
    kills = 0
    at = offset
    while True:
        id = f"t{at}"
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            scenario(engine(kind, address, Deadly(at)), id, writing)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "r", encoding="utf-8") as pipe:
            said = pipe.read().split("\n")[:-1]
        _, status = os.waitpid(child, 0)
        made = engine(kind, address)
        check(made, id, said)
        scenario(made, id)
        assert final(made, id) == expected, at
        made.store.delete(id)
        made.store.close()
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return kills
        assert os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
        at += step


def compact_often(kind: str, address: str, id: str, name: str, count: int) -> None:
    thread = engine(kind, address).thread(id, **WINDOW)
    for n in range(count):
        thread.append(
            {"role": "user", "content": f"{name} asks {n} " * 10},
            {"role": "assistant", "content": f"{name} is told {n} " * 10},
        )
        thread.compact(force=True)


def main() -> None:
    what, kind, address, *rest = sys.argv[1:]
    if what == "kill":
        print(kill_everywhere(kind, address, int(rest[0]), int(rest[1])))
    else:
        compact_often(kind, address, rest[0], rest[1], int(rest[2]))


if __name__ == "__main__":
    assert Path(__file__).exists()
    main()
