"""A memory folder for tests: writes files as a person would and opens the engine on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from h2ams import Memory, Settings

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
# No encoder to load: most tests do not depend on exact token counts.
PLAIN = Settings(encoding="estimate")


def segment_text(id: str, body: str, **header: object) -> str:
    """One segment as a person writes it; ``header`` adds or replaces lines."""
    lines: dict[str, Any] = {"id": id, "kind": "fact", **header}
    head = "\n".join(f"{key}: {value}" for key, value in lines.items())
    return f"---\n{head}\n---\n{body}\n"


def write(root: Path, path: str, *segments: str) -> Path:
    """Write ``path`` below ``root`` with the segments, one blank line between them."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(segments), encoding="utf-8", newline="")
    return file


@contextmanager
def opened(root: Path, **options: Any) -> Iterator[Memory]:
    """The engine on ``root``, at a fixed time and with plain settings."""
    root.mkdir(exist_ok=True)
    options.setdefault("settings", PLAIN)
    options.setdefault("now", lambda: NOW)
    with Memory.open(root, **options) as memory:
        yield memory


def ids(memory: Memory, query: str, **options: Any) -> list[str]:
    """The ids that a recall finds, best first."""
    return [hit.record.id for hit in memory.recall(query, **options).hits]


def age(path: Path, seconds: float = 60) -> None:
    """Set the file's times back, so that nothing about it looks as if it had just changed."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))
