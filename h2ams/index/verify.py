"""Does the index equal what a rebuild would give? (Derived, read-only)

The digest that a rebuild would have is computed from the files, without building anything; the one
of the index from its rows as they are now, not from the sums that the syncs keep. FTS5's own
integrity check compares the full-text index with the stored text. Files that are half-written or
unreadable at the moment keep their last good rows, marked stale: they are outside both digests.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2ams import sqlite
from h2ams.errors import StoreError
from h2ams.files import Root
from h2ams.index import digest, schema
from h2ams.index.apply import GroupFile, group_of, parse_file, unite, wanted_items
from h2ams.index.plan import Found
from h2ams.index.rows import Maker, Row
from h2ams.index.scan import scan
from h2ams.index.schema import Index
from h2ams.memory.layout import SEGMENT_ROLES
from h2ams.memory.scope import parse_scope
from h2ams.memory.values import Problem
from h2ams.settings import Settings

if TYPE_CHECKING:
    from h2ams.index.vectors import Vectors

PROBED_WORDS = 2_000  # a page of the table of words stands for some hundred pages of them


@dataclass(frozen=True, slots=True)
class Verification:
    """``ok`` means: both digests are equal and the database is sound."""

    ok: bool
    digest: str
    rebuild_digest: str
    problems: tuple[Problem, ...] = ()


def verify(
    root: Root, index: Index, settings: Settings, vectors: Vectors | None = None
) -> Verification:
    """Compare the index with the files. Reads everything, writes nothing."""
    problems = _database_problems(index)
    with index.reading() as connection:
        found = _index_digest(connection)
        if found != digest.combine(
            t for (t,) in sqlite.rows(connection, "SELECT digest FROM scopes")
        ):
            problems.append(Problem("index-sums", "the kept sums differ from the rows", 0))
        pending = {
            path
            for (path,) in sqlite.rows(connection, "SELECT path FROM files WHERE pending <> ''")
        }
        stale = _stale_digest(connection)
        shown = _shown_digest(connection)
        if vectors is not None:
            problems += vectors.problems(connection)
    expected, to_show = _files_digests(root, settings, pending)
    live = digest.combine((digest.add(found, minus=(stale,)),))
    if live != expected:
        problems.append(
            Problem("index-differs", "the index is not what a rebuild would give", 0, fixable=True)
        )
    elif shown != to_show:
        text = "texts in the index are not what the files say"
        problems.append(Problem("index-differs", text, 0, fixable=True))
    return Verification(not problems, live, expected, tuple(problems))


def is_sound(index: Index) -> bool:
    """Whether the database holds what the engine may have written into it, as far as it shows."""
    try:
        return not _database_problems(index)
    except sqlite.HINDERED:
        raise
    except (sqlite.Error, sqlite.Unsound):
        return False


def _database_problems(index: Index) -> list[Problem]:
    """What SQLite itself finds, by a connection of its own.

    FTS5's check goes by what a connection remembers of the table's parts, and finds corruption
    where another process has merged them in the meantime.
    """
    with index.lock:
        index.connection.execute("SELECT 1")  # there, and of this version
        connection = sqlite.connect(index.path)
    try:
        with sqlite.immediate(connection):  # FTS5's check is an INSERT: it needs the write lock
            return _checked(connection)
    finally:
        connection.close()


def _checked(connection: sqlite.Connection) -> list[Problem]:
    problems = []
    for (text,) in sqlite.rows(connection, "PRAGMA integrity_check(5)"):
        if text != "ok":
            problems.append(Problem("index-damaged", str(text), 0, fixable=True))
    for text in schema.impossible_rows(connection):
        problems.append(Problem("index-damaged", text, 0, fixable=True))
    try:
        connection.execute(
            "INSERT INTO memory_fts (memory_fts, rank) VALUES ('integrity-check', 1)"
        )
    except sqlite.Error as error:
        problems.append(Problem("index-damaged", f"full-text index: {error}", 0, fixable=True))
    if not problems and not _words_are_found(connection):
        text = "full-text index: words that it holds are not found"
        problems.append(Problem("index-damaged", text, 0, fixable=True))
    return problems


def _words_are_found(connection: sqlite.Connection) -> bool:
    """Whether a search finds each word in as many rows as hold it; evenly spread ones of many.

    FTS5's own check reads its pages in a row and never asks the table of where words begin.
    """
    connection.execute("CREATE VIRTUAL TABLE temp.held USING fts5vocab(main, memory_fts, 'row')")
    step = int(sqlite.value(connection, "SELECT count(*) FROM temp.held")) // PROBED_WORDS + 1
    held = connection.execute("SELECT term, doc FROM temp.held")
    for number, (word, rows) in enumerate(held):
        if number % step:
            continue
        found = "SELECT count(*) FROM memory_fts WHERE memory_fts MATCH ?"
        if sqlite.value(connection, found, (f'"{word}"',)) != rows:
            return False
    return True


def _row_digests(connection: sqlite.Connection, where: str) -> list[str]:
    rows = sqlite.rows(
        connection,
        "SELECT s.name, m.id, m.words, m.forms, m.labels, m.sources FROM memory_segments m"
        f" JOIN scopes s ON s.no = m.scope {where}",
    )
    return [digest.row_digest(*row) for row in rows]


def _index_digest(connection: sqlite.Connection) -> str:
    return digest.combine((digest.add("0", _row_digests(connection, "")),))


def _stale_digest(connection: sqlite.Connection) -> str:
    return digest.add("0", _row_digests(connection, "WHERE m.stale"))


def _shown_digest(connection: sqlite.Connection) -> str:
    """Of what a reader is shown; the sums that syncs keep are over what is searched."""
    rows = sqlite.rows(
        connection,
        "SELECT s.name, m.id, m.kind, m.tags, m.created_at, m.updated_at, m.heading, m.body,"
        " m.digest FROM memory_segments m JOIN scopes s ON s.no = m.scope WHERE NOT m.stale",
    )
    return digest.add("0", (digest.shown_digest(*row) for row in rows))


def _shown(scope: str, row: Row) -> str:
    values = (row.kind, row.tags, row.created_at, row.updated_at, row.heading, row.body)
    return digest.shown_digest(scope, row.id, *values, row.digest)


def _files_digests(root: Root, settings: Settings, pending: set[str]) -> tuple[str, str]:
    """Both digests that an index of the files as they are now would have."""
    groups: dict[tuple[str, str], list[Found]] = defaultdict(list)
    for found in scan(root, settings).files.values():
        if found.role in SEGMENT_ROLES:
            groups[group_of(found.scope, found.name, found.role.value)].append(found)
    total, shown = "0", "0"
    for (scope, _), members in groups.items():
        maker = Maker(parse_scope(scope), settings, lambda _text: 0)
        files = []
        for found in sorted(members, key=lambda each: (each.layout, each.path)):
            if found.path in pending:
                continue
            try:
                state = root.read(found.path)
            except StoreError:
                continue
            files.append(GroupFile(found.path, found, None, state))
        for file in files:
            parse_file(file, maker)
        unite(files, maker)
        wanted = wanted_items(files, list(range(len(files))))
        rows = [item.build(id) for id, (_, item) in wanted.items()]
        total = digest.add(total, (row.row_digest for row in rows))
        shown = digest.add(shown, (_shown(scope, row) for row in rows))
    return digest.combine((total,)), shown
