"""What the target scopes hold while a pass goes on: on disk, and what its slices have changed.

Nothing is written between two slices, yet the second must see what the first has learned, or it
could not correct it. So the changes are applied to values, by the rules by which they will be
applied to the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from h2ams.dream.rules import RulesExtractor
from h2ams.memory.consolidation import Held, consolidate
from h2ams.memory.extraction import Extractor, Known, SourceMessage, Target
from h2ams.memory.scope import Scope
from h2ams.memory.store import Store
from h2ams.memory.validation import Change
from h2ams.settings import Settings
from h2ams.text.likeness import wording

_UNBOUNDED = 1 << 40  # segments are merged when they are written, not before


class Knowing:
    """The segments of every scope that this pass has looked at."""

    def __init__(self, store: Store, settings: Settings, extractor: Extractor, now: str) -> None:
        self._store = store
        self._settings = settings
        # The rules look every slot up; a model's prompt is bounded.
        self._all = isinstance(extractor, RulesExtractor)
        self._now = now
        self._held: dict[Scope, tuple[Held, ...]] = {}
        self._archived: dict[Scope, tuple[Held, ...]] = {}

    def targets(
        self, scopes: Iterable[Scope], messages: Sequence[SourceMessage]
    ) -> tuple[Target, ...]:
        """The target scopes with those of their segments that ``messages`` may be about."""
        words = frozenset(word for each in messages for word in wording(each.text).vocabulary)
        found = []
        for scope in scopes:
            held = [each for each in self._of(scope) if not each.fixed]
            chosen = held if self._all else self._closest(held, words)
            known = tuple(_known(each) for each in chosen)
            found.append(Target(scope, known, len(held)))
        return tuple(found)

    def learn(self, changes: Sequence[Change]) -> None:
        """Apply validated changes."""
        for scope in dict.fromkeys(change.scope for change in changes):
            made = consolidate(
                scope.text,
                self._of(scope),
                self._archived[scope],
                [change for change in changes if change.scope == scope],
                now=self._now,
                most_count=_UNBOUNDED,
                most_chars=self._settings.dream_body_chars,
            )
            self._held[scope] = made.after
            retired = (Held(segment.id, segment) for _, segment in made.archived)
            self._archived[scope] = (*self._archived[scope], *retired)

    def _of(self, scope: Scope) -> tuple[Held, ...]:
        if scope not in self._held:
            self._held[scope], self._archived[scope] = self._store.held(scope)
        return self._held[scope]

    def _closest(self, held: Sequence[Held], words: frozenset[str]) -> list[Held]:
        """The segments that share most words with the messages, then the newest; newest last."""
        most = self._settings.dream_known_count
        ranked = sorted(held, key=_age, reverse=True)
        ranked.sort(key=lambda each: -len(words & wording(each.segment.body).vocabulary))
        return sorted(ranked[:most], key=_age)


def _known(held: Held) -> Known:
    segment = held.segment
    return Known(held.id, segment.kind, segment.tags, segment.body, updated_at=segment.updated_at)


def _age(held: Held) -> tuple[str, str]:
    return held.segment.updated_at or "", held.id
