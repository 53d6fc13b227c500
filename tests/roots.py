"""Small helpers for tests that work on a real memory folder."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

from h2ams.files import FileState, Root

NOTE = "user/memory.md"


def put(root: Root, data: bytes, relative: str = NOTE) -> FileState:
    return root.replace(relative, data, expect=root.read(relative), make_folders=True)


def data_of(root: Root, relative: str = NOTE) -> bytes | None:
    """The file's bytes when all editors have saved."""
    while WAITING:
        WAITING.pop().join()
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
        if in_place:
            _write_in_place(path, data)
            return
        aside = f"{path}.editor"
        Path(aside).write_bytes(data)
        os.rename(aside, path)

    return edit


# Editors whose save in place waits for a lease to end, as that of another program would.
WAITING: list[threading.Thread] = []


def _write_in_place(path: str, data: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except BlockingIOError:
        thread = threading.Thread(target=Path(path).write_bytes, args=(data,))
        thread.start()
        WAITING.append(thread)
        return
    os.close(descriptor)
    Path(path).write_bytes(data)
