"""Pages of the inspector about memory: the folder, scopes, segments, recall, the memory block.

Each asks the engine the one question that the command line and the MCP server ask too, and hands
the answer to its template. No rule is added here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from h2ams.active.block import LAYERS
from h2ams.errors import H2amsError, NotFoundError
from h2ams.memory.scope import parse_scope
from h2ams.surfaces.inspect_values import (
    HITS_MOST,
    SEGMENTS_COUNT,
    Fields,
    Inspecting,
    Page,
    Show,
    bar,
    is_plain,
    paged,
)
from h2ams.surfaces.output import error_text
from h2ams.surfaces.wording import REASONS

if TYPE_CHECKING:
    from h2ams.active.block import MemoryBlock
    from h2ams.memory.record import Hit, Record
    from h2ams.memory.summary import Summary
    from h2ams.surfaces.inspect_values import Bar

PROBLEMS_COUNT = 100  # on one page of the overview
SCOPES_COUNT = 200


def overview(site: Inspecting, fields: Fields) -> Page:
    """Scopes, counts, the state of the index, problems."""
    status = site.memory.status(access=site.access)
    every = site.memory.scope_counts(access=site.access)
    counts, scopes = paged(every, fields.whole("scopes"), SCOPES_COUNT)
    problems, pages = paged(status.problems, fields.whole("page"), PROBLEMS_COUNT)
    values = {
        "status": status,
        "counts": counts,
        "scopes": scopes,
        "problems": problems,
        "pages": pages,
    }
    return Page("overview.html", "Overview", values, "overview")


def scope(site: Inspecting, fields: Fields) -> Page:
    """The segments of one scope, with its summary."""
    name = parse_scope(fields.needed("name")).text
    archived = fields.text("archived") == "1"
    records = site.memory.list(name, access=site.access, archived=archived)
    summary = _summary(site, name)
    counts = {each.scope: each for each in site.memory.scope_counts(access=site.access)}
    if not records and summary is None and name not in counts:
        raise NotFoundError(f"there is no scope {name}", hint="the overview lists them")
    shown, pages = paged(records, fields.whole("page"), SEGMENTS_COUNT)
    values = {
        "name": name,
        "archived": archived,
        "records": shown,
        "pages": pages,
        "summary": summary,
        "counted": counts.get(name),
        "done": fields.text("done"),
        "forgotten": _address_below(name, fields.text("forgotten")),
    }
    return Page("scope.html", name, values, "overview")


def _summary(site: Inspecting, scope: str) -> tuple[str, Summary] | None:
    try:
        return site.memory.summary(scope, access=site.access)
    except NotFoundError:
        return None


def _address_below(scope: str, address: str) -> str:
    """``address`` if it is one of this scope's, which was just forgotten."""
    return address if address.startswith(f"{scope}#") else ""


def segment(site: Inspecting, fields: Fields) -> Page:
    """One segment with everything that is known of it."""
    record = site.memory.get(fields.needed("address"), access=site.access)
    values = {"record": record, "done": fields.text("done"), "editable": editable(site, record)}
    return Page("segment.html", record.address, values, "overview")


def editable(site: Inspecting, record: Record) -> str:
    """ "yes", or why the segment cannot be changed here; "" where nothing can.

    What is shown must be what the file holds: masked secrets and cut texts would be written back.
    """
    if not site.write:
        return ""
    itself = f"edit {record.path}:{record.line} itself"
    try:
        written = site.memory.update(
            record.address,
            body=record.body,
            access=site.access,
            expect=record.digest,
            dry_run=True,
        )
    except H2amsError as error:
        return error_text(error)[0]
    if written.changed or record.over_limit:
        return f"its text is shown in part, or with parts masked: {itself}"
    if not is_plain(record.body):
        return f"it holds characters that a browser would not give back: {itself}"
    return "yes"


def sources(site: Inspecting, fields: Fields) -> Page:
    """The segments that came from one message."""
    id = fields.needed("id")
    records = site.memory.sources(id, access=site.access)
    shown, pages = paged(records, fields.whole("page"), SEGMENTS_COUNT)
    values = {"id": id, "records": shown, "pages": pages}
    return Page("sources.html", f"Message {id}", values, "overview")


def recall(site: Inspecting, fields: Fields) -> Page:
    """A question and its ranked matches with the terms of each score."""
    limit = fields.whole("limit")
    values: dict[str, object] = {
        "asked": fields,
        "found": None,
        "limited": limit is not None and limit > HITS_MOST,
        "most": HITS_MOST,
    }
    if fields.text("q").strip():
        found = site.memory.recall(
            fields.text("q"),
            access=site.access,
            limit=None if limit is None else min(limit, HITS_MOST),
            kinds=fields.words("kind"),
            tags=fields.words("tag"),
            after=fields.text("after") or None,
            before=fields.text("before") or None,
            scopes=fields.words("scope") or None,
        )
        values |= {"found": found, "bars": score_bars(found.hits)}
    return Page("recall.html", "Recall", values, "recall")


def score_bars(hits: tuple[Hit, ...]) -> list[Bar]:
    """For each hit its terms, drawn against the best score."""
    best = max((hit.score for hit in hits), default=0.0)
    return [bar(f"score {hit.score:.3f}", hit.terms.items(), best) for hit in hits]


def context(site: Inspecting, fields: Fields) -> Page:
    """The memory block for a question: its layers, its text, what stayed out and why."""
    values: dict[str, object] = {"asked": fields, "block": None, "reasons": REASONS}
    if fields.text("q").strip():
        block = site.memory.context(
            fields.text("q"),
            access=site.access,
            budget=fields.whole("budget"),
            window=fields.whole("window"),
            language=fields.text("language") or "en",
        )
        values |= {
            "block": block,
            "whole": whole_bar(block),
            "layers": layer_bars(block),
            "left_out": Counter(each.reason for each in block.receipt.rejected),
        }
    return Page("context.html", "Memory block", values, "context")


def whole_bar(block: MemoryBlock) -> Bar:
    """The whole budget: the frame, the layers, what is free."""
    receipt = block.receipt
    parts = [("frame", float(receipt.frame_tokens))] if block.text else []
    parts += [(name, float(receipt.layers[name].used)) for name in LAYERS]
    label = f"{block.tokens} of {block.budget} tokens used"
    return bar(label, parts, float(block.budget))


def layer_bars(block: MemoryBlock) -> list[tuple[str, Bar]]:
    """Each layer's use of its limit, drawn against the whole budget."""
    made: list[tuple[str, Bar]] = []
    for name in LAYERS:
        layer = block.receipt.layers[name]
        label = f"{layer.used} of {layer.limit} tokens used"
        free = float(max(0, layer.limit - layer.used))
        parts = [(name, float(layer.used)), ("free", free)]
        made.append((name, bar(label, parts, float(block.budget))))
    return made


PAGES: dict[str, Show] = {
    "/": overview,
    "/scope": scope,
    "/segment": segment,
    "/sources": sources,
    "/recall": recall,
    "/context": context,
}
