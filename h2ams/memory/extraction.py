"""The extraction contract: what goes to whoever makes memory of messages, and what comes (Pure).

``SourceMessage`` values go in, one slice at a time, with the scopes that may be written and what
they hold. An ``Extractor`` (a model with a prompt, or the built-in rules) answers with operations.
``parse_answer`` reads a model's text: tolerant of fences, chatter and spellings of keys, strict in
what an operation is. Nothing here is trusted: ``validation`` judges every operation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from h2ams.memory.scope import Scope, parse_scope, session_scope
from h2ams.memory.values import clean_text, is_id, parse_time
from h2ams.settings import KINDS

MAX_OPERATIONS = 64  # of one answer: a slice that yields more is no slice of facts
MAX_ANSWER_CHARS = 400_000  # longer answers are not read
_MOST_OBJECTS = 64  # beginnings of an object that are tried in a chatty answer

MessageRole = Literal["user", "assistant", "diff"]
OperationName = Literal["add", "update", "retire"]
MESSAGE_ROLES: tuple[MessageRole, ...] = ("user", "assistant", "diff")


@dataclass(frozen=True, slots=True)
class SourceMessage:
    """One message as text: no tool payloads, no images. ``created_at`` is ISO 8601 in UTC.

    ``recalled`` is memory that was shown in the message and has been cut out of its text.
    ``ValueError`` for an id that no segment could cite, or a role of another kind.
    """

    id: str
    role: MessageRole
    text: str
    created_at: str | None = None
    vp: str | None = None
    recalled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not is_id(self.id) or len(self.id.split()) != 1:
            raise ValueError("a message id is one word without control characters")
        if self.role not in MESSAGE_ROLES:
            raise ValueError("a message is the user's, the assistant's or a diff")
        object.__setattr__(self, "created_at", parse_time(self.created_at).iso)


@dataclass(frozen=True, slots=True)
class Known:
    """A segment that a target scope holds, as the extractor sees it. ``digest`` is the entry's."""

    id: str
    kind: str
    tags: tuple[str, ...]
    body: str
    digest: str = ""
    updated_at: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A scope that may be written, with its segments, the newest last; ``total_count`` of all."""

    scope: Scope
    known: tuple[Known, ...] = ()
    total_count: int = 0


@dataclass(frozen=True, slots=True)
class ExtractionRequest:
    """One slice. Only ``messages`` may be cited; ``context`` came before and is known already."""

    messages: tuple[SourceMessage, ...]
    targets: tuple[Target, ...]
    context: tuple[SourceMessage, ...] = ()
    kinds: tuple[str, ...] = KINDS

    def target(self, scope: str) -> Target | None:
        """The target called ``scope`` in canonical spelling."""
        return next((each for each in self.targets if each.scope.text == scope), None)


@dataclass(frozen=True, slots=True)
class Operation:
    """One proposed change, as it was proposed. ``None`` is left out; ``at`` counts from 0.

    ``scope`` of an ``update`` or ``retire`` may be left out where the id says it.
    """

    name: str
    at: int = 0
    scope: str | None = None
    id: str | None = None
    kind: str | None = None
    tags: tuple[str, ...] | None = None
    body: str | None = None
    source_messages: tuple[str, ...] | None = None
    reason: str | None = None
    malformed: str = ""  # the field that has the wrong type, or ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an extractor proposes for one slice, in its order."""

    operations: tuple[Operation, ...] = ()
    prompt: str = field(default="", repr=False)  # what it was told: its text is no memory


class UnreadableAnswer(ValueError):
    """A model's answer that holds no operations; ``str()`` says why without repeating it."""


class Extractor(Protocol):
    """Makes operations of a slice. ``name`` identifies it in journals."""

    @property
    def name(self) -> str: ...

    def extract(self, request: ExtractionRequest) -> Answer:
        """The proposals. ``ModelError`` or ``UnreadableAnswer`` where there are none to read."""
        ...


def targets_of(
    *,
    session: str | None = None,
    chat: str | None = None,
    vps: Iterable[str] = (),
    existing: Iterable[Scope] = (),
) -> tuple[Scope, ...]:
    """The scopes that messages of a session (or a chat) may be remembered in.

    ``user``, the session, its topics and features among ``existing``, and its own part of each of
    ``vps``, the ``vp`` of its messages. Never ``global``, ``vp/*`` or another session.
    """
    found = [parse_scope("user")]
    names = sorted(dict.fromkeys(vps))
    if session is not None:
        own = session_scope(session)
        found.append(own)
        members = {scope for scope in existing if scope.session == own.session}
        found += sorted(scope for scope in members if scope.member in ("topic", "feature"))
        found += [parse_scope(f"{own.text}/vp/{vp}") for vp in names]
    if chat is not None:
        found.append(parse_scope(f"chat/{chat}"))
        found += [parse_scope(f"chat/{chat}/vp/{vp}") for vp in names]
    return tuple(found)


