"""tools/soak.py in short: it finds nothing wrong, and it would find it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from surfaces.command_line import REPOSITORY

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")


def run(words: list[str], broken: str = "") -> subprocess.CompletedProcess[bytes]:
    """The tool in a process of its own, in which ``broken`` is run first."""
    start = f"import sys; sys.path.insert(0, 'tools')\n{broken}\nimport soak\n"
    start += "sys.exit(soak.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", start, *words],
        cwd=REPOSITORY,
        capture_output=True,
        timeout=600,
        check=False,
    )


def soak(*words: str) -> dict[str, Any]:
    """What the tool reports."""
    done = run(list(words))
    assert done.returncode == 0, done.stderr.decode() + done.stdout.decode()
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_processes_that_are_crossed_lose_nothing() -> None:
    report = soak("--seconds", "4", "--processes", "6", "--kills", "0", "--kills-per-second", "2")
    counts = report["crossed"]
    assert report["ok"] and counts["segments that must be there"] > 0
    assert sum(n for name, n in counts.items() if name.startswith("by hand")) > 5


def test_processes_that_are_killed_lose_nothing() -> None:
    report = soak("--seconds", "0", "--kills", "45")
    killed = {name for name in report["killed"] if name.startswith("killed in")}
    assert report["ok"] and report["killed"]["kills"] == 45
    assert report["killed"]["in the middle of a call"] > 10 and len(killed) >= 12


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        # A write that forgets what somebody appended while it was planned.
        (
            "from h2ams import files, atomic\n"
            "atomic.Writer._check = lambda *args: None\n"
            "atomic.swapper = lambda: None\n"
            "from h2ams import lease\n"
            "lease._SUPPORTED = False",
            "stands for",
        ),
        # An index that is never told of what was forgotten.
        (
            "from h2ams.index import row_writer\n"
            "row_writer.Writer.delete = lambda self, rowid: None",
            "verify",
        ),
    ],
)
def test_a_fault_in_the_engine_is_found(broken: str, fault: str) -> None:
    for seed in range(5):
        words = ["--seconds", "5", "--processes", "5", "--kills", "30", "--seed", str(seed)]
        done = run(words, broken)
        if done.returncode:
            assert fault in done.stdout.decode() or fault in done.stderr.decode()
            return
    pytest.fail("the soak run finds nothing wrong with a broken engine")


@pytest.mark.long
def test_eight_processes_for_a_minute_and_a_thousand_kills_lose_nothing() -> None:
    report = soak("--seconds", "60", "--processes", "8", "--kills", "1000")
    assert report["ok"] and report["crossed"]["seconds"] == 60


def test_make_soak_runs_it(tmp_path: Path) -> None:
    text = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    assert "tools/soak.py" in text and "SECONDS" in text
