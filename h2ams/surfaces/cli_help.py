"""The pages of ``h2ams --help`` and ``h2ams COMMAND --help``, with their examples.

Loaded for a help page only, so that no command pays for it. Every example is run by a test, in the
order in which a page shows them.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from h2ams.surfaces.cli import COMMANDS

if TYPE_CHECKING:
    from h2ams.surfaces.cli_parser import Command, CommandParser

WIDTH = 80  # of a page, on a wider terminal too


class Example(NamedTuple):
    """One line for a POSIX shell and what it is for."""

    about: str
    line: str


# heading: the commands below it
GROUPS = {
    "a folder": ("init", "status", "config"),
    "ask": ("recall", "context", "list", "show", "sources", "inspect"),
    "change": ("remember", "edit", "forget"),
    "index and health": ("sync", "rebuild", "watch", "verify", "doctor", "audit"),
    "whole scopes": ("scope", "summary"),
    "conversations": ("thread", "stack", "dream"),
    "other programs": ("import", "export", "mcp", "setup", "completion"),
}
_TABS = "user#seg_69cbf45320386fd8"
_DEPLOYS = "sessions/s1#seg_e3d15840be0fe59b"
_EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "init": (
        ("a new folder", "h2ams init notes"),
        ("what the folder here holds already", "h2ams init"),
    ),
    "status": (
        ("how much there is, and what is wrong", "h2ams status"),
        ("what a session sees of it, for a script", "h2ams status --session s1 --json"),
    ),
    "config": (
        ("every setting with its source", "h2ams config"),
        (
            "one of them, as this call would have it",
            "h2ams config recall_limit_count --set recall_limit_count=5",
        ),
    ),
    "remember": (
        (
            "a preference of the user, with a tag",
            'h2ams remember user "Prefers tabs over spaces." --kind preference \\\n'
            "    --tag editor",
        ),
        (
            "a decision of a session, from standard input",
            'echo "Releases are signed." | h2ams remember sessions/s1 - --kind decision',
        ),
        (
            "what would be written, and from which message",
            'h2ams remember sessions/s1 "Tests run first." --source m7 --dry-run',
        ),
    ),
    "recall": (
        ("a question", 'h2ams recall "when do deploys run?"'),
        ("what a session may see", "h2ams recall deploys --session s1"),
        (
            "words that begin so, decisions only, as JSON",
            "h2ams recall 'deploy*' --kind decision -n 3 --json",
        ),
        ("how each score comes about", "h2ams recall deploys --explain"),
    ),
    "context": (
        (
            "the block for a prompt of a session",
            'h2ams context "may I deploy today?" --session s1 --budget 300',
        ),
        (
            "and why each item is in it or not",
            'h2ams context "may I deploy today?" --session s1 --receipt',
        ),
    ),
    "list": (
        ("everything", "h2ams list"),
        ("one scope, for a script", "h2ams list sessions/s1 --json"),
    ),
    "show": (("all that is known of one segment", f"h2ams show {_TABS}"),),
    "edit": (
        (
            "a new text, shown as a diff first",
            f'h2ams edit {_DEPLOYS} --dry-run \\\n    --body "Deploys run on Monday."',
        ),
        ("another kind, another tag", f"h2ams edit {_DEPLOYS} --kind fact --tag release"),
    ),
    "forget": (
        ("take a segment out", f"h2ams forget {_TABS}"),
        ("bring it back", f"h2ams forget {_TABS} --undo"),
        ("leave no trace of it", f"h2ams forget {_TABS} --purge"),
    ),
    "sources": (("what was learnt from a message", "h2ams sources m1"),),
    "sync": (
        ("all that changed", "h2ams sync"),
        ("one file", "h2ams sync user/memory.md"),
    ),
    "rebuild": (("from nothing", "h2ams rebuild"),),
    "watch": (("until Control-C", "h2ams watch"),),
    "verify": (
        ("exit code 1 where the index is not what the files say", "h2ams verify"),
        ("the same for a script", "h2ams verify --json"),
    ),
    "doctor": (
        ("what is wrong", "h2ams doctor"),
        ("repair what needs no guess; look at it first", "h2ams doctor --fix --dry-run"),
    ),
    "thread": (
        ("begin a conversation of a session", "h2ams thread new t2 --owner sessions/s1"),
        ("add to it", 'h2ams thread append t2 "When do deploys run?" --session s1'),
        (
            "what goes to the model now, with its memory",
            'h2ams thread context t2 "And releases?" --session s1',
        ),
        ("what it holds", "h2ams thread show t2"),
    ),
    "scope": (
        ("all scopes", "h2ams scope list"),
        (
            "what a rename would touch",
            "h2ams scope rename sessions/s1 sessions/deploys --dry-run",
        ),
        ("one scope removed for good", "h2ams scope delete sessions/s1 --yes"),
    ),
    "stack": (
        ("the workflows of a folder", "h2ams stack list"),
        ("what would be compressed", "h2ams stack plan campaign"),
        ("compress where that is due", "h2ams stack compress campaign"),
    ),
    "dream": (
        (
            "what a conversation would leave in memory",
            "h2ams dream run sessions/s1 talk.jsonl --dry-run",
        ),
        ("and really", "h2ams dream run sessions/s1 talk.jsonl"),
        ("the passes so far", "h2ams dream status"),
    ),
    "summary": (
        ("bring one up to date", "h2ams summary refresh sessions/s1"),
        ("read it", "h2ams summary show sessions/s1"),
    ),
    "audit": (
        ("all scopes", "h2ams audit"),
        ("one scope, duplicates united", "h2ams audit user --fix"),
    ),
    "import": (
        ("what would come in", "h2ams import jsonl lines.jsonl --dry-run"),
        ("take it in", "h2ams import jsonl lines.jsonl"),
    ),
    "export": (
        ("one line of JSON a segment", "h2ams export --output memory.jsonl"),
        ("a copy of the Markdown files", "h2ams export --folder copy"),
    ),
    "mcp": (
        ("for a host that starts it, what one session sees", "h2ams mcp --session s1 --user"),
        ("everything, over HTTP on this machine", "h2ams mcp --owner --http"),
    ),
    "inspect": (
        ("everything, on a local page, until interrupted", "h2ams inspect --owner"),
        ("what one session sees, to read only", "h2ams inspect --session s1 --user --port 0"),
        ("edit and forget there too", "h2ams inspect --owner --write --port 0"),
    ),
    "setup": (
        ("what a host's file would say", "h2ams setup claude-code --session s1"),
        ("write it", "h2ams setup cursor --owner --file mcp.json --write"),
        ("take it out again", "h2ams setup cursor --file mcp.json --undo"),
    ),
    "completion": (
        ("bash", "echo 'source <(h2ams completion bash)' >> ~/.bashrc"),
        ("zsh", "echo 'source <(h2ams completion zsh)' >> ~/.zshrc"),
        ("fish", "h2ams completion fish > ~/.config/fish/completions/h2ams.fish"),
    ),
}
EXAMPLES = {
    name: tuple(Example(about, line) for about, line in each) for name, each in _EXAMPLES.items()
}

EXIT_CODES = {
    "0": "done; a search that finds nothing is done too",
    "1": "problems found, failed in part, refused, or not found",
    "2": "usage: the call itself is wrong, nothing was read or changed",
    "130": "interrupted",
    "141": "the reader of the output went away",
}
ENVIRONMENT = {
    "H2AMS_ROOT": "the memory folder, where no --root is given",
    "H2AMS_STATE_DIR": "where index and other state are kept",
    "H2AMS_NAME": "any setting; h2ams config lists them",
    "H2AMS_MODEL": "the language model of dream and summary (none by default)",
    "H2AMS_NOW": "a fixed time in place of the clock",
    "VISUAL, EDITOR": "the editor of h2ams edit",
    "NO_COLOR": "no colour on a terminal either",
}
FILES = {
    "SCOPE/memory.md": "the segments of a scope: the truth, for any editor",
    "SCOPE/summary.md": "what every question about the scope sees",
    ".h2ams/index.db": "the index; it may be deleted and comes back",
    ".h2ams/config.toml": "settings of this folder",
    "h2ams/config.toml": "settings of the user, in the configuration folder",
}


def formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's formatter on a page of at most ``WIDTH`` columns, paragraphs kept apart."""
    import shutil

    width = min(shutil.get_terminal_size().columns - 2, WIDTH)
    return _Paragraphs(prog, width=max(width, 30))


