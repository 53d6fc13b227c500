"""Operations on whole scopes, broken at every file operation and killed at random.

Whatever happens, the next one who opens the folder finds the old state or the new one, never half:
files, index, active sets, undo records. A migration may be found on its way, and is then finished.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from crash.lifecycle_worker import OPERATIONS, PARTS, look, outcome, plant_family, prepared
from folder import opened, write
from memory.lifecycle_kit import holding, leftovers, on, plant, segment, tree

from h2ams import ConflictError, H2amsError, Memory
from h2ams.errors import LockTimeoutError

WORKER = Path(__file__).with_name("lifecycle_worker.py")
KILLS = 5
# Least number of file operations: a test that breaks none of them shows nothing.
LEAST = {
    "delete": 120, "delete-vp": 60, "rename": 150, "rename-vp": 80, "clone": 120, "migrate": 80,
    "purge": 50,
}  # fmt: skip


# -- killed before the n-th file operation ---------------------------------------------------------


def killed(base: Path, name: str, step: int) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, str(WORKER), "every", str(base), name, str(step)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_kills(found: list[dict[str, object]], name: str, step: int) -> None:
    assert len(found) > LEAST[name] // step, "too few operations were broken"
    assert {each["status"] for each in found[:-1]} == {-signal.SIGKILL}
    assert found[-1]["status"] == 0 and found[-1]["state"] == "new"
    for each in found:
        assert each["state"] in ("old", "new"), each
        assert each["verified"] and each["leftovers"] == [], each
        if name == "delete":
            assert each["text_left"] == [], each
        if name == "migrate":
            assert each["same_reads"], each
    assert {each["state"] for each in found} == {"old", "new"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_before_some_file_operation_it_is_finished_or_undone(
    tmp_path: Path, name: str
) -> None:
    step = 31
    check_kills(killed(tmp_path, name, step), name, step)


@pytest.mark.long
@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_before_any_file_operation_it_is_finished_or_undone(
    tmp_path: Path, name: str
) -> None:
    check_kills(killed(tmp_path, name, 1), name, 1)


# -- the n-th file operation fails -----------------------------------------------------------------


class FailAt:
    """Raises at the n-th operation, and with ``dead`` at every one after it; counts all."""

    def __init__(self, number: int, code: int, *, dead: bool) -> None:
        self.number, self.code, self.dead, self.count = number, code, dead, 0

    def __call__(self, operation: str, path: str) -> None:
        self.count += 1
        if self.count == self.number or (self.dead and self.count > self.number):
            raise OSError(self.code, "simulated", path)


def broken(tmp_path: Path, name: str, step: int, *, dead: bool) -> None:
    """Break ``name`` at every ``step``-th file operation until it passes."""
    start, old, new = prepared(tmp_path, name)
    for number in range(1, 1_000, step):
        root = tmp_path / "work"
        shutil.copytree(start, root)
        memory = on(root, hook := FailAt(0, errno.EIO if number % 2 else errno.ENOSPC, dead=dead))
        hook.number, hook.count = number, 0
        hook.dead, failed = dead, False
        try:
            change = OPERATIONS[name](memory)
            changes = change if isinstance(change, tuple) else (change,)
            failed = any(each.failed for each in changes)
        except H2amsError:
            failed = True
        hook.number, hook.dead = 0, False
        found = outcome(root, old, new)
        assert found["verified"] and found["leftovers"] == [], (number, found)
        if name == "migrate":
            assert found["same_reads"], (number, found)
        elif not (name.startswith("rename") and failed and found["same_records"]):
            assert found["state"] in ("old", "new"), (number, found)
        if found["state"] == "old" or name == "migrate":
            with on(root) as again:
                OPERATIONS[name](again)
                assert look(again)["records"] == new["records"], number
        shutil.rmtree(root)
        if not failed and hook.count < number:
            assert number > LEAST[name]
            return
    pytest.fail("the operation never passed")


@pytest.mark.parametrize("name", OPERATIONS)
def test_when_some_file_operation_fails_it_is_old_or_new(tmp_path: Path, name: str) -> None:
    broken(tmp_path, name, 43, dead=False)


@pytest.mark.parametrize("name", ["delete", "rename", "migrate"])
def test_when_the_disk_dies_the_next_opening_finds_old_or_new(tmp_path: Path, name: str) -> None:
    broken(tmp_path, name, 53, dead=True)


@pytest.mark.long
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("name", OPERATIONS)
def test_when_any_file_operation_fails_it_is_old_or_new(
    tmp_path: Path, name: str, dead: bool
) -> None:
    broken(tmp_path, name, 1, dead=dead)


# -- killed at random ------------------------------------------------------------------------------


def start(root: Path, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), "random", str(root), str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8")


def kill_after(process: subprocess.Popen[str], count: int, seconds: float) -> list[str]:
    """Let it print so many lines and work a while longer, kill it; the lines it had printed."""
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    first = [process.stdout.readline().strip() for _ in range(count)]
    timer = threading.Timer(seconds, process.send_signal, [signal.SIGKILL])
    timer.start()
    with process.stdout:
        lines = [*first, *process.stdout.read().splitlines()]
    timer.join()
    assert process.wait() == -signal.SIGKILL
    return lines


def check_families(root: Path) -> int:
    """Every session is there whole, in all its parts; how many there are."""
    with opened(root) as memory:
        memory.sync()
        assert memory.verify().ok
        # What a killed `remember` left goes with the next write there; operations leave nothing.
        assert [path for path in leftovers(root) if not path.startswith("user/")] == []
        whole = {f"{part}#{id}" for part in PARTS for id in ("a", "b")}
        names = sorted(path.name for path in (root / "sessions").iterdir() if path.name[0] == "m")
        for name in names:
            records = [
                record
                for record in memory.list()
                if f"{record.scope}/".startswith(f"sessions/{name}/") and not record.is_note
            ]
            found = {record.address.removeprefix(f"sessions/{name}") for record in records}
            assert found == whole, (name, found)
            assert len({record.body.split()[0] for record in records}) == 1, name
        marks = (
            {path.name for path in (root / "group").iterdir()}
            if (root / "group").is_dir()
            else set()
        )
        assert {mark for mark in marks if mark[0] == "m"} <= set(names)
    return len(names)


def run_kills(root: Path, kills: int, seed: int, workers: int = 1) -> None:
    for number in range(3):
        plant_family(root, f"m{number}", f"mark{number}")
    write(root, "sessions/kept/memory.md", segment("k", "never touched", "sessions/kept"))
    write(root, "group/kept/note.md", "# never touched\n")
    before = {p: d for p, d in tree(root).items() if "kept" in p}
    source = random.Random(seed)
    ended = interrupted = 0
    for number in range(0, kills, workers):
        running = [start(root, seed + number + each) for each in range(workers)]
        count, seconds = source.randint(1, 6), source.uniform(0.0, 0.15)
        told = [kill_after(process, count, seconds) for process in running]
        for lines in told:
            ended += sum(line.startswith("end") for line in lines)
            interrupted += lines[-1].startswith("begin")
        if workers == 1:
            assert check_families(root) >= 2
        assert {p: d for p, d in tree(root).items() if "kept" in p} == before
    check_families(root)
    assert interrupted >= kills // 4, "hardly any operation was interrupted"
    assert ended > 0, "no operation ever ended"


def test_a_kill_at_a_random_moment_leaves_every_session_whole(tmp_path: Path) -> None:
    run_kills(tmp_path / "memory", KILLS, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1_000, 2_000, 3_000, 4_000])
def test_a_hundred_kills_leave_every_session_whole(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path / "memory", 100, seed=seed)


@pytest.mark.long
def test_a_hundred_kills_of_two_processes_at_once_leave_every_session_whole(
    tmp_path: Path,
) -> None:
    run_kills(tmp_path / "memory", 100, seed=9, workers=2)


# -- several processes -----------------------------------------------------------------------------

WRITER = """
import sys
from h2ams import ConflictError, Memory, Settings

