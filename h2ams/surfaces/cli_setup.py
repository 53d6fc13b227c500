"""``setup``: the MCP entry for a host, printed or merged into the host's own file."""

from __future__ import annotations

import os
import sys
from shlex import quote
from typing import TYPE_CHECKING

from h2ams.errors import H2amsError, NotFoundError, UsageError
from h2ams.surfaces.cli_common import DONE, Call, add_dry_run, checked_text
from h2ams.surfaces.cli_parser import Command, CommandParser
from h2ams.surfaces.cli_shapes import degraded

if TYPE_CHECKING:
    from h2ams.files import FileState
    from h2ams.files import Root as Folder
    from h2ams.memory.record import Degraded
    from h2ams.upkeep.host_config import Entry, Form

KEYS: dict[str, tuple[str, ...]] = {
    "claude-code": ("mcpServers",),
    "claude-desktop": ("mcpServers",),
    "codex": (),  # TOML
    "cursor": ("mcpServers",),
    "openclaw": ("mcp", "servers"),
}
BACKUP = ".h2ams-backup"


def _configure(parser: CommandParser) -> None:
    parser.positional("host", metavar="HOST", words=KEYS, help=", ".join(KEYS))
    parser.option("--write", action="store_true", help="merge the entry into the host's file")
    parser.option("--undo", action="store_true", help="take the entry out of it again")
    parser.option("--file", metavar="FILE", help="another file than the host's usual one")
    parser.option("--name", metavar="NAME", default="h2ams", help="name of the entry")
    parser.option("--owner", action="store_true", help="the server may read and write everything")
    add_dry_run(parser)


def _setup(call: Call) -> int:
    from h2ams.config import host_file
    from h2ams.upkeep.host_config import Form

    args = call.args
    host = checked_text(args.host, "the host")
    if host not in KEYS:
        raise UsageError(f"unknown host {host!r}", hint=f"one of {', '.join(KEYS)}")
    if args.undo and (args.write or args.dry_run):
        raise UsageError("--undo goes with neither --write nor --dry-run")
    if args.file is None:
        path = host_file(host)
    else:
        path = os.path.abspath(os.path.expanduser(checked_text(args.file, "--file")))
    form, entry = Form(KEYS[host]), _entry(call)
    lacking = [] if args.undo else _lacking(call)
    document: dict[str, object] = {
        "host": host,
        "file": path,
        "name": entry.name,
        "command": entry.command,
        "args": list(entry.args),
        "snippet": form.snippet(entry),
        "changed": False,
        "backup": None,
        "diff": "",
        "degraded": degraded(lacking),
    }
    if args.undo:
        document |= _undo(call, form, entry.name, path)
    elif args.write or args.dry_run:
        document |= _write(call, form, entry, path)
    else:
        call.output.raw(form.snippet(entry))
        call.output.note(f"this goes into {path}; --write merges it")
    for each in lacking:  # a host shows no more than that the connection was closed
        call.output.note(each.message)
    call.output.document(document)
    return DONE


def _entry(call: Call) -> Entry:
    """The command that starts the server for this root and these access flags."""
    from h2ams.config import resolve_root
    from h2ams.upkeep.host_config import Entry

    args = call.args
    access = call.access()
    if access is not None and args.owner:
        raise UsageError("--owner goes with no access flag", hint="leave one of them out")
    name = checked_text(args.name, "--name")
    if not name.strip() or not name.isprintable():
        raise UsageError("--name is empty or not printable")
    words = ["mcp", "--root", resolve_root(args.root)]
    named = {"--session": args.session, "--chat": args.chat, "--vp": args.vp, "--agent": args.agent}
    for option, value in named.items():
        words += [] if value is None else [option, value]
    if args.user is not None:
        words.append("--no-user" if args.user == "no" else f"--user={args.user}")
    for option, values in (("--related", args.related), ("--also", args.also)):
        words += [word for value in values for word in (option, value)]
    if access is not None and len(words) == 3:  # an access to nothing is an access too
        words.append("--also=")
    if access is None:
        words.append("--owner")
        if not args.owner and not args.undo:
            call.output.note("without access flags the server may read and write everything")
    program = _program()
    return Entry(name, program[0], (*program[1:], *words))


