"""Active sets on disk: restarts, other processes, broken files, historical state."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from h2ams.active.ams import ActiveSet, Use
from h2ams.active.registry import MAX_BYTES, Registry
from h2ams.errors import StoreError
from h2ams.files import Root

_STATE = ActiveSet(
    turn=3,
    recent=(Use(3, "user#a"), Use(1, "sessions/s1#用户")),
    pinned=("user#p",),
    evicted=("user#e",),
    task="0a1b2c3d",
    adjust_ran=True,
)


class _Reports(list[tuple[str, str, str]]):
    def __call__(self, code: str, message: str, path: str) -> None:
        self.append((code, message, path))


@pytest.fixture
def reports() -> _Reports:
    return _Reports()


@pytest.fixture
def registry(tmp_path: Path, reports: _Reports) -> Registry:
    return Registry(Root(tmp_path), report=reports)


def _files(tmp_path: Path) -> list[str]:
    folder = tmp_path / ".h2ams" / "ams"
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def _put(registry: Registry, session: str = "s1", vp: str | None = "alice") -> None:
    registry.update(session, vp, lambda _: _STATE)


def test_a_state_survives_a_restart(tmp_path: Path, registry: Registry) -> None:
    _put(registry)
    again = Registry(Root(tmp_path))
    assert again.load("s1", "alice") == _STATE
    assert again.load("s1") == again.load("s2", "alice") == ActiveSet()


def test_the_file_is_where_the_documentation_says_and_holds_identity_only(
    tmp_path: Path, registry: Registry
) -> None:
    _put(registry)
    path = tmp_path / ".h2ams" / "ams" / "s1" / "alice.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text(encoding="utf-8")) == {
        "version": 2,
        "session": "s1",
        "vp": "alice",
        "turn": 3,
        "recent": [["user#a", 3], ["sessions/s1#用户", 1]],
        "pinned": ["user#p"],
        "evicted": ["user#e"],
        "task": "0a1b2c3d",
        "adjust_ran": True,
    }


def test_equal_states_are_equal_bytes_and_an_idle_change_writes_nothing(
    tmp_path: Path, registry: Registry
) -> None:
    _put(registry)
    path = tmp_path / ".h2ams" / "ams" / "s1" / "alice.json"
    before = (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
    assert registry.update("s1", "alice", lambda state: replace(state)) == _STATE
    assert (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino) == before


def test_loading_creates_nothing(tmp_path: Path, registry: Registry) -> None:
    registry.load("s1", "alice")
    registry.drop("s2")
    assert not (tmp_path / ".h2ams" / "ams").exists()


def test_hydrating_leaves_out_what_is_gone_or_not_allowed(registry: Registry) -> None:
    _put(registry)
    found = registry.load("s1", "alice", resolve={"user#a": "user#a"}.get)
    assert found == replace(_STATE, recent=(Use(3, "user#a"),), pinned=(), evicted=())


@pytest.mark.parametrize(
    "pairs",
    [
        [("s1", "alice"), ("s1", None), ("s1", "none"), ("s1", "Alice"), ("S1", "alice")],
        [("chat", "x"), ("a.json", None), ("a", "json"), ("x" * 128, "y" * 128)],
        [("漢" * 128, "字" * 128), ("漢" * 127, "字" * 128), ("ß", None), ("ss", None)],
    ],
)
def test_each_session_and_vp_has_a_set_of_its_own(
    tmp_path: Path, registry: Registry, pairs: list[tuple[str, str | None]]
) -> None:
    for at, (session, vp) in enumerate(pairs):
        registry.update(session, vp, lambda _, at=at: ActiveSet(turn=at + 1))
        registry.update(session, vp, lambda _, at=at: ActiveSet(turn=at + 50), family="chat")
    for at, (session, vp) in enumerate(pairs):
        assert registry.load(session, vp).turn == at + 1
        assert registry.load(session, vp, family="chat").turn == at + 50
    names = [name.casefold() for name in _files(tmp_path)]
    assert len(set(names)) == len(names) == 2 * len(pairs)


def test_two_unicode_forms_of_an_id_are_one(registry: Registry) -> None:
    registry.update("caf\u00e9", None, lambda _: ActiveSet(turn=7))
    assert registry.load("cafe\u0301").turn in (0, 7)  # ids arrive in NFC; no error either way


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"version": 3}',
        b'{"version": 2}',
        b" " * (MAX_BYTES + 1),
        b"9" * 5_000,
    ],
)
def test_a_corrupt_file_is_a_cold_start_reported_and_set_aside(
    tmp_path: Path, registry: Registry, reports: _Reports, data: bytes
) -> None:
    _put(registry)
    folder = tmp_path / ".h2ams" / "ams" / "s1"
    (folder / "alice.json").write_bytes(data)
    assert registry.load("s1", "alice") == ActiveSet()
    ((code, message, where),) = reports
    assert code == "ams-state" and "cold" in message
    assert (tmp_path / ".h2ams" / where).read_bytes() == data
    assert not (folder / "alice.json").exists()
    _put(registry)
    assert registry.load("s1", "alice") == _STATE
    assert len(reports) == 1


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    key=st.sampled_from(
        ["version", "session", "vp", "turn", "recent", "pinned", "evicted", "task", "adjust_ran"]
    ),
    value=_VALUES,
)
def test_any_wrong_value_is_a_cold_start_never_an_error(
    tmp_path: Path, registry: Registry, key: str, value: object
) -> None:
    _put(registry)
    path = tmp_path / ".h2ams" / "ams" / "s1" / "alice.json"
    fields = json.loads(path.read_text(encoding="utf-8")) | {key: value}
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert isinstance(registry.load("s1", "alice"), ActiveSet)
    _put(registry)
    assert registry.load("s1", "alice") == _STATE


def test_another_sessions_file_is_not_taken(tmp_path: Path, registry: Registry) -> None:
    _put(registry)
    folder = tmp_path / ".h2ams" / "ams"
    (folder / "s1").rename(folder / "s2")
    assert registry.load("s2", "alice") == ActiveSet()


def test_without_a_reporter_a_cold_start_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(Root(tmp_path))
    _put(registry)
    (tmp_path / ".h2ams" / "ams" / "s1" / "alice.json").write_bytes(b"{")
    with caplog.at_level(logging.WARNING):
        registry.load("s1", "alice")
    assert "cold" in caplog.text


def test_a_failed_write_leaves_the_old_state(tmp_path: Path) -> None:
    """The n-th file operation fails, for n = 1, 2, 3 … until none does."""
    seen: list[str] = []
    fail_at = [0]

    def hook(operation: str, path: str) -> None:
        if path.startswith(str(tmp_path / ".h2ams" / "ams")) and operation != "read":
            seen.append(operation)
            if len(seen) == fail_at[0]:
                raise OSError(28, "No space left on device")

    registry = Registry(Root(tmp_path, hook=hook))
    _put(registry)
    assert len(seen) > 3
    for number in range(1, len(seen)):
        seen.clear()
        fail_at[0] = 0
        before = registry.load("s1", "alice")
        fail_at[0] = number
        try:
            registry.update("s1", "alice", lambda state: state.next_turn())
        except StoreError:
            assert len(seen) == number
            assert registry.load("s1", "alice") in (before, before.next_turn())
        else:
            assert len(seen) < number
    assert _files(tmp_path) == ["s1/alice.json"]


_WORKER = """
import sys
from h2ams.active.registry import Registry
from h2ams.files import Root

