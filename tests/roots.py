"""Small helpers for tests that work on a real memory folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from h2ams.files import FileState, Root

NOTE = "user/memory.md"


def put(root: Root, data: bytes, relative: str = NOTE) -> FileState:
    return root.replace(relative, data, expect=root.read(relative), make_folders=True)


def data_of(root: Root, relative: str = NOTE) -> bytes | None:
    found = root.read(relative)
    return found.data if found else None


def leftovers(root: Root) -> list[str]:
    return sorted(
        name
        for _, _, names in os.walk(root.path)
        for name in names
        if name.endswith((".tmp", ".swap"))
    )


def save(path: str, data: bytes | None, *, in_place: bool = False) -> Callable[[], None]:
    """What an editor does: save ``data`` by rename or in place; None removes the file."""

    def edit() -> None:
        if data is None:
            os.unlink(path)
            return
        aside = path if in_place else f"{path}.editor"
        Path(aside).write_bytes(data)
        if not in_place:
            os.rename(aside, path)

    return edit
