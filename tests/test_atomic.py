"""Replacing and removing files: nothing that somebody saves meanwhile is lost."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from roots import NOTE, data_of, leftovers, put, save

from h2ams import atomic
from h2ams.errors import ConflictError, StoreError
from h2ams.files import Changed, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root.create(tmp_path / "mem")


@pytest.fixture(params=["swap", "replace"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of publishing over a file: swapped (Linux) and the portable one."""
    if request.param == "replace":
        monkeypatch.setattr(atomic, "swapper", lambda: None)
    elif atomic.swapper() is None:
        pytest.skip("this system cannot swap two names")
    return str(request.param)


# Replacing


def test_a_replacement_returns_the_state_that_a_read_then_finds(root: Root, way: str) -> None:
    first = root.replace(NOTE, b"one", expect=None, make_folders=True)
    assert first == root.read(NOTE)
    second = root.replace(NOTE, b"two", expect=first)
    assert second == root.read(NOTE)
    assert leftovers(root) == []


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o444, 0o755])
def test_permission_bits_survive(root: Root, way: str, mode: int) -> None:
    put(root, b"one")
    os.chmod(root.absolute(NOTE), mode)
    assert put(root, b"two").mode == mode
    assert stat.S_IMODE(os.stat(root.absolute(NOTE)).st_mode) == mode


def test_a_new_file_gets_the_mode_that_the_umask_leaves(tmp_path: Path) -> None:
    script = """
        import os, sys
        os.umask(0o027)
        from h2ams.files import Root
        print(oct(Root.create(sys.argv[1]).replace("a.md", b"x", expect=None).mode))
    """
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "mem")],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert found.stdout.strip() == "0o640"


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_survives_when_root_edits(root: Root, way: str) -> None:
    put(root, b"one")
    os.chown(root.absolute(NOTE), 65534, 65534)
    put(root, b"two")
    assert os.stat(root.absolute(NOTE)).st_uid == 65534


def test_a_file_that_is_not_what_the_caller_read_is_never_replaced(root: Root, way: str) -> None:
    old = put(root, b"old")
    put(root, b"by hand")
    with pytest.raises(Changed) as caught:
        root.replace(NOTE, b"new", expect=old)
    assert isinstance(caught.value, ConflictError)
    assert caught.value.expected == old.sha256
    with pytest.raises(Changed):
        root.replace(NOTE, b"new", expect=None)
    with pytest.raises(Changed):
        root.remove(NOTE, expect=old)
    assert data_of(root) == b"by hand"
    os.unlink(root.absolute(NOTE))
    with pytest.raises(Changed):
        root.replace(NOTE, b"new", expect=old)
    with pytest.raises(Changed):
        root.remove(NOTE, expect=old)
    assert root.read(NOTE) is None
    assert leftovers(root) == []


def test_touching_a_file_or_saving_it_unchanged_is_no_change(root: Root, way: str) -> None:
    old = put(root, b"old")
    Path(root.absolute(NOTE)).write_bytes(b"old")
    os.utime(root.absolute(NOTE))
    assert root.replace(NOTE, b"new", expect=old).data == b"new"


def test_folders_are_only_made_when_asked(root: Root) -> None:
    with pytest.raises(StoreError, match="ENOENT"):
        root.replace(NOTE, b"x", expect=None)
    root.replace("sessions/s/vp/ada/memory.md", b"x", expect=None, make_folders=True)
    assert os.listdir(root.path) == ["sessions"]


def test_a_name_as_long_as_the_system_allows_can_be_replaced(root: Root, way: str) -> None:
    name = "ü" * 125 + "n.md"
    put(root, b"one", name)
    put(root, b"two", name)
    assert data_of(root, name) == b"two"
    with pytest.raises(StoreError, match="ENAMETOOLONG"):
        root.replace("x" * 300, b"x", expect=None)


# Somebody saves at the worst moment


class Meddler:
    """Saves a hand edit, by rename as editors do or in place, right before the chosen operation."""

    def __init__(self, operation: str, edits: list[Callable[[], None]]) -> None:
        self.operation = operation
        self.edits = edits

    def __call__(self, operation: str, path: str) -> None:
        if operation == self.operation and self.edits:
            self.edits.pop(0)()


