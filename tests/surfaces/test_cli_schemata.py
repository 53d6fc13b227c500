"""Every command's JSON is what docs/schemata.md says, key by key."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import ScriptedMemory

from h2ams.surfaces.cli import COMMANDS, main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schemata.md"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "any": (object,),
}


def shapes() -> dict[str, Any]:
    """The shape below each heading of the page."""
    pattern = re.compile(r"^### (\S+)\n(?:(?!#)[^\n]*\n)*?```json\n(.*?)```", re.M | re.S)
    return {name: json.loads(text) for name, text in pattern.findall(PAGE.read_text("utf-8"))}


SHAPES = shapes()


def check(value: object, shape: Any, where: str) -> None:
    """``value`` has exactly the keys and types of ``shape``."""
    if isinstance(shape, list):
        assert isinstance(value, list), where
        for number, each in enumerate(value):
            check(each, shape[0], f"{where}[{number}]")
    elif isinstance(shape, dict):
        check_keys(value, shape, where)
    elif shape.startswith("<"):
        check(value, SHAPES[shape.strip("<>")], where)
    else:
        allowed = tuple(kind for name in shape.split("|") for kind in TYPES[name])
        assert isinstance(value, allowed), f"{where}: {value!r} is not {shape}"
        assert not isinstance(value, bool) or bool in allowed or object in allowed, where


def check_keys(value: object, shape: dict[str, Any], where: str) -> None:
    assert isinstance(value, dict), where
    if "*" in shape:
        for key, each in value.items():
            check(each, shape["*"], f"{where}.{key}")
        return
    keys = {key: each for key, each in shape.items() if key != "..."}
    if "..." in shape:
        keys = SHAPES[shape["..."].strip("<>")] | keys
    optional = {key.rstrip("?") for key in keys if key.endswith("?")}
    keys = {key.rstrip("?"): each for key, each in keys.items()}
    assert set(value) | optional == set(keys), f"{where}: {set(value) ^ set(keys)}"
    for key in value:
        check(value[key], keys[key], f"{where}.{key}")


class Runner:
    """Runs commands in JSON mode on one folder and checks each document against its shape."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self.capsys = root, capsys

    def __call__(self, *words: str, code: int = 0, shape: str | None = None) -> Any:
        got = main([*words, "--root", str(self.root), "--json"])
        out, err = self.capsys.readouterr()
        assert got == code, (out, err)
        document = json.loads(out)
        check(document, SHAPES[shape or words[0]], words[0])
        return document


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(tmp_path / "memory", capsys)


def test_every_command_has_a_shape_on_the_page() -> None:
    assert set(COMMANDS) <= set(SHAPES)
    assert {"error", "help", "version", "segment", "problem", "written"} <= set(SHAPES)


def test_the_documents_of_reading_and_writing(run: Runner) -> None:
    assert run("init")["created"] is True
    assert run("init")["created"] is False
    first = run("remember", "user", "Prefers tabs over spaces.", "--tag", "editor", "--source", "m")
    assert first["created"] and first["address"] == f"user#{first['id']}"
    assert run("remember", "user", "Prefers tabs over spaces.")["created"] is False
    preview = run("remember", "global", "Not yet.", "--dry-run")
    assert preview["dry_run"] and "+Not yet." in preview["diff"]
    hits = run("recall", "tabs", "spaces")["hits"]
    assert [each["address"] for each in hits] == [first["address"]]
    assert hits[0]["score"] == pytest.approx(sum(hits[0]["terms"].values()), abs=1e-5)
    assert run("recall", "")["hits"] == []
    block = run("context", "tabs", "--budget", "300")
    assert "Prefers tabs" in block["text"] and 0 < block["tokens"] <= 300
    assert sum(len(layer["items"]) for layer in block["layers"].values()) == 1
    assert [each["id"] for each in run("list")["segments"]] == [first["id"]]
    run("list", "user", "--archived")
    shown = run("show", first["address"])["segment"]
    assert shown["source_messages"] == ["m"] and shown["length"] == len(shown["body"])
    assert run("sources", "m")["segments"] == run("list")["segments"]
    changed = run("edit", first["address"], "--kind", "preference", "--expect", shown["digest"])
    assert changed["changed"] is True
    assert run("edit", first["address"], "--body", "x", "--dry-run")["diff"]
    assert run("forget", first["address"])["removed"] is True
    assert run("forget", first["address"], "--undo")["restored"] is True
    assert run("forget", first["address"], "--purge")["removed"] is True


