"""Lists over MCP come by pages: each reads its own rows only, and a walk sees all that stays."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest
from folder import opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from surfaces.mcp_kit import inside, run

from h2ams import Access, Memory
from h2ams.errors import UsageError
from h2ams.surfaces.mcp_calls import RESOURCES_PAGE, Serving, resource_page
from h2ams.surfaces.mcp_cursor import CURSOR_CHARS, list_mark, read_cursor, write_cursor
from h2ams.surfaces.mcp_tools import call_tool

SCOPES_COUNT, EACH_COUNT = 20, 250  # 5,000 segments
ALICE = Access(session="c07")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    root = tmp_path_factory.mktemp("pages") / "memory"
    for number in range(SCOPES_COUNT):
        texts = [
            segment_text(f"s{each:03}", f"Session {number}, thing {each}.")
            for each in range(EACH_COUNT)
        ]
        write(root, f"sessions/c{number:02}/memory.md", *texts)
    with opened(root) as memory:
        memory.sync()
        yield memory


class Work:
    """What SQLite did: rows given of segments, and steps of its virtual machine."""

    def __init__(self) -> None:
        self.segment_rows = 0
        self.steps = 0


@contextmanager
def counted(memory: Memory) -> Iterator[Work]:
    work = Work()

    statements: dict[object, str] = {}

    def trace(event: dict[str, object]) -> None:
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            statements[event["id"]] = str(event["sql"])
        elif event["code"] == apsw.SQLITE_TRACE_ROW:
            work.segment_rows += "memory_segments" in statements[event["id"]]
        else:
            status = event["stmt_status"]
            assert isinstance(status, dict)
            work.steps += status["SQLITE_STMTSTATUS_VM_STEP"]

    connection = memory._index.connection
    events = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_ROW | apsw.SQLITE_TRACE_PROFILE
    connection.trace_v2(events, trace)
    try:
        yield work
    finally:
        connection.trace_v2(0)


def listed(memory: Memory, access: Access | None = None, **given: object) -> dict[str, object]:
    outcome = call_tool(Serving(memory, access), "memory_list", given)
    assert not outcome.is_error, outcome.text
    return outcome.document


def walk(memory: Memory, access: Access | None = None, **given: object) -> list[str]:
    seen: list[str] = []
    cursor: dict[str, object] = {}
    while True:
        document = listed(memory, access, **given, **cursor)
        segments = document["segments"]
        assert isinstance(segments, list)
        seen += [each["address"] for each in segments]
        if document["next_cursor"] is None:
            return seen
        cursor = {"cursor": document["next_cursor"]}


def test_a_page_of_five_thousand_reads_about_its_own_rows(memory: Memory) -> None:
    cursor: dict[str, object] = {}
    works: list[Work] = []
    for _ in range(8):
        with counted(memory) as work:
            document = listed(memory, limit=40, **cursor)
        assert document["total"] == SCOPES_COUNT * EACH_COUNT
        assert len(document["segments"]) == 40  # type: ignore[arg-type]
        assert 40 <= work.segment_rows <= 41
        cursor = {"cursor": document["next_cursor"]}
        works.append(work)
    with counted(memory) as whole:
        memory.list()
    assert whole.segment_rows == SCOPES_COUNT * EACH_COUNT
    assert max(work.steps for work in works) < whole.steps / 20


def test_the_list_of_resources_reads_a_page_of_rows_too(memory: Memory) -> None:
    serving, cursor, seen = Serving(memory, None), None, []
    while True:
        with counted(memory) as work:
            records, cursor = resource_page(serving, cursor)
        assert len(records) <= work.segment_rows <= RESOURCES_PAGE + 1
        seen += [record.address for record in records]
        if cursor is None:
            break
    assert seen == sorted(record.address for record in memory.list())


def test_following_the_list_reads_no_text(memory: Memory) -> None:
    assert memory.addresses() == tuple(sorted(record.address for record in memory.list()))
    assert memory.addresses("sessions/c07#s24", limit=3) == tuple(
        f"sessions/c07#s24{digit}" for digit in range(3)
    )
    assert memory.addresses("sessions/c1", access=ALICE) == ()
    assert len(memory.addresses("sessions/c0", access=ALICE)) == EACH_COUNT


@pytest.mark.parametrize("limit", [1, 7, 200])
def test_a_walk_sees_everything_readable_once(memory: Memory, limit: int) -> None:
    if limit > 1:
        expected = sorted(record.address for record in memory.list())
        assert walk(memory, limit=limit) == expected
    own = [f"sessions/c07#s{each:03}" for each in range(EACH_COUNT)]
    assert walk(memory, ALICE, limit=limit) == own
    assert walk(memory, scope="sessions/c07", limit=limit) == own
    assert walk(memory, ALICE, scope="sessions/c08", limit=limit) == []
    assert listed(memory, ALICE)["total"] == EACH_COUNT
    assert listed(memory, ALICE, scope="sessions/c08")["total"] == 0


def test_a_page_under_an_access_reads_no_foreign_row(memory: Memory) -> None:
    with counted(memory) as work:
        document = listed(memory, ALICE, limit=60)
    assert len(document["segments"]) == 60 and work.segment_rows <= 61  # type: ignore[arg-type]


def test_a_walk_goes_on_while_others_write(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"Text {n}.") for n in range(10, 40)))
    with opened(root) as memory:
        first = listed(memory, limit=10)
        assert [each["id"] for each in first["segments"]][-1] == "s19"  # type: ignore[attr-defined]
        memory.forget("user#s19")  # what the cursor stands behind
        memory.forget("user#s12")  # already seen
        memory.forget("user#s25")
        more = segment_text("s00", "In front."), segment_text("s205", "Behind.")
        with (root / "user/memory.md").open("a", encoding="utf-8") as stream:
            stream.write("\n" + "\n".join(more))
        rest: list[str] = []
        document = first
        while document["next_cursor"] is not None:
            document = listed(memory, limit=10, cursor=document["next_cursor"])
            rest += [each["id"] for each in document["segments"]]  # type: ignore[attr-defined]
    stays = [f"s{n}" for n in range(20, 40) if n != 25]
    assert rest == sorted([*stays, "s205"])


def test_retired_segments_come_in_pages_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("a", "Here."))
    texts = [segment_text(f"r{n}", f"Retired {n}.") for n in range(5)]
    write(root, "user/archive.md", *texts)
    with opened(root) as memory:
        everything = [record.address for record in memory.list(archived=True)]
        assert len(everything) == 5
        assert walk(memory, archived=True, limit=2) == sorted(everything)


def test_ids_and_tags_of_any_length_that_a_file_may_have_are_walked(tmp_path: Path) -> None:
    root, long = tmp_path / "memory", "e" * 1_023
    scope = "/".join(["sessions", "Ж" * 40, "topic", "猫" * 40, "猫" * 40])
    tags = "[" + ", ".join(f"{number}{'𓁹' * 260}" for number in range(14)) + "]"
    texts = [segment_text(f"{n}{long}", f"Text {n}.") for n in range(3)]
    write(root, f"{scope}/memory.md", *texts, segment_text("0", "Much.", tags=tags))
    with opened(root) as memory:
        much, *long_ones = sorted(record.address for record in memory.list())
        assert [len(each.partition("#")[2]) for each in long_ones] == [1_024] * 3
        first = listed(memory, limit=1)
        assert first["segments"] == [] and first["total"] == 4  # it alone is more than an answer
        assert walk(memory, limit=1) == long_ones and much.endswith("#0")


# -- cursors ---------------------------------------------------------------------------------------


def forged(*values: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


@pytest.mark.parametrize(
    "cursor", ["", "../1", "100", "A", "====", "é", forged("x"), forged(1, 2, 3), forged([], {})]
)
def test_garbage_is_no_cursor(memory: Memory, cursor: str) -> None:
    outcome = call_tool(Serving(memory, None), "memory_list", {"cursor": cursor})
    assert outcome.is_error and "not a cursor of this server (begin without a" in outcome.text
    with pytest.raises(UsageError, match="not a cursor"):
        resource_page(Serving(memory, None), cursor)


def test_a_cursor_of_another_list_or_access_is_refused(memory: Memory) -> None:
    cursor = listed(memory, limit=5)["next_cursor"]
    assert isinstance(cursor, str)
    of_scope = listed(memory, scope="sessions/c07", limit=5)["next_cursor"]
    cases: list[tuple[Access | None, dict[str, object]]] = [
        (ALICE, {"cursor": cursor}),
        (None, {"cursor": cursor, "scope": "sessions/c07"}),
        (None, {"cursor": cursor, "archived": True}),
        (None, {"cursor": of_scope}),
        (ALICE, {"cursor": of_scope, "scope": "sessions/c07"}),
        (None, {"cursor": forged("0" * 16, "user", "s1")}),
    ]
    for access, given_ in cases:
        outcome = call_tool(Serving(memory, access), "memory_list", given_)
        assert outcome.is_error and "of another list" in outcome.text, (access, given_)
    with pytest.raises(UsageError, match="another list"):
        resource_page(Serving(memory, None), cursor)


def test_a_forged_cursor_opens_nothing(memory: Memory) -> None:
    theirs = listed(memory, ALICE, limit=5)["next_cursor"]
    assert isinstance(theirs, str)
    mark = json.loads(base64.urlsafe_b64decode(theirs))[0]
    document = listed(memory, ALICE, cursor=forged(mark, "sessions/c00", "s000"), limit=5)
    assert {each["scope"] for each in document["segments"]} == {"sessions/c07"}  # type: ignore[attr-defined]


def test_over_the_protocol_a_bad_cursor_is_an_error_with_words(memory: Memory) -> None:
    async def test() -> None:
        async with inside(memory, None) as host:
            with pytest.raises(MCPError, match="not a cursor of this server"):
                await host.list_resources(cursor="nonsense")
            first = await host.list_resources()
            assert len(first.resources) == RESOURCES_PAGE and first.next_cursor is not None
            second = await host.list_resources(cursor=first.next_cursor)
            assert second.resources[0].name == "sessions/c00#s100"

    run(test)


@given(scope=st.text(), id=st.text(), what=st.lists(st.text(), max_size=3))
def test_a_cursor_says_again_what_it_was_made_of(scope: str, id: str, what: list[str]) -> None:
    try:
        (scope + id).encode("utf-8")
    except UnicodeEncodeError:
        return  # no scope and no id of a file
    mark = list_mark(*what)
    cursor = write_cursor((scope, id), mark)
    assert cursor is not None and cursor.isascii()
    if len(cursor) <= CURSOR_CHARS:
        assert read_cursor(cursor, mark) == (scope, id)
    with pytest.raises(UsageError):
        read_cursor(cursor, list_mark(*what, "more"))


@given(cursor=st.text(max_size=60))
def test_no_text_makes_reading_a_cursor_fail_otherwise(cursor: str) -> None:
    with pytest.raises(UsageError):
        read_cursor(cursor, list_mark("this"))
