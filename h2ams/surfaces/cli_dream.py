"""``dream``: a pass over a conversation, what passes did, and taking one back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import (
    DONE,
    PROBLEMS,
    Call,
    add_dry_run,
    checked_text,
    counted,
    read_stdin,
)
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.dream.dreaming import PassReport
    from h2ams.dream.summarise import Refreshed
    from h2ams.memory.absorb import Absorbed
    from h2ams.upkeep.dreams import DreamRun, DreamStatus

# action: how many names it takes at least and at most
_NAMES = {"run": (1, 2), "status": (0, 0), "undo": (1, 1)}
_WANTED = {"run": "a session or chat, and a file", "status": "no name", "undo": "one pass"}
_TROUBLES = ("partial", "failed", "already-running")


def _configure(parser: CommandParser) -> None:
    parser.positional("action", metavar="ACTION", words=_NAMES, help=", ".join(_NAMES))
    parser.positional(
        "names",
        metavar="NAME",
        nargs="*",
        help="run: sessions/ID or chat/ID, then a file of JSON lines (default: standard input); "
        "undo: a pass",
    )
    parser.option("--thread", metavar="NAME", default="", help="run: one of several conversations")
    parser.option("--rules", action="store_true", help="run: the built-in rules, no model")
    parser.option(
        "--when-due", action="store_true", help="run: only with enough new messages, see config"
    )
    parser.option(
        "--keep-debug",
        action="store_true",
        help="run: keep requests and answers in the state folder",
    )
    add_dry_run(parser)


def _dream(call: Call) -> int:
    args = call.args
    names = [checked_text(name, "a name") for name in args.names]
    if args.action not in _NAMES:
        raise UsageError(f"dream {args.action}: no such action", hint=f"one of {', '.join(_NAMES)}")
    least, most = _NAMES[args.action]
    if not least <= len(names) <= most:
        raise UsageError(
            f"dream {args.action} takes {_WANTED[args.action]}", hint="h2ams dream --help"
        )
    call.owner_only("dream")
    if args.action == "status":
        return _status(call)
    if args.action == "undo":
        return _undo(call, names[0])
    return _run(call, names[0], names[1] if len(names) > 1 else "-")


def _run(call: Call, scope: str, file: str) -> int:
    text = _messages(file)
    with call.open() as memory, call.output.bar() as progress:
        done = memory.dreams.run(
            scope,
            text,
            thread=checked_text(call.args.thread, "--thread"),
            by_hand=not call.args.when_due,
            dry_run=call.args.dry_run,
            keep_debug=call.args.keep_debug,
            model="rules" if call.args.rules else None,
            progress=progress,
        )
    for found in done.problems:
        call.output.note(f"{file}:{found.line}: {found.code}: {found.message}")
    _tell(call, done.report)
    call.output.document(_run_document(done) | {"dry_run": call.args.dry_run})
    return PROBLEMS if done.report.outcome in _TROUBLES or done.problems else DONE


def _messages(file: str) -> str:
    if file == "-":
        return read_stdin("the conversation")
    try:
        with open(file, "rb") as stream:
            data = stream.read()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}", hint="name a file") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 (byte {error.start})") from None


_SINGULARS = {"messages": "message", "slices": "slice", "summaries": "summary"}
_OUTCOMES = {
    "done": "pass {pass_id}: {new}",
    "partial": "pass {pass_id}: {new}, not all of it done",
    "nothing-new": "nothing new",
    "too-few": "{new}: too few for a pass",
    "already-running": "already-running: another pass holds the lock",
    "failed": "{new}, no answer for any: nothing was written",
}


def _tell(call: Call, report: PassReport) -> None:
    if call.args.dry_run:
        call.output.diff(report.diff)
    else:
        text = _OUTCOMES[report.outcome]
        new = counted(report.new_count, "new message")
        call.output.line(text.format(pass_id=report.pass_id, new=new))
        for each in report.scopes:
            call.output.line("  ", (each.scope, "address"), f"  {_counts(each)}")
        for summary in report.summaries:
            if summary.status in ("written", "removed", "hand-edited"):
                call.output.line("  ", (summary.path, "dim"), f"  {_summary_text(summary)}")
    if report.found in ("time", "lost") and report.outcome not in ("already-running",):
        how = "read by time" if report.found == "time" else "all read again"
        call.output.note(f"the last message of the pass before is gone: {how}")
    for code, count in sorted(_refusal_counts(report).items()):
        call.output.note(f"refused: {code} ({count})")
    for failure in report.failures:
        call.output.note(failure)


def _counts(absorbed: Absorbed) -> str:
    parts = [
        f"{len(found)} {name}"
        for name, found in (
            ("added", absorbed.added),
            ("updated", absorbed.updated),
            ("merged", absorbed.merged),
            ("archived", absorbed.archived),
            ("in conflict", absorbed.conflicts),
        )
        if found
    ]
    return ", ".join(parts) or "nothing new"


def _summary_text(summary: Refreshed) -> str:
    if summary.status == "hand-edited":
        return "edited by hand: not overwritten (h2ams summary refresh --force)"
    return (
        f"{summary.status}, {counted(summary.tokens, 'token')}"
        if summary.tokens
        else summary.status
    )


def _counted(count: int, name: str) -> str:
    """A count of a pass: of things, or of what was done to them (``2 updated``)."""
    word = _SINGULARS.get(name)
    return counted(count, word, name) if word else f"{count} {name}"


def _refusal_counts(report: PassReport) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in report.refusals:
        counts[each.code] = counts.get(each.code, 0) + 1
    return counts


def _run_document(done: DreamRun) -> cli_shapes.Document:
    report = done.report
    return {
        "outcome": report.outcome,
        "thread": report.thread,
        "pass": report.pass_id or None,
        "extractor": report.extractor or None,
        "messages": report.new_count,
        "slices": report.slice_count,
        "left_out": done.left_out_count,
        "watermark": report.found,
        "resumed": report.resumed,
        "scopes": [
            {
                "scope": each.scope,
                "added": list(each.added),
                "updated": list(each.updated),
                "merged": list(each.merged),
                "archived": list(each.archived),
                "conflicts": list(each.conflicts),
            }
            for each in report.scopes
        ],
        "summaries": [cli_shapes.summary(each) for each in report.summaries],
        "refused": [
            {"code": each.code, "at": each.at, "operation": each.operation}
            for each in report.refusals
        ],
        "failures": list(report.failures),
        "problems": cli_shapes.problems(done.problems),
        "diff": report.diff,
    }


def _status(call: Call) -> int:
    with call.open() as memory:
        status = memory.dreams.status()
    line = call.output.line
    for thread in status.threads:
        name = f" ({thread.name})" if thread.name else ""
        more = (
            f", {counted(thread.pending_count, 'message')} waiting" if thread.pending_count else ""
        )
        more += ", interrupted" if thread.interrupted else ""
        line((f"{thread.scope}{name}", "address"), f"  up to {thread.last}{more}")
    for each in status.passes:
        counts = ", ".join(_counted(count, name) for name, count in each.counts.items() if count)
        undone = "  undone" if each.undone else ""
        line((each.pass_id, "strong"), f"  {each.thread}  {counts}{undone}")
    if not status.threads and not status.passes:
        line("no pass yet")
    call.output.document(_status_document(status))
    return DONE


def _status_document(status: DreamStatus) -> cli_shapes.Document:
    return {
        "threads": [
            {
                "scope": each.scope,
                "thread": each.name,
                "last": each.last,
                "at": each.at,
                "ended_at": each.ended_at,
                "waiting": each.pending_count,
                "interrupted": each.interrupted,
            }
            for each in status.threads
        ],
        "passes": [
            {
                "pass": each.pass_id,
                "scope": each.thread,
                "thread": each.name,
                "started_at": each.started_at,
                "ended_at": each.ended_at,
                "extractor": each.extractor,
                "scopes": list(each.scopes),
                "counts": dict(each.counts),
                "refused": dict(each.refusals),
                "undone": each.undone,
            }
            for each in status.passes
        ],
    }


def _undo(call: Call, pass_id: str) -> int:
    with call.open() as memory:
        paths = memory.dreams.undo(pass_id)
    for path in paths:
        call.output.line("restored ", (path, "address"))
    if not paths:
        call.output.line("nothing to restore")
    call.output.document({"pass": pass_id, "restored": list(paths)})
    return DONE


_ABOUT = """
run reads what is new in the whole conversation: JSON lines with id, role, content, createdAt and vp
where there is one. Facts go to user and to the named scope, its topics, features and roles; secrets
are replaced. The model is the one of H2AMS_MODEL, without one the built-in rules. For the owner
only.
"""

COMMANDS = {"dream": Command(_configure, _dream, _ABOUT)}
