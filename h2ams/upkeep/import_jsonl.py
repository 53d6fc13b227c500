"""JSON lines: our own export, or any file with one text a line (reads only).

Ours: ``{"type": "segment", "scope", "id", "kind", "tags", "body", "created_at", …}``, and lines of
type ``summary`` and ``note``. Of other programs' lines ``text``, ``content`` or ``memory`` is the
body, and the scope is the one given.
"""

from __future__ import annotations

import json
from typing import Any

from h2ams.errors import UsageError
from h2ams.memory.intake import Incoming, Unfit
from h2ams.upkeep.importers import Batch, Options, SummaryText
from h2ams.upkeep.source_text import kind_of, moment, read_bytes, segment_id, text_list

_BODIES = ("body", "text", "content", "memory")


def read_jsonl(path: str, options: Options) -> Batch:
    """The lines of the file. A line that cannot be used is listed with its number."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}", hint="save it so") from None
    incoming: list[Incoming] = []
    summaries: list[SummaryText] = []
    left: list[Unfit] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        origin = f"{path}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            left.append(Unfit(origin, f"not JSON: {error}", broken=True))
            continue
        found = _read(record, origin, options)
        if isinstance(found, Incoming):
            incoming.append(found)
        elif isinstance(found, SummaryText):
            summaries.append(found)
        else:
            left.append(found)
    return Batch(tuple(incoming), tuple(summaries), tuple(left))


def _read(record: Any, origin: str, options: Options) -> Incoming | SummaryText | Unfit:
    if not isinstance(record, dict):
        return Unfit(origin, "not an object", broken=True)
    body = next((b for b in map(record.get, _BODIES) if isinstance(b, str) and b.strip()), "")
    scope = record.get("scope") or options.scope
    sort = record.get("type", "segment")
    if sort == "note" or record.get("note") is True:
        return Unfit(origin, f"a section of the note {record.get('path')}: copy the file itself")
    if not isinstance(scope, str):
        return Unfit(origin, "names no scope (--scope gives one)", broken=True)
    if not body:
        return Unfit(origin, "no text", broken=True)
    if sort == "summary":
        return SummaryText(scope, str(record.get("language", "en")), body, origin)
    if sort != "segment":
        return Unfit(origin, f"of the type {sort!r}, which is not known here")
    if record.get("archived") is True:
        return Unfit(origin, "retired: an archive is kept as a file (export --folder)")
    return _incoming(record, body, scope, origin)


def _incoming(record: dict[str, Any], body: str, scope: str, origin: str) -> Incoming:
    id = record.get("id")
    own = isinstance(id, str) and bool(id) and "type" in record
    return Incoming(
        scope=scope,
        body=body,
        origin=origin,
        id=str(id) if own else segment_id("jsonl", id or f"{scope}\0{body}"),
        kind=kind_of(record.get("kind"), "context" if record.get("kind") else "fact"),
        tags=text_list(record.get("tags")),
        source_messages=text_list(record.get("source_messages")),
        created_at=_time(record.get("created_at")),
        updated_at=_time(record.get("updated_at")),
    )


def _time(value: object) -> str | None:
    return moment(value)
