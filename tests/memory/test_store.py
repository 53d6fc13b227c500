"""Adding, changing and forgetting segments: what the files hold before and after."""

from __future__ import annotations

import hashlib
import stat
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.store_kit import (
    SESSION,
    USER,
    bodies,
    entries,
    everything,
    open_store,
    put,
    segment_text,
    snapshot,
)

from h2ams.errors import (
    ConflictError,
    LimitError,
    NotFoundError,
    ReadOnlyError,
    ScopeError,
    UsageError,
)
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Segment
from h2ams.settings import Settings

THREE = "\n".join(segment_text(f"seg_{number}", f"Body {number}.") for number in (1, 2, 3))


# Adding


def test_a_first_segment_makes_folders_and_file_in_the_writers_exact_form(tmp_path: Path):
    store = open_store(tmp_path)
    made = store.add(SESSION, "Tokens rotate.\n", kind="decision", tags=["auth", "夜间"])
    assert (made.created, made.changed, made.path) == (True, True, "sessions/s1/memory.md")
    assert made.address == f"sessions/s1#{made.id}"
    assert (tmp_path / made.path).read_bytes() == (
        f"---\nid: {made.id}\nscope: sessions/s1\nkind: decision\n"
        'tags: [auth, "夜间"]\nsourceMessages: []\n'
        "createdAt: 2026-05-01T08:01:00Z\nupdatedAt: 2026-05-01T08:01:00Z\n---\nTokens rotate.\n"
    ).encode()
    assert made.diff.startswith("--- /dev/null\n+++ b/sessions/s1/memory.md\n")


def test_segments_are_joined_by_one_blank_line(tmp_path: Path):
    store = open_store(tmp_path)
    store.add(USER, "one", kind="fact")
    before = (tmp_path / "user/memory.md").read_bytes()
    store.add(USER, "two", kind="fact")
    after = (tmp_path / "user/memory.md").read_bytes()
    assert after.startswith(before + b"\n---\n")
    assert after.endswith(b"---\ntwo\n")


def test_the_same_text_again_is_the_same_segment_whatever_tags_come_with_it(tmp_path: Path):
    store = open_store(tmp_path)
    first = store.add(USER, "Likes tabs.", kind="preference")
    before = snapshot(tmp_path)
    again = store.add(USER, "\n\nLikes tabs.\n", kind="preference", tags=["editor"])
    assert (again.created, again.changed, again.id) == (False, False, first.id)
    assert snapshot(tmp_path) == before
    assert store.add(USER, "Likes tabs.", kind="fact").id != first.id


def test_the_same_text_in_a_historical_layout_is_not_added_again(tmp_path: Path):
    put(tmp_path, {"group/s1/memory.md": segment_text("seg_1", "Said.", scope="group/s1")})
    made = open_store(tmp_path).add(SESSION, "Said.", kind="fact")
    assert (made.created, made.id, made.path) == (False, "seg_1", "group/s1/memory.md")


def test_an_id_that_is_taken_by_other_text_gives_the_next_free_one(tmp_path: Path):
    store = open_store(tmp_path)
    first = store.add(USER, "text", kind="fact")
    store.update(USER, first.id, body="other text")
    second = store.add(USER, "text", kind="fact")
    assert second.created
    assert second.id != first.id
    assert second.id.startswith(first.id)
    assert sorted(bodies(store, USER)) == ["other text", "text"]


def test_an_id_of_a_retired_segment_is_not_given_again(tmp_path: Path):
    store = open_store(tmp_path)
    first = store.add(USER, "text", kind="fact")
    put(tmp_path, {"user/archive.md": segment_text(first.id, "edited, then retired")})
    store.remove(USER, first.id, purge=False)
    again = store.add(USER, "text", kind="fact")
    assert again.id != first.id


def test_a_file_keeps_its_newlines_and_byte_order_mark(tmp_path: Path):
    text = "\ufeff" + segment_text("seg_1", "Windows.").replace("\n", "\r\n")
    put(tmp_path, {"user/memory.md": text})
    store = open_store(tmp_path)
    made = store.add(USER, "first\nsecond", kind="fact")
    after = (tmp_path / "user/memory.md").read_bytes()
    assert after.startswith(text.encode() + b"\r\n---\r\n")
    assert after.count(b"\n") == after.count(b"\r\n")
    assert bodies(store, USER)[-1] == "first\nsecond"
    store.remove(USER, made.id)
    assert (tmp_path / "user/memory.md").read_bytes() == text.encode()


