"""Reported cases of the layer *store*: edits touch one segment, lose nothing, keep to limits."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from cases.kit import cli, document, few, ids, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import ConflictError, LimitError, Settings, StoreError

LIMIT = Settings(encoding="estimate", max_segment_chars=4000)
HAND_WRITTEN = """\
---
z: last first
id: one
a: 1
m: [x,   y]
# why the order is what it is
tags: ["quoted", bare]
---
First body with two trailing spaces  \nand a second line.


<!-- between two segments -->

---
z: 1
id:   two
# a comment in the second
a: 'single'
m: ~
---
Second body.

---
id: three
---
Third body.


"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K08 -------------------------------------------------------------------------------------------


def test_k08_a_change_of_one_segment_touches_its_lines_alone(root: Path) -> None:
    file = write(root, "user/memory.md", HAND_WRITTEN)
    before = HAND_WRITTEN.splitlines(keepends=True)
    first, last = before.index("id:   two\n"), before.index("Second body.\n")
    with opened(root) as memory:
        memory.update("user#two", body="Second body, changed.")
    after = file.read_text().splitlines(keepends=True)
    for tag, start, end, new_start, new_end in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if tag != "equal":
            assert first < start <= end <= last + 1, (before[start:end], after[new_start:new_end])
    assert "Second body, changed.\n" in after and "# a comment in the second\n" in after


def test_k08_a_save_without_a_change_changes_no_byte(root: Path) -> None:
    file = write(root, "user/memory.md", HAND_WRITTEN)
    before = file.stat()
    with opened(root) as memory:
        for record in memory.list("user"):
            done = memory.update(
                record.address, body=record.body, kind=record.kind, tags=record.tags
            )
            assert not done.changed
    assert file.read_text() == HAND_WRITTEN
    assert file.stat().st_mtime_ns == before.st_mtime_ns


HEADER_LINES = st.lists(
    st.sampled_from(
        ["z: 1", "a:   2   ", "# comment", "  # indented comment", "m: [1,  2]", 'q: "x: y"',
         "tags: [b, a]", "tags:\n  - b\n  - 'a'", "kind:  fact # why", "list:\n- 1\n- 2",
         "createdAt: 2026-01-01", "sourceMessages: [m_1]", "deep:\n  a:\n    b: c", ""]
    ),
    max_size=5,
    unique_by=lambda line: line.split(":")[0].strip(),
)  # fmt: skip
GAPS = st.sampled_from(["\n", "\n\n", "\n\n\n", "\n<!-- note -->\n\n"])


@few
@given(
    headers=st.lists(HEADER_LINES, min_size=2, max_size=4),
    gaps=st.lists(GAPS, min_size=4, max_size=4),
    newline=st.sampled_from(["\n", "\r\n"]),
    data=st.data(),
)
def test_k08_whatever_the_file_looks_like_the_rest_stays_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory,
    headers: list[list[str]],
    gaps: list[str],
    newline: str,
    data: st.DataObject,
) -> None:
    texts = [
        "\n".join(["---", f"id: s{number}", *lines, "---", f"Body {number}.", ""])
        for number, lines in enumerate(headers)
    ]
    texts = [text.replace("\n", newline).encode() for text in texts]
    parts = [each.replace("\n", newline).encode() for each in gaps]
    root = tmp_path_factory.mktemp("edits")
    file = write(root, "user/memory.md")
    whole = b"".join(text + gap for text, gap in zip(texts, parts, strict=False))
    file.write_bytes(whole)
    place = data.draw(st.integers(0, len(texts) - 1))
    start = whole.index(texts[place])
    with opened(root) as memory:
        memory.update(f"user#s{place}", body="Other words.", tags=["new"])
        after = file.read_bytes()
        assert after.startswith(whole[:start])
        assert after.endswith(whole[start + len(texts[place]) :])
        records = memory.list("user")
    assert [record.body for record in records] == [
        "Other words." if number == place else f"Body {number}." for number in range(len(texts))
    ]
    assert records[place].tags == ("new",)


