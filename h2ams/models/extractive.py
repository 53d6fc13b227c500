"""The built-in model, which is none: the most telling sentences of the text, always the same ones.

Needs no network and no weights, never fails, never invents. It condenses ``Request.source_text``
and cannot follow instructions: a request with a schema is not for it.
"""

from __future__ import annotations

from h2ams import tokens
from h2ams.errors import ModelError
from h2ams.models.request import Completion, Request, Usage
from h2ams.text.extract import extract

_CHARS_PER_TOKEN = 6  # more than any language has: the first try is cut down from above


class Extractive:
    """Answers with a digest of the source text within ``max_output_tokens`` of ``counter``."""

    name = "extractive"

    def __init__(self, counter: tokens.TokenCounter | None = None) -> None:
        self._counter = counter or tokens.counter(tokens.ESTIMATE)

    def __repr__(self) -> str:
        return "Extractive()"

    def complete(self, request: Request) -> Completion:
        """The digest. ``ModelError`` (refused) for a schema, (empty) where there is no text."""
        if request.schema is not None:
            raise ModelError(
                "refused",
                "the built-in extractive model cannot answer by a schema",
                hint="set H2AMS_MODEL to a real model",
            )
        limit = request.max_output_tokens
        text = extract(request.source_text, most_chars=limit * _CHARS_PER_TOKEN)
        size = self._counter.count(text)
        while size > limit:
            text = extract(request.source_text, most_chars=len(text) * limit // (size + 1))
            size = self._counter.count(text)
        if not text.strip():
            raise ModelError("empty", "there is no text to condense")
        read = self._counter.count(request.source_text)
        return Completion(text, usage=Usage(read, size), model=self.name)
