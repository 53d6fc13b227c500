"""How the cost of exchange stacks grows: prints tables; ``--write`` puts them into the page.

    python tools/bench_stacks.py [--quick] [--write]

Each figure is a median over many repetitions on stores of growing size, interleaved, so that a slow
moment of the machine hits all sizes alike. What may not grow is compared with its smallest size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from h2ams.settings import DEFAULTS
from h2ams.stacks.compress import Compressed, CompressRequest, CompressResult
from h2ams.stacks.exchange import Round
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.transports import CallableCompressor
from h2ams.stacks.workflow import Workflow

PAGE = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- bench-stacks:begin -->", "<!-- bench-stacks:end -->"
HALF_CHARS = 600  # of each half of an exchange
SETTINGS = replace(DEFAULTS, stack_ledger_chars=0)
Rows = list[tuple[str, dict[int, float]]]  # what, and microseconds by size
BAR_CHARS = 48
GROWTH = 1.5  # at most, from the smallest store to the largest


def round_of(number: int) -> Round:
    text = f"round {number} " + "word " * (HALF_CHARS // 5)
    return Round(f"r{number}", text[:HALF_CHARS], text[::-1][:HALF_CHARS])


def summarise(request: CompressRequest) -> CompressResult:
    return Compressed("s" * 500, request.canonical_text.count("[user "), request.call_id)


def filled(folder: Path, name: str, *, store_bytes: int, stack_chars: int) -> Workflow:
    """A workflow whose store has ``store_bytes`` (keys of the host) and a stack of that length."""
    store = SqliteWorkflowStore(folder / f"{name}.db", quota_bytes=64 * 1024 * 1024)
    workflow = Workflow(store, compressor=CallableCompressor(summarise), settings=SETTINGS)
    number = 0
    rounds = []
    size = 0
    while size < stack_chars:
        rounds.append(round_of(number))
        size += 2 * HALF_CHARS + 40
        number += 1
    workflow.edit_history(rounds)
    value = "v" * 1_000
    for first in range(0, store_bytes // 1_000, 2_000):
        last = min(first + 2_000, store_bytes // 1_000)
        workflow.cheat({f"host.{each:06d}": value for each in range(first, last)})
    workflow.checkpoint()
    return workflow


def timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e6


def interleaved(
    acts: dict[str, Callable[[int], Callable[[], object]]], times: int
) -> dict[str, float]:
    """Median microseconds of each act; ``acts`` make the act of each repetition, untimed."""
    found: dict[str, list[float]] = {name: [] for name in acts}
    for number in range(times):
        for name, make in acts.items():
            act = make(number)
            found[name].append(timed(act))
    return {name: statistics.median(values[times // 10 :]) for name, values in found.items()}


def over_the_store(
    folder: Path, sizes: list[int], times: int
) -> list[tuple[str, dict[int, float]]]:
    """Append and transition in stores that hold more and more of other things."""
    flows = {size: filled(folder, f"s{size}", store_bytes=size, stack_chars=0) for size in sizes}
    rows = []

    def append(workflow: Workflow) -> Callable[[int], Callable[[], object]]:
        return lambda number: lambda: workflow.append_round(round_of(number))

    def transition(workflow: Workflow) -> Callable[[int], Callable[[], object]]:
        def make(number: int) -> Callable[[], object]:
            for each in range(10):  # a stack of ten exchanges each time
                workflow.append_round(round_of(10 * number + each))
            return workflow.compress

        return make

    for label, act, count in (
        ("append one exchange", append, times),
        ("one transition of ten exchanges", transition, max(5, times // 10)),
    ):
        found = interleaved({str(size): act(flows[size]) for size in sizes}, count)
        rows.append((label, {size: found[str(size)] for size in sizes}))
        for workflow in flows.values():
            workflow.reset()
    for workflow in flows.values():
        workflow.close()
    return rows


def over_the_stack(folder: Path, sizes: list[int], times: int) -> Rows:
    """Asking for the threshold, appending and planning with longer and longer stacks."""
    flows = {size: filled(folder, f"c{size}", store_bytes=0, stack_chars=size) for size in sizes}
    rows = []

    def ask(workflow: Workflow) -> Callable[[int], Callable[[], object]]:
        return lambda number: workflow.over_threshold

    def append(workflow: Workflow) -> Callable[[int], Callable[[], object]]:
        return lambda number: lambda: workflow.append_round(round_of(number))

    def plan(workflow: Workflow) -> Callable[[int], Callable[[], object]]:
        return lambda number: workflow.plan

    for label, act, count in (
        ("is the stack over its threshold?", ask, times * 5),
        ("plan a transition", plan, max(5, times // 10)),
        ("append one exchange", append, times),
    ):
        found = interleaved({str(size): act(flows[size]) for size in sizes}, count)
        rows.append((label, {size: found[str(size)] for size in sizes}))
    for workflow in flows.values():
        workflow.close()
    return rows


def table(title: str, unit: Callable[[int], str], rows: Rows) -> str:
    sizes = list(rows[0][1])
    lines = [
        f"| {title} | " + " | ".join(unit(size) for size in sizes) + " | growth | bound | holds |",
        "| --- |" + " --- |" * (len(sizes) + 3),
    ]
    for label, figures in rows:
        growth = figures[sizes[-1]] / figures[sizes[0]]
        linear = sizes[-1] / sizes[0]
        bound = linear if label.startswith("plan") else GROWTH
        times = "× (linear)" if label.startswith("plan") else "×"
        shown = " | ".join(f"{figures[size]:,.0f} µs" for size in sizes)
        holds = "yes" if growth <= bound else "**no**"
        lines.append(f"| {label} | {shown} | {growth:.2f} | ≤ {bound:.4g} {times} | {holds} |")
    return "\n".join(lines)


def plot(unit: Callable[[int], str], rows: Rows) -> str:
    """The same as bars: what does not grow is a straight edge."""
    lines = ["```text"]
    for label, figures in rows:
        most = max(figures.values())
        lines.append(label)
        for size, figure in figures.items():
            bar = "#" * max(1, round(BAR_CHARS * figure / most))
            lines.append(f"  {unit(size):>14} {bar} {figure:,.0f} µs")
    return "\n".join([*lines, "```"])


def main() -> int:
    parser = argparse.ArgumentParser(description="growth of the cost of exchange stacks")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repetitions")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    args = parser.parse_args()
    times = 60 if args.quick else 300
    stores = [100_000, 1_000_000] if args.quick else [100_000, 1_000_000, 10_000_000, 30_000_000]
    stacks = [3_000, 30_000] if args.quick else [3_000, 30_000, 300_000]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        first = over_the_store(folder, stores, times)
        second = over_the_stack(folder, stacks, times)
    megabytes: Callable[[int], str] = lambda size: f"{size / 1e6:g} MB"  # noqa: E731
    chars: Callable[[int], str] = lambda size: f"{size:,} chars"  # noqa: E731
    text = "\n\n".join(
        (
            table("in a store of", megabytes, first),
            plot(megabytes, first),
            table("with a stack of", chars, second),
            plot(chars, second),
        )
    )
    print(text)
    if args.write:
        page = PAGE.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8", newline="\n")
    return 1 if "**no**" in text else 0


if __name__ == "__main__":
    sys.exit(main())
