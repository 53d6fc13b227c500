"""Parsing a file again that has only grown at its end (Pure).

An agent adds segment after segment to one file, and all but the last of them were parsed before.
Strategy: where it is certain that what was appended cannot change how the old text is read, only
the new text is parsed and its places are moved behind the old ones; in any doubt the answer is
None and the caller parses it all. A property in the tests holds the two equal.
"""

from __future__ import annotations

import codecs
from dataclasses import replace

from h2ams.memory import spans
from h2ams.memory.entry import Document, Entry
from h2ams.memory.reading import parse
from h2ams.memory.values import Problem
from h2ams.settings import Settings

_WHOLE_FILE = ("\0", "<<<<<<<", ">>>>>>>")  # reported for the text as a whole


def grown(old: Document, old_data: bytes, data: bytes, settings: Settings) -> Document | None:
    """The document of ``data`` if that is ``old_data`` with segments behind it, else None."""
    if len(data) > settings.max_file_bytes or not data.startswith(old_data):
        return None
    new_data = data[len(old_data) :]
    if not _is_closed(old, old_data, settings) or not _begins_segment(new_data):
        return None
    new = parse(new_data, settings=settings)
    if new.read_only or new.tail_start is not None or not new.entries:
        return None
    first = new.entries[0]
    if not first.has_header or new.text[: first.start].strip():
        return None
    if any(mark in new.text for mark in _WHOLE_FILE) or not _ids(old).isdisjoint(_ids(new)):
        return None
    lines, chars = old.text.count("\n"), len(old.text)
    return replace(
        old,
        text=old.text + new.text,
        entries=old.entries + tuple(_moved(entry, lines, chars) for entry in new.entries),
        problems=old.problems + tuple(_moved_problem(each, lines) for each in new.problems),
    )


def _is_closed(old: Document, old_data: bytes, settings: Settings) -> bool:
    """Whether the old text is read the same whatever segments follow it."""
    if old.read_only or old.encoding != "utf-8" or old.tail_start is not None or not old.entries:
        return False
    last = old.entries[-1]
    body = old.text[last.body_start :].rstrip("\r\n")
    return old_data.endswith(b"\n") and last.has_header and spans.stands_alone(body, settings)


def _begins_segment(data: bytes) -> bool:
    return data.lstrip(b"\r\n").startswith(b"---") and not data.startswith(codecs.BOM_UTF8)


def _ids(document: Document) -> set[str]:
    return {id for entry in document.entries for id in (entry.segment.id, entry.address_id) if id}


def _moved(entry: Entry, lines: int, chars: int) -> Entry:
    return replace(
        entry,
        line=entry.line + lines,
        last_line=entry.last_line + lines,
        start=entry.start + chars,
        end=entry.end + chars,
        body_start=entry.body_start + chars,
    )


def _moved_problem(problem: Problem, lines: int) -> Problem:
    return replace(problem, line=problem.line + lines)
