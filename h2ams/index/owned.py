"""The index as state that scopes own: its rows follow the files, and no trace of them is left.

The files are the truth and have moved already: what is known below the old and the new folders is
synced. A deletion also takes the names and the card out, merges FTS5's parts so that deleted words
are gone, and empties the WAL (``Index.erase_deleted``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from h2ams import sqlite
from h2ams.errors import IndexFaultError
from h2ams.index.schema import PROJECT_BITS, SEQUENCE_BITS, Index
from h2ams.index.sync import Syncer
from h2ams.memory.lifecycle_plan import holds, summed
from h2ams.memory.scope import Scope, parse_scope

_T = TypeVar("_T")


class IndexState:
    """The ``OwnedState`` of one index. ``folders`` gives the folders of a family on the disk."""

    name = "index"
    is_cloned = True
    lock: str | None = None
    may_be_late = False

    def __init__(
        self,
        index: Index,
        syncer: Syncer,
        *,
        folders: Callable[[Scope], Iterable[str]],
        heal: Callable[[Exception], None],
    ) -> None:
        self._index = index
        self._syncer = syncer
        self._folders = folders
        self._heal = heal

    def list(self, scope: Scope) -> tuple[str, ...]:
        return self._sound(lambda: self._list(scope))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        return self._sound(lambda: self._delete(scope))

    def rename(self, old: Scope, new: Scope) -> None:
        self._sound(lambda: self._rename(old, new))

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        self._sound(lambda: self._sync(new))
        return ()

    def scope_names(self) -> tuple[str, ...]:
        """Names of all scopes that the index has met."""
        return self._sound(self._scope_names)

    def _sound(self, call: Callable[[], _T]) -> _T:
        """What ``call`` gives; once more on a new index where the old one is damaged."""
        try:
            return call()
        except sqlite.DAMAGED as error:
            self._heal(error)
            return call()
        except sqlite.HINDERED as error:
            raise IndexFaultError(
                f"the index cannot be written now: {error}",
                path=self._index.path,
                hint="try again; what was begun is finished by whoever opens the folder next",
            ) from error

    def _list(self, scope: Scope) -> tuple[str, ...]:
        with suppress(*sqlite.HINDERED):  # then it tells what was known
            self._sync(scope)
        with self._index.reading() as connection:
            rows = sqlite.rows(
                connection,
                "SELECT s.name, sum(NOT m.note), sum(m.note) FROM memory_segments m"
                " JOIN scopes s ON s.no = m.scope GROUP BY s.no ORDER BY s.name",
            )
        return tuple(
            f"{name}: {summed({'segments': segments, 'notes': notes})}"
            for name, segments, notes in rows
            if holds(scope, parse_scope(name))
        )

    def _delete(self, scope: Scope) -> tuple[str, ...]:
        self._sync(scope)
        self._forget_names(scope)
        if self._index.erase_deleted():
            return ()
        return ("another process reads it: deleted words are in its files until it has finished",)

    def _rename(self, old: Scope, new: Scope) -> None:
        self._sync(old, new)
        if old != new:
            self._forget_names(old)

    def _scope_names(self) -> tuple[str, ...]:
        with self._index.reading() as connection:
            return tuple(name for (name,) in sqlite.rows(connection, "SELECT name FROM scopes"))

    def _sync(self, *scopes: Scope) -> None:
        """Sync everything that is known of ``scopes`` or stands in their folders."""
        paths: set[str] = set()
        for scope in scopes:
            paths.update(self._folders(scope))
        with self._index.reading() as connection:
            for table in ("files", "folders"):
                names = sqlite.rows(connection, f"SELECT DISTINCT scope FROM {table}")
                mine = [name for (name,) in names if name and _held(name, scopes)]
                found = sqlite.rows(
                    connection,
                    f"SELECT path FROM {table} WHERE scope IN carray(?)",
                    (sqlite.texts(mine),),
                )
                paths.update(path for (path,) in found if path)
        if paths:
            self._syncer.sync(_topmost(paths), settle=False)

    def _forget_names(self, family: Scope) -> None:
        """Take out the names of empty scopes, and the projects that no session names any more."""
        with self._index.writing() as connection:
            rows = sqlite.rows(connection, "SELECT no, name FROM scopes WHERE segments = 0")
            for number, name in rows:
                if holds(family, parse_scope(name)):
                    connection.execute("DELETE FROM scopes WHERE no = ?", (number,))
            connection.execute(
                "DELETE FROM projects WHERE NOT EXISTS"
                " (SELECT 1 FROM sessions WHERE project = projects.name)"
                " AND NOT EXISTS (SELECT 1 FROM scopes"
                f" WHERE (scopes.no >> {SEQUENCE_BITS}) & {(1 << PROJECT_BITS) - 1} = projects.no)"
            )


def _held(name: str, scopes: Iterable[Scope]) -> bool:
    return any(holds(scope, parse_scope(name)) for scope in scopes)


def _topmost(paths: Iterable[str]) -> list[str]:
    """``paths`` without those that lie below another one."""
    found: list[str] = []
    for path in sorted(paths, key=lambda path: path.split("/")):
        if not found or not path.startswith(f"{found[-1]}/"):
            found.append(path)
    return found
