"""Changes reach the files of a scope whole or not at all, and whoever else writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from memory.store_kit import SESSION, USER, Clock, WordCounter, open_store, put, save

from h2ams.errors import H2amsError, ReadOnlyError, StoreError
from h2ams.files import Root
from h2ams.memory.absorb import FileChange, write_changes
from h2ams.memory.extraction import Known
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import parse
from h2ams.memory.store import Store
from h2ams.memory.validation import Change
from h2ams.settings import DEFAULTS

NOW = "2026-05-09T00:00:00Z"
OLD = """---
id: seg_a
scope: user
kind: fact
tags: [keep]   # by hand
sourceMessages: [m0]
createdAt: 2026-04-01T00:00:00Z
updatedAt: 2026-04-01T00:00:00Z
mood: fine
---
Tea is at four.

---
id: seg_b
kind: fact
---
Coffee at ten.
"""


def add(body: str, scope: Scope = USER) -> Change:
    return Change("add", scope, kind="fact", tags=(), body=body, source_messages=("m1",))


def known(id: str, body: str) -> Known:
    return Known(id, "fact", ("keep",) if id == "seg_a" else (), body)


def update(body: str) -> Change:
    return Change(
        "update", USER, known("seg_a", "Tea is at four."), body=body, source_messages=("m1",)
    )


RETIRE = Change("retire", USER, known("seg_b", "Coffee at ten."))


def text(folder: Path, name: str) -> str:
    return (folder / name).read_text(encoding="utf-8")


def bodies(folder: Path, name: str) -> list[str]:
    return [e.segment.body for e in parse((folder / name).read_bytes()).entries]


def test_all_three_operations_land_in_memory_and_archive(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD})
    done = open_store(tmp_path).absorb(
        USER, [add("Cake on Friday."), update("Tea is at five."), RETIRE], now=NOW
    )
    assert bodies(tmp_path, "user/memory.md") == ["Tea is at five.", "Cake on Friday."]
    assert bodies(tmp_path, "user/archive.md") == ["Tea is at four.", "Coffee at ten."]
    assert "tags: [keep]   # by hand\n" in text(tmp_path, "user/memory.md")
    assert "mood: fine" in text(tmp_path, "user/memory.md")
    assert (len(done.added), done.updated, len(done.archived)) == (1, ("seg_a",), 2)
    assert sorted(done.paths) == ["user/archive.md", "user/memory.md"]


def test_the_same_again_touches_nothing(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD})
    changes = [add("Cake on Friday."), update("Tea is at five."), RETIRE]
    open_store(tmp_path).absorb(USER, changes, now=NOW)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*.md")}
    assert not open_store(tmp_path).absorb(USER, changes, now=NOW).changed
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*.md")}


def test_a_dry_run_tells_the_diff_and_writes_nothing(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD})
    done = open_store(tmp_path).absorb(USER, [update("Tea is at five."), RETIRE], dry_run=True)
    assert "-Tea is at four." in done.diff and "+++ b/user/archive.md" in done.diff
    assert text(tmp_path, "user/memory.md") == OLD
    assert not (tmp_path / "user/archive.md").exists()


def test_the_journal_gets_every_file_before_the_first_is_touched(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD})
    seen: list[tuple[FileChange, ...]] = []

    def journal(files: tuple[FileChange, ...]) -> None:
        assert text(tmp_path, "user/memory.md") == OLD
        seen.append(files)

    open_store(tmp_path).absorb(USER, [RETIRE], journal=journal)
    ((archive, memory),) = seen
    assert (archive.before, memory.before) == (None, OLD.encode())
    assert memory.after == (tmp_path / "user/memory.md").read_bytes()


def test_what_a_person_saves_meanwhile_is_read_again_and_kept(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD})
    path = tmp_path / "user/memory.md"

    def journal(files: tuple[FileChange, ...]) -> None:
        if "by a person" not in text(tmp_path, "user/memory.md"):
            save(path, OLD.replace("Coffee at ten.", "Coffee at ten, by a person."))

    done = open_store(tmp_path).absorb(USER, [add("Cake."), RETIRE], journal=journal)
    assert bodies(tmp_path, "user/memory.md")[1:] == ["Coffee at ten, by a person.", "Cake."]
    assert done.missed_count == 1


def test_a_text_stays_in_its_layout_and_new_ones_go_to_the_canonical_one(tmp_path: Path) -> None:
    old = OLD.replace("scope: user", "scope: sessions/s1")
    put(tmp_path, {"group/s1/memory.md": old})
    changes = [
        Change("retire", SESSION, known("seg_b", "Coffee at ten.")),
        add("Cake.", SESSION),
    ]
    open_store(tmp_path).absorb(SESSION, changes)
    assert bodies(tmp_path, "group/s1/memory.md") == ["Tea is at four."]
    assert bodies(tmp_path, "group/s1/archive.md") == ["Coffee at ten."]
    assert bodies(tmp_path, "sessions/s1/memory.md") == ["Cake."]


def test_a_file_that_may_not_be_rewritten_refuses_the_whole_scope(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": OLD.encode() + b"\n\xff\xfe\n"})
    before = (tmp_path / "user/memory.md").read_bytes()
    with pytest.raises(ReadOnlyError):
        open_store(tmp_path).absorb(USER, [add("Cake.")])
    assert (tmp_path / "user/memory.md").read_bytes() == before


def test_a_scope_that_cannot_be_written_holds_no_other_back(tmp_path: Path) -> None:
    put(tmp_path, {"user/memory.md": b"\xff\xfe\xff broken"})
    topic = parse_scope("sessions/s1/topic/x")
    changes = [add("One."), add("Two.", SESSION), add("Three."), add("Four.", topic)]
    found = write_changes(open_store(tmp_path).absorb, changes)
    assert [each.scope for each in found.done] == ["sessions/s1", "sessions/s1/topic/x"]
    assert [(scope.text, type(error)) for scope, error in found.failed] == [("user", ReadOnlyError)]


class Stopped(Exception):
    """The n-th file operation fails."""


def failing(at: int) -> tuple[Callable[[str, str], None], list[str]]:
    seen: list[str] = []

    def hook(operation: str, path: str) -> None:
        seen.append(operation)
        if len(seen) == at:
            raise Stopped(operation)

    return hook, seen


def visible(folder: Path) -> list[Path]:
    """The files of the scope; what a dead writer left is swept by the next write."""
    return [path for path in (folder / "user").iterdir() if not path.name.startswith(".")]


def test_a_crash_at_any_file_operation_loses_no_text_and_the_next_try_ends_the_same(
    tmp_path: Path,
) -> None:
    changes = [add("Cake on Friday."), update("Tea is at five."), RETIRE]
    whole = tmp_path / "whole"
    put(whole, {"user/memory.md": OLD})
    open_store(whole).absorb(USER, changes, now=NOW)
    expected = {p.name: p.read_bytes() for p in visible(whole)}
    at = 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        put(folder, {"user/memory.md": OLD})
        hook, seen = failing(at)
        store = Store(Root(folder, hook=hook), DEFAULTS, clock=Clock(), counter=WordCounter())
        try:
            store.absorb(USER, changes, now=NOW)
        except (Stopped, H2amsError, StoreError):
            pass
        else:
            break
        files = [folder / "user/memory.md", folder / "user/archive.md"]
        everything = "".join(f.read_text(encoding="utf-8") for f in files if f.exists())
        assert "four." in everything and "Coffee at ten." in everything
        open_store(folder).absorb(USER, changes, now=NOW)
        found = {p.name: p.read_bytes() for p in visible(folder)}
        assert found == expected, (at, seen[-1])
    assert at > 10
