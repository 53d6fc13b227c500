"""Completion in real shells: what a line is completed to, and what is never offered.

bash and zsh are driven through a terminal: a key inserts every candidate into the line, and the
line is run with a function in the place of ``h2ams`` that prints its words. So quoting counts. fish
can be asked without a terminal. zsh and fish are tested where they are installed (``make shells``).
"""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folder import segment_text, write
from surfaces.command_line import SHIM, environment, h2ams

from h2ams.surfaces.cli import COMMANDS, describe_command, load_command
from h2ams.surfaces.cli_completion import SHELLS, program
from h2ams.surfaces.cli_parser import CommandParser, add_global_options
from h2ams.surfaces.completion_scripts import SCRIPTS

DEADLINE_S = 30.0
HOSTILE = "$(touch${IFS}hacked)"

Complete = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to type in: ``scopes/`` with an index, ``h2ams`` on the PATH, a text file."""
    desk = tmp_path_factory.mktemp("desk")
    root = desk / "scopes"
    write(root, "user/memory.md", segment_text("tabs", "Tabs."), segment_text("tea", "Tea."))
    write(root, "sessions/s1/memory.md", segment_text("d1", "Deploys run on Friday."))
    write(root, "sessions/secret/memory.md", segment_text("x1", "Hidden."))
    write(root, "chat/c1/memory.md", segment_text(HOSTILE, "An id by hand."))
    (desk / "lines.jsonl").write_text("", encoding="utf-8")
    (desk / "linked").mkdir()
    (desk / "bin").mkdir()
    shim = desk / "bin" / "h2ams"
    shim.write_text(SHIM, encoding="utf-8")
    shim.chmod(0o755)
    done = h2ams("sync", cwd=desk)
    assert done.code == 0, done
    return desk


def surroundings(desk: Path) -> dict[str, str]:
    env = environment(desk, TERM="dumb", COLUMNS="10000", LC_ALL="C.UTF-8")
    return env | {"PATH": f"{desk / 'bin'}{os.pathsep}{env['PATH']}"}


class Terminal:
    """An interactive shell on a terminal of its own."""

    def __init__(self, words: list[str], desk: Path) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:  # the child: nothing of the test goes on here
            os.chdir(desk)
            os.execvpe(words[0], words, surroundings(desk))
        self.pid = pid

    def ask(self, text: str, until: str) -> str:
        """Type ``text`` and read until ``until`` (a pattern) has been printed."""
        os.write(self.fd, text.encode("utf-8"))
        seen, end = "", time.monotonic() + DEADLINE_S
        while not re.search(until, seen):
            ready, _, _ = select.select([self.fd], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{until!r} did not come: {seen!r}"
            seen += os.read(self.fd, 65536).decode("utf-8", "replace").replace("\r", "")
        return seen

    def close(self) -> None:
        os.close(self.fd)  # the shell gets a hang-up
        os.waitpid(self.pid, 0)


PRINT = 'h2ams() { printf "<%s>\\n" "$@"; echo END-OF-WORDS; }\n'
STARTS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
SETS_UP = {  # Control-X a inserts every candidate
    "bash": "PS1='> '; bind '\"\\C-xa\": insert-completions'; source <(h2ams completion bash)\n",
    "zsh": "PS1='> '; autoload -U compinit; compinit -u -D; bindkey -e;"
    " zle -C all-matches complete-word _generic; zstyle ':completion:all-matches:*' insert yes;"
    " zstyle ':completion:all-matches::::' completer _all_matches _complete;"
    " bindkey '^Xa' all-matches; source <(h2ams completion zsh)\n",
}


@pytest.fixture(scope="module", params=["bash", "zsh"])
def typed(request: pytest.FixtureRequest, desk: Path) -> Iterator[Complete]:
    """The candidates of a line in which ``|`` is the cursor, as its words after completion."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here: make shells installs it")
    terminal = Terminal(STARTS[shell], desk)
    terminal.ask(SETS_UP[shell] + PRINT + "echo READY''-NOW\n", "READY-NOW\n")

    def complete(line: str) -> list[str]:
        front, _, back = line.partition("|")
        keys = front + back + "\x1b[D" * len(back) + "\x18a\n"  # all candidates, then run the line
        seen = terminal.ask(keys, "END-OF-WORDS\n")
        return re.findall(r"^<(.*)>$", seen, re.MULTILINE)

    yield complete
    terminal.close()


