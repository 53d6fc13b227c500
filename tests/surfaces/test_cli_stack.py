"""``h2ams stack``: documents, exit codes, and what a person sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from folder import PLAIN, opened
from stacks import kit, service
from surfaces.test_cli_schemata import SHAPES, check

from h2ams.stacks.postgres_store import PostgresWorkflowStore
from h2ams.stacks.transports import CallableCompressor
from h2ams.stacks.workflow import Workflow
from h2ams.surfaces.cli import main

SMALL = ("--set", "stack_game_chars=400")


class Stack:
    """Runs ``h2ams stack …`` on one memory folder."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys

    def json(self, *words: str, code: int = 0, shape: str = "stack") -> Any:
        assert main(["stack", *words, "--root", str(self.root), "--json"]) == code
        document = json.loads(self.capsys.readouterr().out)
        check(document, SHAPES[shape], "stack")
        return document

    def text(self, *words: str, code: int = 0) -> str:
        assert main(["stack", *words, "--root", str(self.root)]) == code
        out, err = self.capsys.readouterr()
        return out + err


@pytest.fixture
def stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Stack:
    root = tmp_path / "root"
    with opened(root, settings=PLAIN) as memory, memory.stack("game") as game:
        for each in kit.rounds_of(1, 2, 3, 4, 5):
            game.append_round(each)
        game.begin_scene("s")
        game.append_scene_round("s", kit.round_of("s1"))
    with opened(root, settings=PLAIN) as memory, memory.stack("side", owner="sessions/s1"):
        pass
    return Stack(root, capsys)


def test_every_action_gives_its_document(stack: Stack) -> None:
    assert stack.json("list")["stacks"] == [
        {"id": "game", "owner": None},
        {"id": "side", "owner": "sessions/s1"},
    ]
    shown = stack.json("show", "game")
    assert shown["chars"] == 760 and len(shown["chunks"]) == 5 and "summary" not in shown
    assert shown["scenes"] == ["s"] and shown["footprint"]["quota_bytes"] == 31_457_280
    assert stack.json("plan", "game")["trigger"] == "none"
    assert stack.json("plan", "game", *SMALL)["trigger"] == "threshold"
    assert stack.json("compress", "game")["outcome"] == "below-threshold"
    done = stack.json("compress", "game", *SMALL, "--cold-copy")
    assert done["outcome"] == "compressed" and done["after"] < done["before"] == 760
    shown = stack.json("show", "game", "--text")
    assert shown["summary"]["call_id"] == done["call_id"] and shown["chunks"] == []
    assert shown["text"].startswith("[summary ")
    back = stack.json("restore", "game", done["call_id"])
    assert (back["before"], back["after"], back["exchanges"]) == (done["after"], 760, 5)


def test_a_folder_without_stacks_says_so_to_a_person_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--root", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["stack", "list", "--root", str(tmp_path)]) == 0
    assert tuple(capsys.readouterr()) == ("", "h2ams: no stacks\n")
    assert main(["stack", "list", "--root", str(tmp_path), "--json"]) == 0
    assert capsys.readouterr().err == ""


def test_a_scene_and_an_owner_can_be_named(stack: Stack) -> None:
    assert stack.json("show", "game", "--scene", "s")["chunks"][0]["rounds"] == ["rs1"]
    assert stack.json("show", "side", "--owner", "sessions/s1")["chars"] == 0
    stack.json("show", "side", code=1, shape="error")
    stack.json("show", "game", "--scene", "t", code=1, shape="error")


def test_the_timeline_shows_lengths_savings_threshold_and_quota(stack: Stack) -> None:
    shown = stack.text("show", "game")
    assert "chunk 5        152 chars  r5" in shown
    assert "760 of 300,000 chars of the threshold" in shown and "of 31,457,280 bytes" in shown
    stack.text("compress", "game", "--force")
    shown = stack.text("show", "game")
    assert "for 5 exchanges, 760 chars (" in shown and "% saved)" in shown


def test_a_compression_that_comes_to_nothing_exits_1(stack: Stack) -> None:
    with service.running("refuse") as server:
        found = stack.json("compress", "game", "--force", "--compressor", server.url, code=1)
        assert (found["outcome"], found["reason"]) == ("refused", "policy")
        assert "refused (policy)" in stack.text(
            "compress", "game", "--force", "--compressor", server.url, code=1
        )
        shown = stack.json("show", "game")
        assert (shown["tries"], shown["last_outcome"]) == (2, "refused")
        assert "2 on this text in vain, the last: refused" in stack.text("show", "game")
        server.day.switch("ok")
        assert stack.json("plan", "game", *SMALL)["trigger"] == "exhausted"
        found = stack.json("compress", "game", "--force", "--compressor", server.url)
        assert found["outcome"] == "compressed"


def test_nothing_is_made_by_looking(tmp_path: Path, stack: Stack) -> None:
    place = str(tmp_path / "elsewhere")
    assert stack.json("list", "--store", place)["stacks"] == []
    stack.json("show", "game", "--store", place, code=1, shape="error")
    assert not Path(place).exists()


@pytest.mark.parametrize(
    "words",
    [
        ("wipe", "game"),
        ("show",),
        ("restore", "game"),
        ("list", "game"),
        ("compress", "game", "--compressor", "some-model"),
    ],
)
def test_a_call_that_is_wrong_exits_2(stack: Stack, words: tuple[str, ...]) -> None:
    stack.json(*words, code=2, shape="error")


def test_it_is_the_owners(stack: Stack) -> None:
    assert "owner's" in stack.text("show", "game", "--session", "s1", code=1)


def test_a_workflow_in_postgresql_is_named_by_its_address(stack: Stack, postgres_url: str) -> None:
    store = PostgresWorkflowStore(postgres_url, "game")
    with Workflow(store, compressor=CallableCompressor(kit.good)) as game:
        game.append_round(kit.round_of(1))
        game.append_round(kit.round_of(2))
    shown = stack.json("show", "game", "--store", postgres_url)
    assert [each["rounds"] for each in shown["chunks"]] == [["r1"], ["r2"]]
    found = stack.json("compress", "game", "--force", "--store", postgres_url)
    assert found["outcome"] == "compressed"
    stack.json("show", "other", "--store", postgres_url, code=1, shape="error")
    stack.json("list", "--store", postgres_url, code=2, shape="error")
    wrong = stack.json(
        "show", "game", "--store", "postgresql:///x?host=/nowhere", code=1, shape="error"
    )
    assert "nowhere" not in json.dumps(wrong)