with Memory.open(sys.argv[1], settings=Settings(encoding="estimate")) as memory:
    print("ready", flush=True)
    for number in range(int(sys.argv[3])):
        try:
            memory.remember(sys.argv[2], f"number {number} by hand of the writer")
        except ConflictError as error:
            print("refused", number, error, flush=True)
        else:
            print("wrote", number, flush=True)
"""


def test_a_writer_during_a_rename_lands_before_or_is_refused_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    root = tmp_path / "memory"
    plant(root)
    command = [sys.executable, "-c", WRITER, str(root), "sessions/s1/topic/t", "60"]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with on(root) as memory:
        assert writer.stdout.readline().strip() == "ready"
        for number in range(12):
            old, new = ("s1", "neu") if number % 2 == 0 else ("neu", "s1")
            try:
                memory.scopes.rename(f"sessions/{old}", f"sessions/{new}")
            except H2amsError:  # the writer made the old name anew: a new session of that name
                memory.scopes.delete("sessions/s1/topic/t")
                break
        with writer.stdout:
            lines = writer.stdout.read().splitlines()
        assert writer.wait() == 0
        memory.sync()
        assert memory.verify().ok
        wrote = {line.split()[1] for line in lines if line.startswith("wrote")}
        refused = [line for line in lines if line.startswith("refused")]
        assert len(wrote) + len(refused) == 60
        assert all("scope rename" in line or "scope delete" in line for line in refused)
    assert leftovers(root) == []


def test_two_processes_that_operate_at_once_take_turns(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    for number in range(4):
        plant_family(root, f"m{number}", f"mark{number}")
    code = (
        "import sys\n"
        "from h2ams import Memory, Settings\n"
        "with Memory.open(sys.argv[1], settings=Settings(encoding='estimate')) as memory:\n"
        "    for number in range(4):\n"
        "        memory.scopes.rename(f'sessions/m{sys.argv[2]}' + '_' * number,\n"
        "                             f'sessions/m{sys.argv[2]}' + '_' * (number + 1))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(root), name], stderr=subprocess.PIPE)
        for name in ("0", "1")
    ]
    for process in running:
        assert process.communicate()[1] == b"" and process.returncode == 0
    assert check_families(root) == 4
    assert {path.name for path in (root / "sessions").iterdir()} == {"m0____", "m1____", "m2", "m3"}


@pytest.fixture
def half_done(tmp_path: Path) -> Path:
    """A folder in which a process died while it renamed s1, between two of its folders."""
    root = tmp_path / "memory"
    plant(root)
    with on(root) as memory:
        memory.sync()
    child = os.fork()
    if child == 0:
        _die_between_moves(root)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (root / "sessions/neu").exists() and (root / "group/s1").exists()
    return root


def _die_between_moves(root: Path) -> None:
    def hook(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("group/s1"):
            os.kill(os.getpid(), signal.SIGKILL)

    on(root, hook).scopes.rename("sessions/s1", "sessions/neu")
    os._exit(0)


def test_opening_finishes_what_a_dead_process_left_before_anything_is_read(
    half_done: Path,
) -> None:
    with on(half_done) as memory:
        assert leftovers(half_done) == []
        assert len(memory.list("sessions/neu")) == 5
        assert memory.list("sessions/s1") == ()
        assert memory.verify().ok


def test_a_memory_that_was_open_all_the_time_finishes_it_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    plant(root)
    with on(root) as memory:
        memory.sync()
        child = os.fork()
        if child == 0:
            _die_between_moves(root)
        os.waitpid(child, 0)
        assert (root / "group/s1").exists()
        found = {hit.record.scope.split("/")[1] for hit in memory.recall("zebrafish").hits}
        assert found == {"neu"}
        assert leftovers(root) == []


def test_k144_killed_between_copy_and_mark_a_migration_is_finished_by_the_next_opening(
    tmp_path: Path,
) -> None:
    root = tmp_path / "memory"
    plant(root)
    with on(root) as memory:
        before = {record.address: record.body for record in memory.list()}
    child = os.fork()
    if child == 0:
        _die_before_setting_aside(root)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (root / "group/s1/memory.md").exists()  # copied, and not set aside
    assert "old group" in (root / "sessions/s1/memory.md").read_text()
    with on(root) as memory:
        assert {record.address: record.body for record in memory.list()} == before
        assert not (root / "group").exists() and leftovers(root) == []
        assert memory.scopes.migrate() == () and memory.verify().ok


def _die_before_setting_aside(root: Path) -> None:
    def hook(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("/session/s1"):
            os.kill(os.getpid(), signal.SIGKILL)

    on(root, hook).scopes.migrate()
    os._exit(0)


def test_a_write_to_a_half_renamed_scope_comes_after_the_rename(half_done: Path) -> None:
    with on(half_done) as memory:
        memory.remember("sessions/neu", "written afterwards")
        assert len(memory.list("sessions/neu")) == 6


def test_an_operation_that_cannot_be_finished_is_said_and_nothing_is_read(
    half_done: Path,
) -> None:
    def refuse(operation: str, path: str) -> None:
        if operation == "rename" and "group" in path:
            raise OSError(errno.EACCES, "simulated")

    with pytest.raises(H2amsError) as caught:
        on(half_done, refuse)
    assert "rename" in str(caught.value) and "EACCES" in str(caught.value)
    # Not everybody who calls may know of these scopes; the owner finds them in the file it names.
    assert "s1" not in str(caught.value) and caught.value.path is not None
    assert "sessions/s1" in (half_done / caught.value.path).read_text()
    with on(half_done) as memory:
        assert memory.list("sessions/s1") == ()


def test_a_running_operation_refuses_writers_and_lets_others_go_on(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    plant(root)
    other = on(root)
    seen: list[str] = []

    def meddle(operation: str, path: str) -> None:
        if operation != "rename" or not path.endswith("group/s1"):
            return
        for scope in ("sessions/s1", "sessions/s1/topic/new", "sessions/neu", "group/s1/vp/ada"):
            with pytest.raises(ConflictError) as caught:
                run_elsewhere(
                    lambda scope=scope: other.store.add(  # type: ignore[misc]
                        _scope(scope), "text", kind="fact"
                    )
                )
            seen.append(str(caught.value))
        run_elsewhere(lambda: other.store.add(_scope("user"), "goes on", kind="fact"))

    def _scope(text: str) -> object:
        from h2ams.memory.scope import parse_scope

        return parse_scope(text)

    with other, on(root, meddle) as memory:
        other._lifecycle.settle = lambda: None  # type: ignore[method-assign]
        memory.scopes.rename("sessions/s1", "sessions/neu")
        assert len(seen) == 4 and all("scope rename" in text for text in seen)
        assert "goes on" in {record.body for record in memory.list("user")}


def run_elsewhere(call: object) -> None:
    """Run ``call`` in a thread of its own and raise what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - handed on
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


