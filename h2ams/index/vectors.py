"""One vector per segment, in the index's own database (Derived, optional).

A segment's vector is that of its heading and body, with a share of the segments before and behind
it in the same file, rounded to 8 bits. It is kept under a *key* made of the digests of them all:
where the key differs, the vector is made anew. So the table follows the rows however they changed,
and any history of syncs ends in what a rebuild gives. With the setting off, or another encoder, the
table is emptied at the next sync: nothing of a deleted text stays behind in it.

A search reads the vectors of the authorised rowid ranges only. No figure in it comes from stored
texts at all, so that nothing can depend on foreign ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from h2ams import sqlite
from h2ams.index import schema
from h2ams.index.encoder import Encoder, Question, unit
from h2ams.memory.values import Problem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from h2ams.index.encoder import Matrix

# Of neighbours, by distance in the file; measured: docs/decisions/0022.
SHARES = {-3: 0.2, -2: 0.3, -1: 0.5, 1: 0.3, 2: 0.2, 3: 0.15}
META = "vectors"  # in `meta`: the version of the encoder that made the whole table
ENCODED_TOGETHER = 2_000  # segments whose texts are in memory at the same time
SCANNED_TOGETHER = 8_192  # vectors that are multiplied at the same time
ASKED_SCALE = 320  # sums of 400 products with 127 stay below 2**24: exact in 32-bit floats
ROUNDING = 1  # a component may differ by so much after another build of the library made it
_NONE = "0" * 16

_TABLE = """
CREATE TABLE IF NOT EXISTS vectors (
    rowid INTEGER PRIMARY KEY, key BLOB NOT NULL, vector BLOB NOT NULL
)
"""


class Encodes(Protocol):
    """What makes vectors of texts: rows of length 1, the same for the same text."""

    version: str
    trust: float  # what its cosines are worth against those of the static vectors

    def encode(self, texts: Sequence[str], /) -> Matrix: ...

    def encode_question(self, question: Question, /) -> Matrix: ...


class Vectors:
    """The table and its encoder. Every method works inside the caller's transaction."""

    def __init__(self, encoder: Encodes | None = None) -> None:
        self.encoder = encoder or Encoder()

    # -- keeping up ------------------------------------------------------------------------------

    def is_complete(self, connection: sqlite.Connection) -> bool:
        """Whether every segment has had its vector, by this version of the encoder."""
        return made_by(connection) == self.encoder.version

    def complete(self, connection: sqlite.Connection) -> None:
        """Make every vector that is missing: the setting was switched on, or the version changed.

        Needs a write transaction, as ``update`` does.
        """
        if made_by(connection) not in ("", self.encoder.version):
            clear(connection)
        connection.execute(_TABLE)
        numbers = [no for (no,) in sqlite.rows(connection, "SELECT no FROM scopes")]
        self.update(connection, numbers)
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES (?, ?)", (META, self.encoder.version)
        )

    def update(self, connection: sqlite.Connection, numbers: Iterable[int]) -> None:
        """Make the vectors of the scopes with these numbers what their segments say now."""
        for number in numbers:
            bounds = schema.rowid_range(number)
            wanted = _keys(connection, bounds)
            known = dict(
                sqlite.rows(
                    connection,
                    "SELECT rowid, key FROM vectors WHERE rowid BETWEEN ? AND ?",
                    bounds,
                )
            )
            gone = [(rowid,) for rowid in known if rowid not in wanted]
            if gone:
                connection.executemany("DELETE FROM vectors WHERE rowid = ?", gone)
            changed = [rowid for rowid, (key, *_) in wanted.items() if known.get(rowid) != key]
            for rowid, vector in self._made(connection, wanted, changed):
                connection.execute(
                    "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                    (rowid, wanted[rowid][0], vector),
                )

    def _made(
        self, connection: sqlite.Connection, keys: dict[int, _Key], rowids: Sequence[int]
    ) -> Iterator[tuple[int, bytes]]:
        """(rowid, blob) of the vectors of ``rowids``, which are among ``keys``."""
        for start in range(0, len(rowids), ENCODED_TOGETHER):
            some = rowids[start : start + ENCODED_TOGETHER]
            needed = {each for rowid in some for each in (rowid, *keys[rowid][1].values())}
            texts = sqlite.rows(
                connection,
                "SELECT rowid, heading || char(10) || body FROM memory_segments"
                " WHERE rowid IN carray(?)",
                (sqlite.integers(needed),),
            )
            encoded = self.encoder.encode([text for _, text in texts])
            places = {rowid: place for place, (rowid, _) in enumerate(texts)}
            mixed = encoded[[places[rowid] for rowid in some]]
            for row, rowid in enumerate(some):
                for distance, neighbour in keys[rowid][1].items():
                    mixed[row] += SHARES[distance] * encoded[places[neighbour]]
            yield from zip(some, _rounded(unit(mixed)), strict=True)

    # -- asking ----------------------------------------------------------------------------------

    def likeness(
        self,
        connection: sqlite.Connection,
        question: Question,
        ranges: Sequence[tuple[int, int]],
        rowids: Iterable[int] = (),
        best: int = 0,
    ) -> dict[int, float]:
        """Cosines from -1 to 1 with the question: of ``rowids``, and of the ``best`` in ``ranges``.

        Ties are broken by nothing that is seen from outside: all of the last place come along.
        """
        import numpy as np

        asked = _asked(self.encoder.encode_question(question))
        wanted = sorted(set(rowids))
        found: dict[int, float] = {}
        if best:
            numbers, cosines = self._scan(connection, asked, ranges)
            if len(numbers) > best:
                least = np.partition(cosines, -best)[-best]
                chosen = np.flatnonzero(cosines >= least)
            else:
                chosen = np.arange(len(numbers))
            found = dict(
                zip(numbers[chosen].tolist(), cosines[chosen].astype(float).tolist(), strict=True)
            )
            wanted = [rowid for rowid in wanted if rowid not in found]
        if wanted:
            rows = sqlite.rows(
                connection,
                "SELECT rowid, vector FROM vectors WHERE rowid IN carray(?)",
                (sqlite.integers(wanted),),
            )
            cosines = _cosines([vector for _, vector in rows], asked)
            found |= dict(zip((rowid for rowid, _ in rows), cosines.tolist(), strict=True))
        return {rowid: round(value, 6) for rowid, value in found.items()}

    @staticmethod
    def _scan(
        connection: sqlite.Connection, asked: Matrix, ranges: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.int64], Matrix]:
        """Rowids and cosines of all vectors in ``ranges``."""
        import numpy as np

        numbers: list[int] = []
        parts: list[Matrix] = []
        for bounds in ranges:
            rows = sqlite.rows(
                connection, "SELECT rowid, vector FROM vectors WHERE rowid BETWEEN ? AND ?", bounds
            )
            numbers += [rowid for rowid, _ in rows]
            parts.append(_cosines([vector for _, vector in rows], asked))
        joined = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        return np.array(numbers, np.int64), joined

    # -- checking --------------------------------------------------------------------------------

    def problems(self, connection: sqlite.Connection) -> list[Problem]:
        """What in the table differs from the segments: missing, left over, stale, tampered."""
        import numpy as np

        if not self.is_complete(connection):
            return []  # made at the next sync
        missing, left, wrong = 0, sqlite.value(connection, "SELECT count(*) FROM vectors"), 0
        for (number,) in sqlite.rows(connection, "SELECT no FROM scopes"):
            bounds = schema.rowid_range(number)
            wanted = _keys(connection, bounds)
            stored = {
                rowid: (key, vector)
                for rowid, key, vector in sqlite.rows(
                    connection, "SELECT * FROM vectors WHERE rowid BETWEEN ? AND ?", bounds
                )
            }
            known = [rowid for rowid in wanted if rowid in stored]
            left -= len(known)
            missing += len(wanted) - len(known)
            for rowid, vector in self._made(connection, wanted, known):
                key, kept = stored[rowid]
                same = key == wanted[rowid][0] and len(kept) == len(vector)
                if not same or np.abs(_whole(kept) - _whole(vector)).max() > ROUNDING:
                    wrong += 1
        counts = ((missing, "missing"), (left, "left over"), (wrong, "not of their segment"))
        return [
            Problem("vectors-differ", f"{count} vectors are {what}", 0, fixable=True)
            for count, what in counts
            if count
        ]


