"""Single values of a header: times, kinds, tags, ids of source messages (Pure).

Each reader takes whatever stands in a file and gives a clean value, saying what it left out; each
``check_`` function takes what a caller passes and refuses it with a ``UsageError``. Both sides use
the same rules, so a value that was written is read back equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from h2ams.errors import UsageError
from h2ams.settings import KINDS

SHOWN_CHARS = 60  # of a wrong argument, in the error that names it
DEFAULT_KIND = "context"  # docs/format.md, "Values": an unknown kind is shown as context

# Python's ISO reader takes any separator and some forms that are not ISO: the shape comes first.
_ISO_SHAPE = re.compile(
    r"(?:\d{4}-\d\d-\d\d|\d{8}|\d{4}-?W\d\d(?:-?\d)?)(?:[T ][0-9:.,+Z -]*)?", re.ASCII
)
_WRITTEN_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
_BLANK_BEFORE_OFFSET = re.compile(r"[ \t]+(?=[+-]\d\d:?\d\d$|Z$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_BLANK_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:+-]+")
_PAIR = r"[\ud800-\udbff][\udc00-\udfff]"  # these two are compiled when first needed
_SURROGATES = r"[\ud800-\udfff]+"
_NOTE_ID = re.compile(r"(?:note_[0-9a-f]{16}|content_[0-9a-f]{12})(?:~\d+)?")
_SOURCE_KEYS = ("id", "messageId", "uuid")  # docs/format.md, "Source messages"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something a person should know about a file; nothing was dropped because of it.

    ``code`` is stable and made of lower-case words with hyphens. ``line`` is 1-based. ``path`` is
    relative to the root, empty until the reader of the file fills it in. ``fixable`` means that
    ``doctor --fix`` can put it right. A ``notice`` is no fault at all: text without a header,
    a field left out, a key that the engine does not know.
    """

    code: str
    message: str
    line: int
    path: str = ""
    fixable: bool = False
    notice: bool = False


class Time(NamedTuple):
    """A time as read: ``iso`` in UTC with whole seconds and ``Z``, or ``None`` where undated.

    ``problem`` is ``"unparsable-time"``, ``"future-time"`` or ``None``. A future time keeps its
    ``iso``; who ranks treats it as undated.
    """

    iso: str | None
    problem: str | None


class Sources(NamedTuple):
    """Ids of source messages, and how many items named none (raw text, objects without an id)."""

    ids: tuple[str, ...]
    left_out_count: int


def check_text(value: object, name: str) -> None:
    """``UsageError`` where what a caller gives for ``name`` is not a text."""
    if not isinstance(value, str):
        raise unexpected(value, name, "a text")


def check_texts(value: object, name: str) -> tuple[str, ...]:
    """The texts that a caller gives for ``name``; one text is not a list of its letters."""
    several = check_several(value, name)
    if not all(isinstance(each, str) for each in several):
        raise unexpected(value, name, "a list of texts")
    return several


def check_several(value: object, name: str) -> tuple[Any, ...]:
    """The items that a caller gives for ``name``, whatever they are."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise unexpected(value, name, "a list of texts")
    return tuple(value)


def check_number(value: object, name: str, *, whole: bool = True) -> None:
    """``UsageError`` where what a caller gives for ``name`` is neither None nor a number."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return
    if whole or not isinstance(value, float):
        raise unexpected(value, name, "a whole number" if whole else "a number")


def unexpected(value: object, name: str, expected: str) -> UsageError:
    """The error for an argument of another type than its method takes."""
    given = repr(value)
    given = given if len(given) <= SHOWN_CHARS else given[: SHOWN_CHARS - 1] + "…"
    return UsageError(f"{name}: {given} is a {type(value).__name__}", hint=f"give {expected}")


