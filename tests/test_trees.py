"""Whole folders: links are moved and never followed, nothing is overwritten, nothing leaves."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from h2ams.errors import StoreError, UnsafePathError
from h2ams.files import Root
from h2ams.trees import Trees


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    root = tmp_path / "root"
    for path in ("a/one.md", "a/b/two.md", "c/three.md"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "a/link.md").symlink_to("one.md")
    (root / "out").symlink_to(tmp_path)
    (tmp_path / "secret.md").write_text("outside")
    return Trees(Root(root))


def test_a_walk_names_files_and_links_in_order_and_follows_none(trees: Trees) -> None:
    assert list(trees.walk("a")) == ["a/b/two.md", "a/link.md", "a/one.md"]
    assert list(trees.walk("out")) == ["out"]
    assert list(trees.walk("none")) == []
    assert trees.seen("a/link.md").kind == "link"


def test_a_folder_moves_as_it_is_and_over_nothing(trees: Trees, tmp_path: Path) -> None:
    trees.move("a", "new/place/a")
    assert list(trees.walk("new")) == [
        "new/place/a/b/two.md", "new/place/a/link.md", "new/place/a/one.md",
    ]  # fmt: skip
    with pytest.raises(StoreError):
        trees.move("new/place/a", "c")
    with pytest.raises(StoreError):
        trees.move("c/three.md", "new/place/a/one.md")
    trees.move("out", "c/out")
    assert os.readlink(tmp_path / "root/c/out") == str(tmp_path)


def test_a_path_through_a_link_out_of_the_root_is_refused(trees: Trees, tmp_path: Path) -> None:
    for call in (
        lambda: trees.move("out/secret.md", "a/x"),
        lambda: trees.move("a", "out/a"),
        lambda: trees.clear("out/secret.md"),
        lambda: trees.copy("a/one.md", "out/x"),
        lambda: trees.folders("out"),
        lambda: trees.exists("../secret.md"),
        lambda: trees.exists(".h2ams/../../secret.md"),
    ):
        with pytest.raises(UnsafePathError):
            call()
    assert (tmp_path / "secret.md").read_text() == "outside"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "secret.md"]


def test_no_link_is_passed_among_the_engines_own_files(trees: Trees, tmp_path: Path) -> None:
    own = tmp_path / "root/.h2ams"
    own.mkdir()
    (own / "trash").symlink_to(tmp_path / "root/c")
    with pytest.raises(UnsafePathError):
        trees.clear(".h2ams/trash/three.md")
    with pytest.raises(UnsafePathError):
        trees.move("a", ".h2ams/trash/a")
    assert (tmp_path / "root/c/three.md").exists() and (tmp_path / "root/a").exists()


def test_a_copy_keeps_mode_and_times_and_is_whole_or_not_there(
    trees: Trees, tmp_path: Path
) -> None:
    source = tmp_path / "root/a/one.md"
    source.chmod(0o640)
    os.utime(source, ns=(1_000_000_000, 2_000_000_000))
    trees.copy("a/one.md", "copies/one.md")
    made = (tmp_path / "root/copies/one.md").stat()
    assert stat.S_IMODE(made.st_mode) == 0o640 and made.st_mtime_ns == 2_000_000_000
    trees.copy("a/link.md", "copies/link.md")
    assert os.readlink(tmp_path / "root/copies/link.md") == "one.md"
    with pytest.raises(StoreError):
        trees.copy("c/three.md", "copies/one.md")
    assert (tmp_path / "root/copies/one.md").read_text() == "a/one.md"
    assert sorted(os.listdir(tmp_path / "root/copies")) == ["link.md", "one.md"]


def test_clearing_goes_on_where_one_file_cannot_be_removed(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / "root/x" / name).mkdir(parents=True)
        (tmp_path / "root/x" / name / "file").write_text(name)

    def hook(operation: str, path: str) -> None:
        if operation == "unlink" and path.endswith("two/file"):
            raise PermissionError(13, "simulated", path)

    trees = Trees(Root(tmp_path / "root", hook=hook))
    assert [failure.path for failure in trees.clear("x")] == ["x/two/file"]
    assert list(trees.walk("x")) == ["x/two/file"]
    assert Trees(Root(tmp_path / "root")).clear("x") == []
    assert trees.clear("x") == []
    assert not (tmp_path / "root/x").exists()


def test_only_an_empty_folder_is_pruned(trees: Trees, tmp_path: Path) -> None:
    (tmp_path / "root/empty").mkdir()
    for name in ("empty", "a", "none", "out"):
        trees.prune(name)
    assert sorted(os.listdir(tmp_path / "root")) == ["a", "c", "out"]
