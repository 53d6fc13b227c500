"""Running ``h2ams`` in this process, with a home and a folder of its own: a tenth of the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from surfaces.command_line import Done, environment

from h2ams.surfaces.cli import main

Run = Callable[..., Done]


def runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """A function from words to how the command ended, with ``tmp_path`` as home and folder."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in ("H2AMS_ROOT", "H2AMS_STATE_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Done:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run
