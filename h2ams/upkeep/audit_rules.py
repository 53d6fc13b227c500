"""What is doubtful about segments that are all read: findings and a plan that mends some (Pure).

Duplicates are found by the method of the block (``active/ranking``: rare word shingles by prefix
filtering, exact Jaccard), contradictions by what texts claim about one thing. Nothing here needs a
model, and nothing grows with the square of a scope's size. The plan only unites: the more
detailed text stays, with all sources; the other one goes to the archive.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from h2ams.active import ranking
from h2ams.active.block import Candidate
from h2ams.memory.consolidation import says_the_same
from h2ams.memory.extraction import Known
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Segment
from h2ams.memory.validation import Change
from h2ams.text.injection import is_instruction, is_scaffold
from h2ams.text.likeness import wording
from h2ams.text.redact import redact

Code = Literal[
    "exact-duplicate",
    "near-duplicate",
    "contradiction",
    "echo",
    "instruction",
    "secret",
    "never-recalled",
    "broken-provenance",
    "orphan-scope",
    "stale-summary",
    "over-budget",
]
_LABEL = re.compile(r"^\s*\[[^\s\]]+#[^\n]* · [^\n]*\]", re.MULTILINE)
_COPULA = re.compile(
    r"\s*(?:\bis now\b|\bare now\b|\bis\b|\bare\b|\bequals\b|(?<=\w)\s*[:=]\s|\s[—–]\s|\bэто\b"
    r"|是|为|叫)\s*",
    re.IGNORECASE,
)
_SUBJECT_WORDS = 8  # a longer beginning is a sentence, not the name of a thing
_DENIALS = frozenset(
    {"not", "no", "never", "don't", "doesn't", "isn't", "aren't", "won't", "can't", "cannot",
     "не", "нет", "никогда", "нельзя", "不", "没", "別", "别", "勿"}
)  # fmt: skip
_HELPERS = frozenset({"do", "does", "is", "are", "will", "can", "always", "всегда", "总", "是"})
_MOST_PAIRS = 64  # contradictions told of one thing: more are one disorder


@dataclass(frozen=True, slots=True)
class Placed:
    """A segment with its place; ``provenance`` says what is wrong with its sources, or ""."""

    scope: str
    id: str
    segment: Segment
    path: str
    line: int
    fixed: bool = False
    provenance: str = ""

    @property
    def address(self) -> str:
        return f"{self.scope}#{self.id}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One doubt. ``other`` is the address that it is about too; ``fixable``: the plan mends it."""

    code: Code
    scope: str
    address: str
    path: str
    line: int
    message: str
    other: str = ""
    fixable: bool = False


def duplicates(
    placed: Sequence[Placed], now: str
) -> tuple[tuple[Finding, ...], tuple[Change, ...]]:
    """Exact and near duplicates, and the changes that unite those of one scope.

    Equal texts of several scopes are told too; which scope they belong to is a person's to say.
    """
    by_scope: dict[str, list[Placed]] = defaultdict(list)
    for each in placed:
        by_scope[each.scope].append(each)
    findings: list[Finding] = []
    changes: list[Change] = []
    first: dict[str, Placed] = {}
    for members in by_scope.values():
        found, united = _of_one_scope(members, now)
        findings += found
        changes += united
        beaten = {each.address for each in found}
        for each in members:
            other = first.setdefault(wording(each.segment.body).text, each)
            if other.scope != each.scope and each.address not in beaten:
                message = f"says the same as {other.address}, in another scope"
                findings.append(_found("exact-duplicate", each, message, other))
    return tuple(findings), tuple(changes)


def _of_one_scope(members: Sequence[Placed], now: str) -> tuple[list[Finding], list[Change]]:
    by_address = {each.address: each for each in members}
    findings: list[Finding] = []
    losers: dict[str, list[Placed]] = defaultdict(list)
    for at, winner in ranking.duplicates([_candidate(each) for each in members], now).items():
        each, kept = members[at], by_address[winner.address]
        exact = wording(each.segment.body).text == wording(kept.segment.body).text
        if not exact and not says_the_same(each.segment.body, kept.segment.body):
            message = f"differs little from {kept.address}"
            findings.append(_found("contradiction", each, message, kept))
            continue
        fixable = not each.fixed and not kept.fixed
        verb = "says the same as" if exact else "nearly repeats"
        code: Code = "exact-duplicate" if exact else "near-duplicate"
        findings.append(_found(code, each, f"{verb} {kept.address}", kept, fixable=fixable))
        if fixable:
            losers[kept.address].append(each)
    return findings, list(_united(losers, by_address))


