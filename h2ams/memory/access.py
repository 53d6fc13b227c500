"""Who may read and write which scope: one table, one judge (Pure).

An ``Access`` is what the host resolved; ``Gate`` turns it, with the sessions' recorded agents, into
a few exact scope names and a few prefixes, once. Reading is deny by default: what is in neither is
not there. SQL selects by the same names and prefixes, so that both sides cannot differ.

| given            | reads                                          | writes                       |
| ---------------- | ---------------------------------------------- | ---------------------------- |
| session s, VP v  | user, global, sessions/s and its user, topics, | sessions/s and its user,     |
|                  | features, vp/v; vp/v; related sessions' shared | topics, features, vp/v; user |
|                  | scopes on the same agent                       | where user="write"           |
| session s, no VP | the same without any vp                        | the same without any vp      |
| chat c (VP v)    | user, global, chat/c, chat/c/vp/v, vp/v        | chat/c, chat/c/vp/v          |
| agent a          | what the rest of the access reads, and agent/a | agent/a                      |
| user=False       | the same without user and …/user               | the same                     |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from h2ams.errors import AccessError, UsageError
from h2ams.memory.scope import Scope, check_id, parse_scope
from h2ams.memory.values import unexpected

UserAccess = bool | Literal["read", "write"] | None

# One order of closeness everywhere; 0 is the closest.
SESSION, OWN_VP, SESSION_USER, SESSION_PARTS, CHAT, VP, USER, GLOBAL, RELATED, OTHER = range(10)
_VP_RANKS = {"sessions": OWN_VP, "chat": CHAT, "vp": VP}


@dataclass(frozen=True, slots=True, init=False)
class Access:
    """What a call may see and change, as the host resolved it. With nothing in it: nothing.

    ``user``: None reads where a session or chat is given, True and "read" read, "write" also
    writes, False hides ``user`` and ``sessions/…/user``. ``scopes``: further scopes to read, each
    exactly as listed; they never open another VP's private path.
    """

    session: str | None
    vp: str | None
    chat: str | None
    agent: str | None
    user: UserAccess
    related_sessions: tuple[str, ...]
    scopes: tuple[str, ...]

    def __init__(
        self,
        *,
        session: str | None = None,
        vp: str | None = None,
        chat: str | None = None,
        agent: str | None = None,
        user: UserAccess = None,
        related_sessions: Iterable[str] = (),
        scopes: Iterable[str | Scope] = (),
    ) -> None:
        if not (user is None or isinstance(user, bool) or user in ("read", "write")):
            raise UsageError(f"access: user={user!r}", hint="use True, False, 'read' or 'write'")
        for name, several in (("related_sessions", related_sessions), ("scopes", scopes)):
            if isinstance(several, str):
                raise UsageError(f"access: {name} is a list of texts, not one text: {several!r}")
        single = {"session": session, "vp": vp, "chat": chat, "agent": agent}
        for name, value in single.items():
            checked = None if value is None else check_id(value, f"access: {name}")
            object.__setattr__(self, name, checked)
        related = dict.fromkeys(
            check_id(each, "access: related session") for each in related_sessions
        )
        listed = dict.fromkeys(parse_scope(str(each)).text for each in scopes)
        object.__setattr__(self, "user", user)
        object.__setattr__(self, "related_sessions", tuple(related))
        object.__setattr__(self, "scopes", tuple(listed))


def check_access(access: object) -> None:
    """``UsageError`` where ``access`` is neither an ``Access`` nor None."""
    if access is not None and not isinstance(access, Access):
        raise unexpected(access, "access", "an Access, or None: the owner")


class Gate:
    """The only judge of an access. ``access=None`` is the owner, who may do everything.

    ``session_agents`` maps a session to the agent recorded in its card; missing means None. A
    related session counts only where its agent equals that of the current session.
    """

    def __init__(
        self, access: Access | None, session_agents: Mapping[str, str | None] | None = None
    ) -> None:
        check_access(access)
        self.access = access
        self.is_owner = access is None
        self._closeness: dict[str, int] = {}  # exact readable scopes
        self._prefixes: dict[str, int] = {}  # "sessions/s/topic/": every scope that begins so
        self._related: frozenset[str] = frozenset()
        self._writes: frozenset[str] = frozenset()
        self._write_prefixes: tuple[str, ...] = ()
        if access is None:
            self._closeness = {"user": USER, "global": GLOBAL}
            self._prefixes = {"": OTHER}
        else:
            agents = session_agents or {}
            own = agents.get(access.session) if access.session is not None else None
            self._related = frozenset(
                each
                for each in access.related_sessions
                if each != access.session and agents.get(each) == own
            )
            self._admit(access)
            self._allow_writes(access)

    def may_read(self, scope: Scope) -> bool:
        """Whether segments, notes and summaries of ``scope`` exist for this access."""
        return self._rank(scope.text) is not None

    def may_write(self, scope: Scope) -> bool:
        """Whether this access may add to, change or remove from ``scope``."""
        return (
            self.is_owner
            or scope.text in self._writes
            or scope.text.startswith(self._write_prefixes)
        )

    def writable(self) -> tuple[str, ...]:
        """The scopes that may be written, by name; ``*`` stands for any end, alone for all."""
        if self.is_owner:
            return ("*",)
        return (*sorted(self._writes), *(f"{prefix}*" for prefix in self._write_prefixes))

    def check_write(self, scope: Scope) -> None:
        """``AccessError`` where ``scope`` may not be written; the same whatever is stored there."""
        if not self.may_write(scope):
            raise AccessError(
                f"this access may not write to {scope.text}",
                hint="give the access that scope belongs to, or leave access out: the owner",
            )

    def source_session(self, scope: Scope) -> str | None:
        """The related session that ``scope`` comes through, to label its items; else None."""
        return scope.session if scope.session in self._related and self.may_read(scope) else None

    def closeness(self, scope: Scope) -> int:
        """0 is the closest: see the constants ``SESSION`` to ``OTHER``."""
        rank = self._rank(scope.text)
        return OTHER if rank is None else rank

    def _rank(self, text: str) -> int | None:
        """Closeness of the scope with this name; None where it may not be read.

        Looks for each beginning of the name up to a slash, however many prefixes there are.
        """
        rank = self._closeness.get(text)
        if rank is not None or not self._prefixes:
            return rank
        if self.is_owner:
            return self._prefixes[""]
        end = text.find("/")
        while rank is None and end >= 0:
            rank = self._prefixes.get(text[: end + 1])
            end = text.find("/", end + 1)
        return rank

    def broad(self, scope: Scope) -> bool:
        """Whether a single weak word is no match there: user, global, related, listed scopes."""
        rank = self.closeness(scope)
        return rank in (USER, GLOBAL, RELATED) or (rank == OTHER and not self.is_owner)

    def own_scopes(self) -> tuple[Scope, ...]:
        """The readable scopes that can be named without knowing the store, closest first."""
        ranked = sorted(self._closeness.items(), key=lambda item: item[1])
        return tuple(parse_scope(text) for text, _ in ranked)

    def families(self) -> tuple[str, ...]:
        """Prefixes of the readable scopes with open ends (``sessions/s/topic/``), closest first.

        A scope is readable exactly if it is one of ``own_scopes()`` or begins with one of these.
        For the owner it is the empty prefix: all.
        """
        return tuple(sorted(self._prefixes, key=lambda prefix: self._prefixes[prefix]))

    def _admit(self, access: Access) -> None:
        """Collect what ``access`` reads, row by row of the table."""
        base = access.session is not None or access.chat is not None
        if access.user or (base and access.user is None):
            self._read("user", USER)
        if base:
            self._read("global", GLOBAL)
        if access.session is not None:
            self._read_session(access.session, SESSION, SESSION_PARTS)
            if access.user is not False:
                self._read(f"sessions/{access.session}/user", SESSION_USER)
        if access.chat is not None:
            self._read(f"chat/{access.chat}", CHAT)
        if access.agent is not None:
            self._read(f"agent/{access.agent}", SESSION)
        for text in _own_vp(access):
            self._read(text, _VP_RANKS[text.partition("/")[0]])
        for related in access.related_sessions:
            if related in self._related:
                self._read_session(related, RELATED, RELATED)
        for text in access.scopes:
            if _may_list(access, parse_scope(text)):
                self._read(text, OTHER)

    def _allow_writes(self, access: Access) -> None:
        """Collect what ``access`` writes. A child agent writes to its own scope only."""
        if access.agent is not None:
            self._writes = frozenset((f"agent/{access.agent}",))
            return
        writes = [text for text in _own_vp(access) if not text.startswith("vp/")]
        if access.session is not None:
            writes.append(f"sessions/{access.session}")
            self._write_prefixes = _open_ends(access.session)
            if access.user is not False:
                writes.append(f"sessions/{access.session}/user")
        if access.chat is not None:
            writes.append(f"chat/{access.chat}")
        if access.user == "write":
            writes.append("user")
        self._writes = frozenset(writes)

    def _read(self, text: str, rank: int) -> None:
        self._closeness[text] = min(rank, self._closeness.get(text, rank))

    def _read_session(self, session: str, rank: int, parts_rank: int) -> None:
        self._read(f"sessions/{session}", rank)
        for prefix in _open_ends(session):
            self._prefixes[prefix] = parts_rank


def _own_vp(access: Access) -> list[str]:
    """The private scopes of the current VP: inside the session and chat, and its own."""
    if access.vp is None:
        return []
    inside = [("sessions", access.session), ("chat", access.chat)]
    own = [f"{family}/{each}/vp/{access.vp}" for family, each in inside if each is not None]
    return [*own, f"vp/{access.vp}"]


def _open_ends(session: str) -> tuple[str, ...]:
    """Prefixes of a session's shared scopes."""
    return (f"sessions/{session}/topic/", f"sessions/{session}/feature/")


def _may_list(access: Access, scope: Scope) -> bool:
    """Whether a scope listed by name may be read: never another VP's, ``agent/`` only as agent."""
    if scope.family == "agent":
        return False
    if scope.vp is not None:
        return scope.vp == access.vp
    return access.user is not False or not scope.is_private
