"""Vectors for messages: the semantic side of recall, for past chats (extra ``[semantic]``).

The weights lie inside a package and are loaded at the first text. They know English best and do
not work across languages: they add to the search by words, they replace nothing of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from h2ams.index import encoder


class StaticVectors:
    """Call it with texts; it gives a vector of ``size`` numbers for each, of length 1 or 0."""

    size = encoder.DIMENSIONS

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._encoder = encoder.Encoder()

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        with self._lock:
            rows = self._encoder.encode(texts)
        return [[float(each) for each in row] for row in rows]
