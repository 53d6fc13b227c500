"""The command line ``h2ams``: finds the command, runs it, turns every outcome into an exit code.

    argv -> CommandParser (options anywhere) -> the command's module -> Memory -> Output

Strategy: a command's module is imported only when that command runs, the engine only when the
command opens it. Exit codes: 0 done; 1 problems found, failed in part, or not there; 2 usage;
130 interrupted; 141 the reader of our output went away.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from h2ams import __version__
from h2ams.errors import UsageError
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call
from h2ams.surfaces.cli_parser import Command, CommandParser, add_global_options
from h2ams.surfaces.output import Output

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from h2ams.surfaces.cli_common import Opener

USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells say it
PIPE_CLOSED = 141  # 128 + SIGPIPE

# command: (module below h2ams.surfaces, what it does)
COMMANDS = {
    "init": ("cli_folder", "make a memory folder, or describe the one that is there"),
    "status": ("cli_folder", "scopes, segments, tokens, state of the index, problems"),
    "config": ("cli_folder", "every setting, its value and where the value came from"),
    "remember": ("cli_write", "add a segment to a scope and print its address"),
    "recall": ("cli_read", "ranked matches for a query"),
    "context": ("cli_context", "the memory block for a query, as it goes into a prompt"),
    "list": ("cli_read", "the segments of a scope, or of all"),
    "show": ("cli_read", "one segment with everything known about it"),
    "edit": ("cli_edit", "change one segment in your editor, or with --body, --kind, --tag"),
    "forget": ("cli_write", "remove a segment; --undo brings it back, --purge leaves no trace"),
    "sources": ("cli_read", "the segments that came from a message"),
    "sync": ("cli_index", "bring the index up to date with the files"),
    "rebuild": ("cli_index", "build the index anew from the files"),
    "watch": ("cli_index", "keep the index up to date until interrupted"),
    "verify": ("cli_index", "compare the index with the files"),
    "doctor": ("cli_index", "look for problems in the files; --fix repairs what can be"),
    "thread": ("cli_thread", "conversations: new, append, show, context, compact, restart …"),
    "scope": ("cli_scope", "list, delete, rename, clone or migrate whole scopes"),
    "stack": ("cli_stack", "exchange stacks: list, show, plan, compress, restore"),
    "dream": ("cli_dream", "make memory of a conversation; its passes, and their undo"),
    "summary": ("cli_summary", "show the summary of a scope, or bring summaries up to date"),
    "audit": ("cli_audit", "duplicates (--fix unites them), contradictions, echoes, secrets"),
    "import": ("cli_move", "take memory in from another program, or open its folder in place"),
    "export": ("cli_move", "memory as JSON lines, or a copy of its Markdown files"),
    "mcp": ("cli_mcp", "serve the memory to MCP hosts, over stdio or loopback HTTP"),
    "inspect": ("cli_inspect", "a local page: scopes, recall, the block and why, conversations"),
    "setup": ("cli_setup", "print a host's MCP entry, or --write it into the host's file"),
    "completion": ("cli_completion", "print the completion script of bash, zsh or fish"),
}
_MEANT = {
    "search": "recall",
    "find": "recall",
    "query": "recall",
    "add": "remember",
    "new": "remember",
    "delete": "forget",
    "remove": "forget",
    "rm": "forget",
    "update": "edit",
    "get": "show",
    "cat": "show",
    "ls": "list",
}


def main(argv: Sequence[str] | None = None, *, opener: Opener | None = None) -> int:
    """Run ``h2ams argv…`` (``sys.argv`` by default) and return the exit code; never raises.

    ``opener`` stands in for ``Memory.open``: a program that embeds the command line may open the
    memory its own way.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    options = words[: words.index("--")] if "--" in words else words
    output = Output(json="--json" in options)
    code = _guarded(words, output, opener, debug="--debug" in options)
    try:
        output.finish()
    except BrokenPipeError:
        _let_go_of_stdout()
        return PIPE_CLOSED
    except OSError as error:  # a full disk behind a redirection
        output.note(f"standard output: {error.strerror}")
        _let_go_of_stdout()
        return PROBLEMS
    return code


