"""The inspector over HTTP, for one browser on this machine.

The address that is printed holds a token that works once: it is exchanged for a cookie, which
scripts cannot read and no other site makes the browser send. Cookies do not keep ports apart, so a
page of another local server would count as the same site: ``Sec-Fetch-Site`` tells such requests,
and they are refused. Nothing is served from the disk: pages are made, the few files are packaged.
"""

from __future__ import annotations

import hmac
import secrets
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount

from h2ams.surfaces import loopback
from h2ams.surfaces.inspect_site import READING, TEMPLATES
from h2ams.surfaces.inspect_values import Answer, Fields, Page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from h2ams.surfaces.inspect_site import Site

ENTER = "/enter"
STATIC = "/static/"
FILES = {
    "inspect.css": "text/css; charset=utf-8",
    "inspect.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
TOKEN_BYTES = 32
MAX_BODY_BYTES = 1024 * 1024
DROPPED_BYTES = 4 * MAX_BODY_BYTES
MOST_FIELDS = 100
FORM = "application/x-www-form-urlencoded"
# No policy here names an inline script or style: text that got past the escaping would do nothing.
# ``same-origin`` and not ``no-referrer``: with that, a browser says "Origin: null" of our forms.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class TooLarge(Exception):
    """The body of a request is over ``MAX_BODY_BYTES``."""


def new_secret() -> str:
    """A token, a cookie's value, the mark of forms."""
    return secrets.token_urlsafe(TOKEN_BYTES)


class Door:
    """Lets the browser that brought the token to ``site``, and nobody else."""

    def __init__(self, site: Site, *, token: str, port: int) -> None:
        self._site = site
        self._border = loopback.Border(port)
        self._token: str | None = token
        self._cookie = f"h2ams_inspect_{port}"
        self._session = new_secret()
        folder = resources.files("h2ams.surfaces") / TEMPLATES
        self._files = {name: (folder / name).read_bytes() for name in FILES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = loopback.headers_of(scope)
        refusal = self._border.refusal(scope, named) or _foreign(scope, named)
        send = _with_headers(send)
        if refusal is not None:
            if scope["type"] == "http":
                with suppress(TooLarge):
                    await _body(Request(scope, receive), named)
            await loopback.answer_plainly(scope, send, refusal)
            return
        try:
            response = await self._response(Request(scope, receive), named)
        except Exception as error:  # noqa: BLE001 - the outermost frame: told on a page
            response = self._page(self._site.failed(error))
        await response(scope, receive, send)

    async def _response(self, request: Request, named: loopback.Headers) -> Response:
        path = request.scope["path"]
        try:
            form = await _body(request, named)
        except TooLarge:
            return self._page(self._site.refusal(413, f"a form over {MAX_BODY_BYTES:,} bytes", ""))
        if path.startswith(STATIC):
            return self._file(request.method, path.removeprefix(STATIC))
        if path == ENTER:
            return self._enter(request)
        if not self._knows(request):
            return self._page(
                self._site.refusal(
                    401, "this page needs the address that h2ams inspect printed", _ENTER_HINT
                )
            )
        return await self._asked(request, named, form)

    async def _asked(self, request: Request, named: loopback.Headers, form: bytes) -> Response:
        reads = request.method in READING
        if not reads:
            given = named.get(b"content-type", [])
            types = [each.partition(b";")[0].strip().lower() for each in given]
            if types != [FORM.encode()]:
                return self._page(self._site.refusal(415, "not a form of these pages", None))
            if not named.get(b"origin"):
                return self._page(self._site.refusal(403, "a form without an Origin", None))
        text = request.scope["query_string"] if reads else form
        try:
            fields = _fields(text, strict=not reads)
        except ValueError as error:
            return self._page(self._site.refusal(400, f"not a form: {error}", None))
        answer = await run_in_threadpool(
            self._site.answer, request.method, request.scope["path"], fields
        )
        return self._page(answer)

    def _enter(self, request: Request) -> Response:
        """Exchange the token for the cookie. It works once, and only by a GET: a browser that
        looks at the address beforehand (HEAD) does not use it up."""
        if request.method != "GET":
            return self._page(self._site.refusal(405, "the address is to be opened", None))
        given = _fields(request.scope["query_string"], strict=False).text("token")
        is_right = self._token is not None and hmac.compare_digest(
            given.encode("utf-8", "replace"), self._token.encode()
        )
        if not is_right and not self._knows(request):
            return self._page(
                self._site.refusal(401, "this address was used already, or is wrong", _ENTER_HINT)
            )
        # No redirect: of one that began on another site the browser would hold the cookie back.
        response = self._page(self._site.rendered(Page("entered.html", "Welcome", {})))
        if is_right:
            self._token = None
            response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict")
        return response

    def _knows(self, request: Request) -> bool:
        """Whether the request carries the cookie."""
        given = request.cookies.get(self._cookie, "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._session.encode())

    def _file(self, method: str, name: str) -> Response:
        if name not in self._files:
            return self._page(self._site.refusal(404, "there is no such file", None))
        if method not in READING:
            return self._page(self._site.refusal(405, "this file is only read", None))
        return Response(self._files[name], media_type=FILES[name])

    @staticmethod
    def _page(answer: Answer) -> Response:
        if answer.location:
            return Response(status_code=answer.status, headers={"location": answer.location})
        return Response(
            answer.html.encode("utf-8", "replace"),
            answer.status,
            media_type="text/html; charset=utf-8",
        )


_ENTER_HINT = "start h2ams inspect again: each start prints an address that works once"


def _foreign(scope: Scope, named: loopback.Headers) -> loopback.Refusal | None:
    """A refusal of what another site, or another port of this machine, made the browser ask."""
    sites = named.get(b"sec-fetch-site", [])
    if scope["path"] != ENTER and any(each not in (b"same-origin", b"none") for each in sites):
        return 403, "asked for by another site"
    return None


async def _body(request: Request, named: loopback.Headers) -> bytes:
    """The body; ``TooLarge``, declared or not.

    Some more is read and dropped: who is still sending would get a reset in place of the answer.
    """
    for declared in named.get(b"content-length", []):
        if not declared.isdigit() or int(declared) > MAX_BODY_BYTES:
            raise TooLarge
    body, size_bytes = b"", 0
    try:
        async for part in request.stream():
            size_bytes += len(part)
            if size_bytes <= MAX_BODY_BYTES:
                body += part
            elif size_bytes > DROPPED_BYTES:
                break
    except ClientDisconnect:
        return b""
    if size_bytes > MAX_BODY_BYTES:
        raise TooLarge
    return body


def _fields(text: bytes, *, strict: bool) -> Fields:
    """The fields of a query string, or of a form; ``ValueError`` where there are too many, or a
    form is not UTF-8 (what would be written must be what was typed)."""
    return Fields(
        parse_qsl(
            text.decode("ascii", "strict" if strict else "replace"),
            keep_blank_values=True,
            errors="strict" if strict else "replace",
            max_num_fields=MOST_FIELDS,
        )
    )


def _with_headers(send: Send) -> Send:
    """``send``, with the headers that every answer has."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in HEADERS.items():
                headers[name] = value
            message = {**message, "headers": headers.raw}
        await send(message)

    return sending


def application(site: Site, *, token: str, port: int) -> ASGIApp:
    """The site behind its door, as a program that a server can run."""
    return Starlette(routes=[Mount("/", app=Door(site, token=token, port=port))])
