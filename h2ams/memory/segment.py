"""Memory files as values: read, write, and change without touching anything else (Pure).

Strategy: ``parse`` cuts a file into entries that know where they stand; ``append``, ``replace``
and ``remove`` splice text at that place and copy the rest, so no byte that a person wrote is lost
or reformatted. ``render(parse(data)) == data`` for all bytes, and what the engine writes is read
back equal: a body that would be misread is protected line by line, marked by ``escaped: true``.
"""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Container, Iterable, Mapping

from h2ams.errors import ReadOnlyError
from h2ams.memory import header as headers
from h2ams.memory import rewrite, spans, values
from h2ams.memory.entry import Document, Entry, Segment
from h2ams.memory.reading import parse
from h2ams.memory.rewrite import Value
from h2ams.memory.values import Problem
from h2ams.settings import DEFAULTS, Settings

__all__ = [
    "Document",
    "Entry",
    "Problem",
    "Segment",
    "append",
    "append_entries",
    "exchange",
    "new_id",
    "parse",
    "remove",
    "render",
    "replace",
    "rewritten",
    "serialize",
    "spliced",
]

_ESCAPED_LINE = f"{headers.ESCAPED_KEY}: true"
_BARE_HEADER = f"kind: {values.DEFAULT_KIND}"  # given to text without a header that must move


def render(document: Document) -> bytes:
    """Exactly the bytes that were parsed."""
    return _encode(document, document.text)


def serialize(
    segments: Iterable[Segment], newline: str = "\n", *, settings: Settings = DEFAULTS
) -> bytes:
    """The writer's exact form of a file: segments parted by one blank line, one final newline.

    No segments are an empty file. ``LimitError`` where a header would be over a limit.
    """
    texts = [_written(segment, newline, settings) + newline for segment in segments]
    return newline.join(texts).encode("utf-8")


def append(
    document: Document, segment: Segment, *, settings: Settings = DEFAULTS, force: bool = False
) -> bytes:
    """The file with ``segment`` behind its last entry, in the file's line breaks.

    It goes before a dream-state tail, and before a last entry that would swallow it (an unclosed
    fence or header). All old bytes stay in their order. ``ReadOnlyError`` unless ``force``.
    """
    _check_writable(document, "", force)
    return _spliced(document, _written(segment, document.newline, settings), settings)


def append_entries(
    document: Document, entries: Iterable[Entry], *, settings: Settings = DEFAULTS
) -> bytes:
    """The file with ``entries`` of another file behind its last one, in their own bytes.

    Text without a header gets the smallest one, or it would run into what stands before it.
    ``ReadOnlyError`` for a read-only file.
    """
    _check_writable(document, "", False)
    raws = []
    for entry in entries:
        start = "" if entry.has_header else _bare(entry)
        raws.append(start + entry.raw)
    between = document.newline * 2
    return _spliced(document, between.join(raws), settings) if raws else render(document)


def exchange(document: Document, entries: Mapping[int, Entry]) -> bytes:
    """The file with the bytes of ``entries``, of another file, in place of those at their index."""
    _check_writable(document, "", False)
    text = document.text
    for index in sorted(entries, reverse=True):
        old = document.entries[index]
        text = text[: old.start] + entries[index].raw + text[old.end :]
    return _encode(document, text)


def replace(
    document: Document,
    index: int,
    segment: Segment,
    *,
    settings: Settings = DEFAULTS,
    force: bool = False,
) -> bytes:
    """The file with ``segment`` as its entry ``index``: only lines whose values differ change.

    Comments, key order, unknown keys and spellings of other keys are kept. Text without a header
    gets one. ``ReadOnlyError`` for a read-only file or entry unless ``force``; then the header is
    written anew and its old lines stay as comments. ``LimitError`` as in ``serialize``.
    """
    text = rewritten(document, index, segment, settings=settings, force=force)
    return spliced(document, {index: text})


def spliced(document: Document, texts: Mapping[int, str]) -> bytes:
    """The file with each entry in ``texts`` as the text given for it (by ``rewritten``)."""
    pieces: list[str] = []
    at = 0
    for index in sorted(texts):
        entry = document.entries[index]
        pieces += (document.text[at : entry.start], texts[index])
        at = entry.end
    return _encode(document, "".join((*pieces, document.text[at:])))


