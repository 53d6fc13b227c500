"""The reference service ``tools/compress_server.py``, started by a test, in this process."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parents[2] / "tools" / "compress_server.py"


def module() -> Any:
    """The tool as a module."""
    name = "h2ams_compress_server"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FILE)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@contextmanager
def running(mode: str = "ok") -> Iterator[Any]:
    """A server on a free port of loopback, real sockets and threads."""
    server = module().Server(mode=mode)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
