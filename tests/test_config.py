"""Where root, state and settings come from: which source wins, and what a folder cannot bring."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from h2ams import Memory
from h2ams.config import clock, resolve_root, resolve_settings, resolve_state
from h2ams.errors import ConfigError, RootError
from h2ams.settings import DEFAULTS, setting_names
from h2ams.surfaces.cli import main

# Whoever adds a setting that is any text has to ask what a folder from elsewhere could do with it.
ANY_TEXT = {"encoding"}


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_hint_for_a_missing_folder_is_what_init_would_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("H2AMS_ROOT", raising=False)
    for name in ("HOME", "XDG_DATA_HOME", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    with pytest.raises(RootError) as nowhere:
        Memory.open()
    hint = nowhere.value.hint or ""
    assert "h2ams init makes one in this folder" in hint and "--root" in hint
    with pytest.raises(RootError) as named:
        Memory.open("elsewhere")
    assert named.value.hint == "h2ams init makes it"
    assert list(tmp_path.iterdir()) == []
    assert main(["init"]) == 0
    assert os.path.realpath(resolve_root(None)) == os.path.realpath(tmp_path)


def test_a_flag_wins_over_the_environment_the_folder_the_user_and_the_default(
    tmp_path: Path,
) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    root, name = tmp_path / "root", "recall_limit_count"
    variable = {f"H2AMS_{name.upper()}": "3"}
    steps = [
        (lambda: None, {}, {}, DEFAULTS.recall_limit_count, "default"),
        (
            lambda: put(tmp_path / "config/h2ams/config.toml", f"{name} = 5"),
            {},
            {},
            5,
            str(tmp_path / "config/h2ams/config.toml"),
        ),
        (
            lambda: put(root / ".h2ams/config.toml", f"{name} = 4"),
            {},
            {},
            4,
            str(root / ".h2ams/config.toml"),
        ),
        (lambda: None, variable, {}, 3, f"H2AMS_{name.upper()}"),
        (lambda: None, variable, {name: "2"}, 2, "flag"),
    ]
    for prepare, environ, flags, value, source in steps:
        prepare()
        settings, sources = resolve_settings(str(root), flags, environ=home | environ)
        assert (settings.recall_limit_count, sources[name]) == (value, source)


@pytest.mark.parametrize(
    "line",
    [
        'command = "rm -rf ~"',
        'model_url = "https://example.org"',
        'api_key = "x"',
        'editor = "sh -c evil"',
        "[model]\ncommand = 'x'",
        "max_file_bytes = [1]",
        "max_file_bytes = true",
        "max_file_bytes = 1.5",
        "max_file_bytes = -1",
        "share_recent = 0.9",
        "bm25_k1 = nan",
        'encoding = ""',
    ],
)
def test_a_folder_cannot_bring_anything_but_settings(tmp_path: Path, line: str) -> None:
    path = put(tmp_path / ".h2ams/config.toml", line)
    with pytest.raises(ConfigError) as caught:
        resolve_settings(str(tmp_path), environ={"HOME": str(tmp_path / "home")})
    assert str(path) in str(caught.value)
    with pytest.raises(ConfigError):
        Memory.open(tmp_path)


def test_no_setting_names_a_program_an_address_or_a_key(tmp_path: Path) -> None:
    texts = {name for name in setting_names() if isinstance(getattr(DEFAULTS, name), str)}
    for name in texts - ANY_TEXT:  # the others take one of a few words
        put(tmp_path / ".h2ams/config.toml", f'{name} = "https://example.org/x"')
        with pytest.raises(ConfigError, match=name):
            resolve_settings(str(tmp_path), environ={})
    assert texts >= ANY_TEXT


@pytest.mark.parametrize(
    "data", [b"\xff\xfe", b"a = ", b"a" * 100_000, b"x = " + b"9" * 5_000, b"[" * 2_000]
)
def test_a_file_that_is_no_toml_is_one_error_that_names_it(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path / ".h2ams/config.toml", data)
    with pytest.raises(ConfigError) as caught:
        resolve_settings(str(tmp_path), environ={})
    assert str(path) in str(caught.value)


def test_a_folder_in_place_of_the_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / ".h2ams/config.toml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="not a regular file"):
        resolve_settings(str(tmp_path), environ={})


def test_the_root_is_given_or_found_upward_or_beside(tmp_path: Path) -> None:
    inside = tmp_path / "project/deep/er"
    inside.mkdir(parents=True)
    (tmp_path / "project/.h2ams").mkdir()
    (tmp_path / "other/scopes").mkdir(parents=True)
    here = str(inside)
    assert resolve_root("given", environ={}, cwd=here) == str(inside / "given")
    environ = {"H2AMS_ROOT": str(tmp_path / "env")}
    assert resolve_root(None, environ=environ, cwd=here) == str(tmp_path / "env")
    assert resolve_root("", environ={"H2AMS_ROOT": ""}, cwd=here) == str(tmp_path / "project")
    beside = resolve_root(None, environ={}, cwd=str(tmp_path / "other"))
    assert beside == str(tmp_path / "other/scopes")


def test_the_state_is_in_the_root_or_where_it_is_said_to_be(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert resolve_state(root, environ={}) == (str(tmp_path / ".h2ams"), "")
    environ = {"H2AMS_STATE_DIR": str(tmp_path / "state")}
    assert resolve_state(root, environ=environ) == (str(tmp_path / "state"), "")
    given = resolve_state(root, str(tmp_path / "given"), environ=environ)
    assert given == (str(tmp_path / "given"), "")


def test_the_clock_is_the_walls_or_a_fixed_time() -> None:
    assert clock({"H2AMS_NOW": "2026-12-01T13:00:00+01:00"})() == datetime(
        2026, 12, 1, 12, tzinfo=UTC
    )
    assert clock({})().tzinfo is UTC
    for text in ("yesterday", "2026-13-01", "0001-01-01T00:00:00+14:00"):
        with pytest.raises(ConfigError, match="H2AMS_NOW"):
            clock({"H2AMS_NOW": text})
