"""What only the PostgreSQL store of threads has to show: meanings, brains, and bad days."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from threads.kit import COUNTER, PLAIN, chat, engine, user

from h2ams.errors import ConfigError, StoreError
from h2ams.threads.context_engine import ContextEngine
from h2ams.threads.meanings import StaticVectors
from h2ams.threads.thread_postgres import PostgresThreadStore


class Broken:
    """An embedder that nobody may ask."""

    size = 3

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        raise AssertionError("not asked for")


def found(thread: Any, query: str) -> list[str]:
    return [hit.text for hit in thread.search(query, limit=3)]


def test_past_chats_are_found_by_meaning_with_pgvector(tmp_path: Path, postgres_url: str) -> None:
    store = PostgresThreadStore(postgres_url, embed=StaticVectors())
    assert store.semantic
    made = engine(tmp_path, store=store)
    made.thread("a").append(
        user("My dog has a broken leg and limps."),
        user("The invoice of the printer arrived."),
        user("We sail on the lake every summer."),
    )
    here = made.thread("b")
    assert found(here, "injured puppy")[0] == "My dog has a broken leg and limps."
    assert found(here, "boat trip on the water")[0] == "We sail on the lake every summer."
    assert found(here, "invoice printer")[0] == "The invoice of the printer arrived."
    made.store.edit("a", made.store.rows("a")[0].id, made.new_message(_read("A cat sleeps.")))
    assert "dog" not in " ".join(found(here, "injured puppy"))
    made.store.clone("a", "c")
    assert len(here.search("boat trip on the water", limit=2)) == 2
    made.store.delete("a")
    made.store.delete("c")
    assert found(here, "boat trip on the water") == []
    store.close()


def _read(text: str) -> Any:
    from h2ams.threads import shapes

    return shapes.read(user(text))


def test_without_the_semantic_side_words_alone_are_searched(
    tmp_path: Path, postgres_url: str
) -> None:
    made = engine(tmp_path, store=PostgresThreadStore(postgres_url))
    made.thread("a").append(user("My dog has a broken leg."))
    here = made.thread("b")
    assert found(here, "injured puppy") == [] and found(here, "broken") != []
    made.store.close()


def test_rows_of_before_the_vectors_are_still_found_and_deleted(
    tmp_path: Path, postgres_url: str
) -> None:
    plain = engine(tmp_path, store=PostgresThreadStore(postgres_url))
    plain.thread("a").append(user("My dog has a broken leg."))
    plain.store.close()
    made = engine(tmp_path, store=PostgresThreadStore(postgres_url, embed=StaticVectors()))
    assert found(made.thread("b"), "broken leg") != []
    made.store.close()
    plain = engine(tmp_path, store=PostgresThreadStore(postgres_url))
    assert plain.store.delete("a")
    plain.store.close()


def test_a_server_without_pgvector_is_searched_by_words(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    class NoVector(PostgresThreadStore):
        def _all(self, statement: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
            asked = statement.replace("IF NOT EXISTS vector", "no_such_extension")
            return super()._all(asked, bindings)

    store = NoVector(postgres_url, embed=Broken())
    assert not store.semantic and "pgvector" in caplog.text
    made = engine(tmp_path, store=store)
    made.thread("a").append(user("My dog has a broken leg."))
    assert found(made.thread("b"), "broken leg") != []
    store.close()


def test_many_brains_may_open_an_empty_database_at_once_and_beside_a_writer(
    postgres_url: str,
) -> None:
    import threading

    errors: list[Exception] = []
    start = threading.Barrier(6)

    def brain(number: int) -> None:
        try:
            start.wait()
            for n in range(4):
                store = PostgresThreadStore(postgres_url)
                made = ContextEngine(store, settings=PLAIN, counter=COUNTER)
                made.thread("shared").append(user(f"{number} said {n}"))
                store.close()
        except Exception as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    brains = [threading.Thread(target=brain, args=(number,)) for number in range(6)]
    for each in brains:
        each.start()
    for each in brains:
        each.join()
    assert errors == []
    store = PostgresThreadStore(postgres_url)
    assert len(store.rows("shared")) == 24
    store.close()


def test_a_server_that_is_not_there_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be reached"):
        PostgresThreadStore(f"postgresql://u@/db?host={tmp_path}&connect_timeout=2")


def test_a_connection_that_was_cut_is_opened_again(tmp_path: Path, postgres_url: str) -> None:
    store = PostgresThreadStore(postgres_url)
    made = engine(tmp_path, store=store)
    made.thread("a").append(*chat(1))
    other = PostgresThreadStore(postgres_url)
    pid = store._open_connection.info.backend_pid
    other._all("SELECT pg_terminate_backend(?)", (pid,))
    with pytest.raises(StoreError):
        made.thread("a").append(*chat(1, start=5))
    made.thread("a").append(*chat(1, start=5))
    assert made.thread("a").info.message_count == 4
    store.close()
    other.close()


def test_the_packages_of_the_extras_are_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match="psycopg") as caught:
        PostgresThreadStore("postgresql://nowhere/x")
    assert caught.value.hint == "pip install 'h2ams[postgres]'"
    from h2ams.index import encoder

    monkeypatch.setattr(encoder, "NEEDED", ("no_such_package",))
    with pytest.raises(ConfigError, match="no_such_package") as caught:
        StaticVectors()(["x"])
    assert "h2ams[semantic]" in str(caught.value.hint)
