"""Hypothesis strategies for memory files: bodies, segments, and files as people leave them."""

from __future__ import annotations

from hypothesis import strategies as st

from h2ams.memory.segment import Segment
from h2ams.settings import KINDS

# Lines that a careless reader or writer trips over.
AWKWARD_LINES = (
    "",
    "   ",
    "---",
    "--- ",
    "---\t\r",
    "----",
    " ---",
    "***",
    "===",
    "id: seg_1",
    "scope: user",
    "kind: fact",
    "kind: [fact",
    "tags: [a, b]",
    "- item",
    "# comment",
    "escaped: true",
    "```",
    "```md",
    "````",
    "~~~",
    "~~~~ text",
    "  ```",
    "    ```",
    "- ```",
    "> ```",
    "1. ~~~",
    "```inline```",
    "<!-- dream-state -->",
    "<!-- /dream-state -->",
    "<!-- note -->",
    "<!-- open",
    "close -->",
    "lastDreamAt: 2026-05-07T00:00:00Z",
    "\\",
    "\\---",
    "\\\\x",
    "<<<<<<< ours",
    "=======",
    ">>>>>>> theirs",
    "\ufeff---",
    "| a | b |",
    "--- | ---",
    "text\r",
    "\0",
    "emoji 🙂👩‍👩‍👧 中文 हिन्दी",
    "tail  ",
    "\x0c",
    "\u2028",
    "\x85",
)

_characters = st.characters(exclude_categories=("Cs",))
_lines = st.one_of(
    st.sampled_from(AWKWARD_LINES),
    st.sampled_from(AWKWARD_LINES),
    st.text(_characters, max_size=20),
)
_breaks = st.sampled_from(("\n", "\n", "\n", "\r\n"))


@st.composite
def bodies(draw: st.DrawFn, *, max_lines: int = 8) -> str:
    """Any text: awkward lines mixed with random ones, LF or CRLF between them."""
    lines = draw(st.lists(_lines, max_size=max_lines))
    return "".join(line + draw(_breaks) for line in lines)


def ids() -> st.SearchStrategy[str]:
    """Ids as people and engines write them, empty ones too."""
    return st.one_of(
        st.just(""),
        st.sampled_from(
            ("seg_3f0c9a1be27d5a64", "a1", "null", "~", "no", "1.10", "007", "-", "#x")
        ),
        st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), max_size=12),
    )


def tags() -> st.SearchStrategy[tuple[str, ...]]:
    """Lists of tags, also such as YAML would take for something else."""
    tag = st.one_of(
        st.sampled_from(("auth", "no", "1.10", "007", "2026-01-01", 'say "no"', "a,b", "back\\")),
        st.text(_characters, min_size=1, max_size=10),
    )
    return st.lists(tag, max_size=4).map(tuple)


def source_ids() -> st.SearchStrategy[tuple[str, ...]]:
    """Lists of message ids."""
    name = st.one_of(
        st.sampled_from(("m_142", "7b0d-uuid", "42", "null", "-", "夜间")),
        st.text(st.characters(exclude_categories=("Cs", "C", "Z")), min_size=1, max_size=10).filter(
            lambda text: not text.startswith("{") and text.strip() == text
        ),
    )
    return st.lists(name, max_size=4).map(tuple)


def times() -> st.SearchStrategy[str | None]:
    """Times in the spellings that occur, some unreadable, and none."""
    return st.sampled_from(
        (
            None,
            "2026-04-29T10:11:12Z",
            "2026-05-04T09:30:00.000Z",
            "2026-04-29 10:11:12 +02:00",
            "2026-04-29T10:11:12",
            "not a date",
            "null",
        )
    )


def segments() -> st.SearchStrategy[Segment]:
    """Any segment at all."""
    return st.builds(
        Segment,
        body=bodies(),
        id=ids(),
        scope=st.sampled_from(
            ("", "user", "sessions/s1/vp/alice", "sessions/会话.一", "~", "x: y")
        ),
        kind=st.sampled_from(KINDS),
        tags=tags(),
        source_messages=source_ids(),
        created_at=times(),
        updated_at=times(),
    )


_HEADER_LINES = (
    "id: seg_1",
    "id: seg_2",
    'id: "q"',
    "id:",
    "id: null",
    "id : spaced",
    "'id': quoted",
    "scope: user",
    "kind: fact",
    "kind: banana",
    "kind: decision  # sure?",
    "kind: [a, b]",
    "tags: [a, b]",
    "tags: a, b",
    "tags:\n  - a\n  - b c  # why\n  # between\n  - d",
    "tags:\n- a\n- b",
    "tags: [[link]]x",
    "tags: &x [a]",
    "sourceMessages: [m1, m2]",
    'sourceMessages: [{id: m1, content: "long: text"}, raw words, m2]',
    "sourceMessages:\n  - id: m1\n    role: user\n  - messageId: m2",
    'sourceMessages: ["{\\"uuid\\": \\"u1\\"}"]',
    "sourceMessages: m1, m2",
    "createdAt: 2026-04-29T10:11:12Z",
    "updatedAt: 2026-04-30T08:00:00Z",
    "updatedAt:",
    "title: *Italic*",
    "path: C:\\agent\\x: y",
    "note: |\n  first\n  # kept\n\n  last",
    "z: 1",
    "# a comment",
    "",
    "escaped: true",
    "just words",
)


@st.composite
def headers(draw: st.DrawFn) -> str:
    """The lines between two rules of a header that somebody wrote, good or bad."""
    return "".join(
        line + "\n" for line in draw(st.lists(st.sampled_from(_HEADER_LINES), max_size=7))
    )


@st.composite
def messy_files(draw: st.DrawFn) -> bytes:
    """A memory file after years of editors: any mixture, any line breaks, any bytes."""
    parts: list[str] = []
    for _ in range(draw(st.integers(0, 5))):
        choice = draw(st.integers(0, 5))
        if choice <= 2:
            parts.append(f"---\n{draw(headers())}---\n{draw(bodies(max_lines=4))}")
        elif choice == 3:
            parts.append(f"---\n{draw(headers())}")
        elif choice == 4:
            parts.append(draw(bodies(max_lines=4)))
        else:
            parts.append("<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n")
    data = draw(st.sampled_from(("", "\n", "\n\n"))).join(parts).encode("utf-8")
    change = draw(st.integers(0, 9))
    if change == 0:
        data = data.replace(b"\n", b"\r\n")
    elif change == 1:
        data = b"\xef\xbb\xbf" + data
    elif change == 2:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at:]
    elif change == 3:
        data = data.rstrip(b"\n")
    return data
