"""A memory folder going elsewhere: as JSON lines, or as a copy of its Markdown files.

What an access may not read is in neither. A line is a segment, a section of a note or a summary;
segments and summaries can be imported again as they are, with their ids and times.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from h2ams.errors import UsageError
from h2ams.files import Root
from h2ams.memory.layout import Role, place_of, role
from h2ams.memory.record import Record
from h2ams.memory.summary import parse_summary
from h2ams.memory.tree import FileTree
from h2ams.settings import Settings

_COPIED = frozenset(
    {Role.MEMORY, Role.SUMMARY, Role.ARCHIVE, Role.CONTENT, Role.NOTE, Role.REDIRECT}
) | {Role.SESSION_CARD}


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written. ``left_out``: paths that are no memory (attachments, other files)."""

    segments: int = 0
    notes: int = 0
    summaries: int = 0
    files: int = 0
    left_out: tuple[str, ...] = ()


def lines(
    records: Iterable[Record], archived: Iterable[Record], tree: FileTree, settings: Settings
) -> Iterator[tuple[str, str]]:
    """(type, line of JSON without its end) for each segment, note section and summary."""
    for retired, several in ((False, records), (True, archived)):
        for record in several:
            kind = "note" if record.is_note else "segment"
            yield kind, json.dumps(_segment(record, kind, retired), ensure_ascii=False)
    for path in tree.files():
        folder, _, name = path.rpartition("/")
        place = place_of(folder)
        if place is None or place.scope is None:
            continue
        found, language = role(place, name)
        if found is Role.SUMMARY:
            summary = parse_summary(tree.data(path), settings=settings)
            if summary.text.strip() and not summary.is_stub:
                line = {
                    "type": "summary",
                    "scope": place.scope.text,
                    "language": language or "en",
                    "text": summary.text.strip(),
                    "updated_at": summary.updated_at,
                    "path": path,
                }
                yield "summary", json.dumps(line, ensure_ascii=False)


def _segment(record: Record, kind: str, retired: bool) -> dict[str, object]:
    line: dict[str, object] = {
        "type": kind,
        "scope": record.scope,
        "id": record.id,
        "kind": record.kind,
        "tags": list(record.tags),
        "body": record.body,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "source_messages": list(record.source_messages),
        "path": record.path,
    }
    if record.heading:
        line["heading"] = record.heading
    if retired:
        line["archived"] = True
    if record.over_limit:
        line["truncated"] = True
    return line


def copy_folder(tree: FileTree, root: str, target: str) -> Exported:
    """Copy the readable Markdown files, byte for byte, into the new or empty folder ``target``."""
    real, source = os.path.realpath(target), os.path.realpath(root)
    if real == source or real.startswith(source + os.sep):
        raise UsageError(f"{target} lies in the memory folder itself", hint="choose another place")
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise UsageError(f"{target} is there and not empty", hint="choose a new folder")
    made = Root.create(target)
    copied, left = 0, []
    for path in tree.files():
        folder, _, name = path.rpartition("/")
        place = place_of(folder)
        if place is None or role(place, name)[0] not in _COPIED:
            left.append(path)
            continue
        made.replace(path, tree.data(path), expect=None, make_folders=True)
        copied += 1
    return Exported(files=copied, left_out=tuple(left))
