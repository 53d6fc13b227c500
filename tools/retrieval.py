"""Retrieval quality: data sets, metrics and their summary (no engine in here).

A data set is a folder with two files of JSON lines:

    segments.jsonl   {"id", "scope", "text", "tags": {"speaker", "session", "order"}, "time"}
    queries.jsonl    {"id", "scope", "text", "category", "evidence": [segment ids], "split",
                      "headline"}

Only ``id``, ``scope``, ``text`` and ``evidence`` must be there. A question is answered by its
``evidence``; how much of it stands among the first k, or fits into a budget of tokens in the order
of the ranking, is the figure. No model, no judge, no chance: two runs give the same numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BUDGET = 1_500  # tokens
DEPTH = 200  # results that an engine is asked for
METRICS = ("R@5", "R@10", "R@20", "nDCG@10", "MRR", "B1500", "All1500")
ALL = "ALL"  # the mean over the headline questions


@dataclass(frozen=True, slots=True)
class Turn:
    """One unit that can be found. ``time`` is ISO 8601 or None."""

    id: str
    scope: str
    text: str
    tags: dict[str, Any] = field(default_factory=dict)
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question in one scope, with the ids that answer it. Others than headline stand apart."""

    id: str
    scope: str
    text: str
    evidence: tuple[str, ...]
    category: str = "all"
    split: str = "dev"
    headline: bool = True


@dataclass(frozen=True, slots=True)
class DataSet:
    """Turns in order and the questions of one split; only scopes that are asked about."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def load(folder: Path, split: str = "all") -> DataSet:
    """The data set in ``folder``; ``ValueError`` names what is wrong with it."""
    questions = []
    for row in _rows(folder / "queries.jsonl"):
        question = Question(
            id=row["id"],
            scope=row["scope"],
            text=row["text"],
            evidence=tuple(dict.fromkeys(row["evidence"])),
            category=row.get("category", "all"),
            split=row.get("split", "dev"),
            headline=row.get("headline", True),
        )
        if not question.evidence:
            raise ValueError(f"{folder}: question {question.id} has no evidence")
        if split in ("all", question.split):
            questions.append(question)
    asked = {question.scope for question in questions}
    turns = tuple(
        Turn(row["id"], row["scope"], row["text"], row.get("tags") or {}, row.get("time"))
        for row in _rows(folder / "segments.jsonl")
        if row["scope"] in asked
    )
    places = {turn.id: turn.scope for turn in turns}
    if len(places) < len(turns):
        raise ValueError(f"{folder}: segment ids are not unique")
    for question in questions:
        for id in question.evidence:
            if places.get(id) != question.scope:
                raise ValueError(f"{folder}: {question.id}: evidence {id} is not in its scope")
    if not questions:
        raise ValueError(f"{folder}: no questions in split {split!r}")
    return DataSet(folder.name, turns, tuple(questions))


def _rows(path: Path) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def charged(turn: Turn) -> str:
    """The form in which a turn is charged against the budget: ``[date] speaker: text``."""
    date = f"[{turn.time[:10]}] " if turn.time else ""
    speaker = f"{turn.tags['speaker']}: " if turn.tags.get("speaker") else ""
    return f"{date}{speaker}{turn.text}\n"


# -- one question ----------------------------------------------------------------------------------


def share_found(ranked: Sequence[str], evidence: frozenset[str], depth: int) -> float:
    """Share of the evidence among the first ``depth``."""
    return len(evidence.intersection(ranked[:depth])) / len(evidence)


def ndcg(ranked: Sequence[str], evidence: frozenset[str], depth: int) -> float:
    """Binary gain, discounted by log2 of the place; 1 where all evidence comes first."""
    gain = sum(1 / math.log2(n + 2) for n, id in enumerate(ranked[:depth]) if id in evidence)
    return gain / sum(1 / math.log2(n + 2) for n in range(min(depth, len(evidence))))


def reciprocal_rank(ranked: Sequence[str], evidence: frozenset[str]) -> float:
    """1 over the place of the first evidence; 0 where there is none."""
    return next((1 / n for n, id in enumerate(ranked, start=1) if id in evidence), 0.0)


def within(ranked: Iterable[str], cost: dict[str, int], budget: int) -> frozenset[str]:
    """What fits into ``budget``, taken in order; one that does not fit is passed over."""
    taken, used = [], 0
    for id in ranked:
        if used + cost[id] <= budget:
            taken.append(id)
            used += cost[id]
    return frozenset(taken)


def figures(ranked: Sequence[str], question: Question, cost: dict[str, int]) -> dict[str, float]:
    """All ``METRICS`` of one ranking, each from 0 to 1."""
    evidence = frozenset(question.evidence)
    inside = len(evidence & within(ranked, cost, BUDGET)) / len(evidence)
    return {
        "R@5": share_found(ranked, evidence, 5),
        "R@10": share_found(ranked, evidence, 10),
        "R@20": share_found(ranked, evidence, 20),
        "nDCG@10": ndcg(ranked, evidence, 10),
        "MRR": reciprocal_rank(ranked, evidence),
        "B1500": inside,
        "All1500": float(inside == 1),
    }


# -- a whole run -----------------------------------------------------------------------------------

Ranking = dict[str, list[str]]  # question id -> segment ids, best first, each once


def evaluate(
    data: DataSet, rank: Callable[[Question], Sequence[str]], count: Callable[[str], int]
) -> tuple[dict[str, dict[str, float]], Ranking]:
    """Mean figures in percent, by category and over the headline questions, and the rankings."""
    cost = {turn.id: count(charged(turn)) for turn in data.turns}
    places = {turn.id: turn.scope for turn in data.turns}
    rankings: Ranking = {}
    rows: list[tuple[Question, dict[str, float]]] = []
    for question in data.questions:
        ranked = list(dict.fromkeys(rank(question)))
        foreign = [id for id in ranked if places.get(id) != question.scope]
        if foreign:
            raise ValueError(f"{question.id}: results from outside {question.scope}: {foreign[:3]}")
        rankings[question.id] = ranked
        rows.append((question, figures(ranked, question, cost)))
    return _summary(rows), rankings


def _summary(rows: list[tuple[Question, dict[str, float]]]) -> dict[str, dict[str, float]]:
    groups = {ALL: [found for question, found in rows if question.headline]}
    for category in sorted({question.category for question, _ in rows}):
        groups[category] = [found for question, found in rows if question.category == category]
    return {
        name: {
            "n": len(found),
            **{
                each: round(100 * sum(row[each] for row in found) / len(found), 1)
                for each in METRICS
            },
        }
        for name, found in groups.items()
        if found
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan
