"""A folder with scopes in every layout, and the questions that tests of operations ask of it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from folder import PLAIN, write

from h2ams import Access, Memory
from h2ams.files import Root
from h2ams.parts import Parts

MARKS = ("zebrafish", "quaggatext", "axolotlword")


def segment(id: str, body: str, scope: str, time: str = "2026-05-01T00:00:00Z") -> str:
    """A segment in the writer's exact form."""
    return (
        f"---\nid: {id}\nscope: {scope}\nkind: fact\ntags: [t]\nsourceMessages: [m1]\n"
        f"createdAt: {time}\nupdatedAt: {time}\n---\n{body}\n"
    )


def plant(root: Path, word: str = "zebrafish") -> None:
    """Session s1 in all layouts with all that it may own; s2, a chat and VPs beside it."""
    own = [
        "sessions/s1", "sessions/s1/user", "sessions/s1/vp/ada", "sessions/s1/topic/t",
        "sessions/s1/topic/t/deep", "sessions/s1/feature/f",
    ]  # fmt: skip
    for scope in own:
        write(root, f"{scope}/memory.md", segment("a", f"{word} of {scope}", scope))
    write(root, "group/s1/memory.md", segment("g", f"{word} old group", "group/s1"))
    write(root, "group/s1/vp/ada/memory.md", segment("g", f"{word} old ada", "group/s1/vp/ada"))
    write(root, "session/s1/memory.md", segment("o", f"{word} older", "session/s1"))
    write(root, "sessions/s1/summary.md", f"Summary with {word}.\n")
    write(root, "sessions/s1/archive.md", segment("r", f"{word} retired", "sessions/s1"))
    write(root, "sessions/s1/note.md", f"# {word}\n\nA note.\n")
    write(root, "sessions/s1/plain/deeper.md", f"# More {word}\n")
    write(root, "sessions/s1/session.md", "---\nagent: main\n---\n")
    write(root, "sessions/s1/picture.bin", f"\0\1{word}")
    write(root, "sessions/s1/.dream-state", "lastDreamMessageId: m1\n")
    write(root, "groups/s1/ams.json", '{"version": 1, "recentIds": ["a"]}')
    write(root, "sessions/s2/session.md", "---\nagent: main\n---\n")
    write(root, "sessions/s2/memory.md", segment("b", "other session quokka", "sessions/s2"))
    write(root, "sessions/s2/vp/ada/memory.md", segment("b", "ada in s2", "sessions/s2/vp/ada"))
    write(root, "sessions/s11/memory.md", segment("b", "begins alike", "sessions/s11"))
    write(root, "chat/c1/vp/ada/memory.md", segment("c", "ada in chat", "chat/c1/vp/ada"))
    write(root, "vp/ada/memory.md", segment("v", "ada alone", "vp/ada"))
    write(root, "vp/bob/memory.md", segment("v", "bob alone", "vp/bob"))
    write(root, "user/memory.md", segment("u", "the user", "user"))
    write(root, "readme.md", "# Unfiled\n")


def used(memory: Memory) -> None:
    """State of every kind for s1: active sets, an undo record, a conflict copy."""
    for vp in ("ada", None):
        memory.context("of old", access=Access(session="s1", vp=vp), commit=True)
    gone = memory.remember("sessions/s1", "forgotten axolotlword").address
    memory.forget(gone)


def tree(root: Path, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Every file below ``root`` outside of ``.h2ams`` and its bytes."""
    found = {}
    for folder, folders, names in os.walk(root):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name != ".h2ams"]
        for name in names:
            path = Path(folder, name).relative_to(root).as_posix()
            if not path.startswith(without):
                full = Path(folder, name)
                found[path] = os.readlink(full).encode() if full.is_symlink() else full.read_bytes()
    return found


def holding(root: Path, word: str) -> list[str]:
    """Files anywhere below ``root``, databases too, that hold ``word`` in any usual encoding."""
    wanted = [word.encode(), word.upper().encode(), word.encode("utf-16-le")]
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.is_symlink():
                continue
            data = path.read_bytes()
            if any(each in data for each in wanted) or word in name:
                found.append(path.relative_to(root).as_posix())
    return found


def leftovers(root: Path) -> list[str]:
    """What an operation must not leave: journal lines, trash, half-built copies, temporaries."""
    own = root / ".h2ams"
    found = [path for name in ("journal", "trash", "build") for path in (own / name).rglob("*")]
    found += list(root.rglob("*.tmp"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def on(root: Path, hook: object = None) -> Memory:
    """An open memory whose file operations are announced to ``hook``."""
    made: Memory = Memory(Root(root, hook=hook), PLAIN)  # type: ignore[arg-type]
    assert isinstance(made, Parts)
    return made


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target
