"""Cost against size: rebuild, sync, recall, context, memory, disk, from 1,000 segments upwards.

    python tools/bench_growth.py                 10^3 to 10^5, prints the table
    python tools/bench_growth.py --largest 6     to 10^6 (an hour)
    python tools/bench_growth.py --write         also into docs/benchmarks.md and docs/growth.svg

Each size is built in a process of its own and asked in another one, so that peak memory is that of
the step alone. What one session may read is the same from 10,000 segments on (eight scopes of
1,000); what grows is what belongs to other sessions. The owner reads everything.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw

from h2ams import Memory

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench import ACCESS, AUTHORISED, SEED, Words, make_tree, percentile, questions, times

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- growth:begin -->", "<!-- growth:end -->"
SMALLEST = 3  # powers of ten
ASKED = 100  # questions after a warm-up
MIB = 1024 * 1024


# -- one size, in processes of its own -------------------------------------------------------------


def build(work: Path, segments: int) -> dict[str, float]:
    """Write the files, make the index, change one file: what writing costs."""
    root, state = work / "memory", work / "state"
    make_tree(root, segments, Words())
    with Memory.open(root, state=state) as memory:
        memory.tokens.count("load the encoder before the clock runs")
        rebuild = times(memory.rebuild, 1)[0]
        memory.sync()
        idle = [times(memory.sync, 1)[0] for _ in range(7)]
        changed = [_change(memory, root / AUTHORISED[0] / "memory.md") for _ in range(5)]
        count = memory.status().segments
    return {
        "segments": count,
        "scopes": sum(1 for _ in root.rglob("memory.md")),
        "files_mib": sum(each.stat().st_size for each in root.rglob("*.md")) / MIB,
        "rebuild_s": rebuild / 1000,
        "sync_idle_ms": statistics.median(idle),
        "sync_one_ms": statistics.median(changed),
        "build_peak_mib": _peak_mib(),
        "index_mib": (state / "index.db").stat().st_size / MIB,
    }


def _change(memory: Memory, path: Path) -> float:
    """Time of a sync after one segment was added by hand to a file of up to 1,000, in ms."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"\n---\nkind: fact\n---\nAdded by hand at {time.time_ns()}.\n")
    os.utime(path, ns=(time.time_ns(), time.time_ns() - 10**9))
    return times(lambda: memory.sync(), 1)[0]


def ask(work: Path) -> dict[str, float]:
    """What reading costs: a session's recall and context, the owner's recall."""
    asked = questions(Words(), ASKED)
    with Memory.open(work / "memory", state=work / "state") as memory:
        calls: dict[str, Callable[[str], object]] = {
            "recall": lambda q: memory.recall(q, access=ACCESS),
            "context": lambda q: memory.context(q, access=ACCESS, budget=1_500),
            "owner": memory.recall,
        }
        found: dict[str, float] = {}
        for name, call in calls.items():
            some = asked if name != "owner" else asked[:20]
            for query in some[:10]:
                call(query)
            taken = [times(lambda q=query, c=call: c(q), 1)[0] for query in some]
            found[f"{name}_p50_ms"] = statistics.median(taken)
            found[f"{name}_p95_ms"] = percentile(taken, 0.95)
            found[f"{name}_peak_mib"] = _peak_mib()
    return found


