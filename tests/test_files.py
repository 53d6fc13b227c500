"""The memory folder on disk: its root, paths, reading, internal state."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from roots import NOTE, data_of, leftovers, put

from h2ams.errors import RootError, StoreError, UnsafePathError
from h2ams.files import FileState, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root.create(tmp_path / "mem")


@pytest.fixture
def open_folder() -> Iterator[str]:
    """A folder that any user can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        yield os.path.realpath(folder)


def as_nobody(script: str, *arguments: str) -> list[str]:
    """The lines that ``script`` prints without root's power to ignore permission bits.

    Everything is imported first: nobody may not be able to read the interpreter's library.
    """
    before = """
import os, sys
from h2ams.atomic import swapper
from h2ams.errors import RootError, StoreError
from h2ams.files import Root
swapper()
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
"""
    found = subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(script), *arguments],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


# The root


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "nul", "below a file"])
def test_k21_a_root_that_is_no_folder_is_an_error_and_is_not_made(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    path = {
        "missing": str(tmp_path / "missing"),
        "file": str(tmp_path / "file"),
        "empty": "",
        "nul": "a\0b",
        "below a file": str(tmp_path / "file" / "x"),
    }[kind]
    with pytest.raises(RootError) as caught:
        Root(path)
    assert caught.value.hint
    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o111])
def test_k21_a_root_without_permission_is_an_error_that_names_path_and_errno(
    open_folder: str, mode: int
) -> None:
    script = """
        path = os.path.join(sys.argv[1], "closed")
        os.mkdir(path)
        os.chmod(path, int(sys.argv[2]))
        try:
            Root(path)
        except RootError as error:
            print(error)
    """
    (line,) = as_nobody(script, open_folder, str(mode))
    assert line.startswith(f"memory folder {open_folder}/closed: ")
    assert line.endswith("Permission denied (EACCES)")


def test_k21_what_is_missing_in_a_vanished_root_is_an_error_not_an_empty_file(
    root: Root, tmp_path: Path
) -> None:
    put(root, b"text")
    os.rename(root.path, tmp_path / "away")
    with pytest.raises(RootError):
        root.read(NOTE)
    with pytest.raises(RootError):
        root.replace(NOTE, b"x", expect=None, make_folders=True)
    assert not os.path.exists(root.path)
    os.rename(tmp_path / "away", root.path)
    assert data_of(root) == b"text"


