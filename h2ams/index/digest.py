"""One number over everything that the index derives from the files (Pure).

The digest is a sum of 128-bit hashes, one per segment, so it does not depend on order or on rowids
and can be kept up to date by adding and subtracting. Two indexes with the same digest hold the same
scopes, ids, analysed words and sources.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

MODULUS = 1 << 128


def row_digest(scope: str, id: str, words: str, forms: str, labels: str, sources: str) -> str:
    """Hexadecimal digest of one segment. Fields are joined by NUL, which no token holds."""
    text = "\0".join((scope, id, words, forms, labels, sources))
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, usedforsecurity=False
    ).hexdigest()


def shown_digest(*fields: str | None) -> str:
    """Hexadecimal digest of what a reader sees of one segment; None and "" are different."""
    text = "\0".join("\1" if each is None else each for each in fields)
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, usedforsecurity=False
    ).hexdigest()


def add(total: str, plus: Iterable[str] = (), minus: Iterable[str] = ()) -> str:
    """``total`` (hexadecimal) with row digests added and taken away."""
    value = int(total, 16)
    for each in plus:
        value += int(each, 16)
    for each in minus:
        value -= int(each, 16)
    return f"{value % MODULUS:x}"


def combine(totals: Iterable[str]) -> str:
    """The digest of several scopes together, as shown to people: 32 hexadecimal digits."""
    return f"{sum(int(each, 16) for each in totals) % MODULUS:032x}"