def test_the_documents_of_index_and_folder(run: Runner) -> None:
    run("remember", "user", "Prefers tabs.")
    note = run.root / "user" / "memory.md"
    with note.open("a", encoding="utf-8") as file:
        file.write("\n---\nid: seg_x\ntags: [a\n---\nBroken header.\n")
    report = run("sync", code=1)
    assert report["changed"] == 1 and report["errors"][0]["path"] == "user/memory.md"
    assert run("status")["problems"]
    assert run("rebuild", code=1)["scanned"] >= 1
    assert run("verify")["ok"] is True
    assert run("doctor", code=1)["problems"]
    run("doctor", "--fix", "--dry-run", code=1)
    run("doctor", "--fix", code=1)
    settings = run("config")["settings"]
    assert settings["recall_limit_count"] == {"value": 10, "source": "default"}
    assert list(run("config", "recall-limit-count")["settings"]) == ["recall_limit_count"]


def test_the_documents_of_moving(run: Runner, tmp_path: Path) -> None:
    data = Path(__file__).resolve().parents[1] / "data/import"
    run("init")
    assert len(run("import", "mem0", str(data / "mem0.json"))["added"]) == 4
    assert run("import", "jsonl", str(data / "other.jsonl"), code=1)["failed"]
    found = run("import", "obsidian", str(data / "obsidian"), "--dry-run")
    assert found["in_place"] and found["notes"] == 3 and found["left_out"]
    assert run("export", "--output", str(tmp_path / "all.jsonl"))["segments"] == 5
    assert run("export", "--folder", str(tmp_path / "copy"))["files"] == 4


def test_the_documents_of_setup(run: Runner, tmp_path: Path) -> None:
    file = str(tmp_path / "mcp.json")
    run("init")
    assert '"h2ams"' in run("setup", "cursor", "--file", file)["snippet"]
    assert "+" in run("setup", "cursor", "--file", file, "--dry-run")["diff"]
    assert run("setup", "cursor", "--file", file, "--write")["changed"] is True
    assert run("setup", "cursor", "--file", file, "--write")["changed"] is False
    assert run("setup", "cursor", "--file", file, "--undo")["changed"] is True


def test_the_document_of_watch(capsys: pytest.CaptureFixture[str]) -> None:
    def watch(*, on_sync: Any, report: Any, stop: threading.Event) -> None:
        report("watch-polling", "no events here")
        counts = {"scanned": 1, "changed": 1, "added": 2, "updated": 0, "deleted": 0}
        on_sync(SimpleNamespace(**counts, errors=(), problems=(), skipped_links=0))

    assert main(["watch", "--json"], opener=ScriptedMemory(watch=watch).open) == 0
    out, err = capsys.readouterr()
    assert "watch-polling: no events here" in err
    document = json.loads(out)
    check(document, SHAPES["watch"], "watch")
    assert (document["syncs"], document["added"]) == (1, 2)


def test_the_documents_without_a_command(run: Runner) -> None:
    run("recall", shape="error", code=2)
    run("show", "user#nothing", shape="error", code=1)
    address = run("remember", "user", "Prefers tabs.")["address"]
    conflict = run("forget", address, "--expect", "0" * 64, shape="error", code=1)["error"]
    assert conflict["expected"] == "0" * 64 and conflict["actual"] != "0" * 64
    limit = run("remember", "user", "x" * 64_001, shape="error", code=1)["error"]
    assert (limit["name"], limit["limit"]) == ("max_segment_chars", 64_000)
    run("mcp", "--owner", code=2)
    run("recall", "--help", shape="help")
    run("--version", shape="version")


def test_the_codes_of_errors_on_the_page_are_those_in_use() -> None:
    from h2ams.surfaces.output import _CODES

    listed = re.search(r"`code` is one of `(.*?)`", PAGE.read_text("utf-8"), re.S)
    assert listed is not None
    assert set(listed[1].split()) == {*_CODES.values(), "internal"}