def schema_of(request: ExtractionRequest) -> dict[str, object]:
    """The JSON schema of an answer: bounded in number, so that a grammar can enforce it."""
    scopes = [target.scope.text for target in request.targets]
    text: dict[str, object] = {"type": "string"}
    texts = {"type": "array", "items": text, "maxItems": 8}
    sources = {"type": "array", "items": text, "minItems": 1, "maxItems": 8}

    def operation(name: OperationName, required: list[str], **fields: object) -> dict[str, object]:
        return {
            "type": "object",
            "properties": {"op": {"const": name}, **fields},
            "required": ["op", *required],
            "additionalProperties": False,
        }

    scope = {"type": "string", "enum": scopes}
    add = operation(
        "add",
        ["scope", "kind", "tags", "body", "sourceMessages"],
        scope=scope,
        kind={"type": "string", "enum": list(request.kinds)},
        tags=texts,
        body=text,
        sourceMessages=sources,
    )
    update = operation(
        "update",
        ["scope", "id", "body", "sourceMessages"],
        scope=scope,
        id=text,
        body=text,
        tags=texts,
        sourceMessages=sources,
    )
    retire = operation("retire", ["scope", "id", "reason"], scope=scope, id=text, reason=text)
    items = {"anyOf": [add, update, retire]}
    operations = {"type": "array", "items": items, "maxItems": MAX_OPERATIONS}
    return {
        "type": "object",
        "properties": {"operations": operations},
        "required": ["operations"],
        "additionalProperties": False,
    }


# -- reading a model's text ----------------------------------------------------------------------

_FENCE = re.compile(r"```[A-Za-z]*[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_BEGIN = re.compile(r"[{\[]")
_NAMES = ("op", "operation", "action", "type", "name")
_SPELLINGS: Mapping[str, str] = {
    "sourcemessages": "source_messages",
    "source_messages": "source_messages",
    "sources": "source_messages",
    "body": "body",
    "text": "body",
    "scope": "scope",
    "id": "id",
    "kind": "kind",
    "tags": "tags",
    "reason": "reason",
}


def parse_answer(text: str, prompt: str = "") -> Answer:
    """The operations in a model's answer; an operation that is none is kept as ``malformed``.

    ``UnreadableAnswer`` where there is no JSON with operations: nothing at all, cut off, too long.
    """
    if len(text) > MAX_ANSWER_CHARS:
        raise UnreadableAnswer(f"the answer is longer than {MAX_ANSWER_CHARS} characters")
    for value in _values(clean_text(text).strip().removeprefix("\ufeff")):
        items = _items(value)
        if items is not None:
            return Answer(tuple(_operation(item, at) for at, item in enumerate(items)), prompt)
    raise UnreadableAnswer('the answer holds no complete JSON object with "operations"')


def _values(text: str) -> Iterator[object]:
    """JSON values in ``text``: all of it, what stands in fences, then wherever one begins."""
    decoder = json.JSONDecoder(strict=False)
    for piece in (text, *_FENCE.findall(text)):
        try:
            yield decoder.decode(piece.strip())
        except (ValueError, RecursionError):
            continue
    position = 0
    for _ in range(_MOST_OBJECTS):
        begin = _BEGIN.search(text, position)
        if begin is None:
            return
        try:
            value, position = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            position = begin.end()
            continue
        yield value


def _items(value: object) -> list[object] | None:
    """The list of operations in a decoded value; None where it holds none."""
    if isinstance(value, dict):
        found = value.get("operations")
        if isinstance(found, list):
            return found
        return [value] if any(_is_name(value.get(key)) for key in _NAMES) else None
    if isinstance(value, list) and all(isinstance(each, dict) for each in value):
        named = any(_is_name(each.get(key)) for each in value for key in _NAMES)
        return value if named or not value else None
    return None


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.strip().lower() in ("add", "update", "retire")


def _operation(item: object, at: int) -> Operation:
    if not isinstance(item, dict):
        return Operation("", at, malformed="operation")
    name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), "")
    fields: dict[str, object] = {}
    for key, value in item.items():
        spelled = _SPELLINGS.get(key.strip().lower().replace("-", "_"))
        if spelled is not None and spelled not in fields:
            fields[spelled] = value
    malformed = ""
    texts: dict[str, str | None] = {}
    for key in ("scope", "id", "kind", "body", "reason"):
        value = fields.get(key)
        if value is not None and not isinstance(value, str):
            malformed = malformed or key
        texts[key] = value if isinstance(value, str) else None
    lists: dict[str, tuple[str, ...] | None] = {}
    for key in ("tags", "source_messages"):
        found = _texts(fields.get(key))
        if found is None and fields.get(key) is not None:
            malformed = malformed or key
        lists[key] = found
    return Operation(
        name.strip().lower(),
        at,
        scope=texts["scope"],
        id=texts["id"],
        kind=texts["kind"],
        tags=lists["tags"],
        body=texts["body"],
        source_messages=lists["source_messages"],
        reason=texts["reason"],
        malformed=malformed,
    )


def _texts(value: object) -> tuple[str, ...] | None:
    """A list of texts; one text is a list of one. None for anything else."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return None
