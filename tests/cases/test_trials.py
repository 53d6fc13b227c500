"""What trying to break it found: each stays mended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from folder import NOW, ids, opened, segment_text, write

from h2ams import Access, ConfigError, UsageError, config
from h2ams.memory.segment import parse


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def test_a_redirect_opens_neither_summary_nor_archive_of_a_topic_that_is_not_listed(
    root: Path,
) -> None:
    write(root, "topic/x/redirect.json", '{"version":1,"canonical":"secret"}')
    write(root, "topic/x/memory.md", segment_text("x1", "apples"))
    write(root, "topic/secret/summary.md", "marker in a summary")
    write(root, "topic/secret/archive.md", segment_text("z9", "marker in an archive"))
    access = Access(session="s1", scopes=["topic/x"])
    with opened(root) as memory:
        assert "marker" not in memory.context("apples", access=access, budget=500).text
        assert memory.list(archived=True, access=access) == ()
        assert memory.list("topic/x", archived=True, access=access) == ()
        with pytest.raises(Exception, match="there is no"):
            memory.get("topic/x#z9", access=access)
        assert "marker" in memory.context("apples", budget=500).text or memory.list(archived=True)


def test_a_link_into_another_scope_is_neither_read_nor_written_through(root: Path) -> None:
    foreign = write(root, "sessions/s2/memory.md", segment_text("f", "foreign marker"))
    write(root, "sessions/s2/summary.md", "foreign marker summary")
    before = foreign.read_bytes()
    (root / "sessions/s4").mkdir()
    (root / "sessions/s4/memory.md").symlink_to("../s2/memory.md")
    (root / "sessions/s4/summary.md").symlink_to("../s2/summary.md")
    (root / "sessions/s1/topic").mkdir(parents=True)
    (root / "sessions/s1/topic/link").symlink_to("../../s2", target_is_directory=True)
    with opened(root) as memory:
        for session in ("s4", "s1"):
            access = Access(session=session)
            assert ids(memory, "foreign marker", access=access) == []
            assert "marker" not in memory.context("foreign marker", access=access).text
        with pytest.raises(Exception, match="link"):
            memory.remember("sessions/s4", "planted", access=Access(session="s4"))
        assert foreign.read_bytes() == before
        codes = {(p.code, p.path) for p in memory.sync().problems}
        assert ("unsafe-link", "sessions/s4/memory.md") in codes
        assert ("unsafe-link", "sessions/s1/topic/link") in codes


@pytest.mark.parametrize(
    "card",
    [
        b"---\nagent: [broken\n---\n",
        b"---\nagent: a\n",
        b"\n---\nagent: a\n---\n",
        "---\nagent: a\n---\n".encode("utf-16"),
        b"---\nagent: a\nagent: b\n---\n",
    ],
)
def test_a_related_session_whose_card_cannot_be_read_gives_nothing(root: Path, card: bytes) -> None:
    write(root, "sessions/other/memory.md", segment_text("o", "marker text"))
    access = Access(session="mine", related_sessions=["other"])
    with opened(root) as memory:
        assert ids(memory, "marker", access=access) == ["o"]
        (root / "sessions/other/session.md").write_bytes(card)
        assert ids(memory, "marker", access=access) == []
        (root / "sessions/other/session.md").write_bytes(b"---\ntitle: fine\n---\n")
        assert ids(memory, "marker", access=access) == ["o"]


def test_a_link_to_itself_stops_nothing(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    (root / "sessions/s9").mkdir(parents=True)
    (root / "sessions/s9/loop").symlink_to("loop")
    (root / "sessions/s9/far").symlink_to("x" * 255)
    with opened(root) as memory:
        assert ids(memory, "alpha") == ["a"]
        assert ids(memory, "alpha", access=Access(session="s9")) == ["a"]
        assert memory.rebuild().added == 1


@pytest.mark.parametrize("count", [127, 128, 129, 200, 500])
def test_a_word_said_very_often_leaves_a_sound_index_when_it_goes(root: Path, count: int) -> None:
    with opened(root) as memory:
        address = memory.remember("user", "apples").address
        memory.update(address, body="apples " * count)
        assert ids(memory, "apples") == [address.partition("#")[2]]
        memory.forget(address, purge=True)
        assert ids(memory, "apples") == []
        assert memory.verify().ok


def test_a_write_that_the_index_cannot_follow_is_a_write_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise apsw.FullError("database or disk is full")

    with opened(root) as memory:
        memory.sync()
        monkeypatch.setattr(memory._syncer, "sync", full)
        done = memory.remember("user", "kept in the file")
        assert [problem.code for problem in done.problems] == ["index-behind"]
        assert memory.recall("kept").degraded[0].code == "index-behind"
        monkeypatch.undo()
        assert ids(memory, "kept") == [done.id]


def test_the_state_folder_may_go_while_the_memory_is_open(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        assert ids(memory, "alpha") == ["a"]
        shutil.rmtree(root / ".h2ams")
        assert ids(memory, "alpha") == ["a"]
        assert memory.context("alpha", budget=200).tokens
        memory.remember("user", "beta")
        assert memory.verify().ok


@pytest.mark.parametrize("size", [0, 100, 4096, 20_000])
def test_an_index_cut_short_while_it_is_open_never_ends_the_process(root: Path, size: int) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"alpha {n}") for n in range(200)))
    code = (
        "import os, sys\n"
        "from h2ams import Memory, Settings\n"
        "memory = Memory.open(sys.argv[1], settings=Settings(encoding='estimate'))\n"
        "memory.sync(); memory._index.connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')\n"
        "os.truncate(os.path.join(memory.state, 'index.db'), int(sys.argv[2]))\n"
        "memory.recall('alpha'); memory.rebuild()\n"
        "assert len(memory.recall('alpha', limit=500).hits) == 200\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(root), str(size)], check=False)
    assert done.returncode == 0


def test_a_killed_rebuild_leaves_nothing_that_a_purge_does_not_take(root: Path) -> None:
    canary = "canaryzebraquartz"
    write(root, "user/memory.md", segment_text("a", canary), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        left = Path(memory.state) / "index.db.new-999999999-abc"
        left.write_text(canary)
        memory.forget("user#a", purge=True)
        assert not left.exists()
    found = [p for p in root.rglob("*") if p.is_file() and canary.encode() in p.read_bytes()]
    assert found == []


def test_a_closed_memory_says_so(root: Path) -> None:
    with opened(root) as memory:
        memory.remember("user", "alpha")
    with pytest.raises(UsageError, match="closed"):
        memory.recall("alpha")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_uses_a_connection_of_its_own(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "alpha"))
    code = (
        "import os, sys\n"
        "from h2ams import Memory, Settings\n"
        "memory = Memory.open(sys.argv[1], settings=Settings(encoding='estimate'))\n"
        "memory.recall('alpha')\n"
        "children = []\n"
        "for _ in range(3):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        ok = all(len(memory.recall('alpha').hits) == 1 for _ in range(20))\n"
        "        os._exit(0 if ok else 1)\n"
        "    children.append(child)\n"
        "for n in range(20):\n"
        "    memory.remember('vp/v', f'beta {n}')\n"
        "assert all(os.waitpid(child, 0)[1] == 0 for child in children)\n"
        "assert memory.verify().ok\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(root)], check=False).returncode == 0


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "now"])
def test_a_time_that_is_none_is_a_clear_error(text: str) -> None:
    with pytest.raises(ConfigError, match="H2AMS_NOW"):
        config.clock({"H2AMS_NOW": text})()


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 5_000, "a = " + "9" * 5_000, "recall_limit_count = -1", "half = inf"]
)
def test_a_configuration_that_cannot_be_used_names_its_file(root: Path, text: str) -> None:
    write(root, ".h2ams/config.toml", text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        config.resolve_settings(str(root), environ={})


def test_a_title_comes_before_passing_mentions(root: Path) -> None:
    write(root, "vault/People/Alice.md", "# Alice\n\nDesigner. Likes tea.\n")
    write(root, "vault/todo.md", "---\naliases: [Moonshot]\n---\nBuy milk.\n")
    for day in range(9):
        write(root, f"vault/2026-11-0{day}.md", f"# 2026-11-0{day}\n\n- Lunch with Alice\n")
    with opened(root) as memory:
        assert memory.recall("who is Alice").hits[0].record.path == "vault/People/Alice.md"
        assert memory.recall("moonshot").hits[0].record.path == "vault/todo.md"
        assert memory.recall("todo").hits[0].record.path == "vault/todo.md"
        text = memory.context("Alice lunch", budget=600).text
        assert text.count("Lunch with Alice") == 1


def test_a_half_written_file_is_named_in_the_answer(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        memory.sync()
        file.write_text("---\nid: a\ntags: [x, y\n---\nalpha\n")
        found = memory.recall("alpha")
        assert [each.code for each in found.degraded] == ["not-read-yet"]
        assert "user/memory.md:" in found.degraded[0].message
        assert memory.recall("alpha", access=Access(chat="c", user=False)).degraded == ()


def test_two_threads_that_meet_a_damaged_index_both_get_their_answer(root: Path) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"alpha {n}") for n in range(50)))
    with opened(root) as memory:
        memory.sync()
        memory._index.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        def work() -> None:
            for _ in range(15):
                memory.recall("alpha")
                memory.remember("vp/v", "beta")

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(work) for _ in range(4)]
            Path(memory.state, "index.db").write_bytes(b"garbage" * 4_000)
            for each in running:
                each.result()
        memory.sync()
        assert memory.verify().ok
        assert memory._now() == NOW
        assert parse((root / "user/memory.md").read_bytes()).entries
