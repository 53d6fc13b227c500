"""Order within the layers and near duplicates."""

from __future__ import annotations

import random

import pytest
from active.samples import NOW, candidate, sentence, summary
from hypothesis import given
from hypothesis import strategies as st

from h2ams.active import ranking
from h2ams.active.block import Candidate

_LONG = (
    "Refresh tokens rotate on every use. Re-use of an old one revokes the whole family of them, "
    "and the person has to sign in again on every device that was signed in before."
)


def _ids(ordered: tuple[Candidate, ...]) -> list[str]:
    return [each.id for each in ordered]


def test_resident_orders_by_closeness_then_scope() -> None:
    scopes = ["sessions/s2", "global", "user", "sessions/s1/vp/alice", "sessions/s1"]
    given_ = [summary("x", scope, closeness=9 - at) for at, scope in enumerate(scopes)]
    ordered = ranking.in_order("resident", given_, NOW)
    assert [each.scope for each in ordered] == scopes[::-1]


def test_recent_orders_by_turn_then_kind() -> None:
    given_ = [
        candidate("a", kind, "recent", kind=kind, score=3.0) for kind in ranking.RECENT_KINDS[::-1]
    ]
    given_ += [candidate("b", "late", "recent", kind="context", score=4.0)]
    given_ += [candidate("c", "unknown", "recent", kind="mystery", score=3.0)]
    assert _ids(ranking.in_order("recent", given_, NOW)) == [
        "late",
        *ranking.RECENT_KINDS,
        "unknown",
    ]


def test_on_demand_orders_by_pin_score_date_closeness_address() -> None:
    given_ = [
        candidate("a", "z_far", score=2.0, closeness=3),
        candidate("a", "b_near", score=2.0, closeness=1),
        candidate("a", "a_near", score=2.0, closeness=1),
        candidate("a", "new", score=2.0, closeness=9, date="2026-05-01"),
        candidate("a", "best", score=2.5, closeness=9, date=None),
        candidate("a", "pin", score=0.0, closeness=9, date=None, pinned=True),
        candidate("a", "undated", score=2.0, closeness=0, date=None),
    ]
    expected = ["pin", "best", "new", "a_near", "b_near", "z_far", "undated"]
    for seed in range(20):
        random.Random(seed).shuffle(given_)
        assert _ids(ranking.in_order("on_demand", given_, NOW)) == expected


def test_scores_that_differ_only_beyond_six_digits_are_equal() -> None:
    given_ = [candidate("a", "b", score=1.0000000001), candidate("a", "a", score=1.0)]
    assert _ids(ranking.in_order("on_demand", given_, NOW)) == ["a", "b"]


def test_times_ahead_of_now_and_no_times_rank_as_undated() -> None:
    """K51: S1 ten days ahead, S2 today, S3 a year ahead, S4 no date, S5 and S6 naive and UTC."""
    dates = {
        "S1": "2026-12-11T09:00:00Z",
        "S2": "2026-12-01T09:00:00Z",
        "S3": "2027-12-01",
        "S4": "not a date",
        "S5": "2026-11-30T10:00:00",
        "S6": "2026-11-30T10:00:00Z",
    }
    given_ = [candidate("a", id, date=date) for id, date in dates.items()]
    ordered = _ids(ranking.in_order("on_demand", given_, NOW))
    assert ordered == ["S2", "S5", "S6", "S1", "S3", "S4"]
    assert ranking.day(dates["S5"], NOW) == ranking.day(dates["S6"], NOW) == "2026-11-30"


@pytest.mark.parametrize("text", ["", "2026-02-30", "20261201", "9999-99-99", "\0", "😀" * 20])
def test_an_impossible_date_is_none(text: str) -> None:
    assert ranking.day(text, NOW) in ("", "2026-12-01")


