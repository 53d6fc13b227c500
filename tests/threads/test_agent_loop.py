"""The example: 300 turns with tools, compacted, two processes, and turn 3 is still known."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from surfaces.command_line import environment

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "agent_loop.py"


def test_the_loop_answers_about_turn_3_after_300_turns_and_a_restart(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), str(tmp_path / "memory")],
        env=environment(tmp_path, H2AMS_ENCODING="estimate"),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert lines[-1] == "asked about turn 3: The release word is HERON-42. Never without it."
    for first, line in zip((1, 151), lines, strict=False):
        found = re.match(rf"turns {first} to \d+: largest prompt (\d+) of 3500 tokens", line)
        assert found is not None and int(found[1]) <= 3_500
        assert "x compacted" in line
    messages, summaries = map(int, re.findall(r"\d+", lines[-2]))
    assert messages > 1_000 and summaries >= 5
