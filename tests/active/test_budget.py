"""The budget of the block, its split, and cutting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from active.samples import COUNTERS, REAL
from hypothesis import given
from hypothesis import strategies as st

from h2ams.active import budget
from h2ams.active.block import LAYERS
from h2ams.errors import UsageError
from h2ams.settings import DEFAULTS

_NUMBERS = st.integers(0, 9_000)
_DEMANDS = st.fixed_dictionaries(dict.fromkeys(LAYERS, _NUMBERS))


def test_an_explicit_budget_wins_over_the_window() -> None:
    assert budget.total_budget(1_500, 8_000, DEFAULTS) == 1_500
    assert budget.total_budget(0, None, DEFAULTS) == 0


def test_without_a_budget_a_share_of_the_window_bounds_the_default() -> None:
    assert budget.total_budget(None, None, DEFAULTS) == 6_000
    assert budget.total_budget(None, 200_000, DEFAULTS) == 6_000
    assert budget.total_budget(None, 32_000, DEFAULTS) == 1_600
    assert budget.total_budget(None, 0, DEFAULTS) == 0


@pytest.mark.parametrize(("given_budget", "window"), [(-1, None), (None, -1)])
def test_a_negative_budget_or_window_is_refused(given_budget: int | None, window: int | None):
    with pytest.raises(UsageError, match="negative"):
        budget.total_budget(given_budget, window, DEFAULTS)


def test_the_split_is_forty_twentyfive_thirtyfive_and_a_setting() -> None:
    assert budget.base_shares(1_000, DEFAULTS) == {
        "resident": 400,
        "recent": 250,
        "on_demand": 350,
    }
    other = replace(DEFAULTS, share_resident=0.1, share_recent=0.1, share_on_demand=0.8)
    assert budget.base_shares(1_000, other) == {"resident": 100, "recent": 100, "on_demand": 800}


def test_unused_shares_flow_to_on_demand_then_recent_then_resident() -> None:
    def limits(resident: int, recent: int, on_demand: int) -> tuple[int, ...]:
        demand = dict(zip(LAYERS, (resident, recent, on_demand), strict=True))
        return tuple(budget.allocate(1_000, demand, DEFAULTS).values())

    assert limits(900, 900, 900) == (400, 250, 350)
    assert limits(0, 900, 900) == (0, 250, 750)  # resident lends to on-demand first
    assert limits(0, 900, 400) == (0, 600, 400)  # then to recent
    assert limits(900, 0, 400) == (600, 0, 400)  # then to resident
    assert limits(900, 300, 100) == (600, 300, 100)
    assert limits(0, 0, 0) == (400, 250, 350)


@given(total=_NUMBERS, demand=_DEMANDS)
def test_limits_always_sum_up_to_the_total(total: int, demand: dict) -> None:
    limits = budget.allocate(total, demand, DEFAULTS)
    assert sum(limits.values()) == total
    assert min(limits.values()) >= 0
    base = budget.base_shares(total, DEFAULTS)
    assert all(limits[layer] >= min(base[layer], demand[layer]) for layer in LAYERS)
    if sum(demand.values()) <= total:
        assert all(limits[layer] >= demand[layer] for layer in LAYERS)


@given(st.text(alphabet=st.sampled_from("ab\n\r `~#。! ")))
def test_paragraphs_join_to_the_text(text: str) -> None:
    assert "".join(budget.paragraphs(text)) == text


def test_a_fenced_block_is_one_paragraph() -> None:
    text = "Intro.\n\n```\ncode\n\nmore code\n```\n\nEnd."
    assert list(budget.paragraphs(text)) == [
        "Intro.\n\n",
        "```\ncode\n\nmore code\n```\n\n",
        "End.",
    ]


def _cut(text: str, limit: int, count=REAL.count, marker: str = "[cut]") -> str | None:
    return budget.cut_to_fit(text, limit, count, lambda beginning: f"{beginning}\n{marker}")


def test_a_text_is_cut_at_a_paragraph() -> None:
    text = "First one here.\n\nSecond one here.\n\nThird one here."
    whole = REAL.count(f"{text}\n[cut]")
    assert _cut(text, whole - 1) == "First one here.\n\nSecond one here.\n[cut]"
    assert _cut(text, 9) == "First one here.\n[cut]"


def test_a_single_paragraph_is_cut_at_a_line_or_a_sentence() -> None:
    assert _cut("One.\nTwo two two two.\nThree.", 5) == "One.\n[cut]"
    assert _cut("One. Two two two two two.", 5) == "One.\n[cut]"
    assert _cut("用户喜欢深色主题。请使用两个空格缩进。", 16) == "用户喜欢深色主题。\n[cut]"


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5])
def test_a_marker_never_makes_a_text_longer_than_its_limit(limit: int) -> None:
    """K130"""
    assert (_cut("hello world", limit) or "") == ""
    assert (_cut("hello. world", limit, marker="[a marker longer than the limit]") or "") == ""


@pytest.mark.parametrize("limit", range(1, 61))
def test_cutting_leaves_no_half_character(limit: int) -> None:
    """K131, with sentences between the clusters so that there is something to cut."""
    text = "🎉👩‍👩‍👧é漢。" * 50
    kept = _cut(text, limit, marker="…")
    if kept is not None:
        beginning = kept.removesuffix("\n…")
        assert text.startswith(beginning) and beginning.endswith("漢。")
        assert REAL.count(kept) <= limit
        kept.encode("utf-8")


@given(
    text=st.text(alphabet=st.sampled_from("ab .\n。`")), limit=st.integers(0, 40), data=st.data()
)
def test_a_cut_text_fits_and_is_a_beginning(text: str, limit: int, data: st.DataObject) -> None:
    counting = data.draw(st.sampled_from(COUNTERS))
    kept = _cut(text, limit, counting.count)
    if kept is not None:
        assert counting.count(kept) <= limit
        assert text.startswith(kept.removesuffix("\n[cut]"))
