"""The main job on this project's own memory: ``python tools/demo.py "QUESTION"``.

    scopes/ -> sync -> recall (ranked, each score explained) -> memory block -> receipt

Everything goes through the public Python API. ``H2AMS_STATE_DIR`` says where the index is kept, so
that ``scopes/`` holds nothing but Markdown.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from h2ams import H2amsError, Memory

if TYPE_CHECKING:
    from h2ams import Hit, Recall
    from h2ams.active.block import MemoryBlock
    from h2ams.index.sync import SyncReport

SCOPES = Path(__file__).resolve().parents[1] / "scopes"
QUESTION = "why are rowids grouped by scope?"
BUDGET_TOKENS = 1_200
HITS_COUNT = 5
REJECTED_COUNT = 5  # shown for each reason
WIDTH = 98


def main(words: list[str]) -> int:
    """Run the demo; 0, or 1 with one line that says what went wrong."""
    question = " ".join(words).strip() or QUESTION
    try:
        with Memory.open(SCOPES) as memory:
            report = memory.sync()
            found = memory.recall(question, limit=HITS_COUNT)
            block = memory.context(question, budget=BUDGET_TOKENS)
            totals = memory.status()
            print(f"question   {question}")
            print(
                f"memory     {totals.segments} segments and {totals.notes} note sections"
                f" in {totals.scopes} scopes, {totals.tokens} tokens"
            )
    except H2amsError as error:
        print(f"demo: {error}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return 1
    show_sync(report)
    show_hits(found)
    show_block(block)
    show_receipt(block)
    return 0


def show_sync(report: SyncReport) -> None:
    print(
        f"sync       {report.scanned} files looked at, {report.changed} changed:"
        f" {report.added} segments added, {report.updated} updated, {report.deleted} deleted"
        f" ({report.elapsed_ms:.0f} ms)"
    )


def show_hits(found: Recall) -> None:
    title("Ranked matches")
    print(f"looked up: {', '.join(found.keywords)}  ({found.elapsed_ms:.1f} ms)")
    if found.relaxed:
        print("nothing matches strictly: this is the relaxed reading")
    for place, hit in enumerate(found.hits, start=1):
        show_hit(place, hit)
    if not found.hits:
        print("nothing matches")


def show_hit(place: int, hit: Hit) -> None:
    record = hit.record
    terms = " + ".join(f"{name} {value:.3f}" for name, value in hit.terms.items() if value)
    print(f"\n{place}. {record.address}  {record.kind}")
    print(f"   {record.path}:{record.line}")
    print(f"   {hit.score:.3f} = {terms}")
    beginning = textwrap.shorten(record.body, WIDTH - 3, placeholder=" …")
    print(textwrap.indent(beginning, "   "))


def show_block(block: MemoryBlock) -> None:
    title(f"Memory block: {block.tokens} of {block.budget} tokens")
    print(block.text or "(empty)")


def show_receipt(block: MemoryBlock) -> None:
    receipt = block.receipt
    title("Receipt")
    print(f"{'fence, headings, separators':<40}{receipt.frame_tokens:>6} tokens")
    for name, layer in receipt.layers.items():
        print(f"{name + ', limit ' + str(layer.limit):<40}{layer.used:>6} tokens")
        for item in layer.items:
            cut = ", cut" if item.cut else ""
            score = f", score {item.score:.3f}" if item.terms else ""
            print(f"  + {item.tokens:>4}  {item.address}{score}{cut}")
            print(f"          {item.path}:{item.line}")
    reasons = dict.fromkeys(each.reason for each in receipt.rejected)
    for reason in reasons:
        rejected = [each for each in receipt.rejected if each.reason == reason]
        print(f"{'left out: ' + reason:<40}{len(rejected):>6} candidates")
        for each in rejected[:REJECTED_COUNT]:
            print(f"  -       {each.address}" + (f" says {each.detail}" if each.detail else ""))
        if len(rejected) > REJECTED_COUNT:
            print(f"          and {len(rejected) - REJECTED_COUNT} more")


def title(text: str) -> None:
    print(f"\n--- {text} {'-' * max(0, WIDTH - len(text) - 5)}")


def run(words: list[str]) -> int:
    """``main``; a reader that has seen enough (``make demo | head``) is no error."""
    try:
        code = main(words)
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter's last flush must not fail: what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
