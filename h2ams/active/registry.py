"""Where active sets survive a restart: one small file per session and VP (state, not truth).

Strategy: the file is the memory. A change is a function on the state, applied under a lock to what
is on disk *now* and written atomically; so two processes on one session merge, and a deleted
session leaves nothing behind in a cache. A file that cannot be read is a cold start: reported, set
aside, never deleted. Where there is no file, the session's historical ``ams.json`` is read; it is
never written.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from h2ams.active.ams import ActiveSet, Resolve, Use
from h2ams.errors import StoreError
from h2ams.memory import journal
from h2ams.memory.scope import Scope, parse_scope

if TYPE_CHECKING:
    from h2ams.files import Root

VERSION = 2  # 1 is the historical form
LOCK = "ams"
MAX_BYTES = 1024 * 1024  # no set is anywhere near: a larger file is not ours
MAX_ADDRESS_CHARS = 4_096

# No id can hold "@" or "~": such names never meet a session's or a VP's own.
_NO_VP = "@none"
CHATS = "@chat"
_DROPPED = "@dropped"
_MAX_NAME_BYTES = 180  # file systems allow 255, and temporary names are longer
_PLAIN_NAME = re.compile(r"(?!\.)[\w.-]+")

# Folders that may hold a historical ams.json: docs/format.md, "Historical folders".
_HISTORICAL = {
    "sessions": ("sessions", "session", "group", "groups", "chats"),
    "chat": ("chat", "chats"),
}

Family = Literal["sessions", "chat"]
Report = Callable[[str, str, str], None]  # code, message, path

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose set it is."""

    session: str
    vp: str | None
    family: Family

    @property
    def scope(self) -> Scope:
        """The scope that it belongs to: the VP's inside the session, else the session itself."""
        inside = f"{self.family}/{self.session}"
        return parse_scope(inside if self.vp is None else f"{inside}/vp/{self.vp}")

    @property
    def folder(self) -> str:
        """Folder of all sets of the session, below the state folder."""
        names = ("ams", CHATS) if self.family == "chat" else ("ams",)
        return "/".join((*names, file_name(self.session)))

    @property
    def name(self) -> str:
        """File of this set, below the state folder."""
        return f"{self.folder}/{_NO_VP if self.vp is None else file_name(self.vp)}.json"

    @property
    def marker(self) -> str:
        """File that says: this session was dropped, its historical state does not count."""
        return f"{self.folder}/{_DROPPED}.json"


class Registry:
    """Loads, changes and drops active sets. Holds none itself; safe to share between threads.

    ``report`` gets code, message and path of each file that could not be read; without it they
    are logged as warnings.
    """

    def __init__(self, root: Root, *, report: Report | None = None) -> None:
        self._root = root
        self._report = report if report is not None else _warn

    def load(
        self,
        session: str,
        vp: str | None = None,
        *,
        resolve: Resolve | None = None,
        family: Family = "sessions",
    ) -> ActiveSet:
        """The set as it is on disk now; an empty one if there is none or it cannot be read.

        ``resolve`` gives the address that stands for an id now and is allowed to this access, or
        ``None``; without it nothing is left out. Historical ids have no scope: it finds one.
        ``session`` is the chat's id with ``family="chat"``.
        """
        state = self._current(Owner(session, vp, family))
        return state if resolve is None else state.resolved(resolve)

    def update(
        self,
        session: str,
        vp: str | None,
        change: Callable[[ActiveSet], ActiveSet],
        *,
        family: Family = "sessions",
    ) -> ActiveSet:
        """Apply ``change`` to what is on disk now, write the result if it differs, return it."""
        owner = Owner(session, vp, family)
        with self._root.lock(LOCK):
            journal.check_free(self._root, owner.scope)
            before = self._current(owner)
            after = change(before)
            if after != before:
                self._root.write_state(owner.name, encode(owner, after))
            return after

    def used(self) -> frozenset[str]:
        """Every address that some active set has used or pinned. What cannot be read counts not."""
        found: set[str] = set()
        base = os.path.join(self._root.state, "ams")
        for folder, _, names in os.walk(base):
            for name in names:
                if name.endswith(".json"):
                    relative = os.path.relpath(os.path.join(folder, name), self._root.state)
                    found |= self._used_in(relative.replace(os.sep, "/"))
        return frozenset(found)

    def _used_in(self, name: str) -> set[str]:
        data = self._root.read_state(name)
        try:
            fields = _fields(data or b"")
            session, vp = fields.get("session"), fields.get("vp")
            if not isinstance(session, str) or not isinstance(vp, str | None):
                return set()
            state = decode(Owner(session, vp, "sessions"), data or b"")
        except ValueError:
            return set()  # a damaged set is reported where it is loaded
        return {*state.pinned, *(use.address for use in state.recent)}

    def drop(self, session: str, vp: str | None = None, *, family: Family = "sessions") -> None:
        """Forget the set of ``vp``, or all of the session's, with what was set aside of them.

        Historical state that is still in its folder is not read again for them.
        """
        owner = Owner(session, vp, family)
        with self._root.lock(LOCK):
            self._remove(owner)
            if any(True for _ in self._historical(owner)):
                name = owner.marker if vp is None else owner.name
                self._root.write_state(name, encode(owner, ActiveSet()))

    def _current(self, owner: Owner) -> ActiveSet:
        data = self._root.read_state(owner.name)
        if data is None:
            dropped = self._root.read_state(owner.marker) is not None
            return ActiveSet() if dropped else self._hydrate(owner)
        try:
            return decode(owner, data)
        except ValueError as error:
            self._set_aside(owner, data, str(error))
            return ActiveSet()

    def _set_aside(self, owner: Owner, data: bytes, why: str) -> None:
        where = f"{owner.name}.corrupt-{sha256(data).hexdigest()[:8]}"
        try:
            with self._root.lock(LOCK):
                if self._root.read_state(owner.name) == data:
                    path = self._root.state_path(owner.name)
                    with _errors_named("set aside", path):
                        os.replace(path, self._root.state_path(where))
        except StoreError as error:
            self._report("ams-state", f"{error}; it stays where it is", owner.name)
            where = owner.name
        self._report("ams-state", f"active set starts cold: {why}", where)

    def _remove(self, owner: Owner) -> None:
        folder = os.path.join(self._root.state, *owner.folder.split("/"))
        if not os.path.isdir(folder):
            return
        path = self._root.state_path(owner.name)  # refuses links on the way
        with _errors_named("remove", folder):
            if owner.vp is None:
                shutil.rmtree(folder)
                return
            name = os.path.basename(path)
            for each in sorted(os.listdir(folder)):
                if each == name or each.startswith((f"{name}.corrupt-", f".{name}.")):
                    os.unlink(os.path.join(folder, each))

    def _hydrate(self, owner: Owner) -> ActiveSet:
        for path, data in self._historical(owner):
            try:
                state = _decode_historical(owner, data)
            except ValueError as error:
                self._report("ams-state", f"active set starts cold: {error}", path)
                continue
            if state is not None:
                return state
        return ActiveSet()

    def _historical(self, owner: Owner) -> Iterator[tuple[str, bytes]]:
        spellings = dict.fromkeys((owner.session, unicodedata.normalize("NFD", owner.session)))
        for folder in _HISTORICAL[owner.family]:
            for spelling in spellings:
                path = f"{folder}/{spelling}/ams.json"
                if not os.path.lexists(f"{self._root.path}/{path}"):
                    continue  # nearly always: asked once per turn
                try:
                    state = self._root.read(path)
                except StoreError as error:
                    self._report("ams-state", str(error), path)
                    continue
                if state is not None:
                    yield path, state.data


