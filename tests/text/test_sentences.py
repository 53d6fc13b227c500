"""Sentences of any script, and clipping to a length."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from h2ams.text.sentences import clip, sentences, squeeze

FAMILY = "👨‍👩‍👧"


def test_sentences_end_at_stops_of_several_scripts() -> None:
    assert sentences("One. Two! Three? Four… Five") == ["One.", "Two!", "Three?", "Four…", "Five"]
    assert sentences("先读文件。再写！好吗？") == ["先读文件。", "再写！", "好吗？"]
    assert sentences("Первое. Второе! третье") == ["Первое.", "Второе! третье"]
    assert sentences("पहला। दूसरा।") == ["पहला।", "दूसरा।"]


def test_numbers_versions_abbreviations_and_addresses_are_not_cut() -> None:
    whole = "Use Python 3.11, e.g. from https://a.b/c?d=1.2 at 10.5 ms, cf. Fig. 3"
    assert sentences(whole) == [whole]
    assert sentences("J. R. Smith agreed. Go on.") == ["J. R. Smith agreed.", "Go on."]


def test_lines_end_sentences_and_fenced_code_is_kept_by_line() -> None:
    text = "Intro\n\n```py\nx = 1. if a else 2. # A. B.\n```\nEnd. Fin."
    assert sentences(text) == [
        "Intro",
        "```py",
        "x = 1. if a else 2. # A. B.",
        "```",
        "End.",
        "Fin.",
    ]


@given(st.text(max_size=300))
def test_sentences_lose_no_word(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@given(st.text(max_size=200), st.integers(0, 60))
def test_clip_never_exceeds_the_length(text: str, most_chars: int) -> None:
    clipped = clip(text, most_chars)
    assert len(clipped) <= most_chars or clipped == text
    assert len(clipped) <= max(most_chars, 0) or len(text) <= most_chars


def test_clip_cuts_no_character_in_two() -> None:
    for most in range(1, 12):
        kept = clip(FAMILY * 3, most).removesuffix("…")
        assert kept in ("", FAMILY, FAMILY * 2, FAMILY * 3)
    assert clip("e\u0301e\u0301e\u0301", 4, "") == "e\u0301e\u0301"
    assert clip("🇩🇪🇫🇷🇮🇹", 4, "") == "🇩🇪🇫🇷"[:4]
    assert clip("🇩🇪🇫🇷🇮🇹", 3, "") == "🇩🇪"


def test_clip_prefers_a_blank_and_leaves_the_marker_out_where_it_has_no_room() -> None:
    assert clip("some longer words here", 14) == "some longer…"
    assert clip("abcdef", 1) == "a"
    assert clip("abcdef", 3, "...") == "abc"
    assert clip("abc", 3) == "abc"
    assert clip("abc", 0) == ""


def test_squeeze_leaves_one_line() -> None:
    assert squeeze("  a \n\t b\u2028c ") == "a b c"
