"""``h2ams scope``: what it asks, lists, refuses, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from fakes import ScriptedMemory
from memory.lifecycle_kit import plant, tree

from h2ams.memory.lifecycle_plan import Failed, ScopeChange
from h2ams.surfaces.cli import main


@pytest.fixture
def root(tmp_path: Path) -> Path:
    plant(tmp_path / "memory")
    return tmp_path / "memory"


def run(root: Path, *words: str) -> int:
    return main(["scope", *words, "--root", str(root), "--set", "encoding=estimate"])


class Terminal(io.StringIO):
    """A standard stream on which a person sits."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Any:
    def sit(answer: str) -> Terminal:
        screen = Terminal()
        monkeypatch.setattr("sys.stdin", Terminal(answer))
        monkeypatch.setattr("sys.stderr", screen)
        return screen

    return sit


def test_without_a_terminal_and_without_yes_nothing_is_removed(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert run(root, "delete", "sessions/s1") == 2
    assert "--yes" in capsys.readouterr().err
    assert run(root, "migrate", "--purge") == 2
    assert run(root, "delete", "sessions/s1", "--json") == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "usage"
    assert tree(root) == before and not (root / ".h2ams").exists()


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("", 1)])
def test_on_a_terminal_it_asks_first(root: Path, terminal: Any, answer: str, code: int) -> None:
    screen = terminal(answer)
    assert run(root, "delete", "sessions/s1") == code
    assert "remove sessions/s1 (17 files) for good? [y/N]" in screen.getvalue()
    assert (root / "sessions/s1").exists() == (code == 1)


def test_yes_answers_and_a_dry_run_needs_no_answer(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(root)
    assert run(root, "delete", "vp/ada", "--dry-run") == 0
    printed = capsys.readouterr().out
    for path in (path for path in before if "vp/ada/" in path):
        assert f"  {path}\n" in printed
    assert "index: chat/c1/vp/ada: 1 segment" in printed
    assert tree(root) == before
    assert run(root, "delete", "vp/ada", "--yes") == 0
    assert not [path for path in tree(root) if "vp/ada/" in path]


def test_rename_clone_and_list_in_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "rename", "group/s1", "sessions/neu", "--json") == 0
    (change,) = json.loads(capsys.readouterr().out)["changes"]
    assert (change["scope"], change["target"]) == ("sessions/s1", "sessions/neu")
    assert {"path": "group/s1/memory.md", "to": "group/neu/memory.md"}.items() <= next(
        each for each in change["files"] if each["path"] == "group/s1/memory.md"
    ).items()
    assert run(root, "clone", "sessions/neu", "sessions/kopie") == 0
    assert run(root, "list", "--json") == 0
    scopes = {
        e["scope"]: e for e in json.loads(capsys.readouterr().out.split("\n", 1)[1])["scopes"]
    }
    assert scopes["sessions/kopie"]["segments"] == scopes["sessions/neu"]["segments"] == 3


@pytest.mark.parametrize(
    "words",
    [
        ["remove", "user"],
        ["delete"],
        ["delete", "user", "global", "--yes"],
        ["rename", "sessions/s1"],
        ["list", "user"],
        ["migrate", "a", "b"],
        ["delete", "user", "--purge", "--yes"],
        ["delete", "nonsense/x", "--yes"],
        ["rename", "sessions/s1", "sessions/s2"],
        ["rename", "sessions/s1", "chat/s1"],
        ["delete", "topic/unfiled", "--yes"],
    ],
)
def test_calls_that_make_no_sense_are_usage_errors(root: Path, words: list[str]) -> None:
    before = tree(root)
    assert run(root, *words) == 2
    assert tree(root) == before


def test_what_is_not_there_and_what_is_not_allowed_is_exit_code_one(root: Path) -> None:
    assert run(root, "delete", "sessions/none", "--yes") == 1
    assert run(root, "migrate", "none") == 1
    for words in (["list"], ["delete", "sessions/s1", "--yes"], ["migrate"]):
        assert run(root, *words, "--session", "s1") == 1
    assert (root / "sessions/s1").exists()


def test_migrate_tells_counts_and_what_is_kept(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root, "migrate", "--dry-run") == 0
    assert "would be migrated" in capsys.readouterr().out
    assert run(root, "migrate") == 0
    assert "segments: 10 before, 10 after" in capsys.readouterr().out
    assert run(root, "migrate") == 0
    assert capsys.readouterr().out == "nothing to do\n"
    assert run(root, "migrate", "--purge", "--yes") == 0
    assert "purged, 6 files" in capsys.readouterr().out


def test_a_partial_success_lists_what_failed_and_exits_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    change = ScopeChange("delete", "user", failed=(Failed("index", "somebody reads it"),))

    class Faces:
        @staticmethod
        def delete(scope: str, *, dry_run: bool) -> ScopeChange:
            return change

    memory = ScriptedMemory()
    memory.scopes = Faces()  # type: ignore[attr-defined]
    assert main(["scope", "delete", "user", "--yes"], opener=memory.open) == 1
    assert "not done: index: somebody reads it" in capsys.readouterr().err
