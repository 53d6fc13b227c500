"""Operations in any order on any tree of scopes: a model of names and texts tells what must be.

The model is a dictionary from path to bytes; renaming, cloning and deleting are done on it by hand.
After every step every other byte of the folder is as it was, the index equals a rebuild, and what
is read is what the model holds.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from folder import opened, write
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from memory.lifecycle_kit import leftovers, segment, tree

from h2ams import NotFoundError, ScopeError, UsageError
from h2ams.memory.layout import scope_of_path
from h2ams.memory.lifecycle_plan import check_target, holds, renamed
from h2ams.memory.scope import Scope, fold, parse_scope

IDS = ("a", "b", "Ab", "caf\u00e9", "\u4f1a\u8bdd.\u4e00", "s-1")
LAYOUTS = ("sessions", "group", "session")
MEMBERS = ("", "/user", "/vp/a", "/vp/b", "/topic/a", "/topic/a/b", "/feature/a")
FILES = ("memory.md", "archive.md", "note.md", "summary.md", "deep/er/note.md", "data.bin")
OTHERS = ("user", "vp/a", "vp/b", "chat/a", "chat/a/vp/a", "topic/a", "agent/a", "elsewhere/x")

sessions = st.builds("{}/{}{}".format, st.sampled_from(LAYOUTS), st.sampled_from(IDS),
                     st.sampled_from(MEMBERS))  # fmt: skip
folders = st.one_of(sessions, sessions, st.sampled_from(OTHERS))
paths = st.builds("{}/{}".format, folders, st.sampled_from(FILES))
scopes = st.one_of(sessions, st.sampled_from(OTHERS[:-1])).map(parse_scope)


class Scopes(RuleBasedStateMachine):
    """One folder, and what it must be."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="h2ams-scopes-"))
        self.root = self.base / "memory"
        self.count = 0

    @initialize(found=st.lists(paths, min_size=3, max_size=12, unique=True))
    def plant(self, found: list[str]) -> None:
        for path in found:
            self.count += 1
            scope = scope_of_path(path)
            text = f"text {self.count} \u00fc"
            named = path.endswith(("memory.md", "archive.md")) and scope is not None
            body = segment(f"id{self.count}", text, str(scope)) if named else f"# {text}\n"
            write(self.root, path, body)
        self.context = opened(self.root)
        self.memory = self.context.__enter__()
        self.memory.sync()
        self.model = tree(self.root)

    def teardown(self) -> None:
        if hasattr(self, "context"):
            self.context.__exit__(None, None, None)
        shutil.rmtree(self.base)

    def owned(self, scope: Scope) -> list[str]:
        return [path for path in self.model if self.place(path, scope)]

    @staticmethod
    def place(path: str, scope: Scope) -> bool:
        found = scope_of_path(path)
        return found is not None and holds(scope, found)

    def moved(self, path: str, old: Scope, new: Scope) -> str:
        """The path by hand: layout and everything behind the scope's names stay."""
        found = scope_of_path(path)
        assert found is not None
        family, names = path.split("/")[0], found.text.count("/") + 1
        wanted = renamed(found, old, new).text.split("/")
        return "/".join([family, *wanted[1:], *path.split("/")[names:]])

    @staticmethod
    def relabelled(data: bytes, old: Scope, new: Scope) -> bytes:
        lines = data.split(b"\n")
        for number, line in enumerate(lines[:3]):
            if line.startswith(b"scope: "):
                was = parse_scope(line[7:].decode())
                if holds(old, was):
                    lines[number] = f"scope: {renamed(was, old, new)}".encode()
        return b"\n".join(lines)

    def check(self) -> None:
        assert tree(self.root) == self.model
        checked = self.memory.verify()
        assert checked.ok, checked
        assert leftovers(self.root) == []

    @rule(scope=scopes)
    def delete(self, scope: Scope) -> None:
        gone = self.owned(scope)
        try:
            self.memory.scopes.delete(scope.text)
        except NotFoundError:
            assert not gone
        for path in gone:
            del self.model[path]
        self.check()

    @rule(old=scopes, id=st.sampled_from(IDS), copies=st.booleans())
    def transfer(self, old: Scope, id: str, copies: bool) -> None:
        new = self.target(old, id)
        if new is None:
            return
        call = self.memory.scopes.clone if copies else self.memory.scopes.rename
        before = dict(self.model)
        refused = ""
        try:
            call(old.text, new.text)
        except (ScopeError, NotFoundError) as error:
            refused = f"{type(error).__name__}: {error}"
        if refused.startswith("ScopeError"):
            assert self.taken(old, new) or "still holds" in refused, refused
        elif refused:
            assert not self.owned(old)
        else:
            assert not self.owned(new)
            for path in self.owned(old):
                data = before[path]
                named = path.endswith(("memory.md", "archive.md")) and "deep" not in path
                to = self.moved(path, old, new)
                self.model[to] = self.relabelled(data, old, new) if named else data
                if not copies:
                    del self.model[path]
        self.check()

    @staticmethod
    def target(old: Scope, id: str) -> Scope | None:
        """Another name for ``old`` that it may have at all."""
        try:
            new = parse_scope(f"{old.text.rpartition('/')[0]}/{id}")
            check_target(old, new)
        except UsageError:
            return None
        return new

    def taken(self, old: Scope, new: Scope) -> bool:
        """Whether a name on the way to ``new`` is there, or one that differs only by its form."""
        folders = set()
        for path in self.root.rglob("*"):
            first, *rest = path.relative_to(self.root).parts
            if path.is_dir():
                folders.add(("sessions" if first in LAYOUTS else first, *rest))
        if new.vp and new.family == "vp":
            holders = {fold("/".join(path[2:])) for path in folders}
            if fold(f"vp/{new.vp}") in holders:
                return True
        owned = {scope_of_path(path) for path in self.owned(old)}
        wanted = [renamed(scope, old, new) for scope in owned if scope is not None]
        for parts in (tuple(scope.text.split("/")) for scope in [new, *wanted]):
            for count in range(2, len(parts) + 1):
                twins = {f for f in folders if fold("/".join(f)) == fold("/".join(parts[:count]))}
                if twins - ({parts[:count]} if count < len(parts) else set()):
                    return True
        return False

    @rule()
    def migrate(self) -> None:
        before = {each.address: each.body for each in self.memory.list() if not each.is_note}
        changes = self.memory.scopes.migrate()
        assert not [each for each in changes if each.failed and "case" not in str(each.failed)]
        after = {each.address: each.body for each in self.memory.list() if not each.is_note}
        assert after == before
        old = dict(self.model)
        self.model = tree(self.root)
        touched = ("sessions/", "group/", "session/")
        assert {p: d for p, d in old.items() if not p.startswith(touched)} == {
            p: d for p, d in self.model.items() if not p.startswith(touched)
        }
        everything = set(self.model.values()) | {
            path.read_bytes() for path in (self.root / ".h2ams").rglob("*") if path.is_file()
        }
        assert set(old.values()) <= everything  # no byte of any file is lost
        assert self.memory.scopes.migrate() == () or any(each.failed for each in changes)
        self.check()


Scopes.TestCase.settings = settings(
    max_examples=max(5, settings().max_examples // 8), stateful_step_count=6
)
TestScopes = Scopes.TestCase
