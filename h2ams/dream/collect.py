"""Messages as a host has them into messages that memory may be made of (Pure).

JSON lines or mappings in the shapes that chat programs write. What is no conversation goes out:
tool payloads, images, system messages, memory that was shown (kept apart, so that it is not learned
again), reminders of a host. Secrets and private passages are replaced before anything else sees
the text; text over the limit is cut, and says so.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from h2ams.memory.extraction import MessageRole, SourceMessage
from h2ams.memory.values import Problem, clean_text, format_time, source_id
from h2ams.settings import Settings
from h2ams.text import fences
from h2ams.text.redact import redact

_ROLES: Mapping[str, MessageRole] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "diff": "diff",
}
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_TIME_KEYS = ("createdAt", "created_at", "timestamp", "time", "at", "date")
_VP_KEYS = ("vp", "vpId", "vp_id", "role_id")
_REMINDER = re.compile(
    r"<(system-reminder|system_reminder|environment_details|context-reminder)>.*?(?:</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_LATEST_S = 253_402_300_799  # the last second of the year 9999


@dataclass(frozen=True, slots=True)
class Collected:
    """The messages in their order; ``left_out_count`` had no text of a person or an assistant."""

    messages: tuple[SourceMessage, ...] = ()
    problems: tuple[Problem, ...] = ()
    left_out_count: int = 0


def from_json_lines(text: str, settings: Settings, *, path: str = "") -> Collected:
    """Messages of JSON lines, or of one JSON list. A line that is none is reported by its number.

    Problems name the line and what is wrong with it, never its text.
    """
    problems: list[Problem] = []
    items: list[Mapping[str, object]] = []
    bare = text.removeprefix("\ufeff").strip()
    if bare.startswith("["):
        value = _decoded(bare)
        if isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
            return collect(value, settings)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        value = _decoded(line)
        if isinstance(value, Mapping):
            items.append(value)
        else:
            problems.append(Problem("not-a-message", "no JSON object", number, path))
    found = collect(items, settings)
    return Collected(found.messages, (*problems, *found.problems), found.left_out_count)


def collect(items: Iterable[Mapping[str, object] | SourceMessage], settings: Settings) -> Collected:
    """Messages of mappings. One without an id gets one from its content and position."""
    messages: list[SourceMessage] = []
    left_out_count = 0
    seen: set[str] = set()
    for position, item in enumerate(items):
        made = item if isinstance(item, SourceMessage) else _message(item, position)
        if made is None or made.id in seen:
            left_out_count += 1
            continue
        cleaned = _cleaned(made, settings)
        if not cleaned.text.strip():
            left_out_count += 1
            continue
        seen.add(cleaned.id)
        messages.append(cleaned)
    return Collected(tuple(messages), left_out_count=left_out_count)


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _message(item: Mapping[str, object], position: int) -> SourceMessage | None:
    inner = item.get("message")
    if isinstance(inner, Mapping) and "role" not in item:
        item = {**item, **inner}
    role = _ROLES.get(str(item.get("role") or item.get("type") or "").strip().lower())
    if role is None:
        return None
    text = clean_text(_text(item.get("content", item.get("text"))))
    id = source_id(item)
    if id is None:
        key = "\0".join((str(position), role, text))
        id = "msg_" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]
    vp = next((item[key] for key in _VP_KEYS if isinstance(item.get(key), str)), None)
    return SourceMessage(id, role, text, _time(item), vp if isinstance(vp, str) and vp else None)


def _text(content: object) -> str:
    """The visible text of a message's content: a string, or parts of which only text counts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, Sequence):
        return ""
    texts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and part.get("type", "text") in _TEXT_PARTS:
            found = part.get("text")
            texts.append(found if isinstance(found, str) else "")
    return "\n".join(each for each in texts if each)


def _time(item: Mapping[str, object]) -> str | None:
    """ISO 8601 of whatever names a time: ISO text, or seconds or milliseconds since 1970."""
    for key in _TIME_KEYS:
        value = item.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
            seconds = value / 1_000 if abs(value) > _LATEST_S else value
            if 0 < seconds <= _LATEST_S:
                return format_time(datetime.fromtimestamp(seconds, UTC))
    return None


def _cleaned(message: SourceMessage, settings: Settings) -> SourceMessage:
    """The message without shown memory, reminders and secrets, within the limit."""
    text = message.text.replace("\r\n", "\n")
    kept = fences.scrub(text)
    recalled = (*message.recalled, *_cut_out(text, kept))
    kept = redact(_REMINDER.sub("\n", kept)).text
    limit = settings.dream_message_chars
    if len(kept) > limit:
        kept = f"{kept[:limit]}\n[… {len(kept) - limit} more characters are left out]"
    return SourceMessage(
        message.id, message.role, kept.strip(), message.created_at, message.vp, recalled
    )


def _cut_out(text: str, kept: str) -> tuple[str, ...]:
    """What scrubbing took out of ``text``, as one text; none where nothing was."""
    if kept == text:
        return ()
    left = set(kept.split("\n"))
    lines = [line for line in text.split("\n") if line not in left]
    return ("\n".join(lines),) if lines else ()
