"""The three readers of a header agree: the exact form, plain lines, and YAML."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import headers as header_lines
from strategies import segments

from h2ams.memory import header as headers
from h2ams.memory.segment import Segment, parse, serialize
from h2ams.settings import DEFAULTS

# Everything that the quick readers let through, and their nearest neighbours that they must not.
_SIGNS = st.sampled_from("aZ09_./-:,;()+=@'\" []{}#&*!|>%?\\~é夜\xa0\xad\u2028\ufeff🙂\t")
_VALUES = st.one_of(
    st.text(_SIGNS, max_size=12),
    st.sampled_from(
        ("null", "~", "yes", "1_000", "0x1F", "2026-05-04T09:30:00.000Z", "- a", "a: b")
    ),
    st.lists(st.text(_SIGNS, max_size=6), max_size=3).map(lambda items: f"[{', '.join(items)}]"),
    st.text(max_size=8).map(lambda text: '"' + text + '"'),
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Header lines of one key each, simple and not so simple."""
    keys = st.sampled_from((*headers.KEYS, "title", "escaped", "x-y"))
    pairs = draw(st.lists(st.tuples(keys, _VALUES), min_size=1, max_size=4))
    return "".join(f"{key}: {value}\n" for key, value in pairs)


def by_yaml(region: str) -> headers.Header | None:
    return headers.read_yaml(region, DEFAULTS)


@settings(max_examples=300)
@given(st.one_of(lines(), header_lines()))
@example("id: a:\n")
@example("tags: [-, ---, ., a-]\n")
@example("id: a   \ntags: []  \n")
@example('tags: ["\\u0041", "\\t"]\n')
@example("id: 'a'\n")
@example("id:\n  indented\n")
@example("tags: [a]\r\nid: x\r\n")
def test_plain_lines_mean_the_same_to_the_quick_reader_and_to_yaml(region: str) -> None:
    quick = headers.read_simple(region, DEFAULTS)
    if quick is None:
        return
    root, aliases = headers.compose(region)
    assert aliases is None
    values = {} if root is None else headers.to_values(root)
    assert values == quick
    slow = yaml.load(region, Loader=yaml.BaseLoader) or {}  # the library's other scanner
    assert {key: tuple(v) if isinstance(v, list) else v for key, v in slow.items()} == {
        key: slow[key] if value is None else value for key, value in quick.items()
    }


@settings(max_examples=200)
@given(segments(), st.sampled_from(["\n", "\r\n"]))
def test_the_writers_form_means_the_same_to_all_readers(segment: Segment, newline: str) -> None:
    text = serialize([segment], newline).decode()
    opening = len(f"---{newline}")
    closing = text.index(f"{newline}---{newline}", opening) + len(newline)
    region = text[opening:closing]
    read = headers.read_header(region, DEFAULTS)
    assert read is not None and read == by_yaml(region)
    exact = headers.read_canonical(text, opening)
    if exact is None:
        return
    assert exact.end() == closing + len(f"---{newline}")
    plain = {
        key: headers.list_items(value) if key in headers.LIST_KEYS else value
        for key, value in zip(headers.KEYS, exact.groups(), strict=False)
    }
    nulls = {key for key, value in plain.items() if value in headers.NULL_WORDS}
    assert {key: None if key in nulls else value for key, value in plain.items()} == read.values
    assert (exact[8] is not None) == read.escaped


@settings(max_examples=200)
@given(lines())
def test_our_yaml_reading_is_that_of_the_library(region: str) -> None:
    """An independent reading: the library's own constructor with its base loader."""
    read = by_yaml(region)
    if read is None or read.read_only:
        return
    loaded = yaml.load(region, Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    for key, value in read.values.items():
        expected = loaded[key]
        if isinstance(expected, list):
            assert isinstance(value, tuple) and len(value) == len(expected)
        elif value is None:
            assert expected in headers.NULL_WORDS
        elif isinstance(expected, str):
            assert value == expected


@given(st.text(max_size=60))
def test_no_header_text_makes_a_reader_raise(region: str) -> None:
    headers.read_header(region, DEFAULTS)
    headers.read_header("id: x\n" + region, DEFAULTS)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('x: "\\U00110000"', "invalid-yaml"),
        ("...\n--- x", "invalid-yaml"),
        ("x: @at", "invalid-yaml"),
        ("\x01: x", "invalid-yaml"),
        ("x: &a b", "yaml-alias"),
        ("<<: *a", "yaml-alias"),
        ("!!python/object/apply:os.system x: y", None),
    ],
)
def test_what_yaml_refuses_is_a_header_by_its_shape_or_text(line: str, code: str | None) -> None:
    read = headers.read_header(f"id: a\n{line}\n", DEFAULTS)
    if read is None:
        assert not headers.has_header_lines(f"{line}\n")
    else:
        assert [problem.code for problem in read.problems] == ([code] if code else [])


def test_null_words_and_unknown_kinds_in_the_exact_form_read_as_in_yaml() -> None:
    text = (
        "---\nid: {}\nscope: user\nkind: {}\ntags: [a]\nsourceMessages: [m1]\n"
        "createdAt: {}\nupdatedAt: 2026-05-04\n---\nBody\n"
    )
    for values in (("null", "fact", "null"), ("a", "banana", "2026"), ("a", "Null", "2026-05-04")):
        exact = text.format(*values)
        by_yaml_alone = exact.replace("scope: user", "scope: 'user'")
        first, second = (parse(each.encode()) for each in (exact, by_yaml_alone))
        assert first.entries[0].segment == second.entries[0].segment
        assert first.problems == second.problems


def test_settings_with_a_smaller_limit_hold_for_the_exact_form_too() -> None:
    data = serialize([Segment("Body", id="a")])
    few = dataclasses.replace(DEFAULTS, max_header_lines=3)
    assert parse(data, settings=few).entries[0].segment == Segment("Body")
    short = dataclasses.replace(DEFAULTS, max_scalar_chars=6)
    assert parse(data, settings=short).problems[0].message.startswith("max_scalar_chars: kind")


def test_the_exact_form_needs_no_yaml_library() -> None:
    code = (
        "import sys; from h2ams.memory import note, segment, summary;"
        "data = segment.serialize([segment.Segment('Body', id='a', tags=('x', 'y z'))]);"
        "segment.parse(data); segment.parse(b'---\\nid: a\\ntags: [x]\\n---\\nB');"
        "summary.parse_summary(b'---\\nupdatedAt: 2026-05-04\\n---\\nText');"
        "print(sorted({'yaml', 'frontmatter'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_exact_form_is_matched_as_a_whole() -> None:
    segment = Segment(
        "Body", id="seg_1", scope="user", kind="fact", tags=("a", 'say "no"'),
        source_messages=("m1",), created_at="2026-05-04T09:30:00.000Z", updated_at="2026-05-04",
    )  # fmt: skip
    text = serialize([segment]).decode()
    assert headers.read_canonical(text, 4) is not None
    assert parse(text.encode()).problems == ()
