"""The derived database: its tables, its handle, and when it starts anew (Derived).

Everything in here can be deleted and comes back from the Markdown files. Scopes own *rowid ranges*:
a rowid is the scope's number times 2**20 plus a place inside the scope, so that a search over the
authorised scopes is a handful of range scans that never touch foreign rows. Numbers are given so
that scopes that are read together lie together: first shared before private, then by project, then
in the order of names at the last rebuild.

``memory_fts`` is an external-content FTS5 table over the analysed text stored in
``memory_segments``. ``row_writer`` is the only code that writes to either; it writes to both, with
statements of its own, since triggers made an insert three times as slow (FTS5 flushes its new rows
at the savepoint that SQLite sets around each of them).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

from h2ams import sqlite
from h2ams.errors import IndexFaultError, ScopeError, UsageError
from h2ams.memory.layout import Role
from h2ams.memory.scope import parse_scope
from h2ams.text import words

SCHEMA_VERSION = 6
ERASE_WAIT_S = 2.0  # for readers that still hold the state before a purge
ERASE_SEGMENTS = 20_000  # up to so many, deleted words are erased at every close (0.2 s)
UNERASED = "unerased"  # in `meta`: rows were deleted and their words may be in FTS5's parts yet
LOCAL_BITS = 20  # places in one scope: 1,048,576
LOCAL_MASK = (1 << LOCAL_BITS) - 1
SEQUENCE_BITS = 22  # scopes in one region (shared or private, and a project): 4,194,304
PROJECT_BITS = 20
BLOCK_BITS = 12  # segments whose figures share one row of `blocks`: index/places.py
BLOCK_MASK = (1 << BLOCK_BITS) - 1

# A token is exactly what stands between two blanks: all other ASCII but the quote belongs to it.
TOKENIZER = "ascii tokenchars '!#$%&()*+,-./:;<=>?@[\\]^_`{|}~'''"

_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE projects (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, agent TEXT, project TEXT, workspace TEXT, title TEXT
) WITHOUT ROWID;
CREATE TABLE scopes (
    no INTEGER PRIMARY KEY,           -- rowids: no << {LOCAL_BITS} | place
    name TEXT NOT NULL UNIQUE,
    segments INTEGER NOT NULL DEFAULT 0,
    words INTEGER NOT NULL DEFAULT 0, -- sum of the segments' lengths
    next_place INTEGER NOT NULL DEFAULT 0,
    digest TEXT NOT NULL DEFAULT '0'  -- order-free sum over its rows, hexadecimal
);
CREATE TABLE folders (
    path TEXT PRIMARY KEY, scope TEXT NOT NULL, mtime_ns INTEGER NOT NULL, racy INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX folders_by_scope ON folders (scope);
CREATE TABLE files (
    no INTEGER PRIMARY KEY,
    path TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,               -- path from the scope's folder on, NFC
    role TEXT NOT NULL,
    layout INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    racy INTEGER NOT NULL,            -- changed too shortly before it was read: read it again
    digest TEXT NOT NULL,             -- SHA-256 of the bytes whose rows are in the index
    pending TEXT NOT NULL DEFAULT '', -- SHA-256 of half-written bytes, 'missing', 'unreadable'
    pending_ns INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX files_by_scope ON files (scope, name);
CREATE INDEX files_pending ON files (path) WHERE pending <> '';
CREATE TABLE problems (
    file INTEGER NOT NULL, line INTEGER NOT NULL, code TEXT NOT NULL,
    message TEXT NOT NULL, fixable INTEGER NOT NULL, notice INTEGER NOT NULL
);
CREATE INDEX problems_by_file ON problems (file);
CREATE TABLE memory_segments (
    rowid INTEGER PRIMARY KEY,
    scope INTEGER NOT NULL,           -- number in `scopes`
    id TEXT NOT NULL,
    file INTEGER NOT NULL,
    line INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    stale INTEGER NOT NULL DEFAULT 0,
    note INTEGER NOT NULL,
    over_limit INTEGER NOT NULL,
    kind TEXT NOT NULL,
    tags TEXT NOT NULL,               -- JSON list
    created_at TEXT,
    updated_at TEXT,
    day INTEGER NOT NULL,             -- days since 1970 of the update, 0 undated
    length INTEGER NOT NULL,          -- tokens of `words`
    tokens INTEGER NOT NULL,          -- of the body, by the encoding in `meta`
    digest TEXT NOT NULL,             -- SHA-256 of the segment's bytes in its file
    row_digest TEXT NOT NULL,
    words TEXT NOT NULL,              -- analysed text: text/words.py
    forms TEXT NOT NULL,
    labels TEXT NOT NULL,
    roots TEXT NOT NULL,
    sources TEXT NOT NULL,            -- JSON list
    heading TEXT NOT NULL,
    body TEXT NOT NULL,               -- secrets masked
    UNIQUE (scope, id)
);
CREATE INDEX segments_by_file ON memory_segments (file, line);
CREATE INDEX segments_by_day ON memory_segments (scope, day);
CREATE TABLE source_msgs (
    message TEXT NOT NULL, segment INTEGER NOT NULL, PRIMARY KEY (message, segment)
) WITHOUT ROWID;
CREATE INDEX source_msgs_by_segment ON source_msgs (segment);
CREATE TABLE blocks (block INTEGER PRIMARY KEY, stats BLOB NOT NULL);
"""

