"""The MCP server over HTTP, on this machine only.

Beyond what ``loopback`` checks, the bearer token must be the one from the token file, before
anything reads the body of a request.
"""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING

from h2ams.errors import ConfigError
from h2ams.surfaces import loopback
from h2ams.surfaces.loopback import HOST
from h2ams.surfaces.mcp_server import build_server

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

    from h2ams.surfaces.mcp_calls import Serving

PATH = "/mcp"
MAX_BODY_BYTES = 1024 * 1024
TOKEN_BYTES = 32
TOKEN_LEAST_CHARS = 16


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


class Guarded:
    """Lets a request through to ``app`` only if it comes from here and knows the token."""

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app = app
        self._border = loopback.Border(port)
        self._token = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None if scope["type"] == "lifespan" else self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, send)
            return
        challenge = ((b"www-authenticate", b'Bearer realm="h2ams"'),) if refusal[0] == 401 else ()
        await loopback.answer_plainly(scope, send, refusal, challenge)

    def _refusal(self, scope: Scope) -> loopback.Refusal | None:
        """Status and reason where the request must not be served."""
        named = loopback.headers_of(scope)
        refusal = self._border.refusal(scope, named)
        if refusal is not None:
            return refusal
        tokens = named.get(b"authorization", [])
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0], self._token):
            return 401, "a bearer token is needed: see the token file"
        if scope["path"] != PATH or scope.get("raw_path", PATH.encode()) != PATH.encode():
            return 404, f"only {PATH} is served"
        return None


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
    loopback.serve(Guarded(app, token=token, port=port), listener, started=started)
