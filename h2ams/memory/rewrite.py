"""Writing header lines, and changing single values among lines that a person wrote (Pure).

Strategy: new headers have the writer's exact form. In an existing header only the text of values
that changed is replaced, at the places that YAML's own marks give; items of a list that stay keep
their spelling. Where that cannot be done the header is written anew and every old line that would
be lost stays as a comment. The caller reads the result back before it trusts it.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence

from h2ams.errors import LimitError
from h2ams.memory import header as headers
from h2ams.memory import values
from h2ams.memory.header import HeaderFault, Node
from h2ams.settings import Settings

Value = str | tuple[str, ...]

_BARE_ITEM = re.compile(headers.BARE_ITEM)
_MUST_ESCAPE = re.compile("[\x7f-\xa0\xad\u2028\u2029\ufeff\ufffe\uffff]")


def scalar(text: str) -> str:
    """A value as the writer spells it: bare where YAML reads it as it is, else a JSON string."""
    if not text or (headers.is_bare_scalar(text) and text not in headers.NULL_WORDS):
        return text
    return _quoted(text)


def flow_list(items: Sequence[str]) -> str:
    """A list as the writer spells it: ``[a, "b c"]``."""
    return "[" + ", ".join(_item(item) for item in items) + "]"


def canonical_lines(facts: Mapping[str, Value], settings: Settings) -> list[str]:
    """The writer's header lines, in the order of ``facts``; ``LimitError`` over a limit."""
    lines = []
    for key, value in facts.items():
        _check_scalars(key, value, settings)
        written = scalar(value) if isinstance(value, str) else flow_list(value)
        lines.append(f"{key}: {written}" if written else f"{key}:")
    return lines


def check_header(region: str, settings: Settings) -> None:
    """``LimitError`` where header lines would not be read back because of their size."""
    size = region.count("\n")
    if size > settings.max_header_lines:
        raise _limit("max_header_lines", settings.max_header_lines, size)
    size = len(region.encode("utf-8", "surrogateescape"))
    if size > settings.max_header_bytes:
        raise _limit("max_header_bytes", settings.max_header_bytes, size)


def change(region: str, changes: Mapping[str, Value | None], newline: str) -> str | None:
    """``region`` with the values in ``changes``; ``None`` as a value removes the key's line.

    Everything else stays byte for byte. ``None`` where the lines cannot be changed one by one.
    """
    try:
        root, aliases = headers.compose(region)
    except HeaderFault:
        return None  # the caller writes the header anew
    if root is None or root.shape != "map" or root.style == "flow" or aliases is not None:
        return None
    splices: list[tuple[int, int, str]] = []
    added: list[str] = []
    for key, value in changes.items():
        pairs = [pair for pair in _pairs(root) if pair[0].text == key]
        if len(pairs) > 1:
            return None
        if pairs:
            splice = _splice(region, key, pairs[0], value, newline)
            if splice is None:
                return None
            splices.append(splice)
        elif value is not None:
            written = scalar(value) if isinstance(value, str) else flow_list(value)
            added.append(f"{key}: {written}" if written else f"{key}:")
    for start, end, text in sorted(splices, reverse=True):
        region = region[:start] + text + region[end:]
    return region + "".join(line + newline for line in added)


def anew(region: str, lines: Sequence[str], newline: str) -> str:
    """``lines`` in place of ``region``; old lines that say something else stay as comments."""
    kept = []
    for line in region.split("\n"):
        line = line.removesuffix("\r")
        if line.strip() and line not in lines:
            kept.append(line if line.startswith("#") else "# " + line)
    return "".join(line + newline for line in (*lines, *kept))


def _pairs(root: Node) -> list[tuple[Node, Node]]:
    return list(zip(root.items[::2], root.items[1::2], strict=True))


