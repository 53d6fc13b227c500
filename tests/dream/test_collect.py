"""Messages in the shapes that hosts have, cleaned of what is no conversation."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dream.dream_kit import ESTIMATE

from h2ams.dream.collect import Collected, collect, from_json_lines
from h2ams.memory.extraction import SourceMessage


def one(item: dict[str, object]) -> SourceMessage:
    (message,) = collect([item], ESTIMATE).messages
    return message


@pytest.mark.parametrize(
    "item",
    [
        {"id": "m1", "role": "user", "content": "hello", "createdAt": "2026-05-01T10:00:00Z"},
        {
            "messageId": "m1",
            "role": "human",
            "text": "hello",
            "timestamp": "2026-05-01T12:00:00+02:00",
        },
        {
            "uuid": "m1",
            "type": "user",
            "message": {"role": "user", "content": "hello"},
            "timestamp": 1777629600,
        },
        {
            "id": "m1",
            "role": "USER",
            "content": [{"type": "text", "text": "hello"}],
            "created_at": 1777629600000,
        },
        {
            "id": "m1",
            "role": "user",
            "content": [{"type": "input_text", "text": "hello"}],
            "at": "2026-05-01T10:00:00",
        },
        {
            "id": "m1",
            "role": "user",
            "content": {"type": "text", "text": "hello"},
            "time": "2026-05-01 10:00:00Z",
        },
    ],
)
def test_common_shapes_are_read(item: dict[str, object]) -> None:
    message = one(item)
    assert (message.id, message.role, message.text) == ("m1", "user", "hello")
    assert message.created_at == "2026-05-01T10:00:00Z"


@pytest.mark.parametrize(
    "item",
    [
        {"id": "m", "role": "tool", "content": "output"},
        {"id": "m", "role": "system", "content": "You are"},
        {"id": "m", "content": "whose?"},
        {"id": "m", "role": "user", "content": ""},
        {"id": "m", "role": "user", "content": [{"type": "image_url", "image_url": "data:"}]},
        {"id": "m", "role": "user", "content": [{"type": "tool_result", "content": "output"}]},
        {"id": "m", "role": "assistant", "content": None, "tool_calls": [{}]},
        {"id": "m", "role": "user", "content": 7},
        {"id": "m", "role": "user", "content": "<memory-context>only memory</memory-context>"},
    ],
)
def test_what_is_no_conversation_is_left_out_and_counted(item: dict[str, object]) -> None:
    assert collect([item], ESTIMATE) == Collected(left_out_count=1)


def test_tool_payloads_and_images_go_and_text_beside_them_stays() -> None:
    content = [
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "name": "x", "input": {"secret": 1}},
        {"type": "image", "source": "data:"},
        {"type": "text", "text": "Done."},
    ]
    assert one({"id": "m", "role": "assistant", "content": content}).text == "I look.\nDone."


def test_shown_memory_is_cut_out_and_kept_apart() -> None:
    text = "Before.\n<memory-context>\nThe user prefers tea.\n</memory-context>\nAfter."
    message = one({"id": "m", "role": "user", "content": text})
    assert "tea" not in message.text and message.text.startswith("Before.")
    assert "The user prefers tea." in message.recalled[0]


def test_reminders_of_a_host_secrets_and_private_parts_are_replaced() -> None:
    text = (
        "<system-reminder>always obey</system-reminder>The key is "
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789 and <private>my diary</private>."
    )
    message = one({"id": "m", "role": "user", "content": text})
    assert message.text == "The key is [redacted:github-token] and [redacted:private]."


def test_a_long_message_is_cut_with_a_notice() -> None:
    settings = replace(ESTIMATE, dream_message_chars=10)
    (message,) = collect([{"id": "m", "role": "user", "content": "x" * 25}], settings).messages
    assert message.text == "xxxxxxxxxx\n[… 15 more characters are left out]"


def test_ids_that_are_missing_are_made_of_content_and_position() -> None:
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": "a"}]
    first, second = collect(items, ESTIMATE).messages
    assert first.id != second.id
    again, _ = collect(items, ESTIMATE).messages
    assert again.id == first.id and first.id.startswith("msg_")


def test_a_message_that_comes_twice_counts_once() -> None:
    item = {"id": "m", "role": "user", "content": "a"}
    assert collect([item, item], ESTIMATE).left_out_count == 1


def test_lines_that_are_none_are_reported_by_number_and_never_repeated() -> None:
    good = json.dumps({"id": "m", "role": "user", "content": "привет"}, ensure_ascii=False)
    found = from_json_lines(f"\ufeff{good}\n\nSECRET\n[1]\n{'[' * 9000}", ESTIMATE, path="t.jsonl")
    assert [message.text for message in found.messages] == ["привет"]
    assert [(p.line, p.code, p.path) for p in found.problems] == [
        (3, "not-a-message", "t.jsonl"),
        (4, "not-a-message", "t.jsonl"),
        (5, "not-a-message", "t.jsonl"),
    ]
    assert "SECRET" not in repr(found.problems)


def test_one_json_list_is_read_too() -> None:
    text = json.dumps([{"id": "m", "role": "user", "content": "a"}], indent=1)
    assert [each.id for each in from_json_lines(text, ESTIMATE).messages] == ["m"]


@pytest.mark.parametrize("value", ["soon", -1, 10**30, True, float("nan"), float("inf"), []])
def test_a_time_that_is_none_is_unknown(value: object) -> None:
    assert one({"id": "m", "role": "user", "content": "a", "createdAt": value}).created_at is None


def test_the_role_of_a_message_is_its_vp() -> None:
    assert one({"id": "m", "role": "assistant", "content": "a", "vpId": "ada"}).vp == "ada"
