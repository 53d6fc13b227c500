"""The built-in extractor: explicit statements of a person, without a model (Pure).

Each statement that ``statements`` finds in a user's message becomes one operation that cites it. A
statement that gives a value to a slot which a segment has filled already ("my editor is …") is an
update of that segment; "forget that …" retires the one segment that says it. What the assistant
says is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from h2ams.dream.statements import Statement, Where, statements
from h2ams.memory.extraction import (
    Answer,
    ExtractionRequest,
    Known,
    Operation,
    SourceMessage,
    Target,
)
from h2ams.text.likeness import wording

_FORGET_SHARE = 0.75  # of the words that a segment must share with "forget that …"
_PLACEHOLDER = re.compile(r"\[redacted:[a-z-]+\]")


class RulesExtractor:
    """See the module. Deterministic; never fails."""

    name = "rules"

    def extract(self, request: ExtractionRequest) -> Answer:
        """One operation for each statement, in the order of the messages."""
        operations: list[Operation] = []
        slots: dict[tuple[str, str], int] = {}
        for message in request.messages:
            if message.role != "user":
                continue
            for statement in statements(message.text):
                made = _operation(statement, message, request, len(operations))
                if made is None:
                    continue
                key = (made.scope or "", statement.slot)
                if statement.slot and key in slots:  # a correction within one slice: the last holds
                    at = slots[key]
                    operations[at] = _corrected(operations[at], made, at)
                    continue
                if statement.slot:
                    slots[key] = len(operations)
                operations.append(made)
        return Answer(tuple(operations))


def _corrected(before: Operation, made: Operation, at: int) -> Operation:
    sources = (*(before.source_messages or ()), *(made.source_messages or ()))
    return Operation(
        before.name,
        at,
        scope=before.scope,
        id=before.id,
        kind=before.kind,
        tags=before.tags,
        body=made.body,
        source_messages=tuple(dict.fromkeys(sources)),
    )


def _operation(
    statement: Statement, message: SourceMessage, request: ExtractionRequest, at: int
) -> Operation | None:
    if statement.forget:
        return _retirement(statement, message, request, at)
    target = _target(statement.where, message, request)
    if target is None or _says_nothing(statement.body):
        return None
    sources = (message.id,)
    if statement.slot:
        old = _in_slot(statement.slot, target.known)
        if old is not None and wording(old.body).text != wording(statement.body).text:
            return Operation(
                "update",
                at,
                scope=target.scope.text,
                id=old.id,
                body=statement.body,
                source_messages=sources,
            )
    return Operation(
        "add",
        at,
        scope=target.scope.text,
        kind=statement.kind,
        tags=(),
        body=statement.body,
        source_messages=sources,
    )


def _target(where: Where, message: SourceMessage, request: ExtractionRequest) -> Target | None:
    """The person's scope or the conversation's; the other one where there is only one."""
    user = request.target("user")
    work = next(
        (
            target
            for target in request.targets
            if target.scope.family in ("sessions", "chat") and not target.scope.member
        ),
        None,
    )
    return (user or work) if where == "user" else (work or user)


def _in_slot(slot: str, known: Sequence[Known]) -> Known | None:
    for each in reversed(known):
        if "\n" not in each.body and any(
            found.slot == slot for found in statements(each.body, stored=True)
        ):
            return each
    return None


def _retirement(
    statement: Statement, message: SourceMessage, request: ExtractionRequest, at: int
) -> Operation | None:
    """The one known segment that says what is to be forgotten; none where that is a guess."""
    words = _telling(statement.body)
    if not words:
        return None
    found: list[tuple[Target, Known]] = []
    for target in request.targets:
        if target.scope.vp is not None and target.scope.vp != message.vp:
            continue
        for known in target.known:
            shared = len(words & _telling(known.body))
            if "\n" not in known.body and shared >= _FORGET_SHARE * len(words):
                found.append((target, known))
    if len(found) != 1:
        return None
    target, known = found[0]
    return Operation(
        "retire",
        at,
        scope=target.scope.text,
        id=known.id,
        reason="the user asked to forget it",
        source_messages=(message.id,),
    )


_COMMON = frozenset(
    {
        "the", "a", "an", "that", "this", "is", "are", "was", "were", "user", "user's", "their",
        "they", "i", "my", "me", "we", "our", "to", "of", "in", "on", "at", "and", "or", "it",
        "its", "be", "do", "does", "prefers", "prefer", "пользователь", "пользователя", "мой",
        "моя", "моё", "мои", "я", "мы", "это", "что", "в", "на", "и", "с", "о", "об", "про",
        "用", "户", "的", "是", "我", "们", "了", "在", "那", "这",
    }
)  # fmt: skip


def _telling(text: str) -> frozenset[str]:
    return wording(text).vocabulary - _COMMON


def _says_nothing(body: str) -> bool:
    """Whether all that a statement tells is a secret that was cut out."""
    if not _PLACEHOLDER.search(body):
        return False
    rest = _PLACEHOLDER.sub("", body).strip(" .:=-—是。")
    return bool(re.search(r"(?:\bis|\bare|—|-|:|=|это|是|为|为：)$", rest)) or len(rest) < 12
