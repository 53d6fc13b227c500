"""The MCP server over HTTP, on this machine only.

A page in the user's browser can reach a loopback port too, under a name of its own (DNS rebinding)
or across origins. So every request is judged before anything reads its body: the Host must be this
very address and port, an Origin, where there is one, must be ours, and the bearer token must be the
one from the token file.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from typing import TYPE_CHECKING

import uvicorn

from h2ams.errors import ConfigError, UsageError
from h2ams.surfaces.mcp_server import build_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from h2ams.surfaces.mcp_calls import Serving

HOST = "127.0.0.1"
PATH = "/mcp"
MAX_BODY_BYTES = 1024 * 1024
TOKEN_BYTES = 32
TOKEN_LEAST_CHARS = 16
GOODBYE_S = 1  # how long open streams may go on after the end was asked for


def new_token() -> str:
    """A fresh secret for the token file."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def checked_token(text: str, where: str) -> str:
    """The token that ``text`` holds; ``ConfigError`` where it is none."""
    token = text.strip()
    if len(token) < TOKEN_LEAST_CHARS or not token.isascii() or any(map(str.isspace, token)):
        raise ConfigError(
            f"{where}: no token: {TOKEN_LEAST_CHARS} or more ASCII characters without blanks",
            hint="delete the file to get a new one",
        )
    return token


BACKLOG = 128  # connections that wait to be taken


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


class Guarded:
    """Lets a request through to ``app`` only if it comes from here and knows the token."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        names = (HOST, "localhost")
        self._hosts = {f"{name}:{port}".encode() for name in names}
        self._origins = {f"http://{name}:{port}".encode() for name in names}
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await _answer(send, *refusal)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason where the request must not be served."""
        if scope["type"] != "http":
            return 404, "only HTTP is spoken here"
        named: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            named.setdefault(name.lower(), []).append(value)
        hosts = named.get(b"host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "wrong Host"
        if any(origin.lower() not in self._origins for origin in named.get(b"origin", [])):
            return 403, "wrong Origin"
        tokens = named.get(b"authorization", [])
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0], self._token):
            return 401, "a bearer token is needed: see the token file"
        if scope["path"] != PATH or scope.get("raw_path", PATH.encode()) != PATH.encode():
            return 404, f"only {PATH} is served"
        return None


async def _answer(send: Send, status: int, reason: str) -> None:
    body = f"{reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(body)).encode()))
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="h2ams"'))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def serve_http(
    serving: Serving,
    listener: socket.socket,
    *,
    token: str,
    watch: bool = True,
    started: Callable[[uvicorn.Server], None] = lambda _: None,
) -> None:
    """Serve over HTTP on ``listener`` until SIGINT or SIGTERM, or until ``should_exit`` is set on
    the server that ``started`` gets."""
    port = listener.getsockname()[1]
    app = build_server(serving, watch=watch).streamable_http_app(
        streamable_http_path=PATH, max_request_body_size=MAX_BODY_BYTES, host=HOST
    )
    config = uvicorn.Config(
        Guarded(app, token=token, port=port),
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GOODBYE_S,
        ws="none",
    )
    server = uvicorn.Server(config)
    started(server)
    server.run(sockets=[listener])
