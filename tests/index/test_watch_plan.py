"""Which events matter, and when a batch of hints is due: values only, no clock, no disk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.index.watch_plan import (
    EVERYTHING,
    MOST_PATHS,
    MOST_WAITS,
    RETRY_FIRST_MS,
    RETRY_MOST_MS,
    Batch,
    Entry,
    Work,
    outermost,
    target_of,
)

EMPTY = Batch(debounce_ms=100)


@pytest.mark.parametrize(
    "path",
    [
        "user/memory.md",
        "chat/1/memory.md",
        "group/s1/memory.md",
        "sessions/s1/session.md",
        "sessions/s1/vp/alice/content.md",
        "topic/rust/notes/deep/ownership.md",
        "a note at the root.md",
        "vault/daily/2026-05-01.md",
    ],
)
def test_a_change_of_a_tracked_file_asks_for_that_file(path: str) -> None:
    assert target_of(path, Entry.FILE) == path
    assert target_of(path, Entry.EITHER) == path


@pytest.mark.parametrize(
    "path",
    [
        "chat/1/memory~.md",  # K124
        "chat/1/.memory.md.swp",
        "chat/1/.#memory.md",
        "chat/1/memory.md.tmp",
        "chat/1/4913",
        "chat/1/memory.md.bak",
        "chat/1/memory.md~",
        "chat/1/.memory.md.1f2e.tmp",
        "chat/1/archive.md",
        "chat/1/picture.png",
        "chat/1/memory (conflicted copy 2026-05-01).md",
        "chat/loose.md",  # no scope of its own
        ".h2ams/index.db-wal",
        ".h2ams/conflicts/memory.md",
        ".git/index.lock",
        "vault/.obsidian/notes.md",
        "vault/node_modules/readme.md",
        "sessions/../memory.md",
        "VP/alice/memory.md",
    ],
)
def test_noise_asks_for_nothing(path: str) -> None:
    assert target_of(path, Entry.FILE) is None


@pytest.mark.parametrize("path", [".h2ams", ".git", "vault/.trash", "node_modules", "vp/a b\n"])
def test_a_folder_that_a_scan_does_not_enter_asks_for_nothing(path: str) -> None:
    assert target_of(path, Entry.FOLDER) is None


def test_a_folder_asks_for_all_below_it_and_the_root_for_everything() -> None:
    assert target_of("sessions", Entry.FOLDER) == "sessions"
    assert target_of("chat/1", Entry.FOLDER) == "chat/1"
    assert target_of("", Entry.FOLDER) == ""


def test_what_may_have_been_a_folder_counts_as_one() -> None:
    assert target_of("chat/1", Entry.FILE) is None
    assert target_of("chat/1", Entry.EITHER) == "chat/1"


def test_with_links_any_change_may_change_what_is_read_elsewhere() -> None:
    assert target_of("user/memory.md", Entry.FILE, linked=True) == ""
    assert target_of("shared/text.txt", Entry.FILE, linked=True) == ""
    assert target_of("chat/1", Entry.FOLDER, linked=True) == ""
    assert target_of(".h2ams/index.db-wal", Entry.FILE, linked=True) is None
    assert target_of("user/memory.md.tmp", Entry.FILE, linked=True) is None


def test_a_batch_is_due_when_it_has_been_quiet_for_the_debounce_time() -> None:
    batch = EMPTY.noted("user/memory.md", 1_000).noted("user/memory.md", 1_060)
    assert batch.due_ms() == 1_160
    assert batch.take(1_159) is None
    work, rest = batch.take(1_160)
    assert work == Work(("user/memory.md",))
    assert rest.is_empty


def test_steady_changes_do_not_put_a_sync_off_for_ever() -> None:
    batch = EMPTY
    for time in range(0, 100_000, 50):
        batch = batch.noted("user/memory.md", time)
        assert batch.due_ms() <= MOST_WAITS * 100


def test_an_empty_batch_is_never_due() -> None:
    assert EMPTY.is_empty
    assert EMPTY.due_ms() is None
    assert EMPTY.take(1e12) is None


def test_very_many_paths_become_one_look_at_everything() -> None:
    batch = EMPTY
    for number in range(MOST_PATHS + 1):
        batch = batch.noted(f"chat/{number}/memory.md", 0)
    work, rest = batch.take(100)
    assert work == EVERYTHING
    assert rest.is_empty


def test_what_lies_below_a_changed_folder_is_not_asked_for_again() -> None:
    paths = frozenset({"a", "a/b", "a/b/c.md", "ab", "a b/c", "d/e"})
    assert outermost(paths) == ("a", "a b/c", "ab", "d/e")


def test_a_failed_sync_is_given_back_and_waits_longer_each_time() -> None:
    now, waits = 0.0, []
    batch = EMPTY.noted("user/memory.md", now)
    for _ in range(8):
        now = batch.due_ms()
        work, batch = batch.take(now)
        assert work == Work(("user/memory.md",))
        batch = batch.failed(work, now)
        waits.append(batch.due_ms() - now)
    assert waits[:3] == [RETRY_FIRST_MS, 2 * RETRY_FIRST_MS, 4 * RETRY_FIRST_MS]
    assert waits[-1] == RETRY_MOST_MS
    work, batch = batch.take(batch.due_ms())
    assert batch.succeeded() == batch.succeeded().succeeded()
    assert batch.succeeded().noted("x", now).due_ms() == now + 100


def test_a_failed_look_at_everything_stays_one() -> None:
    work, batch = EMPTY.noted("", 0).take(100)
    assert work == EVERYTHING
    work, _ = batch.noted("user/memory.md", 100).failed(work, 100).take(10_000)
    assert work == EVERYTHING


def test_a_look_at_everything_can_be_asked_for_at_once() -> None:
    assert EMPTY.all_at_once(50).take(50)[0] == EVERYTHING


def test_a_half_written_file_is_looked_at_again_without_an_event() -> None:
    batch = EMPTY.with_again(frozenset({"user/memory.md"}), 2_000)
    assert not batch.is_empty
    assert batch.take(1_999) is None
    assert batch.take(2_000) == (Work(("user/memory.md",)), batch.take(2_000)[1])
    assert batch.take(2_000)[1].is_empty
    early, rest = batch.noted("chat/1/memory.md", 0).take(100)
    assert early == Work(("chat/1/memory.md",))
    assert rest.due_ms() == 2_000
    assert batch.noted("", 0).take(100)[1].is_empty  # everything: that one too


TARGETS = st.sampled_from(["", "a", "a/x.md", "a/b/y.md", "b/z.md", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), TARGETS, st.integers(0, 500)),
        st.tuples(st.just("again"), TARGETS.filter(bool), st.integers(0, 3_000)),
        st.tuples(st.just("all"), st.just(""), st.just(0)),
        st.tuples(st.just("sync"), st.booleans(), st.integers(0, 500)),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_hint_is_ever_lost_whatever_fails(steps: list[tuple[str, object, int]]) -> None:
    batch, now, open_hints = EMPTY, 0.0, set()
    for what, value, later in [*steps, ("sync", True, 10_000), ("sync", True, 10_000)]:
        now += later
        if what == "note":
            batch = batch.noted(value, now)
            open_hints.add(value)
        elif what == "again":
            batch = batch.with_again(frozenset({value}), now + 100)
            open_hints.add(value)
        elif what == "all":
            batch = batch.all_at_once(now)
            open_hints.add("")
        elif (taken := batch.take(now)) is not None:
            work, batch = taken
            if value:
                batch = batch.succeeded()
                open_hints = {hint for hint in open_hints if not covered(hint, work)}
            else:
                batch = batch.failed(work, now)
                assert batch.due_ms() > now
    assert not open_hints
    assert batch.is_empty


def covered(hint: str, work: Work) -> bool:
    if not work.paths:
        return True
    return any(hint == path or hint.startswith(f"{path}/") for path in work.paths)
