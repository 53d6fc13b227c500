"""Where a workflow's keys live: the protocol of stores, and what all of them share (Truth).

A store maps keys to canonical JSON texts and keeps the optimized change log since the last
checkpoint beside them. ``project`` is the only write: it checks what is expected, preflights the
quota, and then writes all changes with log and footprint in one transaction, or nothing.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from h2ams.errors import ConflictError, UsageError
from h2ams.stacks import log, quota
from h2ams.stacks.exchange import check_text
from h2ams.stacks.log import Entry
from h2ams.stacks.quota import Footprint

# Called with the name of a step before it is done; tests fail or kill there.
StoreHook = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a store holds at one instant.

    ``log`` maps a deleted key to None; ``fresh`` are its keys that no checkpoint has seen.
    """

    items: Mapping[str, str] = field(repr=False)
    log: Mapping[str, str | None] = field(repr=False)
    fresh: frozenset[str] = frozenset()

    @classmethod
    def of(cls, items: Mapping[str, str], entries: Mapping[str, Entry]) -> Snapshot:
        return cls(
            items,
            {key: None if entry.deleted else items[key] for key, entry in entries.items()},
            frozenset(key for key, entry in entries.items() if not entry.based),
        )

    def entries(self) -> list[tuple[str, Entry]]:
        """The log entries again."""
        return [
            (key, Entry(key not in self.fresh, deleted=value is None))
            for key, value in self.log.items()
        ]


class WorkflowStore(Protocol):
    """One workflow's keys. Safe to call from several threads."""

    @property
    def quota_bytes(self) -> int: ...

    def get(self, key: str) -> str | None:
        """The JSON text of ``key``, None where it is not there."""
        ...

    def items(self, prefix: str) -> list[tuple[str, str]]:
        """(key, JSON text) of all keys that begin with ``prefix``, sorted, of one instant.

        ``prefix`` is empty or ends in ``.``.
        """
        ...

    def project(
        self, changes: Mapping[str, str | None], *, expect: Mapping[str, str | None] | None = None
    ) -> Footprint:
        """Set and delete (None) keys at once; the new footprint.

        ``ConflictError`` where a key of ``expect`` does not hold exactly that text (None: is not
        there), ``QuotaExceeded`` where the footprint would be over the quota. Then nothing is
        written.
        """
        ...

    def preview(self, changes: Mapping[str, str | None]) -> Footprint:
        """The footprint that ``project(changes)`` would leave; nothing is written or refused."""
        ...

    def change_log(self) -> dict[str, str | None]:
        """What changed since the last checkpoint: key to JSON text, None for a delete."""
        ...

    def checkpoint(self) -> None:
        """Empty the change log: whoever follows it has everything."""
        ...

    def footprint(self) -> Footprint: ...

    def snapshot(self) -> Snapshot: ...

    def load(self, snapshot: Snapshot) -> Footprint:
        """Fill this store, which must be empty, with what another one held."""
        ...

    def close(self) -> None: ...


class Row(NamedTuple):
    """What is known of a key without its value: bytes of its member (None: absent), log entry."""

    member_bytes: int | None
    entry: Entry | None


ABSENT = Row(None, None)


class Put(NamedTuple):
    """A key to set. ``member_bytes`` are those of key and value as a member of a JSON object."""

    key: str
    value: str
    member_bytes: int


class Writes(NamedTuple):
    """What one projection writes, by kind of row. ``entries`` are log entries, None removes one."""

    puts: Sequence[Put]
    drops: Sequence[str]
    entries: Mapping[str, Entry | None]
    footprint: Footprint


def planned(
    changes: Mapping[str, str | None], rows: Mapping[str, Row], before: Footprint
) -> Writes:
    """The writes of ``changes``, where ``rows`` holds what is known of each key."""
    puts: list[Put] = []
    drops: list[str] = []
    entries: dict[str, Entry | None] = {}
    store, log_tally = before.store, before.log
    for key in sorted(changes):
        value, (old, entry) = changes[key], rows.get(key, ABSENT)
        if value is None and old is None:
            continue
        new = None if value is None else quota.member_bytes(key, value)
        after = (
            log.after_delete(entry, old is not None)
            if value is None
            else log.after_set(entry, old is not None)
        )
        if value is None:
            drops.append(key)
        else:
            assert new is not None
            puts.append(Put(key, value, new))
        store = store.changed(old, new)
        log_tally = log_tally.changed(entry_bytes(key, entry, old), entry_bytes(key, after, new))
        if after != entry:
            entries[key] = after
    return Writes(puts, drops, entries, Footprint(store, log_tally))


def entry_bytes(key: str, entry: Entry | None, member_bytes: int | None) -> int | None:
    """Bytes of the log's member for ``key``, whose member in the store has ``member_bytes``."""
    if entry is None:
        return None
    return quota.member_bytes(key, None) if entry.deleted else member_bytes