# -- K09 -------------------------------------------------------------------------------------------


def test_k09_an_update_keeps_what_an_editor_appended_meanwhile(root: Path) -> None:
    file = write(root, "user/memory.md", segment_text("one", "First."), segment_text("two", "Two."))
    with opened(root) as memory:
        memory.list()
        with file.open("a") as stream:
            stream.write("\n" + segment_text("three", "By hand."))
        memory.update("user#one", body="First, by the engine.")
        assert [record.body for record in memory.list("user")] == [
            "First, by the engine.",
            "Two.",
            "By hand.",
        ]


def test_k09_the_same_segment_edited_on_both_sides_is_a_conflict_and_both_texts_are_kept(
    root: Path,
) -> None:
    file = write(root, "user/memory.md", segment_text("one", "First."))
    with opened(root) as memory:
        seen = memory.get("user#one")
        by_hand = segment_text("one", "First, by hand.")
        file.write_text(by_hand)
        with pytest.raises(ConflictError) as caught:
            memory.update(seen.address, body="First, by the engine.", expect=seen.digest)
        assert caught.value.expected == seen.digest
        assert caught.value.actual == memory.get(seen.address).digest
        assert file.read_text() == by_hand
        kept = [p for p in Path(memory.state).rglob("*") if p.is_file() and "index" not in p.name]
        copies = [p for p in kept if b"First, by the engine." in p.read_bytes()]
        assert len(copies) == 1
        assert copies[0].name in str(caught.value.hint)
        with pytest.raises(ConflictError):
            memory.forget(seen.address, expect=seen.digest)
        assert file.read_text() == by_hand


# -- K74, K75, K76 ---------------------------------------------------------------------------------


def test_k74_a_link_inside_the_root_stays_a_link_and_its_target_gets_the_text(root: Path) -> None:
    target = write(root, "store/user.md", segment_text("one", "First."))
    (root / "user").mkdir()
    link = root / "user/memory.md"
    link.symlink_to(target)
    with opened(root) as memory:
        memory.remember("user", "Through the link.")
        assert link.is_symlink() and link.resolve() == target
        assert not target.is_symlink()
        assert "Through the link." in target.read_text() and "First." in target.read_text()
        memory.update("user#one", body="Changed through the link.")
        memory.forget(memory.remember("user", "Short-lived.").address)
        assert link.is_symlink() and not target.is_symlink()
        assert {record.body for record in memory.list("user")} == {
            "Changed through the link.",
            "Through the link.",
        }


BEGINNING = "User: thanks that helps a lot"


def test_k75_texts_that_begin_alike_are_three_segments_and_equal_ones_are_one(root: Path) -> None:
    with opened(root) as memory:
        done = [memory.remember("user", f"{BEGINNING} {n}") for n in ("ALPHA", "BRAVO", "CHARLIE")]
        assert all(each.created for each in done) and len({each.id for each in done}) == 3
        again = memory.remember("user", f"{BEGINNING} BRAVO")
        assert (again.created, again.id) == (False, done[1].id)
        assert [record.id for record in memory.list("user")] == [each.id for each in done]
        # The body decides, not the blanks around it.
        assert memory.remember("user", f"\n{BEGINNING} BRAVO\n").id == done[1].id


