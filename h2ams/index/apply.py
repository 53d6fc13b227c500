"""Applying a plan to the database: read, parse, write only the segments that differ (Derived).

The unit of work is a *group*: all segment files of one scope, or all notes with one name in it
(more than one only where several layouts or spellings hold the scope). Files of a group share their
ids. A group is read inside the write transaction, so that what is written is never older than what
another process wrote before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from h2ams import sqlite
from h2ams.errors import RootError, StoreError
from h2ams.files import FileState, Root
from h2ams.index import schema
from h2ams.index.plan import Found, Known
from h2ams.index.row_writer import Writer
from h2ams.index.rows import Item, Maker
from h2ams.index.scan import is_racy
from h2ams.memory import card, note, segment
from h2ams.memory.layout import Role
from h2ams.memory.legacy import union
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.values import Problem
from h2ams.settings import Settings

# A file with one of these, which its indexed bytes did not have, may be half-written: the last good
# rows stay, marked stale, until it parses, or the same bytes have stood for GRACE_NS.
HALF_WRITTEN = frozenset({"unterminated-header", "invalid-yaml", "invalid-utf-8", "leading-rule"})
GRACE_NS = 2_000_000_000

MISSING, UNREADABLE = "missing", "unreadable"


@dataclass(slots=True)
class Tally:
    """What the application of a plan found, beside the writer's own counts."""

    problems: list[Problem] = field(default_factory=list)
    changed_files: int = 0


@dataclass(frozen=True, slots=True)
class Clock:
    """Times as the apply step needs them. ``trusted`` paths were just written by the engine."""

    now_ns: int
    trusted: frozenset[str] = frozenset()


@dataclass(slots=True)
class GroupFile:
    """One file of a group while it is worked on. ``keep`` says why its old rows stay."""

    path: str
    found: Found | None
    known: Known | None
    state: FileState | None = None
    keep: str = ""  # why its old rows stay: MISSING, UNREADABLE or the digest of half-written bytes
    document: segment.Document | None = None
    items: list[Item] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    no: int = 0


class _Old(NamedTuple):
    """A row as the index has it."""

    rowid: int
    file: int
    digest: str
    line: int
    last_line: int
    stale: int
    created_at: str | None


