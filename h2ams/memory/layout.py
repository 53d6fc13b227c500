"""Where a folder stands in the grammar and what a file in it is (Pure).

A scan starts at ``ROOT`` and calls ``enter`` for each sub-folder and ``role`` for each file: both
look at one name only, and cost about as much as the ``stat`` beside them. A file belongs to the
nearest enclosing scope folder. Where the grammar reserves a folder for ids (``vp/``, ``topic/`` …)
an invalid id is a problem and nothing below it is read: it never falls back to an outer scope, as
that could show a private note in a shared scope. The same holds for another spelling of a reserved
name (``VP/``), which a file system that ignores case takes for the reserved folder.

A problem and the detail of a reported file read ``"code: message"``; a detail without a colon is a
quiet reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from h2ams.errors import ScopeError
from h2ams.memory.scope import (
    FAMILIES,
    HISTORICAL,
    NEVER_READ,
    SESSION_MEMBERS,
    Scope,
    check_id,
    fold,
    parse_scope,
)

UNFILED = parse_scope("topic/unfiled")  # the scope of everything outside of any family folder
REDIRECT_FILE = "redirect.json"
_LAYOUTS = ("sessions", "session", "group")  # the index is Place.layout


class Role(StrEnum):
    """What a file is to the engine."""

    MEMORY = "memory"
    SUMMARY = "summary"
    ARCHIVE = "archive"
    CONTENT = "content"
    NOTE = "note"
    REDIRECT = "redirect"
    SESSION_CARD = "session-card"
    DREAM_STATE = "dream-state"
    AMS_STATE = "ams-state"
    CONFLICT_COPY = "conflict-copy"
    IGNORED = "ignored"


# The index keeps track of files with these roles; the others are read where they are needed.
SEGMENT_ROLES = frozenset({Role.MEMORY, Role.CONTENT, Role.NOTE})  # they hold segments
TRACKED = SEGMENT_ROLES | {Role.SESSION_CARD, Role.SUMMARY}


class Kind(IntEnum):
    """The state of the walk: which names mean something directly in this folder."""

    ROOT = 0
    SESSIONS = 1  # sessions/: holds ids of sessions and nothing else
    CHATS = 2
    TOPICS = 3
    IDS = 4  # vp/, feature/, agent/, sessions/s/vp/ …
    SESSION = 5  # the scope folder of a session
    CHAT = 6
    TOPIC = 7  # the scope folder of a topic, which may hold sub-topics
    SUBTOPIC = 8
    SCOPE = 9  # any other scope folder
    PLAIN = 10  # a folder below a scope folder
    UNFILED = 11
    PROBLEM = 12


@dataclass(frozen=True, slots=True)
class Place:
    """One folder.

    ``path``: canonical path of the nearest folder that the grammar knows, "" above any.
    ``layout``: 0 ``sessions/``, 1 ``session/``, 2 ``group/``.
    ``problem``: not None where the folder is reported and not read.
    """

    kind: Kind
    path: str = ""
    layout: int = 0
    problem: str | None = None

    @property
    def scope(self) -> Scope | None:
        """The nearest enclosing scope, ``UNFILED`` outside of all family folders.

        None in a folder that holds only ids and where there is a problem. Made on demand: a scan
        that finds nothing changed never asks for it.
        """
        if self.kind in _SCOPELESS:
            return None
        return parse_scope(self.path) if self.path else UNFILED

    @property
    def scope_text(self) -> str:
        """The text of ``scope`` without making it; "" for none."""
        if self.kind in _SCOPELESS:
            return ""
        return self.path or UNFILED.text

    @property
    def is_scope(self) -> bool:
        """Whether this folder itself is its scope's folder."""
        return self.kind in _SCOPE_KINDS

    @property
    def unfiled(self) -> bool:
        """Whether files here are outside of any family folder (scope ``topic/unfiled``)."""
        return self.kind is Kind.UNFILED or self.kind is Kind.ROOT


_CHILD: Mapping[Kind, Kind] = {
    Kind.SESSIONS: Kind.SESSION,
    Kind.CHATS: Kind.CHAT,
    Kind.TOPICS: Kind.TOPIC,
    Kind.TOPIC: Kind.SUBTOPIC,
    Kind.IDS: Kind.SCOPE,
}
_FAMILY_KINDS = frozenset((Kind.SESSIONS, Kind.CHATS, Kind.TOPICS, Kind.IDS))
_SCOPE_KINDS = frozenset((Kind.SESSION, Kind.CHAT, Kind.TOPIC, Kind.SUBTOPIC, Kind.SCOPE))
_SCOPELESS = frozenset((*_FAMILY_KINDS, Kind.PROBLEM))
_HOLDERS: Mapping[str, Kind] = {
    "sessions": Kind.SESSIONS,
    "chat": Kind.CHATS,
    "topic": Kind.TOPICS,
    "vp": Kind.IDS,
    "feature": Kind.IDS,
    "agent": Kind.IDS,
    "user": Kind.SCOPE,
    "global": Kind.SCOPE,
}
ROOT = Place(Kind.ROOT)
_UNFILED_PLACE = Place(Kind.UNFILED)
_ROOT_PLACES: Mapping[str, Place] = {
    **{name: Place(kind, name) for name, kind in _HOLDERS.items()},
    **{name: Place(Kind.SESSIONS, "sessions", layout) for layout, name in enumerate(_LAYOUTS)},
}
# Names that a control character, a line break or an undecodable byte makes unfit for a path that
# is printed, stored as text and shown in a prompt; a backslash is a separator elsewhere.
_UNFIT = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\\]"  # compiled when first needed
_FAMILY_NAMES = frozenset((*FAMILIES, *HISTORICAL))


