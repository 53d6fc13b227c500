"""Refreshing the summaries of a scope: every language that exists, bounded, hand-edited ones kept.

Strategy: what decides is in the files alone: the recorded basis tells whether a summary is up to
date and whether somebody has edited it. A model may write the text; whatever it writes is bounded
by the tokeniser and falls back to the built-in text where it is no summary. Nobody waits for it
before he may write: it is asked without the lock of the scope, and what it answers is written only
over the very segments that it was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from h2ams.dream import brief, prompting
from h2ams.dream.records import Touched
from h2ams.errors import ConflictError, H2amsError, ModelError
from h2ams.files import FileState, Root
from h2ams.memory.consolidation import Held
from h2ams.memory.layout import Role, place_of, role
from h2ams.memory.scope import Scope
from h2ams.memory.store import Store
from h2ams.memory.summaries import summary_file
from h2ams.memory.summary import bounded, parse_summary
from h2ams.models.request import Model, ModelMessage, Request
from h2ams.settings import Settings
from h2ams.text.injection import is_instruction, is_scaffold
from h2ams.text.redact import redact
from h2ams.tokens import TokenCounter

MOST_TRIES = 3  # of a model, where others change the segments while it writes
_TOKENS_PER_WORD = 2  # of any language: what a model is told, not what is enforced

Status = Literal["written", "fresh", "stale", "hand-edited", "removed", "empty", "failed"]
Journal = Callable[[Touched], None]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """One summary. ``fell_back`` where the model's text was none; ``message`` where it failed."""

    scope: str
    language: str
    path: str
    status: Status
    tokens: int = 0
    fell_back: bool = False
    message: str = ""
    diff: str = ""


@dataclass(frozen=True, slots=True)
class _Order:
    """What one call asks for. ``answers``: the model's texts, "" for none, by language, for the
    segments with the digest ``asked``; "" where no model was asked."""

    scope: Scope
    force: bool
    dry_run: bool
    journal: Journal | None
    now: str | None
    asked: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)


