"""A language model as extractor: one request, and one more that shows what was wrong."""

from __future__ import annotations

from collections.abc import Callable

from h2ams.dream import prompting
from h2ams.memory.extraction import (
    Answer,
    ExtractionRequest,
    UnreadableAnswer,
    parse_answer,
    schema_of,
)
from h2ams.models.request import Completion, Model, ModelMessage, Request

_REPEATED_CHARS = 2_000  # of an unreadable answer that is shown to the model again
_CUT_SHORT = {
    "length": "it was cut off before its end",
    "tool-call": "it calls a tool, and there are none",
    "filtered": "it was withheld by the server's filter",
}

Debug = Callable[[str], None]


class ModelExtractor:
    """Asks ``model``. ``debug`` gets every request with its answer, where a person asked for it."""

    def __init__(self, model: Model, *, answer_tokens: int, debug: Debug | None = None) -> None:
        self._model = model
        self._answer_tokens = answer_tokens
        self.debug = debug

    @property
    def name(self) -> str:
        return self._model.name

    def extract(self, request: ExtractionRequest) -> Answer:
        """The model's operations. ``UnreadableAnswer`` where its second answer is none either."""
        system = prompting.instructions(request.targets)
        asked = Request(
            "dream.extract",
            (ModelMessage("system", system), ModelMessage("user", prompting.data(request))),
            max_output_tokens=self._answer_tokens,
            schema=schema_of(request),
        )
        answer = self._complete(asked)
        try:
            return _read(answer, system)
        except UnreadableAnswer as error:
            again = (
                *asked.messages,
                ModelMessage("assistant", answer.text[:_REPEATED_CHARS] or "(nothing)"),
                ModelMessage("user", prompting.retry(str(error))),
            )
        return _read(
            self._complete(
                Request(
                    asked.purpose,
                    again,
                    max_output_tokens=self._answer_tokens,
                    schema=asked.schema,
                )
            ),
            system,
        )

    def _complete(self, request: Request) -> Completion:
        answer = self._model.complete(request)
        if self.debug is not None:
            parts = [f"## {each.role}\n\n{each.content}" for each in request.messages]
            self.debug("\n\n".join((*parts, f"## answer ({answer.finish_reason})", answer.text)))
        return answer


def _read(answer: Completion, system: str) -> Answer:
    if answer.finish_reason in _CUT_SHORT:
        raise UnreadableAnswer(_CUT_SHORT[answer.finish_reason])
    return parse_answer(answer.text, system)
