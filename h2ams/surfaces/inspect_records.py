"""Pages of the inspector about conversations: threads, exchange stacks, passes of Dream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2ams.errors import NotFoundError
from h2ams.stacks import canonical
from h2ams.surfaces.inspect_values import (
    ROWS_COUNT,
    SEGMENTS_COUNT,
    Fields,
    Inspecting,
    Page,
    Show,
    bar,
    diff_lines,
    paged,
)
from h2ams.surfaces.wording import message_text, trigger
from h2ams.threads.thread_store import RESTART
from h2ams.upkeep.thread_folder import threads_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2ams.stacks.exchange import Chunk
    from h2ams.stacks.exchange import Summary as StackSummary
    from h2ams.stacks.folder import WorkflowName
    from h2ams.stacks.workflow import Workflow
    from h2ams.surfaces.inspect_values import Bar
    from h2ams.threads.thread_store import Row


@dataclass(frozen=True, slots=True)
class Folded:
    """What a summary did: how much there was before, how much stands for it now."""

    before: int
    after: int
    unit: str

    @property
    def saved_percent(self) -> float:
        """Of what there was; 0 where nothing was saved."""
        return max(0.0, 100 - 100 * self.after / self.before) if self.before else 0.0

    @property
    def bar(self) -> Bar:
        label = f"{self.after:,} of {self.before:,} {self.unit} remain"
        return bar(label, [("kept", self.after)], self.before)


@dataclass(frozen=True, slots=True)
class Moment:
    """A row of a thread's timeline: something said, or a summary of what was said before."""

    row: Row
    text: str
    folded: Folded | None = None

    @property
    def payload(self) -> Mapping[str, object]:
        """What a summary holds beside its text."""
        found: Mapping[str, object] = self.row.payload
        return found

    @property
    def is_restart(self) -> bool:
        return self.row.origin == RESTART


def threads(site: Inspecting, fields: Fields) -> Page:
    """The conversations that the access may read."""
    found = threads_for(site.memory.threads, site.access)
    shown, pages = paged(found, fields.whole("page"), ROWS_COUNT)
    return Page("threads.html", "Threads", {"threads": shown, "pages": pages}, "threads")


def thread(site: Inspecting, fields: Fields) -> Page:
    """One conversation as a timeline, with the summaries where they stand."""
    opened = site.memory.thread(fields.needed("id"), access=site.access, create=False)
    moments = [moment(row) for row in opened.rows() if row.kind != "state"]
    shown, pages = paged(moments, fields.whole("page"), ROWS_COUNT)
    summaries = [each for each in moments if each.folded is not None and each.row.valid]
    values = {
        "info": opened.info,
        "moments": shown,
        "pages": pages,
        "summaries_count": len(summaries),
        "tokens": sum(each.row.tokens for each in moments if each.folded is None),
        "last": summaries[-1].folded if summaries else None,
    }
    return Page("thread.html", opened.info.id, values, "threads")


def moment(row: Row) -> Moment:
    """A row as the timeline shows it."""
    if row.kind != "summary":
        return Moment(row, message_text(row))
    payload = row.payload
    before, after = int(payload.get("before_tokens", 0)), int(payload.get("after_tokens", 0))
    return Moment(row, str(payload.get("text", "")), Folded(before, after, "tokens"))


# -- exchange stacks -------------------------------------------------------------------------------


def stacks(site: Inspecting, fields: Fields) -> Page:
    """The workflows with exchange stacks."""
    site.owner_only("what exchange stacks hold")
    shown, pages = paged(site.memory.stacks(), fields.whole("page"), ROWS_COUNT)
    return Page("stacks.html", "Exchange stacks", {"stacks": shown, "pages": pages}, "stacks")


def stack(site: Inspecting, fields: Fields) -> Page:
    """One stack as a timeline: what a summary stands for, then the exact exchanges."""
    site.owner_only("what exchange stacks hold")
    id, owner = fields.needed("id"), fields.text("owner")
    name = next((each for each in site.memory.stacks() if _is(each, id, owner)), None)
    if name is None:
        raise NotFoundError(f"there is no workflow {id}", hint="the page of stacks lists them")
    scene = fields.text("scene") or None
    with site.memory.stack(id, owner=owner or None, create=False) as workflow:
        values = stack_values(workflow, scene, fields)
    values |= {"name": name, "scene": scene}
    return Page("stack.html", str(name), values, "stacks")


def _is(name: WorkflowName, id: str, owner: str) -> bool:
    return name.id == id and str(name.owner or "") == owner


def stack_values(workflow: Workflow, scene: str | None, fields: Fields) -> dict[str, object]:
    """All that the page shows of one stack, read while the workflow is open."""
    found = workflow.stack(scene)
    planned = workflow.plan(scene)
    footprint = workflow.footprint()
    chunks, pages = paged(found.chunks, fields.whole("page"), SEGMENTS_COUNT)
    summary = found.summary
    return {
        "summary": summary,
        "folded": None if summary is None else _folded(summary),
        "chunks": [(each, chunk_chars(each)) for each in chunks],
        "pages": pages,
        "exchanges_count": len(found.exchanges),
        "planned": planned,
        "would": trigger(planned.trigger, planned.tries),
        "chars": bar(
            f"{planned.chars:,} of {planned.threshold_chars:,} chars",
            [("chars", planned.chars)],
            planned.threshold_chars,
        ),
        "quota": bar(
            f"{footprint.bytes:,} of {planned.quota_bytes:,} bytes",
            [("store", footprint.store.bytes), ("log", footprint.log.bytes)],
            planned.quota_bytes,
        ),
        "footprint": footprint,
        "due": workflow.compression_due() if scene is None else (),
        "scenes": workflow.scenes(),
        "archives": workflow.archives() if scene is None else (),
    }


def _folded(summary: StackSummary) -> Folded:
    return Folded(summary.chars, len(summary.text), "chars")


def chunk_chars(chunk: Chunk) -> int:
    """Length of a chunk in the canonical text."""
    return canonical.chars_of(None, chunk.exchanges)


# -- Dream -----------------------------------------------------------------------------------------


def passes(site: Inspecting, fields: Fields) -> Page:
    """The passes of Dream, the newest first, and up to where threads are read."""
    site.owner_only("what Dream did")
    status = site.memory.dreams.status()
    shown, pages = paged(tuple(reversed(status.passes)), fields.whole("page"), SEGMENTS_COUNT)
    values = {"passes": shown, "pages": pages, "threads": status.threads}
    return Page("dream.html", "Dream passes", values, "dream")


def one_pass(site: Inspecting, fields: Fields) -> Page:
    """One pass with the diff of each file that it changed."""
    site.owner_only("what Dream did")
    record, changes = site.memory.dreams.changes(fields.needed("id"))
    diffs = [(each, diff_lines(each.diff)) for each in changes]
    values = {"record": record, "diffs": diffs}
    return Page("pass.html", f"Pass {record.pass_id}", values, "dream")


PAGES: dict[str, Show] = {
    "/threads": threads,
    "/thread": thread,
    "/stacks": stacks,
    "/stack": stack,
    "/dream": passes,
    "/pass": one_pass,
}
