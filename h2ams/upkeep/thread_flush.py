"""The memory flush of threads: what is about to be folded becomes memory first.

It goes the way of Dream's extraction: the same contract, the same validation, the same writing.
There is no watermark: the thread itself keeps which rows were flushed. What a later pass of Dream
finds again is a duplicate there and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from h2ams import tokens
from h2ams.dream.collect import collect
from h2ams.dream.knowing import Knowing
from h2ams.dream.model_extractor import ModelExtractor
from h2ams.dream.rules import RulesExtractor
from h2ams.dream.slicing import Slice, slices
from h2ams.errors import StoreError
from h2ams.memory.absorb import Absorbed, write_changes
from h2ams.memory.extraction import ExtractionRequest, Extractor, targets_of
from h2ams.memory.presence import Presence, gone
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.validation import Change, Rules, Validated, extract_changes
from h2ams.memory.values import format_time
from h2ams.threads.flush import FlushReport, FlushRequest

if TYPE_CHECKING:
    from h2ams.memory.store import Store
    from h2ams.models.request import Model
    from h2ams.settings import Settings


class ThreadFlush:
    """The ``Flush`` of one memory folder.

    ``model`` gives the configured model, None for the built-in rules. ``existing`` gives the scopes
    that there are; ``synced`` brings the index up to date with files that were written.
    ``owner_of`` gives the scope that a thread belongs to now, None where there is no such thread:
    what was said in one that went elsewhere while the model was asked is not written.
    """

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        clock: Callable[[], datetime],
        model: Callable[[], Model | None],
        existing: Callable[[], Iterable[Scope]],
        synced: Callable[[Sequence[str]], None],
        owner_of: Callable[[str], str | None] | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._clock = clock
        self._model = model
        self._existing = existing
        self._synced = synced
        self._owner_of = owner_of

    def __call__(self, request: FlushRequest) -> FlushReport:
        """Write what is durable. ``H2amsError`` where no answer or no scope could be had."""
        extractor = self._extractor()
        owner = parse_scope(request.scope) if request.scope else None
        began = None if owner is None else self._store.presence(owner)
        knowing = Knowing(self._store, self._settings, extractor, format_time(self._clock()))
        changes: list[Change] = []
        refused = 0
        for piece in self._slices(request):
            found = self._asked(extractor, request, piece, knowing)
            if found.failed:  # nothing is written: the whole flush is done again
                codes = ", ".join(sorted({each.code for each in found.refusals}))
                raise StoreError(f"memory flush of thread {request.thread}: {codes}")
            knowing.learn(found.changes)
            changes += found.changes
            refused += len(found.refusals)

        def absorb(scope: Scope, of_scope: Sequence[Change]) -> Absorbed:
            with self._store.lock(scope):
                self._check_wanted(request, began)
                return self._store.absorb(scope, of_scope)

        done = write_changes(absorb, changes)
        self._synced([path for each in done.done for path in each.paths])
        for _, error in done.failed:
            raise error
        addresses = [
            f"{each.scope}#{id}"
            for each in done.done
            for id in dict.fromkeys((*each.added, *each.updated))
        ]
        return FlushReport(tuple(addresses), refused, extractor.name)

    def _check_wanted(self, request: FlushRequest, began: Presence | None) -> None:
        """``ConflictError`` where the thread or its scope went away since the flush began."""
        if self._owner_of is not None and self._owner_of(request.thread) != request.scope:
            raise gone(f"thread {request.thread}")
        if began is not None:
            began.check()

    def _extractor(self) -> Extractor:
        model = self._model()
        if model is None:
            return RulesExtractor()
        return ModelExtractor(model, answer_tokens=self._settings.dream_answer_tokens)

    def _slices(self, request: FlushRequest) -> tuple[Slice, ...]:
        messages = [
            {
                "id": each.id,
                "role": each.role,
                "content": each.text,
                "createdAt": each.created_at,
            }
            for each in request.messages
        ]
        return slices(
            collect(messages, self._settings).messages,
            (),
            most_tokens=self._settings.dream_slice_tokens,
            context_count=self._settings.dream_context_count,
            count=tokens.counter(tokens.ESTIMATE).count,
        )

    def _asked(
        self, extractor: Extractor, request: FlushRequest, piece: Slice, knowing: Knowing
    ) -> Validated:
        owner = parse_scope(request.scope) if request.scope else None
        scopes = targets_of(
            session=owner.session if owner else None,
            chat=owner.chat if owner else None,
            existing=self._existing(),
        )
        targets = knowing.targets(scopes, piece.messages)
        slice_ = ExtractionRequest(piece.messages, targets, piece.context)
        return extract_changes(extractor, slice_, Rules(self._settings))
