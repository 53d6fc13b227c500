"""The store when a file operation fails, when its process is killed, and when there are two of it.

Old or new, nothing between, and the next write clears up. Each test counts the faults it made, so
that it cannot pass without any.
"""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from crash.store_worker import OPERATIONS, SCOPE, open_store

from h2ams.errors import StoreError
from h2ams.memory.segment import parse

WORKER = Path(__file__).parent / "store_worker.py"
REPOSITORY = Path(__file__).parent.parent.parent
MEMORY = "sessions/s1/memory.md"
OLD_LAYOUT = "group/s1/memory.md"


def _text(id: str, body: str) -> str:
    return f"---\nid: {id}\nkind: fact\n---\n{body}\n"


def _template(folder: Path) -> None:
    """A session in two layouts, one segment in both, one that was forgotten."""
    for name, text in {
        MEMORY: _text("seg_1", "one")
        + "\n"
        + _text("seg_2", "two")
        + "\n"
        + _text("seg_9", "nine"),
        OLD_LAYOUT: _text("seg_2", "two in the old layout") + "\n" + _text("seg_3", "three"),
        "sessions/s1/summary.md": "An old summary.\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    open_store(folder).remove(SCOPE, "seg_9")


def _files(folder: Path) -> dict[str, bytes]:
    """The user's files; leftovers of writers are left out."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix == ".md" and ".h2ams" not in path.parts
    }


def _leftovers(folder: Path) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.suffix in (".tmp", ".swap") and ".h2ams" not in path.parts
    ]


def _check_old_or_new(
    found: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]
) -> None:
    assert found.keys() <= old.keys() | new.keys(), "no file of another name, no conflict copy"
    for name in old.keys() | new.keys():
        assert found.get(name) in (old.get(name), new.get(name)), name


def _expected(operation: str, folder: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files before and after the operation without any fault."""
    _template(folder)
    old = _files(folder)
    OPERATIONS[operation](open_store(folder))
    return old, _files(folder)


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_when_the_nth_file_operation_fails_each_file_is_old_or_new(
    tmp_path: Path, operation: str
) -> None:
    old, new = _expected(operation, tmp_path / "expected")
    faults = 0
    for number in range(1, 1_000):
        folder = tmp_path / str(number)
        _template(folder)
        count = 0

        def hook(_: str, path: str, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)

        try:
            OPERATIONS[operation](open_store(folder, hook))
        except StoreError:
            faults += 1
        else:
            break
        _check_old_or_new(_files(folder), old, new)
        _check_usable(folder, operation, new)
    assert faults >= 8, "the operation has at least this many file operations"
    assert _files(folder) == new


@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_when_the_process_is_killed_at_its_nth_file_operation_each_file_is_old_or_new(
    tmp_path: Path, operation: str
) -> None:
    old, new = _expected(operation, tmp_path / "expected")
    _template(tmp_path / "runs/0")
    done = _run("deaths", tmp_path / "runs", operation)
    survived = json.loads(done)["survived"]
    assert survived > 8, "the operation has at least this many file operations"
    for number in range(1, survived):
        folder = tmp_path / "runs" / str(number)
        _check_old_or_new(_files(folder), old, new)
        _check_usable(folder, operation, new)


def _check_usable(folder: Path, operation: str, new: dict[str, bytes]) -> None:
    """The same operation again ends where it should have ended, and nothing is left over."""
    store = open_store(folder)
    if operation in ("remove", "purge"):
        if store.find(SCOPE, "seg_2") is not None:
            OPERATIONS[operation](store)
    elif operation != "unforget" or store.find(SCOPE, "seg_9") is None:
        OPERATIONS[operation](store)
    assert _files(folder) == new
    store.add(SCOPE, "the next write clears up", kind="fact")
    store.update(SCOPE, "seg_3", body="in the old layout too")
    assert _leftovers(folder) == []


def test_a_process_killed_at_random_moments_loses_nothing_that_it_reported(
    tmp_path: Path,
) -> None:
    _kill_often(tmp_path, kills_count=20, seed=7)


@pytest.mark.long
def test_a_process_killed_at_random_moments_loses_nothing_that_it_reported_in_the_long_run(
    tmp_path: Path,
) -> None:
    _kill_often(tmp_path, kills_count=250, seed=11)


def _kill_often(folder: Path, *, kills_count: int, seed: int) -> None:
    dice = random.Random(seed)
    model: dict[str, str] = {}
    unfinished = 0
    for number in range(kills_count):
        said = _churn_and_kill(folder, seed * 1_000 + number, dice.randrange(1, 40))
        pending = _replay(model, said)
        unfinished += pending is not None
        _check_against_model(folder, model, pending)
    assert unfinished, "some of the kills came in the middle of an operation"
    assert model
    store = open_store(folder)
    store.add(SCOPE, "the last one", kind="fact")
    assert _leftovers(folder) == []
    assert {path.name for path in (folder / "sessions/s1").iterdir()} == {"memory.md"}


def _churn_and_kill(folder: Path, seed: int, lines_count: int) -> list[dict[str, Any]]:
    """What the worker said before it was killed behind that many lines."""
    process = subprocess.Popen(
        [sys.executable, str(WORKER), "churn", str(folder), str(seed)],
        stdout=subprocess.PIPE,
        env=_environment(),
    )
    assert process.stdout is not None
    lines = []
    with process.stdout as output:
        for line in output:
            lines.append(line)
            if len(lines) == lines_count:
                process.kill()
    assert process.wait() == -9
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def _replay(model: dict[str, str], said: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Apply what was reported as done; what was only tried at the end, if anything."""
    pending = None
    for line in said:
        if "tried" in line:
            pending = line
        elif line["did"] == "remove":
            del model[line["id"]]
            pending = None
        else:
            model[line["id"]] = line["body"]
            pending = None
    return pending


def _check_against_model(
    folder: Path, model: dict[str, str], pending: dict[str, Any] | None
) -> None:
    """The file holds the model, with or without the pending operation; the model follows it."""
    path = folder / MEMORY
    document = parse(path.read_bytes() if path.exists() else b"")
    assert document.problems == ()
    found = {entry.address_id: entry.segment.body for entry in document.entries}
    if found != model:
        assert pending is not None
        after = dict(model)
        if pending["tried"] == "remove":
            del after[pending["id"]]
        elif pending["tried"] == "update":
            after[pending["id"]] = pending["body"]
        else:
            (new,) = found.keys() - model.keys()
            after[new] = pending["body"]
        assert found == after
        model.clear()
        model.update(after)


def test_two_processes_that_write_to_one_scope_lose_nothing(tmp_path: Path) -> None:
    _write_in_two_processes(tmp_path, 60)


@pytest.mark.long
def test_two_processes_that_write_five_hundred_times_each_lose_nothing(tmp_path: Path) -> None:
    _write_in_two_processes(tmp_path, 500)


def _write_in_two_processes(folder: Path, count: int) -> None:
    names = ("ada", "linus")
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), "adds", str(folder), name, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
        )
        for name in names
    ]
    for process in processes:
        assert process.stdout is not None
        assert b"ready" in process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=600)
        assert (process.returncode, json.loads(out)) == (0, {"done": count})
    document = parse((folder / MEMORY).read_bytes())
    assert document.problems == ()
    bodies = [entry.segment.body for entry in document.entries]
    assert sorted(bodies) == sorted(
        f"{name} wrote {number}" for name in names for number in range(count)
    )
    assert len({entry.segment.id for entry in document.entries}) == 2 * count
    assert _leftovers(folder) == []


def _run(command: str, folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, str(WORKER), command, str(folder), *words],
        capture_output=True,
        env=_environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def _environment() -> dict[str, str]:
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
