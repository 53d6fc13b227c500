"""docs/python.md names every public name; its snippets and those of README run as they stand."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from pathlib import Path

import pytest

import h2ams

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
README = ROOT / "README.md"
STACKS = ROOT / "docs" / "stacks.md"
THREADS = ROOT / "docs" / "threads.md"
ANTHROPIC = ROOT / "docs" / "anthropic.md"
# Pages with snippets, and how many there are at least.
RUN = {PAGE: 5, README: 1, STACKS: 1, THREADS: 2, ANTHROPIC: 1}
RUN |= {ROOT / "docs" / f"{name}.md": 1 for name in ("tutorial", "active", "recall", "errors")}
# A python block, and the text block directly below it, if any: what the snippet prints.
SNIPPET = re.compile(
    r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL
)


def test_every_public_name_is_mentioned() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in h2ams.__all__ if f"`{name}" not in text] == []


def test_every_public_method_of_memory_is_mentioned() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = [name for name in dir(h2ams.Memory) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"[`.]{name}\b", text)] == []


def test_every_page_with_snippets_is_among_those_that_are_run() -> None:
    pages = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")}
    found = {page for page in pages if "```python\n" in page.read_text(encoding="utf-8")}
    assert found == set(RUN)


@pytest.mark.parametrize(("page", "least"), RUN.items(), ids=[page.name for page in RUN])
def test_the_snippets_run_and_print_what_the_page_shows(
    page: Path, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "scopes", tmp_path / "scopes", ignore=shutil.ignore_patterns(".h2ams"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("H2AMS_NOW", "2026-12-01T12:00:00Z")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("H2AMS_ROOT", "H2AMS_STATE_DIR"):
        monkeypatch.delenv(name, raising=False)
    snippets = SNIPPET.findall(page.read_text(encoding="utf-8"))
    assert len(snippets) >= least
    scope: dict[str, object] = {}
    for code, printed in snippets:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, str(page), "exec"), scope)
        if printed:
            assert out.getvalue().splitlines() == printed.splitlines()
