"""The table of MCP tools, without any wire: schemas, bounds, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder import opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from h2ams import Access, Memory, Settings, UsageError
from h2ams.errors import ScopeError
from h2ams.memory.access import Gate
from h2ams.memory.scope import parse_scope
from h2ams.surfaces.mcp_brief import (
    RESPONSE_TOKENS,
    address_of,
    page,
    resource_uri,
)
from h2ams.surfaces.mcp_calls import Serving
from h2ams.surfaces.mcp_server import instructions
from h2ams.surfaces.mcp_tools import TOOLS, Outcome, call_tool, offered
from h2ams.surfaces.wording import PREVIEW_CHARS, preview


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs.", tags="[editor]"))
    long = " ".join(f"word{number}" for number in range(3_000))
    write(root, "global/memory.md", segment_text("long", f"{long} needle at the end."))
    with opened(root) as found:
        yield found


def ask(memory: Memory, name: str, access: Access | None = None, **arguments: Any) -> Outcome:
    """Call a tool; its answer must be what its schema says."""
    outcome = call_tool(Serving(memory, access), name, arguments)
    if not outcome.is_error:
        Draft202012Validator(TOOLS[name].gives).validate(outcome.document)
    return outcome


CALLS: dict[str, dict[str, Any]] = {
    "memory_search": {"query": "tabs", "limit": 3, "kinds": ["fact"], "scopes": ["user"]},
    "memory_get": {"address": "user#s1"},
    "memory_context": {"query": "tabs", "budget": 300},
    "memory_add": {"scope": "user", "text": "Likes tea.", "tags": ["drink"], "kind": "preference"},
    "memory_update": {"address": "user#s1", "text": "Prefers spaces."},
    "memory_delete": {"address": "user#s1"},
    "memory_list": {"scope": "user"},
    "memory_status": {},
    "memory_explain": {"query": "tabs"},
    "search": {"query": "tabs"},
    "fetch": {"id": "user#s1"},
}


def test_there_is_a_call_for_every_tool() -> None:
    assert set(CALLS) == set(TOOLS)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_gives_what_its_schema_says(memory: Memory, name: str) -> None:
    tool = TOOLS[name]
    Draft202012Validator.check_schema(tool.takes)
    Draft202012Validator.check_schema(tool.gives)
    outcome = ask(memory, name, **CALLS[name])
    assert not outcome.is_error, outcome.text
    assert outcome.wrote == tool.writes
    if name != "memory_context":
        assert json.loads(outcome.text) == outcome.document


@pytest.mark.parametrize("name", TOOLS)
def test_an_unknown_parameter_is_refused_by_name(memory: Memory, name: str) -> None:
    before = {path: path.read_bytes() for path in Path(memory.root).rglob("*.md")}
    for extra in ("access", "session", "owner", "root", "limit_"):
        outcome = call_tool(Serving(memory, None), name, CALLS[name] | {extra: "x"})
        assert outcome.is_error and repr(extra) in outcome.text, outcome.text
    assert {path: path.read_bytes() for path in Path(memory.root).rglob("*.md")} == before


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory_search", {}),
        ("memory_search", {"query": 1}),
        ("memory_search", {"query": "x", "limit": 0}),
        ("memory_search", {"query": "x", "limit": 51}),
        ("memory_search", {"query": "x", "kinds": ["nonsense"]}),
        ("memory_search", {"query": "x", "scopes": "user"}),
        ("memory_search", {"query": "x", "after": "yesterday"}),
        ("memory_search", {"query": "x" * 20_001}),
        ("memory_get", {"address": "user#s1", "offset": -1}),
        ("memory_get", {"address": "user#s1", "offset": 10_000}),
        ("memory_get", {"address": "nothing"}),
        ("memory_context", {"query": "x", "budget": 1_000_000}),
        ("memory_add", {"scope": "../etc", "text": "x"}),
        ("memory_add", {"scope": "user", "text": "x", "kind": "nonsense"}),
        ("memory_add", {"scope": "user", "text": "  "}),
        ("memory_update", {"address": "user#s1"}),
        ("memory_list", {"scope": "nonsense/x"}),
    ],
)
def test_a_wrong_argument_is_an_error_that_can_be_acted_on(
    memory: Memory, name: str, arguments: dict[str, Any]
) -> None:
    outcome = ask(memory, name, **arguments)
    assert outcome.is_error
    assert outcome.text.startswith(("usage: ", "scope: ")), outcome.text
    assert len(outcome.text) < 600


def test_an_unknown_tool_is_no_outcome(memory: Memory) -> None:
    with pytest.raises(UsageError, match="memory_everything"):
        ask(memory, "memory_everything")


def test_a_body_is_read_in_pages_that_add_up_to_it(memory: Memory) -> None:
    body, offset = "", 0
    while offset is not None:
        shown = ask(memory, "memory_get", address="global#long", offset=offset, limit=5_000)
        assert shown.document["truncated"] is True
        body += str(shown.document["body"])
        offset = shown.document["next_offset"]  # type: ignore[assignment]
    assert body == memory.get("global#long").body
    assert shown.document["length"] == len(body)


def test_a_hit_shows_the_part_that_matches_and_says_that_it_is_a_part(memory: Memory) -> None:
    (hit,) = ask(memory, "memory_search", query="needle").document["hits"]  # type: ignore[misc]
    assert "needle at the end" in hit["preview"]
    assert hit["truncated"] is True and hit["length"] > 20_000
    assert len(hit["preview"]) <= PREVIEW_CHARS + 4
    (short,) = ask(memory, "memory_search", query="tabs").document["hits"]  # type: ignore[misc]
    assert (short["preview"], short["truncated"]) == ("Prefers tabs.", False)


def test_an_empty_list_of_scopes_is_no_scope(memory: Memory) -> None:
    assert ask(memory, "memory_search", query="tabs", scopes=[]).document["hits"] == []
    assert ask(memory, "memory_search", query="tabs").document["hits"]


def test_search_says_how_many_hits_its_bound_leaves_out(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    tags = "[" + ", ".join(f"tag{number}{'x' * 900}" for number in range(10)) + "]"
    texts = [segment_text(f"s{number}", f"apple {number}", tags=tags) for number in range(50)]
    write(root, "user/memory.md", *texts)
    with opened(root) as memory:
        outcome = ask(memory, "memory_search", query="apple", limit=50)
        shown = outcome.document["hits"]
        assert isinstance(shown, list) and 0 < len(shown) < 50
        assert outcome.document["left_out"] == 50 - len(shown)
        assert memory.tokens.count(outcome.text) <= RESPONSE_TOKENS
        listed = ask(memory, "memory_list", limit=200).document
        assert 0 < len(listed["segments"]) < 50  # type: ignore[arg-type]
        assert isinstance(listed["next_cursor"], str) and listed["total"] == 50
        rest = ask(memory, "memory_list", limit=200, cursor=listed["next_cursor"]).document
        ids = [each["id"] for each in (*listed["segments"], *rest["segments"])]  # type: ignore[misc]
        assert len(ids) == len(set(ids)) > len(listed["segments"])  # type: ignore[arg-type]


def test_a_list_is_walked_to_its_end(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"text {n}") for n in range(25)))
    with opened(root) as memory:
        seen, cursor = [], {}
        while cursor is not None:
            answer = ask(memory, "memory_list", limit=7, **cursor).document
            seen += [each["id"] for each in answer["segments"]]  # type: ignore[attr-defined]
            behind = answer["next_cursor"]
            cursor = None if behind is None else {"cursor": behind}
    assert seen == sorted(f"s{number}" for number in range(25))


def test_a_page_of_many_tokens_is_made_shorter_than_asked_for(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "𓂀𓁹" * 15_000))
    with opened(root, settings=Settings()) as memory:
        outcome = ask(memory, "memory_get", address="user#s1", limit=20_000)
        assert memory.tokens.count(outcome.text) <= RESPONSE_TOKENS
        assert 0 < outcome.document["next_offset"] < 20_000  # type: ignore[operator]


def test_the_block_is_the_text_and_within_its_budget(memory: Memory) -> None:
    outcome = ask(memory, "memory_context", query="tabs", budget=200)
    assert outcome.text == outcome.document["text"] and "Prefers tabs." in outcome.text
    assert memory.tokens.count(outcome.text) <= 200
    assert outcome.document["addresses"] == ["user#s1"]


def test_explain_names_every_candidate_with_its_reason(memory: Memory) -> None:
    answer = ask(memory, "memory_explain", query="tabs needle", budget=60).document
    candidates = answer["candidates"]
    assert isinstance(candidates, list)
    assert answer["items_count"] + answer["rejected_count"] == len(candidates)  # type: ignore[operator]
    assert {"user#s1", "global#long"} <= {each["address"] for each in candidates}
    assert all("reason" in each or "score" in each for each in candidates)


def test_a_block_without_a_match_says_so_and_its_document_is_exact(tmp_path: Path) -> None:
    with opened(tmp_path / "empty") as memory:
        nothing = ask(memory, "memory_context", query="zebra")
        assert nothing.text == "No memory matches this question."
        assert nothing.document["text"] == "" and nothing.document["addresses"] == []
        memory.remember("user", "Zebra is the editor. " * 40)
        small = ask(memory, "memory_context", query="zebra", budget=20)
        assert small.text.startswith("No memory fits into 20 tokens")
        assert small.document["text"] == ""


@pytest.mark.parametrize(
    ("access", "writable"),
    [
        (None, ["*"]),
        (Access(user="read"), []),
        (Access(scopes=["user"]), []),
        (Access(user="write"), ["user"]),
        (
            Access(session="s1", vp="a"),
            [
                "sessions/s1",
                "sessions/s1/user",
                "sessions/s1/vp/a",
                "sessions/s1/topic/*",
                "sessions/s1/feature/*",
            ],
        ),
        (Access(agent="x", session="s1"), ["agent/x"]),
    ],
)
def test_status_names_what_may_be_written_and_only_then_are_tools_that_write_offered(
    memory: Memory, access: Access | None, writable: list[str]
) -> None:
    serving = Serving(memory, access)
    told = ask(memory, "memory_status", access).document["writable"]
    assert told == writable
    for each in told:
        assert Gate(access).may_write(
            parse_scope(each.replace("*", "user" if each == "*" else "x"))
        )
    writers = [tool.name for tool in offered(serving) if tool.writes]
    assert writers == (["memory_add", "memory_update", "memory_delete"] if writable else [])
    assert ("memory_add" in instructions(serving)) == bool(writable)
    assert "memory_context" in instructions(serving)


def test_hints_name_what_a_model_can_do(memory: Memory) -> None:
    reader, session = Access(user="read"), Access(session="s1")
    for name in ("memory_get", "memory_update", "memory_delete"):
        more = {"text": "New."} if name == "memory_update" else {}
        missing = call_tool(Serving(memory, None), name, {"address": "user#nothing", **more})
        assert missing.is_error and missing.text.endswith("(memory_list shows what there is)")
    given = {"scope": "user", "text": "A text."}
    refused = call_tool(Serving(memory, session), "memory_add", given)
    assert refused.is_error and "sessions/s1, sessions/s1/user" in refused.text
    assert "owner" not in refused.text
    only = call_tool(Serving(memory, reader), "memory_add", given)
    assert only.is_error and only.text.endswith("(this server only reads)")


def test_a_stale_expectation_changes_nothing(memory: Memory) -> None:
    digest = ask(memory, "memory_get", address="user#s1").document["digest"]
    wrong = ask(memory, "memory_update", address="user#s1", text="x", expect="0" * 64)
    assert wrong.is_error and wrong.text.startswith("conflict: ")
    assert ask(memory, "memory_delete", address="user#s1", expect="0" * 64).is_error
    right = ask(memory, "memory_update", address="user#s1", text="Now.", expect=digest)
    assert right.document["changed"] is True
    assert memory.get("user#s1").body == "Now."


def test_what_was_replaced_before_writing_is_told(memory: Memory) -> None:
    text = "The key is AKIAIOSFODNN7EXAMPLE for tests."
    answer = ask(memory, "memory_add", scope="user", text=text).document
    assert answer["redacted"]
    assert "AKIAIOSFODNN7EXAMPLE" not in (Path(memory.root) / "user/memory.md").read_text("utf-8")


def test_after_the_end_no_call_begins(memory: Memory) -> None:
    serving = Serving(memory, None)
    assert serving.under_way.end(0.1)
    assert "ending" in call_tool(serving, "memory_add", {"scope": "user", "text": "late"}).text
    assert "late" not in (Path(memory.root) / "user/memory.md").read_text("utf-8")


# -- short forms -----------------------------------------------------------------------------------


@given(body=st.text(max_size=300), offset=st.integers(0, 300), limit=st.integers(1, 100))
def test_pages_cover_a_body_without_gap_or_overlap(body: str, offset: int, limit: int) -> None:
    parts, at = body[:offset], min(offset, len(body))
    while at is not None:
        shown = page(body, at, limit)
        parts += str(shown["body"])
        at = shown["next_offset"]  # type: ignore[assignment]
    assert parts == body


@given(body=st.text(max_size=400), words=st.lists(st.text(max_size=9)), most=st.integers(20, 90))
def test_a_preview_is_part_of_the_body_and_short(body: str, words: list[str], most: int) -> None:
    shown = preview(body, words, most)
    assert shown.removeprefix("… ").removesuffix(" …").strip() in body
    assert len(shown) <= most + 4


@given(scope=st.sampled_from(["user", "sessions/s/vp/é.x", "topic/a b%/c"]), id=st.text(min_size=1))
def test_an_address_survives_its_uri(scope: str, id: str) -> None:
    if any(char in id for char in "\0\n\r") or not id.isprintable():
        return
    assert address_of(resource_uri(scope, id)) == f"{scope}#{id}"


@pytest.mark.parametrize(
    "uri",
    ["", "h2ams://", "h2ams://user", "h2ams://user/", "file:///etc/passwd", "h2ams:///x",
     "h2ams://user/%ff", "h2ams://user#x/y", "http://user/x"],
)  # fmt: skip
def test_what_is_no_resource_is_refused(uri: str) -> None:
    with pytest.raises(ScopeError):
        address_of(uri)
