"""What other programs remember, read as segments for our scopes, or as a folder to open in place.

A reader looks at one source and gives a ``Batch``; it writes nothing. Formats that are Markdown
files already stay where they are (``upkeep/in_place``). What has no place here is listed, never
silently dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from h2ams.errors import UsageError
from h2ams.memory.intake import Incoming, Unfit

IN_PLACE = ("claude-code", "openclaw", "obsidian", "basic-memory")
RECORDS = ("mem0", "chatgpt", "jsonl")
FORMATS = (*IN_PLACE, *RECORDS)
MAX_SOURCE_BYTES = 1024 * 1024 * 1024  # of one file of an export


@dataclass(frozen=True, slots=True)
class Options:
    """``scope``: where to put what names no scope itself. ``only``: the one user of an export of
    several. ``conversations``: whole conversations too, not only what was remembered of them."""

    scope: str | None = None
    only: str | None = None
    conversations: bool = False


@dataclass(frozen=True, slots=True)
class SummaryText:
    """A scope's summary to take in where there is none yet."""

    scope: str
    language: str
    text: str
    origin: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What a source holds: segments to take in, summaries, and what cannot be carried."""

    incoming: tuple[Incoming, ...] = ()
    summaries: tuple[SummaryText, ...] = ()
    left_out: tuple[Unfit, ...] = ()


Reader = Callable[[str, Options], Batch]


def read_source(format: str, path: str, options: Options) -> Batch:
    """All that the source at ``path`` holds. ``UsageError`` where it is not of ``format``."""
    from h2ams.upkeep.import_chatgpt import read_chatgpt
    from h2ams.upkeep.import_jsonl import read_jsonl
    from h2ams.upkeep.import_mem0 import read_mem0

    readers: dict[str, Reader] = {
        "mem0": read_mem0,
        "chatgpt": read_chatgpt,
        "jsonl": read_jsonl,
    }
    if format not in readers:
        raise UsageError(f"not a format of records: {format!r}", hint=", ".join(RECORDS))
    return readers[format](path, options)
