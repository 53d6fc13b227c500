"""One suite for every store of threads: SQLite and a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from h2ams.errors import ConflictError, NotFoundError, StoreError
from h2ams.text.words import analyse, parse_query
from h2ams.threads.thread_postgres import PostgresThreadStore
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.threads.thread_store import (
    NewMessage,
    NewSummary,
    SearchTerm,
    ThreadInfo,
    ThreadStore,
)

NOW = "2026-12-01T12:00:00Z"
Opener = Callable[[], ThreadStore]


@pytest.fixture(params=["sqlite", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one more handle on the same store, as another process would."""
    opened: list[ThreadStore] = []
    address = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""

    def open_one() -> ThreadStore:
        store: ThreadStore = (
            PostgresThreadStore(address) if address else SqliteThreadStore(tmp_path / "threads.db")
        )
        opened.append(store)
        return store

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def store(opener: Opener) -> ThreadStore:
    return opener()


def message(text: str, role: Any = "user", id: str = "", **more: Any) -> NewMessage:
    words, forms = analyse(text) if role in ("user", "assistant") else ("", "")
    payload = {"role": role, "content": text, **more}
    return NewMessage(payload, "openai-chat", role, 5, "estimate", NOW, id, words, forms, text)


def summary(
    boundary: str, seq: int, first: int = 1, origin: str = "compaction", text: str = "so far"
) -> NewSummary:
    id = f"s-{boundary}-{origin}-{text}"
    payload = {"text": text, "ledger": [], "carried": []}
    return NewSummary(id, boundary, seq, first, origin, payload, 7, "estimate", NOW)


def with_thread(store: ThreadStore, *texts: str, id: str = "t1", scope: str = "") -> list[str]:
    store.create(ThreadInfo(id, scope, "Be kind.", NOW))
    return [row.id for row in store.append(id, [message(text) for text in texts]).rows]


def texts(store: ThreadStore, id: str = "t1") -> list[str]:
    return [row.payload["content"] for row in store.rows(id) if row.kind == "message"]


def terms(*words: str) -> list[SearchTerm]:
    found = parse_query(" ".join(words), max_chars=200).terms
    return [SearchTerm(term.tokens, term.exact) for term in found]


def test_a_thread_keeps_its_system_prompt_byte_for_byte(store: ThreadStore) -> None:
    system = "Ünïcode\n\ttabs  and 中文 \u2028 end "
    made = store.create(ThreadInfo("t1", "sessions/s1", system, NOW))
    assert made == store.info("t1") == ThreadInfo("t1", "sessions/s1", system, NOW)
    assert store.create(ThreadInfo("t1", "sessions/s1", system, "later")) == made
    with pytest.raises(ConflictError, match="system prompt"):
        store.create(ThreadInfo("t1", "sessions/s1", "another", NOW))
    with pytest.raises(ConflictError, match="scope"):
        store.create(ThreadInfo("t1", "chat/c1", system, NOW))


def test_messages_come_back_in_order_and_unchanged(store: ThreadStore) -> None:
    odd = "NUL \0, surrogate \ud800, quote ', percent %s ?, emoji 👩‍👩‍👧"
    with_thread(store, "one", "two")
    store.append("t1", [message(odd, deep={"a": [1, None, True, 1.5, "x"]})])
    rows = store.rows("t1")
    assert texts(store) == ["one", "two", odd]
    assert [row.seq for row in rows] == [1, 2, 3]
    assert rows[2].payload["deep"] == {"a": [1, None, True, 1.5, "x"]}
    assert store.info("t1").message_count == 3  # type: ignore[union-attr]


def test_ids_are_derived_from_content_and_position(store: ThreadStore) -> None:
    first = with_thread(store, "same", "same")
    assert first[0] != first[1]
    assert with_thread(store, "same", id="t2")[0] != first[0]


