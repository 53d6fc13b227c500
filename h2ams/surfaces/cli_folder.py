"""``init``, ``status``, ``config``: the folder itself."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from h2ams.surfaces import cli_shapes
from h2ams.surfaces.cli_common import DONE, Call
from h2ams.surfaces.cli_parser import Command, CommandParser

if TYPE_CHECKING:
    from h2ams.surfaces.cli_shapes import Document
    from h2ams.upkeep.status import Status


def _configure_init(parser: CommandParser) -> None:
    parser.positional(
        "dir",
        metavar="DIR",
        nargs="?",
        help="without it, the root as for all commands; at last this folder",
    )


def _init(call: Call) -> int:
    """Make the folder where it is missing. One that exists keeps every byte of its files."""
    from h2ams.config import resolve_new_root

    place = resolve_new_root(call.args.root if call.args.dir is None else call.args.dir)
    created = not os.path.lexists(place)
    with call.open(place, create=True) as memory, call.output.working("reading"):
        status = memory.status(access=call.access())
    call.output.line("created " if created else "found ", (status.root, "address"))
    _print_status(call, status)
    call.output.document(_status_document(status) | {"created": created})
    return DONE


def _configure_status(parser: CommandParser) -> None:
    """``status`` takes no arguments of its own."""


def _status(call: Call) -> int:
    with call.open() as memory, call.output.working("reading"):
        status = memory.status(access=call.access())
    _print_status(call, status)
    call.output.document(_status_document(status))
    return DONE


def _print_status(call: Call, status: Status) -> None:
    line = call.output.line
    index = status.index
    line(("root      ", "dim"), status.root)
    line(("state     ", "dim"), status.state)
    line(("scopes    ", "dim"), str(status.scopes))
    line(("segments  ", "dim"), str(status.segments))
    line(("notes     ", "dim"), str(status.notes))
    line(("tokens    ", "dim"), str(status.tokens))
    fresh = ("fresh", "good") if index.fresh else ("not up to date", "bad")
    line(("index     ", "dim"), fresh, f"  {index.path}")
    line(("digest    ", "dim"), index.digest or "none")
    for each in status.degraded:
        line(("degraded  ", "bad"), f"{each.code}: {each.message}")
    for found in status.problems:
        line(("problem   ", "bad"), *cli_shapes.problem_line(found))


def _status_document(status: Status) -> Document:
    return {
        "root": status.root,
        "state": status.state,
        "scopes": status.scopes,
        "segments": status.segments,
        "notes": status.notes,
        "tokens": status.tokens,
        "index": {
            "path": status.index.path,
            "fresh": status.index.fresh,
            "digest": status.index.digest,
        },
        "problems": cli_shapes.problems(status.problems),
        "degraded": cli_shapes.degraded(status.degraded),
    }


def _configure_config(parser: CommandParser) -> None:
    from dataclasses import fields

    from h2ams.settings import Settings

    names = [each.name for each in fields(Settings)]
    parser.positional("name", metavar="NAME", nargs="?", words=names, help="only this setting")


def _config(call: Call) -> int:
    """Each value with where it came from: flag, environment, a file, or the default."""
    call.owner_only("config")
    from h2ams.config import resolve_root, resolve_settings
    from h2ams.settings import parse_setting

    root = resolve_root(call.args.root)
    settings, sources = resolve_settings(root, call.flags())
    values = asdict(settings)
    if call.args.name is not None:
        name = call.args.name.replace("-", "_")
        if name not in values:
            parse_setting(name, "")  # raises: says that it is unknown, and what to do
        values = {name: values[name]}
    width = max(map(len, values))
    call.output.line((f"{'root':<{width}}  ", "dim"), root)
    for name, value in values.items():
        source = sources.get(name, "default")
        call.output.line(f"{name:<{width}}  ", (str(value), "strong"), (f"  {source}", "dim"))
    described = {
        name: {"value": value, "source": sources.get(name, "default")}
        for name, value in values.items()
    }
    call.output.document({"root": root, "settings": described})
    return DONE


_ABOUT_INIT = """
A folder that exists keeps every byte of its files: nothing is written into them. Apart from
remember, no other command makes a missing folder.
"""
_ABOUT_STATUS = """
With access flags every count covers the scopes that this access may read. Problems in files are
part of the description: the exit code is 0 (doctor's is not).
"""
_ABOUT_CONFIG = """
Flags come before the environment (H2AMS_ and the name in capitals), the folder's
.h2ams/config.toml, the user's configuration, and the defaults. For the owner only.
"""

COMMANDS = {
    "init": Command(_configure_init, _init, _ABOUT_INIT),
    "status": Command(_configure_status, _status, _ABOUT_STATUS),
    "config": Command(_configure_config, _config, _ABOUT_CONFIG),
}
