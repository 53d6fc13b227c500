"""What an operation on a scope is, as values: which folders, in which layouts, go where (Pure).

A scope is a *family* here: ``sessions/s`` is the session with everything in it, ``vp/v`` the role
with what it owns in all sessions and chats. ``places`` gives the paths of a family as patterns of
folder names, so that one walk (``lifecycle``) finds them in every layout and spelling;
``other_place`` gives the path that such a folder has under another name. An ``Operation`` is the
line of the journal: everything that is needed to finish it, or to undo it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from h2ams.errors import ScopeError, UsageError
from h2ams.memory import layout
from h2ams.memory.scope import Scope, parse_scope

Kind = Literal["delete", "rename", "clone", "migrate", "purge"]
# begun: nothing has changed. building: copies are made aside. moving: folders take their new
# places, one by one. settling: the files are right, owned state follows. trash: what is left to be
# removed, which nobody sees. elsewhere: the state folder that the operation began with must follow.
Phase = Literal["begun", "building", "moving", "settling", "trash", "elsewhere"]
VERSION = 1
TRASH, BUILD, MIGRATED, JOURNAL = "trash", "build", "migrated", "journal"  # below .h2ams
# Historical folders that hold state of a conversation and nothing else that is read.
DATA_FILES = ("ams.json", ".dream-state")
_OP = re.compile(r"[0-9a-f]{16}")

Pattern = tuple[str | None, ...]  # folder names in NFC; None stands for any


class OwnedState(Protocol):
    """State beside the files that belongs to scopes. Each call may be repeated after a crash.

    ``scope`` is a family, see ``holds``. ``list`` tells what there is, one line each, for people.
    ``delete`` returns what it could not remove for now, one line each; it raises where what is left
    could still be seen. ``clone`` returns what can never be copied, such as a damaged record: that
    must not keep the operation from its end, which all who open the folder would wait for.
    """

    @property
    def name(self) -> str:
        """What it is, for people: ``index``."""
        ...

    @property
    def is_cloned(self) -> bool:
        """Whether a copy of a scope gets it too."""
        ...

    @property
    def lock(self) -> str | None:
        """Name of the lock that it takes: folders move only where that can be had."""
        ...

    @property
    def may_be_late(self) -> bool:
        """Whether readers may go on while it cannot follow: it holds no text to be seen."""
        ...

    def list(self, scope: Scope) -> tuple[str, ...]: ...

    def delete(self, scope: Scope) -> tuple[str, ...]: ...

    def rename(self, old: Scope, new: Scope) -> None: ...

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Move:
    """One folder or file and its new path; both relative to the root."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file of an operation. ``to`` "" is removed. ``sha256`` "" could not be read."""

    path: str
    to: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StateChange:
    """One piece of owned state that goes along. ``owner`` is the name of an ``OwnedState``."""

    owner: str
    what: str


@dataclass(frozen=True, slots=True)
class Failed:
    """What could not be done: ``path`` is a file, or the name of an owner of state."""

    path: str
    message: str


@dataclass(frozen=True, slots=True)
class ScopeChange:
    """What an operation did, or would do with ``dry_run``.

    ``kept`` says, one line each, what stays where a person might expect otherwise. ``segments`` are
    counts of a migration: before, in all layouts together, and after. ``changed`` False: there was
    nothing to do.
    """

    kind: Kind
    scope: str
    target: str | None = None
    files: tuple[FileChange, ...] = ()
    state: tuple[StateChange, ...] = ()
    kept: tuple[str, ...] = ()
    failed: tuple[Failed, ...] = ()
    segments_before: int | None = None
    segments_after: int | None = None
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        return bool(self.files or self.state)


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of the journal. ``state`` is the state folder that it began with, absolute, ""
    for the root's own."""

    op: str
    kind: Kind
    scope: Scope
    target: Scope | None = None
    phase: Phase = "begun"
    moves: tuple[Move, ...] = ()
    state: str = ""

    def covers(self, scope: Scope) -> bool:
        """Whether ``scope`` must not be written to while this operation runs."""
        if self.phase in ("trash", "elsewhere"):
            return False
        return holds(self.scope, scope) or (self.target is not None and holds(self.target, scope))

    @property
    def title(self) -> str:
        """``scope rename sessions/a sessions/b``."""
        return " ".join(
            ["scope", self.kind, self.scope.text, *map(str, filter(None, [self.target]))]
        )


def render(operation: Operation) -> bytes:
    """The journal file of an operation. It names paths, never text of a memory."""
    value = {
        "version": VERSION,
        "op": operation.op,
        "kind": operation.kind,
        "scope": operation.scope.text,
        "target": operation.target.text if operation.target else None,
        "phase": operation.phase,
        "moves": [[move.source, move.target] for move in operation.moves],
        "state": operation.state,
    }
    return (json.dumps(value, ensure_ascii=True, indent=1) + "\n").encode("ascii")


