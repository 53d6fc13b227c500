"""Real processes on one memory folder, killed and crossed at random: ``python tools/soak.py``.

    --seconds N      so long several processes read, write, edit by hand, delete and sync at once
    --processes N    how many of them (two are editors, which know nothing of the engine)
    --kills N        so many processes are killed with SIGKILL, each in the middle of its work
    --seed N         the same choices again; the moments of the kills are the machine's

Two phases. *Crossed*: all processes work on the same files; some are killed and replaced. *Killed*:
one process after the other works until it is killed, and after each kill everything is looked at.
What a call had reported as done must be in the files, byte for byte what nobody touched must be as
it was, no call may raise anything but the documented errors, and ``verify`` must be ok. It prints
what it did and exits with 1 where any of that fails. A new operation joins by one line in
``OPERATIONS`` of ``soak_work.py``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from soak_work import (
    DOCUMENTED,
    EDITORS,
    MOST_OWN,
    OPERATIONS,
    SCOPES,
    SESSIONS_COUNT,
    WHOLE,
    WRITING,
    Model,
    Work,
    edit_by_hand,
    entries,
    forget,
    one_editor_at_a_time,
    open_memory,
    plant,
    segment_text,
)

from h2ams import H2amsError, StoreError
from h2ams.memory.segment import parse

# -- killed one after the other --------------------------------------------------------------------


def killed(root: Path, kills: int, seed: int) -> tuple[dict[str, Any], list[str]]:
    """Kill ``kills`` processes, each in the middle of its work, and look at all of it each time."""
    chance = random.Random(seed)
    kept, model, counts = plant(root), Model(), Counter[str]()
    twins: list[str] = []
    faults: list[str] = []
    for number in range(kills):
        kind = WRITING[number % len(WRITING)]
        if kind == "doctor":
            twins.append(twin(root, number))
        sessions = plant_sessions(root, kind, number) if kind in WHOLE else []
        choices = random.Random(seed * 100_003 + number)
        lines = one_killed(root, kind, model, choices, chance, sessions)
        for line in lines:
            if "error" in line:
                faults.append(f"kill {number}, {kind}: {line['error']}")
            elif "call" in line:
                counts[line["call"]] += 1
            elif "done" not in line:
                model.hear(line)
        unfinished = bool(lines) and "done" not in lines[-1]
        counts["in the middle of a call"] += unfinished
        counts[f"killed in {kind}"] += unfinished
        found = look(root, kept, model, twins) + look_at_sessions(root, kind, sessions)
        faults += [f"kill {number}, {kind}: {each}" for each in found]
        if len(faults) > 5:
            break
    shown = {name: count for name, count in counts.items() if name not in OPERATIONS}
    return {"kills": kills, **shown}, faults


def twin(root: Path, number: int) -> str:
    """Write a segment by hand whose id another one has: something for the doctor. Its body."""
    body = f"twin {number}"
    with open(root / SCOPES[0] / "memory.md", "a", encoding="utf-8", newline="") as file:
        file.write(f"\n---\nid: kept1\nkind: fact\n---\n{body}\n")
    return body


def plant_sessions(root: Path, kind: str, number: int) -> list[str]:
    """Sessions to work on, written by hand; those to be migrated in their historical layout."""
    family = "group" if kind == "scope migrate" else "sessions"
    names = [f"k{number}n{n}" for n in range(SESSIONS_COUNT)]
    for name in names:
        for inner in ("", "vp/ada/", "topic/t/"):
            path = root / family / name / inner / "memory.md"
            path.parent.mkdir(parents=True)
            texts = [segment_text(f"seg{n}", f"{name} {inner}{n}") for n in range(3)]
            path.write_text("\n".join(texts), encoding="utf-8", newline="")
    return [f"sessions/{name}" for name in names]


def look_at_sessions(root: Path, kind: str, sessions: list[str]) -> list[str]:
    """Each session must be there as a whole, as often as the operation allows; then it goes."""
    faults = []
    for session in sessions:
        name = session.partition("/")[2]
        counts: Counter[str] = Counter()
        folders = [*root.glob(f"*/{name}"), *root.glob(f"*/other-{name}")]
        for path in (each for folder in folders for each in folder.rglob("memory.md")):
            counts.update(entry.segment.body for entry in parse(path.read_bytes()).entries)
        times = set(counts.values()) if len(counts) == 9 else {0} if not counts else {-1}
        if len(times) != 1 or not times <= set(WHOLE[kind]):
            faults.append(f"{session} is not whole: {sorted(counts.items())}")
        for path in folders:
            shutil.rmtree(path)
    return faults


def one_killed(
    root: Path,
    kind: str,
    model: Model,
    choices: random.Random,
    chance: random.Random,
    sessions: list[str],
) -> list[dict[str, Any]]:
    """What a child told before it was killed; it does ``kind`` mostly, and what it needs for it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        work_until_killed(root, kind, dict(model.bodies), choices, writing, sessions)
    os.close(writing)
    with open(reading, "rb") as pipe:
        first = pipe.readline()  # the memory is open
        time.sleep(chance.choice((0.0, 0.004, 0.015, 0.05)) * chance.random())
        os.kill(child, signal.SIGKILL)
        rest = pipe.read()
    _, status = os.waitpid(child, 0)
    lines = [json.loads(each) for each in (first + rest).split(b"\n")[:-1]]
    if not os.WIFSIGNALED(status):
        lines.append({"error": f"the child ended by itself: {status}"})
    return lines[1:] if lines and lines[0] == {"ready": True} else lines