@pytest.mark.skipif(atomic.swapper() is None, reason="this system cannot swap two names")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("operation", ["open-temp", "write", "chmod", "fsync", "check", "swap"])
def test_a_save_at_any_moment_before_the_swap_wins_and_is_told(
    tmp_path: Path, operation: str, in_place: bool
) -> None:
    root = Root.create(tmp_path / "mem")
    old = put(root, b"old")
    hook = Meddler(operation, [save(root.absolute(NOTE), b"by hand", in_place=in_place)])
    with pytest.raises(Changed):
        Root(root.path, hook=hook).replace(NOTE, b"new", expect=old)
    assert hook.edits == []
    assert data_of(root) == b"by hand"
    assert leftovers(root) == []


@pytest.mark.skipif(atomic.swapper() is None, reason="this system cannot swap two names")
def test_a_second_save_between_the_two_swaps_wins_and_the_first_is_kept(tmp_path: Path) -> None:
    root = Root.create(tmp_path / "mem")
    old = put(root, b"old")
    path = root.absolute(NOTE)

    def hook(operation: str, at: str) -> None:
        if operation == "swap":
            save(path, b"first save")()
        elif operation == "put-back" and Path(path).read_bytes() == b"new":
            save(path, b"second save")()

    with pytest.raises(Changed):
        Root(root.path, hook=hook).replace(NOTE, b"new", expect=old)
    assert data_of(root) == b"second save"
    copies = [name for name in os.listdir(os.path.dirname(path)) if "conflicted copy" in name]
    assert [data_of(root, f"user/{name}") for name in copies] == [b"first save"]
    assert leftovers(root) == []


@pytest.mark.skipif(atomic.swapper() is None, reason="this system cannot swap two names")
def test_a_file_removed_between_check_and_swap_stays_removed(tmp_path: Path) -> None:
    root = Root.create(tmp_path / "mem")
    old = put(root, b"old")
    hook = Meddler("swap", [save(root.absolute(NOTE), None)])
    with pytest.raises(Changed):
        Root(root.path, hook=hook).replace(NOTE, b"new", expect=old)
    assert root.read(NOTE) is None
    assert leftovers(root) == []


@pytest.mark.skipif(atomic.swapper() is None, reason="this system cannot swap two names")
def test_a_save_that_is_removed_before_it_is_put_back_is_put_back(tmp_path: Path) -> None:
    root = Root.create(tmp_path / "mem")
    old = put(root, b"old")
    path = root.absolute(NOTE)

    def hook(operation: str, at: str) -> None:
        if operation == "swap":
            save(path, b"by hand")()
        elif operation == "put-back":
            os.unlink(path)

    with pytest.raises(Changed):
        Root(root.path, hook=hook).replace(NOTE, b"new", expect=old)
    assert data_of(root) == b"by hand"
    assert leftovers(root) == []


def test_a_file_that_appears_before_the_link_is_kept(root: Root) -> None:
    os.mkdir(os.path.join(root.path, "user"))
    hook = Meddler("link", [save(root.absolute(NOTE), b"by hand")])
    with pytest.raises(Changed):
        Root(root.path, hook=hook).replace(NOTE, b"new", expect=None)
    assert data_of(root) == b"by hand"
    assert leftovers(root) == []


def test_a_save_right_before_a_removal_is_given_back(root: Root) -> None:
    old = put(root, b"old")
    hook = Meddler("rename", [save(root.absolute(NOTE), b"by hand")])
    with pytest.raises(Changed):
        Root(root.path, hook=hook).remove(NOTE, expect=old)
    assert data_of(root) == b"by hand"
    assert leftovers(root) == []


def test_two_saves_around_a_removal_are_both_kept(root: Root) -> None:
    old = put(root, b"old")
    path = root.absolute(NOTE)
    edits = {"rename": [b"first save"], "link": [b"second save"]}

    def hook(operation: str, at: str) -> None:
        for data in edits.pop(operation, []):
            save(path, data)()

    with pytest.raises(Changed):
        Root(root.path, hook=hook).remove(NOTE, expect=old)
    assert data_of(root) == b"second save"
    copies = [name for name in os.listdir(os.path.dirname(path)) if "conflicted copy" in name]
    assert [data_of(root, f"user/{name}") for name in copies] == [b"first save"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS])
