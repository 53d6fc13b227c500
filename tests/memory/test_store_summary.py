"""The text that stands for a scope: which file it comes from, and how it is replaced."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.store_kit import SESSION, USER, copy_legacy, everything, open_store, put, save

from h2ams.errors import ConflictError, LimitError, ReadOnlyError, UsageError
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Segment
from h2ams.memory.summaries import one_newline, rewritten
from h2ams.memory.summary import parse_summary
from h2ams.settings import DEFAULTS, Settings

STUB = "<!-- seed-backfill:vp-stub v1 -->\nPersona stub that must never reach a prompt.\n"


@pytest.mark.parametrize(
    ("files", "language", "expected"),
    [
        ({}, "en", None),
        ({"summary.md": "English."}, "en", "English."),
        ({"summary.md": "English."}, "zh", "English."),
        ({"summary.md": "English.", "summary.zh.md": "中文。"}, "zh", "中文。"),
        ({"summary.md": "English.", "summary.zh.md": "中文。"}, "en", "English."),
        ({"summary.zh.md": "中文。"}, "en", None),
        ({"summary.md": "English.", "summary.zh.md": " \n"}, "zh", "English."),
        ({"summary.md": "English.", "summary.zh.md": STUB}, "zh", "English."),
        ({"summary.md": STUB}, "en", None),
        ({"summary.md": ""}, "en", None),
        ({"summary.md": "<!-- updatedAt: 2026-05-07T00:00:00.000Z -->\nDated."}, "en", "Dated."),
        ({"summary.md": "---\nupdatedAt: 2026-05-07\nbasis: ab\n---\nFront."}, "en", "Front."),
        ({"summary.md": "English.", "content.md": "Canonical prose."}, "en", "Canonical prose."),
        ({"summary.zh.md": "中文。", "content.md": "Canonical prose."}, "zh", "Canonical prose."),
        ({"summary.md": "English.", "content.md": "\n"}, "en", "English."),
    ],
)
def test_the_text_of_a_scope(
    tmp_path: Path, files: dict[str, str], language: str, expected: str | None
):
    put(tmp_path, {f"user/{name}": text for name, text in files.items()})
    found = open_store(tmp_path).summary(USER, language)
    assert (None if found is None else found[1].text) == expected


def test_the_historical_folder_gives_its_summaries(tmp_path: Path):
    store = open_store(copy_legacy(tmp_path))
    demo = parse_scope("sessions/s_demo")
    found = store.summary(demo)
    assert found is not None
    assert found[0] == "sessions/s_demo/summary.md"
    assert found[1].text.startswith("Single sign-on with OIDC")
    chinese = store.summary(demo, "zh")
    assert chinese is not None and chinese[0] == "sessions/s_demo/summary.zh.md"
    content = store.summary(parse_scope("sessions/s_demo/feature/sso"))
    assert content is not None and content[0] == "sessions/s_demo/feature/sso/content.md"
    assert store.summary(parse_scope("sessions/s_demo/vp/ghost")) is None


def test_the_canonical_layout_comes_before_the_historical_one(tmp_path: Path):
    put(tmp_path, {"group/s1/summary.md": "old", "sessions/s1/summary.md": "new"})
    found = open_store(tmp_path).summary(SESSION)
    assert found is not None and found[1].text == "new"


def test_a_first_summary_is_written_with_its_date_and_basis(tmp_path: Path):
    store = open_store(tmp_path)
    done = store.write_summary(SESSION, "Rotates tokens.\n", basis="abc")
    assert (done.created, done.path, done.id) == (True, "sessions/s1/summary.md", "summary")
    assert (tmp_path / done.path).read_text(encoding="utf-8") == (
        "---\nupdatedAt: 2026-05-01T08:01:00Z\nbasis: abc\n---\nRotates tokens.\n"
    )
    found = store.summary(SESSION)
    assert found is not None
    assert (found[1].text, found[1].basis) == ("Rotates tokens.", "abc")
    assert store.write_summary(SESSION, "轮换。", "zh").path == "sessions/s1/summary.zh.md"


def test_other_values_newlines_and_the_historical_form_stay(tmp_path: Path):
    put(
        tmp_path,
        {
            "user/summary.md": (
                "\ufeff---\r\ntitle: mine # yes\r\nupdatedAt: 2026-01-01\r\n---\r\nOld.\r\n"
            ),
            "global/summary.md": "<!-- updatedAt: 2026-05-07T00:00:00.000Z -->\nOld.\n",
            "vp/a/summary.md": "Plain by hand.\n",
        },
    )
    store = open_store(tmp_path)
    for scope in ("user", "global", "vp/a"):
        store.write_summary(parse_scope(scope), "New.\nTwo lines.")
        found = store.summary(parse_scope(scope))
        assert found is not None and found[1].text.replace("\r\n", "\n") == "New.\nTwo lines."
    assert (tmp_path / "user/summary.md").read_bytes().decode() == (
        "\ufeff---\r\ntitle: mine # yes\r\nupdatedAt: 2026-05-01T08:01:00Z\r\n---\r\n"
        "New.\r\nTwo lines.\r\n"
    )
    assert (tmp_path / "global/summary.md").read_text(encoding="utf-8") == (
        "<!-- updatedAt: 2026-05-01T08:02:00Z -->\nNew.\nTwo lines.\n"
    )


def test_the_same_summary_again_changes_no_byte(tmp_path: Path):
    put(tmp_path, {"user/summary.md": "By hand.\n\n"})
    store = open_store(tmp_path)
    done = store.write_summary(USER, "By hand.")
    assert (done.changed, done.diff) == (False, "")
    assert (tmp_path / "user/summary.md").read_text(encoding="utf-8") == "By hand.\n\n"


def test_a_summary_over_its_tokens_is_refused_with_both_sizes(tmp_path: Path):
    put(tmp_path, {"user/summary.md": "one two three"})
    store = open_store(tmp_path, settings=Settings(summary_tokens=5))
    with pytest.raises(LimitError) as caught:
        store.write_summary(USER, "one two three four five six")
    error = caught.value
    assert (error.name, error.limit, error.size, error.current) == ("summary_tokens", 5, 6, 3)


def test_a_summary_that_somebody_saved_meanwhile_is_not_overwritten(tmp_path: Path):
    path = tmp_path / "user/summary.md"

    def editor(at: str, where: str) -> None:
        if at == "check" and where.endswith("summary.md"):
            save(path, "By hand.")

    put(tmp_path, {"user/summary.md": "Old."})
    with pytest.raises(ConflictError):
        open_store(tmp_path, hook=editor).write_summary(USER, "By the agent.")
    assert path.read_text(encoding="utf-8") == "By hand."
    assert b"By the agent." in everything(tmp_path / ".h2ams/conflicts")


def test_a_summary_honours_its_precondition(tmp_path: Path):
    store = open_store(tmp_path)
    store.write_summary(USER, "First.", expect="")
    digest = hashlib.sha256((tmp_path / "user/summary.md").read_bytes()).hexdigest()
    with pytest.raises(ConflictError) as caught:
        store.write_summary(USER, "Second.", expect="")
    assert (caught.value.expected, caught.value.actual) == ("", digest)
    assert store.write_summary(USER, "Second.", expect=digest).changed


def test_a_summary_behind_content_is_written_and_said_to_be_unseen(tmp_path: Path):
    put(tmp_path, {"user/content.md": "Canonical."})
    done = open_store(tmp_path).write_summary(USER, "Summary.")
    assert [problem.code for problem in done.problems] == ["summary-shadowed"]


def test_a_dry_run_of_a_summary_touches_nothing(tmp_path: Path):
    done = open_store(tmp_path).write_summary(USER, "Summary.", dry_run=True)
    assert "+Summary.\n" in done.diff
    assert list(tmp_path.iterdir()) == []


def test_a_summary_that_is_not_utf8_is_not_rewritten(tmp_path: Path):
    put(tmp_path, {"user/summary.md": b"Caf\xe9"})
    with pytest.raises(ReadOnlyError):
        open_store(tmp_path).write_summary(USER, "Summary.")


lines = st.sampled_from(
    [
        "---",
        "title: mine",
        "updatedAt: 2026-01-01",
        "basis: >",
        "  folded",
        "basis: x",
        "not yaml: [",
        "# comment",
        "",
        "<!-- updatedAt: 2026-05-07T00:00:00.000Z -->",
        "prose",
        "---  ",
    ]
)
files = st.lists(lines, max_size=8).map("\n".join)
bodies = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(
    files,
    bodies.filter(str.strip) | files.filter(str.strip),
    st.none() | st.just("ab12"),
    st.booleans(),
)
def test_a_rewritten_summary_reads_back_as_what_was_written(
    old: str, body: str, basis: str | None, crlf: bool
):
    body = Segment(body=one_newline(body)).body
    when = "2026-05-01T08:00:00Z"
    made = rewritten(old.replace("\n", "\r\n") if crlf else old, body, when, basis, DEFAULTS)
    found = parse_summary(made.encode("utf-8"))
    assert (found.text, found.updated_at, found.basis) == (body, when, basis)


@pytest.mark.parametrize("language", ["", "../x", "english", "z", "zh/..", "zh\0"])
def test_a_language_that_is_none_is_a_usage_error(tmp_path: Path, language: str):
    with pytest.raises(UsageError):
        open_store(tmp_path).summary(USER, language)
