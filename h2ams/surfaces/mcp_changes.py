"""Telling MCP clients which resources changed, by whomever.

A client follows URIs, or the list of resources. After each sync of the watch and each write of our
own tools, the digests of the followed segments are compared with those seen last; what differs is
told. So a hand edit, another process and a tool look the same, and nothing is told of scopes that
the access may not read: their digests are never asked for.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ResourcesListChanged,
    ResourceUpdated,
)

from h2ams.errors import H2amsError
from h2ams.surfaces.mcp_brief import address_of
from h2ams.surfaces.mcp_calls import Serving

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import SubscriptionsListenRequestParams, SubscriptionsListenResult

    from h2ams.index.sync import SyncReport

FOLLOWED_MOST = 1_000  # URIs that all clients together may follow
SESSIONS_MOST = 64  # clients of older protocol versions that are told something
JOIN_S = 2.0

logger = logging.getLogger(__name__)


class Changes:
    """Follows resources for the clients of one server."""

    def __init__(self, serving: Serving, *, watch: bool) -> None:
        self._serving = serving
        self._watch = watch
        self._bus = InMemorySubscriptionBus()
        self._handler = ListenHandler(self._bus)
        self._counts: dict[str, int] = {}  # how many follow a URI
        self._digests: dict[str, str] = {}
        self._listing: str | None = None  # None: nobody follows the list
        self._subscribers: dict[str, dict[str, ServerSession]] = {}  # URI: client: its session
        self._listers: dict[str, ServerSession] = {}
        self._guard = threading.Lock()
        self._wake: Callable[[], None] = lambda: None

    # -- who follows what: called on the event loop ------------------------------------------------

    async def listen(
        self, context: ServerRequestContext[object], params: SubscriptionsListenRequestParams
    ) -> SubscriptionsListenResult:
        """Serve one stream of events (protocol 2026-07-28) until its client goes away."""
        wanted = list(params.notifications.resource_subscriptions or ())
        await anyio.to_thread.run_sync(
            self._follow, wanted, params.notifications.resources_list_changed is True
        )
        try:
            return await self._handler(context, params)
        finally:
            self._unfollow(wanted)

    async def subscribe(self, client: str, session: ServerSession, uri: str) -> None:
        """Remember that ``client`` (older protocol versions) wants to be told about ``uri``."""
        with self._guard:
            clients = self._subscribers.setdefault(uri, {})
            is_new = client not in clients
            clients[client] = session
            while len(clients) > SESSIONS_MOST:  # clients that went away without a word
                del clients[next(iter(clients))]
        if is_new:
            await anyio.to_thread.run_sync(self._follow, [uri], False)

    def unsubscribe(self, client: str, uri: str) -> None:
        with self._guard:
            gone = self._subscribers.get(uri, {}).pop(client, None)
        if gone is not None:
            self._unfollow([uri])

    async def listed(self, client: str, session: ServerSession) -> None:
        """``client`` (older protocol versions) has seen the list: tell it when the list changes."""
        with self._guard:
            is_new = client not in self._listers
            self._listers[client] = session
            while len(self._listers) > SESSIONS_MOST:
                del self._listers[next(iter(self._listers))]
        if is_new:
            await anyio.to_thread.run_sync(self._follow, [], True)

    def _follow(self, uris: list[str], listing: bool) -> None:
        """Count one more follower. Digests are read without the guard: the event loop waits for it.

        A change between the reading and the next look is told; one before it is in what the client
        reads after it has subscribed.
        """
        digests = {uri: self._digest(uri) for uri in uris[:FOLLOWED_MOST]}
        listed = self._list_digest() if listing and self._listing is None else None
        with self._guard:
            for uri, digest in digests.items():
                if uri not in self._counts and len(self._counts) >= FOLLOWED_MOST:
                    logger.warning("more than %d resources are followed", FOLLOWED_MOST)
                    break
                self._counts[uri] = self._counts.get(uri, 0) + 1
                self._digests.setdefault(uri, digest)
            if listed is not None and self._listing is None:
                self._listing = listed

    def _unfollow(self, uris: list[str]) -> None:
        with self._guard:
            for uri in uris:
                left = self._counts.get(uri, 0) - 1
                if left > 0:
                    self._counts[uri] = left
                else:
                    self._counts.pop(uri, None)
                    self._digests.pop(uri, None)

    # -- what changed: called in worker threads ----------------------------------------------------

    def _digest(self, uri: str) -> str:
        """What tells one state of a resource from another; "" where there is none."""
        try:
            record = self._serving.memory.get(address_of(uri), access=self._serving.access)
        except (H2amsError, OSError):
            return ""
        return f"{record.digest} {record.line if record.is_note else ''} {record.body}"

    def _list_digest(self) -> str:
        try:
            addresses = self._serving.memory.addresses(access=self._serving.access)
        except (H2amsError, OSError):
            return ""
        return hashlib.sha256("\n".join(addresses).encode("utf-8", "replace")).hexdigest()

    def _changed(self) -> tuple[list[str], bool]:
        """URIs that changed since last time, and whether the list did. One call at a time."""
        with self._guard:
            followed, listing = list(self._counts), self._listing
        now = {uri: self._digest(uri) for uri in followed}
        list_now = None if listing is None else self._list_digest()
        with self._guard:
            changed = [
                uri
                for uri, digest in now.items()
                if uri in self._counts and digest != self._digests.get(uri)
            ]
            self._digests.update({uri: now[uri] for uri in changed})
            if list_now is not None:
                self._listing = list_now
        return changed, list_now != listing

    # -- telling it --------------------------------------------------------------------------------

    async def tell(self) -> None:
        """Find what changed and tell everybody who follows it."""
        changed, list_changed = await anyio.to_thread.run_sync(self._changed)
        for uri in changed:
            await self._bus.publish(ResourceUpdated(uri=uri))
            with self._guard:
                sessions = list(self._subscribers.get(uri, {}).values())
            for session in sessions:
                await session.send_resource_updated(uri)
        if list_changed:
            await self._bus.publish(ResourcesListChanged())
            with self._guard:
                sessions = list(self._listers.values())
            for session in sessions:
                await session.send_resource_list_changed()

    def wake(self) -> None:
        """Something may have changed: look soon. From any thread."""
        self._wake()

    async def run(self) -> None:
        """Watch the folder and tell changes until cancelled."""
        token, woken = anyio.lowlevel.current_token(), anyio.Event()

        def ring() -> None:
            woken.set()

        def wake() -> None:
            with suppress(RuntimeError, anyio.RunFinishedError):  # the loop has just ended
                anyio.from_thread.run_sync(ring, token=token)

        stop = threading.Event()
        watcher = threading.Thread(target=self._watching, args=(stop, wake), daemon=True)
        self._wake = ring
        if self._watch:
            watcher.start()
        try:
            while True:
                await woken.wait()
                woken = anyio.Event()
                await self.tell()
        finally:
            self._wake = lambda: None
            stop.set()
            with anyio.CancelScope(shield=True):
                if self._watch:
                    await anyio.to_thread.run_sync(watcher.join, JOIN_S)

    def _watching(self, stop: threading.Event, wake: Callable[[], None]) -> None:
        def synced(report: SyncReport) -> None:
            if report.changed or report.added or report.updated or report.deleted:
                wake()

        def trouble(code: str, message: str) -> None:
            logger.warning("watch: %s: %s", code, message)

        try:
            self._serving.memory.watch(stop=stop, on_sync=synced, report=trouble)
        except (H2amsError, OSError) as error:
            logger.warning("the folder is not watched: %s", error)
