"""The n-th file operation fails, or the process is killed there: the old file or the new one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from roots import NOTE, data_of, leftovers, put

from h2ams import atomic
from h2ams.errors import StoreError
from h2ams.files import Root

Change = Callable[[Root], object]


class FailAt:
    """Raises at the n-th operation and counts all of them."""

    def __init__(self, number: int, error: BaseException) -> None:
        self.number = number
        self.error = error
        self.seen: list[str] = []

    def __call__(self, operation: str, path: str) -> None:
        self.seen.append(operation)
        if len(self.seen) == self.number:
            raise self.error


def replace(root: Root) -> object:
    return root.replace(NOTE, b"new" * 50_000, expect=root.read(NOTE))


def create(root: Root) -> object:
    return root.replace("vp/a/b.md", b"new" * 50_000, expect=None, make_folders=True)


def remove(root: Root) -> object:
    state = root.read(NOTE)
    assert state is not None
    return root.remove(NOTE, expect=state)


def write_state(root: Root) -> object:
    return root.write_state("ams/s/v.json", b"new" * 50_000)


CHANGES: dict[str, tuple[Change, str, bytes | None, bytes | None, int]] = {
    "replace": (replace, NOTE, b"old", b"new" * 50_000, 8),
    "create": (create, "vp/a/b.md", None, b"new" * 50_000, 10),
    "remove": (remove, NOTE, b"old", None, 5),
    "state": (write_state, ".h2ams/ams/s/v.json", None, b"new" * 50_000, 5),
}


@pytest.mark.parametrize("kind", ["error", "disk full", "interrupt"])
@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_after_the_nth_operation_fails_the_file_is_old_or_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, portable: bool, kind: str
) -> None:
    if portable:
        monkeypatch.setattr(atomic, "swapper", lambda: None)
    change, relative, old, new, at_least = CHANGES[name]
    for number in range(1, 100):
        path = tmp_path / str(number)
        put(Root.create(path), b"old")
        failure: BaseException = {
            "error": OSError(errno.EIO, "simulated"),
            "disk full": OSError(errno.ENOSPC, "simulated"),
            "interrupt": KeyboardInterrupt(),
        }[kind]
        hook = FailAt(number, failure)
        root = Root(path)
        try:
            change(Root(path, hook=hook))
        except (StoreError, KeyboardInterrupt) as error:
            found = error
        else:
            found = None
        assert data_of(root, relative) in ((new,) if found is None else (old, new))
        if found is None:
            assert len(hook.seen) >= at_least, hook.seen
            assert leftovers(root) == []
            return
        assert isinstance(found, KeyboardInterrupt) == (kind == "interrupt")
        assert kind == "interrupt" or "(E" in str(found)
        folder = os.path.dirname(relative)
        root.sweep_temps(folder)
        assert leftovers(root) == []
        assert data_of(root, relative) in (old, new)
        if data_of(root, relative) == old:
            change(root)
        assert data_of(root, relative) == new
    pytest.fail("the change never passed")


KILLED = """
import json, os, signal, sys
from h2ams import atomic
from h2ams.files import Root

base, name, meddle = sys.argv[1:]
OLD, NEW, HAND = b"old", b"new" * 50_000, b"by hand"
atomic.swapper()


def prepare(path):
    root = Root.create(path)
    return root, root.replace("user/memory.md", OLD, expect=None, make_folders=True)


def change(root, old):
    if name == "replace":
        root.replace("user/memory.md", NEW, expect=old)
    elif name == "remove":
        root.remove("user/memory.md", expect=old)
    else:
        root.replace("user/new.md", NEW, expect=None)


number, passed = 0, False
while not passed:
    number += 1
    path = os.path.join(base, str(number))
    root, old = prepare(path)
    child = os.fork()
    if child == 0:
        count = 0

        def hook(operation, at):
            global count
            count += 1
            if meddle and operation == meddle:
                with open(root.absolute("user/memory.md") + ".editor", "wb") as file:
                    file.write(HAND)
                os.rename(file.name, root.absolute("user/memory.md"))
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            change(Root(path, hook=hook), old)
        except atomic.Changed:
            pass
        os._exit(0)
    passed = os.waitpid(child, 0)[1] == 0
    before = {each: root.read(f"user/{each}").data.decode() for each in os.listdir(path + "/user")}
    swept = root.sweep_temps("user")
    after = {each: root.read(f"user/{each}").data.decode() for each in os.listdir(path + "/user")}
    print(json.dumps({"passed": passed, "before": before, "swept": swept, "after": after}))
"""


def killed(tmp_path: Path, name: str, meddle: str = "") -> list[dict[str, dict[str, str]]]:
    """What is left in ``user/`` after a SIGKILL at the 1st, 2nd, 3rd … operation."""
    found = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), name, meddle],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    return [json.loads(line) for line in found.stdout.splitlines()]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("name", "file", "old", "new", "at_least"),
    [
        ("replace", "memory.md", "old", "new" * 50_000, 8),
        ("create", "new.md", None, "new" * 50_000, 7),
        ("remove", "memory.md", "old", None, 4),
    ],
)
def test_after_kill_9_at_the_nth_operation_the_file_is_old_or_new(
    tmp_path: Path, name: str, file: str, old: str | None, new: str | None, at_least: int
) -> None:
    rounds = killed(tmp_path, name)
    assert len(rounds) > at_least
    for each in rounds:
        assert each["before"].get(file) in (old, new)
        assert each["after"].get(file) == each["before"].get(file)
        others = set(each["after"]) - {"memory.md", "new.md"}
        assert others == set()
    assert rounds[-1]["after"].get(file) == new


@pytest.mark.skipif(atomic.swapper() is None, reason="this system cannot swap two names")
@pytest.mark.parametrize(("name", "meddle"), [("replace", "swap"), ("remove", "rename")])
def test_a_hand_edit_at_the_worst_moment_survives_kill_9_at_any_operation(
    tmp_path: Path, name: str, meddle: str
) -> None:
    rounds = killed(tmp_path, name, meddle)
    edited = [each for each in rounds if "by hand" in {**each["before"], **each["after"]}.values()]
    assert len(edited) >= 3
    for each in edited:
        kept = [file for file, text in each["after"].items() if text == "by hand"]
        assert kept, each
        assert all(file.endswith(".md") and not file.startswith(".") for file in kept)
    assert rounds[-1]["after"] == {"memory.md": "by hand"}