def keep(index: schema.Index, vectors: Vectors | None) -> None:
    """Make the table where it is wanted and not whole, take it away where it is not wanted."""
    made = made_by(index.connection)
    if made and vectors is None:
        with index.writing() as connection:
            clear(connection)
    elif vectors is not None and made != vectors.encoder.version:
        with index.writing() as connection:
            vectors.complete(connection)


@contextlib.contextmanager
def following(
    connection: sqlite.Connection, vectors: Vectors | None, scopes: Collection[str]
) -> Iterator[None]:
    """Around writes to the segments of ``scopes``: their vectors are brought up to date behind.

    With ``vectors`` None, those of an earlier time would become stale: the table is taken away.
    """
    if vectors is None:
        clear(connection)
    if vectors is None or not vectors.is_complete(connection):
        yield
        return
    numbers = _numbers(connection, scopes)  # a scope that loses its last segment loses its number
    yield
    vectors.update(connection, sorted(numbers | _numbers(connection, scopes)))


def _numbers(connection: sqlite.Connection, scopes: Collection[str]) -> set[int]:
    rows = sqlite.rows(
        connection, "SELECT no FROM scopes WHERE name IN carray(?)", (sqlite.texts(scopes),)
    )
    return {number for (number,) in rows}


def made_by(connection: sqlite.Connection) -> str:
    """The version of the encoder that made the table; empty where there is none."""
    return sqlite.value(connection, "SELECT value FROM meta WHERE key = ?", (META,)) or ""


