"""Where the root, the state and the settings come from: the only reader of environment and files.

Root: flag, ``H2AMS_ROOT``, the nearest folder upward with ``.h2ams/``, ``scopes/`` here, the
platform's data folder. Settings: flag, ``H2AMS_<NAME>``, ``<root>/.h2ams/config.toml``, the user's
``config.toml``, default. A configuration file holds settings (numbers and names) only: a folder
that came from elsewhere cannot bring commands, keys or addresses with it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from h2ams.errors import ConfigError, RootError
from h2ams.settings import DEFAULTS, Settings, parse_setting, setting_names

if TYPE_CHECKING:
    from h2ams.models.request import Model

APP = "h2ams"
STATE_FOLDER = ".h2ams"
CONFIG_FILE = "config.toml"
LOCAL_MODEL_URL = "http://127.0.0.1:8080/v1"  # where llama.cpp's server listens by default
BESIDE_MARK = "root"  # in a state folder beside: the root that it belongs to


def resolve_root(
    given: str | None, *, environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> str:
    """The absolute path of the memory folder; it need not exist. An empty value counts as none."""
    found = _found_root(given, environ, cwd)
    if found is not None:
        return found
    import platformdirs  # needed in this case alone

    return os.path.join(platformdirs.user_data_dir(APP, appauthor=False), "scopes")


def resolve_new_root(
    given: str | None, *, environ: Mapping[str, str] | None = None, cwd: str | None = None
) -> str:
    """The folder that ``init`` makes or describes: like ``resolve_root``, but at last this one."""
    return _found_root(given, environ, cwd) or cwd or _current_folder()


def is_last_resort(given: str | None) -> bool:
    """Whether no folder is named or found from here, so that ``resolve_root`` gives the user's."""
    return _found_root(given, None, None) is None


def _found_root(
    given: str | None, environ: Mapping[str, str] | None, cwd: str | None
) -> str | None:
    environ = os.environ if environ is None else environ
    for value in (given, environ.get("H2AMS_ROOT")):
        if value:
            path = os.path.expanduser(value)
            here = "" if os.path.isabs(path) else cwd or _current_folder()
            return os.path.normpath(os.path.join(here, path))
    folder = here = cwd or _current_folder()
    while True:
        if os.path.isdir(os.path.join(folder, STATE_FOLDER)):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    inside = os.path.join(here, "scopes")
    return inside if os.path.isdir(inside) else None


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:  # it was removed after the shell went there
        raise RootError(
            f"the current folder cannot be used: {error.strerror}",
            hint="go to another one, or give --root as an absolute path",
        ) from error


