"""What is wrong in a memory folder, and the repairs that need no guess.

``doctor`` reports everything that reading found: in files, in folders, in the index. ``fix`` gives
an id of its own to a segment whose id another one (or the engine) has, and rebuilds an index that
is not what the files say. Both can be run again without a further change. Anything else is a
person's to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2ams.files import Changed, Root
from h2ams.memory import segment as segments
from h2ams.memory.merge import unified_diff
from h2ams.memory.scope import Scope
from h2ams.memory.segment import Document, Problem

if TYPE_CHECKING:
    from h2ams.memory.store import Store

ID_CODES = frozenset({"duplicate-id", "reserved-id"})
INDEX_CODES = frozenset({"index-damaged", "index-differs", "index-sums", "vectors-differ"})
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Fixed:
    """One repair: what it mended and how."""

    path: str
    line: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """``problems`` are those left, notices included; ``diff`` what the repairs change in files."""

    problems: tuple[Problem, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    diff: str = ""


def doctor(
    root: Root,
    store: Store,
    problems: Iterable[Problem],
    scope_of: Callable[[str], Scope | None],
    rebuild: Callable[[], object],
    *,
    fix: bool,
    dry_run: bool,
) -> DoctorReport:
    """Repair what ``problems`` says is fixable, where ``fix`` is set.

    ``scope_of`` gives the scope of a file's path; ``rebuild`` makes the index anew. With
    ``dry_run`` nothing is written and ``fixed`` tells what would be.
    """
    found = list(dict.fromkeys(problems))
    if not fix:
        return DoctorReport(tuple(found))
    left: list[Problem] = []
    fixed: list[Fixed] = []
    diffs: list[str] = []
    if any(each.code in INDEX_CODES for each in found):
        if not dry_run:
            rebuild()
        fixed.append(Fixed("", 0, "index-rebuilt", "the index was made anew from the files"))
    for path in sorted({each.path for each in found if each.code in ID_CODES}):
        scope = scope_of(path)
        if scope is None:
            continue
        mended, diff = _new_ids(root, store, scope, path, dry_run=dry_run)
        fixed += mended
        diffs.append(diff)
    mended_paths = {each.path for each in fixed if each.path}
    for each in found:
        if each.code in INDEX_CODES:
            continue
        if each.code not in ID_CODES or each.path not in mended_paths:
            left.append(each)
    return DoctorReport(tuple(left), tuple(fixed), "".join(diffs))


def _new_ids(
    root: Root, store: Store, scope: Scope, path: str, *, dry_run: bool
) -> tuple[list[Fixed], str]:
    """Give every segment of ``path`` that shares an id with an earlier one an id of its own."""
    for _ in range(_TRIES):
        with store.lock(scope):
            state = root.read(path)
            if state is None:
                return [], ""
            data, fixed = _with_new_ids(state.data, scope, path)
            if not fixed:
                return [], ""
            if not dry_run:
                try:
                    root.replace(path, data, expect=state)
                except Changed:
                    continue  # somebody saved meanwhile: look again
            return fixed, unified_diff(state.data, data, path)
    return [], ""


def _with_new_ids(data: bytes, scope: Scope, path: str) -> tuple[bytes, list[Fixed]]:
    fixed: list[Fixed] = []
    while True:
        document = segments.parse(data)
        place = _with_a_borrowed_address(document)
        if place is None or document.read_only:
            return data, fixed
        entry = document.entries[place]
        taken = {each.address_id for each in document.entries}
        value = entry.segment
        id = segments.new_id(scope.text, value.kind, value.body, taken)
        data = segments.replace(document, place, replace(value, id=id))
        message = f"{entry.address_id} is {id} now"
        fixed.append(Fixed(path, entry.line, "new-id", message))


def _with_a_borrowed_address(document: Document) -> int | None:
    """The first entry that is not addressed by its own id: another one has it, or the engine."""
    for place, entry in enumerate(document.entries):
        id = entry.segment.id
        if id and id != entry.address_id and not entry.read_only:
            return place
    return None
