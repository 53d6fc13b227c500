"""What a scope holds after validated changes: merged, never doubled, bounded, nothing lost (Pure).

Strategy: the changes are applied one after the other to a list of segments, and what differs at
the end is the plan. Of duplicates the more detailed text stays, with the id and creation time of
the older one and the sources of both. Text that is replaced or retired goes to the archive. What
somebody changed since it was seen is never overwritten: his text stays, ours stands beside it.
Past the bound, the oldest small segments of one kind become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from h2ams.memory import segment as segments
from h2ams.memory.entry import Segment
from h2ams.memory.merge import CONFLICT_TAG
from h2ams.memory.validation import MAX_TAGS, Change
from h2ams.text.likeness import Wording, alike, contained, may_be_alike, wording

RETIRED_TAG = "retired"
SUPERSEDED_TAG = "superseded"
_CANDIDATES = 48  # oldest segments that are looked at for a pair to merge
_DIGITS = re.compile(r"\d")
_NEGATIONS = frozenset(
    {
        "no", "not", "never", "none", "nor", "without", "don't", "doesn't", "didn't", "isn't",
        "aren't", "won't", "can't", "cannot", "shouldn't", "не", "нет", "ни", "никогда", "без",
        "нельзя", "不", "没", "無", "无", "非", "别", "勿", "未",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """A segment of the scope under its address id. ``fixed``: the engine may not rewrite it."""

    id: str
    segment: Segment
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What is to be done. ``replaced`` by address id; ``merged`` went into another segment.

    ``archived`` maps the address id that a text stood under to the segment for the archive.
    ``skipped`` counts changes that said nothing new, ``missed`` those whose segment is gone or was
    changed by somebody else, so that it stays.
    """

    added: tuple[Segment, ...] = ()
    replaced: dict[str, Segment] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    archived: tuple[tuple[str, Segment], ...] = ()
    merged: tuple[str, ...] = ()
    skipped_count: int = 0
    missed_count: int = 0
    conflicts: tuple[str, ...] = ()
    after: tuple[Held, ...] = ()

    @property
    def changes(self) -> bool:
        return bool(self.added or self.replaced or self.removed or self.archived)


def consolidate(
    scope: str,
    held: Sequence[Held],
    archive: Sequence[Held],
    changes: Iterable[Change],
    *,
    now: str,
    most_count: int,
    most_chars: int,
) -> Consolidated:
    """Apply ``changes``, all of one scope. ``now`` dates what no cited message dates."""
    work = _Work(scope, held, archive, now)
    for change in changes:
        {"add": work.add, "update": work.update, "retire": work.retire}[change.name](change)
    work.bound(most_count, most_chars)
    return work.result()


@lru_cache(maxsize=16_384)
def _form(body: str) -> Wording:
    return wording(body)


@lru_cache(maxsize=16_384)
def _claims(body: str) -> tuple[frozenset[str], int]:
    """What two texts must share to say the same: words with digits; how much they deny."""
    words = _form(body).words
    numbers = frozenset(word for word in words if _DIGITS.search(word))
    return numbers, sum(word in _NEGATIONS for word in words)


def says_the_same(one: str, other: str) -> bool:
    """Whether two bodies are duplicates: one form, one inside the other, nearly the same words.

    Texts that differ in a number or in a denial are never near duplicates.
    """
    form, another = _form(one), _form(other)
    if form.text == another.text:
        return True
    numbers, denials = _claims(one)
    other_numbers, other_denials = _claims(other)
    if denials != other_denials:
        return False
    if contained(form, another) or contained(another, form):
        return numbers <= other_numbers or other_numbers <= numbers
    if numbers != other_numbers or not may_be_alike(form, another):
        return False
    return alike(form.shingles, another.shingles)


