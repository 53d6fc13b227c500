"""Whole-file edits and imports when a file operation fails: nothing is lost, nothing is half done.

The n-th operation fails for n = 1, 2, 3 … until the work passes; each test counts the faults.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from folder import PLAIN, segment_text, write

from h2ams.errors import StoreError
from h2ams.files import Root
from h2ams.memory.access import Gate
from h2ams.memory.intake import Incoming, Intake
from h2ams.memory.segment import parse
from h2ams.memory.tree import FileTree

OLD, NEW = "old text\n", "new text\n"


class Faults:
    """Fails the ``at``-th file operation, once."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.made = 0

    def __call__(self, operation: str, path: str) -> None:
        self._left -= 1
        if self._left == 0:
            self.made += 1
            raise OSError(errno.EIO, f"planted at {operation}", path)


def tree(folder: Path, faults: Faults) -> FileTree:
    root = Root(folder, hook=faults)
    return FileTree(root, PLAIN, Gate(None), count=len, synced=lambda _: None)


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.md")
        if ".h2ams" not in path.parts
    }


def prepared(folder: Path) -> Path:
    write(folder, "user/a.md", OLD)
    write(folder, "user/deep/b.md", OLD)
    return folder


Work = Callable[[FileTree], object]
WORKS: dict[str, tuple[Work, dict[str, str]]] = {
    "create": (
        lambda tree: tree.create("sessions/s/new.md", NEW),
        {"user/a.md": OLD, "user/deep/b.md": OLD, "sessions/s/new.md": NEW},
    ),
    "edit": (
        lambda tree: tree.edit("user/a.md", NEW, lambda _, added: added),
        {"user/a.md": NEW, "user/deep/b.md": OLD},
    ),
    "rename": (
        lambda tree: tree.rename("user/a.md", "sessions/s/a.md"),
        {"sessions/s/a.md": OLD, "user/deep/b.md": OLD},
    ),
    "rename folder": (
        lambda tree: tree.rename("user/deep", "user/other"),
        {"user/a.md": OLD, "user/other/b.md": OLD},
    ),
    "delete": (lambda tree: tree.delete("user/deep"), {"user/a.md": OLD}),
}


@pytest.mark.parametrize("name", WORKS)
def test_a_fault_leaves_each_text_old_or_new_and_a_move_never_a_gap(
    tmp_path: Path, name: str
) -> None:
    work, after = WORKS[name]
    before = {"user/a.md": OLD, "user/deep/b.md": OLD}
    faults_made = 0
    for number in range(1, 200):
        folder = prepared(tmp_path / str(number))
        faults = Faults(number)
        try:
            work(tree(folder, faults))
        except StoreError:
            assert faults.made
        found = texts(folder)
        for path, text in found.items():
            assert text in (before.get(path), after.get(path)), (number, path)
        assert len(found) >= min(len(before), len(after)), number  # a copy at most, never a gap
        faults_made += faults.made
        if not faults.made:
            assert found == after
            break
    else:
        raise AssertionError("it never passed")
    assert faults_made >= 3


def test_an_import_is_all_or_nothing_for_each_scope_and_can_be_repeated(tmp_path: Path) -> None:
    several = [Incoming(scope="user", body=f"text {n}", origin=str(n)) for n in range(5)]
    faults_made = 0
    for number in range(1, 200):
        folder = tmp_path / str(number)
        write(folder, "user/memory.md", segment_text("old", "Was here."))
        faults = Faults(number)
        taken = Intake(Root(folder, hook=faults), PLAIN).take(several)
        faults_made += faults.made
        found = parse((folder / "user/memory.md").read_bytes())
        assert len(found.entries) in (1, 6)
        assert (len(found.entries) == 6) == (len(taken.added) == 5) or faults.made
        if not faults.made:
            break
        again = Intake(Root(folder), PLAIN).take(several)
        assert len(again.added) + len(again.known) == 5 and not again.failed
        assert len(parse((folder / "user/memory.md").read_bytes()).entries) == 6
    else:
        raise AssertionError("it never passed")
    assert faults_made >= 3