def _guarded(words: list[str], output: Output, opener: Opener | None, *, debug: bool) -> int:
    try:
        return _run(words, output, opener)
    except BrokenPipeError:
        _let_go_of_stdout()
        return PIPE_CLOSED
    except KeyboardInterrupt as error:
        output.failed(error)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: told on one line, code 1
        if debug:
            from traceback import print_exc

            print_exc(file=output.stderr)
        output.failed(error)
        return USAGE if isinstance(error, UsageError) else PROBLEMS


def _run(words: list[str], output: Output, opener: Opener | None) -> int:
    parser = CommandParser("h2ams")
    add_global_options(parser)
    call: Call | None = None

    def made(args: argparse.Namespace) -> Call:
        nonlocal call
        call = Call(args, output, opener=opener)
        return call

    try:
        return _run_command(parser, words, output, made)
    except UsageError as error:
        from h2ams.surfaces.cli_hints import add_hint

        add_hint(error, parser, words, None if call is None else call.args)
        raise


def _run_command(
    parser: CommandParser,
    words: list[str],
    output: Output,
    made: Callable[[argparse.Namespace], Call],
) -> int:
    before, name, after = parser.split_command(words)
    asks_for_help = name == "help"
    if asks_for_help:
        before, name, after = parser.split_command([*before, *after])
    command = None
    if name is not None:
        command = load_command(name)
        describe_command(parser, name, command)
    sorted_words = parser.sort_words([*before, *after])
    if asks_for_help or sorted_words.flags & {"-h", "--help"}:
        return _help(parser, name, output)
    if "--version" in sorted_words.flags:
        return _version(output)
    if command is None:
        raise UsageError("no command given", hint="h2ams --help lists them")
    args = parser.parse_args(sorted_words.for_argparse())
    if args.help or args.version:  # inside a bundle such as -vh
        return _help(parser, name, output) if args.help else _version(output)
    call = made(args)
    if not args.verbose:
        return command.run(call)
    with output.logging(args.verbose):
        return command.run(call)


def describe_command(parser: CommandParser, name: str, command: Command) -> None:
    """Make ``parser`` the parser of the command called ``name``."""
    parser.prog = f"h2ams {name}"
    parser.usage = f"{parser.prog} [options]"
    parser.description = COMMANDS[name][1]
    command.configure(parser)


def load_command(name: str) -> Command:
    """The command called ``name``; ``UsageError`` names the one that was probably meant."""
    if name not in COMMANDS:
        from difflib import get_close_matches

        close = next(iter(get_close_matches(name, [*COMMANDS, *_MEANT], n=1)), "")
        meant = _MEANT.get(close, close)
        hint = f"did you mean h2ams {meant}?" if meant else "h2ams --help lists them"
        raise UsageError(f"unknown command {name!r}", hint=hint)
    module = import_module(f"h2ams.surfaces.{COMMANDS[name][0]}")
    command: Command = module.COMMANDS[name]
    return command


def _help(parser: CommandParser, name: str | None, output: Output) -> int:
    from h2ams.surfaces.cli_help import command_page, overview

    text = overview(parser) if name is None else command_page(parser, name, load_command(name))
    output.raw(text)
    output.document({"help": text})
    return DONE


def _version(output: Output) -> int:
    from h2ams.surfaces.cli_shapes import SCHEMA

    output.raw(f"h2ams {__version__}\n")
    output.document({"version": __version__, "schema": SCHEMA})
    return DONE


def _let_go_of_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, sys.stdout.fileno())
    except (OSError, AttributeError, ValueError):
        # A stream without a descriptor (embedded, in a test): there is nothing to flush at exit.
        return
    finally:
        os.close(nothing)


if __name__ == "__main__":
    sys.exit(main())
