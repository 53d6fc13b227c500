"""tools/fuzz.py in short: every target with some cases, and that a finding would be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from surfaces.command_line import REPOSITORY

TARGETS = {"parse": 60, "edit": 60, "folder": 8, "query": 60, "ids": 40, "state": 8, "config": 20,
           "command": 25}  # fmt: skip


def fuzz(*words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.path.insert(0, 'tools')\n{before}\nimport fuzz\n"
    start += "sys.exit(fuzz.main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", start, *words],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )


def test_every_target_is_run_here() -> None:
    done = subprocess.run(
        [sys.executable, "tools/fuzz.py", "--help"],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    listed = done.stdout.partition("{")[2].partition("}")[0]
    assert set(listed.replace("\n", "").replace(" ", "").split(",")) == TARGETS.keys()


@pytest.mark.parametrize("target", TARGETS)
def test_random_bad_input_is_answered_or_refused(target: str) -> None:
    done = fuzz("--target", target, "--cases", str(TARGETS[target]))
    assert done.returncode == 0, done.stdout
    assert f"{TARGETS[target]} cases" in done.stdout and "0 findings" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
def test_much_random_bad_input_is_answered_or_refused(target: str) -> None:
    done = fuzz("--target", target, "--cases", str(TARGETS[target] * 50), "--seed", "1000")
    assert done.returncode == 0, done.stdout


def test_a_finding_is_printed_with_its_input_and_the_command_that_runs_it_again(
    tmp_path: Path,
) -> None:
    broken = (
        "from h2ams.memory import summary\n"
        "def refuse(data, **how):\n    raise KeyError('planted')\n"
        "summary.parse_summary = refuse"
    )
    done = fuzz("--target", "parse", "--cases", "2", "--seed", "7", before=broken)
    assert done.returncode == 1 and "2 findings" in done.stdout
    assert "KeyError: 'planted'" in done.stdout and "data: b" in done.stdout
    assert "again: python tools/fuzz.py --target parse --seed 8 --cases 1" in done.stdout
