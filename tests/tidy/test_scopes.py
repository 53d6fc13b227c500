"""The folder scopes/, the project's own memory, keeps to the format that the project defines."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from h2ams import Access, Memory
from h2ams.files import Root
from h2ams.index.scan import scan
from h2ams.memory import segment as segments
from h2ams.memory.layout import Role
from h2ams.memory.note import parse_note
from h2ams.memory.scope import parse_scope
from h2ams.memory.summary import parse_summary
from h2ams.settings import DEFAULTS
from h2ams.tokens import counter

SCOPES = Path(__file__).resolve().parents[2] / "scopes"
MEMORIES = sorted([*SCOPES.rglob("memory.md"), *SCOPES.rglob("archive.md")])
SUMMARIES = sorted(SCOPES.rglob("summary*.md"))
PATHS = sorted(path for path in SCOPES.rglob("*.md") if ".h2ams" not in path.parts)

# What the folder must not hold: paths of a machine, and hosts.
FOREIGN = re.compile(r"(?<![\w.])/(?:home|tmp|work|root|Users|var|opt)/|[A-Z]:\\|https?://")


def name(path: Path) -> str:
    return path.relative_to(SCOPES).as_posix()


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    folder = tmp_path_factory.mktemp("own")
    root = folder / "scopes"
    shutil.copytree(SCOPES, root, ignore=shutil.ignore_patterns(".h2ams"))
    with Memory.open(root, state=folder / "state", settings=DEFAULTS) as opened:
        yield opened


def test_a_walk_over_the_folder_finds_no_problem() -> None:
    seen = scan(Root(SCOPES), DEFAULTS)
    assert seen.problems == []
    assert seen.skipped_links == 0


@pytest.mark.parametrize("path", MEMORIES, ids=name)
def test_a_file_of_segments_has_the_exact_form_of_the_writer(path: Path) -> None:
    data = path.read_bytes()
    document = segments.parse(data)
    assert document.problems == ()
    assert data == segments.serialize(entry.segment for entry in document.entries)


@pytest.mark.parametrize("path", MEMORIES, ids=name)
def test_scope_lines_name_their_folder_and_ids_follow_from_the_text(path: Path) -> None:
    scope = parse_scope(path.parent.relative_to(SCOPES).as_posix()).text
    for entry in segments.parse(path.read_bytes()).entries:
        value = entry.segment
        assert value.scope == scope
        parts = "\0".join((scope, value.kind, value.body.strip()))
        assert value.id == "seg_" + hashlib.sha256(parts.encode("utf-8")).hexdigest()[:16]
        assert value.created_at is not None
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", value.created_at)


@pytest.mark.parametrize("path", SUMMARIES, ids=name)
def test_a_summary_is_within_its_bound_and_is_shown(path: Path) -> None:
    found = parse_summary(path.read_bytes())
    assert found.text.strip()
    assert not found.is_stub
    assert counter(DEFAULTS.encoding).count(found.text) <= DEFAULTS.summary_tokens


def test_notes_have_sections_and_no_problem() -> None:
    notes = [
        found.path
        for found in scan(Root(SCOPES), DEFAULTS).files.values()
        if found.role is Role.NOTE
    ]
    assert notes
    for path in notes:
        data = (SCOPES / path).read_bytes()
        sections, problems = parse_note(data, name=Path(path).name, settings=DEFAULTS)
        assert problems == ()
        assert len(sections) > 1


@pytest.mark.parametrize("path", PATHS, ids=name)
def test_a_file_names_no_machine_and_no_host(path: Path) -> None:
    assert not FOREIGN.search(path.read_text(encoding="utf-8"))


def test_there_are_enough_segments_of_enough_kinds_and_scopes(memory: Memory) -> None:
    records = [record for record in memory.list() if not record.is_note]
    assert len(records) >= 60
    assert len({record.kind for record in records}) == 11
    assert {"user", "global", "sessions/поддержка", "sessions/中文说明"} <= {
        record.scope for record in records
    }
    assert memory.list(archived=True)


def test_the_folder_has_neither_problems_nor_near_misses(memory: Memory) -> None:
    report = memory.sync()
    assert report.problems == ()
    assert memory.status().problems == ()
    assert memory.verify().ok


@pytest.mark.parametrize(
    ("question", "address_begins", "word"),
    [
        ("why are rowids grouped by scope?", "sessions/core/topic/index#", "range"),
        ("what happens when two processes write?", "sessions/storage#", "lock"),
        ("how is Chinese text segmented?", "sessions/core/topic/recall/scoring#", "pairs"),
        ("какая лицензия", "sessions/поддержка#", "MIT"),
        ("预算如何分配", "sessions/中文说明#", "按需"),
        ("许可证", "sessions/中文说明#", "MIT"),
        ("which licence?", "global#", "MIT"),
    ],
)
def test_the_questions_of_the_demo_are_answered_first(
    memory: Memory, question: str, address_begins: str, word: str
) -> None:
    best = memory.recall(question).hits[0].record
    assert best.address.startswith(address_begins)
    assert word in best.body


def test_a_vp_of_one_session_does_not_see_the_other_vp(memory: Memory) -> None:
    access = Access(session="core", vp="reviewer")
    seen = {record.scope for record in memory.list(access=access)}
    assert "sessions/core/vp/reviewer" in seen
    assert not {"sessions/core/vp/tester", "sessions/storage/vp/reviewer"} & seen


def test_a_related_session_gives_what_it_shares_with_its_label(memory: Memory) -> None:
    access = Access(session="core", related_sessions=["storage"])
    records = memory.list(access=access)
    labels = {record.source_session for record in records if "sessions/storage" in record.scope}
    assert labels == {"storage"}
    assert "sessions/storage/vp/reviewer" not in {record.scope for record in records}
