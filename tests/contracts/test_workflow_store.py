"""One conformance suite for every store of workflows: SQLite and PostgreSQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from h2ams.errors import ConflictError, QuotaExceeded, StoreError, UsageError
from h2ams.stacks import quota
from h2ams.stacks.exchange import Round, to_json
from h2ams.stacks.log import replay
from h2ams.stacks.postgres_store import PostgresWorkflowStore
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow import Workflow
from h2ams.stacks.workflow_store import Snapshot, StoreHook, TransactionalStore

Make = Callable[..., TransactionalStore]

KEYS = st.sampled_from(["a.1", "a.2", "a.b.1", "b", "ключ", 'q"uote', "tab\t", "😀"])
VALUES = st.none() | st.text(max_size=12).map(to_json) | st.integers().map(to_json)
CHANGES = st.dictionaries(KEYS, VALUES, max_size=4)
STEPS = st.lists(st.one_of(CHANGES, st.just("checkpoint")), max_size=8)
EACH_STORE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]
)


def as_json(members: Mapping[str, str | None]) -> str:
    """``workflowStore`` or ``workflowStoreChangeLog`` as one JSON text, made from nothing."""
    values = {key: None if text is None else json.loads(text) for key, text in members.items()}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


class StoreContract:
    """What each store must do. ``make(name)`` opens the store called ``name``."""

    @pytest.fixture
    def make(self) -> Make:
        raise NotImplementedError

    def test_a_new_store_is_empty(self, make: Make) -> None:
        store = make("w")
        assert store.snapshot() == Snapshot({}, {}, frozenset())
        assert store.get("a") is None
        assert store.footprint().bytes == len("{}") + len("{}")

    def test_what_was_projected_is_there_and_survives_a_reopening(self, make: Make) -> None:
        with_text = {"a.1": to_json("line\n\0😀"), "a.2": to_json({"b": 1})}
        make("w").project(with_text)
        store = make("w")
        assert dict(store.items("")) == with_text
        assert store.get("a.1") == with_text["a.1"]
        assert store.change_log() == with_text

    def test_items_are_those_of_the_prefix_in_order(self, make: Make) -> None:
        store = make("w")
        keys = ["a", "a.2", "a.10", "a.b.1", "a/x", "ab.1", "b.1", "a.😀", "a.\uffff"]
        store.project(dict.fromkeys(keys, "1"))
        assert [key for key, _ in store.items("a.")] == sorted(k for k in keys if k[:2] == "a.")
        assert [key for key, _ in store.items("")] == sorted(keys)
        with pytest.raises(UsageError):
            store.items("a")

    def test_a_projection_is_refused_whole_when_an_expectation_fails(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1", "b": "2"})
        before = store.snapshot()
        for expect in ({"a": "2"}, {"a": None}, {"c": "1"}, {"a": "1", "b": "1"}):
            with pytest.raises(ConflictError):
                store.project({"a": "9", "z": "9"}, expect=expect)
        assert store.snapshot() == before
        store.project({"a": "9"}, expect={"a": "1", "c": None})
        assert store.get("a") == "9"

    def test_over_the_quota_nothing_is_written(self, make: Make) -> None:
        store = make("w", quota_bytes=100)
        store.project({"a": to_json("x" * 20)})
        before = store.snapshot()
        with pytest.raises(QuotaExceeded) as caught:
            store.project({"b": to_json("y" * 45), "a": None})
        assert caught.value.limit == 100 and caught.value.needed > 100
        assert store.snapshot() == before

    def test_the_quota_is_exact_to_the_byte(self, make: Make) -> None:
        make("one").project({"a": to_json("é" * 30)})
        size = make("one").footprint().bytes
        store = make("two", quota_bytes=size - 1)
        with pytest.raises(QuotaExceeded) as caught:
            store.project({"a": to_json("é" * 30)})
        assert caught.value.needed == size
        make("three", quota_bytes=size).project({"a": to_json("é" * 30)})

    def test_what_shrinks_is_written_even_over_a_lowered_quota(self, make: Make) -> None:
        make("w").project({"a": to_json("x" * 100), "b": to_json("y" * 100)})
        store = make("w", quota_bytes=60)
        store.project({"a": to_json("x" * 90)})
        with pytest.raises(QuotaExceeded):
            store.project({"a": to_json("x" * 91)})

    @pytest.mark.parametrize("key", ["", "nul\0", "lone \ud800"])
    def test_a_key_that_cannot_be_kept_is_refused(self, make: Make, key: str) -> None:
        store = make("w")
        with pytest.raises(UsageError):
            store.project({"a": "1", key: "2"})
        assert store.items("") == []

    def test_a_preview_is_what_the_projection_then_gives(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1", "b": "2"})
        store.checkpoint()
        changes = {"a": None, "c": to_json("new"), "b": "2"}
        before = store.snapshot()
        seen = store.preview(changes)
        assert store.snapshot() == before
        assert store.project(changes) == seen

    def test_later_writes_supersede_earlier_ones_in_the_log(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1"})
        store.project({"a": "2"})
        assert store.change_log() == {"a": "2"}

    def test_a_set_followed_by_a_delete_leaves_the_delete_alone(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1"})
        store.checkpoint()
        store.project({"a": "2"})
        store.project({"a": None})
        assert store.change_log() == {"a": None}
        store.project({"a": "3"})
        assert store.change_log() == {"a": "3"}

    def test_keys_that_never_reached_the_checkpoint_vanish(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1"})
        store.project({"a": None})
        assert store.change_log() == {}
        assert store.footprint() == quota.Footprint()

    def test_the_same_value_again_is_no_change(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1"})
        store.checkpoint()
        store.project({"a": "1", "missing": None})
        assert store.change_log() == {}

    def test_log_and_footprint_agree_with_the_store_after_any_history(self, make: Make) -> None:
        count = 0

        @EACH_STORE
        @given(steps=STEPS)
        def run(steps: list[dict[str, str | None] | str]) -> None:
            nonlocal count
            count += 1
            store = make(f"w{count}")
            model: dict[str, str] = {}
            base: dict[str, str] = {}
            for step in steps:
                if isinstance(step, str):
                    store.checkpoint()
                    base = dict(model)
                else:
                    store.project(step)
                    model = replay(model, step)
                found = store.snapshot()
                assert found.items == model
                assert replay(base, found.log) == model
                assert {key for key, value in found.log.items() if value is None} <= set(base)
                assert found.fresh == {key for key in found.log if key not in base}
                assert store.footprint() == quota.recomputed(found.items, found.log)
                documents = [as_json(found.items), as_json(found.log)]
                size = sum(len(each.encode()) for each in documents)
                assert store.footprint().bytes == size
            store.close()

        run()

    def test_a_copy_holds_the_same_with_its_log_and_is_independent(self, make: Make) -> None:
        store = make("w")
        store.project({"a": "1", "b": "2"})
        store.checkpoint()
        store.project({"a": None, "c": "3"})
        copy = make("copy")
        assert copy.load(store.snapshot()) == store.footprint()
        assert copy.snapshot() == store.snapshot()
        copy.project({"c": None, "b": "9"})
        assert copy.change_log() == {"a": None, "b": "9"}
        assert store.get("c") == "3" and store.get("b") == "2"

    def test_a_store_that_holds_something_takes_no_copy(self, make: Make) -> None:
        store, other = make("w"), make("other")
        store.project({"a": "1"})
        other.project({"b": "1"})
        with pytest.raises(ConflictError):
            other.load(store.snapshot())
        assert dict(other.items("")) == {"b": "1"}

    def test_a_copy_is_refused_over_the_quota(self, make: Make) -> None:
        store, small = make("w"), make("small", quota_bytes=50)
        store.project({"a": to_json("x" * 60)})
        with pytest.raises(QuotaExceeded):
            small.load(store.snapshot())
        assert small.snapshot() == Snapshot({}, {}, frozenset())

    def test_an_error_at_any_step_of_a_projection_leaves_the_old_state(self, make: Make) -> None:
        make("w").project({"a": "1", "b": "2", "c": "3"})
        before = make("w").snapshot()
        steps: list[str] = []

        class Stopped(Exception):
            pass

        def at(number: int) -> StoreHook:
            def hook(step: str) -> None:
                steps.append(step)
                if len(steps) == number:
                    raise Stopped

            return hook

        seen = 0
        for number in range(1, 50):
            steps.clear()
            store = make("w", hook=at(number))
            try:
                store.project({"a": "9", "b": None, "d": "4", "c": "5"})
            except Stopped:
                seen += 1
                if steps[-1] == "committed":
                    break
                assert make("w").snapshot() == before, steps
                assert store.snapshot() == before, steps
            else:
                raise AssertionError("the hook was not called")
        assert seen >= 8, "too few steps for the test to mean anything"
        assert dict(make("w").items("")) == {"a": "9", "c": "5", "d": "4"}

    def test_two_writers_of_one_key_lose_no_update(self, make: Make) -> None:
        make("w").project({"n": "0"})

        def count_up() -> None:
            store = make("w")
            done = 0
            while done < 20:
                seen = store.get("n")
                assert seen is not None
                try:
                    store.project({"n": str(int(seen) + 1)}, expect={"n": seen})
                    done += 1
                except ConflictError:
                    continue

        threads = [threading.Thread(target=count_up) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert make("w").get("n") == "60"
        assert make("w").footprint().store.members == 1

    def test_workers_that_append_to_one_game_at_once_lose_no_round(self, make: Make) -> None:
        def work(name: str) -> None:
            workflow = Workflow(make("w"))
            for number in range(12):
                workflow.append_round(Round(f"{name}{number}", "ask", "answer"))

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        workflow = Workflow(make("w"))
        found = [each.round_id for each in workflow.stack().exchanges]
        assert sorted(found) == sorted(f"{name}{n}" for name in "abc" for n in range(12))
        for name in "abc":  # each worker's own order is kept
            assert [id for id in found if id[0] == name] == [f"{name}{n}" for n in range(12)]
        assert workflow.chars() == len(workflow.canonical_text())

    def test_errors_hold_no_value(self, make: Make) -> None:
        store = make("w", quota_bytes=60)
        marker = "MARKER-ultramarine"
        failures = []
        for changes, expect in (
            ({"a": to_json(marker * 9)}, None),
            ({"a": to_json(marker)}, {"a": to_json(marker)}),
        ):
            with pytest.raises(StoreError) as caught:
                store.project(changes, expect=expect)
            failures.append(f"{caught.value!r} {caught.value.hint} {caught.value.__dict__}")
        assert len(failures) == 2 and not any(marker in each for each in failures)


class TestSqliteWorkflowStore(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        def make(name: str, **how: object) -> TransactionalStore:
            return SqliteWorkflowStore(tmp_path / f"{name}.db", **how)  # type: ignore[arg-type]

        return make

    def test_a_file_that_is_no_store_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        file = tmp_path / "other.db"
        file.write_bytes(b"not a database, but somebody's text" * 100)
        before = file.read_bytes()
        with pytest.raises(StoreError):
            SqliteWorkflowStore(file)
        assert file.read_bytes() == before

    def test_a_database_of_somebody_else_is_refused(self, tmp_path: Path) -> None:
        from h2ams import sqlite

        connection = sqlite.connect(str(tmp_path / "theirs.db"))
        connection.execute("CREATE TABLE theirs (x)")
        connection.close()
        with pytest.raises(StoreError, match="no workflow store"):
            SqliteWorkflowStore(tmp_path / "theirs.db")

    def test_it_syncs_fully_at_every_commit(self, tmp_path: Path) -> None:
        store = SqliteWorkflowStore(tmp_path / "w.db")
        assert store._connection.execute("PRAGMA synchronous").fetchall() == [(2,)]

    def test_a_missing_one_is_not_made_where_that_is_not_wanted(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError):
            SqliteWorkflowStore(tmp_path / "w.db", create=False)
        assert not (tmp_path / "w.db").exists()


class TestPostgresWorkflowStore(StoreContract):
    @pytest.fixture
    def make(self, postgres_url: str, request: pytest.FixtureRequest) -> Make:
        def make(name: str, **how: object) -> TransactionalStore:
            store = PostgresWorkflowStore(postgres_url, name, **how)  # type: ignore[arg-type]
            request.addfinalizer(store.close)
            return store

        return make

    def test_workflows_of_one_database_do_not_see_each_other(self, make: Make) -> None:
        make("one").project({"a": "1"})
        make("two").project({"a": "2"})
        assert make("one").get("a") == "1" and make("two").get("a") == "2"

    def test_a_missing_one_is_not_made_where_that_is_not_wanted(self, postgres_url: str) -> None:
        with pytest.raises(StoreError, match="none in this database"):
            PostgresWorkflowStore(postgres_url, "w", create=False)

    def test_a_broken_connection_is_made_anew_by_the_next_call(self, make: Make) -> None:
        store, other = make("w"), make("w")
        store.project({"a": "1"})
        pid = store._connection().info.backend_pid  # type: ignore[attr-defined]
        other._connection().execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))  # type: ignore[attr-defined]
        with pytest.raises(StoreError):
            store.project({"a": "2"})
        store.project({"a": "3"})
        assert other.get("a") == "3"

    def test_stateless_workers_may_all_make_the_tables_at_once(self, postgres_url: str) -> None:
        failed: list[BaseException] = []

        def work(name: str) -> None:
            try:
                store = PostgresWorkflowStore(postgres_url, name)
                store.project({"a": "1"})
                store.close()
            except BaseException as error:  # noqa: BLE001 - shown by the assertion below
                failed.append(error)

        threads = [threading.Thread(target=work, args=(f"w{n % 2}",)) for n in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not failed
