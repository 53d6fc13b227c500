"""Notes: sections under headings, frontmatter of other programs, any bytes."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bodies, messy_files

from h2ams.memory.note import Section, content_id, note_id, parse_note
from h2ams.settings import DEFAULTS


def sections(text: str, name: str = "note.md") -> tuple[Section, ...]:
    found, problems = parse_note(text.encode(), name=name)
    assert not problems
    return found


def outline(text: str) -> list[tuple[str, str, int]]:
    return [(section.heading, section.body, section.line) for section in sections(text)]


def codes(data: bytes) -> list[tuple[str, int]]:
    return [(problem.code, problem.line) for problem in parse_note(data, name="n.md")[1]]


@given(st.one_of(st.binary(max_size=200), messy_files(), bodies().map(str.encode)))
def test_any_bytes_are_a_note(data: bytes) -> None:
    found, problems = parse_note(data, name="n.md")
    ids = [section.id for section in found]
    assert len(set(ids)) == len(ids)
    end = 0
    for section in found:
        assert end <= section.start < section.end
        end = section.end
        section.body.encode("utf-8")
        assert section.body
    assert [section.line for section in found] == sorted(section.line for section in found)
    assert all(problem.line >= 1 for problem in problems)


@given(bodies(max_lines=12))
def test_every_line_of_a_note_is_in_a_section(text: str) -> None:
    found, _ = parse_note(text.encode(), name="n.md")
    if text.startswith(("---", "\ufeff")):
        return  # frontmatter, or a byte order mark
    shown = "".join(text[section.start : section.end] for section in found)
    kept = re.sub(r"[\s#=-]+", "", shown)
    # A heading without a text of its own stands in the headings of the sections below it.
    paths = re.sub(r"[\s#=-]+", "", "".join(section.heading for section in found))
    for line in text.splitlines():
        letters = re.sub(r"[\s#=-]+", "", line)
        assert letters in kept or letters in paths


def test_a_note_without_headings_is_one_section() -> None:
    assert outline("\nJust text.\n\nMore.\n") == [("", "Just text.\n\nMore.", 2)]
    assert outline("") == outline("\n \n") == []


def test_headings_make_a_path() -> None:
    text = "Intro\n\n# A\n\none\n\n## B ##\ntwo\n### C\nthree\n## D\nfour\n# E\nfive\n"
    assert outline(text) == [
        ("", "Intro", 1),
        ("A", "one", 3),
        ("A > B", "two", 7),
        ("A > B > C", "three", 9),
        ("A > D", "four", 11),
        ("E", "five", 13),
    ]


def test_a_skipped_level_belongs_to_the_one_above_it() -> None:
    text = "# A\n### C\nx\n## B\ny\n"
    assert [heading for heading, _, _ in outline(text)] == ["A > C", "A > B"]


def test_underlined_headings_are_headings() -> None:
    text = "Title\n=====\nintro\n\nTwo\nlines\n---\nbody\n\n---\n\nafter a rule\n"
    assert outline(text) == [
        ("Title", "intro", 1),
        ("Title > Two lines", "body\n\n---\n\nafter a rule", 5),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "- item\n---\nx",
        "> quote\n---\nx",
        "| a |\n---\nx",
        "    code\n---\nx",
        "\n---\n\n---\nx",
        "#hashtag and #another",
        "####### seven",
        "\\# escaped",
        "    # indented code",
        ("long " * 60) + "\n---\nx",
        "1\n2\n3\n4\n5\n6\n---\nx",
    ],
)
def test_what_only_looks_like_a_heading_is_text(text: str) -> None:
    assert outline("Text.\n\n" + text) == [("", "Text.\n\n" + text, 1)]


@pytest.mark.parametrize("fence", ["```", "~~~", "````md"])
def test_headings_inside_a_fence_are_text(fence: str) -> None:
    closing = fence.rstrip("md")
    text = f"# A\n{fence}\n# not\n\nnot\n---\n{closing}\n# B\nx\n"
    assert [heading for heading, _, _ in outline(text)] == ["A", "B"]


def test_an_unclosed_fence_is_reported_with_its_line() -> None:
    assert codes(b"# A\n\n```\n# not a heading\n") == [("unclosed-fence", 3)]


def test_a_heading_with_nothing_below_it_is_its_own_text() -> None:
    assert outline("# A\n\n## Buy milk\n") == [("A > Buy milk", "## Buy milk", 3)]
    assert outline("#\n") == []


def test_equal_headings_have_ids_of_their_own_and_ids_do_not_depend_on_the_text() -> None:
    first = sections("# Log\na\n# Log\nb\n")
    again = sections("# Log\nother\n\nlines\n# Log\nb\n")
    assert [section.id for section in first] == [section.id for section in again]
    assert first[0].id == note_id("note.md", "Log", 0)
    assert first[1].id == note_id("note.md", "Log", 1)
    assert sections("# Log\na\n", name="other.md")[0].id != first[0].id
    assert re.fullmatch(r"note_[0-9a-f]{16}", first[0].id)


def test_a_name_in_either_unicode_form_gives_the_same_ids() -> None:
    assert note_id("cafe\u0301.md", "", 0) == note_id("café.md", "", 0)


def test_frontmatter_of_other_programs_is_read() -> None:
    text = (
        "---\ntitle: My note\naliases:\n  - x\ntags:\n  - '#auth'\n  - refresh token\n"
        "type: decision\nmodified: 2026-05-01T10:00:00+02:00\n---\n\n# A\ntext\n"
    )
    (section,) = sections(text)
    assert (section.kind, section.tags) == ("decision", ("auth", "refresh token"))
    assert section.updated_at == "2026-05-01T10:00:00+02:00"
    assert (section.heading, section.body, section.line) == ("A", "text", 12)


@pytest.mark.parametrize("kind", ["type: user", "kind:", "kind: [a]", "x: y"])
def test_a_kind_that_is_none_of_ours_is_context(kind: str) -> None:
    assert sections(f"---\n{kind}\n---\ntext\n")[0].kind == "context"


def test_the_kind_of_a_note_may_be_written_as_kind_or_type() -> None:
    assert sections("---\nkind: x\ntype: Goal\n---\ntext\n")[0].kind == "goal"


def test_frontmatter_scalars_are_text_and_comma_strings_are_lists() -> None:
    assert sections("---\ntags: no, 1.10\n---\nx\n")[0].tags == ("no", "1.10")
    assert sections("---\ntags: [no, 2026-01-01]\n---\nx\n")[0].tags == ("no", "2026-01-01")


def test_a_rule_as_the_first_line_is_text() -> None:
    for text in ("---\nprose\n\n---\nmore", "---\nnever closed", "---\n- item\n---\nx", "---\n---"):
        assert sections(text)[0].body.startswith("---")


@pytest.mark.parametrize(
    ("front", "code", "line"),
    [
        ("tags: [[link]]x", "invalid-yaml", 2),
        ("ok: 1\ntitle: *Italic*", "invalid-yaml", 3),
        ("a: &x [1]\nb: *x", "yaml-alias", 2),
        ("a: |\n  " + "x" * 20_000, "over-limit", 1),
    ],
)
def test_bad_frontmatter_is_reported_and_the_text_is_read(front: str, code: str, line: int) -> None:
    data = f"---\n{front}\n---\n# A\ntext\n".encode()
    found, problems = parse_note(data, name="n.md")
    assert [(section.heading, section.body) for section in found] == [("A", "text")]
    assert [(problem.code, problem.line) for problem in problems] == [(code, line)]


def test_crlf_and_a_byte_order_mark_change_nothing() -> None:
    text = "---\ntags: [a]\n---\nIntro\n\nSub\n---\n\ntext\nmore\n# B #\nx\n"
    plain = [dataclasses.replace(each, start=0, end=0) for each in sections(text)]
    data = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()
    found, problems = parse_note(data, name="note.md")
    assert [dataclasses.replace(each, start=0, end=0) for each in found] == plain
    assert not problems


def test_bytes_that_are_not_utf8_are_reported_and_read_with_replacement() -> None:
    assert codes(b"# A\nprice \xa2\n") == [("invalid-utf-8", 2)]
    found, _ = parse_note(b"# A\nprice \xa2\n", name="n.md")
    assert found[0].body == "price \ufffd"
    data = b"\xff\xfe" + "# A\ntext\n".encode("utf-16-le")
    found, problems = parse_note(data, name="n.md")
    assert found[0].body == "text" and problems[0].code == "utf-16"


def test_a_note_on_one_line_of_megabytes_is_read() -> None:
    (section,) = sections("# A\n" + "word " * 800_000)
    assert len(section.body) == 4_000_000


@pytest.mark.parametrize("unit", ["# x\n", "---\n", "a\n---\n", "```\n", "=", "#", "> ", "a\n"])
def test_repetitions_are_read_in_linear_time(unit: str) -> None:
    parse_note((unit * (200_000 // len(unit))).encode(), name="n.md")


def test_a_limit_of_the_settings_holds_for_frontmatter() -> None:
    data = b"---\ntags: [a, b, c, d]\n---\ntext\n"
    small = dataclasses.replace(DEFAULTS, max_header_bytes=10)
    found, problems = parse_note(data, name="n.md", settings=small)
    assert found[0].tags == () and problems[0].code == "over-limit"


def test_the_id_of_historical_resident_text_depends_on_the_scope_alone() -> None:
    assert re.fullmatch(r"content_[0-9a-f]{12}", content_id("sessions/s_demo/feature/sso"))


def test_a_long_section_is_cut_at_blank_lines_into_pieces_with_lines_of_their_own() -> None:
    paragraphs = [f"Paragraph {n} " + "word " * 30 for n in range(40)]
    text = "# A\n\n" + "\n\n".join(paragraphs) + "\n"
    found = sections(text)
    assert len(found) > 3
    assert all(len(section.body) <= DEFAULTS.note_passage_chars for section in found)
    assert {section.heading for section in found} == {"A"}
    assert len({section.id for section in found}) == len(found)
    lines = text.split("\n")
    for section in found[1:]:
        assert lines[section.line - 1].strip() == section.body.split("\n")[0].strip()
    assert [p.strip() for section in found for p in section.body.split("\n\n")] == [
        p.strip() for p in paragraphs
    ]


def test_the_first_section_knows_what_the_note_is_called() -> None:
    text = "---\ntitle: Moonshot\naliases: [Apollo, 'Saturn V']\n---\nText.\n\n# More\n\nMore.\n"
    found, _ = parse_note(text.encode(), name="People/Plan B.md")
    assert found[0].names == ("Plan B", "Moonshot", "Apollo", "Saturn V")
    assert found[1].names == ()
