"""Reported faults of MCP servers, and what is right here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases.kit import cli, cli_ids
from folder import opened, segment_text, write
from surfaces.command_line import PROGRAM
from surfaces.mcp_kit import Wire, alive, call, client, command, run, surroundings, until

from h2ams import Access, Settings
from h2ams.surfaces.mcp_calls import Serving
from h2ams.surfaces.mcp_tools import call_tool

# What a dependency, a plugin and a careless thread do, from the first import of the SDK on.
NOISY = f"""
import os, sys, threading, time, warnings
def noise():
    while "mcp.server" not in sys.modules:
        time.sleep(0.0005)
    for number in range(300):
        print("plugin", number, flush=True)
        os.write(1, b"banner v1.2.3\\n")
        warnings.warn("a dependency warns")
        os.system("echo from a child")
        time.sleep(0.002)
threading.Thread(target=noise, daemon=True).start()
{PROGRAM}
"""


def test_k62_every_line_on_standard_output_is_json_rpc(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."), "---\nid: x\ntags: [\n---\n")
    wire = Wire(root, "--owner", "-vv", program=NOISY, PYTHONWARNINGS="always")
    wire.begin()
    wire.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert wire.answer(1)["result"]["tools"]
    for number in range(2, 12):
        wire.send(call(number, "memory_search", query="tabs"))
        assert "s1" in json.dumps(wire.answer(number))
    wire.send(call(12, "memory_add", scope="user", text="More."))
    wire.answer(12)
    code, errors, _ = wire.end()
    assert code == 0
    for line in wire.lines:
        assert json.loads(line)["jsonrpc"] == "2.0"
    for noise in (b"plugin 1", b"banner v1.2.3", b"a dependency warns", b"from a child", b"DEBUG"):
        assert noise in errors


CHILDREN = f"""
import subprocess, sys, threading, time
def children():
    while "mcp.server" not in sys.modules:
        time.sleep(0.0005)
    for number in range(20):
        done = subprocess.run([sys.executable, "-S", "-c", "print(len(input()))"], timeout=30)
        print("child ended", done.returncode, file=sys.stderr, flush=True)
