"""What only the SQLite store of threads has to show: the file itself."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import apsw
import pytest
from threads.kit import chat, engine, user

from h2ams.errors import StoreError
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.threads.thread_store import NewMessage, ThreadInfo

NOW = "2026-12-01T12:00:00Z"


def test_a_damaged_record_is_an_error_and_never_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    path.write_bytes(b"this is no database, " * 500)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="cannot be read"):
        SqliteThreadStore(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir() if "aside" in each.name] == []


@pytest.mark.parametrize("what", ["folder", "link to nowhere", "another program's"])
def test_what_is_no_store_of_threads_is_an_error_that_names_the_threads(
    tmp_path: Path, what: str
) -> None:
    path = tmp_path / "threads.db"
    if what == "folder":
        path.mkdir()
    elif what == "link to nowhere":
        path.symlink_to(tmp_path / "gone" / "threads.db")
    else:
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE threads (x)")
        connection.close()
    with pytest.raises(StoreError, match=r"the threads in .*threads\.db cannot be") as caught:
        SqliteThreadStore(path)
    assert "index" not in str(caught.value) and caught.value.hint


def test_damage_that_only_a_later_read_meets_is_an_error_of_the_same_kind(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteThreadStore(path)
    store.create(ThreadInfo("t1", "", "", NOW))
    payload = {"role": "user", "content": "word " * 4_000}
    for _ in range(8):
        store.append("t1", [NewMessage(payload, "openai-chat", "user", 5, "estimate", NOW)])
    store.close()
    data = bytearray(path.read_bytes())
    for page in range(8 * 4096, len(data) - 4096, 4096):  # the tables' roots stay as they are
        data[page : page + 4096] = b"\xa5" * 4096
    path.write_bytes(data)
    store = SqliteThreadStore(path)
    with pytest.raises(StoreError, match="cannot be read"):
        store.rows("t1")
    with pytest.raises(StoreError, match="cannot be read"):
        store.delete("t1")


def test_a_row_whose_text_is_no_json_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteThreadStore(path)
    store.create(ThreadInfo("t1", "", "", NOW))
    payload = {"role": "user", "content": "hello"}
    store.append("t1", [NewMessage(payload, "openai-chat", "user", 5, "estimate", NOW, id="m1")])
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE thread_rows SET payload = '{'")
    connection.close()
    with pytest.raises(StoreError, match="row m1 of a thread cannot be read"):
        store.rows("t1")


def test_the_words_of_a_deleted_thread_leave_the_file(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    store = SqliteThreadStore(path)
    for id in ("t1", "t2"):
        store.create(ThreadInfo(id, "", "", NOW))
        text = f"zyzzyva{id} word"
        payload = {"role": "user", "content": text}
        store.append(
            id, [NewMessage(payload, "openai-chat", "user", 5, "estimate", NOW, words=text)]
        )
    store.delete("t1")
    store.close()
    data = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert b"zyzzyvat1" not in data and b"zyzzyvat2" in data


def steps(store: SqliteThreadStore) -> int:
    """Instructions that SQLite runs to load the thread: the clock shows less on a busy day."""
    found = [0]

    def count() -> bool:
        found[0] += 1
        return False

    connection = store._open_connection
    connection.set_progress_handler(count, 1)
    store.load("t1")
    connection.set_progress_handler(None)
    return found[0]


def test_loading_costs_the_same_however_long_the_thread_is(tmp_path: Path) -> None:
    costs = []
    for size in (20, 400):
        made = engine(tmp_path, store=SqliteThreadStore(tmp_path / f"{size}.db"))
        thread = made.thread("t1", window=1_600, reserve=100)
        for n in range(0, size, 4):
            thread.append(*chat(4, start=n))
            thread.context(user("x"))
        thread.compact(force=True)
        thread.append(*chat(6, start=size))
        costs.append((steps(made.store), len(made.store.load("t1").rows)))  # type: ignore[arg-type]
        made.store.close()
    (small, rows), (large, same_rows) = costs
    assert abs(rows - same_rows) <= 2 and large <= 1.2 * small, costs


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    store = SqliteThreadStore(tmp_path / "threads.db")
    store.close()
    assert (tmp_path / "threads.db").stat().st_mode & 0o077 == 0


def test_no_thread_takes_the_right_to_compact_from_another_one(tmp_path: Path) -> None:
    one, two = (SqliteThreadStore(tmp_path / "threads.db") for _ in range(2))
    with contextlib.ExitStack() as held:
        for at in range(300):  # more than names of one byte
            assert held.enter_context((one, two)[at % 2].claim(f"t{at}"))
        with two.claim("t0") as again:
            assert not again
    one.close()
    two.close()


def test_a_claim_leaves_no_lock_file_and_one_of_a_dead_process_is_taken_over(
    tmp_path: Path,
) -> None:
    def lock_files() -> list[Path]:
        return sorted(tmp_path.glob("threads.db.compact-*.lock"))

    store = SqliteThreadStore(tmp_path / "threads.db")
    with store.claim("t1") as ours:
        assert ours
        (left,) = lock_files()
    assert lock_files() == []
    left.touch()  # a process that died leaves the file, and no lock on it
    with store.claim("t1") as ours:
        assert ours and lock_files() == [left]
    assert lock_files() == []
    store.close()


def test_claims_of_many_brains_at_once_never_overlap(tmp_path: Path) -> None:
    inside, overlaps, won = [0], list[int](), list[int]()

    def brain() -> None:
        store = SqliteThreadStore(tmp_path / "threads.db")
        for _ in range(60):
            with store.claim("t1") as ours:
                if ours:
                    inside[0] += 1
                    if inside[0] != 1:
                        overlaps.append(inside[0])
                    won.append(1)
                    time.sleep(0)  # lets the others try
                    inside[0] -= 1
        store.close()

    brains = [threading.Thread(target=brain) for _ in range(4)]
    for each in brains:
        each.start()
    for each in brains:
        each.join()
    assert overlaps == [] and won


def test_a_store_that_was_emptied_is_an_error_and_begun_anew_only_when_it_is_moved_away(
    tmp_path: Path,
) -> None:
    path = tmp_path / "threads.db"
    store = SqliteThreadStore(path)
    store.create(ThreadInfo("t1", "", "", NOW))
    store.close()
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(StoreError, match="are gone: the file is empty") as caught:
            SqliteThreadStore(path)
        assert caught.value.path == str(path) and caught.value.hint
    assert path.read_bytes() == b""
    path.rename(tmp_path / "aside.db")
    anew = SqliteThreadStore(path)
    assert anew.list() == ()
    anew.close()


def test_an_empty_file_that_never_was_a_store_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "threads.db").touch()
    store = SqliteThreadStore(tmp_path / "threads.db")
    store.create(ThreadInfo("t1", "", "", NOW))
    store.close()
    again = SqliteThreadStore(tmp_path / "threads.db")
    assert [each.id for each in again.list()] == ["t1"]
    again.close()
