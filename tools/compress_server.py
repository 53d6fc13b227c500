"""A reference ``compress.v2`` service for tests and for trying things out; loopback only.

    python tools/compress_server.py [--port N] [--mode MODE]

It condenses without a model (the first words of each text) and keeps replies by idempotency key: a
request that comes again with the same key gets the same reply, one with another text under that key
is a conflict. ``POST /mode`` with a word as body switches its bad days on and off:

    ok refuse 429 500 hang html cut over-claiming empty not-smaller foreign-id redirect drip

``POST /mode`` with ``500*2`` is that for two requests, then ok. It logs nothing that it is sent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "compress.v2"
KINDS = ("paxhistoria.game-agent-stack.v1", "paxhistoria.catalyst-agent-stack.v1")
MODES = (
    *("ok", "refuse", "429", "500", "hang", "html", "cut", "over-claiming", "empty"),
    *("not-smaller", "foreign-id", "redirect", "drip"),
)
FIELDS = {"version", "kind", "canonicalText", "beneficiaries", "callId"}
LABEL = re.compile(r"\[(summary|user|assistant) (\d+)\]\n")


@dataclass
class Day:
    """What the server does today, and what it has seen."""

    mode: str = "ok"
    times: int = 0  # requests that the mode holds for; 0: until it is changed
    replies: dict[str, tuple[str, dict[str, object]]] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)

    def switch(self, word: str) -> bool:
        mode, _, times = word.partition("*")
        if mode not in MODES or not (times or "1").isdecimal():
            return False
        with self.lock:
            self.mode, self.times = mode, int(times or 0)
        return True

    def next_mode(self) -> str:
        with self.lock:
            mode = self.mode
            if self.times:
                self.times -= 1
                if not self.times:
                    self.mode = "ok"
        return mode


def condense(text: str) -> tuple[str, int]:
    """A summary of canonical text and the number of exchanges in it."""
    words: list[str] = []
    users = at = 0
    while at < len(text):
        label = LABEL.match(text, at)
        if label is None:
            raise ValueError("not canonical")
        said = text[label.end() : label.end() + int(label[2])]
        at = label.end() + len(said) + 2
        users += label[1] == "user"
        words.append(" ".join(said.split()[:3]))
    room = max(1, len(text) // 4)
    return ("; ".join(words))[:room].strip() or "-", users


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: what is sent here is private."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/mode":
            known = self.server.day.switch(body.decode("ascii", "replace"))
            self._send(200 if known else 400, {"mode": self.server.day.mode})
        elif self.path == "/compress":
            self._compress(body)
        else:
            self._send(404, {"reason": "unsupported-kind"})

    def _compress(self, body: bytes) -> None:
        day = self.server.day
        mode = day.next_mode()
        try:
            asked = json.loads(body)
        except ValueError:
            self._send(400, {"reason": "bad-request"})
            return
        key = self.headers.get("Idempotency-Key", "")
        with day.lock:
            day.seen.append({"key": key, "mode": mode, **asked})
        problem = self._problem(asked, key)
        if problem is not None:
            self._send(problem[0], {"reason": problem[1]})
        elif not self._bad_day(mode, asked):
            self._reply(asked, key, mode)

    def _problem(self, asked: dict[str, Any], key: str) -> tuple[int, str] | None:
        if set(asked) != FIELDS or asked["version"] != VERSION or asked["callId"] != key:
            return 400, "bad-request"
        if asked["kind"] not in KINDS:
            return 404, "unsupported-kind"
        known = self.server.day.replies.get(key)
        return (409, "conflict") if known and known[0] != _digest(asked) else None

    def _bad_day(self, mode: str, asked: dict[str, Any]) -> bool:
        """Whether the day was bad; the reply has been given then, such as it is."""
        if mode == "refuse":
            document = {"version": VERSION, "status": "refused", "reason": "policy"}
            self._send(200, {**document, "callId": asked["callId"]})
        elif mode in ("429", "500"):
            self._send(int(mode), {"reason": "rate-limited"}, {"Retry-After": "0"})
        elif mode == "hang":
            self.server.day.closing.wait(30)
            self.close_connection = True
        elif mode == "html":
            self._raw(200, b"<!doctype html><title>Gateway</title>", "text/html")
        elif mode == "redirect":
            self._send(307, {}, {"Location": "/elsewhere"})
        else:
            return False
        return True

    def _reply(self, asked: dict[str, Any], key: str, mode: str) -> None:
        day = self.server.day
        with day.lock:
            if key not in day.replies:
                text, count = condense(asked["canonicalText"])
                if mode == "over-claiming":
                    count += 1
                text = {"empty": " ", "not-smaller": asked["canonicalText"]}.get(mode, text)
                document: dict[str, object] = {"version": VERSION, "status": "compressed"}
                document |= {"text": text, "representedCount": count}
                document["callId"] = "foreign00" if mode == "foreign-id" else asked["callId"]
                day.replies[key] = (_digest(asked), document)
            document = day.replies[key][1]
        data = json.dumps(document, ensure_ascii=False).encode("utf-8")
        if mode == "cut":
            self._head(200, len(data), "application/json")
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif mode == "drip":
            self._head(200, len(data), "application/json")
            for at in range(len(data)):
                if day.closing.wait(0.05):
                    break
                self.wfile.write(data[at : at + 1])
                self.wfile.flush()
            self.close_connection = True
        else:
            self._raw(200, data, "application/json")

    def _send(
        self, status: int, document: dict[str, object], more: dict[str, str] | None = None
    ) -> None:
        self._raw(status, json.dumps(document).encode("utf-8"), "application/json", more)

    def _raw(self, status: int, data: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self._head(status, len(data), kind, more)
        self.wfile.write(data)

    def _head(self, status: int, size: int, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()


def _digest(asked: dict[str, Any]) -> str:
    """What has to be the same under one key: beneficiaries may change between attempts."""
    return hashlib.sha256(f"{asked['kind']}\n{asked['canonicalText']}".encode()).hexdigest()


class Server(ThreadingHTTPServer):
    """The service; ``day`` says how it behaves."""

    daemon_threads = True

    def __init__(self, port: int = 0, mode: str = "ok") -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.day = Day(mode)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/compress"

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is none of our troubles."""

    def close(self) -> None:
        """Let go of requests that hang, and stop."""
        self.day.closing.set()
        self.shutdown()
        self.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(description="reference compress.v2 service on loopback")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=MODES, default="ok")
    args = parser.parse_args()
    server = Server(args.port, args.mode)
    print(server.url, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
