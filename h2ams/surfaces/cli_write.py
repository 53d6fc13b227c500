"""``remember`` and ``forget``: a segment comes, a segment goes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.settings import KINDS
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import (
    DONE,
    PROBLEMS,
    Call,
    add_dry_run,
    add_expect,
    add_force,
    checked_text,
)
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.memory.store import WriteResult


def add_segment_options(parser: CommandParser, *, kind: str | None) -> None:
    """``--kind --tag --source``; ``kind`` is the default, ``None`` where leaving it out is fine."""
    default = f" (default {kind})" if kind else ""
    parser.option("--kind", metavar="KIND", default=kind, help=", ".join(KINDS) + default)
    parser.option(
        "--tag",
        metavar="TAG",
        action="append",
        help="a tag; may be repeated; replaces those there"
        if kind is None
        else "a tag; may be repeated",
    )
    parser.option(
        "--source",
        metavar="MESSAGE_ID",
        action="append",
        help="id of a message this came from; may be repeated",
    )


def options_text(values: list[str] | None, what: str) -> tuple[str, ...]:
    """The values of a repeated option, checked to be text."""
    return tuple(checked_text(value, what) for value in values or ())


def told(call: Call, result: WriteResult) -> int:
    """Tell what a write did besides its main effect, and the exit code that goes with it."""
    for kind in result.redacted:
        call.output.note(f"{result.address}: replaced before writing: {kind}")
    for found in result.problems:
        call.output.note(f"{found.path}:{found.line}: {found.code}: {found.message}")
    if result.conflict is None:
        return DONE
    call.output.note(
        f"somebody else changed {result.address} meanwhile; both texts are in the file, yours as "
        f"{result.conflict} (merge them, then h2ams forget {result.conflict})"
    )
    return PROBLEMS


def _configure_remember(parser: CommandParser) -> None:
    parser.positional("scope", metavar="SCOPE", help="user, global, sessions/ID, …")
    parser.positional("text", metavar="TEXT", help="what to remember; - reads standard input")
    add_segment_options(parser, kind="fact")
    add_expect(parser, "the scope's memory.md has this SHA-256; empty: only if there is none")
    add_dry_run(parser)


def _remember(call: Call) -> int:
    from h2ams.config import resolve_root
    from h2ams.memory.values import check_kind

    args = call.args
    kind = check_kind(args.kind)  # before a missing folder is made
    body = call.text(args.text, "the text")
    is_new = not os.path.lexists(resolve_root(args.root))
    with call.open(create=not args.dry_run) as memory:
        if is_new:
            call.output.note(f"made the memory folder {memory.root}")
        result = memory.remember(
            checked_text(args.scope, "the scope"),
            body,
            kind=kind,
            tags=options_text(args.tag, "a tag"),
            source_messages=options_text(args.source, "a message id"),
            access=call.access(),
            expect=args.expect,
            dry_run=args.dry_run,
        )
    if args.dry_run:
        call.output.diff(result.diff)
    else:
        call.output.line((result.address, "address"))
        if not result.created:
            call.output.note(f"{result.address} says this already; nothing was written")
    document = cli_shapes.written(result, dry_run=args.dry_run)
    call.output.document(document | {"created": result.created})
    return told(call, result)


def _configure_forget(parser: CommandParser) -> None:
    parser.positional("address", metavar="ADDRESS", help="scope#id, as list prints it")
    parser.option("--undo", action="store_true", help="bring back what forget removed")
    parser.option(
        "--purge",
        action="store_true",
        help="leave no trace, not even for --undo; also after an earlier forget",
    )
    add_expect(parser, "the segment still has this digest (h2ams show)")
    add_force(parser)
    add_dry_run(parser)


def _forget(call: Call) -> int:
    args = call.args
    if args.undo and (args.purge or args.dry_run or args.expect is not None):
        raise UsageError("--undo goes with no other option of forget", hint="h2ams forget --help")
    address = checked_text(args.address, "the address")
    with call.open() as memory:
        if args.undo:
            result = memory.unforget(address, access=call.access())
        else:
            result = memory.forget(
                address,
                access=call.access(),
                expect=args.expect,
                force=args.force,
                dry_run=args.dry_run,
                purge=args.purge,
            )
    if args.dry_run:
        call.output.diff(result.diff)
    else:
        call.output.line("restored " if args.undo else "removed ", (result.address, "address"))
    document = cli_shapes.written(result, dry_run=args.dry_run)
    done = {"removed": result.removed and not args.undo, "restored": args.undo}
    call.output.document(document | done)
    return told(call, result)


_ABOUT_REMEMBER = """
Text that is in the scope already, with the same kind, is not added again: its address is printed.
Passwords, keys and <private> parts are replaced before writing, and told.
"""
_ABOUT_FORGET = """
An undo record is kept, readable by you alone, until --purge.
"""

COMMANDS = {
    "remember": Command(_configure_remember, _remember, _ABOUT_REMEMBER),
    "forget": Command(_configure_forget, _forget, _ABOUT_FORGET),
}
