"""What the tests of reported cases share: one folder, questions, and processes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from folder import NOW, ids, opened, segment_text, write
from hypothesis import settings
from surfaces.command_line import Done, h2ams

from h2ams import Memory

# Each example makes a folder and an index: about a sixth of what the profile asks for.
few = settings(max_examples=max(10, settings().max_examples // 6))


def segments(*bodies: str, **header: object) -> str:
    """A file of segments S1, S2 … with these bodies."""
    texts = (segment_text(f"S{number}", body, **header) for number, body in enumerate(bodies, 1))
    return "\n".join(texts)


@contextmanager
def asking(root: Path, *bodies: str, path: str = "sessions/s/memory.md") -> Iterator[Ask]:
    """A function from query to ids on a folder that holds ``bodies`` as S1, S2 …

    No query may be answered because of a swallowed error: nothing degraded, nothing logged.
    """
    write(root, path, segments(*bodies))
    with opened(root) as memory, silent():

        def ask(query: str, **options: Any) -> list[str]:
            found = memory.recall(query, **options)
            assert found.degraded == ()
            return [hit.record.id for hit in found.hits]

        yield ask


Ask = Callable[..., list[str]]


@contextmanager
def silent() -> Iterator[None]:
    """Fails if anything is logged as a warning or worse: the counter of swallowed errors."""
    seen: list[str] = []

    class Counter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    counter = Counter(logging.WARNING)
    logging.getLogger().addHandler(counter)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(counter)
    assert seen == []


def cli(root: Path, *words: str, **how: Any) -> Done:
    """``h2ams`` on ``root`` in a process of its own, without an encoder to load."""
    words = (*words, "--root", str(root), "--set", "encoding=estimate")
    how["env"] = {"H2AMS_NOW": NOW.isoformat()} | how.get("env", {})
    return h2ams(*words, cwd=root.parent, **how)


def document(done: Done) -> Any:
    """The one JSON document on standard output."""
    return json.loads(done.out)


def cli_ids(root: Path, query: str, *words: str, **how: Any) -> list[str]:
    """The ids that ``h2ams recall`` gives, best first."""
    done = cli(root, "recall", query, "--json", *words, **how)
    assert done.code == 0, done
    return [hit["id"] for hit in document(done)["hits"]]


@contextmanager
def mode(path: Path, bits: int) -> Iterator[None]:
    """``path`` with these permission bits for a while."""
    before = path.stat().st_mode & 0o7777
    path.chmod(bits)
    try:
        yield
    finally:
        path.chmod(before)


def index_rows(memory: Memory, scope: str) -> list[tuple[str, str]]:
    """(scope, id) of every segment that the index holds for ``scope``."""
    return [(record.scope, record.id) for record in memory.list(scope)]


__all__ = [
    "NOW",
    "Ask",
    "Done",
    "asking",
    "cli",
    "cli_ids",
    "document",
    "few",
    "ids",
    "index_rows",
    "mode",
    "opened",
    "segment_text",
    "segments",
    "silent",
    "write",
]
