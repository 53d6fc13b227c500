"""What a wrong command line probably meant: hints, made only once a call has failed.

A hint looks at the words themselves, never at the text of an error.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from h2ams.errors import ScopeError, UsageError
from h2ams.memory.scope import check_id, parse_scope

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from h2ams.surfaces.cli_parser import CommandParser

CLOSE = 0.75  # of difflib: a letter or two of an option
WHOLE_SCOPES = ("user", "global")
FAMILIES = {"session": "sessions", "chat": "chat", "vp": "vp", "agent": "agent"}


def add_hint(
    error: UsageError,
    parser: CommandParser,
    words: Sequence[str],
    args: argparse.Namespace | None,
) -> None:
    """Say in the hint of ``error`` what was probably meant by ``words``, where that is clear.

    ``args`` are the parsed words; None where it did not come to that.
    """
    if args is None:
        given = parser.sort_words(words)
        meant = _option(given.options, parser.names()) or _one_text(parser, given.positional)
    else:
        meant = _id_of_scope(args)
        if not meant and isinstance(error, ScopeError):
            meant = _scope_of_id(getattr(args, "scope", None))
    if meant:
        error.hint = meant


def _option(words: Iterable[str], names: Sequence[str]) -> str:
    """``--limt`` for ``--limit``, ``-root`` for ``--root``."""
    for word in words:
        flag = word.partition("=")[0]
        if flag in names:
            continue
        if f"-{flag}" in names and len(flag) > 2:
            return f"did you mean -{flag}?"
        close = get_close_matches(flag, names, n=1, cutoff=CLOSE)
        if close and flag.startswith("--"):
            return f"did you mean {close[0]}?"
    return ""


def _one_text(parser: CommandParser, words: Sequence[str]) -> str:
    """``remember user hi there``: more ``words`` than the command takes, the last one a text."""
    wanted = parser.positionals
    if not wanted or wanted[-1].metavar != "TEXT" or any(each.nargs for each in wanted):
        return ""
    surplus = len(words) > 1 + len(wanted)  # the first one is the command
    return "quote the text: it is one argument" if surplus else ""


def _id_of_scope(args: argparse.Namespace) -> str:
    """``--session sessions/s1`` for ``--session s1``."""
    for name, family in FAMILIES.items():
        value = getattr(args, name, None)
        if not isinstance(value, str):
            continue
        prefix, slash, id = value.partition("/")
        if slash and prefix in (name, family) and _is_id(id):
            return f"did you mean --{name} {id}?"
    return ""


def _scope_of_id(value: object) -> str:
    """``s1`` for ``sessions/s1``, ``usr`` for ``user``."""
    if not isinstance(value, str) or not _is_id(value):
        return ""
    try:
        parse_scope(value)
    except ScopeError:
        whole = get_close_matches(value, WHOLE_SCOPES, n=1, cutoff=CLOSE)
        return f"did you mean {whole[0] if whole else f'sessions/{value}'}?"
    return ""  # it is something else that is wrong


def _is_id(text: str) -> bool:
    try:
        check_id(text)
    except ScopeError:
        return False
    return True
