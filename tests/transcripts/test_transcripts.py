"""Transcripts of the command line, run as tests.

A transcript is a ``.txt`` file: what stands behind ``$`` is run in an empty folder, one command
after the other; below it stands what the command printed. Lines of standard error begin with
``! ``, an exit code other than 0 is the last line ``[N]``. Lines before a command that begin with
``% `` are remarks. ``H2AMS_UPDATE_TRANSCRIPTS=1`` writes what was printed into the file: read the
difference before you keep it.

A command that is nothing but words runs in this process, which is quick; anything else (pipes,
variables, other programs) is given to ``sh``. Times, folders and random names are replaced
(``_NORMAL``); ids, digests and scores are not: they follow from the text and the fixed clock.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from surfaces.command_line import SHIM, environment

from h2ams.surfaces.cli import COMMANDS, main

FOLDER = Path(__file__).resolve().parent
UPDATE = os.environ.get("H2AMS_UPDATE_TRANSCRIPTS") == "1"

_NORMAL = [
    (re.compile(r'("elapsed_ms": )[\d.]+'), r"\1<ms>"),
    (re.compile(r"\bh2ams-edit-\w+"), "h2ams-edit-<random>"),
    (re.compile(r"migrated/[0-9a-f]{16}"), "migrated/<random>"),
    (re.compile(r"conflicts/[\w.-]+"), "conflicts/<random>"),
    (re.compile(r"\bcall [0-9a-f]{32}\b"), "call <call-id>"),
]
_PLAIN = re.compile(r"h2ams( [^|<>$;&`*?()\[\]~]*)?", re.ASCII)

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="transcripts need a POSIX shell")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_transcript_is_what_happens(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    replay = Replay(tmp_path, monkeypatch, capsysbinary)
    got = replay(path.read_text(encoding="utf-8"))
    if UPDATE:
        path.write_text(got, encoding="utf-8", newline="\n")
    assert got == path.read_text(encoding="utf-8")


def test_each_command_is_in_a_transcript() -> None:
    shown = " ".join(path.read_text(encoding="utf-8") for path in FOLDER.glob("*.txt"))
    assert not [name for name in COMMANDS if f"h2ams {name}" not in shown]


class Replay:
    """Runs transcripts in one folder of its own: ``bin`` with h2ams, ``home``, ``desk``."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        streams: pytest.CaptureFixture[bytes],
    ) -> None:
        self.folder, self.streams = folder.resolve(), streams
        for name in ("bin", "home", "desk"):
            (folder / name).mkdir()
        shim = folder / "bin" / "h2ams"
        shim.write_text(SHIM, encoding="utf-8")
        shim.chmod(0o755)
        self.env = environment(folder / "home", TMPDIR=str(folder / "home"))
        self.env["PATH"] = f"{folder / 'bin'}{os.pathsep}{self.env['PATH']}"
        self.env["PYTHON"] = sys.executable  # for the programs of docs/examples
        monkeypatch.chdir(folder / "desk")
        for name in [name for name in os.environ if name.startswith(("H2AMS_", "XDG_"))]:
            monkeypatch.delenv(name)
        for name, value in self.env.items():
            monkeypatch.setenv(name, value)

    def __call__(self, text: str) -> str:
        """``text`` with every output replaced by what its command prints now."""
        parts = [f"{remark}$ {command}\n{self.run(command)}" for remark, command in commands(text)]
        return "\n".join(parts)

    def run(self, command: str) -> str:
        """What ``command`` prints, as a transcript shows it."""
        if _PLAIN.fullmatch(command):
            code = main(shlex.split(command)[1:])
            out, err = self.streams.readouterr()
        else:
            done = subprocess.run(
                ["sh", "-c", command], env=self.env, capture_output=True, timeout=120, check=False
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        text = out.decode("utf-8")
        if text and not text.endswith("\n"):
            text += "\n"
        text += "".join(f"! {line}\n" for line in err.decode("utf-8").splitlines())
        text = text.replace(str(self.folder), "<folder>")
        for pattern, replacement in _NORMAL:
            text = pattern.sub(replacement, text)
        return text + (f"[{code}]\n" if code else "")


def commands(text: str) -> list[tuple[str, str]]:
    """Pairs of the remark before a command and the command."""
    found: list[tuple[str, str]] = []
    remark = ""
    for line in text.splitlines(keepends=True):
        if line.startswith("% "):
            remark += line
        elif line.startswith("$ "):
            found.append((remark, line[2:].rstrip("\n")))
            remark = ""
    return found
