"""Transcripts of the command line, run as tests.

A transcript is a ``.txt`` file: what stands behind ``$`` is run by ``sh`` in an empty folder, one
command after the other; below it stands what the command printed. Lines of standard error begin
with ``! ``, an exit code other than 0 is the last line ``[N]``. Lines that begin with ``#`` and
blank lines before a command are remarks. ``H2AMS_UPDATE_TRANSCRIPTS=1`` writes what was printed
into the file: read the difference before you keep it.

Times, paths and durations are replaced (``_NORMAL``), ids and scores are not: they follow from the
text and the fixed clock.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from surfaces.command_line import SHIM, environment

FOLDER = Path(__file__).resolve().parent
UPDATE = os.environ.get("H2AMS_UPDATE_TRANSCRIPTS") == "1"

_NORMAL = [
    (re.compile(r'("elapsed_ms": )[\d.]+'), r"\1<ms>"),
    (re.compile(r"\bh2ams-edit-\w+"), "h2ams-edit-<random>"),
    (re.compile(r"(conflicts/\S+?)[0-9a-f]{8,}"), r"\1<random>"),
]

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="transcripts need a POSIX shell")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_transcript_is_what_happens(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    got = replay(text, tmp_path)
    if UPDATE:
        path.write_text(got, encoding="utf-8", newline="\n")
    assert got == path.read_text(encoding="utf-8")


def test_there_are_transcripts_and_each_command_is_in_one() -> None:
    from h2ams.surfaces.cli import COMMANDS

    shown = " ".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    missing = [name for name in COMMANDS if f"h2ams {name}" not in shown and name != "watch"]
    assert not missing


def replay(text: str, folder: Path) -> str:
    """``text`` with every output replaced by what its command prints now."""
    tools, home, work = folder / "bin", folder / "home", folder / "work"
    for each in (tools, home, work):
        each.mkdir()
    shim = tools / "h2ams"
    shim.write_text(SHIM, encoding="utf-8")
    shim.chmod(0o755)
    env = environment(home, TMPDIR=str(home))
    env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
    parts: list[str] = []
    for remark, command in commands(text):
        done = subprocess.run(
            ["sh", "-c", command], cwd=work, env=env, capture_output=True, timeout=120, check=False
        )
        parts.append(remark + "$ " + command + "\n" + shown(done, folder))
    return "\n".join(parts)


def commands(text: str) -> list[tuple[str, str]]:
    """Pairs of the remark before a command and the command (a trailing ``\\`` goes on)."""
    found: list[tuple[str, str]] = []
    remark: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("#"):
            remark.append(line + "\n")
        elif line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command += "\n" + next(lines)
            found.append(("".join(remark), command))
            remark = []
    return found


def shown(done: subprocess.CompletedProcess[bytes], folder: Path) -> str:
    """What a process printed, as a transcript shows it."""
    out = done.stdout.decode("utf-8")
    lines = [f"{line}\n" for line in out.split("\n")]
    if out.endswith("\n") or not out:
        lines.pop()
    lines += [f"! {line}\n" for line in done.stderr.decode("utf-8").splitlines()]
    text = "".join(lines).replace(str(folder.resolve()), "<folder>")
    for pattern, replacement in _NORMAL:
        text = pattern.sub(replacement, text)
    return text + (f"[{done.returncode}]\n" if done.returncode else "")