def _lacking(call: Call) -> list[Degraded]:
    """What keeps the server of the entry from starting, and how to get it."""
    from h2ams.config import resolve_root
    from h2ams.memory.record import Degraded
    from h2ams.surfaces.cli_mcp import need_sdk

    lacking = []
    try:
        need_sdk()
    except H2amsError as error:
        text = f"the entry cannot start: {error.message}: {error.hint}"
        lacking.append(Degraded("mcp-missing", text))
    root = resolve_root(call.args.root)
    if not os.path.isdir(root):
        text = f"the entry cannot start: {root} is not there: h2ams --root {quote(root)} init"
        lacking.append(Degraded("root-missing", text))
    return lacking


def _program() -> list[str]:
    """How a host starts this very program: absolute, as it has another PATH."""
    started = os.path.abspath(sys.argv[0])
    if os.path.basename(started).partition(".")[0] == "h2ams" and os.access(started, os.X_OK):
        return [started]
    return [sys.executable, "-m", "h2ams.surfaces.cli"]


# -- the host's file -------------------------------------------------------------------------------


def _write(call: Call, form: Form, entry: Entry, path: str) -> dict[str, object]:
    """Merge the entry, after a copy of what was there; nothing where it is there already."""
    from h2ams.memory.merge import unified_diff

    folder, name, state = _open(path, create=not call.args.dry_run)
    old = _decoded(state, path)
    new = form.put(old, entry)
    if new == old:
        call.output.line("nothing to do: it is in ", (path, "address"))
        return {}
    before = None if state is None else state.data
    if call.args.dry_run:
        diff = unified_diff(before, new.encode(), os.path.basename(path))
        call.output.diff(diff)
        return {"diff": diff}
    assert folder is not None
    backup = f"{name}{BACKUP}"
    kept = None
    if state is not None:
        kept = f"{path}{BACKUP}"
        if folder.read(backup) is None:  # the first one is how it was before any of us
            folder.replace(backup, state.data, expect=None)
    folder.replace(name, new.encode(), expect=state)
    call.output.line("written into ", (path, "address"))
    if kept is not None:
        call.output.line("what was there is kept in ", (kept, "address"))
    call.output.line("restart the host to see its new tools; --undo takes the entry out again")
    return {"changed": True, "backup": kept}


def _undo(call: Call, form: Form, entry_name: str, path: str) -> dict[str, object]:
    """Take the entry out: the very bytes of before where nothing else changed since."""
    folder, name, state = _open(path, create=False)
    old = _decoded(state, path)
    new = form.take(old, entry_name)
    if folder is None or state is None or new is None:
        raise NotFoundError(f"{path}: there is no entry {entry_name!r}", path=path)
    kept = folder.read(f"{name}{BACKUP}")
    if kept is not None:
        same = form.others(old, entry_name) == form.others(kept.data.decode(), entry_name)
        data = kept.data if same else new.encode()
        folder.replace(name, data, expect=state)
        folder.remove(f"{name}{BACKUP}", expect=kept)
    elif not form.others(new, entry_name):  # nothing but the entry was ever in it
        folder.remove(name, expect=state)
    else:
        folder.replace(name, new.encode(), expect=state)
    call.output.line("taken out of ", (path, "address"))
    _tell_what_stays(call)
    return {"changed": True}


def _tell_what_stays(call: Call) -> None:
    """Where memory and index are, so that a person who leaves can delete them."""
    from h2ams.config import resolve_root, resolve_state

    root = resolve_root(call.args.root)
    state, _ = resolve_state(root)
    if os.path.isdir(root):
        call.output.line("memory stays in ", (root, "address"), ": it is yours to delete")
    if os.path.isdir(state):
        call.output.line("index and undo records stay in ", (state, "address"))


def _open(path: str, *, create: bool) -> tuple[Folder | None, str, FileState | None]:
    """The folder of ``path``, the name in it, and the file as it is now. Links are followed."""
    from h2ams.files import Root

    real = os.path.realpath(path)
    parent, name = os.path.split(real)
    if not os.path.isdir(parent):
        if not create:
            return None, name, None
        return Root.create(parent), name, None
    folder = Root(parent)
    return folder, name, folder.read(name)


def _decoded(state: FileState | None, path: str) -> str:
    try:
        return "" if state is None else state.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: not UTF-8 at byte {error.start}", hint="put the entry in by hand"
        ) from None


_ABOUT = """
Prints the entry for standard output and the place for it; --write merges it into the host's file,
in which nothing else changes (comments and order stay), after a copy beside it. --undo takes the
entry out: byte for byte what was before, where nothing else has changed since. Access flags are
what the server will be started with. What it needs and is not there yet is said.
"""

COMMANDS = {"setup": Command(_configure, _setup, _ABOUT)}