def parse(data: bytes) -> Operation:
    """The operation of a journal file; ``ValueError`` for anything that ``render`` did not make."""
    try:
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") != VERSION:
            raise ValueError("not an operation of version 1")
        if not _OP.fullmatch(value["op"]) or value["kind"] not in get_args(Kind):
            raise ValueError("not a known operation")
        if value["phase"] not in get_args(Phase):
            raise ValueError("not a known phase")
        target = value["target"]
        return Operation(
            op=value["op"],
            kind=value["kind"],
            scope=parse_scope(value["scope"]),
            target=None if target is None else parse_scope(target),
            phase=value["phase"],
            moves=tuple(Move(str(source), str(to)) for source, to in value["moves"]),
            state=str(value["state"]),
        )
    except (KeyError, TypeError, ScopeError, RecursionError) as error:
        raise ValueError(f"not an operation: {error}") from error


def holds(family: Scope, scope: Scope) -> bool:
    """Whether ``scope`` belongs to ``family``: it is it, lies in it, or is owned by that VP."""
    if family.family == "vp":
        return scope.vp == family.vp
    return scope.text == family.text or scope.text.startswith(f"{family.text}/")


def renamed(scope: Scope, old: Scope, new: Scope) -> Scope:
    """The name that ``scope`` of the family ``old`` has in the family ``new``."""
    if old.family == "vp" and scope.family != "vp":
        return parse_scope(f"{scope.text.rpartition('/')[0]}/{new.vp}")
    return parse_scope(new.text + scope.text[len(old.text) :])


def places(scope: Scope) -> tuple[Pattern, ...]:
    """Where folders of the family may stand below the root, canonical layout first."""
    found: list[Pattern] = [tuple(name.split("/")) for name in layout.folder_names(scope)]
    if scope.family == "vp":
        holders = (*layout.folder_names(parse_scope("sessions/x")), "chat/x")
        found += [(name.partition("/")[0], None, "vp", scope.vp) for name in holders]
    return tuple(found)


def data_places(scope: Scope, *, chat_exists: bool) -> tuple[Pattern, ...]:
    """Historical folders whose ``DATA_FILES`` belong to a session or chat.

    ``chats/<id>`` was used for both: it belongs to the chat of that id where there is one.
    """
    if scope.member or scope.family not in ("sessions", "chat"):
        return ()
    if scope.family == "chat":
        return (("chats", scope.chat),)
    found: list[Pattern] = [("groups", scope.session)]
    return tuple(found if chat_exists else [*found, ("chats", scope.session)])


def lock_prefixes(scope: Scope) -> tuple[str, ...]:
    """Beginnings of the names of all locks that writers of the family may hold."""
    return (scope.text, "sessions/", "chat/") if scope.family == "vp" else (scope.text,)


def other_place(parts: Iterable[str], pattern: Pattern, wanted: Pattern) -> str:
    """The path of ``parts`` with the names of ``wanted`` where ``pattern`` has others."""
    pairs = zip(parts, pattern, wanted, strict=True)
    return "/".join(here if to is None or to == name else to for here, name, to in pairs)


def check_operable(scope: Scope) -> None:
    """``UsageError`` for the scope that is no folder: whatever lies outside of all."""
    if scope == layout.UNFILED:
        raise UsageError(
            f"{scope} is every file outside of the scope folders, not a folder of its own",
            hint="move or remove those files themselves",
        )


def check_target(old: Scope, new: Scope) -> None:
    """``UsageError`` where ``old`` cannot become ``new``: only ids may differ, never the family."""
    check_operable(old)
    check_operable(new)
    if old == new:
        raise UsageError(f"{old} has that name already", hint="name another one")
    if _shape(old) != _shape(new):
        raise UsageError(
            f"{old} cannot become {new}: these are different kinds of scope",
            hint="only ids may change: sessions/ID to sessions/ID, chat/ID/vp/ID to chat/ID/vp/ID",
        )
    if holds(old, new) or holds(new, old):
        raise UsageError(f"{new} lies in {old}", hint="name one beside it")


def _shape(scope: Scope) -> tuple[str, str, int]:
    return scope.family, scope.member, scope.text.count("/")


@dataclass(frozen=True, slots=True)
class Place:
    """One folder of a family as it is spelled on the disk, with the pattern that it fits."""

    path: str
    parts: tuple[str, ...] = field(repr=False)
    pattern: Pattern = field(repr=False)
    number: int = field(repr=False)  # of the pattern in ``places``
    base: str = field(repr=False)  # "" or a folder of what a migration set aside


def target_of(place: Place, new: Scope) -> str:
    """Where the folder or state file at ``place`` goes when its family gets the name ``new``."""
    if place.pattern[-1] in DATA_FILES:
        wanted: Pattern = (place.pattern[0], new.session or new.chat, place.pattern[-1])
    else:
        wanted = places(new)[place.number]
    path = other_place(place.parts, place.pattern, wanted)
    return f"{place.base}/{path}" if place.base else path


def summed(found: Mapping[str, int]) -> str:
    """``3 segments, 1 note`` of counts by word; words are in the plural."""
    texts = [
        f"{count} {word[:-1] if count == 1 else word}" for word, count in found.items() if count
    ]
    return ", ".join(texts)
