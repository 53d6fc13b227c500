"""The MCP inspector of the protocol's makers, in its command-line mode, gets its answers.

Long, since it installs packages: the inspector and, where the ``node`` here is too old for it, a
newer one that is a package too. Needs ``npm``.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder import segment_text, write
from surfaces.mcp_kit import command, surroundings
from surfaces.test_mcp_http import Server

from h2ams.surfaces.mcp_tools import TOOLS

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm"),
]
INSPECTOR = "@modelcontextprotocol/inspector"
NODE_MAJOR = 22  # what the inspector needs
START = Path("node_modules") / INSPECTOR / "clients" / "launcher" / "build" / "index.js"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that run the inspector."""
    folder = tmp_path_factory.mktemp("inspector")
    node, packages = shutil.which("node") or "node", [f"{INSPECTOR}@2"]
    if not _is_new_enough(node):
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(platform.machine(), "x64")
        name = f"node-{sys.platform}-{machine}"
        packages.append(f"{name}@{NODE_MAJOR}")
        node = str(folder / "node_modules" / name / "bin" / "node")
    words = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."]
    subprocess.run([*words, *packages], cwd=folder, check=True, timeout=600)
    return [node, str(folder / START), "--cli"]


def _is_new_enough(node: str) -> bool:
    done = subprocess.run([node, "--version"], capture_output=True, encoding="utf-8", check=False)
    found = re.match(r"v(\d+)\.", done.stdout)
    return found is not None and int(found[1]) > NODE_MAJOR


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("inspected") / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs over spaces."))
    write(root, "sessions/other/memory.md", segment_text("s3", "Prefers nothing."))
    return root


@pytest.fixture(scope="module", params=["stdio", "http"])
def asked(request: pytest.FixtureRequest, inspector: list[str], root: Path) -> Iterator[list[str]]:
    """The words that ask a server of session ``s1``, over either transport."""
    if request.param == "stdio":
        program, *rest = command(root, "--session", "s1", "--no-watch")
        # it takes words before its own options only, and no code as a word: a script stands in
        start = root.parent / "server.sh"
        quoted = " ".join("'" + each.replace("'", "'\\''") + "'" for each in (program, *rest))
        start.write_text(f"#!/bin/sh\nexec {quoted}\n", encoding="utf-8")
        start.chmod(0o755)
        yield [*inspector, str(start)]
        return
    server = Server(root, "--session", "s1", "--no-watch")
    header = f"Authorization: Bearer {server.token}"
    yield [*inspector, server.url, "--transport", "http", "--header", header]
    assert server.end()[0] == 0


def ask(asked: list[str], root: Path, *words: str) -> Any:
    done = subprocess.run(
        [*asked, *words],
        cwd=root.parent,
        env=surroundings(root, PATH=os.environ["PATH"]),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_the_inspector_lists_calls_and_reads(asked: list[str], root: Path) -> None:
    tools = ask(asked, root, "--method", "tools/list")["tools"]
    assert [tool["name"] for tool in tools] == list(TOOLS)
    search = ("--method", "tools/call", "--tool-name", "memory_search", "--tool-arg")
    found = ask(asked, root, *search, "query=prefers")
    assert [hit["address"] for hit in found["structuredContent"]["hits"]] == ["user#s1"]
    resources = ask(asked, root, "--method", "resources/list")["resources"]
    assert [each["uri"] for each in resources] == ["h2ams://user/s1"]
    read = ask(asked, root, "--method", "resources/read", "--uri", "h2ams://user/s1")
    assert read["contents"][0]["text"] == "Prefers tabs over spaces."


def test_the_inspector_without_the_token_gets_nothing(inspector: list[str], root: Path) -> None:
    server = Server(root, "--session", "s1", "--no-watch")
    words = [*inspector, server.url, "--transport", "http", "--method", "tools/list"]
    done = subprocess.run(
        words, cwd=root.parent, stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0 and b"memory_search" not in done.stdout + done.stderr
    assert server.end()[0] == 0