def test_a_message_that_is_delivered_twice_is_there_once(store: ThreadStore) -> None:
    with_thread(store, "one", "two")
    replay = store.append("t1", [message("one"), message("two"), message("three")], at=0)
    assert texts(store) == ["one", "two", "three"]
    assert len(replay.new) == 1
    named = [message("four", id="m4")]
    assert store.append("t1", named).new == frozenset({"m4"})
    assert store.append("t1", named).new == frozenset()
    assert texts(store) == ["one", "two", "three", "four"]


def test_another_message_at_a_place_or_under_an_id_is_a_conflict(store: ThreadStore) -> None:
    with_thread(store, "one", "two")
    with pytest.raises(ConflictError):
        store.append("t1", [message("other")], at=0)
    with pytest.raises(ConflictError):
        store.append("t1", [message("late")], at=7)
    store.append("t1", [message("x", id="m")])
    with pytest.raises(ConflictError):
        store.append("t1", [message("fine"), message("y", id="m")])
    assert texts(store) == ["one", "two", "x"]  # all or nothing


def test_an_unknown_thread_is_not_found(store: ThreadStore) -> None:
    assert store.info("none") is None
    for call in (
        lambda: store.load("none"),
        lambda: store.rows("none"),
        lambda: store.append("none", [message("x")]),
        lambda: store.add_summary("none", summary("a", 1), 0),
        lambda: store.rename("none", "other"),
    ):
        with pytest.raises(NotFoundError):
            call()
    assert store.delete("none") is False


