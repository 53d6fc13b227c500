"""Search: only the authorised scopes count, the order depends on nothing else, ties are settled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, ids, opened, segment_text, write
from hypothesis import given, settings
from hypothesis import strategies as st

from h2ams import Access, Memory, UsageError
from h2ams.index import lookup as lookup_module
from h2ams.index.lookup import Lookup, area_of, match_of
from h2ams.memory.access import Gate
from h2ams.text.words import parse_query


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def many_sessions(root: Path, count: int) -> None:
    for number in range(count):
        body = f"alpha word{number}" if number % 3 else f"beta word{number}"
        write(root, f"sessions/s{number:03}/memory.md", segment_text(f"x{number}", body))
        write(root, f"sessions/s{number:03}/vp/eve/memory.md", segment_text("p", "alpha private"))


def looked_up(memory: Memory, access: Access, query: str) -> set[str]:
    """Ids of the rows that one word's look-up gives, whatever their rank."""
    with memory._index.reading() as connection:
        gate = Gate(access, {})
        lookup = Lookup(connection, area_of(connection, gate))
        (term,) = parse_query(query, max_chars=100).terms
        rowids = lookup.rows(match_of(term))
        assert lookup.count(match_of(term)) == len(rowids)
        marks = ",".join("?" * len(rowids))
        rows = connection.execute(
            f"SELECT id FROM memory_segments WHERE rowid IN ({marks})", rowids
        )
        return {id for (id,) in rows}


