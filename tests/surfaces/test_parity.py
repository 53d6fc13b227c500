"""Every contract on one store: the same question gives the same addresses in the same order.

A further surface joins by one line in ``ASK``.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from folder import NOW, opened
from surfaces.inspect_kit import addresses_on, serving, where
from surfaces.mcp_kit import client, inside, run

from h2ams import Access
from h2ams.surfaces.cli import main

SCOPES = Path(__file__).resolve().parents[2] / "scopes"
QUESTIONS = [
    "why are rowids grouped by scope?",
    "token counter",
    "лицензия",
    "xyzzyq",
]
FLAGS = {
    "owner": ([], None),
    "session": (
        ["--session", "core", "--vp", "reviewer"],
        Access(session="core", vp="reviewer"),
    ),
    "stranger": (["--session", "stranger", "--no-user"], Access(session="stranger", user=False)),
}
LIMIT = 7

Asked = Callable[[Path, str], list[list[str]]]  # the addresses for each of QUESTIONS


def through_python(root: Path, who: str) -> list[list[str]]:
    with opened(root) as memory:
        found = [memory.recall(each, access=FLAGS[who][1], limit=LIMIT) for each in QUESTIONS]
    return [[hit.record.address for hit in each.hits] for each in found]


def through_cli(root: Path, who: str) -> list[list[str]]:
    return [_printed(root, who, each) for each in QUESTIONS]


def _printed(root: Path, who: str, question: str) -> list[str]:
    words = ["recall", question, "--limit", str(LIMIT), "--json", *FLAGS[who][0]]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*words, "--root", str(root), "--set", "encoding=estimate"]) == 0
    return [hit["address"] for hit in json.loads(out.getvalue())["hits"]]


def through_mcp(root: Path, who: str) -> list[list[str]]:
    found: list[list[str]] = []

    async def ask() -> None:
        async with client(root, *(FLAGS[who][0] or ["--owner"])) as host:
            for each in QUESTIONS:
                result = await host.call_tool("memory_search", {"query": each, "limit": LIMIT})
                hits = (result.structured_content or {})["hits"]
                found.append([hit["address"] for hit in hits])

    run(ask)
    return found


def through_the_alias(root: Path, who: str) -> list[list[str]]:
    found: list[list[str]] = []

    async def ask() -> None:
        with opened(root) as memory:
            async with inside(memory, FLAGS[who][1]) as host:
                for each in QUESTIONS:
                    result = await host.call_tool("search", {"query": each})
                    hits = (result.structured_content or {})["results"]
                    found.append([hit["id"] for hit in hits][:LIMIT])

    run(ask)
    return found


def through_the_inspector(root: Path, who: str) -> list[list[str]]:
    with serving(root, access=tuple(FLAGS[who][0]) or ("--owner",)) as server:
        pages = [server.page(where("/recall", q=each, limit=str(LIMIT))) for each in QUESTIONS]
    return [addresses_on(page) for page in pages]


ASK: dict[str, Asked] = {
    "command line": through_cli,
    "MCP": through_mcp,
    "MCP alias": through_the_alias,
    "inspector": through_the_inspector,
}


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2AMS_NOW", NOW.isoformat())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("parity") / "scopes"
    shutil.copytree(SCOPES, root, ignore=shutil.ignore_patterns(".h2ams"))
    return root


@pytest.mark.parametrize("who", FLAGS)
@pytest.mark.parametrize("surface", ASK)
def test_the_same_question_gives_the_same_addresses_in_the_same_order(
    root: Path, surface: str, who: str
) -> None:
    answers = through_python(root, who)
    assert ASK[surface](root, who) == answers
    if who == "owner":
        assert len(answers[0]) > 1 and answers[2] and not answers[3]  # or else nothing is tested
