"""Search over past chats: what was said in other threads, by people and assistants.

Reads only threads of the scopes it is given and never the current one; no tool output. What it
shows is redacted, free of the engine's own blocks, and short.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from h2ams.memory.access import Access
from h2ams.text.extract import extract
from h2ams.text.words import parse_query
from h2ams.threads import shapes
from h2ams.threads.digesting import clean
from h2ams.threads.thread_store import SearchTerm, ThreadStore

SNIPPET_CHARS = 400
QUERY_CHARS = 2_000  # of a query that are looked at
MOST_HITS = 1_000  # a search gives no more, whatever is asked for


@dataclass(frozen=True, slots=True)
class PastHit:
    """A message of another thread; ``text`` is at most ``SNIPPET_CHARS`` long."""

    thread: str
    scope: str
    message: str
    role: str
    created_at: str
    text: str
    score: float

    def to_json(self) -> dict[str, object]:
        """All fields under their names."""
        return {
            "thread": self.thread,
            "scope": self.scope,
            "message": self.message,
            "role": self.role,
            "created_at": self.created_at,
            "text": self.text,
            "score": self.score,
        }


def thread_scopes(access: Access | None) -> tuple[str, ...] | None:
    """The scopes whose threads ``access`` may read; None is all, for the owner.

    Its own session and chat. Related sessions give segments and summaries, never messages.
    """
    if access is None:
        return None
    found = []
    if access.session is not None:
        found.append(f"sessions/{access.session}")
    if access.chat is not None:
        found.append(f"chat/{access.chat}")
    return tuple(found)


def past_chats(
    store: ThreadStore,
    query: str,
    *,
    scopes: Sequence[str] | None,
    but: str = "",
    limit: int = 10,
) -> tuple[PastHit, ...]:
    """Messages that match ``query``, best first; none for an empty query."""
    terms = [
        SearchTerm(term.tokens, term.exact, term.kind == "prefix")
        for term in parse_query(query, max_chars=QUERY_CHARS).terms
        if term.tokens
    ]
    hits = []
    most = min(limit, MOST_HITS)
    for found in store.search(terms, scopes=scopes, but=but, limit=most, text=query):
        message = shapes.read(found.row.payload, found.row.shape)
        text = extract(clean(message.text), most_chars=SNIPPET_CHARS)
        hits.append(
            PastHit(
                found.thread, found.scope, found.row.id, found.row.role, found.row.created_at,
                text, found.score,
            )
        )  # fmt: skip
    return tuple(hits)
