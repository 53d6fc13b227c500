"""Refreshing the summaries of a scope: every language that exists, bounded, hand-edited ones kept.

Strategy: what decides is in the files alone: the recorded basis tells whether a summary is up to
date and whether somebody has edited it. A model may write the text; whatever it writes is bounded
by the tokeniser and falls back to the built-in text where it is no summary.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from h2ams.dream import brief, prompting
from h2ams.dream.records import Touched
from h2ams.errors import H2amsError, ModelError
from h2ams.files import Root
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
    ) -> tuple[Refreshed, ...]:
        """Bring every summary of ``scope`` up to date, the default one made where it is missing.

        ``force`` overwrites what a person has edited. ``now`` (ISO) dates what is written. One
        that cannot be written holds no other one back.
        """
        target = self._store.canonical(scope)
        done: list[Refreshed] = []
        with self._store.lock(target):
            segments = self._store.held(target)[0]
            for language, path in self._existing(target):
                try:
                    done.append(
                        self._one(
                            target,
                            segments,
                            language,
                            path,
                            force=force,
                            journal=journal,
                            dry_run=dry_run,
                            now=now,
                        )
                    )
                except H2amsError as error:
                    text = error.message
                    done.append(Refreshed(target.text, language, path, "failed", message=text))
        return tuple(done)

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

    def _existing(self, target: Scope) -> list[tuple[str, str]]:
        """Language and path of the default summary and of every other one that there is."""
        home = self._store.home(target)
        found = {"en": f"{home}/{summary_file('en')}"}
        for folder in self._store.folders(target):
            place = place_of(folder)
            if place is None:
                continue
            for name in sorted(os.listdir(self._root.absolute(folder))):
                what, language = role(place, name)
                if what is Role.SUMMARY:
                    found.setdefault(language or "en", f"{home}/{name}")
        return list(found.items())

    def _one(
        self,
        target: Scope,
        segments: Sequence[Held],
        language: str,
        path: str,
        *,
        force: bool,
        journal: Journal | None,
        dry_run: bool,
        now: str | None,
    ) -> Refreshed:
        file = self._root.read(path)
        current = None if file is None else parse_summary(file.data, settings=self._settings)
        own = current is None or current.is_stub or not current.text.strip()
        digest = brief.digest(segments)
        if current is not None and not own and not force:
            if not brief.is_ours(current.basis, current.text):
                return Refreshed(target.text, language, path, "hand-edited")
            if brief.is_fresh(current.basis, digest):
                size = self._counter.count(current.text)
                return Refreshed(target.text, language, path, "fresh", size)
        text, fell_back = self._text(segments, language)
        if not text:
            if file is None:
                return Refreshed(target.text, language, path, "empty")
            if not dry_run:
                if journal is not None:
                    journal(Touched(path, file.data, None))
                self._root.remove(path, expect=file)
            return Refreshed(target.text, language, path, "removed")
        result = self._store.write_summary(
            target,
            text,
            language,
            basis=brief.basis(digest, text),
            expect=file.sha256 if file else "",
            dry_run=dry_run,
            now=now,
            journal=None
            if journal is None
            else lambda before, after: journal(Touched(path, before, after)),
        )
        size = self._counter.count(text)
        status: Status = "written" if result.changed else "fresh"
        return Refreshed(
            target.text, language, path, status, size, fell_back=fell_back, diff=result.diff
        )

    def _text(self, segments: Sequence[Held], language: str) -> tuple[str, bool]:
        """The text, and whether the model's one could not be used."""
        most = self._settings.summary_tokens
        fell_back = False
        if self._model is not None and segments:
            written = self._written(self._model, segments, language, most)
            if written:
                return written, False
            fell_back = True
        return brief.brief(segments, language, most, self._counter.count), fell_back

    def _written(self, model: Model, segments: Sequence[Held], language: str, most: int) -> str:
        """The model's summary with its origin, within the bound; "" where it is none."""
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


def wrote(done: Iterable[Refreshed]) -> tuple[str, ...]:
    """The files that were written or removed."""
    return tuple(each.path for each in done if each.status in ("written", "removed"))
