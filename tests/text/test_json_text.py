"""JSON as text: an edit changes one member and no other byte, in every style of writing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.text.json_text import JsonTextError, put_member, read, remove_member

VALUE = {"command": "h2ams", "args": ["mcp", "--owner"]}
STYLES = [
    "{}",
    "{}\n",
    "{\n}\n",
    '{"a": 1}',
    '{"a": 1,}',
    '{\n  "a": 1\n}\n',
    '{\n\t"a": 1, // why\n}\n',
    '{\n    "a": 1 // why\n}',
    '{\r\n  "servers": {\r\n    "x": {"command": "y"}\r\n  }\r\n}\r\n',
    "// top\n{ // open\n  servers: {}, /* c */\n  'b': [1, {}],\n}\n",
    '{"servers": {"x": 1}}',
    '{\n  "servers": { // none yet\n  }\n}',
    '{\n  "servers": {\n    "x": 1,\n    // last one\n  },\n  "z": null\n}\n',
    '\ufeff{\n  "servers": {"x": {"args": ["{", "}", "//", "/*"]}}\n}\n',
    "{ // nothing\n}",
]


@pytest.mark.parametrize("text", STYLES)
def test_a_member_is_added_in_the_style_of_the_file_and_every_old_line_stays(text: str) -> None:
    made = put_member(text, ("servers",), "h2ams", VALUE)
    assert read(made).member("servers").value.member("h2ams")  # type: ignore[union-attr]
    rest = made
    for piece in filter(None, (word.strip("{},") for word in text.split())):
        at = rest.find(piece)
        assert at >= 0, piece
        rest = rest[at + len(piece) :]
    assert ("\r\n" in made) == ("\r\n" in text)
    assert made.count("\n") == made.count("\r\n") or "\r\n" not in text
    assert put_member(made, ("servers",), "h2ams", VALUE) == made


@pytest.mark.parametrize(
    "text", [each for each in STYLES if "servers" in each and "{}," not in each]
)
def test_taking_it_out_gives_the_old_bytes(text: str) -> None:
    made = put_member(text, ("servers",), "h2ams", VALUE)
    assert remove_member(made, ("servers",), "h2ams") == text


def test_a_member_is_replaced_where_it_stands() -> None:
    text = '{\n  "servers": {\n    "h2ams": {"command": "old"}, // ours\n    "x": 1\n  }\n}\n'
    made = put_member(text, ("servers",), "h2ams", "new")
    assert made == text.replace('{"command": "old"}', '"new"')
    assert remove_member(made, ("servers",), "x") == (
        '{\n  "servers": {\n    "h2ams": "new" // ours\n  }\n}\n'
    )
    assert remove_member(text, ("servers",), "nothing") is None
    assert remove_member(text, ("nowhere",), "h2ams") is None


def test_an_empty_file_becomes_an_object() -> None:
    for text in ("", "\n", "  \n"):
        made = put_member(text, ("a", "b"), "h2ams", VALUE)
        assert json.loads(made) == {"a": {"b": {"h2ams": VALUE}}} and made.endswith("}\n")


@pytest.mark.parametrize(
    "text",
    ["{", "}", '{"a"}', '{"a": }', '{"a" 1}', '{"a": 1 "b": 2}', "[1 2]", '{"a": 1} x', '{"a": "b}',
     "{'a: 1}", "nonsense {", "[" * 300 + "]" * 300, "{,}", "{/* open"],
)  # fmt: skip
def test_what_is_no_json_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(JsonTextError, match="line 1"):
        put_member(text, ("servers",), "h2ams", VALUE)


@pytest.mark.parametrize("text", ["[]", '"text"', '{"servers": []}', '{"servers": null}'])
def test_something_else_in_the_way_is_an_error(text: str) -> None:
    with pytest.raises(JsonTextError, match="an object is expected"):
        put_member(text, ("servers",), "h2ams", VALUE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(
    found=st.dictionaries(st.text(), JSON, max_size=4),
    servers=st.none() | st.dictionaries(st.text(), JSON, max_size=3),
    indent=st.sampled_from([None, 0, 2, 4, "\t"]),
    ascii_only=st.booleans(),
    value=JSON,
)
def test_any_json_keeps_all_else_and_reads_back_as_meant(
    found: dict[str, object],
    servers: dict[str, object] | None,
    indent: int | str | None,
    ascii_only: bool,
    value: object,
) -> None:
    if servers is not None:
        found = {**found, "servers": servers}
    elif not isinstance(found.get("servers", {}), dict):
        return
    text = json.dumps(found, indent=indent, ensure_ascii=ascii_only)
    made = put_member(text, ("servers",), "h2ams", value)
    inner = dict(found.get("servers", {}))  # type: ignore[call-overload]
    expected = found | {"servers": inner | {"h2ams": value}}
    assert json.loads(made) == expected
    assert list(json.loads(made)) == list(expected)
    gone = remove_member(made, ("servers",), "h2ams")
    assert gone is not None
    inner.pop("h2ams", None)
    assert json.loads(gone) == found | {"servers": inner}
