"""A process that works on a memory folder until somebody kills it.

    python engine_worker.py ROOT KIND SEED     KIND: remember, edit, forget, sync, rebuild, mixed

Prints one line after each call that has returned: what it did and the address.
"""

from __future__ import annotations

import os
import random
import sys

from h2ams import ConflictError, Memory, NotFoundError, Settings

KINDS = ("remember", "edit", "forget", "sync", "rebuild")
SCOPES = ("user", "sessions/s1", "sessions/s1/vp/ada")


def main() -> None:
    root, kind, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
    source = random.Random(seed)
    with Memory.open(root, settings=Settings(encoding="estimate")) as memory:
        print("ready", flush=True)
        own: list[str] = []
        for number in range(100_000):
            step(memory, kind if kind != "mixed" else source.choice(KINDS), number, own, source)


def step(memory: Memory, kind: str, number: int, own: list[str], source: random.Random) -> None:
    if kind in ("edit", "forget") and not own:
        kind = "remember"
    if kind == "remember":
        body = f"worker {os.getpid()} wrote number {number}"
        address = memory.remember(source.choice(SCOPES), body).address
        own.append(address)
    elif kind in ("edit", "forget"):
        address = own[-1] if kind == "edit" else own.pop()
        try:
            if kind == "edit":
                memory.update(address, body=f"worker {os.getpid()} changed number {number}")
            else:
                memory.forget(address)
        except (NotFoundError, ConflictError):  # another worker was faster
            return
    else:
        address = ""
        if kind == "sync":
            path = os.path.join(memory.root, "sessions/s1/note.md")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"# Note\n\nnumber {number} of {os.getpid()}\n")
            memory.sync()
        else:
            memory.rebuild()
    sys.stdout.write(f"{kind} {address}\n")  # in one piece, whatever the buffering is
    sys.stdout.flush()


if __name__ == "__main__":
    main()
