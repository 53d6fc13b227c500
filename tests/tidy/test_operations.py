"""The scripts for cron and CI do what they say, and the service files of the page are whole."""

from __future__ import annotations

import configparser
import plistlib
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from folder import segment_text, write

from h2ams.surfaces.cli import COMMANDS, load_command
from h2ams.surfaces.cli_parser import CommandParser, add_global_options

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/operations.md").read_text("utf-8")

Tool = Callable[..., tuple[int, str]]


@pytest.fixture
def tool(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Tool:
    monkeypatch.setenv("H2AMS_ENCODING", "estimate")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(name: str, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *words])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "tools" / name), run_name="__main__")
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "memory", "user/memory.md", segment_text("s1", "Prefers tabs."))
    return tmp_path / "memory"


def test_indexes_are_rebuilt_one_line_a_folder(tool: Tool, root: Path, tmp_path: Path) -> None:
    code, out = tool("rebuild_index.py", str(root), str(root))
    assert code == 0 and out.count("rebuilt in ") == 2
    assert "1 scopes, 1 segments" in out and "equals the files" in out
    code, out = tool("rebuild_index.py", "--sync", str(root))
    assert code == 0 and "synced in " in out
    code, out = tool("rebuild_index.py", str(root), str(tmp_path / "missing"))
    assert code == 1 and "rebuilt" in out and "missing: " in out
    assert tool("rebuild_index.py")[0] == 2


def test_a_file_that_cannot_be_read_is_told_by_the_exit_code(tool: Tool, root: Path) -> None:
    (root / "user/memory.md").write_text("---\nid: x\ntags: [\n---\ntext\n", encoding="utf-8")
    code, out = tool("rebuild_index.py", str(root))
    assert code == 1 and "1 files could not be read" in out


def test_problems_are_printed_with_their_place_and_nothing_is_written(
    tool: Tool, root: Path, tmp_path: Path
) -> None:
    state = str(tmp_path / "state")
    assert tool("check_memory.py", "--state", state, str(root)) == (0, "")
    (root / "user/memory.md").write_text("---\nid: x\ntags: [\n---\ntext\n", encoding="utf-8")
    code, out = tool("check_memory.py", "--state", state, str(root), str(tmp_path / "missing"))
    assert code == 1
    assert re.search(rf"^{re.escape(str(root))}/user/memory\.md:\d+: [\w-]+: ", out, re.M)
    assert "missing:0: error: " in out
    assert sorted(path.name for path in root.iterdir()) == ["user"]


def parses(words: list[str]) -> None:
    """``h2ams`` takes these words."""
    name, rest = words[0], words[1:]
    assert name in COMMANDS
    parser = CommandParser("h2ams")
    add_global_options(parser)
    load_command(name).configure(parser)
    parser.parse_args(parser.sort_words(rest).for_argparse())


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    return found[1]


def test_the_systemd_unit_is_whole_and_its_command_is_one_of_ours() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini"))
    program, *words = shlex.split(unit["Service"]["ExecStart"])
    assert program.endswith("/h2ams") and unit["Install"]["WantedBy"] == "default.target"
    parses(words)


def test_the_launchd_agent_is_whole_and_its_command_is_one_of_ours() -> None:
    agent = plistlib.loads(block("xml").encode())
    program, *words = agent["ProgramArguments"]
    assert program.endswith("/h2ams") and agent["Label"] == "h2ams.watch" and agent["RunAtLoad"]
    parses(words)


def test_the_scripts_that_the_page_names_are_there() -> None:
    named = set(re.findall(r"tools/(\w+\.py)", PAGE))
    assert named == {"rebuild_index.py", "check_memory.py"}
    assert all((ROOT / "tools" / name).exists() for name in named)
