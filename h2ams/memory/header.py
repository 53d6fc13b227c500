"""Reading the lines between two ``---``: is it a header, and what does it say (Pure).

Strategy: three readers, each slower and more tolerant than the one before. ``read_canonical``
matches the writer's exact form with one regular expression and finds its end at the same time;
``_read_simple`` takes one plain ``key: value`` a line; everything else goes through YAML events
with a base loader, where anchors and aliases are refused before anything could be expanded.
Properties in the tests hold the fast readers equal to YAML. Lines that look like a header but fail
as YAML are a header all the same (docs/format.md, "Where a segment begins"): reported, read-only.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from h2ams.memory.values import Problem, clean_text
from h2ams.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = ("id", "scope", "kind", "tags", "sourceMessages", "createdAt", "updatedAt")
LIST_KEYS = frozenset({"tags", "sourceMessages"})
ESCAPED_KEY = "escaped"  # the writer's mark for a protected body
MAX_HEADER_DEPTH_COUNT = 16  # nesting in a header; old source objects need three
CANONICAL_LINES_COUNT = 8
NULL_WORDS = frozenset({"", "~", "null", "Null", "NULL"})


def _and_wide(narrow: str) -> str:
    """A class of the ASCII characters of the class ``narrow`` and of all from U+00A1 on.

    Written by what it leaves out: a class that names characters beyond 255 takes 2 ms to compile.
    """
    inside = re.compile(f"[{narrow}]")
    others = (char for char in map(chr, range(0xA1)) if not inside.match(char))
    return f"[^{''.join(map(_escaped, others))}]"


def _escaped(char: str) -> str:
    return f"\\x{ord(char):02x}"


# What is not read by the fast readers: blanks, line breaks, marks of encodings, halves of pairs.
_ODD = re.compile(
    "[\xad\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ud800-\udfff\ufeff\ufffe\uffff]"
)
_FIRST = _and_wide("A-Za-z0-9_./")
_INNER = "-A-Za-z0-9_./"
BARE_ITEM = f"[{_INNER}]+"
_UNSAFE = "\x00-\x1f\x7f-\xa0"
_ESCAPE = r'\\(?:["\\bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
_QUOTED = rf'"[^"\\{_UNSAFE}]*+(?:{_ESCAPE}[^"\\{_UNSAFE}]*+)*+"'
_ITEM = rf"(?:{BARE_ITEM}|{_QUOTED})"
_LIST = rf"(?:{_ITEM}(?:, {_ITEM})*+)?"
_WORD = rf"{_FIRST}{_and_wide(_INNER + ':')}*+(?<!:)"
_PLAIN = _FIRST + _and_wide(_INNER + ":,;()+=@' ") + "*+"

_CANONICAL = re.compile(
    rf"id: ({_WORD})\r?\nscope: ({_WORD})\r?\nkind: ({_WORD})\r?\n"
    rf"tags: \[({_LIST})\]\r?\nsourceMessages: \[({_LIST})\]\r?\n"
    rf"createdAt: ({_WORD})\r?\nupdatedAt: ({_WORD})\r?\n(escaped: true\r?\n)?---[ \t\r]*+(?:\n|\Z)"
)
_SIMPLE_LINE = re.compile(
    rf"([A-Za-z][A-Za-z0-9_-]*+):(?:[ ]++(?:({_PLAIN})|({_QUOTED})|\[({_LIST})\]))?[ ]*+\r?"
)
_SIMPLE_ITEM = re.compile(rf"( *+)-[ ]++(?:({_PLAIN})|({_QUOTED}))[ ]*+\r?")
_SIMPLE_COMMENT = re.compile(rf"(?:#{_and_wide(' -~')}*+)?\r?")
_ITEMS = re.compile(_ITEM)
_BARE_SCALAR = re.compile(_WORD)

_SEVEN = "|".join(KEYS)
_NAMES_A_KEY = re.compile(rf"(?:\A|[\s{{,'\"?])(?:{_SEVEN})['\"]?\s*+:")
_KEY_AT_LINE = re.compile(rf"^['\"]?(?:{_SEVEN})['\"]?[ \t]*+:(?:[ \t\r]|$)", re.MULTILINE)
_HEADER_LINE = re.compile(r"[ \t#]|-(?:[ \t\r]|$)|[\w\"'.][\w\"'. /-]{0,127}:(?:[ \t\r]|$)")


@dataclass(frozen=True, slots=True)
class Header:
    """What a header says. Values are text, ``None`` (null or empty), lists or mappings of text.

    ``problems`` count lines from 0 at the header's first line after ``---``. ``read_only`` is the
    reason why the engine must not rewrite these lines, or empty.
    """

    values: dict[str, object] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    escaped: bool = False
    problems: tuple[Problem, ...] = ()
    read_only: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One YAML value with its place: ``start`` and ``end`` are offsets in the header's text."""

    shape: str  # "scalar" "list" "map"
    style: str  # scalars: "" (plain) or the quote or block sign; others: "flow" or "block"
    text: str
    items: tuple[Node, ...]  # of a map: key, value, key, value …
    start: int
    end: int