threading.Thread(target=children, daemon=True).start()
{PROGRAM}
"""


def test_k146_a_child_process_neither_hangs_nor_takes_a_part_of_the_protocol(
    tmp_path: Path,
) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    wire = Wire(root, "--owner", program=CHILDREN)
    wire.begin()
    for number in range(1, 40):
        wire.send(call(number, "memory_search", query="tabs"))
        assert "s1" in json.dumps(wire.answer(number))
    code, errors, took = wire.end()
    assert code == 0 and took <= 3
    assert b"child ended 1" in errors and b"EOFError" in errors
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in wire.lines)


@pytest.mark.parametrize("how", ["input closed", "SIGTERM", "SIGINT"])
def test_k64_the_server_ends_with_its_client_and_the_last_write_is_whole(
    tmp_path: Path, how: str
) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    wire = Wire(root, "--owner")
    wire.begin()
    wire.send(call(1, "memory_status"))
    wire.answer(1)
    wire.send(*(call(n, "memory_add", scope="user", text=f"Text {n}. " * 50) for n in range(2, 12)))
    if how != "input closed":
        wire.process.send_signal(getattr(signal, how))
        began = time.monotonic()
        assert wire.process.wait(30) == 0
        took = time.monotonic() - began
    code, _, closing = wire.end()
    assert code == 0
    assert (closing if how == "input closed" else took) <= 3
    with opened(root, settings=Settings(encoding="estimate", lock_timeout_ms=1)) as memory:
        memory.remember("user", "The locks are free.")
        for record in memory.list("user"):
            number = record.body.partition(" ")[2].partition(".")[0]
            whole = f"Text {number}. " * 50
            assert record.body in (whole, "Prefers tabs.", "The locks are free.")
        assert memory.verify().ok
    assert not list(root.rglob("*.tmp"))


@pytest.mark.skipif(sys.platform != "linux", reason="a process table is needed")
def test_k64_the_server_ends_when_its_parent_is_killed_though_its_input_stays_open(
    tmp_path: Path,
) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    starts = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen(sys.argv[1:])\n"
        "print(child.pid, file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starts, *command(root, "--owner")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=surroundings(root),
        cwd=tmp_path,
    )
    assert parent.stdin and parent.stdout and parent.stderr
    server = int(parent.stderr.readline())
    parent.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "ping"}).encode() + b"\n")
    parent.stdin.flush()
    assert parent.stdout.readline()  # it serves, its watch is on its way
    assert alive(server)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(30)
    assert until(lambda: not alive(server), 3)
    for stream in (parent.stdin, parent.stdout, parent.stderr):
        stream.close()


def test_k142_ten_long_hits_stay_within_the_cap_and_are_read_on_demand(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    bodies = [f"apple {number} " + f"filler{number} " * 2_700 for number in range(10)]
    texts = [segment_text(f"s{number}", body[:20_000]) for number, body in enumerate(bodies)]
    write(root, "user/memory.md", *texts)

    async def test() -> None:
        async with client(root, "--owner") as host:
            result = await host.call_tool("memory_search", {"query": "apple", "limit": 10})
            found = (result.structured_content or {})["hits"]
            assert len(found) == 10
            for hit in found:
                assert hit["id"] and hit["preview"] and hit["truncated"] is True
                assert 19_900 < hit["length"] <= 20_000
            with opened(root, settings=Settings()) as memory:
                whole = memory.tokens.count(result.model_dump_json(by_alias=True))
                assert whole <= 25_000
                for hit in found[:2]:
                    body, offset = "", 0
                    while offset is not None:
                        given = {"address": hit["address"], "offset": offset}
                        answer = await host.call_tool("memory_get", given)
                        shown = answer.structured_content or {}
                        body, offset = body + shown["body"], shown["next_offset"]
                    assert body == memory.get(hit["address"]).body

    run(test)


def test_k78_a_text_over_the_limit_is_refused_through_mcp_with_all_sizes(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "x" * 100))
    small = Settings(encoding="estimate", max_segment_chars=4_000)
    before = (root / "user/memory.md").read_bytes()
    with opened(root, settings=small) as memory:
        serving = Serving(memory, None)
        added = call_tool(serving, "memory_add", {"scope": "user", "text": "y" * 4_001})
        changed = call_tool(serving, "memory_update", {"address": "user#s1", "text": "y" * 4_001})
    for outcome in (added, changed):
        assert outcome.is_error
        assert "4001 chars" in outcome.text and "max_segment_chars is 4000" in outcome.text
    assert "it is 100 now" in changed.text
    assert (root / "user/memory.md").read_bytes() == before


def test_k83_a_server_shows_its_own_scope_or_nothing_never_everything(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "sessions/a/memory.md", segment_text("S1", "the parser is hand written"))
    write(root, "sessions/b/memory.md", segment_text("S2", "something else"))
    assert cli(root, "mcp").code == 2

    async def test() -> None:
        async with client(root, "--session", "b") as host:
            for given in ({"scopes": ["sessions/a"]}, {"scopes": ["sessions/b"]}, {}):
                result = await host.call_tool("memory_search", {"query": "parser", **given})
                assert (result.structured_content or {})["hits"] == []
        async with client(root, "--session", "a") as host:
            result = await host.call_tool("memory_search", {"query": "parser"})
            through_mcp = [hit["id"] for hit in (result.structured_content or {})["hits"]]
        with opened(root) as memory:
            found = memory.recall("parser", access=Access(session="a")).hits
        through_cli = cli_ids(root, "parser", "--session", "a")
        assert through_mcp == through_cli == [hit.record.id for hit in found] == ["S1"]

    run(test)
