"""Editors, agents, killed writers, clocks and disks that come and go: no text is lost.

Real editors: processes that save the way programs do, while writers run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from folder import NOW, ids, opened, segment_text, write
from hypothesis import given, settings
from hypothesis import strategies as st
from roots import leftovers
from surfaces.command_line import REPOSITORY

from h2ams import (
    Access,
    ConflictError,
    H2amsError,
    IndexFaultError,
    Memory,
    RootError,
    ScopeError,
    lease,
)
from h2ams.files import Root
from h2ams.memory.merge import CONFLICT_TAG
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Entry, Segment, parse
from h2ams.memory.store import Store
from h2ams.settings import DEFAULTS

needs_leases = pytest.mark.skipif(not lease._SUPPORTED, reason="this system has no leases")

# An editor that adds a segment of its own again and again. It says what its saves took away: text
# that came between its reading and its saving, as only a program can that knows no lock.
EDITOR = r"""
import os, re, sys, time
path, how, count, name = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ids = lambda data: set(re.findall(rb"^id: (\S+)$", data, re.M))

def read(path):
    with open(path, "rb") as file:
        return file.read()

taken = set()
print("ready", flush=True)
for number in range(count):
    new = f"\n---\nid: {name}{number}\nkind: fact\n---\nby hand {number}\n".encode()
    if how == "in place":
        with open(path, "r+b", buffering=0) as file:
            data = file.read()
            file.seek(0); file.truncate(); file.write(data); file.write(new)
    elif how == "append":
        with open(path, "ab", buffering=0) as file:
            file.write(new)
    else:
        data = read(path)
        saved = data + new
        if how == "rename":
            with open(path + ".edit", "wb") as file:
                file.write(saved)
            os.link(path, path + ".seen")
            os.rename(path + ".edit", path)
            taken |= ids(read(path + ".seen")) - ids(saved)
            os.unlink(path + ".seen")
        else:
            os.rename(path, path + "~")
            with open(path, "wb") as file:
                file.write(saved)
            taken |= ids(read(path + "~")) - ids(saved)
    time.sleep(0.003)
print(*sorted(each.decode() for each in taken))
"""


def start_editor(path: Path, how: str, count: int, name: str = "hand") -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", EDITOR, str(path), how, str(count), name]
    editor = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert editor.stdout is not None
    assert editor.stdout.readline() == b"ready\n"
    return editor


def ended(editor: subprocess.Popen[bytes]) -> set[str]:
    """The ids that the editor's own saves took away."""
    out, _ = editor.communicate(timeout=120)
    assert editor.returncode == 0
    return set(out.decode().split())


def remembered(memory: Memory, body: str) -> str:
    """The id; a conflict says that nothing was written, so it is tried again."""
    while True:
        try:
            return memory.remember("user", body).id
        except ConflictError:
            continue


def ids_in(path: Path) -> list[str]:
    return [entry.segment.id for entry in parse(path.read_bytes()).entries]


@needs_leases
@pytest.mark.parametrize("how", ["in place", "append", "rename", "backup"])
@pytest.mark.parametrize("through", ["its name", "a hard link", "a link"])
def test_an_editor_and_two_agents_lose_no_text(tmp_path: Path, how: str, through: str) -> None:
    if through != "its name" and how in ("rename", "backup"):
        how = "in place" if how == "rename" else "append"
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("first", "alpha"))
    path = file
    if through == "a link":
        path = tmp_path / "elsewhere.md"
        path.symlink_to(file)
    added: list[str] = []
    with opened(root) as memory, opened(root) as other:
        count = 1 if through == "a hard link" else 30
        if through == "a hard link":  # a replacement parts the two names: one edit, then look
            path = tmp_path / "twin.md"
            os.link(file, path)
        editor = start_editor(path, how, count)
        while editor.poll() is None:
            added.append(remembered(memory, f"agent one {len(added)}"))
            added.append(remembered(other, f"agent two {len(added)}"))
        taken = ended(editor)
        found = ids_in(file)
        assert len(found) == len(set(found))
        for number in range(count):
            assert f"hand{number}" in found or f"hand{number}" in ids_in(path)
        assert set(added) - set(found) <= taken
        assert how in ("rename", "backup") or not taken
        memory.sync()
        assert memory.verify().ok
    assert leftovers(Root(root)) == []
    assert not list(root.rglob("*conflicted copy*"))