class HeaderFault(Exception):
    """Private signal: the text is no YAML that is read here. ``code`` as in ``Problem``."""

    def __init__(self, code: str, message: str, line: int) -> None:
        super().__init__(message)
        self.code, self.message, self.line = code, message, line


def read_canonical(text: str, at: int) -> re.Match[str] | None:
    """The writer's exact form at ``at``, its closing ``---`` included; groups in key order."""
    found = _CANONICAL.match(text, at)
    return None if found is None or _is_odd(found[0]) else found


def is_bare_scalar(text: str) -> bool:
    """Whether YAML reads ``text`` as that text without any quotes."""
    return _BARE_SCALAR.fullmatch(text) is not None and not _is_odd(text)


def _is_odd(text: str) -> bool:
    return not text.isascii() and _ODD.search(text) is not None


def list_items(text: str) -> tuple[str, ...]:
    """Items of a canonical flow list, given what stands between its brackets."""
    if not text:
        return ()
    if '"' not in text:
        return tuple(text.split(", "))
    return tuple(
        item if item[0] != '"' else item[1:-1] if "\\" not in item else json.loads(item)
        for item in _ITEMS.findall(text)
    )


def read_header(region: str, settings: Settings) -> Header | None:
    """The header in ``region`` (the lines between two ``---``), or ``None``: a thematic break."""
    over = _over_limit(region, settings)
    if over is not None:
        return _refused(over) if looks_like_header(region) else None
    if not _NAMES_A_KEY.search(region):
        return None
    values = read_simple(region, settings)
    if values is None:
        # A line that is no header's can only be YAML inside quotes or a flow collection.
        may_be_yaml = has_header_lines(region) or any(sign in region for sign in "[{\"'?")
        return read_yaml(region, settings) if may_be_yaml else None
    return _header(values) if any(name in KEYS for name in values) else None


def looks_like_header(region: str) -> bool:
    """Whether the lines have a header's shape and one names a known key."""
    return has_header_lines(region) and _KEY_AT_LINE.search(region) is not None


def has_header_lines(region: str) -> bool:
    """Whether every line that is not blank is ``key: …``, ``- …``, indented or a comment."""
    at = 0
    while at < len(region):  # no split: prose of megabytes between two rules ends at its first line
        end = region.find("\n", at)
        end = len(region) if end < 0 else end
        if not _HEADER_LINE.match(region, at, end) and region[at:end].strip():
            return False
        at = end + 1
    return True


def starts_with_key(text: str, at: int) -> bool:
    """Whether the line at ``at`` begins with one of the seven keys."""
    return _KEY_AT_LINE.match(text, at) is not None


