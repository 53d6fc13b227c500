"""What is asked of a language model and what comes back (Pure): values and one protocol.

A transport has one method, ``complete``. It gives a ``Completion`` or raises ``ModelError``; what a
completion is worth (required sections, sizes, JSON) is for the caller to validate. Errors and logs
never carry text of a request or of an answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "tool-call", "filtered", "unknown"]


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a request; ``content`` is plain text."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One call. ``purpose`` names the caller's job in telemetry, e.g. ``thread.summary``.

    ``schema`` is a JSON schema for the answer (``None``: free text); transports that cannot enforce
    it leave it to the prompt. ``source_text`` is what an extractive transport works on: the text to
    condense, without instructions. ``max_output_tokens`` bounds the answer.
    """

    purpose: str
    messages: tuple[ModelMessage, ...]
    max_output_tokens: int = 1_024
    schema: Mapping[str, object] | None = None
    source_text: str = ""
    idempotency_key: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; ``None`` where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer: its visible text, why it ended, and what it cost."""

    text: str
    finish_reason: FinishReason = "stop"
    usage: Usage = Usage()
    model: str = ""


class Model(Protocol):
    """A transport. ``name`` identifies it in receipts; never a key or an address with one."""

    @property
    def name(self) -> str: ...

    def complete(self, request: Request) -> Completion:
        """The model's answer; ``ModelError`` where there is none."""
        ...


def with_schema(request: Request) -> tuple[ModelMessage, ...]:
    """The messages of a request whose schema the transport cannot enforce: the last one asks."""
    if request.schema is None or not request.messages:
        return request.messages
    *before, last = request.messages
    schema = json.dumps(request.schema, ensure_ascii=False)
    text = f"{last.content}\n\nAnswer with one JSON value that fits this schema:\n{schema}"
    return (*before, replace(last, content=text))