def _peak_mib() -> float:
    """Peak resident memory of this process until now."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MIB if sys.platform == "darwin" else peak / 1024


def measured(exponent: int, folder: str | None) -> dict[str, float]:
    """All figures of one size."""
    work = Path(tempfile.mkdtemp(prefix="h2ams-growth-", dir=folder))
    try:
        found: dict[str, float] = {}
        for step in ("build", "ask"):
            argv = [sys.executable, __file__, "--step", step, str(work), str(10**exponent)]
            done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
            found |= json.loads(done.stdout)
        return found
    finally:
        shutil.rmtree(work)


# -- table and plot --------------------------------------------------------------------------------

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("segments", "segments", ",.0f"),
    ("scopes", "scopes", ",.0f"),
    ("Markdown MiB", "files_mib", ",.1f"),
    ("index MiB", "index_mib", ",.1f"),
    ("rebuild s", "rebuild_s", ",.2f"),
    ("sync, nothing changed ms", "sync_idle_ms", ",.2f"),
    ("sync, one file changed ms", "sync_one_ms", ",.1f"),
    ("recall p50 ms", "recall_p50_ms", ",.2f"),
    ("recall p95 ms", "recall_p95_ms", ",.2f"),
    ("context p50 ms", "context_p50_ms", ",.2f"),
    ("owner's recall p50 ms", "owner_p50_ms", ",.1f"),
    ("peak MiB, rebuild", "build_peak_mib", ",.0f"),
    ("peak MiB, recall", "recall_peak_mib", ",.0f"),
    ("peak MiB, context", "context_peak_mib", ",.0f"),
)

SERIES: tuple[tuple[str, str, float, str], ...] = (  # label, figure, factor to ms, colour
    ("rebuild", "rebuild_s", 1000.0, "#b3261e"),
    ("sync, one file changed", "sync_one_ms", 1.0, "#e08a00"),
    ("sync, nothing changed", "sync_idle_ms", 1.0, "#7a7a00"),
    ("recall, everything (owner)", "owner_p50_ms", 1.0, "#6a3fb5"),
    ("context, one session", "context_p50_ms", 1.0, "#00796b"),
    ("recall, one session", "recall_p50_ms", 1.0, "#1565c0"),
)


def table(rows: Sequence[dict[str, float]]) -> str:
    lines = ["| " + " | ".join(title for title, _, _ in COLUMNS) + " |"]
    lines.append("| ---: " * len(COLUMNS) + "|")
    for row in rows:
        cells = [format(row[name], form) for _, name, form in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 40, 50  # margins


def plot(rows: Sequence[dict[str, float]]) -> str:
    """A log-log plot as SVG: milliseconds against segments."""
    sizes = [row["segments"] for row in rows]
    values = [row[name] * factor for row in rows for _, name, factor, _ in SERIES]
    x_low, x_high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)) - 0.01)
    y_low, y_high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(size: float) -> float:
        share = (math.log10(size) - x_low) / max(1, x_high - x_low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        share = (math.log10(value) - y_low) / max(1, y_high - y_low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 20, "Cost against size: milliseconds by number of segments"),
    ]
    for power in range(x_low, x_high + 1):
        parts.append(_line(x(10**power), TOP, x(10**power), HEIGHT - BOTTOM))
        parts.append(_text(x(10**power), HEIGHT - BOTTOM + 18, f"{10**power:,}", "middle"))
    for power in range(y_low, y_high + 1):
        parts.append(_line(LEFT, y(10.0**power), WIDTH - RIGHT, y(10.0**power)))
        parts.append(_text(LEFT - 8, y(10.0**power) + 4, _time(10.0**power), "end"))
    for _, name, factor, colour in SERIES:
        points = [(x(row["segments"]), y(row[name] * factor)) for row in rows]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
    parts += _labels(rows[-1], x, y)
    return "\n".join([*parts, "</svg>", ""])


def _labels(
    last: dict[str, float], x: Callable[[float], float], y: Callable[[float], float]
) -> list[str]:
    """Names of the series beside their last points, pushed apart where they would overlap."""
    ends = ((y(last[name] * factor), label, colour) for label, name, factor, colour in SERIES)
    made, floor = [], -math.inf
    for place, label, colour in sorted(ends):
        floor = max(place + 4, floor + 15)
        made.append(_text(x(last["segments"]) + 10, floor, label, fill=colour))
    return made


def _time(ms: float) -> str:
    return f"{ms:g} ms" if ms < 1_000 else f"{ms / 1_000:,.0f} s"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", fill: str = "#333333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{text}</text>'


def write(rows: Sequence[dict[str, float]], text: str) -> None:
    page = DOCS / "benchmarks.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
    (DOCS / "growth.svg").write_text(plot(rows), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--largest", type=int, default=5, help="power of ten of the last size")
    parser.add_argument("--write", action="store_true", help="into docs/")
    parser.add_argument("--folder", help="where the trees are made; default: temporary folder")
    parser.add_argument("--json", metavar="FILE", help="figures as JSON")
    parser.add_argument("--from-json", metavar="FILE", help="no measuring: figures of a past run")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.step:
        step, work, segments = options.step
        found = build(Path(work), int(segments)) if step == "build" else ask(Path(work))
        print(json.dumps(found))
        return 0
    rows: list[dict[str, Any]] = []
    if options.from_json:
        rows = json.loads(Path(options.from_json).read_text(encoding="utf-8"))
    else:
        for exponent in range(SMALLEST, options.largest + 1):
            rows.append(measured(exponent, options.folder))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(rows), encoding="utf-8")
    versions = f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    text = f"{table(rows)}\n\n{versions}, {os.cpu_count()} cores, seed {SEED}."
    print(text)
    if options.write:
        write(rows, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
