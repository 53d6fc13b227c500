"""The claims of docs/scale.md hold on a real PostgreSQL, in small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "scale_postgres.py"


def test_on_postgresql_foreign_rows_change_nothing_and_are_never_seen() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--segments", "1500", "--owners", "10"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = dict(line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:])
    assert seen["results and scores with / without other owners' rows"] == "equal"
    assert seen["nearest vectors with / without other owners' rows"] == "equal"
    assert seen["scopes outside the access among the results"] == "0"
    assert seen["owners seen through row-level security"] == "1"
    assert seen["partitions that one recall reads"] == "1 of 8"
