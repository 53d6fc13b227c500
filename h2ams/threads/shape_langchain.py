"""LangChain's messages by duck typing (Pure): nothing of LangChain is imported.

An object with ``type`` and ``content`` is one, and so is the dictionary ``{"type", "data"}`` that
LangChain itself writes. Stored and read from a store it is that dictionary; a host that wants
objects again gives the engine LangChain's own reader (``revive=messages_from_dict``).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from h2ams.threads.content import opaque_size, read_content, without_images
from h2ams.threads.message import Call, Edits, Message, Result, Role, is_interim
from h2ams.threads.shape_openai import arguments_text

_ROLES: dict[str, Role] = {
    "system": "system", "human": "user", "ai": "assistant", "tool": "tool", "function": "tool",
    "AIMessageChunk": "assistant", "HumanMessageChunk": "user",
}  # fmt: skip
_CHAT_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
_NAMES: dict[Role, str] = {"system": "system", "user": "human", "assistant": "ai", "tool": "tool"}
_FIELDS = (
    "content", "id", "name", "tool_calls", "invalid_tool_calls", "tool_call_id", "status",
    "artifact", "additional_kwargs", "response_metadata", "usage_metadata", "role", "example",
)  # fmt: skip


def is_langchain(original: object) -> bool:
    if isinstance(original, dict):
        return isinstance(original.get("data"), dict) and original.get("type") in (
            *_ROLES,
            "chat",
            "remove",
        )
    kind = getattr(original, "type", None)
    return (
        isinstance(kind, str)
        and (kind in _ROLES or kind == "chat")
        and hasattr(original, "content")
    )


def to_dict(original: Any) -> dict[str, Any]:
    """``{"type", "data"}`` of a message object; a dictionary is what it is."""
    if isinstance(original, dict):
        return original
    dump = getattr(original, "model_dump", None)
    if callable(dump):
        data = dict(dump())
    else:
        data = {
            name: getattr(original, name)
            for name in _FIELDS
            if getattr(original, name, None) is not None
        }
    data.pop("type", None)
    plain: dict[str, Any] = json.loads(json.dumps(data, default=str))
    return {"type": original.type, "data": plain}


class LangChain:
    """Message objects and their dictionaries."""

    def read(self, original: Any) -> Message:
        stored = to_dict(original)
        kind, data = stored["type"], stored["data"]
        role = _ROLES.get(kind, "other")
        if kind == "chat":
            role = _CHAT_ROLES.get(str(data.get("role")), "other")
        content = read_content(data.get("content"), skip=("tool_use", "tool_call"))
        calls = tuple(
            Call(
                str(each.get("id") or ""),
                str(each.get("name", "")),
                arguments_text(each.get("args", {})),
            )
            for each in data.get("tool_calls") or ()
            if isinstance(each, dict)
        )
        results: tuple[Result, ...] = ()
        more = data.get("additional_kwargs")
        more = more if isinstance(more, dict) else {}
        if role == "tool":
            status = data.get("status")
            results = (
                Result(
                    call_id=str(data.get("tool_call_id") or f"function:{data.get('name')}"),
                    text=content.text,
                    interim=bool(more.get("interim")) or is_interim(content.text, status),
                    failed=status == "error",
                    name=str(data.get("name") or ""),
                    status="error" if status == "error" else "",
                ),
            )
        extra = {key: each for key, each in more.items() if key != "tool_calls" and each}
        return Message(
            original=original,
            shape="langchain",
            role=role,
            text="" if role == "tool" else content.text,
            id=str(data.get("id") or ""),
            calls=calls,
            results=results,
            images=tuple(content.images),
            sealed=content.sealed or "reasoning" in extra or "thinking" in extra,
            opaque_chars=content.opaque_chars + (opaque_size(extra) if extra else 0),
        )

    def edit(self, original: Any, edits: Edits) -> Any:
        data = to_dict(original)["data"]
        update: dict[str, Any] = {}
        call_id = str(data.get("tool_call_id") or f"function:{data.get('name')}")
        if call_id in edits.results:
            update["content"] = edits.results[call_id]
        elif edits.image:
            changed = without_images(data.get("content"), edits.image)
            if changed is not data.get("content"):
                update["content"] = changed
        if edits.arguments and data.get("tool_calls"):
            update["tool_calls"] = [
                {**each, "args": json.loads(edits.arguments[each["id"]])}
                if each.get("id") in edits.arguments
                else each
                for each in data["tool_calls"]
            ]
        return _updated(original, update) if update else original

    def make(self, role: Role, text: str) -> dict[str, Any]:
        return {"type": _NAMES.get(role, "human"), "data": {"content": text}}

    def make_results(self, notices: Sequence[tuple[Call, str]]) -> list[dict[str, Any]]:
        return [
            {"type": "tool", "data": {"content": text, "tool_call_id": call.id, "name": call.name}}
            for call, text in notices
        ]

    def without_results(self, original: Any, gone: frozenset[str]) -> None:
        return None


def _updated(original: Any, update: dict[str, Any]) -> Any:
    if isinstance(original, dict):
        return {**original, "data": {**original["data"], **update}}
    model_copy = getattr(original, "model_copy", None)
    if callable(model_copy):
        return model_copy(update=update)
    changed = copy.copy(original)
    for name, value in update.items():
        setattr(changed, name, value)
    return changed
