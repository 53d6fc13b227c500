"""The hard cap, what is shown, and what the receipt says about the rest."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace

import pytest
from active.samples import (
    COUNTERS,
    NOW,
    REAL,
    Nasty,
    Words,
    build,
    candidate,
    reasons,
    sentence,
    shown,
    summary,
)
from hypothesis import given
from hypothesis import strategies as st

from h2ams.active import render
from h2ams.active.block import LAYERS, Candidate, Rejection
from h2ams.settings import DEFAULTS

_PARTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "</memory-context>",
            "<memory-context>",
            "[user#seg_x · fact · 2026-01-01]",
            "<private>code</private>",
            "<|endoftext|>",
            "```\n",
            "\n\n",
            "用户喜欢深色主题。" * 8,
            "🎉👩‍👩‍👧é漢" * 5,
            " a" * 100,
            "x" * 300,
            "A sentence of ordinary words. " * 6,
        ]
    ),
)
_BODIES = st.lists(_PARTS, min_size=1, max_size=6).map("".join)


@st.composite
def _candidates(draw: st.DrawFn) -> list[Candidate]:
    found: list[Candidate] = []
    for at in range(draw(st.integers(0, 12))):
        layer = draw(st.sampled_from(LAYERS))
        body = draw(_BODIES)
        scope = draw(st.sampled_from(["user", "sessions/s1", "sessions/s1/vp/alice", "topic/a"]))
        fields = {
            "scope": scope,
            "closeness": draw(st.integers(0, 3)),
            "date": draw(st.sampled_from([None, "2026-04-30", "2035-01-01"])),
            "tokens": draw(st.sampled_from([0, 0, 5, REAL.count(body)])),
        }
        if layer == "resident":
            found.append(summary(body, **fields))
        else:
            score = float(draw(st.integers(0, 3)))
            id = f"seg_{draw(st.integers(0, 9))}"
            source = draw(st.sampled_from([None, "s9"]))
            pinned = draw(st.booleans())
            found.append(
                candidate(
                    body, id, layer, score=score, source_session=source, pinned=pinned, **fields
                )
            )
        assert at < 12
    return found


_TOTALS = st.one_of(st.integers(0, 120), st.integers(0, 8_000))


@given(
    given_=_candidates(),
    total=_TOTALS,
    counter=st.sampled_from(COUNTERS),
    language=st.sampled_from(["en", "zh"]),
)
def test_no_block_ever_exceeds_its_budget(given_, total, counter, language) -> None:
    block = build(given_, total, counter=counter, language=language)
    receipt = block.receipt
    assert counter.count(block.text) <= total or block.text == ""
    assert block.tokens == (counter.count(block.text) if block.text else 0)
    assert sum(layer.limit for layer in receipt.layers.values()) <= total
    used = 0
    for name in LAYERS:
        layer = receipt.layers[name]
        assert layer.used == sum(item.tokens for item in layer.items) <= layer.limit
        used += layer.used
    assert receipt.frame_tokens == block.tokens - used
    assert not block.text or block.text.startswith("<memory-context>\n")
    addresses = {each.address for each in given_}
    assert addresses == {*shown(block)} | {each.address for each in receipt.rejected}
    block.text.encode("utf-8")
    json.dumps(receipt.to_json())


@given(given_=_candidates(), total=_TOTALS, chance=st.randoms(use_true_random=False))
def test_equal_input_in_any_order_gives_identical_bytes(
    given_: list[Candidate], total: int, chance: random.Random
) -> None:
    distinct = list({(each.address, each.is_summary): each for each in given_}.values())
    before = build(distinct, total, counter=Words())
    chance.shuffle(distinct)
    after = build(distinct, total, counter=Words())
    assert before == after


@given(given_=_candidates(), total=st.integers(60, 8_000))
def test_each_items_tokens_count_its_own_text(given_: list[Candidate], total: int) -> None:
    block = build(given_, total)
    bodies = {(each.address, each.is_summary): each for each in given_}
    for name in LAYERS:
        for item in block.receipt.layers[name].items:
            whole = bodies.get((item.address, name == "resident"))
            if (
                item.cut
                or whole is None
                or len([c for c in given_ if c.address == item.address]) > 1
                or whole.tokens not in (0, REAL.count(whole.body))  # a wrong count is believed
            ):
                continue
            label = render.label(whole, render.ENGLISH)
            text = render.item(label, render.safe_body(whole.body))
            assert text in block.text
            assert item.tokens == REAL.count(text)


@pytest.mark.parametrize("counter", COUNTERS, ids=lambda each: each.name)
def test_below_the_empty_fence_the_block_is_the_empty_string(counter) -> None:
    fence = counter.count(render.frame([], render.ENGLISH))
    given_ = [candidate("Word.", "a"), summary("S.")]
    for total in range(fence + 1):
        block = build(given_, total, counter=counter)
        assert (block.text, block.tokens) == ("", 0)
        assert set(reasons(block).values()) == {"budget"}


def test_without_anything_to_show_the_block_is_the_empty_string() -> None:
    block = build([])
    assert (block.text, block.tokens, shown(block)) == ("", 0, [])
    assert sum(layer.limit for layer in block.receipt.layers.values()) <= 1_500


def test_what_is_dropped_is_listed_in_a_deterministic_order() -> None:
    """K128: room for three of seven."""
    given_ = [candidate(sentence(at), f"seg_{at}", score=float(7 - at)) for at in range(7)]
    whole = build(given_, 10_000)
    item = whole.receipt.layers["on_demand"].items[0].tokens
    total = whole.tokens - 4 * item + 30  # three items and the notice
    expected = [("sessions/s1#seg_" + str(at), "budget") for at in (3, 4, 5, 6)]
    for seed in range(10):
        random.Random(seed).shuffle(given_)
        block = build(given_, total)
        assert [each[-1] for each in shown(block)] == ["0", "1", "2"]
        assert [(each.address, each.reason) for each in block.receipt.rejected] == expected


@pytest.mark.parametrize("known", [True, False])
def test_three_thousand_candidates_leave_a_bounded_notice_inside_the_budget(known: bool) -> None:
    """K55"""
    bodies = [sentence(at, 8) for at in range(3_000)]
    given_ = [
        candidate(body, f"seg_{at:04}", tokens=REAL.count(body) if known else 0)
        for at, body in enumerate(bodies)
    ]
    block = build(given_, 400)
    assert REAL.count(block.text) == block.tokens <= 400
    left = 3_000 - len(shown(block))
    assert f"(and {left} more, left out for space)" in block.text
    assert len(block.receipt.rejected) == left > 2_990 - 10
    assert block.tokens > 300


def test_the_notice_counts_what_was_left_out_before_too_but_nothing_forbidden() -> None:
    given_ = [candidate(sentence(at), f"seg_{at}") for at in range(9)]
    before = [
        Rejection("user#seg_b", "budget"),
        Rejection("user#seg_g", "below-gate"),
        Rejection("vp/x#seg_p", "acl"),
    ]
    block = build(given_, 900, rejected=before)
    left = 9 - len(shown(block))
    assert left > 0 and f"(and {left + 1} more, " in block.text
    assert [each.reason for each in block.receipt.rejected[left:]] == [
        "acl",
        "below-gate",
        "budget",
    ]


def test_packing_is_greedy_by_rank_and_a_smaller_later_item_may_still_fit() -> None:
    given_ = [
        candidate(sentence(1, 20), "first", score=4.0),
        candidate(sentence(2, 200), "huge", score=3.0),
        candidate(sentence(3, 20), "small", score=2.0),
    ]
    block = build(given_, 500)
    assert [each.rpartition("#")[2] for each in shown(block)] == ["first", "small"]
    assert reasons(block) == {"sessions/s1#huge": "budget"}


@given(st.lists(st.integers(1, 60), min_size=1, max_size=15), st.integers(60, 500))
def test_nothing_is_left_out_that_would_have_fitted(lengths: list[int], total: int) -> None:
    given_ = [
        candidate(sentence(at, length), f"seg_{at:02}", LAYERS[1 + at % 2])
        for at, length in enumerate(lengths)
    ]
    block = build(given_, total, counter=Words())
    receipt = block.receipt
    free = sum(layer.limit - layer.used for layer in receipt.layers.values())
    sizes = {each.address: Words().count(each.body) + 5 for each in given_}  # label: 5 words
    for each in receipt.rejected:
        assert sizes[each.address] > free


def test_unused_shares_are_lent() -> None:
    matches = [candidate(sentence(at), f"seg_{at:02}", score=float(-at)) for at in range(40)]
    layers = build(matches, 1_500).receipt.layers
    assert layers["on_demand"].used > 1_300 > 0.35 * 1_500
    assert layers["resident"].limit + layers["recent"].limit < 100
    recent = [candidate(sentence(100 + at), f"u_{at:02}", "recent") for at in range(40)]
    layers = build([*matches, *recent], 1_500).receipt.layers
    assert 0.65 * 1_400 < layers["on_demand"].limit < 0.85 * 1_500
    assert 0.15 * 1_500 < layers["recent"].limit < 0.35 * 1_500


def test_a_resident_summary_too_long_for_its_share_is_cut_at_a_paragraph_with_a_notice() -> None:
    text = "\n\n".join(sentence(at, 12) for at in range(30))
    matches = [candidate(sentence(100 + at), f"seg_{at:02}") for at in range(40)]
    block = build([summary(text, tokens=REAL.count(text)), *matches], 1_500)
    (item,) = block.receipt.layers["resident"].items
    assert item.cut and item.tokens <= block.receipt.layers["resident"].limit <= 0.45 * 1_500
    shown_text = block.text.partition("summary · 2026-04-30]\n")[2].partition("\n(cut here")[0]
    assert text.startswith(shown_text + "\n\n") and "(cut here for space)" in block.text
    assert item.tokens > 0.3 * 1_500


def test_segments_are_never_cut() -> None:
    block = build([candidate("\n\n".join(sentence(at) for at in range(20)))], 500)
    assert block.text == "" and set(reasons(block).values()) == {"budget"}


def test_residents_stand_in_order_of_closeness_related_sessions_last() -> None:
    given_ = [
        summary("Related.", "sessions/s9", closeness=9, source_session="s9"),
        summary("Person.", "user", closeness=7),
        summary("Session.", "sessions/s1", closeness=0),
        summary("Role.", "sessions/s1/vp/alice", closeness=1),
    ]
    assert [each.removesuffix("#summary") for each in shown(build(given_))] == [
        "sessions/s1",
        "sessions/s1/vp/alice",
        "user",
        "sessions/s9",
    ]


_FACT = "Refresh tokens rotate on every use and re-use of an old one revokes the whole family."


def test_the_same_text_is_never_shown_twice_across_layers() -> None:
    given_ = [
        summary(f"The session is about sign-in.\n\n{_FACT}\n\nNothing else."),
        candidate(_FACT, "used", "recent"),
        candidate(_FACT.upper(), "match"),
        candidate("Something else entirely.", "other"),
    ]
    block = build(given_)
    assert block.text.casefold().count("refresh tokens rotate") == 1
    assert shown(block) == ["sessions/s1#summary", "sessions/s1#other"]
    details = {each.address: (each.reason, each.detail) for each in block.receipt.rejected}
    assert details == {
        "sessions/s1#used": ("duplicate", "sessions/s1#summary"),
        "sessions/s1#match": ("duplicate", "sessions/s1#summary"),
    }


def test_the_more_detailed_copy_wins_whatever_its_layer() -> None:
    given_ = [
        candidate(_FACT, "short", "recent"),
        candidate(f"{_FACT} Decided by the security group.", "long"),
    ]
    block = build(given_)
    assert shown(block) == ["sessions/s1#long"]


def test_a_shorter_copy_is_shown_where_the_more_detailed_one_does_not_fit() -> None:
    given_ = [
        candidate(_FACT, "short", "recent"),
        candidate(f"{_FACT} {sentence(1, 100)}", "long"),
        candidate(f"{_FACT} Indeed.", "short2", "recent"),
    ]
    block = build(given_, 300)
    assert len(shown(block)) == 1 and shown(block)[0].startswith("sessions/s1#short")
    assert reasons(block)["sessions/s1#long"] == "budget"
    assert sorted(reasons(block).values()) == ["budget", "duplicate"]


def test_a_match_is_shown_where_its_copy_in_a_summary_was_cut_off() -> None:
    text = "\n\n".join([*(sentence(at, 20) for at in range(20)), _FACT])
    block = build([summary(text), candidate(_FACT, "match", tokens=REAL.count(_FACT))], 900)
    assert block.receipt.layers["resident"].items[0].cut
    assert shown(block) == ["sessions/s1#summary", "sessions/s1#match"]
    assert block.text.count(_FACT) == 1


def test_rejections_from_outside_are_listed_once_and_not_for_what_is_shown() -> None:
    outside = [
        Rejection("user#b", "evicted"),
        Rejection("user#a", "evicted"),
        Rejection("user#a", "evicted"),
        Rejection("sessions/s1#seg_1", "below-gate"),
    ]
    block = build([candidate("Body."), candidate("x", "old", stale=True)], rejected=outside)
    assert [(each.address, each.reason) for each in block.receipt.rejected] == [
        ("user#a", "evicted"),
        ("user#b", "evicted"),
        ("sessions/s1#old", "stale"),
    ]


def test_a_counter_that_charges_more_for_the_whole_drops_the_lowest_ranked_first() -> None:
    given_ = [candidate(sentence(at, 10), f"seg_{at}", score=float(-at)) for at in range(20)]
    block = build(given_, 200, counter=Nasty())
    kept = shown(block)
    assert 0 < len(kept) < 20 and Nasty().count(block.text) <= 200
    assert kept == [f"sessions/s1#seg_{at}" for at in range(len(kept))]


def test_the_receipt_has_stable_keys() -> None:
    block = build([candidate("Body.", terms={"recency": 0.1, "bm25": 1.0}, score=1.1)])
    document = block.receipt.to_json()
    assert list(document) == [
        "query",
        "budget",
        "tokens",
        "frame_tokens",
        "now",
        "encoding",
        "language",
        "layers",
        "rejected",
    ]
    layers = document["layers"]
    assert isinstance(layers, dict) and list(layers) == list(LAYERS)
    assert layers["on_demand"]["items"][0]["terms"] == {"bm25": 1.0, "recency": 0.1}
    assert (document["encoding"], document["now"]) == (REAL.name, NOW)
    assert json.loads(json.dumps(document)) == document


def test_a_receipt_cannot_claim_more_than_its_budget() -> None:
    block = build([candidate("Body.")])
    with pytest.raises(ValueError, match="exceeds"):
        replace(block, budget=3)


def test_settings_change_the_split() -> None:
    many = [
        candidate(sentence(at), f"seg_{at:02}", LAYERS[1 + at % 2], score=float(-at))
        for at in range(60)
    ]
    settings = replace(DEFAULTS, share_resident=0.0, share_recent=0.9, share_on_demand=0.1)
    layers = build(many, 1_500, settings=settings).receipt.layers
    assert layers["recent"].used > 5 * layers["on_demand"].used > 0


def test_no_line_of_the_text_names_the_time_of_the_call() -> None:
    text = build([candidate("Body.", date=None)]).text
    assert not re.search(r"\d{4}-\d\d-\d\d", text)


class _Counting:
    """The real counter; remembers how much text was counted."""

    name = "counting"

    def __init__(self) -> None:
        self.chars = 0

    def count(self, text: str) -> int:
        self.chars += len(text)
        return REAL.count(text)

    def cut(self, text: str, limit: int) -> str:
        return REAL.cut(text, limit)


@pytest.mark.parametrize("known", [True, False])
def test_what_cannot_fit_is_hardly_counted(known: bool) -> None:
    bodies = [sentence(at, 1_000) for at in range(100)]
    given_ = [candidate(b, f"seg_{at}", tokens=4_000 * known) for at, b in enumerate(bodies)]
    counter = _Counting()
    block = build([*given_, candidate("Small.", "small")], 400, counter=counter)
    assert shown(block) == ["sessions/s1#small"]
    assert counter.chars < sum(map(len, bodies)) * (0.01 if known else 0.4)