_LOST = {
    "memory_segments.scope": "memory_segments WHERE scope NOT IN (SELECT no FROM scopes)",
    "memory_segments.file": "memory_segments WHERE file NOT IN (SELECT no FROM files)",
    "memory_segments.rowid": f"memory_segments WHERE rowid >> {BLOCK_BITS}"
    " NOT IN (SELECT block FROM blocks)",
    "problems.file": "problems WHERE file NOT IN (SELECT no FROM files)",
    "source_msgs.segment": "source_msgs WHERE segment NOT IN (SELECT rowid FROM memory_segments)",
}

_FTS = f"""
CREATE VIRTUAL TABLE memory_fts USING fts5(
    words, forms, labels, roots, content='memory_segments', content_rowid='rowid',
    tokenize="{TOKENIZER}"
);
"""


def create(connection: sqlite.Connection, encoding: str) -> None:
    """Make all tables in an empty database. ``IndexFaultError`` where SQLite has no FTS5."""
    with sqlite.immediate(connection):
        connection.execute(_TABLES)
        try:
            connection.execute(_FTS)
        except sqlite.Error as error:
            raise IndexFaultError(
                f"this SQLite has no FTS5 ({error}): recall is not possible",
                hint="install the apsw wheel, which brings its own SQLite with FTS5",
            ) from error
        for key, value in expected_meta(encoding).items():
            connection.execute("INSERT INTO meta VALUES (?, ?)", (key, value))


def impossible_rows(connection: sqlite.Connection) -> list[str]:
    """What stands in the tables and cannot have been written by the engine: one line a column.

    A page that was overwritten with another one can be read, and only its values are absurd.
    """
    found = []
    for table in ("meta", "projects", "sessions", "scopes", "folders", "files", "problems",
                  "memory_segments", "source_msgs", "blocks"):  # fmt: skip
        columns = sqlite.rows(connection, f"PRAGMA table_info({table})")
        wrong = ", ".join(  # one pass over the table, whatever its columns
            f"max(typeof({name}) <> '{kind.lower()}'"
            f"{'' if not_null or key else f' AND {name} IS NOT NULL'})"
            for _, name, kind, not_null, _, key in columns
        )
        flags = sqlite.only(connection, f"SELECT {wrong} FROM {table}")
        found += [
            f"{table}.{name} holds something else than {kind.lower()}"
            for (_, name, kind, *_), flag in zip(columns, flags, strict=True)
            if flag
        ]
    for column, lost in _LOST.items():
        if sqlite.value(connection, f"SELECT 1 FROM {lost} LIMIT 1"):
            found.append(f"{column} leads nowhere")
    return [*found, *impossible_names(connection)]


def impossible_names(connection: sqlite.Connection) -> list[str]:
    """Scopes and roles in the small tables that no engine wrote."""
    found = []
    for table, column in (("scopes", "name"), ("files", "scope"), ("folders", "scope")):
        names = sqlite.rows(connection, f"SELECT DISTINCT {column} FROM {table}")
        if not all(_is_scope(name) or (table == "folders" and name == "") for (name,) in names):
            found.append(f"{table}.{column} holds no scope")
    roles = {role.value for role in Role}
    if not all(x in roles for (x,) in sqlite.rows(connection, "SELECT DISTINCT role FROM files")):
        found.append("files.role holds no role")
    return found


def _is_scope(name: object) -> bool:
    try:
        return isinstance(name, str) and parse_scope(name).text == name
    except ScopeError:
        return False


def expected_meta(encoding: str) -> dict[str, str]:
    """What `meta` must say for the index to be used as it is."""
    return {
        "schema": str(SCHEMA_VERSION),
        "analysis": words.VERSION,
        "tokenizer": TOKENIZER,
        "encoding": encoding,
        "byteorder": sys.byteorder,  # of the packed numbers in `blocks`
    }


