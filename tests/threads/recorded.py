"""Conversations as the four families really send them: parallel calls, interim results, images,
signed thinking, opaque items, and parts that nobody here knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
)

OPENAI_CHAT: list[dict[str, Any]] = [
    {"role": "developer", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "What is on this screen, and is the build green?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL * 50}"}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_a",
                "type": "function",
                "function": {"name": "read_screen", "arguments": '{"region": "all"}'},
            },
            {
                "id": "call_b",
                "type": "function",
                "function": {"name": "ci_status", "arguments": '{"branch": "main"}'},
            },
        ],
        "refusal": None,
    },
    {"role": "tool", "tool_call_id": "call_b", "content": '{"status": "in_progress"}'},
    {"role": "tool", "tool_call_id": "call_a", "content": "A terminal with pytest output."},
    {"role": "tool", "tool_call_id": "call_b", "content": '{"state": "success", "run": 4711}'},
    {
        "role": "assistant",
        "content": "A terminal; the build is green.",
        "annotations": [],
        "vendor_extra": {"trace": "abc"},
    },
    {"role": "user", "name": "ann", "content": "Thanks."},
]

OPENAI_RESPONSES: list[dict[str, Any]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List files."}]},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "gAAAAABo" + "x" * 400,
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "list_files",
        "arguments": '{"path": "."}',
        "status": "completed",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "a.py\nb.py"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
    {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAAAABo" + "y" * 90},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Two files.", "annotations": []}],
    },
    {"role": "user", "content": "And now the screen."},
    {
        "type": "computer_call",
        "id": "cc_1",
        "call_id": "call_2",
        "action": {"type": "screenshot"},
        "pending_safety_checks": [],
        "status": "completed",
    },
    {
        "type": "computer_call_output",
        "call_id": "call_2",
        "output": {
            "type": "computer_screenshot",
            "image_url": f"data:image/png;base64,{PIXEL * 20}",
        },
    },
    {"type": "some_future_item", "id": "fut_1", "payload": {"a": 1}},
]

ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "Fix the failing test."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Look first.", "signature": "EqQBCgIYAhIM" + "z" * 80},
            {"type": "text", "text": "I will look at both files."},
            {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}},
            {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b.py"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "def a(): ..."},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "is_error": True,
                "content": [{"type": "text", "text": "no such file"}],
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "redacted_thinking", "data": "EmwKAhgB" + "q" * 60},
            {"type": "tool_use", "id": "toolu_3", "name": "run", "input": {"cmd": "pytest -q"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_3",
                "content": [
                    {"type": "text", "text": "1 failed"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": PIXEL * 9},
                    },
                ],
            },
            {"type": "text", "text": "by the way: keep the name of the function"},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Understood."}]},
    {"role": "user", "content": [{"type": "some_future_block", "x": 1}]},
]


@dataclass
class AIMessage:
    """A stand-in with the attributes that LangChain's messages have."""

    content: Any
    type: str = "ai"
    id: str | None = None
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    additional_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class HumanMessage:
    content: Any
    type: str = "human"
    id: str | None = None


@dataclass
class ToolMessage:
    content: Any
    tool_call_id: str
    type: str = "tool"
    name: str | None = None
    status: str = "success"
    id: str | None = None


LANGCHAIN: list[Any] = [
    HumanMessage("Read both files."),
    AIMessage(
        "",
        id="run-1",
        tool_calls=[
            {"name": "read", "args": {"path": "a.py"}, "id": "lc_1", "type": "tool_call"},
            {"name": "read", "args": {"path": "b.py"}, "id": "lc_2", "type": "tool_call"},
        ],
    ),
    ToolMessage("def a(): ...", "lc_1", name="read"),
    ToolMessage("no such file", "lc_2", name="read", status="error"),
    AIMessage([{"type": "text", "text": "One is missing."}], id="run-2"),
    {"type": "human", "data": {"content": "Make it then."}},
]

ALL = {
    "openai-chat": OPENAI_CHAT,
    "openai-responses": OPENAI_RESPONSES,
    "anthropic": ANTHROPIC,
    "langchain": LANGCHAIN,
}