def work_until_killed(
    root: Path,
    kind: str,
    own: dict[str, str],
    choices: random.Random,
    pipe: int,
    sessions: list[str],
) -> None:
    def tell(line: dict[str, Any]) -> None:
        os.write(pipe, json.dumps(line).encode() + b"\n")

    try:
        with open_memory(root) as memory:
            memory.status()
            tell({"ready": True})
            work = Work(memory, choices, tell, own, f"killed{os.getpid()}", sessions=sessions)
            while sessions or kind not in WHOLE:
                if len(own) > MOST_OWN:
                    forget(work)
                tell({"call": kind})
                OPERATIONS[kind][1](work)
                tell({"done": kind})
            signal.pause()
    except BaseException as error:  # noqa: BLE001 - the parent judges it
        tell({"error": repr(error)})
    finally:
        os._exit(1)


def look(root: Path, kept: dict[str, str], model: Model, twins: list[str]) -> list[str]:
    """Everything that is not as it must be, in the files first, then in the index."""
    found = entries(root)
    faults = model.settle(found)
    faults += [f"{each} changed" for each, raw in kept.items() if found.get(each, ("",))[0] != raw]
    bodies = Counter(body for _, body in found.values())
    faults += [f"{each!r} is there {bodies[each]} times" for each in twins if bodies[each] != 1]
    with open_memory(root) as memory:
        memory.sync()
        checked = memory.verify()
        if not checked.ok:
            faults.append(f"verify: {checked.problems}")
        listed = {x.address for scope in SCOPES for x in memory.list(scope) if not x.is_note}
        if listed != found.keys():
            faults.append(f"list and files differ by {sorted(listed ^ found.keys())[:3]}")
    return faults


# -- crossed ---------------------------------------------------------------------------------------