def rewritten(
    document: Document,
    index: int,
    segment: Segment,
    *,
    settings: Settings = DEFAULTS,
    force: bool = False,
) -> str:
    """The text of entry ``index`` when it holds ``segment``; errors as in ``replace``."""
    entry = document.entries[index]
    if segment == entry.segment:
        return document.text[entry.start : entry.end]
    _check_writable(document, entry.read_only, force)
    newline = _line_break(entry, document)
    for raw in _candidates(document.text, entry, segment, newline, settings):
        read = parse((raw + newline).encode("utf-8", "surrogateescape"), settings=settings).entries
        if len(read) == 1 and read[0].segment == segment and not read[0].read_only:
            if (
                raw.endswith("\r")
                and newline == "\r\n"
                and document.text.startswith("\n", entry.end)
            ):
                raw += "\r"  # or the body's own \r would be taken for half a line break
            return raw
    raise ReadOnlyError(
        "the header of this segment cannot be rewritten without losing lines",
        hint="tidy it up by hand first",
    )


def remove(document: Document, index: int, *, force: bool = False) -> bytes:
    """The file without entry ``index`` and the blank lines that parted it from its neighbour.

    Directly after ``append`` these are the bytes from before it, but for a line break that the file
    did not end with: nothing tells whose a blank line was, so it adds one only where this takes it.
    ``ReadOnlyError`` for a read-only file or entry unless ``force``.
    """
    entry = document.entries[index]
    _check_writable(document, entry.read_only, force)
    text = document.text
    start, end = entry.start, entry.end
    line_end = text.find("\n", end)
    end = len(text) if line_end < 0 else line_end + 1
    blank_end = _skip_blank_lines(text, end)
    if not index or blank_end < len(text):
        end = blank_end
    elif text.count("\n", before := _text_end(text[:start]), start) < 2:
        start = before
    return _encode(document, text[:start] + text[end:])


def _text_end(text: str) -> int:
    """The end of the last line of ``text`` that is not blank, with its line break."""
    line_end = text.find("\n", len(text.rstrip()))
    return len(text) if line_end < 0 else line_end + 1


def _spliced(document: Document, written: str, settings: Settings) -> bytes:
    """The file with the text of one more segment where the last one belongs."""
    newline = document.newline
    text = document.text
    at = len(text) if document.tail_start is None else document.tail_start
    bare = ""
    last = document.entries[-1] if document.entries else None
    if last is not None and not spans.stands_alone(text[last.body_start : at], settings):
        at = last.start
        if not last.has_header:
            bare = _line_break(last, document).join(("---", _BARE_HEADER, "---", ""))
    before, after = text[:at], text[at:]
    gap, ending = "", newline * 2 if after else newline
    if before.strip() and not after:
        end = _text_end(before)
        blank_count = before.count("\n", end)
        if blank_count == 1:  # it stays the last line of the file
            before, after = before[:end], before[end:]
        gap = newline if blank_count < 2 else ""
        if not before.endswith("\n"):
            gap = (_line_break(last, document) if last is not None else newline) + newline
    return _encode(document, before + gap + written + ending + bare + after)


def _bare(entry: Entry) -> str:
    return ("\r\n" if entry.crlf else "\n").join(("---", _BARE_HEADER, "---", ""))


def new_id(scope: str, kind: str, body: str, taken: Container[str]) -> str:
    """An id for new content: ``seg_`` + 16 hex of SHA-256 over scope, kind and trimmed body.

    ``taken`` are ids of other contents in that scope; the next free suffix (``-2``, ``-3``) is
    given where the id is among them.
    """
    parts = "\0".join((scope, kind, values.clean_text(body).strip()))
    first = name = "seg_" + hashlib.sha256(parts.encode("utf-8", "replace")).hexdigest()[:16]
    suffix = 2
    while name in taken:
        name, suffix = f"{first}-{suffix}", suffix + 1
    return name


