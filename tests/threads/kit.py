"""Threads for tests: messages of all shapes, scripted summarisers, engines on a fresh store."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from h2ams.models.request import Completion, Request
from h2ams.settings import Settings
from h2ams.threads import shapes
from h2ams.threads.context_engine import ContextEngine, Thread
from h2ams.threads.message import count_message
from h2ams.threads.prompt import Context
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.threads.unit import Entry
from h2ams.tokens import counter

PLAIN = Settings(encoding="estimate")
COUNTER = counter("estimate")
COUNT = COUNTER.count
NOW = "2026-12-01T12:00:00.000Z"

GOOD_SUMMARY = """\
## Active task
- write the importer
## Pending
- the digest check
## Resolved
- the reader works
"""


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def assistant(text: str, *calls: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """``calls``: (id, tool, arguments)."""
    message: dict[str, Any] = {"role": "assistant", "content": text, **more}
    if calls:
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    return message


def tool(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": text, **more}


def entries(messages: Iterable[Any], start: int = 1) -> tuple[Entry, ...]:
    """Messages as rows of a window, numbered from ``start``."""
    found = []
    for seq, each in enumerate(messages, start=start):
        read = shapes.read(each)
        found.append(Entry(read.id or f"r{seq}", seq, read, count_message(read, COUNT)))
    return tuple(found)


def recount(context: Context) -> int:
    """What a prompt costs, counted from the messages that would be sent and nothing else."""
    read = [shapes.read(each, default=context.shape) for each in context.messages]
    total = sum(count_message(each, COUNT) for each in read)
    if context.shape == "anthropic" and context.system:
        total += COUNT(context.system) + 4
    return total + sum(part.tokens for part in context.receipt.parts if part.name == "tools")


@dataclass
class Script:
    """A summariser that answers from a script; keeps what it was asked."""

    answer: Callable[[Request], Completion] | str = GOOD_SUMMARY
    name: str = "scripted"
    asked: list[Request] = field(default_factory=list)

    def complete(self, request: Request) -> Completion:
        self.asked.append(request)
        if isinstance(self.answer, str):
            return Completion(self.answer)
        return self.answer(request)


def engine(folder: Path, **how: Any) -> ContextEngine:
    """An engine on ``folder``'s store, at a fixed time, with plain counting."""
    settings = how.pop("settings", PLAIN)
    if "settings_more" in how:
        settings = replace(settings, **how.pop("settings_more"))
    return ContextEngine(
        how.pop("store", None) or SqliteThreadStore(folder / "threads.db"),
        settings=settings,
        counter=COUNTER,
        now=lambda: NOW,
        **how,
    )


def chat(turns: int, words: int = 40, start: int = 0) -> list[dict[str, Any]]:
    """A conversation of ``turns`` turns, each with a number in it."""
    found = []
    for n in range(start, start + turns):
        found.append(user(f"Question {n}: " + f"please look at part {n} of it. " * (words // 8)))
        found.append(
            assistant(f"Answer {n}: " + f"part {n} is fine as far as seen. " * (words // 8))
        )
    return found


def tool_turns(turns: int, output_chars: int = 2_000, start: int = 0) -> list[dict[str, Any]]:
    """Turns in which a tool is called and gives ``output_chars``."""
    found = []
    for n in range(start, start + turns):
        found.append(user(f"Read file number {n}."))
        found.append(assistant("", (f"call_{n}", "read_file", f'{{"path": "src/part_{n}.py"}}')))
        found.append(tool(f"call_{n}", f"line {n} of the file\n" * (output_chars // 20)))
        found.append(assistant(f"File {n} is read."))
    return found


def filled(made: ContextEngine, messages: Sequence[Any], id: str = "t1", **how: Any) -> Thread:
    thread = made.thread(id, **how)
    thread.append(*messages)
    return thread


def names() -> Callable[[], str]:
    """Names for threads, each another."""
    numbers = itertools.count(1)
    return lambda: f"thread-{next(numbers)}"
