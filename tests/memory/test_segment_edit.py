"""Changing memory files: only the lines that must change do."""

from __future__ import annotations

from dataclasses import replace as with_values

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import messy_files, segments

from h2ams.errors import LimitError, ReadOnlyError
from h2ams.memory.segment import (
    Document,
    Entry,
    Segment,
    append,
    parse,
    remove,
    render,
    replace,
    serialize,
)

NEW = Segment("New.", id="n", scope="user", kind="fact")
NEW_TEXT = serialize([NEW]).decode()


def seg(name: str, body: str) -> str:
    return f"---\nid: {name}\nkind: fact\n---\n{body}\n"


def states(entries: tuple[Entry, ...]) -> list[tuple[Segment, str]]:
    return [(entry.segment, entry.raw) for entry in entries]


def after_append(text: str) -> str:
    return append(parse(text.encode()), NEW).decode()


# --- append -------------------------------------------------------------------------------------


@given(messy_files(), segments())
def test_an_appended_segment_is_read_back_and_all_others_are_unchanged(
    data: bytes, segment: Segment
) -> None:
    document = parse(data)
    assume(not document.read_only)
    after = parse(append(document, segment))
    old = [entry.segment for entry in document.entries]
    new = [entry.segment for entry in after.entries]
    position = len(new) - 1 if new[:-1] == old else len(new) - 2
    assert new[position] == segment
    assert new[:position] + new[position + 1 :] == old


@given(messy_files())
def test_appending_inserts_and_takes_nothing_away(data: bytes) -> None:
    document = parse(data)
    assume(not document.read_only)
    rest = iter(append(document, NEW))
    assert all(byte in rest for byte in data)


def after_append_and_remove(data: bytes) -> bytes:
    document = parse(append(parse(data), NEW))
    (index,) = [n for n, each in enumerate(document.entries) if each.segment.id == NEW.id]
    return remove(document, index)


@given(messy_files())
def test_a_segment_that_comes_and_goes_leaves_every_byte_as_it_was(data: bytes) -> None:
    document = parse(data)
    assume(not document.read_only and data[-1:] in (b"", b"\n"))
    assume(all(each.has_header for each in document.entries[-1:]))  # else it may be given one
    assert after_append_and_remove(data) == data


@pytest.mark.parametrize("blank_lines", ["", "\n", "\n\n", "\n \n\n", "\r\n"])
@pytest.mark.parametrize(
    "behind",
    [
        "",
        "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n",
        "---\nid: b\n---\n```\nx\n",
    ],
)
def test_blank_lines_that_a_person_left_outlive_a_segment_that_comes_and_goes(
    blank_lines: str, behind: str
) -> None:
    data = f"{seg('a', 'A')}{blank_lines}{behind}".encode()
    assert after_append_and_remove(data) == data


def test_a_file_that_ends_without_a_line_break_gets_one_for_good() -> None:
    assert after_append_and_remove(b"Just prose.") == b"Just prose.\n"


def test_a_first_segment_makes_the_file() -> None:
    assert after_append("") == NEW_TEXT


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (seg("a", "A"), seg("a", "A") + "\n" + NEW_TEXT),
        (seg("a", "A").rstrip("\n"), seg("a", "A") + "\n" + NEW_TEXT),
        (seg("a", "A") + "\n\n", seg("a", "A") + "\n\n" + NEW_TEXT),
        ("Just prose.", "Just prose.\n\n" + NEW_TEXT),
    ],
)
def test_one_blank_line_parts_a_new_segment_from_the_last_one(text: str, after: str) -> None:
    assert after_append(text) == after


def test_a_new_segment_goes_before_the_dream_state_tail() -> None:
    tail = "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n"
    text = seg("a", "A") + "\n"
    assert after_append(text + tail) == text + NEW_TEXT + "\n" + tail
    assert after_append(tail) == NEW_TEXT + "\n" + tail


@pytest.mark.parametrize("last", ["```\ncode", "~~~\n", "x\n\n---\nid: dangling\n", "---\ntags: a"])
def test_a_new_segment_goes_before_a_last_one_that_would_swallow_it(last: str) -> None:
    text = seg("a", "A") + "\n" + seg("b", last)
    after = after_append(text)
    assert after == seg("a", "A") + "\n" + NEW_TEXT + "\n" + seg("b", last)