def _encode(document: Document, text: str) -> bytes:
    if document.encoding.startswith("utf-16"):
        little = document.encoding == "utf-16-le"
        mark = codecs.BOM_UTF16_LE if little else codecs.BOM_UTF16_BE
        return mark + text.encode(document.encoding)
    data = text.encode("utf-8", "surrogateescape")
    return codecs.BOM_UTF8 + data if document.bom else data


def _check_writable(document: Document, reason: str, force: bool) -> None:
    reason = document.read_only or reason
    if reason and (not force or document.encoding != "utf-8"):
        raise ReadOnlyError(f"not rewritten: {reason}", hint="correct the file first, or use force")


def _line_break(entry: Entry, document: Document) -> str:
    """The line break that an entry is read with; at the file's end the one that it may get."""
    if entry.crlf:
        return "\r\n"
    if "\n" in entry.raw or entry.end < len(document.text):
        return "\n"
    return "\r\n" if entry.raw.endswith("\r") else document.newline


def _facts(segment: Segment) -> dict[str, Value]:
    """The seven keys of a header in the writer's order, with their values."""
    return {
        "id": segment.id,
        "scope": segment.scope,
        "kind": segment.kind,
        "tags": segment.tags,
        "sourceMessages": segment.source_messages,
        "createdAt": segment.created_at or "",
        "updatedAt": segment.updated_at or "",
    }


def _written(segment: Segment, newline: str, settings: Settings) -> str:
    """A segment in the writer's exact form, without its last line break."""
    body, escaped = _protected(segment.body, newline, settings)
    lines = rewrite.canonical_lines(_facts(segment), settings)
    if escaped:
        lines.append(_ESCAPED_LINE)
    region = newline.join((*lines, ""))
    rewrite.check_header(region, settings)
    return f"---{newline}{region}---" + (newline + body if body else "")


def _protected(body: str, newline: str, settings: Settings) -> tuple[str, bool]:
    """``body`` as it stands in a file, and whether its lines had to be protected."""
    written = body.replace("\n", newline)
    if spans.stands_alone(written, settings):
        return written, False
    lines = body.split("\n")
    marked = ("\\" + line if spans.is_protected_line(line) else line for line in lines)
    return newline.join(marked), True


def _candidates(
    text: str, entry: Entry, segment: Segment, newline: str, settings: Settings
) -> Iterable[str]:
    """Texts for ``entry`` with the values of ``segment``, the gentlest first."""
    same_body = segment.body == entry.segment.body
    if same_body:
        body, escaped = text[entry.body_start : max(entry.end, entry.body_start)], entry.escaped
    else:
        body, escaped = _protected(segment.body, newline, settings)
    lines = rewrite.canonical_lines(_facts(segment), settings)
    lines += [_ESCAPED_LINE] if escaped else []
    if not entry.has_header:
        yield newline.join(("---", *lines, "---", body))
        return
    opening = text.index("\n", entry.start) + 1
    closing = text.rfind("\n", 0, entry.body_start - 1) + 1
    region = text[opening:closing]
    old_body = text[entry.body_start : max(entry.end, entry.body_start)]
    if not same_body and body:
        body = old_body[: _skip_blank_lines(old_body, 0)] + body
    rule = text[closing : entry.body_start].rstrip("\r\n")
    behind = rule + newline + body if body else rule
    if not entry.read_only:
        gentle = rewrite.change(region, _changes(entry, segment, escaped), newline)
        if gentle is not None:
            rewrite.check_header(gentle, settings)
            yield text[entry.start : opening] + gentle + behind
    rewritten = rewrite.anew(region, lines, newline)
    rewrite.check_header(rewritten, settings)
    yield text[entry.start : opening] + rewritten + behind


def _changes(entry: Entry, segment: Segment, escaped: bool) -> dict[str, Value | None]:
    old, new = _facts(entry.segment), _facts(segment)
    changes: dict[str, Value | None] = {key: new[key] for key in new if new[key] != old[key]}
    if escaped != entry.escaped:
        changes[headers.ESCAPED_KEY] = "true" if escaped else None
    return changes


def _skip_blank_lines(text: str, at: int) -> int:
    """The start of the first line from ``at`` on that is not blank, or the text's end."""
    while at < len(text):
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end + 1
        if text[at:line_end].strip():
            return at
        at = line_end
    return len(text)
