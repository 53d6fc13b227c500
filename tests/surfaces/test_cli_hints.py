"""Hints of wrong command lines: what was probably meant, and nothing where that is not clear."""

from __future__ import annotations

from pathlib import Path

import pytest
from surfaces.in_process import Run, runner


@pytest.fixture
def h2ams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    (tmp_path / "m").mkdir()
    monkeypatch.setenv("H2AMS_ROOT", str(tmp_path / "m"))
    return runner(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["remember", "s1", "A text."], "did you mean sessions/s1?"),
        (["remember", "usr", "A text."], "did you mean user?"),
        (["list", "s1"], "did you mean sessions/s1?"),
        (["recall", "x", "--session", "sessions/s1"], "did you mean --session s1?"),
        (["recall", "x", "--session", "session/s1"], "did you mean --session s1?"),
        (["recall", "x", "--vp", "vp/alice"], "did you mean --vp alice?"),
        (["recall", "x", "--chat=chat/c"], "did you mean --chat c?"),
        (["remember", "user", "hi", "there"], "quote the text"),
        (["remember", "user", "--kind", "fact", "hi", "there"], "quote the text"),
        (["-root", "m", "list"], "did you mean --root?"),
        (["list", "-root", "m"], "did you mean --root?"),
        (["recall", "x", "--limt", "3"], "did you mean --limit?"),
        (["recall", "x", "--limt=3"], "did you mean --limit?"),
    ],
)
def test_what_was_probably_meant_is_named(h2ams: Run, words: list[str], hint: str) -> None:
    done = h2ams("--root", "m", *words) if "-root" not in words else h2ams(*words)
    assert done.code == 2 and hint in done.err, done.err


@pytest.mark.parametrize(
    "words",
    [
        ["recall", "x", "--nonsense"],
        ["recall", "x", "--session", "../s1"],
        ["remember", "s1/../x", "A text."],
        ["remember", "user", "A text.", "--kind", "nonsense"],
        ["remember", "user"],
    ],
)
def test_nothing_is_guessed_where_it_is_not_clear(h2ams: Run, words: list[str]) -> None:
    done = h2ams("--root", "m", *words)
    assert done.code == 2
    assert "did you mean" not in done.err and "quote" not in done.err, done.err
