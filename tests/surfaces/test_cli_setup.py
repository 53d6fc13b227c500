"""``setup``: a host's file gets one entry, keeps every other byte, and gets its old bytes back."""

from __future__ import annotations

import json
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from surfaces.in_process import Run, runner
from surfaces.mcp_kit import DEADLINE_S, run

from h2ams.config import host_file
from h2ams.errors import UsageError
from h2ams.surfaces.cli_setup import KEYS
from h2ams.upkeep.host_config import Entry, Form

FILES = {
    "claude-code": ".mcp.json",
    "claude-desktop": "config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "openclaw": ".openclaw/openclaw.json",
}
# What people have in such files: comments, orders, styles, other servers.
BEFORE = {
    "claude-code": '{\n    "mcpServers": {\n        "db": {"command": "d", "args": []}\n    }\n}\n',
    "claude-desktop": '{"globalShortcut": "Ctrl+Space", "mcpServers": {"x": {"command": "x"}}}',
    "codex": (
        '# my settings\nmodel = "o9"\n\n[mcp_servers.docs]  # keep\ncommand = "docs"\n'
        'args = [\n  "a",\n]\n\n[profiles.fast]\nmodel = "mini"\n'
    ),
    "cursor": '{\r\n\t"mcpServers": {}\r\n}\r\n',
    "openclaw": (
        "{\n  // the agent\n  agents: { defaults: { workspace: '~/.openclaw/workspace' } },\n"
        "  mcp: {\n    servers: {\n      files: { command: 'npx', args: ['-y', 'x'] }, // files\n"
        "    },\n  },\n}\n"
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory"


@pytest.fixture
def setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    run = runner(tmp_path, monkeypatch, capsys)
    return lambda *words: run("setup", *words, "--root", "memory")


def servers(host: str, text: str) -> Any:
    """The servers of a host's file that is plain JSON or TOML."""
    data: Any = tomllib.loads(text) if host == "codex" else json.loads(text)
    for key in KEYS[host] or ("mcp_servers",):
        data = data[key]
    return data


def test_every_host_has_a_file() -> None:
    assert set(FILES) == set(KEYS)


@pytest.mark.parametrize("host", KEYS)
def test_the_entry_is_printed_and_nothing_is_written(
    tmp_path: Path, root: Path, setup: Run, host: str
) -> None:
    done = setup(host)
    assert done.code == 0
    entry = servers(host, done.out)["h2ams"]
    assert entry["args"][-4:] == ["mcp", "--root", str(root), "--owner"]
    assert Path(entry["command"]).is_absolute()
    assert f"this goes into {tmp_path / FILES[host]}" in done.err
    assert not (tmp_path / FILES[host]).exists()


@pytest.mark.parametrize("words", [[], ["--write"], ["--write", "--dry-run"]])
def test_an_entry_that_cannot_start_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, setup: Run, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)  # as where the extra is not installed
    done = setup("cursor", "--owner", *words)
    assert done.code == 0
    packages, folder = [line for line in done.err.splitlines() if "cannot start" in line]
    assert "pip install 'h2ams[mcp]'" in packages
    assert f"h2ams --root {tmp_path / 'memory'} init" in folder
    assert (tmp_path / FILES["cursor"]).exists() == (words == ["--write"])
    told = json.loads(setup("cursor", "--owner", *words, "--json").out)["degraded"]
    assert [each["code"] for each in told] == ["mcp-missing", "root-missing"]
    assert setup("cursor", "--undo").err.count("cannot start") == 0


def test_an_entry_that_can_start_lacks_nothing(root: Path, setup: Run) -> None:
    done = setup("cursor", "--owner", "--json")
    assert json.loads(done.out)["degraded"] == [] and done.err.count("cannot") == 0


@pytest.mark.parametrize("host", KEYS)
def test_a_missing_file_is_made_and_undo_removes_it(
    tmp_path: Path, root: Path, setup: Run, host: str
) -> None:
    file = tmp_path / FILES[host]
    assert setup(host, "--write").code == 0
    assert "h2ams" in servers(host, file.read_text("utf-8"))
    again = setup(host, "--write")
    assert again.code == 0 and "nothing to do" in again.out
    done = setup(host, "--undo")
    assert done.code == 0 and not file.exists()
    assert setup(host, "--undo").code == 1


@pytest.mark.parametrize("host", KEYS)
def test_k147_all_else_in_the_file_stays_and_undo_gives_the_old_bytes_back(
    tmp_path: Path, root: Path, setup: Run, host: str
) -> None:
    file = tmp_path / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(BEFORE[host].encode())
    file.chmod(0o640)
    told = setup(host, "--write", "--dry-run")
    assert told.code == 0 and "+" in told.out and file.read_bytes() == BEFORE[host].encode()
    done = setup(host, "--write", "--session", "s1")
    assert done.code == 0, done
    after = file.read_bytes().decode()
    for line in BEFORE[host].splitlines():
        assert line.strip(" \t\r{},") in after
    assert (
        '"--session", "s1"' in after.replace("\r\n", "\n").replace("\n", " ").replace("  ", "")
        or '"s1"' in after
    )
    backup = Path(f"{file}.h2ams-backup")
    assert backup.read_bytes() == BEFORE[host].encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert setup(host, "--write", "--session", "s2").code == 0
    assert backup.read_bytes() == BEFORE[host].encode()
    gone = setup(host, "--undo")
    assert gone.code == 0 and f"memory stays in {root}" in gone.out
    assert file.read_bytes() == BEFORE[host].encode()
    assert not backup.exists() and root.is_dir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("host", ["cursor", "codex"])
def test_what_the_user_changed_since_stays_when_the_entry_goes(
    tmp_path: Path, root: Path, setup: Run, host: str
) -> None:
    file = tmp_path / FILES[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(BEFORE[host].encode())
    assert setup(host, "--write").code == 0
    other = Form(KEYS[host]).put(file.read_bytes().decode(), Entry("other", "o", ("1",)))
    file.write_bytes(other.encode())
    assert setup(host, "--undo").code == 0
    left = servers(host, file.read_bytes().decode())
    assert "h2ams" not in left and left["other"] == {"command": "o", "args": ["1"]}
    assert not Path(f"{file}.h2ams-backup").exists()


def test_further_keys_of_the_entry_stay(tmp_path: Path, root: Path, setup: Run) -> None:
    file = tmp_path / "mcp.json"
    mine = {"command": "old", "env": {"A": "1"}, "disabled": False}
    file.write_text(json.dumps({"mcpServers": {"h2ams": mine}}), encoding="utf-8")
    assert setup("cursor", "--write", "--file", "mcp.json").code == 0
    entry = json.loads(file.read_text("utf-8"))["mcpServers"]["h2ams"]
    assert entry["env"] == {"A": "1"} and entry["command"] != "old"
    toml = tmp_path / "config.toml"
    toml.write_text(
        '[mcp_servers.h2ams]\ncommand = "old"\nargs = []\nstartup_timeout_sec = 20\n'
        '[mcp_servers.h2ams.env]\nA = "1"\n',
        encoding="utf-8",
    )
    assert setup("codex", "--write", "--file", "config.toml").code == 0
    entry = tomllib.loads(toml.read_text("utf-8"))["mcp_servers"]["h2ams"]
    assert entry["startup_timeout_sec"] == 20 and entry["env"] == {"A": "1"}
    assert entry["args"][-1] == "--owner"


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("cursor", "{ broken"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", "[]"),
        ("openclaw", '{"mcp": {"servers": {"h2ams": {"command": "x" /* c */}}}}'),
        ("codex", "broken = = 1"),
        ("codex", 'mcp_servers = { x = { command = "y" } }'),
        ("codex", '[mcp_servers.h2ams]\ncommand = "x"\nargs = [\n  "a",\n]\n'),
        ("codex", 'mcp_servers.h2ams.command = "x"\n'),
        ("codex", "[[mcp_servers]]\nx = 1\n"),
        ("codex", 'mcp_servers = "x"\n'),
        ("codex", '[mcp_servers]\nh2ams = "x"\n'),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_alone(
    tmp_path: Path, root: Path, setup: Run, host: str, text: str
) -> None:
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8")
    done = setup(host, "--write", "--file", "config")
    assert done.code == 2 and "put the entry in by hand" in done.err, done
    assert file.read_text("utf-8") == text
    assert not (tmp_path / "config.h2ams-backup").exists()


def test_of_a_repeated_key_the_one_that_counts_gets_the_entry(
    tmp_path: Path, root: Path, setup: Run
) -> None:
    file = tmp_path / "config"
    before = '{"mcpServers": {"a": {}}, "mcpServers": {"b": {}}, "mcpServers": {"c": {}}}'
    file.write_text(before, encoding="utf-8")
    assert setup("cursor", "--write", "--owner", "--file", "config").code == 0
    assert json.loads(file.read_text("utf-8"))["mcpServers"].keys() == {"c", "h2ams"}
    assert setup("cursor", "--undo", "--file", "config").code == 0
    assert file.read_text("utf-8") == before


def test_a_file_that_is_not_utf8_is_left_alone(tmp_path: Path, root: Path, setup: Run) -> None:
    (tmp_path / "config").write_bytes(b'{"a": "caf\xe9"}')
    done = setup("cursor", "--write", "--file", "config")
    assert done.code == 2 and "not UTF-8 at byte 10" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["cursor", "--write", "--undo"],
        ["cursor", "--owner", "--session", "s"],
        ["cursor", "--name", ""],
    ],
)
def test_wrong_calls_are_usage_errors(
    tmp_path: Path, root: Path, setup: Run, words: list[str]
) -> None:
    assert setup(*words).code == 2


def test_the_written_entry_starts_a_server_that_answers(
    tmp_path: Path, root: Path, setup: Run
) -> None:
    from mcp import Client, StdioServerParameters
    from surfaces.command_line import environment

    assert setup("claude-code", "--write").code == 0
    entry = json.loads((tmp_path / ".mcp.json").read_text("utf-8"))["mcpServers"]["h2ams"]

    async def test() -> None:
        server = StdioServerParameters(**entry, env=environment(tmp_path), cwd=tmp_path)
        async with Client(server, read_timeout_seconds=DEADLINE_S) as host:
            status = await host.call_tool("memory_status", {})
            assert (status.structured_content or {})["root"] == str(root)

    run(test)


def test_the_files_of_hosts_are_where_their_platform_has_them(tmp_path: Path) -> None:
    home = Path.home()
    desktop = host_file("claude-desktop", environ={}, platform="darwin")
    assert desktop == str(home / "Library/Application Support/Claude/claude_desktop_config.json")
    roaming = host_file("claude-desktop", environ={"APPDATA": "R"}, platform="win32")
    assert Path(roaming).parts[:2] == ("R", "Claude")
    linux = host_file("claude-desktop", environ={}, platform="linux")
    assert linux == str(home / ".config/Claude/claude_desktop_config.json")
    assert host_file("codex", environ={"CODEX_HOME": "/c"}) == str(Path("/c/config.toml"))


def test_toml_of_any_shape_keeps_all_else() -> None:
    form, entry = Form(()), Entry("h2ams", "C:\\Program Files\\h2ams.exe", ('a "b"', "ü\x7f", "\\"))
    for text in (
        "",
        "a = 1",
        "a = 1\n",
        "a = 1\n\n[b]\nc = '''\n[mcp_servers.h2ams]\n'''\n",
        "[mcp_servers]\n",
        '[mcp_servers.x]\r\ncommand = "y"\r\n',
    ):
        made = form.put(text, entry)
        expected = tomllib.loads(text)
        found = tomllib.loads(made)
        assert found.pop("mcp_servers")["h2ams"] == entry.value()
        expected.pop("mcp_servers", None)
        assert found == expected and made.startswith(text.rstrip("\n"))
        gone = form.take(made, "h2ams")
        assert gone is not None and form.others(gone, "h2ams") == form.others(text, "h2ams")
        assert form.put(made, entry) == made
    with pytest.raises(UsageError):
        form.take('mcp_servers.h2ams.command = "x"', "h2ams")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
def test_a_link_to_the_file_stays_a_link(tmp_path: Path, root: Path, setup: Run) -> None:
    real = tmp_path / "dotfiles"
    real.mkdir()
    (real / "mcp.json").write_text("{}", encoding="utf-8")
    (tmp_path / "mcp.json").symlink_to(real / "mcp.json")
    assert setup("cursor", "--write", "--file", "mcp.json").code == 0
    assert (tmp_path / "mcp.json").is_symlink()
    assert "h2ams" in (real / "mcp.json").read_text("utf-8")
