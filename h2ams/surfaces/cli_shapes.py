"""The JSON documents of the commands (Pure), as docs/schemata.md describes them; a test compares.

Keys may be added, never changed. ``SCHEMA`` counts the additions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from h2ams.dream.summarise import Refreshed
    from h2ams.memory.lifecycle_plan import FileChange, ScopeChange
    from h2ams.memory.record import Degraded, Hit, Record
    from h2ams.memory.store import WriteResult
    from h2ams.memory.values import Problem
    from h2ams.upkeep.doctor import Fixed

SCHEMA = 1

Document = dict[str, object]


def segment(record: Record) -> Document:
    """One segment or note section, as ``list``, ``show`` and ``sources`` give it.

    ``length`` is in chars. ``truncated`` says that the index keeps less than the file (a hand
    edit over the limit); ``digest`` is what ``--expect`` takes.
    """
    return {
        "scope": record.scope,
        "id": record.id,
        "address": record.address,
        "kind": record.kind,
        "tags": list(record.tags),
        "body": record.body,
        "heading": record.heading,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "source_messages": list(record.source_messages),
        "source_session": record.source_session,
        "path": record.path,
        "line": record.line,
        "tokens": record.tokens,
        "digest": record.digest,
        "note": record.is_note,
        "stale": record.stale,
        "length": len(record.body),
        "truncated": record.over_limit,
    }


def hit(found: Hit) -> Document:
    """One match of ``recall``: the segment, its score and the terms that add up to it."""
    return segment(found.record) | {
        "score": found.score,
        "terms": dict(found.terms),
        "matched": found.through,
        "matched_terms": list(found.matched),
    }


def problem(found: Problem) -> Document:
    """One thing that is wrong in a file; ``path`` is relative to the root, ``line`` 1-based."""
    return {
        "path": found.path,
        "line": found.line,
        "code": found.code,
        "message": found.message,
        "fixable": found.fixable,
        "notice": found.notice,
    }


def problems(found: Iterable[Problem]) -> list[Document]:
    return [problem(each) for each in found]


def repairs(found: Iterable[Fixed]) -> list[Document]:
    """What ``doctor`` repaired, or would repair."""
    return [
        {"path": each.path, "line": each.line, "code": each.code, "message": each.message}
        for each in found
    ]


def written(result: WriteResult, *, dry_run: bool) -> Document:
    """What every write tells; ``diff`` is filled by ``--dry-run`` only."""
    return {
        "scope": result.scope,
        "id": result.id,
        "address": result.address,
        "path": result.path,
        "dry_run": dry_run,
        "diff": result.diff if dry_run else "",
        "redacted": list(result.redacted),
        "conflict": result.conflict,
        "problems": problems(result.problems),
    }


def scope_change(change: ScopeChange) -> Document:
    """What an operation on a scope did, or would do."""
    return {
        "kind": change.kind,
        "scope": change.scope,
        "target": change.target,
        "changed": change.changed,
        "files": [
            {
                "path": each.path,
                "to": each.to or None,
                "bytes": each.size_bytes,
                "sha256": each.sha256,
            }
            for each in change.files
        ],
        "state": [{"owner": each.owner, "what": each.what} for each in change.state],
        "kept": list(change.kept),
        "failed": [{"path": each.path, "message": each.message} for each in change.failed],
        "segments_before": change.segments_before,
        "segments_after": change.segments_after,
    }


def _file_change(each: FileChange) -> Document:
    to = each.to or None  # null: removed
    return {"path": each.path, "to": to, "bytes": each.size_bytes, "sha256": each.sha256}


def degraded(found: Iterable[Degraded]) -> list[Document]:
    """What does not work as well as it could: a code for programs, a message for people."""
    return [{"code": each.code, "message": each.message} for each in found]


def problem_line(found: Problem | Fixed) -> tuple[tuple[str, str], str]:
    """A problem for a person: ``path:line: code: message``, as parts of an output line."""
    place = f"{found.path}:{found.line}" if found.line else found.path
    return (f"{place or 'memory'}: ", "address"), f"{found.code}: {found.message}"


def summary(found: Refreshed) -> Document:
    """One summary as a pass or ``summary refresh`` left it."""
    return {
        "scope": found.scope,
        "language": found.language,
        "path": found.path,
        "status": found.status,
        "tokens": found.tokens,
        "fell_back": found.fell_back,
        "message": found.message or None,
    }
