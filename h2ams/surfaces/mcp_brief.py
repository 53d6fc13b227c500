"""Short forms for a model's window: addresses and previews first, bodies on demand.

Everything that a tool gives is bounded here: a preview, a page of a body, a whole answer. What was
left out is always said, never silently cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote_to_bytes

from h2ams.errors import ScopeError
from h2ams.surfaces.wording import preview

if TYPE_CHECKING:
    from h2ams.memory.record import Record

RESPONSE_TOKENS = 10_000  # of one answer; hosts get it twice, as text and as a document
TAGS_COUNT = 20  # shown with a preview
HEADING_CHARS = 200
SCHEME = "h2ams://"

Document = dict[str, object]
Counter = Callable[[str], int]


def resource_uri(scope: str, id: str) -> str:
    """The URI of the segment ``id`` in ``scope``: ``h2ams://sessions/s1/seg_1``."""
    return SCHEME + quote(scope, safe="/") + "/" + quote(id, safe="")


def address_of(uri: str) -> str:
    """The address behind a resource URI; ``ScopeError`` where it is none of ours."""
    path = uri.removeprefix(SCHEME)
    scope, slash, id = path.rpartition("/")
    if not uri.startswith(SCHEME) or not slash or not scope or not id or "#" in path:
        raise ScopeError(f"not a resource of this server: {uri!a}", hint="h2ams://SCOPE/ID")
    try:
        plain = unquote_to_bytes(scope).decode("utf-8"), unquote_to_bytes(id).decode("utf-8")
    except UnicodeDecodeError:
        raise ScopeError(f"not a resource of this server: {uri!a}: not UTF-8") from None
    return f"{plain[0]}#{plain[1]}"


def brief(record: Record, matched: Sequence[str] = ()) -> Document:
    """A segment with the beginning of its body, or with the part that says ``matched``."""
    shown = preview(record.body, matched)
    found: Document = {
        "address": record.address,
        "uri": resource_uri(record.scope, record.id),
        "scope": record.scope,
        "id": record.id,
        "kind": record.kind,
        "tags": list(record.tags[:TAGS_COUNT]),
        "heading": record.heading[:HEADING_CHARS],
        "updated_at": record.updated_at,
        "preview": shown,
        "truncated": shown != record.body,
        "length": len(record.body),
        "tokens": record.tokens,
    }
    if record.source_session:
        found["source_session"] = record.source_session
    if record.stale:
        found["stale"] = True
    return found


def page(body: str, offset: int, limit: int) -> Document:
    """``limit`` chars of ``body`` from ``offset`` on, and where the next page begins."""
    part = body[offset : offset + limit]
    end = offset + len(part)
    return {
        "body": part,
        "offset": offset,
        "length": len(body),
        "truncated": offset > 0 or end < len(body),
        "next_offset": end if end < len(body) else None,
    }


def as_text(document: Document) -> str:
    """The text form of an answer: compact JSON in readable UTF-8."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def fits(text: str, count: Counter, most: int = RESPONSE_TOKENS) -> bool:
    """Whether ``text`` has at most ``most`` tokens. A token has at least one byte: short texts
    need no encoder."""
    return len(text.encode("utf-8")) <= most or count(text) <= most


def bounded(document: Document, name: str, count: Counter) -> Document:
    """``document`` with as many of the items under ``name``, from the front, as fit the bound.

    ``left_out`` says how many do not; it is 0 where all are there.
    """
    items = document[name]
    assert isinstance(items, list)
    kept = len(items)
    made = {**document, "left_out": 0}
    while kept and not fits(as_text(made), count):
        kept -= max(1, kept // 8)
        made = {**document, name: items[:kept], "left_out": len(items) - kept}
    return made
