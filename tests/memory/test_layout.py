"""Folders and files: which scope they belong to and what they are."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import ScopeError
from h2ams.memory.layout import ROOT, UNFILED, Place, Role, enter, folder_names, role
from h2ams.memory.scope import FAMILIES, HISTORICAL, parse_scope

SCOPES = [
    "user",
    "global",
    "vp/ada",
    "agent/a1",
    "feature/sso",
    "topic/auth",
    "topic/auth/refresh",
    "chat/c_1",
    "chat/c_1/vp/ada",
    "sessions/会话.一",
    "sessions/s1",
    "sessions/s1/user",
    "sessions/s1/vp/ada",
    "sessions/s1/feature/sso",
    "sessions/s1/topic/auth",
    "sessions/s1/topic/auth/refresh",
]
RESERVED = [*FAMILIES, *HISTORICAL]
HOSTILE = ["VP", "User", "..", ".h2ams", "node_modules", "con", "a.b", "memory.md", "żółć", "s1"]
NAMES = st.one_of(st.text(max_size=12), st.sampled_from([*RESERVED, *HOSTILE]))


def walk(path: str) -> Place | None:
    place: Place | None = ROOT
    for name in path.split("/"):
        place = enter(place, name) if place is not None else None
    return place


def place_at(path: str) -> Place:
    place = walk(path)
    assert place is not None, path
    return place


@pytest.mark.parametrize("text", SCOPES)
def test_the_folder_of_a_scope_is_a_scope_folder_of_that_scope(text: str) -> None:
    place = place_at(text)
    assert place.scope == parse_scope(text)
    assert (place.is_scope, place.unfiled, place.problem, place.layout) == (True, False, None, 0)


@given(st.lists(NAMES, min_size=1, max_size=6))
def test_paths_and_scope_texts_go_through_one_grammar(names: list[str]) -> None:
    """A walk ends in a scope folder exactly if the path is a scope, and then it is that scope."""
    path = "/".join(name.replace("/", "+") for name in names)
    try:
        scope = parse_scope(path)
    except ScopeError:
        scope = None
    place = walk(path)
    found = place.scope if place is not None and place.is_scope else None
    assert found == scope


@given(st.lists(NAMES, min_size=1, max_size=6), NAMES)
def test_any_names_at_all_give_a_place_and_a_role(names: list[str], file: str) -> None:
    place: Place | None = ROOT
    for name in names:
        inner = enter(place, name)
        if inner is None:
            break
        place = inner
    found, detail = role(place, file)
    assert isinstance(found, Role)
    assert place.problem is None or (found in {Role.IGNORED} and place.scope is None)
    assert place.problem is None or ": " in place.problem
    assert "\n" not in detail


@pytest.mark.parametrize("text", [text for text in SCOPES if text.startswith("sessions/s1")])
def test_historical_layouts_are_the_same_scope(text: str) -> None:
    """K66: group/<id> and session/<id> are read under the name sessions/<id>."""
    names = folder_names(parse_scope(text))
    assert names[0] == text
    assert [name.split("/")[0] for name in names] == ["sessions", "session", "group"]
    for layout, name in enumerate(names):
        place = place_at(name)
        assert (place.scope, place.layout, place.is_scope) == (parse_scope(text), layout, True)


def test_scopes_without_a_historical_layout_have_one_folder() -> None:
    assert folder_names(parse_scope("chat/c1/vp/ada")) == ("chat/c1/vp/ada",)


def test_k18_a_folder_in_the_other_unicode_form_is_the_same_scope() -> None:
    decomposed = unicodedata.normalize("NFD", "chat/żółć")
    assert decomposed != "chat/żółć"
    assert place_at(decomposed) == place_at("chat/żółć")


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("user/notes/2026", "user"),
        ("sessions/s1/notes", "sessions/s1"),
        ("sessions/s1/vp/ada/drafts/deep", "sessions/s1/vp/ada"),
        ("sessions/s1/topic/a/b/notes", "sessions/s1/topic/a/b"),
        ("feature/sso/vp/ada", "feature/sso"),
        ("Projects/2026", UNFILED.text),
        ("groups/g1", UNFILED.text),
    ],
)
def test_a_plain_folder_belongs_to_the_nearest_enclosing_scope(path: str, scope: str) -> None:
    place = place_at(path)
    assert place.scope == parse_scope(scope)
    assert not place.is_scope
    assert place.unfiled == (scope == UNFILED.text)


@pytest.mark.parametrize(
    "path",
    [
        "sessions/CON",
        "sessions/a b",
        "sessions/trail.",
        "sessions/s1/vp/a:b",
        "sessions/s1/vp/Ada Lovelace",
        "sessions/s1/topic/a/my notes",
        "group/g1/vp/a?b",
        "chat/c1/user",
        "chat/c1/topic",
        "vp/nul.md",
        "topic/a..b",
        "VP",
        "Sessions",
        "sessions/s1/Vp",
        "sessions/s1/USER",
        "chat/c1/Topic",
    ],
)
def test_a_reserved_folder_with_a_bad_name_never_falls_back_to_an_outer_scope(path: str) -> None:
    place = place_at(path)
    assert place.problem is not None
    assert place.problem.startswith("invalid-scope-folder: ")
    assert place.scope is None
    assert role(place, "memory.md") == (Role.IGNORED, "problem-folder")
    assert enter(place, "anything") is None


@pytest.mark.parametrize("path", [".legacy", ".h2ams", ".git", "user/.obsidian", "node_modules"])
def test_dot_folders_and_packages_are_not_read(path: str) -> None:
    assert walk(path) is None


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb", "a\\b", "a\u2028b"])
def test_names_that_cannot_be_shown_are_reported_and_not_read(name: str) -> None:
    place = enter(place_at("user"), name)
    assert place is not None and place.problem is not None
    assert place.problem.startswith("unfit-name: ") and place.problem.isprintable()
    found, detail = role(place_at("user"), f"{name}.md")
    assert found is Role.IGNORED
    assert detail.startswith("unfit-name: ") and detail.isprintable()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("memory.md", (Role.MEMORY, "")),
        ("archive.md", (Role.ARCHIVE, "")),
        ("content.md", (Role.CONTENT, "")),
        ("summary.md", (Role.SUMMARY, "")),
        ("summary.zh.md", (Role.SUMMARY, "zh")),
        ("summary.pt-BR.md", (Role.SUMMARY, "pt-br")),
        ("session.md", (Role.SESSION_CARD, "")),
        (".dream-state", (Role.DREAM_STATE, "")),
        ("ams.json", (Role.AMS_STATE, "")),
        ("design.md", (Role.NOTE, "")),
        ("summary of May.md", (Role.NOTE, "")),
        ("Notes.MD", (Role.NOTE, "")),
        ("MEMORY.md", (Role.NOTE, "case-variant")),
        ("redirect.json", (Role.IGNORED, "not-markdown")),
        ("picture.png", (Role.IGNORED, "not-markdown")),
    ],
)
def test_what_a_file_is_in_the_folder_of_a_session(name: str, expected: tuple[Role, str]) -> None:
    for path in ("sessions/s1", "session/s1", "group/s1"):
        assert role(place_at(path), name) == expected


def test_the_engines_names_mean_something_only_in_a_scope_folder() -> None:
    for path in ("user/notes", "sessions/s1/notes", "vault"):
        for name in ("memory.md", "archive.md", "content.md", "summary.md"):
            assert role(place_at(path), name) == (Role.NOTE, "misplaced")
        assert role(place_at(path), "session.md") == (Role.NOTE, "")
    assert role(place_at("sessions/s1/vp/ada"), "session.md") == (Role.NOTE, "")
    assert role(place_at("topic/old"), "redirect.json") == (Role.REDIRECT, "")
    assert role(place_at("sessions/s1/topic/a/b"), "redirect.json") == (Role.REDIRECT, "")


def test_files_outside_of_all_families_are_unfiled_notes() -> None:
    assert role(ROOT, "README.md") == (Role.NOTE, "")
    assert ROOT.scope == UNFILED
    assert ROOT.unfiled


@pytest.mark.parametrize("path", ["sessions", "vp", "topic", "sessions/s1/vp", "sessions/s1/topic"])
def test_a_note_in_a_folder_that_only_holds_scopes_is_reported(path: str) -> None:
    found, detail = role(place_at(path), "memory.md")
    assert found is Role.IGNORED
    assert detail.startswith("no-scope: ")


@pytest.mark.parametrize(
    "name",
    [
        "memory~.md",
        ".memory.md.swp",
        ".#memory.md",
        "memory.md.tmp",
        "4913",
        "memory.md.bak",
        "memory.md~",
        "~$memory.md",
        ".memory.md.0123456789abcdef.tmp",
        "memory.md.swp",
        "x.TMP",
    ],
)
def test_k124_temporary_and_backup_files_are_ignored_without_a_report(name: str) -> None:
    for path in ("user", "vault", "sessions"):
        found, detail = role(place_at(path), name)
        assert found is Role.IGNORED
        assert ":" not in detail


@pytest.mark.parametrize(
    "name",
    [
        "memory (conflicted copy 2026-05-04).md",
        "memory (Ada's conflicted copy 2026-05-04).md",
        "memory (conflicted copy 2026-05-04 093000).md",
        "memory (Case Conflict).md",
        "memory (Unicode Encoding Conflict 1).md",
        "memory.sync-conflict-20260504-093000-ABCDEFG.md",
        "design.sync-conflict-20260504-093000.md",
        "memory_conflict-20260504-093000.md",
        "design (SFConflict ada@example.org 2026-05-04-09-30-00).md",
        "design [Conflict].md",
        "design (conflicted).md",
        "design.Conflict.md",
        "memory_DESKTOP_May-04-093000-2026_Conflict.md",
        "memory (1).md",
        "memory 2.md",
        "summary.zh - Copy.md",
        "memory-conflict.md",
    ],
)
def test_copies_that_sync_tools_leave_are_recognised(name: str) -> None:
    found, detail = role(place_at("sessions/s1"), name)
    assert found is Role.CONFLICT_COPY
    assert detail.startswith("conflict-copy: ")


@pytest.mark.parametrize(
    "name",
    [
        "merge-conflict.md",
        "Meeting (conflict resolution).md",
        "conflict.md",
        "Meeting (1).md",
        "the case conflict of 1998.md",
        "memory of 2026.md",
        "memory-palace.md",
    ],
)
def test_titles_that_only_resemble_conflict_copies_are_notes(name: str) -> None:
    assert role(place_at("user"), name) == (Role.NOTE, "")


def test_numbered_copies_of_the_engines_names_are_notes_in_a_vault() -> None:
    assert role(place_at("vault"), "memory (1).md") == (Role.NOTE, "")