def enter(place: Place, name: str) -> Place | None:
    """The sub-folder ``name`` of ``place``; None where it is not read at all and not reported."""
    if name[:1] == "." or name == NEVER_READ or place.problem is not None:
        return None
    return _STEPS[place.kind](place, name)


def _from_root(place: Place, name: str) -> Place:
    found = _ROOT_PLACES.get(name)
    if found is not None:
        return found
    if _is_variant(name, _FAMILY_NAMES):
        return _variant(place, name)
    return _plain(_UNFILED_PLACE, name)


def _by_id(place: Place, name: str) -> Place:
    """Below ``sessions/``, ``vp/``, ``sessions/s/topic/`` and the like, and below a topic."""
    try:
        checked = check_id(name)
    except ScopeError as error:
        return _problem(place, "invalid-scope-folder", f"{error.message}: not read")
    return Place(_CHILD[place.kind], f"{place.path}/{checked}", place.layout)


def _member(place: Place, name: str) -> Place:
    """Below a session or a chat: a reserved name or a plain folder."""
    if name in SESSION_MEMBERS:
        path = f"{place.path}/{name}"
        if place.kind is Kind.CHAT and name != "vp":
            return _problem(place, "invalid-scope-folder", f"there is no scope {path}: not read")
        return Place(_HOLDERS[name], path, place.layout)
    if _is_variant(name, SESSION_MEMBERS):
        return _variant(place, name)
    return _plain(place, name)


def _plain(place: Place, name: str) -> Place:
    if not _is_fit(name):
        return _problem(place, "unfit-name", f"{name!a} has characters that no path should have")
    if place.kind is Kind.UNFILED or place.kind is Kind.PLAIN:
        return place
    return Place(Kind.PLAIN, place.path, place.layout)


def _problem(place: Place, code: str, message: str) -> Place:
    return Place(Kind.PROBLEM, place.path, place.layout, f"{code}: {message}")


def _variant(place: Place, name: str) -> Place:
    message = f"{name!a} is {fold(name)!r} to a file system that ignores case: rename it; not read"
    return _problem(place, "invalid-scope-folder", message)


_STEPS = {
    Kind.ROOT: _from_root,
    **dict.fromkeys(_CHILD, _by_id),
    Kind.SESSION: _member,
    Kind.CHAT: _member,
    Kind.SUBTOPIC: _plain,
    Kind.SCOPE: _plain,
    Kind.PLAIN: _plain,
    Kind.UNFILED: _plain,
}


_IN_SCOPE: Mapping[str, tuple[Role, str]] = {
    "memory.md": (Role.MEMORY, ""),
    "archive.md": (Role.ARCHIVE, ""),
    "content.md": (Role.CONTENT, ""),
    "summary.md": (Role.SUMMARY, ""),
    "summary.zh.md": (Role.SUMMARY, "zh"),
}
_IN_CONVERSATION = {
    **_IN_SCOPE,
    "session.md": (Role.SESSION_CARD, ""),
    ".dream-state": (Role.DREAM_STATE, ""),
    "ams.json": (Role.AMS_STATE, ""),
}
_IN_TOPIC = {**_IN_SCOPE, REDIRECT_FILE: (Role.REDIRECT, "")}
_TABLES: Mapping[Kind, Mapping[str, tuple[Role, str]]] = {
    Kind.SESSION: _IN_CONVERSATION,
    Kind.CHAT: {name: value for name, value in _IN_CONVERSATION.items() if name != "session.md"},
    Kind.TOPIC: _IN_TOPIC,
    Kind.SUBTOPIC: _IN_TOPIC,
    Kind.SCOPE: _IN_SCOPE,
    **{kind: {} for kind in (*_SCOPELESS, Kind.ROOT, Kind.PLAIN, Kind.UNFILED)},
}
_SUMMARY = re.compile(r"summary\.([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)\.md")
_TEMPORARY_ENDS = ("~", "~.md", ".tmp", ".bak", ".swp", ".swo", ".swx")
# What sync tools append when both sides changed. People write titles such as "merge-conflict" and
# "(conflict resolution)" too, so only the tools' own forms count.
# Compiled when first asked: a walk that meets no such name does without.
_CONFLICT = r"""
    .*\.sync-conflict-\d{8}-\d{6}.*                                       # Syncthing
    | .*_conflict-\d{8}-\d{6}                                             # ownCloud
    | .*[\[(][^\[\]()]*(?:conflicted\ copy|sfconflict|copie\ en\ conflit   # Dropbox, Nextcloud,
        |in\ konflikt\ stehende\ kopie)[^\[\]()]*[\])].*                   # Seafile
    | .*\ \((?:case|unicode\ encoding|selective\ sync)\ conflict(?:\ \d+)?\)   # Dropbox
    | .*[\[(]conflict(?:ed)?(?:\ \d+)?[\])]                               # pCloud, Google Drive
    | .*\.conflict\d*                                                     # Resilio
    | .*-\d{4}_conflict(?:\(\d+\))?                                       # Synology
    """
