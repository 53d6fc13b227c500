"""Where syncs meet the vectors, so that without them nothing about them is imported (Derived)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.index.plan import Plan
from h2ams.settings import Settings

if TYPE_CHECKING:
    from h2ams.index.schema import Index
    from h2ams.index.vectors import Vectors


def made_for(settings: Settings) -> Vectors | str:
    """The vectors that ``settings`` ask for, or why they cannot be had, for people."""
    from h2ams.index import encoder, transformer
    from h2ams.index.vectors import Vectors

    small = settings.semantic_encoder == "transformer"
    chosen = transformer if small else encoder
    reason = chosen.missing()
    if reason:
        return f"semantic is on, but recall is by words alone ({reason}): {chosen.HINT}"
    return Vectors(transformer.Transformer() if small else encoder.Encoder())


def around(
    connection: sqlite.Connection, vectors: Vectors | None, batch: Plan
) -> contextlib.AbstractContextManager[None]:
    """Around the writing of ``batch``: its scopes' vectors are brought up to date behind it."""
    if not _concerned(connection, vectors):
        return contextlib.nullcontext()
    from h2ams.index.vectors import following

    names = {each.scope for each in (*batch.gone, *batch.unseen)}
    return following(connection, vectors, names | {each.scope for each in batch.read})


def keep(index: Index, vectors: Vectors | None) -> None:
    """Make the table of vectors where it is wanted and not whole, remove an unwanted one."""
    with index.lock:
        if _concerned(index.connection, vectors):
            from h2ams.index.vectors import keep as keep_table

            keep_table(index, vectors)


def _concerned(connection: sqlite.Connection, vectors: Vectors | None) -> bool:
    """Whether there are vectors or should be."""
    made = "SELECT 1 FROM meta WHERE key = 'vectors'"
    return vectors is not None or bool(sqlite.value(connection, made))
