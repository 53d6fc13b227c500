"""JSON over HTTP with its bad days: one call in, one decoded object or a ``ModelError`` out.

Strategy: one POST per attempt with a deadline for the whole attempt (a server that trickles bytes
does not stretch it), a bound on the reply's size, no redirects (a key never follows one). What may
go better later is tried again, a bounded number of times, with back-off and jitter; after several
calls in a row that failed, calls fail at once until the cool-down has passed. Clock, sleep and
chance come in. No error, repr or log carries the key, what was sent or what came back.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import TYPE_CHECKING

from h2ams.errors import ConfigError, Failure, ModelError

if TYPE_CHECKING:
    from urllib3 import PoolManager
    from urllib3.response import BaseHTTPResponse

MAX_REPLY_BYTES = 16 * 1024 * 1024  # an answer of 100,000 tokens with everything around is smaller
_CHUNK_BYTES = 64 * 1024
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_URL = re.compile(r"(https?)://([^/?#@\s]+)((?:/[^?#\s]*)?)")
_STATUS_FAILURES: Mapping[int, Failure] = {
    408: "timeout",
    425: "unavailable",
    429: "rate-limited",
    504: "timeout",
}


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often. Seconds everywhere; ``attempts_count`` counts the first one too.

    Waits between attempts are ``backoff_s`` doubled each time, between half and all of it by
    chance, at most ``longest_wait_s``; a server that asks for a longer wait is not asked again in
    this call. After ``strikes_count`` failed calls in a row there is a cool-down.
    """

    connect_s: float = 10.0
    total_s: float = 120.0
    attempts_count: int = 3
    backoff_s: float = 0.5
    longest_wait_s: float = 30.0
    strikes_count: int = 3
    cooldown_s: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts_count < 1 or min(self.connect_s, self.total_s) <= 0:
            raise ConfigError("patience: at least one attempt and some seconds for it")


class JsonClient:
    """POSTs JSON to one server. Safe to call from several threads."""

    def __init__(
        self,
        base_url: str,
        headers: Mapping[str, str],
        *,
        secret: str = "",
        patience: Patience | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
        chance: Callable[[], float] | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._base = checked_url(base_url)
        self._headers = dict(headers)
        self._secret = secret
        self.patience = patience or Patience()
        self._clock = clock or time.monotonic
        self._sleep = sleep or time.sleep
        self._chance = chance or Random().random
        self._now = now or (lambda: datetime.now(UTC))
        self._guard = threading.Lock()
        self._strikes = 0
        self._closed_until = 0.0
        self._pool: PoolManager | None = None

    def __repr__(self) -> str:
        return f"JsonClient({self._base!r})"

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        check: Callable[[Mapping[str, object]], None] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, object]:
        """The JSON object that the server answers to ``body`` at ``path``.

        ``check`` raises ``ModelError`` for an object that is no usable answer: it counts as a
        failed attempt. ``ModelError`` where the last attempt failed.
        """
        self._admit()
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        attempt = 0
        while True:
            attempt += 1
            try:
                reply = self._attempt(path, data, headers or {})
                if check is not None:
                    check(reply.value)
            except _Refused as error:
                wait_s = self._wait_s(error, attempt)
                if wait_s is None:
                    self._count_strike(error)
                    raise error.public from None
                self._sleep(wait_s)
            except ModelError as error:
                wait_s = self._wait_s(_Refused(error), attempt)
                if wait_s is None:
                    self._count_strike(_Refused(error))
                    raise
                self._sleep(wait_s)
            else:
                with self._guard:
                    self._strikes = 0
                return reply.value

    # -- patience --------------------------------------------------------------------------------

    def _admit(self) -> None:
        with self._guard:
            left_s = self._closed_until - self._clock()
        if left_s > 0:
            raise ModelError(
                "unavailable",
                f"the model server failed {self.patience.strikes_count} times in a row",
                hint=f"it is asked again in {left_s:.0f} s",
            )

    def _wait_s(self, error: _Refused, attempt: int) -> float | None:
        """Seconds before the next attempt; None where there is none."""
        if not error.public.retryable or attempt >= self.patience.attempts_count:
            return None
        if error.retry_after_s is not None:
            asked = error.retry_after_s
            return asked if asked <= self.patience.longest_wait_s else None
        full = min(self.patience.backoff_s * 2.0 ** (attempt - 1), self.patience.longest_wait_s)
        return full * (0.5 + self._chance() / 2)

    def _count_strike(self, error: _Refused) -> None:
        if not error.public.retryable:
            return  # the request is at fault, not the server
        with self._guard:
            self._strikes += 1
            if self._strikes >= self.patience.strikes_count:
                self._strikes = 0
                self._closed_until = self._clock() + self.patience.cooldown_s

    # -- one attempt -----------------------------------------------------------------------------

    def _attempt(self, path: str, data: bytes, headers: Mapping[str, str]) -> _Reply:
        import urllib3  # late: 30 ms that no recall needs
        from urllib3.exceptions import HTTPError, NewConnectionError, TimeoutError

        until = self._clock() + self.patience.total_s
        try:
            response = self._http().request(
                "POST",
                f"{self._base}{path}",
                body=data,
                headers={"Content-Type": "application/json", **self._headers, **headers},
                timeout=urllib3.Timeout(
                    connect=min(self.patience.connect_s, self.patience.total_s),
                    read=self.patience.total_s,
                ),
                preload_content=False,
                redirect=False,
            )
            try:
                found = self._read(response, until)
            finally:
                response.close()
        except (HTTPError, OSError, ValueError) as error:
            # A refused connection is a kind of timeout to urllib3.
            if isinstance(error, TimeoutError) and not isinstance(error, NewConnectionError):
                raise _timeout(self.patience.total_s) from None
            failure: Failure = "bad-reply" if _was_cut(error) else "unavailable"
            what = "the reply was cut off" if failure == "bad-reply" else "no connection"
            raise ModelError(
                failure,
                f"model server: {what} ({type(error).__name__})",
                hint=f"check that a server listens at {self._base}",
            ) from None
        self._check_status(response, found)
        return _Reply(decoded(found))

    def _http(self) -> PoolManager:
        import urllib3

        with self._guard:
            if self._pool is None:
                self._pool = urllib3.PoolManager(retries=False, maxsize=4)
            return self._pool

    def _read(self, response: BaseHTTPResponse, until: float) -> bytes:
        """The body, within its time and size."""
        chunks: list[bytes] = []
        size = 0
        while True:
            if self._clock() > until:
                raise _timeout(self.patience.total_s)
            chunk = response.read1(_CHUNK_BYTES)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_REPLY_BYTES:
                message = f"model server: the reply is longer than {MAX_REPLY_BYTES} bytes"
                raise ModelError("bad-reply", message)

    def _check_status(self, response: BaseHTTPResponse, found: bytes) -> None:
        status = response.status
        if 200 <= status < 300:
            return
        failure = _STATUS_FAILURES.get(status, "unavailable" if status >= 500 else "refused")
        code = self._error_code(found)
        message = f"model server: HTTP {status}" + (f" ({code})" if code else "")
        hint = "the address has moved: correct base_url" if 300 <= status < 400 else None
        if status in (401, 403):
            hint = "check the key"
        error = ModelError(failure, message, hint=hint)
        raise _Refused(error, self._retry_after_s(response.headers.get("Retry-After")), status)

    def _error_code(self, found: bytes) -> str:
        """The short code of an error document: never its message, which may repeat the request."""
        try:
            value = json.loads(found)
        except (ValueError, RecursionError):
            return ""
        error = value.get("error") if isinstance(value, dict) else None
        for name in ("code", "type"):
            code = error.get(name) if isinstance(error, dict) else None
            if isinstance(code, str) and _CODE.fullmatch(code) and not self._holds_secret(code):
                return code
        return ""

    def _holds_secret(self, code: str) -> bool:
        return bool(self._secret) and (self._secret in code or code in self._secret)

    def _retry_after_s(self, text: str | None) -> float | None:
        """Seconds that the server asks to wait (a number or a date); None where it does not say."""
        if not text:
            return None
        text = text.strip()
        if text.isascii() and text.isdigit() and len(text) < 10:
            return float(text)
        try:
            when = parsedate_to_datetime(text)
        except ValueError:
            return None
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - self._now()).total_seconds())


