"""The programs of docs/examples run, and tell what they are about."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from surfaces.command_line import environment

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def run(name: str, tmp_path: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *words],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("words", [(), ("game",)])
def test_the_simulator_lives_through_scenes_an_intervention_an_outage_and_a_restart(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = run("simulator.py", tmp_path, *(str(tmp_path / word) for word in words)).splitlines()
    told = [line for line in out if not line.startswith("round") or ": " in line]
    assert [line for line in told if line.startswith("scene")][-1].startswith("scene southgate")
    assert "scene northgate: ended after 5 turns, its stack is gone" in out
    assert "intervention in round 10: failed (compression is due for round-10)" in out
    restart = out.index("restart")
    assert out[restart + 1] == "before the next generation (compression is due for round-10)"
    assert out[restart + 2].startswith("round 12: compressed")
    assert out[restart + 3] == "after it (nothing is due)"