class _Work:
    """The scope while changes are applied to it."""

    def __init__(self, scope: str, held: Sequence[Held], archive: Sequence[Held], now: str) -> None:
        self._scope = scope
        self._now = now
        self._before = {each.id: each for each in held}
        self._held = dict(self._before)
        self._archive = list(archive)
        self._taken = {id for each in (*held, *archive) for id in (each.id, each.segment.id)}
        self._new: dict[str, None] = {}
        self._archived: list[tuple[str, Segment]] = []
        self._merged: list[str] = []
        self._conflicts: list[str] = []
        self._skipped_count = 0
        self._missed_count = 0

    # -- the three operations --------------------------------------------------------------------

    def add(self, change: Change) -> None:
        body = change.body or ""
        if self._was_replaced(change, body):
            self._skipped_count += 1
            return
        twin = self._twin(body)
        if twin is None:
            self._append(self._made(change, body))
            return
        self._unite(twin, change, body)

    def update(self, change: Change) -> None:
        assert change.base is not None
        found = self._held.get(change.base.id)
        if found is None or found.fixed:
            self._missed_count += 1
            return
        body = found.segment.body if change.body is None else change.body
        untouched = found.segment.body == change.base.body
        if not untouched and body != found.segment.body:
            if change.body is not None:
                self._stand_beside(change, found)
            self._missed_count += 1
            return
        tags = found.segment.tags if change.tags is None else change.tags
        if found.segment.tags != change.base.tags:
            tags = _united(found.segment.tags, tags)
        made = replace(
            found.segment,
            body=body,
            tags=tags,
            source_messages=_united(found.segment.source_messages, change.source_messages),
        )
        self._put(found, made, change.updated_at)

    def retire(self, change: Change) -> None:
        assert change.base is not None
        found = self._held.get(change.base.id)
        if found is None or found.fixed or found.segment.body != change.base.body:
            self._missed_count += 1
            return
        self._to_archive(found, RETIRED_TAG)
        self._drop(found.id)

    # -- one segment -----------------------------------------------------------------------------

    def _twin(self, body: str) -> Held | None:
        """The segment that says the same: an equal one first, a line of a merged one too."""
        form = _form(body)
        near: Held | None = None
        for each in self._held.values():
            other = each.segment.body
            if _form(other).text == form.text:
                return each
            if near is None and ("\n" in other and form.text in _lines(other)):
                near = each
            if near is None and says_the_same(body, other):
                near = each
        return near

    def _was_replaced(self, change: Change, body: str) -> bool:
        """Whether the archive holds this text from these messages: it was learned, and replaced."""
        sources = set(change.source_messages)
        return any(
            each.segment.body == body and sources <= set(each.segment.source_messages)
            for each in self._archive
        )

    def _unite(self, twin: Held, change: Change, body: str) -> None:
        old = twin.segment
        detailed = _form(body).chars > _form(old.body).chars and not twin.fixed
        sources = _united(old.source_messages, change.source_messages)
        tags = _united(old.tags, change.tags or ())[: max(MAX_TAGS, len(old.tags))]
        made = replace(
            old,
            body=body if detailed else old.body,
            tags=tags,
            source_messages=sources,
        )
        if twin.fixed or made == old:
            self._skipped_count += 1
            return
        self._put(twin, made, change.updated_at)

    def _put(self, found: Held, made: Segment, at: str | None) -> None:
        """``made`` in the place of what was found; the old text goes to the archive."""
        if made == found.segment:
            self._skipped_count += 1
            return
        if made.body != found.segment.body:
            self._to_archive(found, SUPERSEDED_TAG)
        when = max(at or self._now, found.segment.updated_at or "")
        self._held[found.id] = replace(found, segment=replace(made, updated_at=when))

    def _stand_beside(self, change: Change, found: Held) -> None:
        """Somebody else changed the segment too: his text stays, ours becomes another segment."""
        body = change.body or ""
        if self._twin(body) is not None:
            return
        tags = _united(change.tags or found.segment.tags, (CONFLICT_TAG,))
        made = replace(self._made(change, body), kind=found.segment.kind, tags=tags)
        self._conflicts.append(self._append(made))

    def _made(self, change: Change, body: str) -> Segment:
        return Segment(
            body=body,
            scope=self._scope,
            kind=change.kind or "fact",
            tags=change.tags or (),
            source_messages=change.source_messages,
            created_at=change.created_at or self._now,
            updated_at=change.updated_at or self._now,
        )

    def _append(self, made: Segment) -> str:
        id = segments.new_id(self._scope, made.kind, made.body, self._taken)
        self._taken.add(id)
        self._held[id] = Held(id, replace(made, id=id))
        self._new[id] = None
        return id

    def _drop(self, id: str) -> None:
        del self._held[id]
        self._new.pop(id, None)

    def _to_archive(self, found: Held, tag: str) -> None:
        old = found.segment
        tags = _united(old.tags, (tag,))
        id = old.id or found.id
        if tag == SUPERSEDED_TAG:  # the id stays with the text that replaces it
            id = segments.new_id(self._scope, old.kind, old.body, self._taken)
        known = any(
            (each.segment.body, each.segment.kind, each.segment.source_messages)
            == (old.body, old.kind, old.source_messages)
            for each in self._archive
        )
        if known:
            return
        self._taken.add(id)
        made = replace(old, id=id, tags=tags, scope=old.scope or self._scope)
        self._archive.append(Held(id, made))
        self._archived.append((found.id, made))

    # -- the bound -------------------------------------------------------------------------------

    def bound(self, most_count: int, most_chars: int) -> None:
        """Merge, then archive, until the scope holds at most ``most_count``, if it has grown."""
        if not self._new:
            return
        while len(self._held) > most_count:
            oldest = sorted(
                (each for each in self._held.values() if not each.fixed),
                key=lambda each: (each.segment.updated_at or "", each.id),
            )
            if not oldest:
                return
            pair = _closest_pair(oldest, most_chars)
            if pair is None:
                self._to_archive(oldest[0], RETIRED_TAG)
                self._drop(oldest[0].id)
            else:
                self._merge(*pair)

    def _merge(self, one: Held, other: Held) -> None:
        older, newer = sorted((one, other), key=_age)
        a, b = older.segment, newer.segment
        made = replace(
            a,
            id=a.id or older.id,
            body=f"{a.body}\n{b.body}",
            tags=_united(a.tags, b.tags)[: max(MAX_TAGS, len(a.tags))],
            source_messages=_united(a.source_messages, b.source_messages),
            updated_at=max(a.updated_at or "", b.updated_at or "") or None,
        )
        self._held[older.id] = replace(older, segment=made)
        self._drop(newer.id)
        self._merged.append(newer.id)

    def result(self) -> Consolidated:
        replaced = {
            id: each.segment
            for id, each in self._held.items()
            if id in self._before and each.segment != self._before[id].segment
        }
        return Consolidated(
            added=tuple(self._held[id].segment for id in self._new),
            replaced=replaced,
            removed=tuple(id for id in self._before if id not in self._held),
            archived=tuple(self._archived),
            merged=tuple(self._merged),
            skipped_count=self._skipped_count,
            missed_count=self._missed_count,
            conflicts=tuple(self._conflicts),
            after=tuple(self._held.values()),
        )


def _age(held: Held) -> tuple[str, str]:
    return held.segment.created_at or "", held.id


def _lines(body: str) -> frozenset[str]:
    return frozenset(_form(line).text for line in body.split("\n"))


def _united(one: Iterable[str], other: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _closest_pair(oldest: Sequence[Held], most_chars: int) -> tuple[Held, Held] | None:
    """Of the oldest, two of one kind that share most words and fit together; None without any."""
    room = [each for each in oldest if len(each.segment.body) < most_chars - 1][:_CANDIDATES]
    best: tuple[float, int, int] | None = None
    for at, one in enumerate(room):
        for further, other in enumerate(room[at + 1 :], at + 1):
            a, b = one.segment, other.segment
            if a.kind != b.kind or len(a.body) + len(b.body) + 1 > most_chars:
                continue
            words, more = _form(a.body).vocabulary, _form(b.body).vocabulary
            shared = len(words & more) / max(1, min(len(words), len(more)))
            found = (-shared, at, further)
            if best is None or found < best:
                best = found
    return None if best is None else (room[best[1]], room[best[2]])
