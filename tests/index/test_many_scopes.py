"""A thousand authorised scopes: the same results, far less work, and never an old one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folder import PLAIN, age, ids, opened, segment_text, write
from hypothesis import given, settings
from hypothesis import strategies as st

from h2ams import Access, Memory, Recall
from h2ams.index import chart, planes, search
from h2ams.index.search import Filters, Found, Searcher, Wanted
from h2ams.memory.access import Gate
from h2ams.settings import Settings
from h2ams.text.words import parse_query


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


WORDS = ["plan", "note", "kiwi", "heron", "basalt", "quartz", "adopter", "adoption", "getUserName"]
BODY = st.lists(st.sampled_from([*WORDS, "?", "I", "yesterday"]), min_size=1, max_size=7)
SEGMENT = st.tuples(
    BODY,
    st.sampled_from(["2026-11-30T10:00:00Z", "2026-11-30T11:00:00Z", "2025-02-01T10:00:00Z", ""]),
    st.sampled_from(["", "kiwi", "heron"]),
)
SCOPES = ("user", "sessions/s00", "sessions/s00/topic/t", "sessions/s01", "sessions/s02/feature/f")
QUERY = st.lists(
    st.sampled_from([*WORDS, "adopted", "quartzite", '"plan note"', "kiw*", "when"]),
    min_size=1,
    max_size=9,
)
ACCESS = Access(session="s00", related_sessions=["s01", "s02", "s03"])
WEIGHTS: tuple[dict[str, float], ...] = (
    {}, {"weight_context": 0.0}, {"weight_related": 0.0}, {"weight_related": 3.0}
)  # fmt: skip


def text_of(number: int, segment: tuple[list[str], str, str]) -> str:
    body, moment, tag = segment
    header: dict[str, object] = {"createdAt": moment} if moment else {}
    if tag:
        header["tags"] = f"[{tag}]"
    return segment_text(f"s{number}", " ".join(body), **header)


def search_twice(
    memory: Memory, access: Access | None, query: str, limit: int, setting: Settings
) -> tuple[Found, Found]:
    """By planes and row by row."""
    found = []
    for prunes in (True, False):
        with memory._index.reading() as connection:
            searcher = Searcher(connection, Gate(access, {}), setting, today=20_788)
            searcher.prunes = prunes
            parsed = parse_query(query, max_chars=1_000)
            found.append(searcher.search(parsed, wanted=Wanted(limit), filters=Filters()))
    return found[0], found[1]


@contextmanager
def counted() -> Iterator[list[bool]]:
    """Whether each question that could be was answered by planes."""
    answered: list[bool] = []
    narrowed = planes.narrowed

    def counting(*given: Any) -> Any:
        result = narrowed(*given)
        answered.append(result is not None)
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "narrowed", counting)
        patch.setattr(search, "CHART_RANGES", 0)
        yield answered


@given(
    st.dictionaries(st.sampled_from(SCOPES), st.lists(SEGMENT, min_size=1, max_size=14)),
    st.lists(QUERY, min_size=1, max_size=5),
    st.sampled_from([None, ACCESS]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(WEIGHTS),
)
def test_planes_find_what_looking_at_each_row_finds(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: dict[str, list[tuple[list[str], str, str]]],
    queries: list[list[str]],
    access: Access | None,
    rerank: int,
    limit: int,
    weights: dict[str, Any],
) -> None:
    root = tmp_path_factory.mktemp("planes")
    for scope, segments in corpus.items():
        texts = [text_of(number, each) for number, each in enumerate(segments)]
        write(root, f"{scope}/memory.md", *texts)
    setting = replace(PLAIN, rerank_count=rerank, related_share=0.5, **weights)
    with opened(root) as memory, counted():
        memory.sync()
        for query in queries:
            by_planes, by_rows = search_twice(memory, access, " ".join(query), limit, setting)
            assert by_planes == by_rows


def many_sessions(root: Path, count: int) -> Access:
    """Sessions of which every other one is related to the first, with texts in common."""
    for number in range(count):
        bodies = [
            f"{WORDS[(number + at) % len(WORDS)]} {WORDS[(number * at) % 7]} word{number} item"
            for at in range(6)
        ]
        texts = [segment_text(f"x{at}", body) for at, body in enumerate(bodies)]
        write(root, f"sessions/s{number:03}/memory.md", *texts)
    return Access(session="s001", related_sessions=[f"s{n:03}" for n in range(0, count, 2)])


def test_scattered_scopes_are_ranked_by_planes(root: Path) -> None:
    access = many_sessions(root, 160)
    with opened(root) as memory:
        memory.sync()
        with counted() as answered:
            for query in ("kiwi heron", "adoption basalt note", "plan item word12", "item"):
                by_planes, by_rows = search_twice(memory, access, query, 10, PLAIN)
                assert by_planes == by_rows and by_planes.hits
                assert by_planes.below_gate == by_rows.below_gate
        assert answered == [True] * 4


def test_foreign_text_changes_no_score_of_planes(tmp_path: Path) -> None:
    """The same question beside sessions that may not be read, and where they hold nothing."""
    found = []
    for name, body in (("one", "kiwi heron basalt kiwi"), ("other", "zebra")):
        root = tmp_path / name
        access = many_sessions(root, 160)
        for number in range(3, 160, 2):
            write(root, f"sessions/s{number:03}/memory.md", segment_text("f", body))
        with opened(root) as memory, counted() as answered:
            found.append(memory.recall("kiwi heron basalt", access=access))
            assert answered == [True]
    assert found[0].hits and same(*found)


def test_a_word_with_too_many_rows_is_left_to_the_other_way(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = many_sessions(root, 160)
    monkeypatch.setattr(chart, "MOST_ROWS", 20)
    with opened(root) as memory:
        memory.sync()
        with counted() as answered:
            by_planes, by_rows = search_twice(memory, access, "item word12", 10, PLAIN)
        assert by_planes == by_rows and by_planes.hits and answered == [False]


def test_rows_of_the_last_words_are_kept_up_to_a_limit(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = many_sessions(root, 160)
    with opened(root) as memory:
        memory.sync()
        first = memory.recall("kiwi heron", access=access)
        monkeypatch.setattr(chart, "MOST_ROWS_KEPT", 0)
        for query in ("basalt quartz", "plan note", "kiwi heron"):
            last = memory.recall(query, access=access)
        assert same(first, last)
        with memory._index.reading() as connection:
            kept = memory._guard.reach(connection, access).chart(connection)._kept
        assert sum(map(len, kept.values())) <= 160 * 12


def same(one: Recall, other: Recall) -> bool:
    return replace(one, elapsed_ms=0.0) == replace(other, elapsed_ms=0.0)


# -- work that does not grow ---------------------------------------------------------------------


def statements_of(memory: Memory, access: Access, query: str) -> int:
    """How many statements a recall runs in which nothing changed."""
    memory.recall(query, access=access)
    seen: list[str] = []
    connection = memory._index.connection
    connection.exec_trace = lambda cursor, sql, bindings: seen.append(sql) or True
    try:
        memory.recall(query, access=access)
    finally:
        connection.exec_trace = None
    return len(seen)


def test_a_recall_runs_as_many_statements_whatever_it_may_read(tmp_path: Path) -> None:
    counts = []
    for size in (140, 300):
        root = tmp_path / f"root{size}"
        access = many_sessions(root, size)
        with opened(root) as memory:
            memory.sync()
            age_all(root)
            memory.sync()
            counts.append(statements_of(memory, access, "kiwi heron basalt"))
    assert max(counts) <= 20


def age_all(root: Path) -> None:
    for folder, _, names in os.walk(root):
        if ".h2ams" not in folder:
            for name in names:
                age(Path(folder) / name)
            age(Path(folder))


def test_a_recall_looks_once_at_each_file_and_folder_of_a_related_session(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = many_sessions(root, 200)
    with opened(root) as memory:
        memory.sync()
        age_all(root)
        memory.sync()
        memory.recall("kiwi", access=access)
        looked_at: list[str] = []
        stat = os.stat

        def watching(path: Any, **options: Any) -> os.stat_result:
            looked_at.append(str(path))
            return stat(path, **options)

        monkeypatch.setattr(os, "stat", watching)
        memory.recall("kiwi", access=access)
        monkeypatch.undo()
    related = [path for path in looked_at if "/sessions/s" in path and "/s001" not in path]
    assert len(related) == len(set(related)) == 2 * 100
    assert not any(f"/s{number:03}" in path for path in related for number in range(3, 200, 2))
    assert len(looked_at) <= 2 * 101 + 30


# -- never an old result -------------------------------------------------------------------------

NAMES = ("s001", "s000", "s002", "s004", "s003")
STEP = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(NAMES), BODY),
    st.tuples(st.just("topic"), st.sampled_from(NAMES), BODY),
    st.tuples(st.just("note"), st.sampled_from(NAMES), BODY),
    st.tuples(st.just("legacy"), st.sampled_from(NAMES), BODY),
    st.tuples(st.just("agent"), st.sampled_from(NAMES), st.sampled_from([["a"], ["b"], []])),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.just([])),
    st.tuples(st.just("remember"), st.just("s001"), BODY),
    st.tuples(st.just("elsewhere"), st.sampled_from(NAMES), BODY),
    st.tuples(st.just("rebuild"), st.just(""), st.just([])),
)


def take(memory: Memory, other: Memory, root: Path, step: tuple[str, str, list[str]]) -> None:
    """One step: by hand, by this engine, or by another one on the same folder."""
    what, name, words = step
    text = " ".join(words)
    session = f"sessions/{name}"
    if what == "write":
        write(root, f"{session}/memory.md", segment_text("w", text))
    elif what == "topic":
        write(root, f"{session}/topic/t/memory.md", segment_text("t", text))
    elif what == "note":
        (root / session).mkdir(parents=True, exist_ok=True)
        (root / session / "note.md").write_text(f"# one\n\n{text}\n", encoding="utf-8")
    elif what == "legacy":
        write(root, f"session/{name}/memory.md", segment_text("l", text))
    elif what == "agent":
        (root / session).mkdir(parents=True, exist_ok=True)
        card = f"---\nagent: {text}\n---\n" if text else "---\ntitle: x\n---\n"
        (root / session / "session.md").write_text(card, encoding="utf-8")
    elif what == "delete":
        (root / session / "memory.md").unlink(missing_ok=True)
    elif what == "remember":
        memory.remember("sessions/s001", f"{text} plan")
    elif what == "elsewhere":
        write(root, f"{session}/feature/f/memory.md", segment_text("e", text))
        other.sync()
    else:
        memory.rebuild()


@settings(max_examples=25)
@given(st.lists(STEP, min_size=1, max_size=9))
def test_what_is_kept_of_an_access_never_makes_a_recall_old(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, list[str]]]
) -> None:
    root = tmp_path_factory.mktemp("kept")
    state = tmp_path_factory.mktemp("state")
    many_sessions(root, 5)
    access = Access(session="s001", related_sessions=["s000", "s002", "s004"])
    query = "plan note kiwi heron basalt quartz"
    with opened(root) as memory, opened(root) as other, counted():
        memory.recall(query, access=access)
        for step in steps:
            take(memory, other, root, step)
            found = memory.recall(query, access=access)
            again = memory.recall(query, access=access)
            with opened(root, state=state) as anew:
                anew.rebuild()
                expected = anew.recall(query, access=access)
            assert same(found, expected)
            assert same(again, expected)


def test_an_edit_in_any_of_the_scopes_is_seen_by_the_next_recall(root: Path) -> None:
    access = many_sessions(root, 140)
    with opened(root) as memory:
        memory.sync()
        age_all(root)
        memory.sync()
        assert ids(memory, "zebrafish", access=access) == []
        for name in ("s000", "s070", "s138"):
            file = root / f"sessions/{name}/memory.md"
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace("item", f"zebrafish{name}", 1), encoding="utf-8")
            assert ids(memory, f"zebrafish{name}", access=access) == ["x0"]
        write(root, "sessions/s002/topic/new/memory.md", segment_text("n", "axolotl"))
        assert ids(memory, "axolotl", access=access) == ["n"]
        write(root, "sessions/s003/topic/new/memory.md", segment_text("n", "pangolin"))
        assert ids(memory, "pangolin", access=access) == []
