"""The command line as a real process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from surfaces.command_line import PROGRAM, Done, environment, h2ams

posix = pytest.mark.skipif(os.name == "nt", reason="signals and modes of POSIX")
HEAVY = ("rich", "watchdog", "yaml", "frontmatter", "tiktoken", "filelock", "platformdirs")


def one_document(done: Done) -> Any:
    """The only document on standard output."""
    assert "\x1b" not in done.out + done.err
    return json.loads(done.out)


def test_K60_json_mode_is_one_document_with_a_broken_index_and_a_log(tmp_path: Path) -> None:
    h2ams("remember", "user", "Prefers tabs.", "--root", "m", cwd=tmp_path)
    index = tmp_path / "m" / ".h2ams" / "index.db"
    assert index.exists()
    index.write_bytes(b"this is no database " * 1000)
    done = h2ams("recall", "tabs", "--json", "-v", "--root", "m", cwd=tmp_path)
    document = one_document(done)
    assert done.code == 0
    assert [each["body"] for each in document["hits"]] == ["Prefers tabs."]
    assert document["degraded"], document


def test_K60_first_run_in_json_mode_is_one_document(tmp_path: Path) -> None:
    (tmp_path / "scopes" / "user").mkdir(parents=True)
    (tmp_path / "scopes" / "user" / "memory.md").write_text("Hand-written.\n", encoding="utf-8")
    done = h2ams("recall", "written", "--json", "-vv", cwd=tmp_path)
    assert len(one_document(done)["hits"]) == 1


def test_K31_and_K103_words_of_a_query_are_words(tmp_path: Path) -> None:
    for text in ("Baker's and Miller's Association meets Tuesday", "list of mistakes"):
        h2ams("remember", "user", text, "--root", "m", cwd=tmp_path)
    h2ams("remember", "user", "my wrong-book pages", "--root", "m", cwd=tmp_path)

    def bodies(query: str) -> set[str]:
        done = h2ams("recall", query, "--root", "m", "--json", cwd=tmp_path)
        return {each["body"] for each in json.loads(done.out)["hits"]}

    assert bodies("Baker's and Miller's Association") == {
        "Baker's and Miller's Association meets Tuesday"
    }
    assert bodies("mistakes OR wrong-book") == {"list of mistakes", "my wrong-book pages"}
    assert bodies("x AND (") == set()


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder and the arguments for a process for which modes count (root may read anything)."""
    if os.geteuid() != 0:
        yield tmp_path, {}
        return
    folder = Path(tempfile.mkdtemp(prefix="h2ams-test-"))
    try:
        os.chown(folder, 65534, 65534)
        yield folder, {"user": 65534, "group": 65534, "extra_groups": []}
    finally:
        shutil.rmtree(folder)


def remember(folder: Path, who: dict[str, Any], scope: str, text: str) -> None:
    done = h2ams("remember", scope, text, "--root", "m", cwd=folder, **who)
    assert done.code == 0, done


@posix
def test_K139_a_folder_that_cannot_be_read_is_an_error(
    unprivileged: tuple[Path, dict[str, Any]],
) -> None:
    folder, who = unprivileged
    remember(folder, who, "user", "Prefers tabs.")
    root = folder / "m"
    root.chmod(0)
    try:
        for words in (["recall", "tabs"], ["status"], ["sync"], ["list"]):
            done = h2ams(*words, "--root", "m", cwd=folder, **who)
            assert done.code == 1 and done.out == "", done
            assert str(root) in done.err and "permission denied" in done.err.lower()
            document = one_document(h2ams(*words, "--root", "m", "--json", cwd=folder, **who))
            assert "permission denied" in document["error"]["message"].lower()
    finally:
        root.chmod(0o755)
    assert h2ams("recall", "tabs", "--root", "m", cwd=folder, **who).out != ""


@posix
def test_K20_what_cannot_be_read_is_listed_and_the_code_says_partial(
    unprivileged: tuple[Path, dict[str, Any]],
) -> None:
    folder, who = unprivileged
    for number in range(10):
        remember(folder, who, f"sessions/s{number}", f"Fact number {number} of ten.")
    file = folder / "m" / "sessions" / "s3" / "memory.md"
    directory = folder / "m" / "sessions" / "s7"
    for number in range(10):  # everything else changes, so that the sync has something to do
        path = folder / "m" / "sessions" / f"s{number}" / "memory.md"
        with path.open("a", encoding="utf-8") as stream:
            stream.write("\nAnd another line.\n")
    file.chmod(0)
    directory.chmod(0)
    try:
        done = h2ams("sync", "--root", "m", "--json", cwd=folder, **who)
        report = one_document(done)
        assert done.code == 1
        assert report["changed"] == 8
        failed = {each["path"]: each["message"].lower() for each in report["errors"]}
        assert set(failed) == {"sessions/s3/memory.md", "sessions/s7"}
        assert all("permission denied" in message for message in failed.values())
        listed = h2ams("list", "--root", "m", "--json", cwd=folder, **who)
        segments = one_document(listed)["segments"]
        assert len({each["scope"] for each in segments}) == 10
        plain = h2ams("sync", "--root", "m", cwd=folder, **who)
        assert plain.code == 1 and plain.err.count("ermission denied") == 2
    finally:
        directory.chmod(0o755)
        file.chmod(0o644)


