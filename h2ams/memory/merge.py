"""Three-way merge of one segment, and the unified diff of one edited file (Pure).

A file is merged by segment for free: every edit is applied to the bytes that are on disk now, so
only the *same* segment can be touched from two sides. Then each value is merged on its own: what
one side alone changed is taken, tags and source ids are merged as sets. Two different new bodies
(or kinds) are never mixed: the text on disk stays where it is, the other one is the loser, which
the store keeps as a new segment tagged ``conflict``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from h2ams.memory.segment import Segment

CONFLICT_TAG = "conflict"
_CONTEXT_LINES = 3
_DIFF_LINES = 4_000  # a longer changed region is shown as replaced: difflib would take seconds


@dataclass(frozen=True, slots=True)
class Merged:
    """``segment`` goes to the place of the disk's one; ``loser`` (if any) becomes a new segment."""

    segment: Segment
    loser: Segment | None = None


def merge_segment(base: Segment, ours: Segment, theirs: Segment) -> Merged:
    """Merge ``ours`` (the caller's, made from ``base``) into ``theirs`` (what is on disk now).

    Id, scope and times are those of ``theirs``: the caller dates the result. Without a conflict
    ``loser`` is None. With one, ``segment`` is ``theirs`` untouched and ``loser`` is ``ours``
    with the tag ``conflict`` and without an id.
    """
    body = _one_side(base.body, ours.body, theirs.body)
    kind = _one_side(base.kind, ours.kind, theirs.kind)
    if body is None or kind is None:
        tags = ours.tags if CONFLICT_TAG in ours.tags else (*ours.tags, CONFLICT_TAG)
        return Merged(theirs, replace(ours, id="", tags=tags))
    return Merged(
        replace(
            theirs,
            body=body,
            kind=kind,
            tags=_both_sides(base.tags, ours.tags, theirs.tags),
            source_messages=_both_sides(
                base.source_messages, ours.source_messages, theirs.source_messages
            ),
        )
    )


def _one_side(base: str, ours: str, theirs: str) -> str | None:
    """The value of the side that changed it; None where both did, differently."""
    if ours in (theirs, base):
        return theirs
    return ours if theirs == base else None


def _both_sides(
    base: tuple[str, ...], ours: tuple[str, ...], theirs: tuple[str, ...]
) -> tuple[str, ...]:
    """Theirs without what ours took out, then what ours added, each in its own order."""
    if theirs == base:
        return ours
    dropped = set(base) - set(ours)
    kept = tuple(item for item in theirs if item not in dropped)
    return kept + tuple(item for item in ours if item not in base and item not in kept)


def common_prefix(left: bytes, right: bytes) -> int:
    """Length in bytes of what both begin with; logarithmic in Python steps."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(left: bytes, right: bytes, limit: int) -> int:
    """Length in bytes of what both end with, at most ``limit``."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        if (
            left[len(left) - middle : len(left) - low]
            == right[len(right) - middle : len(right) - low]
        ):
            low = middle
        else:
            high = middle - 1
    return low


def unified_diff(before: bytes | None, after: bytes | None, path: str) -> str:
    """The unified diff of one file, headers ``a/<path>`` and ``b/<path>``; "" where equal.

    ``None`` is "no file" (``/dev/null``). Bytes that are not UTF-8 are shown replaced. The cost
    follows the changed region, not the file.
    """
    old, new = before or b"", after or b""
    if old == new and (before is None) == (after is None):
        return ""
    heads = [
        "--- /dev/null\n" if before is None else f"--- a/{path}\n",
        "+++ /dev/null\n" if after is None else f"+++ b/{path}\n",
    ]
    prefix = common_prefix(old, new)
    suffix = common_suffix(old, new, min(len(old), len(new)) - prefix)
    start = _lines_back(old, prefix, _CONTEXT_LINES)
    before_lines = _region(old, start, len(old) - suffix)
    after_lines = _region(new, start, len(new) - suffix)
    return "".join(heads + _hunks(before_lines, after_lines, old.count(b"\n", 0, start)))


def _lines_back(data: bytes, offset: int, count: int) -> int:
    """Where the line ``count`` lines above the line that holds ``offset`` begins."""
    start = data.rfind(b"\n", 0, offset) + 1
    for _ in range(count):
        if start == 0:
            return 0
        start = data.rfind(b"\n", 0, start - 1) + 1
    return start


def _region(data: bytes, start: int, end: int) -> list[str]:
    """The lines from ``start`` to the line that holds ``end``, with the context lines behind it."""
    for _ in range(_CONTEXT_LINES + 1):
        found = data.find(b"\n", end)
        end = len(data) if found < 0 else found + 1
    text = data[start:end].decode("utf-8", "replace")
    lines = text.split("\n")
    kept = [line + "\n" for line in lines[:-1]]
    return [*kept, lines[-1] + "\n\\ No newline at end of file\n"] if lines[-1] else kept


def _hunks(old: Sequence[str], new: Sequence[str], offset: int) -> list[str]:
    """Unified hunks of two regions that both begin after ``offset`` lines of their files."""
    if len(old) + len(new) > _DIFF_LINES:
        groups = [[("replace", 0, len(old), 0, len(new))]]
    else:
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        groups = [list(group) for group in matcher.get_grouped_opcodes(_CONTEXT_LINES)]
    out: list[str] = []
    for group in groups:
        (_, old_from, _, new_from, _), (_, _, old_to, _, new_to) = group[0], group[-1]
        out.append(
            f"@@ -{_range(old_from, old_to, offset)} +{_range(new_from, new_to, offset)} @@\n"
        )
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out.extend(" " + line for line in old[i1:i2])
                continue
            out.extend("-" + line for line in old[i1:i2])
            out.extend("+" + line for line in new[j1:j2])
    return out


def _range(first: int, last: int, offset: int) -> str:
    """``first``..``last`` (half open, 0-based in the region) as a hunk header writes it."""
    count = last - first
    begin = offset + first + (1 if count else 0)
    return f"{begin}" if count == 1 else f"{begin},{count}"
