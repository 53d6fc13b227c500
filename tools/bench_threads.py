"""What one turn costs for a thread of any length: assembly from a cold store.

    python tools/bench_threads.py [--quick]     a table of threads of 500 to 10,000 rows

Every thread has the same window and was condensed as it grew, as in life. Cold: each measurement
opens the store and a new engine. Sizes are measured in turn, round after round, so that a slow
minute of the machine falls on all of them. The bound: 10,000 rows cost at most 1.5 times as much as
500 rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from h2ams.settings import Settings
from h2ams.threads.context_engine import ContextEngine
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.tokens import counter

SIZES = (500, 1_000, 2_500, 5_000, 10_000)
WINDOW, RESERVE = 8_000, 1_000
BATCH = 20  # rows between two turns
BAR_CHARS = 40
COUNTER = counter("estimate")


def engine(path: Path) -> ContextEngine:
    return ContextEngine(
        SqliteThreadStore(path), settings=Settings(encoding="estimate"), counter=COUNTER
    )


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Messages ``first`` to ``last``: questions, tools, answers."""
    found: list[dict[str, Any]] = []
    for n in range(first, last):
        kind = n % 4
        call = {"id": f"c{n}", "type": "function"}
        if kind == 0:
            found.append({"role": "user", "content": f"question {n} about part {n % 97} " * 6})
        elif kind == 1:
            function = {"name": "read", "arguments": f'{{"path": "src/part_{n % 97}.py"}}'}
            found.append(
                {"role": "assistant", "content": "", "tool_calls": [call | {"function": function}]}
            )
        elif kind == 2:
            found.append(
                {"role": "tool", "tool_call_id": f"c{n - 1}", "content": f"line {n} of it\n" * 30}
            )
        else:
            found.append({"role": "assistant", "content": f"answer {n} is as expected " * 6})
    return found


def grow(path: Path, size: int) -> None:
    """A thread of ``size`` rows that was condensed as it grew; its window ends alike."""
    made = engine(path)
    thread = made.thread("t", window=WINDOW, reserve=RESERVE)
    for first in range(0, size, BATCH):
        thread.append(*rows(first, min(first + BATCH, size)))
        thread.context()
    thread.compact(force=True)  # so that every window begins behind a line
    thread.append(*rows(size, size + 2 * BATCH))
    made.store.close()


def assemble(path: Path) -> tuple[float, int]:
    """Milliseconds of CPU and tokens of one turn in a new engine on a cold store."""
    started = time.process_time()
    made = engine(path)
    context = made.thread("t", window=WINDOW, reserve=RESERVE).context("and now?", compact=False)
    elapsed_ms = (time.process_time() - started) * 1_000
    made.store.close()
    return elapsed_ms, context.tokens


def measure(sizes: tuple[int, ...], rounds: int) -> dict[int, tuple[float, float, int]]:
    """For each size the least and the median milliseconds, and the prompt's tokens."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {size: Path(folder) / f"{size}.db" for size in sizes}
        for size, path in paths.items():
            grow(path, size)
        times: dict[int, list[float]] = {size: [] for size in sizes}
        tokens: dict[int, int] = {}
        for _ in range(rounds):
            for size, path in paths.items():
                elapsed_ms, tokens[size] = assemble(path)
                times[size].append(elapsed_ms)
    return {
        size: (min(each), statistics.median(each), tokens[size]) for size, each in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    sizes = SIZES[:2] if quick else SIZES
    found = measure(sizes, 15 if quick else 40)
    base = found[sizes[0]][0]
    most = max(least for least, _, _ in found.values())
    print("| rows | least | median | prompt | of 500 rows | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size, (least, median, tokens) in found.items():
        bar = "█" * round(BAR_CHARS * least / most)
        print(
            f"| {size:,} | {least:.2f} ms | {median:.2f} ms | {tokens} tokens"
            f" | {least / base:.2f} | {bar} |"
        )


if __name__ == "__main__":
    main()
