"""What an open memory folder is wired of: root, settings, index, syncer, files, token counter.

The lower half of the composition root: ``engine`` adds the calls that hosts make. Parts are made
once, the dear ones (encoder, store) when they are first needed.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from h2ams import config, sqlite
from h2ams.errors import (
    AccessError,
    H2amsError,
    IndexFaultError,
    LimitError,
    RootError,
    ScopeError,
    StoreError,
    UnsafePathError,
)
from h2ams.files import STATE_FOLDER, Root
from h2ams.index import schema
from h2ams.index.guard import Guard
from h2ams.index.schema import Index
from h2ams.index.score import day_of
from h2ams.index.sync import Syncer
from h2ams.memory.access import Access
from h2ams.memory.record import Degraded
from h2ams.memory.scope import Scope, is_utf8
from h2ams.memory.values import check_text, unexpected
from h2ams.settings import Settings

if TYPE_CHECKING:
    from h2ams.index.search import Filters, Found, Searcher, Wanted
    from h2ams.index.vectors import Vectors
    from h2ams.memory.lifecycle import Lifecycle
    from h2ams.memory.lifecycle_plan import OwnedState
    from h2ams.memory.store import Store
    from h2ams.models.request import Model
    from h2ams.text.words import Query
    from h2ams.threads.context_engine import ContextEngine
    from h2ams.tokens import TokenCounter
    from h2ams.upkeep.dreams import Dreams
    from h2ams.upkeep.scopes import Scopes

INDEX_FILE = "index.db"
IGNORE_FILE = ".gitignore"
NO_FOLDER = "no memory folder here; h2ams init makes one in this folder, or name one with --root"
JOURNAL_FOLDER = "journal"  # memory/lifecycle_plan.JOURNAL, without importing it for a recall
READ_TRIES = 5  # of a read beside operations on scopes that follow each other
_READS = frozenset(
    {
        *("recall", "context", "get", "list", "page", "addresses", "scope_names", "sources"),
        *("status", "scope_counts", "summary"),
    }
)

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Self = TypeVar("_Self", bound="Parts")


# What absurd rows of a damaged index can lead to; whether they did is looked at when it happens.
SUSPICIOUS = (
    sqlite.Error,
    sqlite.Unsound,
    ScopeError,
    AssertionError,
    ArithmeticError,
    LookupError,
    TypeError,
    ValueError,
)


def operations_mark(root: str) -> tuple[object, ...]:
    """What the journal of operations on scopes looks like; (…, ()) while it is empty.

    It differs whenever an operation began, moved on or ended. Costs one look at a folder.
    """
    folder = os.path.join(root, STATE_FOLDER, JOURNAL_FOLDER)
    try:
        changed_ns = os.stat(folder).st_mtime_ns
        with os.scandir(folder) as entries:
            return changed_ns, tuple(sorted((entry.name, entry.inode()) for entry in entries))
    except (FileNotFoundError, NotADirectoryError):
        return 0, ()


def healing(
    method: Callable[Concatenate[_Self, _P], _T],
) -> Callable[Concatenate[_Self, _P], _T]:
    """Run the call once more on a new index where the old one turned out to be damaged.

    Before it, what an interrupted operation on a scope left half-way is finished. A read during
    which another process moved folders is made again, so that it saw them all or none.

    ``IndexFaultError`` where the index cannot be written: a full disk, another process.
    """

    @functools.wraps(method)
    def run(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            for _ in range(READ_TRIES):
                self._settle()
                mark = operations_mark(self._root.path)
                try:
                    result = method(self, *args, **kwargs)
                except SUSPICIOUS as error:
                    if not self._is_damage(error):
                        raise
                    self._heal(error)
                    result = method(self, *args, **kwargs)
                is_read = method.__name__ in _READS and not kwargs.get("commit")
                if not is_read or operations_mark(self._root.path) == mark:
                    break
            return result
        except sqlite.HINDERED as error:
            raise self._index.fault(error) from error

    return run


def _prepared(root: Root) -> str:
    """The path of the index, its folder made where that is possible."""
    with suppress(StoreError):  # read-only, or full: the index says so, and finds another place
        root.state_path(INDEX_FILE)
        if not os.path.lexists(os.path.join(root.state, IGNORE_FILE)):
            root.write_state(IGNORE_FILE, b"*\n")  # derived files belong in no repository
    return os.path.join(root.state, INDEX_FILE)


def _require(path: str, named: str | None) -> None:
    """``RootError`` where there is no folder at ``path``, with what to do about it."""
    try:
        Root(path)
    except RootError as error:
        if config.is_last_resort(named):  # init would not make that one
            error.hint = NO_FOLDER
        raise


class Parts:
    """One open folder's parts; see ``engine.Memory``."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        *,
        sources: Mapping[str, str] | None = None,
        now: Callable[[], datetime] | None = None,
        notes: Iterable[Degraded] = (),
    ) -> None:
        self.settings = settings
        self.setting_sources = dict(sources or {})
        self._root = root
        self._now = now or config.clock()
        self._notes = list(notes)
        self._counter_lock = threading.Lock()
        self._counter: TokenCounter | None = None
        self._index = Index(
            _prepared(root),
            encoding=settings.encoding,
            may_move=lambda: os.path.isdir(root.path),  # a root that is gone is an error
            on_loss=root.require_content,
        )
        self._syncer = Syncer(root, self._index, settings, count=self._count)
        self._vectors = self._semantic_side() if settings.semantic else None
        self._guard = Guard(self._index, self._syncer)
        self._settle()

    def _semantic_side(self) -> Vectors | None:
        """The vectors; None, with a note, where they cannot be had."""
        from h2ams.index.vector_sync import made_for

        made = made_for(self.settings)
        if isinstance(made, str):
            self._notes.append(Degraded("semantic-missing", made))
            return None
        self._syncer.vectors = made
        return made

    def _search(
        self, searcher: Searcher, text: str, query: Query, wanted: Wanted, filters: Filters
    ) -> Found:
        """By words, and by vectors too where the semantic side is on."""
        if self._vectors is None:
            return searcher.search(query, wanted=wanted, filters=filters)
        from h2ams.index import hybrid

        return hybrid.search(searcher, self._vectors, text, query, wanted=wanted, filters=filters)

    # -- opening and closing ---------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        overrides: Mapping[str, str] | None = None,
        create: bool = False,
        now: Callable[[], datetime] | None = None,
    ) -> Self:
        """Open the memory folder ``root`` (None: found as docs/settings.md says).

        ``create`` makes a missing folder; otherwise that is a ``RootError``. ``settings`` replaces
        all other sources; ``overrides`` (name to text) are the flags that win over them. ``now``
        gives the aware time for dates and recency.
        """
        for name, place in (("root", root), ("state", state)):
            if place is not None and not isinstance(place, str | os.PathLike):
                raise unexpected(place, name, "a path")
        if settings is not None and not isinstance(settings, Settings):
            raise unexpected(settings, "settings", "Settings; texts by name are overrides")
        if overrides is not None and not isinstance(overrides, Mapping):
            raise unexpected(overrides, "overrides", "a mapping of names to texts")
        for setting, text in (overrides or {}).items():
            check_text(setting, "overrides")
            check_text(text, f"overrides: {setting}")
        named = None if root is None else os.fspath(root)
        path = config.resolve_root(named)
        if not create:
            _require(path, named)  # a folder that cannot be read is said to be that, before all
        folder, why = config.resolve_state(path, None if state is None else os.fspath(state))
        lock_timeout = settings.lock_timeout_ms if settings else None
        sources: Mapping[str, str] = {}
        if settings is None:
            settings, sources = config.resolve_settings(path, overrides)
        timeout = lock_timeout or settings.lock_timeout_ms
        make = Root.create if create else Root
        opened = make(path, state=folder, lock_timeout_ms=timeout)
        if create:
            with opened.lock("init"):  # makes .h2ams, by which the folder is found from below
                pass
        notes = [Degraded("state-elsewhere", why)] if why else []
        return cls(opened, settings, sources=sources, now=now, notes=notes)

    @property
    def root(self) -> str:
        """Absolute path of the memory folder."""
        return self._root.path

    @property
    def state(self) -> str:
        """Absolute path of the folder with the index, locks, journals and registry."""
        return self._root.state

    def close(self) -> None:
        """Close the index and the threads; they open again when they are next used."""
        if "threads" in self.__dict__:
            self.threads.store.close()
        with self._index.lock:
            with suppress(sqlite.Error, H2amsError):  # hygiene: it can wait for the next time
                self._index.tidy()
            self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @functools.cached_property
    def store(self) -> Store:
        """The Markdown files: for hosts that need more than this class offers."""
        from h2ams.memory.store import Store

        return Store(self._root, self.settings, clock=self._now, settle=self._settle)

    @functools.cached_property
    def scopes(self) -> Scopes:
        """Whole scopes: listing, deleting, renaming, cloning, migrating them. The owner's."""
        from h2ams.upkeep.scopes import Scopes

        return Scopes(self._lifecycle, self._index, self._syncer)

    @functools.cached_property
    def _lifecycle(self) -> Lifecycle:
        from h2ams.memory.lifecycle import Lifecycle

        return Lifecycle(
            self._root, self.settings, owned=self._owned_states, exclusive=self._index.lock
        )

    def _owned_states(self) -> tuple[OwnedState, ...]:
        """Everything beside the files that belongs to scopes: one line for each kind of state.

        Whoever keeps state under the name of a scope adds it here, and it is listed, deleted,
        renamed and cloned with its scope (``memory/lifecycle_plan.OwnedState``).
        """
        from h2ams.active.owned import ActiveState
        from h2ams.dream.owned import DreamState
        from h2ams.index.owned import IndexState
        from h2ams.memory.kept_state import KeptState
        from h2ams.stacks.folder import StackState
        from h2ams.upkeep.thread_folder import FILE, ThreadState

        index = IndexState(
            self._index, self._syncer, folders=self._lifecycle.folders, heal=self._heal
        )
        return (
            KeptState(self._root, self.settings, index.scope_names),
            ActiveState(self._root),
            StackState.below(self._root),
            DreamState(self._root),
            ThreadState(self._root.state_path(FILE), lambda: self.threads.store),
            index,  # last: it erases what the others deleted from the same database file
        )

    def _settle(self) -> None:
        """Finish what an interrupted operation on a scope left half-way. Mostly one look."""
        if operations_mark(self._root.path)[1]:
            self._lifecycle.settle()

    @functools.cached_property
    def threads(self) -> ContextEngine:
        """The conversations of this folder (``<state>/threads.db``); opened when first needed."""
        return self.open_threads(self._root.state_path("threads.db"))

    def open_threads(self, place: str) -> ContextEngine:
        """The conversations at ``place``: a file, or an address of PostgreSQL. Close its store.

        With the setting ``semantic`` and pgvector there, past chats are found by meaning too.
        """
        from h2ams.threads.context_engine import ContextEngine
        from h2ams.upkeep.thread_flush import ThreadFlush
        from h2ams.upkeep.thread_folder import open_store

        threads = open_store(place, semantic=self.settings.semantic)

        def owner_of(thread: str) -> str | None:
            found = threads.info(thread)
            return None if found is None else found.scope

        flush = ThreadFlush(
            self.store,
            self.settings,
            clock=self._now,
            model=lambda: self.model,
            existing=lambda: self.dreams.scopes(),
            synced=self._follow,
            owner_of=owner_of,
        )
        return ContextEngine(
            threads,
            settings=self.settings,
            counter=self.tokens,
            summariser=self.model,
            flush=flush,
            now=self._time,
        )

    def _time(self) -> str:
        moment = self._now().astimezone(UTC).isoformat(timespec="milliseconds")
        return moment.replace("+00:00", "Z")

    @functools.cached_property
    def dreams(self) -> Dreams:
        """Durable maintenance: passes over conversations, their undo, summaries. The owner's."""
        from h2ams.upkeep.dreams import Dreams

        return Dreams(
            self._root,
            self.store,
            self._index,
            self._guard,
            self.settings,
            counter=lambda: self.tokens,
            clock=self._now,
            model=lambda: self.model,
            synced=self._follow,
        )

    @functools.cached_property
    def model(self) -> Model | None:
        """The language model that the environment names (``H2AMS_MODEL``); None without one."""
        return config.open_model(self.settings)

    def _follow(self, paths: Sequence[str]) -> None:
        """Bring the index up to date with files that were just written, where it can be."""
        if not paths:
            return
        try:
            self._syncer.sync(paths, trusted=paths)
        except sqlite.DAMAGED as error:
            self._heal(error)
        except (H2amsError, sqlite.Error, OSError) as error:  # the next sync or recall catches up
            import logging  # 5 ms that a recall does not need

            logging.getLogger(__name__).warning(
                "written, but the index could not follow: %s", error
            )

    @property
    def tokens(self) -> TokenCounter:
        """The token counter of the settings; loaded when first needed (0.2 s)."""
        with self._counter_lock:
            if self._counter is None:
                from h2ams.tokens import counter

                self._counter = counter(self.settings.encoding)
            return self._counter

    def _count(self, text: str) -> int:
        return self.tokens.count(text)

    def _today(self) -> int:
        return day_of(self._date())

    def _date(self) -> str:
        return self._now().astimezone(UTC).date().isoformat()

    def _degraded(self) -> tuple[Degraded, ...]:
        return (*self._notes, *(Degraded(code, text) for code, text in self._index.notes))

    def _not_removed(self, access: Access | None) -> tuple[Degraded, ...]:
        """What a deletion could not remove for now: the owner's to know, it names a scope's files.

        It has been tried again directly before, as before every call.
        """
        if access is not None or "_lifecycle" not in self.__dict__:
            return ()
        return tuple(
            Degraded("not-removed-yet", f"{left.path}: {left.message}; every call tries it again")
            for left in self._lifecycle.leftovers
        )

    def _watch_troubles(self) -> tuple[Degraded, ...]:
        """What a watch, in this process or another, said is wrong with it."""
        if not os.path.exists(os.path.join(self.state, "watch.json")):
            return ()
        from h2ams.index.watch import published_troubles

        found = published_troubles(self._root, now_s=time.time())
        return tuple(Degraded(code, message) for code, message in found)

    @staticmethod
    def _owner_only(access: Access | None, what: str) -> None:
        if access is not None:
            raise AccessError(
                f"{what} works on the whole folder: it is the owner's",
                hint="leave the access flags out",
            )

    def _relative(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Paths as the syncer takes them: relative to the root; absolute ones must lie inside."""
        found = []
        for path in paths:
            if not is_utf8(path):
                raise UnsafePathError(
                    f"path {path!a} is no text that UTF-8 can hold: such a file is never read",
                    path=path,
                    hint="give the file another name",
                )
            if "\0" in path:
                self._root.absolute(path)  # raises: no name holds one
            if os.path.isabs(path):
                path = os.path.relpath(os.path.realpath(path), self._root.path)
            relative = os.path.normpath(path).replace(os.sep, "/")
            if relative != ".":
                self._root.absolute(relative)  # UnsafePathError where it leaves the root
            found.append(relative)
        return tuple("" if path == "." else path for path in found)

    @healing
    def _refuse_unmounted(self) -> None:
        """``RootError`` where a disk is missing: below its folder the text would be hidden."""
        self._syncer.refuse_sudden_emptiness()

    def _check_room(self, scope: Scope) -> None:
        """``LimitError`` where ``scope`` would be one more than ``max_scopes_count``."""
        limit = self.settings.max_scopes_count
        try:
            count = self._syncer.count_scopes_beside(scope.text)
        except (IndexFaultError, *sqlite.HINDERED, *sqlite.DAMAGED):
            return  # only the index knows how many there are, and no write depends on it
        if count >= limit:
            raise LimitError(
                f"{scope} would be one scope more than max_scopes_count allows: {limit}",
                name="max_scopes_count",  # how many there are beyond it is the owner's to know
                limit=limit,
                size=limit + 1,
            )

    def _is_damage(self, error: Exception) -> bool:
        """Whether ``error`` comes from a damaged index, not from a call or a mistake of ours."""
        if isinstance(error, (*sqlite.DAMAGED, UnicodeDecodeError)):
            return True  # no text that the engine wrote into a database is anything but UTF-8
        if isinstance(error, sqlite.HINDERED) or not self._index.is_open:
            return False
        with self._index.lock:
            if isinstance(error, ScopeError):  # nearly always the caller's: a short look
                return bool(schema.impossible_names(self._index.connection))
            from h2ams.index.verify import is_sound

            return not is_sound(self._index)

    @healing
    def _erase_deleted(self) -> bool:
        return self._index.erase_deleted()

    def _heal(self, error: Exception) -> None:
        """Set a damaged index aside and build it anew, in one piece for all threads."""
        with self._index.lock:
            self._index.start_anew(f"the index was damaged ({error})")
            self._syncer.sync()
