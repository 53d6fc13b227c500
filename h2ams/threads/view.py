"""From stored rows to a window (Pure): pre-passes applied, tokens counted only where unknown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2ams.text.ledger import Ledger
from h2ams.threads import running_summary, shapes
from h2ams.threads.breaker import Breaker
from h2ams.threads.message import MESSAGE_TOKENS, canonical_json, count_message
from h2ams.threads.prompt import SummaryInWindow, Window
from h2ams.threads.running_summary import Sections
from h2ams.threads.thread_store import Row, Stored, ThreadInfo
from h2ams.threads.unit import Entry
from h2ams.threads.window import first_turn


@dataclass(frozen=True, slots=True)
class View:
    """A thread as one turn sees it. ``payloads``: what is stored of each row in the window."""

    info: ThreadInfo
    window: Window
    breaker: Breaker
    summary: Row | None = None
    payloads: Mapping[str, Any] = field(default_factory=dict, repr=False)
    version: tuple[object, ...] = ()


def view(stored: Stored, count: Callable[[str], int], encoding: str) -> View:
    """The window of ``stored``. Counts made by another encoder are made anew."""
    replaced = _replacements(stored.states, encoding)
    entries = [_entry(row, replaced, count, encoding) for row in stored.rows]
    summary = stored.summary
    if summary is None:
        head = first_turn(entries)
        behind = entries[len(head) :]
    else:
        head = tuple(entry for entry in entries if entry.seq < summary.first_seq)
        behind = [entry for entry in entries if entry.seq >= summary.first_seq]
    system = stored.info.system
    window = Window(
        thread=stored.info.id,
        system=system,
        system_tokens=count(system) + MESSAGE_TOKENS if system else 0,
        summary=_summary(summary, count, encoding) if summary else None,
        head=tuple(head),
        entries=tuple(behind),
    )
    return View(
        info=stored.info,
        window=window,
        breaker=Breaker.of(stored.breaker.payload if stored.breaker else None),
        summary=summary,
        payloads={row.id: row.payload for row in stored.rows},
        version=(
            stored.info.message_count, stored.info.edits, summary.id if summary else "",
            len(stored.states), stored.breaker.id if stored.breaker else "",
        ),
    )  # fmt: skip


def digest(payload: object) -> str:
    """SHA-256 of a row's payload: by it a replacement knows the row that it was made from."""
    data = canonical_json(payload).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _replacements(states: Sequence[Row], encoding: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for state in states:
        for id, each in state.payload.get("replaced", {}).items():
            found[id] = {**each, "known": state.payload.get("encoding") == encoding}
    return found


def _entry(
    row: Row, replaced: Mapping[str, dict[str, Any]], count: Callable[[str], int], encoding: str
) -> Entry:
    known = row.encoding == encoding
    tokens, payload = row.tokens, row.payload
    shorter = replaced.get(row.id)
    if shorter is not None and shorter["of"] == digest(row.payload):
        payload, tokens, known = shorter["payload"], shorter["tokens"], shorter["known"]
    message = shapes.read(payload, row.shape)
    if not known:
        tokens = count_message(message, count)
    return Entry(row.id, row.seq, message, tokens, row.created_at)


def _summary(row: Row, count: Callable[[str], int], encoding: str) -> SummaryInWindow:
    text = str(row.payload.get("text", ""))
    ledger = Ledger(tuple(row.payload.get("ledger", ())))
    tokens = row.tokens
    if row.encoding != encoding:
        tokens = summary_tokens(text, ledger, count)
    return SummaryInWindow(row.id, row.boundary, text, ledger, tokens, row.first_seq <= 1)


def summary_tokens(text: str, ledger: Ledger, count: Callable[[str], int]) -> int:
    """What a summary costs in a prompt; 0 for an empty one."""
    rendered = running_summary.render(text, ledger)
    return count(rendered) + MESSAGE_TOKENS if rendered else 0


def sections_of(row: Row | None) -> Sections:
    """The sections that a summary row holds; what a person wrote counts as decided."""
    if row is None:
        return Sections()
    found = row.payload.get("sections")
    if isinstance(found, dict):
        return Sections(**{name: tuple(lines) for name, lines in found.items()})
    lines = str(row.payload.get("text", "")).splitlines()
    return Sections(decisions=tuple(line.strip("-*# \t") for line in lines if line.strip("-*# \t")))


def ledger_of(row: Row | None) -> Ledger:
    """The ledger that a summary row holds."""
    return Ledger(tuple(row.payload.get("ledger", ()))) if row else Ledger()
