"""From the bytes of a memory file to a ``Document`` (Pure).

Strategy: decode without loss, let ``spans`` cut the text, make a ``Segment`` of each header and
body, and turn everything odd into a ``Problem`` with its line. Nothing raises, nothing is dropped.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as with_values
from datetime import datetime

from h2ams.memory import header as headers
from h2ams.memory import spans, values
from h2ams.memory.entry import Document, Entry, Segment, of_normal_values
from h2ams.memory.header import Header
from h2ams.memory.spans import Span
from h2ams.memory.values import Problem
from h2ams.settings import DEFAULTS, KINDS, Settings

# Ids that the engine gives to what has none in its file: a hand-written one never takes them.
_RESERVED_ID = re.compile(r"(?:note_[0-9a-f]{16}|content_[0-9a-f]{12}|summary)(?:~\d+)?")
_CONFLICT = re.compile(r"^<{7}(?: .*)?\r?$", re.MULTILINE)
_ESCAPED_LINE = re.compile(r"^\\", re.MULTILINE)
_EXPECTED_KEYS = ("id", "kind", "createdAt", "updatedAt")
_NO_HEADER = Header()


def parse(data: bytes, *, settings: Settings = DEFAULTS, now: datetime | None = None) -> Document:
    """Read any bytes whatsoever. Never raises; what is odd is in ``problems``.

    With ``now`` (aware) given, times that lie after it are reported. A file over
    ``max_file_bytes`` is reported and has no entries.
    """
    document = _decode(data)
    if document.encoding == "unreadable":
        return document
    if len(data) > settings.max_file_bytes:
        message = f"max_file_bytes: the file has {len(data)}, limit {settings.max_file_bytes}"
        problem = Problem("over-limit", message, 1)
        return with_values(document, problems=(problem,), read_only="the file is too big")
    found = spans.scan(document.text, settings)
    reader = _Reader(document, settings, now)
    entries = reader.read(spans.spans_of(document.text, found))
    reader.report(found.problems)
    ends_file = found.blocks and not document.text[found.blocks[-1][1] :].strip()
    problems = sorted((*document.problems, *reader.problems), key=lambda problem: problem.line)
    return with_values(
        document,
        entries=entries,
        problems=tuple(problems),
        tail_start=found.blocks[-1][0] if ends_file else None,
    )


def _decode(data: bytes) -> Document:
    for mark, encoding in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if data.startswith(mark):
            return _decode_utf16(data, len(mark), encoding)
    bom = data.startswith(codecs.BOM_UTF8)
    if bom:
        data = data[len(codecs.BOM_UTF8) :]
    problems: list[Problem] = []
    read_only = ""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data.decode("utf-8", "surrogateescape")
        line = data.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{data[error.start]:02X} is not UTF-8: the file is read, not rewritten"
        problems.append(Problem("invalid-utf-8", message, line))
        read_only = "the file is not valid UTF-8"
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        problems.append(Problem("nul-bytes", "the file holds NUL bytes", line))
    first = text.find("\n")
    newline = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
    return Document(text, (), tuple(problems), newline, bom, read_only)


def _decode_utf16(data: bytes, start: int, encoding: str) -> Document:
    """UTF-16 is read where it is valid, and never rewritten."""
    problems = (Problem("utf-16", "the file is UTF-16: save it as UTF-8", 1),)
    try:
        text = data[start:].decode(encoding)
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")
        encoding = "unreadable"
    return Document(text, (), problems, read_only="the file is UTF-16", encoding=encoding)


class _Lines:
    """Line numbers of growing offsets, each line counted once."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._line = text, 0, 1

    def __call__(self, offset: int) -> int:
        self._line += self._text.count("\n", self._at, offset)
        self._at = offset
        return self._line


