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


def test_the_documents_of_whole_scopes(run: Runner) -> None:
    run("remember", "sessions/s1", "One.")
    assert run("scope", "list")["scopes"][0]["folders"] == ["sessions/s1"]
    assert run("scope", "rename", "sessions/s1", "sessions/s2", "--dry-run")["dry_run"] is True
    (change,) = run("scope", "clone", "sessions/s1", "sessions/s3")["changes"]
    assert change["files"][0]["to"] == "sessions/s3/memory.md" and change["changed"] is True
    old = run.root / "group" / "s1"
    old.mkdir(parents=True)
    (old / "memory.md").write_text("---\nid: a\n---\nOld.\n", encoding="utf-8")
    (change,) = run("scope", "migrate")["changes"]
    assert (change["segments_before"], change["segments_after"]) == (2, 2)
    assert run("scope", "migrate")["changes"] == []
    (change,) = run("scope", "delete", "sessions/s1", "--yes")["changes"]
    assert {each["to"] for each in change["files"]} == {None}
    run("scope", "delete", "sessions/s1", "--yes", code=1, shape="error")


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


def test_the_documents_of_threads(run: Runner) -> None:
    run("init")
    assert run("thread", "new", "t1", "--system", "Be kind.")["created"] is True
    assert run("thread", "new", "t1")["created"] is False
    for n in range(12):
        run("thread", "append", "t1", f"question {n} about tabs " * 20)
        run("thread", "append", "t1", "--role", "assistant", f"answer {n} " * 30)
    small = ("--window", "1600", "--reserve", "100")
    context = run("thread", "context", "t1", "and now?", *small)
    assert context["receipt"]["compaction"] == "compacted" and context["messages"]
    shown = run("thread", "show", "t1")
    for row in shown["rows"]:
        check(row, SHAPES["thread-row"], "row")
    assert sum(row["kind"] == "summary" for row in shown["rows"]) == 1
    run("thread", "new", "t2")
    assert run("thread", "search", "t2", "tabs")["hits"]
    run("thread", "compact", "t1", "--force", *small)
    assert run("thread", "restart", "t1", "afresh")["outcome"] == "restarted"
    assert [each["id"] for each in run("thread", "list")["threads"]] == ["t1", "t2"]
    assert run("thread", "delete", "t1")["deleted"] is True
    large = run(
        "thread",
        "context",
        "t2",
        "word " * 900,
        "--window",
        "200",
        "--reserve",
        "0",
        shape="error",
        code=1,
    )["error"]
    assert (large["code"], large["limit"]) == ("overflow", 200) and large["needed"] > 900


def test_the_documents_of_dream_summary_and_audit(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2AMS_NOW", "2026-05-09T00:00:00Z")
    talk = tmp_path / "talk.jsonl"
    texts = ["We decided to use SQLite.", "My editor is Helix.", "Always run make check."]
    lines = [
        json.dumps({"id": f"m{n}", "role": "user", "content": text, "createdAt": "2026-05-01"})
        for n, text in enumerate(texts)
    ]
    talk.write_text("\n".join([*lines, "broken"]), encoding="utf-8")
    run("init")
    assert (
        "+We decided" in run("dream", "run", "sessions/s1", str(talk), "--dry-run", code=1)["diff"]
    )
    done = run("dream", "run", "sessions/s1", str(talk), code=1)
    assert done["outcome"] == "done" and done["problems"][0]["line"] == 4
    assert run("dream", "run", "sessions/s1", str(talk), code=1)["outcome"] == "nothing-new"
    assert run("dream", "status", shape="dream-status")["passes"][0]["pass"] == done["pass"]
    shown = run("summary", "show", "sessions/s1", shape="summary-show")
    assert "We decided to use SQLite." in shown["text"]
    statuses = {each["status"] for each in run("summary", "refresh")["summaries"]}
    assert statuses == {"fresh", "empty"}  # empty: what lies outside of the families
    assert run("audit", code=0)["segments"] == 3
    for path in ("user/memory.md", "sessions/s1/memory.md"):
        with (run.root / path).open("a", encoding="utf-8") as file:
            file.write("\n---\nid: x\nkind: fact\n---\nMy editor is Helix, the blue one.\n")
            file.write("\n---\nid: y\nkind: fact\n---\nMy editor is Helix, the blue one.\n")
    assert run("audit", code=1)["counts"]["exact-duplicate"] >= 2
    fixed = run("audit", "--fix", code=1)
    assert fixed["pass"] and not fixed["failures"]
    assert run("dream", "undo", fixed["pass"], shape="dream-undo")["restored"]
    assert run("dream", "undo", done["pass"], shape="error", code=1)["error"]["code"] == "conflict"
    run("dream", "stop", shape="error", code=2)
    run("dream", "run", "user", str(talk), shape="error", code=2)
    run("dream", "run", "--session", "s1", "sessions/s1", str(talk), shape="error", code=1)


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
    run("inspect", "--owner", code=2)
    run("recall", "--help", shape="help")
    assert run("completion", "bash")["shell"] == "bash"
    assert run("completion", "values", "--at=1", "show", "user#")["values"] == [address]
    run("--version", shape="version")


def test_the_codes_of_errors_on_the_page_are_those_in_use() -> None:
    from h2ams.surfaces.output import _CODES

    listed = re.search(r"`code` is one of `(.*?)`", PAGE.read_text("utf-8"), re.S)
    assert listed is not None
    assert set(listed[1].split()) == {*_CODES.values(), "internal"}
