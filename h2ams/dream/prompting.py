"""The words that a model is asked with: packaged texts, and the slice as JSON data.

Instructions stand in the system message, everything that people and assistants wrote in one JSON
document in the user's message: what is data and what is not is never a matter of wording.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache

from h2ams.memory.extraction import ExtractionRequest, SourceMessage, Target
from h2ams.memory.scope import Scope

_SHOWN_CHARS = 400  # of a known segment: enough to tell it from others
_LANGUAGES = {"en": "English", "zh": "Chinese", "ru": "Russian"}


@cache
def prompt(name: str) -> str:
    """The packaged text ``prompts/<name>.md``."""
    from importlib import resources

    path = resources.files("h2ams.dream") / "prompts" / f"{name}.md"
    return path.read_text(encoding="utf-8").strip()


def guidance(scope: Scope) -> str:
    """What belongs into a scope of this kind."""
    if scope.member in ("vp", "topic", "feature", "user"):
        return prompt(f"scope_{scope.member}")
    return prompt(
        {"sessions": "scope_session", "chat": "scope_chat"}.get(scope.family, "scope_user")
    )


def instructions(targets: Iterable[Target]) -> str:
    """The system message of an extraction."""
    lines = [f"- {each.scope.text}: {guidance(each.scope)}" for each in targets]
    return "\n".join((prompt("extract"), "", "Scopes:", *lines))


def data(request: ExtractionRequest) -> str:
    """The slice and what the scopes hold already, as one JSON document."""
    document = {
        "kinds": list(request.kinds),
        "memory": [
            {
                "scope": target.scope.text,
                "segments": [
                    {"id": known.id, "kind": known.kind, "body": known.body[:_SHOWN_CHARS]}
                    for known in target.known
                ],
            }
            for target in request.targets
        ],
        "context": [_message(each) for each in request.context],
        "messages": [{"id": each.id, **_message(each)} for each in request.messages],
    }
    return json.dumps(document, ensure_ascii=False, indent=1)


def _message(message: SourceMessage) -> dict[str, str]:
    found = {"role": message.role, "text": message.text}
    if message.created_at:
        found["at"] = message.created_at
    if message.vp:
        found["vp"] = message.vp
    return found


def retry(reason: str) -> str:
    """What is said to a model whose answer could not be read."""
    return prompt("retry").format(reason=reason)


def summary(language: str, most_words: int) -> str:
    """The system message of a summary."""
    return prompt("summary").format(language=_LANGUAGES.get(language, language), words=most_words)
