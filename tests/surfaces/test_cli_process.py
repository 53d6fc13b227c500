"""The command line as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
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


modes_count = pytest.mark.skipif(
    os.name == "nt" or (os.geteuid() == 0 and sys.platform != "linux"),
    reason="needs a process for which the modes of files count",
)


@modes_count
def test_K139_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert h2ams("remember", "user", "Prefers tabs.", "--root", "m", cwd=tmp_path).code == 0
    root = tmp_path / "m"
    root.chmod(0)
    try:
        for command in ("recall tabs", "status", "sync", "list", "context tabs", "show user#a"):
            words = [*command.split(), "--root", "m"]
            done = h2ams(*words, cwd=tmp_path, unprivileged=True)
            assert done.code != 0 and done.out == "", done
            assert str(root) in done.err and "permission denied" in done.err.lower()
            document = one_document(h2ams(*words, "--json", cwd=tmp_path, unprivileged=True))
            assert "permission denied" in document["error"]["message"].lower()
    finally:
        root.chmod(0o755)
    assert h2ams("recall", "tabs", "--root", "m", cwd=tmp_path).out != ""


@modes_count
def test_K20_what_cannot_be_read_is_listed_and_the_code_says_partial(tmp_path: Path) -> None:
    folder = tmp_path / "m" / "sessions"
    for number in range(10):
        (folder / f"s{number}").mkdir(parents=True)
        (folder / f"s{number}" / "memory.md").write_text(f"Number {number}.\n", encoding="utf-8")
    assert h2ams("sync", "--root", "m", cwd=tmp_path).code == 0
    for number in range(10):
        (folder / f"s{number}" / "memory.md").write_text(f"Now {number}.\n", encoding="utf-8")
    file, directory = folder / "s3" / "memory.md", folder / "s7"
    file.chmod(0)
    directory.chmod(0)
    try:
        done = h2ams("sync", "--root", "m", "--json", cwd=tmp_path, unprivileged=True)
        report = one_document(done)
        assert done.code == 1
        failed = {each["path"]: each["message"].lower() for each in report["errors"]}
        assert set(failed) >= {"sessions/s3/memory.md", "sessions/s7"}
        assert all(path.startswith(("sessions/s3/", "sessions/s7")) for path in failed)
        assert all("permission denied" in message for message in failed.values())
        listed = h2ams("list", "--root", "m", "--json", cwd=tmp_path, unprivileged=True)
        bodies = {each["body"] for each in one_document(listed)["segments"]}
        assert bodies == {f"Now {n}." for n in range(10) if n not in (3, 7)} | {
            "Number 3.",
            "Number 7.",
        }
        plain = h2ams("sync", "--root", "m", cwd=tmp_path, unprivileged=True)
        assert plain.code == 1 and "permission denied" in plain.err.lower()
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


def test_text_of_any_script_comes_through_in_the_plainest_locale(tmp_path: Path) -> None:
    text = "用户认证 — Übergröße 🎉 עברית"
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = ["remember", "user", "-", "--tag", "标签", "--root", "m"]
    assert h2ams(*words, cwd=tmp_path, stdin=text.encode(), env=env).code == 0
    done = h2ams("recall", "认证", "--tag", "标签", "--root", "m", cwd=tmp_path, env=env)
    assert text in done.out and "[标签]" in done.out, done


def test_help_is_a_command_too(tmp_path: Path) -> None:
    for words, same in ((["help"], ["--help"]), (["help", "recall"], ["recall", "--help"])):
        done = h2ams(*words, cwd=tmp_path)
        assert done.code == 0 and done.err == ""
        assert done.out == h2ams(*same, cwd=tmp_path).out
    done = h2ams("help", "recal", cwd=tmp_path)
    assert done.code == 2 and "did you mean h2ams recall?" in done.err


def test_a_path_that_nobody_knows_is_told_by_sync(tmp_path: Path) -> None:
    h2ams("remember", "user", "Prefers tabs.", "--root", "m", cwd=tmp_path)
    done = h2ams("sync", "nope.md", "user", "--root", "m", cwd=tmp_path)
    assert done.code == 1 and done.out.startswith("1 file,")
    assert "nope.md: no-such-path" in done.err and done.err.count("\n") == 1
    done = h2ams("sync", "nope.md", "--json", "--root", "m", cwd=tmp_path)
    assert [each["path"] for each in one_document(done)["errors"]] == ["nope.md"]
    (tmp_path / "m/user/memory.md").unlink()  # it was there: that is news, not a mistake
    done = h2ams("sync", "user/memory.md", "--root", "m", cwd=tmp_path)
    assert done.code == 0 and "1 deleted" in done.out


@pytest.mark.skipif(sys.platform != "linux", reason="only there may a path be any bytes")
def test_a_folder_whose_path_is_not_utf8_is_a_memory_like_any_other(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    assert h2ams("init", str(root), cwd=tmp_path).code == 0
    kept = h2ams("remember", "user", "Prefers tabs.", "--root", str(root), cwd=tmp_path)
    assert kept.code == 0 and kept.out.startswith("user#seg_")
    found = h2ams("recall", "tabs", "--root", str(root), "--json", cwd=tmp_path)
    assert [hit["body"] for hit in one_document(found)["hits"]] == ["Prefers tabs."]
    assert "not UTF-8" in h2ams("status", "--root", str(root), cwd=tmp_path).out
    assert h2ams("verify", "--root", str(root), cwd=tmp_path).code == 0
    threads = h2ams("thread", "list", "--root", str(root), cwd=tmp_path)
    assert threads.code == 1 and "threads.db cannot be opened" in threads.err


def test_a_setting_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    word = os.fsdecode(b"encoding=\xff")
    done = h2ams("status", "--root", str(tmp_path), "--set", word, cwd=tmp_path)
    assert done.code == 2 and "encoding" in done.err and "not UTF-8" in done.err


@posix
def test_from_a_folder_that_is_gone_an_absolute_root_works_and_else_it_is_said(
    tmp_path: Path,
) -> None:
    root = tmp_path / "m"
    h2ams("remember", "user", "Prefers tabs.", "--root", str(root), cwd=tmp_path)
    gone = "import os; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone'); " + PROGRAM

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", gone, *words],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    found = call("recall", "tabs", "--root", str(root))
    assert found.returncode == 0 and "Prefers tabs." in found.stdout, found
    for words in (["recall", "tabs"], ["recall", "tabs", "--root", "m"], ["init"]):
        refused = call(*words)
        assert refused.returncode == 1 and "the current folder cannot be used" in refused.stderr
