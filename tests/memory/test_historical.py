"""Historical folders, as the retired engine left them, read by the parser (no disk layout here)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from h2ams.memory.segment import Segment, parse, render, serialize
from h2ams.memory.summary import parse_summary

LEGACY = Path(__file__).parent.parent / "data" / "legacy"
EXPECTED = json.loads((LEGACY / "expected.json").read_text(encoding="utf-8"))["segments"]
FILES = sorted(path for path in LEGACY.rglob("memory.md") if ".legacy" not in path.parts)


def historical() -> dict[str, Segment]:
    found = {}
    for path in FILES:
        for entry in parse(path.read_bytes()).entries:
            assert entry.address_id not in found, "ids are unique in this data set"
            found[entry.address_id] = entry.segment
    return found


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda segment: segment["id"])
def test_each_expected_segment_is_read_with_all_its_values(expected: dict[str, object]) -> None:
    segment = historical()[str(expected["id"])]
    assert {
        "id": segment.id,
        "kind": segment.kind,
        "tags": list(segment.tags),
        "source_messages": list(segment.source_messages),
        "body": segment.body,
    } == {key: value for key, value in expected.items() if key != "scope"}


def test_nothing_but_the_expected_segments_is_read() -> None:
    assert historical().keys() == {segment["id"] for segment in EXPECTED}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LEGACY)))
def test_historical_files_have_no_problem_and_are_rendered_byte_for_byte(path: Path) -> None:
    data = path.read_bytes()
    document = parse(data)
    assert render(document) == data
    assert document.problems == ()


def test_the_header_scope_is_given_as_written() -> None:
    document = parse((LEGACY / "group/g_old/vp/ada/memory.md").read_bytes())
    assert document.entries[0].segment.scope == "group/g_old/vp/ada"
    assert document.newline == "\r\n"


def test_the_dream_state_tail_is_in_no_body() -> None:
    document = parse((LEGACY / "sessions/s_demo/memory.md").read_bytes())
    assert document.tail_start is not None
    assert document.text[document.tail_start :].startswith("<!-- dream-state -->")
    assert not any("lastDreamAt" in entry.raw for entry in document.entries)
    assert document.entries[-1].segment.body.count("---") == 2


def test_a_file_in_the_historical_writers_form_is_written_again_byte_for_byte() -> None:
    for name in ("user", "sessions/s_demo/vp/linus", "sessions/会话.一", "group/g_old"):
        data = (LEGACY / name / "memory.md").read_bytes()
        assert serialize(entry.segment for entry in parse(data).entries) == data


def test_an_empty_file_holds_no_segments() -> None:
    document = parse((LEGACY / "sessions/empty/memory.md").read_bytes())
    assert document.entries == () == document.problems


def test_the_historical_forms_of_a_summary_are_read() -> None:
    plain = parse_summary((LEGACY / "user/summary.md").read_bytes())
    assert plain.text.startswith("Concise answers") and plain.updated_at is None
    dated = parse_summary((LEGACY / "sessions/s_demo/summary.md").read_bytes())
    assert dated.updated_at == "2026-05-07T00:00:00.000Z"
    assert dated.text.startswith("Single sign-on")
    assert parse_summary((LEGACY / "sessions/s_demo/vp/ghost/summary.md").read_bytes()).is_stub
