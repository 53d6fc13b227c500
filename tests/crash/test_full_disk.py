"""A full disk, a limit on the size of files, folders without write permission: one clear error or
a degraded mode that ``status`` names; nothing is lost; the next run heals.

Real ones: ``RLIMIT_FSIZE`` for every process, a small tmpfs in a mount namespace of its own, modes
of folders (root gives up its right to ignore them).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from folder import opened, segment_text, write
from surfaces.command_line import REPOSITORY, environment, h2ams

from h2ams.memory.segment import parse

WORKER = Path(__file__).with_name("fault_worker.py")
READS = ("recall", "context", "list", "status", "sync", "rebuild", "verify", "doctor")
WRITES = ("fill", "remember", "update", "forget", "summary")
ERRORS = {"StoreError", "IndexFaultError", "LockTimeoutError"}


def planted(root: Path, *, synced: bool) -> None:
    write(root, "user/memory.md", *(segment_text(id, f"alpha {id}") for id in "abc"))
    texts = [segment_text(f"x{n}", "alpha " + f"word{n} " * 50) for n in range(60)]
    write(root, "sessions/s1/memory.md", *texts)
    if synced:
        with opened(root) as memory:
            memory.sync()


def worker(
    root: Path, names: Iterable[str], *, limit_bytes: int = 0, first: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """What each call gave or raised, in a process of its own; ``first`` are words before it."""
    command = [*first, sys.executable, str(WORKER), str(root), str(limit_bytes), *names]
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def segments(root: Path) -> dict[str, str]:
    """Bodies by id in ``user``, straight from the file."""
    entries = parse((root / "user/memory.md").read_bytes()).entries
    return {entry.segment.id: entry.segment.body for entry in entries}


def check_outcomes(outcomes: list[dict[str, Any]]) -> None:
    """Each call gave something, or one error that says what and where."""
    for each in outcomes:
        assert "crash" not in each, each
        if "error" in each:
            assert each["error"] in ERRORS, each
            assert each["hint"] and "\n" not in each["message"], each
            assert "/" in each["message"], each


def check_truth(root: Path, outcomes: list[dict[str, Any]]) -> None:
    """The files hold what was reported as written, and what was there before."""
    found = segments(root)
    told = {each["call"]: each for each in outcomes}
    for address in told["fill"].get("gave", []):
        assert address.partition("#")[2] in found
    assert {"a", "c"} <= found.keys()
    assert ("b" in found) == ("error" in told["forget"])
    changed = "alpha changed" in found["a"]
    assert changed == ("error" not in told["update"])
    assert found["c"] == "alpha c"
    assert len(parse((root / "sessions/s1/memory.md").read_bytes()).entries) == 60


def check_healed(root: Path) -> None:
    """The next run, with room again, finds everything in order."""
    after = worker(root, ("remember", "sync", "verify", "list", "status"))
    assert [each.get("error") for each in after] == [None] * 5, after
    told = {each["call"]: each["gave"] for each in after}
    assert told["verify"] is True and told["status"] == []
    listed = {address.partition("#")[2] for address in told["list"] if address.startswith("user#")}
    assert listed == segments(root).keys()
    leftovers = [path for path in root.rglob("*") if path.suffix in (".tmp", ".swap")]
    assert [path for path in leftovers if ".h2ams" not in path.parts] == []


def limits() -> list[Any]:
    usual = [100, 5_000, 40_000]
    more = [1_000, 2_500, 10_000, 20_000, 80_000, 120_000, 200_000, 300_000, 600_000, 1_500_000]
    return [*usual, *(pytest.param(each, marks=pytest.mark.long) for each in more)]


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
@pytest.mark.parametrize("limit_bytes", limits())
@pytest.mark.parametrize("synced", [False, True])
def test_files_that_may_not_grow_are_an_error_or_a_degraded_mode(
    tmp_path: Path, synced: bool, limit_bytes: int
) -> None:
    root = tmp_path / "root"
    planted(root, synced=synced)
    outcomes = worker(root, (*WRITES, *READS), limit_bytes=limit_bytes)
    check_outcomes(outcomes)
    check_truth(root, outcomes)
    check_healed(root)


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_rebuild_without_room_leaves_the_old_index_in_use(tmp_path: Path) -> None:
    root = tmp_path / "root"
    planted(root, synced=True)
    outcomes = worker(root, ("recall", "rebuild", "recall", "status"), limit_bytes=60_000)
    recall, rebuild, again, status = outcomes
    assert recall["gave"] == again["gave"] == 5
    assert rebuild["error"] == "IndexFaultError" and rebuild["hint"]
    assert status["gave"] == []
    assert [path.name for path in (root / ".h2ams").glob("index.db.*")] == []
    assert worker(root, ("verify",))[0]["gave"] is True


# -- a small disk ----------------------------------------------------------------------------------

# In a mount namespace of its own the small disk is there for the worker alone, and gone with it.
ON_SMALL_DISK = """
set -e
mount -t tmpfs -o size="$1" none "$2"
cp -a "$3/." "$2"
shift 3
code=0
"$@" || code=$?
exit $code
"""


@cache
def namespace() -> tuple[str, ...] | None:
    """The words that start a command in a mount namespace; None where that is not possible."""
    for words in (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user")):
        if shutil.which(words[0]) is None:
            return None
        test = [*words, "sh", "-c", "mount -t tmpfs none /mnt"]
        if subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return words
    return None


# What happens on the small disk, told at the end: the disk is gone then.
FULL_DISK = """
import json, os, subprocess, sys
worker, root, ballast, *calls = sys.argv[1:]
def run(*names):
    done = subprocess.run([sys.executable, worker, root, "0", *names], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]
