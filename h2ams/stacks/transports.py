"""How requests reach a compressor: a function in this process, HTTP, or no model at all.

Each transport asks for the current beneficiaries immediately before every attempt. The HTTP client
speaks ``compress.v2``: one POST with the call id as idempotency key, so that an attempt repeated
after a lost reply is the same call to the service. Nothing here logs or quotes a text.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.stacks import canonical
from h2ams.stacks.compress import (
    Compressed,
    CompressRequest,
    CompressResult,
    Refused,
    TransportFailed,
    reason_code,
    result_of,
)

if TYPE_CHECKING:
    import urllib3

Beneficiaries = Callable[[], Sequence[str]]

MAX_REPLY_BYTES = 8 * 1024 * 1024  # a longer reply is none
MAX_WAIT_S = 30.0  # between two attempts, whatever Retry-After says
FIRST_WAIT_S = 0.25

_REFUSALS = {400: "bad-request", 401: "unauthorized", 402: "billing", 403: "forbidden"}
_REFUSALS |= {404: "unsupported-kind", 409: "conflict", 413: "too-large", 422: "bad-request"}
_LATER = {429: "rate-limited", 500: "server-error", 502: "unavailable", 503: "unavailable"}
_LATER |= {504: "timeout"}


def nobody() -> Sequence[str]:
    """No beneficiary: for compressors that nobody pays for."""
    return ()


class CallableCompressor:
    """A function of this process as a compressor. What it raises counts as a failed transport."""

    def __init__(
        self,
        function: Callable[[CompressRequest], CompressResult],
        *,
        beneficiaries: Beneficiaries = nobody,
    ) -> None:
        self._function = function
        self._beneficiaries = beneficiaries

    def compress(self, request: CompressRequest) -> CompressResult:
        return self._function(replace(request, beneficiaries=tuple(self._beneficiaries())))


class ExtractiveCompressor:
    """The most telling sentences of the text itself: no model, no network, always the same.

    It represents everything that it gets, in at most a third of its length and ``most_chars``.
    """

    def __init__(self, *, most_chars: int = 8_000) -> None:
        self._most_chars = most_chars

    def compress(self, request: CompressRequest) -> CompressResult:
        from h2ams.text.extract import extract  # late: who has a model does without

        summary, exchanges = canonical.parse(request.canonical_text)
        room = min(self._most_chars, len(request.canonical_text) // 3 - _FRAME_CHARS)
        if room < 1:
            return Refused("too-short", request.call_id)
        said = [each for exchange in exchanges for each in exchange]
        text = extract("\n\n".join([*([summary] if summary else []), *said]), most_chars=room)
        return Compressed(text, len(exchanges), request.call_id)


_FRAME_CHARS = canonical.part_chars("summary", 10_000) - 10_000


class HttpCompressor:
    """A ``compress.v2`` service at ``url``. See docs/stacks.md, "The HTTP protocol".

    ``timeout_ms`` bounds each wait for the service and the whole body of its reply,
    ``attempts_count`` how often it is asked.
    ``headers`` go with each (an authorisation, say). Redirects are not followed.
    """

    def __init__(
        self,
        url: str,
        *,
        beneficiaries: Beneficiaries = nobody,
        timeout_ms: int = 60_000,
        attempts_count: int = 3,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError("compressor: its address must begin with http:// or https://")
        if timeout_ms < 1 or attempts_count < 1:
            raise UsageError("compressor: time-out and attempts must be at least 1")
        self._url = url
        self._beneficiaries = beneficiaries
        self._timeout_s = timeout_ms / 1000
        self._attempts_count = attempts_count
        self._headers = dict(headers or {})
        self._sleep = sleep
        self._opened: urllib3.PoolManager | None = None

    def compress(self, request: CompressRequest) -> CompressResult:
        """The result of the first attempt that gives one; else that of the last one."""
        wait_s = FIRST_WAIT_S
        for number in range(self._attempts_count):
            asked = replace(request, beneficiaries=tuple(self._beneficiaries()))
            result, after_s = self._attempt(asked)
            if not isinstance(result, TransportFailed) or number == self._attempts_count - 1:
                return result
            self._sleep(min(MAX_WAIT_S, wait_s if after_s is None else after_s))
            wait_s *= 2
        raise AssertionError("no attempt was made")

    def close(self) -> None:
        """Give the connections back."""
        if self._opened is not None:
            self._opened.clear()

    def _attempt(self, request: CompressRequest) -> tuple[CompressResult, float | None]:
        """One POST: its result, and seconds that the service asks to wait for."""
        from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError

        deadline = time.monotonic() + self._timeout_s
        try:
            status, after_s, body = self._post(request, deadline)
        except NewConnectionError:  # nobody listens; urllib3 counts it among the time-outs
            return TransportFailed("connection", request.call_id), None
        except TimeoutError:
            return TransportFailed("timeout", request.call_id), None
        except HTTPError:  # refused, reset, or cut short
            return TransportFailed("connection", request.call_id), None
        if status in _LATER:
            return TransportFailed(_LATER[status], request.call_id), after_s
        document = _json(body)
        if status == 200:
            return result_of(document, request.call_id), None
        if 400 <= status < 500:
            told = document.get("reason") if isinstance(document, Mapping) else None
            reason = reason_code(told)
            known = _REFUSALS.get(status, "other")
            return Refused(known if reason == "other" else reason, request.call_id), None
        return TransportFailed("bad-reply", request.call_id), None

    def _post(self, request: CompressRequest, deadline: float) -> tuple[int, float | None, bytes]:
        """Status, Retry-After and body; errors of urllib3."""
        response = self._pool().request(
            "POST",
            self._url,
            body=json.dumps(request.document(), ensure_ascii=False).encode("utf-8"),
            headers={
                **self._headers,
                "Content-Type": "application/json",
                "Accept": "application/json",
                "Idempotency-Key": request.call_id,
            },
            preload_content=False,
            redirect=False,
        )
        try:
            return (
                response.status,
                _seconds(response.headers.get("Retry-After")),
                _bounded(response, deadline),
            )
        finally:
            response.close()

    def _pool(self) -> urllib3.PoolManager:
        if self._opened is None:
            import urllib3

            self._opened = urllib3.PoolManager(
                retries=False, timeout=urllib3.Timeout(self._timeout_s)
            )
        return self._opened


def _bounded(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """The body, read in pieces: one that drips slowly or never ends is an error too."""
    from urllib3.exceptions import ProtocolError, TimeoutError

    pieces: list[bytes] = []
    size = 0
    while piece := response.read1(65_536):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_REPLY_BYTES:
            raise ProtocolError("the reply is too long")
        if time.monotonic() > deadline:
            raise TimeoutError("the reply took too long")
    return b"".join(pieces)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
