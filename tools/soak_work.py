"""What the processes of ``soak.py`` do: operations of the engine, editors, what is told of them.

A new operation joins by one line in ``OPERATIONS``; one on whole scopes by a line in ``WHOLE`` too.
"""

from __future__ import annotations

import contextlib
import fcntl
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from h2ams import Access, ConflictError, LockTimeoutError, Memory, Settings
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import parse

SCOPES = ("user", "sessions/s1", "sessions/s1/vp/ada")
ACCESS = Access(session="s1", vp="ada", user="write")
KEPT_COUNT = 12  # segments in each scope that nobody touches
SESSIONS_COUNT = 6  # whole ones for one process to work on before it is killed
MOST_OWN = 40  # of one process; then it forgets some
EDITORS = 2
SETTINGS = Settings(encoding="estimate", lock_timeout_ms=120_000)
DOCUMENTED = (ConflictError, LockTimeoutError)  # docs/reliability.md, "What may happen"
WORDS = ["alpha", "beta", "gamma", "delta", "认证", "naïve", "storage", "index", "writer", "reader"]


@dataclass
class Work:
    """What one process knows: its own segments by address, and where it tells what it does."""

    memory: Memory
    chance: random.Random
    tell: Callable[[dict[str, Any]], None]
    own: dict[str, str]
    name: str
    count: int = 0
    sessions: list[str] = field(default_factory=list)  # whole ones, to be worked on one by one

    def text(self) -> str:
        self.count += 1
        words = " ".join(self.chance.choices(WORDS, k=self.chance.randrange(3, 40)))
        return f"{self.name} {self.count} {words}"

    def address(self) -> str | None:
        return self.chance.choice(sorted(self.own)) if self.own else None


# -- operations ------------------------------------------------------------------------------------


def remember(work: Work) -> None:
    scope, body = work.chance.choice(SCOPES), work.text()
    work.tell({"try": "remember", "scope": scope, "body": body})
    address = work.memory.remember(scope, body).address
    work.own[address] = body
    work.tell({"did": "remember", "address": address, "body": body})


def update(work: Work) -> None:
    address, body = work.address(), work.text()
    if address is None:
        return remember(work)
    work.tell({"try": "update", "address": address, "body": body})
    result = work.memory.update(address, body=body, tags=["changed"])
    assert result.conflict is None, "nobody else edits this segment"
    work.own[address] = body
    return work.tell({"did": "update", "address": address, "body": body})


def forget(work: Work, *, purge: bool = False) -> None:
    address = work.address()
    if address is None:
        return remember(work)
    work.tell({"try": "forget", "address": address})
    work.memory.forget(address, purge=purge)
    del work.own[address]
    return work.tell({"did": "forget", "address": address})


def forget_and_undo(work: Work) -> None:
    address = work.address()
    if address is None:
        return remember(work)
    body = work.own[address]
    work.tell({"try": "forget", "address": address})
    work.memory.forget(address)
    del work.own[address]
    work.tell({"did": "forget", "address": address})
    work.tell({"try": "unforget", "address": address, "body": body})
    work.memory.unforget(address)
    work.own[address] = body
    return work.tell({"did": "unforget", "address": address, "body": body})


def query(work: Work) -> str:
    return " ".join(work.chance.choices([*WORDS, f"{work.count}"], k=3))


def read_something(work: Work) -> None:
    memory, access = work.memory, work.chance.choice([None, ACCESS])
    work.chance.choice(
        [
            lambda: memory.recall(query(work), access=access),
            lambda: memory.context(query(work), access=access, budget=400),
            lambda: memory.list(work.chance.choice(SCOPES), access=access),
            lambda: memory.status(access=access),
            lambda: memory.sources("m1", access=access),
        ]
    )()


def whole_session(change: Callable[[Memory, str], object]) -> Callable[[Work], object]:
    """An operation on the next session that was made for it; without one a session of its own."""

    def work_on(work: Work) -> None:
        if not work.sessions:
            work.count += 1
            name = f"sessions/{work.name}n{work.count}"
            work.memory.remember(name, work.text())
            work.memory.remember(f"{name}/vp/ada", work.text())
            work.sessions.append(name)
        name = work.sessions.pop()
        change(work.memory, name)

    return work_on


def other(name: str) -> str:
    return name.replace("sessions/", "sessions/other-")


OPERATIONS: dict[str, tuple[int, Callable[[Work], object]]] = {
    "read": (40, read_something),
    "recall": (20, lambda work: work.memory.recall(query(work), access=ACCESS, limit=50)),
    "commit": (6, lambda work: work.memory.context(query(work), access=ACCESS, commit=True)),
    "remember": (26, remember),
    "update": (16, update),
    "forget": (8, forget),
    "purge": (2, lambda work: forget(work, purge=True)),
    "undo": (4, forget_and_undo),
    "summary": (2, lambda work: work.memory.store.write_summary(parse_scope("user"), work.text())),
    "sync": (8, lambda work: work.memory.sync()),
    "rebuild": (2, lambda work: work.memory.rebuild()),
    "verify": (1, lambda work: work.memory.verify()),
    "doctor": (2, lambda work: work.memory.doctor(fix=True)),
    "scope delete": (1, whole_session(lambda memory, name: memory.scopes.delete(name))),
    "scope rename": (
        1,
        whole_session(lambda memory, name: memory.scopes.rename(name, other(name))),
    ),
    "scope clone": (1, whole_session(lambda memory, x: memory.scopes.clone(x, other(x)))),
    "scope migrate": (1, whole_session(lambda memory, name: memory.scopes.migrate(name))),
}
# How often each text of a session may be there after the operation was killed: all alike.
WHOLE = {
    "scope delete": (0, 1),
    "scope rename": (1,),
    "scope clone": (1, 2),
    "scope migrate": (1,),
}
WRITING = [name for name in OPERATIONS if name not in ("read", "recall", "verify")]