class Index:
    """A handle on one index file, shared by the threads of a process.

    ``lock`` serialises its use; ``fresh`` is False from opening on until a sync has been run on a
    database that was made new. A damaged file is set aside and replaced by an empty one, and where
    none can be kept it moves to a temporary folder (if ``may_move`` says so): never an error that
    stops a turn. ``notes`` says what happened, in words for ``status``. ``on_loss`` is called
    before a folder that went while the index was open is made again, and may raise.
    """

    def __init__(
        self,
        path: str,
        *,
        encoding: str,
        may_move: Callable[[], bool] = lambda: False,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self.encoding = encoding
        self._may_move = may_move
        self._on_loss = on_loss
        self._folder: str | None = None  # of this handle's own, when it has moved
        self.lock = threading.RLock()
        self.notes: list[tuple[str, str]] = []
        self.made_new = False
        self._connection: sqlite.Connection | None = None
        self._inode = 0
        self._pid = os.getpid()
        self._left_behind: list[sqlite.Connection] = []
        self._changes = 0
        self._closed = False

    @property
    def connection(self) -> sqlite.Connection:
        """The open connection; opened, checked and replaced as needed."""
        if self._closed:
            raise UsageError("this memory is closed", hint="open it again")
        if self._pid != os.getpid():
            # A forked child: using or closing the parent's connection would harm both.
            if self._connection is not None:
                self._left_behind.append(self._connection)
            self._connection, self._pid = None, os.getpid()
        if self._connection is not None and self._inode == _inode(self.path):
            return self._connection
        self._drop()
        return self._open()

    @property
    def is_open(self) -> bool:
        """Whether this handle has a connection of this process."""
        return self._connection is not None and self._pid == os.getpid()

    def is_new(self) -> bool:
        """Whether there was no usable index, so that an empty one was made just now."""
        return self.connection is not None and self.made_new

    def _open(self) -> sqlite.Connection:
        try:
            self._make_folder()
            connection = self._healed()
        except (IndexFaultError, *sqlite.HINDERED) as error:
            if isinstance(error, sqlite.BUSY) or self._folder is not None or not self._may_move():
                raise
            connection = self._moved(error)
        self._connection = connection
        self._inode = _inode(self.path)
        self.changed()
        return connection

    def _make_folder(self) -> None:
        folder = os.path.dirname(self.path)
        if os.path.isdir(folder):
            return
        if self._inode:  # it was there: is all the rest, or was a disk unmounted?
            self._on_loss()
        try:
            os.mkdir(folder, 0o700)  # never the folders above: a root that is gone stays gone
        except FileExistsError:
            pass
        except OSError as error:
            raise IndexFaultError(
                f"cannot make the folder of the index {folder}: {error.strerror}", path=folder
            ) from error

    def _healed(self) -> sqlite.Connection:
        try:
            return self._open_checked()
        except sqlite.DAMAGED as error:
            self.start_anew(f"the index was damaged ({error})")
            return self._open_checked()

    def _moved(self, why: Exception) -> sqlite.Connection:
        """A connection to an index of this handle's own, which goes with it.

        A memory can be read without any index that lasts: only each opening costs a rebuild.
        """
        import weakref

        from h2ams.index.refuge import refuges

        message = why.message if isinstance(why, IndexFaultError) else str(why)
        for refuge in refuges():
            self._folder = refuge.folder
            self.path = os.path.join(refuge.folder, os.path.basename(self.path))
            weakref.finalize(self, refuge.leave)
            try:
                connection = self._open_checked()
            except (IndexFaultError, *sqlite.HINDERED):
                continue
            text = f"{message}: the index is made anew in {refuge.folder}, for this process alone"
            self.notes.append(("index-temporary", text))
            return connection
        if isinstance(why, IndexFaultError):
            raise why
        raise self.fault(why) from why

    def fault(self, error: Exception) -> IndexFaultError:
        """What to tell where the database could not be written, or was not free."""
        hint = "free some space on its disk; the files are as they were, the next call tries again"
        if isinstance(error, sqlite.BUSY):
            hint = "another process writes to it: try again"
        return IndexFaultError(f"the index {self.path}: {error}", path=self.path, hint=hint)

    def _open_checked(self) -> sqlite.Connection:
        connection = sqlite.connect(self.path)
        try:
            has_meta = "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'"
            if not sqlite.value(connection, has_meta):
                with contextlib.suppress(sqlite.MISFIT):  # another process may be first
                    create(connection, self.encoding)
                    self.made_new = True
                if not sqlite.value(connection, has_meta):
                    raise sqlite.Unsound("its tables are not ours")
            try:
                found = dict(sqlite.rows(connection, "SELECT key, value FROM meta"))
            except sqlite.MISFIT:
                raise sqlite.Unsound("its tables are not ours") from None
            expected = expected_meta(self.encoding)
            if any(found.get(key) != value for key, value in expected.items()):
                self._recreate(connection, expected)
        except BaseException:
            connection.close()
            raise
        return connection

    def _recreate(self, connection: sqlite.Connection, expected: dict[str, str]) -> None:
        """Another version or encoding wrote it: empty it in place and let the next sync fill it."""
        with sqlite.immediate(connection):
            connection.execute("DROP TABLE IF EXISTS memory_fts")
            names = sqlite.rows(
                connection,
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
            )
            for (name,) in names:
                connection.execute(f'DROP TABLE IF EXISTS "{name}"')
        create(connection, expected["encoding"])
        self.made_new = True
        self.notes.append(("index-version", "another version made the index; it is built anew"))

    def start_anew(self, reason: str) -> None:
        """Set the file aside; the next use finds an empty database."""
        self._drop()
        sqlite.set_aside(self.path)
        self.made_new = True
        self.notes.append(("index-rebuilt", f"{reason}; it was set aside and is built anew"))

    def tidy(self) -> None:
        """Erase what was deleted since the last time, where that is cheap: before a close."""
        with self.lock:
            if self._connection is None or self._pid != os.getpid():
                return
            waits = "SELECT 1 FROM meta WHERE key = ?"
            if not sqlite.value(self._connection, waits, (UNERASED,)):
                return
            count = sqlite.value(self._connection, "SELECT sum(segments) FROM scopes") or 0
            if count <= ERASE_SEGMENTS:
                self.erase_deleted(wait_s=0)
            else:  # a purge may have been waiting for this
                sqlite.truncate_wal(self._connection)

    def erase_deleted(self, *, wait_s: float = ERASE_WAIT_S) -> bool:
        """Take every trace of deleted rows out of the database's files.

        Deleted rows are overwritten at once (``secure_delete``). FTS5 keeps deleted words until its
        parts are merged, so they are merged into one here; its own secure-delete option is not used
        as it damages the index (docs/decisions/0004). False where a reader still needs the WAL.
        """
        with self.lock:
            with self.writing() as connection:
                connection.execute("INSERT INTO memory_fts (memory_fts) VALUES ('optimize')")
            sqlite.remove_leftovers(self.path)
            deadline = time.monotonic() + wait_s
            while not sqlite.truncate_wal(self.connection):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.02)
            with self.writing() as connection:  # not before: whoever closes last tries again
                connection.execute("DELETE FROM meta WHERE key = ?", (UNERASED,))
        return True

    def close(self) -> None:
        """Close for good: any further use is an error."""
        self._drop()
        self._closed = True

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def changed(self) -> None:
        """What was read may differ from now on, though this very connection changed it."""
        self._changes += 1

    def state(self, connection: sqlite.Connection) -> tuple[int, ...]:
        """Differs as soon as anybody has written; call it inside a read transaction."""
        others = int(sqlite.value(connection, "PRAGMA data_version"))
        return self._changes, connection.total_changes(), others

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite.Connection]:
        with self.lock:
            self.changed()
            connection = self.connection
            with sqlite.immediate(connection):
                yield connection

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite.Connection]:
        with self.lock:
            connection = self.connection
            with sqlite.snapshot(connection):
                yield connection


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:  # not there, or a folder above it is none any more: opening it says why
        return 0


