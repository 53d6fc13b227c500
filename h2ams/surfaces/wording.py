"""What several surfaces say of the same thing in the same words (Pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from h2ams.threads.thread_store import Row

PREVIEW_CHARS = 400

# Why a candidate is not in a block, by the reason in the receipt.
REASONS = {
    "acl": "this access may not see it",
    "budget": "no room left",
    "duplicate": "the same text is there already",
    "stale": "its file could not be read",
    "below-gate": "too weak a match",
    "evicted": "taken out for this task",
}
# What a transition of a stack would do, by its trigger.
TRIGGERS = {
    "none": "nothing to do",
    "threshold": "the threshold is reached: it would be compressed",
    "retry": "a forced compression is due: it would be tried again",
    "forced": "it would be compressed",
}


def trigger(name: str, tries: int) -> str:
    """What a transition would do now, or why it would not."""
    if name == "exhausted":
        return f"{tries} attempts on this text came to nothing: no call until it changes"
    return TRIGGERS[name]


def preview(body: str, matched: Sequence[str] = (), most: int = PREVIEW_CHARS) -> str:
    """``body``, or about ``most`` chars of it with ``…`` where something is left out.

    The part that says one of the ``matched`` words is preferred to the beginning.
    """
    if len(body) <= most:
        return body
    start = _first_match(body, matched)
    start = max(0, min(start - most // 4, len(body) - most))
    if start:  # from a word's beginning on
        blank = body.find(" ", start, start + 40)
        start = start if blank < 0 else blank + 1
    end = start + most
    return ("… " if start else "") + body[start:end].strip() + (" …" if end < len(body) else "")


def _first_match(body: str, matched: Sequence[str]) -> int:
    """Where the first of the words stands; the beginning of a word is enough, and 0 is none."""
    folded = body.casefold()
    places = [folded.find(word.casefold()[: max(4, len(word) - 3)]) for word in matched if word]
    return min((place for place in places if place >= 0), default=0)


def message_text(row: Row) -> str:
    """What a message row of a thread says, calls and results included, for a person."""
    from h2ams.threads import shapes

    message = shapes.read(row.payload, row.shape)
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    results = [f"= {result.text}" for result in message.results]
    images = ["[image]"] * len(message.images)
    return " ".join(each for each in (message.text, *calls, *results, *images) if each)
