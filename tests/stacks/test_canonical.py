"""The canonical text: one form, additive lengths, nothing in a text taken for a label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import UsageError
from h2ams.stacks import canonical
from h2ams.stacks.exchange import Exchange, Round, Summary

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30) | st.sampled_from(
    ["", "\n\n", "[user 3]\nabc\n\n", "[summary 0]\n\n\n", "[assistant 12]", "😀\u0301", "\0"]
)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS), max_size=5)


def summary_of(text: str) -> Summary:
    return Summary(text, "call-0001", "0" * 64, 1, 1, 1, "2026-12-01T12:00:00.000+00:00")


@given(pairs=PAIRS, first=st.none() | TEXTS.filter(str.strip))
def test_the_form_can_be_read_back(pairs: list[tuple[str, str]], first: str | None) -> None:
    exchanges = [Exchange(user, assistant) for user, assistant in pairs]
    summary = None if first is None else summary_of(first)
    text = canonical.text_of(summary, exchanges)
    assert canonical.parse(text) == (first, tuple(pairs))


@given(pairs=PAIRS, first=st.none() | TEXTS.filter(str.strip))
def test_lengths_are_counted_in_code_points_and_add_up(
    pairs: list[tuple[str, str]], first: str | None
) -> None:
    exchanges = [Exchange(user, assistant) for user, assistant in pairs]
    summary = None if first is None else summary_of(first)
    assert canonical.chars_of(summary, exchanges) == len(canonical.text_of(summary, exchanges))


def test_the_summary_comes_first_then_each_exchange_labelled_and_separated() -> None:
    text = canonical.text_of(summary_of("so far"), [Exchange("é?", "yes\n"), Exchange("", "b")])
    assert text == (
        "[summary 6]\nso far\n\n"
        "[user 2]\né?\n\n[assistant 4]\nyes\n\n\n"
        "[user 0]\n\n\n[assistant 1]\nb\n\n"
    )


def test_a_synthetic_exchange_looks_like_any_other() -> None:
    plain, synthetic = Exchange("a", "b", "r1"), Exchange("a", "b", "r1", synthetic=True)
    assert canonical.exchange_text(plain) == canonical.exchange_text(synthetic)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[user 1]\na\n\n",
        "[user 1]\na\n\n[user 1]\na\n\n",
        "[user 5]\na\n\n",
        "[user 01]\na\n\n[assistant 1]\nb\n\n",
        "[user 1]\na\n\n[assistant 1]\nb\n\n[summary 1]\nc\n\n",
        "[user 99999999999999999999]\na\n\n",
    ],
)
def test_another_text_is_no_canonical_text(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        canonical.parse(text)
    assert "a\n" not in str(caught.value)


@pytest.mark.parametrize("bad", ["\ud800", "a\udfff"])
def test_a_text_that_utf8_cannot_hold_is_refused_without_quoting_it(bad: str) -> None:
    for make in (
        lambda: Exchange(bad, "b"),
        lambda: Exchange("a", bad),
        lambda: Round("r", bad, "b"),
        lambda: Round(bad, "a", "b"),
        lambda: summary_of(bad),
    ):
        with pytest.raises(UsageError) as caught:
            make()
        assert bad not in str(caught.value)


def test_texts_do_not_show_up_in_a_repr() -> None:
    values = [Exchange("MARK", "MARK"), Round("r1", "MARK", "MARK"), summary_of("MARK")]
    assert "MARK" not in repr(values)
