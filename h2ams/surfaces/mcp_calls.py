"""The engine calls behind the MCP tools: arguments in, one bounded document out.

Arguments were checked against the tool's schema before. The access is part of ``Serving``, fixed
when the server starts: no argument can name another one, and what arguments say about scopes only
narrows what it allows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from h2ams.errors import H2amsError, NotFoundError, UsageError
from h2ams.memory.access import Gate
from h2ams.memory.record import Page, Record
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.mcp_brief import (
    Document,
    as_text,
    bounded,
    brief,
    fits,
    page,
    resource_uri,
)
from h2ams.surfaces.mcp_cursor import list_mark, read_cursor, write_cursor
from h2ams.surfaces.wording import preview

if TYPE_CHECKING:
    from h2ams.engine import Memory
    from h2ams.memory.access import Access
    from h2ams.memory.store import WriteResult

SEARCH_COUNT = 10
SEARCH_MOST = 50
LIST_COUNT = 50
LIST_MOST = 200
RESOURCES_PAGE = 100
PAGE_CHARS = 6_000
PAGE_MOST_CHARS = 20_000
BUDGET_MOST_TOKENS = 8_000  # a block goes out twice, as text and in the document
PROBLEMS_SHOWN = 20


class UnderWay:
    """Counts the calls that run, so that the process can end between two of them."""

    def __init__(self) -> None:
        self._running = 0
        self._ended = False
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            if self._ended:
                raise H2amsError("the server is ending", hint="start it again")
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def end(self, timeout_s: float) -> bool:
        """Let no further call begin and wait for those that run; whether all have finished."""
        with self._changed:
            self._ended = True
            return self._changed.wait_for(lambda: self._running == 0, timeout_s)


@dataclass(frozen=True, slots=True)
class Serving:
    """What a server serves: one open memory under one access (None: the owner)."""

    memory: Memory
    access: Access | None
    under_way: UnderWay = field(default_factory=UnderWay)

    def count(self, text: str) -> int:
        """Tokens of ``text`` by the counter of the settings."""
        return self.memory.tokens.count(text)

    @property
    def writable(self) -> tuple[str, ...]:
        """The scopes that this server may write, ``*`` for any end; empty: it only reads."""
        return Gate(self.access).writable()


Arguments = dict[str, Any]
Run = Callable[[Serving, Arguments], Document]


# -- reading ---------------------------------------------------------------------------------------


def search(serving: Serving, given: Arguments) -> Document:
    found = serving.memory.recall(
        given["query"],
        access=serving.access,
        limit=given.get("limit", SEARCH_COUNT),
        kinds=tuple(given.get("kinds", ())),
        tags=tuple(given.get("tags", ())),
        after=given.get("after"),
        before=given.get("before"),
        scopes=given.get("scopes"),
    )
    hits: list[object] = [
        brief(hit.record, hit.matched) | {"score": hit.score} for hit in found.hits
    ]
    document: Document = {
        "hits": hits,
        "relaxed": found.relaxed,
        "keywords": list(found.keywords),
        "degraded": cli_shapes.degraded(found.degraded),
    }
    return bounded(document, "hits", serving.count)


def get(serving: Serving, given: Arguments) -> Document:
    record = serving.memory.get(given["address"], access=serving.access)
    offset, limit = given.get("offset", 0), given.get("limit", PAGE_CHARS)
    if offset > len(record.body):
        raise UsageError(
            f"offset {offset} is behind the end: the text has {len(record.body)} chars",
            hint="start at 0",
        )
    known = cli_shapes.segment(record)
    del known["body"], known["length"], known["truncated"]
    while True:
        shown = page(record.body, offset, limit)
        document = {
            **known,
            **shown,
            "uri": resource_uri(record.scope, record.id),
            "over_limit": record.over_limit,
        }
        if limit <= 1 or fits(as_text(document), serving.count):
            return document
        limit //= 2


def context(serving: Serving, given: Arguments) -> Document:
    block = serving.memory.context(
        given["query"],
        access=serving.access,
        budget=given.get("budget", min(serving.memory.settings.budget_tokens, BUDGET_MOST_TOKENS)),
        language=given.get("language", "en"),
    )
    layers = block.receipt.layers
    return {
        "text": block.text,
        "tokens": block.tokens,
        "budget": block.budget,
        "addresses": [item.address for layer in layers.values() for item in layer.items],
        "rejected_count": len(block.receipt.rejected),
    }


def explain(serving: Serving, given: Arguments) -> Document:
    """Why a block is what it is: the receipt, its rejections as far as they fit."""
    budget = given.get("budget", min(serving.memory.settings.budget_tokens, BUDGET_MOST_TOKENS))
    query = given["query"]
    block = serving.memory.context(query, access=serving.access, budget=budget)
    items: list[object] = [
        {"layer": name, **item.to_json()}
        for name, layer in block.receipt.layers.items()
        for item in layer.items
    ]
    rejected: list[object] = [{"layer": None, **each.to_json()} for each in block.receipt.rejected]
    document: Document = {
        "tokens": block.tokens,
        "budget": block.budget,
        "frame_tokens": block.receipt.frame_tokens,
        "now": block.receipt.now,
        "layers": {
            name: {"limit": layer.limit, "used": layer.used}
            for name, layer in block.receipt.layers.items()
        },
        "items_count": len(items),
        "rejected_count": len(rejected),
        "candidates": [*items, *rejected],
    }
    return bounded(document, "candidates", serving.count)


def list_segments(serving: Serving, given: Arguments) -> Document:
    """A page by scope and id; it is shorter than asked for where its texts are long."""
    scope, archived = given.get("scope"), given.get("archived", False)
    mark = list_mark(serving.memory.root, described(serving.access), scope, archived)
    after = read_cursor(given.get("cursor"), mark)
    limit = given.get("limit", LIST_COUNT)
    if archived:
        found = _archived_page(serving, scope, after, limit)
    else:
        found = serving.memory.page(scope, access=serving.access, after=after, limit=limit)
    shown: list[object] = [brief(record) for record in found.records]
    document = bounded({"segments": shown, "total": found.total}, "segments", serving.count)
    kept = document["segments"]
    assert isinstance(kept, list)
    following = found.after
    if document.pop("left_out"):
        last = found.records[max(len(kept), 1) - 1]  # what no answer can hold is passed by
        following = (last.scope, last.id)
    return document | {"next_cursor": write_cursor(following, mark)}


def _archived_page(
    serving: Serving, scope: str | None, after: tuple[str, str] | None, limit: int
) -> Page:
    """A page of what was retired. That stands in files alone, so all of them are read."""
    records = serving.memory.list(scope, access=serving.access, archived=True)
    ordered = sorted(records, key=lambda each: (each.scope, each.id))
    rest = [each for each in ordered if after is None or (each.scope, each.id) > after]
    kept = tuple(rest[:limit])
    more = len(rest) > len(kept) > 0
    return Page(kept, len(records), (kept[-1].scope, kept[-1].id) if more else None)


def status(serving: Serving, _: Arguments) -> Document:
    status = serving.memory.status(access=serving.access)
    document: Document = {
        "root": status.root,
        "scopes": status.scopes,
        "segments": status.segments,
        "notes": status.notes,
        "tokens": status.tokens,
        "index": {"fresh": status.index.fresh, "digest": status.index.digest},
        "access": described(serving.access),
        "writable": list(serving.writable),
        "problems_count": len(status.problems),
        "problems": cli_shapes.problems(status.problems[:PROBLEMS_SHOWN]),
        "degraded": cli_shapes.degraded(status.degraded[:PROBLEMS_SHOWN]),
    }
    return bounded(document, "problems", serving.count)


def described(access: Access | None) -> Document:
    """An access as a document; the owner's says so."""
    if access is None:
        return {"owner": True}
    named = {
        "session": access.session,
        "chat": access.chat,
        "vp": access.vp,
        "agent": access.agent,
        "user": access.user,
        "related_sessions": list(access.related_sessions),
        "scopes": list(access.scopes),
    }
    return {"owner": False, **{name: value for name, value in named.items() if value}}


