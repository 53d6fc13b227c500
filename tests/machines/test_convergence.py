"""After any history of edits, moves, deletions and crashes: incremental digest == rebuild digest.

The machine edits a folder the way people, editors and sync tools do, with syncs of every kind in
between, and compares the index with what a rebuild gives: digest, rows and ranked results.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import unicodedata
from pathlib import Path

import pytest
from folder import PLAIN, opened, segment_text
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from h2ams import Access

FOLDERS = (
    "user",
    "global",
    "sessions/s1",
    "group/s1",
    "session/s1",
    "sessions/s1/vp/ada",
    "sessions/s1/topic/a/b",
    "chat/żółć",
    "chat/" + unicodedata.normalize("NFD", "żółć"),
    "topic/t",
    "Vault/Deep er",
    "",
)
FILES = ("memory.md", "content.md", "note.md", "sub/idea.md", "archive.md", "summary.md")
BODIES = (
    "alpha beta gamma",
    "认证 用户认证 beta",
    "письма alpha",
    "A\n\n---\n\nstatus: open\n\n---\n\nB",
    "```\n---\nid: x\n---\n```\ntail",
    "gamma " * 40,
)
WHOLE = (
    "",
    "plain text without a header\n",
    "# One\n\nalpha\n\n## Two\n\nbeta\n",
    "---\nid: x\nkind: fa",
    "---\nid: [unclosed\n---\nbody\n",
    "\ufeff" + segment_text("b", "bom"),
    "\x00\x00 nul alpha",
)


class Folder(RuleBasedStateMachine):
    """One memory folder and one long-lived engine on it."""

    @initialize()
    def start(self) -> None:
        self.base = Path(tempfile.mkdtemp())
        self.root = self.base / "root"
        self.context = opened(self.root, state=self.base / "state", settings=PLAIN)
        self.memory = self.context.__enter__()
        self.now = self.memory._syncer.clock_ns()
        self.memory._syncer.clock_ns = self.clock
        # One file that always stays: an empty folder is refused, which has its own test.
        self.write("vp/anchor", "memory.md", segment_text("anchor", "anchor"))

    def clock(self) -> int:
        """Wall time, moved on by what the rules let pass."""
        return max(self.now, os.stat(self.base).st_mtime_ns)

    def write(self, folder: str, name: str, text: str) -> None:
        file = self.root / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8", newline="")

    @rule(
        folder=st.sampled_from(FOLDERS),
        name=st.sampled_from(FILES),
        numbers=st.lists(st.integers(0, 4), max_size=4),
        body=st.sampled_from(BODIES),
        month=st.integers(1, 9),
    )
    def write_segments(
        self, folder: str, name: str, numbers: list[int], body: str, month: int
    ) -> None:
        date = f"2026-0{month}-01T00:00:00Z"
        texts = [segment_text(f"s{n}", f"{body} {n}", updatedAt=date) for n in numbers]
        self.write(folder, name, "\n".join(texts))

    @rule(
        folder=st.sampled_from(FOLDERS),
        name=st.sampled_from(FILES),
        text=st.sampled_from(WHOLE),
    )
    def write_whole(self, folder: str, name: str, text: str) -> None:
        self.write(folder, name, text)

    @rule(folder=st.sampled_from(FOLDERS[:-1]), name=st.sampled_from(FILES))
    def delete_file(self, folder: str, name: str) -> None:
        (self.root / folder / name).unlink(missing_ok=True)

    @rule(folder=st.sampled_from(FOLDERS[:-1]))
    def delete_folder(self, folder: str) -> None:
        shutil.rmtree(self.root / folder, ignore_errors=True)

    @rule(source=st.sampled_from(FOLDERS[:-1]), goal=st.sampled_from(FOLDERS[:-1]))
    def move_folder(self, source: str, goal: str) -> None:
        if (self.root / source).is_dir() and not (self.root / goal).exists():
            (self.root / goal).parent.mkdir(parents=True, exist_ok=True)
            if not f"{goal}/".startswith(f"{source}/"):
                (self.root / source).rename(self.root / goal)

    @rule(folder=st.sampled_from(FOLDERS), same_time=st.booleans())
    def replace_atomically(self, folder: str, same_time: bool) -> None:
        file = self.root / folder / "memory.md"
        if not file.is_file():
            return
        status = file.stat()
        data = file.read_bytes().replace(b"alpha", b"omega")
        temporary = file.with_name(".tmp-save.tmp")
        temporary.write_bytes(data)
        if same_time:
            os.utime(temporary, ns=(status.st_atime_ns, status.st_mtime_ns))
        temporary.replace(file)

    @rule()
    def sync(self) -> None:
        self.memory.sync()

    @rule(folder=st.sampled_from(FOLDERS))
    def sync_one(self, folder: str) -> None:
        self.memory.sync([folder or "note.md"])

    @rule()
    def recall_as_session(self) -> None:
        self.memory.recall("alpha", access=Access(session="s1", vp="ada"))

    @rule()
    def rebuild(self) -> None:
        self.memory.rebuild()

    @rule()
    def lose_the_index(self) -> None:
        for file in (self.base / "state").glob("index.db*"):
            file.unlink()

    @rule(scope=st.sampled_from(("user", "sessions/s1", "topic/t")), body=st.sampled_from(BODIES))
    def remember(self, scope: str, body: str) -> None:
        self.memory.remember(scope, body)

    @invariant()
    def the_index_equals_a_rebuild(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.memory.sync()
        checked = self.memory.verify()
        assert checked.ok, checked

    def teardown(self) -> None:
        if not hasattr(self, "memory"):
            return
        self.now += 10_000_000_000  # what was half-written has stood for long: it counts now
        self.memory.sync()
        self.now += 10_000_000_000
        self.memory.sync()
        hits = self.memory.recall("alpha beta", limit=200).hits
        digest = self.memory.verify().digest
        self.memory.rebuild()
        checked = self.memory.verify()
        assert checked.ok and checked.digest == digest
        assert self.memory.recall("alpha beta", limit=200).hits == hits
        self.context.__exit__(None, None, None)
        shutil.rmtree(self.base)


_FAST = settings(
    max_examples=12,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestConvergence = Folder.TestCase
TestConvergence.settings = _FAST


@pytest.mark.long
class TestConvergenceLong(Folder.TestCase):
    settings = settings(_FAST, max_examples=400, stateful_step_count=40)
