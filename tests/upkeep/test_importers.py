"""Importing from other programs: what is carried, what is told; a second time adds nothing."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases.kit import few
from folder import opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st
from strategies import segments as any_segments

from h2ams import Access, AccessError, Memory, NotFoundError, Settings, UsageError
from h2ams.memory.intake import Incoming
from h2ams.upkeep.exporter import lines
from h2ams.upkeep.importers import FORMATS, IN_PLACE, RECORDS, Batch, Options, read_source
from h2ams.upkeep.in_place import survey
from h2ams.upkeep.source_text import read_json

DATA = Path(__file__).resolve().parents[1] / "data/import"
SOURCES = {
    "mem0": DATA / "mem0.json",
    "chatgpt": DATA / "chatgpt",
    "jsonl": DATA / "other.jsonl",
}
ALL = Options(scope="user", conversations=True)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path / "memory") as found:
        yield found


def read(format: str, **options: Any) -> Batch:
    return read_source(format, str(SOURCES[format]), Options(**options))


def reasons(batch: Batch) -> str:
    return "\n".join(f"{each.origin}: {each.reason}" for each in batch.left_out)


def test_the_command_line_knows_the_formats() -> None:
    from h2ams.surfaces import cli_move

    assert (cli_move.FORMATS, cli_move.IN_PLACE) == (FORMATS, IN_PLACE)
    assert set(SOURCES) == set(RECORDS)


# -- every source of records -----------------------------------------------------------------------


@pytest.mark.parametrize("format", RECORDS)
def test_a_second_import_adds_nothing(memory: Memory, format: str) -> None:
    batch = read_source(format, str(SOURCES[format]), ALL)
    assert batch.incoming and batch.left_out
    first = memory.take_in(batch.incoming)
    before = {path: path.read_bytes() for path in Path(memory.root).rglob("*.md")}
    second = memory.take_in(read_source(format, str(SOURCES[format]), ALL).incoming)
    assert len(first.added) == len(batch.incoming) - len(first.failed) - len(first.known) > 0
    assert second.added == () and len(second.known) == len(first.added) + len(first.known)
    assert {path: path.read_bytes() for path in Path(memory.root).rglob("*.md")} == before
    assert memory.verify().ok
    assert not [found for found in memory.doctor().problems if not found.notice]


@pytest.mark.parametrize("format", RECORDS)
def test_a_dry_run_tells_the_same_and_writes_nothing(memory: Memory, format: str) -> None:
    incoming = read_source(format, str(SOURCES[format]), ALL).incoming
    told = memory.take_in(incoming, dry_run=True)
    assert not list(Path(memory.root).rglob("*.md"))
    assert memory.take_in(incoming).added == told.added


@pytest.mark.parametrize("format", RECORDS)
def test_what_is_no_such_export_is_a_usage_error_with_its_place(
    tmp_path: Path, format: str
) -> None:
    with pytest.raises((NotFoundError, UsageError)):
        read_source(format, str(tmp_path / "missing"), Options())
    broken = tmp_path / "broken"
    broken.write_bytes(b"caf\xe9")
    with pytest.raises(UsageError, match="broken"):
        read_source(format, str(broken), Options())
    if format != "jsonl":
        for text in ("{", "[" * 100_000, '{"a": 1}', '"text"'):
            broken.write_text(text, encoding="utf-8")
            with pytest.raises(UsageError, match="broken"):
                read_source(format, str(broken), Options())


def test_what_was_edited_or_forgotten_here_stays_so(memory: Memory) -> None:
    incoming = read("mem0").incoming
    added = memory.take_in(incoming).added
    edited, gone = (each for each in added if each.startswith("user#"))
    memory.update(edited, body="Eats everything now.")
    memory.forget(gone)
    again = memory.take_in(incoming)
    assert again.added == ()
    assert memory.get(edited).body == "Eats everything now."
    with pytest.raises(NotFoundError):
        memory.get(gone)


def test_an_access_takes_in_only_where_it_may_write(memory: Memory) -> None:
    with pytest.raises(AccessError):
        memory.take_in(read("mem0").incoming, access=Access(session="s"))
    assert not list(Path(memory.root).rglob("*.md"))
    here = Incoming(scope="sessions/s", body="Allowed.", origin="test")
    assert memory.take_in([here], access=Access(session="s")).added


def test_k78_an_import_refuses_what_is_over_the_limit_and_takes_the_rest(tmp_path: Path) -> None:
    small = Settings(encoding="estimate", max_segment_chars=4_000)
    several = [
        Incoming(scope="user", body=body, origin=f"line {number}")
        for number, body in enumerate(["fits", "x" * 4_001, "fits too"], 1)
    ]
    with opened(tmp_path / "memory", settings=small) as memory:
        taken = memory.take_in(several)
        assert len(taken.added) == 2
        (failed,) = taken.failed
        assert failed.origin == "line 2"
        assert "4001 chars" in failed.reason and "max_segment_chars is 4000" in failed.reason


def test_many_segments_are_one_edit_of_a_file_and_keep_their_order(memory: Memory) -> None:
    write(
        Path(memory.root), "user/memory.md", segment_text("old", "Was here."), "\n```\nopen fence"
    )
    several = [Incoming(scope="user", body=f"text {n}", origin=str(n)) for n in range(400)]
    assert len(memory.take_in(several).added) == 400
    bodies = [record.body for record in memory.list("user")]
    assert [body for body in bodies if body.startswith("text")] == [f"text {n}" for n in range(400)]
    assert any("Was here." in body for body in bodies)


def test_one_bad_scope_does_not_hold_the_others_back(memory: Memory) -> None:
    write(Path(memory.root), "sessions/a/memory.md", "x").write_bytes(b"caf\xe9\n")
    several = [
        Incoming(scope="sessions/a", body="No.", origin="1"),
        Incoming(scope="nonsense/x", body="No.", origin="2"),
        Incoming(scope="user", body="Yes.", origin="3"),
    ]
    taken = memory.take_in(several)
    assert [each.origin for each in taken.failed] == ["1", "2"]
    assert [record.body for record in memory.list("user")] == ["Yes."]


# -- mem0 ------------------------------------------------------------------------------------------


def test_mem0_memories_keep_ids_times_tags_and_kinds(memory: Memory) -> None:
    batch = read("mem0")
    taken = memory.take_in(batch.incoming)
    (food, secret) = memory.list("user")
    assert food.body == "Is vegetarian and dislikes olives"
    assert (food.kind, food.tags) == ("preference", ("food",))
    assert food.source_messages == ("mem0:8f3a1c52-0d1e-4f6e-9a77-2b6c0f9d1a01",)
    assert food.created_at == "2025-11-02T16:15:30Z"
    assert "hunter2" not in secret.body and taken.redacted == (secret.address,)
    (trip,) = memory.sources("mem0:msg_2")
    assert trip.scope.startswith("sessions/trip-planning-7") and trip.tags == ("travel",)
    assert trip.updated_at == "2026-01-12T08:00:00Z"
    assert [record.body for record in memory.list("agent/booker")]
    assert "no text" in reasons(batch) and "'score_source' of 1" in reasons(batch)


def test_mem0_memories_of_several_users_need_a_choice(memory: Memory) -> None:
    path = str(DATA / "mem0-two-users.json")
    with pytest.raises(UsageError, match="maren, olav"):
        read_source("mem0", path, Options())
    batch = read_source("mem0", path, Options(only="olav"))
    assert [each.body for each in batch.incoming] == ["Collects stamps"]
    assert "of another user: maren" in reasons(batch)


# -- ChatGPT ---------------------------------------------------------------------------------------


def test_chatgpt_gives_what_it_remembered_and_the_instructions(memory: Memory) -> None:
    batch = read("chatgpt")
    memory.take_in(batch.incoming)
    records = memory.list()
    assert {record.scope for record in records} == {"user"}
    assert [record.body for record in records if record.kind == "fact"] == [
        "User keeps a rye sourdough starter and bakes on weekends.",
        "User takes the Sunday ferry to Sandoy.",
    ]
    instructions = [record for record in records if record.kind == "preference"]
    assert len(instructions) == 2  # though they stand in both conversations
    assert "Answer in metric units." in instructions[1].body
    assert [each.created_at for each in memory.sources("chatgpt:a5")] == ["2026-01-01T09:00:12Z"]
    assert "3 conversations" in reasons(batch) and "no messages in it" in reasons(batch)


def test_chatgpt_conversations_become_sessions_exchange_by_exchange(memory: Memory) -> None:
    batch = read("chatgpt", conversations=True)
    memory.take_in(batch.incoming)
    scope = "sessions/chatgpt-6956a1b2-0001-8001-a000-000000000001"
    first, second = memory.list(scope)
    assert first.body == (
        "Sourdough starter\n\nUser: My starter smells of acetone. Is it dead?\n\n"
        "Assistant: No. It is hungry: feed it one to one to one for three days."
    )
    assert first.source_messages == ("chatgpt:a3", "chatgpt:a4")
    assert "Does this look right?" in second.body and "healthy rise" in second.body
    told = reasons(batch)
    assert "2 messages of branches that were edited away" in told
    assert "1 images and other attachments" in told and "1 messages of the role tool" in told


def test_chatgpt_is_read_from_its_zip_too(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(DATA / "chatgpt/conversations.json", "conversations.json")
        archive.writestr("chat.html", "<html>")
        archive.writestr("../evil/conversations.json", "[]")
    found = read_source("chatgpt", str(path), Options())
    assert found.incoming == read("chatgpt").incoming or {e.body for e in found.incoming} == {
        e.body for e in read("chatgpt").incoming
    }
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UsageError, match="not a whole zip"):
        read_source("chatgpt", str(path), Options())


def test_a_long_exchange_is_taken_in_parts(memory: Memory, tmp_path: Path) -> None:
    found = json.loads((DATA / "chatgpt/conversations.json").read_text("utf-8"))
    answer = "\n\n".join(f"Paragraph {n}. " + "word " * 100 for n in range(200))
    found[0]["mapping"]["a4"]["message"]["content"]["parts"] = [answer]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(found), encoding="utf-8")
    batch = read_source("chatgpt", str(path), Options(conversations=True))
    assert memory.take_in(batch.incoming).failed == ()
    texts = "\n".join(each.body for each in batch.incoming)
    assert all(f"Paragraph {n}." in texts for n in range(200))


# -- JSON lines ------------------------------------------------------------------------------------


def test_lines_that_cannot_be_used_are_listed_with_their_number(memory: Memory) -> None:
    batch = read("jsonl")
    told = reasons(batch)
    for line, why in ((1, "names no scope"), (3, "not JSON"), (4, "no text"), (5, "not an object")):
        assert f"other.jsonl:{line}: {why}" in told
    taken = memory.take_in(batch.incoming)
    assert [each.origin.rpartition(":")[2] for each in taken.failed] == ["6"]
    (invoices,) = memory.list("topic/office")
    assert (invoices.kind, invoices.tags) == ("workflow", ("money",))


def exported(memory: Memory, path: Path, access: Access | None = None) -> Path:
    tree = memory.tree(access=access)
    found = lines(
        memory.list(access=access),
        memory.list(access=access, archived=True),
        tree,
        memory.settings,
    )
    path.write_text("".join(f"{line}\n" for _, line in found), encoding="utf-8")
    return path


def facts(memory: Memory) -> list[tuple[object, ...]]:
    return [
        (r.scope, r.id, r.kind, r.tags, r.body, r.created_at, r.updated_at, r.source_messages)
        for r in memory.list()
        if not r.is_note
    ]


@few
@given(several=st.lists(any_segments(), max_size=6))
def test_what_was_exported_is_the_same_elsewhere(
    several: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("round")
    scopes = ["user", "sessions/s/vp/v", "topic/a/b"]
    incoming = [
        Incoming(
            scope=scopes[number % 3],
            body=each.body,
            origin=str(number),
            kind=each.kind,
            tags=each.tags,
            source_messages=each.source_messages,
            created_at="2026-01-02T03:04:05Z" if number % 2 else None,
        )
        for number, each in enumerate(several)
    ]
    with opened(base / "here") as here, opened(base / "there") as there:
        here.take_in(incoming)
        here.store.write_summary(_scope("user"), "A summary.")
        path = exported(here, base / "all.jsonl")
        batch = read_source("jsonl", str(path), Options())
        assert batch.left_out == ()
        there.take_in(batch.incoming, summaries=batch.summaries)
        assert facts(there) == facts(here)
        assert exported(there, base / "again.jsonl").read_bytes() == path.read_bytes()
        second = there.take_in(batch.incoming, summaries=batch.summaries)
        assert second.added == () and second.failed == ()


def _scope(text: str) -> Any:
    from h2ams.memory.scope import parse_scope

    return parse_scope(text)


def test_an_export_says_what_is_a_note_and_what_is_retired(memory: Memory, tmp_path: Path) -> None:
    root = Path(memory.root)
    write(root, "user/memory.md", segment_text("s1", "Now."))
    write(root, "user/archive.md", segment_text("s0", "Then."))
    write(root, "user/note.md", "# Heading\n\nA note.\n")
    memory.sync()
    path = exported(memory, tmp_path / "all.jsonl")
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert {each["type"] for each in found} == {"segment", "note"}
    assert [each["id"] for each in found if each.get("archived")] == ["s0"]
    batch = read_source("jsonl", str(path), Options())
    assert [each.body for each in batch.incoming] == ["Now."]
    assert "copy the file itself" in reasons(batch) and "retired" in reasons(batch)


# -- in place --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "notes", "told"),
    [
        ("claude-code", 4, []),
        ("openclaw", 5, ["main.sqlite: not Markdown", "heartbeat-state.json: not Markdown"]),
        (
            "obsidian",
            3,
            ["board.canvas: not Markdown", "photo.png: not Markdown", "changed twice",
             "1 queries of plugins", "1 embedded notes"],
        ),
        ("basic-memory", 2, ["2 relations", "2 categories of observations"]),
    ],
)  # fmt: skip
def test_a_survey_says_what_will_be_read_and_what_not(
    format: str, notes: int, told: list[str]
) -> None:
    found = survey(format, str(DATA / format))
    assert found.notes == notes
    text = "\n".join(f"{each.origin}: {each.reason}" for each in found.left_out)
    for each in told:
        assert each in text
    assert ".obsidian" not in text.replace("import/obsidian", "")


@pytest.mark.parametrize("format", IN_PLACE)
def test_what_is_no_such_folder_is_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(NotFoundError):
        survey(format, str(tmp_path / "missing"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    with pytest.raises(UsageError, match=format):
        survey(format, str(tmp_path))


@pytest.mark.parametrize("text", ["[" * 6_000, '{"a": ' + "9" * 6_000 + "}"])
def test_an_export_that_no_reader_can_take_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        read_json(text.encode(), "export.json")
