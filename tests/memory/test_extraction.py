"""Reading a model's answer: tolerant of how it is wrapped, strict in what it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.memory.extraction import (
    MAX_ANSWER_CHARS,
    Answer,
    ExtractionRequest,
    SourceMessage,
    Target,
    UnreadableAnswer,
    parse_answer,
    schema_of,
    targets_of,
)
from h2ams.memory.scope import parse_scope

ADD = {
    "op": "add",
    "scope": "user",
    "kind": "fact",
    "tags": ["x"],
    "body": "Tea at 5.",
    "sourceMessages": ["m1"],
}
WHOLE = json.dumps({"operations": [ADD]})


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"\ufeff{WHOLE}\n",
        f"```json\n{WHOLE}\n```",
        f"Sure! Here it is:\n```\n{WHOLE}\n```\nAnything else?",
        f"I think {{this}} is good: {WHOLE} — done",
        json.dumps([ADD]),
        json.dumps(ADD),
        json.dumps({"operations": [ADD]}, indent=4),
        WHOLE.replace('"op"', '"action"').replace("sourceMessages", "source_messages"),
        WHOLE.replace('"body"', '"text"').replace('["m1"]', '"m1"'),
    ],
)
def test_an_answer_is_read_however_it_is_wrapped(text: str) -> None:
    (operation,) = parse_answer(text).operations
    assert (operation.name, operation.scope, operation.kind) == ("add", "user", "fact")
    assert (operation.body, operation.tags, operation.source_messages) == (
        "Tea at 5.",
        ("x",),
        ("m1",),
    )
    assert not operation.malformed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing to remember",
        "{",
        WHOLE[:-20],
        "[[[[" * 20_000,
        '{"facts": ["a"]}',
        "7",
        '["add"]',
        "x" * (MAX_ANSWER_CHARS + 1),
    ],
)
def test_an_answer_without_operations_is_unreadable_and_not_repeated(text: str) -> None:
    with pytest.raises(UnreadableAnswer) as caught:
        parse_answer(text)
    assert len(str(caught.value)) < 120


def test_no_operations_are_an_answer() -> None:
    assert parse_answer('{"operations": []}') == parse_answer("[]") == Answer()


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({**ADD, "body": 7}, "body"),
        ({**ADD, "scope": ["user"]}, "scope"),
        ({**ADD, "tags": [1]}, "tags"),
        ({**ADD, "sourceMessages": {"id": "m1"}}, "source_messages"),
        ("add", "operation"),
        (None, "operation"),
    ],
)
def test_a_field_of_the_wrong_type_is_named_and_the_others_are_read(
    item: object, field: str
) -> None:
    first, second = parse_answer(json.dumps({"operations": [item, ADD]})).operations
    assert first.malformed == field
    assert second.name == "add" and not second.malformed and second.at == 1


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_answer(text)
    except UnreadableAnswer:
        return


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["op", "body", "tags", "operations", "x"]), inner, max_size=4
            )
        ),
        max_leaves=12,
    )
)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        parse_answer(json.dumps({"operations": value}))
    except UnreadableAnswer:
        return


def test_the_targets_of_a_session_are_its_own_and_the_user() -> None:
    existing = map(
        parse_scope,
        ["global", "vp/ada", "sessions/s1/topic/x", "sessions/s1/feature/f", "sessions/s2/topic/y",
         "sessions/s1/vp/bob", "sessions/s1/user", "topic/z"],
    )  # fmt: skip
    found = targets_of(session="s1", vps=["ada", "ada"], existing=existing)
    assert [scope.text for scope in found] == [
        "user",
        "sessions/s1",
        "sessions/s1/feature/f",
        "sessions/s1/topic/x",
        "sessions/s1/vp/ada",
    ]
    assert [scope.text for scope in targets_of(chat="c", vps=["v"])] == [
        "user",
        "chat/c",
        "chat/c/vp/v",
    ]


def test_the_schema_allows_the_targets_and_kinds_alone() -> None:
    request = ExtractionRequest(
        (SourceMessage("m1", "user", "x"),), (Target(parse_scope("user")),), kinds=("fact",)
    )
    text = json.dumps(schema_of(request))
    assert '"enum": ["user"]' in text and '"enum": ["fact"]' in text
    assert '"additionalProperties": false' in text


@pytest.mark.parametrize(
    ("id", "role"), [("", "user"), ("a b", "user"), ("m\n", "user"), ("m", "tool")]
)
def test_a_message_that_no_segment_could_cite_is_no_message(id: str, role: str) -> None:
    with pytest.raises(ValueError):
        SourceMessage(id, role, "x")  # type: ignore[arg-type]