def test_the_window_is_cut_at_the_newest_summary(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcdef")
    assert len(store.load("t1").rows) == 6
    done = store.add_summary("t1", summary(ids[1], 2), 0)
    assert done.inserted and done.row is not None
    assert [row.id for row in store.load("t1").rows] == ids[2:]
    store.add_summary("t1", summary(ids[3], 4), 0)
    loaded = store.load("t1")
    assert [row.id for row in loaded.rows] == ids[4:]
    assert loaded.summary is not None and loaded.summary.boundary == ids[3]
    assert texts(store) == list("abcdef")  # rows before it stay readable


def test_the_first_turn_and_carried_rows_come_with_the_window(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcdef")
    made = summary(ids[4], 5, first=3)
    made.payload["carried"] = [ids[3]]
    store.add_summary("t1", made, 0)
    assert [row.id for row in store.load("t1").rows] == [ids[0], ids[1], ids[3], ids[5]]


def test_one_boundary_has_one_summary_and_the_loser_adopts_it(store: ThreadStore) -> None:
    ids = with_thread(store, *"abc")
    won = store.add_summary("t1", summary(ids[1], 2, text="mine"), 0)
    lost = store.add_summary("t1", summary(ids[1], 2, text="yours"), 0)
    again = store.add_summary("t1", summary(ids[1], 2, text="mine"), 0)
    assert won.inserted and not lost.inserted and not again.inserted
    assert lost.row == again.row == won.row
    assert sum(row.kind == "summary" for row in store.rows("t1")) == 1


def test_a_late_summary_never_replaces_a_newer_one(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcd")
    newer = store.add_summary("t1", summary(ids[2], 3), 0)
    late = store.add_summary("t1", summary(ids[0], 1), 0)
    assert not late.inserted and late.row == newer.row
    assert store.load("t1").summary == newer.row


def test_a_restart_wins_over_the_summary_of_the_same_boundary(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcd")
    store.add_summary("t1", summary(ids[3], 4), 0)
    again = store.add_summary("t1", summary(ids[3], 4, origin="restart", text=""), 0)
    assert again.inserted and store.load("t1").summary == again.row
    late = store.add_summary("t1", summary(ids[3], 4, text="late"), 0)
    assert not late.inserted


def test_an_edit_takes_back_the_summaries_that_cover_the_row(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcdef")
    first = store.add_summary("t1", summary(ids[1], 2), 0)
    second = store.add_summary("t1", summary(ids[3], 4), 0)
    assert first.row is not None and second.row is not None
    assert store.edit("t1", ids[5], message("F")) == ()
    assert store.edit("t1", ids[2], message("C")) == (second.row.id,)
    assert store.load("t1").summary == first.row
    assert [row.payload["content"] for row in store.load("t1").rows] == ["C", "d", "e", "F"]
    assert store.edit("t1", ids[0], message("A")) == (first.row.id,)
    assert store.load("t1").summary is None
    with pytest.raises(NotFoundError):
        store.edit("t1", "nobody", message("x"))


def test_an_edit_stays_when_the_first_text_is_delivered_once_more(store: ThreadStore) -> None:
    ids = with_thread(store, "one", "two")
    store.append("t1", [message("three", id="m3")])
    store.edit("t1", ids[0], message("ONE"))
    store.edit("t1", "m3", message("THREE", id="m3"))
    again = [message("one"), message("two"), message("three", id="m3")]
    assert store.append("t1", again, at=0).new == frozenset()
    assert texts(store) == ["ONE", "two", "THREE"]


def test_a_summary_of_rows_that_were_edited_meanwhile_is_not_added(store: ThreadStore) -> None:
    ids = with_thread(store, *"abcd")
    before = store.load("t1").info.edits
    store.edit("t1", ids[0], message("A"))
    done = store.add_summary("t1", summary(ids[1], 2), before)
    assert done.row is None and not done.inserted
    now = store.load("t1").info.edits
    assert store.add_summary("t1", summary(ids[1], 2), now).inserted


def test_states_are_added_once_and_the_newest_breaker_is_loaded(store: ThreadStore) -> None:
    with_thread(store, "a")
    assert store.add_state("t1", "p1", "prepass", {"replaced": {}}, NOW)
    assert not store.add_state("t1", "p1", "prepass", {"replaced": {}}, NOW)
    store.add_state("t1", "b1", "breaker", {"strikes": 1}, NOW)
    store.add_state("t1", "b2", "breaker", {"strikes": 2}, NOW)
    loaded = store.load("t1")
    assert [row.id for row in loaded.states] == ["p1"]
    assert loaded.breaker is not None and loaded.breaker.payload == {"strikes": 2}
    assert [row.id for row in store.states("t1", "breaker")] == ["b1", "b2"]
    assert store.states("t1", "flush") == ()


def test_two_handles_append_at_once_and_nothing_is_lost(opener: Opener) -> None:
    stores = [opener(), opener()]
    with_thread(stores[0])
    errors: list[Exception] = []

    def work(store: ThreadStore, name: str) -> None:
        try:
            for n in range(30):
                store.append("t1", [message(f"{name} {n}")])
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    workers = [
        threading.Thread(target=work, args=(store, name))
        for store, name in zip(stores, "xy", strict=True)
    ]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert errors == []
    rows = stores[0].rows("t1")
    assert [row.seq for row in rows] == list(range(1, 61))
    for name in "xy":
        own = [text for text in texts(stores[0]) if text.startswith(name)]
        assert own == [f"{name} {n}" for n in range(30)]


def test_the_right_to_compact_is_one_at_a_time_and_given_back(opener: Opener) -> None:
    one, two = opener(), opener()
    with_thread(one, "a")
    with one.claim("t1") as first:
        assert first
        with two.claim("t1") as second:
            assert not second
    with two.claim("t1") as third:
        assert third


def test_search_finds_words_of_any_script_in_other_threads(store: ThreadStore) -> None:
    with_thread(store, "the importer reads tar archives", id="t1", scope="sessions/s1")
    with_thread(store, "导入器读取压缩包", "импортёр читает архивы", id="t2", scope="sessions/s1")
    with_thread(store, "archives elsewhere", id="t3", scope="sessions/s2")

    def found(query: str, **how: Any) -> list[str]:
        how.setdefault("scopes", None)
        return sorted(each.thread for each in store.search(terms(query), **how))

    assert found("archive") == ["t1", "t3"]
    assert found("archive", but="t1") == ["t3"]
    assert found("archive", scopes=["sessions/s1"]) == ["t1"]
    assert found("archive", scopes=[]) == []
    assert found("压缩") == ["t2"]
    assert found("архив") == ["t2"]
    assert store.search([SearchTerm(("arch",), prefix=True)], scopes=None)
    assert store.search([], scopes=None) == ()
    assert len(store.search(terms("archive"), scopes=None, limit=1)) == 1


def test_a_score_of_a_search_knows_nothing_of_threads_that_may_not_be_read(
    store: ThreadStore,
) -> None:
    talk = [f"plain talk number {n} of the day" for n in range(20)]
    said = ["a zebra crosses the street", "the horse eats oats", "zebra and oats and a zebra"]
    with_thread(store, *talk, *said, id="t1", scope="sessions/s1")

    def found() -> list[tuple[str, int, float]]:
        hits = store.search(terms("zebra oats"), scopes=["sessions/s1"])
        return [(each.thread, each.row.seq, each.score) for each in hits]

    alone = found()
    assert len(alone) == 3 and {seq for _, seq, _ in alone} == {21, 22, 23}
    with_thread(store, *("zebra " * n for n in range(1, 16)), id="t2", scope="sessions/s2")
    assert found() == alone
    store.delete("t2")
    with_thread(store, *("oats and straw" for _ in range(60)), id="t3", scope="chat/c")
    assert found() == alone


def test_search_text_is_never_syntax(store: ThreadStore) -> None:
    with_thread(store, 'it\'s a "quoted" & (odd) | text: <-> \\ end*')
    for token in (
        "it's",
        '"',
        "&",
        "|",
        "(",
        "a:*",
        "\\",
        "!",
        "<->",
        "'",
        "NEAR",
        "OR",
        "%s",
        "?",
    ):
        store.search([SearchTerm((token,)), SearchTerm((token, token), token)], scopes=None)
    assert store.search(terms("quoted"), scopes=None)


def test_tool_output_and_edited_text_are_not_found(store: ThreadStore) -> None:
    ids = with_thread(store, "visible words")
    store.append("t1", [message("secret tooloutput", role="tool")])
    assert store.search(terms("tooloutput"), scopes=None) == ()
    store.edit("t1", ids[0], message("changed sentence"))
    assert store.search(terms("visible"), scopes=None) == ()
    assert len(store.search(terms("sentence"), scopes=None)) == 1


def test_a_deleted_thread_leaves_nothing(store: ThreadStore) -> None:
    ids = with_thread(store, "gone words")
    store.add_summary("t1", summary(ids[0], 1), 0)
    assert store.delete("t1") is True
    assert store.info("t1") is None and store.list() == ()
    assert store.search(terms("gone"), scopes=None) == ()
    with_thread(store, "new")
    assert texts(store) == ["new"] and store.load("t1").summary is None


def test_threads_are_renamed_moved_listed_and_cloned(store: ThreadStore) -> None:
    ids = with_thread(store, *"abc", scope="sessions/s1")
    store.add_summary("t1", summary(ids[1], 2), 0)
    with_thread(store, "other", id="t2", scope="sessions/s1")
    with pytest.raises(ConflictError):
        store.rename("t1", "t2")
    store.rename("t1", "t9")
    assert [each.id for each in store.list()] == ["t2", "t9"]
    store.clone("t9", "t8", "sessions/s2")
    assert store.rows("t8") == store.rows("t9")
    assert store.load("t8").summary == store.load("t9").summary
    assert [each.id for each in store.list(["sessions/s2"])] == ["t8"]
    store.append("t8", [message("only here")])
    assert texts(store, "t9") == list("abc") and texts(store, "t8")[-1] == "only here"
    assert [each.thread for each in store.search(terms("only"), scopes=None)] == ["t8"]
    assert store.move("sessions/s1", "sessions/s7") == 2
    assert [each.id for each in store.list(["sessions/s7"])] == ["t2", "t9"]
    with pytest.raises(ConflictError):
        store.clone("t9", "t8")


def test_a_closed_store_says_so(store: ThreadStore) -> None:
    with_thread(store, "a")
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.rows("t1")


def test_what_one_handle_wrote_another_reads(opener: Opener) -> None:
    with_thread(opener(), "a", "b")
    assert texts(opener()) == ["a", "b"]
