"""``sync``, ``rebuild``, ``watch``, ``verify``, ``doctor``: index and files in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, add_dry_run, counted
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.index.sync import SyncReport


def _configure_sync(parser: CommandParser) -> None:
    parser.positional(
        "paths", metavar="PATH", nargs="*", help="only these files or folders, below the root"
    )


def _sync(call: Call) -> int:
    with call.open() as memory, call.output.working("reading"):
        report = memory.sync(tuple(call.args.paths), access=call.access())
    return _told(call, report)


def _configure_rebuild(parser: CommandParser) -> None:
    """``rebuild`` takes no arguments of its own."""


def _rebuild(call: Call) -> int:
    with call.open() as memory, call.output.working("rebuilding"):
        report = memory.rebuild(access=call.access())
    return _told(call, report)


def _told(call: Call, report: SyncReport) -> int:
    """Tell what a sync did. What could not be read is listed, and makes it a partial success."""
    call.output.line(_summary(report))
    if not call.output.json:
        _note_errors(call, report)
    call.output.document(_sync_document(report))
    return PROBLEMS if report.errors else DONE


def _summary(report: SyncReport) -> str:
    summary = (
        f"{counted(report.scanned, 'file')}, {report.changed} changed; "
        f"segments: {report.added} added, {report.updated} updated, {report.deleted} deleted"
    )
    others = sum(not found.notice for found in report.problems) - len(report.errors)
    shows = f"h2ams doctor shows {'it' if others == 1 else 'them'}"
    return f"{summary}; {counted(others, 'problem')} ({shows})" if others else summary


def _note_errors(call: Call, report: SyncReport) -> None:
    for found in report.errors:
        (place, _), text = cli_shapes.problem_line(found)
        call.output.note(place + text)
    if report.skipped_links:
        call.output.note(f"{report.skipped_links} links out of the folder not followed")


def _sync_document(report: SyncReport) -> cli_shapes.Document:
    return {
        "scanned": report.scanned,
        "changed": report.changed,
        "added": report.added,
        "updated": report.updated,
        "deleted": report.deleted,
        "errors": cli_shapes.problems(report.errors),
        "problems": cli_shapes.problems(report.problems),
        "skipped_links": report.skipped_links,
        "elapsed_ms": report.elapsed_ms,
    }


def _configure_watch(parser: CommandParser) -> None:
    """``watch`` takes no arguments of its own."""


def _watch(call: Call) -> int:
    """Sync whatever changes until SIGINT or SIGTERM; both are a normal end."""
    import signal
    import threading

    call.owner_only("watch")
    stop = threading.Event()
    totals = dict.fromkeys(("syncs", "changed", "added", "updated", "deleted", "failed"), 0)

    def on_sync(report: SyncReport) -> None:
        totals["syncs"] += 1
        for name in ("changed", "added", "updated", "deleted"):
            totals[name] += getattr(report, name)
        totals["failed"] += len(report.errors)
        if report.changed or report.errors:
            call.output.line(_summary(report))
            call.output.flush()
        _note_errors(call, report)

    before = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with call.open() as memory:
            call.output.note(f"watching {memory.root}")
            memory.watch(
                on_sync=on_sync,
                stop=stop,
                report=lambda code, message: call.output.note(f"{code}: {message}"),
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    call.output.document(totals)
    return DONE


def _configure_verify(parser: CommandParser) -> None:
    """``verify`` takes no arguments of its own."""


def _verify(call: Call) -> int:
    with call.open() as memory, call.output.working("comparing"):
        result = memory.verify(access=call.access())
    line = call.output.line
    line(("ok", "good") if result.ok else ("the index differs from the files", "bad"))
    line(("index  ", "dim"), result.digest)
    line(("files  ", "dim"), result.rebuild_digest)
    for found in result.problems:
        line(*cli_shapes.problem_line(found))
    if not result.ok:
        call.output.note("h2ams rebuild makes the index anew from the files")
    call.output.document(
        {
            "ok": result.ok,
            "digest": result.digest,
            "rebuild_digest": result.rebuild_digest,
            "problems": cli_shapes.problems(result.problems),
        }
    )
    return DONE if result.ok else PROBLEMS


def _configure_doctor(parser: CommandParser) -> None:
    parser.option("--fix", action="store_true", help="repair what can be repaired without loss")
    add_dry_run(parser)


def _doctor(call: Call) -> int:
    args = call.args

    def show(diff: str) -> None:
        call.output.diff(diff)
        call.output.flush()  # it is on the screen before the file changes

    with call.open() as memory, call.output.working("looking"):
        report = memory.doctor(
            fix=args.fix or args.dry_run,
            dry_run=args.dry_run,
            show=show,
            access=call.access(),
        )
    line = call.output.line
    for found in report.problems:
        remark = " (notice)" if found.notice else " (--fix)" if found.fixable else ""
        line(*cli_shapes.problem_line(found), (remark, "dim"))
    if args.dry_run:
        call.output.diff(report.diff)
    for fixed in report.fixed:
        line(("fixed ", "good"), *cli_shapes.problem_line(fixed))
    if not report.problems and not report.fixed:
        line(("no problems", "good"))
    left = sum(not found.notice for found in report.problems)
    if args.fix and left:
        call.output.note(f"{left} left that only a person can put right: edit the file")
    call.output.document(
        {
            "problems": cli_shapes.problems(report.problems),
            "fixed": cli_shapes.repairs(report.fixed),
            "dry_run": args.dry_run,
            "diff": report.diff,
        }
    )
    return PROBLEMS if any(not found.notice for found in report.problems) else DONE


_ABOUT_SYNC = """
What could not be read is listed and keeps its rows in the index; the exit code is then 1.
"""
_ABOUT_REBUILD = """
The new index is built aside and takes the old one's place at the end: readers go on meanwhile.
"""
_ABOUT_WATCH = """
SIGINT and SIGTERM end it, exit code 0. With --json the one document comes at the end.
"""
_ABOUT_VERIFY = """
The digest of the index is compared with one computed from the files; a difference is exit code 1.
"""
_ABOUT_DOCTOR = """
Exit code 1 while problems remain; notices are none. --fix shows the diff of each file before it
writes it; --dry-run shows the same and changes nothing. A second --fix changes no byte.
"""

COMMANDS = {
    "sync": Command(_configure_sync, _sync, _ABOUT_SYNC),
    "rebuild": Command(_configure_rebuild, _rebuild, _ABOUT_REBUILD),
    "watch": Command(_configure_watch, _watch, _ABOUT_WATCH),
    "verify": Command(_configure_verify, _verify, _ABOUT_VERIFY),
    "doctor": Command(_configure_doctor, _doctor, _ABOUT_DOCTOR),
}