def test_a_read_during_which_folders_move_sees_all_or_none(tmp_path: Path) -> None:
    """The reader looks at the disk when one of three folders has moved, and goes on afterwards."""
    root = tmp_path / "memory"
    plant(root)
    half, go = threading.Event(), threading.Event()

    def pause(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("group/s1"):
            half.set()
            go.wait(20)

    def rename() -> None:
        with on(root, pause) as memory:
            memory.scopes.rename("sessions/s1", "sessions/neu")

    with on(root) as reader:
        reader.sync()
        thread = threading.Thread(target=rename)
        look_again = reader._syncer.refresh

        def refresh(*words: object) -> object:
            if thread.ident is not None:
                return look_again(*words)  # type: ignore[arg-type]
            thread.start()
            assert half.wait(20)
            found = look_again(*words)  # type: ignore[arg-type]
            go.set()
            return found

        reader._syncer.refresh = refresh  # type: ignore[method-assign, assignment]
        records = [r.address for r in reader.list() if r.scope.split("/")[-1] != "s11"]
        thread.join()
        wanted = [r.address for r in reader.list() if r.scope.split("/")[-1] != "s11"]
        records, wanted = (
            [a for a in each if "/s1" in a or "/neu" in a] for each in (records, wanted)
        )
        assert len(wanted) == 11 and all("/neu" in address for address in wanted)
        assert records == wanted
        assert reader.verify().ok


def test_an_operation_waits_for_a_writer_that_has_the_lock(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    plant(root)
    with on(root) as memory:
        writer = on(root)
        entered, go = threading.Event(), threading.Event()

        def hold() -> None:
            with writer._root.lock("sessions/s1/topic/unheard-of"):
                entered.set()
                go.wait(20)
                write(root, "sessions/s1/topic/unheard-of/memory.md", segment("n", "late", ""))

        thread = threading.Thread(target=hold)
        thread.start()
        assert entered.wait(20)
        threading.Timer(0.2, go.set).start()
        memory.scopes.rename("sessions/s1", "sessions/neu")
        thread.join()
        assert memory.get("sessions/neu/topic/unheard-of#n").body == "late"
        assert not (root / "sessions/s1").exists()
        writer.close()


def test_an_operation_beside_another_one_says_so_when_it_waits_too_long(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    plant(root)
    with on(root) as memory, opened(root) as other:
        other._root._lock_timeout_ms = 50
        errors: list[str] = []

        def meddle() -> None:
            with pytest.raises(LockTimeoutError) as caught:
                other.scopes.delete("sessions/s2")
            errors.append(str(caught.value))

        with memory._lifecycle._holding():
            run_elsewhere(meddle)
        assert "scope" in errors[0] and "pid" in errors[0]
        other.scopes.delete("sessions/s2")


def test_two_state_folders_of_one_root_both_follow(tmp_path: Path) -> None:
    """A process died with another state folder: ours finishes the files, its own the rest."""
    root, states = tmp_path / "memory", (tmp_path / "one", tmp_path / "two")
    plant(root)
    for state in states:
        with opened(root, state=state) as memory:
            memory.sync()
    child = os.fork()
    if child == 0:
        _die_with_state(root, states[0])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with opened(root, state=states[1]) as memory:
        assert memory.list("sessions/s1") == () and memory.verify().ok
        memory.remember("sessions/s1", "a new session of that name")
    with opened(root, state=states[0]) as memory:
        assert [record.body for record in memory.list("sessions/s1")] == [
            "a new session of that name"
        ]
        assert memory.verify().ok
    assert leftovers(root) == []
    assert holding(tmp_path, "zebrafish") == []


def _die_with_state(root: Path, state: Path) -> None:
    from folder import PLAIN

    from h2ams.files import Root

    def hook(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("group/s1"):
            os.kill(os.getpid(), signal.SIGKILL)

    Memory(Root(root, state=state, hook=hook), PLAIN).scopes.delete("sessions/s1")
    os._exit(0)
