"""Days that a question names, absolute and relative, in four languages."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.text import dates
from h2ams.text.cues import may_name_days
from h2ams.text.dates import MAX_SPANS, spans_in

EPOCH = datetime.date(1970, 1, 1).toordinal()
TODAY = datetime.date(2026, 12, 1)  # a Tuesday


def days(text: str) -> list[tuple[str, str]]:
    return [
        (
            datetime.date.fromordinal(span.first + EPOCH).isoformat(),
            datetime.date.fromordinal(span.last + EPOCH).isoformat(),
        )
        for span in spans_in(text, TODAY.toordinal() - EPOCH)
    ]


def day(text: str) -> tuple[str, str]:
    return text, text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where was she on July 12, 2022?", day("2022-07-12")),
        ("on 12 July 2022", day("2022-07-12")),
        ("the 3rd of October, 2023", day("2023-10-03")),
        ("since 2023-05-08", day("2023-05-08")),
        ("am 8. Mai 2023", day("2023-05-08")),
        ("8 мая 2023 года", day("2023-05-08")),
        ("2023年5月8日", day("2023-05-08")),
        ("5月8日", day("2026-05-08")),
        ("December 24", day("2025-12-24")),
        ("in May 2023", ("2023-05-01", "2023-05-31")),
        ("2023-02", ("2023-02-01", "2023-02-28")),
        ("2023年12月", ("2023-12-01", "2023-12-31")),
        ("last May", ("2026-05-01", "2026-05-31")),
        ("в мае", ("2026-05-01", "2026-05-31")),
        ("in 2022", ("2022-01-01", "2022-12-31")),
    ],
)
def test_dates_months_and_years(text: str, expected: tuple[str, str]) -> None:
    assert days(text) == [expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what did we do today", day("2026-12-01")),
        ("yesterday's plan", day("2026-11-30")),
        ("позавчера", day("2026-11-29")),
        ("昨天", day("2026-11-30")),
        ("last week", ("2026-11-23", "2026-11-29")),
        ("на прошлой неделе", ("2026-11-23", "2026-11-29")),
        ("上周", ("2026-11-23", "2026-11-29")),
        ("上个月", ("2026-11-01", "2026-11-30")),
        ("last month", ("2026-11-01", "2026-11-30")),
        ("im letzten Monat", ("2026-11-01", "2026-11-30")),
        ("last year", ("2025-01-01", "2025-12-31")),
        ("去年", ("2025-01-01", "2025-12-31")),
        ("last Friday", day("2026-11-27")),
        ("上周五", day("2026-11-27")),
        ("three days ago", day("2026-11-28")),
        ("vor 3 Tagen", day("2026-11-28")),
        ("3 дня назад", day("2026-11-28")),
        ("3天前", day("2026-11-28")),
        ("two weeks ago", ("2026-11-16", "2026-11-18")),
    ],
)
def test_what_is_said_relative_to_today(text: str, expected: tuple[str, str]) -> None:
    assert expected in days(text)


@pytest.mark.parametrize(
    "text",
    [
        "May I ask",
        "March on",
        "version 2023.1",
        "31 February 2022",
        "2023-13-45",
        "the weekday",
        "",
    ],
)
def test_what_is_no_date_names_no_day(text: str) -> None:
    assert days(text) == []


@given(st.text(max_size=300), st.integers(0, 40_000))
def test_any_text_on_any_day_gives_spans_that_begin_before_they_end(text: str, today: int) -> None:
    spans = spans_in(text, today)
    assert len(spans) <= MAX_SPANS
    assert all(span.first <= span.last and span.text for span in spans)


WORDS = "last this in на в vor two 3 31 may mai мая 5月 8日 week 周 天前 ago 2023 2023年 назад лет"


@given(st.lists(st.sampled_from(WORDS.split()), max_size=12), st.integers(0, 40_000))
def test_words_of_dates_in_any_order_are_read_or_left(words: list[str], today: int) -> None:
    assert all(span.first <= span.last for span in spans_in(" ".join(words), today))


PARTS = sorted(
    {
        *(
            each
            for each in (*dates._MONTH_OF, *dates._WEEKDAY_OF, *dates._NUMBERS)
            if each.isascii()
        ),
        *[
            "on",
            "in",
            "last",
            "this",
            "during",
            "since",
            "im",
            "letzten",
            "am",
            "the",
            "of",
            "vor",
            "a",
            "ago",
            "next",
        ],
        *[
            "today",
            "heute",
            "day",
            "before",
            "yesterday",
            "vorgestern",
            "gestern",
            "night",
            "week",
            "weeks",
            "letzte",
            "woche",
        ],
        *[
            "letzter",
            "diese",
            "month",
            "months",
            "monat",
            "diesen",
            "year",
            "years",
            "jahr",
            "letztes",
            "dieses",
            "days",
            "tag",
        ],
        *[
            "tage",
            "tagen",
            "wochen",
            "monate",
            "monaten",
            "jahre",
            "jahren",
            "wocheen",
            "monatn",
            "tree",
            "babe",
        ],
    }
)


@given(
    st.lists(st.sampled_from(PARTS), max_size=6), st.sampled_from([" ", "-", ", ", "_", ".", "'s "])
)
def test_the_cheap_check_never_misses_a_day(words: list[str], joint: str) -> None:
    text = joint.join(words)
    if spans_in(text, TODAY.toordinal() - EPOCH):
        assert may_name_days(text)


def test_the_cheap_check_lets_ordinary_questions_through() -> None:
    assert not may_name_days("Which counter do we use for tokens?")
    assert may_name_days("what happened in May?") and may_name_days("что было в мае?")
