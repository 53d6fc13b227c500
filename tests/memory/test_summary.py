"""Summaries: the forms that are read, and the bound on their tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.memory.summary import Summary, bounded, parse_summary


class Words:
    """A token counter for tests: one token a character that is not blank."""

    name = "signs"

    def count(self, text: str) -> int:
        return sum(not sign.isspace() for sign in text)

    def cut(self, text: str, limit: int) -> str:
        end = len(text)
        while self.count(text[:end]) > limit:
            end -= 1
        return text[:end]


@pytest.mark.parametrize(
    ("data", "summary"),
    [
        (b"", Summary("")),
        (b"\n\nPlain text.\n\n", Summary("Plain text.")),
        (b"\xef\xbb\xbfWith a mark.\r\nSecond line.\r\n", Summary("With a mark.\nSecond line.")),
        (
            b"<!-- updatedAt: 2026-05-07T00:00:00.000Z -->\nText\n",
            Summary("Text", "2026-05-07T00:00:00.000Z"),
        ),
        (b"<!-- updatedAt: -->\r\nText\r\n", Summary("Text")),
        (
            b"---\nupdatedAt: 2026-05-07T00:00:00Z\nbasis: ab12\n---\n\nText\n",
            Summary("Text", "2026-05-07T00:00:00Z", "ab12"),
        ),
        (
            b"---\r\n# by hand\r\nupdatedAt: '2026-05-07'\r\nother: |\r\n  x\r\n---\r\nText\r\n",
            Summary("Text", "2026-05-07"),
        ),
        (b"---\n\nA rule.\n\n---\n\nMore.\n", Summary("---\n\nA rule.\n\n---\n\nMore.")),
        (b"Text \xff\n", Summary("Text \ufffd")),
        (
            b"<!-- seed-backfill:vp-stub v1 -->\nStub.\n",
            Summary("<!-- seed-backfill:vp-stub v1 -->\nStub.", is_stub=True),
        ),
    ],
)
def test_every_form_of_a_summary_is_read(data: bytes, summary: Summary) -> None:
    assert parse_summary(data) == summary


def test_a_stub_behind_its_date_is_a_stub() -> None:
    data = b"<!-- updatedAt: 2026-05-07 -->\n<!-- seed-backfill:vp-stub v1 -->\nx\n"
    assert parse_summary(data).is_stub


@given(st.binary())
def test_any_bytes_are_a_summary(data: bytes) -> None:
    parse_summary(data).text.encode("utf-8")


@given(st.text(st.sampled_from("ab \n")), st.integers(0, 30))
def test_a_bounded_summary_is_a_prefix_within_the_limit(text: str, limit: int) -> None:
    cut = bounded(text, limit, Words())
    assert text.startswith(cut)
    assert Words().count(cut) <= limit


def test_whole_paragraphs_are_kept_and_a_first_one_too_long_is_cut() -> None:
    text = "aaaa\n\nbbbb\n\ncccc"
    assert bounded(text, 12, Words()) == text
    assert bounded(text, 11, Words()) == "aaaa\n\nbbbb"
    assert bounded(text, 8, Words()) == "aaaa\n\nbbbb"
    assert bounded(text, 3, Words()) == "aaa"
    assert bounded(text, 0, Words()) == ""