# -- writing ---------------------------------------------------------------------------------------


def add(serving: Serving, given: Arguments) -> Document:
    result = serving.memory.remember(
        given["scope"],
        given["text"],
        kind=given.get("kind", "fact"),
        tags=given.get("tags", ()),
        source_messages=given.get("source_messages", ()),
        access=serving.access,
    )
    return _written(result) | {"created": result.created}


def update(serving: Serving, given: Arguments) -> Document:
    if not given.keys() & {"text", "kind", "tags", "source_messages"}:
        raise UsageError("nothing to change", hint="give text, kind, tags or source_messages")
    result = serving.memory.update(
        given["address"],
        body=given.get("text"),
        kind=given.get("kind"),
        tags=given.get("tags"),
        source_messages=given.get("source_messages"),
        access=serving.access,
        expect=given.get("expect"),
    )
    return _written(result) | {"changed": result.changed}


def delete(serving: Serving, given: Arguments) -> Document:
    result = serving.memory.forget(
        given["address"], access=serving.access, expect=given.get("expect")
    )
    return _written(result) | {"removed": result.removed}


def _written(result: WriteResult) -> Document:
    document = cli_shapes.written(result, dry_run=False)
    del document["dry_run"], document["diff"]
    return document | {"uri": resource_uri(result.scope, result.id)}


# -- aliases: the two tools that some hosts look for by name ---------------------------------------


def plain_search(serving: Serving, given: Arguments) -> Document:
    found = serving.memory.recall(given["query"], access=serving.access, limit=SEARCH_COUNT)
    results: list[object] = [
        {
            "id": hit.record.address,
            "title": _title(hit.record.heading, hit.record.body),
            "url": resource_uri(hit.record.scope, hit.record.id),
            "text": preview(hit.record.body, hit.matched),
        }
        for hit in found.hits
    ]
    return bounded({"results": results}, "results", serving.count)


def fetch(serving: Serving, given: Arguments) -> Document:
    found = get(serving, {"address": given["id"], "limit": PAGE_MOST_CHARS})
    return {
        "id": found["address"],
        "title": _title(str(found["heading"]), str(found["body"])),
        "text": found["body"],
        "url": found["uri"],
        "metadata": {
            name: found[name]
            for name in ("kind", "tags", "updated_at", "truncated", "length", "next_offset")
        },
    }


def _title(heading: str, body: str) -> str:
    first = next((line.strip() for line in body.splitlines() if line.strip()), "")
    return preview(heading or first, most=80)


def resource_page(serving: Serving, cursor: str | None) -> tuple[tuple[Record, ...], str | None]:
    """One page of the list of resources behind ``cursor``, and the cursor behind that page."""
    mark = list_mark(serving.memory.root, described(serving.access), "resources")
    after = read_cursor(cursor, mark)
    found = serving.memory.page(access=serving.access, after=after, limit=RESOURCES_PAGE)
    return found.records, write_cursor(found.after, mark)


def read_resource(serving: Serving, address: str) -> tuple[str, str]:
    """URI and whole body of the segment at ``address``; ``NotFoundError`` where there is none."""
    try:
        record = serving.memory.get(address, access=serving.access)
    except UsageError as error:  # a path, a scope outside the grammar: nothing is there
        raise NotFoundError(error.message, hint=error.hint) from error
    return resource_uri(record.scope, record.id), record.body
