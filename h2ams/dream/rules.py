"""The built-in extractor: explicit statements of a person, without a model (Pure).

Each statement that ``statements`` finds in a user's message becomes one operation that cites it. A
statement that gives a value to a slot which a segment has filled already ("my editor is …") is an
update of that segment; "forget that …" retires the one segment that says it. What the assistant
says is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from h2ams.dream.statements import Statement, Where, statements
from h2ams.memory.extraction import (
    Answer,
    ExtractionRequest,
    Operation,
    SourceMessage,
    Target,
)
from h2ams.text.likeness import wording

_FORGET_SHARE = 0.75  # of the words that a segment must share with "forget that …"
_DIGIT = re.compile(r"\d")
_PLACEHOLDER = re.compile(r"\[redacted:[a-z-]+\]")


class RulesExtractor:
    """See the module. Deterministic; never fails."""

    name = "rules"

    def extract(self, request: ExtractionRequest) -> Answer:
        """What the statements of the users' messages, one after the other, make of the memory."""
        pages = {target.scope.text: _Page(target) for target in request.targets}
        for message in request.messages:
            if message.role != "user":
                continue
            for statement in statements(message.text):
                if statement.forget:
                    _forget(statement, message, pages.values())
                    continue
                page = _page(statement.where, pages)
                if page is not None and not _says_nothing(statement.body):
                    page.take(statement, message.id)
        operations: list[Operation] = []
        for page in pages.values():
            for made in page.operations():
                operations.append(replace(made, at=len(operations)))
        return Answer(tuple(operations))


@dataclass(slots=True)
class _Line:
    """One fact: a line of a known segment, or a new one."""

    body: str
    sources: list[str] = field(default_factory=list)
    kind: str = ""
    slot: str = ""


@dataclass(frozen=True, slots=True)
class _Match:
    """A fact that is perhaps to be forgotten; ``id`` None: it is new."""

    share: float
    body: str
    page: _Page
    id: str | None
    line: _Line


class _Page:
    """A target scope while its slice is read: known segments by lines, and what is new.

    A merged segment holds several facts, one a line; a line that is corrected or forgotten leaves
    it, and the segment is written once at the end, whatever happened to it.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self._known = {each.id: each for each in target.known}
        self._lines = {each.id: [_Line(b) for b in each.body.split("\n")] for each in target.known}
        self._cited: dict[str, list[str]] = {}
        self._new: list[_Line] = []

    def take(self, statement: Statement, source: str) -> None:
        """A fact; one that names a slot takes the place of what filled it."""
        said = wording(statement.body).text
        if statement.slot:
            for new in self._new:
                if new.slot == statement.slot:
                    new.body = statement.body
                    new.sources.append(source)
                    return
            filled = self._filled(statement.slot)
            if filled is not None:
                id, line = filled
                if wording(line.body).text != said:
                    self._cite(id, source)
                    if len(self._lines[id]) == 1:
                        line.body = statement.body
                        return
                    self._lines[id].remove(line)  # the others stay merged, this one stands alone
        for new in self._new:
            if wording(new.body).text == said:
                new.sources.append(source)
                return
        self._new.append(_Line(statement.body, [source], statement.kind, statement.slot))

    def _filled(self, slot: str) -> tuple[str, _Line] | None:
        """The newest segment with a line that gives the slot a value."""
        for id, lines in reversed(self._lines.items()):
            for line in lines:
                if slot in _slots(line.body):
                    return id, line
        return None

    def matches(self, words: frozenset[str]) -> Iterator[_Match]:
        """Every fact that shares enough with ``words``."""
        for new in tuple(self._new):
            share = _shared(words, new.body)
            if share >= _FORGET_SHARE:
                yield _Match(share, new.body, self, None, new)
        for id, lines in self._lines.items():
            for line in lines:
                share = _shared(words, line.body)
                if share >= _FORGET_SHARE:
                    yield _Match(share, line.body, self, id, line)

    def drop(self, match: _Match, source: str) -> None:
        """Forget what ``match`` found; ``source`` is the message that asks for it."""
        if match.id is None:
            self._new.remove(match.line)
        else:
            self._lines[match.id].remove(match.line)
            self._cite(match.id, source)

    def _cite(self, id: str, source: str) -> None:
        self._cited.setdefault(id, []).append(source)

    def operations(self) -> Iterator[Operation]:
        """The changes of known segments, then what is new."""
        scope = self.target.scope.text
        for id, sources in self._cited.items():
            cited = tuple(dict.fromkeys(sources))
            body = "\n".join(line.body for line in self._lines[id])
            if not body:
                reason = "the user asked to forget it"
                yield Operation("retire", scope=scope, id=id, reason=reason, source_messages=cited)
            elif body != self._known[id].body:
                yield Operation("update", scope=scope, id=id, body=body, source_messages=cited)
        for new in self._new:
            yield Operation(
                "add",
                scope=scope,
                kind=new.kind,
                tags=(),
                body=new.body,
                source_messages=tuple(dict.fromkeys(new.sources)),
            )


def _page(where: Where, pages: Mapping[str, _Page]) -> _Page | None:
    """The person's scope or the conversation's; the other one where there is only one."""
    user = pages.get("user")
    work = next(
        (
            page
            for page in pages.values()
            if page.target.scope.family in ("sessions", "chat") and not page.target.scope.member
        ),
        None,
    )
    return (user or work) if where == "user" else (work or user)


@lru_cache(maxsize=65_536)
def _slots(line: str) -> frozenset[str]:
    """The slots that a stored line gives a value to; remembered: every pass asks for every line."""
    return frozenset(found.slot for found in statements(line, stored=True) if found.slot)


def _forget(statement: Statement, message: SourceMessage, pages: Iterable[_Page]) -> None:
    """Drop the one fact that says what is to be forgotten; none where that would be a guess."""
    words = _telling(statement.body)
    found = [
        match
        for page in pages
        if page.target.scope.vp in (None, message.vp)
        for match in page.matches(words)
    ]
    best = max((match.share for match in found), default=0.0)
    closest = [match for match in found if match.share == best]
    if len({wording(match.body).text for match in closest}) == 1:
        for match in closest:
            match.page.drop(match, message.id)


def _shared(words: frozenset[str], text: str) -> float:
    """How much of ``words`` a fact has; 0 where it lacks one of their numbers."""
    telling = _telling(text)
    if not words or any(word not in telling for word in words if _DIGIT.search(word)):
        return 0.0
    return len(words & telling) / len(words)


_COMMON = frozenset(
    {
        "the", "a", "an", "that", "this", "is", "are", "was", "were", "user", "user's", "their",
        "they", "i", "my", "me", "we", "our", "to", "of", "in", "on", "at", "and", "or", "it",
        "its", "be", "do", "does", "prefers", "prefer", "пользователь", "пользователя", "мой",
        "моя", "моё", "мои", "я", "мы", "это", "что", "в", "на", "и", "с", "о", "об", "про",
        "用", "户", "的", "是", "我", "们", "了", "在", "那", "这",
    }
)  # fmt: skip


@lru_cache(maxsize=65_536)
def _telling(text: str) -> frozenset[str]:
    return wording(text).vocabulary - _COMMON


def _says_nothing(body: str) -> bool:
    """Whether all that a statement tells is a secret that was cut out."""
    if not _PLACEHOLDER.search(body):
        return False
    rest = _PLACEHOLDER.sub("", body).strip(" .:=-—是。")
    return bool(re.search(r"(?:\bis|\bare|—|-|:|=|это|是|为|为：)$", rest)) or len(rest) < 12
