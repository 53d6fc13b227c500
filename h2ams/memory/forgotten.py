"""What the store keeps beside the files so that no text is lost: undo records, conflict copies.

Truth until purged, though never read by recall: both hold memory text, so they live in the state
folder (files 0600), and ``purge`` removes them for one address or for a whole scope. One undo
record per address: forgetting an address again replaces it. File names hold digests only; what
belongs to a scope is found by the digest of its name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as with_values

from h2ams.errors import ConflictError, StoreError
from h2ams.files import Root
from h2ams.memory.merge import common_prefix, common_suffix
from h2ams.memory.scope import Scope
from h2ams.memory.segment import Document, Segment, append, parse, render, serialize
from h2ams.settings import Settings

UNDO = "forgotten"
CONFLICTS = "conflicts"
# What Dream keeps with memory text in it (``dream/journal``): undo records of this scope, and the
# plans and debug files of any thread.
_DREAM_OF_SCOPE = "dream/undo"
_DREAM_OF_ALL = ("dream/plans", "dream/debug")
_VERSION = 1
_FILES = ("memory.md", "archive.md")  # that a segment is cut from


@dataclass(frozen=True, slots=True)
class Part:
    """One place that an entry was cut from.

    ``path`` is relative to the root. At byte ``offset``, ``cut`` was replaced by ``left`` (mostly
    nothing): that turned the file with digest ``before`` into the one with digest ``after``.
    ``raw`` is the entry itself, ``follower`` the address id of the entry behind it or "".
    Texts are UTF-8 with surrogate escapes, so that any bytes survive.
    """

    path: str
    raw: str
    offset: int
    cut: str
    left: str
    before: str
    after: str
    follower: str = ""


@dataclass(frozen=True, slots=True)
class Cut:
    """One file that an entry was to be cut from; ``part`` None: it was gone already."""

    path: str
    part: Part | None = None
    diff: str = ""


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """One forgotten address with everything that is needed to bring it back byte for byte."""

    scope: str
    id: str
    removed_at: str
    parts: tuple[Part, ...]


class Keep:
    """The undo records and conflict copies of one root."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def save(self, record: UndoRecord) -> None:
        """Write the record durably; it replaces an older one of the same address."""
        value = {
            "version": _VERSION,
            "scope": record.scope,
            "id": record.id,
            "removedAt": record.removed_at,
            "parts": [
                {
                    "path": part.path,
                    "raw": part.raw,
                    "offset": part.offset,
                    "cut": part.cut,
                    "left": part.left,
                    "before": part.before,
                    "after": part.after,
                    "follower": part.follower,
                }
                for part in record.parts
            ],
        }
        # ASCII: lone surrogates (escaped bytes) survive as \udcxx and nothing else could hold them.
        data = json.dumps(value, ensure_ascii=True, indent=1).encode("ascii")
        name = _undo_name(record.scope, record.id)
        self._unlink(leftover for leftover in self._names(name) if leftover != name)
        self._root.write_state(name, data)

    def load(self, scope: Scope, id: str) -> UndoRecord | None:
        """The record of an address; None where it was never forgotten or has been purged."""
        name = _undo_name(scope.text, id)
        data = self._root.read_state(name)
        return None if data is None else record_of(data, name)

    def records(self, scope: Scope) -> tuple[UndoRecord, ...]:
        """What can be brought back in ``scope``, by id."""
        found = []
        for name in self._names(f"{UNDO}/{key_of(scope.text)}-"):
            data = self._root.read_state(name) if name.endswith(".json") else None
            if data is not None:
                found.append(record_of(data, name))
        return tuple(sorted(found, key=lambda record: record.id))

    def drop(self, scope: Scope, id: str) -> None:
        """Remove the undo record of one address, if there is one."""
        self._unlink(self._names(_undo_name(scope.text, id)))

    def keep_conflict(self, scope: Scope, made: Segment) -> str:
        """Keep the text of a refused write; its absolute path. Equal text is kept once.

        The copy holds the segment as it would have stood in the file.
        """
        text = serialize([made])
        name = f"{CONFLICTS}/{key_of(scope.text)}-{key_of(made.id)}-{_sha256(text)[:16]}.md"
        self._root.write_state(name, text)
        return self._root.state_path(name)

    def count(self, scope: Scope, id: str | None = None) -> int:
        """How many files are kept of one address, or of the whole scope."""
        return len(self._kept(scope, id))

    def purge(self, scope: Scope, id: str | None = None) -> int:
        """Remove what is kept of one address, or of the whole scope; how many files that was.

        Leftovers of writers that were killed count too. Call it under the scope's lock. What Dream
        keeps goes too, and does not count: its files hold more than one segment.
        """
        self._unlink(self._names(f"{_DREAM_OF_SCOPE}/{key_of(scope.text)}-"))
        self._unlink(name for folder in _DREAM_OF_ALL for name in self._names(f"{folder}/"))
        return self._unlink(self._kept(scope, id))

    def _kept(self, scope: Scope, id: str | None) -> list[str]:
        prefix = f"{key_of(scope.text)}-" + ("" if id is None else key_of(id))
        return [*self._names(f"{UNDO}/{prefix}"), *self._names(f"{CONFLICTS}/{prefix}")]

    def _names(self, prefix: str) -> list[str]:
        """State names that begin with ``prefix``, and temporaries for such names."""
        folder, _, start = prefix.rpartition("/")
        try:
            names = sorted(os.listdir(os.path.join(self._root.state, folder)))
        except FileNotFoundError:
            return []
        return [f"{folder}/{name}" for name in names if name.removeprefix(".").startswith(start)]

    def _unlink(self, names: Iterable[str]) -> int:
        """Remove state files for good: what was purged does not come back after a power cut."""
        paths = [os.path.join(self._root.state, name) for name in names]
        try:
            for path in paths:
                os.unlink(path)
            for folder in {os.path.dirname(path) for path in paths}:
                _sync_folder(folder)
        except OSError as error:
            raise StoreError(
                f"cannot remove {error.filename}: {error.strerror}",
                path=error.filename,
                hint="remove it by hand",
            ) from error
        return len(paths)


