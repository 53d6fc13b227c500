"""Where segments begin and end in a text (Pure).

Strategy: one regular expression finds the few lines that matter (rules, fences, dream-state
markers); one pass over them keeps the state of code fences and asks ``header`` whether the lines
between two rules are a header. All else is body. Every character is looked at a bounded number of
times, so any text is read in linear time. The rules are those of docs/format.md, "Where a segment
begins", and of CommonMark for fences (also inside lists and quotes).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from h2ams.memory import header as headers
from h2ams.memory.header import Header
from h2ams.memory.values import Problem
from h2ams.settings import Settings

MAX_BLOCK_LINES_COUNT = 64  # a dream-state block has three; a marker in prose has no end at all

# Both run over "\n" + text: a literal first character makes the search fast, and an offset in
# that string is the offset of the line's first character in the text.
_RULES = re.compile(r"\n(---)[ \t\r]*+(?=\n|\Z)")
_MARKS = re.compile(
    r"\n(?:(---)[ \t\r]*+(?=\n|\Z)"
    r"|([ \t>*+\-\d.)]*+)(`{3,}+|~{3,}+)([^\n]*+)"
    r"|<!--[ \t]*+(/?)(dream-state)[ \t]*+-->[ \t\r]*+(?=\n|\Z))"
)
_CONTAINER = re.compile(r"(?:[ \t]*(?:>|[-*+]|\d{1,9}[.)])(?=[ \t>]|\Z))+[ \t]*")
_LEFT_CONTAINER = re.compile(r"\n[^ \t\r\n>]")
_MARKERS = ("```", "~~~", "dream-state")


@dataclass(frozen=True, slots=True)
class Span:
    """One segment's place. ``start`` is its first character, ``end`` stands behind its last line,
    whose line break is not part of it; ``body_start`` is the first line after the header."""

    start: int
    body_start: int
    end: int
    crlf: bool
    header: Header | None = None
    canonical: re.Match[str] | None = None


@dataclass(slots=True)
class Fence:
    """An open code fence."""

    at: int
    sign: str
    length: int
    indent: int
    contained: bool  # opened inside a list item or quote: hides no line that begins at the margin


@dataclass(slots=True)
class Scan:
    """What a pass over a text found. ``headers`` are (start, body start, header, canonical)."""

    headers: list[tuple[int, int, Header | None, re.Match[str] | None]] = field(
        default_factory=list
    )
    blocks: list[tuple[int, int]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)  # ``line`` holds an offset here
    open_fence: int | None = None
    markers_count: int = 0  # of dream-state lines, also such as make no block


def scan(text: str, settings: Settings) -> Scan:
    """Find headers, dream-state blocks and an unclosed fence in ``text``."""
    found = Scan()
    pattern = _MARKS if any(marker in text for marker in _MARKERS) else _RULES
    marks = list(pattern.finditer("\n" + text))
    canonical_chars = min(settings.max_scalar_chars, settings.max_header_bytes // 4)
    if settings.max_header_lines < headers.CANONICAL_LINES_COUNT:
        canonical_chars = -1
    first = len(text) - len(text.lstrip())
    fence: Fence | None = None
    index = 0
    while index < len(marks):
        mark = marks[index]
        index += 1
        if mark[1] is None and mark[6] is None:
            fence = next_fence(fence, mark.start(), (mark[2], mark[3], mark[4]), text)
            continue
        if fence is not None and not fence.contained:
            continue
        fence = None
        at, after = mark.start(), min(mark.end(), len(text))
        if mark[1] is None:
            index = _take_block(found, marks, index, text)
            continue
        exact = headers.read_canonical(text, after)
        if exact is not None and exact.end() - at <= canonical_chars:
            found.headers.append((at, exact.end(), None, exact))
            while index < len(marks) and marks[index].start() < exact.end():
                index += 1
            continue
        index = _take_header(found, marks, index, text, first, settings)
    if fence is not None and not fence.contained:
        found.open_fence = fence.at
        found.problems.append(Problem("unclosed-fence", "a code fence is never closed", fence.at))
    return found


def spans_of(text: str, found: Scan) -> list[Span]:
    """The segments of a scanned text, in order; text between them is blank, a block or comment."""
    spans: list[Span] = []
    borders = sorted(
        [*found.headers, *((start, end, None, None) for start, end in found.blocks)],
        key=lambda border: border[0],
    )
    borders.append((len(text), len(text), None, None))
    start, body_start, header, exact = 0, 0, None, None
    for border in borders:
        if header is not None or exact is not None:
            spans.append(_headed(text, (start, body_start, header, exact), border[0], found))
        elif start < border[0]:
            spans.extend(_anonymous(text, start, border[0], found))
        start, body_start, header, exact = border
        if header is None and exact is None:
            start = body_start  # behind a block
    return spans


def stands_alone(body: str, settings: Settings) -> bool:
    """Whether ``body`` is read as one body and nothing else, whatever segments follow it."""
    if "---" in body or any(marker in body for marker in _MARKERS):
        found = scan(body + "\n\n---\n", settings)
        if found.headers or found.markers_count or found.open_fence is not None:
            return False
    end = len(body.rstrip())
    return not body.endswith("-->", 0, end) or _behind_comments(body, 0, end) == end


def is_protected_line(line: str) -> bool:
    """Whether the writer puts a ``\\`` before ``line`` when it protects a body."""
    if line.startswith(("\\", "<!--")):
        return True
    mark = _MARKS.match("\n" + line)
    return mark is not None


def _take_header(
    found: Scan,
    marks: list[re.Match[str]],
    index: int,
    text: str,
    first: int,
    settings: Settings,
) -> int:
    """Judge the rule before ``index``; give back where the scan goes on."""
    rule = marks[index - 1]
    at, after = rule.start(), min(rule.end(), len(text))
    closing = index
    while closing < len(marks) and marks[closing][1] is None:
        closing += 1
    header = None
    if closing < len(marks):
        region = text[after : marks[closing].start()]
        header = headers.read_header(region, settings) if ":" in region else None
    if header is not None:
        found.headers.append((at, min(marks[closing].end(), len(text)), header, None))
        return closing + 1
    if headers.starts_with_key(text, after):
        message = "begins like a header but has no closing --- line"
        found.problems.append(Problem("unterminated-header", message, at))
    elif at == first:
        message = "the file begins with --- but no header follows"
        found.problems.append(Problem("leading-rule", message, at))
    return index


def _take_block(found: Scan, marks: list[re.Match[str]], index: int, text: str) -> int:
    """A dream-state block that begins at the marker before ``index``, if it has an end."""
    opening = marks[index - 1]
    found.markers_count += 1
    if opening[5]:
        return index  # an end without a beginning is text
    at, after = opening.start(), min(opening.end(), len(text))
    closing = marks[index] if index < len(marks) else None
    if (
        closing is not None
        and closing[6]
        and closing[5]
        and text.count("\n", after, closing.start()) <= MAX_BLOCK_LINES_COUNT
    ):
        found.blocks.append((at, min(closing.end(), len(text))))
        return index + 1
    message = "a dream-state marker without an end is read as text"
    found.problems.append(Problem("unclosed-dream-state", message, at))
    return index


def next_fence(fence: Fence | None, at: int, line: tuple[str, str, str], text: str) -> Fence | None:
    """The state of fences behind a line at ``at`` that has a fence's signs.

    ``line`` is what stands before the signs, the signs, and what stands behind them.
    """
    prefix, signs, rest = line
    blank_prefix = not prefix.strip()
    indent = len(prefix.expandtabs(4))
    if fence is not None and fence.contained and not prefix:
        left = _LEFT_CONTAINER.search(text, fence.at, at)
        fence = fence if left is None else None  # the list or quote ended before this line
    if fence is not None:
        margin = blank_prefix or (fence.contained and not prefix.strip(" \t>"))
        near = fence.contained or indent <= fence.indent + 3
        closes = signs[0] == fence.sign and len(signs) >= fence.length and not rest.strip()
        if closes and margin and near:
            return None
        return fence
    if signs[0] == "`" and "`" in rest:
        return None  # inline code
    if blank_prefix:
        if indent > 3:
            return None  # indented code, or deep inside a list, where nothing is at the margin
        return Fence(at, signs[0], len(signs), indent, False)
    if _CONTAINER.fullmatch(prefix):
        return Fence(at, signs[0], len(signs), indent, True)
    return None


def _headed(
    text: str,
    header: tuple[int, int, Header | None, re.Match[str] | None],
    limit: int,
    found: Scan,
) -> Span:
    start, body_start, facts, exact = header
    first = text.find("\n", start, body_start)
    crlf = first > start and text[first - 1] == "\r"
    end = _end_of_text(text, body_start, limit, found)
    if end is None:  # no body: the header's last line is the last
        end = body_start - 1 if text[body_start - 1] == "\n" else body_start
        if text[end - 1] == "\r":
            end -= 1
    else:
        end = _end_of_line(text, end, limit, crlf)
    return Span(start, body_start, end, crlf, facts, exact)


def _anonymous(text: str, start: int, limit: int, found: Scan) -> list[Span]:
    """Text without a header as one segment; none where it is blank or nothing but comments."""
    region = text[start:limit]
    lead = len(region) - len(region.lstrip())
    start += region.rfind("\n", 0, lead) + 1
    end = _end_of_text(text, start, limit, found, all_of_it=True)
    if end is None or end == start:
        return []
    first = text.find("\n", start, limit)
    crlf = first > start and text[first - 1] == "\r"
    return [Span(start, start, _end_of_line(text, end, limit, crlf), crlf)]


def _end_of_text(
    text: str, start: int, limit: int, found: Scan, *, all_of_it: bool = False
) -> int | None:
    """Behind the last character that is not blank, comments at the end left out; None if blank."""
    region = text[start:limit].rstrip()
    if not region:
        return None
    end = start + len(region)
    if region.endswith("-->") and not (found.open_fence is not None and found.open_fence < end):
        end = _behind_comments(text, start, end, all_of_it=all_of_it)
    return end


def _end_of_line(text: str, end: int, limit: int, crlf: bool) -> int:
    line_end = text.find("\n", end, limit)
    if line_end < 0:
        return limit
    return line_end - 1 if crlf and text[line_end - 1] == "\r" and line_end > end else line_end


def _behind_comments(text: str, start: int, end: int, *, all_of_it: bool = False) -> int:
    """``end`` moved before HTML comments that stand by themselves behind a body's last text.

    Such comments are notes between segments (docs/format.md): they belong to none and stay.
    A body that is nothing else is kept, unless ``all_of_it``.
    """
    while text.endswith("-->", start, end):
        opening = text.rfind("<!--", start, end)
        if opening < 0 or text.find("-->", opening, end) != end - 3:
            break
        before = opening
        while before > start and text[before - 1].isspace():
            before -= 1
        if before == start:
            at_margin = opening == start or text[opening - 1] == "\n"
            return start if all_of_it and at_margin else end
        gap = text[before:opening]
        if gap.count("\n") < 2 or not gap.endswith("\n"):
            break
        end = before
    return end
