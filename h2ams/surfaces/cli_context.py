"""``context``: the memory block as a host would inject it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, Call, add_query, query_text
from h2ams.surfaces.cli_parser import Command, CommandParser, whole
from h2ams.surfaces.output import score_terms, to_json
from h2ams.surfaces.wording import REASONS

if TYPE_CHECKING:
    from h2ams.active.block import Item, MemoryBlock


def _configure(parser: CommandParser) -> None:
    add_query(parser)
    parser.option("--budget", metavar="TOKENS", type=whole, help="the block never exceeds this")
    parser.option(
        "--window", metavar="TOKENS", type=whole, help="the model's window: the budget is a share"
    )
    parser.option("--language", metavar="LANG", default="en", help="en or zh (default en)")
    parser.option(
        "--commit", action="store_true", help="this turn really happens: remember what was used"
    )
    parser.option(
        "--receipt",
        action="store_true",
        help="after the text, on one line of its own, the receipt as JSON",
    )
    parser.option(
        "--explain", action="store_true", help="after the text, why each item is in or out"
    )


def _context(call: Call) -> int:
    args = call.args
    with call.open() as memory, call.output.working("searching"):
        block = memory.context(
            query_text(call),
            access=call.access(),
            budget=args.budget,
            window=args.window,
            commit=args.commit,
            language=args.language,
        )
    for each in block.degraded:
        call.output.note(f"{each.code}: {each.message}")
    receipt = block.receipt.to_json()
    call.output.raw(
        block.text if block.text.endswith("\n") or not block.text else block.text + "\n"
    )
    if args.explain:
        _explain(call, block)
    if args.receipt:
        call.output.raw(to_json(receipt, indent=None) + "\n")
    document = {"text": block.text, "tokens": block.tokens, **receipt}
    call.output.document(document | {"degraded": cli_shapes.degraded(block.degraded)})
    return DONE


def _explain(call: Call, block: MemoryBlock) -> None:
    """Each item with its reason, then each candidate that stayed out with its own."""
    line = call.output.line
    line()
    line((f"{block.tokens} of {block.budget} tokens", "strong"))
    for name, layer in block.receipt.layers.items():
        line((f"{name}: {layer.used} of {layer.limit} tokens", "strong"))
        for item in layer.items:
            line("  + ", (item.address, "address"), f"  {item.tokens} tokens  {_why(item)}")
            line((f"    {item.path}:{item.line}", "dim"))
    for rejection in block.receipt.rejected:
        why = REASONS.get(rejection.reason, rejection.reason)
        detail = f": {rejection.detail}" if rejection.detail else ""
        line("  - ", (rejection.address, "address"), f"  {rejection.reason}, {why}{detail}")


def _why(item: Item) -> str:
    why = [f"score {item.score:.3f}"] if item.terms else []
    why += score_terms(item.terms)
    if item.source_session:
        why.append(f"from session {item.source_session}")
    if item.cut:
        why.append("cut to fit")
    return ", ".join(why) or "always considered"


_ABOUT = """
Standard output is the block and nothing else, so it can be piped into a prompt; it is empty where
there is nothing to say or no room to say it. Nothing is remembered of the call without --commit.
"""

COMMANDS = {"context": Command(_configure, _context, _ABOUT)}