def _splice(
    region: str, name: str, pair: tuple[Node, Node], value: Value | None, newline: str
) -> tuple[int, int, str] | None:
    """Where to put which text so that the key of ``pair`` has ``value``."""
    key, old = pair
    colon = region.find(":", key.end)
    if colon < 0:
        return None
    if value is None:
        end = region.find("\n", old.end) + 1
        return (key.start, end, "") if end and region.count("\n", key.start, end) == 1 else None
    if old.shape == "list" and old.style == "block" and not isinstance(value, str):
        return _block_list(region, name, (colon, old), value, newline)
    if isinstance(value, str):
        text = scalar(value)
    elif (
        old.shape == "scalar"
        and values.read_sources(old.text).left_out_count
        and (name == "sourceMessages")
    ):
        return None  # raw text that would be lost
    else:
        text = _merged_flow(region, name, old, value)
    if old.shape != "scalar" and (old.style == "block" or isinstance(value, str)):
        return None
    if old.start == old.end:
        return (colon + 1, colon + 1, " " + text) if text else (colon, colon, "")
    return old.start, old.start + len(region[old.start : old.end].rstrip()), text


def _merged_flow(region: str, name: str, old: Node, value: tuple[str, ...]) -> str:
    """A flow list: items that stay keep their text, so do items that name nothing readable."""
    items = old.items if old.shape == "list" else (old,) if old.shape == "map" else ()
    spelled = [(_reading(name, item), region[item.start : item.end]) for item in items]
    known = {reading: text for reading, text in reversed(spelled) if reading is not None}
    texts = [known.get(item) or _item(item) for item in value]
    texts += [text for reading, text in spelled if reading is None and text]
    return "[" + ", ".join(texts) + "]"


def _block_list(
    region: str, name: str, place: tuple[int, Node], value: tuple[str, ...], newline: str
) -> tuple[int, int, str] | None:
    """A list with one item a line: lines of items that stay are kept, comments too."""
    colon, old = place
    starts = _item_lines(region, old)
    if starts is None:
        return None
    first = starts[0]
    last = len(region[: old.end].rstrip())
    end = region.find("\n", last) + 1 or len(region)
    borders = [*starts, end]
    chunks = [region[a:b] for a, b in itertools.pairwise(borders)]
    readings = [_reading(name, item) for item in old.items]
    indent = region[first : old.start]
    kept: dict[str, str] = {}
    rest: list[str] = []
    for reading, chunk in zip(readings, chunks, strict=True):
        if reading is None:
            rest.append(chunk)
        elif reading in value and reading not in kept:
            kept[reading] = chunk
        else:
            lines = chunk.splitlines(keepends=True)
            rest += [line for line in lines if line.lstrip().startswith("#")]
    texts = [kept.get(item) or f"{indent}- {_item(item)}{newline}" for item in value] + rest
    if value or any(reading is None for reading in readings):
        return first, end, "".join(texts)
    return colon + 1, end, " []" + region[colon + 1 : first] + "".join(texts)


def _item_lines(region: str, old: Node) -> list[int] | None:
    """Offsets of the lines on which the items of a block list begin."""
    first = region.rfind("\n", 0, old.start) + 1
    if region[first : old.start].strip(" "):
        return None  # on the key's own line
    dash = re.compile(rf"^ {{{old.start - first}}}-(?=[ \t\r\n]|\Z)", re.MULTILINE)
    starts = [first]
    for before, item in zip(old.items, old.items[1:], strict=False):
        found = dash.search(region, max(before.end, starts[-1] + 1), item.start)
        if found is None:
            return None
        starts.append(found.start())
    return starts


def _reading(name: str, item: Node) -> str | None:
    """What an item of a list counts as, or ``None`` where it names nothing."""
    if name == "sourceMessages":
        return values.source_id(headers.to_value(item))
    tags = values.clean_tags((headers.to_value(item),))
    return tags[0] if tags else None


def _item(text: str) -> str:
    return text if _BARE_ITEM.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    escaped = json.dumps(text, ensure_ascii=False)
    return _MUST_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", escaped)


def _check_scalars(key: str, value: Value, settings: Settings) -> None:
    size = len(value) if isinstance(value, str) else max(map(len, value), default=0)
    if size > settings.max_scalar_chars:
        raise _limit("max_scalar_chars", settings.max_scalar_chars, size, key)


def _limit(name: str, limit: int, size: int, key: str = "header") -> LimitError:
    return LimitError(f"{key}: {size} is over {name} ({limit})", name=name, limit=limit, size=size)
