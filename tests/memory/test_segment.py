"""Reading memory files: where segments begin, what is tolerated, what is reported."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import bodies, messy_files, segments

from h2ams.errors import LimitError, UsageError
from h2ams.memory.segment import Document, Segment, new_id, parse, render, serialize
from h2ams.settings import DEFAULTS

HEADER = "---\nid: {}\nkind: fact\ncreatedAt: 2026-01-01\nupdatedAt: 2026-01-01\n---\n"


def read(text: str) -> Document:
    document = parse(text.encode("utf-8"))
    assert render(document) == text.encode("utf-8")
    return document


def bodies_of(document: Document) -> list[str]:
    return [entry.segment.body for entry in document.entries]


def faults(document: Document) -> list[tuple[str, int]]:
    return [(problem.code, problem.line) for problem in document.problems if not problem.notice]


def notices(document: Document) -> list[tuple[str, int]]:
    return [(problem.code, problem.line) for problem in document.problems if problem.notice]


# --- for ever -----------------------------------------------------------------------------------


@given(st.one_of(messy_files(), st.binary(max_size=200)))
@example(b"\xff\xfe\x00\xd8")
@example(b"\xfe\xffa")
@example(b"\xef\xbb\xbf\xef\xbb\xbf---\nid: a\n---")
def test_any_bytes_are_read_and_rendered_as_they_were(data: bytes) -> None:
    assert render(parse(data)) == data


@given(messy_files())
def test_entries_stand_in_order_where_they_say_they_do(data: bytes) -> None:
    document = parse(data)
    end = 0
    for entry in document.entries:
        assert end <= entry.start < entry.end
        end = entry.end
        assert document.text[entry.start : entry.end] == entry.raw
        assert entry.line == document.text.count("\n", 0, entry.start) + 1
        assert entry.last_line == entry.line + entry.raw.count("\n")
    names = [entry.address_id for entry in document.entries]
    assert len(set(names)) == len(names)
    lines = document.text.count("\n") + 1
    assert all(1 <= problem.line <= lines for problem in document.problems)


@given(messy_files())
def test_no_text_is_outside_of_entries_but_blanks_comments_and_dream_state(data: bytes) -> None:
    document = parse(data)
    if document.encoding != "utf-8":
        return
    at, outside = 0, ""
    for entry in document.entries:
        outside += document.text[at : entry.start]
        at = entry.end
    outside += document.text[at:]
    lines = [line for line in outside.split("\n") if line.strip()]
    assert not lines or lines[0].startswith("<!--")


@given(st.lists(segments(), max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back_equal(xs: list[Segment], newline: str) -> None:
    document = parse(serialize(xs, newline))
    assert [entry.segment for entry in document.entries] == xs
    assert not any(entry.read_only for entry in document.entries)
    assert document.tail_start is None


@given(st.lists(segments(), max_size=3))
def test_writing_what_was_read_gives_the_same_bytes(xs: list[Segment]) -> None:
    data = serialize(xs)
    assert serialize(entry.segment for entry in parse(data).entries) == data


@given(bodies(max_lines=12), bodies(max_lines=12))
def test_a_body_never_runs_into_its_neighbour(first: str, second: str) -> None:
    xs = [Segment(first, id="a"), Segment(second, id="b")]
    assert [entry.segment for entry in parse(serialize(xs)).entries] == xs


@given(st.text(st.characters()))
def test_any_body_at_all_makes_a_segment_that_survives(body: str) -> None:
    segment = Segment(body)
    assert parse(serialize([segment])).entries[0].segment == segment


# --- where a segment begins ---------------------------------------------------------------------


def test_segments_follow_each_other_with_or_without_a_blank_line() -> None:
    text = HEADER.format("a") + "A\n" + HEADER.format("b") + "B\n\n\n" + HEADER.format("c") + "C"
    assert bodies_of(read(text)) == ["A", "B", "C"]


def test_the_closing_rule_may_have_blanks_behind_it() -> None:
    document = read("---  \nid: a\nkind: fact\n---\t \nBody\n")
    assert document.entries[0].segment.id == "a"
    assert document.entries[0].segment.body == "Body"


@pytest.mark.parametrize("rule", [" ---", "----", "--- x", "- - -", "***", "–––"])
def test_other_rules_open_no_header(rule: str) -> None:
    document = read(f"{rule}\nid: a\n{rule}\nBody\n")
    assert [entry.has_header for entry in document.entries] == [False]


def test_a_mapping_without_a_known_key_is_text_between_rules() -> None:
    text = HEADER.format("a") + "A\n\n---\n\nstatus: staging first\nowner: b\n\n---\n\nEnd\n"
    assert len(read(text).entries) == 1


@pytest.mark.parametrize(
    "header",
    [
        "{id: a, tags: [x]}",
        '"id": a\ntags: [x]',
        "# first\n\nid: a\n\ntags:\n- x",
        "other: 1\nid: a\ntags: x",
        "id: a\ntags: [\nx]",
        "? id\n: a\n? tags\n: [x]",
    ],
)
def test_every_yaml_mapping_with_a_known_key_is_a_header(header: str) -> None:
    segment = read(f"---\n{header}\n---\nBody\n").entries[0].segment
    assert (segment.id, segment.tags, segment.body) == ("a", ("x",), "Body")


def test_yaml_scalars_are_text() -> None:
    segment = read("---\nid: 007\ntags: [no, 1.10, 007, 2026-01-01]\n---\nx\n").entries[0].segment
    assert segment.id == "007"
    assert segment.tags == ("no", "1.10", "007", "2026-01-01")


def test_a_quoted_item_that_ends_in_a_backslash_does_not_join_its_neighbour() -> None:
    segment = read('---\nid: a\ntags: ["back\\\\", "b, c", d]\n---\nx\n').entries[0].segment
    assert segment.tags == ("back\\", "b, c", "d")


def test_a_file_without_any_header_is_one_anonymous_segment() -> None:
    document = read("\n# Notes\n\nSome text.\n")
    assert bodies_of(document) == ["# Notes\n\nSome text."]
    assert document.entries[0].address_id.startswith("anon_")
    assert document.entries[0].line == 2
    assert notices(document) == [("no-header", 2)] and not faults(document)


def test_text_before_the_first_header_is_an_anonymous_segment() -> None:
    document = read("Before.\n\n" + HEADER.format("a") + "A\n")
    assert bodies_of(document) == ["Before.", "A"]
    assert [entry.has_header for entry in document.entries] == [False, True]


def test_an_anonymous_id_depends_on_the_text_alone() -> None:
    first, second = read("One.\n"), read("\n\nOne.\n\n" + HEADER.format("a") + "A\n")
    assert first.entries[0].address_id == second.entries[0].address_id
    assert read("Two.\n").entries[0].address_id != first.entries[0].address_id


def test_a_digest_does_not_depend_on_what_follows() -> None:
    alone = read(HEADER.format("a") + "A").entries[0]
    followed = read(HEADER.format("a") + "A\n\n\n" + HEADER.format("b") + "B\n").entries[0]
    assert alone.digest == followed.digest
    assert read(HEADER.format("a") + "A.").entries[0].digest != alone.digest


def test_a_comment_that_stands_by_itself_between_segments_belongs_to_none() -> None:
    text = (
        "<!-- head -->\n\n" + HEADER.format("a") + "A\n\n<!-- one\n\ntwo -->\n\n<!-- three -->\n\n"
    )
    text += HEADER.format("b") + "B\n<!-- part of it -->\n"
    document = read(text)
    assert bodies_of(document) == ["A", "B\n<!-- part of it -->"]


def test_a_body_that_is_nothing_but_a_comment_is_a_body() -> None:
    assert bodies_of(read(HEADER.format("a") + "<!-- todo -->\n")) == ["<!-- todo -->"]


def test_a_dream_state_block_is_never_text_wherever_it_stands() -> None:
    block = "<!-- dream-state -->\nlastDreamAt: 2026-05-07T00:00:00.000Z\n<!-- /dream-state -->\n"
    text = HEADER.format("a") + "A\n\n" + block + "\n" + HEADER.format("b") + "B\n\n" + block
    document = read(text)
    assert bodies_of(document) == ["A", "B"]
    assert document.tail_start == text.rindex("<!-- dream-state")
    assert read(HEADER.format("a") + "A\n" + block + "Later.\n").tail_start is None


def test_text_behind_a_dream_state_block_is_kept_as_an_anonymous_segment() -> None:
    block = "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n"
    assert bodies_of(read(HEADER.format("a") + "A\n" + block + "Later.\n")) == ["A", "Later."]


def test_a_dream_state_marker_without_an_end_hides_nothing_and_is_reported() -> None:
    text = HEADER.format("a") + "The marker\n<!-- dream-state -->\nlastDreamAt: 2026\n"
    document = read(text)
    assert bodies_of(document) == ["The marker\n<!-- dream-state -->\nlastDreamAt: 2026"]
    assert faults(document) == [("unclosed-dream-state", 8)]
    ended = HEADER.format("a") + "A\n<!-- /dream-state -->\n"
    assert bodies_of(read(ended)) == ["A\n<!-- /dream-state -->"]


def test_dream_state_markers_inside_a_fence_are_text() -> None:
    fenced = "```\n<!-- dream-state -->\n<!-- /dream-state -->\n```"
    assert bodies_of(read(HEADER.format("a") + fenced + "\n")) == [fenced]


# --- fences -------------------------------------------------------------------------------------

EXAMPLE = "---\nid: example\n---\nAn example."


@pytest.mark.parametrize(
    "fenced",
    [
        "```\n{}\n```",
        "```md title\n{}\n```",
        "~~~\n{}\n~~~",
        "````\n```\n{}\n```\n````",
        "~~~ `x`\n```\n{}\n~~~~~",
        "   ```\n{}\n  ```",
        "```\n{}\n    ```\n```",
        "```\n{}\n``` not closed\n```",
        "~~~\n{}\n```\n~~~",
    ],
)
def test_examples_inside_a_fence_are_text(fenced: str) -> None:
    body = "Before.\n\n" + fenced.format(EXAMPLE) + "\n\nAfter."
    document = read(HEADER.format("a") + body + "\n\n" + HEADER.format("b") + "B\n")
    assert bodies_of(document) == [body, "B"]


@pytest.mark.parametrize(
    "text",
    [
        "`code` and ```inline``` code",
        "```inline``` at the margin",
        "    ```\n    indented code",
        "- ```\n  in a list\n  ```",
        "- item\n\n  ```\n  in a list\n  ```",
        "1. ~~~\n   in a list\n   ~~~",
        "> ```\n> in a quote\n> ```",
        "- ```\n  never closed in the list\n\ntext\n\n```\nfence\n```",
        "- deep\n  - deeper\n\n        ```\n        x",
        "``",
    ],
)
def test_what_is_no_open_fence_hides_no_segment(text: str) -> None:
    document = read(HEADER.format("a") + text + "\n\n" + HEADER.format("b") + "B\n")
    assert bodies_of(document) == [text, "B"]
    assert not faults(document)


def test_an_unclosed_fence_runs_to_the_end_of_the_file_and_is_reported() -> None:
    document = read(HEADER.format("a") + "```\ncode\n\n" + HEADER.format("b") + "B\n")
    assert len(document.entries) == 1
    assert faults(document) == [("unclosed-fence", 7)]


def test_an_open_fence_in_a_list_does_not_hide_the_next_segment() -> None:
    document = read(HEADER.format("a") + "- ```\n  code\n\n" + HEADER.format("b") + "B\n")
    assert [entry.segment.id for entry in document.entries] == ["a", "b"]


# --- tolerance ----------------------------------------------------------------------------------


def test_an_unterminated_header_is_text_and_reported() -> None:
    document = read(HEADER.format("a") + "A\n\n---\nid: b\nkind: fact\nBody of b.\n")
    assert bodies_of(document) == ["A\n\n---\nid: b\nkind: fact\nBody of b."]
    assert faults(document) == [("unterminated-header", 9)]


def test_an_unterminated_header_does_not_take_the_next_one_with_it() -> None:
    text = "---\nid: a\nkind: fact\nBody of a.\n\n" + HEADER.format("b") + "B\n"
    document = read(text)
    assert bodies_of(document) == ["---\nid: a\nkind: fact\nBody of a.", "B"]
    assert faults(document) == [("unterminated-header", 1)]


def test_an_unknown_kind_is_read_as_context_and_reported() -> None:
    document = read("---\nid: a\nkind: banana\ncreatedAt: 2026\n---\nA\n")
    assert document.entries[0].segment.kind == "context"
    assert ("unknown-kind", 1) in faults(document)


def test_unknown_keys_and_left_out_fields_are_notices() -> None:
    document = read("---\nid: a\nmood: good\n---\nA\n")
    assert not faults(document)
    assert notices(document) == [("missing-fields", 1), ("unknown-keys", 1)]


def test_duplicate_ids_are_both_kept_and_the_later_ones_addressed_apart() -> None:
    text = "".join(HEADER.format(name) + name + "\n\n" for name in ("a", "a", "a~2", "a", "b"))
    document = read(text)
    assert [entry.address_id for entry in document.entries] == ["a", "a~3", "a~2", "a~4", "b"]
    assert [entry.segment.id for entry in document.entries] == ["a", "a", "a~2", "a", "b"]
    assert [code for code, _ in faults(document)] == ["duplicate-id"] * 2
    assert all(problem.fixable for problem in document.problems)


def test_equal_anonymous_segments_are_addressed_apart() -> None:
    document = read("---\nkind: fact\n---\nSame.\n\n---\nkind: fact\n---\nSame.\n")
    first, second = (entry.address_id for entry in document.entries)
    assert second == first + "~2"


@pytest.mark.parametrize("name", ["note_" + "0" * 16, "content_" + "a" * 12, "summary"])
def test_ids_of_the_engine_are_not_taken_by_hand_written_segments(name: str) -> None:
    document = read(HEADER.format(name) + "A\n")
    assert document.entries[0].address_id == name + "~2"
    assert document.entries[0].segment.id == name
    assert faults(document) == [("reserved-id", 1)]


def test_an_id_with_control_characters_is_left_out_and_reported() -> None:
    document = read('---\nid: "a\\nb"\n---\nA\n')
    assert document.entries[0].segment.id == ""
    assert ("invalid-id", 1) in faults(document)


def test_a_list_where_one_value_belongs_is_reported() -> None:
    document = read("---\nid: [a]\nkind: {x: y}\n---\nA\n")
    assert (document.entries[0].segment.id, document.entries[0].segment.kind) == ("", "context")
    assert [code for code, _ in faults(document)] == ["not-a-text", "not-a-text"]


def test_merge_conflict_markers_are_reported_and_nothing_is_dropped() -> None:
    text = HEADER.format("a") + "<<<<<<< HEAD\nours\n=======\ntheirs\n>>>>>>> branch\n"
    document = read(text)
    assert "ours" in bodies_of(document)[0] and "theirs" in bodies_of(document)[0]
    assert faults(document) == [("merge-conflict", 7)]
    inside = "---\nid: a\n<<<<<<< HEAD\nkind: fact\n=======\nkind: goal\n>>>>>>> b\n---\nBody\n"
    document = read(inside)
    assert "Body" in document.text[document.entries[-1].start : document.entries[-1].end]
    assert ("merge-conflict", 3) in faults(document)


def test_nul_bytes_are_reported_and_read() -> None:
    document = read(HEADER.format("a") + "A\0B\n")
    assert bodies_of(document) == ["A\0B"]
    assert faults(document) == [("nul-bytes", 7)]


def test_times_are_kept_as_written_and_reported_when_unreadable_or_future() -> None:
    text = "---\nid: a\nkind: fact\ncreatedAt: last week\nupdatedAt: 2027-01-01T00:00:00.000Z\n"
    text += "---\nA\n"
    segment = read(text).entries[0].segment
    assert (segment.created_at, segment.updated_at) == ("last week", "2027-01-01T00:00:00.000Z")
    assert faults(read(text)) == [("unparsable-time", 1)]
    document = parse(text.encode(), now=datetime(2026, 6, 1, tzinfo=UTC))
    assert faults(document) == [("unparsable-time", 1), ("future-time", 1)]


def test_old_source_objects_become_ids_and_raw_text_is_left_in_the_file() -> None:
    text = (
        "---\nid: a\nsourceMessages:\n  - id: m1\n    content: |\n      raw text\n"
        '  - messageId: m2\n  - just some words\n  - "{\\"uuid\\": \\"m3\\"}"\n---\nA\n'
    )
    document = read(text)
    assert document.entries[0].segment.source_messages == ("m1", "m2", "m3")
    assert ("source-without-id", 1) in notices(document)


def test_a_file_over_the_limit_is_reported_and_not_read() -> None:
    data = (HEADER.format("a") + "A" * 100).encode()
    document = parse(data, settings=dataclasses.replace(DEFAULTS, max_file_bytes=64))
    assert document.entries == () and document.read_only
    assert (
        faults(document) == [("over-limit", 1)] and "max_file_bytes" in document.problems[0].message
    )
    assert render(document) == data


@pytest.mark.parametrize("header", ["sources", "lines"])
def test_a_header_over_a_limit_is_one_all_the_same_and_its_body_is_read(header: str) -> None:
    long = {
        "sources": "sourceMessages:\n" + "  - m_0123456789\n" * 100,
        "lines": "note: |\n" + "  " + "x" * 20_000 + "\n",
    }[header]
    text = HEADER.format("a") + "A\n\n---\nid: b\n" + long + "---\nBody of b.\n"
    document = read(text)
    assert bodies_of(document) == ["A", "Body of b."]
    assert document.entries[1].segment.id == "" and document.entries[1].read_only
    (problem,) = document.problems
    assert problem.code == "over-limit" and problem.message.startswith("max_header_")
    assert (problem.line) == 10


def test_prose_between_distant_rules_is_no_header() -> None:
    prose = "id: this is prose\nand goes on.\n" * 2_000
    assert len(read(f"---\n{prose}---\nEnd\n").entries) == 1


def test_mixed_line_breaks_are_each_entrys_own() -> None:
    text = (
        HEADER.format("a").replace("\n", "\r\n")
        + "A1\r\nA2\r\n\r\n"
        + HEADER.format("b")
        + "B1\nB2\n"
    )
    document = read(text)
    assert bodies_of(document) == ["A1\nA2", "B1\nB2"]
    assert [entry.crlf for entry in document.entries] == [True, False]


def test_eight_megabytes_on_one_line_are_read() -> None:
    body = "word " * 1_600_000
    document = parse((HEADER.format("a") + body).encode())
    assert document.entries[0].segment.body == body


@pytest.mark.parametrize(
    "unit",
    [
        "---\n",
        "```\n",
        "~~~\n",
        "x\n\n<!-- -->\n\n",
        "> ",
        "-",
        "---\nid: x\n",
        "\\\n",
        "<!--",
        "\r",
    ],
)
def test_repetitions_are_read_in_linear_time(unit: str) -> None:
    data = (unit * (400_000 // len(unit))).encode()
    assert render(parse(data)) == data


# --- values and ids -----------------------------------------------------------------------------


def test_a_segment_is_normalised_when_it_is_made() -> None:
    segment = Segment(
        "\n  \nA  \n \n", id=" a ", scope=" user ", tags=("x", "x", " y "), created_at=" "
    )
    assert segment == Segment("A  ", id="a", scope="user", tags=("x", "y"))
    assert segment.created_at is None


def test_a_segment_cannot_be_made_of_wrong_values() -> None:
    with pytest.raises(UsageError):
        Segment("A", kind="banana")
    with pytest.raises(UsageError):
        Segment("A", id="a\nb")
    with pytest.raises(UsageError):
        Segment("A", source_messages=("two words",))


def test_lone_surrogates_are_replaced() -> None:
    assert Segment("\ud83d x").body == "\ufffd x"


def test_the_writers_exact_form() -> None:
    segment = Segment(
        "Body.\n\nMore.",
        id="seg_1",
        scope="sessions/会话.一",
        kind="decision",
        tags=("auth", "single sign-on", 'say "no"', "夜间", "back\\"),
        source_messages=("m_1", "a:b"),
        created_at="2026-05-04T09:30:00.000Z",
    )
    assert serialize([segment, Segment("Other.")]).decode() == (
        "---\nid: seg_1\nscope: sessions/会话.一\nkind: decision\n"
        'tags: [auth, "single sign-on", "say \\"no\\"", "夜间", "back\\\\"]\n'
        'sourceMessages: [m_1, "a:b"]\ncreatedAt: 2026-05-04T09:30:00.000Z\nupdatedAt:\n---\n'
        "Body.\n\nMore.\n\n"
        "---\nid:\nscope:\nkind: context\ntags: []\nsourceMessages: []\n"
        "createdAt:\nupdatedAt:\n---\nOther.\n"
    )
    assert serialize([]) == b""


def test_a_body_is_protected_only_where_it_would_be_misread() -> None:
    harmless = "A\n\n---\n\nstatus: open\n\n---\n\n\\B\n\n```\n---\nid: x\n---\n```"
    assert b"escaped" not in serialize([Segment(harmless)])
    text = serialize([Segment("\\A\n---\nid: x\n---\nB")]).decode()
    assert "escaped: true\n" in text
    assert text.endswith("---\n\\\\A\n\\---\nid: x\n\\---\nB\n")


def test_backslashes_are_undone_only_with_the_key() -> None:
    assert bodies_of(read(HEADER.format("a") + "\\---\n\\x\n")) == ["\\---\n\\x"]
    text = "---\nid: a\nescaped: true\n---\n\\---\n\\\\x\ny\\\n"
    assert bodies_of(read(text)) == ["---\n\\x\ny\\"]


def test_a_header_that_would_be_too_long_is_refused_by_a_named_limit() -> None:
    many = tuple(f"message_{number:08}" for number in range(1_000))
    with pytest.raises(LimitError) as caught:
        serialize([Segment("A", source_messages=many)])
    assert caught.value.name == "max_header_bytes"
    with pytest.raises(LimitError) as caught:
        serialize([Segment("A", id="x" * 5_000)])
    assert (caught.value.name, caught.value.limit) == ("max_scalar_chars", 1_024)


def test_a_new_id_is_made_of_scope_kind_and_trimmed_body() -> None:
    name = new_id("user", "fact", "Text.", ())
    assert len(name) == 20 and name.startswith("seg_")
    assert new_id("user", "fact", "\n Text. \n", ()) == name
    assert new_id("global", "fact", "Text.", ()) != name
    assert new_id("user", "goal", "Text.", ()) != name
    assert new_id("user", "fact", "Text.", {name}) == name + "-2"
    assert new_id("user", "fact", "Text.", {name, name + "-2"}) == name + "-3"


def test_k76_fields_are_parted_before_they_are_hashed() -> None:
    """K76: moving a character from one field to the next gives another id."""
    assert new_id("s-abc", "debug", "x", ()) != new_id("s-ab", "cdebug", "x", ())
    assert new_id("s", "k", "x", ()) != new_id("s", "kx", "", ())
