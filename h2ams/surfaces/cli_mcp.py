"""``mcp``: the memory as an MCP server, over standard input and output or loopback HTTP."""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

from h2ams.errors import H2amsError, UsageError
from h2ams.surfaces.cli_common import DONE, Call, checked_text, serving_access
from h2ams.surfaces.cli_parser import Command, CommandParser, whole

if TYPE_CHECKING:
    from types import FrameType

    from h2ams.engine import Memory
    from h2ams.memory.access import Access
    from h2ams.surfaces.mcp_calls import Serving

PORT = 8127
TOKEN_FILE = "mcp-token"
PARENT_POLL_S = 0.5
LAST_CALLS_S = 1.5  # how long calls under way may take once the end has come
CLOSING_S = 0.5


def _configure(parser: CommandParser) -> None:
    parser.option(
        "--owner", action="store_true", help="everything may be read and written, without limits"
    )
    parser.option("--http", action="store_true", help="HTTP on 127.0.0.1 in place of stdio")
    parser.option("--port", metavar="N", type=whole, help=f"with --http (default {PORT}; 0: any)")
    parser.option(
        "--token-file",
        metavar="FILE",
        help=f"with --http: holds the bearer token (default {TOKEN_FILE} in the state folder)",
    )
    parser.option(
        "--no-watch", action="store_true", help="do not watch the folder: no update notifications"
    )


def _mcp(call: Call) -> int:
    args = call.args
    if args.json:
        raise UsageError("mcp has no --json: its output is JSON-RPC already")
    access = serving_access(call, "mcp")
    if not args.http and (args.port is not None or args.token_file is not None):
        raise UsageError("--port and --token-file go with --http")
    wires = None if args.http else _take_streams()
    need_sdk()
    if not args.verbose:
        _log_warnings()
    with call.open() as memory:
        if wires is None:
            _serve_http(call, memory, access)
        else:
            _serve_stdio(call, memory, access, *wires)
    return DONE


def _take_streams() -> tuple[BinaryIO, BinaryIO]:
    """The real standard input and output. From now on others read nothing, and print to stderr.

    Before anything is imported or opened: a banner of any library would break the protocol, and a
    child process would swallow a part of it.
    """
    sys.stdout.flush()
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(reading, "rb"), os.fdopen(writing, "wb")


def need_sdk() -> None:
    """``H2amsError`` where the extra is not installed."""
    from importlib import import_module

    try:
        import_module("mcp.server.lowlevel")
    except ImportError as error:
        raise H2amsError(
            f"the MCP server needs the package mcp ({error})", hint="pip install 'h2ams[mcp]'"
        ) from error


def _log_warnings() -> None:
    """Warnings of every library to standard error: standard output is the client's alone."""
    import logging

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")


def _serve_stdio(
    call: Call, memory: Memory, access: Access | None, reading: BinaryIO, writing: BinaryIO
) -> None:
    from functools import partial

    import anyio

    from h2ams.surfaces.mcp_calls import Serving
    from h2ams.surfaces.mcp_server import serve_stdio

    serving = Serving(memory, access)
    with Ending(serving):
        anyio.run(partial(serve_stdio, serving, reading, writing, watch=not call.args.no_watch))


class Ending:
    """Ends the process when its client is gone in any other way than by closing our input.

    A read from standard input cannot be interrupted, so SIGTERM, SIGINT and the parent's death are
    met by a thread of its own: no new call begins, calls under way finish (a write whole), the
    memory is closed, and the process leaves with code 0.
    """

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._parent = os.getppid()
        self._asked = threading.Event()
        self._over = threading.Event()

    def __enter__(self) -> None:
        import signal

        def asked(_: int, __: FrameType | None) -> None:
            self._asked.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, asked)
        threading.Thread(target=self._wait, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asked.set()

    def _wait(self) -> None:
        while not self._asked.wait(PARENT_POLL_S):
            if self._parent > 1 and os.getppid() != self._parent:
                break
        if self._over.is_set():
            return
        self._serving.under_way.end(LAST_CALLS_S)
        threading.Timer(CLOSING_S, os._exit, (DONE,)).start()  # a search may hold the index
        self._serving.memory.close()
        sys.stderr.flush()
        os._exit(DONE)


def _serve_http(call: Call, memory: Memory, access: Access | None) -> None:
    from h2ams.surfaces.loopback import HOST, Signals, listen
    from h2ams.surfaces.mcp_calls import Serving
    from h2ams.surfaces.mcp_http import PATH, serve_http

    args = call.args
    listener = listen(PORT if args.port is None else args.port)
    token, where = _token(memory, args.token_file)
    signals = Signals()
    port = listener.getsockname()[1]
    call.output.note(f"MCP at http://{HOST}:{port}{PATH}; the bearer token is in {where}")
    serving, watch = Serving(memory, access), not args.no_watch
    serve_http(serving, listener, token=token, watch=watch, started=signals.started)


def _token(memory: Memory, file: str | None) -> tuple[str, str]:
    """The token and the file that holds it; made, for this user alone, where there is none."""
    from h2ams.surfaces.mcp_http import checked_token, new_token

    where = os.path.join(memory.state, TOKEN_FILE)
    if file is not None:
        where = os.path.abspath(os.path.expanduser(checked_text(file, "--token-file")))
    try:
        descriptor = os.open(where, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        with open(where, encoding="ascii", errors="replace") as stream:
            return checked_token(stream.read(1024), where), where
    with open(descriptor, "w", encoding="ascii") as stream:
        token = new_token()
        stream.write(token + "\n")
    return token, where


_ABOUT = """
What the server may see is fixed by the access flags when it starts; no call can widen it. Over
stdio, standard output carries nothing but the protocol, and the server ends with its client. Over
HTTP it answers on 127.0.0.1 alone, to requests that carry the token. Needs the extra h2ams[mcp].
"""

COMMANDS = {"mcp": Command(_configure, _mcp, _ABOUT)}