class _Paragraphs(argparse.HelpFormatter):
    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(each, width, indent) for each in text.split("\n\n"))


def command_page(parser: CommandParser, name: str, command: Command) -> str:
    """The page of one command: purpose, description, arguments, options, examples."""
    purpose, about = sentences(name, command)
    parser.description = f"{purpose}\n\n{about}".rstrip()
    own, mark, everywhere = _formatted(parser).partition("\neverywhere:\n")
    examples = "\n\n".join(
        f"  # {each.about}\n  " + each.line.replace("\n", "\n  ") for each in EXAMPLES.get(name, ())
    )
    return (
        f"{own}\nexamples:\n{examples}\n{mark}{everywhere}" if examples else own + mark + everywhere
    )


def sentences(name: str, command: Command) -> tuple[str, str]:
    """What a command is for, in one sentence, and what there is to know beyond that."""
    purpose = COMMANDS[name][1]
    dot = "" if purpose.endswith("…") else "."
    return purpose[:1].upper() + purpose[1:] + dot, " ".join(command.about.split())


def overview(parser: CommandParser) -> str:
    """The page of ``h2ams --help``."""
    width = max(map(len, COMMANDS))
    parser.usage = "h2ams COMMAND [options] …"
    parser.description = (
        "Memory for agents in Markdown files: the files are the truth, the index is derived."
    )
    head, mark, everywhere = _formatted(parser).partition("\neverywhere:\n")
    parts = [head]
    for heading, names in GROUPS.items():
        rows = {name: COMMANDS[name][1] for name in names if name in COMMANDS}
        parts.append(_table(heading, rows, width))
    parts.append((mark + everywhere)[1:])
    parts.append(_table("exit codes", EXIT_CODES))
    parts.append(_table("environment", ENVIRONMENT))
    parts.append(_table("files", FILES))
    first = EXAMPLES["recall"][0]
    parts.append(f"example:\n  # {first.about}\n  {first.line}\n")
    parts.append("h2ams COMMAND --help, or h2ams help COMMAND, describes one command.\n")
    return "\n".join(parts)


def _table(heading: str, rows: dict[str, str], width: int = 0) -> str:
    width = max(width, *map(len, rows))
    return "".join([f"{heading}:\n", *(f"  {key:<{width}}  {rows[key]}\n" for key in rows)])


def _formatted(parser: CommandParser) -> str:
    parser.formatter_class = formatter
    return parser.format_help()
