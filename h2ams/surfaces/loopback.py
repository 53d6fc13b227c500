"""HTTP on this machine only: what each server of ours checks first, and how it runs.

A page in the user's browser can reach a loopback port too, under a name of its own (DNS rebinding)
or across origins. So every request is judged before anything reads its body: the Host must be this
very address and port, an Origin, where there is one, must be ours.
"""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from h2ams.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from starlette.types import ASGIApp, Scope, Send

HOST = "127.0.0.1"
BACKLOG = 128  # connections that wait to be taken
GOODBYE_S = 1  # how long open streams may go on after the end was asked for

Refusal = tuple[int, str]  # status and reason
Headers = dict[bytes, list[bytes]]


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 is any free one. ``UsageError`` where it is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(BACKLOG)  # before anybody is told the address: who comes early waits
    except (OSError, OverflowError) as error:
        listener.close()
        raise UsageError(f"port {port} on {HOST}: {error}", hint="give another --port") from error
    return listener


def headers_of(scope: Scope) -> Headers:
    """The headers of a request by their names in small letters, each with all its values."""
    named: Headers = {}
    for name, value in scope["headers"]:
        named.setdefault(name.lower(), []).append(value)
    return named


class Border:
    """Who may speak to the server on ``port`` at all: callers that use its own name."""

    def __init__(self, port: int) -> None:
        names = (HOST, "localhost")
        self._hosts = {f"{name}:{port}".encode() for name in names}
        self._origins = {f"http://{name}:{port}".encode() for name in names}

    def refusal(self, scope: Scope, named: Headers) -> Refusal | None:
        """Status and reason where the request must not be served, whoever sent it."""
        if scope["type"] != "http":
            return 404, "only HTTP is spoken here"
        hosts = named.get(b"host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "wrong Host"
        if any(origin.lower() not in self._origins for origin in named.get(b"origin", [])):
            return 403, "wrong Origin"
        return None


async def answer_plainly(
    scope: Scope, send: Send, refusal: Refusal, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Refuse in one line of text, whatever was asked."""
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    status, reason = refusal
    body = f"{reason}\n".encode()
    sent = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close"), *headers]
    sent.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": sent})
    await send({"type": "http.response.body", "body": body})


def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    started: Callable[[uvicorn.Server], None] = lambda _: None,
) -> None:
    """Serve ``app`` on ``listener`` until SIGINT or SIGTERM, or until ``should_exit`` is set on the
    server that ``started`` gets."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GOODBYE_S,
        ws="none",
    )
    server = uvicorn.Server(config)
    started(server)
    server.run(sockets=[listener])


class Signals:
    """SIGINT and SIGTERM end the server, from before it starts: no traceback, code 0.

    Use ``started`` as that of ``serve``. The server's own handlers call these at last.
    """

    def __init__(self) -> None:
        self._asked = False
        self._servers: list[uvicorn.Server] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def started(self, server: uvicorn.Server) -> None:
        self._servers.append(server)
        server.should_exit = self._asked

    def _end(self, _: int, __: FrameType | None) -> None:
        self._asked = True
        for server in self._servers:
            server.should_exit = True
