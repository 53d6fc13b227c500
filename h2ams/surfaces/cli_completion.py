"""``completion``: the scripts of the shells, and the values that they ask for.

Strategy: commands and options stand in the script, since they change with the program only. What
an argument takes depends on the folder and the access flags of the line: the script asks
``h2ams completion values``, which reads the line as the command itself would. It looks into the
index as it is: no file is read, nothing is synced, and without an index there is nothing to offer.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.surfaces.cli_common import DONE, Call
from h2ams.surfaces.cli_parser import Command, CommandParser, add_global_options, whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from h2ams.surfaces.completion_scripts import Program

SHELLS = ("bash", "zsh", "fish")
VALUES = "values"
OFFERED_MOST = 200
FILES, FOLDERS = ":files", ":folders"  # the shell is to offer these itself
_BY_METAVAR = {
    "SCOPE": "scope",
    "ADDRESS": "address",
    "KIND": "kind",
    "DIR": "folder",
    "FILE": "file",
    "PATH": "file",
}
_FAMILIES = {  # options that name a member of a family of scopes
    "--session": "sessions/",
    "--related": "sessions/",
    "--chat": "chat/",
    "--vp": "vp/",
    "--agent": "agent/",
}


def _configure(parser: CommandParser) -> None:
    parser.positional("shell", metavar="SHELL", words=SHELLS, help=", ".join((*SHELLS, VALUES)))
    parser.positional("words", metavar="WORD", nargs="*", help="values: the words of a line")
    parser.option("--at", metavar="N", type=whole, help="values: which word is being written")


def _completion(call: Call) -> int:
    args = call.args
    if args.shell == VALUES:
        if args.at is None or args.at >= len(args.words):
            raise UsageError("completion values needs --at N and the words of a line")
        if call.access() is not None:
            raise UsageError("access flags belong to the line", hint="put them behind --")
        found = values(call, [_plain(word) for word in args.words], args.at)
        for each in found:
            call.output.raw(each + "\n")
        call.output.document({"values": found})
        return DONE
    if args.shell not in SHELLS or args.words or args.at is not None:
        raise UsageError(
            f"completion {args.shell}: no such script", hint=f"one of {', '.join(SHELLS)}"
        )
    from h2ams.surfaces.completion_scripts import SCRIPTS

    script = SCRIPTS[args.shell](program())
    call.output.raw(script)
    call.output.document({"shell": args.shell, "script": script})
    return DONE


def program() -> Program:
    """Every command and option, as the scripts need them; loads the module of each command."""
    from h2ams.surfaces.cli import COMMANDS
    from h2ams.surfaces.completion_scripts import CommandWords, Option, Program

    def options(actions: Iterable[argparse.Action]) -> tuple[Option, ...]:
        return tuple(
            Option(tuple(each.option_strings), each.nargs != 0, each.help or "") for each in actions
        )

    everywhere = CommandParser("h2ams")
    add_global_options(everywhere)
    commands = [CommandWords("help", "the page of a command", ())]
    for name, (_, about) in COMMANDS.items():
        commands.append(CommandWords(name, about, options(_parser_of(name).options)))
    return Program(tuple(commands), options(everywhere.options))


def _parser_of(name: str) -> CommandParser:
    """A parser with the arguments of one command alone."""
    from h2ams.surfaces.cli import load_command

    parser = CommandParser(f"h2ams {name}")
    load_command(name).configure(parser)
    return parser


# -- what the word that is being written may become ------------------------------------------------


def values(call: Call, words: Sequence[str], at: int) -> list[str]:
    """What the word ``at`` of a line may become: whole words, or ``:files`` or ``:folders``.

    ``words`` are those behind the program's name. Flags behind the word count too: nothing is
    offered that the line as a whole may not see.
    """
    from h2ams.surfaces.cli import COMMANDS, load_command

    current, before = words[at], list(words[:at])
    parser = CommandParser("h2ams")
    add_global_options(parser)
    everywhere = {name for each in parser.options for name in each.option_strings}
    _, name, _ = parser.split_command(before)
    if name == "help":
        return [each for each in COMMANDS if each.startswith(current)]
    if name is not None:
        load_command(name).configure(parser)
    option, equals, beginning = current.partition("=")
    takes: argparse.Action | None = None
    rest = [*before, *words[at + 1 :]]
    if equals and option.startswith("--"):
        takes, written = _option(parser, option), option + equals
    elif before and "--" not in before and parser.wants_next(before[-1]):
        takes, written, beginning = _option(parser, before[-1]), "", current
        rest = [*before[:-1], *words[at + 1 :]]  # an option without its value yet
    elif name is not None:
        takes, written, beginning = _positional(parser, before), "", current
    if takes is None:
        return []
    kept = [
        word
        for word in parser.sort_words(rest).options
        if word.startswith("--") and word.partition("=")[0] in everywhere
    ]
    line = CommandParser("h2ams")
    add_global_options(line)
    asked = call.of(line.parse_args(kept))
    asked.args.root = asked.args.root or call.args.root
    found = _values(asked, parser, takes, beginning)
    if found in ([FILES], [FOLDERS]):
        return found
    return [written + each for each in found if each.isprintable() and " " not in each]


def _option(parser: CommandParser, word: str) -> argparse.Action | None:
    """The option behind ``word``; of a bundle such as ``-vn`` its last."""
    names = [word] if word.startswith("--") else [word, f"-{word[-1]}"]
    for name in names:
        for each in parser.options:
            if name in each.option_strings and (each.nargs != 0):
                return each
    return None


def _positional(parser: CommandParser, before: Sequence[str]) -> argparse.Action | None:
    """The positional argument that comes next behind the words ``before``, command included."""
    count = len(parser.sort_words(before).positional) - 1
    for each in parser.positionals:
        if count == 0 or each.nargs in ("*", "+"):
            return each
        count -= 1
    return None


def _values(
    asked: Call, parser: CommandParser, takes: argparse.Action, beginning: str
) -> list[str]:
    words = parser.words.get(takes.dest) or takes.choices
    if words:
        return [word for word in words if word.startswith(beginning)]
    family = next((_FAMILIES[name] for name in takes.option_strings if name in _FAMILIES), None)
    if family is not None:
        return _members(asked, family, beginning)
    match _BY_METAVAR.get(str(takes.metavar)):
        case "kind":
            from h2ams.settings import KINDS

            return [kind for kind in KINDS if kind.startswith(beginning)]
        case "file":
            return [FILES]
        case "folder":
            return [FOLDERS]
        case "scope":
            return _known(asked, beginning, addresses=False)
        case "address":
            return _known(asked, beginning, addresses=True)
    return []


def _members(asked: Call, family: str, beginning: str) -> list[str]:
    """The ids that begin with ``beginning`` of a family's members; the last of several ids."""
    already, comma, last = beginning.rpartition(",")
    names = _known(asked, family + last, addresses=False)
    ids = dict.fromkeys(name.split("/")[1] for name in names)
    return [already + comma + each for each in ids]


def _known(asked: Call, beginning: str, *, addresses: bool) -> list[str]:
    """Scopes or addresses as the index has them, under the access of the line."""
    from h2ams import config

    access = asked.access()
    state, _ = config.resolve_state(config.resolve_root(asked.args.root))
    if not os.path.isfile(os.path.join(state, "index.db")):
        return []
    with asked.open() as memory:
        read = memory.addresses if addresses else memory.scope_names
        return list(read(beginning, access=access, limit=OFFERED_MOST, fresh=False))


def _plain(word: str) -> str:
    """A word as it was written, without the quotes that it may be written in."""
    for closed in (word, word + '"', word + "'"):
        try:
            parts = shlex.split(closed)
        except ValueError:
            continue
        if len(parts) == 1:
            return parts[0]
    return word


_ABOUT = """
Commands, options, kinds, scopes, addresses and ids of sessions are completed; what the access flags
of the line may not see is not offered. Scopes and addresses come from the index as it is, so that
no file is read while you type. The scripts ask h2ams completion values --at N WORD… for them.
"""

COMMANDS = {"completion": Command(_configure, _completion, _ABOUT)}
