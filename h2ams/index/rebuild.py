"""The whole index anew, aside, and copied over the old one in one step (Derived).

Nobody sees the database while it is built; after a crash it is thrown away: no journal, no fsync.
SQLite's backup makes the old one its copy in one transaction, so that readers in any process go on
with the old state until then. Renaming the file would not do: SQLite finds the WAL by name.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace

from h2ams import sqlite
from h2ams.errors import IndexFaultError
from h2ams.index.plan import Plan, plan_sync
from h2ams.index.scan import Scan, check_room, scan
from h2ams.index.schema import Index
from h2ams.index.sync import Syncer, SyncReport
from h2ams.memory.layout import Role
from h2ams.memory.scope import parse_scope

FTS_HASH_BYTES = 1 << 20  # FTS5's default: new rows held in memory before they are written
BULK_HASH_BYTES = 16 << 20  # while building anew; fewer pieces to merge, a third less time


def rebuild(syncer: Syncer) -> SyncReport:
    """Make the index of ``syncer`` anew from the files, and sync what changed meanwhile."""
    started = time.perf_counter()
    root, settings, index = syncer.root, syncer.settings, syncer.index
    seen = scan(root, settings)
    check_room(seen, settings)
    with index.lock:
        index.connection.execute("SELECT 1")  # it may have to move: the new one is made there
    aside = f"{index.path}.new-{os.getpid()}-{time.monotonic_ns():x}"
    fresh = Index(aside, encoding=index.encoding)
    try:
        builder = Syncer(root, fresh, settings, count=syncer.count, clock_ns=syncer.clock_ns)
        builder.vectors = syncer.vectors
        try:
            report = _filled(builder, seen)
        except (sqlite.Error, sqlite.Unsound) as error:  # a full disk: what was built is no good
            message = f"the index {index.path} could not be built anew ({error}): the old one stays"
            raise IndexFaultError(message, path=aside, hint="free some space") from error
        with fresh.lock:
            _copy_over(index, fresh.connection)
    finally:
        fresh.close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside + suffix)
    index.made_new = False
    syncer.sync()
    return replace(report, elapsed_ms=(time.perf_counter() - started) * 1000)


def _filled(builder: Syncer, seen: Scan) -> SyncReport:
    """Fill the builder's empty index with all that was seen."""
    plan = _ordered(plan_sync(seen.files, {}, seen.blinded))
    with builder.index.lock:
        connection = builder.index.connection
        _for_bulk(connection)
        report = builder.build(plan, seen)
        connection.execute("INSERT INTO memory_fts (memory_fts) VALUES ('optimize')")
        if builder.vectors is not None:
            with builder.index.writing() as writable:
                builder.vectors.complete(writable)
        _fts_hash(connection, FTS_HASH_BYTES)
    return report


def _copy_over(index: Index, source: sqlite.Connection) -> None:
    with index.lock:
        try:
            sqlite.backup(index.connection, source)
        except sqlite.DAMAGED as error:
            index.start_anew(f"the index was damaged ({error})")
            sqlite.backup(index.connection, source)
        index.changed()
        sqlite.truncate_wal(index.connection)


def _for_bulk(connection: sqlite.Connection) -> None:
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA cache_size = -131072")
    _fts_hash(connection, BULK_HASH_BYTES)


def _fts_hash(connection: sqlite.Connection, size: int) -> None:
    connection.execute("INSERT INTO memory_fts (memory_fts, rank) VALUES ('hashsize', ?)", (size,))


def _ordered(plan: Plan) -> Plan:
    """Cards first, then shared before private, then by scope: the order of the rowids.

    Scopes that are read together get neighbouring numbers, and FTS5 takes rising rowids far faster.
    """
    private = {scope: parse_scope(scope).is_private for scope in {x.scope for x in plan.read}}
    order = sorted(
        plan.read,
        key=lambda x: (x.role is not Role.SESSION_CARD, private[x.scope], x.scope, x.path),
    )
    return plan._replace(read=tuple(order))