def test_the_gap_of_a_backup_and_rename_save_is_waited_for(tmp_path: Path) -> None:
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("first", "alpha"))
    code = (
        "import os, sys, time\n"
        "path = sys.argv[1]\n"
        "data = open(path, 'rb').read()\n"
        "os.rename(path, path + '~')\n"
        "print('gone', flush=True)\n"
        "time.sleep(0.15)\n"
        "open(path, 'wb').write(data)\n"
    )
    with opened(root) as memory:
        editor = subprocess.Popen([sys.executable, "-c", code, file], stdout=subprocess.PIPE)
        assert editor.stdout is not None and editor.stdout.readline() == b"gone\n"
        added = memory.remember("user", "meanwhile").id
        editor.stdout.close()
        assert editor.wait(30) == 0
        assert ids_in(file) == ["first", added]
        file.rename(f"{file}~")  # it stays away: then it was deleted
        assert ids_in(root / memory.remember("user", "anew").path) == [memory.list("user")[0].id]


# -- writers that die ------------------------------------------------------------------------------

HOLDER = """
import os, signal, sys
from h2ams import Memory, Settings
from h2ams.memory.scope import parse_scope
with Memory.open(sys.argv[1], settings=Settings(encoding="estimate")) as memory:
    store = memory.store
    if sys.argv[2] == "lock":
        with store.lock(parse_scope("user")):
            print("held", flush=True)
            signal.pause()
    def hook(operation, path):
        if operation == sys.argv[2] and path.endswith(("memory.md", ".swap")):
            print("held", flush=True)
            signal.pause()
    memory._root._writer._hook = hook
    memory.remember("user", "the dying one")
"""


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("moment", ["lock", "check", "swap", "verify", "unlink"])
def test_a_writer_that_dies_with_the_lock_in_its_hand_stops_nobody(
    tmp_path: Path, moment: str
) -> None:
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("first", "alpha"))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root), moment],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with opened(root) as memory:
        waiting = subprocess.Popen(
            [sys.executable, "-m", "h2ams.surfaces.cli", "remember", "user", "waits",
             "--root", str(root), "--set", "encoding=estimate"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip
        assert waiting.stdout is not None
        holder.kill()
        holder.stdout.close()
        assert holder.wait(30) == -9
        out, _ = waiting.communicate(timeout=30)
        assert waiting.returncode == 0 and out.startswith(b"user#seg_")
        bodies = [entry.segment.body for entry in parse(file.read_bytes()).entries]
        assert bodies[0] == "alpha" and bodies[-1] == "waits"
        assert set(bodies) <= {"alpha", "the dying one", "waits"}
        memory.sync()
        assert memory.verify().ok
    assert leftovers(Root(root)) == []


# -- clocks ----------------------------------------------------------------------------------------

DAY_NS = 86_400 * 1_000_000_000
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["edit", "same size", "rename in", "nothing"]),
        st.sampled_from([-400 * DAY_NS, -1_000_000, 0, 1, 3_000_000_000, 400 * DAY_NS]),
        st.sampled_from([-(10**18), 0, 10**18, 1_700_000_000_000_000_000]),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_whatever_the_clock_and_the_time_stamps_say_a_recall_sees_the_text_of_now(
    steps: list[tuple[str, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "root"
        file = write(root, "user/memory.md", segment_text("a", "word000"))
        now = [NOW]
        with opened(root, now=lambda: now[0]) as memory:
            real = memory._syncer.clock_ns
            offset = [0]
            memory._syncer.clock_ns = lambda: real() + offset[0]
            for number, (what, step_ns, stamp_ns) in enumerate(steps, start=1):
                offset[0] += step_ns
                now[0] = NOW + timedelta(seconds=offset[0] / 1e9)
                word = f"word{number:03}"
                if what != "nothing":
                    text = segment_text("a", word if what != "edit" else f"{word} longer")
                    target = file.with_name("new.tmp") if what == "rename in" else file
                    target.write_text(text, encoding="utf-8")
                    os.utime(target, ns=(abs(stamp_ns), abs(stamp_ns)))
                    target.replace(file)
                    assert ids(memory, word) == ["a"]
                added = memory.remember("vp/clock", f"agent {number}")
                assert memory.get(added.address).body == f"agent {number}"
            offset[0] += 10 * DAY_NS
            memory.sync()
            assert memory.verify().ok


def test_a_clock_that_steps_back_changes_no_text_and_no_winner(tmp_path: Path) -> None:
    root = tmp_path / "root"
    now = [NOW]
    with opened(root, now=lambda: now[0]) as memory:
        address = memory.remember("user", "alpha").address
        now[0] = datetime(2001, 1, 1, tzinfo=UTC)
        memory.update(address, body="beta")
        assert memory.get(address).body == "beta"
        now[0] = datetime(2040, 1, 1, tzinfo=UTC)
        memory.update(address, tags=["x"])
        now[0] = NOW
        assert [hit.record.body for hit in memory.recall("beta").hits] == ["beta"]
        assert memory.verify().ok


# -- spellings of names ----------------------------------------------------------------------------


class FoldingRoot(Root):
    """A root on a disk that takes names that differ by case or Unicode form for one file."""

    folds_case = True

    def absolute(self, relative: str) -> str:
        path = Path(super().absolute(""))
        for part in relative.split("/") if relative else ():
            wanted = unicodedata.normalize("NFC", part).casefold()
            there = os.listdir(path) if path.is_dir() else []
            same = [x for x in there if unicodedata.normalize("NFC", x).casefold() == wanted]
            path = path / (part if part in there or not same else same[0])
        return str(path)


def folding_store(root: Path) -> Store:
    return Store(FoldingRoot(root), DEFAULTS, clock=lambda: NOW)


def test_on_a_disk_that_folds_case_another_case_is_no_second_scope(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(root, "chat/alice/memory.md", segment_text("a", "alpha"))
    store = folding_store(root)
    assert [path for path, _ in store.documents(parse_scope("chat/alice"))] == [
        "chat/alice/memory.md"
    ]
    assert store.documents(parse_scope("chat/Alice")) == ()
    with pytest.raises(ScopeError, match="chat/alice"):
        store.add(parse_scope("chat/Alice"), "beta", kind="fact")
    assert ids_in(root / "chat/alice/memory.md") == ["a"]


def test_on_a_disk_that_folds_unicode_forms_a_folder_is_one_place(tmp_path: Path) -> None:
    root = tmp_path / "root"
    name = unicodedata.normalize("NFD", "żółć")
    write(root, f"chat/{name}/memory.md", segment_text("a", "alpha"))
    store = folding_store(root)
    scope = parse_scope("chat/" + unicodedata.normalize("NFC", name))
    assert len(store.documents(scope)) == 1 and store.union(scope).problems == ()
    store.add(scope, "beta", kind="fact")
    assert os.listdir(root / "chat") == [name]
    assert len(ids_in(root / f"chat/{name}/memory.md")) == 2


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_an_agent_writes_into_a_decomposed_folder_as_it_is_spelled(
    tmp_path: Path, form: str
) -> None:
    root = tmp_path / "root"
    spelled = unicodedata.normalize(form, "żółć")
    write(root, f"sessions/{spelled}/memory.md", segment_text("a", "alpha"))
    with opened(root) as memory:
        for asked in ("NFC", "NFD"):
            scope = "sessions/" + unicodedata.normalize(asked, "żółć")
            memory.remember(scope, f"written as {asked}")
            assert len(memory.list(scope)) == 2 + (asked == "NFD")
        assert os.listdir(root / "sessions") == [spelled]
        assert memory.verify().ok


def test_whether_a_disk_folds_case_is_seen_on_it(tmp_path: Path) -> None:
    (tmp_path / "Folder").mkdir()
    probe = tmp_path / "fOLDER"
    assert Root(tmp_path / "Folder").folds_case == probe.exists()
    (tmp_path / "1").mkdir()
    assert Root(tmp_path / "1").folds_case is False


# -- a root that goes and comes back ---------------------------------------------------------------

CALLS: dict[str, Callable[[Memory], object]] = {
    "recall": lambda memory: memory.recall("alpha"),
    "recall in a session": lambda memory: memory.recall("alpha", access=Access(session="s1")),
    "context": lambda memory: memory.context("alpha", budget=200),
    "list": lambda memory: memory.list(),
    "get": lambda memory: memory.get("user#a"),
    "status": lambda memory: memory.status(),
    "sync": lambda memory: memory.sync(),
    "sync one": lambda memory: memory.sync(["user/memory.md"]),
    "rebuild": lambda memory: memory.rebuild(),
    "verify": lambda memory: memory.verify(),
    "doctor": lambda memory: memory.doctor(fix=True),
    "remember": lambda memory: memory.remember("user", "into the void"),
    "update": lambda memory: memory.update("user#a", body="into the void"),
    "forget": lambda memory: memory.forget("user#a"),
}


def raised(call: Callable[[Memory], object], memory: Memory) -> H2amsError | None:
    try:
        call(memory)
    except H2amsError as error:
        return error
    return None


@pytest.mark.parametrize("kind", ["gone", "an empty folder", "a file"])
@pytest.mark.parametrize("state", ["inside", "elsewhere"])
def test_a_root_that_goes_is_an_error_and_one_that_comes_back_is_as_before(
    tmp_path: Path, state: str, kind: str
) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    for number in range(5):
        write(root, f"vp/v{number}/memory.md", segment_text("a", f"alpha {number}"))
    write(root, "user/memory.md", segment_text("a", "alpha"), segment_text("b", "beta"))
    where = {"state": tmp_path / "state"} if state == "elsewhere" else {}
    with opened(root, **where) as memory:
        memory.sync()
        before, digest = memory.recall("alpha").hits, memory.verify().digest
        files = {path: path.read_bytes() for path in root.rglob("*.md")}
        root.rename(away)
        for name, call in CALLS.items():
            if kind == "an empty folder":  # where a disk was mounted
                root.mkdir()
            elif kind == "a file":
                root.write_text("no folder")
            if name == "rebuild" and kind == "an empty folder":
                shutil.rmtree(root)  # rebuild takes it for one that is meant to be empty
                continue
            error = raised(call, memory)
            assert isinstance(error, RootError | IndexFaultError), (name, error)
            assert str(tmp_path) in str(error), (name, error)
            assert not (root / "user").exists(), name
            if root.is_dir():
                shutil.rmtree(root)
            else:
                root.unlink(missing_ok=True)
        away.rename(root)
        report = memory.sync()
        assert (report.added, report.deleted) == (0, 0)
        assert memory.recall("alpha").hits == before
        assert (memory.verify().ok, memory.verify().digest) == (True, digest)
        assert {path: path.read_bytes() for path in root.rglob("*.md")} == files


# -- three-way merge -------------------------------------------------------------------------------

BODIES = st.sampled_from(["alpha", "beta", "gamma", "alpha\n\nbeta", "认证", "---\nid: x\n---\nz"])
TAGS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True).map(tuple)
CHANGES = st.tuples(st.none() | BODIES, st.none() | TAGS)


@settings(max_examples=60, deadline=None)
@given(
    base=st.lists(st.tuples(BODIES, TAGS), min_size=1, max_size=3),
    theirs=st.lists(st.none() | CHANGES, min_size=3, max_size=3),
    ours=CHANGES,
    at=st.integers(0, 2),
)
def test_both_texts_of_a_segment_are_kept_where_they_cannot_be_merged(
    base: list[tuple[str, tuple[str, ...]]],
    theirs: list[tuple[str | None, tuple[str, ...] | None] | None],
    ours: tuple[str | None, tuple[str, ...] | None],
    at: int,
) -> None:
    """A hand edit of any segments between an agent's reading and its writing; None deletes one."""
    at %= len(base)
    with tempfile.TemporaryDirectory() as folder:
        root = Root(folder)
        store = Store(root, DEFAULTS, clock=lambda: NOW)
        scope = parse_scope("user")
        made = [
            store.add(scope, f"{number} {body}", kind="fact", tags=tags)
            for number, (body, tags) in enumerate(base)
        ]
        seen = [
            found[1].entries[found[2]].segment for x in made if (found := store.find(scope, x.id))
        ]
        for number, edit in enumerate(theirs[: len(made)]):
            if edit is not None:
                hand_edit(Path(folder) / "user/memory.md", made[number].id, number, edit)
        by_hand = {x.segment.id: x.segment for x in parse_user(folder)}
        body = None if ours[0] is None else f"{at} {ours[0]} by the agent"
        result = store.update(scope, made[at].id, body=body, tags=ours[1], base=seen[at])
        after = {entry.segment.id: entry.segment for entry in parse_user(folder)}
        check_merge(by_hand, after, made[at].id, seen[at], body, result.conflict)


def hand_edit(
    path: Path, id: str, number: int, edit: tuple[str | None, tuple[str, ...] | None]
) -> None:
    from h2ams.memory import segment

    document = parse(path.read_bytes())
    index = next(n for n, x in enumerate(document.entries) if x.segment.id == id)
    value = document.entries[index].segment
    body, tags = edit
    value = replace(
        value,
        body=value.body if body is None else f"{number} {body} by hand",
        tags=value.tags if tags is None else tags,
    )
    path.write_bytes(segment.replace(document, index, value))


def parse_user(folder: str) -> list[Entry]:
    return list(parse((Path(folder) / "user/memory.md").read_bytes()).entries)


def check_merge(
    before: dict[str, Segment],
    after: dict[str, Segment],
    id: str,
    seen: Segment,
    body: str | None,
    conflict: str | None,
) -> None:
    for other in before.keys() - {id}:
        assert after[other] == before[other], "what nobody else touched is as it was"
    bodies = [each.body for each in after.values()]
    by_hand = before[id].body
    assert by_hand in bodies or by_hand == seen.body, "the hand edit is there"
    if body is not None:
        assert body in bodies, "the agent's text is there"
    clash = body is not None and by_hand != seen.body and by_hand != body
    assert (conflict is not None) == clash
    if clash:
        assert after[id].body == by_hand, "the text on disk keeps its place"
        loser = after[conflict.partition("#")[2]] if conflict else seen
        assert loser.body == body and CONFLICT_TAG in loser.tags
    assert len(after) == len(before) + clash
