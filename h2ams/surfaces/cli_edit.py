"""``edit``: one segment, in the editor or by options.

Strategy: the body goes into a private temporary file. Whatever goes wrong after the editor ended
(the segment changed meanwhile, a limit, a lock, an interrupt), that file stays and the error says
where it is; it is removed once its text is in memory, or where nothing was typed.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from h2ams.errors import ConfigError, H2amsError, ReadOnlyError, UsageError
from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import Call, add_dry_run, add_expect, add_force, checked_text
from h2ams.surfaces.cli_parser import Command, CommandParser
from h2ams.surfaces.cli_write import add_segment_options, options_text, told

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2ams.engine import Memory
    from h2ams.memory.store import WriteResult


STDERR = 2  # the descriptor


def _configure(parser: CommandParser) -> None:
    parser.positional("address", metavar="ADDRESS", help="scope#id, as list prints it")
    parser.option(
        "--body", metavar="TEXT", help="the new body, without an editor; - reads standard input"
    )
    add_segment_options(parser, kind=None)
    add_expect(parser, "the segment still has this digest (h2ams show)")
    add_force(parser)
    add_dry_run(parser)


def _edit(call: Call) -> int:
    args = call.args
    with call.open() as memory:
        if args.body is None and args.kind is None and args.tag is None and args.source is None:
            result = _edit_in_editor(call, memory)
        else:
            body = None if args.body is None else call.text(args.body, "the body")
            result = _update(call, memory, body=body, expect=args.expect, dry_run=args.dry_run)
    if args.dry_run:
        call.output.diff(result.diff)
    else:
        did = "changed " if result.changed else "not changed "
        call.output.line(did, (result.address, "address"))
    document = cli_shapes.written(result, dry_run=args.dry_run)
    call.output.document(document | {"changed": result.changed})
    return told(call, result)


def _update(
    call: Call, memory: Memory, *, body: str | None, expect: str | None, dry_run: bool
) -> WriteResult:
    args = call.args
    return memory.update(
        checked_text(args.address, "the address"),
        body=body,
        kind=args.kind,
        tags=None if args.tag is None else options_text(args.tag, "a tag"),
        source_messages=None if args.source is None else options_text(args.source, "an id"),
        access=call.access(),
        expect=expect,
        force=args.force,
        dry_run=dry_run,
    )


def _edit_in_editor(call: Call, memory: Memory) -> WriteResult:
    record = memory.get(checked_text(call.args.address, "the address"), access=call.access())
    if record.is_note:
        raise ReadOnlyError(
            f"{record.address} is a section of a note",
            hint=f"edit {record.path}:{record.line} itself",
            path=record.path,
        )
    if record.over_limit:  # the index keeps only the beginning: the rest would be lost
        raise ReadOnlyError(
            f"{record.address} is too long to be edited here",
            hint=f"edit {record.path}:{record.line} itself",
            path=record.path,
        )
    expect = record.digest if call.args.expect is None else call.args.expect
    # Refusals (another's scope, a changed digest) come before anybody types anything.
    unchanged = _update(call, memory, body=record.body, expect=expect, dry_run=True)
    original = record.body.strip("\r\n")
    with _private_file(call, original) as path:
        _run_editor(path)
        body = _read_edited(path)
        if body == original:
            call.output.note("the text is as it was (an editor with a window needs its wait flag)")
            return unchanged
        if not body.strip():
            raise UsageError("the body is empty", hint=f"h2ams forget {record.address} removes it")
        return _update(call, memory, body=body, expect=expect, dry_run=call.args.dry_run)


@contextmanager
def _private_file(call: Call, body: str) -> Iterator[str]:
    """The path of a new file with ``body`` that only this user can read.

    It is removed at the end, unless an error comes and something was typed: then the error (or,
    for an interrupt, a note) says where the text is.
    """
    from shutil import rmtree
    from tempfile import mkdtemp

    folder = mkdtemp(prefix="h2ams-edit-")  # 0700
    path = os.path.join(folder, "body.md")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(body + "\n")
    keep = False
    try:
        yield path
    except BaseException as error:
        keep = os.path.exists(path) and _read_edited(path) not in ("", body)
        if keep and isinstance(error, H2amsError):
            error.hint = _with_place(error, path)
        elif keep:
            call.output.note(f"the edited text is in {path}")
        raise
    finally:
        if not keep:
            rmtree(folder)


def _with_place(error: H2amsError, path: str) -> str:
    """The error's hint, and where the edited text is."""
    return f"{error.hint + '; ' if error.hint else ''}the edited text is in {path}"


def _run_editor(path: str) -> None:
    """Run ``$VISUAL``, else ``$EDITOR``, else vi on ``path``, on our own terminal.

    Where standard input or output is no terminal it belongs to another program: the editor gets
    none of it, and what it prints goes to standard error.
    """
    import shlex
    import subprocess

    fallback = "notepad" if os.name == "nt" else "vi"
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or fallback
    try:
        words = shlex.split(wanted, posix=os.name != "nt")
        code = subprocess.run(
            [*words, path],
            stdin=None if _is_terminal(sys.stdin) else subprocess.DEVNULL,
            stdout=None if _is_terminal(sys.stdout) else STDERR,
            check=False,
        ).returncode
    except (OSError, ValueError) as error:  # not there, not executable, an unclosed quote
        raise ConfigError(f"editor {wanted!r}: {error}", hint="set VISUAL or EDITOR") from error
    if code:
        raise H2amsError(f"editor {wanted!r} ended with code {code}; nothing was changed")


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _read_edited(path: str) -> str:
    """What the editor left, without blank lines around; newlines as they are."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read().strip("\r\n")


_ABOUT = """
Without --body, --kind, --tag or --source the body is opened in $VISUAL, else $EDITOR, else vi.
If the segment changes meanwhile nothing is overwritten, and you are told where your text is.
"""

COMMANDS = {"edit": Command(_configure, _edit, _ABOUT)}
