"""A scope that another process deletes or renames while a model thinks is not made anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from models.server import Answer, Handler, ModelServer, chat
from surfaces.command_line import h2ams

from h2ams import Memory

MARK = "MODELFACT"
GONE = {
    "deleted": ("scope", "delete", "sessions/s1", "--yes"),
    "renamed": ("scope", "rename", "sessions/s1", "sessions/s7"),
}
TALK = "".join(
    json.dumps({"id": f"m{at}", "role": "user", "content": f"The lamp number {at} is green."})
    + "\n"
    for at in range(3)
)


def answering(meanwhile: Callable[[], object]) -> Answer:
    """One fact for the session and one for the user, after something else has happened."""

    def answer(handler: Handler) -> None:
        cited = re.findall(r'\\"id\\": ?\\"(m[-\w]+)', json.dumps(handler.body))[:1]
        meanwhile()
        operations = [
            {
                "op": "add",
                "scope": scope,
                "kind": "fact",
                "tags": [],
                "body": f"{MARK}: the lamp of {scope} is green.",
                "sourceMessages": cited,
            }
            for scope in ("sessions/s1", "user")
        ]
        handler.send_json(chat(json.dumps({"operations": operations})))

    return answer


def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    with Memory.open(root, create=True) as memory:
        memory.remember("sessions/s1", "Deploys run on Friday.")
        thread = memory.thread("t1", scope="sessions/s1")
        thread.append({"role": "user", "content": "The lamp is green."})
    return root


def holding(root: Path) -> list[str]:
    return [
        str(each.relative_to(root))
        for each in root.rglob("*")
        if each.is_file() and MARK.encode() in each.read_bytes()
    ]


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("work", ["dream", "restart"])
def test_what_a_model_answers_for_a_scope_that_went_meanwhile_is_not_written(
    tmp_path: Path, work: str, how: str
) -> None:
    root = folder(tmp_path)

    def meanwhile() -> None:
        done = h2ams("--root", "root", *GONE[how], cwd=tmp_path)
        assert done.code == 0, done

    with ModelServer([answering(meanwhile)]) as server:
        env = {"H2AMS_MODEL": "openai:m", "H2AMS_MODEL_URL": f"{server.url}/v1"}
        words = ("dream", "run", "sessions/s1") if work == "dream" else ("thread", "restart", "t1")
        done = h2ams("--root", "root", *words, cwd=tmp_path, env=env, stdin=TALK.encode())
        assert len(server.requests) == 1
    assert done.code == 1 and "meanwhile: nothing more was written" in done.out + done.err
    assert not (root / "sessions/s1").exists() and holding(root) == []
    assert not list((root / ".h2ams/dream").rglob("*.json"))
    threads = h2ams("--root", "root", "thread", "list", cwd=tmp_path).out
    assert ("sessions/s7" in threads) == (how == "renamed") and "sessions/s1" not in threads
    assert h2ams("--root", "root", "verify", cwd=tmp_path).code == 0


def test_what_a_model_answers_for_a_thread_that_was_deleted_meanwhile_is_not_written(
    tmp_path: Path,
) -> None:
    root = folder(tmp_path)

    def meanwhile() -> None:
        assert h2ams("--root", "root", "thread", "delete", "t1", cwd=tmp_path).code == 0

    with ModelServer([answering(meanwhile)]) as server:
        env = {"H2AMS_MODEL": "openai:m", "H2AMS_MODEL_URL": f"{server.url}/v1"}
        done = h2ams("--root", "root", "thread", "restart", "t1", cwd=tmp_path, env=env)
    assert done.code == 1 and "superseded:moved" in done.out
    assert holding(root) == [] and (root / "sessions/s1/memory.md").exists()


def test_a_thread_that_was_renamed_during_its_flush_is_flushed_by_the_next_pass(
    tmp_path: Path,
) -> None:
    root = folder(tmp_path)
    done_once: list[bool] = []

    def meanwhile() -> None:
        if not done_once:
            done_once.append(True)
            h2ams("--root", "root", *GONE["renamed"], cwd=tmp_path)

    with ModelServer([answering(meanwhile)]) as server:
        env = {"H2AMS_MODEL": "openai:m", "H2AMS_MODEL_URL": f"{server.url}/v1"}
        words = ("--root", "root", "thread", "restart", "t1")
        assert h2ams(*words, cwd=tmp_path, env=env).code == 1
        assert h2ams(*words, cwd=tmp_path, env=env).code == 0
        assert len(server.requests) == 2
    assert "user/memory.md" in holding(root) and not (root / "sessions/s1").exists()
