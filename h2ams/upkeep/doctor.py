"""What is wrong in a memory folder, and the repairs that need no guess.

``doctor`` reports everything that reading found: in files, in folders, in the index, among the
engine's own files. ``fix`` gives an id of its own to each segment whose id another one (or the
engine) has, clears what killed writers left, closes state files to others, and rebuilds an index
that is not what the files say. Each file is read once, its diff is shown before it is written, and
a second run changes no byte. Anything else is a person's to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from h2ams.errors import LimitError, ReadOnlyError
from h2ams.files import Changed, FileState, Root
from h2ams.memory import segment as segments
from h2ams.memory.merge import unified_diff
from h2ams.memory.scope import Scope
from h2ams.memory.segment import Document, Problem, Segment

if TYPE_CHECKING:
    from h2ams.memory.store import Store

ID_CODES = frozenset({"duplicate-id", "reserved-id"})
INDEX_CODES = frozenset({"index-damaged", "index-differs", "index-sums", "vectors-differ"})
LEFTOVER, OPEN_STATE = "leftover", "state-open"
_TRIES = 5

Show = Callable[[str], object]


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
    show: Show | None = None,
) -> DoctorReport:
    """Repair what ``problems`` and the engine's own files need, where ``fix`` is set.

    ``scope_of`` gives the scope of a file's path; ``rebuild`` makes the index anew; ``show`` gets
    the diff of each file before it is written. With ``dry_run`` nothing is written and ``fixed``
    tells what would be.
    """
    found = list(dict.fromkeys((*problems, *_own_problems(root, store, scope_of))))
    if not fix:
        return DoctorReport(tuple(found))
    fixed: list[Fixed] = []
    diffs: list[str] = []
    for path in sorted({each.path for each in found if each.code in ID_CODES}):
        scope = scope_of(path)
        if scope is not None:
            mended, diff = _new_ids(root, store, scope, path, show, dry_run=dry_run)
            fixed += mended
            diffs.append(diff)
    fixed += _own_repairs(root, store, found, scope_of, dry_run=dry_run)
    if any(each.code in INDEX_CODES for each in found):
        if not dry_run:
            rebuild()
        fixed.append(Fixed("", 0, "index-rebuilt", "the index was made anew from the files"))
    places = {(each.path, each.line) for each in fixed}
    left = (each for each in found if each.code not in INDEX_CODES)
    mendable = ID_CODES | {LEFTOVER, OPEN_STATE}
    remaining = (x for x in left if x.code not in mendable or (x.path, x.line) not in places)
    return DoctorReport(tuple(remaining), tuple(fixed), "".join(diffs))


# -- ids -------------------------------------------------------------------------------------------


def _new_ids(
    root: Root, store: Store, scope: Scope, path: str, show: Show | None, *, dry_run: bool
) -> tuple[list[Fixed], str]:
    """Give every segment of ``path`` that shares an id with an earlier one an id of its own."""
    for _ in range(_TRIES):
        with store.lock(scope):
            state = root.read(path, settled=not dry_run)
            if state is None:
                return [], ""
            data, fixed = with_own_ids(state.data, scope, path)
            diff = unified_diff(state.data, data, path)
            if not fixed or dry_run or _written(root, path, state, data, diff, show):
                return fixed, diff
    return [], ""


def _written(
    root: Root, path: str, state: FileState, data: bytes, diff: str, show: Show | None
) -> bool:
    if show is not None:
        show(diff)
    try:
        root.replace(path, data, expect=state)
    except Changed:
        return False  # somebody saved meanwhile: look again
    return True


def with_own_ids(data: bytes, scope: Scope, path: str) -> tuple[bytes, list[Fixed]]:
    """The file with no borrowed address left, as far as its headers may be rewritten.

    It is parsed once, however many segments are given an id.
    """
    document = segments.parse(data)
    if document.read_only:
        return data, []
    texts: dict[int, str] = {}
    fixed: list[Fixed] = []
    ids = _FreshIds(scope, document)
    for place, entry in enumerate(document.entries):
        if entry.segment.id in ("", entry.address_id) or entry.read_only:
            continue
        changed = replace(entry.segment, id=ids.next(entry.segment))
        try:
            texts[place] = segments.rewritten(document, place, changed)
        except (ReadOnlyError, LimitError):  # a header that only a person can change
            continue
        message = f"{entry.address_id} is {changed.id} now"
        fixed.append(Fixed(path, entry.line, "new-id", message))
    return segments.spliced(document, texts), fixed


class _FreshIds:
    """Ids that no segment of a file has, without trying the suffixes that were given before."""

    def __init__(self, scope: Scope, document: Document) -> None:
        self._scope = scope.text
        entries = document.entries
        self._taken = {id for each in entries for id in (each.address_id, each.segment.id)}
        self._counts: dict[str, int] = {}

    def next(self, value: Segment) -> str:
        name = first = segments.new_id(self._scope, value.kind, value.body, ())
        count = self._counts.get(first, 1)
        while name in self._taken:
            count += 1
            name = f"{first}-{count}"
        self._counts[first] = count
        self._taken.add(name)
        return name


# -- the engine's own files ------------------------------------------------------------------------


def _own_problems(
    root: Root, store: Store, scope_of: Callable[[str], Scope | None]
) -> list[Problem]:
    """Leftovers of killed writers, state files that others may read, records that nobody can."""
    problems = []
    for folder in root.folders_with_leftovers():
        scope = scope_of(f"{folder}/x")
        if scope is None:
            continue
        with store.lock(scope):  # no writer of this scope is alive: what is there is left over
            problems += [
                Problem(LEFTOVER, "left by a writer that died", 0, path, fixable=True)
                for path in root.leftovers(folder)
            ]
    for path in root.open_state():
        text = "others than its owner may read it"
        problems.append(Problem(OPEN_STATE, text, 0, path, fixable=True))
    from h2ams.upkeep.own_records import unreadable_records

    return [*problems, *unreadable_records(root)]


def _own_repairs(
    root: Root,
    store: Store,
    found: Iterable[Problem],
    scope_of: Callable[[str], Scope | None],
    *,
    dry_run: bool,
) -> list[Fixed]:
    fixed = []
    for each in found:
        if each.code == OPEN_STATE:
            if not dry_run:
                root.close_state(each.path)
            fixed.append(Fixed(each.path, 0, "state-closed", "it is its owner's alone now"))
        elif each.code == LEFTOVER:
            folder = each.path.rpartition("/")[0]
            scope = scope_of(each.path)
            if scope is not None and not dry_run:
                with store.lock(scope):
                    root.sweep_temps(folder)
            fixed.append(Fixed(each.path, 0, "cleared", "a hand edit in it is kept, visibly"))
    return fixed
