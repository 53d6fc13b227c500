"""The MCP entry in another program's configuration: put in, taken out, all else untouched (Pure).

Each edit is a text edit, checked afterwards: what the changed text means must be what the old one
meant, with our entry and nothing else different. Where that does not hold the edit is refused, and
a person puts the entry in by hand.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from h2ams.errors import UsageError
from h2ams.text.json_text import JsonTextError, Node, put_member, read, remove_member

TABLE = "mcp_servers"


@dataclass(frozen=True, slots=True)
class Entry:
    """How a host starts the server ``name``."""

    name: str
    command: str
    args: tuple[str, ...]

    def value(self) -> dict[str, object]:
        return {"command": self.command, "args": list(self.args)}


@dataclass(frozen=True, slots=True)
class Form:
    """Where a host keeps its servers: the keys that lead to them in JSON; none for TOML."""

    keys: tuple[str, ...]

    def snippet(self, entry: Entry) -> str:
        """The entry as it would stand in a file of its own."""
        return self.put("", entry)

    def put(self, text: str, entry: Entry) -> str:
        """``text`` with the entry. ``UsageError`` where it cannot be put in without other changes.

        Further keys of an entry that is there already (``env``, …) stay.
        """
        try:
            made = _put_json(text, self.keys, entry) if self.keys else _put_toml(text, entry)
        except (JsonTextError, tomllib.TOMLDecodeError) as error:
            raise _by_hand(str(error)) from error
        return made

    def take(self, text: str, name: str) -> str | None:
        """``text`` without the entry ``name``; None where it is not there."""
        try:
            return _take_json(text, self.keys, name) if self.keys else _take_toml(text, name)
        except (JsonTextError, tomllib.TOMLDecodeError) as error:
            raise _by_hand(str(error)) from error

    def others(self, text: str, name: str) -> object:
        """All that ``text`` says but the entry ``name``: equal where nothing else is different."""
        try:
            if self.keys:
                return _others(text, self.keys, name)
            return _toml_others(tomllib.loads(text), name)
        except (JsonTextError, tomllib.TOMLDecodeError) as error:
            raise _by_hand(str(error)) from error


def _by_hand(why: str) -> UsageError:
    return UsageError(f"the file cannot be changed safely: {why}", hint="put the entry in by hand")


# -- JSON ------------------------------------------------------------------------------------------


def _put_json(text: str, keys: Sequence[str], entry: Entry) -> str:
    value = _kept_json(text, keys, entry.name) | entry.value()
    made = put_member(text, keys, entry.name, value)
    before, after = _others(text, keys, entry.name), _others(made, keys, entry.name)
    if before != after:
        raise _by_hand("other settings would change")
    return made


def _kept_json(text: str, keys: Sequence[str], name: str) -> dict[str, Any]:
    """The members of an entry that is there already, where they are plain JSON."""
    if not text.strip("\ufeff \t\r\n"):
        return {}
    node: Node | None = read(text)
    for key in (*keys, name):
        member = node.member(key) if node is not None else None
        node = member.value if member is not None else None
    if node is None:
        return {}
    try:
        found = json.loads(text[node.start : node.end])
    except (ValueError, RecursionError):
        raise _by_hand("the entry that is there has comments in it") from None
    return found if isinstance(found, dict) else {}


def _take_json(text: str, keys: Sequence[str], name: str) -> str | None:
    if not text.strip("\ufeff \t\r\n"):
        return None
    made = remove_member(text, keys, name)
    if made is not None and _others(text, keys, name) != _others(made, keys, name):
        raise _by_hand("other settings would change")
    return made


def _others(text: str, keys: Sequence[str], name: str) -> object:
    return _without(read(text), keys, name) if text.strip("\ufeff \t\r\n") else ()


def _without(node: Node, keys: Sequence[str], name: str) -> object:
    """What ``node`` says but the entry, and but empty objects on the way to it."""
    if node.kind != "object":
        return node.plain()
    pairs: list[tuple[str, object]] = []
    for member in node.members:
        if keys and member.key == keys[0]:
            inner = _without(member.value, keys[1:], name)
            if inner != ():
                pairs.append((member.key, inner))
        elif keys or member.key != name:
            pairs.append((member.key, member.value.plain()))
    return tuple(pairs)


# -- TOML ------------------------------------------------------------------------------------------


def _put_toml(text: str, entry: Entry) -> str:
    before = tomllib.loads(text)
    _check_table(before)
    newline = "\r\n" if "\r\n" in text else "\n"
    span = _table(text, entry.name) if entry.name in before.get(TABLE, {}) else None
    lines = [f"command = {_toml(entry.command)}", f"args = {_toml(list(entry.args))}"]
    if span is None:  # a table of dotted or inline keys then fails the comparison below
        gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
        header = f"[{TABLE}.{_key(entry.name)}]"
        made = text + gap + newline.join([header, *lines]) + newline
    else:
        old = text[slice(*span)]
        for name, line in zip(("command", "args"), lines, strict=True):
            pattern = re.compile(rf"^{name}[ \t]*=[^\r\n]*", re.M)
            found = pattern.search(old)
            if found is None:
                raise _by_hand(f"{name} of the entry that is there is not on one line")
            old = old[: found.start()] + line + old[found.end() :]
        made = text[: span[0]] + old + text[span[1] :]
    expected = before
    servers = expected.setdefault(TABLE, {})
    servers[entry.name] = {**servers.get(entry.name, {}), **entry.value()}
    if tomllib.loads(made) != expected:
        raise _by_hand("other settings would change")
    return made


def _take_toml(text: str, name: str) -> str | None:
    expected = tomllib.loads(text)
    _check_table(expected)
    if name not in expected.get(TABLE, {}):
        return None
    span = _table(text, name)
    if span is None:
        raise _by_hand("the entry is not a table of its own")
    start, end = span
    head = text[:start]
    if head.strip() and not text[end:].strip():  # the blank line that parted it goes too
        head = re.sub(r"(\r?\n)(?:[ \t]*\r?\n)+\Z", r"\1", head)
    made = head + text[end:]
    if _toml_others(tomllib.loads(made), name) != _toml_others(expected, name):
        raise _by_hand("other settings would change")
    return made


def _check_table(data: dict[str, Any]) -> None:
    servers = data.get(TABLE, {})
    if not isinstance(servers, dict) or not all(
        isinstance(each, dict) for each in servers.values()
    ):
        raise _by_hand(f"{TABLE} is expected to be a table of tables")


def _toml_others(data: dict[str, Any], name: str) -> dict[str, Any]:
    servers = data.get(TABLE, {})
    left = {key: value for key, value in servers.items() if key != name}
    rest = {key: value for key, value in data.items() if key != TABLE}
    return rest | ({TABLE: left} if left else {})


def _table(text: str, name: str) -> tuple[int, int] | None:
    """Span of the table of ``name`` and of the tables below it, to the next other table."""
    own = rf"(?:{re.escape(_key(name))}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    header = re.compile(rf"^[ \t]*\[[ \t]*{TABLE}[ \t]*\.[ \t]*{own}[ \t]*\][^\n]*\n?", re.M)
    headers = list(header.finditer(text))
    if not headers:
        return None
    found = headers[-1]  # an earlier one may be inside of a text
    below = rf"[ \t]*\[[ \t]*{TABLE}[ \t]*\.[ \t]*{own}[ \t]*\."
    following = re.compile(rf"^(?!{below})[ \t]*\[", re.M).search(text, found.end())
    return found.start(), len(text) if following is None else following.start()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _toml(value: object) -> str:
    """A string or a list of strings in TOML, whose basic strings are JSON's but for DEL."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
