"""Anthropic's Messages API over plain HTTP.

The schema of a request stands in the prompt; the answer is for the caller to validate. Thinking
blocks are no visible text. Input tokens are the sum of what was read anew and from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from h2ams import tokens
from h2ams.errors import ConfigError, ModelError
from h2ams.models.http_json import JsonClient, Patience, checked_key
from h2ams.models.openai_compatible import check_prompt, count_of
from h2ams.models.request import Completion, FinishReason, Request, Usage, with_schema

BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
_FINISH: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool-call",
    "refusal": "filtered",
}
_INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class Anthropic:
    """A model behind ``<base_url>/v1/messages``."""

    def __init__(
        self,
        model: str,
        *,
        key: str | None,
        base_url: str = BASE_URL,
        patience: Patience | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
        chance: Callable[[], float] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        if not model:
            raise ConfigError("no model is named", hint="give the name that the server knows")
        secret = checked_key(key)
        headers = {"anthropic-version": API_VERSION}
        if secret:
            headers["x-api-key"] = secret
        self._client = JsonClient(
            base_url,
            headers,
            secret=secret,
            patience=patience,
            clock=clock,
            sleep=sleep,
            chance=chance,
            now=now,
        )
        self._model = model
        self._counter = tokens.counter(tokens.ESTIMATE)

    @property
    def name(self) -> str:
        return f"anthropic:{self._model}"

    def __repr__(self) -> str:
        return f"Anthropic({self._model!r})"

    def complete(self, request: Request) -> Completion:
        """The answer's visible text. ``ModelError`` where there is none."""
        messages = with_schema(request)
        system = "\n\n".join(each.content for each in messages if each.role == "system")
        body: dict[str, object] = {
            "model": self._model,
            "max_tokens": request.max_output_tokens,
            "messages": [
                {"role": each.role, "content": each.content}
                for each in messages
                if each.role != "system"
            ],
        }
        if system:
            body["system"] = system
        estimate = sum(self._counter.count(message.content) for message in messages)

        def check(reply: Mapping[str, object]) -> None:
            check_prompt(completion(reply).usage.input_tokens, estimate)

        return completion(self._client.post("/v1/messages", body, check))


def completion(reply: Mapping[str, object]) -> Completion:
    """The text blocks of a reply; ``ModelError`` where there is no visible text or no shape."""
    content = reply.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise ModelError("bad-reply", "model server: the reply holds no message")
    blocks = [block for block in content if isinstance(block, Mapping)]
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    text = "".join(each for each in texts if isinstance(each, str))
    finish = _FINISH.get(str(reply.get("stop_reason")), "unknown")
    if any(block.get("type") == "tool_use" for block in blocks):
        finish = "tool-call"
    if not text.strip() and finish not in ("tool-call", "filtered"):
        what = "only reasoning" if blocks else "nothing"
        raise ModelError("empty", f"the model answered {what}, no visible text")
    usage = reply.get("usage")
    counted = usage if isinstance(usage, Mapping) else {}
    read = [count_of(counted, name) for name in _INPUT_COUNTS]
    known = [each for each in read if each is not None]
    name = reply.get("model")
    return Completion(
        text,
        finish,
        Usage(sum(known) if known else None, count_of(counted, "output_tokens")),
        name if isinstance(name, str) else "",
    )
