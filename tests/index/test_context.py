"""What stands around a segment helps to find it: inside one file and day, and without a leak."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, ids, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, Memory
from h2ams.index import places
from h2ams.index.rows import speaker_of

DAY = "2026-03-04T10:00:00Z"
TALK = ("I planted a kiwi tree", "How nice, does it bear fruit?", "Yes, small green ones")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def talk(*bodies: str, day: str = DAY, start: int = 0) -> list[str]:
    return [
        segment_text(f"t{number}", body, createdAt=day) for number, body in enumerate(bodies, start)
    ]


def context_of(memory: Memory, id: str, query: str, **options: object) -> float:
    hits = memory.recall(query, limit=100, **options).hits  # type: ignore[arg-type]
    return next(hit.terms["context"] for hit in hits if hit.record.id == id)


def test_a_word_beside_a_segment_lifts_it_above_its_equal(root: Path) -> None:
    write(root, "sessions/a/memory.md", *talk("a kiwi tree", "the fruit is small"))
    write(root, "sessions/b/memory.md", *talk("a garden shed", "the fruit is small"))
    with opened(root) as memory:
        hits = memory.recall("fruit of the kiwi tree").hits
        fruit = [hit.record.scope for hit in hits if hit.record.id == "t1"]
        assert fruit == ["sessions/a", "sessions/b"]


def test_context_ends_with_the_file_and_with_the_day(root: Path) -> None:
    first, second = talk("a kiwi tree"), talk("the fruit is small", start=1)
    later = talk("the fruit is small", day="2026-03-05T10:00:00Z", start=1)
    write(root, "sessions/a/memory.md", *first, *second)
    write(root, "sessions/b/memory.md", *first, *later)
    write(root, "sessions/c/memory.md", *first)
    write(root, "sessions/c/topic/x/memory.md", *second)
    with opened(root) as memory:
        for session, expected in (("a", True), ("b", False), ("c", False)):
            access = Access(session=session)
            assert (context_of(memory, "t1", "kiwi fruit", access=access) > 0) is expected


def test_an_answer_counts_the_question_before_it_for_more(root: Path) -> None:
    write(root, "sessions/a/memory.md", *talk("Where does the kiwi grow?", "behind the fruit shed"))
    write(root, "sessions/b/memory.md", *talk("There the kiwi grows.", "behind the fruit shed"))
    with opened(root) as memory:
        asked, told = (
            context_of(memory, "t1", "kiwi fruit", access=Access(session=session))
            for session in "ab"
        )
        assert asked > told > 0


def test_a_change_of_a_segment_changes_what_its_neighbours_are_worth(root: Path) -> None:
    write(root, "user/memory.md", *talk(*TALK))
    with opened(root) as memory:
        before = context_of(memory, "t2", "kiwi, small and green")
        write(root, "user/memory.md", *talk("I planted a cherry tree", *TALK[1:]))
        assert not [h for h in memory.recall("kiwi green").hits if h.terms["context"] > 0]
        write(root, "user/memory.md", *talk(*TALK))
        assert context_of(memory, "t2", "kiwi, small and green") == before > 0


def test_neighbours_without_a_match_are_given_only_on_demand_and_last(root: Path) -> None:
    write(root, "user/memory.md", *talk(*TALK, "Unrelated words"))
    write(root, "global/memory.md", segment_text("far", "kiwi"))
    with opened(root) as memory:
        assert ids(memory, "kiwi") == ["far", "t0"]
    with opened(root, settings=replace(PLAIN, neighbour_hits_count=5)) as memory:
        hits = memory.recall("kiwi").hits
        found = [(hit.record.id, hit.through) for hit in hits]
        assert found == [("far", "direct"), ("t0", "direct"), ("t1", "neighbour")]
        assert hits[-1].matched == () and hits[-1].score <= hits[-2].score
        assert hits[-1].score == pytest.approx(sum(hits[-1].terms.values()))
        assert [hit.record.id for hit in memory.recall("kiwi", limit=2).hits] == ["far", "t0"]
        assert [hit.record.id for hit in memory.recall("kiwi", kinds=["goal"]).hits] == []


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Ada: I would wait", ("Ada",)),
        ("**Ada Lovelace:** wait", ("Ada Lovelace",)),
        ("Анна: подожди", ("Анна",)),
        ("小明：等一下", ("小明",)),
        ("note: wait", ()),
        ("анна: подожди", ()),
        ("阅读偏好：历史", ()),
        ("http://x.org is down", ()),
        ("She said: wait", ()),
        ("12:30 lunch", ()),
    ],
)
def test_who_speaks_is_read_from_the_beginning(said: str, name: tuple[str, ...]) -> None:
    assert speaker_of(said) == name


def test_a_speaker_asked_for_ranks_above_who_is_spoken_to(root: Path) -> None:
    write(root, "user/memory.md", *talk("Bob: Ada, the kiwi is ripe", "Ada: the kiwi is ripe, Bob"))
    with opened(root) as memory:
        assert ids(memory, "What did Ada say about the kiwi?")[0] == "t1"
        assert ids(memory, "What did Bob say about the kiwi?")[0] == "t0"


def scores(memory: Memory, query: str, access: Access | None = None) -> list[tuple[object, ...]]:
    hits = memory.recall(query, access=access, limit=100).hits
    return [(hit.record.address, hit.score, hit.terms, hit.matched) for hit in hits]


def test_what_foreign_scopes_hold_changes_no_byte(root: Path) -> None:
    own = Access(session="a")
    write(root, "sessions/a/memory.md", *talk(*TALK))
    with opened(root) as memory:
        before = scores(memory, "green kiwi fruit, planting", own)
        write(root, "sessions/b/memory.md", *talk("planter of kiwis", "green fruit", *TALK))
        write(root, "sessions/a/vp/eve/memory.md", *talk(*reversed(TALK)))
        assert scores(memory, "green kiwi fruit, planting", own) == before != []


BODIES = ["kiwi tree", "fruit is small?", "green kiwi", "I saw it yesterday", "planter", "用户认证"]
STEP = st.tuples(
    st.sampled_from(["add", "cut", "swap", "day"]), st.integers(0, 5), st.sampled_from(BODIES)
)


@given(st.lists(STEP, min_size=1, max_size=8), st.integers(0, 2**32))
def test_any_history_ranks_like_an_index_made_anew(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, str]], seed: int
) -> None:
    root = tmp_path_factory.mktemp("history")
    segments = [("s0", "kiwi tree", 1), ("s1", "fruit is small?", 1), ("s2", "green kiwi", 1)]
    draw = random.Random(seed)
    with opened(root) as memory:
        for number, (what, at, body) in enumerate(steps):
            place = at % (len(segments) + 1)
            if what == "add":
                segments.insert(place, (f"n{number}", body, 1 + place % 2))
            elif what == "cut" and len(segments) > 1:
                del segments[at % len(segments)]
            elif what == "swap":
                draw.shuffle(segments)
            else:
                segments[at % len(segments)] = (f"d{number}", body, 1 + at % 3)
            write(
                root,
                "user/memory.md",
                *(
                    segment_text(id, body, createdAt=f"2026-03-0{day}T10:00:00Z")
                    for id, body, day in segments
                ),
            )
            found = scores(memory, "kiwi fruit green 认证 planting")
        assert memory.verify().ok
        memory.rebuild()
        assert scores(memory, "kiwi fruit green 认证 planting") == found


def test_places_of_a_run_follow_each_other_and_runs_never_touch() -> None:
    rows = [(7, "a"), (3, "a"), (9, "a"), (4, "b"), (1, "b")]
    figures = [places.figures(length, 5, 0) for length in (10, 20, 30, 40, 50)]
    placed = {rowid: place for rowid, place, _ in places.arranged(rows, figures)}
    assert placed[3] - placed[7] == placed[9] - placed[3] == placed[1] - placed[4] == 1
    assert abs(placed[9] - placed[4]) > 100
    lengths = {rowid: length for rowid, _, length in places.arranged(rows, figures)}
    assert lengths[3] == 20 + 1.25 * 10 + 0.2 * 30
    assert lengths[4] == 40 + 1.25 * 40 + 0.2 * 50  # nothing before it: its own length


@given(st.integers(0, 65_535), st.integers(0, 65_535), st.integers(0, 7), st.floats(0, 1_000_000))
def test_figures_are_kept_apart(length: int, day: int, cues: int, context: float) -> None:
    packed = places.with_context(places.figures(length, day, cues), context)
    assert places.length_of(packed) == length and places.day_of(packed) == day
    assert places.cues_of(packed) == cues
    assert places.context_length_of(packed) == min(int(context), places.MAX_LENGTH)
    assert packed < 1 << 64
