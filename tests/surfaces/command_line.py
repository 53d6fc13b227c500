"""Running ``h2ams`` as a process: its own environment, its own folder, no terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
NOW = "2026-05-01T12:00:00Z"
PROGRAM = "import sys; from h2ams.surfaces.cli import main; sys.exit(main())"
# Root may read anything; without these two capabilities modes count for it too (Linux).
UNPRIVILEGED = (
    "import ctypes, os, sys; libc = ctypes.CDLL(None)\n"
    "assert all(libc.prctl(24, each, 0, 0, 0) == 0 for each in (1, 2))\n"
    "os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])"
)
SHIM = f"""#!/bin/sh
exec "{sys.executable}" -c '{PROGRAM}' "$@"
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the surroundings: a home of its own, a fixed clock, no colour, no settings."""
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT", "TEMP") if name in os.environ}
    names = {"HOME": str(home), "USERPROFILE": str(home), "XDG_DATA_HOME": str(home / "data")}
    names |= {"XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state")}
    names |= {"LOCALAPPDATA": str(home / "data"), "H2AMS_NOW": NOW, "COLUMNS": "100", "LC_ALL": "C"}
    names["PYTHONPATH"] = str(REPOSITORY)
    return kept | names | more


def h2ams(
    *words: str,
    cwd: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    unprivileged: bool = False,
) -> Done:
    """Run the command line in a new process. ``unprivileged``: the modes of files count."""
    start = [UNPRIVILEGED] if unprivileged and os.geteuid() == 0 else []
    done = subprocess.run(
        [sys.executable, "-c", *start, PROGRAM, *words],
        cwd=cwd,
        input=stdin,
        env=environment(cwd, **(env or {})),
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))


class Done:
    """How a process ended: its code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def __repr__(self) -> str:
        return f"Done({self.code}, {self.out!r}, {self.err!r})"