def clear(connection: sqlite.Connection) -> None:
    """Take the table away (overwritten, as all that is deleted); needs a write transaction."""
    connection.execute("DROP TABLE IF EXISTS vectors")
    connection.execute("DELETE FROM meta WHERE key = ?", (META,))


_Key = tuple[bytes, dict[int, int]]  # key; rowids of the neighbours that there are, by distance


def _keys(connection: sqlite.Connection, bounds: tuple[int, int]) -> dict[int, _Key]:
    """What each segment's vector is made of, by rowid. Neighbours stand in the same file."""
    rows = sqlite.rows(
        connection,
        "SELECT rowid, file, digest FROM memory_segments WHERE rowid BETWEEN ? AND ?"
        " ORDER BY file, line, id",
        bounds,
    )
    keys: dict[int, _Key] = {}
    for place, (rowid, file, digest) in enumerate(rows):
        neighbours, parts = {}, [digest[:16]]
        for distance in SHARES:
            other = place + distance
            inside = 0 <= other < len(rows) and rows[other][1] == file
            parts.append(rows[other][2][:16] if inside else _NONE)
            if inside:
                neighbours[distance] = rows[other][0]
        keys[rowid] = (bytes.fromhex("".join(parts)), neighbours)
    return keys


def _rounded(rows: Matrix) -> list[bytes]:
    """Rows as 8-bit blobs; the largest component of each becomes 127."""
    import numpy as np

    largest = np.abs(rows).max(axis=1, keepdims=True)
    largest[largest == 0] = 1
    return [row.tobytes() for row in np.rint(rows / largest * 127).astype(np.int8)]


def _whole(blob: bytes) -> NDArray[np.int16]:
    import numpy as np

    return np.frombuffer(blob, np.int8).astype(np.int16)


def _asked(vector: Matrix) -> Matrix:
    """``vector`` in whole numbers: then no sum depends on the order in which it is added up."""
    import numpy as np

    largest = float(np.abs(vector).max()) or 1.0
    scaled: Matrix = np.rint(vector / largest * ASKED_SCALE).astype(np.float32)
    return scaled


def _cosines(blobs: Sequence[bytes], asked: Matrix) -> Matrix:
    """Cosine of each blob with ``asked`` (whole numbers); 0 for a text without words."""
    import numpy as np

    found = np.zeros(len(blobs), np.float32)
    length = float(np.sqrt((asked.astype(np.float64) ** 2).sum())) or 1.0
    for start in range(0, len(blobs), SCANNED_TOGETHER):
        some = blobs[start : start + SCANNED_TOGETHER]
        whole = np.frombuffer(b"".join(some), np.int8).reshape(len(some), len(asked))
        rows = whole.astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        lengths[lengths == 0] = 1
        found[start : start + len(some)] = (rows @ asked) / lengths / length
    return found
