"""An external program as a model: the request on its standard input, the answer on its output.

Strategy: a list of words, never a shell; a process group of its own, killed as a whole when the
time is up or the answer gets too long. What the program says on standard error is not kept: it may
repeat the request.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Literal

from h2ams.errors import ConfigError, ModelError
from h2ams.models.request import Completion, Request, with_schema

MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024

Input = Literal["text", "json"]


class CommandModel:
    """Runs ``argv`` once per request.

    ``input`` is what the program gets: ``text``, the messages one after the other with a blank
    line between them; or ``json``, one document with ``messages``, ``schema`` and
    ``max_output_tokens``. ``environ`` replaces the environment where given.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 120.0,
        input: Input = "text",
        environ: Mapping[str, str] | None = None,
        folder: str | None = None,
    ) -> None:
        if isinstance(argv, str) or not argv or not argv[0]:
            raise ConfigError("a model command is a list of words, the program first")
        if any("\0" in word for word in argv):
            raise ConfigError("a word of the model command holds a NUL")
        self._argv = tuple(argv)
        self._timeout_s = timeout_s
        self._input = input
        self._environ = None if environ is None else dict(environ)
        self._folder = folder

    @property
    def name(self) -> str:
        return f"command:{os.path.basename(self._argv[0])}"

    def __repr__(self) -> str:
        return f"CommandModel({os.path.basename(self._argv[0])!r})"

    def complete(self, request: Request) -> Completion:
        """What the program printed. ``ModelError`` where it failed, hung or printed nothing."""
        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environ,
                cwd=self._folder,
                start_new_session=True,
            )
        except OSError as error:
            raise ModelError(
                "unavailable",
                f"the model command cannot be started: {error.strerror}",
                hint="check its path and permissions",
            ) from None
        data = self._stdin(request)
        found, in_time = _talk(process, data, self._timeout_s)
        if not in_time:
            raise ModelError("timeout", f"the model command took over {self._timeout_s:g} s")
        if len(found) > MAX_ANSWER_BYTES:
            raise ModelError("bad-reply", f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
        if process.returncode != 0:
            raise ModelError("unavailable", f"the model command left with {process.returncode}")
        try:
            text = found.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ModelError("bad-reply", "the model command's answer is not UTF-8") from None
        if not text.strip():
            raise ModelError("empty", "the model command printed nothing")
        return Completion(text, model=self.name)

    def _stdin(self, request: Request) -> bytes:
        if self._input == "json":
            document = {
                "purpose": request.purpose,
                "messages": [
                    {"role": each.role, "content": each.content} for each in request.messages
                ],
                "schema": None if request.schema is None else dict(request.schema),
                "max_output_tokens": request.max_output_tokens,
            }
            return (json.dumps(document, ensure_ascii=False) + "\n").encode("utf-8", "replace")
        texts = [each.content for each in with_schema(request)]
        return ("\n\n".join(texts) + "\n").encode("utf-8", "replace")


def _talk(process: subprocess.Popen[bytes], data: bytes, timeout_s: float) -> tuple[bytes, bool]:
    """Feed ``data``, collect what is printed; what was printed, and whether it ended in time.

    Both pipes have a thread of their own, so that neither side waits for the other for ever.
    """
    assert process.stdin is not None and process.stdout is not None
    until = time.monotonic() + timeout_s
    collected: list[bytes] = []
    feeder = threading.Thread(target=_feed, args=(process.stdin, data), daemon=True)
    reader = threading.Thread(target=_collect, args=(process.stdout, collected), daemon=True)
    feeder.start()
    reader.start()
    reader.join(timeout_s)
    in_time = not reader.is_alive()
    found = b"".join(collected)
    try:
        if in_time and len(found) <= MAX_ANSWER_BYTES:
            process.wait(max(0.0, until - time.monotonic()))
        else:
            _kill_group(process)
    except subprocess.TimeoutExpired:  # it closed its output and lives on
        in_time = False
        _kill_group(process)
    process.wait()
    reader.join()
    feeder.join()
    return found, in_time


def _feed(stream: IO[bytes], data: bytes) -> None:
    with suppress(OSError):  # a program may answer without reading everything
        stream.write(data)
    with suppress(OSError):
        stream.close()


def _collect(stream: IO[bytes], collected: list[bytes]) -> None:
    size = 0
    with stream:
        while size <= MAX_ANSWER_BYTES:
            chunk = stream.read1(_CHUNK_BYTES) if hasattr(stream, "read1") else b""
            if not chunk:
                return
            collected.append(chunk)
            size += len(chunk)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the program and all that it started. It was not waited for, so its number is its own."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
            return
    process.kill()