def _united(
    losers: Mapping[str, Sequence[Placed]], by_address: Mapping[str, Placed]
) -> Iterable[Change]:
    """One update of the kept segment and one retirement of each other, scope by scope."""
    for address, others in sorted(losers.items()):
        kept = by_address[address]
        value = kept.segment
        sources = (s for each in others for s in each.segment.source_messages)
        tags = dict.fromkeys((*value.tags, *(t for each in others for t in each.segment.tags)))
        scope = parse_scope(kept.scope)
        missing = tuple(s for s in dict.fromkeys(sources) if s not in value.source_messages)
        if missing or tuple(tags) != value.tags:
            yield Change(
                "update",
                scope,
                base=_known(kept),
                tags=tuple(tags),
                source_messages=missing,
                updated_at=value.updated_at,
            )
        for each in others:
            yield Change("retire", scope, base=_known(each))


def contradictions(placed: Sequence[Placed]) -> tuple[Finding, ...]:
    """Pairs of one scope that give one thing two values, or deny what the other says."""
    by_thing: dict[tuple[str, str], list[tuple[Placed, str]]] = defaultdict(list)
    by_rest: dict[tuple[str, str], list[tuple[Placed, str]]] = defaultdict(list)
    for each in placed:
        for line in each.segment.body.split("\n"):
            split = _COPULA.split(line, maxsplit=1)
            if len(split) == 2 and split[1].strip():
                thing = wording(split[0])
                if 0 < len(thing.words) <= _SUBJECT_WORDS:
                    value = wording(split[1]).text
                    by_thing[each.scope, thing.text].append((each, value))
            words = wording(line).words
            rest = " ".join(w for w in words if w not in _DENIALS and w not in _HELPERS)
            if rest and len(words) >= 3:
                denied = str(sum(word in _DENIALS for word in words) % 2)
                by_rest[each.scope, rest].append((each, denied))
    findings: dict[tuple[str, str], Finding] = {}
    for groups, verb in ((by_thing, "gives another value than"), (by_rest, "denies")):
        for group in groups.values():
            for one, other in _differing(group):
                pair = (one.address, other.address)
                finding = _found("contradiction", other, f"{verb} {one.address}", one)
                findings.setdefault((min(pair), max(pair)), finding)
    return tuple(findings.values())


def _differing(group: Sequence[tuple[Placed, str]]) -> list[tuple[Placed, Placed]]:
    """Each entry of ``group`` whose value is not the first one's, with the first; the older first.

    Against the first alone: a thing with n values is n - 1 findings.
    """
    ordered = sorted(group, key=lambda pair: (pair[0].segment.updated_at or "", pair[0].address))
    first, value = ordered[0]
    found = [(first, each) for each, other in ordered[1:] if other != value and each is not first]
    return found[:_MOST_PAIRS]


def texts(placed: Iterable[Placed]) -> tuple[Finding, ...]:
    """Echoes of the memory block, commands to the model, secrets, sources that are none."""
    findings: list[Finding] = []
    for each in placed:
        body = each.segment.body
        if _LABEL.search(body) or is_scaffold(body):
            findings.append(_found("echo", each, "holds markup of a prompt or of recalled memory"))
        if is_instruction(body):
            findings.append(_found("instruction", each, "commands the model that will read it"))
        kinds = redact(body).kinds
        if kinds:
            findings.append(_found("secret", each, f"holds {', '.join(kinds)}"))
        if each.provenance:
            findings.append(_found("broken-provenance", each, each.provenance))
    return tuple(findings)


def never_recalled(
    placed: Iterable[Placed], used: Collection[str], before: str
) -> tuple[Finding, ...]:
    """Segments last changed before the day ``before`` that no active set has used."""
    return tuple(
        _found("never-recalled", each, f"unchanged since {day}, in no active set")
        for each in placed
        if (day := (each.segment.updated_at or each.segment.created_at or "")[:10])
        and day < before
        and each.address not in used
    )


def _found(
    code: Code, each: Placed, message: str, other: Placed | None = None, *, fixable: bool = False
) -> Finding:
    return Finding(
        code,
        each.scope,
        each.address,
        each.path,
        each.line,
        message,
        "" if other is None else other.address,
        fixable,
    )


def _candidate(each: Placed) -> Candidate:
    return Candidate(
        layer="on_demand",
        scope=each.scope,
        id=each.id,
        kind=each.segment.kind,
        body=each.segment.body,
        date=(each.segment.updated_at or each.segment.created_at or "")[:10] or None,
        path=each.path,
        line=each.line,
    )


def _known(each: Placed) -> Known:
    value = each.segment
    return Known(each.id, value.kind, value.tags, value.body)
