"""``h2ams edit`` with an editor: what was typed is never lost, what was not is never kept."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from fakes import ScriptedMemory

from h2ams import errors
from h2ams.engine import Memory
from h2ams.surfaces.cli import main

CHANGED = "text = 'Uses ed.\\n'; open(path, 'w', encoding='utf-8').write(text)"


class Desk:
    """A memory with one segment, a folder for temporary files, and an editor to be written."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        self.monkeypatch = monkeypatch
        with Memory.open(folder / "memory", create=True) as memory:
            self.address = memory.remember("user", "Uses vim.", tags=["editor"]).address

    def editor(self, code: str) -> None:
        """An editor that runs ``code`` with the file's ``path``."""
        script = self.folder / "my editor.py"  # a blank in its name: it must be quoted
        script.write_text(f"import os, sys\npath = sys.argv[1]\n{code}\n", encoding="utf-8")
        self.monkeypatch.setenv("VISUAL", f"'{sys.executable}' '{script}'")

    def edit(self, *words: str, opener: object = None) -> int:
        where = ["--root", str(self.folder / "memory")]
        return main(["edit", self.address, *where, *words], opener=opener)  # type: ignore[arg-type]

    def body(self) -> str:
        with Memory.open(self.folder / "memory") as memory:
            return memory.get(self.address).body

    def left(self) -> list[Path]:
        """What is left of temporary files."""
        return list(self.temporary.glob("h2ams-edit-*/*"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_only_this_user_can_read_the_file_that_is_edited(desk: Desk) -> None:
    modes = desk.folder / "modes"
    look = "modes = [oct(os.stat(each).st_mode & 0o777) for each in (path, os.path.dirname(path))]"
    desk.editor(f"{look}\nopen({str(modes)!r}, 'w').write(' '.join(modes))")
    assert desk.edit() == 0
    assert modes.read_text().split() == ["0o600", "0o700"]
    assert desk.left() == []


def test_the_edited_text_is_written_and_nothing_is_left(desk: Desk) -> None:
    desk.editor(CHANGED)
    assert desk.edit() == 0
    assert desk.body() == "Uses ed."
    assert list(desk.temporary.glob("h2ams-*")) == []


def test_options_go_with_what_the_editor_is_not_asked_for(desk: Desk) -> None:
    desk.editor("sys.exit('the editor must not be started')")
    assert desk.edit("--kind", "preference", "--tag", "a", "--tag", "b") == 0
    with Memory.open(desk.folder / "memory") as memory:
        record = memory.get(desk.address)
    assert (record.kind, record.tags, record.body) == ("preference", ("a", "b"), "Uses vim.")


def test_visual_goes_before_editor_and_a_missing_one_is_told(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.editor(CHANGED)
    desk.monkeypatch.setenv("EDITOR", "false")
    assert desk.edit() == 0
    desk.monkeypatch.setenv("VISUAL", "no-such-editor --wait")
    assert desk.edit() == 2
    assert "set VISUAL or EDITOR" in capsys.readouterr().err
    desk.monkeypatch.setenv("VISUAL", "an 'unclosed quote")
    assert desk.edit() == 2
    assert desk.left() == []


@pytest.mark.parametrize(
    "code", ["pass", "open(path, 'a').write('\\n\\n')", "os.unlink(path); open(path, 'w').close()"]
)
def test_an_editor_that_types_nothing_changes_nothing(desk: Desk, code: str) -> None:
    desk.editor(code)
    desk.edit()
    assert desk.body() == "Uses vim."
    assert desk.left() == []


def test_an_editor_that_fails_changes_nothing_and_keeps_what_was_typed(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.editor(CHANGED + "\nsys.exit(3)")
    assert desk.edit() == 1
    (left,) = desk.left()
    assert left.read_text(encoding="utf-8") == "Uses ed.\n"
    assert str(left) in capsys.readouterr().err
    assert desk.body() == "Uses vim."


def test_a_hand_edit_meanwhile_is_a_conflict_in_which_no_text_is_lost(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    file = desk.folder / "memory" / "user" / "memory.md"
    hand = f"p = {str(file)!r}; t = open(p).read().replace('vim', 'nano'); open(p, 'w').write(t)"
    desk.editor(f"{hand}\n{CHANGED}")
    assert desk.edit("--json") == 1
    out, err = capsys.readouterr()
    (left,) = desk.left()
    assert left.read_text(encoding="utf-8") == "Uses ed.\n"
    assert json.loads(out)["error"]["code"] == "conflict" and str(left) in err
    assert desk.body() == "Uses nano."


@pytest.mark.parametrize("error", [errors.LimitError("x", name="n", limit=1, size=2), OSError("x")])
def test_whatever_fails_after_the_editor_the_text_is_kept(
    desk: Desk, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    desk.editor(CHANGED)
    _fails_at_the_end(desk, error)
    (left,) = desk.left()
    assert str(left) in capsys.readouterr().err


def test_an_interrupt_keeps_the_text_too(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.editor(CHANGED)
    assert _fails_at_the_end(desk, KeyboardInterrupt()) == 130
    (left,) = desk.left()
    assert str(left) in capsys.readouterr().err


def _fails_at_the_end(desk: Desk, error: BaseException) -> int:
    """Edit a memory whose last update fails with ``error``."""
    with Memory.open(desk.folder / "memory") as memory:
        record = memory.get(desk.address)

    def update(*_: object, dry_run: bool, **__: object) -> None:
        if not dry_run:
            raise error

    return desk.edit(opener=ScriptedMemory(get=record, update=update).open)


def test_refusals_come_before_the_editor(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.editor("sys.exit('the editor must not be started')")
    (desk.folder / "memory" / "user" / "tea.md").write_text("# Tea\nGreen.\n", encoding="utf-8")
    note = next(each.address for each in _all(desk) if each.is_note)
    before, desk.address = desk.address, note
    assert desk.edit() == 1
    assert "edit user/tea.md:" in capsys.readouterr().err
    desk.address = before
    assert desk.edit("--session", "s1") == 1
    assert desk.edit("--expect", "0" * 64) == 1
    desk.address = "user#seg_nothing"
    assert desk.edit() == 1
    assert "editor" not in capsys.readouterr().err
    assert desk.left() == []


def _all(desk: Desk) -> tuple:
    with Memory.open(desk.folder / "memory") as memory:
        return memory.list()
