"""The workflows of a state folder: one SQLite file each, by owner and id (Truth).

    <folder>/<id>.db                 a workflow that belongs to nobody in particular
    <folder>/<owner>/<id>.db         one that goes with the scope <owner>: a session, a chat, a VP
    …/<id>.cold/                     its cold copies

Names are coded (``scenes.encoded_name``), so any id is a safe file name and case does not matter.
``StackState`` makes workflows follow their owner: deleted, renamed and cloned with it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from h2ams.atomic import Writer, errors_named
from h2ams.errors import ConflictError, DamagedError, NotFoundError, ScopeError, UsageError
from h2ams.files import Root
from h2ams.memory.lifecycle_plan import holds, renamed
from h2ams.memory.scope import Scope, parse_scope
from h2ams.settings import DEFAULTS, Settings
from h2ams.stacks.cold import ColdCopies
from h2ams.stacks.compress import AttemptRecord, Compressor
from h2ams.stacks.scenes import MOST_NAME_CHARS, encoded_name
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.transition import Surroundings
from h2ams.stacks.workflow import Workflow

FOLDER = "workflows"  # below the state folder
_DB, _COLD = ".db", ".cold"
# Of the files of a database; the file itself last: as long as it is there, it is listed.
_ENDINGS = ("-wal", "-shm", "-journal", "")
_LONG, _OWNER = "%~", "owner"
MOST_FOLDER_CHARS = 200
_CODED = re.compile(r"(?:[a-z0-9_-]|%[0-9A-F]{2})+")


@dataclass(frozen=True, slots=True)
class WorkflowName:
    """Id of a workflow and the scope that it goes with, None for none."""

    id: str
    owner: Scope | None = None

    def __post_init__(self) -> None:
        if len(_coded(self.id)) > MOST_NAME_CHARS:  # it could not be read back
            raise UsageError("workflow id: too long", hint="use a shorter one")

    @property
    def path(self) -> str:
        """Path of its file without ending, relative to the folder."""
        coded = encoded_name(self.id, "workflow id")
        return coded if self.owner is None else os.path.join(owner_folder(self.owner), coded)

    def __str__(self) -> str:
        return self.id if self.owner is None else f"{self.owner}: {self.id}"


def owner_folder(owner: Scope) -> str:
    """Name of the folder with the workflows of ``owner``; a long one says so in a file inside."""
    coded = _coded(owner.text)
    if len(coded) <= MOST_FOLDER_CHARS:
        return coded
    return f"{_LONG}{hashlib.sha256(owner.text.encode()).hexdigest()[:32]}"


def _coded(text: str) -> str:
    return "".join(encoded_name(char, "name") for char in text)


def decoded(name: str) -> str | None:
    """What ``encoded_name`` made ``name`` of, None where it did not."""
    if not _CODED.fullmatch(name):
        return None
    data = re.sub(rb"%([0-9A-F]{2})", lambda m: bytes([int(m[1], 16)]), name.encode("ascii"))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if text and _coded(text) == name else None


class WorkflowFolder:
    """The workflows below ``path``, which is made when the first one is."""

    def __init__(
        self, path: str | os.PathLike[str], *, quota_bytes: int = DEFAULTS.stack_quota_bytes
    ) -> None:
        self.path = os.path.abspath(path)
        self._quota_bytes = quota_bytes

    def names(self) -> list[WorkflowName]:
        """All workflows, those without an owner first."""
        return sorted(self._found(), key=lambda name: (str(name.owner or ""), name.id))

    def owners(self) -> list[Scope]:
        """All scopes that have a folder here, with workflows or without."""
        found = (_owner(entry) for entry in _entries(self.path) if entry.is_dir())
        return sorted(owner for owner in found if owner is not None)

    def store(self, name: WorkflowName, *, create: bool = True) -> SqliteWorkflowStore:
        """Its store; ``NotFoundError`` where there is none and none is to be made."""
        path = self._file(name)
        if not create and not os.path.exists(path):
            raise NotFoundError(f"there is no workflow {name}", hint="h2ams stack list", path=path)
        self._make_folder(name)
        return SqliteWorkflowStore(path, quota_bytes=self._quota_bytes)

    def cold(self, name: WorkflowName) -> ColdCopies:
        return ColdCopies(os.path.join(self.path, name.path) + _COLD)

    def open(
        self,
        name: WorkflowName,
        *,
        compressor: Compressor | None = None,
        settings: Settings = DEFAULTS,
        cold_copy: bool = False,
        surroundings: Surroundings | None = None,
        create: bool = True,
    ) -> Workflow:
        """The workflow. Cold copies are kept with ``cold_copy``, and where some are already."""
        cold = self.cold(name)
        kept = cold_copy or bool(cold.names())
        store = self.store(name, create=create)
        try:
            return Workflow(
                store,
                compressor=compressor,
                settings=settings,
                cold=cold if kept else None,
                surroundings=surroundings,
            )
        except BaseException:
            store.close()
            raise

    def delete(self, name: WorkflowName) -> None:
        """Remove a workflow with everything that it keeps; nothing where there is none."""
        self._remove(os.path.join(self.path, name.path))
        self._prune(name.owner)

    def delete_owner(self, owner: Scope) -> None:
        """Remove all workflows of ``owner``, and what an interrupted call left of others."""
        folder = os.path.join(self.path, owner_folder(owner))
        for name in self.names():
            if name.owner == owner:
                self.delete(name)
        with errors_named("remove", folder), suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def copy(self, name: WorkflowName, new: WorkflowName) -> None:
        """Put a copy of ``name`` at ``new``, replacing what an interrupted copy left there.

        It shares nothing with the original, not even a call id (see ``Workflow.duplicate``).
        """
        target = os.path.join(self.path, new.path)
        if os.path.exists(target + _DB):
            raise ConflictError(f"workflow {new}: there is one already", path=target + _DB)
        self._remove(target)
        self._make_folder(new)
        aside = target + ".new"
        try:
            with self.open(name, create=False, cold_copy=True) as workflow:
                store = SqliteWorkflowStore(aside, quota_bytes=self._quota_bytes)
                try:
                    workflow.duplicate(store, cold=self.cold(new))
                    store.settle()
                finally:
                    store.close()
        except DamagedError:
            self.delete(new)
            raise
        with errors_named("write", target + _DB):
            os.replace(aside, target + _DB)
            self._remove_files(aside)

    def move(self, name: WorkflowName, new: WorkflowName) -> None:
        """Rename a workflow that nobody has open. May be repeated after a crash."""
        source, target = (os.path.join(self.path, each.path) for each in (name, new))
        if not os.path.exists(source + _DB):
            return
        if os.path.exists(target + _DB):
            raise ConflictError(f"workflow {new}: there is one already", path=target + _DB)
        endings: tuple[str, ...] = ("",)
        try:
            store = self.store(name)
            store.settle()  # all of it is in the one file now
            store.close()
        except DamagedError:
            endings = _ENDINGS  # it goes as it is, the file itself at last
        self._make_folder(new)
        with errors_named("rename", source + _DB):
            if os.path.isdir(source + _COLD):
                shutil.rmtree(target + _COLD, ignore_errors=True)
                os.rename(source + _COLD, target + _COLD)
            for ending in endings:
                if not ending or os.path.exists(source + _DB + ending):
                    os.rename(source + _DB + ending, target + _DB + ending)
        self.delete(name)

    def _make_folder(self, name: WorkflowName) -> None:
        folder = os.path.join(self.path, os.path.dirname(name.path)).rstrip(os.sep)
        with errors_named("make", folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            marker = os.path.join(folder, _OWNER)
            if os.path.basename(folder).startswith(_LONG) and not os.path.exists(marker):
                assert name.owner is not None
                Writer().overwrite(marker, name.owner.text.encode(), mode=0o600)

    def _file(self, name: WorkflowName) -> str:
        return os.path.join(self.path, name.path) + _DB

    def _found(self) -> Iterator[WorkflowName]:
        for entry in _entries(self.path):
            if entry.is_file() and entry.name.endswith(_DB):
                yield from _named(entry.name, None)
            elif entry.is_dir() and (owner := _owner(entry)) is not None:
                for inner in _entries(entry.path):
                    if inner.is_file() and inner.name.endswith(_DB):
                        yield from _named(inner.name, owner)

    def _remove(self, base: str) -> None:
        with errors_named("remove", base + _DB):
            shutil.rmtree(base + _COLD, ignore_errors=True)
            self._remove_files(base + _DB)
            self._remove_files(base + ".new")

    @staticmethod
    def _remove_files(path: str) -> None:
        for ending in _ENDINGS:
            with suppress(FileNotFoundError):
                os.unlink(path + ending)

    def _prune(self, owner: Scope | None) -> None:
        if owner is None:
            return
        folder = os.path.join(self.path, owner_folder(owner))
        with suppress(OSError):  # it is not empty, or gone
            if os.listdir(folder) == [_OWNER]:
                os.unlink(os.path.join(folder, _OWNER))
            os.rmdir(folder)


def opened(
    root: Root,
    id: str,
    *,
    owner: str | None,
    settings: Settings,
    clock: Callable[[], datetime],
    telemetry: Callable[[AttemptRecord], None] | None,
    compressor: Compressor | None,
    cold_copy: bool,
    create: bool,
) -> Workflow:
    """The workflow ``id`` in the state folder of ``root``."""
    folder = WorkflowFolder(
        os.path.join(root.state, FOLDER), quota_bytes=settings.stack_quota_bytes
    )
    return folder.open(
        WorkflowName(id, None if owner is None else parse_scope(owner)),
        compressor=compressor,
        settings=settings,
        cold_copy=cold_copy,
        surroundings=Surroundings(clock=clock, telemetry=telemetry),
        create=create,
    )


class StackState:
    """Exchange stacks as state that scopes own: they go, and are renamed, with their owner.

    ``scope`` is a family: a session with everything in it, or a VP wherever it is. Each call may be
    repeated after a crash.
    """

    name = "exchange-stacks"
    is_cloned = True
    lock: str | None = None
    may_be_late = False

    def __init__(self, folder: WorkflowFolder) -> None:
        self._folder = folder

    @classmethod
    def below(cls, root: Root) -> StackState:
        """The one of the state folder of ``root``."""
        return cls(WorkflowFolder(os.path.join(root.state, FOLDER)))

    def list(self, scope: Scope) -> tuple[str, ...]:
        """One line for each workflow."""
        return tuple(str(each) for each in self._of(scope))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        """Remove them; nothing is left that could still be seen."""
        for owner in self._folder.owners():
            if holds(scope, owner):
                self._folder.delete_owner(owner)
        return ()

    def rename(self, old: Scope, new: Scope) -> None:
        if old == new:
            return
        for each in self._of(old):
            self._folder.move(each, _renamed(each, old, new))
        self.delete(old)  # leftovers: all workflows have moved

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        there = set(self._folder.names())
        left = []
        for each in self._of(old):
            target = _renamed(each, old, new)
            if target in there:  # an interrupted call has made this one
                continue
            try:
                self._folder.copy(each, target)
            except DamagedError as error:
                left.append(f"not copied: {error.message}")
        return tuple(left)

    def _of(self, scope: Scope) -> tuple[WorkflowName, ...]:
        return tuple(
            each
            for each in self._folder.names()
            if each.owner is not None and holds(scope, each.owner)
        )


def _renamed(name: WorkflowName, old: Scope, new: Scope) -> WorkflowName:
    assert name.owner is not None
    return replace(name, owner=renamed(name.owner, old, new))


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _named(file: str, owner: Scope | None) -> Iterator[WorkflowName]:
    id = decoded(file.removesuffix(_DB))
    if id is not None:
        yield WorkflowName(id, owner)


def _owner(folder: os.DirEntry[str]) -> Scope | None:
    text = decoded(folder.name)
    if folder.name.startswith(_LONG):
        marker = os.path.join(folder.path, _OWNER)
        with suppress(FileNotFoundError), open(marker, encoding="utf-8") as file:
            text = file.read()
    try:
        return None if text is None else parse_scope(text)
    except ScopeError:
        return None