def test_text_without_a_header_that_would_swallow_a_new_segment_gets_one() -> None:
    text = "Prose.\n\n```\ncode\n"
    document = parse(text.encode())
    after = parse(append(document, NEW))
    assert [entry.segment.body for entry in after.entries] == ["New.", text.strip()]
    assert after.entries[1].address_id == document.entries[0].address_id
    assert after.text.endswith(text)


def test_a_new_segment_has_the_files_line_breaks() -> None:
    data = seg("a", "A").replace("\n", "\r\n").encode()
    after = append(parse(data), NEW)
    assert after == data + b"\r\n" + NEW_TEXT.replace("\n", "\r\n").encode()


def test_a_header_too_big_is_refused_and_names_the_limit() -> None:
    many = tuple(f"message_{number:08}" for number in range(1_000))
    with pytest.raises(LimitError) as caught:
        append(parse(b""), with_values(NEW, source_messages=many))
    assert caught.value.name == "max_header_bytes"


# --- replace ------------------------------------------------------------------------------------


def changed(draw: st.DataObject, old: Segment) -> Segment:
    """Another segment, or the old one with one or two other values."""
    new = draw.draw(segments())
    how = draw.draw(st.integers(0, 3))
    if how == 0:
        return new
    if how == 1:
        return with_values(old, updated_at=new.updated_at, tags=new.tags)
    if how == 2:
        return with_values(old, body=new.body)
    sources = (*old.source_messages, *new.source_messages)
    return with_values(old, kind=new.kind, source_messages=sources)


def picked(draw: st.DataObject, document: Document) -> int:
    assume(document.entries and not document.read_only)
    index = draw.draw(st.integers(0, len(document.entries) - 1))
    assume(not document.entries[index].read_only)
    return index


@given(messy_files(), st.data())
def test_a_replaced_segment_is_read_back_and_nothing_else_changes(
    data: bytes, draw: st.DataObject
) -> None:
    document = parse(data)
    index = picked(draw, document)
    entry = document.entries[index]
    new = changed(draw, entry.segment)
    assume(new.body)  # below an empty body a comment would be one
    try:
        after = parse(replace(document, index, new))
    except ReadOnlyError:
        assert any(sign < " " and sign not in "\r\n\t" for sign in entry.raw), "a header with NUL"
        return
    assert after.entries[index].segment == new
    assert after.text.startswith(document.text[: entry.start])
    assert after.text.endswith(document.text[entry.end :])
    old, now = states(document.entries), states(after.entries)
    assert old[:index] + old[index + 1 :] == now[:index] + now[index + 1 :]


def replaced(text: str, index: int = 0, **changes: object) -> str:
    document = parse(text.encode())
    new = with_values(document.entries[index].segment, **changes)
    return replace(document, index, new).decode()


def test_only_the_lines_of_changed_values_change() -> None:
    text = (
        "---\nid: 'a'   # mine\nmood: good\nkind:   fact # sure\ntags: [b,   a]\n---\n\nBody.\n\n"
    )
    assert replaced(text, kind="goal") == text.replace("fact #", "goal #")
    assert replaced(text, id="z") == text.replace("'a'   #", "z   #")
    assert replaced(text, body="Other.") == text.replace("Body.", "Other.")
    assert replaced(text, tags=("b", "a", "c")) == text.replace("[b,   a]", "[b, a, c]")
    assert replaced(text, tags=()) == text.replace("[b,   a]", "[]")


def test_a_value_that_had_no_line_gets_one_at_the_end_of_the_header() -> None:
    text = "---\nid: a\n# comment\n---\nBody.\n"
    assert replaced(text, updated_at="2026-05-01T00:00:00Z") == (
        "---\nid: a\n# comment\nupdatedAt: 2026-05-01T00:00:00Z\n---\nBody.\n"
    )


def test_an_empty_value_is_filled_in_and_a_value_can_be_emptied() -> None:
    text = "---\nid: a\nupdatedAt:   # when?\ncreatedAt: 2026-01-01\n---\nBody.\n"
    filled = replaced(text, updated_at="2026-05-01", created_at=None)
    assert filled == "---\nid: a\nupdatedAt: 2026-05-01   # when?\ncreatedAt: \n---\nBody.\n"
    assert parse(filled.encode()).entries[0].segment.created_at is None


