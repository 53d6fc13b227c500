"""Three-way merge of a segment, and the diff of one edited file."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.memory.merge import CONFLICT_TAG, merge_segment, unified_diff
from h2ams.memory.segment import Segment

BASE = Segment(
    body="Tokens rotate.",
    id="seg_1",
    scope="user",
    kind="decision",
    tags=("auth", "tokens"),
    source_messages=("m1",),
    created_at="2026-04-29T10:11:12Z",
    updated_at="2026-04-29T10:11:12Z",
)

words = st.sampled_from(["alpha", "beta", "gamma", "delta"])
word_sets = st.lists(words, max_size=3, unique=True).map(tuple)
versions = st.builds(
    lambda body, kind, tags, sources: replace(
        BASE, body=body, kind=kind, tags=tags, source_messages=sources
    ),
    st.sampled_from(["one", "two", "three"]),
    st.sampled_from(["fact", "decision"]),
    word_sets,
    word_sets,
)


def test_what_only_one_side_changed_is_taken():
    ours = replace(BASE, body="Tokens rotate on every use.")
    theirs = replace(BASE, tags=("auth", "tokens", "reviewed"))
    merged = merge_segment(BASE, ours, theirs)
    assert merged.loser is None
    assert merged.segment.body == "Tokens rotate on every use."
    assert merged.segment.tags == ("auth", "tokens", "reviewed")


def test_tags_are_merged_as_sets():
    ours = replace(BASE, tags=("tokens", "mine"))
    theirs = replace(BASE, tags=("auth", "tokens", "theirs"))
    assert merge_segment(BASE, ours, theirs).segment.tags == ("tokens", "theirs", "mine")


def test_two_new_bodies_are_both_kept():
    ours = replace(BASE, body="ours", tags=("auth",))
    theirs = replace(BASE, body="theirs")
    merged = merge_segment(BASE, ours, theirs)
    assert merged.segment == theirs
    assert merged.loser is not None
    assert (merged.loser.body, merged.loser.id) == ("ours", "")
    assert merged.loser.tags == ("auth", CONFLICT_TAG)


def test_the_same_change_on_both_sides_is_no_conflict():
    changed = replace(BASE, body="the same")
    assert merge_segment(BASE, changed, changed).loser is None


@given(versions, versions)
def test_a_side_that_changed_nothing_loses_nothing(base, changed):
    assert merge_segment(base, changed, base).segment == changed
    assert merge_segment(base, base, changed).segment == changed


@given(versions, versions, versions)
def test_no_body_of_either_side_is_lost(base, ours, theirs):
    merged = merge_segment(base, ours, theirs)
    bodies = {merged.segment.body, *([merged.loser.body] if merged.loser else [])}
    for side, other in ((ours, theirs), (theirs, ours)):
        if side.body not in (base.body, other.body):
            assert side.body in bodies


def test_no_change_has_no_diff():
    assert unified_diff(b"a\n", b"a\n", "user/memory.md") == ""


def test_a_new_and_a_removed_file_stand_against_dev_null():
    assert unified_diff(None, b"a\n", "x.md") == "--- /dev/null\n+++ b/x.md\n@@ -0,0 +1 @@\n+a\n"
    assert unified_diff(b"a\n", None, "x.md") == "--- a/x.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"


def test_a_diff_shows_three_lines_of_context_and_a_missing_last_line_break():
    old = b"".join(b"line %d\n" % number for number in range(20))
    new = old.replace(b"line 10\n", b"line ten\n")
    lines = unified_diff(old, new, "user/memory.md").splitlines()
    assert lines[:3] == ["--- a/user/memory.md", "+++ b/user/memory.md", "@@ -8,7 +8,7 @@"]
    assert lines[3:] == [
        " line 7",
        " line 8",
        " line 9",
        "-line 10",
        "+line ten",
        " line 11",
        " line 12",
        " line 13",
    ]
    assert "\\ No newline at end of file" in unified_diff(b"a\nb", b"a\nc", "x.md")


@pytest.mark.parametrize("old", [b"\xff\xfe\n", b"a\xc3"])
def test_bytes_that_are_not_text_are_shown_replaced(old):
    assert "�" in unified_diff(old, b"b\n", "x.md")


line_texts = st.lists(st.sampled_from(["a", "b", "c", "", "---"]), max_size=30)
endings = st.booleans()


@given(line_texts, line_texts, endings, endings)
def test_applying_a_diff_gives_the_new_file(old_lines, new_lines, old_end, new_end):
    old = "\n".join(old_lines) + ("\n" if old_end else "")
    new = "\n".join(new_lines) + ("\n" if new_end else "")
    diff = unified_diff(old.encode(), new.encode(), "x.md")
    assert _patched(old, diff) == new


def _patched(old: str, diff: str) -> str:
    """A naive ``patch``: lines keep their breaks, hunks are applied in order."""
    if not diff:
        return old
    lines = re.findall(r"[^\n]*\n|[^\n]+", old)
    out: list[str] = []
    at, last = 0, ""
    for line in re.findall(r"[^\n]*\n|[^\n]+", diff)[2:]:
        if line.startswith("@@"):
            match = re.match(r"@@ -(\d+)(?:,(\d+))? ", line)
            assert match
            start = int(match[1]) - (0 if match[2] == "0" else 1)
            out += lines[at:start]
            at = start
        elif line.startswith("\\"):
            if last != "-":
                out[-1] = out[-1].removesuffix("\n")
        elif line[0] == "+":
            out.append(line[1:])
        else:
            assert lines[at].removesuffix("\n") == line[1:].removesuffix("\n")
            if line[0] == " ":
                out.append(lines[at])
            at += 1
        last = line[0]
    return "".join(out + lines[at:])
