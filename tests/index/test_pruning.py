"""Rows with nothing but common words are left out where that changes no result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, Memory
from h2ams.index import reading
from h2ams.index.field import FirstPass
from h2ams.index.search import Filters, Found, Searcher, Wanted
from h2ams.memory.access import Gate
from h2ams.settings import Settings
from h2ams.text.words import parse_query

COMMON = "plan note list page item"
RARE = "kiwi heron basalt quartz"
BODY = st.lists(st.sampled_from([*COMMON.split() * 4, *RARE.split()]), min_size=1, max_size=6)
QUERY = st.lists(
    st.sampled_from([*COMMON.split(), *RARE.split(), "kiwis", "quartzite", "yesterday"]),
    min_size=2,
    max_size=7,
)


def search_twice(
    memory: Memory, access: Access | None, query: str, wanted: Wanted, settings: Settings
) -> tuple[Found, Found]:
    found = []
    for prunes in (True, False):
        with memory._index.reading() as connection:
            searcher = Searcher(connection, Gate(access, {}), settings, today=20_000)
            searcher.prunes = prunes
            parsed = parse_query(query, max_chars=1_000)
            found.append(searcher.search(parsed, wanted=wanted, filters=Filters()))
    return found[0], found[1]


@given(
    st.lists(st.tuples(st.sampled_from(["user", "global", "sessions/1"]), BODY), max_size=40),
    st.lists(QUERY, min_size=1, max_size=6),
    st.sampled_from([None, Access(session="1")]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([0, 1, 3, 8]),
)
def test_pruning_changes_no_result(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: list[tuple[str, list[str]]],
    queries: list[list[str]],
    access: Access | None,
    rerank: int,
    limit: int,
    common: int,
) -> None:
    root = tmp_path_factory.mktemp("pruning")
    for scope in ("user", "global", "sessions/1"):
        bodies = [" ".join(body) for at, body in corpus if at == scope]
        write(root, f"{scope}/memory.md", *(segment_text(f"s{n}", b) for n, b in enumerate(bodies)))
    settings = replace(PLAIN, rerank_count=rerank)
    with opened(root) as memory, pytest.MonkeyPatch.context() as patch:
        memory.sync()
        patch.setattr(reading, "COMMON_ROWS", common)
        for query in queries:
            wanted = Wanted(limit)
            pruned, whole = search_twice(memory, access, " ".join(query), wanted, settings)
            assert pruned == whole
            scores = [hit.score for hit in pruned.hits]
            assert scores == [hit.score for hit in whole.hits]


def big_corpus(root: Path, segments: int) -> None:
    """One scope in which each common word is in most segments and each rare one in a few."""
    rare = RARE.split()
    bodies = (
        f"{COMMON} number{number}" + (f" {rare[number % 4]}" if number % 9 == 0 else "")
        for number in range(segments)
    )
    write(root, "user/memory.md", *(segment_text(f"s{n}", body) for n, body in enumerate(bodies)))


def rows_fetched(
    memory: Memory, query: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """How many rows the first pass looks at with pruning and without it."""
    seen: list[int] = []
    order = FirstPass.order

    def counting(self: FirstPass, field: object, kept: dict[int, int]) -> object:
        seen.append(len(kept))
        return order(self, field, kept)  # type: ignore[arg-type]

    monkeypatch.setattr(FirstPass, "order", counting)
    pruned, whole = search_twice(memory, None, query, Wanted(10), settings)
    assert pruned == whole and len(whole.hits) == 10
    return seen[0], seen[-1]


def test_rows_of_common_words_alone_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big_corpus(tmp_path / "root", 900)
    settings = replace(PLAIN, rerank_count=20)
    monkeypatch.setattr(reading, "COMMON_ROWS", 100)
    with opened(tmp_path / "root") as memory:
        memory.sync()
        pruned, whole = rows_fetched(memory, "kiwi plan heron note", settings, monkeypatch)
        assert pruned <= 100 and whole == 900


@pytest.mark.long
def test_a_scope_of_many_segments_is_searched_without_fetching_most_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big_corpus(tmp_path / "root", 40_000)
    with opened(tmp_path / "root") as memory:
        memory.sync()
        pruned, whole = rows_fetched(memory, "kiwi plan heron note list", PLAIN, monkeypatch)
        assert pruned < 3_000 and whole == 40_000


def test_a_question_fetches_no_more_than_so_many_rows_and_says_what_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big_corpus(tmp_path / "root", 300)
    monkeypatch.setattr(reading, "SMALL_ROWS", 100)
    with opened(tmp_path / "root") as memory:
        found = memory.recall(f"{COMMON} kiwi", limit=5)
        assert found.dropped_terms == ("page", "item")  # the rarest four are kept in any case
        assert all("kiwi" in hit.record.body for hit in found.hits)
        prefixes = memory.recall("pl* no* li* pa* it* ki* he* ba* qu* nu*", limit=5)
        assert prefixes.dropped_terms[:2] == ("qu*", "nu*") and prefixes.hits