def test_a_list_with_one_item_a_line_keeps_its_lines_and_comments() -> None:
    text = (
        "---\nid: a\ntags:\n  - one   # first\n  # about two\n  - 'two'\n  - three # last\n"
        "kind: fact\n---\nBody.\n"
    )
    assert replaced(text, tags=("one", "three", "four")) == (
        "---\nid: a\ntags:\n  - one   # first\n  # about two\n  - three # last\n  - four\n"
        "kind: fact\n---\nBody.\n"
    )
    assert "  # about two\n" in replaced(text, tags=())


def test_old_source_objects_stay_in_the_file_when_sources_are_added() -> None:
    flow = '---\nid: a\nsourceMessages: [{id: m1, content: "raw, text"}, some words]\n---\nBody.\n'
    assert replaced(flow, source_messages=("m1", "m2")) == flow.replace(
        ", some words]", ", m2, some words]"
    )
    block = "---\nid: a\nsourceMessages:\n- id: m1\n  content: raw\n- uuid: u2\n---\nBody.\n"
    assert replaced(block, source_messages=("m1", "u2", "m3")) == block.replace(
        "- uuid: u2\n", "- uuid: u2\n- m3\n"
    )
    single = "---\nid: a\nsourceMessages:\n  id: m1\n  content: raw\n---\nBody.\n"
    after = replaced(single, source_messages=("m1", "m2"))
    assert "#   content: raw\n" in after
    assert parse(after.encode()).entries[0].segment.source_messages == ("m1", "m2")


def test_a_comma_string_becomes_a_list_when_tags_change() -> None:
    text = "---\nid: a\ntags: x, y\n---\nBody.\n"
    assert replaced(text, tags=("x", "y", "z w")) == text.replace("x, y", '[x, y, "z w"]')


def test_unknown_kinds_and_odd_values_stay_when_something_else_changes() -> None:
    text = "---\nid: a\nkind: banana\nupdatedAt: last week\n---\nBody.\n"
    assert replaced(text, body="Other.") == text.replace("Body.", "Other.")


def test_a_header_in_one_line_is_written_anew_and_its_old_text_kept_as_a_comment() -> None:
    after = replaced("---\n{id: a, tags: [x], mood: good}\n---\nBody.\n", kind="goal")
    assert "# {id: a, tags: [x], mood: good}\n" in after
    segment = parse(after.encode()).entries[0].segment
    assert (segment.id, segment.kind, segment.tags) == ("a", "goal", ("x",))


def test_a_multi_line_value_of_another_key_is_not_touched() -> None:
    text = "---\nid: a\nnote: |\n  tags: no\n\n  kind: no\ntags: [x]\n---\nBody.\n"
    assert replaced(text, tags=("y",), kind="fact") == text.replace(
        "tags: [x]\n", "tags: [y]\nkind: fact\n"
    )


def test_wide_characters_do_not_shift_the_place_of_a_change() -> None:
    text = "---\ntitle: 夜间 🙂 'x'\nid: 会话🙂   # 夜\ntags: [夜, 🙂]\n---\nBody.\n"
    assert replaced(text, id="a", tags=("夜",)) == (
        "---\ntitle: 夜间 🙂 'x'\nid: a   # 夜\ntags: [夜]\n---\nBody.\n"
    )


def test_blank_lines_above_a_replaced_body_stay() -> None:
    assert replaced("---\nid: a\n---\n\n\nBody.\n\n\n", body="Other.") == (
        "---\nid: a\n---\n\n\nOther.\n\n\n"
    )


def test_a_body_that_needs_it_is_protected_and_a_later_one_is_not() -> None:
    text = seg("a", "A") + "\n" + seg("b", "B")
    body = "X\n---\nid: fake\n---\nY"
    once = replaced(text, body=body)
    assert "kind: fact\nescaped: true\n---\nX\n\\---\n" in once
    assert [entry.segment.body for entry in parse(once.encode()).entries] == [body, "B"]
    assert replaced(once, body="A") == text


def test_text_without_a_header_gets_one_when_it_changes() -> None:
    after = replaced("Prose.\n\nMore.\n\n" + seg("b", "B"), id="a", kind="goal")
    assert after.endswith("---\nProse.\n\nMore.\n\n" + seg("b", "B"))
    assert parse(after.encode()).entries[0].segment == Segment("Prose.\n\nMore.", "a", kind="goal")


def test_a_file_without_a_final_line_break_still_has_none() -> None:
    assert replaced(seg("a", "A").rstrip("\n"), body="B") == seg("a", "B").rstrip("\n")


