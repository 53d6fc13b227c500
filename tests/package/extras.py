"""What shows that an extra is there, and what is said where it is not.

A probe uses the extra as its users do, in an environment that has nothing but that extra, on the
folder ``notes`` that remembers an automobile in a garage.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from package.distribution import DEADLINE_S, Environment, surroundings

NOTES = ("--root", "notes")


@dataclass(frozen=True, slots=True)
class Asked:
    """Words of a call that needs an extra, and the exit code without it."""

    words: tuple[str, ...]
    code: int = 1
    python: bool = False


def _mcp(made: Environment, home: Path, _: str) -> None:
    begin = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "probe", "version": "1"},
    }
    search = {"name": "memory_search", "arguments": {"query": "garage"}}
    messages = [
        {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": search},
    ]
    with subprocess.Popen(
        [made.program, "mcp", "--owner", "--no-watch", *NOTES],
        cwd=home,
        env=surroundings(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        for message in messages:
            server.stdin.write(json.dumps(message) + "\n")
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
        assert server.wait(DEADLINE_S) == 0
    assert answers[0]["result"]["serverInfo"]["name"] == "h2ams"
    assert "automobile" in answers[1]["result"]["structuredContent"]["hits"][0]["preview"]
    with _serving(made, home, "mcp", "--http", "--owner") as url:
        assert url.endswith("/mcp")


@contextmanager
def _serving(made: Environment, home: Path, *words: str) -> Iterator[str]:
    """A command that serves HTTP on a free port: its address, until it is told to end."""
    with subprocess.Popen(
        [made.program, *words, "--port", "0", *NOTES],
        cwd=home,
        env=surroundings(home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        seen, address = "", None
        while address is None:
            line = process.stdout.readline()  # nothing more comes where the process has ended
            assert line, seen
            seen += line
            address = re.search(r"http://127\.0\.0\.1:\d+[^\s;]*", seen)
        try:
            yield address[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0


def _semantic(made: Environment, home: Path, _: str) -> None:
    ask = ("recall", "vehicle", *NOTES)
    plain = made.run(*ask, cwd=home)
    assert plain.returncode == 0 and plain.stdout == ""
    found = made.run(*ask, "--set", "semantic=true", cwd=home)
    assert found.returncode == 0 and "automobile" in found.stdout, found.stderr
    assert "pip install" not in found.stderr


def _anthropic(made: Environment, home: Path, _: str) -> None:
    code = """
from anthropic.lib.tools import BetaAbstractMemoryTool
from h2ams import Memory
from h2ams.anthropic import MemoryTool
with Memory.open("notes") as memory:
    tool = MemoryTool(memory)
    assert isinstance(tool, BetaAbstractMemoryTool)
    print(tool.call({"command": "view", "path": "/memories/user/memory.md"}))
"""
    done = made.run("-W", "error", "-c", code, cwd=home, python=True)
    assert done.returncode == 0 and "automobile" in done.stdout, done.stderr


def _postgres(made: Environment, home: Path, server: str) -> None:
    for words in (("new", "t1"), ("append", "t1", "hello there")):
        done = made.run("thread", *words, "--store", server, *NOTES, cwd=home)
        assert done.returncode == 0, done.stderr
    shown = made.run("thread", "show", "t1", "--store", server, *NOTES, cwd=home)
    assert shown.returncode == 0 and "hello there" in shown.stdout
    missing = made.run("stack", "show", "game", "--store", server, *NOTES, cwd=home)
    assert missing.returncode == 1 and "pip install" not in missing.stderr


def _inspect(made: Environment, home: Path, _: str) -> None:
    with _serving(made, home, "inspect", "--owner") as url, urllib.request.urlopen(url) as page:
        assert page.status == 200 and "<html" in page.read().decode("utf-8")


PROBES: dict[str, Callable[[Environment, Path, str], None]] = {
    "mcp": _mcp,
    "semantic": _semantic,
    "anthropic": _anthropic,
    "postgres": _postgres,
    "inspect": _inspect,
}
_IMPORT = """
import sys
from h2ams import H2amsError
try:
    from h2ams.anthropic import MemoryTool
except H2amsError as error:
    sys.exit(f"{error} ({error.hint})")
"""
_SERVER = "postgresql:///none"
MISSING: dict[str, tuple[Asked, ...]] = {
    "mcp": (
        Asked(("mcp", "--owner", *NOTES)),
        Asked(("mcp", "--owner", "--http", "--port", "0", *NOTES)),
    ),
    # without vectors there is an answer by words, and a note
    "semantic": (Asked(("recall", "One", "--set", "semantic=true", *NOTES), code=0),),
    "anthropic": (Asked(("-c", _IMPORT), python=True),),
    "postgres": (
        Asked(("thread", "list", "--store", _SERVER, *NOTES), code=2),
        Asked(("stack", "show", "game", "--store", _SERVER, *NOTES), code=2),
    ),
    "inspect": (Asked(("inspect", "--owner", "--port", "0", *NOTES)),),
}