# -- the folder ------------------------------------------------------------------------------------


def segment_text(id: str, body: str) -> str:
    return f"---\nid: {id}\nkind: fact\nzeta: x  # a comment\nsourceMessages: [m1]\n---\n{body}\n"


def plant(root: Path) -> dict[str, str]:
    """Segments in odd but legal hand-written form; their raw text by address."""
    for scope in SCOPES:
        texts = [
            segment_text(f"kept{n}", f"Kept {n}  \n\n---\n\nrule, 认证") for n in range(KEPT_COUNT)
        ]
        path = root / scope / "memory.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(texts), encoding="utf-8", newline="")
    return {a: raw for a, (raw, _) in entries(root).items()}


def entries(root: Path) -> dict[str, tuple[str, str]]:
    """Raw text and body of every segment in the files, by address; no engine in between."""
    found = {}
    for scope in SCOPES:
        path = root / scope / "memory.md"
        for entry in parse(path.read_bytes()).entries if path.exists() else ():
            found[f"{scope}#{entry.address_id}"] = (entry.raw, entry.segment.body)
    return found


@dataclass
class Model:
    """What the files must hold by what the processes told; ``open`` is what one last tried."""

    bodies: dict[str, str] = field(default_factory=dict)
    open: dict[str, Any] | None = None

    def hear(self, line: dict[str, Any]) -> None:
        if "try" in line:
            self.open = line
            return
        self.open = None
        if line["did"] == "forget":
            self.bodies.pop(line["address"], None)
        else:
            self.bodies[line["address"]] = line["body"]

    def settle(self, found: dict[str, tuple[str, str]]) -> list[str]:
        """Faults where ``found`` is not what was told, what was last tried done or not."""
        tried, self.open = self.open, None
        address = tried.get("address") if tried else None
        faults = []
        for each, body in list(self.bodies.items()):
            now = found[each][1] if each in found else None
            may = {body}
            if each == address and tried is not None:
                may.add(tried.get("body") or (None if tried["try"] == "forget" else body))
            if now not in may:
                faults.append(f"{each}: {now!r} stands for {body!r}")
            elif now is None:
                del self.bodies[each]
            else:
                self.bodies[each] = now
        if tried is not None and tried["try"] in ("remember", "unforget"):
            fresh = {a: b for a, (_, b) in found.items() if b == tried["body"]}
            self.bodies.update(fresh)
        return faults


def open_memory(root: Path) -> Memory:
    return Memory.open(root, settings=SETTINGS)


# -- editors ---------------------------------------------------------------------------------------


def edit_by_hand(
    root: Path,
    choices: random.Random,
    own: dict[str, str],
    name: str,
    tell: Callable[[dict[str, Any]], None],
    until: float,
) -> None:
    """Saves in place in the shared files; by rename, by backup and by deletion in notes."""
    count = 0
    while time.monotonic() < until:
        count += 1
        body = f"{name} {count} by hand " + " ".join(choices.choices(WORDS, k=5))
        path = root / choices.choice(SCOPES) / "memory.md"
        kind = choices.choice(("in place", "append", "note", "backup", "delete note"))
        if kind in ("in place", "append"):
            scope = path.parent.relative_to(root).as_posix()
            address = f"{scope}#{name.replace('editor', 'hand')}n{count}"
            text = "\n" + segment_text(address.partition("#")[2], body)
            with one_editor_at_a_time(root):
                save_in_place(path, text) if kind == "in place" else append(path, text)
            tell({"did": "remember", "address": address, "body": body})
        else:
            note(root / f"sessions/s1/{name.partition('x')[0]}.md", f"# N\n\n{body}\n", kind)
        tell({"count": f"by hand: {kind}"})
        time.sleep(choices.random() * 0.05)


@contextlib.contextmanager
def one_editor_at_a_time(root: Path) -> Iterator[None]:
    """Two editors that truncate one file at once lose text to each other, without any engine."""
    with open(root.with_name("editors.lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def save_in_place(path: Path, text: str) -> None:
    """Truncate and write, as editors do that keep the inode."""
    with open(path, "r+b", buffering=0) as file:
        data = file.read()
        file.seek(0)
        file.truncate()
        half = len(data) // 2
        file.write(data[:half])
        file.write(data[half:] + text.encode())


def append(path: Path, text: str) -> None:
    with open(path, "ab", buffering=0) as file:
        file.write(text.encode())


def note(path: Path, text: str, kind: str) -> None:
    if kind == "delete note":
        path.unlink(missing_ok=True)
        return
    if kind == "backup":
        with contextlib.suppress(FileNotFoundError):
            path.rename(f"{path}~")
        path.write_text(text, encoding="utf-8")
        return
    aside = path.with_suffix(".md.tmp")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