first = run(*calls)
with open(root + "/user/memory.md", encoding="utf-8") as file:
    kept = file.read()
os.unlink(ballast)
after = run("remember", "sync", "verify", "list", "status")
with open(root + "/user/memory.md", encoding="utf-8") as file:
    end = file.read()
print(json.dumps({"first": first, "kept": kept, "after": after, "end": end}))
"""


@pytest.mark.skipif(namespace() is None, reason="no mount namespaces for this user here")
@pytest.mark.parametrize(
    "free_kib",
    [24, 260, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 60, 130, 500, 900))],
)
@pytest.mark.parametrize("synced", [False, True])
def test_a_full_disk_is_an_error_or_a_degraded_mode(
    tmp_path: Path, synced: bool, free_kib: int
) -> None:
    words = namespace()
    assert words is not None
    source, disk = tmp_path / "source", tmp_path / "disk"
    planted(source / "root", synced=synced)
    disk.mkdir()
    used = sum(path.stat().st_size // 4096 + 1 for path in source.rglob("*")) * 4
    (source / "ballast").write_bytes(bytes(2_000_000))  # what will be freed: room for an index
    size = f"{used + 1_956 + free_kib}k"
    command = [*words, "sh", "-c", ON_SMALL_DISK, "sh", size, str(disk), str(source)]
    command += [sys.executable, "-c", FULL_DISK, str(WORKER), str(disk / "root")]
    command += [str(disk / "ballast"), *WRITES, *READS]
    done = subprocess.run(
        command,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    told = json.loads(done.stdout)
    check_outcomes(told["first"])
    assert any("error" in each for each in told["first"]), "the disk was full"
    copy = tmp_path / "copy"  # the file as it was while the disk was full
    write(copy, "user/memory.md", told["kept"])
    shutil.copytree(source / "root/sessions", copy / "sessions")
    check_truth(copy, told["first"])
    assert [each.get("error") for each in told["after"]] == [None] * 5, told["after"]
    gave = {each["call"]: each["gave"] for each in told["after"]}
    assert gave["verify"] is True and gave["status"] == []
    ids = {entry.segment.id for entry in parse(told["end"].encode()).entries}
    listed = {address for address in gave["list"] if address.startswith("user#")}
    assert {address.partition("#")[2] for address in listed} == ids


# -- folders that may not be written ---------------------------------------------------------------

READ_COMMANDS = [
    *(
        ["status"],
        ["recall", "alpha"],
        ["context", "alpha", "--session", "s1", "--commit"],
        ["list"],
    ),
    *(["show", "user#a"], ["sync"], ["rebuild"], ["verify"], ["doctor"], ["doctor", "--fix"]),
]
WRITE_COMMANDS = [
    *(["remember", "user", "x"], ["edit", "user#a", "--body", "y"], ["forget", "user#a"]),
]
posix = pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")


def read_only(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o555)


def run(folder: Path, *words: str, **env: str) -> Any:
    done = h2ams(*words, "--root", "m", "--json", cwd=folder, unprivileged=True, env=env)
    document = json.loads(done.out)
    assert done.code in (0, 1) and done.err.count("Traceback") == 0
    return document


def degraded(document: dict[str, Any]) -> list[str]:
    return [each["code"] for each in document.get("degraded", [])]


@posix
@pytest.mark.parametrize("where", ["root", "root and state", "index", "chosen state"])
def test_a_folder_without_write_permission_is_read_and_says_so(tmp_path: Path, where: str) -> None:
    root, env = tmp_path / "m", {}
    write(root, "user/memory.md", segment_text("a", "alpha"))
    write(root, "sessions/s1/memory.md", segment_text("b", "alpha too"))
    expected = ["index-temporary"]
    if where == "index":  # another user made it
        h2ams("sync", "--root", "m", cwd=tmp_path)
        for path in (root / ".h2ams").glob("index.db*"):
            path.chmod(0o400)
    elif where == "chosen state":
        env = {"H2AMS_STATE_DIR": str(tmp_path / "chosen")}
        read_only(tmp_path / "chosen")
    else:
        read_only(root / "user", root / "sessions/s1", root / "sessions", root)
        if where == "root":
            expected = ["state-elsewhere"]
        else:
            expected = ["state-elsewhere", "index-temporary"]
            read_only(tmp_path / "state")
    before = {path: path.read_bytes() for path in root.rglob("*.md")}
    for words in READ_COMMANDS:
        document = run(tmp_path, *words, **env)
        assert "error" not in document, document
        if words[0] in ("status", "recall", "context"):
            wanted = [*expected]
            if words[0] == "context" and where != "index":
                wanted.append("use-not-recorded")
            assert degraded(document) == wanted, words
    found = run(tmp_path, "recall", "alpha", **env)
    assert found["hits"]
    if "index-temporary" in expected:  # it went with its process
        text = found["degraded"][-1]["message"]
        assert not os.path.exists(text.partition("made anew in ")[2].partition(",")[0])
    assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
    if where.startswith("root"):
        for words in WRITE_COMMANDS:
            document = run(tmp_path, *words, **env)
            assert "(EACCES)" in document["error"]["message"] and document["error"]["hint"]
        assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
    for folder in (root, root / "user", root / "sessions", root / "sessions/s1"):
        folder.chmod(0o755)


HOLDING = """
import os, sys
from h2ams import Memory, Settings
memory = Memory.open(sys.argv[1], settings=Settings(encoding="estimate"), state="/dev/null/state")
print(os.path.dirname(memory.status().index.path), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs /dev/null")
def test_an_index_in_memory_goes_with_its_process_even_if_that_is_killed(tmp_path: Path) -> None:
    root = tmp_path / "m"
    write(root, "user/memory.md", segment_text("a", "alpha"))

    def start() -> tuple[subprocess.Popen[str], Path]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDING, str(root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            text=True,
        )
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    def end(process: subprocess.Popen[str], *, killed: bool = False) -> None:
        if killed:
            process.kill()
        process.communicate(timeout=60)

    first, killed = start()
    assert killed.name.startswith("h2ams-index-") and killed.stat().st_mode & 0o777 == 0o700
    second, living = start()
    assert killed.is_dir() and living.is_dir(), "that of a living process stays"
    end(first, killed=True)
    assert killed.is_dir()
    third, own = start()
    assert not killed.exists() and living.is_dir()
    end(second)
    end(third)
    assert not living.exists() and not own.exists()


@posix
def test_a_scope_that_may_not_be_written_is_one_error_and_the_others_go_on(tmp_path: Path) -> None:
    root = tmp_path / "m"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    write(root, "vp/ada/memory.md", segment_text("b", "alpha"))
    h2ams("sync", "--root", "m", cwd=tmp_path)
    read_only(root / "user")
    document = run(tmp_path, "remember", "user", "x")
    assert document["error"]["message"].startswith("cannot write user/memory.md: Permission denied")
    assert run(tmp_path, "remember", "vp/ada", "x")["created"]
    assert run(tmp_path, "forget", "user#a")["error"]
    (root / "user").chmod(0o755)
    assert run(tmp_path, "verify")["ok"] and run(tmp_path, "show", "user#a")["segment"]


@pytest.mark.skipif(namespace() is None, reason="no mount namespaces for this user here")
def test_a_disk_that_is_mounted_read_only_is_read_and_says_so(tmp_path: Path) -> None:
    words = namespace()
    assert words is not None
    root = tmp_path / "m"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
    worker_words = [sys.executable, str(WORKER), str(root), "0", "recall", "remember", "status"]
    done = subprocess.run(
        [*words, "sh", "-c", script, "sh", str(root), *worker_words],
        capture_output=True,
        env=environment(tmp_path),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    recall, remember, status = map(json.loads, done.stdout.splitlines())
    assert recall["gave"] == 1 and status["gave"] == ["state-elsewhere"]
    assert "(EROFS)" in remember["message"] and "read-only" in remember["hint"]
