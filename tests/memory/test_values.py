"""Times, kinds, tags and source ids: what is read, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import UsageError
from h2ams.memory import values
from h2ams.settings import KINDS

NOW = datetime(2026, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-04-30T08:00:00Z", "2026-04-30T08:00:00Z"),
        ("2026-05-06T18:02:11.345Z", "2026-05-06T18:02:11Z"),
        ("2026-04-30T08:00:00+02:00", "2026-04-30T06:00:00Z"),
        ("2026-04-30 08:00:00 +0200", "2026-04-30T06:00:00Z"),
        ("2026-04-30T08:00:00", "2026-04-30T08:00:00Z"),
        ("2026-04-30T08:00", "2026-04-30T08:00:00Z"),
        ("2026-04-30", "2026-04-30T00:00:00Z"),
        ("20260430T080000Z", "2026-04-30T08:00:00Z"),
        ("2026-W18-4", "2026-04-30T00:00:00Z"),
        ("  2026-04-30t08:00:00z ", "2026-04-30T08:00:00Z"),
        ("2026-04-30T08:00:00,5Z", "2026-04-30T08:00:00Z"),
    ],
)
def test_iso_times_are_read_as_utc_and_a_naive_one_means_utc(text: str, iso: str) -> None:
    assert values.parse_time(text) == (iso, None)


@pytest.mark.parametrize(
    "text",
    [
        "not a date",
        "2026-13-01T00:00:00Z",
        "2026-02-30",
        "0001-01-01T00:00:00+14:00",
        "yesterday",
        "1714386672",
        "2026-04-30T25:00:00Z",
        "2026-04-30X08:00:00Z",
        "２０２６-04-30",
        "\0",
    ],
)
def test_a_time_that_is_no_iso_time_is_undated_and_reported(text: str) -> None:
    assert values.parse_time(text, NOW) == (None, "unparsable-time")


@pytest.mark.parametrize("text", [None, "", "   "])
def test_no_time_is_undated_without_a_report(text: str | None) -> None:
    assert values.parse_time(text) == (None, None)


def test_k51_a_future_time_is_reported_only_when_now_is_known() -> None:
    """K51: the caller says what now is; an aware and a naive time compare without an error."""
    assert values.parse_time("2026-05-02T00:00:00Z", NOW).problem == "future-time"
    assert values.parse_time("2026-05-02T00:00:00", NOW).problem == "future-time"
    assert values.parse_time("2026-05-02T00:00:00Z").problem is None
    assert values.parse_time("2026-05-01T00:00:00Z", NOW).problem is None
    assert values.parse_time("2026-05-01T01:00:00+02:00", NOW).problem is None


@given(st.text())
def test_no_text_makes_a_time_reader_raise(text: str) -> None:
    values.parse_time(text)
    values.parse_time(text, NOW)


@given(st.datetimes(timezones=st.timezones()))
def test_a_written_time_is_read_back(moment: datetime) -> None:
    try:
        text = values.format_time(moment)
    except OverflowError:
        return  # the first and the last day of the calendar have no UTC
    assert values.parse_time(text) == (text, None)


def test_the_written_form_has_whole_seconds_in_utc() -> None:
    moment = datetime(2026, 4, 30, 10, 0, 0, 999, timezone(timedelta(hours=2)))
    assert values.format_time(moment) == "2026-04-30T08:00:00Z"
    assert values.format_time(datetime(2026, 4, 30, 8)) == "2026-04-30T08:00:00Z"


def test_tags_come_from_a_list_or_a_comma_string_once_each_in_order() -> None:
    assert values.clean_tags(["b", " a ", "b", "", "c\n d\0"]) == ("b", "a", "c d")
    assert values.clean_tags("b, a,,b") == ("b", "a")
    assert values.clean_tags(None) == values.clean_tags({"a": "b"}) == values.clean_tags(3) == ()
    assert values.clean_tags(["a,b", {"x": "y"}, None, ["z"]]) == ("a,b",)


@given(st.lists(st.text()))
def test_cleaning_tags_twice_changes_nothing_more(texts: list[str]) -> None:
    once = values.clean_tags(texts)
    assert values.clean_tags(once) == once


def test_source_messages_are_normalised_to_ids() -> None:
    found = values.read_sources(
        [
            "m1",
            {"id": "m2", "content": "raw text", "role": "user"},
            {"messageId": " m3 "},
            {"uuid": "u-4"},
            {"id": 5},
            {"id": "", "uuid": "u6"},
            '{"id": "m7", "content": "x"}',
            "m1",
            "",
        ]
    )
    assert found == (("m1", "m2", "m3", "u-4", "5", "u6", "m7"), 0)


def test_raw_source_text_is_no_id_and_is_counted() -> None:
    found = values.read_sources(
        ["please remember this", {"content": "x"}, {"id": "two words"}, "{broken", None, ["m"], "m"]
    )
    assert found == (("m",), 6)
    assert values.read_sources({"id": "m1"}) == (("m1",), 0)
    assert values.read_sources("m1, m2") == (("m1", "m2"), 0)
    assert values.read_sources(None) == values.read_sources(7) == ((), 0)


def test_a_json_object_too_deep_to_read_is_no_id() -> None:
    assert values.source_id('{"id":' + "[" * 100_000) is None


def test_a_caller_is_told_that_text_is_no_source_id() -> None:
    assert values.check_sources(["m1", "m1", " m2 "]) == ("m1", "m2")
    with pytest.raises(UsageError):
        values.check_sources(["two words"])


def test_kinds_are_the_documented_ones_and_unknown_ones_read_as_context() -> None:
    for kind in KINDS:
        assert values.check_kind(kind) == kind
        assert values.read_kind(f" {kind.upper()} ") == (kind, True)
    assert values.read_kind("banana") == ("context", False)
    with pytest.raises(UsageError) as caught:
        values.check_kind("banana")
    assert "preference" in str(caught.value.hint)


def test_ids_are_any_text_without_control_characters() -> None:
    assert values.check_id(" seg_1 ") == "seg_1"
    assert values.check_id("会话 一") == "会话 一"
    assert not values.is_id(" ") and not values.is_id("a\nb")
    with pytest.raises(UsageError):
        values.check_id("a\nb")


@given(st.text(st.characters()))
def test_clean_text_can_always_be_encoded_and_leaves_good_text_alone(text: str) -> None:
    cleaned = values.clean_text(text)
    cleaned.encode("utf-8")
    if not any("\ud800" <= sign <= "\udfff" for sign in text):
        assert cleaned == text


def test_surrogate_pairs_are_joined_and_lone_ones_replaced() -> None:
    assert values.clean_text("\ud83d\ude00 \udca2\udca2") == "😀 \ufffd\ufffd"


@given(st.text(st.sampled_from(" \t\r\n\x0cab")))
def test_trimming_takes_whole_blank_lines_only(text: str) -> None:
    trimmed = values.trim_blank_lines(text)
    assert values.trim_blank_lines(trimmed) == trimmed
    lines = text.split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    assert trimmed == "\n".join(lines)
