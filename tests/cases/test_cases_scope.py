"""Reported cases of the layer *scope*: one grammar, one owner for each file, nothing outside.

The grammar has no ``user/<name>``: cases that use it are read with ``sessions/<name>``.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from cases.kit import cli, cli_ids, document, ids, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Access, H2amsError, Memory, NotFoundError, ScopeError, UnsafePathError
from h2ams.memory.scope import parse_scope

links = pytest.mark.skipif(os.name == "nt", reason="symbolic links need a privilege")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K14 -------------------------------------------------------------------------------------------


def test_k14_forgetting_a_whole_scope_leaves_the_other_byte_for_byte(root: Path) -> None:
    # forget(scope=...) of the case: each segment of the scope.
    write(root, "sessions/a/memory.md", *(segment_text(f"a{n}", f"apple {n}") for n in (1, 2)))
    other = write(root, "sessions/b/memory.md", *(segment_text(f"b{n}", "pear") for n in (1, 2, 3)))
    before = other.read_bytes()
    with opened(root) as memory:
        for record in memory.list("sessions/a"):
            memory.forget(record.address)
        assert memory.list("sessions/a") == () and ids(memory, "apple") == []
        assert "apple" not in (root / "sessions/a/memory.md").read_text()
        assert other.read_bytes() == before
        assert sorted(ids(memory, "pear")) == ["b1", "b2", "b3"]
        assert memory.verify().ok


@pytest.mark.parametrize(
    "other", ["sessions/a.b", "sessions/ab", "sessions/a-b", "sessions/b/vp/a"]
)
def test_k14_no_name_that_begins_alike_is_taken_for_the_scope(root: Path, other: str) -> None:
    write(root, "sessions/a/memory.md", segment_text("one", "apple"))
    file = write(root, f"{other}/memory.md", segment_text("one", "apple"))
    before = file.read_bytes()
    with opened(root) as memory:
        memory.forget("sessions/a#one")
        assert file.read_bytes() == before
        assert [record.scope for record in memory.list()] == [other]


# -- K16 and K17 -----------------------------------------------------------------------------------


@links
def test_k16_links_that_lead_outside_are_not_read_and_named(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, "memory.md", segment_text("secret", "topsecret"))
    write(outside, "m.md", segment_text("secret", "topsecret too"))
    write(outside, "summary.md", "topsecret summary")
    write(root, "global/memory.md", segment_text("good", "good words"))
    (root / "chat/1").mkdir(parents=True)
    (root / "user").symlink_to(outside, target_is_directory=True)
    (root / "chat/1/memory.md").symlink_to(outside / "m.md")
    with opened(root) as memory:
        report = memory.sync()
        assert report.skipped_links == 2
        named = {problem.path for problem in report.problems}
        assert named == {"user", "chat/1/memory.md"}
        assert {problem.path for problem in memory.status().problems} == named
        assert ids(memory, "topsecret") == []
        assert ids(memory, "good") == ["good"]
        for scope, link in (("user", "user"), ("chat/1", "chat/1/memory.md")):
            assert memory.list(scope) == ()
            with pytest.raises((NotFoundError, UnsafePathError)):
                memory.get(f"{scope}#secret")
            with pytest.raises(UnsafePathError) as caught:
                memory.store.documents(parse_scope(scope))
            assert link in str(caught.value)
            with pytest.raises(UnsafePathError):
                memory.remember(scope, "planted")
        assert "planted" not in "".join(p.read_text() for p in outside.iterdir())


@links
@pytest.mark.parametrize("access", [None, Access(session="s"), Access(chat="1", vp="a")])
def test_k16_a_link_that_leads_outside_never_stops_a_turn(
    root: Path, tmp_path: Path, access: Access | None
) -> None:
    outside = tmp_path / "outside"
    write(outside, "memory.md", segment_text("secret", "topsecret"))
    write(outside, "summary.md", "topsecret summary")
    write(root, "global/memory.md", segment_text("good", "good words"))
    write(root, "global/summary.md", "A good summary.")
    for name in ("chat/1", "sessions/s"):
        (root / name).mkdir(parents=True)
        (root / name / "memory.md").symlink_to(outside / "memory.md")
        (root / name / "summary.md").symlink_to(outside / "summary.md")
    (root / "user").symlink_to(outside, target_is_directory=True)
    with opened(root) as memory:
        for _ in range(2):  # the first turn makes the index, the second finds it there
            found = memory.recall("good words or topsecret", access=access)
            assert [hit.record.id for hit in found.hits] == ["good"]
            block = memory.context("good words or topsecret", access=access, budget=1000)
            assert "A good summary." in block.text and "topsecret" not in block.text
            assert [record.id for record in memory.list(access=access)] == ["good"]


@links
def test_k17_no_write_follows_a_final_or_dangling_link(root: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim.md"
    victim.write_text("original")
    (root / "user").mkdir(parents=True)
    (root / "user/memory.md").symlink_to(victim)
    (root / "user/summary.md").symlink_to(tmp_path / "new.md")
    (root / "user/.lock").symlink_to(tmp_path / "lock")
    with opened(root) as memory:
        with pytest.raises(UnsafePathError):
            memory.remember("user", "planted")
        with pytest.raises(UnsafePathError):
            memory.store.write_summary(parse_scope("user"), "planted")
    done = cli(root, "remember", "user", "planted", "--json")
    assert done.code == 1 and document(done)["error"]["code"] == "unsafe-path"
    assert victim.read_text() == "original"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["memory", "victim.md"]


# -- K18 -------------------------------------------------------------------------------------------

NAMES = ["żółć", "Ångström", "café", "한국어", "がぎぐ", "résumé.v2", "ộ", "Ὀδυσσεύς", "ё-й"]


@pytest.mark.parametrize("name", NAMES)
def test_k18_either_unicode_form_of_a_scope_name_is_the_same_scope(root: Path, name: str) -> None:
    composed, split = (unicodedata.normalize(form, name) for form in ("NFC", "NFD"))
    write(root, f"chat/{composed}/memory.md", segment_text("a", "alpha"), segment_text("b", "beta"))
    with opened(root) as memory:
        memory.sync()
        folder = (root / "chat" / composed).rename(root / "chat" / split)
        file = folder / "memory.md"
        file.write_text(file.read_text().replace("beta", "gamma"))
        report = memory.sync()
        keys = [(f"chat/{composed}", "a"), (f"chat/{composed}", "b")]
        assert [(record.scope, record.id) for record in memory.list()] == keys
        assert memory.status().scopes == 1
        assert report.added == 0 and report.deleted == 0
        for form in (composed, split):
            assert [record.id for record in memory.list(f"chat/{form}")] == ["a", "b"]
            assert ids(memory, "gamma", scopes=[f"chat/{form}"]) == ["b"]
            assert ids(memory, "gamma", access=Access(chat=form)) == ["b"]
            assert sorted(ids(memory, form)) == ["a", "b"]
            assert memory.get(f"chat/{form}#a").scope == f"chat/{composed}"
        assert memory.remember(f"chat/{split}", "delta").path == f"chat/{split}/memory.md"
        assert len(list((root / "chat").iterdir())) == 1
        assert memory.verify().ok


# -- K82 -------------------------------------------------------------------------------------------


def test_k82_two_folders_of_one_name_share_nothing(tmp_path: Path) -> None:
    job, personal = tmp_path / "job/my-app", tmp_path / "personal/my-app"
    job.mkdir(parents=True)
    personal.mkdir(parents=True)
    with opened(job) as first, opened(personal) as second:
        first.remember("sessions/my-app", "deploy on friday")
        assert len(ids(first, "deploy")) == 1
        assert ids(second, "deploy") == [] and second.list() == ()
        assert first.root != second.root and first.state != second.state
    for spelling in (f"{job}/", f"{job.parent}/./my-app", f"{personal}/../../job/my-app"):
        with Memory.open(spelling) as again:
            assert again.root == str(job)
            assert len(ids(again, "deploy")) == 1
    found = document(cli(personal, "recall", "deploy", "--json", "--session", "my-app"))
    assert found["hits"] == []


# -- K83 (library and command line; the MCP server is not there yet) -------------------------------


def test_k83_every_surface_keeps_to_the_scope(root: Path) -> None:
    with opened(root) as memory:
        id = memory.remember("sessions/a", "needle in a").id
        memory.remember("user", "needle of the user")
        for access, flags, wanted in (
            (Access(session="a"), ("--session", "a"), True),
            (Access(session="b"), ("--session", "b"), False),
            (Access(chat="a"), ("--chat", "a"), False),
            (Access(session="b", user=False), ("--session", "b", "--no-user"), False),
            (Access(user=True), ("--user",), False),
            (Access(session="b", related_sessions=["a"]), ("--session=b", "--related=a"), True),
        ):
            found = ids(memory, "needle", access=access)
            assert (id in found) == wanted
            assert cli_ids(root, "needle", *flags) == found
        assert ids(memory, "needle", access=Access()) == []
        # No access at all is the owner's own call; a scope filter never widens an access.
        assert len(ids(memory, "needle")) == 2
        assert ids(memory, "needle", access=Access(session="b"), scopes=["sessions/a", "*"]) == [
            record.id for record in memory.list("user")
        ]


# -- K85 -------------------------------------------------------------------------------------------


def test_k85_a_neighbour_with_the_same_prefix_is_outside(root: Path) -> None:
    secret = write(root.with_name("memory-secret"), "memory.md", segment_text("x", "topsecret"))
    with opened(root) as memory:
        for path in (
            "../memory-secret/memory.md",
            str(secret),
            "user/../../memory-secret/memory.md",
        ):
            with pytest.raises(UnsafePathError):
                memory.sync([path])
            with pytest.raises(ScopeError):
                memory.list(path)
            with pytest.raises(ScopeError):
                memory.get(f"{path}#x")
            with pytest.raises(ScopeError):
                memory.remember(path, "planted")
        assert memory.list() == () and ids(memory, "topsecret") == []
    for words in (["list", "../memory-secret"], ["show", "../memory-secret#x"]):
        done = cli(root, *words)
        assert done.code == 2 and "topsecret" not in done.out + done.err
    done = cli(root, "sync", "../memory-secret/memory.md", "--json")
    assert done.code == 1 and document(done)["error"]["code"] == "unsafe-path"
    assert secret.read_text() == segment_text("x", "topsecret")


SPELLINGS = [
    "..", "../x", "/x", "user/..", "user/../x", "sessions/..", "topic/..", "topic/../x",
    "sessions/s/../t", "sessions/%2e%2e", "C:\\x", "sessions/a\\b", "sessions//a", "user/",
    "/user", "~", "~/x", "sessions/a\0b", "\\\\host\\x", "sessions/․․", "user/x", "",
]  # fmt: skip


@pytest.mark.parametrize("scope", SPELLINGS)
def test_k85_every_spelling_of_a_way_out_is_refused(root: Path, scope: str) -> None:
    with opened(root) as memory:
        before = sorted(str(path) for path in root.parent.rglob("*"))
        for call in (
            lambda: memory.remember(scope, "planted"),
            lambda: memory.list(scope),
            lambda: memory.get(f"{scope}#x"),
            lambda: memory.forget(f"{scope}#x"),
            lambda: memory.update(f"{scope}#x", body="planted"),
            lambda: memory.unforget(f"{scope}#x"),
        ):
            with pytest.raises(ScopeError):
                call()
        assert sorted(str(path) for path in root.parent.rglob("*")) == before


# -- K87 and K88 -----------------------------------------------------------------------------------


def test_k87_a_name_that_differs_by_case_is_refused_and_the_existing_one_named(root: Path) -> None:
    with opened(root) as memory:
        memory.remember("sessions/Josep", "first")
        with pytest.raises(ScopeError) as caught:
            memory.remember("sessions/josep", "second")
        assert "Josep" in f"{caught.value} {caught.value.hint}"
        assert [record.scope for record in memory.list()] == ["sessions/Josep"]
        assert [path.name for path in (root / "sessions").iterdir()] == ["Josep"]
        # Names that differ by more are never joined.
        assert memory.remember("sessions/josef", "third").created
        assert len(memory.list()) == 2


@given(name=st.sampled_from(["josep", "straße", "ǅ", "µ", "ſ", "İ", "ά", "éa", "ΐ", "ﬃ"]))
def test_k87_spellings_are_one_name_for_creation_whatever_the_order(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    forms = {name, name.upper(), name.title(), unicodedata.normalize("NFD", name).upper()}
    with opened(tmp_path_factory.mktemp("names")) as memory:
        made = set()
        for form in sorted(forms):
            try:
                made.add(memory.remember(f"vp/{form}", "text").scope)
            except ScopeError:
                continue
        folders = list((Path(memory.root) / "vp").iterdir())
        assert len(made) == len(folders) == len({r.scope for r in memory.list()}) == 1


BAD_NAMES = [
    "chat/CON",
    "chat/nul.md",
    "chat/a:b",
    "chat/a?b",
    "chat/trail.",
    "chat/trail ",
    "chat/COM1",
]


@pytest.mark.parametrize("scope", BAD_NAMES)
def test_k88_names_that_some_system_cannot_hold_are_refused_on_all(root: Path, scope: str) -> None:
    with opened(root) as memory:
        with pytest.raises(ScopeError):
            memory.remember(scope, "text")
        assert [path.name for path in root.iterdir() if path.name != ".h2ams"] == []
    done = cli(root, "remember", scope, "text", "--json")
    assert done.code == 2 and document(done)["error"]["code"] == "scope"


DEVICES = ["con", "prn", "aux", "nul", *(f"{n}{i}" for n in ("com", "lpt") for i in (1, 5, 9, "¹"))]
BAD_PARTS = st.one_of(
    st.builds(
        lambda device, case, end: getattr(device, case)() + end,
        st.sampled_from(DEVICES),
        st.sampled_from(["lower", "upper", "title"]),
        st.sampled_from(["", ".txt", ".md", ".tar.gz"]),
    ),
    st.builds(
        lambda left, bad, right: left + bad + right,
        st.sampled_from(["", "a"]),
        st.sampled_from(
            [*"!\"#$%&'()*+,:;<=>?@[\\]^`{|}~ \t\n\0\x7f\x85\u200b\u202e\ufeff", "..", "%41"]
        ),
        st.sampled_from(["", "b"]),
    ),
    st.sampled_from([".a", "a.", ".", "x" * 129, "node_modules", "a. ", "🎵"]),
)


@given(
    part=BAD_PARTS, family=st.sampled_from(["chat", "sessions", "vp", "topic", "feature", "agent"])
)
def test_k88_every_bad_name_is_refused_by_scope_access_and_address(part: str, family: str) -> None:
    with pytest.raises(ScopeError):
        parse_scope(f"{family}/{part}")
    with pytest.raises(H2amsError):
        Access(session=part)
    with pytest.raises(ScopeError):
        parse_scope(f"topic/good/{part}")


@pytest.mark.parametrize("name", ["CON", "nul.md", "a:b", "trail.", "%41", "a b"])
def test_k88_a_bad_folder_that_is_there_is_reported_and_never_read(root: Path, name: str) -> None:
    write(root, f"chat/{name}/memory.md", segment_text("x", "hidden words"))
    write(root, f"sessions/s/vp/{name}/note.md", "# Hidden\n\nhidden words\n")
    write(root, "sessions/s/memory.md", segment_text("y", "words"))
    with opened(root) as memory:
        assert ids(memory, "words") == ["y"]
        paths = {problem.path for problem in memory.sync().problems}
        assert paths == {f"chat/{name}", f"sessions/s/vp/{name}"}