def read_yaml(region: str, settings: Settings) -> Header | None:
    """``read_header`` by YAML events alone, without limits on lines and bytes."""
    try:
        root, aliases = compose(region)
    except HeaderFault as fault:
        if not looks_like_header(region):
            return None
        return _refused(Problem(fault.code, fault.message, fault.line))
    if root is None or root.shape != "map":
        return None
    names = [key.text for key in root.items[::2] if key.shape == "scalar"]
    if not any(name in KEYS for name in names):
        return None
    if aliases is not None:
        return _refused(aliases)
    return _from_mapping(root, region, settings)


def compose(text: str) -> tuple[Node | None, Problem | None]:
    """The single YAML document in ``text`` and the first anchor or alias in it, if any.

    An alias stands as an empty scalar: nothing is ever expanded. ``HeaderFault`` for what is not
    YAML, more than one document, or too deep nesting.
    """
    import yaml  # late: 15 ms that canonical files do not need

    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        return _build(yaml.parse(clean_text(text), Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        line = min(mark.line, text.count("\n")) if mark is not None else 0
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise HeaderFault("invalid-yaml", f"not YAML: {reason}", line) from error
    except ValueError as error:  # an escape beyond Unicode
        raise HeaderFault("invalid-yaml", f"not YAML: {error}", 0) from error


def to_value(node: Node) -> object:
    """Plain text, tuples and dicts of a node; a plain null stays text below the first level."""
    if node.shape == "scalar":
        return node.text
    if node.shape == "list":
        return tuple(to_value(item) for item in node.items)
    pairs = zip(node.items[::2], node.items[1::2], strict=True)
    return {key.text: to_value(value) for key, value in pairs}


def to_values(root: Node) -> dict[str, object] | None:
    """Values of a mapping by key, plain nulls as ``None``; ``None`` for what is no mapping."""
    if root.shape != "map":
        return None
    pairs = zip(root.items[::2], root.items[1::2], strict=True)
    return {key.text: None if is_null(value) else to_value(value) for key, value in pairs}


def is_null(node: Node) -> bool:
    """Whether a value says nothing: empty, ``~`` or ``null`` without quotes."""
    return node.shape == "scalar" and not node.style and node.text in NULL_WORDS


def _build(events: Iterator[Any]) -> tuple[Node | None, Problem | None]:
    """Nodes from events, with a stack of its own: depth is bounded, aliases are not followed."""
    open_nodes: list[tuple[Any, list[Node]]] = []
    roots: list[Node] = []
    aliases: Problem | None = None
    for event in events:
        name = type(event).__name__
        if aliases is None and getattr(event, "anchor", None) is not None:
            aliases = Problem(
                "yaml-alias", "anchors and aliases are not read", event.start_mark.line
            )
        node: Node | None = None
        if name in ("ScalarEvent", "AliasEvent"):
            node = Node(
                "scalar",
                (getattr(event, "style", "") or "").strip(":"),
                clean_text(getattr(event, "value", "")),
                (),
                event.start_mark.index,
                event.end_mark.index,
            )
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            open_nodes.append((event, []))
            if len(open_nodes) > MAX_HEADER_DEPTH_COUNT:
                raise HeaderFault(
                    "over-limit",
                    f"MAX_HEADER_DEPTH_COUNT: nested deeper than {MAX_HEADER_DEPTH_COUNT}",
                    event.start_mark.line,
                )
        elif name in ("MappingEndEvent", "SequenceEndEvent"):
            start, items = open_nodes.pop()
            shape = "map" if name == "MappingEndEvent" else "list"
            flow = "flow" if start.flow_style else "block"
            end = event.end_mark.index if start.flow_style or not items else items[-1].end
            node = Node(shape, flow, "", tuple(items), start.start_mark.index, end)
        if node is not None:
            (open_nodes[-1][1] if open_nodes else roots).append(node)
    if len(roots) > 1:
        raise HeaderFault("invalid-yaml", "more than one YAML document", 0)
    return (roots[0] if roots else None), aliases


def _from_mapping(root: Node, region: str, settings: Settings) -> Header:
    values: dict[str, object] = {}
    problems: list[Problem] = []
    read_only = ""
    for key, value in zip(root.items[::2], root.items[1::2], strict=True):
        line = region.count("\n", 0, key.start)
        name = key.text
        if name in values:
            problems.append(Problem("repeated-key", f"{name} occurs again: the last counts", line))
            read_only = f"the key {name} is repeated"
        size = _longest(name, value) if name in KEYS else 0
        if size > settings.max_scalar_chars:
            message = f"max_scalar_chars: {name} has {size}, limit {settings.max_scalar_chars}"
            return _refused(Problem("over-limit", message, line))
        values[name] = None if is_null(value) else to_value(value)
    return _header(values, tuple(problems), read_only)


def _header(
    values: dict[str, object], problems: tuple[Problem, ...] = (), read_only: str = ""
) -> Header:
    known = {name: value for name, value in values.items() if name in KEYS}
    unknown = tuple(name for name in values if name not in KEYS and name != ESCAPED_KEY)
    escaped = str(values.get(ESCAPED_KEY)).lower() == "true"
    return Header(known, unknown, escaped, problems, read_only)


def _longest(name: str, value: Node) -> int:
    """Chars of the longest scalar that would count. Raw source text never does: not measured."""
    if name == "sourceMessages":
        return 0
    if value.shape == "scalar":
        parts = value.text.split(",") if name in LIST_KEYS else [value.text]
        return max(map(len, parts))
    return max((len(item.text) for item in value.items), default=0)


def read_simple(region: str, settings: Settings) -> dict[str, object] | None:
    """Values of one ``key: value`` or ``- item`` a line, in characters that YAML takes as such.

    ``None`` where any line is anything else: then YAML has to read it.
    """
    if _is_odd(region):
        return None
    values: dict[str, object] = {}
    items: tuple[str, list[object], str] | None = None  # key, items, indent of an open list
    for line in region.removesuffix("\n").split("\n"):
        if len(line) > settings.max_scalar_chars:
            return None
        match = _SIMPLE_LINE.fullmatch(line)
        if match is None:
            item = _SIMPLE_ITEM.fullmatch(line)
            if item is not None and items is not None and (not items[1] or item[1] == items[2]):
                value = _simple_value(item[2], item[3])
                if value is None:
                    return None
                items = (items[0], [*items[1], value], item[1])
                values[items[0]] = tuple(items[1])
                continue
            if _SIMPLE_COMMENT.fullmatch(line):
                items = None
                continue
            return None
        name, plain, quoted, inside = match.groups()
        if name in values:
            return None
        if inside is not None:
            values[name] = list_items(inside)
        else:
            value = _simple_value(plain, quoted)
            if plain is not None and value is None:
                return None
            values[name] = None if quoted is None and value in NULL_WORDS else value
        items = (name, [], "") if plain is quoted is inside is None else None
    return values


def _simple_value(plain: str | None, quoted: str | None) -> str | None:
    """The text of a scalar; ``None`` for one left out, or that YAML would read otherwise."""
    if quoted is not None:
        return str(json.loads(quoted))
    if plain is None:
        return None
    plain = plain.rstrip(" ")
    return None if ": " in plain or plain[-1] == ":" else plain


def _over_limit(region: str, settings: Settings) -> Problem | None:
    lines_count = region.count("\n")
    if lines_count > settings.max_header_lines:
        size, limit, name = lines_count, settings.max_header_lines, "max_header_lines"
    elif len(region) * 4 <= settings.max_header_bytes:
        return None
    else:
        size = len(region.encode("utf-8", "surrogateescape"))
        limit, name = settings.max_header_bytes, "max_header_bytes"
        if size <= limit:
            return None
    return Problem("over-limit", f"{name}: the header has {size}, limit {limit}", 0)


def _refused(problem: Problem) -> Header:
    """A header that counts as one but says nothing: its body is read with defaults."""
    return Header({}, (), False, (problem,), f"its header is not read ({problem.code})")
