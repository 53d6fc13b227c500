"""``import`` and ``export``: memory comes from other programs, memory goes elsewhere."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, checked_text, counted
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from collections.abc import Iterable

    from h2ams.memory.intake import Taken, Unfit
    from h2ams.surfaces.cli_shapes import Document
    from h2ams.upkeep.in_place import Survey

TOLD_MOST = 20  # things that were not carried, in plain text; --json has them all
FORMATS = ("claude-code", "openclaw", "obsidian", "basic-memory", "mem0", "chatgpt", "jsonl")
IN_PLACE = FORMATS[:4]


def _configure_import(parser: CommandParser) -> None:
    parser.positional("format", metavar="FORMAT", words=FORMATS, help=", ".join(FORMATS))
    parser.positional("path", metavar="PATH", help="the folder or file of the other program")
    parser.option(
        "--scope", metavar="SCOPE", help="for what names none itself (mem0, chatgpt: user)"
    )
    parser.option("--only", metavar="USER_ID", help="this user of an export of several")
    parser.option(
        "--conversations", action="store_true", help="chatgpt: whole conversations as sessions too"
    )
    parser.option("--dry-run", action="store_true", help="tell what would be done, write nothing")


def _import(call: Call) -> int:
    args = call.args
    format = checked_text(args.format, "the format")
    path = checked_text(args.path, "the path")
    if format not in FORMATS:
        raise UsageError(f"unknown format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    if format in IN_PLACE:
        if args.scope or args.only or args.conversations:
            raise UsageError(f"{format} is opened in place: --scope and the like do not go with it")
        return _open_in_place(call, format, path)
    return _take_records(call, format, path)


def _open_in_place(call: Call, format: str, path: str) -> int:
    from h2ams.config import keep_state_beside, resolve_state
    from h2ams.upkeep.in_place import survey

    call.owner_only("import in place")
    with call.output.working("looking"):
        found = survey(format, path)
    state, _ = resolve_state(found.root)
    document = _document(call, format, in_place=True, root=found.root, left_out=found.left_out)
    document["notes"] = found.notes
    sections = None
    if not call.args.dry_run:
        if not os.path.exists(os.path.join(state, "index.db")):
            state = keep_state_beside(found.root)
        with call.open(found.root) as memory, call.output.working("reading"):
            memory.sync()
            status = memory.status()
        sections = status.segments + status.notes
        document |= {"state": state, "segments": sections}
    _tell_in_place(call, found, document, sections)
    call.output.document(document)
    return DONE


def _tell_in_place(call: Call, found: Survey, document: Document, sections: int | None) -> None:
    line = call.output.line
    would = "would open" if call.args.dry_run else "opened"
    line(
        f"{would} ", (found.root, "address"), f" in place: {counted(found.notes, 'Markdown file')}"
    )
    if sections is not None:
        are = "is" if sections == 1 else "are"
        line(f"{counted(sections, 'section')} {are} indexed in {document['state']}")
        line("nothing was written into the folder; ask it with:")
        line(f"  h2ams --root {shlex.quote(found.root)} recall QUESTION")
    _tell_left(call, found.left_out)


def _take_records(call: Call, format: str, path: str) -> int:
    from h2ams.upkeep.importers import Options, read_source

    args = call.args
    scope = None if args.scope is None else checked_text(args.scope, "--scope")
    if scope is not None:
        from h2ams.memory.scope import parse_scope

        scope = parse_scope(scope).text
    only = None if args.only is None else checked_text(args.only, "--only")
    options = Options(scope, only, args.conversations)
    with call.output.working("reading"):
        batch = read_source(format, os.path.abspath(os.path.expanduser(path)), options)
    with call.open() as memory, call.output.working("writing"):
        taken = memory.take_in(
            batch.incoming,
            summaries=batch.summaries,
            access=call.access(),
            dry_run=args.dry_run,
        )
        root = memory.root
    document = _document(call, format, root=root, left_out=batch.left_out, taken=taken)
    would = "would add" if args.dry_run else "added"
    known = f"{len(taken.known)} {'is' if len(taken.known) == 1 else 'are'} there already"
    call.output.line(f"{would} {counted(len(taken.added), 'segment')}, {known}")
    for name, count in sorted(_scopes(taken).items()):
        call.output.line("  ", (name, "address"), f"  {count}")
    for address in taken.redacted:
        call.output.note(f"{address}: secrets or private parts were replaced before writing")
    _tell_left(call, batch.left_out)
    for each in taken.failed:
        call.output.note(f"not written: {each.origin}: {each.reason}")
    call.output.document(document)
    broken = any(each.broken for each in batch.left_out)
    return PROBLEMS if taken.failed or broken else DONE


def _tell_left(call: Call, left: Iterable[Unfit]) -> None:
    several = list(left)
    for each in several[:TOLD_MOST]:
        call.output.note(f"left out: {each.origin}: {each.reason}")
    if len(several) > TOLD_MOST:
        call.output.note(f"left out: {len(several) - TOLD_MOST} more (--json lists them)")


def _scopes(taken: Taken) -> dict[str, int]:
    return dict(Counter(address.partition("#")[0] for address in taken.added))


def _document(
    call: Call,
    format: str,
    *,
    root: str,
    left_out: Iterable[Unfit],
    in_place: bool = False,
    taken: Taken | None = None,
) -> Document:
    """One shape for all formats; what one of them does not know is empty or null."""
    failed = taken.failed if taken else ()

    return {
        "format": format,
        "in_place": in_place,
        "root": root,
        "state": None,
        "dry_run": call.args.dry_run,
        "added": list(taken.added) if taken else [],
        "known": list(taken.known) if taken else [],
        "redacted": list(taken.redacted) if taken else [],
        "failed": [{"origin": each.origin, "reason": each.reason} for each in failed],
        "left_out": [
            {"origin": each.origin, "reason": each.reason, "broken": each.broken}
            for each in left_out
        ],
        "scopes": _scopes(taken) if taken else {},
        "notes": None,
        "segments": None,
    }


def _configure_export(parser: CommandParser) -> None:
    parser.option("--output", metavar="FILE", help="JSON lines into this new file; - is stdout")
    parser.option("--folder", metavar="DIR", help="a copy of the Markdown files in this new folder")
    parser.option("--scope", metavar="SCOPE", help="only this scope")


def _export(call: Call) -> int:
    from h2ams.memory.scope import parse_scope
    from h2ams.upkeep.exporter import copy_folder

    args = call.args
    if args.folder is not None and (args.output is not None or args.scope is not None):
        raise UsageError("--folder goes with no other option of export")
    if args.folder is not None:
        with call.open() as memory, call.output.working("copying"):
            tree = memory.tree(access=call.access())
            done = copy_folder(tree, memory.root, os.path.abspath(args.folder))
        call.output.line(f"copied {counted(done.files, 'file')} to ", (args.folder, "address"))
        for path in done.left_out[:TOLD_MOST]:
            call.output.note(f"left out: {path}: no memory")
        call.output.document(
            _exported(args.folder) | {"files": done.files, "left_out": list(done.left_out)}
        )
        return DONE
    scope = None if args.scope is None else parse_scope(checked_text(args.scope, "--scope")).text
    to_stdout = args.output in (None, "-")
    if to_stdout and args.json:
        raise UsageError("--json needs --output FILE: the lines themselves go to standard output")
    return _export_lines(call, scope, None if to_stdout else args.output)


def _export_lines(call: Call, scope: str | None, path: str | None) -> int:
    """Write the lines to ``path``, which must be new, or print them."""
    import json

    from h2ams.upkeep.exporter import lines

    access = call.access()
    counts: Counter[str] = Counter()
    texts: list[str] = []
    with call.open() as memory, call.output.working("reading"):
        records = memory.list(scope, access=access)
        archived = memory.list(scope, access=access, archived=True)
        tree = memory.tree(access=access)
        for kind, line in lines(records, archived, tree, memory.settings):
            if kind == "summary" and scope is not None and json.loads(line)["scope"] != scope:
                continue
            counts[kind] += 1
            texts.append(line)
    text = "".join(f"{line}\n" for line in texts)
    if path is None:
        call.output.raw(text)
        return DONE
    with open(path, "x", encoding="utf-8", newline="\n") as file:
        file.write(text)
    told = counted(counts["segment"], "segment")
    told += ", " + counted(counts["note"], "section of notes", "sections of notes")
    told += ", " + counted(counts["summary"], "summary", "summaries")
    call.output.line(f"{told} in ", (path, "address"))
    call.output.document(
        _exported(path)
        | {
            "segments": counts["segment"],
            "notes": counts["note"],
            "summaries": counts["summary"],
        }
    )
    return DONE


def _exported(path: str) -> Document:
    return {
        "path": path,
        "segments": 0,
        "notes": 0,
        "summaries": 0,
        "files": 0,
        "left_out": [],
    }


_ABOUT_IMPORT = """
Folders that are Markdown already are opened in place: nothing is copied, nothing is written into
them. Everything else is added to scopes with the ids of its sources and its times; a second import
adds nothing, and what was edited or forgotten here meanwhile stays so. What cannot be carried is
listed; the exit code is 1 where something was broken or could not be written. Secrets and private
parts are replaced as in every write.
"""
_ABOUT_EXPORT = """
One JSON document a line: segments, sections of notes, summaries; import jsonl reads them again.
With access flags only what that access may read. The file or folder must be new.
"""

COMMANDS = {
    "import": Command(_configure_import, _import, _ABOUT_IMPORT),
    "export": Command(_configure_export, _export, _ABOUT_EXPORT),
}
