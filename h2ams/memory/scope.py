"""Scopes: the one grammar that folders, scope texts and addresses go through (Pure).

    user | global | vp/<id> | agent/<id> | feature/<id> | topic/<t1>[/<t2>]
    chat/<id>[/vp/<id>]
    sessions/<id>[/user | /vp/<id> | /feature/<id> | /topic/<t1>[/<t2>]]

``group/…`` and ``session/…`` are historical names of ``sessions/…`` and are read as such. A text is
split at ``/``, each id is checked by ``check_id`` and nothing else decides what a name may be: what
the grammar refuses as a text, ``layout`` refuses as a folder.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from h2ams.errors import ScopeError

MAX_ID_CHARS = 128  # docs/format.md, "Scopes"
FAMILIES = ("user", "global", "vp", "chat", "sessions", "feature", "topic", "agent")
HISTORICAL = {"session": "sessions", "group": "sessions"}
SESSION_MEMBERS = ("user", "vp", "feature", "topic")
NEVER_READ = "node_modules"  # a scope of this name would be written and never found again

# The common case in one match, as a scan checks every folder. Stricter than the rule, which
# `_id_problem` alone decides.
_COMMON_ID = re.compile(
    r"(?!(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|\Z)|node_modules\Z)[\w-]{1,64}(?:\.[\w-]{1,32}){0,2}",
    re.IGNORECASE | re.ASCII,
)
# Windows opens a device for these, whatever extension follows: `nul.md` is not a file there.
_DEVICE = r"(?:con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])(?:\..*)?"
_FORMS = (
    "user, global, vp/ID, chat/ID[/vp/ID], sessions/ID[/user|/vp/ID|/feature/ID|/topic/T1[/T2]], "
    "feature/ID, topic/T1[/T2] or agent/ID"
)
_ID_HINT = (
    f"an id has 1 to {MAX_ID_CHARS} letters of any script, digits, '_', '-' and '.', "
    "with no dot at either end"
)


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One scope, valid from construction: ``Scope(text)`` raises ``ScopeError``.

    ``text`` is canonical (NFC, historical names replaced); everything else follows from it.
    Equality, hash and order are those of ``text``.
    """

    text: str
    family: str = field(init=False)  # one of FAMILIES
    session: str | None = field(init=False, default=None)
    chat: str | None = field(init=False, default=None)
    vp: str | None = field(init=False, default=None)
    agent: str | None = field(init=False, default=None)
    feature: str | None = field(init=False, default=None)
    topic: tuple[str, ...] = field(init=False, default=())  # one or two ids
    member: str = field(init=False, default="")  # inside a session or chat: user vp feature topic
    is_private: bool = field(init=False, default=False)  # user, …/user, vp/<id>, …/vp/<id>

    def __post_init__(self) -> None:
        parts = _parts(self.text)
        facts = _facts(parts, self.text)
        for name, value in facts.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "text", "/".join(parts))
        private = self.family in ("user", "vp") or self.member in ("user", "vp")
        object.__setattr__(self, "is_private", private)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Scope({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Scope) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __lt__(self, other: Scope) -> bool:
        return self.text < other.text

    @property
    def shared(self) -> bool:
        """Whether this is a session itself or one of its topics or features."""
        return self.family == "sessions" and not self.is_private


@lru_cache(maxsize=32_768)
def parse_scope(text: str) -> Scope:
    """The scope named by ``text``; nothing is stripped. ``ScopeError`` says what is wrong."""
    return Scope(text)


def canonical_glob(text: str) -> str:
    """A pattern of scope names in the spelling that names have: NFC, ``sessions/`` for its old
    names."""
    pattern = unicodedata.normalize("NFC", text)
    family, slash, rest = pattern.partition("/")
    return f"sessions/{rest}" if slash and family in HISTORICAL else pattern


def is_utf8(text: str) -> bool:
    """Whether UTF-8 can hold ``text``: halves of surrogate pairs it cannot."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def parse_address(text: str) -> tuple[Scope, str]:
    """Scope and id of ``scope#id`` (``id`` may carry ``~2``: the second of that id in the scope).

    The id is any text without NUL and line breaks: old files hold ids of every shape.
    """
    scope, mark, name = text.partition("#")
    if not mark or not name:
        raise ScopeError(f"not an address: {shown(text)}", hint="an address is SCOPE#ID")
    if any(char in "\0\n\r" for char in name):
        raise ScopeError(f"address {shown(text)}: the id holds a NUL or a line break")
    if not is_utf8(name):
        raise ScopeError(f"address {shown(text)}: the id is no text that UTF-8 can hold")
    return parse_scope(scope), name


def check_id(text: str, what: str = "id") -> str:
    """``text`` in NFC if it is an id of the grammar, else ``ScopeError`` naming ``what``."""
    if _COMMON_ID.fullmatch(text):
        return text
    name = text if text.isascii() else unicodedata.normalize("NFC", text)
    problem = _id_problem(name)
    if problem:
        raise ScopeError(f"{what} {shown(text)}: {problem}", hint=_ID_HINT)
    return name


def fold(text: str) -> str:
    """``text`` with case and Unicode form removed: ids of equal fold are one id for creation."""
    if text.isascii():
        return text.lower()
    # Folding can leave a form that folds once more (iota subscripts): twice is stable.
    once = unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).casefold())
    return unicodedata.normalize("NFC", once.casefold())


def session_scope(session: str) -> Scope:
    """``sessions/<session>``; ``session`` is one id, not a path."""
    return parse_scope(f"sessions/{check_id(session, 'session')}")


def vp_scope(vp: str, *, session: str | None = None, chat: str | None = None) -> Scope:
    """A VP's own memory, or what it keeps inside a session or a chat."""
    vp = check_id(vp, "vp")
    if session is not None:
        return parse_scope(f"sessions/{check_id(session, 'session')}/vp/{vp}")
    return parse_scope(f"chat/{check_id(chat, 'chat')}/vp/{vp}" if chat is not None else f"vp/{vp}")


def shown(text: str) -> str:
    """``text`` quoted and bounded, for one line of an error message."""
    return repr(text) if len(text) <= 80 else f"{text[:80]!r}… ({len(text)} chars)"


def _id_problem(name: str) -> str:
    """What is wrong with ``name`` (in NFC) as an id; empty when nothing is."""
    if not name:
        return "empty"
    if len(name) > MAX_ID_CHARS:
        return f"{len(name)} characters, at most {MAX_ID_CHARS}"
    for char in name:
        # Marks too: Thai, Hindi and many other scripts cannot write a word without them.
        if char not in "_-." and unicodedata.category(char)[0] not in "LMN":
            return f"{char!r} is not allowed"
    if name[0] == "." or name[-1] == ".":
        return "a dot at the beginning or the end"
    if ".." in name:
        return "'..' is not allowed"
    if re.fullmatch(_DEVICE, name, re.IGNORECASE):
        return "a device name on Windows"
    if name == NEVER_READ:
        return "a folder of this name is never read"
    return ""


def _parts(text: str) -> list[str]:
    """The checked parts of ``text``, historical family names replaced."""
    if not isinstance(text, str):
        raise ScopeError(f"a scope is a text, not {type(text).__name__}", hint=f"use {_FORMS}")
    family, *ids = text.split("/")
    family = HISTORICAL.get(family, family)
    if family not in FAMILIES:
        raise ScopeError(f"not a scope: {shown(text)}", hint=f"use {_FORMS}")
    return [family, *(check_id(part, f"scope {shown(text)}: part") for part in ids)]


def _facts(parts: list[str], text: str) -> dict[str, str | tuple[str, ...]]:
    """Family and the ids that ``parts`` name, in the order of the grammar."""
    match parts:
        case ["user" | "global" as family]:
            return {"family": family}
        case ["vp" | "agent" | "feature" as family, name]:
            return {"family": family, family: name}
        case ["topic", *topic] if 1 <= len(topic) <= 2:
            return {"family": "topic", "topic": tuple(topic)}
        case ["chat", chat]:
            return {"family": "chat", "chat": chat}
        case ["chat", chat, "vp", vp]:
            return {"family": "chat", "chat": chat, "member": "vp", "vp": vp}
        case ["sessions", session]:
            return {"family": "sessions", "session": session}
        case ["sessions", session, "user"]:
            return {"family": "sessions", "session": session, "member": "user"}
        case ["sessions", session, "vp" | "feature" as member, name]:
            return {"family": "sessions", "session": session, "member": member, member: name}
        case ["sessions", session, "topic", *topic] if 1 <= len(topic) <= 2:
            return {
                "family": "sessions",
                "session": session,
                "member": "topic",
                "topic": tuple(topic),
            }
        case _:
            raise ScopeError(f"not a scope: {shown(text)}", hint=f"use {_FORMS}")