def test_one_address_in_two_layers_is_shown_once_with_the_terms_of_the_match() -> None:
    used = candidate("a", layer="recent", score=7.0)
    match = candidate("a", score=1.5, terms={"bm25": 1.5})
    pin = candidate("a", pinned=True)
    for given_ in ([used, match, pin], [pin, match, used]):
        admitted, rejected = ranking.admit(given_)
        assert rejected == ()
        (only,) = admitted
        assert (only.layer, only.score, only.pinned) == ("recent", 7.0, True)
        assert only.terms == {"bm25": 1.5}


def test_a_stale_candidate_is_rejected_unless_a_fresh_copy_is_there() -> None:
    stale = candidate("a", "s", stale=True)
    admitted, rejected = ranking.admit(
        [stale, candidate("a", "t", stale=True), candidate("a", "t")]
    )
    assert _ids(admitted) == ["t"]
    assert [(each.address, each.reason) for each in rejected] == [("sessions/s1#s", "stale")]


def _losers(*given_: Candidate) -> dict[str, str]:
    found = ranking.duplicates(given_, NOW)
    return {given_[at].id: winner.id for at, winner in found.items()}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Prefers tabs.", "prefers  TABS"),
        ("Prefers tabs.", "- Prefers\n  *tabs*"),
        ("用户喜欢深色主题。", "用户喜欢深色主题"),
        ("caf\u00e9", "cafe\u0301"),
    ],
)
def test_texts_that_differ_only_in_form_are_duplicates(one: str, other: str) -> None:
    assert len(_losers(candidate(one, "a"), candidate(other, "b"))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Use C++ here.", "Use C# here."),
        ("Retry if a < b", "Retry if a > b"),
        ("Port 8080", "Port 8081"),
        ("Do use tabs.", "Do not use tabs."),
        ("x²", "x2"),
        ("Version 1.2", "Version 12"),
    ],
)
def test_texts_that_say_something_else_are_no_duplicates(one: str, other: str) -> None:
    assert _losers(candidate(one, "a"), candidate(other, "b")) == {}


def test_a_text_of_80_characters_inside_a_longer_one_gives_way_to_it() -> None:
    longer = candidate(f"Decided last week: {_LONG} See the notes.", "long")
    assert _losers(candidate(_LONG, "part"), longer) == {"part": "long"}
    short = _LONG[:70]
    assert _losers(candidate(short, "part"), longer) == {}


def test_unspaced_scripts_count_their_characters_for_the_80() -> None:
    text = "刷新令牌在每次使用时都会轮换旧令牌的重用会撤销整个令牌族" * 2  # 56 characters
    assert _losers(candidate(text, "part"), candidate(f"决定{text}完毕", "long")) == {}
    text = "".join(chr(0x4E00 + at) for at in range(85))
    assert _losers(candidate(text, "part"), candidate(f"决定{text}完毕", "long")) == {
        "part": "long"
    }


def test_nearly_equal_words_are_duplicates_and_the_more_detailed_copy_wins() -> None:
    words = sentence(1, 60)
    more = words.replace("word1x30", "word1x30 really")
    assert _losers(candidate(words, "a"), candidate(more, "b")) == {"a": "b"}


def test_equally_detailed_copies_go_by_date_then_closeness_then_layer_then_address() -> None:
    old = candidate(_LONG, "old", date="2026-01-01")
    new = candidate(_LONG, "new", date="2026-02-01", closeness=5)
    ahead = candidate(_LONG, "ahead", date="2030-01-01", closeness=0)
    assert _losers(old, new, ahead) == {"old": "new", "ahead": "new"}
    near = candidate(_LONG, "near", scope="user", closeness=1)
    far = candidate(_LONG, "far", scope="global", closeness=2)
    assert _losers(far, near) == {"far": "near"}
    used = candidate(_LONG, "x", layer="recent")
    assert _losers(candidate(_LONG, "a"), used) == {"a": "x"}
    assert _losers(candidate(_LONG, "b"), candidate(_LONG, "a")) == {"b": "a"}


