"""Retired segments: read from ``archive.md`` when asked for, never indexed, never recalled."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from h2ams.memory.record import Record
from h2ams.memory.scope import Scope
from h2ams.memory.store import Store
from h2ams.memory.values import parse_time
from h2ams.text.redact import redact


def archived_records(
    store: Store, scopes: Iterable[Scope], count: Callable[[str], int]
) -> tuple[Record, ...]:
    """The retired segments of ``scopes`` in the order of their files; secrets are masked."""
    return tuple(record for scope in scopes for record in _of_scope(store, scope, count))


def _of_scope(store: Store, scope: Scope, count: Callable[[str], int]) -> list[Record]:
    records = []
    for path, document in store.archived(scope):
        for entry in document.entries:
            value = entry.segment
            body = redact(value.body).text
            records.append(
                Record(
                    scope=scope.text,
                    id=entry.address_id,
                    kind=value.kind,
                    tags=value.tags,
                    body=body,
                    heading="",
                    created_at=parse_time(value.created_at).iso,
                    updated_at=parse_time(value.updated_at).iso,
                    source_messages=value.source_messages,
                    path=path,
                    line=entry.line,
                    tokens=count(body),
                    digest=entry.digest,
                )
            )
    return records
