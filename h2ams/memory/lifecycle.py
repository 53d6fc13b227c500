"""Deleting, renaming and cloning whole scopes, whatever interrupts it (Truth).

    journal "begun" -> wait for writers -> plan -> journal "moving" -> folders move, one by one
    -> journal "settling" -> owned state follows -> clear the trash -> the journal file goes

A folder moves in one ``rename``: deletion into ``.h2ams/trash/<op>``, where no reader looks, a
clone from ``.h2ams/build/<op>``, where it was copied and compared. When a move fails, those before
it are taken back. Once all have happened the operation is true, and whoever opens the folder next
finishes the rest before reading. Every step may be repeated. A process that is killed leaves the
journal; ``settle`` finds it, at the price of one look at a folder when there is none.

Writers of a scope look at the journal when they hold its lock, and refuse; those that had the lock
before are waited for. Operations themselves run one at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from h2ams.atomic import reason
from h2ams.errors import IndexFaultError, LockTimeoutError, StoreError
from h2ams.files import STATE_FOLDER, Root
from h2ams.memory import journal, layout, lifecycle_plan, relabel
from h2ams.memory.lifecycle_plan import (
    BUILD,
    TRASH,
    Failed,
    FileChange,
    Kind,
    Operation,
    OwnedState,
    Phase,
    ScopeChange,
    check_operable,
    check_target,
)
from h2ams.memory.migration import Migration
from h2ams.memory.places import DATA_HOLDERS, HISTORICAL, Places, has_scope_lines
from h2ams.memory.relabelling import Relabelling
from h2ams.memory.scope import Scope
from h2ams.memory.survey import Survey
from h2ams.settings import Settings
from h2ams.trees import Trees


class Lifecycle:
    """Operations on the scopes of one root.

    ``owned`` gives the state beside the files that must follow; ``new_op`` a fresh name of 16 hex
    digits; ``exclusive`` keeps readers of this process out while folders move.
    """

    def __init__(
        self,
        root: Root,
        settings: Settings,
        *,
        owned: Callable[[], Sequence[OwnedState]] = tuple,
        new_op: Callable[[], str] = lambda: os.urandom(8).hex(),
        exclusive: AbstractContextManager[object] | None = None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._owned = owned
        self._new_op = new_op
        self._exclusive = nullcontext() if exclusive is None else exclusive
        self._trees = Trees(root)
        self._places = Places(root, self._trees)
        self._survey = Survey(root, self._trees, self._places, owned)
        self._migration = Migration(root, settings, self._trees, self._places)
        self._relabelling = Relabelling(root, settings, self._trees)
        self._holder: int | None = None  # the thread that runs an operation
        self.leftovers: tuple[Failed, ...] = ()  # what could not be finished for now

    # Operations

    def delete(self, scope: Scope, *, dry_run: bool = False) -> ScopeChange:
        """Remove a scope with all that it owns, in every layout, and every trace of its text.

        ``NotFoundError`` where there is nothing of it. ``failed`` tells what is still there, though
        nobody sees it; it goes with the next operation, or the next opening.
        """
        check_operable(scope)
        if dry_run:
            return self._survey.removal("delete", "", scope)[0]
        with self._running("delete", scope) as operation:
            change, moves = self._survey.removal("delete", operation.op, scope)
            return self._carry_out(replace(operation, moves=moves), change)

    def rename(self, old: Scope, new: Scope, *, dry_run: bool = False) -> ScopeChange:
        """Give a scope with all that it owns another name. Ids stay; addresses change with it.

        ``ScopeError`` where ``new``, or a name that differs from it only by case or Unicode form,
        is there already.
        """
        return self._transfer("rename", old, new, dry_run=dry_run)

    def clone(self, old: Scope, new: Scope, *, dry_run: bool = False) -> ScopeChange:
        """Make a copy of a scope under another name. Undo records stay with the original."""
        return self._transfer("clone", old, new, dry_run=dry_run)

    def migrate(self, session: Scope, *, dry_run: bool = False) -> ScopeChange:
        """Bring the historical folders of one session, or chat, into the canonical layout.

        They are copied, compared, and set aside below ``.h2ams/migrated``. Nothing to do: nothing
        changes. ``failed`` tells what kept a folder where it was.
        """
        if dry_run:
            return self._migration.preview(session)
        if not self._places.is_due(session):
            return ScopeChange("migrate", session.text)
        with self._running("migrate", session) as operation:
            operation = self._advance(operation, "building")
            return self._migrated(operation)

    def purge_migrated(self, session: Scope, *, dry_run: bool = False) -> ScopeChange:
        """Remove for good what migrations set aside of one session."""
        if dry_run:
            return self._survey.removal("purge", "", session)[0]
        with self._running("purge", session) as operation:
            change, moves = self._survey.removal("purge", operation.op, session)
            return self._carry_out(replace(operation, moves=moves), change)

    def _transfer(self, kind: Kind, old: Scope, new: Scope, *, dry_run: bool) -> ScopeChange:
        check_target(old, new)
        if dry_run:
            return self._survey.transfer(kind, "", old, new)[0]
        with self._running(kind, old, new) as operation:
            change, moves = self._survey.transfer(kind, operation.op, old, new)
            operation = replace(operation, moves=moves)
            if kind == "clone":
                operation = self._advance(operation, "building")
                self._build(operation, change)
            return self._carry_out(operation, change)

    def folders(self, scope: Scope) -> list[str]:
        """The folders of a scope with all that it owns, in every layout, as they are spelled."""
        return [place.path for place in self._places.of(scope)]

    def to_migrate(self) -> list[Scope]:
        """Sessions with folders in a historical layout."""
        return self._places.to_migrate()

    def migrated(self) -> list[Scope]:
        """Sessions of which a migration set something aside."""
        return self._places.migrated()

    # Finishing what was interrupted

    def settle(self) -> None:
        """Finish the operations of processes that died; wait for one that is moving folders now.

        ``StoreError`` where one cannot be finished: its scopes would be read half.
        """
        if not self._root.own_names(lifecycle_plan.JOURNAL) or self._holder == _thread():
            return
        try:
            with self._holding(timeout_ms=0):
                self._finish_all()
                return
        except LockTimeoutError:
            pass  # somebody is at work
        if any(each.phase == "moving" for each in journal.pending(self._root)):
            with self._holding():
                self._finish_all()

    def _finish_all(self) -> None:
        """Finish, or undo, every operation in the journal; call it with the lock held."""
        left: list[Failed] = []
        journal.sweep(self._root)
        for operation in journal.pending(self._root):
            try:
                left += self._finish_dead(operation)
            except (StoreError, IndexFaultError, OSError) as error:
                # Whoever calls may not know of these scopes: the journal's file names them.
                cause = error.__cause__
                why = reason(cause) if isinstance(cause, OSError) else type(error).__name__
                where = f"{STATE_FOLDER}/{lifecycle_plan.JOURNAL}/{operation.op}.json"
                raise StoreError(
                    f"{where}: an interrupted {operation.kind} cannot be finished: {why}",
                    hint="that file names the folders; put them right and open again",
                    path=where,
                ) from error
        self.leftovers = tuple(left)

    def _finish_dead(self, operation: Operation) -> Sequence[Failed]:
        if operation.phase == "elsewhere":
            if not (self._is_here(operation) or self._is_gone(operation)):
                return ()  # the next process with that state folder does it
            left, is_late = self._follow(operation)
            if not is_late:
                journal.drop(self._root, operation)
            return left
        if operation.phase == "building" and operation.kind == "migrate":
            return self._migrated(operation).failed
        if operation.phase in ("begun", "building"):
            self._undo_build(operation)
            journal.drop(self._root, operation)
            return ()
        if operation.phase == "trash":
            return self._clear(operation)
        if operation.phase == "moving":
            with self._exclusive:
                for move in operation.moves:
                    if self._trees.exists(move.source) and not self._trees.exists(move.target):
                        self._trees.move(move.source, move.target)
        return self._finish(operation)

    def _is_here(self, operation: Operation) -> bool:
        return operation.state == self._own_state()

    def _own_state(self) -> str:
        """The state folder as the journal names it: "" is the root's own, wherever that lies."""
        inside = os.path.join(self._root.path, STATE_FOLDER)
        return "" if self._root.state == inside else os.path.realpath(self._root.state)

    def _is_gone(self, operation: Operation) -> bool:
        return bool(operation.state) and not os.path.isdir(operation.state)

    # The steps

    @contextmanager
    def _holding(self, *, timeout_ms: int | None = None) -> Iterator[None]:
        with self._root.lock(journal.LOCK, timeout_ms=timeout_ms):
            self._holder = _thread()
            try:
                yield
            finally:
                self._holder = None

    @contextmanager
    def _running(
        self, kind: Kind, scope: Scope, target: Scope | None = None
    ) -> Iterator[Operation]:
        """Hold the operations' lock and keep writers of the scopes out.

        An error before anything has changed takes the journal's line back.
        """
        with self._holding():
            self._finish_all()
            operation = Operation(self._new_op(), kind, scope, target, state=self._own_state())
            try:
                journal.write(self._root, operation)
                self._wait_for_writers(scope, target)
                yield operation
            except Exception:
                self._withdraw(operation)
                raise

    def _withdraw(self, operation: Operation) -> None:
        """Take the line back, unless folders have moved: then it stays until it is finished."""
        for each in journal.pending(self._root):
            if each.op == operation.op and each.phase in ("begun", "building"):
                self._undo_build(each)
                journal.drop(self._root, each)

    def _wait_for_writers(self, *scopes: Scope | None) -> None:
        for scope in scopes:
            if scope is not None:
                for prefix in lifecycle_plan.lock_prefixes(scope):
                    self._root.wait_for_holders(prefix)

    def _require_locks(self) -> None:
        """``StoreError`` where owned state could not follow: its lock cannot be had."""
        for owner in self._owned():
            if owner.lock is not None:
                with self._root.lock(owner.lock):
                    pass

    def _advance(self, operation: Operation, phase: Phase) -> Operation:
        operation = replace(operation, phase=phase)
        journal.write(self._root, operation)
        return operation

    def _carry_out(self, operation: Operation, change: ScopeChange) -> ScopeChange:
        self._require_locks()
        with self._exclusive:
            try:
                operation = self._advance(operation, "moving")
                for move in operation.moves:
                    self._trees.move(move.source, move.target)
            except Exception:
                self._take_back(operation)
                raise
        return replace(change, failed=self._finish(operation))

    def _take_back(self, operation: Operation) -> None:
        """Undo the moves that happened; one may have happened although it failed (an fsync)."""
        for move in reversed(operation.moves):
            if self._trees.exists(move.target) and not self._trees.exists(move.source):
                self._trees.move(move.target, move.source)
        self._advance(operation, "building")  # nothing has changed: what is left may be cleared

    def _finish(self, operation: Operation) -> tuple[Failed, ...]:
        """Everything behind the moves; each step may be repeated. What could not be done."""
        operation = self._advance(operation, "settling")
        failed = self._relabelling.run(operation) if operation.kind == "rename" else []
        left, is_late = self._follow(operation)
        failed += left
        self._prune(move.source for move in operation.moves)
        if is_late:  # its line stays: writers of its scopes wait, readers go on
            return (*failed, *self._cleared(operation))
        failed += self._clear(self._advance(operation, "trash"))
        return tuple(failed)

    def _clear(self, operation: Operation) -> list[Failed]:
        """Remove what nobody sees any more. From here on the name is free for a new scope."""
        left = self._cleared(operation)
        if not left:
            self._end(operation)
        return left

    def _cleared(self, operation: Operation) -> list[Failed]:
        """Remove what was set aside, no text of it may stay; what could not be removed."""
        aside = (f"{STATE_FOLDER}/{folder}/{operation.op}" for folder in (TRASH, BUILD))
        left = (failure for path in aside for failure in self._trees.clear(path))
        return [Failed(each.path, each.message) for each in left]

    def _end(self, operation: Operation) -> None:
        """The files are done; where the operation began with another state folder, that is not."""
        if self._is_here(operation) or operation.kind in ("purge", "migrate"):
            journal.drop(self._root, operation)
        else:
            self._advance(operation, "elsewhere")

    def _follow(self, operation: Operation) -> tuple[list[Failed], bool]:
        """Let every owner of state follow: what could not be done, whether it must be tried again.

        An owner that may be late keeps no reader out: the next opening lets it follow.
        """
        failed: list[Failed] = []
        is_late = False
        for owner in self._owned():
            try:
                failed += [Failed(owner.name, each) for each in self._led(owner, operation)]
            except StoreError as error:
                if not owner.may_be_late:
                    raise
                is_late = True
                failed.append(Failed(owner.name, "; ".join(filter(None, [str(error), error.hint]))))
        return failed, is_late

    @staticmethod
    def _led(owner: OwnedState, operation: Operation) -> Sequence[str]:
        """Let one owner of state follow; what it could not do for now."""
        match operation.kind, operation.target:
            case "delete", _:
                return owner.delete(operation.scope)
            case "migrate", _:
                owner.rename(operation.scope, operation.scope)
            case "rename", Scope() as new:
                owner.rename(operation.scope, new)
            case "clone", Scope() as new:
                return owner.clone(operation.scope, new)
        return ()

    def _prune(self, paths: Iterator[str]) -> None:
        """Remove folders that held nothing but what has gone: ``group/``, ``sessions/s/vp/``."""
        for path in paths:
            parent = path.rpartition("/")[0]
            while parent and parent != STATE_FOLDER and not _is_read(parent):
                self._trees.prune(parent)
                parent = parent.rpartition("/")[0]

    # Cloning

    def _build(self, operation: Operation, change: ScopeChange) -> None:
        """Copy every file to its place aside and compare; scope lines get the new name."""
        asides = {move.target: move.source for move in operation.moves}
        for each in change.files:
            top = next(to for to in asides if each.to == to or each.to.startswith(f"{to}/"))
            aside = asides[top] + each.to[len(top) :]
            data = self._relabelled(each, operation)
            self._trees.copy(each.path, aside, data)
            if data is None and self._trees.seen(aside).sha256 != each.sha256:
                raise StoreError(
                    f"{each.path} changed while it was copied: nothing was cloned",
                    path=each.path,
                    hint="try again",
                )

    def _relabelled(self, each: FileChange, operation: Operation) -> bytes | None:
        """The bytes of a copy where they differ from those of the original."""
        found = self._root.read(each.path) if has_scope_lines(each.path) else None
        if found is None or found.sha256 != each.sha256 or operation.target is None:
            return None  # where it changed meanwhile, the comparison finds it
        changed = relabel.with_scope_lines(
            found.data, operation.scope, operation.target, self._settings
        )
        return None if changed == found.data else changed

    def _undo_build(self, operation: Operation) -> None:
        self._trees.prune(f"{STATE_FOLDER}/{TRASH}/{operation.op}")  # taken back: it is empty
        left = self._trees.clear(f"{STATE_FOLDER}/{BUILD}/{operation.op}")
        if left:
            raise StoreError(f"cannot remove {left[0].path}: {left[0].message}", path=left[0].path)

    # Migration

    def _migrated(self, operation: Operation) -> ScopeChange:
        """Run a migration, or run it again; what it could not do is told, and nothing is lost."""
        change = self._migration.run(operation)
        self._follow(operation)
        self._prune(each.path for each in change.files if each.path.startswith(DATA_HOLDERS))
        for family in HISTORICAL:
            self._trees.prune(family)
        self._end(operation)
        return change


def _is_read(folder: str) -> bool:
    """Whether a folder stands for something itself: a scope, or a plain folder of a person."""
    if f"{folder}/".startswith((f"{STATE_FOLDER}/", *DATA_HOLDERS)):
        return False
    place = layout.place_of(folder)
    return place is None or place.scope is not None


def _thread() -> int:
    return threading.get_ident()
