"""Threads of a memory folder: the recalled part is what the access may see, and no more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from folder import opened
from threads.kit import assistant, chat, user

from h2ams import Access, AccessError, Memory, NotFoundError
from h2ams.memory.scope import parse_scope
from h2ams.text import fences
from h2ams.threads.flush import FlushReport, FlushRequest
from h2ams.upkeep.thread_folder import ThreadState


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path / "root") as made:
        yield made


def sent(memory: Memory, question: str, **how: object) -> str:
    context = memory.thread("t1", **how).context(question)  # type: ignore[arg-type]
    return "\n".join(str(each["content"]) for each in context.messages)


def test_the_context_call_shows_the_block_for_the_question(memory: Memory) -> None:
    memory.remember("user", "Ann prefers tabs over spaces.")
    thread = memory.thread("t1", system="Be kind.")
    thread.append(*chat(1))
    context = thread.context("tabs or spaces?")
    contents = [each["content"] for each in context.messages]
    assert contents[0] == "Be kind." and contents[-1] == "tabs or spaces?"
    assert contents[-2].startswith(fences.OPEN) and "Ann prefers tabs" in contents[-2]
    parts = {part.name: part.tokens for part in context.receipt.parts}
    assert 0 < parts["memory"] < context.receipt.budget * 0.15


def test_the_block_is_that_of_the_access(memory: Memory) -> None:
    memory.remember("sessions/s1", "The zebra is striped.")
    memory.remember("sessions/s2", "The zebra is secret.")
    access = Access(session="s1")
    text = sent(memory, "what about the zebra?", access=access)
    assert "striped" in text and "secret" not in text


def test_a_thread_belongs_to_the_session_or_chat_of_its_access(memory: Memory) -> None:
    own = memory.thread("t1", access=Access(session="s1"))
    assert own.info.scope == "sessions/s1"
    assert memory.thread("c", access=Access(chat="c1")).info.scope == "chat/c1"
    assert memory.thread("t1").id == "t1"  # the owner reads all
    with pytest.raises(NotFoundError) as foreign:
        memory.thread("t1", access=Access(session="s2"))
    with pytest.raises(NotFoundError) as missing:
        memory.thread("t2", access=Access(session="s2"), create=False)
    assert foreign.value.hint == missing.value.hint
    with pytest.raises(AccessError):
        memory.thread("t3", access=Access(user="read"))


def test_search_reads_only_threads_of_the_access(memory: Memory) -> None:
    for session in ("s1", "s2"):
        thread = memory.thread(f"of-{session}", access=Access(session=session))
        thread.append(user("the zebra here"))
    mine = memory.thread("mine", access=Access(session="s1", related_sessions=["s2"]))
    assert [hit.thread for hit in mine.search("zebra")] == ["of-s1"]
    assert [hit.thread for hit in mine.search("zebra", scopes=["sessions/s2"])] == []
    assert len(memory.thread("owner").search("zebra")) == 2


def test_threads_outlive_the_process_and_the_folder_is_no_index(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with opened(root) as memory:
        memory.thread("t1").append(*chat(2))
    for file in (root / ".h2ams").glob("index.db*"):
        file.unlink()
    with opened(root) as memory:
        assert memory.thread("t1").info.message_count == 4
        assert (root / ".h2ams" / "threads.db").exists()


def test_threads_can_be_kept_elsewhere(memory: Memory, tmp_path: Path, postgres_url: str) -> None:
    for place in (str(tmp_path / "mine.db"), postgres_url):
        engine = memory.open_threads(place)
        engine.thread("t1").append(user("hello"))
        assert engine.thread("t1").info.message_count == 1
        engine.store.close()
    assert memory.threads.store.list() == ()


def test_threads_go_with_their_session(memory: Memory, tmp_path: Path) -> None:
    memory.thread("a", access=Access(session="s1")).append(user("zebra"))
    memory.thread("b", access=Access(chat="s1")).append(user("zebra"))
    path = tmp_path / "root" / ".h2ams" / "threads.db"
    state = ThreadState(str(path), lambda: memory.threads.store)
    s1, s2, s3 = (parse_scope(f"sessions/{name}") for name in ("s1", "s2", "s3"))
    assert state.list(s1) == ("a",) and state.list(parse_scope("sessions/s1/vp/ann")) == ()
    state.clone(s1, s2)
    state.clone(s1, s2)  # may be repeated
    assert state.list(s2) == ("a@sessions/s2",)
    state.rename(s1, s3)
    assert state.list(s1) == () and state.list(s3) == ("a",)
    assert state.delete(s3) == () and state.delete(s3) == ()
    assert state.list(s3) == () and state.list(parse_scope("chat/s1")) == ("b",)
    missing = ThreadState(str(path) + ".none", lambda: pytest.fail("there is no store"))
    assert missing.list(s1) == () and missing.delete(s1) == ()
    missing.rename(s1, s2)
    missing.clone(s1, s2)


def test_k136_what_the_engine_has_shown_is_never_learned_as_new(memory: Memory) -> None:
    memory.remember("user", "Ann prefers tabs over spaces.")
    seen: list[FlushRequest] = []

    def flush(request: FlushRequest) -> FlushReport:
        seen.append(request)
        return FlushReport()

    from h2ams.threads.context_engine import ContextEngine

    engine = ContextEngine(
        memory.threads.store, settings=memory.settings, counter=memory.tokens, flush=flush
    )
    block = memory.context("tabs or spaces?").text
    assert "prefers tabs" in block
    thread = engine.thread("t1", window=1_600, reserve=100)
    thread.append(user(f"Never feed the zebras. {block}"), user(block), assistant("fine"))
    thread.append(*chat(20))
    done = thread.compact(force=True)
    thread.append(*chat(20, start=30))
    done = thread.compact(force=True)
    assert done.outcome == "compacted"
    learned = "\n".join(message.text for request in seen for message in request.messages)
    assert "Never feed the zebras." in learned
    assert "prefers tabs" not in learned and "memory-context" not in learned
    kept = "\n".join(str(row.payload) for row in thread.rows() if row.kind == "summary")
    assert "zebras" in kept and "prefers tabs" not in kept
    before = thread.info.message_count
    thread.append(*thread.context("tabs?").messages)  # a host that records all it has sent
    added = thread.rows()[-thread.info.message_count + before :]
    assert not [row for row in added if "prefers tabs" in str(row.payload) and row.role == "user"
                and str(row.payload["content"]).startswith("<")]  # fmt: skip


def test_recall_loads_nothing_of_threads(tmp_path: Path) -> None:
    code = (
        "import sys; from h2ams.surfaces.cli import main\n"
        "main(['recall', 'x', '--root', sys.argv[1]])\n"
        "heavy = ('h2ams.threads', 'psycopg')\n"
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    with opened(tmp_path / "root"):
        pass
    command = [sys.executable, "-c", code, str(tmp_path / "root")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_the_import_of_the_package_loads_nothing_of_threads() -> None:
    code = "import h2ams, sys; print([n for n in sys.modules if 'threads' in n and 'h2ams' in n])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