class Applier:
    """Applies groups inside one write transaction."""

    def __init__(
        self,
        root: Root,
        connection: sqlite.Connection,
        writer: Writer,
        settings: Settings,
        count: Callable[[str], int],
        clock: Clock,
    ) -> None:
        self.root = root
        self.connection = connection
        self.writer = writer
        self.settings = settings
        self.count = count
        self.clock = clock
        self.tally = Tally()

    # -- groups ----------------------------------------------------------------------------------

    def group(self, scope: str, found: Mapping[str, Found], known: Iterable[Known]) -> None:
        """One group: its files as found now and as known before, in whatever layouts."""
        olds = {each.path: each for each in known}
        paths = sorted({*found, *olds}, key=lambda path: (self._layout(found, olds, path), path))
        self._group(parse_scope(scope), [GroupFile(p, found.get(p), olds.get(p)) for p in paths])

    def single(self, path: str, found: Found | None, known: Known | None) -> None:
        """A file that holds no segments: a session's card is read, a summary only noted."""
        file = GroupFile(path, found, known)
        place = found or known
        self._read(file)
        if file.keep or place is None:
            return
        if file.state is None:
            self._forget_file(file)
            if known is not None and known.role == Role.SESSION_CARD.value:
                self._forget_card(known)
            return
        if self._unchanged(file) and self._same_stat(file):
            return
        self.tally.changed_files += not self._unchanged(file)
        self._save_file(file)
        role = found.role if found is not None else Role(_known(file).role)
        if role is Role.SESSION_CARD:
            self._save_card(place, file)
        self._save_problems(file)

    def _save_card(self, place: Found | Known, file: GroupFile) -> None:
        session = parse_scope(place.scope).session
        if session is None or file.state is None:
            return
        values, problems = card.parse_card(file.state.data, file.path)
        file.problems.extend(problems)
        # A card that cannot be read names an agent that no other session has: deny by default.
        agent = f"\0unreadable:{session}" if problems else values.agent
        self.connection.execute(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)",
            (session, agent, values.project, values.workspace, values.title),
        )

    def _forget_card(self, known: Known) -> None:
        session = parse_scope(known.scope).session
        self.connection.execute("DELETE FROM sessions WHERE id = ?", (session,))

    @staticmethod
    def _layout(found: Mapping[str, Found], olds: Mapping[str, Known], path: str) -> int:
        return found[path].layout if path in found else olds[path].layout

    def _group(self, scope: Scope, files: list[GroupFile]) -> None:
        for file in files:
            self._read(file)
        if all(self._unchanged(file) for file in files):
            for file in files:
                if not self._same_stat(file):
                    self._save_file(file)
                self.tally.problems.extend(file.problems)  # still unreadable: said every time
            return
        self.tally.changed_files += sum(
            not file.keep and not self._unchanged(file) for file in files
        )
        maker = Maker(scope, self.settings, self.count)
        for file in files:
            self._parse(file, maker)
        unite(files, maker)
        for file in files:
            if file.state is None and not file.keep:
                continue
            self._save_file(file)
        self._diff(scope, files)
        for file in files:
            if file.state is None and not file.keep:
                self._forget_file(file)
            else:
                self._save_problems(file)

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, file: GroupFile) -> None:
        try:
            file.state = self.root.read(file.path)
        except RootError:
            raise  # nothing is wrong with this file: the whole folder is gone
        except StoreError as error:
            file.keep = UNREADABLE
            file.problems.append(Problem("unreadable", error.message, 0, file.path))
            return
        if file.state is None and self._being_saved(file):
            file.keep = MISSING

    def _being_saved(self, file: GroupFile) -> bool:
        """An editor moved the file to its backup name and has not written the new one yet."""
        known = file.known
        if known is None or file.path in self.clock.trusted:
            return False
        if known.pending == MISSING and self.clock.now_ns - known.pending_ns >= GRACE_NS:
            return False
        try:
            backup = self.root.read(file.path + "~")
        except StoreError:
            return False
        return backup is not None and backup.inode == known.inode

    def _unchanged(self, file: GroupFile) -> bool:
        known = file.known
        if known is None:
            return False
        if file.keep:
            return known.pending == file.keep
        return (
            file.state is not None
            and not known.pending
            and file.state.sha256 == known.digest
            and (file.found is None or known.scope == file.found.scope)
        )

    def _same_stat(self, file: GroupFile) -> bool:
        """Whether the row in ``files`` would not change: then nothing is written at all."""
        known, state = file.known, file.state
        if known is None or state is None:
            return file.keep != "" and known is not None and known.pending == file.keep
        racy = is_racy(state.mtime_ns, state.ctime_ns, self.clock.now_ns)
        stat = (known.size, known.mtime_ns, known.ctime_ns, known.inode, known.racy)
        return stat == (state.size, state.mtime_ns, state.ctime_ns, state.inode, racy)

    def _parse(self, file: GroupFile, maker: Maker) -> None:
        parse_file(file, maker)
        if file.document is not None or file.items:
            self._set_aside_half_written(file)

    def _set_aside_half_written(self, file: GroupFile) -> None:
        if file.state is not None and self._half_written(file):
            file.keep = file.state.sha256
            file.items, file.document = [], None

    def _half_written(self, file: GroupFile) -> bool:
        known = file.known
        if known is None or file.state is None or file.path in self.clock.trusted:
            return False
        codes = {each.code for each in file.problems} & HALF_WRITTEN
        if not codes or not self._had_good_rows(known, codes):
            return False
        same_bytes = known.pending == file.state.sha256
        return not (same_bytes and self.clock.now_ns - known.pending_ns >= GRACE_NS)

    def _had_good_rows(self, known: Known, codes: set[str]) -> bool:
        old = {
            code
            for (code,) in sqlite.rows(
                self.connection, "SELECT code FROM problems WHERE file = ?", (known.no,)
            )
        }
        has_rows = sqlite.value(
            self.connection, "SELECT 1 FROM memory_segments WHERE file = ? LIMIT 1", (known.no,)
        )
        return bool(has_rows) and (bool(known.pending) or not codes <= old)

    # -- writing ---------------------------------------------------------------------------------

    def _diff(self, scope: Scope, files: list[GroupFile]) -> None:
        numbers = [file.no or (file.known.no if file.known else 0) for file in files]
        kept = {number for number, file in zip(numbers, files, strict=True) if file.keep}
        existing: dict[str, _Old] = {}
        for number in numbers:
            for rowid, id, digest, line, last, stale, created in sqlite.rows(
                self.connection,
                "SELECT rowid, id, digest, line, last_line, stale, created_at"
                " FROM memory_segments WHERE file = ?",
                (number,),
            ):
                existing[id] = _Old(rowid, number, digest, line, last, stale, created)
        for number in kept:
            self.connection.execute(
                "UPDATE memory_segments SET stale = 1 WHERE file = ? AND stale = 0", (number,)
            )
        self._write(scope, wanted_items(files, numbers), existing, kept)

    def _write(
        self,
        scope: Scope,
        wanted: dict[str, tuple[int, Item]],
        existing: dict[str, _Old],
        kept: set[int],
    ) -> None:
        for id, old in existing.items():
            if id not in wanted and old.file not in kept:
                self.writer.delete(old.rowid)
        number_of_scope = 0
        rows: list[tuple[int, str]] = []
        for id, (number, item) in wanted.items():
            known = existing.get(id)
            if known is not None:
                rowid, created = known.rowid, known.created_at
                if known.digest != item.digest:
                    row = item.build(id)
                    created = row.created_at
                    self.writer.update(rowid, number, row)
                elif known[1:6] != (number, item.digest, item.line, item.last_line, 0):
                    self.writer.move(rowid, number, item.line, item.last_line)
            else:
                number_of_scope = number_of_scope or schema.scope_number(
                    self.connection,
                    scope.text,
                    private=scope.is_private,
                    project=self._project(scope),
                )
                row = item.build(id)
                created = row.created_at
                rowid = self.writer.insert(number_of_scope, number, row)
            rows.append((rowid, f"{number} {(created or '')[:10]}"))  # of one file and day
        self.writer.arrange(rows)

    def _project(self, scope: Scope) -> str:
        if scope.session is None:
            return ""
        found = sqlite.value(
            self.connection, "SELECT project FROM sessions WHERE id = ?", (scope.session,)
        )
        return found or ""

    # -- the table of files ----------------------------------------------------------------------

    def _save_file(self, file: GroupFile) -> None:
        known, found, state = file.known, file.found, file.state
        if file.keep:
            assert known is not None or file.keep == UNREADABLE
            since = known.pending_ns if known and known.pending == file.keep else self.clock.now_ns
            if known is not None:
                file.no = known.no
                self.connection.execute(
                    "UPDATE files SET pending = ?, pending_ns = ?, racy = 1 WHERE no = ?",
                    (file.keep, since, known.no),
                )
                return
        place = found or known
        assert place is not None
        role = found.role.value if found else _known(file).role
        values = (
            place.scope,
            place.name,
            role,
            place.layout,
            state.size if state else place.size,
            state.mtime_ns if state else place.mtime_ns,
            state.ctime_ns if state else place.ctime_ns,
            state.inode if state else place.inode,
            is_racy(state.mtime_ns, state.ctime_ns, self.clock.now_ns) if state else True,
            "" if state is None else state.sha256,
            file.keep,
            self.clock.now_ns if file.keep else 0,
        )
        if known is not None:
            file.no = known.no
            self.connection.execute(
                "UPDATE files SET scope=?, name=?, role=?, layout=?, size=?, mtime_ns=?,"
                " ctime_ns=?, inode=?, racy=?, digest=?, pending=?, pending_ns=? WHERE no = ?",
                (*values, known.no),
            )
        else:
            self.connection.execute(
                "INSERT INTO files (path, scope, name, role, layout, size, mtime_ns, ctime_ns,"
                " inode, racy, digest, pending, pending_ns) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (file.path, *values),
            )
            file.no = self.connection.last_insert_rowid()

    def _forget_file(self, file: GroupFile) -> None:
        if file.known is not None:
            self.connection.execute("DELETE FROM problems WHERE file = ?", (file.known.no,))
            self.connection.execute("DELETE FROM files WHERE no = ?", (file.known.no,))

    def _save_problems(self, file: GroupFile) -> None:
        self.connection.execute("DELETE FROM problems WHERE file = ?", (file.no,))
        for each in file.problems:
            self.connection.execute(
                "INSERT INTO problems VALUES (?, ?, ?, ?, ?, ?)",
                (file.no, each.line, each.code, each.message, each.fixable, each.notice),
            )
        self.tally.problems.extend(each for each in file.problems if not each.notice)


