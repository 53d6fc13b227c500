"""A process that works on whole scopes until somebody, or itself, kills it.

    python lifecycle_worker.py every BASE OPERATION STEP   dies before each STEP-th file operation
    python lifecycle_worker.py random ROOT SEED            works until it is killed

``every`` forks a child for each place where it dies, finishes what the child left, and prints one
line of JSON for each. ``random`` prints a line before and after each operation.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from folder import write
from memory.lifecycle_kit import holding, leftovers, on, plant, segment, tree, used

from h2ams import ConflictError, H2amsError, Memory, NotFoundError, ScopeError

PARTS = ("", "/vp/ada", "/topic/t")
OPERATIONS: dict[str, Callable[[Memory], object]] = {
    "delete": lambda memory: memory.scopes.delete("sessions/s1"),
    "delete-vp": lambda memory: memory.scopes.delete("vp/ada"),
    "rename": lambda memory: memory.scopes.rename("sessions/s1", "sessions/neu"),
    "rename-vp": lambda memory: memory.scopes.rename("vp/ada", "vp/grace"),
    "clone": lambda memory: memory.scopes.clone("sessions/s1", "sessions/kopie"),
    "migrate": lambda memory: memory.scopes.migrate(),
    "purge": lambda memory: memory.scopes.migrate(purge=True),
}


def prepared(base: Path, name: str) -> tuple[Path, dict[str, object], dict[str, object]]:
    """A folder to start from, and what it is before and after the operation ``name``."""
    start = base / "start"
    plant(start)
    with on(start) as memory:
        used(memory)
        if name == "purge":
            memory.scopes.migrate()
        old = look(memory)
    done = base / "done"
    shutil.copytree(start, done)
    with on(done) as memory:
        OPERATIONS[name](memory)
        new = look(memory)
    return start, old, new


def look(memory: Memory) -> dict[str, object]:
    """Everything that a person or a reader can see of a folder, and what lies below it."""
    root = Path(memory.root)
    state = [
        path.relative_to(root).as_posix()
        for folder in ("ams", "forgotten", "conflicts", "migrated")
        for path in sorted((root / ".h2ams" / folder).rglob("*"))
        if path.is_file()
    ]
    return {
        "tree": {path: data.decode("latin-1") for path, data in tree(root).items()},
        "records": sorted((each.address, each.body) for each in memory.list()),
        "state": [_without_op(path) for path in state],
    }


def _without_op(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2] + parts[3:]) if parts[1] == "migrated" else path


def outcome(root: Path, old: dict[str, object], new: dict[str, object]) -> dict[str, object]:
    """What is found by the next one who opens ``root``: ``old``, ``new``, or what differs."""
    with on(root) as memory:
        found = look(memory)
        told = "old" if found == old else "new" if found == new else "neither"
        if told == "neither":
            told += f": {difference(found, old)} | {difference(found, new)}"
        return {
            "state": told,
            "same_reads": found["records"] == old["records"],
            "same_records": found["records"] == new["records"],
            "verified": memory.verify().ok,
            "leftovers": leftovers(root),
            "text_left": holding(root, "zebrafish") if told == "new" else [],
        }


def difference(found: dict[str, object], wanted: dict[str, object]) -> str:
    told = []
    for name in found:
        if found[name] != wanted[name]:
            a = found[name].items() if isinstance(found[name], dict) else found[name]  # type: ignore
            b = wanted[name].items() if isinstance(wanted[name], dict) else wanted[name]  # type: ignore
            told += [f"+{x}" for x in a if x not in b] + [f"-{x}" for x in b if x not in a]
    return " ".join(told)[:2000]


def every(base: Path, name: str, step: int) -> None:
    start, old, new = prepared(base, name)
    number = 1
    while True:
        root = base / "work"
        shutil.copytree(start, root)
        child = os.fork()
        if child == 0:
            die_before(root, name, number)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(
            json.dumps({"number": number, "status": status} | outcome(root, old, new)), flush=True
        )
        shutil.rmtree(root)
        if status == 0:
            return
        number += step


def die_before(root: Path, name: str, number: int) -> None:
    """Run the operation and die of SIGKILL before its file operation ``number``."""
    count = 0

    def hook(_operation: str, _path: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    memory = on(root, hook)
    count = 0
    OPERATIONS[name](memory)
    os._exit(0)


# -- at random -------------------------------------------------------------------------------------


def plant_family(root: Path, name: str, mark: str) -> None:
    """A session whose every part holds ``mark``, in two layouts."""
    for layout, id in (("sessions", "a"), ("group", "b")):
        for part in PARTS:
            scope = f"{layout}/{name}{part}"
            write(root, f"{scope}/memory.md", segment(id, f"{mark} in {part or 'itself'}", scope))
    write(root, f"sessions/{name}/note.md", f"# {mark}\n")


def random_work(root: Path, seed: int) -> None:
    source = random.Random(seed)
    with on(root) as memory:
        print("ready", flush=True)
        for number in range(100_000):
            names = sorted(path.name for path in (root / "sessions").iterdir())
            moving = [name for name in names if name.startswith("m")]
            kind = source.choice(("rename", "clone", "delete", "migrate", "write", "purge"))
            name = source.choice(moving)
            try:
                print("begin", kind, name, flush=True)
                act(memory, kind, name, f"m{number}x{os.getpid()}", len(moving))
                print("end", kind, name, flush=True)
            except (ConflictError, NotFoundError, ScopeError):  # another worker was faster
                continue


def act(memory: Memory, kind: str, name: str, fresh: str, count: int) -> None:
    scopes = memory.scopes
    if kind == "rename":
        scopes.rename(f"sessions/{name}", f"sessions/{fresh}")
    elif kind == "clone" and count < 5:
        scopes.clone(f"sessions/{name}", f"sessions/{fresh}")
    elif kind == "delete" and count > 2:
        scopes.delete(f"sessions/{name}")
    elif kind == "migrate":
        for change in scopes.migrate(name):
            if change.failed:
                raise H2amsError(f"migration failed: {change.failed}")
    elif kind == "purge":
        scopes.migrate(purge=True)
    else:
        memory.remember("user", f"written by {os.getpid()} beside {fresh}")


if __name__ == "__main__":
    if sys.argv[1] == "every":
        every(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        random_work(Path(sys.argv[2]), int(sys.argv[3]))
