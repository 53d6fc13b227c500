"""The summary of a scope without a model: its newest facts, by kind, within a bound (Pure).

A summary says what it was made from, in its last line: how many segments, from when to when. Its
``basis`` is two digests: one of the segments, so that a stale summary is known, and one of the
summary's own text, so that one that a person has edited is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from h2ams.memory.consolidation import Held
from h2ams.text.redact import redact
from h2ams.text.sentences import clip

_LINE_CHARS = 240  # of one fact: a longer one is in its segment
_BASIS = re.compile(r"(?P<segments>[0-9a-f]{16})-(?P<text>[0-9a-f]{16})")

# Kinds in the order in which a prompt needs them, with headings.
_HEADINGS: Mapping[str, tuple[str, str, str]] = {
    "correction": ("Corrections", "更正", "Поправки"),
    "preference": ("Preferences", "偏好", "Предпочтения"),
    "decision": ("Decisions", "决定", "Решения"),
    "project-convention": ("Conventions", "约定", "Правила"),
    "goal": ("Goals", "目标", "Цели"),
    "fact": ("Facts", "事实", "Факты"),
    "relation": ("Relations", "关系", "Связи"),
    "pitfall": ("Pitfalls", "陷阱", "Подводные камни"),
    "lesson": ("Lessons", "教训", "Уроки"),
    "workflow": ("Workflows", "流程", "Порядок работы"),
    "context": ("Context", "背景", "Контекст"),
}
_LANGUAGES = {"en": 0, "zh": 1, "ru": 2}
_ORIGINS = (
    "Made from {count} segments, {first} to {last}.",
    "由 {count} 条记忆整理，{first} 至 {last}。",
    "Составлено из {count} записей, {first} — {last}.",
)
_ONE = ("segments", "segment")  # the English plural, and what stands for one
_UNDATED_ORIGINS = (
    "Made from {count} segments.",
    "由 {count} 条记忆整理。",
    "Составлено из {count} записей.",
)


def digest(held: Iterable[Held]) -> str:
    """16 hex digits over ids, kinds, tags and bodies of segments, whatever their order."""
    lines = sorted(
        "\0".join((each.id, each.segment.kind, ",".join(each.segment.tags), each.segment.body))
        for each in held
    )
    return _hex("\1".join(lines))


def basis(segments_digest: str, text: str) -> str:
    """What is recorded with a summary ``text`` that was made from segments of that digest."""
    return f"{segments_digest}-{_hex(text.strip())}"


def is_fresh(recorded: str | None, segments_digest: str) -> bool:
    """Whether a summary with this basis was made from these segments."""
    match = _BASIS.fullmatch(recorded or "")
    return match is not None and match["segments"] == segments_digest


def is_ours(recorded: str | None, text: str) -> bool:
    """Whether ``text`` is what was written with this basis: nobody has edited it since."""
    match = _BASIS.fullmatch(recorded or "")
    return match is not None and match["text"] == _hex(text.strip())


def origin(held: Sequence[Held], language: str) -> str:
    """The last line of a summary: what it was made from."""
    days = sorted(day for each in held if (day := (each.segment.updated_at or "")[:10]))
    at = _LANGUAGES.get(language.partition("-")[0].lower(), 0)
    if not days:
        made = _UNDATED_ORIGINS[at].format(count=len(held))
    else:
        made = _ORIGINS[at].format(count=len(held), first=days[0], last=days[-1])
    return made.replace(*_ONE) if len(held) == 1 else made


def facts(held: Iterable[Held]) -> list[tuple[str, str]]:
    """Kind and text of each fact, the newest first; each line of a merged segment is one."""
    newest = sorted(held, key=lambda each: each.id)
    newest.sort(key=lambda each: each.segment.updated_at or "", reverse=True)
    found: dict[tuple[str, str], None] = {}
    for each in newest:
        for line in each.segment.body.split("\n"):
            text = redact(" ".join(line.split()).lstrip("-*• ")).text
            if text:
                found[each.segment.kind, clip(text, _LINE_CHARS)] = None
    return list(found)


def brief(
    held: Sequence[Held], language: str, most_tokens: int, count: Callable[[str], int]
) -> str:
    """The summary text, at most ``most_tokens`` by ``count``; "" where not one fact fits."""
    last = origin(held, language)
    chosen: list[tuple[str, str]] = []
    left = most_tokens - count(last) - 2
    for kind, text in facts(held):
        heading = 0 if any(kind == each for each, _ in chosen) else count(_heading(kind, language))
        size = count(f"- {text}\n") + heading + (2 if heading else 0)
        if size <= left:
            chosen.append((kind, text))
            left -= size
    made = _laid_out(chosen, language, last)
    while chosen and count(made) > most_tokens:
        chosen.pop()
        made = _laid_out(chosen, language, last)
    return made if chosen else ""


def _laid_out(chosen: Sequence[tuple[str, str]], language: str, last: str) -> str:
    parts = []
    for kind in _HEADINGS:
        lines = [f"- {text}" for each, text in chosen if each == kind]
        if lines:
            parts.append("\n".join((_heading(kind, language), *lines)))
    return "\n\n".join((*parts, last))


def _heading(kind: str, language: str) -> str:
    at = _LANGUAGES.get(language.partition("-")[0].lower(), 0)
    return f"{_HEADINGS[kind][at]}:"


def _hex(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
