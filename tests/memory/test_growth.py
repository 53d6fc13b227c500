"""Parsing only what was appended is parsing it all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.store_kit import segment_text

from h2ams.memory.growth import grown
from h2ams.memory.segment import parse
from h2ams.settings import DEFAULTS, Settings

TWO = segment_text("a", "one") + "\n" + segment_text("b", "two")

pieces = st.sampled_from(
    [
        "\n",
        "\n\n",
        "\r\n",
        "---\n",
        "```\n",
        "~~~\n",
        "> ```\n",
        "- item\n",
        "prose\n",
        "no line break",
        "id: a\n",
        "kind: fact\n",
        "---\nid: x\n---\n",
        "---\nid: x\nid: y\n---\nbody\n",
        "<!-- dream-state -->\n",
        "<!-- /dream-state -->\n",
        "<!-- comment -->\n",
        "<<<<<<< ours\n",
        ">>>>>>> theirs\n",
        "\0",
        "\ufeff",
        segment_text("a", "one"),
        segment_text("b", "two\n\nparts") + "\n",
        segment_text("c", "```\nopen"),
        segment_text("d", "x", kind="odd").replace("\n", "\r\n"),
        segment_text("note_0123456789abcdef", "reserved"),
    ]
)
texts = st.lists(pieces, max_size=7).map("".join)


@given(texts, texts)
def test_a_grown_file_is_read_as_if_it_were_new(old: str, more: str):
    old_data = old.encode()
    data = old_data + more.encode()
    found = grown(parse(old_data), old_data, data, DEFAULTS)
    assert found in (None, parse(data))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_that_grow_are_read_as_if_they_were_new(old: bytes, more: bytes):
    old_data = TWO.encode() + old
    data = old_data + b"\n---\nid: z\n---\n" + more
    assert grown(parse(old_data), old_data, data, DEFAULTS) in (None, parse(data))


def test_a_segment_behind_others_is_all_that_is_parsed():
    old_data = TWO.encode()
    data = old_data + b"\n" + segment_text("c", "three").encode()
    assert grown(parse(old_data), old_data, data, DEFAULTS) == parse(data)


@pytest.mark.parametrize(
    "more",
    [
        "a line that belongs to the last body\n",
        "\n" + segment_text("a", "an id that is there already"),
        "",
    ],
)
def test_in_doubt_everything_is_parsed(more: str):
    old_data = TWO.encode()
    assert grown(parse(old_data), old_data, old_data + more.encode(), DEFAULTS) is None


def test_a_file_that_grew_over_the_limit_or_changed_is_parsed_anew():
    old_data = TWO.encode()
    data = old_data + b"\n" + segment_text("c", "three").encode()
    small = Settings(max_file_bytes=len(old_data))
    assert grown(parse(old_data), old_data, data, small) is None
    assert grown(parse(old_data), old_data, data.replace(b"one", b"uno"), DEFAULTS) is None