def _warn(code: str, message: str, path: str) -> None:
    _log.warning("%s: %s (%s)", path, message, code)


@contextmanager
def _errors_named(verb: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"cannot {verb} {path}: {error.strerror}", path=path) from error


def file_name(text: str) -> str:
    """A file name for an id: itself where every file system keeps it apart from all others."""
    name = unicodedata.normalize("NFC", text)
    plain = _PLAIN_NAME.fullmatch(name) and name == name.casefold()
    if plain and len(name.encode("utf-8")) <= _MAX_NAME_BYTES:
        return name
    readable = re.sub(r"[^\w.-]", "+", name)[:40].strip(".")
    return f"{readable}~{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def encode(owner: Owner, state: ActiveSet) -> bytes:
    fields = {
        "version": VERSION,
        "session": owner.session,
        "vp": owner.vp,
        "turn": state.turn,
        "recent": [[use.address, use.turn] for use in state.recent],
        "pinned": list(state.pinned),
        "evicted": list(state.evicted),
        "task": state.task,
        "adjust_ran": state.adjust_ran,
    }
    return (json.dumps(fields, ensure_ascii=True, indent=1) + "\n").encode("ascii")


def decode(owner: Owner, data: bytes) -> ActiveSet:
    """The state written by ``encode``; ``ValueError`` for anything else."""
    fields = _fields(data)
    if fields.get("version") != VERSION:
        raise ValueError(f"version {fields.get('version')!r} is not {VERSION}")
    if (fields.get("session"), fields.get("vp")) != (owner.session, owner.vp):
        raise ValueError("it belongs to another session or VP")
    recent = fields.get("recent")
    if not isinstance(recent, list):
        raise ValueError("recent is not a list")
    uses: list[Use] = []
    for pair in recent:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("recent holds something else than [address, turn]")
        uses.append(Use(_turn(pair[1]), _address(pair[0])))
    task = fields.get("task")
    if not isinstance(task, str) or not re.fullmatch(r"[0-9a-f ]*", task):
        raise ValueError("task is not a fingerprint")
    return ActiveSet(
        turn=_turn(fields.get("turn")),
        recent=tuple(uses),
        pinned=_addresses(fields, "pinned"),
        evicted=_addresses(fields, "evicted"),
        task=task,
        adjust_ran=_flag(fields, "adjust_ran"),
    )


def _decode_historical(owner: Owner, data: bytes) -> ActiveSet | None:
    """State of version 1: ids without scope, no task. ``None`` if it is another VP's."""
    fields = _fields(data)
    if fields.get("version", 1) != 1:
        raise ValueError(f"version {fields.get('version')!r} is not 1")
    own = fields.get("ownVpId")
    if isinstance(own, str) and own and unicodedata.normalize("NFC", own) != owner.vp:
        return None
    recent = _addresses(fields, "recentIds") if "recentIds" in fields else ()
    return ActiveSet(
        recent=tuple(Use(0, each) for each in recent),
        pinned=_addresses(fields, "onDemandIds") if "onDemandIds" in fields else (),
        adjust_ran="adjustRanThisSession" in fields and _flag(fields, "adjustRanThisSession"),
    )


def _fields(data: bytes) -> Mapping[str, object]:
    if len(data) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES} bytes")
    try:
        fields = json.loads(data.decode("utf-8-sig"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    return fields


def _addresses(fields: Mapping[str, object], name: str) -> tuple[str, ...]:
    values = fields.get(name)
    if not isinstance(values, list):
        raise ValueError(f"{name} is not a list")
    return tuple(_address(each) for each in values)


def _address(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_ADDRESS_CHARS:
        raise ValueError("an address is not a text of usual length")
    value.encode("utf-8")  # lone surrogates: UnicodeEncodeError is a ValueError
    return value


def _turn(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a turn is not a number from 0 on")
    return value


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is not true or false")
    return value