class _Reader:
    """Makes entries of spans and collects problems."""

    def __init__(self, document: Document, settings: Settings, now: datetime | None) -> None:
        self.problems: list[Problem] = []
        self._text = document.text
        self._is_clean = not document.read_only  # no surrogates that stand for bad bytes
        self._settings = settings
        self._now = now

    def read(self, found: Sequence[Span]) -> tuple[Entry, ...]:
        lines = _Lines(self._text)
        placed = [(span, lines(span.start)) for span in found]
        segments = [self._segment(span, line) for span, line in placed]
        names = self._address_ids(segments, [line for _, line in placed])
        return tuple(map(self._entry, placed, segments, names))

    def report(self, found: Iterable[Problem]) -> None:
        """Take over problems whose ``line`` is an offset; look for what concerns the whole text."""
        lines = _Lines(self._text)
        for problem in sorted(found, key=lambda problem: problem.line):
            self.problems.append(with_values(problem, line=lines(problem.line)))
        if "<<<<<<<" in self._text and ">>>>>>>" in self._text:
            lines = _Lines(self._text)
            for match in _CONFLICT.finditer(self._text):
                self._add("merge-conflict", "markers of a merge conflict", lines(match.start()))

    def _entry(self, placed: tuple[Span, int], segment: Segment, name: str) -> Entry:
        span, line = placed
        raw = self._text[span.start : span.end]
        header = span.header
        return Entry(
            segment,
            line,
            line + raw.count("\n"),
            span.start,
            span.end,
            raw,
            header is not None or span.canonical is not None,
            header.read_only if header is not None else "",
            name,
            span.body_start,
            span.crlf,
            header.escaped if header is not None else _is_escaped(span),
        )

    def _segment(self, span: Span, line: int) -> Segment:
        body = self._text[span.body_start : span.end] if span.end > span.body_start else ""
        if span.crlf:
            body = body.replace("\r\n", "\n")
        if span.canonical is not None:
            return self._from_canonical(span.canonical, body, line)
        if span.header is None:
            self._add("no-header", "text without a header", line, notice=True)
            return Segment(body)
        if span.header.escaped:
            body = _ESCAPED_LINE.sub("", body)
        for problem in span.header.problems:
            self.problems.append(with_values(problem, line=line + 1 + problem.line))
        if not span.header.values:
            return Segment(body)
        return self._from_values(span.header.values, span.header.unknown, body, line)

    def _from_canonical(self, match: re.Match[str], body: str, line: int) -> Segment:
        name, scope, kind, tags, sources, created, updated, escaped = match.groups()
        if escaped:
            body = _ESCAPED_LINE.sub("", body)
        scalars = (name, scope, kind, created, updated)
        if kind not in KINDS or not headers.NULL_WORDS.isdisjoint(scalars):
            lists = (headers.list_items(tags), headers.list_items(sources))
            found = (name, scope, kind, *lists, created, updated)
            pairs = zip(headers.KEYS, found, strict=True)
            facts = {key: value for key, value in pairs if value not in headers.NULL_WORDS}
            return self._from_values(facts, (), body, line)
        self._check_times(created, updated, line)
        labels, ids = headers.list_items(tags), headers.list_items(sources)
        if '"' in tags or len(set(labels)) < len(labels):  # bare items are normal as they stand
            labels = values.clean_tags(labels)
        if '"' in sources or len(set(ids)) < len(ids):
            ids = self._sources(ids, line)
        if body[:1].isspace() or not self._is_clean:
            body = values.trim_blank_lines(values.clean_text(body))
        return of_normal_values(body, name, scope, kind, labels, ids, created, updated)

    def _from_values(
        self, facts: Mapping[str, object], unknown: tuple[str, ...], body: str, line: int
    ) -> Segment:
        texts = {key: value for key, value in facts.items() if isinstance(value, str)}
        name = texts.get("id", "").strip()
        if name and not values.is_id(name):
            self._add("invalid-id", f"an id holds no control characters: {name!r}", line)
            name = ""
        kind = texts.get("kind", "")
        read, known = values.read_kind(kind)
        if kind.strip() and not known:
            self._add("unknown-kind", f"{kind.strip()!r} is read as {read}", line)
        missing = [key for key in _EXPECTED_KEYS if not texts.get(key, "").strip()]
        if missing:
            message = "fields left out: " + ", ".join(missing)
            self._add("missing-fields", message, line, notice=True)
        if unknown:
            self._add("unknown-keys", "kept, not read: " + ", ".join(unknown), line, notice=True)
        for key in headers.KEYS:
            if key not in headers.LIST_KEYS and isinstance(facts.get(key), tuple | dict):
                self._add("not-a-text", f"{key} must be one value: it is not read", line)
        created, updated = texts.get("createdAt", ""), texts.get("updatedAt", "")
        self._check_times(created, updated, line)
        return Segment(
            body,
            name,
            texts.get("scope", ""),
            read,
            values.clean_tags(facts.get("tags")),
            self._sources(facts.get("sourceMessages"), line),
            created,
            updated,
        )

    def _sources(self, value: object, line: int) -> tuple[str, ...]:
        found = values.read_sources(value)
        too_long = [name for name in found.ids if len(name) > self._settings.max_scalar_chars]
        if found.left_out_count or too_long:
            count = found.left_out_count + len(too_long)
            message = f"{count} of sourceMessages name no message id: kept in the file, not read"
            self._add("source-without-id", message, line, notice=True)
        return tuple(name for name in found.ids if name not in too_long)

    def _check_times(self, created: str, updated: str, line: int) -> None:
        for key, text in (("createdAt", created), ("updatedAt", updated)):
            problem = values.parse_time(text, self._now).problem
            if problem is not None:
                self._add(problem, f"{key} {text!r} ranks as undated", line)

    def _address_ids(self, segments: Sequence[Segment], lines: Sequence[int]) -> list[str]:
        """Unique names in the file: the first keeps its id, later ones get ``~2``, ``~3`` …"""
        written = {segment.id for segment in segments if segment.id}
        used: set[str] = set()
        counts: dict[str, int] = {}
        names: list[str] = []
        for segment, line in zip(segments, lines, strict=True):
            name = base = segment.id or _anonymous_id(segment.body)
            reserved = bool(segment.id) and _RESERVED_ID.fullmatch(base) is not None
            if name in used or reserved or (not segment.id and name in written):
                count = counts.get(base, 2)
                while (name := f"{base}~{count}") in used or name in written:
                    count += 1
                counts[base] = count + 1
                code = "reserved-id" if reserved else "duplicate-id"
                reason = "is an id of the engine" if reserved else "occurs again"
                self._add(code, f"{base} {reason}: addressed as {name}", line, fixable=True)
            used.add(name)
            names.append(name)
        return names

    def _add(
        self, code: str, message: str, line: int, *, fixable: bool = False, notice: bool = False
    ) -> None:
        self.problems.append(Problem(code, message, line, fixable=fixable, notice=notice))


def _is_escaped(span: Span) -> bool:
    return span.canonical is not None and span.canonical[8] is not None


def _anonymous_id(body: str) -> str:
    return "anon_" + hashlib.sha256(body.encode("utf-8")).hexdigest()[:12]
