"""OpenAI's two shapes (Pure): chat messages, and the items of the Responses interface."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from h2ams.threads.content import Content, opaque_size, read_content, without_images
from h2ams.threads.message import Call, Edits, Message, Result, Role, is_interim

_CHAT_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_CHAT_KNOWN = frozenset(
    {"role", "content", "tool_calls", "tool_call_id", "name", "id", "function_call", "refusal"}
    | {"created_at", "status", "interim", "annotations", "audio"}
)


def arguments_text(arguments: object) -> str:
    """Arguments as JSON text, however they were kept."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments, ensure_ascii=False, default=str)


def output_text(output: object) -> Content:
    """A tool's output: text, parts, or any JSON value."""
    if output is None or isinstance(output, str | list | tuple):
        return read_content(output)
    return read_content(json.dumps(output, ensure_ascii=False, default=str))


class Chat:
    """``{"role", "content", "tool_calls" | "tool_call_id"}``."""

    def read(self, original: dict[str, Any]) -> Message:
        role = _CHAT_ROLES.get(str(original.get("role")), "other")
        content = read_content(original.get("content"))
        calls = [_chat_call(each) for each in original.get("tool_calls") or ()]
        old = original.get("function_call")
        if isinstance(old, dict):
            calls.append(
                Call(
                    _function_id(old.get("name")),
                    str(old.get("name", "")),
                    arguments_text(old.get("arguments", "{}")),
                )
            )
        results: tuple[Result, ...] = ()
        if role == "tool":
            results = (_chat_result(original, content.text),)
        refusal = original.get("refusal")
        extra = {key: value for key, value in original.items() if key not in _CHAT_KNOWN and value}
        return Message(
            original=original,
            shape="openai-chat",
            role=role,
            text="" if role == "tool" else content.text or (refusal if refusal else ""),
            id=str(original.get("id") or ""),
            calls=tuple(calls),
            results=results,
            images=tuple(content.images),
            sealed=content.sealed or bool({"reasoning_details", "encrypted_content"} & set(extra)),
            opaque_chars=content.opaque_chars + (opaque_size(extra) if extra else 0),
        )

    def edit(self, original: dict[str, Any], edits: Edits) -> dict[str, Any]:
        changed = dict(original)
        call_id = str(original.get("tool_call_id") or _function_id(original.get("name")))
        if original.get("role") in ("tool", "function") and call_id in edits.results:
            changed["content"] = edits.results[call_id]
        elif edits.image:
            changed["content"] = without_images(original.get("content"), edits.image)
        if edits.arguments and original.get("tool_calls"):
            changed["tool_calls"] = [
                {**each, "function": {**each["function"], "arguments": edits.arguments[each["id"]]}}
                if each.get("id") in edits.arguments and isinstance(each.get("function"), dict)
                else each
                for each in original["tool_calls"]
            ]
        return changed

    def make(self, role: Role, text: str) -> dict[str, Any]:
        return {"role": role, "content": text}

    def make_results(self, notices: Sequence[tuple[Call, str]]) -> list[dict[str, Any]]:
        return [
            {"role": "tool", "tool_call_id": call.id, "content": text} for call, text in notices
        ]

    def without_results(self, original: dict[str, Any], gone: frozenset[str]) -> None:
        return None  # a tool message is nothing but its result


def _function_id(name: object) -> str:
    """Before tool calls had ids there was one function call at a time."""
    return f"function:{name}"


def _chat_call(each: object) -> Call:
    if not isinstance(each, dict):
        return Call("", "", "{}")
    function = each.get("function", each.get("custom"))
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments", function.get("input", "{}"))
    return Call(str(each.get("id") or ""), str(function.get("name", "")), arguments_text(arguments))


def _chat_result(original: dict[str, Any], text: str) -> Result:
    status = original.get("status")
    return Result(
        call_id=str(original.get("tool_call_id") or _function_id(original.get("name"))),
        text=text,
        interim=bool(original.get("interim")) or is_interim(text, status),
        name=str(original.get("name") or ""),
        status=str(status or ""),
    )


# ---------------------------------------------------------------- Responses

_CALLS = frozenset(
    {"function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call"}
    | {"apply_patch_call", "mcp_call"}
)
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "computer_call_output"}
    | {"local_shell_call_output", "shell_call_output", "apply_patch_call_output"}
)


class Responses:
    """One item of ``input`` or ``output``: messages, calls, their outputs, reasoning, others."""

    def read(self, original: dict[str, Any]) -> Message:
        kind = original.get("type", "message")
        if kind in _CALLS:
            return self._call(original)
        if kind in _OUTPUTS:
            return self._output(original)
        if kind == "message" or "role" in original:
            content = read_content(original.get("content"))
            return Message(
                original=original,
                shape="openai-responses",
                role=_CHAT_ROLES.get(str(original.get("role")), "other"),
                text=content.text,
                id=str(original.get("id") or ""),
                images=tuple(content.images),
                sealed=content.sealed,
                opaque_chars=content.opaque_chars,
            )
        return Message(  # reasoning, item_reference, web_search_call, compaction …
            original=original,
            shape="openai-responses",
            role="assistant",
            id=str(original.get("id") or ""),
            sealed=True,
            opaque_chars=opaque_size(original),
            binds_next=kind == "reasoning",
        )

    def _call(self, original: dict[str, Any]) -> Message:
        arguments = original.get("arguments", original.get("input", original.get("action", "{}")))
        done = original.get("type") == "mcp_call"  # carries its own output
        call_id = str(original.get("call_id") or original.get("id") or "")
        call = Call(
            call_id, str(original.get("name") or original.get("type")), arguments_text(arguments)
        )
        results: tuple[Result, ...] = ()
        if done:
            results = (Result(call_id, output_text(original.get("output")).text, name=call.name),)
        return Message(
            original=original,
            shape="openai-responses",
            role="assistant",
            id=str(original.get("id") or ""),
            calls=(call,),
            results=results,
            sealed=done,
        )

    def _output(self, original: dict[str, Any]) -> Message:
        output = original.get("output")
        content = read_content([output] if isinstance(output, dict) else output)
        return Message(
            original=original,
            shape="openai-responses",
            role="tool",
            id=str(original.get("id") or ""),
            results=(
                Result(
                    call_id=str(original.get("call_id") or ""),
                    text=content.text,
                    interim=is_interim(content.text, original.get("status")),
                    status=str(original.get("status") or ""),
                ),
            ),
            images=tuple(content.images),
            opaque_chars=content.opaque_chars,
        )

    def edit(self, original: dict[str, Any], edits: Edits) -> dict[str, Any]:
        changed = dict(original)
        kind = original.get("type", "message")
        call_id = str(original.get("call_id") or original.get("id") or "")
        if kind in _OUTPUTS:
            if call_id in edits.results and kind != "computer_call_output":
                changed["output"] = edits.results[call_id]
            elif edits.image and isinstance(original.get("output"), list):
                changed["output"] = without_images(original["output"], edits.image, "input_text")
        elif kind in _CALLS and call_id in edits.arguments and "arguments" in original:
            changed["arguments"] = edits.arguments[call_id]
        elif edits.image and kind == "message":
            changed["content"] = without_images(original.get("content"), edits.image, "input_text")
        return changed

    def make(self, role: Role, text: str) -> dict[str, Any]:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    def make_results(self, notices: Sequence[tuple[Call, str]]) -> list[dict[str, Any]]:
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text}
            for call, text in notices
        ]

    def without_results(self, original: dict[str, Any], gone: frozenset[str]) -> None:
        return None
