"""What every kind of state that scopes own must do; a new kind inherits ``OwnedStateContract``.

A subclass says how state is made for a scope and gives the owner; everything else is the same for
all. Calls may be repeated after a crash, so each is made twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from folder import opened, write
from memory.lifecycle_kit import segment

from h2ams import Access, Memory
from h2ams.memory.lifecycle_plan import OwnedState
from h2ams.memory.scope import Scope, parse_scope
from h2ams.stacks.exchange import Round

OLD, NEW, OTHER = parse_scope("sessions/old"), parse_scope("sessions/new"), "sessions/older"


class OwnedStateContract:
    """``sessions/old`` and ``sessions/older`` have state, with a VP's memory inside."""

    owner_name = ""

    def make(self, memory: Memory, session: Scope) -> None:
        """Give ``session`` and its VP ``ada`` state of this kind."""
        raise NotImplementedError

    def moved(self, memory: Memory, old: Scope, new: Scope, *, copied: bool) -> None:
        """What the files do before the owner is told; state that follows no files needs nothing."""

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Iterator[Memory]:
        with opened(tmp_path / "memory") as memory:
            self.make(memory, OLD)
            self.make(memory, parse_scope(OTHER))
            yield memory

    def owner(self, memory: Memory) -> OwnedState:
        return next(each for each in memory._owned_states() if each.name == self.owner_name)

    def test_it_lists_what_belongs_to_a_scope_and_nothing_for_one_without(
        self, memory: Memory
    ) -> None:
        owner = self.owner(memory)
        assert owner.list(OLD)
        assert owner.list(NEW) == () == owner.list(parse_scope("sessions/ol"))
        assert not set(owner.list(OLD)) & set(owner.list(parse_scope(OTHER)))

    def test_after_a_deletion_there_is_nothing_and_the_rest_is_as_it_was(
        self, memory: Memory
    ) -> None:
        owner, rest = self.owner(memory), self.owner(memory).list(parse_scope(OTHER))
        self.moved(memory, OLD, NEW, copied=False)
        for _ in range(2):
            assert owner.delete(OLD) == ()
            assert owner.list(OLD) == ()
            assert owner.list(parse_scope(OTHER)) == rest

    def test_after_a_rename_the_new_name_has_it_and_the_old_one_nothing(
        self, memory: Memory
    ) -> None:
        owner = self.owner(memory)
        count, rest = len(owner.list(OLD)), owner.list(parse_scope(OTHER))
        self.moved(memory, OLD, NEW, copied=False)
        for _ in range(2):
            owner.rename(OLD, NEW)
            assert owner.list(OLD) == () and len(owner.list(NEW)) == count
            assert owner.list(parse_scope(OTHER)) == rest

    def test_a_clone_leaves_the_original_as_it_was(self, memory: Memory) -> None:
        owner = self.owner(memory)
        before, rest = owner.list(OLD), owner.list(parse_scope(OTHER))
        self.moved(memory, OLD, NEW, copied=True)
        for _ in range(2):
            owner.clone(OLD, NEW)
            assert owner.list(OLD) == before and owner.list(parse_scope(OTHER)) == rest
            assert len(owner.list(NEW)) == (len(before) if owner.is_cloned else 0)

    def test_a_rename_within_the_same_name_loses_nothing(self, memory: Memory) -> None:
        owner = self.owner(memory)
        before = owner.list(OLD)
        owner.rename(OLD, OLD)
        assert owner.list(OLD) == before


class TestIndex(OwnedStateContract):
    owner_name = "index"

    def make(self, memory: Memory, session: Scope) -> None:
        for scope in (session.text, f"{session}/vp/ada"):
            write(Path(memory.root), f"{scope}/memory.md", segment("a", f"in {scope}", scope))
        memory.sync()

    def moved(self, memory: Memory, old: Scope, new: Scope, *, copied: bool) -> None:
        import shutil

        root = Path(memory.root)
        shutil.copytree(root / old.text, root / new.text)
        if not copied:
            shutil.rmtree(root / old.text)


class TestActiveSets(OwnedStateContract):
    owner_name = "active-sets"

    def make(self, memory: Memory, session: Scope) -> None:
        address = memory.remember(session.text, f"text of {session}").address
        for vp in (None, "ada"):
            memory.touch([address], access=Access(session=session.session, vp=vp))


class TestUndo(OwnedStateContract):
    owner_name = "undo"

    def make(self, memory: Memory, session: Scope) -> None:
        for scope in (session.text, f"{session}/vp/ada"):
            memory.forget(memory.remember(scope, f"gone from {scope}").address)


class TestStacks(OwnedStateContract):
    owner_name = "exchange-stacks"

    def make(self, memory: Memory, session: Scope) -> None:
        for owner in (session.text, f"{session}/vp/ada"):
            with memory.stack("game", owner=owner) as game:
                game.append_round(Round("r1", "ask", f"answer in {owner}"))

    def test_its_content_goes_along(self, memory: Memory) -> None:
        self.owner(memory).rename(OLD, NEW)
        with memory.stack("game", owner=f"{NEW}/vp/ada", create=False) as game:
            assert game.stack().exchanges[0].assistant == f"answer in {OLD}/vp/ada"

    def test_deleting_the_session_deletes_its_stacks(self, memory: Memory) -> None:
        memory.remember(OLD.text, "a text, so that there is something to delete")
        change = memory.scopes.delete(OLD.text)
        assert [each.what for each in change.state if each.owner == self.owner_name] == [
            f"{OLD}: game",
            f"{OLD}/vp/ada: game",
        ]
        assert self.owner(memory).list(OLD) == () != self.owner(memory).list(parse_scope(OTHER))
        with memory.stack("game", owner=OLD.text) as game:
            assert game.canonical_text() == ""


class TestThreads(OwnedStateContract):
    owner_name = "threads"

    def make(self, memory: Memory, session: Scope) -> None:
        for name in ("one", "two"):
            thread = memory.thread(f"{name}-{session.session}", scope=session.text)
            thread.append({"role": "user", "content": f"said in {session}"})