class Crew:
    """Processes that work on one folder at once; each tells what it does in a file of its own."""

    def __init__(self, root: Path, logs: Path, seed: int) -> None:
        self.root, self.logs, self.seed = root, logs, seed
        self.running: dict[int, str] = {}
        self.models: dict[str, Model] = {}
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._heard: dict[str, int] = {}
        self._starts = 0

    def start(self, name: str, until: float) -> None:
        self._starts += 1
        own = dict(self.models.setdefault(name, Model()).bodies)
        choices = random.Random(f"{self.seed} {name} {self._starts}")
        log = os.open(self.logs / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        child = os.fork()
        if child == 0:
            work = edit_by_hand if name.startswith("editor") else work_until
            run_child(work, self.root, choices, own, f"{name}x{self._starts}", log, until)
        os.close(log)
        self.running[child] = name

    def kill_one(self, chance: random.Random, until: float) -> None:
        """Kill a process of the engine, see what it had done, start another one in its place."""
        victims = sorted(pid for pid, name in self.running.items() if name.startswith("worker"))
        if not victims:
            return
        pid = chance.choice(victims)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        name = self.running.pop(pid)
        self.counts["kills"] += os.WIFSIGNALED(status)
        self.hear(name)
        self.settle(name)
        if time.monotonic() < until:
            self.start(name, until)

    def wait(self) -> None:
        for pid, name in list(self.running.items()):
            _, status = os.waitpid(pid, 0)
            if status:
                self.faults.append(f"{name} ended with {status}")
            self.hear(name)
            self.settle(name)
        self.running.clear()

    def hear(self, name: str) -> None:
        data = (self.logs / name).read_bytes()
        new = data[self._heard.get(name, 0) :]
        self._heard[name] = len(data)
        for each in new.split(b"\n"):
            if not each.endswith(b"}"):
                continue  # cut by the kill
            line = json.loads(each)
            if "error" in line:
                self.faults.append(f"{name}: {line['error']}")
            elif "count" in line:
                self.counts[line["count"]] += 1
            else:
                self.models[name].hear(line)

    def settle(self, name: str) -> None:
        """Believe the files about what a process was in the middle of."""
        model = self.models[name]
        if model.open is None:
            return
        self.counts["in the middle of a write"] += 1
        with one_editor_at_a_time(self.root):  # no file is half-written while it is read
            self.faults += [f"{name}: {each}" for each in model.settle(entries(self.root))]


def run_child(
    work: Callable[..., None],
    root: Path,
    choices: random.Random,
    own: dict[str, str],
    name: str,
    log: int,
    until: float,
) -> None:
    def tell(line: dict[str, Any]) -> None:
        os.write(log, json.dumps(line).encode() + b"\n")

    code = 0
    try:
        work(root, choices, own, name, tell, until)
    except BaseException as error:  # noqa: BLE001 - the parent judges it
        import traceback

        code = 1
        place = traceback.extract_tb(error.__traceback__)[-1]
        tell({"error": f"{error!r} at {os.path.basename(place.filename)}:{place.lineno}"})
    finally:
        os._exit(code)


def work_until(
    root: Path,
    choices: random.Random,
    own: dict[str, str],
    name: str,
    tell: Callable[[dict[str, Any]], None],
    until: float,
) -> None:
    names = list(OPERATIONS)
    weights = [weight for weight, _ in OPERATIONS.values()]
    with open_memory(root) as memory:
        work = Work(memory, choices, tell, own, name)
        while time.monotonic() < until:
            kind = "forget" if len(own) > MOST_OWN else choices.choices(names, weights)[0]
            try:
                OPERATIONS[kind][1](work)
            except H2amsError as error:
                if not is_documented(error):
                    raise
                kind = f"{kind} refused: {type(error).__name__}"
            tell({"count": kind})


def is_documented(error: H2amsError) -> bool:
    held_open = isinstance(error, StoreError) and "open for writing" in error.message
    return isinstance(error, DOCUMENTED) or held_open


def crossed(
    root: Path, logs: Path, seconds: float, processes: int, seed: int, kills_per_s: float
) -> tuple[dict[str, Any], list[str]]:
    """Let ``processes`` work at once for ``seconds``; what they did, and what was wrong."""
    kept, chance = plant(root), random.Random(seed)
    with open_memory(root) as memory:
        memory.sync()
    crew = Crew(root, logs, seed)
    until = time.monotonic() + seconds
    editors = min(EDITORS, max(0, processes - 1))
    names = [f"editor{n}" for n in range(editors)]
    names += [f"worker{n}" for n in range(processes - editors)]
    for name in names:
        crew.start(name, until)
    while time.monotonic() < until:
        time.sleep(min(max(0.0, until - time.monotonic()), chance.expovariate(kills_per_s)))
        crew.kill_one(chance, until)
    crew.wait()
    together = Model()
    for model in crew.models.values():
        together.bodies.update(model.bodies)
    faults = [*crew.faults, *look(root, kept, together, [])]
    counts = dict(sorted(crew.counts.items()))
    return {"segments that must be there": len(together.bodies), **counts}, faults


# -- the run ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def folder(given: str | None) -> Iterator[Path]:
    """A folder for the run; one of its own is removed at the end."""
    base = Path(given or tempfile.mkdtemp(prefix="h2ams-soak-"))
    base.mkdir(parents=True, exist_ok=True)
    try:
        yield base
    finally:
        if not given:
            shutil.rmtree(base, ignore_errors=True)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="soak test of one memory folder")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--kills-per-second", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="keep the folder here instead of removing it")
    args = parser.parse_args(words)
    report: dict[str, Any] = {"seed": args.seed}
    faults: list[str] = []
    with folder(args.folder) as base:
        if args.seconds:
            (base / "logs").mkdir(exist_ok=True)
            started = time.monotonic()
            report["crossed"], found = crossed(
                base / "crossed",
                base / "logs",
                args.seconds,
                args.processes,
                args.seed,
                args.kills_per_second,
            )
            report["crossed"] |= {"processes": args.processes, "seconds": args.seconds}
            report["crossed"]["elapsed_s"] = round(time.monotonic() - started, 1)
            faults += found
        if args.kills:
            started = time.monotonic()
            report["killed"], found = killed(base / "killed", args.kills, args.seed)
            report["killed"]["elapsed_s"] = round(time.monotonic() - started, 1)
            faults += found
    report |= {"faults": faults, "ok": not faults}
    print(json.dumps(report, indent=1, ensure_ascii=False))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
