"""Reading what historical folders hold: redirects, several layouts, dream state (Pure).

Strategy: values in, values and problems out; whoever has a disk hands in the bytes. Nothing here
(and nothing that uses this) ever renames or rewrites: reading never migrates.

- Union: ``sessions/<id>``, ``session/<id>`` and ``group/<id>`` are one scope. Where two layouts
  hold the same id, the newer one is the segment and the other is reported.
- Redirects: ``…/topic/<old>/redirect.json`` names the topic that took over. They are followed
  transitively with a visited set; broken ones and circles stop and are reported.
- ``.dream-state``: the historical watermark of a session's maintenance.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from h2ams.errors import ScopeError
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import Document, Entry, Problem
from h2ams.memory.values import parse_time

DREAM_STATE_FILE = ".dream-state"
_REDIRECT_BYTES = 4_096  # a longer redirect.json is broken: it holds one path


@dataclass(frozen=True, slots=True)
class Held:
    """One entry with its file: ``path`` relative to the root, ``index`` into its document."""

    path: str
    document: Document
    index: int

    @property
    def entry(self) -> Entry:
        return self.document.entries[self.index]


@dataclass(frozen=True, slots=True)
class Union:
    """What a scope holds over all layouts, in file order, canonical layout first.

    ``beaten`` are the entries whose id a newer entry of another layout has; each has a problem.
    """

    held: tuple[Held, ...]
    beaten: tuple[Held, ...] = ()
    problems: tuple[Problem, ...] = ()


def union(documents: Sequence[tuple[str, Document]]) -> Union:
    """The entries of all layouts as one list: one per address id, the newer wins.

    ``documents`` come canonical layout first, as ``Store.documents`` gives them. Equal or
    missing times: the earlier file of the list wins.
    """
    if len(documents) == 1:
        path, document = documents[0]
        return Union(tuple(Held(path, document, i) for i in range(len(document.entries))))
    winners: dict[str, Held] = {}
    beaten: list[Held] = []
    for path, document in documents:
        for index, entry in enumerate(document.entries):
            held = Held(path, document, index)
            other = winners.get(entry.address_id)
            if other is None:
                winners[entry.address_id] = held
            elif _date(held) > _date(other):
                beaten.append(other)
                winners[entry.address_id] = held
            else:
                beaten.append(held)
    order = {path: place for place, (path, _) in enumerate(documents)}
    held_all = sorted(winners.values(), key=lambda held: (order[held.path], held.index))
    problems = tuple(_beaten_problem(held, winners[held.entry.address_id]) for held in beaten)
    return Union(tuple(held_all), tuple(beaten), problems)


def _date(held: Held) -> str:
    """Normalised time of the last change, "" where there is none: sorts before any other."""
    segment = held.entry.segment
    for text in (segment.updated_at, segment.created_at):
        if text:
            when, _ = parse_time(text)
            if when:
                return when
    return ""


def _beaten_problem(held: Held, winner: Held) -> Problem:
    return Problem(
        code="duplicate-across-layouts",
        message=f"{held.entry.address_id} is also in {winner.path}, which is used",
        line=held.entry.line,
        path=held.path,
    )


@dataclass(frozen=True, slots=True)
class Followed:
    """Where redirects lead: ``scope`` is the topic to use; ``problems`` say what stopped."""

    scope: Scope
    problems: tuple[Problem, ...] = ()


def follow(
    scope: Scope,
    read: Callable[[Scope], tuple[str, bytes] | None],
    exists: Callable[[Scope], bool],
) -> Followed:
    """Follow the redirects of a topic scope; any other scope stays as it is.

    ``read`` gives path and bytes of a scope's ``redirect.json`` or None; ``exists`` says whether
    a scope has a folder. A broken redirect ends the way where it stands; a circle leads nowhere,
    so that ``scope`` itself is used.
    """
    here, visited = scope, {scope}
    while here.topic:
        found = read(here)
        if found is None:
            break
        path, data = found
        target = parse_redirect(data, here)
        if isinstance(target, str):
            return Followed(here, (_redirect_problem("broken-redirect", target, path),))
        if target in visited:
            reason = f"leads in a circle over {target}"
            return Followed(scope, (_redirect_problem("redirect-loop", reason, path),))
        if not exists(target):
            reason = f"leads to {target}, which does not exist"
            return Followed(here, (_redirect_problem("broken-redirect", reason, path),))
        visited.add(target)
        here = target
    return Followed(here)


def parse_redirect(data: bytes, scope: Scope) -> Scope | str:
    """The scope that ``redirect.json`` in ``scope``'s folder names, or what is wrong with it."""
    if len(data) > _REDIRECT_BYTES:
        return f"longer than {_REDIRECT_BYTES} bytes"
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return "not JSON"
    if not isinstance(value, dict) or value.get("version") != 1:
        return "not a redirect of version 1"
    canonical = value.get("canonical")
    if not isinstance(canonical, str):
        return "names no canonical topic"
    base = scope.text[: len(scope.text) - len("/".join(scope.topic))]
    try:
        target = parse_scope(base + canonical)
    except ScopeError as error:
        return f"canonical topic {canonical!r}: {error.message}"
    return target if target.topic else f"{canonical!r} is not a topic"


def _redirect_problem(code: str, reason: str, path: str) -> Problem:
    return Problem(code=code, message=f"redirect {reason}; not followed", line=1, path=path)


@dataclass(frozen=True, slots=True)
class DreamState:
    """A historical watermark. ``last_at`` is ISO in UTC; None is unknown everywhere."""

    last_message_id: str | None = None
    last_at: str | None = None
    message_count: int | None = None


def parse_dream_state(data: bytes) -> DreamState:
    """Read ``.dream-state`` bytes (``key: value`` lines, any newline, BOM); never raises.

    Blank, missing and unreadable values are unknown. Also reads the lines of a ``dream-state``
    block at the end of a ``memory.md``.
    """
    values: dict[str, str] = {}
    for line in data.decode("utf-8-sig", "replace").splitlines():
        key, colon, value = line.partition(":")
        if colon:
            values[key.strip()] = value.strip()
    at, _ = parse_time(values.get("lastDreamAt", ""))
    count = values.get("messageCount", "")
    return DreamState(
        last_message_id=values.get("lastDreamMessageId") or None,
        last_at=at,
        message_count=int(count)
        if count.isascii() and count.isdigit() and len(count) < 19
        else None,
    )
