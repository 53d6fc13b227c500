"""Arguments of the command line (Pure): one argparse parser, built for the one command asked for.

Strategy: words are sorted before argparse sees them. Options may stand anywhere, before the
command too; each option that takes a value is joined with it (``--body=- item``), and what is left
are the positional words, handed over behind ``--``. So a value may begin with a dash, repeated
options add up wherever they stand, and no version of argparse gets to disagree about the rest.
Every option takes exactly one value or none. Abbreviations of options are refused: a script must
not change its meaning because an option was added.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from h2ams.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from h2ams.surfaces.cli_common import Call


class Command(NamedTuple):
    """One command: adds its arguments to a parser, and runs to an exit code.

    ``about`` is what its help says beyond one line: what the arguments alone do not tell.
    """

    configure: Callable[[CommandParser], None]
    run: Callable[[Call], int]
    about: str


class Words(NamedTuple):
    """The words of a call, sorted: ``flags`` holds the names of the options that were seen."""

    options: list[str]
    positional: list[str]
    flags: set[str]

    def for_argparse(self) -> list[str]:
        """The words again, options first. argparse drops a second ``--``, and one that is the value
        of an option: they travel disguised."""
        disguised = [_DISGUISED if word == "--" else word for word in self.positional]
        return [*self.options, "--", *disguised] if disguised else self.options


class CommandParser(argparse.ArgumentParser):
    """A parser that raises ``UsageError`` instead of leaving, and knows its options' arity."""

    def __init__(self, prog: str, description: str = "") -> None:
        super().__init__(prog=prog, description=description, add_help=False, allow_abbrev=False)
        self.options: list[argparse.Action] = []
        self.positionals: list[argparse.Action] = []
        self.words: dict[str, tuple[str, ...]] = {}  # what an argument takes, by destination
        self._takes_value: dict[str, bool] = {}

    def option(
        self,
        *names: str,
        group: argparse._ArgumentGroup | None = None,
        words: Iterable[str] = (),
        **how: object,
    ) -> None:
        """Add an option. ``how`` is what ``add_argument`` takes; its value is one word or none.

        ``words`` are values to offer while a command line is written; others may be good too.
        """
        if how.get("action", "store") in ("store", "append"):
            how["type"] = _undisguised(how.get("type"))
        action = _add(group or self, *names, **how)
        self.words[action.dest] = tuple(words)
        self.options.append(action)
        for name in names:
            self._takes_value[name] = action.nargs != 0

    def positional(self, name: str, *, words: Iterable[str] = (), **how: object) -> None:
        """Add a positional argument; ``how`` and ``words`` as for an option."""
        self.words[name] = tuple(words)
        self.positionals.append(_add(self, name, type=_undisguise, **how))
        shapes = {"?": "[{}]", "*": "[{}…]", "+": "{}…"}
        shown = [
            shapes.get(str(each.nargs), "{}").format(each.metavar) for each in self.positionals
        ]
        self.usage = " ".join([self.prog, "[options]", *shown])

    def names(self) -> tuple[str, ...]:
        """The names of all options."""
        return tuple(self._takes_value)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, hint=f"{self.prog} --help")

    def split_command(self, words: Sequence[str]) -> tuple[list[str], str | None, list[str]]:
        """Options before the command, the command (``None`` without one), and what follows it."""
        at = 0
        while at < len(words) and words[at] != "--":
            if not _looks_like_option(words[at]):
                return list(words[:at]), words[at], list(words[at + 1 :])
            at += 2 if self.wants_next(words[at]) else 1
        return list(words), None, []

    def sort_words(self, words: Sequence[str]) -> Words:
        """Tell options from positional words; everything after ``--`` is positional."""
        sorted_words = Words([], [], set())
        at = 0
        while at < len(words):
            word = words[at]
            at += 1
            if word == "--":
                sorted_words.positional.extend(words[at:])
                break
            if not _looks_like_option(word):
                sorted_words.positional.append(word)
                continue
            sorted_words.flags.add(word.partition("=")[0])
            follower = words[at] if at < len(words) else None
            if self.wants_next(word) and follower is not None and not self._is_option(follower):
                word = f"{word}={follower}" if word.startswith("--") else word + follower
                at += 1
            if _has_dashes_for_value(word):
                word = word[:-2] + _DISGUISED
            sorted_words.options.append("--user=read" if word == "--user" else word)
        return sorted_words

    def _is_option(self, word: str) -> bool:
        return word.partition("=")[0] in self._takes_value

    def wants_next(self, word: str) -> bool:
        """Whether the value of option ``word`` is the next word. ``-vn`` is ``-v -n``."""
        if word == "--user":  # alone it means reading; the value is given only as --user=write
            return False
        if word.startswith("--") or word in self._takes_value:
            return self._takes_value.get(word, False)
        for at, letter in enumerate(word[1:], start=1):
            if self._takes_value.get(f"-{letter}", False):
                return at == len(word) - 1
        return False


