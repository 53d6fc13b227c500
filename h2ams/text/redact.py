"""Private passages and secrets are replaced before text is kept (Pure).

``<private>…</private>`` hides what it encloses. Secrets are known by their form (issuer prefixes,
private key blocks, JSON web tokens), by their place (``Authorization`` headers, passwords in
URLs) or by the name they are assigned to. Hashes, UUIDs, prose about passwords and code that
fetches a token are left alone: there is no rule by entropy alone.

A rule runs only if one of its triggers, plain lower-case text, occurs at all; so ordinary prose
costs a few substring searches. Patterns are compiled when first needed: most processes need none.
No pattern repeats what repeats: time is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

_MARK = "[redacted:"
_PRIVATE = "private"
_KEY = "private-key"


@dataclass(frozen=True, slots=True)
class Redacted:
    """``text`` with ``[redacted:<kind>]`` where something was; ``kinds`` distinct and sorted."""

    text: str
    kinds: tuple[str, ...]


def placeholder(kind: str) -> str:
    """What stands in the place of something secret."""
    return f"{_MARK}{kind}]"


_ANY_CASE = re.IGNORECASE | re.ASCII


@cache
def _compiled(pattern: str, flags: int = re.ASCII) -> re.Pattern[str]:
    return re.compile(pattern, flags)


# ---------------------------------------------------------------- private passages

_PRIVATE_TAG = r"<\s{0,8}(/?)\s{0,8}private(?![\w-])[^<>]{0,200}(?<!/)>"


def _hide_private(text: str, kinds: set[str]) -> str:
    """Nested tags count; an unclosed one hides up to the end; a lone closing tag is text."""
    kept: list[str] = []
    depth = position = 0
    for tag in _compiled(_PRIVATE_TAG, re.IGNORECASE).finditer(text):
        if tag[1]:
            depth = max(0, depth - 1)
            if depth == 0 and position < 0:
                position = tag.end()
        else:
            if depth == 0:
                kept += [text[position : tag.start()], placeholder(_PRIVATE)]
                kinds.add(_PRIVATE)
                position = -1
            depth += 1
    return "".join(kept) + (text[position:] if position >= 0 else "")


# ---------------------------------------------------------------- private keys

_KEY_BORDER = r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
# What follows a border that is never closed: lines of base64 and the headers of old PEM files.
_BREAK = r"(?:\s|\\[nr])*+"
_KEY_LINES = (
    rf"(?:{_BREAK}(?:[A-Za-z0-9+/=]{{16,}}+|(?:Proc-Type|DEK-Info|Comment|Version):[^\n]{{0,200}}))*"
    rf"(?:{_BREAK}[A-Za-z0-9+/]{{1,15}}={{1,2}})?"
)


def _hide_keys(text: str, kinds: set[str]) -> str:
    kept: list[str] = []
    position = 0
    borders = list(_compiled(_KEY_BORDER).finditer(text))
    for border, following in zip_longest(borders, borders[1:]):
        if border[1] == "END":
            continue
        if following is not None and following[1] == "END":
            end = following.end()
        else:
            lines = _compiled(_KEY_LINES).match(text, border.end())
            end = lines.end() if lines else border.end()
        kept += [text[position : border.start()], placeholder(_KEY)]
        kinds.add(_KEY)
        position = end
    return "".join(kept) + text[position:]


# ---------------------------------------------------------------- assignments

# Words that stand where a value would, in documents and in code.
_NO_VALUES = frozenset(
    {
        "none", "null", "nil", "true", "false", "undefined", "string", "str", "number", "required",
        "optional", "default", "empty", "changeme", "password", "passwd", "secret", "token",
        "value", "bearer", "basic", "redacted", "hidden", "example",
    }
)  # fmt: skip
# Code that fetches a value, or a gap to be filled, rather than a value.
_CODE = (
    r"[$%<{\[*(]|\.\.\.|[A-Za-z_][\w.]*[(\[]|x{4,}|\W*\Z"
    r"|(?:self|this|config|cfg|settings|args|env|os|process|request|options|opts|ctx)[.\[]"
)
_NAMES_A_SECRET = r"pass(?:word|wd)|secret|token|[_-]?key\b|credential"
_NAME = (
    r"(?P<name>pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|token"
    r"|(?:api|access|private|signing|encryption|auth|master|account)[_-]?key|credentials?)"
    r"(?:_?[0-9]{1,3}|_(?:prod|dev|live|test|staging|base64|value))?"
)
_ASSIGNED = (
    rf"(?P<before>{_NAME}[\"']?\s{{0,8}}(?P<sign>:=|=>|=(?!=)|:(?![:/]))\s{{0,8}})"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,400})(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;&)\]}<>|\[]{4,400}))"
)
_SPOKEN = (
    r"(?P<before>(?:pass(?:word|phrase|code)|api key|[Пп]ароль|密码|密碼|口令)"
    r"\s{0,4}(?:is|was|:|：|=|是|—|-)\s{0,4}[\"'«“`]?)"
    r"(?P<bare>[^\s\"'`,;&<>\[\]»”|。，]{6,200})"
)

_Hidden = tuple[str, str, str]  # text before, kind, text behind


def _looks_made(value: str, least_chars: int) -> bool:
    """Letters and digits mixed, as in hardly any word of prose."""
    core = value.rstrip(".!?:")
    return (
        len(core) >= least_chars
        and any(each.isdigit() for each in core)
        and any(each.isalpha() for each in core)
        and "(" not in core
    )


def _kind_of_name(name: str) -> str:
    name = name.lower()
    if name.startswith(("pass", "pwd", "cred")):
        return "password"
    if name.startswith("token"):
        return "token"
    return "secret" if name.startswith("secret") else "api-key"


def _is_no_value(name: str, value: str) -> bool:
    return (
        value.lower().rstrip(".!?") in _NO_VALUES
        or _compiled(_CODE, _ANY_CASE).match(value) is not None
        or (name.lower() == "pwd" and value[0] in "/~.")  # the working folder
    )


def _hide_assigned(match: re.Match[str]) -> _Hidden | None:
    """``NAME=value`` and ``"name": "value"``; a bare value after ``:`` or blanks must look made."""
    before, quote = match["before"], match["quote"]
    kind = _kind_of_name(match["name"])
    value = match["quoted"] or match["bare"]
    if _MARK in value or _is_no_value(match["name"], value):
        return None
    if quote:
        sentence = " " in value and match["sign"] != "="  # messages of a validation
        return None if len(value) < 4 or sentence else (before + quote, kind, quote)
    if "(" in value:
        return None
    if match["sign"] == "=" and before.endswith("="):
        count = kind != "password" and value.isdigit() and len(value) < 12
        named = _compiled(_NAMES_A_SECRET, _ANY_CASE).search(value) and not _looks_made(value, 8)
        return None if count or named else (before, kind, _stop(value))
    return (before, kind, _stop(value)) if _looks_made(value, 8) else None


def _hide_spoken(match: re.Match[str]) -> _Hidden | None:
    value = match["bare"]
    if not _looks_made(value, 6) or _compiled(_CODE, _ANY_CASE).match(value):
        return None
    kind = "api-key" if match["before"][:3].lower() == "api" else "password"
    return match["before"], kind, _stop(value)


# How a name can end, with its suffix: most colons and equals signs stand behind other words.
_NAME_ENDS = (
    "word", "wd", "phrase", "code", "secret", "token", "key", "credential", "credentials",
    "_prod", "_dev", "_live", "_test", "_staging", "_base64", "_value", *"0123456789",
)  # fmt: skip


def _assigns_a_secret(low: str) -> bool:
    """Whether ``_ASSIGNED`` can match at all: looks at what stands before each ``=`` and ``:``."""
    for sign in ("=", ":"):
        at = low.find(sign)
        while at >= 0:
            if low[max(0, at - 32) : at].rstrip(" \t\n\r\f\v\"'").endswith(_NAME_ENDS):
                return True
            at = low.find(sign, at + 1)
    return False


def _stop(value: str) -> str:
    """The end of the sentence that stands right behind a secret."""
    return value[len(value.rstrip(".!?")) :]


# ---------------------------------------------------------------- places

_HEADER = (
    r"(?P<before>authorization[\"']?\s{0,8}[:=]\s{0,8}[\"']?(?:bearer|basic|token)\s{1,8})"
    r"(?P<bare>[A-Za-z0-9._~+/=:-]{8,4000})"
)
_BEARER = r"(?P<before>\bBearer\s{1,8})(?P<bare>[A-Za-z0-9._~+/=-]{20,4000})"
_URL = (
    r"(?P<before>\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@\"'<>]{0,100}:)(?P<bare>[^\s/\"'<>]{1,200})(?=@)"
)


def _hide_header(match: re.Match[str]) -> _Hidden | None:
    value = match["bare"]
    if len(value) < 20 and not _looks_made(value, 8):
        return None  # "Authorization: Bearer authentication"
    return match["before"], "bearer-token", _stop(value)


def _hide_bearer(match: re.Match[str]) -> _Hidden | None:
    value = match["bare"]
    return (match["before"], "bearer-token", _stop(value)) if _looks_made(value, 20) else None


def _hide_url(match: re.Match[str]) -> _Hidden | None:
    value = match["bare"]
    gap = value[0] in "$<{[%*" and value[-1] in ">}]%*"
    return None if _MARK in value or gap else (match["before"], "password", "")


# ---------------------------------------------------------------- forms by issuer


def _hide_sk(match: re.Match[str]) -> _Hidden | None:
    """``sk-…`` in kebab case of words (``sk-toggle-with-a-long-name``) is no key."""
    longest = max(map(len, re.split("[-_]", match[0][3:])))
    return ("", "api-key", "") if longest >= 16 else None


@dataclass(frozen=True, slots=True)
class _Rule:
    triggers: tuple[str, ...]  # lower case; one of them occurs wherever the pattern matches
    pattern: str
    hide: Callable[[re.Match[str]], _Hidden | None]
    flags: int = re.ASCII
    needed: Callable[[str], bool] = bool  # a closer look at the lower-case text

    def apply(self, text: str, kinds: set[str]) -> str:
        def replace(match: re.Match[str]) -> str:
            hidden = self.hide(match)
            if hidden is None:
                return match[0]
            before, kind, behind = hidden
            kinds.add(kind)
            return before + placeholder(kind) + behind

        return _compiled(self.pattern, self.flags).sub(replace, text)


_START = r"(?<![A-Za-z0-9_])"


def _form(kind: str, triggers: str, pattern: str, start: str = _START) -> _Rule:
    return _Rule(tuple(triggers.split()), start + pattern, lambda match: ("", kind, ""))


_RULES = (
    _Rule(("sk-",), rf"{_START}sk-[A-Za-z0-9_-]{{20,}}", _hide_sk),
    _form("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[opusr]_[A-Za-z0-9]{20,}"),
    _form("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
    _form("gitlab-token", "glpat-", r"glpat-[A-Za-z0-9_-]{20,}"),
    _form("aws-key", "akia asia", r"A(?:KI|SI)A[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _form("jwt", "eyj", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*"),
    _form("slack-token", "xox xapp-", r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}"),
    _form(
        "slack-token",
        "hooks.slack.com",
        r"[A-Za-z0-9/]{20,}",
        start=r"(?<=hooks\.slack\.com/services/)",
    ),
    _form("api-key", "aiza", r"AIza[0-9A-Za-z_-]{35,}"),
    _form("api-key", "_live_ _test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    _form("api-key", "sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _form("package-token", "npm_ hf_", r"(?:npm|hf)_[A-Za-z0-9]{30,}"),
    _form("package-token", "pypi-", r"pypi-[A-Za-z0-9_-]{40,}"),
    _Rule(("authorization",), _HEADER, _hide_header, _ANY_CASE),
    _Rule(("bearer",), _BEARER, _hide_bearer),
    _Rule(("://",), _URL, _hide_url, _ANY_CASE),
    _Rule(
        ("pass", "pwd", "secret", "token", "key", "credential"),
        _ASSIGNED,
        _hide_assigned,
        _ANY_CASE,
        _assigns_a_secret,
    ),
    _Rule(
        ("password", "passphrase", "passcode", "api key", "пароль", "密码", "密碼", "口令"),
        _SPOKEN,
        _hide_spoken,
        _ANY_CASE,
    ),
)
_TRIGGERS = tuple({_PRIVATE, "private key"}.union(*(rule.triggers for rule in _RULES)))


def redact(text: str) -> Redacted:
    """``text`` without private passages and secrets; the words around them stay.

    Idempotent: a text once redacted is left as it is and reports no kinds.
    """
    low = text.lower()
    found = {each for each in _TRIGGERS if each in low}
    kinds: set[str] = set()
    if _PRIVATE in found and "<" in low:
        text = _hide_private(text, kinds)
    if "private key" in found:
        text = _hide_keys(text, kinds)
    for rule in _RULES if found else ():
        if not found.isdisjoint(rule.triggers) and rule.needed(low):
            text = rule.apply(text, kinds)
    return Redacted(text, tuple(sorted(kinds)))