def scope_number(connection: sqlite.Connection, name: str, *, private: bool, project: str) -> int:
    """The number of scope ``name``, given now if it has none (inside a write transaction)."""
    row = sqlite.row(connection, "SELECT no FROM scopes WHERE name = ?", (name,))
    if row is not None:
        return int(row[0])
    region = (int(private) << PROJECT_BITS) | _project_number(connection, project)
    first, last = region << SEQUENCE_BITS, ((region + 1) << SEQUENCE_BITS) - 1
    highest = sqlite.value(
        connection, "SELECT max(no) FROM scopes WHERE no BETWEEN ? AND ?", (first, last)
    )
    number = first + 1 if highest is None else highest + 1
    if number > last:
        raise IndexFaultError(f"more than {1 << SEQUENCE_BITS} scopes in one project: {name}")
    connection.execute("INSERT INTO scopes (no, name) VALUES (?, ?)", (number, name))
    return int(number)


def _project_number(connection: sqlite.Connection, project: str) -> int:
    if not project:
        return 0
    connection.execute("INSERT OR IGNORE INTO projects (name) VALUES (?)", (project,))
    return int(sqlite.value(connection, "SELECT no FROM projects WHERE name = ?", (project,)))


def rowid_range(number: int) -> tuple[int, int]:
    """First and last rowid that scope ``number`` owns."""
    return number << LOCAL_BITS, (number << LOCAL_BITS) | LOCAL_MASK