@pytest.fixture(scope="module")
def fish(desk: Path) -> Complete:
    """The candidates that fish offers for a line with the cursor at its end."""
    if shutil.which("fish") is None:
        pytest.skip("no fish here: make shells installs it")

    def complete(line: str) -> list[str]:
        code = f"h2ams completion fish | source; complete -C {shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            cwd=desk,
            env=surroundings(desk),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_S,
            check=True,
        )
        assert done.stderr == ""
        return [each.split("\t")[0] for each in done.stdout.splitlines()]

    return complete


# -- what is offered -------------------------------------------------------------------------------

# a line, and what its last word may become
LINES = [
    ("h2ams rec", ["recall"]),
    (
        "h2ams --json --root scopes s",
        ["setup", "scope", "show", "sources", "stack", "status", "summary", "sync"],
    ),
    ("h2ams recall q --ki", ["--kind"]),
    ("h2ams recall --sc", ["--scope"]),
    ("h2ams recall --kind pr", ["preference", "project-convention"]),
    ("h2ams recall --scope sessions/", ["sessions/s1", "sessions/secret"]),
    ("h2ams recall q --session s", ["s1", "secret"]),
    ("h2ams show user#t", ["user#tabs", "user#tea"]),
    ("h2ams scope re", ["rename"]),
    ("h2ams scope delete sessions/s", ["sessions/s1", "sessions/secret"]),
    ("h2ams import js", ["jsonl"]),
    ("h2ams import jsonl li", ["lines.jsonl", "linked"]),
    ("h2ams --root li", ["linked"]),
    ("h2ams setup cl", ["claude-code", "claude-desktop"]),
    ("h2ams help rec", ["recall"]),
    ("h2ams completion b", ["bash"]),
]


def last_words(found: list[str], line: str) -> list[str]:
    """The words that stand where the last word of ``line`` stood."""
    known = shlex.split(line)[1:-1]
    assert found[: len(known)] == known
    return sorted(each.rstrip("/") for each in found[len(known) :])


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_is_completed(line: str, expected: list[str], typed: Complete) -> None:
    assert last_words(typed(line + "|"), line) == sorted(expected)


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line_is_completed_in_fish(line: str, expected: list[str], fish: Complete) -> None:
    found = [each.rstrip("/") for each in fish(line)]
    if line.endswith("--sc"):
        assert "--scope" in found
    else:
        assert sorted(found) == sorted(expected)


def test_a_value_behind_an_equals_sign_is_completed(typed: Complete, fish: Complete) -> None:
    for complete in (lambda line: typed(line + "|")[-1], lambda line: fish(line)[0]):
        assert complete("h2ams recall q --kind=less") == "--kind=lesson"
        assert complete("h2ams recall q --session=sec") == "--session=secret"
        assert complete("h2ams recall q --user=wr") == "--user=write"


@pytest.mark.parametrize(
    "line",
    [
        "h2ams recall q --session s1 --scope sessions/|",
        "h2ams --session=s1 recall q --scope sessions/|",
        "h2ams recall q --scope sessions/| --session s1",
        "h2ams recall q --scope sessions/| --session=s1 --json",
    ],
)
def test_what_the_flags_may_not_see_is_not_offered(line: str, typed: Complete) -> None:
    words = typed(line)
    assert "sessions/s1" in words and "sessions/secret" not in words


def test_what_the_flags_may_not_see_is_not_offered_in_fish(fish: Complete) -> None:
    assert fish("h2ams recall q --session s1 --scope sessions/") == ["sessions/s1"]
    assert fish("h2ams show --session s1 sessions/") == ["sessions/s1#d1"]
    assert fish("h2ams show --session s1 --no-user user") == []


def test_an_id_that_looks_like_a_command_is_never_run(
    typed: Complete, fish: Complete, desk: Path
) -> None:
    assert typed("h2ams show chat/|") == ["show", f"chat/c1#{HOSTILE}"]
    assert fish("h2ams show chat/") == [f"chat/c1#{HOSTILE}"]
    assert not (desk / "hacked").exists()


# -- what the scripts ask --------------------------------------------------------------------------


def values(desk: Path, *words: str, at: int | None = None) -> list[str]:
    place = len(words) - 1 if at is None else at
    done = h2ams("completion", "values", f"--at={place}", "--", *words, cwd=desk)
    assert (done.code, done.err) == (0, ""), done
    return done.out.splitlines()


