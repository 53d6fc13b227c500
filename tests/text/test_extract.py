"""The extractive digest: bounded, whole sentences, deterministic, any script."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from h2ams.text.extract import extract
from h2ams.text.sentences import sentences

STORY = (
    "The importer reads the archive in chunks. "
    "Chunks of the archive are checked against their digest. "
    "It was raining. "
    "Never write a chunk of the archive before its digest is checked. "
    "Somebody laughed. "
    "The importer stops at the first chunk that fails."
)
RUSSIAN = (
    "Импортёр читает архив частями. Шёл дождь. Никогда не пиши часть без проверки. Кто-то смеялся."
)
CHINESE = "导入器分块读取归档。下雨了。绝不在校验之前写入分块。有人笑了。"


def test_a_short_text_comes_back_as_it_is() -> None:
    assert extract("  two words \n", most_chars=20) == "two words"


def test_the_digest_holds_the_most_telling_sentences_in_their_order() -> None:
    digest = extract(STORY, most_chars=110)
    assert "Never write a chunk of the archive before its digest is checked." in digest
    assert "It was raining." not in digest
    kept = digest.split("\n")
    assert kept == [each for each in sentences(STORY) if each in kept]


def test_other_scripts_are_condensed_alike() -> None:
    assert "Никогда не пиши часть без проверки." in extract(RUSSIAN, most_chars=70)
    assert "绝不在校验之前写入分块。" in extract(CHINESE, most_chars=24)


def test_repetitions_are_taken_once() -> None:
    text = "Same line about the index here. " * 50 + "Another line about the log there."
    digest = extract(text, most_chars=200)
    assert digest.count("Same line") == 1 and "Another line" in digest


def test_one_endless_sentence_is_cut_with_a_marker() -> None:
    digest = extract("word " * 500, most_chars=40)
    assert digest.endswith("…") and 20 < len(digest) <= 40


@given(st.text(max_size=400), st.integers(-1, 200))
def test_a_digest_never_exceeds_its_length_and_is_stable(text: str, most_chars: int) -> None:
    digest = extract(text, most_chars=most_chars)
    assert len(digest) <= max(0, most_chars)
    assert extract(text, most_chars=most_chars) == digest
    assert extract(digest, most_chars=most_chars) == digest


@given(st.lists(st.sampled_from(sentences(STORY + "\n" + RUSSIAN + "\n" + CHINESE)), max_size=20))
def test_every_whole_sentence_of_a_digest_stands_in_the_text(lines: list[str]) -> None:
    text = "\n".join(lines)
    for line in extract(text, most_chars=120).split("\n"):
        assert line.removesuffix("…").rstrip() in text