_DISGUISED = "\0--"  # no word of a real command line holds a NUL


def _undisguise(word: str) -> str:
    return "--" if word == _DISGUISED else word


def _has_dashes_for_value(word: str) -> bool:
    name, equals, value = word.partition("=")
    return value == "--" if equals or name.startswith("--") else name[2:].endswith("--")


def _undisguised(read: object) -> Callable[[str], object]:
    """``read``, argparse's ``type`` of an option, behind the disguise."""

    def reader(word: str) -> object:
        text = _undisguise(word)
        try:
            return read(text) if callable(read) else text
        except ValueError:  # argparse would show the word in its disguise
            kind = getattr(read, "__name__", "text")
            raise argparse.ArgumentTypeError(f"invalid {kind} value: {text!r}") from None

    return reader


def _add(
    where: argparse.ArgumentParser | argparse._ArgumentGroup, *names: str, **how: object
) -> argparse.Action:
    adder: Callable[..., argparse.Action] = where.add_argument
    return adder(*names, **how)


def whole(text: str) -> int:
    """A whole number of 0 or more: the ``type`` of counts and budgets."""
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def _looks_like_option(word: str) -> bool:
    """Whether a word is an option. No option begins with a digit, and ``"- milk"`` is a list."""
    return len(word) > 1 and word[0] == "-" and not (word[1].isdecimal() or word[1].isspace())


def add_global_options(parser: CommandParser) -> None:
    """The options that every command takes, before the command's name or after it."""
    everywhere = parser.add_argument_group("everywhere")
    parser.option("-h", "--help", action="store_true", group=everywhere, help="show this help")
    parser.option("--root", metavar="DIR", group=everywhere, help="the memory folder")
    parser.option(
        "--json", action="store_true", group=everywhere, help="one JSON document on standard output"
    )
    parser.option("--debug", action="store_true", group=everywhere, help="tracebacks with errors")
    parser.option(
        "-v",
        "--verbose",
        action="count",
        default=0,
        group=everywhere,
        help="log to standard error; twice for more",
    )
    parser.option(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        group=everywhere,
        help="a setting for this call; h2ams config lists them; may be repeated",
    )
    parser.option("--version", action="store_true", group=everywhere, help="show the version")
    _add_access_options(parser)


def _add_access_options(parser: CommandParser) -> None:
    access = parser.add_argument_group(
        "access", "without any of these, the owner: everything is read and written"
    )
    parser.option("--session", metavar="ID", group=access, help="the current session")
    parser.option("--chat", metavar="ID", group=access, help="the current chat")
    parser.option("--vp", metavar="ID", group=access, help="the current role (VP)")
    parser.option("--agent", metavar="ID", group=access, help="the current child agent")
    parser.option(
        "--user",
        metavar="[=read|write]",
        choices=("read", "write"),
        group=access,
        help="the user's own scope; alone it reads",
    )
    parser.option(
        "--no-user",
        dest="user",
        action="store_const",
        const="no",
        group=access,
        help="the user's own scopes stay closed",
    )
    parser.option(
        "--related",
        metavar="ID",
        action="append",
        default=[],
        group=access,
        help="a related session; may be repeated, or several with commas",
    )
    parser.option(
        "--also",
        metavar="SCOPE",
        action="append",
        default=[],
        group=access,
        help="one more scope; may be repeated",
    )