def test_K21_a_missing_root_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    h2ams("remember", "user", "Prefers tabs.", "--root", "m", cwd=tmp_path)
    (tmp_path / "m").rename(tmp_path / "away")
    for command in ("sync", "status", "list", "rebuild", "verify", "doctor"):
        done = h2ams(command, "--root", "m", cwd=tmp_path)
        assert done.code == 1 and str(tmp_path / "m") in done.err, done
    assert not (tmp_path / "m").exists()
    (tmp_path / "away").rename(tmp_path / "m")
    report = json.loads(h2ams("sync", "--root", "m", "--json", cwd=tmp_path).out)
    assert (report["changed"], report["deleted"]) == (0, 0)


@pytest.mark.parametrize(
    ("value", "place"),
    [("rel/dir", "rel/dir"), ("~/m", "m"), ("deep/er/than/that", "deep/er/than/that"), ("", None)],
)
def test_K143_status_prints_the_absolute_root(
    tmp_path: Path, value: str, place: str | None
) -> None:
    env = {"H2AMS_ROOT": value}
    assert h2ams("remember", "user", "Prefers tabs.", cwd=tmp_path, env=env).code == 0
    root = Path(json.loads(h2ams("status", "--json", cwd=tmp_path, env=env).out)["root"])
    assert root.is_absolute() and (root / "user" / "memory.md").is_file()
    if place is not None:
        assert root == (tmp_path / place).resolve()
    else:  # a data folder of the user, never the package
        assert "site-packages" not in root.parts
        assert tmp_path.resolve() in root.parents
    assert str(root) in h2ams("status", cwd=tmp_path, env=env).out


def test_init_on_an_existing_folder_changes_no_file(tmp_path: Path) -> None:
    (tmp_path / "vault" / "user").mkdir(parents=True)
    note = tmp_path / "vault" / "user" / "memory.md"
    note.write_bytes(b"\xef\xbb\xbfmine\r\n")
    before = note.stat()
    done = h2ams("init", "vault", "--json", cwd=tmp_path)
    assert json.loads(done.out)["created"] is False
    assert note.read_bytes() == b"\xef\xbb\xbfmine\r\n"
    assert note.stat().st_mtime_ns == before.st_mtime_ns
    assert {each.name for each in (tmp_path / "vault").iterdir()} <= {"user", ".h2ams"}
    inside = h2ams("status", "--json", cwd=tmp_path / "vault" / "user")
    assert json.loads(inside.out)["root"] == str((tmp_path / "vault").resolve())


def test_recall_on_a_synced_folder_loads_nothing_heavy(tmp_path: Path) -> None:
    h2ams("remember", "user", "Prefers tabs.", "--root", "m", cwd=tmp_path)
    h2ams("recall", "tabs", "--root", "m", cwd=tmp_path)
    code = (
        "import sys; from h2ams.surfaces.cli import main; main(['recall', 'tabs', '--root', 'm'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True
    )
    assert done.stdout.decode().splitlines()[-1] == "[]", done


@posix
def test_watch_sees_an_edit_and_ends_at_once_on_sigterm(tmp_path: Path) -> None:
    h2ams("init", "m", cwd=tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", "--root", "m"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None and process.stdout is not None
    try:
        assert "watching" in process.stderr.readline()
        (tmp_path / "m" / "user").mkdir()
        (tmp_path / "m" / "user" / "memory.md").write_text("Seen.\n", encoding="utf-8")
        assert "1 added" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


@posix
def test_watch_in_json_mode_ends_with_one_document(tmp_path: Path) -> None:
    h2ams("init", "m", cwd=tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", "--root", "m", "--json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert "watching" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=10)
        assert process.returncode == 0
        assert json.loads(out).keys() == {
            "syncs", "changed", "added", "updated", "deleted", "failed"
        }  # fmt: skip
    finally:
        process.kill()
        process.communicate()


@posix
def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    body = "word " * 20_000  # more than a pipe holds
    h2ams("remember", "user", "-", "--root", "m", cwd=tmp_path, stdin=body[:60_000].encode())
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "list", "--json", "--root", "m"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@posix
def test_a_full_disk_behind_standard_output_is_told(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "--help"],
            cwd=tmp_path,
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1 and b"standard output" in done.stderr


def test_text_of_any_script_comes_through_with_any_locale(tmp_path: Path) -> None:
    text = "用户认证 — Übergröße 🎉 עברית"
    for locale in ("C", "en_US.ISO-8859-1"):
        env = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
        done = h2ams(
            "remember", "user", "-", "--root", "m", cwd=tmp_path, stdin=text.encode(), env=env
        )
        assert done.code == 0, done
        assert text in h2ams("recall", "认证", "--root", "m", cwd=tmp_path, env=env).out
