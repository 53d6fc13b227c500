"""Opening a SQLite database the way the engine needs it (apsw, which brings its own SQLite).

WAL, so that one writer never blocks readers; the busy time-out is set before anything that may
lock; deleted content is overwritten; files are the owner's alone. The WAL file is never deleted on
close: a database that was set aside while another process had it open would otherwise take the
newcomer's WAL file with it, since SQLite deletes it by name.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw

from h2ams.errors import IndexFaultError

BUSY_TIMEOUT_MS = 15_000
CACHE_KIB = 64 * 1024

Connection = apsw.Connection
Error = apsw.Error
BUSY = (apsw.BusyError, apsw.LockedError)

# A statement that does not fit the tables: another process made them first, or they are not ours.
MISFIT = apsw.SQLError

# What it raises when it cannot write for now: what is already in the database can be read.
HINDERED = (*BUSY, apsw.FullError, apsw.ReadOnlyError, apsw.IOError)


class Unsound(Exception):
    """Pages that SQLite can read, with rows in them that the engine cannot have written."""


# What is raised when the bytes are not a sound database: the reason to start anew.
DAMAGED = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError, Unsound)


def rows(
    connection: Connection, statement: str, bindings: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows of ``statement``."""
    return connection.execute(statement, tuple(bindings)).fetchall()


def row(
    connection: Connection, statement: str, bindings: Sequence[Any] = ()
) -> tuple[Any, ...] | None:
    """The first row, or None."""
    return connection.execute(statement, tuple(bindings)).fetchone()


def only(connection: Connection, statement: str, bindings: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The first row of a statement that always has one."""
    found = row(connection, statement, bindings)
    if found is None:
        raise Unsound(f"no row for {statement!r}")
    return found


def value(connection: Connection, statement: str, bindings: Sequence[Any] = ()) -> Any:
    """The first column of the first row, or None."""
    found = row(connection, statement, bindings)
    return None if found is None else found[0]


def integers(values: Iterable[int]) -> Any:
    """Rowids or other numbers from 0 on to bind as the argument of ``carray(?)``."""
    return apsw.carray(array("q", values) or array("q", [-1]))  # it cannot be empty


def texts(values: Iterable[str]) -> Any:
    """Names to bind as the argument of ``carray(?)``."""
    return apsw.carray(tuple(values) or ("\x01",))  # it cannot be empty; no name is that


def connect(path: str, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Connection:
    """Open or create the database at ``path`` (absolute) for reading and writing.

    Raises ``IndexFaultError`` where the file cannot be opened at all, one of ``DAMAGED`` where it
    is not a sound database.
    """
    try:
        # Created here so that the mode is right from the first byte on; -wal and -shm inherit it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = apsw.Connection(path)
    except OSError as error:
        raise _fault(path, error.strerror or str(error)) from error
    except apsw.CantOpenError as error:
        raise _fault(path, str(error)) from error
    except UnicodeEncodeError:
        raise _fault(path, "SQLite opens no file whose path is not UTF-8") from None
    try:
        connection.set_busy_timeout(busy_timeout_ms)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        # No memory map: a file that somebody truncates would kill the process with SIGBUS.
        connection.execute("PRAGMA journal_size_limit = 0")
        _keep_wal(connection)
        # The first read opens the WAL by name: do it now, not after a swap of the file.
        value(connection, "SELECT count(*) FROM sqlite_schema")
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.FullError, apsw.IOError) as error:
        connection.close()
        raise _fault(path, str(error)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _fault(path: str, reason: str) -> IndexFaultError:
    return IndexFaultError(
        f"cannot open the index {path}: {reason}",
        path=path,
        reason=reason,
        hint="free some space, or set H2AMS_STATE_DIR to a folder that can be written",
    )


def _keep_wal(connection: Connection) -> None:
    keep = array("i", [1])
    address, _ = keep.buffer_info()
    connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, address)


def backup(target: Connection, source: Connection) -> None:
    """Make ``target`` the copy of ``source`` in one transaction; readers keep their old state."""
    deadline = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    with target.backup("main", source, "main") as copy:
        while not copy.done:
            try:
                copy.step(-1)
            except BUSY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)


@contextlib.contextmanager
def immediate(connection: Connection) -> Iterator[None]:
    """A write transaction that takes the lock at once: it can never fail half-way with *busy*."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # A damaged database may have rolled back by itself.
        if _is_open(connection):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """A read transaction: all statements inside see one state of the database."""
    if _is_open(connection):
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if _is_open(connection):
            connection.execute("ROLLBACK")


def _is_open(connection: Connection) -> bool:
    """Whether a transaction is open: statements in between may have ended it."""
    return bool(connection.in_transaction)


def truncate_wal(connection: Connection) -> bool:
    """Write the whole WAL back and empty it; False, at once, when a reader still holds it."""
    connection.set_busy_timeout(0)  # it would wait for the reader, which may read for long
    try:
        return not value(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    except BUSY:
        return False
    finally:
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)


def set_aside(path: str) -> str:
    """Move the database at ``path`` out of the way (one copy is kept) and return its new path."""
    aside = path + ".aside"
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)
    with contextlib.suppress(FileNotFoundError):
        os.replace(path, aside)
    return aside


def remove_leftovers(path: str) -> None:
    """Remove databases beside ``path``: the one set aside, and those of dead rebuilds.

    A rebuild writes to ``<path>.new-<pid>-…``; one whose process lives is left alone.
    """
    folder, name = os.path.split(path)
    for each in os.listdir(folder):
        if each.startswith(f"{name}.aside") or _is_of_a_dead_rebuild(each, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, each))


def _is_of_a_dead_rebuild(each: str, name: str) -> bool:
    found = re.fullmatch(rf"{re.escape(name)}\.new-(\d+)-.*", each)
    if found is None:
        return False
    try:
        os.kill(int(found[1]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it lives and is somebody else's
        return False
    return False
