"""Faults that parsers of this kind are known for, one test each (the ids are those of the list)."""

from __future__ import annotations

import difflib
import time
import tracemalloc
from dataclasses import replace as with_values

import pytest

from h2ams.errors import ReadOnlyError
from h2ams.memory import segment as segments
from h2ams.memory.segment import Segment, append, parse, remove, render, replace, serialize

GOOD = "---\nid: good\nkind: fact\ncreatedAt: 2026-01-01\nupdatedAt: 2026-01-01\n---\nGood.\n"


def changed_lines(before: bytes, after: bytes) -> tuple[list[bytes], list[bytes]]:
    """Lines that a diff shows as removed and as added."""
    old, new = before.split(b"\n"), after.split(b"\n")
    gone: list[bytes] = []
    come: list[bytes] = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for name, a, b, c, d in matcher.get_opcodes():
        if name != "equal":
            gone += old[a:b]
            come += new[c:d]
    return gone, come


def test_k02_yaml_shapes_that_people_write_are_reported_and_hold_nothing_back() -> None:
    """K02: three headers that YAML refuses, each with its line; the good segment is read."""
    text = (
        "---\nid: w\npath: C:\\agent\\x: y\n---\nWindows path.\n\n"
        "---\nid: i\ntitle: *Italic*\n---\nItalic title.\n\n"
        "---\nid: l\ntags: [[link]]x\n---\nWiki link.\n\n" + GOOD
    )
    document = parse(text.encode())
    assert [entry.segment.body for entry in document.entries] == [
        "Windows path.",
        "Italic title.",
        "Wiki link.",
        "Good.",
    ]
    assert [(problem.code, problem.line) for problem in document.problems] == [
        ("invalid-yaml", 3),
        ("invalid-yaml", 9),
        ("invalid-yaml", 15),
    ]
    for entry in document.entries[:3]:
        assert entry.read_only and entry.segment == Segment(entry.segment.body)
    assert document.entries[3].segment.id == "good"


def test_k02_a_file_that_begins_with_a_rule_and_prose_is_read_and_reported() -> None:
    """K02: the fourth shape."""
    document = parse(b"---\nJust prose here.\n\nMore.\n\n" + GOOD.encode())
    assert [entry.segment.body for entry in document.entries] == [
        "---\nJust prose here.\n\nMore.",
        "Good.",
    ]
    faults = [problem for problem in document.problems if not problem.notice]
    assert [(problem.code, problem.line) for problem in faults] == [("leading-rule", 1)]