@few
@given(texts=st.lists(st.text("ab ", min_size=1, max_size=4).filter(str.strip), max_size=12))
def test_k75_as_many_segments_as_there_are_different_texts(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    with opened(tmp_path_factory.mktemp("texts")) as memory:
        given_ids = {text: memory.remember("user", text).id for text in texts}
        bodies = [record.body for record in memory.list("user")]
        assert len(bodies) == len(set(bodies)) == len(set(given_ids.values()))


BORDERS = [
    # scope (the grammar has no "s-abc": a session each), tag in place of the title, body
    ("sessions/s-abc", "debug", "x"),
    ("sessions/s-ab", "cdebug", "x"),
    ("sessions/s-a", "bcdebug", "x"),
]


def test_k76_fields_that_join_to_the_same_text_are_different_segments(root: Path) -> None:
    with opened(root) as memory:
        done = [memory.remember(scope, body, tags=[tag]) for scope, tag, body in BORDERS]
        assert all(each.created for each in done)
        assert len({each.id for each in done}) == len({each.address for each in done}) == 3
        digests = {record.digest for record in memory.list()}
        assert len(digests) == 3
        # Scope and kind, kind and body: moved borders there too.
        more = [
            memory.remember("sessions/x", "fact body", kind="context"),
            memory.remember("sessions/x", "body", kind="fact"),
            memory.remember("sessions/xf", "act body", kind="context"),
        ]
        assert len({each.id for each in more}) == 3


# -- K78 -------------------------------------------------------------------------------------------


def test_k78_the_library_refuses_on_each_path_and_names_all_sizes(root: Path) -> None:
    with opened(root, settings=LIMIT) as memory:
        with pytest.raises(LimitError) as caught:
            memory.remember("user", "x" * 4001)
        assert (caught.value.limit, caught.value.size) == (4000, 4001)
        address = memory.remember("user", "y" * 4000).address
        before = (root / "user/memory.md").read_bytes()
        with pytest.raises(LimitError) as caught:
            memory.update(address, body="y" * 4002)
        error = caught.value
        assert (error.current, error.limit, error.size) == (4000, 4000, 4002)
        assert all(number in str(error) for number in ("4000", "4002", "max_segment_chars"))
        assert (root / "user/memory.md").read_bytes() == before


def test_k78_the_command_line_refuses_and_names_all_sizes(root: Path) -> None:
    flags = ("--set", "max_segment_chars=4000", "--json")
    done = cli(root, "remember", "user", "-", *flags, stdin=b"x" * 4001)
    error = document(done)["error"]
    assert done.code == 1 and error["code"] == "limit"
    assert (error["limit"], error["size"]) == (4000, 4001)
    address = document(cli(root, "remember", "user", "y" * 100, *flags))["address"]
    done = cli(root, "edit", address, "--body", "-", *flags, stdin=b"y" * 4001)
    error = document(done)["error"]
    assert (done.code, error["current"], error["limit"], error["size"]) == (1, 100, 4000, 4001)


def test_k78_a_hand_edit_over_the_limit_is_indexed_flagged_and_cut_in_the_block(root: Path) -> None:
    body = "needle " + " ".join(f"word{number}" for number in range(1200))
    assert len(body) > 4000
    write(root, "sessions/s/memory.md", segment_text("long", body), segment_text("short", "needle"))
    with opened(root, settings=LIMIT) as memory:
        assert memory.sync().added == 2
        assert ids(memory, "word7") == ["long"]
        (hit,) = memory.recall("word7").hits
        assert hit.record.over_limit
        assert {record.id: record.over_limit for record in memory.list()} == {
            "long": True,
            "short": False,
        }
        block = memory.context("needle word7", budget=100_000)
        assert "word7" in block.text
        assert len(block.text) < 4500, "the whole body is in the block"
        cut = {item.id: item.cut for item in block.receipt.layers["on_demand"].items}
        assert cut == {"long": True, "short": False}


def test_k78_a_segment_over_the_limit_may_still_be_tagged_or_made_shorter(root: Path) -> None:
    write(root, "user/memory.md", segment_text("long", "z" * 5000))
    with opened(root, settings=LIMIT) as memory:
        assert memory.update("user#long", tags=["big"]).changed
        with pytest.raises(StoreError):
            memory.update("user#long", body="z" * 5001)
        assert memory.update("user#long", body="z" * 4000).changed
        assert not memory.get("user#long").over_limit
