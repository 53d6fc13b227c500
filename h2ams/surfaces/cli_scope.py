"""``scope``: whole scopes listed, deleted, renamed, cloned, migrated."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, checked_text, counted
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from h2ams.engine import Memory
    from h2ams.memory.lifecycle_plan import ScopeChange

# action: how many names it takes at least and at most
_NAMES = {"list": (0, 0), "delete": (1, 1), "rename": (2, 2), "clone": (2, 2), "migrate": (0, 1)}
_DONE = {
    "delete": "deleted",
    "rename": "renamed",
    "clone": "cloned",
    "migrate": "migrated",
    "purge": "purged",
}


def _configure(parser: CommandParser) -> None:
    parser.positional("action", metavar="ACTION", words=_NAMES, help=", ".join(_NAMES))
    parser.positional(
        "names",
        metavar="SCOPE",
        nargs="*",
        help="the scope; for rename and clone its new name too; migrate: a session, or all",
    )
    parser.option(
        "--dry-run", action="store_true", help="list every file, row and state, change nothing"
    )
    parser.option("--yes", action="store_true", help="do not ask before something is removed")
    parser.option(
        "--purge", action="store_true", help="migrate: remove what migrations set aside, for good"
    )


def _scope(call: Call) -> int:
    args = call.args
    names = [checked_text(name, "a scope") for name in args.names]
    _check_usage(args.action, names, purge=args.purge)
    call.owner_only("scope")
    if args.action == "list":
        return _list(call)
    asks = (args.action == "delete" or args.purge) and not (args.dry_run or args.yes)
    if asks:
        _check_terminal(call)
    with call.open() as memory:
        if asks and not _agreed(call, memory, names):
            call.output.note("nothing was changed")
            call.output.document(_document(args.action, ()))
            return PROBLEMS
        with call.output.working("working"):
            changes = _run(call, memory, names, dry_run=args.dry_run)
    for change in changes:
        _tell(call, change)
    if not changes:
        call.output.line("nothing to do")
    call.output.document(_document(args.action, changes) | {"dry_run": args.dry_run})
    return PROBLEMS if any(change.failed for change in changes) else DONE


def _check_usage(action: str, names: Sequence[str], *, purge: bool) -> None:
    if action not in _NAMES:
        raise UsageError(f"scope {action}: no such action", hint=f"one of {', '.join(_NAMES)}")
    least, most = _NAMES[action]
    if not least <= len(names) <= most:
        wanted = {(0, 0): "no name", (1, 1): "one scope", (2, 2): "two names: old and new"}
        raise UsageError(
            f"scope {action} takes {wanted.get((least, most), 'one session at most')}",
            hint="h2ams scope --help",
        )
    if purge and action != "migrate":
        raise UsageError("--purge goes with migrate only", hint="scope delete purges anyhow")


def _run(
    call: Call, memory: Memory, names: Sequence[str], *, dry_run: bool
) -> tuple[ScopeChange, ...]:
    scopes = memory.scopes
    match call.args.action:
        case "delete":
            return (scopes.delete(names[0], dry_run=dry_run),)
        case "rename":
            return (scopes.rename(names[0], names[1], dry_run=dry_run),)
        case "clone":
            return (scopes.clone(names[0], names[1], dry_run=dry_run),)
    session = names[0] if names else None
    return scopes.migrate(session, purge=call.args.purge, dry_run=dry_run)


def _check_terminal(call: Call) -> None:
    if call.output.json or not (sys.stdin.isatty() and call.output.stderr.isatty()):
        raise UsageError(
            "this removes memory for good, and there is no terminal to ask on",
            hint="add --yes, or look first with --dry-run",
        )


def _agreed(call: Call, memory: Memory, names: Sequence[str]) -> bool:
    """Whether the person at the terminal agrees."""
    planned = _run(call, memory, names, dry_run=True)
    count = sum(len(change.files) for change in planned)
    what = ", ".join(change.scope for change in planned) or "nothing"
    call.output.stderr.write(f"remove {what} ({counted(count, 'file')}) for good? [y/N] ")
    call.output.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(call: Call, change: ScopeChange) -> None:
    line = call.output.line
    names = f"{change.scope} to {change.target}" if change.target else change.scope
    verb = "would be " + _DONE[change.kind] if change.dry_run else _DONE[change.kind]
    line((names, "address"), f": {verb}, {counted(len(change.files), 'file')}")
    if change.dry_run:
        for file in change.files:
            line(f"  {file.path}", f" -> {file.to}" if file.to else "")
        for state in change.state:
            line(f"  {state.owner}: {state.what}")
    if change.segments_before is not None and change.kind == "migrate":
        line(f"  segments: {change.segments_before} before, {change.segments_after} after")
    for kept in change.kept:
        call.output.note(kept)
    for failed in change.failed:
        call.output.note(f"not done: {failed.path}: {failed.message}")


def _list(call: Call) -> int:
    with call.open() as memory:
        found = memory.scopes.list()
    for info in found:
        parts = [counted(info.segments, "segment"), counted(info.notes, "note")]
        old = [folder for folder in info.folders if folder.startswith(("group/", "session/"))]
        parts += [f"also in {folder}" for folder in old]
        call.output.line((info.scope, "address"), f"  {', '.join(parts)}")
    scopes = [
        {
            "scope": info.scope,
            "folders": list(info.folders),
            "segments": info.segments,
            "notes": info.notes,
        }
        for info in found
    ]
    call.output.document({"action": "list", "scopes": scopes})
    return DONE


def _document(action: str, changes: Sequence[ScopeChange]) -> cli_shapes.Document:
    return {
        "action": action,
        "dry_run": False,
        "changes": [cli_shapes.scope_change(change) for change in changes],
    }


_ABOUT = """
An operation takes everything that the scope owns, in every layout: sessions/ID with its VPs,
topics and features, vp/ID with what it owns in all sessions and chats; files, index rows, active
sets, undo records. It is finished or undone, never half; one that was interrupted is finished at
the next opening. delete is for good: nothing brings the text back. rename keeps ids. migrate brings
the historical folders group/, session/, groups/ and chats/ into the canonical layout and keeps the
old ones below .h2ams/migrated until --purge. Before something is removed you are asked on a
terminal; without one, --yes is needed.
"""

COMMANDS = {"scope": Command(_configure, _scope, _ABOUT)}
