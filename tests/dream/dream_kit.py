"""Dream on a real folder, with a clock that is set and an extractor of the test's choice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from h2ams import tokens
from h2ams.dream.dreaming import Dream
from h2ams.dream.journal import Journal
from h2ams.dream.model_extractor import ModelExtractor
from h2ams.dream.records import Thread
from h2ams.dream.rules import RulesExtractor
from h2ams.dream.summarise import Summariser
from h2ams.files import FaultHook, Root
from h2ams.memory.extraction import (
    Answer,
    ExtractionRequest,
    Extractor,
    SourceMessage,
    parse_answer,
)
from h2ams.memory.layout import scope_of_path
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import parse
from h2ams.memory.store import Store
from h2ams.models.function import FunctionModel
from h2ams.models.request import Model
from h2ams.settings import Settings

START = datetime(2026, 5, 1, 8, 0, 0, tzinfo=UTC)
ESTIMATE = Settings(encoding="estimate", dream_min_new_count=2)
SESSION = parse_scope("sessions/s1")
THREAD = Thread(SESSION)


class Clock:
    """One minute later at each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(minutes=1)
        return self.now


class Scripted:
    """Answers with what ``answer`` makes of a request: a model's text, or operations."""

    name = "scripted"

    def __init__(self, answer: Callable[[ExtractionRequest], str | Answer]) -> None:
        self._answer = answer
        self.requests: list[ExtractionRequest] = []

    def extract(self, request: ExtractionRequest) -> Answer:
        self.requests.append(request)
        found = self._answer(request)
        return parse_answer(found) if isinstance(found, str) else found


def say(
    *texts: str, first: int = 1, role: str = "user", vp: str | None = None, hours: int = 1
) -> list[SourceMessage]:
    """Messages ``m<first>`` …, one an hour."""
    return [
        SourceMessage(
            f"m{first + n}",
            role,  # type: ignore[arg-type]
            text,
            (START + timedelta(hours=hours * (first + n))).strftime("%Y-%m-%dT%H:%M:%SZ"),
            vp,
        )
        for n, text in enumerate(texts)
    ]


def existing(folder: Path) -> list[Scope]:
    found = {scope_of_path(f.relative_to(folder).as_posix()) for f in folder.rglob("*.md")}
    return sorted(scope for scope in found if scope is not None)


def dream(
    folder: Path,
    extractor: Extractor | None = None,
    *,
    settings: Settings = ESTIMATE,
    hook: FaultHook | None = None,
    clock: Callable[[], datetime] | None = None,
    summary_model: Model | None = None,
    synced: Callable[[Sequence[str]], None] = lambda paths: None,
) -> Dream:
    folder.mkdir(parents=True, exist_ok=True)
    root = Root(folder, hook=hook)
    clock = clock or Clock()
    estimate = tokens.counter(tokens.ESTIMATE)
    store = Store(root, settings, clock=clock, counter=estimate)
    return Dream(
        root,
        store,
        settings,
        extractor=extractor or RulesExtractor(),
        summariser=Summariser(root, store, settings, estimate, summary_model),
        estimate=estimate,
        clock=clock,
        existing=lambda: existing(folder),
        synced=synced,
    )


def model_extractor(*answers: str) -> ModelExtractor:
    script = list(answers)
    model = FunctionModel(lambda _: script.pop(0) if len(script) > 1 else script[0], "script")
    return ModelExtractor(model, answer_tokens=1_000)


def adds(*bodies: str, scope: str = "user", source: str = "m1", **more: object) -> str:
    """A model's answer with one ``add`` a body."""
    operations = [
        {
            "op": "add",
            "scope": scope,
            "kind": "fact",
            "tags": [],
            "body": body,
            "sourceMessages": [source],
            **more,
        }
        for body in bodies
    ]
    return json.dumps({"operations": operations}, ensure_ascii=False)


def bodies(folder: Path, scope: str = "user", name: str = "memory.md") -> list[str]:
    path = folder / scope / name
    return [e.segment.body for e in parse(path.read_bytes()).entries] if path.exists() else []


def files(folder: Path) -> dict[str, bytes]:
    """Every visible file of the folder: what a person sees."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    }


def state_texts(folder: Path) -> str:
    """Everything in the state folder, as text."""
    return "".join(
        path.read_bytes().decode("utf-8", "replace")
        for path in sorted((folder / ".h2ams").rglob("*"))
        if path.is_file()
    )


def journal(folder: Path) -> Journal:
    return Journal(Root(folder))


def numbered(messages: Iterable[SourceMessage], first: int) -> list[SourceMessage]:
    return [replace(each, id=f"m{first + n}") for n, each in enumerate(messages)]
