"""``audit``: what is doubtful in the files, told with its place, and a repair with an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, add_dry_run, checked_text, counted
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.upkeep.audit import AuditReport


def _configure(parser: CommandParser) -> None:
    parser.positional("scopes", metavar="SCOPE", nargs="*", help="only these scopes")
    parser.option(
        "--fix", action="store_true", help="unite duplicates; h2ams dream undo reverts it"
    )
    add_dry_run(parser)


def _audit(call: Call) -> int:
    args = call.args
    call.owner_only("audit")
    with call.open() as memory, call.output.bar() as progress:
        report = memory.dreams.audit(
            [checked_text(scope, "a scope") for scope in args.scopes],
            fix=args.fix or args.dry_run,
            dry_run=args.dry_run,
            progress=progress,
        )
    if args.dry_run:
        call.output.diff(report.diff)
    else:
        _tell(call, report)
    for failure in report.failures:
        call.output.note(failure)
    call.output.document(_document(report) | {"dry_run": args.dry_run})
    left = [each for each in report.findings if not (each.fixable and report.pass_id)]
    return PROBLEMS if left or report.failures else DONE


def _tell(call: Call, report: AuditReport) -> None:
    line = call.output.line
    for each in report.findings:
        place = f"{each.path}:{each.line}" if each.line else each.path
        line((place, "address"), f": {each.code}: {each.message}", (f"  {each.address}", "dim"))
    counts = ", ".join(f"{count} {code}" for code, count in report.counts.items())
    read = f"{counted(report.segment_count, 'segment')} in {counted(report.scope_count, 'scope')}"
    line(f"{read}: {counts or 'no doubts'}")
    if report.pass_id:
        line(f"united: h2ams dream undo {report.pass_id} takes it back")
    elif report.plan:
        line("h2ams audit --fix unites duplicates (--dry-run shows how)")


def _document(report: AuditReport) -> cli_shapes.Document:
    return {
        "segments": report.segment_count,
        "scopes": report.scope_count,
        "counts": dict(report.counts),
        "findings": [
            {
                "code": each.code,
                "scope": each.scope,
                "address": each.address,
                "other": each.other or None,
                "path": each.path,
                "line": each.line,
                "message": each.message,
                "fixable": each.fixable,
            }
            for each in report.findings
        ],
        "plan": [
            {
                "operation": each.name,
                "scope": each.scope.text,
                "id": each.base.id if each.base else None,
                "source_messages": list(each.source_messages),
            }
            for each in report.plan
        ],
        "pass": report.pass_id or None,
        "failures": list(report.failures),
        "diff": report.diff,
    }


_ABOUT = """
Told with file and line: secrets, text that commands a model, echoes of prompts, contradictions,
duplicates, sources that are none, stale and over-long summaries, scopes over their bound or without
an owner, segments that no active set has used. --fix unites exact and near duplicates of one scope:
the more detailed text stays, with all sources; the other goes to archive.md. For the owner only.
"""

COMMANDS = {"audit": Command(_configure, _audit, _ABOUT)}
