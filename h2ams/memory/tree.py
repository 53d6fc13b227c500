"""The files of a root as a tree that a file tool may look at and edit, under an access (Truth).

Strategy: whole files in place of segments, through the same means as every other write: confined
paths, the scope's lock, replaced in one step, redacted, bounded. What the access may not read is
not there: it is in no listing, no size and no error. A ``memory.md`` may be edited as text, but not
so that a header stops being readable; files that decide about access or state cannot be edited.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from h2ams.errors import (
    ConflictError,
    NotFoundError,
    ReadOnlyError,
    StoreError,
    UnsafePathError,
    UsageError,
)
from h2ams.files import Changed, FileState, Root
from h2ams.memory import folders as on_disk
from h2ams.memory import layout
from h2ams.memory.access import Gate
from h2ams.memory.draft import check_size
from h2ams.memory.layout import UNFILED, Role, place_of
from h2ams.memory.scope import NEVER_READ, Scope
from h2ams.memory.scope_files import Plan, ScopeFiles
from h2ams.memory.segment import Document
from h2ams.memory.summary import parse_summary
from h2ams.memory.values import clean_text
from h2ams.settings import Settings
from h2ams.text.redact import redact

# They say who is related to whom, which topic another one is, and what the engine did.
PROTECTED = frozenset({Role.SESSION_CARD, Role.REDIRECT, Role.DREAM_STATE, Role.AMS_STATE})
MOST_FILES = 100_000  # below one folder that is listed, moved or deleted


@dataclass(frozen=True, slots=True)
class Node:
    """A file or folder. ``path`` is relative to the root; ``size`` in bytes, of a folder the sum
    over the files in it that the access may read."""

    path: str
    is_folder: bool
    size: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FileTree:
    """The readable part of one root. ``synced`` is told the paths of each write."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        gate: Gate,
        *,
        count: Callable[[str], int],
        synced: Callable[[Sequence[str]], None],
        files: ScopeFiles | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._gate = gate
        self._count = count
        self._synced = synced
        self._files = files or ScopeFiles(root, settings)

    # -- looking -----------------------------------------------------------------------------------

    def node(self, path: str) -> Node | None:
        """What is at ``path`` ("" is the root); None where nothing is for this access.

        ``UnsafePathError`` for a path or link that leads out of the root.
        """
        absolute = self._root.absolute(path)
        if _is_hidden(path):
            return None
        try:
            status = os.stat(absolute)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISREG(status.st_mode):
            return Node(path, False, status.st_size) if self._scope(path) else None
        if not stat.S_ISDIR(status.st_mode):
            return None
        sizes = [size for _, size in self._below(path)]
        place = place_of(path)
        scope = None if place is None or place.problem else place.scope
        readable = scope is not None and self._gate.may_read(scope)
        return Node(path, True, sum(sizes)) if sizes or readable or not path else None

    def nodes(self, folder: str, depth: int) -> list[Node]:
        """Files and folders below ``folder``, ``depth`` levels of them, in the order of names."""
        found: list[Node] = []
        for name, is_folder in self._names(folder):
            path = f"{folder}/{name}" if folder else name
            node = self.node(path)
            if node is not None:
                found.append(node)
                if is_folder and depth > 1:
                    found.extend(self.nodes(path, depth - 1))
        return found

    def read(self, path: str) -> str:
        """The text of the file at ``path``. ``NotFoundError``; ``ReadOnlyError`` for no text."""
        state = self._state(path, self._file_scope(path))
        if state is None:
            raise _missing(path)
        return _text(state.data, path)

    def files(self, folder: str = "") -> list[str]:
        """Paths of all readable files below ``folder``, sorted."""
        return sorted(path for path, _ in self._below(folder))

    def data(self, path: str) -> bytes:
        """The bytes of the file at ``path``. ``NotFoundError``."""
        state = self._state(path, self._file_scope(path))
        if state is None:
            raise _missing(path)
        return state.data

    # -- changing ----------------------------------------------------------------------------------

    def create(self, path: str, text: str) -> None:
        """Write a new file with its folders. ``ConflictError`` where something is there already."""
        scope = self._writable(path)
        made = clean(text).encode("utf-8")
        self._check(path, b"", made)
        if os.path.lexists(self._root.absolute(path)):  # before any lock is taken
            raise _there_already(path)
        if scope != UNFILED and not on_disk.existing(self._root, scope):
            on_disk.check_creatable(self._root, scope)

        def plan() -> Plan[None]:
            if self._state(path, scope) is not None:
                raise _there_already(path)
            return Plan(None, path, None, made)

        self._files.run(self._files.canonical(scope), plan)
        self._synced([path])

    def edit(self, path: str, added: str, change: Callable[[str, str], str]) -> str:
        """Replace the text of a file by ``change`` of it and of ``added``; gives the new text.

        ``added`` is cleaned of secrets before; what a person wrote elsewhere in the file is not.
        What ``change`` raises leaves the file as it is; it is called again where the file changed
        meanwhile.
        """
        scope = self._file_scope(path)
        self._writable(path)
        cleaned = clean(added)

        def plan() -> Plan[str]:
            state = self._state(path, scope)
            if state is None:
                raise _missing(path)
            text = _text(state.data, path)
            made = change(text, cleaned)
            if made == text:
                return Plan(text)
            data = made.encode("utf-8")
            self._check(path, state.data, data)
            return Plan(made, path, state, data)

        text = self._files.run(self._files.canonical(scope), plan)
        self._synced([path])
        return text

    def delete(self, path: str) -> None:
        """Remove a file, or a folder with all that the access may see in it, for good."""
        files = self._all(path)
        for each in files:
            self._writable(each)
        for each in files:
            self._remove(each)
        self._remove_empty(path)
        self._synced(files)

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder. ``ConflictError`` where ``new`` is there already.

        Each file is written to its new place before the old one goes: an interruption leaves a
        copy, never a gap.
        """
        files = self._all(old)
        moves = [(each, new + each[len(old) :]) for each in files]
        if new == old or new.startswith(f"{old}/"):
            raise UsageError(f"{old} cannot be moved into itself", hint="choose another name")
        for source, target in moves:
            self._writable(source)
            self._writable(target)
        if os.path.lexists(self._root.absolute(new)):
            raise _there_already(new)
        for source, target in moves:
            self._move(source, target)
        self._remove_empty(old)
        self._synced([path for move in moves for path in move])

    def _move(self, source: str, target: str) -> None:
        here, there = self._scope(source), self._writable(target)
        if here is None:
            raise _missing(source)
        state = self._state(source, here)
        if state is None:
            raise _missing(source)
        self._check(target, state.data, state.data)
        if there != UNFILED and not on_disk.existing(self._root, there):
            on_disk.check_creatable(self._root, there)
        with self._files.lock(self._files.canonical(there)):
            try:
                self._root.replace(target, state.data, expect=None, make_folders=True)
            except Changed as error:
                raise _there_already(target) from error
        self._remove(source, state)

    def _remove(self, path: str, expect: FileState | None = None) -> None:
        scope = self._scope(path)
        assert scope is not None, path
        with self._files.lock(self._files.canonical(scope)):
            state = self._state(path, scope)
            if state is None:
                return
            if expect is not None and expect.data != state.data:
                raise StoreError(f"{path}: changed while it was moved; it is in both places now")
            self._root.remove(path, expect=state)

    def _remove_empty(self, folder: str) -> None:
        """Remove ``folder`` and the folders in it as far as nothing is left in them."""
        absolute = self._root.absolute(folder)
        if os.path.islink(absolute) or not os.path.isdir(absolute):
            return
        for current, _, _ in os.walk(absolute, topdown=False):
            self._root.remove_empty_folder(os.path.relpath(current, self._root.path))

    # -- rules -------------------------------------------------------------------------------------

    def _scope(self, path: str) -> Scope | None:
        """The scope of the file ``path`` if the access may read it; None for all else."""
        if _is_hidden(path):
            return None
        scope = layout.scope_of_path(path)
        return scope if scope is not None and self._gate.may_read(scope) else None

    def _file_scope(self, path: str) -> Scope:
        """The scope of the file that is at ``path``. ``NotFoundError`` where none is."""
        node = self.node(path)
        scope = self._scope(path)
        if node is None or node.is_folder or scope is None:
            raise _missing(path)
        return scope

    def _writable(self, path: str) -> Scope:
        """The scope of ``path`` if a file may be written there.

        The same refusal whether something is there or not, for what the access may not read.
        """
        self._root.absolute(path)
        place = place_of(path.rpartition("/")[0])
        name = path.rpartition("/")[2]
        if _is_hidden(path) or not path:
            raise UsageError(f"{path!a}: hidden names are not for memories", hint="choose another")
        if place is None or place.problem or place.scope is None:
            why = "" if place is None or not place.problem else f" ({place.problem})"
            raise UsageError(f"{path!a} lies in no scope{why}", hint="see docs/format.md")
        self._gate.check_write(place.scope)
        if _is_for_scopes(path, place.scope):  # a file would be in their way, seen or not
            raise UsageError(
                f"{path!a}: this name is for a folder of scopes", hint="see docs/format.md"
            )
        on_disk.check_own(self._root, path, place.scope)
        role, detail = layout.role(place, name)
        if role in PROTECTED or role is Role.CONFLICT_COPY or detail.startswith("unfit-name"):
            raise ReadOnlyError(f"{path}: not a file that tools may write", path=path)
        return place.scope

    def _check(self, path: str, before: bytes, after: bytes) -> None:
        """Named limits, and for a ``memory.md`` that no header gets unreadable."""
        check_size("max_file_bytes", self._settings.max_file_bytes, len(after), len(before), path)
        place = place_of(path.rpartition("/")[0])
        assert place is not None, path
        role, _ = layout.role(place, path.rpartition("/")[2])
        if role is Role.SUMMARY:
            text = parse_summary(after, settings=self._settings).text
            limit = self._settings.summary_tokens
            check_size("summary_tokens", limit, self._count(text), None, path)
        if role in (Role.MEMORY, Role.ARCHIVE):
            self._check_segments(path, self._files.parse(before), self._files.parse(after))

    def _check_segments(self, path: str, old: Document, new: Document) -> None:
        known = {entry.segment.body for entry in old.entries}
        limit = self._settings.max_segment_chars
        for entry in new.entries:
            if entry.segment.body not in known:
                size = len(entry.segment.body)
                check_size("max_segment_chars", limit, size, None, f"{path}:{entry.line}")
        had = Counter(problem.code for problem in old.problems if not problem.notice)
        for problem in new.problems:
            if problem.notice:
                continue
            had[problem.code] -= 1
            if had[problem.code] < 0:
                raise UsageError(
                    f"{path}:{problem.line}: {problem.code}: {problem.message}; nothing written",
                    hint="keep the lines between --- as they are",
                )

    # -- the disk ----------------------------------------------------------------------------------

    def _state(self, path: str, scope: Scope) -> FileState | None:
        on_disk.check_own(self._root, path, scope)
        return self._root.read(path, settled=True)

    def _all(self, path: str) -> list[str]:
        """The readable files at or below ``path``. ``NotFoundError`` where nothing is."""
        node = self.node(path)
        if node is None:
            raise _missing(path)
        return [name for name, _ in self._below(path)] if node.is_folder else [path]

    def _below(self, folder: str) -> Iterator[tuple[str, int]]:
        """Path and size of each readable file below ``folder``."""
        seen = 0
        waiting = [(folder, 0)]
        while waiting:
            current, depth = waiting.pop()
            for name, is_folder in self._names(current):
                path = f"{current}/{name}" if current else name
                if is_folder:
                    if depth < self._settings.max_depth_count:
                        waiting.append((path, depth + 1))
                elif self._scope(path) is not None:
                    seen += 1
                    if seen > MOST_FILES:
                        raise StoreError(f"{folder or '.'}: more than {MOST_FILES} files")
                    yield path, os.stat(self._root.absolute(path)).st_size

    def _names(self, folder: str) -> list[tuple[str, bool]]:
        """Names in ``folder``, sorted, and whether each is a folder. Hidden ones are left out, and
        links that lead out of the root, nowhere, or into another scope, and linked folders."""
        found = []
        try:
            with os.scandir(self._root.absolute(folder)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return []
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if _is_hidden(entry.name) or not _is_text(entry.name):
                continue
            if entry.is_symlink() and not self._may_follow(path):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder or entry.is_file():
                found.append((entry.name, is_folder))
        return found

    def _may_follow(self, path: str) -> bool:
        scope = layout.scope_of_path(path)
        try:
            if scope is None or not os.path.isfile(self._root.absolute(path)):
                return False
            on_disk.check_own(self._root, path, scope)
        except UnsafePathError:
            return False
        return True


def _is_for_scopes(path: str, scope: Scope) -> bool:
    """Whether a folder at ``path``, in the folder of ``scope``, would hold or be another scope."""
    itself = place_of(path)
    if itself is None or itself.problem or itself.scope == scope:
        return False
    # Any name may be a sub-topic's; one with a dot is a file's.
    return not scope.topic or "." not in path.rpartition("/")[2]


def _is_hidden(path: str) -> bool:
    return any(part[:1] == "." or part == NEVER_READ for part in path.split("/"))


def _is_text(name: str) -> bool:
    """Whether a name can be printed; bytes that are no UTF-8 came as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in name)


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReadOnlyError(f"{path}: not UTF-8 at byte {error.start}", path=path) from error


def _missing(path: str) -> NotFoundError:
    return NotFoundError(f"there is no {path}", path=path)


def _there_already(path: str) -> ConflictError:
    return ConflictError(f"{path} is there already", hint="choose another name", path=path)


def clean(text: str) -> str:
    """``text`` as it may be written: encodable, without secrets and private parts."""
    return redact(clean_text(text)).text