THREE = "\n".join(
    f"---\nid: seg_{n}\nkind: fact\ntags: [t{n}]\nsourceMessages: [m{n}]\n"
    f"createdAt: 2026-01-01T00:00:00Z\nupdatedAt: 2026-01-01T00:00:00Z\n---\nBody {n}.\n\n- item\n"
    for n in (1, 2, 3)
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_k04_byte_order_mark_and_crlf_hide_nothing_and_are_kept(mark: bytes, newline: str) -> None:
    """K04: equal segments in all four forms; a change touches the lines of its segment alone."""
    data = mark + THREE.replace("\n", newline).encode()
    document = parse(data)
    plain = parse(THREE.encode())
    assert [entry.segment for entry in document.entries] == [
        entry.segment for entry in plain.entries
    ]
    changed = with_values(document.entries[1].segment, body="New.\n\nText.", tags=("t2", "x"))
    after = replace(document, 1, changed)
    assert parse(after).entries[1].segment == changed
    gone, come = changed_lines(data, after)
    end = newline.encode().removesuffix(b"\n")
    assert gone == [line + end for line in (b"tags: [t2]", b"Body 2.", b"- item")]
    assert come == [line + end for line in (b"tags: [t2, x]", b"New.", b"Text.")]
    assert after.startswith(mark) and after.count(b"\r") == after.count(b"\n") * len(end)


def test_k05_rules_in_a_body_stay() -> None:
    """K05: one segment with its full body, both rules included."""
    body = "A\n\n---\n\nstatus: open\n\n---\n\nB"
    data = serialize([Segment(body, id="a"), Segment("Next.", id="b")])
    assert [entry.segment.body for entry in parse(data).entries] == [body, "Next."]
    assert body.encode() in data


def test_k05_a_first_line_rule_without_an_end_loses_nothing() -> None:
    """K05: nothing is lost, and a rewrite adds nothing to the person's text."""
    data = b"---\nSome prose, never closed.\n\nMore prose.\n"
    document = parse(data)
    assert document.entries[0].segment.body == data.decode().strip()
    assert render(document) == data
    after = append(document, Segment("New.", id="n"))
    assert after.startswith(data)
    assert [entry.segment.body for entry in parse(after).entries] == [data.decode().strip(), "New."]


K06_EXAMPLE = "## Installation\n\n---\n\n---\nid: seg_example\nkind: fact\n---\nAn example segment."


@pytest.mark.parametrize(
    "fenced",
    [f"```md\n{K06_EXAMPLE}\n```", f"~~~\n{K06_EXAMPLE}\n~~~", f"````\n```\n{K06_EXAMPLE}\n````"],
)
def test_k06_examples_inside_a_code_fence_stay_in_their_segment(fenced: str) -> None:
    """K06: exactly one segment, nothing cut off, byte-stable from write to write."""
    body = f"Before.\n\n{fenced}\n\nKeep this final line."
    by_hand = f"---\nid: a\nkind: fact\n---\n{body}\n".encode()
    (entry,) = parse(by_hand).entries
    assert entry.segment.body == body
    first = serialize([entry.segment])
    assert b"escaped" not in first
    assert serialize([parse(first).entries[0].segment]) == first


def test_k06_an_unclosed_fence_keeps_the_rest_in_one_segment() -> None:
    """K06: the fourth form; what the engine writes after it stands before it."""
    body = f"Before.\n\n```md\n{K06_EXAMPLE}\n\nKeep this final line."
    by_hand = f"---\nid: a\nkind: fact\n---\n{body}\n".encode()
    document = parse(by_hand)
    assert [entry.segment.body for entry in document.entries] == [body]
    first = serialize([document.entries[0].segment])
    assert serialize([parse(first).entries[0].segment]) == first
    assert parse(first).entries[0].segment.body == body
    after = append(document, Segment("New.", id="n"))
    assert [entry.segment.body for entry in parse(after).entries] == ["New.", body]
    assert after.endswith(by_hand)


K08 = """---
z: 1
a: 2
id: seg_1
m: 3
# a comment
---
First, with two blanks at the end:··

<!-- between one and two -->

---
z: 26
id: seg_2   # why this id
a: [x,   y]
# a comment
kind:   fact
m: {k: v}
---
Second.··

<!-- between two and three -->

---
id: seg_3
---
Third.



""".replace("·", " ")  # blanks at line ends that no editor takes away


def test_k08_a_change_touches_only_the_lines_of_its_segment() -> None:
    """K08: key order, comments, blanks at line ends and final newlines are kept."""
    data = K08.encode()
    document = parse(data)
    old = document.entries[1].segment
    after = replace(document, 1, with_values(old, body="Changed.", kind="decision"))
    gone, come = changed_lines(data, after)
    assert gone == [b"kind:   fact", b"Second.  "]
    assert come == [b"kind:   decision", b"Changed."]


def test_k08_a_save_without_a_change_changes_no_byte() -> None:
    """K08: and so does writing equal values."""
    document = parse(K08.encode())
    assert render(document) == K08.encode()
    for index, entry in enumerate(document.entries):
        assert replace(document, index, entry.segment) == K08.encode()


@pytest.mark.parametrize(
    "field", ["kind:", "kind: null", "kind: ~", "tags:", "updatedAt:", "updatedAt: null", "id:"]
)
def test_k69_missing_and_null_fields_have_defaults(field: str) -> None:
    """K69: read with documented defaults, the same at every reading."""
    data = f"---\n{field}\nscope: user\n---\nText.\n".encode()
    document = parse(data)
    assert document.entries[0].segment == Segment("Text.", scope="user")
    assert not [problem for problem in document.problems if not problem.notice]
    assert parse(data) == document


def test_k70_a_repeated_key_is_reported_and_its_segment_is_read_only() -> None:
    """K70: the last counts, key and line are named, the header is not emptied."""
    data = b"---\nid: a1\ntags: [x]\nid: b2\n---\nText.\n\n" + GOOD.encode()
    document = parse(data)
    segment = document.entries[0].segment
    assert (segment.id, segment.tags, segment.body) == ("b2", ("x",), "Text.")
    (problem,) = [problem for problem in document.problems if problem.code == "repeated-key"]
    assert problem.line == 4 and "id" in problem.message
    with pytest.raises(ReadOnlyError):
        replace(document, 0, with_values(segment, body="Other."))
    with pytest.raises(ReadOnlyError):
        remove(document, 0)
    after = replace(document, 1, with_values(document.entries[1].segment, body="Better."))
    assert after == data.replace(b"Good.", b"Better.")


def test_k70_by_force_nothing_of_the_header_is_lost() -> None:
    """K70: the old lines stay as comments."""
    document = parse(b"---\nid: a1\ntags: [x]\nid: b2\nmood: good\n---\nText.\n")
    new = with_values(document.entries[0].segment, body="Other.")
    after = replace(document, 0, new, force=True)
    assert parse(after).entries[0].segment == new
    for line in (b"# id: a1", b"# mood: good", b"id: b2", b"tags: [x]"):
        assert line in after.split(b"\n")


def bomb() -> str:
    """Nine levels of nine-fold aliases: a few hundred bytes that would expand to 9 ** 9 items."""
    lines = ['a0: &a0 ["x"]']
    for level in range(1, 10):
        lines.append(f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize("key", ["tags: *a9", "other: x"])
def test_k71_an_alias_bomb_is_refused_before_it_is_expanded(key: str) -> None:
    """K71: named, quick, small; the other segments are read."""
    data = f"---\nid: bomb\n{bomb()}\n{key}\n---\nBomb.\n\n{GOOD}".encode()
    parse(GOOD.replace("id: good", "id: 'warm'").encode())  # loads the YAML library
    tracemalloc.start()
    began = time.perf_counter()
    document = parse(data)
    seconds = time.perf_counter() - began
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 1 and peak_bytes < 50_000_000
    assert [entry.segment.body for entry in document.entries] == ["Bomb.", "Good."]
    assert document.entries[0].segment == Segment("Bomb.") and document.entries[0].read_only
    assert [(problem.code, problem.line) for problem in document.problems] == [("yaml-alias", 3)]


def test_k71_an_id_of_thousands_of_digits_is_refused_by_a_named_limit() -> None:
    """K71: no number is ever made of it."""
    data = f"---\nid: {'7' * 5000}\n---\nLong.\n\n{GOOD}".encode()
    document = parse(data)
    assert [entry.segment.id for entry in document.entries] == ["", "good"]
    (problem,) = document.problems
    assert (problem.code, problem.line) == ("over-limit", 2)
    assert problem.message == "max_scalar_chars: id has 5000, limit 1024"


def test_k71_deep_nesting_is_refused_by_a_named_limit() -> None:
    """K71: brackets do not reach any recursion."""
    data = f"---\nid: a\nx: {'[' * 40}{']' * 40}\n---\nDeep.\n".encode()
    document = parse(data)
    assert document.entries[0].segment == Segment("Deep.")
    assert document.problems[0].message.startswith("MAX_HEADER_DEPTH_COUNT")


def test_k73_a_byte_that_is_not_utf8_is_read_and_never_rewritten() -> None:
    """K73: reported with its line, read with replacement, its bytes kept."""
    data = GOOD.encode().replace(b"Good.", b"Price: \xa2 5.")
    document = parse(data)
    assert document.entries[0].segment.body == "Price: \ufffd 5."
    assert [(problem.code, problem.line) for problem in document.problems] == [("invalid-utf-8", 7)]
    assert render(document) == data
    for change in (
        lambda: append(document, Segment("New.")),
        lambda: replace(document, 0, Segment("New.")),
        lambda: remove(document, 0),
    ):
        with pytest.raises(ReadOnlyError):
            change()


def test_k73_by_force_the_bad_bytes_elsewhere_survive() -> None:
    """K73: an edit copies what it does not understand."""
    data = GOOD.encode().replace(b"Good.", b"Price: \xa2 5.")
    after = append(parse(data), Segment("New.", id="n"), force=True)
    assert after.startswith(data)


@pytest.mark.parametrize(
    ("mark", "encoding"), [(b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")]
)
def test_k73_utf16_is_read_reported_and_never_rewritten(mark: bytes, encoding: str) -> None:
    """K73: the third file."""
    data = mark + GOOD.encode().decode().encode(encoding)
    document = parse(data)
    assert [entry.segment.body for entry in document.entries] == ["Good."]
    assert [problem.code for problem in document.problems] == ["utf-16"]
    assert render(document) == data
    with pytest.raises(ReadOnlyError):
        append(document, Segment("New."), force=True)


def test_parsing_fills_in_no_time_of_its_own() -> None:
    """Partial files once changed at each parse, because "now" was filled in."""
    segment = parse(b"---\nkind: fact\n---\nText.\n").entries[0].segment
    assert segment.created_at is None and segment.updated_at is None


def test_the_module_gives_out_the_contracts_names() -> None:
    assert set(segments.__all__) >= {"Segment", "Problem", "Entry", "Document", "parse", "new_id"}