root, name, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
registry = Registry(Root(root))
print("ready", flush=True)
sys.stdin.readline()
for at in range(rounds):
    def change(state):
        state = state.next_turn().touch([f"user#{name}{at}"], keep=500)
        return state.pin([f"user#pin{name}{at}"]) if at < 9 else state
    registry.update("s1", "alice", change)
    registry.load("s1", "alice")
"""


def test_two_processes_on_one_session_merge_and_never_corrupt(
    tmp_path: Path, reports: _Reports
) -> None:
    rounds = 40
    arguments = [sys.executable, "-c", _WORKER, str(tmp_path)]
    workers = [
        subprocess.Popen(
            [*arguments, name, str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        for name in "xy"
    ]
    registry = Registry(Root(tmp_path), report=reports)
    for worker in workers:
        assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    while any(worker.poll() is None for worker in workers):
        registry.load("s1", "alice")
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    state = registry.load("s1", "alice")
    assert reports == []
    assert state.turn == 2 * rounds
    assert {use.address for use in state.recent} == {
        f"user#{name}{at}" for name in "xy" for at in range(rounds)
    }
    assert set(state.pinned) == {f"user#pin{name}{at}" for name in "xy" for at in range(9)}
    assert _files(tmp_path) == ["s1/alice.json"]


def test_threads_of_one_process_merge_too(registry: Registry) -> None:
    def work(name: str) -> None:
        for at in range(20):
            registry.update("s1", None, lambda s, at=at: s.touch([f"user#{name}{at}"], keep=99))

    threads = [Thread(target=work, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(registry.load("s1").recent) == 60


def test_a_dropped_session_leaves_nothing_and_a_new_one_with_its_id_starts_empty(
    tmp_path: Path, registry: Registry
) -> None:
    """K19, the part of the active set."""
    _put(registry, "20261201_1", "alice")
    _put(registry, "20261201_1", None)
    _put(registry, "other", "alice")
    other_process = Registry(Root(tmp_path))
    assert other_process.load("20261201_1", "alice") == _STATE
    (tmp_path / ".h2ams" / "ams" / "20261201_1" / "alice.json").write_bytes(b"{broken")
    registry.load("20261201_1", "alice")  # sets it aside
    registry.drop("20261201_1")
    assert _files(tmp_path) == ["other/alice.json"]
    for each in (registry, other_process):
        assert each.load("20261201_1", "alice") == each.load("20261201_1") == ActiveSet()
    assert registry.load("other", "alice") == _STATE


def test_dropping_one_vp_keeps_the_others(tmp_path: Path, registry: Registry) -> None:
    for vp in ("alice", "alicea", None):
        _put(registry, "s1", vp)
    registry.drop("s1", "alice")
    assert _files(tmp_path) == ["s1/@none.json", "s1/alicea.json"]


_HISTORICAL = {
    "version": 1,
    "ownVpId": "linus",
    "onDemandIds": ["seg_695dbceb", "seg_gone0000"],
    "recentIds": ["seg_r"],
    "adjustRanThisSession": True,
    "savedAt": "2026-05-07T00:00:00.000Z",
}


def _historical(tmp_path: Path, folder: str, session: str = "s_demo", **fields: object) -> Path:
    path = tmp_path / folder / session / "ams.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(_HISTORICAL | fields), encoding="utf-8")
    return path


@pytest.mark.parametrize("folder", ["sessions", "session", "group", "groups", "chats"])
def test_historical_state_is_read_and_never_written(
    tmp_path: Path, registry: Registry, folder: str
) -> None:
    path = _historical(tmp_path, folder)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    resolve = {"seg_695dbceb": "sessions/s_demo#seg_695dbceb"}.get
    state = registry.load("s_demo", "linus", resolve=resolve)
    assert state.on_demand([]) == ("sessions/s_demo#seg_695dbceb",)
    assert state.recent == () and state.adjust_ran
    registry.update("s_demo", "linus", lambda old: old.touch(["user#new"], keep=9))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    state = registry.load("s_demo", "linus")
    assert [use.address for use in state.recent] == ["user#new", "seg_r"]
    assert state.pinned == ("seg_695dbceb", "seg_gone0000") and state.adjust_ran


def test_historical_state_of_a_chat_is_the_chats(tmp_path: Path, registry: Registry) -> None:
    _historical(tmp_path, "chats", "c1")
    assert registry.load("c1", "linus", family="chat").adjust_ran


def test_historical_state_of_another_vp_is_not_taken(tmp_path: Path, registry: Registry) -> None:
    _historical(tmp_path, "sessions")
    assert registry.load("s_demo", "ada") == registry.load("s_demo") == ActiveSet()
    _historical(tmp_path, "group", ownVpId=None)
    assert registry.load("s_demo", "ada").adjust_ran


def test_the_new_state_wins_over_the_historical_one(tmp_path: Path, registry: Registry) -> None:
    _historical(tmp_path, "sessions")
    registry.update("s_demo", "linus", lambda _: ActiveSet(turn=1))
    assert registry.load("s_demo", "linus") == ActiveSet(turn=1)


@pytest.mark.parametrize("text", ["", "{", '{"version": 1, "onDemandIds": 7}', '{"version": 9}'])
def test_corrupt_historical_state_is_a_cold_start_and_stays(
    tmp_path: Path, registry: Registry, reports: _Reports, text: str
) -> None:
    path = _historical(tmp_path, "sessions")
    path.write_text(text, encoding="utf-8")
    assert registry.load("s_demo", "linus") == ActiveSet()
    assert [where for _, _, where in reports] == ["sessions/s_demo/ams.json"]
    assert path.read_text(encoding="utf-8") == text


def test_historical_state_that_lacks_keys_is_read(tmp_path: Path, registry: Registry) -> None:
    path = _historical(tmp_path, "sessions")
    path.write_text('{"onDemandIds": ["seg_a"]}', encoding="utf-8")
    assert registry.load("s_demo", "linus").pinned == ("seg_a",)


def test_dropping_a_session_whose_historical_file_stays_does_not_bring_it_back(
    tmp_path: Path, registry: Registry
) -> None:
    path = _historical(tmp_path, "groups")
    registry.drop("s_demo")
    assert registry.load("s_demo", "linus") == ActiveSet()
    assert path.exists()
    registry.update("s_demo", "linus", lambda state: state.next_turn())
    assert registry.load("s_demo", "linus") == ActiveSet(turn=1)


def test_an_unreadable_historical_file_is_reported(
    tmp_path: Path, registry: Registry, reports: _Reports
) -> None:
    (tmp_path / "sessions" / "s1" / "ams.json").mkdir(parents=True)
    assert registry.load("s1", "alice") == ActiveSet()
    assert [where for _, _, where in reports] == ["sessions/s1/ams.json"]


def test_a_linked_state_folder_is_not_followed(tmp_path: Path, registry: Registry) -> None:
    outside = tmp_path / "outside"
    (outside / "s1").mkdir(parents=True)
    (outside / "s1" / "alice.json").write_text("{}", encoding="utf-8")
    (tmp_path / ".h2ams").mkdir(exist_ok=True)
    os.symlink(outside, tmp_path / ".h2ams" / "ams")
    with pytest.raises(StoreError):
        registry.drop("s1")
    assert (outside / "s1" / "alice.json").exists()
