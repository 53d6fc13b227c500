"""``recall``, ``list``, ``show``, ``sources``: what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import (
    DONE,
    Call,
    add_query,
    checked_text,
    counted,
    query_text,
    split_commas,
    tell_empty,
)
from h2ams.surfaces.cli_parser import Command, CommandParser, whole
from h2ams.surfaces.output import first_line, score_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from h2ams.memory.record import Hit, Recall, Record

BODY_LINES = 8  # of a match in plain text; show gives all of it
BODY_LINE_CHARS = 200
LIST_CHARS = 80


def _configure_recall(parser: CommandParser) -> None:
    add_query(parser)
    parser.option("-n", "--limit", metavar="N", type=whole, help="at most this many matches")
    parser.option(
        "--kind",
        metavar="KIND",
        action="append",
        default=[],
        help="only this kind; may be repeated",
    )
    parser.option(
        "--tag", metavar="TAG", action="append", help="only with this tag; may be repeated"
    )
    parser.option("--after", metavar="TIME", help="only changed at or after (ISO 8601)")
    parser.option("--before", metavar="TIME", help="only changed before (ISO 8601)")
    parser.option(
        "--scope",
        metavar="SCOPE",
        action="append",
        default=[],
        help="only in this scope, * matches within it; may be repeated",
    )
    parser.option("--min-score", metavar="X", type=float, help="only matches scored X or better")
    parser.option("--budget", metavar="TOKENS", type=whole, help="stop before this many tokens")
    parser.option("--explain", action="store_true", help="show each score's terms")


def _recall(call: Call) -> int:
    args = call.args
    with call.open() as memory, call.output.working("searching"):
        found = memory.recall(
            query_text(call),
            access=call.access(),
            limit=args.limit,
            kinds=tuple(split_commas(args.kind, "--kind")),
            tags=tuple(checked_text(tag, "a tag") for tag in args.tag or ()),
            after=args.after,
            before=args.before,
            scopes=None if not args.scope else tuple(split_commas(args.scope, "--scope")),
            min_score=args.min_score,
            budget=args.budget,
        )
    for place, each in enumerate(found.hits, start=1):
        if place > 1:
            call.output.line()
        _print_hit(call, place, each, explain=args.explain)
    _print_notes(call, found)
    call.output.document(_recall_document(found))
    return DONE


def _recall_document(found: Recall) -> cli_shapes.Document:
    return {
        "query": found.query,
        "keywords": list(found.keywords),
        "relaxed": found.relaxed,
        "hits": [cli_shapes.hit(each) for each in found.hits],
        "searched_scopes": list(found.searched_scopes),
        "elapsed_ms": found.elapsed_ms,
        "degraded": cli_shapes.degraded(found.degraded),
        "dropped_terms": list(found.dropped_terms),
        "below_gate": list(found.below_gate),
    }


def _print_notes(call: Call, found: Recall) -> None:
    """Everything that qualifies the answer, on standard error."""
    note = call.output.note
    for each in found.degraded:
        note(f"{each.code}: {each.message}")
    if call.output.json:
        return
    if found.dropped_terms:
        note(f"not looked up, too many words: {' '.join(found.dropped_terms)}")
    if not found.hits:
        note(f"nothing matches (scopes searched: {len(found.searched_scopes)})")
    elif found.relaxed:
        note("no exact match; these match in part")


def _print_hit(call: Call, place: int, found: Hit, *, explain: bool) -> None:
    record = found.record
    call.output.line(f"{place}. ", (record.address, "address"), *_facts(record))
    score = f"{found.score:.3f}"
    if explain:
        score += " = " + (" + ".join(score_terms(found.terms)) or "0")
        score += f"; matched: {' '.join(found.matched) or 'nothing'}"
    call.output.line((f"   {record.path}:{record.line}  score {score}", "dim"))
    lines = [line for line in record.body.splitlines() if line.strip()]
    first = _first_matching(lines, found.matched)
    if first:
        call.output.line((f"   … {counted(first, 'line')} before", "dim"))
    for line in lines[first : first + BODY_LINES]:
        call.output.line(f"   {first_line(line, BODY_LINE_CHARS)}")
    left = len(lines) - first - BODY_LINES
    if left > 0:
        call.output.line((f"   … {counted(left, 'more line')}", "dim"))


def _first_matching(lines: Sequence[str], matched: Sequence[str]) -> int:
    """Where the excerpt of a long text begins: the line that says most of what was asked."""
    if len(lines) <= BODY_LINES:
        return 0
    # The beginning of a word is enough: its ending may differ from the one asked for.
    beginnings = [word.casefold()[: max(4, len(word) - 3)] for word in matched]
    folded = [line.casefold() for line in lines]
    counts = [sum(each in line for each in beginnings) for line in folded]
    best = counts.index(max(counts))
    return min(best, len(lines) - BODY_LINES)


def _facts(record: Record) -> list[tuple[str, str]]:
    """Kind, date, tags, heading and source of a segment as parts of one line."""
    date = (record.updated_at or record.created_at or "")[:10]
    facts = [record.kind, date, f"[{', '.join(record.tags)}]" if record.tags else ""]
    facts += [record.heading, "stale" if record.stale else ""]
    facts += [f"from session {record.source_session}" if record.source_session else ""]
    return [(f"  {fact}", "dim") for fact in facts if fact]


def _configure_list(parser: CommandParser) -> None:
    parser.positional("scope", metavar="SCOPE", nargs="?", help="without it, every scope")
    parser.option("--archived", action="store_true", help="the retired segments instead")


def _list(call: Call) -> int:
    args = call.args
    scope = None if args.scope is None else checked_text(args.scope, "the scope")
    with call.open() as memory, call.output.working("reading"):
        records = memory.list(scope, access=call.access(), archived=args.archived)
    _print_list(call, records)
    call.output.document({"segments": [cli_shapes.segment(each) for each in records]})
    return DONE


def _print_list(call: Call, records: Sequence[Record]) -> None:
    for record in records:
        text = first_line(record.body, LIST_CHARS)
        place = (f"  {record.path}:{record.line}", "dim")
        call.output.line((record.address, "address"), place, *_facts(record), f"  {text}")
    tell_empty(call, records, "segments")


def _configure_show(parser: CommandParser) -> None:
    parser.positional("address", metavar="ADDRESS", help="scope#id, as list prints it")


def _show(call: Call) -> int:
    with call.open() as memory:
        record = memory.get(checked_text(call.args.address, "the address"), access=call.access())
    line = call.output.line
    values = {
        "address": record.address,
        "kind": record.kind,
        "tags": ", ".join(record.tags),
        "heading": record.heading,
        "created": record.created_at or "",
        "updated": record.updated_at or "",
        "messages": ", ".join(record.source_messages),
        "session": record.source_session or "",
        "file": f"{record.path}:{record.line}",
        "tokens": str(record.tokens),
        "digest": record.digest,
        "state": ", ".join(_states(record)),
    }
    for name, value in values.items():
        if value:
            line((f"{name:<9} ", "dim"), value)
    line()
    line(record.body)
    call.output.document({"segment": cli_shapes.segment(record)})
    return DONE


def _states(record: Record) -> list[str]:
    states = {"note": record.is_note, "stale": record.stale, "over the limit": record.over_limit}
    return [name for name, holds in states.items() if holds]


def _configure_sources(parser: CommandParser) -> None:
    parser.positional("message_id", metavar="MESSAGE_ID", help="id of a message")


def _sources(call: Call) -> int:
    message_id = call.text(call.args.message_id, "the message id")
    with call.open() as memory, call.output.working("reading"):
        records = memory.sources(message_id, access=call.access())
    _print_list(call, records)
    segments = [cli_shapes.segment(each) for each in records]
    call.output.document({"message_id": message_id, "segments": segments})
    return DONE


_ABOUT_RECALL = """
Files that changed are read first, so a hand edit is found at once. Words are words: quotes keep a
phrase together, a star at the end of a word matches its continuations, and nothing else is syntax.
Finding nothing is an answer: the exit code is 0.
"""
_ABOUT_LIST = """
One line for each segment: address, kind, date, tags and the beginning of its text.
"""
_ABOUT_SHOW = """
The digest is what edit and forget take as --expect.
"""
_ABOUT_SOURCES = """
A message that nothing came from gives an empty answer, exit code 0.
"""

COMMANDS = {
    "recall": Command(_configure_recall, _recall, _ABOUT_RECALL),
    "list": Command(_configure_list, _list, _ABOUT_LIST),
    "show": Command(_configure_show, _show, _ABOUT_SHOW),
    "sources": Command(_configure_sources, _sources, _ABOUT_SOURCES),
}
