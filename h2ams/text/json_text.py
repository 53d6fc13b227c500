"""Editing JSON as text: one member comes, changes or goes, every other byte stays (Pure).

Configuration files of other programs carry comments, trailing commas and an order that people care
about. The reader takes JSON, JSONC and JSON5; it gives spans, and the edits splice text at them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_DEPTH = 200

_SPACE = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL)
_TOKEN = re.compile(r"[^\s,:{}\[\]\"'/]+")


class JsonTextError(ValueError):
    """Not JSON in any of its forms; ``line`` is 1-based."""

    def __init__(self, message: str, text: str, at: int) -> None:
        self.line = text.count("\n", 0, at) + 1
        super().__init__(f"line {self.line}: {message}")


@dataclass(frozen=True, slots=True)
class Member:
    """``key`` as read; it begins at ``start``."""

    key: str
    start: int
    value: Node


@dataclass(frozen=True, slots=True)
class Node:
    """One value: ``text[start:end]``. ``members`` of an object, ``items`` of an array.

    ``scalar`` is the text of a string, or the token of anything else.
    """

    kind: str
    start: int
    end: int
    members: tuple[Member, ...] = ()
    items: tuple[Node, ...] = ()
    scalar: str = ""

    def member(self, key: str) -> Member | None:
        """The member ``key``: of several the last, as readers of JSON take it."""
        return next((each for each in reversed(self.members) if each.key == key), None)

    def plain(self) -> object:
        """The value without its place, to compare: pairs for objects, lists for arrays."""
        if self.kind == "object":
            return tuple((each.key, each.value.plain()) for each in self.members)
        if self.kind == "array":
            return [each.plain() for each in self.items]
        return (self.kind, self.scalar)


def read(text: str) -> Node:
    """The value that ``text`` holds. ``JsonTextError``."""
    node = _value(text, _skip(text, 0), 0)
    end = _skip(text, node.end)
    if end != len(text):
        raise JsonTextError("more text behind the value", text, end)
    return node


def _skip(text: str, at: int) -> int:
    """Where the next thing that is no blank and no comment stands."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise JsonTextError("nested too deeply", text, at)
    opening = text[at : at + 1]
    if opening and opening in "{[":
        return _container(text, at, depth, is_object=opening == "{")
    string = _STRING.match(text, at)
    if string is not None:
        return Node("string", at, string.end(), scalar=_unquoted(string[0]))
    token = _TOKEN.match(text, at)
    if token is None:
        raise JsonTextError("a value is missing", text, at)
    return Node("token", at, token.end(), scalar=token[0])


