"""A note, plain Markdown of any origin, as sections under its headings (Pure).

Strategy: frontmatter gives kind, tags and a date for the whole note; one regular expression finds
the lines that can be a heading or a fence, and one pass over them builds the path of headings.
A note is never rewritten; offsets and lines say where each section stands.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from h2ams.memory import spans, values
from h2ams.memory.front import Front, read_front
from h2ams.memory.values import Problem
from h2ams.settings import DEFAULTS, Settings

HEADING_SEPARATOR = " > "
MAX_SETEXT_LINES_COUNT = 4  # a longer paragraph above a rule is text
MAX_SETEXT_CHARS = 200
_UPDATED_KEYS = ("updatedAt", "updated", "modified", "lastmod", "date")
_KIND_KEYS = ("kind", "type")
_NAME_KEYS = ("title", "name", "aliases", "alias", "description")
_BLANK_LINES = re.compile(r"\n(?:[ \t\r]*\n)+")
_TAG_KEYS = ("tags", "tag")

_MARKS = re.compile(
    r"\n(?: {0,3}(#{1,6})(?=[ \t\r\n]|\Z)([^\n]*)"
    r"| {0,3}(=+|-{2,})[ \t\r]*+(?=\n|\Z)"
    r"|([ \t>*+\-\d.)]*+)(`{3,}+|~{3,}+)([^\n]*+))"
)
# Lines that are no paragraph, so that a rule below them makes no heading: indented code, quotes,
# list items, table rows, headings, HTML, fences, rules.
_NO_PARAGRAPH = re.compile(
    r" {4}|\t| {0,3}(?:>|[-*+](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$)|\||#{1,6}(?:[ \t]|$)|<)"
    r"| {0,3}(?:`{3}|~{3}|(?:=+|-{2,})[ \t]*$)"
)
_CLOSING_SIGNS = re.compile(r"(?:\A|[ \t])#+[ \t]*\Z")


@dataclass(frozen=True, slots=True)
class Section:
    """One section of a note. ``heading`` is its path (``"A > B"``), empty before any heading.

    ``body`` is the text below the heading, up to the next one; a heading with nothing below it at
    all has its own line there. ``line`` (1-based) is the heading's, or the text's without one.
    ``start`` and ``end`` are offsets in the note's decoded text (no BOM), heading included.
    ``names`` are what the note itself is called (file name, title, aliases …): in its first
    section only. A long section is several ones with the same heading, cut at blank lines.
    """

    heading: str
    body: str
    line: int
    id: str
    kind: str
    tags: tuple[str, ...]
    updated_at: str | None
    start: int
    end: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Heading:
    level: int
    text: str
    start: int
    body_start: int


def parse_note(
    data: bytes, *, name: str, settings: Settings = DEFAULTS
) -> tuple[tuple[Section, ...], tuple[Problem, ...]]:
    """Sections of a note in order, and what is odd about it. Never raises.

    ``name`` is the note's path relative to its scope folder: ids are made from it.
    """
    text, problems = _decode(data)
    front = read_front(text, settings)
    problems += front.problems
    headings, fence_at = _headings(text, front.body_start)
    if fence_at is not None:
        line = text.count("\n", 0, fence_at) + 1
        problems.append(Problem("unclosed-fence", "a code fence is never closed", line))
    sections = [
        passage
        for section in _sections(text, front, headings)
        for passage in _passages(section, text, settings.note_passage_chars)
    ]
    numbered = _numbered(sections, name)
    if numbered:
        numbered[0] = replace(numbered[0], names=_names(front.values, name))
    return tuple(numbered), tuple(problems)


def note_id(name: str, heading: str, ordinal: int) -> str:
    """The id of a section: ``ordinal`` counts from 0 among equal heading paths of the note."""
    parts = "\0".join((unicodedata.normalize("NFC", name), heading, str(ordinal)))
    return "note_" + hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:16]


def content_id(scope: str) -> str:
    """The id of a historical ``content.md``: one segment for the whole scope."""
    return "content_" + hashlib.sha256(scope.encode("utf-8")).hexdigest()[:12]


def _decode(data: bytes) -> tuple[str, list[Problem]]:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            problem = Problem("utf-16", "the note is UTF-16: save it as UTF-8", 1)
            return values.clean_text(data[2:].decode(encoding, "replace")), [problem]
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{error.object[error.start]:02X} is not UTF-8: read with replacement"
        return data.decode("utf-8-sig", "replace"), [Problem("invalid-utf-8", message, line)]


def _headings(text: str, start: int) -> tuple[list[_Heading], int | None]:
    """Headings outside fences, and where a fence is opened that nothing closes."""
    found: list[_Heading] = []
    fence: spans.Fence | None = None
    padded = "\n" + text
    for mark in _MARKS.finditer(padded, start):
        at = mark.start()
        if mark[5] is not None:
            fence = spans.next_fence(fence, at, (mark[4], mark[5], mark[6]), text)
            continue
        if fence is not None and not fence.contained:
            continue
        line_end = text.find("\n", at)
        after = len(text) if line_end < 0 else line_end + 1
        if mark[1] is not None:
            title = _CLOSING_SIGNS.sub("", mark[2].rstrip()).strip()
            found.append(_Heading(len(mark[1]), title, at, after))
            continue
        lower = found[-1].body_start if found else start
        paragraph = _paragraph_before(text, at, lower)
        if paragraph is not None:
            first, title = paragraph
            found.append(_Heading(1 if mark[3][0] == "=" else 2, title, first, after))
    return found, fence.at if fence is not None and not fence.contained else None


def _paragraph_before(text: str, at: int, lower: int) -> tuple[int, str] | None:
    """Start and text of the paragraph that ends right before ``at``, if it can be a heading."""
    first = at
    lines: list[str] = []
    while first > lower:
        line_start = text.rfind("\n", lower, first - 1) + 1 or lower
        line = text[line_start : first - 1].rstrip()
        if not line or _NO_PARAGRAPH.match(line):
            break
        lines.append(line.strip())
        first = line_start
        if len(lines) > MAX_SETEXT_LINES_COUNT:
            return None
    title = " ".join(reversed(lines))
    return (first, title) if title and len(title) <= MAX_SETEXT_CHARS else None


def _sections(text: str, front: Front, headings: list[_Heading]) -> list[Section]:
    kind, tags, updated = _of_whole_note(front.values)
    sections: list[Section] = []
    path: list[_Heading] = []
    line, line_at = 1, 0
    top = _Heading(0, "", front.body_start, front.body_start)
    borders = [top, *headings]
    for index, heading in enumerate(borders):
        end = borders[index + 1].start if index + 1 < len(borders) else len(text)
        path = [above for above in path if above.level < heading.level]
        path.append(heading)
        is_leaf = index + 1 == len(borders) or borders[index + 1].level <= heading.level
        body = _body(text, heading, end, is_leaf)
        if not body:
            continue
        start = heading.start
        if not heading.level:
            region = text[start:end]
            start += region.rfind("\n", 0, len(region) - len(region.lstrip())) + 1
        line, line_at = line + text.count("\n", line_at, start), start
        title = HEADING_SEPARATOR.join(above.text for above in path if above.level)
        end = start + len(text[start:end].rstrip())
        sections.append(Section(title, body, line, "", kind, tags, updated, start, end))
    return sections


def _passages(section: Section, text: str, limit_chars: int) -> list[Section]:
    """A section of more than ``limit_chars`` in pieces of whole paragraphs, none much longer.

    A paragraph, list or code block without a blank line in it stays whole, however long.
    """
    if len(section.body) <= limit_chars:
        return [section]
    cuts = [section.start]
    last = section.start
    for blank in _BLANK_LINES.finditer(text, section.start, section.end):
        if blank.end() - cuts[-1] > limit_chars and last > cuts[-1]:
            cuts.append(last)
        last = blank.end()
    if section.end - cuts[-1] > limit_chars and last > cuts[-1]:
        cuts.append(last)
    if len(cuts) == 1:
        return [section]
    pieces = []
    first_body = text.find("\n", section.start) + 1 if section.heading else section.start
    for start, end in zip(cuts, [*cuts[1:], section.end], strict=True):
        from_here = first_body if start == section.start else start
        body = values.trim_blank_lines(text[from_here:end].replace("\r\n", "\n"))
        if not body:
            continue
        line = section.line + text.count("\n", section.start, start)
        end = start + len(text[start:end].rstrip())
        body = values.clean_text(body)
        pieces.append(replace(section, body=body, line=line, start=start, end=end))
    return pieces


def _numbered(sections: list[Section], name: str) -> list[Section]:
    """With ids: by heading, and by the place among the sections with the same heading."""
    counts: dict[str, int] = {}
    found = []
    for section in sections:
        ordinal = counts.get(section.heading, 0)
        counts[section.heading] = ordinal + 1
        found.append(replace(section, id=note_id(name, section.heading, ordinal)))
    return found


def _names(facts: Mapping[str, object], name: str) -> tuple[str, ...]:
    """What the note is called: file name without its ending, title, aliases, description."""
    stem = name.rsplit("/", 1)[-1].removesuffix(".md")
    found = [stem]
    for key in _NAME_KEYS:
        given = facts.get(key)
        if isinstance(given, str):
            found.append(given)
        elif isinstance(given, list | tuple):
            found.extend(each for each in given if isinstance(each, str))
    return tuple(dict.fromkeys(values.clean_text(each) for each in found if each.strip()))


def _body(text: str, heading: _Heading, end: int, is_leaf: bool) -> str:
    body = values.trim_blank_lines(text[heading.body_start : end].replace("\r\n", "\n"))
    if not body and is_leaf and heading.text:
        body = text[heading.start : heading.body_start].replace("\r\n", "\n").strip()
    return values.clean_text(body)


def _of_whole_note(facts: Mapping[str, object]) -> tuple[str, tuple[str, ...], str | None]:
    """Kind, tags and time of all sections: what the frontmatter says in any usual spelling."""
    kinds = (values.read_kind(str(facts[key])) for key in _KIND_KEYS if facts.get(key))
    kind = next((kind for kind, known in kinds if known), values.DEFAULT_KIND)
    given = next((facts[key] for key in _TAG_KEYS if facts.get(key)), ())
    tags = tuple(tag.lstrip("#") for tag in values.clean_tags(given) if tag.strip("#"))
    times = (str(facts[key]).strip() for key in _UPDATED_KEYS if facts.get(key))
    updated = next((time for time in times if values.parse_time(time).iso), None)
    return kind, tags, updated
