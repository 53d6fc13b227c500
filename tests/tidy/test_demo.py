"""``make demo`` answers, shows why, and leaves ``scopes/`` as it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from surfaces.command_line import environment

ROOT = Path(__file__).resolve().parents[2]


def demo(question: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "demo.py"), question],
        env=environment(folder, H2AMS_STATE_DIR=str(folder / "state")),
        cwd=folder,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode("utf-8")
    return done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("question", "address_begins"),
    [
        ("why are rowids grouped by scope?", "sessions/core/topic/index#"),
        ("какая лицензия", "sessions/поддержка#"),
        ("预算如何分配", "sessions/中文说明#"),
    ],
)
def test_the_demo_shows_matches_block_and_receipt(
    question: str, address_begins: str, tmp_path: Path
) -> None:
    text = demo(question, tmp_path)
    matches, block, receipt = text.split("\n--- ")[1:]
    assert matches.split("\n1. ")[1].startswith(address_begins)
    assert "bm25" in matches
    assert "<memory-context>" in block
    assert address_begins in block
    assert "on_demand" in receipt


def test_a_question_without_an_answer_is_answered_with_nothing(tmp_path: Path) -> None:
    assert "nothing matches" in demo("xylophone zeppelin", tmp_path)


def test_the_demo_writes_nothing_into_the_folder(tmp_path: Path) -> None:
    before = sorted(ROOT.joinpath("scopes").rglob("*"))
    demo("token", tmp_path)
    assert sorted(ROOT.joinpath("scopes").rglob("*")) == before


def test_a_reader_that_has_seen_enough_ends_the_demo_without_a_word(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "demo.py")],
        env=environment(tmp_path, H2AMS_STATE_DIR=str(tmp_path / "state"), PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdout is not None and running.stderr is not None
    assert running.stdout.readline().startswith(b"question")
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(60) == 0