class Transaction(Protocol):
    """One write transaction of a store. Whoever leaves it without an error has committed."""

    def footprint(self) -> Footprint: ...

    def rows(self, keys: Sequence[str]) -> dict[str, Row]: ...

    def values(self, keys: Sequence[str]) -> dict[str, str]: ...

    def put(self, puts: Sequence[Put]) -> None: ...

    def drop(self, keys: Sequence[str]) -> None: ...

    def put_entries(self, entries: Sequence[tuple[str, Entry]]) -> None: ...

    def drop_entries(self, keys: Sequence[str]) -> None: ...

    def clear_log(self) -> None: ...

    def set_footprint(self, footprint: Footprint) -> None: ...


class TransactionalStore(ABC):
    """The rules that every store keeps, above what a database does."""

    def __init__(self, quota_bytes: int, hook: StoreHook | None) -> None:
        self.quota_bytes = quota_bytes
        self._hook = hook
        self._lock = threading.RLock()

    @abstractmethod
    def _writing(self) -> AbstractContextManager[Transaction]:
        """A write transaction that excludes all other writers of this workflow."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Everything, of one instant."""

    def _at(self, step: str) -> None:
        if self._hook is not None:
            self._hook(step)

    def project(
        self, changes: Mapping[str, str | None], *, expect: Mapping[str, str | None] | None = None
    ) -> Footprint:
        """See ``WorkflowStore.project``."""
        for key in changes:
            _check_key(key)
        with self._lock:
            self._at("begin")
            with self._writing() as transaction:
                _check(expect or {}, transaction)
                before = transaction.footprint()
                rows = transaction.rows(sorted(changes))
                real = _without_repetitions(changes, rows, transaction)
                writes = planned(real, rows, before)
                quota.preflight(before, writes.footprint, self.quota_bytes)
                self._write(transaction, writes)
                self._at("commit")
            self._at("committed")
        return writes.footprint

    def _write(self, transaction: Transaction, writes: Writes) -> None:
        """Each kind of row in one go; nothing where there is nothing to do."""
        kept = [(key, entry) for key, entry in writes.entries.items() if entry is not None]
        gone = [key for key, entry in writes.entries.items() if entry is None]
        for put in writes.puts:
            self._at("put")
            transaction.put([put])
        if writes.drops:
            self._at("drop")
            transaction.drop(writes.drops)
        if kept:
            self._at("log")
            transaction.put_entries(kept)
        if gone:
            self._at("unlog")
            transaction.drop_entries(gone)
        self._at("footprint")
        transaction.set_footprint(writes.footprint)

    def preview(self, changes: Mapping[str, str | None]) -> Footprint:
        """See ``WorkflowStore.preview``."""
        with self._lock, self._writing() as transaction:
            rows = transaction.rows(sorted(changes))
            real = _without_repetitions(changes, rows, transaction)
            return planned(real, rows, transaction.footprint()).footprint

    def checkpoint(self) -> None:
        """See ``WorkflowStore.checkpoint``."""
        with self._lock:
            self._at("begin")
            with self._writing() as transaction:
                self._at("log")
                transaction.clear_log()
                self._at("footprint")
                transaction.set_footprint(Footprint(transaction.footprint().store))
                self._at("commit")

    def change_log(self) -> dict[str, str | None]:
        """See ``WorkflowStore.change_log``."""
        return dict(self.snapshot().log)

    def load(self, snapshot: Snapshot) -> Footprint:
        """See ``WorkflowStore.load``."""
        after = quota.recomputed(snapshot.items, snapshot.log)
        with self._lock:
            self._at("begin")
            with self._writing() as transaction:
                if transaction.footprint() != Footprint():
                    raise ConflictError(
                        "workflow store: it is not empty", hint="copy into a new workflow"
                    )
                quota.preflight(Footprint(), after, self.quota_bytes)
                puts = [
                    Put(key, value, quota.member_bytes(key, value))
                    for key, value in snapshot.items.items()
                ]
                transaction.put(puts)
                transaction.put_entries(snapshot.entries())
                transaction.set_footprint(after)
                self._at("commit")
        return after


def _check_key(key: str) -> None:
    check_text(key, "key")
    if not key or "\0" in key:
        raise UsageError(f"key {key!a}: empty, or it holds a NUL", hint="use another key")


def _check(expect: Mapping[str, str | None], transaction: Transaction) -> None:
    found = transaction.values(sorted(expect)) if expect else {}
    for key, text in expect.items():
        if found.get(key) != text:
            raise ConflictError(
                f"workflow store: {key} changed meanwhile", hint="read again and repeat"
            )


def _without_repetitions(
    changes: Mapping[str, str | None], rows: Mapping[str, Row], transaction: Transaction
) -> dict[str, str | None]:
    """``changes`` without keys that already hold exactly that value: the log need not tell."""
    alike = [
        key
        for key, value in changes.items()
        if value is not None and rows.get(key, ABSENT)[0] == quota.member_bytes(key, value)
    ]
    held = transaction.values(sorted(alike)) if alike else {}
    return {key: value for key, value in changes.items() if value is None or held.get(key) != value}


def check_prefix(prefix: str) -> tuple[str, str]:
    """The range ``low <= key < high`` of all keys with ``prefix``; ``UsageError`` for others."""
    if not prefix:
        return "", "\U0010ffff"
    if not prefix.endswith("."):
        raise UsageError(f"prefix {prefix!a}: must be empty or end in a full stop")
    return prefix, prefix[:-1] + "/"  # the character after the full stop