def _known(file: GroupFile) -> Known:
    assert file.known is not None
    return file.known


def _at(path: str, problems: Iterable[Problem]) -> list[Problem]:
    return [replace(each, path=path) for each in problems]


def unite(files: list[GroupFile], maker: Maker) -> None:
    """Items of the files' entries, one per id: the newer where two layouts hold the same."""
    documents = [(file.path, file.document) for file in files if file.document is not None]
    if not documents:
        return
    by_path = {file.path: file for file in files}
    united = union(documents)
    for held in united.held:
        by_path[held.path].items.append(maker.segment_item(held.entry))
    for problem in united.problems:
        by_path[problem.path].problems.append(problem)


def _scope_problems(document: segment.Document, scope: Scope, path: str) -> list[Problem]:
    """A ``scope:`` line that disagrees with the folder: the folder wins, the line is reported."""
    found = []
    for entry in document.entries:
        written = entry.segment.scope
        if written and written != scope.text and not written.startswith(("group/", "session/")):
            found.append(
                Problem(
                    "scope-disagrees",
                    f"scope: {written} stands in the folder of {scope.text}; the folder counts",
                    entry.line,
                    path,
                )
            )
    return found


def parse_file(file: GroupFile, maker: Maker) -> None:
    """Fill the file's document or items and its problems from its bytes."""
    if file.state is None:
        return
    limit = maker.settings.max_file_bytes
    if file.state.size > limit:
        text = f"{file.state.size} bytes, max_file_bytes is {limit}: not indexed"
        file.problems.append(Problem("file-too-large", text, 0, file.path))
        return
    role = file.found.role if file.found is not None else Role(_known(file).role)
    if role is Role.CONTENT:
        file.items = maker.content_items(file.state.data)
        return
    if role is Role.NOTE:
        place = file.found or _known(file)
        sections, problems = note.parse_note(
            file.state.data, name=place.name, settings=maker.settings
        )
        file.items = maker.note_items(sections)
    else:
        file.document = segment.parse(file.state.data, settings=maker.settings)
        problems = file.document.problems
        file.problems.extend(_scope_problems(file.document, maker.scope, file.path))
    file.problems.extend(_at(file.path, problems))


def wanted_items(files: list[GroupFile], numbers: list[int]) -> dict[str, tuple[int, Item]]:
    """One item per id. Notes and ``content.md`` of a second layout get ``~2`` behind their id."""
    wanted: dict[str, tuple[int, Item]] = {}
    for number, file in zip(numbers, files, strict=True):
        for item in file.items:
            id, count = item.id, 1
            while id in wanted:
                count += 1
                id = f"{item.id}~{count}"
            wanted[id] = (number, item)
    return wanted


def group_of(scope: str, name: str, role: str) -> tuple[str, str]:
    """The group that a file belongs to: (scope, note's name or "" for the segment files)."""
    return scope, name if role == Role.NOTE.value else ""
