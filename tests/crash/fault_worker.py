"""A process that works on a memory folder while its disk is full, too small or not writable.

    python fault_worker.py ROOT LIMIT_BYTES CALL…     LIMIT_BYTES 0: none

Every call is tried once; one JSON line each says what came of it: the address or a count, or the
class and text of the error. ``fill`` calls ``remember`` until it fails or a thousand times.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from h2ams import Access, H2amsError, Memory, Settings

FILL = 1_000


def fill(memory: Memory) -> list[str]:
    """Addresses of what was written, each told by a line before the next."""
    done = []
    for number in range(FILL):
        try:
            done.append(memory.remember("user", f"alpha fill {number} " + "words " * 60).address)
        except H2amsError:
            break
    return done


CALLS: dict[str, Callable[[Memory], Any]] = {
    "fill": fill,
    "remember": lambda memory: memory.remember("user", "alpha one more").address,
    "update": lambda memory: memory.update("user#a", body="alpha changed " * 200).address,
    "forget": lambda memory: memory.forget("user#b").address,
    "summary": lambda memory: memory.store.write_summary(memory_scope(), "Short.").path,
    "recall": lambda memory: len(memory.recall("alpha", limit=5).hits),
    "context": lambda memory: [
        each.code
        for each in memory.context(
            "alpha", access=Access(session="s1"), budget=300, commit=True
        ).degraded
    ],
    "list": lambda memory: sorted(each.address for each in memory.list()),
    "status": lambda memory: [each.code for each in memory.status().degraded],
    "sync": lambda memory: memory.sync().scanned,
    "rebuild": lambda memory: memory.rebuild().scanned,
    "verify": lambda memory: memory.verify().ok,
    "doctor": lambda memory: [each.code for each in memory.doctor(fix=True).fixed],
}


def memory_scope() -> Any:
    from h2ams.memory.scope import parse_scope

    return parse_scope("user")


def main() -> None:
    root, limit_bytes, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if limit_bytes:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))
    for name in names:
        print(json.dumps({"call": name, **tried(root, name)}), flush=True)


def tried(root: str, name: str) -> dict[str, Any]:
    settings = Settings(encoding="estimate", lock_timeout_ms=2_000)
    try:
        with Memory.open(root, settings=settings) as memory:
            given = CALLS[name](memory)
            noted = []
            with contextlib.suppress(H2amsError):
                noted = [each.code for each in memory.status().degraded]
            return {"gave": given, "degraded": noted}
    except H2amsError as error:
        return {"error": type(error).__name__, "message": str(error), "hint": error.hint}
    except BaseException as error:  # noqa: BLE001 - that there is none is what the test is about
        import traceback

        traceback.print_exc()
        return {"crash": repr(error), "pid": os.getpid()}


if __name__ == "__main__":
    main()
