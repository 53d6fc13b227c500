"""Ten thousand questions: whatever is asked, nothing raises, and only what was asked for is found.

The corpus and the noise share no piece of text (a test holds them to it), so what each question
must give is known: noise alone gives nothing; with one stored word it gives the segments that hold
the word.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases.kit import opened, segments, silent, write

from h2ams import Access, Memory, Recall
from h2ams.text.words import fold

SHARDS, PER_SHARD = 10, 1000
SCOPE = "sessions/m"

# Script: a sentence that all its segments share, and words of which each has one.
SCRIPTS = {
    "Latin": ("the keeper feeds seven gulls", "umbrella glimmer whisper hubbub pebble"),
    "accents": ("łódki płyną spokojnie", "gołąb ağustos ångström déjà búho"),
    "Cyrillic": ("кошка спит дома", "жираф лестница укроп щука велосипед"),
    "Greek": ("η γάτα κοιμάται", "μέλι θάλασσα ψάρι ξύλο καράβι"),
    "Han": ("这里写着同样内容", "用户认证 微信读书 长城 熊猫 咖啡"),
    "Kana": ("これはおなじぶんです", "しりとり カメラ むらさき データベース ヨーグルト"),
    "Hangul": ("고양이가 잡니다", "도서관 비행기 수박 자전거 피아노"),
    "Thai": ("แมวหลับ", "กล้วย ภูเขา จักรยาน ดนตรี หนังสือ"),
    "Arabic": ("القطة نائمة هنا", "برتقال سفينة زجاج مكتبة ضفدع"),
    "Hebrew": ("החתול ישן בבית", "ספרייה תפוז אופניים שוקולד גשם"),
    "Devanagari": ("बिल्ली सोती है", "पुस्तकालय साइकिल नारियल चश्मा हाथी"),
    "symbols": ("small pictures", "🎵 🐢 🚀 ☂ 🍉"),
}
BODIES = [f"{sentence} {word}" for sentence, words in SCRIPTS.values() for word in words.split()]
WORDS = [body.rsplit(" ", 1)[1] for body in BODIES]

# What FTS5 or SQL would take for syntax, and what no word is.
SYNTAX = [
    "AND", "OR", "NOT", "NEAR", "near", "and", "or", "not", "NEAR(", "NEAR(zq qz, 5)", "NEAR/3",
    "AND NOT", "tags:zq", "words:", "{words forms}:zq", "labels : zq", "-labels:zq", "^zq", "^",
    "zq*", "*", "**", "* *", '"', '""', '"zq', 'zq"', '"zq qz"', '"""', "''", "'", "(", ")",
    "()", "((", "(zq", "zq)", "zq + qz", "+", "-", "--", "---", "-zq", "[", "]", "[zq]", "{",
    "}", "<zq>", "|", "||", "&", "&&", "!", "~", "\\", "\\\\", "/", "%", "_", "zq_qz", "zq-qz",
    "zq.qz", "zqQz", ";", "; DROP TABLE memory_fts; --", "' OR 1=1", "rowid:5",
    "rank MATCH 'zq'", "/*", "*/", "#", "$zq", "@zq", "${zq}", "`zq`", "zq=qz", "0", "5",
    "3.14", "0x0", "NULL", "%00", "&amp;", "</memory-context>", "```", "zq:qz:zqq", "?", "??",
    "…", "—",
]  # fmt: skip
ODD = [
    "\0", "\0\0\0", "\x01", "\x1b[31m", "\x7f", "\x85", "\xad", "\u200b", "\u200d", "\u200f",
    "\u202e", "\u2066", "\u2028", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\ue000",
    "\U000e0001", "\U0010ffff", "\ud800", "\udfff\ud800", "\u0301", "q\u0308\u0323", "\u17ca",
    "ｚｑ", "𝔷𝔮", "ⓩ", "ﷺ", "ẞq", "¿", "“zq”", "«", "「", "（", "，", "。", "՞", "🦄",
    "🏴\u200d☠️", "🇩🇪", "👩\u200d👩\u200d👧", "ჟღჯ", "ժճջ", "ழஃ", "ꙮ", "龘", "龘靐", "ヰヱ",
    "쀍쀋", "ឋៗ", "ໝ", "ဩဪ", "ჯ\u0301", "\U0001d11e", "x", "zq", "qzx", "xqz" * 40,
]  # fmt: skip
NOISE = SYNTAX + ODD
FUNCTION_WORDS = ["the", "of", "what", "is", "The", "WHAT"]
SEPARATORS = [" ", "  ", "\n", "\t", "\r\n", "\xa0", "\u3000", " - ", " \0 ", " , "]


def noise(random: random.Random) -> str:
    parts = [random.choice(NOISE) for _ in range(random.randint(1, 8))]
    return "".join(part + random.choice(SEPARATORS) for part in parts)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    write(root, f"{SCOPE}/memory.md", segments(*BODIES))
    return root


@pytest.fixture
def memory(corpus: Path) -> Iterator[Memory]:
    with opened(corpus) as memory, silent():
        yield memory


