"""Threads of one memory folder: their store, their owners, what memory gives them.

``<state>/threads.db`` unless a store is named: a path, or an address of PostgreSQL. A thread
belongs to a session or a chat, or to the owner of the folder alone; an access reads and writes the
threads of its own session and chat, and another one's is not there for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2ams.errors import AccessError, NotFoundError
from h2ams.memory.access import Access
from h2ams.threads.context_engine import ContextEngine, MemorySource, Thread
from h2ams.threads.past_chats import thread_scopes
from h2ams.threads.thread_sqlite import SqliteThreadStore

if TYPE_CHECKING:
    from h2ams.memory.scope import Scope
    from h2ams.threads.message import Shape
    from h2ams.threads.thread_store import ThreadInfo, ThreadStore

FILE = "threads.db"


def is_postgres(place: str) -> bool:
    """Whether ``place`` names a database of PostgreSQL and no file."""
    return place.startswith(("postgresql://", "postgres://"))


def open_store(place: str, *, semantic: bool = False) -> ThreadStore:
    """The store at ``place``: a file, made where there is none, or an address of PostgreSQL.

    ``semantic``: past chats are found by meaning too, where the server has pgvector.
    """
    if is_postgres(place):
        from h2ams.threads.meanings import StaticVectors
        from h2ams.threads.thread_postgres import PostgresThreadStore

        return PostgresThreadStore(place, embed=StaticVectors() if semantic else None)
    return SqliteThreadStore(os.path.expanduser(place))


def open_thread(
    engine: ContextEngine,
    id: str,
    *,
    access: Access | None,
    memory: MemorySource | None,
    system: str | None = None,
    scope: str | None = None,
    window: int | None = None,
    reserve: int | None = None,
    tools: int | Sequence[object] = 0,
    shape: Shape | None = None,
    create: bool = True,
) -> Thread:
    """The thread ``id`` for ``access``; made where there is none and ``create``.

    A new thread belongs to ``scope``, else to the session or chat of the access. ``NotFoundError``
    for a thread of somebody else, the same as for none.
    """
    readable = thread_scopes(access)
    known = engine.store.info(id)
    missing = NotFoundError(f"there is no thread {id}", hint="h2ams thread list shows them")
    if known is None and not create:
        raise missing
    owner = known.scope if known else scope
    if owner is None:
        owner = readable[0] if readable else ""
    if readable is not None and owner not in readable:
        if known is None:
            raise AccessError(
                "this access has no session and no chat that a thread could belong to",
                hint="give --session or --chat, or leave access out: the owner",
            )
        raise missing
    made = engine.thread(
        id, system=system, scope=owner, window=window, reserve=reserve, tools=tools, shape=shape
    )
    return replace(made, memory=memory, readable=readable)


def threads_for(engine: ContextEngine, access: Access | None) -> tuple[ThreadInfo, ...]:
    """The threads that ``access`` may read, by name."""
    return engine.store.list(thread_scopes(access))


class ThreadState:
    """Threads as state that scopes own: deleted, renamed and cloned with their session or chat.

    ``open_engine`` gives the store; it is asked only where there is one.
    """

    name = "threads"
    is_cloned = True
    lock: str | None = None
    may_be_late = False

    def __init__(self, path: str, open_it: Callable[[], ThreadStore]) -> None:
        self._path = path
        self._open = open_it

    def list(self, scope: Scope) -> tuple[str, ...]:
        return tuple(each.id for each in self._owned(scope))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        for each in self._owned(scope):
            self._open().delete(each.id)
        return ()

    def rename(self, old: Scope, new: Scope) -> None:
        if old != new and self._exists():
            self._open().move(old.text, new.text)

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        store = self._open() if self._exists() else None
        for each in self._owned(old):
            name = f"{each.id}@{new.text}"
            if store is not None and store.info(name) is None:
                store.clone(each.id, name, new.text)
        return ()

    def _owned(self, scope: Scope) -> tuple[ThreadInfo, ...]:
        """Threads that belong to the session or chat itself: ``scope`` is the whole family."""
        if not self._exists() or scope.member or scope.family not in ("sessions", "chat"):
            return ()
        return self._open().list([scope.text])

    def _exists(self) -> bool:
        return os.path.exists(self._path)
