"""Texts to static word vectors, from weights that ship inside a package (Derived, optional).

``wordllama`` carries 256 numbers for each of 32,000 pieces of words, and the tokeniser that cuts
them. Both files are read from its folder: no network, no download, and the package itself, which
takes half a second to import, is never imported. A text's vector is the mean of its pieces'
vectors: their lengths already say how much each piece says, so that weighting them by frequency
gained nothing (docs/decisions/0022). Nothing here depends on any stored text.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from h2ams.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]

PACKAGE = "wordllama"
NEEDED = (PACKAGE, "numpy", "tokenizers", "safetensors")
HINT = "pip install 'h2ams[semantic]', or switch the setting semantic off"
DIMENSIONS = 256
MOST_CHARS = 8_000  # of one text; what stands behind does not move its mean by much
VERSION = "1/wordllama-l2-supercat-256"  # another value means other vectors: they are made anew
_WEIGHTS = f"weights/l2_supercat_{DIMENSIONS}.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


class Question(NamedTuple):
    """What is asked, and its words without function words, each with what it weighs here."""

    text: str
    words: tuple[tuple[str, float], ...] = ()


def missing() -> str:
    """Why there can be no vectors here, for people; empty where there can. Imports nothing."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    files = [str(_folder() / name) for name in (_WEIGHTS, _TOKENIZER)]
    lost = [path for path in files if not Path(path).is_file()]
    return f"not there: {', '.join(lost)}" if lost else ""


def _folder() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    places = found.submodule_search_locations if found is not None else None
    return Path(places[0] if places else ".")


class Encoder:
    """Loads its files (0.1 s) when first used. ``ConfigError`` where they cannot be used."""

    version = VERSION
    trust = 1.0

    @cached_property
    def _parts(self) -> tuple[Matrix, Any]:
        reason = missing()
        if reason:
            raise ConfigError(f"semantic search is not possible: {reason}", hint=HINT)
        import numpy as np
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            weights = load_file(_folder() / _WEIGHTS)["embedding.weight"].astype(np.float32)
            tokenizer = Tokenizer.from_file(str(_folder() / _TOKENIZER))
        except Exception as error:
            raise ConfigError(f"semantic search is not possible: {error}", hint=HINT) from error
        if weights.shape[1] != DIMENSIONS:
            raise ConfigError(f"semantic search: {weights.shape} weights", hint=HINT)
        return weights, tokenizer

    def encode(self, texts: Sequence[str]) -> Matrix:
        """One row of ``DIMENSIONS`` per text, of length 1; all zero for a text without words.

        The same text gives the same row whatever stands beside it.
        """
        import numpy as np

        weights, tokenizer = self._parts
        rows = np.zeros((len(texts), DIMENSIONS), np.float32)
        for number, text in enumerate(texts):
            # One by one: a batch would start threads, which a host that forks must not have.
            pieces = tokenizer.encode(text[:MOST_CHARS], add_special_tokens=False).ids
            if pieces:
                rows[number] = weights[pieces].mean(axis=0)
        return unit(rows)

    def encode_question(self, question: Question) -> Matrix:
        """One vector of length 1: the words by their weights, or the whole text without any."""
        weights, tokenizer = self._parts
        row = weights[:1] * 0
        for word, weight in question.words:
            pieces = tokenizer.encode(word, add_special_tokens=False).ids
            row += weight * weights[pieces].sum(axis=0)
        made: Matrix = unit(row)[0] if row.any() else self.encode([question.text])[0]
        return made


def unit(rows: Matrix) -> Matrix:
    """Rows of length 1; zero rows stay."""
    import numpy as np

    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    lengths[lengths == 0] = 1
    scaled: Matrix = (rows / lengths[:, None]).astype(np.float32)
    return scaled
