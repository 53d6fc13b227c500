"""MCP for tests: the SDK's client over a real process, and a bare process to look at the wire."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from folder import NOW
from mcp import Client, StdioServerParameters
from surfaces.command_line import PROGRAM, environment

from h2ams import Access, Memory
from h2ams.surfaces.mcp_calls import Serving
from h2ams.surfaces.mcp_server import build_server

DEADLINE_S = 30.0
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def command(root: Path, *words: str, program: str = PROGRAM) -> list[str]:
    """``h2ams mcp`` on ``root`` as an argument list, without an encoder to load."""
    known = ["--root", str(root), "--set", "encoding=estimate"]
    return [sys.executable, "-c", program, "mcp", *words, *known]


def surroundings(root: Path, **more: str) -> dict[str, str]:
    return environment(root.parent, H2AMS_NOW=NOW.isoformat(), **more)


@asynccontextmanager
async def client(
    root: Path, *words: str, mode: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    """The SDK's own client on ``h2ams mcp`` in a process of its own."""
    first, *rest = command(root, *words)
    server = StdioServerParameters(
        command=first, args=rest, env=surroundings(root), cwd=root.parent
    )
    async with Client(server, mode=mode, read_timeout_seconds=DEADLINE_S, **options) as found:
        yield found


@asynccontextmanager
async def inside(
    memory: Memory, access: Access | None, *, mode: str = "auto", watch: bool = False
) -> AsyncIterator[Client]:
    """The SDK's client on a server in this process."""
    server = build_server(Serving(memory, access), watch=watch)
    async with Client(server, mode=mode) as found:
        yield found


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test with a deadline."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * DEADLINE_S):
            await test()

    asyncio.run(bounded())


class Wire:
    """A bare stdio server: lines in, lines out."""

    def __init__(self, root: Path, *words: str, program: str = PROGRAM, **more: str) -> None:
        self.process = subprocess.Popen(
            command(root, *words, program=program),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=root.parent,
            env=surroundings(root, **more),
        )
        self.lines: list[bytes] = []

    def send(self, *messages: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        for message in messages:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, id: int) -> dict[str, Any]:
        """The answer to request ``id``; other lines are kept in ``lines`` too."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.lines.append(line)
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == id:
                return message
        raise AssertionError(self.process.stderr and self.process.stderr.read())

    def begin(self) -> None:
        self.send(INITIALIZE)
        self.answer(0)
        self.send(INITIALIZED)

    def end(self) -> tuple[int, bytes, float]:
        """Exit code, standard error and the seconds that the end took after closing its input."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        began = time.monotonic()
        code = self.process.wait(DEADLINE_S)
        took = time.monotonic() - began
        self.lines += self.process.stdout.readlines()
        return code, self._rest(), took

    def _rest(self) -> bytes:
        assert self.process.stderr is not None and self.process.stdout is not None
        text = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        return text


def call(id: int, name: str, **arguments: object) -> dict[str, Any]:
    """A ``tools/call`` message."""
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def alive(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody has collected yet does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return sys.platform != "linux"


def until(true: Callable[[], bool], seconds: float = DEADLINE_S) -> bool:
    """Whether ``true()`` comes to hold within ``seconds``."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