def _container(text: str, start: int, depth: int, *, is_object: bool) -> Node:
    closing = "}" if is_object else "]"
    members: list[Member] = []
    items: list[Node] = []
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        if is_object:
            members.append(_member(text, at, depth))
            at = _skip(text, members[-1].value.end)
        else:
            items.append(_value(text, at, depth + 1))
            at = _skip(text, items[-1].end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise JsonTextError(f"a comma or {closing} is missing", text, at)
    kind = "object" if is_object else "array"
    return Node(kind, start, at + 1, tuple(members), tuple(items))


def _member(text: str, at: int, depth: int) -> Member:
    found = _STRING.match(text, at) or _TOKEN.match(text, at)
    if found is None:
        raise JsonTextError("a key is missing", text, at)
    key = _unquoted(found[0]) if found[0][0] in "\"'" else found[0]
    colon = _skip(text, found.end())
    if text[colon : colon + 1] != ":":
        raise JsonTextError("a colon is missing", text, colon)
    return Member(key, at, _value(text, _skip(text, colon + 1), depth + 1))


def _unquoted(quoted: str) -> str:
    """The text of a string; one that is no JSON string (JSON5 escapes) stands for itself."""
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = re.sub(r'\\.|"', lambda m: {"\\'": "'", '"': '\\"'}.get(m[0], m[0]), inner)
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        return quoted


# -- edits -----------------------------------------------------------------------------------------


def put_member(text: str, path: Sequence[str], key: str, value: object) -> str:
    """``text`` with the member ``key`` of the object at ``path`` set to ``value``.

    Objects on the way that are missing are made. ``JsonTextError`` where something else is there.
    """
    if not text.strip("\ufeff \t\r\n"):
        nested: object = {key: value}
        for name in reversed(path):
            nested = {name: nested}
        return text.strip(" \t\r\n") + json.dumps(nested, indent=2, ensure_ascii=False) + "\n"
    node, done = _descend(text, path)
    rest = [*path[done:], key]
    for name in reversed(rest[1:]):
        value = {name: value}
    return _put(text, node, rest[0], value)


def _descend(text: str, path: Sequence[str]) -> tuple[Node, int]:
    """The deepest object of ``path`` that is there, and how many names of it lead there."""
    node = read(text)
    for done, name in enumerate((*path, None)):
        if node.kind != "object":
            raise JsonTextError("an object is expected here", text, node.start)
        member = None if name is None else node.member(name)
        if member is None:
            return node, done
        node = member.value
    raise AssertionError("the last name has no member")


def _put(text: str, node: Node, key: str, value: object) -> str:
    """``text`` with one member of ``node`` set, in the manner in which the object is written."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit, indent = _indents(text, node)
    existing = node.member(key)
    inline = "\n" not in text[node.start : node.end] and bool(node.members)
    made = json.dumps(value, ensure_ascii=False, indent=None if inline else unit)
    made = made.replace("\n", newline + indent)
    if existing is not None:
        return text[: existing.value.start] + made + text[existing.value.end :]
    member = f"{json.dumps(key, ensure_ascii=False)}: {made}"
    return _added(text, node, member, " " if inline else newline + indent)


def _added(text: str, node: Node, member: str, gap: str) -> str:
    """``text`` with ``member`` as the last one of ``node``, behind ``gap``."""
    close = node.end - 1
    content = len(text[:close].rstrip())
    head, tail = text[:content], text[content:]
    if gap != " " and "\n" not in text[content:close]:  # the brace gets a line of its own
        tail = gap[: gap.index("\n") + 1] + _line_indent(text, node.start) + text[close:]
    if node.members:
        last = node.members[-1].value.end
        if _comma_behind(text, node) is None:
            head = text[:last] + "," + text[last:content]
        elif gap != " ":
            member += ","
    return head + gap + member + tail


def _comma_behind(text: str, node: Node) -> int | None:
    """Where the comma behind the last member stands; None without one."""
    at = _skip(text, node.members[-1].value.end)
    return at if text[at] == "," else None


def _indents(text: str, node: Node) -> tuple[str, str]:
    """One step of indentation, and the indentation of this object's members."""
    outer = _line_indent(text, node.start)
    if node.members and "\n" in text[node.start : node.members[0].start]:
        own = _line_indent(text, node.members[0].start)
        return own.removeprefix(outer) or "  ", own
    root = read(text)
    unit = "  "
    if root.members and "\n" in text[root.start : root.members[0].start]:
        unit = _line_indent(text, root.members[0].start) or unit
    return unit, outer + unit


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def remove_member(text: str, path: Sequence[str], key: str) -> str | None:
    """``text`` without the member ``key`` of the object at ``path``; None where it is not there."""
    node, done = _descend(text, path)
    member = node.member(key) if done == len(path) else None
    if member is None:
        return None
    start, end = member.start, member.value.end
    behind = _skip(text, end)
    has_comma = text[behind] == ","
    if has_comma:
        end = behind + 1
    before = text[:start].rstrip(" \t")
    index = node.members.index(member)
    if before.endswith("\n"):  # a line of its own: its line end goes with it
        start = len(before.removesuffix("\n").removesuffix("\r"))
    elif index:
        start = len(before)
    if has_comma or index == 0:
        return text[:start] + text[end:]
    comma = _skip(text, node.members[index - 1].value.end)
    return text[:comma] + text[comma + 1 : start] + text[end:]