def index_of(document: Document, id: str) -> int | None:
    """Index of the entry addressed by ``id`` in one document."""
    for index, entry in enumerate(document.entries):
        if entry.address_id == id:
            return index
    return None


def cut_part(path: str, document: Document, index: int, before: bytes, after: bytes) -> Part:
    """What cutting entry ``index`` out of ``before`` did, which made it ``after``."""
    prefix = common_prefix(before, after)
    suffix = common_suffix(before, after, min(len(before), len(after)) - prefix)
    behind = document.entries[index + 1 : index + 2]
    return Part(
        path=path,
        raw=document.entries[index].raw,
        offset=prefix,
        cut=_text(before[prefix : len(before) - suffix]),
        left=_text(after[prefix : len(after) - suffix]),
        before=_sha256(before),
        after=_sha256(after),
        follower=behind[0].address_id if behind else "",
    )


def restored(data: bytes, part: Part, id: str, settings: Settings) -> bytes:
    """``data`` with the forgotten entry in it again; ``data`` itself where it is there already.

    The very file it was cut from becomes what it was. Any other gets the entry as it was written,
    before the entry that used to follow it, else at the end. ``ConflictError`` where another
    text has the id by now.
    """
    if _sha256(data) == part.after:
        end = part.offset + len(_bytes(part.left))
        return data[: part.offset] + _bytes(part.cut) + data[end:]
    document = parse(data, settings=settings)
    wanted = parse(_bytes(part.raw), settings=settings).entries[0]
    for entry in document.entries:
        same = (entry.segment.body, entry.segment.kind) == (
            wanted.segment.body,
            wanted.segment.kind,
        )
        if entry.raw == part.raw or (entry.address_id == id and same):
            return data
        if entry.address_id == id:
            raise ConflictError(
                f"{part.path}:{entry.line}: another segment has the id {id} now",
                hint="forget that one first, or add the text anew",
                path=part.path,
            )
    before_follower = _inserted(document, part)
    if before_follower is not None:
        expected = [entry.digest for entry in document.entries]
        found = [entry.digest for entry in parse(before_follower, settings=settings).entries]
        place = index_of(document, part.follower) or 0
        if found == [*expected[:place], wanted.digest, *expected[place:]]:
            return before_follower
    # At the end it is written anew: text without a header would run into what stands before it.
    made = with_values(wanted.segment, id=wanted.segment.id or id)
    return append(document, made, settings=settings)


def _inserted(document: Document, part: Part) -> bytes | None:
    """The file with the entry before its old follower; None where that is gone."""
    index = index_of(document, part.follower) if part.follower else None
    if index is None:
        return None
    start = document.entries[index].start
    gap = document.newline * 2
    text = document.text[:start] + part.raw.rstrip("\r\n") + gap + document.text[start:]
    return render(with_values(document, text=text))


def _sync_folder(folder: str) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there; NTFS journals its names
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def key_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _undo_name(scope: str, id: str) -> str:
    return f"{UNDO}/{key_of(scope)}-{key_of(id)}.json"


def record_of(data: bytes, name: str) -> UndoRecord:
    """Parse a record; ``StoreError`` where somebody damaged it."""
    try:
        value = json.loads(data)
        parts = tuple(
            Part(
                path=str(part["path"]),
                raw=str(part["raw"]),
                offset=int(part["offset"]),
                cut=str(part["cut"]),
                left=str(part["left"]),
                before=str(part["before"]),
                after=str(part["after"]),
                follower=str(part["follower"]),
            )
            for part in value["parts"]
        )
        if not parts or any(part.path.rpartition("/")[2] not in _FILES for part in parts):
            raise ValueError("it names no file of segments")
        return UndoRecord(str(value["scope"]), str(value["id"]), str(value["removedAt"]), parts)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"undo record {name} cannot be read: {error}",
            path=name,
            hint="look at it by hand, or forget the address with --purge",
        ) from error
