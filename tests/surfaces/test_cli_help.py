"""Help pages: complete, of one form, at most 80 columns, and every example works as it stands."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from surfaces.command_line import REPOSITORY, SHIM, environment, h2ams

from h2ams.surfaces.cli import COMMANDS, load_command, main
from h2ams.surfaces.cli_help import ENVIRONMENT, EXAMPLES, EXIT_CODES, GROUPS, WIDTH
from h2ams.surfaces.cli_parser import CommandParser

LASTING = (
    *("h2ams watch", "h2ams mcp --owner --http", "h2ams inspect --owner"),
    "h2ams inspect --session s1 --user --port 0",
    "h2ams inspect --owner --write --port 0",
)  # examples that go on until interrupted
TALK = '{"id": "m2", "role": "user", "content": "We decided to ship weekly.",'
TALK += ' "createdAt": "2026-04-01T08:00:00Z"}\n'


def page(*words: str, columns: int = 80) -> str:
    """What ``h2ams words…`` prints on a terminal of so many columns."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setenv("COLUMNS", str(columns))
        assert main(words) == 0
    return printed.getvalue()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The page of each command, and under "" the first one."""
    return {name: page(name, "--help") for name in COMMANDS} | {"": page("--help")}


def test_every_page_has_purpose_usage_and_examples_in_one_order(pages: dict[str, str]) -> None:
    for name, (_, about) in COMMANDS.items():
        text = pages[name]
        usage, purpose, *_ = text.split("\n\n")
        assert usage.startswith(f"usage: h2ams {name} [options]")
        assert " ".join(purpose.split()) == about[:1].upper() + about[1:] + (
            "" if about.endswith("…") else "."
        )
        order = [text.find(f"\n{each}:\n") for each in ("examples", "everywhere", "access")]
        assert -1 < order[0] < order[1] < order[2], name


def test_no_line_is_wider_than_eighty_columns_on_any_terminal(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        wide = [line for line in text.splitlines() if len(line) > WIDTH]
        assert wide == [], name
    assert page("recall", "--help", columns=300) == page("recall", "--help", columns=82)


def test_examples_are_shown_as_they_are(pages: dict[str, str]) -> None:
    assert EXAMPLES.keys() >= COMMANDS.keys()
    for name in COMMANDS:
        assert EXAMPLES[name], name
        block = pages[name].partition("\nexamples:\n")[2].partition("\neverywhere:\n")[0]
        shown = "\n\n".join(f"# {each.about}\n{each.line}" for each in EXAMPLES[name])
        assert "\n".join(line[2:] for line in block.splitlines()).strip() == shown.strip()
        assert all(f"h2ams {name}" in each.line for each in EXAMPLES[name])


def test_the_first_page_groups_every_command_once(pages: dict[str, str]) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped)) and set(grouped) >= COMMANDS.keys()
    lines = pages[""].splitlines()
    for name, (_, about) in COMMANDS.items():
        rows = [line for line in lines if re.match(rf"  {name} +\S", line)]
        assert len(rows) == 1 and rows[0].endswith(about), name
    for heading in (*GROUPS, "everywhere", "access", "exit codes", "environment", "files"):
        assert f"\n{heading}:\n" in pages[""]


def test_exit_codes_and_environment_are_those_of_the_docs() -> None:
    cli = (REPOSITORY / "docs" / "cli.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d+) \| ", cli, re.MULTILINE)
    assert codes == list(EXIT_CODES)
    settings = (REPOSITORY / "docs" / "settings.md").read_text(encoding="utf-8")
    for name in ", ".join(ENVIRONMENT).replace("H2AMS_NAME", "H2AMS_<SETTING>").split(", "):
        assert f"`{name}`" in settings, name


def test_every_argument_says_what_it_is() -> None:
    for name in COMMANDS:
        parser = CommandParser("h2ams")
        load_command(name).configure(parser)
        for action in (*parser.options, *parser.positionals):
            assert action.help, (name, action)


def test_a_recall_does_not_load_the_help(tmp_path: Path) -> None:
    code = (
        "import sys; from h2ams.surfaces.cli import main; main(['recall', 'x', '--root', 'm']);"
        "print(*(m for m in sys.modules if 'help' in m or 'completion' in m))"
    )
    h2ams("init", "m", cwd=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == ""


# -- the examples ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the examples make sense."""
    world = tmp_path_factory.mktemp("world")
    run(world, f"{sys.executable} {REPOSITORY}/docs/examples/simulator.py scopes > game.txt")
    tabs = 'h2ams remember user "Prefers tabs over spaces." --kind preference --tag editor'
    deploys = 'h2ams remember sessions/s1 "Deploys run on Friday, never in the evening."'
    for line in (tabs, f"{deploys} --kind decision --source m1", "h2ams sync"):
        run(world, line)
    (world / "talk.jsonl").write_text(TALK, encoding="utf-8")
    line = '{"text": "Invoices go out on the fifth.", "scope": "topic/office"}\n'
    (world / "lines.jsonl").write_text(line, encoding="utf-8")
    (world / ".config" / "fish" / "completions").mkdir(parents=True)
    return world


def surroundings(world: Path) -> dict[str, str]:
    tools = world / ".tools"
    if not tools.exists():
        tools.mkdir()
        (tools / "h2ams").write_text(SHIM, encoding="utf-8")
        (tools / "h2ams").chmod(0o755)
    env = environment(world)
    return env | {"PATH": f"{tools}{os.pathsep}{env['PATH']}"}


def run(world: Path, line: str) -> str:
    """What a line prints; it must end well, at most with a note."""
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=world,
        env=surroundings(world),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert all(told.startswith("h2ams: ") for told in done.stderr.splitlines()), done.stderr
    return done.stdout


def run_until_interrupted(world: Path, line: str) -> None:
    """Start a line, wait until it says that it works, interrupt it."""
    with (world / "told").open("w+", encoding="utf-8") as told:
        process = subprocess.Popen(
            ["sh", "-c", f"exec {line}"],
            cwd=world,
            env=surroundings(world),
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
        )
        end = time.monotonic() + 60
        while not (world / "told").stat().st_size and process.poll() is None:
            assert time.monotonic() < end, line
            time.sleep(0.05)
        assert process.poll() is None, (world / "told").read_text(encoding="utf-8")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130), (world / "told").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_page_work(name: str, world: Path, tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    shutil.copytree(world, desk)
    for example in EXAMPLES[name]:
        if example.line in LASTING:
            run_until_interrupted(desk, example.line)
        else:
            run(desk, example.line)
