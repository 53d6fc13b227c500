"""The values that Dream keeps as state, and their JSON (Pure).

A watermark and a pass hold no text; plans and undo records do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from h2ams.dream.slicing import Watermark
from h2ams.memory.extraction import Known
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.validation import Change

VERSION = 1


@dataclass(frozen=True, slots=True)
class Thread:
    """Whose messages a pass reads: a session's or a chat's; ``name`` tells several apart."""

    scope: Scope
    name: str = ""

    @property
    def key(self) -> str:
        return f"{scope_key(self.scope.text)}-{_digest(self.name)}"


@dataclass(frozen=True, slots=True)
class Touched:
    """One file of a scope before and after a pass; None: it was not there."""

    path: str
    before: bytes | None
    after: bytes | None


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """The files that one pass changed in one scope, in the order in which they were written."""

    pass_id: str
    scope: Scope
    files: tuple[Touched, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass whose slices are extracted and whose writes have begun or not."""

    pass_id: str
    thread: Thread
    started_at: str
    changes: tuple[Change, ...]
    mark: Watermark
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What a pass did, in numbers. ``scopes`` changed; ``refusals`` count by code."""

    pass_id: str
    thread: str
    name: str
    started_at: str
    ended_at: str
    extractor: str
    scopes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    refusals: Mapping[str, int] = field(default_factory=dict)
    undone: bool = False


def scope_key(scope: str) -> str:
    """How file names name a scope; the same as in ``memory/forgotten``."""
    return hashlib.sha256(scope.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def renamed(value: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """``value`` with ``old`` replaced at the beginning of scopes and paths, and nowhere else."""

    def moved(text: object) -> object:
        if isinstance(text, str) and (text == old or text.startswith(f"{old}/")):
            return new + text[len(old) :]
        return text

    made = dict(value)
    for key in ("scope", "thread"):
        if key in made:
            made[key] = moved(made[key])
    if isinstance(made.get("scopes"), list):
        made["scopes"] = [moved(each) for each in made["scopes"]]
    return made


def read_mark(value: Mapping[str, Any]) -> Watermark:
    pending = tuple((tuple(each["ids"]), int(each["tries"])) for each in value["pending"])
    return Watermark(value["last"], value["at"], pending)


def mark_value(mark: Watermark) -> dict[str, Any]:
    pending = [{"ids": list(ids), "tries": tries} for ids, tries in mark.pending]
    return {"last": mark.last, "at": mark.at, "pending": pending}


def read_pass(value: Mapping[str, Any]) -> PassRecord:
    return PassRecord(
        pass_id=str(value["pass"]),
        thread=str(value["thread"]),
        name=str(value["name"]),
        started_at=str(value["started_at"]),
        ended_at=str(value["ended_at"]),
        extractor=str(value["extractor"]),
        scopes=tuple(map(str, value["scopes"])),
        counts=dict(value["counts"]),
        refusals=dict(value["refusals"]),
        undone=bool(value["undone"]),
    )


def change_value(change: Change) -> dict[str, Any]:
    base = change.base
    return {
        "name": change.name,
        "scope": change.scope.text,
        "base": None
        if base is None
        else {"id": base.id, "kind": base.kind, "tags": list(base.tags), "body": base.body},
        "kind": change.kind,
        "tags": None if change.tags is None else list(change.tags),
        "body": change.body,
        "source_messages": list(change.source_messages),
        "created_at": change.created_at,
        "updated_at": change.updated_at,
        "redacted": list(change.redacted),
    }


def read_change(value: Mapping[str, Any]) -> Change:
    made = dict(value)
    base = value["base"]
    if base is not None:
        made["base"] = Known(base["id"], base["kind"], tuple(base["tags"]), base["body"])
    made["scope"] = parse_scope(value["scope"])
    for key in ("tags", "source_messages", "redacted"):
        made[key] = None if value[key] is None else tuple(value[key])
    return Change(**made)


def text_of(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def bytes_of(text: object) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if isinstance(text, str) else None


def plan_value(plan: Plan) -> dict[str, Any]:
    return {
        "version": VERSION,
        "pass": plan.pass_id,
        "scope": plan.thread.scope.text,
        "name": plan.thread.name,
        "started_at": plan.started_at,
        "changes": [change_value(each) for each in plan.changes],
        "mark": mark_value(plan.mark),
        "counts": dict(plan.counts),
    }


def read_plan(value: Mapping[str, Any], thread: Thread) -> Plan:
    return Plan(
        value["pass"],
        thread,
        value["started_at"],
        tuple(read_change(each) for each in value["changes"]),
        read_mark(value["mark"]),
        value["counts"],
    )


def pass_value(record: PassRecord) -> dict[str, Any]:
    return {
        "version": VERSION,
        "pass": record.pass_id,
        "thread": record.thread,
        "name": record.name,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "extractor": record.extractor,
        "scopes": list(record.scopes),
        "counts": dict(record.counts),
        "refusals": dict(record.refusals),
        "undone": record.undone,
    }


def undo_value(record: UndoRecord) -> dict[str, Any]:
    return {
        "version": VERSION,
        "pass": record.pass_id,
        "scope": record.scope.text,
        "files": [
            {"path": each.path, "before": text_of(each.before), "after": text_of(each.after)}
            for each in record.files
        ],
    }


def read_undo(value: Mapping[str, Any]) -> UndoRecord:
    files = tuple(
        Touched(each["path"], bytes_of(each["before"]), bytes_of(each["after"]))
        for each in value["files"]
    )
    return UndoRecord(value["pass"], parse_scope(value["scope"]), files)