def test_k143_only_create_makes_a_root_with_missing_parents(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "mem"
    with pytest.raises(RootError):
        Root(path)
    assert Root.create(path).path == os.path.realpath(path)
    assert Root.create(path).path == Root(path).path
    with pytest.raises(RootError):
        Root.create("")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(RootError):
        Root.create(tmp_path / "file")


def test_k143_relative_paths_are_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Root.create("rel/dir").path == os.path.realpath(tmp_path / "rel" / "dir")


def test_k82_two_roots_of_one_folder_name_share_nothing(tmp_path: Path) -> None:
    job = Root.create(tmp_path / "job" / "my-app")
    personal = Root.create(tmp_path / "personal" / "my-app")
    put(job, b"mine")
    assert job.path != personal.path
    assert personal.read(NOTE) is None
    for spelling in (f"{job.path}/", os.path.join(tmp_path, "job", ".", "my-app")):
        assert Root(spelling).path == job.path


def test_opening_and_reading_a_root_writes_nothing_into_it(root: Root) -> None:
    assert root.read(NOTE) is None
    assert root.read_state("config.toml") is None
    assert root.sweep_temps("user") == 0
    assert root.writable()
    assert os.listdir(root.path) == []


# Paths


@pytest.mark.parametrize(
    "relative",
    [
        "../mem-secret/memory.md",
        "..",
        "user/../../mem-secret/memory.md",
        "user/./memory.md",
        ".",
        "./user",
        "/etc/passwd",
        "//server/share",
        "user//memory.md",
        "user/",
        "C:/Windows/x.md",
        "C:",
        "..\\mem-secret\\memory.md",
        "C:\\x",
        "user/a\0b",
        "user/a\ud800b",
    ],
)
def test_k85_paths_that_leave_the_root_are_refused(root: Root, relative: str) -> None:
    os.mkdir(f"{root.path}-secret")
    Path(f"{root.path}-secret/memory.md").write_text("topsecret", encoding="utf-8")
    for call in (
        lambda: root.read(relative),
        lambda: root.replace(relative, b"x", expect=None, make_folders=True),
        lambda: root.absolute(relative),
        lambda: root.write_state(relative, b"x"),
        lambda: root.read_state(relative),
    ):
        with pytest.raises(UnsafePathError) as caught:
            call()
        assert str(caught.value).isprintable()
    assert os.listdir(f"{root.path}-secret") == ["memory.md"]


def test_k85_the_absolute_path_of_a_sibling_with_the_same_prefix_is_refused(root: Root) -> None:
    with pytest.raises(UnsafePathError):
        root.read(f"{root.path}-secret/memory.md")
    os.mkdir(f"{root.path}-secret")
    os.symlink(f"{root.path}-secret", os.path.join(root.path, "vault"))
    with pytest.raises(UnsafePathError):
        root.read("vault/memory.md")


@given(st.text(max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_refused_or_stays_below_the_root(root: Root, relative: str) -> None:
    try:
        path = root.absolute(relative)
    except StoreError as refused:
        path, message = root.path, str(refused)
    else:
        message = ""
    assert message == "" or message.isprintable()
    assert path == root.path or path.startswith(root.path + os.sep)
    assert os.path.normpath(path) == path


def test_harmless_names_with_a_colon_are_read(root: Root) -> None:
    put(root, b"why", "Q: why.md")
    assert data_of(root, "Q: why.md") == b"why"


def test_k16_links_that_lead_out_of_the_root_are_not_read(root: Root, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "memory.md").write_text("topsecret", encoding="utf-8")
    os.symlink(outside, os.path.join(root.path, "user"))
    os.makedirs(os.path.join(root.path, "chat", "1"))
    os.symlink(outside / "memory.md", os.path.join(root.path, "chat", "1", "memory.md"))
    for relative, link in ((NOTE, "user"), ("chat/1/memory.md", "chat/1/memory.md")):
        with pytest.raises(UnsafePathError, match="leads out") as caught:
            root.read(relative)
        assert caught.value.path == link
        assert "outside" not in caught.value.message.replace("out of", "")


def test_k17_writes_through_links_that_lead_outside_or_nowhere_are_refused(
    root: Root, tmp_path: Path
) -> None:
    victim, new, lock = tmp_path / "victim.md", tmp_path / "new.md", tmp_path / "lock"
    victim.write_text("original", encoding="utf-8")
    user = os.path.join(root.path, "user")
    os.mkdir(user)
    os.symlink(victim, os.path.join(user, "memory.md"))
    os.symlink(new, os.path.join(user, "summary.md"))
    os.symlink(lock, os.path.join(user, ".lock"))
    os.symlink("nowhere.md", os.path.join(user, "inside.md"))
    os.symlink("loop.md", os.path.join(user, "loop.md"))
    seen = FileState(b"original", 8, 0, 0, 0, 0o644)
    for name in ("memory.md", "summary.md", "inside.md", "loop.md", ".lock"):
        for expect in (None, seen):
            with pytest.raises(UnsafePathError):
                root.replace(f"user/{name}", b"new", expect=expect, make_folders=True)
        with pytest.raises(UnsafePathError):
            root.remove(f"user/{name}", expect=seen)
    with root.lock("user"):
        pass
    assert victim.read_text(encoding="utf-8") == "original"
    assert not new.exists() and not lock.exists()
    assert not os.path.exists(os.path.join(user, "nowhere.md"))
    assert leftovers(root) == []


def test_k74_a_link_inside_the_root_is_kept_and_its_target_replaced(root: Root) -> None:
    put(root, b"old", "store/user.md")
    os.mkdir(os.path.join(root.path, "user"))
    link = os.path.join(root.path, "user", "memory.md")
    os.symlink("../store/user.md", link)
    put(root, b"new")
    assert os.path.islink(link)
    assert data_of(root, "store/user.md") == data_of(root) == b"new"


def test_links_to_folders_inside_the_root_are_followed_several_deep(root: Root) -> None:
    put(root, b"text", "store/deep/memory.md")
    os.symlink("store", os.path.join(root.path, "first"))
    os.symlink("first/deep", os.path.join(root.path, "user"))
    assert data_of(root) == b"text"
    assert root.absolute(NOTE) == os.path.join(root.path, "store", "deep", "memory.md")


def test_removing_through_a_link_removes_target_and_link(root: Root) -> None:
    state = put(root, b"old", "store/user.md")
    os.mkdir(os.path.join(root.path, "user"))
    os.symlink("../store/user.md", os.path.join(root.path, "user", "memory.md"))
    root.remove(NOTE, expect=state)
    assert root.read(NOTE) is None
    assert root.read("store/user.md") is None


def test_a_link_into_the_engines_own_folder_is_refused(root: Root) -> None:
    root.write_state("config.toml", b"x")
    os.mkdir(os.path.join(root.path, "user"))
    os.symlink("../.h2ams/config.toml", os.path.join(root.path, "user", "memory.md"))
    with pytest.raises(UnsafePathError):
        root.replace(NOTE, b"y", expect=root.read("vp/none.md"))
    assert root.read_state("config.toml") == b"x"


# Reading


def test_reading_gives_the_bytes_and_what_a_scan_compares(root: Root) -> None:
    put(root, b"\xef\xbb\xbfa\r\nb\0\xff")
    state = root.read(NOTE)
    assert state is not None
    status = os.stat(root.absolute(NOTE))
    assert state.data == b"\xef\xbb\xbfa\r\nb\0\xff"
    assert (state.size, state.inode) == (status.st_size, status.st_ino)
    assert (state.mtime_ns, state.ctime_ns) == (status.st_mtime_ns, status.st_ctime_ns)
    assert len(state.sha256) == 64
    assert "data" not in repr(state)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_regular_file_is_refused_without_waiting(root: Root, kind: str) -> None:
    os.mkdir(os.path.join(root.path, "user"))
    path = os.path.join(root.path, "user", "memory.md")
    os.mkdir(path) if kind == "folder" else os.mkfifo(path)
    with pytest.raises(StoreError, match="not a regular file"):
        root.read(NOTE)
    with pytest.raises(StoreError):
        root.replace(NOTE, b"x", expect=None)
    assert leftovers(root) == []


def test_a_file_below_a_file_is_not_there(root: Root) -> None:
    put(root, b"text", "user")
    assert root.read(NOTE) is None
    with pytest.raises(StoreError, match="ENOTDIR"):
        root.replace(NOTE, b"x", expect=None, make_folders=True)


def test_k20_an_unreadable_file_or_folder_is_named_with_its_errno(open_folder: str) -> None:
    script = """
        root = Root.create(os.path.join(sys.argv[1], "mem"))
        for number in range(4):
            root.replace(f"vp/v{number}/memory.md", b"x", expect=None, make_folders=True)
        os.chmod(root.absolute("vp/v1/memory.md"), 0)
        os.chmod(root.absolute("vp/v2"), 0)
        for number in range(4):
            try:
                print(root.read(f"vp/v{number}/memory.md").data)
            except StoreError as error:
                print(type(error).__name__, error.path, error, error.hint)
        os.chmod(root.absolute("vp/v2"), 0o755)
        os.chmod(root.path, 0o555)
        print(root.writable())
        try:
            root.replace("chat/c/memory.md", b"x", expect=None, make_folders=True)
        except StoreError as error:
            print(error)
    """
    lines = as_nobody(script, open_folder)
    assert lines[0] == lines[3] == "b'x'"
    for line, name in ((lines[1], "vp/v1/memory.md"), (lines[2], "vp/v2/memory.md")):
        assert line.startswith(f"StoreError {name} ")
        assert "Permission denied (EACCES)" in line
        assert "check the permissions" in line
    assert lines[4] == "False"
    assert lines[5].startswith("cannot write chat/c/memory.md: Permission denied (EACCES)")


# State


def test_state_files_are_private_and_made_lazily(root: Root) -> None:
    root.write_state("ams/s1/ada.json", b"{}")
    assert root.read_state("ams/s1/ada.json") == b"{}"
    root.write_state("ams/s1/ada.json", b"{1}")
    assert root.read_state("ams/s1/ada.json") == b"{1}"
    for name, mode in (("", 0o700), ("ams/s1", 0o700), ("ams/s1/ada.json", 0o600)):
        assert stat.S_IMODE(os.stat(root.state_path(name)).st_mode) == mode
    assert root.state_path("") == root.state == os.path.join(root.path, ".h2ams")


def test_state_can_be_elsewhere_and_the_locks_stay_with_the_files(tmp_path: Path) -> None:
    root = Root.create(tmp_path / "mem", state=tmp_path / "far" / "state")
    root.write_state("registry", b"x")
    assert (tmp_path / "far" / "state" / "registry").read_bytes() == b"x"
    assert os.listdir(root.path) == []
    with root.lock("user"):
        assert os.listdir(os.path.join(root.path, ".h2ams")) == ["locks"]


@pytest.mark.parametrize("link", [".h2ams", ".h2ams/ams", ".h2ams/ams/x.json", ".h2ams/locks"])
def test_no_link_is_followed_among_the_engines_own_files(
    root: Root, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    path = os.path.join(root.path, link)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(outside / "new.json" if link.endswith("json") else outside, path)
    if link.endswith("locks"):
        with pytest.raises(UnsafePathError), root.lock("user"):
            pass
    else:
        with pytest.raises(UnsafePathError):
            root.write_state("ams/x.json", b"x")
        with pytest.raises(UnsafePathError):
            root.read_state("ams/x.json")
    assert os.listdir(outside) == []
