"""A real HTTP server on loopback that speaks both protocols, on good days and bad ones.

    with ModelServer([good("hello"), status(500), hang()]) as server: …

Each request is answered by the next of the script; the last answer is repeated. ``requests`` keeps
what came: path, headers, decoded body.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One request. ``owner`` is the server with its script."""

    protocol_version = "HTTP/1.1"
    owner: ModelServer
    body: dict[str, Any]

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.body = json.loads(raw)
        self.owner.received(self.path, dict(self.headers.items()), self.body)(self)

    def send(
        self, data: bytes, code: int = 200, kind: str = "application/json", **headers: str
    ) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def send_json(self, value: object, code: int = 200, **headers: str) -> None:
        self.send(json.dumps(value).encode(), code, **headers)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class ModelServer:
    def __init__(self, script: Sequence[Answer]) -> None:
        self._script = list(script)
        self._guard = threading.Lock()
        self.release = threading.Event()  # ends what hangs
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        handler = type("Bound", (Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def received(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        with self._guard:
            self.requests.append((path, headers, body))
            return self._script.pop(0) if len(self._script) > 1 else self._script[0]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def chat(
    content: object,
    *,
    finish: str | None = "stop",
    prompt_tokens: int | None = 10,
    **message: object,
) -> dict[str, object]:
    """A chat completion document."""
    usage = (
        {}
        if prompt_tokens is None
        else {"usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 3}}
    )
    said = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "message": said, "finish_reason": finish}
    return {"object": "chat.completion", "model": "small", "choices": [choice], **usage}


def claude(
    *blocks: Mapping[str, object], stop: str = "end_turn", **usage: int
) -> dict[str, object]:
    """A Messages API document."""
    counted = {"input_tokens": 10, "output_tokens": 3, **usage}
    return {
        "type": "message",
        "model": "c",
        "content": list(blocks),
        "stop_reason": stop,
        "usage": counted,
    }


def reply(value: object, code: int = 200, **headers: str) -> Answer:
    return lambda handler: handler.send_json(value, code, **headers)


def good(text: str, **how: Any) -> Answer:
    return reply(chat(text, **how))


def status(code: int, **headers: str) -> Answer:
    document = {"error": {"message": "the secret prompt was: SECRET-PROMPT", "code": "some_code"}}
    return reply(document, code, **headers)


def page() -> Answer:
    """A proxy's page in place of an answer."""
    return lambda handler: handler.send(b"<html><body>Bad day</body></html>", kind="text/html")


def raw(data: bytes) -> Answer:
    return lambda handler: handler.send(data)


def hang() -> Answer:
    """Say nothing until the test is over."""

    def answer(handler: Handler) -> None:
        handler.owner.release.wait(30)
        handler.close_connection = True

    return answer


def trickle() -> Answer:
    """One byte at a time, each well within the time of a read, for ever."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            while not handler.owner.release.wait(0.05):
                handler.wfile.write(b" ")
                handler.wfile.flush()
        except OSError:
            pass
        handler.close_connection = True

    return answer


def cut(text: str = "half") -> Answer:
    """A reply that ends before its announced length."""

    def answer(handler: Handler) -> None:
        data = json.dumps(chat(text)).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[: len(data) // 2])
        handler.wfile.flush()
        handler.close_connection = True

    return answer


def drop() -> Answer:
    """Close the connection without a word."""

    def answer(handler: Handler) -> None:
        handler.close_connection = True

    return answer