def test_every_way_of_looking_up_finds_the_same_rows(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few ranges in the statement, many as JSON, and all rows of a rare word filtered."""
    many_sessions(root, 40)
    related = [f"s{number:03}" for number in range(1, 40, 2)]
    access = Access(session="s000", related_sessions=related)
    with opened(root) as memory:
        memory.sync()
        expected = {f"x{number}" for number in range(1, 40, 2) if number % 3}
        assert looked_up(memory, access, "alpha") == expected
        monkeypatch.setattr(lookup_module, "_VALUES_LIMIT", 2)
        assert looked_up(memory, access, "alpha") == expected
        monkeypatch.setattr(lookup_module, "_MANY_RANGES", 2)
        assert looked_up(memory, access, "alpha") == expected
        assert looked_up(memory, access, "word7") == {"x7"}
        monkeypatch.setattr(lookup_module, "_ROWS_PER_RANGE", 0)
        assert looked_up(memory, access, "alpha") == expected


def test_neighbouring_scopes_share_a_range_unless_a_foreign_one_lies_between(root: Path) -> None:
    many_sessions(root, 6)
    with opened(root) as memory:
        memory.rebuild()
        with memory._index.reading() as connection:
            together = Access(session="s000", related_sessions=["s001", "s002"])
            assert len(area_of(connection, Gate(together, {})).ranges) == 1
            apart = Access(session="s000", related_sessions=["s002"])
            assert len(area_of(connection, Gate(apart, {})).ranges) == 2
            assert len(area_of(connection, Gate(None)).ranges) == 1


def test_foreign_segments_change_no_score(root: Path) -> None:
    access = Access(session="s1")
    write(root, "sessions/s1/memory.md", segment_text("a", "alpha beta"), segment_text("b", "beta"))
    with opened(root) as memory:
        before = memory.recall("alpha beta", access=access).hits
        for number in range(30):
            write(root, f"sessions/o{number}/memory.md", segment_text("a", "alpha " * number))
        memory.sync()
        assert memory.recall("alpha beta", access=access).hits == before


def test_the_first_hits_do_not_depend_on_the_limit_even_across_windows(root: Path) -> None:
    texts = [segment_text(f"s{n:03}", f"alpha {'beta ' * (n % 7)} word{n}") for n in range(60)]
    write(root, "vp/v/memory.md", *texts)
    with opened(root, settings=replace(PLAIN, rerank_count=8)) as memory:
        full = memory.recall("alpha beta", limit=100).hits
        assert len(full) == 60
        scores = [hit.score for hit in full]
        assert scores == sorted(scores, reverse=True)
        for limit in (1, 2, 5, 8, 9, 17, 59):
            assert memory.recall("alpha beta", limit=limit).hits == full[:limit]


def test_equal_scores_are_ordered_by_closeness_and_address(root: Path) -> None:
    for scope in ("vp/b", "vp/a", "sessions/s1"):
        write(root, f"{scope}/memory.md", segment_text("z", "alpha"), segment_text("y", "alpha"))
    with opened(root) as memory:
        found = [hit.record.address for hit in memory.recall("alpha").hits]
        assert found == [
            "sessions/s1#y",
            "sessions/s1#z",
            "vp/a#y",
            "vp/a#z",
            "vp/b#y",
            "vp/b#z",
        ]


def test_the_score_is_the_sum_of_its_terms(root: Path) -> None:
    write(
        root,
        "user/memory.md",
        segment_text("a", "refresh tokens rotate", tags="[auth]", updatedAt="2026-11-30"),
        segment_text("b", "a token that refreshes auth", updatedAt="2020-01-01"),
    )
    with opened(root) as memory:
        for hit in memory.recall("auth refresh tokens").hits:
            assert hit.score == pytest.approx(sum(hit.terms.values()), abs=1e-9)
            assert set(hit.terms) >= {"bm25", "tags", "exact", "phrase", "closeness", "recency"}


def test_filters_narrow_by_kind_tag_time_and_scope(root: Path) -> None:
    write(
        root,
        "user/memory.md",
        segment_text("a", "alpha", kind="decision", tags="[One]", updatedAt="2026-01-01"),
        segment_text("b", "alpha", kind="fact", tags="[two]", updatedAt="2026-02-01T10:00:00Z"),
        segment_text("c", "alpha", kind="fact"),
    )
    write(root, "vp/v/memory.md", segment_text("d", "alpha", kind="fact", tags="[one]"))
    with opened(root) as memory:
        assert set(ids(memory, "alpha", kinds=["fact"])) == {"b", "c", "d"}
        assert set(ids(memory, "alpha", tags=["one"])) == {"a", "d"}
        assert ids(memory, "alpha", after="2026-01-15") == ["b"]
        assert ids(memory, "alpha", before="2026-02-01T10:00:00Z") == ["a"]
        assert ids(memory, "alpha", scopes=["vp/*"]) == ["d"]
        assert ids(memory, "alpha", kinds=["fact"], tags=["two"], scopes=["user"]) == ["b"]
        assert memory.recall("alpha", scopes=["vp/*"]).searched_scopes == ("vp/v",)
        with pytest.raises(UsageError):
            memory.recall("alpha", after="yesterday")
        with pytest.raises(UsageError):
            memory.recall("alpha", kinds=["nonsense"])


def test_a_token_budget_takes_whole_hits_and_a_smaller_later_one(root: Path) -> None:
    write(
        root,
        "user/memory.md",
        segment_text("a", "alpha alpha " + "word " * 100),
        segment_text("b", "alpha small"),
    )
    with opened(root) as memory:
        tokens = {hit.record.id: hit.record.tokens for hit in memory.recall("alpha").hits}
        assert ids(memory, "alpha", budget=tokens["b"]) == ["b"]
        assert ids(memory, "alpha", budget=0) == []


def test_one_common_word_alone_is_held_back_in_broad_scopes_and_reported(root: Path) -> None:
    texts = [segment_text(f"u{n}", f"project note {n}") for n in range(60)]
    write(root, "user/memory.md", *texts)
    write(root, "sessions/s1/memory.md", segment_text("near", "project deadline moved"))
    access = Access(session="s1")
    with opened(root) as memory:
        found = memory.recall("project deadline", access=access, limit=50)
        assert [hit.record.id for hit in found.hits] == ["near"]
        assert not found.relaxed
        assert len(found.below_gate) == 20
        # Nothing but weak matches: the relaxed reading gives them and says so.
        alone = memory.recall("project umbrella", access=access, limit=50)
        assert alone.relaxed is False and [h.record.id for h in alone.hits] == ["near"]
        (root / "sessions/s1/memory.md").unlink()
        weak = memory.recall("project umbrella", access=access, limit=100)
        assert weak.relaxed and len(weak.hits) == 60


def test_prefixes_and_substrings_are_read_only_if_nothing_else_is_found(root: Path) -> None:
    write(root, "user/memory.md", segment_text("a", "we sanitize the markup, giraffe"))
    with opened(root) as memory:
        assert not memory.recall("sanitize").relaxed
        prefix = memory.recall("giraf")
        assert [hit.record.id for hit in prefix.hits] == ["a"] and prefix.relaxed
        inner = memory.recall("iraff")
        assert [hit.record.id for hit in inner.hits] == ["a"] and inner.relaxed
        assert memory.recall("zzqqxx").hits == ()


def test_substrings_read_a_bounded_number_of_segments_and_say_so(root: Path) -> None:
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"word{n}x tail") for n in range(50)))
    with opened(root, settings=replace(PLAIN, substring_segments_count=10)) as memory:
        found = memory.recall("ord49")
        assert found.hits == ()
        assert [each.code for each in found.degraded] == ["substring-limit"]


def test_a_very_long_query_uses_its_rarest_words_and_reports_the_rest(root: Path) -> None:
    common = [segment_text(f"c{n}", "alpha beta gamma delta") for n in range(10)]
    write(root, "user/memory.md", *common, segment_text("rare", "quokka"))
    with opened(root, settings=replace(PLAIN, query_terms_count=2)) as memory:
        found = memory.recall("alpha beta gamma delta quokka missing")
        assert found.hits[0].record.id == "rare"
        assert len(found.dropped_terms) == 3
        assert "quokka" not in found.dropped_terms


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "alpha beta"]), max_size=12))
def test_a_common_row_order_for_any_history(bodies: list[str]) -> None:
    """Rows written in any order give the same ranking as a rebuild."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, opened(Path(folder) / "root") as memory:
        file = Path(folder) / "root/user/memory.md"
        for count in range(0, len(bodies) + 1, 3):
            texts = [segment_text(f"s{n}", body) for n, body in enumerate(bodies[:count])]
            write(Path(folder) / "root", "user/memory.md", *reversed(texts))
            memory.sync(["user/memory.md"])
        before = memory.recall("alpha beta", limit=50).hits
        memory.rebuild()
        assert memory.recall("alpha beta", limit=50).hits == before
        assert file.exists()