def test_permission_bits_of_a_file_survive_an_edit(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    (tmp_path / "user/memory.md").chmod(0o640)
    open_store(tmp_path).add(USER, "more", kind="fact")
    assert stat.S_IMODE((tmp_path / "user/memory.md").stat().st_mode) == 0o640


def test_a_write_to_a_scope_of_an_old_layout_goes_to_sessions(tmp_path: Path):
    put(tmp_path, {"group/s1/memory.md": segment_text("seg_1", "Old.", scope="group/s1")})
    store = open_store(tmp_path)
    made = store.add(parse_scope("group/s1"), "New.", kind="fact")
    assert made.path == "sessions/s1/memory.md"
    assert (tmp_path / made.path).read_text(encoding="utf-8").count("scope: sessions/s1\n") == 1
    assert bodies(store, SESSION) == ["New.", "Old."]


def test_a_write_to_a_redirected_topic_goes_to_its_successor(tmp_path: Path):
    put(
        tmp_path,
        {
            "topic/login/redirect.json": '{"version":1,"canonical":"auth"}',
            "topic/login/memory.md": segment_text("seg_1", "left behind", scope="topic/login"),
            "topic/auth/memory.md": "",
        },
    )
    store = open_store(tmp_path)
    login = parse_scope("topic/login")
    made = store.add(login, "New.", kind="fact")
    assert (made.scope, made.path) == ("topic/auth", "topic/auth/memory.md")
    assert store.find(login, "seg_1") is not None
    changed = store.update(login, "seg_1", body="still here")
    assert (changed.scope, changed.path) == ("topic/login", "topic/login/memory.md")


def test_a_folder_in_another_unicode_form_is_used_as_it_is_spelled(tmp_path: Path):
    name = unicodedata.normalize("NFD", "café")
    put(tmp_path, {f"sessions/{name}/memory.md": segment_text("seg_1", "Ici.")})
    store = open_store(tmp_path)
    scope = parse_scope("sessions/café")
    assert store.folders(scope) == (f"sessions/{name}",)
    assert store.add(scope, "Encore.", kind="fact").path == f"sessions/{name}/memory.md"
    assert sorted(path.name for path in (tmp_path / "sessions").iterdir()) == [name]


@pytest.mark.parametrize(
    ("there", "wanted", "named"),
    [
        ("sessions/Josep", "sessions/josep", "sessions/Josep"),
        ("group/Josep", "sessions/josep", "sessions/Josep"),
        ("sessions/s1/vp/Ada", "sessions/s1/vp/ada", "sessions/s1/vp/Ada"),
        ("sessions/ΣΑΣ", "sessions/σας", "sessions/ΣΑΣ"),
    ],
)
def test_k87_a_scope_that_differs_only_by_case_is_refused_and_the_other_named(
    tmp_path: Path, there: str, wanted: str, named: str
):
    put(tmp_path, {f"{there}/memory.md": ""})
    store = open_store(tmp_path)
    with pytest.raises(ScopeError) as caught:
        store.add(parse_scope(wanted), "text", kind="fact")
    assert named in str(caught.value)
    assert list(snapshot(tmp_path)) == [f"{there}/memory.md"]
    store.check_creatable(parse_scope(there))
    store.check_creatable(parse_scope("sessions/other"))


@pytest.mark.parametrize(
    "values",
    [
        {"body": " \n\t\n"},
        {"body": "text", "kind": "todo"},
        {"body": "text", "tags": "one, text"},
        {"body": "text", "source_messages": ["a message, not an id"]},
    ],
)
def test_values_that_are_none_are_usage_errors_and_write_nothing(tmp_path: Path, values):
    with pytest.raises(UsageError):
        open_store(tmp_path).add(USER, **{"kind": "fact", **values})
    assert snapshot(tmp_path) == {}


AWKWARD = [
    "---\nid: seg_x\nkind: fact\n---\nnot a header",
    "text\n\n---\n\nstatus: staging\n\n---\n\nmore",
    "```\n---\nid: a\n---\n```",
    "```\nnever closed",
    "<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->",
    "\\---\n\\\\",
    "nul \0 and \x85 and \u2028 and \x0c",
    "café 夜间 🙂",
]


@pytest.mark.parametrize("body", AWKWARD)
def test_any_text_is_added_found_and_removed_without_a_trace(tmp_path: Path, body: str):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    made = store.add(USER, body, kind="fact")
    after = store.add(USER, "one more behind it", kind="fact")
    assert bodies(store, USER)[:3] == ["Body 1.", "Body 2.", "Body 3."]
    assert sorted(bodies(store, USER)[3:]) == sorted([body, "one more behind it"])
    assert not store.add(USER, body, kind="fact").created
    store.remove(USER, after.id)
    store.remove(USER, made.id)
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == THREE


@pytest.mark.parametrize(
    "start",
    [
        "",
        "just prose\n",
        THREE,
        THREE + "\n<!-- dream-state -->\nlastDreamAt: x\n<!-- /dream-state -->\n",
        THREE + "\n```\nunclosed\n",
        "# Heading\n\n" + THREE,
    ],
)
def test_add_then_remove_gives_the_same_bytes(tmp_path: Path, start: str):
    put(tmp_path, {"user/memory.md": start})
    store = open_store(tmp_path)
    made = store.add(USER, "one more", kind="fact")
    store.remove(USER, made.id)
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == start


# Changing


def test_an_update_changes_its_own_lines_only(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    done = store.update(USER, "seg_2", body="Changed.", tags=["new"])
    expected = THREE.replace("Body 2.", "Changed.").split("\n")
    after = (tmp_path / "user/memory.md").read_text(encoding="utf-8").split("\n")
    differ = [(old, new) for old, new in zip(expected, after, strict=True) if old != new]
    assert differ == [
        ("tags: []", "tags: [new]"),
        ("updatedAt: 2026-04-29T10:11:12.000Z", "updatedAt: 2026-05-01T08:01:00Z"),
    ]
    assert done.changed and not done.created
    assert "-Body 2.\n+Changed.\n" in done.diff


def test_an_update_that_changes_nothing_changes_no_byte(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    path = tmp_path / "user/memory.md"
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    store = open_store(tmp_path)
    done = store.update(USER, "seg_2", body="Body 2.\n", kind="fact", tags=[], source_messages=[])
    assert (done.changed, done.diff) == (False, "")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, when)


def test_an_update_happens_where_the_segment_lives(tmp_path: Path):
    put(
        tmp_path,
        {
            "group/s1/memory.md": segment_text("seg_1", "Old.", scope="group/s1"),
            "sessions/s1/memory.md": segment_text("seg_2", "New.", scope="sessions/s1"),
        },
    )
    store = open_store(tmp_path)
    done = store.update(SESSION, "seg_1", body="Changed.")
    assert (done.path, done.address) == ("group/s1/memory.md", "sessions/s1#seg_1")
    assert "scope: group/s1\n" in (tmp_path / done.path).read_text(encoding="utf-8")


def test_the_second_of_two_equal_ids_is_changed_by_its_own_address(tmp_path: Path):
    put(tmp_path, {"user/memory.md": segment_text("a", "one") + "\n" + segment_text("a", "two")})
    store = open_store(tmp_path)
    assert store.update(USER, "a~2", body="second").id == "a~2"
    assert bodies(store, USER) == ["one", "second"]


def test_text_without_a_header_keeps_its_address_when_it_is_changed(tmp_path: Path):
    put(tmp_path, {"user/memory.md": "Just a line.\n\n" + THREE})
    store = open_store(tmp_path)
    address = entries(store, USER)[0].address_id
    assert address.startswith("anon_")
    assert store.update(USER, address, body="Another line.").id == address
    found = store.find(USER, address)
    assert found is not None
    assert found[1].entries[found[2]].segment.body == "Another line."
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8").endswith(THREE)


def test_what_is_not_there_cannot_be_changed_or_forgotten(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    for call in (
        lambda: store.update(USER, "seg_9", body="x"),
        lambda: store.remove(USER, "seg_9"),
        lambda: store.remove(USER, "seg_9", purge=True),
        lambda: store.remove(USER, "seg_9", dry_run=True),
        lambda: store.unforget(USER, "seg_9"),
    ):
        with pytest.raises(NotFoundError):
            call()
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == THREE


# Preconditions


def test_an_expected_digest_that_holds_lets_the_write_pass(tmp_path: Path):
    store = open_store(tmp_path)
    made = store.add(USER, "one", kind="fact", expect="")
    data = (tmp_path / "user/memory.md").read_bytes()
    store.add(USER, "two", kind="fact", expect=hashlib.sha256(data).hexdigest())
    store.update(USER, made.id, body="uno", expect=entries(store, USER)[0].digest)
    store.remove(USER, made.id, expect=entries(store, USER)[0].digest)
    assert bodies(store, USER) == ["two"]


def test_an_expected_digest_that_fails_refuses_and_keeps_the_text(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    actual = entries(store, USER)[0].digest
    for call in (
        lambda: store.update(USER, "seg_1", body="my precious text", expect="0" * 64),
        lambda: store.add(USER, "my precious text", kind="fact", expect="0" * 64),
        lambda: store.add(USER, "my precious text", kind="fact", expect=""),
        lambda: store.update(USER, "seg_9", body="my precious text", expect=actual),
    ):
        with pytest.raises(ConflictError) as caught:
            call()
        assert caught.value.expected != caught.value.actual
        kept = Path((caught.value.hint or "").rpartition(" ")[2])
        assert "my precious text" in kept.read_text(encoding="utf-8")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        kept.unlink()
    with pytest.raises(ConflictError) as caught:
        store.remove(USER, "seg_1", expect="0" * 64)
    assert (caught.value.expected, caught.value.actual) == ("0" * 64, actual)
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8") == THREE


def test_an_edit_made_from_an_older_copy_is_merged_or_both_texts_are_kept(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    base = entries(store, USER)[1].segment
    path = tmp_path / "user/memory.md"
    path.write_text(THREE.replace("Body 2.", "By hand."), encoding="utf-8")
    merged = store.update(USER, "seg_2", tags=["t"], base=base)
    assert merged.conflict is None
    found = entries(store, USER)[1].segment
    assert (found.body, found.tags) == ("By hand.", ("t",))

    both = store.update(USER, "seg_2", body="By the agent.", base=base)
    assert both.conflict is not None
    assert [problem.code for problem in both.problems] == ["edit-conflict"]
    loser = store.find(USER, both.conflict.rpartition("#")[2])
    assert loser is not None
    segment = loser[1].entries[loser[2]].segment
    assert segment.body == "By the agent."
    assert "conflict" in segment.tags
    assert entries(store, USER)[1].segment.body == "By hand."
    before = path.read_bytes()
    assert store.update(USER, "seg_2", body="By the agent.", base=base).conflict == both.conflict
    assert path.read_bytes() == before, "the loser is kept once"


def test_a_segment_that_is_gone_refuses_an_edit_made_from_a_copy(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    base = entries(store, USER)[1].segment
    store.remove(USER, "seg_2")
    with pytest.raises(ConflictError):
        store.update(USER, "seg_2", body="late", base=base)
    assert b"late" in everything(tmp_path / ".h2ams/conflicts")


# Dry runs


def test_a_dry_run_shows_the_diff_and_touches_nothing(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    store = open_store(tmp_path)
    before = everything(tmp_path)
    added = store.add(USER, "more", kind="fact", dry_run=True)
    assert added.created and "+more\n" in added.diff
    changed = store.update(USER, "seg_1", body="Else.", dry_run=True)
    assert changed.changed and "-Body 1.\n+Else.\n" in changed.diff
    removed = store.remove(USER, "seg_3", dry_run=True)
    assert removed.removed and "-Body 3.\n" in removed.diff
    with pytest.raises(ConflictError):
        store.update(USER, "seg_1", body="Else.", expect="0" * 64, dry_run=True)
    assert everything(tmp_path) == before
    assert not (tmp_path / ".h2ams").exists()


# Limits and files that are not rewritten


def test_k78_a_body_over_the_limit_is_refused_with_all_three_numbers(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE + "\n" + segment_text("seg_4", "x" * 5_000)})
    store = open_store(tmp_path, settings=Settings(max_segment_chars=4_000))
    before = snapshot(tmp_path)
    with pytest.raises(LimitError) as caught:
        store.add(USER, "y" * 4_001, kind="fact")
    error = caught.value
    assert (error.name, error.limit, error.size, error.current) == (
        "max_segment_chars",
        4_000,
        4_001,
        0,
    )
    with pytest.raises(LimitError) as caught:
        store.update(USER, "seg_1", body="y" * 4_001)
    assert caught.value.current == len("Body 1.")
    assert snapshot(tmp_path) == before
    assert store.add(USER, "y" * 4_000, kind="fact").created
    assert store.update(USER, "seg_4", tags=["long"]).changed, "a hand edit may stay long"


def test_a_file_never_grows_over_its_limit_but_may_shrink(tmp_path: Path):
    put(tmp_path, {"user/memory.md": THREE})
    size = len(THREE.encode())
    store = open_store(tmp_path, settings=Settings(max_file_bytes=size))
    with pytest.raises(LimitError) as caught:
        store.add(USER, "more", kind="fact")
    error = caught.value
    assert (error.name, error.limit, error.current) == ("max_file_bytes", size, size)
    assert error.size > size
    assert store.remove(USER, "seg_1").removed
    small = open_store(tmp_path, settings=Settings(max_file_bytes=100))
    with pytest.raises(LimitError) as caught:
        small.add(USER, "more", kind="fact")
    assert caught.value.name == "max_file_bytes"


def test_a_header_that_would_not_be_read_back_is_refused(tmp_path: Path):
    store = open_store(tmp_path)
    with pytest.raises(LimitError) as caught:
        store.add(USER, "text", kind="fact", tags=["x" * 1_025])
    assert caught.value.name == "max_scalar_chars"
    with pytest.raises(LimitError) as caught:
        store.add(USER, "text", kind="fact", tags=[f"{'x' * 900}{number}" for number in range(20)])
    assert caught.value.name == "max_header_bytes"


def test_a_file_that_is_not_utf8_is_read_but_not_rewritten_without_force(tmp_path: Path):
    data = THREE.encode().replace(b"Body 2.", b"Caf\xe9.")
    put(tmp_path, {"user/memory.md": data})
    store = open_store(tmp_path)
    for call in (
        lambda: store.add(USER, "more", kind="fact"),
        lambda: store.update(USER, "seg_1", body="x"),
        lambda: store.remove(USER, "seg_1"),
    ):
        with pytest.raises(ReadOnlyError) as caught:
            call()
        assert caught.value.hint
        assert caught.value.path == "user/memory.md"
    assert (tmp_path / "user/memory.md").read_bytes() == data
    store.update(USER, "seg_1", body="Forced.", force=True)
    assert b"Caf\xe9." in (tmp_path / "user/memory.md").read_bytes()
    store.remove(USER, "seg_1", force=True)
    assert bodies(store, USER)[1] == "Body 3."


def test_k70_a_segment_with_a_repeated_key_stays_as_it_is_beside_others(tmp_path: Path):
    repeated = "---\nid: a1\ntags: [x]\nid: b2\n---\nHand-made.\n"
    put(tmp_path, {"user/memory.md": repeated + "\n" + THREE})
    store = open_store(tmp_path)
    for call in (
        lambda: store.update(USER, "b2", body="x"),
        lambda: store.remove(USER, "b2"),
    ):
        with pytest.raises(ReadOnlyError):
            call()
    store.update(USER, "seg_1", body="Changed.")
    store.add(USER, "more", kind="fact")
    assert (tmp_path / "user/memory.md").read_text(encoding="utf-8").startswith(repeated)


def test_threads_of_one_process_lose_nothing(tmp_path: Path):
    store = open_store(tmp_path)

    def work(name: str) -> None:
        for number in range(15):
            store.add(SESSION, f"{name} {number}", kind="fact")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, "abcd"))
    assert sorted(bodies(store, SESSION)) == sorted(
        f"{name} {number}" for name in "abcd" for number in range(15)
    )


# Properties

texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("-\n`\\:#<> "), max_size=40
)
kinds = st.sampled_from(["fact", "decision"])


@given(st.lists(st.tuples(texts.filter(str.strip), kinds), max_size=5), texts)
def test_whatever_is_added_is_there_once_and_the_old_file_is_a_prefix_or_infix(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[str, str]], start: str
):
    folder = tmp_path_factory.mktemp("root")
    put(folder, {"user/memory.md": start})
    store = open_store(folder)
    before = store.documents(USER)[0][1].entries
    for body, kind in wanted:
        store.add(USER, body, kind=kind)
    after = store.documents(USER)[0][1].entries
    assert {entry.raw for entry in before} <= {entry.raw for entry in after}
    kept = {(entry.segment.body, entry.segment.kind) for entry in after}
    assert {(Segment(body=body).body, kind) for body, kind in wanted} <= kept
