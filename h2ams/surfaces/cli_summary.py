"""``summary``: what stands for a scope in a prompt, shown or brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.memory.scope import parse_scope
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, add_dry_run, checked_text
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.dream.summarise import Refreshed

_ACTIONS = ("show", "refresh")


def _configure(parser: CommandParser) -> None:
    parser.positional("action", metavar="ACTION", words=_ACTIONS, help=", ".join(_ACTIONS))
    parser.positional(
        "scopes", metavar="SCOPE", nargs="*", help="show: one scope; refresh: these, or all"
    )
    parser.option("--lang", metavar="CODE", default="en", help="show: the language (default en)")
    parser.option(
        "--force", action="store_true", help="refresh: overwrite what was edited by hand too"
    )
    parser.option("--rules", action="store_true", help="refresh: the built-in text, no model")
    add_dry_run(parser)


def _summary(call: Call) -> int:
    action = call.args.action
    scopes = [checked_text(scope, "a scope") for scope in call.args.scopes]
    if action not in _ACTIONS:
        raise UsageError(f"summary {action}: no such action", hint=f"one of {', '.join(_ACTIONS)}")
    if action == "show":
        if len(scopes) != 1:
            raise UsageError("summary show takes one scope", hint="h2ams summary --help")
        return _show(call, scopes[0])
    call.owner_only("summary refresh")
    return _refresh(call, scopes)


def _show(call: Call, scope: str) -> int:
    with call.open() as memory:
        path, summary = memory.summary(scope, access=call.access(), language=call.args.lang)
    call.output.raw(summary.text + "\n")
    call.output.document(
        {
            "scope": parse_scope(scope).text,
            "language": call.args.lang,
            "path": path,
            "updated_at": summary.updated_at,
            "basis": summary.basis,
            "text": summary.text,
        }
    )
    return DONE


def _refresh(call: Call, scopes: list[str]) -> int:
    with call.open() as memory, call.output.bar() as progress:
        named = scopes or [scope.text for scope in memory.dreams.scopes()]
        done: list[Refreshed] = []
        for at, scope in enumerate(named):
            progress(at, len(named), "summaries")
            done += memory.dreams.refresh(
                scope,
                force=call.args.force,
                dry_run=call.args.dry_run,
                model="rules" if call.args.rules else None,
            )
    for each in done:
        if call.args.dry_run:
            call.output.diff(each.diff)
        elif each.status != "empty":
            more = f"  {each.tokens} tokens" if each.tokens else ""
            call.output.line((each.path, "address"), f"  {each.status}{more}")
        if each.status == "hand-edited":
            call.output.note(f"{each.path}: edited by hand, not overwritten without --force")
        if each.fell_back:
            call.output.note(f"{each.path}: the model wrote no summary; the built-in text is used")
        if each.message:
            call.output.note(f"{each.path}: {each.message}")
    document: cli_shapes.Document = {"summaries": [cli_shapes.summary(each) for each in done]}
    call.output.document(document | {"dry_run": call.args.dry_run})
    return PROBLEMS if any(each.status == "failed" for each in done) else DONE


_ABOUT = """
refresh writes the default summary and every further language that exists. A summary that is up to
date, or that a person has written or edited, keeps every byte. refresh is for the owner only.
"""

COMMANDS = {"summary": Command(_configure, _summary, _ABOUT)}