@dataclass(frozen=True, slots=True)
class _Reply:
    value: Mapping[str, object]


class _Refused(Exception):
    """An HTTP status that is no success, with what the server said about when to come back."""

    def __init__(
        self, public: ModelError, retry_after_s: float | None = None, status: int = 0
    ) -> None:
        super().__init__(public.message)
        self.public = public
        self.retry_after_s = retry_after_s
        self.status = status


def decoded(found: bytes) -> Mapping[str, object]:
    """The JSON object in ``found``; ``ModelError`` (bad-reply) for anything else."""
    try:
        value = json.loads(found)
    except (ValueError, RecursionError):
        kind = "an HTML page" if found.lstrip()[:1] == b"<" else "no JSON"
        raise ModelError("bad-reply", f"model server: the reply is {kind}") from None
    if not isinstance(value, dict):
        raise ModelError("bad-reply", "model server: the reply is no JSON object")
    return value


def checked_url(text: str) -> str:
    """``text`` without a slash at its end; ``ConfigError`` unless it is plain http(s)."""
    match = _URL.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            "base_url is not an address of the form http(s)://host[:port][/path]",
            hint="keys belong into the key, not into the address",
        )
    return f"{match[1]}://{match[2]}{match[3].rstrip('/')}"


def checked_key(key: str | None) -> str:
    """The key without blanks around; ``ConfigError`` (without the key) where no header holds it."""
    text = (key or "").strip()
    if not all("!" <= char <= "~" for char in text):
        raise ConfigError("the model key holds characters that no HTTP header can carry")
    return text


def _timeout(total_s: float) -> ModelError:
    return ModelError("timeout", f"model server: no complete reply within {total_s:g} s")


def _was_cut(error: BaseException) -> bool:
    from urllib3.exceptions import IncompleteRead, ProtocolError

    cut = isinstance(error, ProtocolError) and bool(error.args[1:])
    return isinstance(error, IncompleteRead) or (
        cut and isinstance(error.args[1], IncompleteRead | EOFError)
    )
