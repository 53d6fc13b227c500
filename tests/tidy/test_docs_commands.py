"""What README and docs show of the command line is what happens.

Every ``console`` block is run: lines behind ``$`` by ``sh``, one after the other and page by page,
in a folder that holds a copy of ``scopes/``; ``cd`` on a line of its own holds for the next ones.
Below a command stands what it prints, standard output first, then standard error; ``…`` stands for
anything, a line with it alone for any lines. A command with nothing below it prints nothing: a page
that leaves an output out says so with a line ``…``. ``[N]`` on a line of its own is an exit code
other than 0.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from surfaces.command_line import SHIM, environment

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"\[(\d+)\]")
NOW = "2026-12-01T12:00:00Z"

pytestmark = pytest.mark.skipif(shutil.which("sh") is None, reason="needs a POSIX shell")


@dataclass(slots=True)
class Shown:
    """One command of a page with what the page says that it prints."""

    command: str
    output: list[str] = field(default_factory=list)
    code: int = 0


def shown(text: str) -> list[Shown]:
    found: list[Shown] = []
    for block in BLOCK.findall(text):
        for line in block.splitlines():
            code = EXIT.fullmatch(line)
            if line.startswith("$ "):
                found.append(Shown(line[2:]))
            elif code:
                found[-1].code = int(code[1])
            else:
                found[-1].output.append(line)
    return found


def pattern(lines: list[str]) -> re.Pattern[str]:
    """A pattern for the output ``lines``, where ``…`` stands for anything."""
    parts = []
    for line in lines:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            parts.append(".*".join(map(re.escape, line.rstrip().split("…"))) + r" *\n")
    return re.compile("".join(parts))


Run = Callable[[str], tuple[str, int]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command and gives what it prints, without blank lines at the end, and its code."""
    tools, home, work = tmp_path / "bin", tmp_path / "home", tmp_path / "work"
    for each in (tools, home, work):
        each.mkdir()
    shutil.copytree(ROOT / "scopes", work / "scopes", ignore=shutil.ignore_patterns(".h2ams"))
    shim = tools / "h2ams"
    shim.write_text(SHIM.format(python=sys.executable), encoding="utf-8")
    shim.chmod(0o755)
    env = environment(home, TMPDIR=str(home), H2AMS_NOW=NOW)
    env["PATH"] = f"{tools}{os.pathsep}{env['PATH']}"
    here = work

    def call(command: str) -> tuple[str, int]:
        nonlocal here
        if re.fullmatch(r"cd [\w./-]+", command):
            here = (here / command[3:]).resolve(strict=True)
            return "", 0
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=here,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        text = (done.stdout + done.stderr).decode("utf-8").rstrip("\n")
        return text + "\n" if text else "", done.returncode

    return call


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_do_what_it_shows(page: Path, run: Run) -> None:
    for each in shown(page.read_text(encoding="utf-8")):
        text, code = run(each.command)
        told = f"$ {each.command}\n{text}[{code}]"
        assert code == each.code, told
        assert pattern(each.output).fullmatch(text), told


def test_a_command_shown_without_output_prints_nothing_unless_the_page_leaves_it_out() -> None:
    silent, left_out = shown("```console\n$ first\n$ second\n…\n```")
    assert pattern(silent.output).fullmatch("") and not pattern(silent.output).fullmatch("a\n")
    assert pattern(left_out.output).fullmatch("") and pattern(left_out.output).fullmatch("a\nb\n")


def test_readme_shows_commands_and_their_output() -> None:
    commands = shown((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(commands) >= 6
    assert sum(bool(each.output) for each in commands) >= 5


def test_every_command_shown_with_a_dollar_stands_in_a_block_that_is_run() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        outside = BLOCK.sub("", text)
        assert not re.search(r"^\s*\$ ", outside, re.MULTILINE), page
