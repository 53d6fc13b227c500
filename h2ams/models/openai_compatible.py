"""Chat completions as OpenAI defined them: llama.cpp, Ollama, LM Studio, vLLM, OpenRouter, OpenAI.

Strategy: what the protocol can say goes wrong is told apart: no visible text (blank, or reasoning
only) is an error, a tool call or a cut-off answer is a completion whose finish reason says so. A
server that reports far fewer prompt tokens than the text can have has cut the prompt silently:
that answer is refused. A server that does not know ``response_format`` is asked again without it,
the schema then stands in the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from h2ams import tokens
from h2ams.errors import ConfigError, ModelError
from h2ams.models.http_json import JsonClient, Patience, checked_key
from h2ams.models.request import Completion, FinishReason, Request, Usage, with_schema

# The estimate says rather too much, and newer encodings need a third of it for some scripts; so a
# prompt reported below this share has lost text. Short prompts cannot overflow any window.
LEAST_PROMPT_SHARE = 0.25
LEAST_CHECKED_TOKENS = 1_000
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool-call",
    "function_call": "tool-call",
    "content_filter": "filtered",
}
_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)


class OpenAiCompatible:
    """A model behind ``<base_url>/chat/completions``."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        key: str | None = None,
        patience: Patience | None = None,
        temperature: float | None = 0.0,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
        chance: Callable[[], float] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        if not model:
            raise ConfigError("no model is named", hint="give the name that the server knows")
        secret = checked_key(key)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
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
        self._temperature = temperature
        self._knows_schemas = True
        self._counter = tokens.counter(tokens.ESTIMATE)

    @property
    def name(self) -> str:
        return f"openai-compatible:{self._model}"

    def __repr__(self) -> str:
        return f"OpenAiCompatible({self._model!r})"

    def complete(self, request: Request) -> Completion:
        """The answer's visible text. ``ModelError`` where there is none."""
        enforced = request.schema is not None and self._knows_schemas
        try:
            return self._complete(request, enforced=enforced)
        except ModelError as error:
            if not enforced or error.failure != "refused":
                raise
        answer = self._complete(request, enforced=False)
        self._knows_schemas = False  # it was the schema that the server refused
        return answer

    def _complete(self, request: Request, *, enforced: bool) -> Completion:
        body = self._body(request, enforced=enforced)
        estimate = sum(self._counter.count(message.content) for message in request.messages)

        def check(reply: Mapping[str, object]) -> None:
            answer = completion(reply)
            check_prompt(answer.usage.input_tokens, estimate)

        headers = {}
        if request.idempotency_key is not None and request.idempotency_key.isascii():
            headers["Idempotency-Key"] = request.idempotency_key
        return completion(self._client.post("/chat/completions", body, check, headers=headers))

    def _body(self, request: Request, *, enforced: bool) -> dict[str, object]:
        messages = request.messages if enforced else with_schema(request)
        body: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": each.role, "content": each.content} for each in messages],
            "max_tokens": request.max_output_tokens,
            "stream": False,
        }
        if self._temperature is not None:
            body["temperature"] = self._temperature
        if enforced and request.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "strict": True, "schema": dict(request.schema)},
            }
        return body


def check_prompt(reported_tokens: int | None, estimate_tokens: int) -> None:
    """``ModelError`` (truncated-input) where the server has read far less than was sent."""
    if reported_tokens is None or reported_tokens <= 0 or estimate_tokens < LEAST_CHECKED_TOKENS:
        return
    if reported_tokens < LEAST_PROMPT_SHARE * estimate_tokens:
        raise ModelError(
            "truncated-input",
            f"the model server read {reported_tokens} tokens of about {estimate_tokens}",
            hint="raise the server's context length or send less",
        )


def completion(reply: Mapping[str, object]) -> Completion:
    """The first choice of a reply; ``ModelError`` where it has no visible text or no shape."""
    choices = reply.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    message = first.get("message") if isinstance(first, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(message, Mapping):
        raise ModelError("bad-reply", "model server: the reply holds no message")
    finish = _FINISH.get(str(first.get("finish_reason")), "unknown")
    if message.get("tool_calls") or message.get("function_call"):
        finish = "tool-call"
    text = visible_text(message.get("content"))
    if not text.strip() and finish not in ("tool-call", "filtered"):
        reasoned = message.get("reasoning_content") or message.get("reasoning")
        what = "only reasoning" if reasoned or message.get("content") else "nothing"
        raise ModelError("empty", f"the model answered {what}, no visible text")
    usage = reply.get("usage")
    counted = usage if isinstance(usage, Mapping) else {}
    name = reply.get("model")
    return Completion(
        text,
        finish,
        Usage(count_of(counted, "prompt_tokens"), count_of(counted, "completion_tokens")),
        name if isinstance(name, str) else "",
    )


def visible_text(content: object) -> str:
    """Text of a message's content (a string or parts), without reasoning at its beginning."""
    if isinstance(content, str):
        text = content
    elif isinstance(content, Sequence):
        parts = [part for part in content if isinstance(part, Mapping)]
        texts = [part.get("text") for part in parts if part.get("type") in ("text", "output_text")]
        text = "".join(each for each in texts if isinstance(each, str))
    else:
        text = ""
    thought = _THOUGHT.match(text)
    return text[thought.end() :].lstrip() if thought else text


def count_of(usage: Mapping[str, object], name: str) -> int | None:
    """A number of tokens as the server said it; None for anything that is none."""
    value = usage.get(name)
    return value if type(value) is int and value >= 0 else None
