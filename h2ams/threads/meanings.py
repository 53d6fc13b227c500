"""Vectors for texts from packaged static embeddings (extra ``[semantic]``): nothing is fetched.

The weights lie inside the package ``wordllama``; they are loaded at the first text (0.2 s). They
know English best and do not work across languages: they add to the search by words, they replace
nothing of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from h2ams.errors import ConfigError

SIZE = 256  # dimensions of the packaged weights
MAX_CHARS = 4_000  # of one text: a message's beginning says what it is about


class StaticVectors:
    """Call it with texts; it gives a vector of ``size`` numbers for each."""

    size = SIZE

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._model: Any = None

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        with self._lock:
            if self._model is None:
                self._model = _load()
            found = self._model.embed([text[:MAX_CHARS] or " " for text in texts], norm=True)
        return [[float(each) for each in vector] for vector in found]


def _load() -> Any:
    try:
        import wordllama
    except ImportError as error:
        raise ConfigError(
            "search by meaning needs the package wordllama", hint="pip install 'h2ams[semantic]'"
        ) from error
    folder = os.path.dirname(wordllama.__file__)
    return wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
