"""A mem0 export: a list of memories, or an object that holds one (reads only).

``{"id", "memory", "user_id", "agent_id", "run_id", "categories", "metadata", "created_at",
"updated_at"}``. A run becomes a session, an agent a child agent, everything else is the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from h2ams.errors import UsageError
from h2ams.memory.intake import Incoming, Unfit
from h2ams.upkeep.importers import Batch, Options
from h2ams.upkeep.source_text import (
    kind_of,
    moment,
    read_bytes,
    read_json,
    scope_for,
    segment_id,
    source_id,
    text_list,
)

_LISTS = ("results", "memories", "data")
_TEXTS = ("memory", "text", "data", "content")
_KNOWN_METADATA = ("kind", "type", "category", "tags", "message_id", "message_ids")


def read_mem0(path: str, options: Options) -> Batch:
    """The memories of one user. ``UsageError`` where several users are in the export."""
    records = _records(read_json(read_bytes(path), path), path)
    users = sorted({str(each["user_id"]) for each in records if each.get("user_id")})
    if options.only is None and len(users) > 1:
        raise UsageError(
            f"{path} holds memories of {len(users)} users: {', '.join(users[:8])}",
            hint="one folder is one user's: choose with --only USER_ID",
        )
    incoming: list[Incoming] = []
    left: list[Unfit] = []
    metadata: Counter[str] = Counter()
    for number, record in enumerate(records, 1):
        origin = f"{path}: memory {record.get('id') or number}"
        user = record.get("user_id")
        if options.only is not None and user and str(user) != options.only:
            left.append(Unfit(origin, f"of another user: {user}"))
            continue
        text = next((t for t in map(record.get, _TEXTS) if isinstance(t, str) and t.strip()), "")
        if not text:
            left.append(Unfit(origin, "no text"))
            continue
        more = record.get("metadata")
        facts = more if isinstance(more, Mapping) else {}
        metadata.update(str(name) for name in facts if name not in _KNOWN_METADATA)
        incoming.append(_incoming(record, facts, text, origin, options))
    for name, count in sorted(metadata.items()):
        left.append(Unfit(path, f"metadata {name!r} of {count} memories has no place here"))
    return Batch(tuple(incoming), left_out=tuple(left))


def _records(found: Any, path: str) -> list[dict[str, Any]]:
    if isinstance(found, dict):
        found = next((found[name] for name in _LISTS if isinstance(found.get(name), list)), None)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise UsageError(f"{path}: no list of memories, as mem0 exports one", hint="get_all()")
    return found


def _incoming(
    record: dict[str, Any], facts: Mapping[str, Any], text: str, origin: str, options: Options
) -> Incoming:
    known = record.get("id") or text
    messages = text_list(facts.get("message_ids")) + text_list(facts.get("message_id"))
    return Incoming(
        scope=_scope(record, options),
        body=text,
        origin=origin,
        id=segment_id("mem0", known),
        kind=kind_of(facts.get("kind"), kind_of(facts.get("type"), kind_of(facts.get("category")))),
        tags=text_list(record.get("categories")) + text_list(facts.get("tags")),
        source_messages=(
            *((source_id("mem0", record["id"]),) if record.get("id") else ()),
            *(source_id("mem0", each) for each in messages),
        ),
        created_at=moment(record.get("created_at")),
        updated_at=moment(record.get("updated_at")) or moment(record.get("created_at")),
    )


def _scope(record: dict[str, Any], options: Options) -> str:
    if record.get("run_id"):
        return scope_for("sessions", str(record["run_id"]))
    if record.get("agent_id") and not record.get("user_id"):
        return scope_for("agent", str(record["agent_id"]))
    return options.scope or "user"
