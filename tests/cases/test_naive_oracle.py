"""Recall next to an oracle that knows no index: the same matches with the same BM25."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from cases.kit import few, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, Memory, Settings
from h2ams.text.words import Term, analyse, parse_query

K1, B = 1.3, 0.6
GENEROUS = Settings(
    encoding="estimate",
    bm25_k1=K1,
    bm25_b=B,
    rerank_count=1_000_000,
    query_terms_count=1_000,
    gate_share=1.0,  # no word is too common to be a match by itself
    weight_context=0.0,  # a text counts by itself
    weight_related=0.0,
    weight_tag=0.0,
    weight_exact=0.0,
    weight_phrase=0.0,
    weight_closeness=0.0,
    weight_recency=0.0,
)


@dataclass(frozen=True)
class Text:
    """A segment as the oracle sees it: words in order, other forms of them, words of its labels."""

    words: list[str]
    forms: list[str]
    labels: list[str]

    def times(self, term: Term) -> int:
        """Occurrences of the term among the words (or forms: one), and one more for a label."""
        if len(term.tokens) > 1:
            wanted, length = list(term.tokens), len(term.tokens)
            places = range(len(self.words) - length + 1)
            return sum(self.words[at : at + length] == wanted for at in places)
        said = self.among(self.words, term) or min(1, self.among(self.forms, term))
        return said + min(1, self.among(self.labels, term))

    @staticmethod
    def among(tokens: list[str], term: Term) -> int:
        if term.kind == "prefix":
            return sum(token.startswith(term.tokens[0]) for token in tokens)
        return tokens.count(term.tokens[0])


def oracle(texts: Mapping[str, Text], query: str) -> dict[str, float]:
    """Address to BM25 of every text that holds a term of ``query``."""
    average = sum(len(text.words) for text in texts.values()) / max(1, len(texts))
    scores: dict[str, float] = {}
    for term in parse_query(query, max_chars=20_000).terms:
        counts = {address: text.times(term) for address, text in texts.items()}
        holding = {address: count for address, count in counts.items() if count}
        idf = math.log(1 + (len(texts) - len(holding) + 0.5) / (len(holding) + 0.5))
        for address, count in holding.items():
            length = len(texts[address].words)
            norm = K1 * (1 - B + B * length / average)
            part = idf * count * (K1 + 1) / (count + norm)
            scores[address] = scores.get(address, 0.0) + part
    return scores


VOCABULARY_TEXT = (
    "alpha alphas beta running runs gamma delta getUserName get_user_name v1.2.3 user.name C++ "
    "жираф жирафы μέλι μελι 用户认证 认证 しりとり 사용자 ข้าว 🎵 "
    "naïve naive Baker's ops@example.org"
)
VOCABULARY = VOCABULARY_TEXT.split()
SCOPES = ["user", "global", "sessions/1", "sessions/1/topic/2", "sessions/1/vp/3", "sessions/2"]
SCOPES.append("vp/3")
ACCESSES: list[Access | None] = [
    None,
    Access(session="1"),
    Access(session="1", vp="3"),
    Access(session="2", user=False),
    Access(session="1", related_sessions=["2"]),
    Access(chat="9"),
]
BODY = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=9).map(" ".join)
ASKED = ["al*", "run*", "жир*", '"alpha beta"', '"running gamma"', "认", "absent", "the", "gets"]
ASKED += ["user name", "AND", "-beta", *VOCABULARY]
QUERY = st.lists(st.sampled_from(ASKED), min_size=1, max_size=6).map(" ".join)


def readable(memory: Memory, access: Access | None) -> dict[str, Text]:
    """The texts that ``access`` may list, analysed."""
    texts = {}
    for record in memory.list(access=access):
        words, forms = analyse(record.body)
        names = [part for part in record.scope.split("/") if part not in ("sessions", "chat", "vp")]
        labels = " ".join(analyse(" ".join(names)))
        texts[record.address] = Text(words.split(), forms.split(), labels.split())
    return texts


@few
@given(
    corpus=st.lists(st.tuples(st.sampled_from(SCOPES), BODY), min_size=1, max_size=25),
    queries=st.lists(QUERY, min_size=1, max_size=8),
    access=st.sampled_from(ACCESSES),
)
def test_recall_equals_the_oracle(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: list[tuple[str, str]],
    queries: list[str],
    access: Access | None,
) -> None:
    root = tmp_path_factory.mktemp("oracle")
    for scope in {scope for scope, _ in corpus}:
        bodies = [body for at, body in corpus if at == scope]
        write(root, f"{scope}/memory.md", *(segment_text(f"s{n}", b) for n, b in enumerate(bodies)))
    with opened(root, settings=GENEROUS) as memory:
        texts = readable(memory, access)
        for query in queries:
            wanted = oracle(texts, query)
            found = memory.recall(query, access=access, limit=1_000)
            if not wanted:
                assert found.hits == () or found.relaxed
                continue
            assert not found.relaxed
            scores = {hit.record.address: hit.score for hit in found.hits}
            assert scores == pytest.approx(wanted, abs=2e-6), query
            assert [hit.terms["bm25"] for hit in found.hits] == sorted(
                (hit.score for hit in found.hits), reverse=True
            )
            # Filters choose among these and change no score.
            part = memory.recall(query, access=access, limit=1_000, kinds=["fact"])
            assert {hit.record.address for hit in part.hits} == set(wanted)


@few
@given(
    corpus=st.lists(BODY, min_size=1, max_size=40),
    query=QUERY,
    rerank=st.sampled_from([1, 2, 3, 7]),
    limit=st.integers(1, 10),
)
def test_a_small_second_pass_loses_no_match(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[str], query: str, rerank: int, limit: int
) -> None:
    root = tmp_path_factory.mktemp("windows")
    write(root, "sessions/1/memory.md", *(segment_text(f"s{n}", b) for n, b in enumerate(corpus)))
    settings = Settings(encoding="estimate", rerank_count=rerank)
    with opened(root, settings=settings) as memory:
        wanted = oracle(readable(memory, None), query)
        whole = memory.recall(query, limit=1_000)
        if wanted:
            assert {hit.record.address for hit in whole.hits} == set(wanted)
        assert memory.recall(query, limit=limit).hits == whole.hits[:limit]


def test_the_oracle_itself_finds_by_hand() -> None:
    texts = {
        "a": Text(["kiwi", "kiwi"], [], []),
        "b": Text(["plum"], ["kiwi"], []),
        "c": Text(["fig"], [], ["kiwi"]),
        "d": Text(["fig"], [], []),
    }
    found = oracle(texts, "kiwi")
    assert set(found) == {"a", "b", "c"} and found["a"] > found["b"] == found["c"] > 0
    assert oracle(texts, "absent") == {}