def clean_text(text: str) -> str:
    """``text`` as UTF-8 can encode it: surrogate pairs are joined, lone ones become U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        joined = re.sub(_PAIR, _join, text)
        return re.sub(_SURROGATES, lambda match: "\ufffd" * len(match[0]), joined)
    return text


def _join(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def trim_blank_lines(text: str) -> str:
    """``text`` without its leading and trailing blank lines; other blanks stay as they are."""
    if not text or not (text[0].isspace() or text[-1].isspace()):
        return text
    end = len(text.rstrip())
    if not end:
        return ""
    cut = text.find("\n", end)
    if cut >= 0:
        text = text[:cut]
    lead = len(text) - len(text.lstrip())
    return text[text.rfind("\n", 0, lead) + 1 :]


def parse_time(text: str | None, now: datetime | None = None) -> Time:
    """Read an ISO 8601 time; naive means UTC, fractions are cut. Never raises.

    With ``now`` (aware) given, a later time is reported as ``"future-time"``.
    """
    if not text:
        return Time(None, None)
    if now is None and _WRITTEN_TIME.fullmatch(text):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            return Time(None, "unparsable-time")
        return Time(text[:19] + "Z", None)
    shown = text.strip()
    if not shown:
        return Time(None, None)
    shown = shown.upper()
    if not _ISO_SHAPE.fullmatch(shown):
        return Time(None, "unparsable-time")
    try:
        moment = datetime.fromisoformat(_BLANK_BEFORE_OFFSET.sub("", shown))
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return Time(None, "unparsable-time")
    late = now is not None and moment > now
    return Time(format_time(moment), "future-time" if late else None)


def format_time(moment: datetime) -> str:
    """The written form of a time: UTC, whole seconds, ``Z``. A naive ``moment`` is UTC."""
    if moment.tzinfo is not None and moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.replace(tzinfo=None, microsecond=0).isoformat() + "Z"


def check_kind(kind: str) -> str:
    """``kind`` itself, one of ``KINDS``; ``UsageError`` otherwise."""
    if kind not in KINDS:
        raise UsageError(f"unknown kind {kind!r}", hint="kinds: " + ", ".join(KINDS))
    return kind


def read_kind(text: str) -> tuple[str, bool]:
    """A kind as it counts, and whether ``text`` named one. Case and blanks around do not count."""
    kind = text.strip().lower()
    return (kind, True) if kind in KINDS else (DEFAULT_KIND, False)


def check_id(text: str) -> str:
    """A segment's id without blanks around; ``UsageError`` for controls or line breaks."""
    name = clean_text(text).strip()
    if _CONTROL.search(name):
        raise UsageError(f"an id holds no control characters or line breaks: {name!r}")
    return name


def is_id(text: str) -> bool:
    """Whether ``text`` can be an id as it stands (not empty, no control characters)."""
    return bool(text.strip()) and not _CONTROL.search(text)


def is_note_id(id: str) -> bool:
    """Whether ``id`` looks like one that the engine gives to a section of a note."""
    return _NOTE_ID.fullmatch(id) is not None


def clean_tags(value: object) -> tuple[str, ...]:
    """Tags in order, once each: from a list, or from one string parted by commas.

    Runs of blanks and control characters become one blank; empty tags and items that are no
    scalar are left out.
    """
    if type(value) is tuple and _are_plain(value):
        return value
    if isinstance(value, str):
        items: Iterable[object] = value.split(",")
    elif isinstance(value, Iterable) and not isinstance(value, Mapping):
        items = value
    else:
        return ()
    tags: dict[str, None] = {}
    for item in items:
        if not isinstance(item, str):
            continue
        if not _PLAIN_WORD.fullmatch(item):
            item = " ".join(_CONTROL.sub(" ", clean_text(item)).split())
        if item:
            tags[item] = None
    return tuple(tags)


def _are_plain(items: tuple[object, ...]) -> bool:
    """Whether all items are plain words, once each: the usual case, in one quick look."""
    for item in items:
        if not (isinstance(item, str) and _PLAIN_WORD.fullmatch(item)):
            return False
    return len(items) < 2 or len(set(items)) == len(items)


def source_id(item: object) -> str | None:
    """The message id that ``item`` names: a string without blanks, or an object's id.

    Objects (and strings that hold a JSON object) give their ``id``, else ``messageId``, else
    ``uuid``. Raw message text is no id: ``None``.
    """
    if isinstance(item, str):
        text = clean_text(item).strip()
        if text.startswith("{"):
            return _id_in_json(text)
        return text if text and not _BLANK_OR_CONTROL.search(text) else None
    if isinstance(item, Mapping):
        for key in _SOURCE_KEYS:
            found = item.get(key)
            if isinstance(found, int) and not isinstance(found, bool):
                return str(found)
            if isinstance(found, str) and found.strip() and not found.lstrip().startswith("{"):
                return source_id(found)
    return None


def read_sources(value: object) -> Sources:
    """Ids from a list, one object, or one string parted by commas; in order, once each."""
    if type(value) is tuple and _are_plain(value):
        return Sources(value, 0)
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        items: Iterable[object] = value.split(",")
    elif isinstance(value, str | Mapping):
        items = (value,)
    elif isinstance(value, Iterable):
        items = value
    else:
        return Sources((), 0)
    ids: dict[str, None] = {}
    left_out_count = 0
    for item in items:
        if isinstance(item, str) and not item.strip():
            continue
        found = source_id(item)
        if found is None:
            left_out_count += 1
        else:
            ids[found] = None
    return Sources(tuple(ids), left_out_count)


def check_sources(values: Iterable[str]) -> tuple[str, ...]:
    """Ids of source messages that a caller passes; ``UsageError`` where one is no id."""
    found = read_sources(values)
    if found.left_out_count:
        raise UsageError(
            f"source messages are ids without blanks: {found.left_out_count} of them are not",
            hint="pass the message's id, not its text",
        )
    return found.ids


def _id_in_json(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None  # raw text that begins with a brace
    return source_id(value) if isinstance(value, dict) else None