class Summariser:
    """Refreshes summaries of one root. ``model`` None: the built-in text."""

    def __init__(
        self,
        root: Root,
        store: Store,
        settings: Settings,
        counter: TokenCounter,
        model: Model | None = None,
    ) -> None:
        self._root = root
        self._store = store
        self._settings = settings
        self._counter = counter
        self._model = model

    def refresh(
        self,
        scope: Scope,
        *,
        force: bool = False,
        journal: Journal | None = None,
        dry_run: bool = False,
        now: str | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[Refreshed, ...]:
        """Bring every summary of ``scope`` up to date, the default one made where it is missing.

        ``force`` overwrites what a person has edited. ``now`` (ISO) dates what is written. One
        that cannot be written holds no other one back. ``is_wanted`` is asked with the lock held,
        when the model has answered; without it nothing is done. Call it without that lock.
        """
        target = self._store.canonical(scope)
        order = _Order(target, force, dry_run, journal, now)
        began = self._store.presence(target)
        for tries_left in reversed(range(MOST_TRIES)):
            asked = self._asked(order)
            with self._store.lock(target):
                if not is_wanted():
                    return ()
                try:
                    began.check()
                except ConflictError as error:
                    return (_failed(target, "en", self._default(target), error),)
                segments = self._store.held(target)[0]
                if tries_left and asked.asked not in ("", brief.digest(segments)):
                    continue  # somebody wrote meanwhile: the model sees that too
                existing = self._existing(target)
                return tuple(self._one(asked, segments, *each) for each in existing)
        raise AssertionError("the last try returns")

    def _asked(self, order: _Order) -> _Order:
        """``order`` with what the model writes of the segments as they are now."""
        segments = self._store.held(order.scope)[0] if self._model is not None else ()
        if self._model is None or not segments:
            return order
        digest = brief.digest(segments)
        answers: dict[str, str] = {}
        for language, path in self._existing(order.scope):
            with suppress(H2amsError):  # what cannot be read is told when it is to be written
                if self._settled(order, digest, language, path, self._root.read(path)) is None:
                    answers[language] = self._written(self._model, segments, language)
        return replace(order, asked=digest, answers=answers)

    def state(self, scope: Scope) -> tuple[Refreshed, ...]:
        """Every existing summary of ``scope``: fresh, stale, or hand-edited."""
        target = self._store.canonical(scope)
        segments = brief.digest(self._store.held(target)[0])
        found = []
        for language, path in self._existing(target):
            file = self._root.read(path)
            if file is None:
                continue
            now = parse_summary(file.data, settings=self._settings)
            tokens = self._counter.count(now.text)
            ours = brief.is_ours(now.basis, now.text)
            status: Status = "stale" if ours or now.is_stub else "hand-edited"
            if ours and brief.is_fresh(now.basis, segments):
                status = "fresh"
            found.append(Refreshed(target.text, language, path, status, tokens))
        return tuple(found)

    def _default(self, target: Scope) -> str:
        return f"{self._store.home(target)}/{summary_file('en')}"

    def _existing(self, target: Scope) -> list[tuple[str, str]]:
        """Language and path of the default summary and of every other one that there is."""
        found = {"en": self._default(target)}
        home = found["en"].rpartition("/")[0]
        for folder in self._store.folders(target):
            place = place_of(folder)
            if place is None:
                continue
            names: list[str] = []
            with suppress(FileNotFoundError):  # it went this moment
                names = sorted(os.listdir(self._root.absolute(folder)))
            for name in names:
                what, language = role(place, name)
                if what is Role.SUMMARY:
                    found.setdefault(language or "en", f"{home}/{name}")
        return list(found.items())

    def _one(self, order: _Order, segments: Sequence[Held], language: str, path: str) -> Refreshed:
        """Bring one summary up to date; with the lock held."""
        digest = brief.digest(segments)
        try:
            file = self._root.read(path)
            settled = self._settled(order, digest, language, path, file)
            if settled is not None:
                return settled
            text, fell_back = self._text(order, segments, digest, language)
            if not text:
                return self._without(order, language, path, file)
            return self._with(order, text, digest, language, path, file, fell_back=fell_back)
        except H2amsError as error:
            return _failed(order.scope, language, path, error)

    def _settled(
        self, order: _Order, digest: str, language: str, path: str, file: FileState | None
    ) -> Refreshed | None:
        """What is said of a summary that stays as it is; None for one that is to be written."""
        current = None if file is None else parse_summary(file.data, settings=self._settings)
        if current is None or current.is_stub or not current.text.strip() or order.force:
            return None
        if not brief.is_ours(current.basis, current.text):
            return Refreshed(order.scope.text, language, path, "hand-edited")
        if brief.is_fresh(current.basis, digest):
            size = self._counter.count(current.text)
            return Refreshed(order.scope.text, language, path, "fresh", size)
        return None

    def _without(
        self, order: _Order, language: str, path: str, file: FileState | None
    ) -> Refreshed:
        """Take the summary of nothing away."""
        if file is None:
            return Refreshed(order.scope.text, language, path, "empty")
        if not order.dry_run:
            if order.journal is not None:
                order.journal(Touched(path, file.data, None))
            self._root.remove(path, expect=file)
        return Refreshed(order.scope.text, language, path, "removed")

    def _with(
        self,
        order: _Order,
        text: str,
        digest: str,
        language: str,
        path: str,
        file: FileState | None,
        *,
        fell_back: bool,
    ) -> Refreshed:
        """Write ``text`` over ``file``."""
        journal = order.journal
        result = self._store.write_summary(
            order.scope,
            text,
            language,
            basis=brief.basis(digest, text),
            expect=file.sha256 if file else "",
            dry_run=order.dry_run,
            now=order.now,
            journal=None
            if journal is None
            else lambda before, after: journal(Touched(path, before, after)),
        )
        size = self._counter.count(text)
        status: Status = "written" if result.changed else "fresh"
        return Refreshed(
            order.scope.text, language, path, status, size, fell_back=fell_back, diff=result.diff
        )

    def _text(
        self, order: _Order, segments: Sequence[Held], digest: str, language: str
    ) -> tuple[str, bool]:
        """The text, and whether the model's one could not be used.

        ``ConflictError`` where the model saw other segments.
        """
        fell_back = False
        if self._model is not None and segments:
            if digest != order.asked:
                raise ConflictError(
                    f"{order.scope} was changed each time while the model wrote its summary",
                    hint="refresh it again when fewer others write",
                    path=order.scope.text,
                )
            if written := order.answers.get(language):
                return written, False
            fell_back = True
        most = self._settings.summary_tokens
        return brief.brief(segments, language, most, self._counter.count), fell_back

    def _written(self, model: Model, segments: Sequence[Held], language: str) -> str:
        """The model's summary with its origin, within the bound; "" where it is none."""
        most = self._settings.summary_tokens
        lines = [f"- ({kind}) {text}" for kind, text in brief.facts(segments)]
        last = brief.origin(segments, language)
        room = most - self._counter.count(last) - 2
        source = "\n".join(lines)
        words = max(20, room // _TOKENS_PER_WORD)
        asked = Request(
            "dream.summary",
            (
                ModelMessage("system", prompting.summary(language, words)),
                ModelMessage("user", source),
            ),
            max_output_tokens=most,
            source_text=source,
        )
        try:
            answer = model.complete(asked)
        except ModelError:
            return ""
        text = redact(answer.text.strip()).text
        if answer.finish_reason not in ("stop", "length") or is_scaffold(text):
            return ""
        if is_instruction(text) or not text:
            return ""
        made = f"{bounded(text, room, self._counter)}\n\n{last}"
        return made if self._counter.count(made) <= most else ""


def _failed(scope: Scope, language: str, path: str, error: H2amsError) -> Refreshed:
    return Refreshed(scope.text, language, path, "failed", message=error.message)


def wrote(done: Iterable[Refreshed]) -> tuple[str, ...]:
    """The files that were written or removed."""
    return tuple(each.path for each in done if each.status in ("written", "removed"))
