"""The MCP server over standard input and output, spoken to by the SDK's own client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from cases.kit import cli
from folder import age, opened, segment_text, write
from mcp import MCPDeprecationWarning, MCPError
from surfaces.mcp_kit import Wire, call, client, inside, run

from h2ams import Access
from h2ams.surfaces.cli import main
from h2ams.surfaces.mcp_tools import TOOLS

MODES = ["auto", "legacy"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs over spaces."))
    write(root, "sessions/s/memory.md", segment_text("s2", "The parser is hand written."))
    write(root, "sessions/other/memory.md", segment_text("s3", "The parser is generated."))
    return root


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_is_described_with_schemas_and_annotations(root: Path, mode: str) -> None:
    async def test() -> None:
        with opened(root) as memory:
            async with inside(memory, None, mode=mode) as host:
                tools = {tool.name: tool for tool in (await host.list_tools()).tools}
                assert list(tools) == list(TOOLS)
                for name, tool in tools.items():
                    assert tool.title and tool.description
                    assert tool.input_schema["additionalProperties"] is False
                    assert tool.output_schema == TOOLS[name].gives
                    hints = tool.annotations
                    assert hints is not None and hints.open_world_hint is False
                    assert hints.idempotent_hint is True
                    writes = name in ("memory_add", "memory_update", "memory_delete")
                    assert hints.read_only_hint is not writes
                    assert hints.destructive_hint is (name in ("memory_update", "memory_delete"))
                assert host.instructions and "memory_context" in host.instructions

    run(test)


@pytest.mark.parametrize("mode", MODES)
def test_a_memory_is_added_found_read_changed_and_forgotten(root: Path, mode: str) -> None:
    async def test() -> None:
        async with client(root, "--owner", mode=mode) as host:

            async def ask(name: str, **arguments: Any) -> Any:
                result = await host.call_tool(name, arguments)
                assert not result.is_error, result.content
                return result.structured_content

            added = await ask("memory_add", scope="user", text="Drinks tea.", kind="preference")
            assert added["created"] is True
            hits = (await ask("memory_search", query="tea"))["hits"]
            assert [hit["address"] for hit in hits] == [added["address"]]
            shown = await ask("memory_get", address=added["address"])
            assert shown["body"] == "Drinks tea."
            await ask("memory_update", address=added["address"], text="Drinks coffee.")
            assert "coffee" in (root / "user/memory.md").read_text("utf-8")
            assert (await ask("search", query="coffee"))["results"][0]["id"] == added["address"]
            assert (await ask("fetch", id=added["address"]))["text"] == "Drinks coffee."
            block = await ask("memory_context", query="coffee", budget=200)
            assert "Drinks coffee." in block["text"]
            await ask("memory_delete", address=added["address"])
            assert "coffee" not in (root / "user/memory.md").read_text("utf-8")
            assert (await ask("memory_status"))["segments"] == 3
            wrong = await host.call_tool("memory_get", {"address": added["address"]})
            assert wrong.is_error
            with pytest.raises(MCPError):
                await host.call_tool("nonsense", {})

    run(test)


@pytest.mark.parametrize("mode", MODES)
def test_segments_are_resources(root: Path, mode: str) -> None:
    async def test() -> None:
        with opened(root) as memory:
            async with inside(memory, Access(session="s"), mode=mode) as host:
                listed = {each.uri: each for each in (await host.list_resources()).resources}
                assert set(listed) == {"h2ams://user/s1", "h2ams://sessions/s/s2"}
                (content,) = (await host.read_resource("h2ams://user/s1")).contents
                assert isinstance(content, types.TextResourceContents)
                assert content.text == "Prefers tabs over spaces."
                (template,) = (await host.list_resource_templates()).resource_templates
                assert template.uri_template == "h2ams://{+scope}/{id}"
                for uri in (
                    "h2ams://sessions/other/s3",
                    "h2ams://../user/s1",
                    "h2ams://%2e%2e/user/s1",
                    "h2ams://user/../../etc/passwd",
                    "file:///etc/passwd",
                    "h2ams://user/nothing",
                ):
                    with pytest.raises(MCPError):
                        await host.read_resource(uri)

    run(test)


def test_long_lists_of_resources_come_in_pages(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"text {n}") for n in range(250)))

    async def test() -> None:
        with opened(root) as memory:
            async with inside(memory, None) as host:
                seen, cursor = [], None
                while True:
                    got = await host.list_resources(cursor=cursor)
                    seen += [each.name for each in got.resources]
                    cursor = got.next_cursor
                    if cursor is None:
                        break
                assert seen == sorted(f"user#s{number}" for number in range(250))
                with pytest.raises(MCPError):
                    await host.list_resources(cursor="../1")

    run(test)


def test_a_hand_edit_is_told_to_who_listens(root: Path) -> None:
    async def test() -> None:
        uri, foreign = "h2ams://user/s1", "h2ams://sessions/other/s3"
        async with (
            client(root, "--session", "s", "--user=write") as host,
            host.listen(
                resource_subscriptions=[uri, foreign], resources_list_changed=True
            ) as heard,
        ):
            write(root, "sessions/other/memory.md", segment_text("s3", "Changed."))
            write(root, "sessions/other/memory.md", segment_text("s4", "A new one."))
            write(root, "user/memory.md", segment_text("s1", "Prefers spaces."))
            assert (await anext(aiter(heard))).uri == uri  # type: ignore[union-attr]
            await host.call_tool("memory_add", {"scope": "user", "text": "A new one."})
            assert type(await anext(aiter(heard))).__name__ == "ResourcesListChanged"

    run(test)


def test_a_hand_edit_is_told_to_an_older_client_that_subscribed(root: Path) -> None:
    async def test() -> None:
        told: list[str] = []
        heard = anyio.Event()

        async def handle(message: object) -> None:
            name = type(getattr(message, "root", message)).__name__
            told.append(name)
            if {"ResourceUpdatedNotification", "ResourceListChangedNotification"} <= set(told):
                heard.set()

        async with client(root, "--owner", mode="legacy", message_handler=handle) as host:
            with pytest.warns(MCPDeprecationWarning):
                await host.session.subscribe_resource("h2ams://user/s1")
            await host.list_resources()
            text = [segment_text("s1", "Prefers spaces."), segment_text("s9", "One more.")]
            write(root, "user/memory.md", *text)
            with anyio.fail_after(20):
                await heard.wait()
            with pytest.warns(MCPDeprecationWarning):
                await host.session.unsubscribe_resource("h2ams://user/s1")

    run(test)


def test_what_a_server_may_see_is_fixed_when_it_starts(root: Path) -> None:
    async def test() -> None:
        with opened(root) as memory:
            async with inside(memory, Access(session="s", user=False)) as host:
                for arguments in (
                    {"query": "parser"},
                    {"query": "parser", "scopes": ["*"]},
                    {"query": "parser", "scopes": ["sessions/other", "user"]},
                ):
                    result = await host.call_tool("memory_search", arguments)
                    found = [hit["address"] for hit in (result.structured_content or {})["hits"]]
                    assert found in ([], ["sessions/s#s2"])
                for name, given in (
                    ("memory_get", {"address": "sessions/other#s3"}),
                    ("memory_add", {"scope": "sessions/other", "text": "planted"}),
                    ("memory_update", {"address": "user#s1", "text": "planted"}),
                    ("memory_delete", {"address": "sessions/other#s3"}),
                    ("memory_search", {"query": "parser", "session": "other"}),
                ):
                    assert (await host.call_tool(name, given)).is_error, name
                status = (await host.call_tool("memory_status", {})).structured_content or {}
                assert status["segments"] == 1
                assert status["access"] == {"owner": False, "session": "s"}

    run(test)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--owner", "--session", "s"],
        ["--owner", "--json"],
        ["--owner", "--port", "1"],
        ["--owner", "extra"],
    ],
)
def test_a_wrong_start_is_a_usage_error_before_anything_is_served(
    root: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", *words, "--root", str(root)]) == 2
    out, err = capfd.readouterr()
    assert err.startswith("h2ams: ")
    assert out == "" or "error" in json.loads(out)


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    done = cli(tmp_path / "nothing", "mcp", "--owner")
    assert (done.code, done.out) == (1, "")
    assert "h2ams init makes it" in done.err
    assert not (tmp_path / "nothing").exists()


def test_calls_at_the_same_time_are_all_answered(root: Path) -> None:
    age(root / "user/memory.md")
    wire = Wire(root, "--owner")
    wire.begin()
    wire.send(*(call(n, "memory_search", query="parser tabs") for n in range(1, 41)))
    wire.send(*(call(n, "memory_add", scope="user", text=f"Text {n}.") for n in range(41, 61)))
    for number in range(1, 61):
        if not any(json.loads(line).get("id") == number for line in wire.lines):
            wire.answer(number)
    code, _, _ = wire.end()
    assert code == 0
    with opened(root) as memory:
        assert len(memory.list("user")) == 21
        assert memory.verify().ok


def test_lines_that_are_no_messages_do_not_end_the_server(root: Path) -> None:
    wire = Wire(root, "--owner")
    wire.begin()
    assert wire.process.stdin is not None
    wire.process.stdin.write(b"not json\n\n[]\n\xff\xfe\n{}\n")
    wire.send(call(7, "memory_status"))
    assert wire.answer(7)["result"]["isError"] is False
    assert wire.end()[0] == 0


def test_the_access_of_a_server_in_this_process_is_the_given_one(root: Path) -> None:
    async def test() -> None:
        with opened(root) as memory:
            async with inside(memory, Access(session="other")) as host:
                result = await host.call_tool("memory_search", {"query": "parser"})
                assert [hit["id"] for hit in (result.structured_content or {})["hits"]] == ["s3"]

    run(test)