def asked(memory: Memory, query: str, access: Access | None = None) -> Recall:
    found = memory.recall(query, access=access, limit=1000)
    assert found.degraded == () and found.query == query
    assert len({hit.record.address for hit in found.hits}) == len(found.hits)
    assert all(hit.matched and (hit.score > 0 or found.relaxed) for hit in found.hits)
    return found


def found_ids(found: Recall) -> set[str]:
    return {hit.record.id for hit in found.hits}


def holding(word: str) -> set[str]:
    return {f"S{number}" for number, body in enumerate(BODIES, 1) if word in body.split()}


def test_corpus_and_noise_share_nothing() -> None:
    text = fold(" ".join(BODIES))
    for piece in NOISE:
        for part in "".join(c if c.isalnum() else " " for c in fold(piece)).split():
            assert part not in text, part
    for word in WORDS:
        assert len(holding(word)) == 1
    for script in ("Han", "Kana", "Hangul", "Thai"):  # found by pairs of characters
        for word in SCRIPTS[script][1].split():
            for pair in {word[at : at + 2] for at in range(len(word) - 1)}:
                assert sum(pair in body for body in BODIES) == 1, (word, pair)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_thousand_questions_find_what_was_asked_for_and_nothing_else(
    memory: Memory, shard: int
) -> None:
    draw = random.Random(shard)
    for number in range(PER_SHARD):
        access = Access(session="m") if number % 7 else None
        kind = number % 10
        if kind < 3:
            query, wanted = noise(draw), set()
        elif kind < 8:
            word = draw.choice(WORDS)
            mark = draw.choice(["", "", *string.punctuation])
            asking = draw.choice([f"{mark}{word}", f"{word}{mark}", f"{mark}{word}{mark}"])
            parts = [noise(draw), asking + draw.choice(SEPARATORS), noise(draw)]
            if word.isascii():
                parts.append(draw.choice(FUNCTION_WORDS))
            query, wanted = "".join(parts[draw.randint(0, 1) :]), holding(word)
        else:
            assert_no_harm(asked(memory, anything(draw), access))
            continue
        found = asked(memory, query, access)
        assert found_ids(found) == wanted, (query, found.keywords)


def anything(draw: random.Random) -> str:
    """Random characters of all planes, pieces of the corpus and of the noise among them."""
    length = draw.choice([0, 1, 2, 3, 5, 8, 20, 60])
    pieces = []
    for _ in range(length):
        match draw.randint(0, 4):
            case 0:
                pieces.append(chr(draw.randrange(0x110000)))
            case 1:
                pieces.append(chr(draw.randrange(0x3000)))
            case 2:
                pieces.append(draw.choice(string.printable))
            case 3:
                pieces.append(draw.choice(draw.choice(BODIES)))
            case _:
                pieces.append(draw.choice(NOISE))
    return "".join(pieces)


def assert_no_harm(found: Recall) -> None:
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)


LONG = {
    "a word and nothing": "umbrella " + " " * 100_000,
    "a word and noise": "umbrella " + "zq qz " * 20_000,
    "a word and distinct noise": "umbrella " + " ".join(f"zq{n}" for n in range(15_000)),
    "nul": "\0" * 100_000,
    "quotes": '"' * 100_000,
    "open": "(" * 100_000,
    "stars": "*" * 100_000,
    "letters": "x" * 100_000,
    "joined": "x-" * 50_000,
    "camel": "xQ" * 50_000,
    "marks": "q" + "\u0301" * 100_000,
    "joiners": "\u200d" * 100_000,
    "backslashes": "\\" * 100_000,
    "operators": "NOT AND OR NEAR( " * 6_000,
    "phrases": '"zq qz" ' * 12_000,
    "prefixes": " ".join(f"zq{n}*" for n in range(12_000)),
    "han": "龘靐" * 50_000,
    "emoji": "🦄" * 50_000,
    "surrogates": "\ud800" * 100_000,
    "all words": " ".join(WORDS * 100),
    "function words": "the of what is " * 7_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_question_of_a_hundred_kilobytes_is_a_question(memory: Memory, name: str) -> None:
    found = asked(memory, LONG[name])
    if "umbrella" in LONG[name] and name != "all words":
        assert found_ids(found) == holding("umbrella")
    elif name == "all words":
        assert found.hits != () and found.dropped_terms != ()
    elif name == "function words":
        assert 0 < len(found.hits) < len(BODIES)
    else:
        assert found.hits == ()


ONLY_FUNCTION_WORDS = ["the", "what is the", "и", "и не на", "και το", "的", "はの", "is it not"]


@pytest.mark.parametrize("query", [*ONLY_FUNCTION_WORDS, *NOISE, "", " ", "\n", "\0"])
def test_no_question_ever_gives_everything(memory: Memory, query: str) -> None:
    for access in (None, Access(session="m"), Access(chat="m"), Access()):
        found = asked(memory, query, access)
        assert len(found.hits) < len(BODIES)
        if access is not None and access.session is None:
            assert found.hits == ()
