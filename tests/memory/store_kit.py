"""A store on a real folder with a clock that is set, for the tests of the store."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from h2ams.files import FaultHook, Root
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import Entry
from h2ams.memory.store import Store
from h2ams.settings import DEFAULTS, Settings

START = datetime(2026, 5, 1, 8, 0, 0, tzinfo=UTC)
LEGACY = Path(__file__).parent.parent / "data" / "legacy"
USER = parse_scope("user")
SESSION = parse_scope("sessions/s1")


class Clock:
    """One minute later at each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


class WordCounter:
    """Tokens are words."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())

    def cut(self, text: str, limit: int) -> str:
        return " ".join(text.split()[:limit])


def save(path: Path, text: str) -> None:
    """What most editors do: write a new file and rename it over the old one."""
    aside = path.with_name(f"{path.name}.editor")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def open_store(
    folder: Path, *, settings: Settings = DEFAULTS, hook: FaultHook | None = None
) -> Store:
    return Store(Root(folder, hook=hook), settings, clock=Clock(), counter=WordCounter())


def put(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files with the folders above them, byte for byte."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))


def copy_legacy(folder: Path) -> Path:
    """A writable copy of the historical folder."""
    target = folder / "legacy"
    shutil.copytree(LEGACY, target)
    return target


def segment_text(id: str, body: str, *, scope: str = "user", updated: str = "", **more: str) -> str:
    """A segment as the historical writer wrote it."""
    when = updated or "2026-04-29T10:11:12.000Z"
    kind, tags = more.get("kind", "fact"), more.get("tags", "")
    return (
        f"---\nid: {id}\nscope: {scope}\nkind: {kind}\ntags: [{tags}]\nsourceMessages: []\n"
        f"createdAt: 2026-04-29T10:11:12.000Z\nupdatedAt: {when}\n---\n{body}\n"
    )


def entries(store: Store, scope: Scope) -> list[Entry]:
    return [held.entry for held in store.union(scope).held]


def bodies(store: Store, scope: Scope) -> list[str]:
    return [entry.segment.body for entry in entries(store, scope)]


def snapshot(folder: Path) -> dict[str, bytes]:
    """All files below a folder but the engine's own."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".h2ams" not in path.parts
    }


def everything(folder: Path) -> bytes:
    """All bytes below a folder, the engine's state included."""
    return b"\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