def test_a_file_system_that_cannot_swap_gets_the_portable_way(
    root: Root, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(atomic, "swapper", lambda: lambda first, second: number)
    put(root, b"old")
    put(root, b"new")
    assert data_of(root) == b"new"
    assert leftovers(root) == []


def test_a_swap_that_fails_for_another_reason_is_an_error_and_leaves_the_old(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, b"old")
    monkeypatch.setattr(atomic, "swapper", lambda: lambda first, second: errno.EIO)
    with pytest.raises(StoreError, match="EIO"):
        put(root, b"new")
    assert data_of(root) == b"old"
    assert leftovers(root) == []


def test_a_file_system_without_hard_links_gets_the_portable_way(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_link(source: str, target: str) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), target)

    monkeypatch.setattr(os, "link", no_link)
    assert put(root, b"one").data == b"one"
    hook = Meddler("rename", [save(root.absolute(NOTE), b"by hand")])
    with pytest.raises(Changed):
        Root(root.path, hook=hook).remove(NOTE, expect=put(root, b"two"))
    assert data_of(root) == b"by hand"
    assert leftovers(root) == []


@pytest.mark.parametrize("in_place", [True, False])
def test_a_save_right_after_the_step_is_not_taken_for_ours(
    root: Root, way: str, in_place: bool
) -> None:
    """The state returned must differ from the file, or a scan would never read that save."""
    old = put(root, b"old")
    hook = Meddler("fsync-folder", [save(root.absolute(NOTE), b"by hand", in_place=in_place)])
    ours = Root(root.path, hook=hook).replace(NOTE, b"new", expect=old)
    theirs = root.read(NOTE)
    assert theirs is not None
    assert (ours.data, theirs.data) == (b"new", b"by hand")
    compared = ("size", "mtime_ns", "ctime_ns", "inode")
    assert [getattr(ours, name) for name in compared] != [
        getattr(theirs, name) for name in compared
    ]


# Leftovers


def test_leftovers_of_dead_writers_are_cleared_and_other_files_stay(root: Root) -> None:
    put(root, b"text")
    folder = os.path.dirname(root.absolute(NOTE))
    kept = ["notes.tmp", ".memory.md.tmp", ".memory.md.short.tmp", ".hidden", "a.swap", "b.md"]
    for name in [*kept, ".memory.md.0123456789abcdef.tmp"]:
        Path(folder, name).write_bytes(b"x")
    os.symlink("b.md", os.path.join(folder, ".b.md.0123456789abcdef.tmp"))
    assert root.sweep_temps("user") == 1
    assert sorted(os.listdir(folder)) == sorted([*kept, ".b.md.0123456789abcdef.tmp", "memory.md"])


def test_a_leftover_swap_is_cleared_only_if_it_holds_a_version_the_engine_knew(root: Root) -> None:
    put(root, b"text")
    folder = os.path.dirname(root.absolute(NOTE))
    for number, data in enumerate([b"new", b"old", b"a person's text"]):
        name = atomic._swap_name(os.path.join(folder, f"f{number}.md"), b"new", b"old")
        Path(name).write_bytes(data)
    assert root.sweep_temps("user") == 3
    names = sorted(os.listdir(folder))
    assert names[1:] == ["memory.md"]
    assert names[0].startswith("f2 (conflicted copy ")
    assert data_of(root, f"user/{names[0]}") == b"a person's text"
    assert root.sweep_temps("user") == 0


def test_threads_that_replace_at_once_lose_no_update(root: Root, way: str) -> None:
    put(root, b"")

    def add(mark: bytes) -> None:
        for _ in range(15):
            while True:
                state = root.read(NOTE)
                assert state is not None
                try:
                    root.replace(NOTE, state.data + mark, expect=state)
                except Changed:
                    continue
                break

    threads = [threading.Thread(target=_locked, args=(root, add, mark)) for mark in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = data_of(root)
    assert found is not None
    assert (found.count(b"a"), found.count(b"b")) == (15, 15)


def _locked(root: Root, add: Callable[[bytes], None], mark: bytes) -> None:
    with root.lock("user"):
        add(mark)
