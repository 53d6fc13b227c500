"""Anthropic's messages (Pure): a role and blocks; results of tools travel in user messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from h2ams.threads.content import read_content, without_images
from h2ams.threads.message import Call, Edits, Message, Result, Role, is_interim
from h2ams.threads.shape_openai import arguments_text

_CALLS = frozenset({"tool_use"})  # server_tool_use and mcp_tool_use carry their results with them
_RESULTS = frozenset({"tool_result"})
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}


def _blocks(content: object) -> list[dict[str, Any]]:
    if not isinstance(content, list | tuple):
        return []
    return [each for each in content if isinstance(each, dict)]


class Anthropic:
    """``{"role", "content": text | blocks}``."""

    def read(self, original: dict[str, Any]) -> Message:
        raw = original.get("content")
        content = read_content(raw, skip=_CALLS | _RESULTS)
        calls, results = [], []
        for block in _blocks(raw):
            if block.get("type") in _CALLS:
                calls.append(
                    Call(
                        str(block.get("id") or ""),
                        str(block.get("name", "")),
                        arguments_text(block.get("input", {})),
                    )
                )
            elif block.get("type") in _RESULTS:
                inner = read_content(block.get("content"))
                content.images += inner.images
                content.opaque_chars += inner.opaque_chars
                results.append(
                    Result(
                        call_id=str(block.get("tool_use_id") or ""),
                        text=inner.text,
                        interim=is_interim(inner.text, block.get("status")),
                        failed=bool(block.get("is_error")),
                        status="error" if block.get("is_error") else "",
                    )
                )
        return Message(
            original=original,
            shape="anthropic",
            role=_ROLES.get(str(original.get("role")), "other"),
            text=content.text,
            id=str(original.get("id") or ""),
            calls=tuple(calls),
            results=tuple(results),
            images=tuple(content.images),
            sealed=content.sealed,
            opaque_chars=content.opaque_chars,
        )

    def edit(self, original: dict[str, Any], edits: Edits) -> dict[str, Any]:
        if not isinstance(original.get("content"), list | tuple):
            return original
        return {**original, "content": [_edited(each, edits) for each in original["content"]]}

    def make(self, role: Role, text: str) -> dict[str, Any]:
        return {"role": role, "content": text}

    def make_results(self, notices: Sequence[tuple[Call, str]]) -> list[dict[str, Any]]:
        blocks = [
            {"type": "tool_result", "tool_use_id": call.id, "content": text}
            for call, text in notices
        ]
        return [{"role": "user", "content": blocks}]

    def without_results(
        self, original: dict[str, Any], gone: frozenset[str]
    ) -> dict[str, Any] | None:
        """The message without results whose call is gone; what a person said in it stays."""
        kept = [
            each
            for each in original["content"]
            if not (
                isinstance(each, dict)
                and each.get("type") in _RESULTS
                and str(each.get("tool_use_id") or "") in gone
            )
        ]
        return {**original, "content": kept} if kept else None


def _edited(block: object, edits: Edits) -> object:
    if not isinstance(block, dict):
        return block
    if block.get("type") in _RESULTS:
        call_id = str(block.get("tool_use_id") or "")
        if call_id in edits.results:
            return {**block, "content": edits.results[call_id]}
        if edits.image:
            return {**block, "content": without_images(block.get("content"), edits.image)}
        return block
    if block.get("type") in _CALLS and str(block.get("id") or "") in edits.arguments:
        import json

        return {**block, "input": json.loads(edits.arguments[str(block["id"])])}
    if edits.image:
        found = without_images([block], edits.image)
        return found[0] if isinstance(found, list) else block
    return block