_OWN_STEMS = ("memory", "archive", "content", "session", "summary")
# Numbered copies are ordinary titles elsewhere; of the engine's own files they are copies.
_NUMBERED = (
    r"(?:memory|archive|content|session|summary(?:\.[a-z-]+)?)"
    r"(?: \(\d+\)| \d+| - copy(?: \(\d+\))?|[ ._-]conflict(?:ed)?)"
)


def role(place: Place, name: str) -> tuple[Role, str]:
    """What file ``name`` of folder ``place`` is, and a detail.

    The detail of a summary is its language ("" for the default), of an ignored file the reason; of
    a note ``"misplaced"`` where the name means something only in a scope folder, ``"case-variant"``
    where it is ``MEMORY.md`` or the like beside where the engine would write ``memory.md``.
    """
    found = _TABLES[place.kind].get(name)
    return found if found is not None else _other(place.kind, name)


def _other(kind: Kind, name: str) -> tuple[Role, str]:
    """The role of a name that has none of its own in folders of ``kind``."""
    if kind is Kind.PROBLEM:
        return Role.IGNORED, "problem-folder"
    if name[:1] == ".":
        return Role.IGNORED, "hidden"
    lower = name.lower()
    if lower.endswith(_TEMPORARY_ENDS) or name[:2] == "~$" or name == "4913":
        return Role.IGNORED, "temporary"
    if not lower.endswith(".md"):
        return Role.IGNORED, "not-markdown"
    if not _is_fit(name):
        return Role.IGNORED, f"unfit-name: {name!a} has characters that no path should have"
    if _is_conflict_copy(kind, lower[:-3]):
        return Role.CONFLICT_COPY, "conflict-copy: a sync tool's copy of a file changed twice"
    if kind in _FAMILY_KINDS:
        return Role.IGNORED, f"no-scope: {name} lies in a folder that holds scopes, in none itself"
    if lower.startswith(_OWN_STEMS):
        match = _SUMMARY.fullmatch(name) if kind in _SCOPE_KINDS else None
        return (Role.SUMMARY, match[1].lower()) if match else (Role.NOTE, _doubt(kind, name, lower))
    return Role.NOTE, ""


def _is_conflict_copy(kind: Kind, stem: str) -> bool:
    """``stem`` is in lower case; the cheap tests first, as every note of a vault comes here."""
    if ("confli" in stem or "konflikt" in stem) and re.fullmatch(_CONFLICT, stem, re.VERBOSE):
        return True
    own = kind in _SCOPE_KINDS and stem.startswith(_OWN_STEMS)
    return own and re.fullmatch(_NUMBERED, stem) is not None


def _doubt(kind: Kind, name: str, lower: str) -> str:
    """What ``doctor`` should say about a note whose name is, or looks like, one of the engine's."""
    if lower not in _IN_SCOPE:
        return ""
    if kind in _SCOPE_KINDS:
        return "case-variant"
    return "misplaced" if name == lower else ""


def folder_names(scope: Scope) -> tuple[str, ...]:
    """Relative folders that may hold ``scope``: the canonical one first, then historical ones."""
    if scope.family != "sessions":
        return (scope.text,)
    rest = scope.text.removeprefix("sessions")
    return tuple(f"{name}{rest}" for name in _LAYOUTS)


def _is_variant(name: str, reserved: frozenset[str] | tuple[str, ...]) -> bool:
    return len(name) <= len("sessions") and name not in reserved and fold(name) in reserved


def _is_fit(name: str) -> bool:
    if name.isascii() and name.isprintable():  # nearly every name
        return "\\" not in name
    return re.search(_UNFIT, name) is None


def place_of(folder: str) -> Place | None:
    """Where the relative ``folder`` stands in the grammar; None where it is not read."""
    place: Place | None = ROOT
    for name in folder.split("/") if folder else ():
        place = enter(place, name) if place is not None else None
    return place


def scope_of_path(path: str) -> Scope | None:
    """The scope that the file at the relative ``path`` belongs to; None where it has none."""
    place = place_of(path.rpartition("/")[0])
    return None if place is None or place.problem else place.scope


def crosses_scopes(real: str, scope: Scope) -> bool:
    """Whether the file at the real relative path ``real`` belongs to another scope's folder."""
    owner = scope_of_path(real)
    return owner is not None and owner not in (scope, UNFILED)