def test_values_follow_the_whole_line(desk: Path) -> None:
    assert values(desk, "list", "") == ["chat/c1", "sessions/s1", "sessions/secret", "user"]
    assert values(desk, "list", "", "--session", "s1", at=1) == ["sessions/s1", "user"]
    assert values(desk, "--session", "s1", "list", "sessions/se") == []
    assert values(desk, "list", "--no-user", "u") == []
    assert values(desk, "recall", "q", "--related", "s1,se") == ["s1,secret"]
    assert values(desk, "recall", "q", "--chat", "") == ["c1"]
    assert values(desk, "recall", "q", "--vp", "x", "--session", "") == []
    assert values(desk, "edit", '"user#ta') == ["user#tabs"]
    assert values(desk, "list", "user", "x") == []
    assert values(desk, "recall", "q", "--tag", "") == []
    assert values(desk, "recall", "q", "--", "--kind", "") == []
    assert values(desk, "config", "recall_limit") == ["recall_limit_count"]


@pytest.mark.parametrize(
    "words",
    [
        ["recall", "q", "--session", "a/b", "--scope", ""],
        ["nonsense", ""],
        ["recall", "q", "--set", "nothing", "--scope", ""],
        ["--root", "missing", "list", ""],
    ],
)
def test_a_line_that_is_wrong_offers_nothing(desk: Path, words: list[str]) -> None:
    place = f"--at={len(words) - 1}"
    done = h2ams("completion", "values", place, "--", *words, cwd=desk)
    assert done.out == "" and "Traceback" not in done.err


def test_completion_makes_nothing_and_reads_no_file(tmp_path: Path) -> None:
    root = tmp_path / "scopes"
    write(root, "user/memory.md", segment_text("a", "One."))
    assert values(tmp_path, "list", "") == []  # no index yet, and none is made
    assert sorted(each.name for each in root.iterdir()) == ["user"]
    assert h2ams("sync", cwd=tmp_path).code == 0
    write(root, "global/memory.md", segment_text("b", "Two."))
    assert values(tmp_path, "list", "") == ["user"]  # as the index has it
    assert h2ams("list", cwd=tmp_path).code == 0
    assert values(tmp_path, "list", "") == ["global", "user"]


def test_values_import_no_more_than_a_recall_does(desk: Path) -> None:
    code = (
        "import sys; from h2ams.surfaces.cli import main; main(sys.argv[1:]);"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )

    def modules(*words: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=desk,
            env=environment(desk),
            capture_output=True,
            encoding="utf-8",
            timeout=DEADLINE_S,
            check=True,
        )
        return set(done.stderr.splitlines()[-1].split())

    more = modules("completion", "values", "--at=1", "--", "show", "user") - modules("recall", "x")
    assert {each for each in more if each.partition(".")[0] != "shlex"} == {
        "h2ams.surfaces.cli_completion"
    }


# -- the scripts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_every_option_is_in_the_script(shell: str, desk: Path) -> None:
    script = h2ams("completion", shell, cwd=desk).out
    assert script == SCRIPTS[shell](program())
    everywhere = CommandParser("h2ams")
    add_global_options(everywhere)
    parsers = {"": everywhere}
    for name in COMMANDS:
        parsers[name] = CommandParser("h2ams")
        describe_command(parsers[name], name, load_command(name))
    for name, parser in parsers.items():
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", script), name
        part = script if name == "" else section(shell, script, name)
        for action in parser.options:
            for option in action.option_strings:
                assert shown(shell, option, part), (name, option)


def section(shell: str, script: str, name: str) -> str:
    """The part of a script that is about one command."""
    if shell == "fish":
        lines = [line for line in script.splitlines() if f"__h2ams_is {name}'" in line]
        return "\n".join(lines)
    begin, end = {"bash": (f" {name}) options", ";;"), "zsh": (f"({name}) offered", ") ;;")}[shell]
    return script.partition(begin)[2].partition(end)[0]


def shown(shell: str, option: str, part: str) -> bool:
    if shell == "fish":
        letter = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        return re.search(rf" {re.escape(letter)} ", part) is not None
    return re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", part) is not None


def test_access_flags_of_the_call_itself_are_refused_rather_than_ignored(desk: Path) -> None:
    done = h2ams("completion", "values", "--at=1", "--session", "s1", "list", "", cwd=desk)
    assert (done.code, done.out) == (2, "") and "belong to the line" in done.err
    away = h2ams("completion", "values", "--at=1", "list", "", "--root", "scopes", cwd=desk)
    assert away.out == h2ams("completion", "values", "--at=1", "--", "list", "", cwd=desk).out


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "x"], ["bash", "--at", "1"], ["values"]])
def test_a_wrong_call_is_a_usage_error(words: list[str], desk: Path) -> None:
    assert h2ams("completion", *words, cwd=desk).code == 2
