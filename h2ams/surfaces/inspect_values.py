"""What pages of the inspector are made of: what was asked for, text made safe, bars, pages.

Text of memories, names and queries is data. ``shown`` spells out what would drive a browser or
deceive a reader: control characters, characters that reorder a line, invisible ones that only a
model would read. Escaping for HTML is the templates' part and always on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

from h2ams.active.block import SUMMARY_ID
from h2ams.errors import AccessError, UsageError
from h2ams.surfaces.output import encodable, visible

if TYPE_CHECKING:
    from h2ams.engine import Memory
    from h2ams.memory.access import Access

SEGMENTS_COUNT = 50  # on one page
ROWS_COUNT = 100  # messages of a thread on one page
HITS_MOST = 200  # on the page of a recall
MOST_DIGITS = 9
WHOLE = 1_000.0  # the length of a bar, in the units of its drawing

# Embeddings, overrides and isolates reorder what stands behind them; tag characters are invisible.
_DECEIVING = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xE0000, 0xE0080)]
_SPELLED = {code: f"\\u{code:04x}" for code in _DECEIVING}
_NUMBER = re.compile(rf"[0-9]{{1,{MOST_DIGITS}}}")

_T = TypeVar("_T")


def shown(text: str) -> str:
    """``text`` for the eye of a person, in characters that UTF-8 can encode."""
    return visible(encodable(text)).translate(_SPELLED)


def is_plain(text: str) -> bool:
    """Whether a text field of a browser gives ``text`` back as it was, but for its line ends."""
    return "\r" not in text and visible(encodable(text)) == text


def link(path: str, **fields: object) -> str:
    """The address of a page with its fields; those that are None or empty are left out."""
    given = {name: str(value) for name, value in fields.items() if value not in (None, "", False)}
    query = urlencode(given, errors="replace")
    return f"{path}?{query}" if query else path


def page_of(address: str) -> str:
    """Where an address is shown: a segment's own page, a summary with its scope."""
    scope, _, id = address.rpartition("#")
    if id == SUMMARY_ID:
        return link("/scope", name=scope)
    return link("/segment", address=address)


class Fields:
    """The fields of a query string or a form. Of a repeated one the last counts."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values = dict(pairs)

    def text(self, name: str) -> str:
        """The text of a field, "" where it was not given."""
        return self._values.get(name, "")

    def needed(self, name: str) -> str:
        """The text of a field that must be there; ``UsageError``."""
        value = self.text(name)
        if not value:
            raise UsageError(f"{name} is missing", hint="follow a link of these pages")
        return value

    def whole(self, name: str) -> int | None:
        """A whole number of 0 or more, None where the field is blank; ``UsageError``."""
        text = self.text(name).strip()
        if not text:
            return None
        if not _NUMBER.fullmatch(text):
            wanted = f"a whole number from 0 on, of at most {MOST_DIGITS} digits"
            raise UsageError(f"{name}: {text[:40]!r} is not {wanted}", hint=f"give {wanted}")
        return int(text)

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a field, which commas part."""
        return tuple(word for each in self.text(name).split(",") if (word := each.strip()))


@dataclass(frozen=True, slots=True)
class Inspecting:
    """What the pages look at: one open memory under one access (None: the owner).

    ``write`` allows the two changes there are; ``mark`` is the secret that their forms carry.
    """

    memory: Memory
    access: Access | None
    write: bool = False
    mark: str = ""

    def owner_only(self, what: str) -> None:
        """``AccessError`` where the access is not the owner's."""
        if self.access is not None:
            raise AccessError(
                f"{what} is the owner's to see", hint="start h2ams inspect with --owner"
            )


@dataclass(frozen=True, slots=True)
class Page:
    """A template with its values. ``section`` is where the navigation stands."""

    template: str
    title: str
    values: Mapping[str, object]
    section: str = ""
    status: int = 200


@dataclass(frozen=True, slots=True)
class Moved:
    """What was asked is done: the browser goes on to ``to``."""

    to: str


Show = Callable[[Inspecting, Fields], Page]
Act = Callable[[Inspecting, Fields], Page | Moved]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: its name, what it stands for, where it is drawn (of ``WHOLE``)."""

    name: str
    value: float
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class Bar:
    """Parts of a whole, drawn one behind the other; never longer than the whole.

    ``label`` says the same in words, for those who do not see it.
    """

    label: str
    parts: tuple[Part, ...]


def bar(label: str, values: Iterable[tuple[str, float]], whole: float) -> Bar:
    """A bar of ``values`` (name, amount), where ``whole`` fills it; negative amounts have no
    length."""
    parts: list[Part] = []
    at = 0.0
    for name, value in values:
        share = max(0.0, value) / whole if whole > 0 else 0.0
        length = round(min(WHOLE - at, share * WHOLE), 1)
        parts.append(Part(name, value, round(at, 1), length))
        at += length
    return Bar(label, tuple(parts))


@dataclass(frozen=True, slots=True)
class Pages:
    """One page of many things. ``number`` counts from 1; ``first`` is that of its first thing."""

    number: int
    count: int
    first: int
    total: int

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.count else None


def paged(things: Sequence[_T], wanted: int | None, most: int) -> tuple[Sequence[_T], Pages]:
    """The things of page ``wanted``, at most ``most``; behind the end it is the last page."""
    count = max(1, -(-len(things) // most))
    number = min(max(1, wanted or 1), count)
    start = (number - 1) * most
    return things[start : start + most], Pages(number, count, start + 1, len(things))


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a unified diff: ``sign`` is ``+``, ``-``, ``@`` or a blank."""

    sign: str
    text: str


def diff_lines(diff: str) -> list[DiffLine]:
    """The lines of a unified diff behind its two headings."""
    lines = diff.split("\n")[2:]
    if lines and not lines[-1]:
        del lines[-1]
    return [DiffLine(line[:1] if line[:1] in "+-@" else " ", line) for line in lines]


def access_text(access: Access | None) -> str:
    """Whose eyes the pages have, in a few words."""
    if access is None:
        return "owner: everything"
    named = [
        ("session", access.session), ("chat", access.chat), ("VP", access.vp),
        ("agent", access.agent), ("related", ", ".join(access.related_sessions)),
        ("also", ", ".join(access.scopes)),
    ]  # fmt: skip
    said = [f"{name} {value}" for name, value in named if value]
    if access.user is False:
        said.append("without user")
    elif access.user:
        said.append("user" if access.user is True else f"user: {access.user}")
    return " · ".join(said) or "an access to nothing"


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the browser: a page, or where to go."""

    status: int
    html: str = field(default="", repr=False)
    location: str = ""