# --- remove -------------------------------------------------------------------------------------


@given(messy_files(), st.data())
def test_removing_a_segment_leaves_all_others_as_they_are(data: bytes, draw: st.DataObject) -> None:
    document = parse(data)
    index = picked(draw, document)
    after = parse(remove(document, index))
    old = states(document.entries)
    assert states(after.entries) == old[:index] + old[index + 1 :]


@given(messy_files(), segments())
def test_removing_what_was_appended_at_the_end_restores_all_lines(
    data: bytes, segment: Segment
) -> None:
    document = parse(data)
    assume(not document.read_only)
    after = parse(append(document, segment))
    assume(after.text.startswith(document.text) and after.entries[-1].segment == segment)
    restored = parse(remove(after, len(after.entries) - 1))
    assert restored.text.rstrip() == document.text.rstrip()
    assert states(restored.entries) == states(document.entries)


@pytest.mark.parametrize(
    ("index", "left"),
    [(0, ("b", "c")), (1, ("a", "c")), (2, ("a", "b"))],
)
def test_a_removed_segment_takes_its_blank_line_along(index: int, left: tuple[str, str]) -> None:
    text = "\n".join(seg(name, name.upper()) for name in "abc")
    after = remove(parse(text.encode()), index).decode()
    assert after == "\n".join(seg(name, name.upper()) for name in left)


def test_removing_the_only_segment_leaves_what_is_not_its_own() -> None:
    tail = "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n"
    assert remove(parse((seg("a", "A") + "\n" + tail).encode()), 0).decode() == tail
    assert remove(parse(seg("a", "A").encode()), 0) == b""
    commented = seg("a", "A") + "\n" + seg("b", "B") + "\n<!-- note -->\n\n" + seg("c", "C")
    assert remove(parse(commented.encode()), 1).decode() == (
        seg("a", "A") + "\n<!-- note -->\n\n" + seg("c", "C")
    )


@pytest.mark.parametrize(
    "header",
    [
        "id: a\nsourceMessages: some raw words, m1",
        "id: a\nsourceMessages:\n  - m1\n  -\n    content: raw\n    role: user",
        "? id\n: a\n? sourceMessages\n: - m1",
        "id: a\nsourceMessages: &x [m1]\n",
        "id: a\nsourceMessages: |\n  m1\n\n# end",
    ],
)
def test_no_header_is_so_odd_that_a_change_loses_a_line_of_it(header: str) -> None:
    document = parse(f"---\n{header}\n---\nBody.\n".encode())
    old = document.entries[0].segment
    new = with_values(old, source_messages=(*old.source_messages, "m2"), kind="goal")
    after = replace(document, 0, new, force=True)
    assert parse(after).entries[0].segment == new
    kept = [line.removeprefix("# ") for line in after.decode().split("\n")]
    words = {word for line in header.split("\n") for word in line.split() if word not in "?:|-#"}
    assert all(any(word.strip("[]") in line for line in kept) for word in words)


def test_a_header_that_cannot_be_kept_even_as_a_comment_is_not_rewritten() -> None:
    document = parse(b"---\nid: a\nkind: fact\nx: \x01\n---\nBody.\n")
    assert document.entries[0].read_only
    with pytest.raises(ReadOnlyError):
        replace(document, 0, Segment("Other."), force=True)


def test_a_header_with_too_many_lines_is_refused_when_one_more_is_needed() -> None:
    header = "id: a\n" + "".join(f"x{number}: 1\n" for number in range(63))
    document = parse(f"---\n{header}---\nBody.\n".encode())
    assert document.entries[0].segment.id == "a"
    with pytest.raises(LimitError) as caught:
        replace(document, 0, with_values(document.entries[0].segment, kind="goal"))
    assert (caught.value.name, caught.value.size) == ("max_header_lines", 65)


def test_a_carriage_return_at_the_end_of_a_new_body_is_not_taken_for_a_line_break() -> None:
    text = "---\r\nid: a\r\nkind: fact\r\n---\r\nBody.\n"
    document = parse(text.encode())
    new = with_values(document.entries[0].segment, body="Body\r")
    assert parse(replace(document, 0, new)).entries[0].segment == new


def test_equal_values_write_equal_bytes() -> None:
    text = "---\n# odd but fine\nid:   a\n---\nBody.\n"
    document = parse(text.encode())
    assert replace(document, 0, document.entries[0].segment) == render(document) == text.encode()
