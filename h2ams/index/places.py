"""Where a segment stands among the others of its file, packed for the ranking (Pure).

Two 64-bit numbers a segment, kept in blocks beside the rows. *Figures*: length of its own text,
day, length with its context, cues. *Place*: number of the run that it belongs to and its ordinal
there, so that the segments before and behind it are the places one lower and one higher. A run is
what follows each other in one file on one day; nothing else is context for each other.

Places follow the order of the file, whatever order rows were written in: an index that was synced
after each of many edits ranks like one made anew. The number of a run is the local place of its
first row: it tells runs apart and means nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

MAX_LENGTH = 65_535
PLACE_BITS = 40  # of a whole place
ORDINAL_BITS = 20
_FIRST_ORDINAL = 16  # so that no step back reaches the run before
DAY_BIT, CONTEXT_BIT, CUES_BIT = 16, 32, 48
_16 = 0xFFFF
_CUES = 0xFF

# What the segments around add to the length of one in the ranking; one without such a neighbour
# counts its own length twice, so that standing alone is no advantage.
BEFORE, BEHIND = 1.25, 0.2
LONGER = 1 + BEFORE + BEHIND  # times longer, on average, with context


def figures(length: int, day: int, cues: int) -> int:
    """Packed figures of a segment by itself."""
    packed = length | day << DAY_BIT | cues << CUES_BIT
    return with_context(packed, LONGER * length)


def with_context(packed: int, length: float) -> int:
    """``packed`` with another length with context."""
    kept = packed & ~(_16 << CONTEXT_BIT)
    return kept | min(int(length), MAX_LENGTH) << CONTEXT_BIT


def length_of(packed: int) -> int:
    return packed & _16


def day_of(packed: int) -> int:
    return packed >> DAY_BIT & _16


def context_length_of(packed: int) -> int:
    return packed >> CONTEXT_BIT & _16


def cues_of(packed: int) -> int:
    return packed >> CUES_BIT & _CUES


def arranged(
    rows: Sequence[tuple[int, str]], figures: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """(rowid, place, length with context) of a file's ``rows``: (rowid, name of the run)."""
    run = ordinal = 0
    for at, (rowid, name) in enumerate(rows):
        own = length_of(figures[at])
        first = at == 0 or rows[at - 1][1] != name
        last = at + 1 == len(rows) or rows[at + 1][1] != name
        if first:
            run, ordinal = rowid & ((1 << ORDINAL_BITS) - 1), _FIRST_ORDINAL
        else:
            ordinal += 1
        before = own if first else length_of(figures[at - 1])
        behind = own if last else length_of(figures[at + 1])
        yield rowid, run << ORDINAL_BITS | ordinal, own + BEFORE * before + BEHIND * behind
