"""What may become memory of what an extractor proposes: every refusal is a value (Pure).

Strategy: each operation is judged by itself, in its order, against the request that it answers; a
bad one never stops a good one. What passes carries everything that a write needs: checked scope
and id, clean body, cited messages, and times taken from them. A refusal carries a code and the
operation's position, never its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from h2ams.errors import ModelError, ScopeError
from h2ams.memory.extraction import (
    MAX_OPERATIONS,
    Answer,
    ExtractionRequest,
    Extractor,
    Known,
    Operation,
    SourceMessage,
    Target,
    UnreadableAnswer,
)
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.values import clean_tags, clean_text, source_id, trim_blank_lines
from h2ams.settings import DEFAULTS, Settings
from h2ams.text import fences
from h2ams.text.injection import is_instruction, is_scaffold, quoted
from h2ams.text.likeness import Wording, wording
from h2ams.text.redact import redact

Code = Literal[
    "model-failed",  # no answer at all: the whole slice
    "unreadable-answer",  # twice: the whole slice
    "unknown-operation",
    "malformed",  # a field of the wrong type, or one that is missing
    "too-many",
    "foreign-scope",  # not among the targets
    "foreign-vp",  # a VP's own scope for a message that is not that VP's
    "unknown-id",  # not in that scope
    "unknown-kind",
    "no-source",
    "foreign-source",  # a message that is not in this slice
    "blank-body",
    "long-body",
    "long-tag",
    "recalled",  # memory that was shown in the messages
    "scaffold",  # markup of prompts and tools
    "prompt",  # the extractor's own instructions
    "secret",
    "instruction",  # addressed to the model that will read it
    "duplicate",
    "nothing-to-do",
]
QUOTED_TAG = "quoted"
MAX_TAGS = 16
_ECHO_SHARE = 0.8  # of a body's word shingles that stand in a text: then it is taken from there


@dataclass(frozen=True, slots=True)
class Refusal:
    """An expected no. ``at`` is the operation's position, -1 for a whole slice."""

    code: Code
    at: int = -1
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A validated operation: what is to be true of one scope.

    ``name`` ``add`` has no ``base``; ``update`` and ``retire`` carry the segment as it was seen.
    ``body`` or ``tags`` None: they stay. Times are those of the earliest and the latest message
    cited, None where no cited message has one. ``redacted`` names kinds of secrets replaced.
    """

    name: Literal["add", "update", "retire"]
    scope: Scope
    base: Known | None = None
    kind: str | None = None
    tags: tuple[str, ...] | None = None
    body: str | None = None
    source_messages: tuple[str, ...] = ()
    created_at: str | None = None
    updated_at: str | None = None
    redacted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Validated:
    """The good operations of a slice in their order, and why the others are not among them."""

    changes: tuple[Change, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the slice gave no answer at all, so that it must be tried again."""
        return any(each.code in ("model-failed", "unreadable-answer") for each in self.refusals)


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits, and what to do with secrets and with instructions, as ``settings`` say."""

    settings: Settings = DEFAULTS

    @property
    def refuses_secrets(self) -> bool:
        return self.settings.dream_secrets == "refuse"

    @property
    def refuses_instructions(self) -> bool:
        return self.settings.dream_instructions == "refuse"


def extract_changes(
    extractor: Extractor, request: ExtractionRequest, rules: Rules | None = None
) -> Validated:
    """Messages to changes: ask ``extractor`` for one slice and validate what it says.

    Its failure is a refusal of the whole slice; nothing else of a pass is touched by it.
    """
    try:
        answer = extractor.extract(request)
    except ModelError:
        return Validated(refusals=(Refusal("model-failed"),))
    except UnreadableAnswer:
        return Validated(refusals=(Refusal("unreadable-answer"),))
    return validate(answer, request, rules)


def validate(answer: Answer, request: ExtractionRequest, rules: Rules | None = None) -> Validated:
    """Judge every operation of ``answer`` against ``request``."""
    judge = _Judge(answer, request, rules or Rules())
    changes: list[Change] = []
    refusals: list[Refusal] = []
    seen: set[tuple[object, ...]] = set()
    for operation in answer.operations:
        found: Change | Code
        if operation.at >= MAX_OPERATIONS:
            found = "too-many"
        else:
            found = judge.judged(operation)
        if isinstance(found, Change):
            key = _identity(found)
            if key in seen:
                found = "duplicate"
            else:
                seen.add(key)
                changes.append(found)
                continue
        name = operation.name if operation.name in ("add", "update", "retire") else ""
        refusals.append(Refusal(found, operation.at, name))
    return Validated(tuple(changes), tuple(refusals))


def _identity(change: Change) -> tuple[object, ...]:
    id = None if change.base is None else change.base.id
    if change.name != "add":
        return change.scope, id  # one segment is changed once by one answer: the first counts
    return change.scope, change.kind, wording(change.body or "").text


class _Refused(Exception):
    def __init__(self, code: Code) -> None:
        super().__init__(code)
        self.code = code


class _Judge:
    def __init__(self, answer: Answer, request: ExtractionRequest, rules: Rules) -> None:
        self._request = request
        self._rules = rules
        self._messages = {each.id: each for each in request.messages}
        self._shown = [
            wording(text)
            for message in (*request.context, *request.messages)
            for text in message.recalled
        ]
        self._prompt = wording(answer.prompt) if answer.prompt else None
        self._said: dict[str, Wording] = {}
        self._steps: Mapping[str, Callable[[Operation], Change]] = {
            "add": self._add,
            "update": self._update,
            "retire": self._retire,
        }

    def judged(self, operation: Operation) -> Change | Code:
        step = self._steps.get(operation.name)
        if operation.malformed:
            return "malformed"
        if step is None:
            return "unknown-operation"
        try:
            return step(operation)
        except _Refused as refused:
            return refused.code

    def _add(self, operation: Operation) -> Change:
        if operation.scope is None or operation.body is None:
            raise _Refused("malformed")
        target = self._target(operation.scope)
        sources = self._sources(operation, target)
        kind = (operation.kind or "").strip().lower()
        if kind not in self._request.kinds:
            raise _Refused("unknown-kind")
        body, more_tags, redacted = self._body(operation.body, sources)
        tags = self._tags(operation.tags or ())
        return Change(
            "add",
            target.scope,
            kind=kind,
            tags=clean_tags((*tags, *more_tags)),
            body=body,
            source_messages=tuple(each.id for each in sources),
            created_at=_earliest(sources),
            updated_at=_latest(sources),
            redacted=redacted,
        )

    def _update(self, operation: Operation) -> Change:
        target, base = self._known(operation)
        sources = self._sources(operation, target)
        body: str | None = None
        more_tags: tuple[str, ...] = ()
        redacted: tuple[str, ...] = ()
        if operation.body is not None:
            body, more_tags, redacted = self._body(operation.body, sources)
        tags = None if operation.tags is None else self._tags(operation.tags)
        if more_tags:
            tags = clean_tags((*(base.tags if tags is None else tags), *more_tags))
        if body in (None, base.body) and tags in (None, base.tags):
            raise _Refused("nothing-to-do")
        return Change(
            "update",
            target.scope,
            base=base,
            tags=tags,
            body=body,
            source_messages=tuple(each.id for each in sources),
            created_at=_earliest(sources),
            updated_at=_latest(sources),
            redacted=redacted,
        )

    def _retire(self, operation: Operation) -> Change:
        target, base = self._known(operation)
        if not (operation.reason or "").strip():
            raise _Refused("malformed")
        sources: tuple[SourceMessage, ...] = ()
        if operation.source_messages:
            sources = self._sources(operation, target)
        elif target.scope.vp is not None and not any(
            each.vp == target.scope.vp for each in self._request.messages
        ):
            raise _Refused("foreign-vp")
        ids = tuple(each.id for each in sources)
        return Change("retire", target.scope, base=base, source_messages=ids)

    # -- where and from what ---------------------------------------------------------------------

    def _target(self, text: str) -> Target:
        try:
            scope = parse_scope(text)
        except ScopeError:
            raise _Refused("foreign-scope") from None
        target = self._request.target(scope.text)
        if target is None:
            raise _Refused("foreign-scope")
        return target

    def _known(self, operation: Operation) -> tuple[Target, Known]:
        if operation.id is None:
            raise _Refused("malformed")
        scope, mark, id = operation.id.rpartition("#")
        if mark and operation.scope is None:
            targets = [self._target(scope)]
        elif operation.scope is not None:
            targets = [self._target(operation.scope)]
            if mark and scope != targets[0].scope.text:
                raise _Refused("unknown-id")
        else:
            targets = list(self._request.targets)
        found = [(target, known) for target in targets for known in target.known if known.id == id]
        if len(found) != 1:  # in two scopes and none is named: whose is meant is a guess
            raise _Refused("unknown-id")
        return found[0]

    def _sources(self, operation: Operation, target: Target) -> tuple[SourceMessage, ...]:
        ids = dict.fromkeys(source_id(each) for each in operation.source_messages or ())
        if not ids:
            raise _Refused("no-source")
        messages = []
        for id in ids:
            message = self._messages.get(id) if id is not None else None
            if message is None:
                raise _Refused("foreign-source")
            messages.append(message)
        vp = target.scope.vp
        if vp is not None and any(each.vp != vp for each in messages):
            raise _Refused("foreign-vp")
        return tuple(messages)

    # -- what it says ----------------------------------------------------------------------------

    def _tags(self, tags: Iterable[str]) -> tuple[str, ...]:
        cleaned = clean_tags([redact(clean_text(each)).text for each in tags])[:MAX_TAGS]
        if any(len(each) > self._rules.settings.dream_tag_chars for each in cleaned):
            raise _Refused("long-tag")
        return tuple(each for each in cleaned if fences.escape(each) == each)

    def _body(
        self, text: str, sources: Iterable[SourceMessage]
    ) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """The body as it may be written, tags that it brings, kinds of secrets replaced."""
        body = trim_blank_lines(clean_text(text).replace("\r\n", "\n"))
        if not body.strip():
            raise _Refused("blank-body")
        if len(body) > self._rules.settings.dream_body_chars:
            raise _Refused("long-body")
        if is_scaffold(body):
            raise _Refused("scaffold")
        form = wording(body)
        if self._prompt is not None and _taken_from(form, self._prompt):
            raise _Refused("prompt")
        if any(_taken_from(form, shown) for shown in self._shown) and not any(
            _taken_from(form, self._wording(each)) for each in sources
        ):
            raise _Refused("recalled")
        found = redact(body)
        if found.kinds and self._rules.refuses_secrets:
            raise _Refused("secret")
        if is_instruction(body):
            if self._rules.refuses_instructions:
                raise _Refused("instruction")
            return quoted(found.text), (QUOTED_TAG,), found.kinds
        return found.text, (), found.kinds

    def _wording(self, message: SourceMessage) -> Wording:
        if message.id not in self._said:
            self._said[message.id] = wording(message.text)
        return self._said[message.id]


def _taken_from(form: Wording, text: Wording) -> bool:
    """Whether nearly all of ``form`` stands in ``text`` word for word."""
    if not form.words:
        return False
    if f" {form.text} " in f" {text.text} ":
        return True
    if len(form.shingles) < 3:
        return False
    return len(form.shingles & text.shingles) >= _ECHO_SHARE * len(form.shingles)


def _earliest(sources: Iterable[SourceMessage]) -> str | None:
    return min((each.created_at for each in sources if each.created_at), default=None)


def _latest(sources: Iterable[SourceMessage]) -> str | None:
    return max((each.created_at for each in sources if each.created_at), default=None)
