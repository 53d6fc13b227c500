"""Reported cases of running it: programs that are started, and what is left at the end."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cases.kit import segment_text, write
from surfaces.command_line import PROGRAM, REPOSITORY, environment

STARTERS = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec"}


def starts() -> list[tuple[str, set[str]]]:
    """Every call in the package that starts a program, and the keywords that it gives."""
    found = []
    for path in sorted((REPOSITORY / "h2ams").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = node.func.value
            known = isinstance(owner, ast.Name) and owner.id in ("subprocess", "asyncio")
            if known and node.func.attr in STARTERS:
                keywords = {each.arg or "" for each in node.keywords}
                found.append((f"{path.name}:{node.lineno}", keywords))
    return found


def test_k146_every_program_that_is_started_gets_its_own_input_and_output() -> None:
    calls = starts()
    assert calls, "the editor is started somewhere"
    for place, keywords in calls:
        assert keywords & {"stdin", "input"}, f"{place} hands standard input on by accident"
        assert keywords & {"stdout", "capture_output"}, f"{place} hands standard output on"


@pytest.mark.parametrize("json_mode", [True, False])
def test_k146_an_editor_in_a_pipe_reads_nothing_of_it_and_prints_nothing_into_it(
    tmp_path: Path, json_mode: bool
) -> None:
    root = tmp_path / "m"
    write(root, "user/memory.md", segment_text("a", "alpha"))
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\n"
        "taken = sys.stdin.buffer.read()  # waits for ever where it got the protocol's input\n"
        "print('noise', len(taken))\n"
        "open(sys.argv[1], 'w').write('beta')\n",
        encoding="utf-8",
    )
    words = ["edit", "user#a", "--root", str(root), "--set", "encoding=estimate"]
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, *(["--json"] if json_mode else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, VISUAL=f"'{sys.executable}' '{editor}'"),
    )
    assert running.stdin is not None and running.stdout is not None
    assert running.stderr is not None
    running.stdin.write(b'{"jsonrpc": "2.0"}\n')
    running.stdin.flush()  # and it stays open
    out, err = running.stdout.read(), running.stderr.read()
    assert running.wait(60) == 0
    for stream in (running.stdin, running.stdout, running.stderr):
        stream.close()
    assert b"noise 0" in err
    if json_mode:
        assert json.loads(out)["changed"] is True
    else:
        assert out == b"changed user#a\n"
    assert "beta" in (root / "user/memory.md").read_text(encoding="utf-8")