def test_near_duplicates_of_two_scopes_are_both_kept_but_equal_texts_are_not() -> None:
    one, other = candidate(_LONG, "a"), candidate(_LONG + " Always.", "b", scope="user")
    assert _losers(one, other) == {}
    assert len(_losers(one, candidate(_LONG, "b", scope="user"))) == 1


_VOCABULARY = [f"w{n}" for n in range(9)] + ["漢", "字", "C++", "it's"]


@st.composite
def _families(draw: st.DrawFn) -> list[Candidate]:
    """Texts that are variations of a few."""
    bases = draw(
        st.lists(st.lists(st.sampled_from(_VOCABULARY), max_size=45), min_size=1, max_size=3)
    )
    found: list[Candidate] = []
    for at in range(draw(st.integers(1, 9))):
        words = list(draw(st.sampled_from(bases)))
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.integers(0, len(words)))
            words[place : place + draw(st.integers(0, 2))] = draw(
                st.lists(st.sampled_from(_VOCABULARY), max_size=2)
            )
        start = draw(st.integers(0, 3))
        scope = draw(st.sampled_from(["user", "user", "global"]))
        day = draw(st.sampled_from([None, "2026-01-01", "2026-01-02", "2031-01-01"]))
        body = " ".join(words)[start:]
        found.append(candidate(body, f"s{at}", scope=scope, date=day))
    return found


def _naive(given_: list[Candidate]) -> dict[int, Candidate]:
    """Each against each, as the ruling reads."""
    forms = [ranking.wording(each.body) for each in given_]
    order = sorted(range(len(given_)), key=lambda at: (given_[at].closeness, given_[at].address))
    order.sort(key=lambda at: ranking.day(given_[at].date, NOW), reverse=True)
    order.sort(key=lambda at: -forms[at].chars)
    kept: list[int] = []
    found: dict[int, Candidate] = {}

    def near(one: ranking.Wording, other: ranking.Wording) -> bool:
        if one.chars >= 80 and one.text in other.text:
            return True
        union = len(one.shingles | other.shingles)
        return union > 0 and len(one.shingles & other.shingles) / union >= 0.9 - 1e-9

    for at in order:
        equal = [k for k in kept if forms[k].text == forms[at].text]
        like = [
            k for k in kept if given_[k].scope == given_[at].scope and near(forms[at], forms[k])
        ]
        winner = next(iter([*equal, *like]), None)
        if winner is None:
            kept.append(at)
        else:
            found[at] = given_[winner]
    return found


@given(_families())
def test_duplicates_through_rare_shingles_are_those_found_by_comparing_all(
    given_: list[Candidate],
) -> None:
    assert ranking.duplicates(given_, NOW) == _naive(given_)


@given(_families(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    given_: list[Candidate], chance: random.Random
) -> None:
    before = {given_[at].address: w.address for at, w in ranking.duplicates(given_, NOW).items()}
    chance.shuffle(given_)
    after = {given_[at].address: w.address for at, w in ranking.duplicates(given_, NOW).items()}
    assert before == after


def test_what_is_shown_already_wins_over_more_detailed_copies() -> None:
    part, longer = candidate(_LONG, "part"), candidate(f"{_LONG} And more.", "long")
    assert ranking.duplicates([longer], NOW, [part]) == {0: part}
    assert ranking.duplicates([part], NOW, [longer]) == {0: longer}
    assert ranking.duplicates([candidate(sentence(5), "other")], NOW, [longer]) == {}


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=40), max_size=8))
def test_few_texts_and_many_are_compared_with_the_same_result(texts: list[list[str]]) -> None:
    """The short way for a few texts of a scope leaves nothing out that the long way finds."""
    candidates = [candidate(" ".join(words), f"s{n}") for n, words in enumerate(texts)]
    short = ranking.duplicates(candidates, NOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "FEW_TEXTS", 0)
        assert ranking.duplicates(candidates, NOW) == short
