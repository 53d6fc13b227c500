"""From what a host has to a ``Message``, and back (Pure): which shape an object has.

A message that says nothing but a role and a text is the same in OpenAI chat and Anthropic; it is
read as the shape that the caller names, or as OpenAI chat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from h2ams.errors import UsageError
from h2ams.threads.message import Call, Edits, Message, Role, Shape
from h2ams.threads.shape_anthropic import Anthropic
from h2ams.threads.shape_langchain import LangChain, is_langchain, to_dict
from h2ams.threads.shape_openai import Chat, Responses

_ANTHROPIC_BLOCKS = frozenset(
    {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use", "document"}
    | {"mcp_tool_use", "mcp_tool_result", "web_search_tool_result", "search_result"}
)
_RESPONSES_PARTS = frozenset({"input_text", "output_text", "input_image", "input_file"})


class ShapeReader(Protocol):
    """What each shape can do; ``edit`` never changes its argument."""

    def read(self, original: Any) -> Message: ...
    def edit(self, original: Any, edits: Edits) -> Any: ...
    def make(self, role: Role, text: str) -> Any: ...
    def make_results(self, notices: Sequence[tuple[Call, str]]) -> list[Any]: ...
    def without_results(self, original: Any, gone: frozenset[str]) -> Any: ...


_READERS: dict[Shape, ShapeReader] = {
    "openai-chat": Chat(),
    "openai-responses": Responses(),
    "anthropic": Anthropic(),
    "langchain": LangChain(),
}
SHAPES: tuple[Shape, ...] = tuple(_READERS)
MOST_LEVELS = 100  # of lists and objects inside of one message


def reader(shape: Shape) -> ShapeReader:
    """The reader of ``shape``."""
    return _READERS[shape]


def detect(original: Any, default: Shape = "openai-chat") -> Shape:
    """The shape of one message; ``UsageError`` where it is none."""
    if is_langchain(original):
        return "langchain"
    if not isinstance(original, dict):
        raise UsageError(
            f"not a message: {type(original).__name__}",
            hint="give a dictionary with role and content, a Responses item or a LangChain message",
        )
    if "type" in original and original["type"] not in (None, "message", "custom"):
        return "openai-responses"
    if "role" not in original:
        raise UsageError("not a message: no role and no type", hint="see docs/threads.md, Messages")
    if original.get("tool_calls") or original["role"] in ("tool", "function", "developer"):
        return "openai-chat"
    content = original.get("content")
    kinds = (
        {each.get("type") for each in content if isinstance(each, dict)}
        if isinstance(content, list | tuple)
        else set()
    )
    if kinds & _RESPONSES_PARTS:
        return "openai-responses"
    if kinds & _ANTHROPIC_BLOCKS or _has_source(content):
        return "anthropic"
    if original.get("type") == "message" and default == "openai-chat":
        return "openai-responses"
    return default if default != "langchain" else "openai-chat"


def _has_source(content: object) -> bool:
    return isinstance(content, list | tuple) and any(
        isinstance(each, dict) and each.get("type") == "image" and "source" in each
        for each in content
    )


def read(original: Any, shape: Shape | None = None, default: Shape = "openai-chat") -> Message:
    """``original`` as a message; a text alone is a user's message in ``default``.

    Objects of an SDK that dump themselves (``model_dump``) are read as what they dump.
    ``UsageError`` for more than ``MOST_LEVELS`` of lists and objects in it.
    """
    if isinstance(original, Message):
        return original
    if isinstance(original, str):
        original = reader(shape or default).make("user", original)
    elif not isinstance(original, dict) and not is_langchain(original):
        dump = getattr(original, "model_dump", None)
        if callable(dump):
            original = dump(exclude_none=True)
    _check_levels(original)
    found = shape or detect(original, default)
    return reader(found).read(original)


def edit(message: Message, edits: Edits) -> Message:
    """``message`` with other results, arguments or images; a sealed one is returned as it is."""
    if message.sealed or not edits:
        return message
    changed = reader(message.shape).edit(message.original, edits)
    again = reader(message.shape).read(changed)
    return replace(again, id=message.id)


def make(shape: Shape, role: Role, text: str) -> Message:
    """A message of the engine's own in ``shape``."""
    return reader(shape).read(reader(shape).make(role, text))


def _check_levels(value: object) -> None:
    """``UsageError`` for more than ``MOST_LEVELS``: how deep a reader of JSON may go depends on
    where it is called, and what was stored once must be readable everywhere."""
    layer = [value]
    for _ in range(MOST_LEVELS):
        layer = [inner for each in layer for inner in _inside(each)]
        if not layer:
            return
    raise UsageError(
        f"a message that is nested in more than {MOST_LEVELS} levels", hint="give it as text"
    )


def _inside(value: object) -> list[object]:
    """The containers directly in ``value``."""
    found: Iterable[object] = ()
    if isinstance(value, dict):
        found = value.values()
    elif isinstance(value, list | tuple):
        found = value
    return [each for each in found if isinstance(each, dict | list | tuple)]


def stored(message: Message) -> Any:
    """The original as JSON can hold it; ``UsageError`` where it cannot."""
    original = to_dict(message.original) if message.shape == "langchain" else message.original
    try:
        _check_levels(original)
        return json.loads(json.dumps(original, ensure_ascii=False))
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a message that JSON cannot hold: {error}", hint="give plain dictionaries"
        ) from error
