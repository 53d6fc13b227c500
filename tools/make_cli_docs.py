"""Write docs/cli.md from the parsers of the command line; ``--check`` only compares.

    python tools/make_cli_docs.py [--check]

The page is built from what each parser knows, not from its printed help, whose form differs
between versions of Python.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from h2ams.surfaces.cli import COMMANDS, describe_command, load_command
from h2ams.surfaces.cli_help import EXAMPLES, sentences
from h2ams.surfaces.cli_parser import CommandParser, add_global_options

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

_HEAD = """\
# Command line

Written by `tools/make_cli_docs.py` from the parsers; a test holds it to them. What the commands
print as JSON stands in [schemata.md](schemata.md); worked examples are the transcripts in
`tests/transcripts/`, which are run as tests.

## For all commands

- Options stand anywhere, before the command too. An option that takes a value takes the next
  word, whatever it is, unless that is an option itself: then write `--body=--json`. After `--`
  every word is text. Abbreviated options are refused.
- `-` as TEXT, QUERY, MESSAGE_ID or `--body` reads standard input, as UTF-8.
- The root is `--root`, else `H2AMS_ROOT`, else the nearest folder upward that holds `.h2ams/`, else
  `scopes/` here if it exists, else the platform's data folder (`init`: else this folder).
  `H2AMS_STATE_DIR` keeps the index and other state elsewhere.
- With `--json` standard output is one JSON document, whatever happens. An error is the document
  `{"error": {"code", "message", "hint"}}`.
- An error is one line on standard error that says what, where, and what to do, with `--json` too;
  `--debug` puts the traceback before it. Logs (`-v`), notes and progress go to standard error.
  Progress and colour appear only on a terminal; `NO_COLOR` switches colour off.
- Control characters in memory are spelled out (`\\x1b`) where a person reads; `context`, diffs and
  JSON are exact when they are piped.

| exit code | means |
| --- | --- |
| 0 | done; a search that finds nothing is done too |
| 1 | problems found, failed in part (what failed is listed), refused, or not found |
| 2 | usage: the call itself is wrong, nothing was read or changed |
| 130 | interrupted |
| 141 | the reader of the output went away (`h2ams list \\| head`) |

Code 1 is also the code of an edit during which somebody else changed the same segment, where both
texts are kept: there is something to look at.

"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD, "| command | does |\n| --- | --- |\n"]
    parts += [f"| [`{name}`](#{name}) | {text} |\n" for name, (_, text) in COMMANDS.items()]
    everywhere = CommandParser("h2ams")
    add_global_options(everywhere)
    parts.append("\n## Options everywhere\n\nWithout any access option, the owner.\n\n")
    parts.append(_options(everywhere.options))
    parts += [_command(name) for name in COMMANDS]
    return "".join(parts)


def _command(name: str) -> str:
    parser, command = CommandParser("h2ams"), load_command(name)
    describe_command(parser, name, command)
    about = " ".join(sentences(name, command)).rstrip()
    text = f"\n## {name}\n\n`{parser.usage}`\n\n{about}\n"
    rows = [f"| `{each.metavar}` | {_cell(each)} |\n" for each in parser.positionals]
    if rows:
        text += "\n| argument | |\n| --- | --- |\n" + "".join(rows)
    if parser.options:
        text += "\n" + _options(parser.options)
    examples = "\n\n".join(f"# {each.about}\n{each.line}" for each in EXAMPLES[name])
    return f"{text}\n```sh\n{examples}\n```\n"


def _options(options: list[argparse.Action]) -> str:
    rows = []
    for each in options:
        value = f" {each.metavar}" if each.nargs != 0 else ""
        names = ", ".join(f"`{name}{value}`".replace("|", "\\|") for name in each.option_strings)
        rows.append(f"| {names} | {_cell(each)} |\n")
    return "| option | |\n| --- | --- |\n" + "".join(rows)


def _cell(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|")


def main() -> int:
    text = page()
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PAGE} is out of date: run python tools/make_cli_docs.py", file=sys.stderr)
        return 1
    PAGE.write_text(text, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
