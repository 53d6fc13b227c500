"""The memory tool in Anthropic's SDK: its tool runner against a server that plays the API."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from folder import opened, segment_text, write

from h2ams import Access, Memory
from h2ams.anthropic import AsyncMemoryTool, MemoryTool

COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories"},
    {"command": "create", "path": "/memories/progress.md", "file_text": "Step 1 is done.\n"},
    {"command": "create", "path": "/memories/progress.md", "file_text": "Again."},
    {"command": "str_replace", "path": "/memories/progress.md", "old_str": "1", "new_str": "2"},
    {"command": "insert", "path": "/memories/progress.md", "insert_line": 1, "insert_text": "End."},
    {"command": "view", "path": "/memories/progress.md", "view_range": [1, 2]},
    {"command": "rename", "old_path": "/memories/progress.md", "new_path": "/memories/done.md"},
    {"command": "view", "path": "/memories/../../etc/passwd"},
    {"command": "create", "path": "/memories/gone.md", "file_text": "x"},
    {"command": "delete", "path": "/memories/gone.md"},
]
ERRORS = [False, False, True, False, False, False, False, True, False, False]


class Model:
    """Plays the Messages API: asks for one command after the other, then says that it is done."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    def reply(self) -> dict[str, Any]:
        turn = len(self.requests) - 1
        content: list[dict[str, Any]] = [{"type": "text", "text": "All done."}]
        if turn < len(COMMANDS):
            use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "memory"}
            content = [use | {"input": COMMANDS[turn]}]
        return {
            "id": f"msg_{turn}",
            "type": "message",
            "role": "assistant",
            "model": "test-model",
            "content": content,
            "stop_reason": "tool_use" if turn < len(COMMANDS) else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results that the requests carried, each once."""
        found = {
            block["tool_use_id"]: block
            for request in self.requests
            for message in request["messages"]
            if message["role"] == "user" and isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        }
        return [found[f"toolu_{turn}"] for turn in range(len(COMMANDS))]


@contextmanager
def api() -> Iterator[tuple[Model, str]]:
    model = Model()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            model.requests.append(request)
            model.headers.append(dict(self.headers))
            body = json.dumps(model.reply()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    root = tmp_path / "memory"
    write(root, "sessions/s/memory.md", segment_text("s1", "The parser is hand written."))
    write(root, "sessions/other/memory.md", segment_text("s2", "Not for this session."))
    with opened(root) as found:
        yield found


ASK: Any = {
    "model": "test-model",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": "Keep track of your progress."}],
    "betas": ["context-management-2025-06-27"],
}


def check(model: Model, memory: Memory) -> None:
    """What the model was told, and what is on the disk."""
    assert model.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    texts = [_text(result["content"]) for result in model.results]
    assert [bool(result.get("is_error")) for result in model.results] == ERRORS
    assert "/memories/memory.md" in texts[0] and "other" not in texts[0]
    assert texts[1] == "File created successfully at: /memories/progress.md"
    assert texts[2] == "Error: File /memories/progress.md already exists"
    assert texts[3].startswith("The memory file has been edited.\n     1\tStep 2 is done.")
    assert texts[4] == "The file /memories/progress.md has been edited."
    assert texts[5].splitlines()[1:] == ["     1\tStep 2 is done.", "     2\tEnd."]
    assert texts[6] == "Successfully renamed /memories/progress.md to /memories/done.md"
    assert "would escape /memories" in texts[7]
    assert texts[9] == "Successfully deleted /memories/gone.md"
    done = Path(memory.root) / "sessions/s/done.md"
    assert done.read_text("utf-8") == "Step 2 is done.\nEnd.\n"
    assert [hit.record.path for hit in memory.recall("step done").hits] == ["sessions/s/done.md"]
    assert memory.verify().ok


def _text(content: Any) -> str:
    return content if isinstance(content, str) else content[0]["text"]


def test_the_tool_runner_works_through_the_memory_tool(memory: Memory) -> None:
    with api() as (model, url), Anthropic(api_key="test", base_url=url, max_retries=0) as client:
        tool = MemoryTool(memory, access=Access(session="s"), scope="sessions/s")
        assert isinstance(tool, BetaAbstractMemoryTool)
        last = client.beta.messages.tool_runner(tools=[tool], **ASK).until_done()
    assert last.content[0].type == "text" and last.content[0].text == "All done."
    check(model, memory)


def test_the_asynchronous_tool_runner_does_the_same(memory: Memory) -> None:
    async def talk(url: str) -> None:
        async with AsyncAnthropic(api_key="test", base_url=url, max_retries=0) as client:
            tool = AsyncMemoryTool(memory, access=Access(session="s"), scope="sessions/s")
            assert isinstance(tool, BetaAsyncAbstractMemoryTool)
            await client.beta.messages.tool_runner(tools=[tool], **ASK).until_done()

    with api() as (model, url):
        asyncio.run(talk(url))
    check(model, memory)


def test_the_methods_of_the_abstract_tool_run_their_command(memory: Memory) -> None:
    from anthropic.types.beta import (
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818ViewCommand,
    )

    tool = MemoryTool(memory, style="sdk", cache_control={"type": "ephemeral"})
    assert tool.to_dict()["cache_control"] == {"type": "ephemeral"}
    create = BetaMemoryTool20250818CreateCommand(
        command="create", path="/memories/user/n.md", file_text="Note."
    )
    assert tool.create(create) == "File created successfully at: /memories/user/n.md"
    view = BetaMemoryTool20250818ViewCommand(command="view", path="/memories/user/n.md")
    assert tool.view(view).endswith("     1\tNote.")
    assert asyncio.run(AsyncMemoryTool(memory).view(view)).endswith("     1\tNote.")


def test_without_the_sdk_the_module_still_loads_and_says_what_is_missing() -> None:
    program = (
        "import sys\n"
        "sys.modules['anthropic'] = None\n"
        "import h2ams.anthropic as tool\n"
        "assert tool.MemoryCommands\n"
        "from h2ams import ConfigError\n"
        "try:\n"
        "    tool.MemoryTool\n"
        "except ConfigError as error:\n"
        "    print(error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "pip install 'h2ams[anthropic]'\n"), done.stderr


@pytest.mark.parametrize("name", ["MemoryTool", "AsyncMemoryTool"])
def test_the_traceback_of_an_import_without_the_sdk_says_how_to_get_it(name: str) -> None:
    program = f"import sys; sys.modules['anthropic'] = None; from h2ams.anthropic import {name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    told = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert f"{name} needs the package anthropic: pip install 'h2ams[anthropic]'" in told


def test_the_package_itself_loads_no_sdk() -> None:
    program = (
        "import sys, h2ams, h2ams.surfaces.cli, h2ams.anthropic\n"
        "print({'anthropic', 'mcp', 'pydantic', 'starlette'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