def resolve_state(
    root: str, given: str | None = None, *, environ: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """(absolute state folder, why it is there or ``""``). The default is ``<root>/.h2ams``.

    Where that cannot be written it is a folder of this root's own in the platform's state folder.
    """
    environ = os.environ if environ is None else environ
    for value in (given, environ.get("H2AMS_STATE_DIR")):
        if value:
            return os.path.abspath(os.path.expanduser(value)), ""
    inside = os.path.join(root, STATE_FOLDER)
    if not os.path.exists(os.path.join(inside, "index.db")):
        beside = state_beside(root)
        if os.path.exists(os.path.join(beside, BESIDE_MARK)):
            return beside, ""
    existing = inside
    while not os.path.isdir(existing) and os.path.dirname(existing) != existing:
        existing = os.path.dirname(existing)  # a root that will be made: ask its parent
    if os.access(existing, os.W_OK | os.X_OK):
        return inside, ""
    outside = state_beside(root)
    return outside, f"{inside} cannot be written: the index is kept in {outside}"


def state_beside(root: str) -> str:
    """The folder in the platform's state folder that belongs to ``root`` alone."""
    import hashlib

    import platformdirs

    name = hashlib.sha256(os.path.realpath(root).encode("utf-8", "surrogateescape")).hexdigest()
    return os.path.join(platformdirs.user_state_dir(APP, appauthor=False), name[:16])


def keep_state_beside(root: str) -> str:
    """From now on the state of ``root`` is kept beside it, so that nothing is written into it.

    The state folder; it is found again by its mark, without any flag or variable.
    """
    from h2ams.files import Root

    beside = state_beside(root)
    Root(root, state=beside).write_state(BESIDE_MARK, os.fsencode(os.path.realpath(root)) + b"\n")
    return beside


def resolve_settings(
    root: str,
    flags: Mapping[str, str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """The settings, and for each name where its value came from (``default``, a file, …)."""
    environ = os.environ if environ is None else environ
    values: dict[str, int | float | str] = {}
    sources = dict.fromkeys(setting_names(), "default")
    for path in (_user_config(environ), os.path.join(root, STATE_FOLDER, CONFIG_FILE)):
        for name, value in _read_config(path).items():
            values[name] = value
            sources[name] = path
    for name in setting_names():
        variable = f"H2AMS_{name.upper()}"
        if environ.get(variable):
            values[name] = parse_setting(name, environ[variable])
            sources[name] = variable
    for name, text in (flags or {}).items():
        values[name] = parse_setting(name, text)
        sources[name] = "flag"
    try:
        return _replaced(values), sources
    except ConfigError as error:
        given = (name for name, source in sources.items() if source != "default")
        named = next((name for name in given if _is_meant(name, error.message)), "")
        raise ConfigError(f"{error.message} (from {sources.get(named, 'settings')})") from None


def _is_meant(name: str, message: str) -> bool:
    """Whether the message is about this setting; ``share_*`` stands for all of that name."""
    return name in message or (name.startswith("share_") and "share_*" in message)


def _replaced(values: Mapping[str, int | float | str]) -> Settings:
    changes: dict[str, Any] = dict(values)  # parse_setting gave each the type of its field
    return replace(DEFAULTS, **changes)


def _user_config(environ: Mapping[str, str]) -> str:
    if environ.get("XDG_CONFIG_HOME"):
        return os.path.join(environ["XDG_CONFIG_HOME"], APP, CONFIG_FILE)
    if os.name == "posix" and environ.get("HOME"):
        return os.path.join(environ["HOME"], ".config", APP, CONFIG_FILE)
    import platformdirs

    return os.path.join(platformdirs.user_config_dir(APP, appauthor=False), CONFIG_FILE)


def _read_config(path: str) -> dict[str, int | float | str]:
    if os.path.lexists(path) and not os.path.isfile(path):
        raise ConfigError(f"{path} is not a regular file", path=path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8: {error}", path=path) from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", path=path) from error
    import tomllib  # late: most folders have no configuration file

    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise ConfigError(f"{path}: {error}", path=path, hint="see docs/settings.md") from error
    found: dict[str, int | float | str] = {}
    for name, value in values.items():
        switch = isinstance(getattr(DEFAULTS, name, None), bool)
        if not isinstance(value, int | float | str) or (isinstance(value, bool) and not switch):
            must = "true or false" if switch else "a number or text"
            raise ConfigError(f"{path}: {name} must be {must}", path=path)
        try:
            found[name] = parse_setting(name, str(value))
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", path=path, hint=error.hint) from error
    return found


def clock(environ: Mapping[str, str] | None = None) -> Callable[[], datetime]:
    """The wall clock in UTC, or the fixed time that ``H2AMS_NOW`` (ISO 8601) says."""
    environ = os.environ if environ is None else environ
    text = environ.get("H2AMS_NOW")
    if not text:
        return lambda: datetime.now(UTC)
    try:
        fixed = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"H2AMS_NOW: {text!r} is not an ISO 8601 time") from None
    try:
        fixed = fixed.replace(tzinfo=UTC) if fixed.tzinfo is None else fixed.astimezone(UTC)
    except OverflowError:
        raise ConfigError(f"H2AMS_NOW: {text!r} is outside of the years 1 to 9999") from None
    return lambda: fixed


_MODEL_FORMS = "rules, openai:MODEL, anthropic:MODEL or command:PROGRAM ARGUMENTS"


def open_model(settings: Settings, *, environ: Mapping[str, str] | None = None) -> Model | None:
    """The model that ``H2AMS_MODEL`` names; None for ``rules`` or nothing: the built-in ways.

    Address (``H2AMS_MODEL_URL``), key (``H2AMS_MODEL_KEY``) and command come from the environment
    alone: a folder cannot bring them along. ``ConfigError`` never shows the key.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("H2AMS_MODEL", "").strip()
    kind, _, name = named.partition(":")
    if named in ("", "rules"):
        return None
    if not name.strip():
        raise ConfigError(f"H2AMS_MODEL: {named!r} names no model", hint=f"use {_MODEL_FORMS}")
    key, url = environ.get("H2AMS_MODEL_KEY"), environ.get("H2AMS_MODEL_URL")
    from h2ams.models.http_json import Patience

    seconds = settings.model_timeout_ms / 1_000
    patience = Patience(total_s=seconds, attempts_count=settings.model_attempts_count)
    if kind == "openai":
        from h2ams.models.openai_compatible import OpenAiCompatible

        return OpenAiCompatible(url or LOCAL_MODEL_URL, name, key=key, patience=patience)
    if kind == "anthropic":
        from h2ams.models.anthropic import BASE_URL, Anthropic

        return Anthropic(name, key=key, base_url=url or BASE_URL, patience=patience)
    if kind == "command":
        import shlex

        from h2ams.models.command import CommandModel

        try:
            words = shlex.split(name)
        except ValueError as error:
            raise ConfigError(f"H2AMS_MODEL: {error}", hint=f"use {_MODEL_FORMS}") from None
        return CommandModel(words, timeout_s=seconds)
    raise ConfigError(f"H2AMS_MODEL: unknown kind {kind!r}", hint=f"use {_MODEL_FORMS}")


def host_file(
    host: str, *, environ: Mapping[str, str] | None = None, platform: str | None = None
) -> str:
    """The file in which a host program keeps its MCP servers; it need not exist."""
    environ = os.environ if environ is None else environ
    platform = sys.platform if platform is None else platform
    home = os.path.expanduser("~")
    desktop = {
        "darwin": os.path.join(home, "Library", "Application Support"),
        "win32": environ.get("APPDATA") or os.path.join(home, "AppData", "Roaming"),
    }.get(platform, environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"))
    codex = environ.get("CODEX_HOME") or os.path.join(home, ".codex")
    return {
        "claude-code": os.path.join(os.getcwd(), ".mcp.json"),
        "claude-desktop": os.path.join(desktop, "Claude", "claude_desktop_config.json"),
        "codex": os.path.join(codex, "config.toml"),
        "cursor": os.path.join(home, ".cursor", "mcp.json"),
        "openclaw": os.path.join(home, ".openclaw", "openclaw.json"),
    }[host]
