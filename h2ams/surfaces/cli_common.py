"""What every command gets: its arguments, its output, the engine, the access.

Strategy: nothing of the engine is imported before a command asks for it, so ``--help`` and usage
errors cost one argument parser.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from h2ams.errors import AccessError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from h2ams.engine import Memory
    from h2ams.memory.access import Access
    from h2ams.surfaces.cli_parser import CommandParser
    from h2ams.surfaces.output import Output

    Opener = Callable[..., Memory]

DONE = 0
PROBLEMS = 1  # something was found to be wrong, failed in part, or is not there


class Call:
    """One call of one command. ``args`` holds what the parser of that command produced."""

    def __init__(
        self, args: argparse.Namespace, output: Output, *, opener: Opener | None = None
    ) -> None:
        self.args: Any = args
        self.output = output
        self._opener = opener

    def of(self, args: argparse.Namespace) -> Call:
        """The same call with other arguments."""
        return Call(args, self.output, opener=self._opener)

    def open(self, root: str | None = None, *, create: bool = False) -> Memory:
        """The memory of this call; ``root`` in place of ``--root`` where a command names it."""
        opener = self._opener
        if opener is None:
            from h2ams.engine import Memory

            opener = Memory.open
        root = self.args.root if root is None else root
        return opener(root, create=create, overrides=self.flags())

    def flags(self) -> dict[str, str]:
        """Settings given as ``--set NAME=VALUE``."""
        flags: dict[str, str] = {}
        for each in self.args.set:
            name, equals, value = each.partition("=")
            if not equals:
                raise UsageError(f"--set {each}: no value", hint="--set NAME=VALUE")
            flags[name.strip().replace("-", "_")] = value.strip()
        return flags

    def access(self) -> Access | None:
        """The access that the flags describe; ``None``, the owner, without any."""
        args = self.args
        names = (args.session, args.chat, args.vp, args.agent, args.user)
        if all(each is None for each in names) and not (args.related or args.also):
            return None
        from h2ams.memory.access import Access

        def text(word: str | None, what: str) -> str | None:
            return None if word is None else checked_text(word, what)

        return Access(
            session=text(args.session, "--session"),
            chat=text(args.chat, "--chat"),
            vp=text(args.vp, "--vp"),
            agent=text(args.agent, "--agent"),
            user=False if args.user == "no" else args.user,
            related_sessions=tuple(split_commas(args.related, "--related")),
            scopes=tuple(split_commas(args.also, "--also")),
        )

    def owner_only(self, what: str) -> None:
        """Refuse a command that an access other than the owner's must not run."""
        if self.access() is not None:
            raise AccessError(
                f"{what} works on the whole folder: it is the owner's",
                hint="leave the access flags out",
            )

    def text(self, word: str, what: str) -> str:
        """The text that ``word`` gives: itself, or all of standard input for ``-``."""
        if word == "-":
            return read_stdin(what)
        return checked_text(word, what)


def serving_access(call: Call, command: str) -> Access | None:
    """What a server may show, fixed when it starts: nobody gets everything by saying nothing.

    ``UsageError`` without access flags and without ``--owner``, and with both.
    """
    access = call.access()
    if access is None and not call.args.owner:
        raise UsageError(
            f"{command} needs to know what it may show",
            hint="give access flags (--session, --chat, --vp, --user …), or --owner for everything",
        )
    if access is not None and call.args.owner:
        raise UsageError("--owner goes with no access flag", hint="leave one of them out")
    return access


def checked_text(word: str, what: str) -> str:
    """``word`` as text. Bytes that the locale could not decode came as lone surrogates: they are
    read as UTF-8 (a locale without any characters beyond ASCII), or refused.
    """
    if word.isascii():
        return word
    try:
        return os.fsencode(word).decode("utf-8") if _is_broken(word) else word
    except UnicodeError:
        raise UsageError(f"{what} is not valid UTF-8", hint="give it in UTF-8") from None


def _is_broken(word: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in word)


def read_stdin(what: str) -> str:
    """All of standard input as UTF-8, a byte order mark left out."""
    binary = getattr(sys.stdin, "buffer", None)
    if binary is None:  # replaced by an embedding program or a test
        return checked_text(sys.stdin.read(), what)
    data: bytes = binary.read()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{what} from standard input is not UTF-8 (byte {error.start})", hint="give it in UTF-8"
        ) from None


def split_commas(values: Iterable[str], what: str) -> list[str]:
    """The parts of all ``values``; for names that cannot hold a comma."""
    parts = [part.strip() for value in values for part in checked_text(value, what).split(",")]
    return [part for part in parts if part]


def add_query(parser: CommandParser) -> None:
    """The positional query of ``recall`` and ``context``: several words are one query."""
    parser.positional(
        "query", metavar="QUERY", nargs="+", help="words, in any language; - reads standard input"
    )


def query_text(call: Call) -> str:
    words: Sequence[str] = call.args.query
    return call.text(" ".join(words), "the query").strip("\r\n")


def add_dry_run(parser: CommandParser) -> None:
    """``--dry-run``."""
    parser.option(
        "--dry-run", action="store_true", help="show the change as a unified diff, write nothing"
    )


def add_force(parser: CommandParser) -> None:
    """``--force``: write to a file with bytes that are not UTF-8."""
    parser.option(
        "--force", action="store_true", help="also in a file that is not UTF-8; its bytes are kept"
    )


def add_expect(parser: CommandParser, condition: str) -> None:
    """``--expect``: a write under a condition."""
    parser.option("--expect", metavar="SHA256", help=f"write only if {condition}")


def tell_empty(call: Call, found: Sequence[object], what: str) -> None:
    """For a person, where nothing was found: a command that prints nothing looks broken."""
    if not found and not call.output.json:
        call.output.note(f"no {what}")


def counted(count: int, word: str, several: str = "") -> str:
    """``1 file``, ``2 files``; ``several`` where the plural is not the word with an s."""
    return f"{count} {word}" if count == 1 else f"{count} {several or f'{word}s'}"
