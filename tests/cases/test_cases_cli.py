"""Reported cases of the layer *cli*: one document on standard output, no fault told as "empty"."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases.kit import cli, document, mode, segment_text, write

modes = pytest.mark.skipif(
    os.name == "nt" or (os.geteuid() == 0 and sys.platform != "linux"),
    reason="modes that hold for the user who runs the tests",
)
COMMANDS = [
    "recall x", "context x", "list", "status", "sync", "verify", "doctor", "rebuild",
    "sources m", "show user#a", "show user#none", "remember user -",
]  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def corrupt(root: Path) -> None:
    index = root / ".h2ams/index.db"
    index.parent.mkdir(exist_ok=True)
    index.write_bytes(b"this is no database " * 1000)
    for name in ("index.db-wal", "index.db-shm"):
        (root / ".h2ams" / name).unlink(missing_ok=True)


# -- K60 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["first run", "corrupt"])
@pytest.mark.parametrize("verbose", ["-v", "-vv"])
def test_k60_standard_output_is_one_json_document(root: Path, state: str, verbose: str) -> None:
    write(root, "user/memory.md", segment_text("a", "x marks the spot"))
    if state == "corrupt":
        corrupt(root)
    done = cli(root, "recall", "x", "--json", verbose)
    assert done.code == 0
    assert [hit["id"] for hit in document(done)["hits"]] == ["a"]
    assert bool(document(done)["degraded"]) == (state == "corrupt")
    assert "\x1b" not in done.out + done.err
    piped = subprocess.run(
        [sys.executable, "-m", "json.tool"],
        input=done.out.encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(piped.stdout) == document(done)


@pytest.mark.parametrize("command", COMMANDS)
def test_k60_every_command_keeps_logs_off_standard_output(root: Path, command: str) -> None:
    write(root, "user/memory.md", segment_text("a", "x marks the spot"), "---\nid: b\nkind: [\n")
    corrupt(root)
    done = cli(root, *command.split(), "--json", "-vv", "--debug", stdin=b"new text")
    document(done)
    assert done.out.count("\n") > 0 and "\x1b" not in done.out + done.err
    plain = cli(root, *command.split(), "-vv", stdin=b"new text")
    assert "\x1b" not in plain.out + plain.err
    assert not any(line.startswith(("DEBUG", "INFO", "WARNING")) for line in plain.out.splitlines())


# -- K139 ------------------------------------------------------------------------------------------


@modes
def test_k139_a_folder_that_cannot_be_read_is_never_told_as_empty(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "x marks the spot"))
    assert cli(root, "sync").code == 0
    with mode(root, 0):
        for command in ("recall x", "status", "context x"):
            done = cli(root, *command.split(), unprivileged=True)
            assert done.code != 0, command
            assert str(root) in done.err and "permission denied" in done.err.lower(), command
            assert done.out == "", command
        for command in ("recall x", "list", "sync", "verify"):
            error = document(cli(root, *command.split(), "--json", unprivileged=True))["error"]
            assert "permission denied" in error["message"].lower()
    assert cli(root, "recall", "x", unprivileged=True).out != ""


@modes
@pytest.mark.parametrize("closed", [".h2ams", ".h2ams/index.db", "user", "user/memory.md"])
def test_k139_any_part_that_cannot_be_read_is_told(root: Path, closed: str) -> None:
    write(root, "user/memory.md", segment_text("a", "x marks the spot"))
    write(root, "global/memory.md", segment_text("b", "y marks another"))
    assert cli(root, "sync").code == 0
    with mode(root / closed, 0):
        for command in ("recall x", "status"):
            done = cli(root, *command.split(), "--json", unprivileged=True)
            told = (done.out + done.err).lower()
            assert "permission denied" in told or "cannot be written" in told, (command, done)
            if done.code == 0 and command == "recall x":
                # Answered all the same: from an index elsewhere, or with the rows known before.
                assert [hit["id"] for hit in document(done)["hits"]] == ["a"]
                assert document(done)["degraded"] != []
