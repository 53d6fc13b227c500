"""Any sequence of edits by the engine and by hand, in two layouts, against a naive model."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from memory.store_kit import SESSION, entries, open_store, put, segment_text

from h2ams.errors import ConflictError

FILES = ("sessions/s1/memory.md", "group/s1/memory.md")
COMMENT = "<!-- by hand: stays as it is -->"
texts = st.sampled_from(
    [
        "one",
        "two\n\n---\n\nparts",
        "```\n---\nid: x\n---\n```",
        "\\---",
        "夜间 🙂",
        "```\nopen",
        "- a\n  b",
    ]
)
kinds = st.sampled_from(["fact", "decision"])
tags = st.lists(st.sampled_from(["auth", "夜间", 'say "no"']), max_size=2, unique=True).map(tuple)


class EditsByTwoSides(RuleBasedStateMachine):
    """The model is address id -> (body, kind, tags)."""

    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = open_store(self.folder)
        self.model: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self.forgotten: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self.count = 0
        put(
            self.folder,
            {name: f"{COMMENT}\n\n{segment_text('first' + name[:1], name)}" for name in FILES},
        )
        for name in FILES:
            self.model["first" + name[:1]] = (name, "fact", ())

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(target=known, body=texts, kind=kinds, tags=tags)
    def add(self, body: str, kind: str, tags: tuple[str, ...]) -> str:
        made = self.store.add(SESSION, body, kind=kind, tags=tags)
        same = [id for id, (text, its, _) in self.model.items() if (text, its) == (body, kind)]
        assert made.created == (not same)
        if same:
            assert made.id in same
        else:
            assert made.id not in self.model
            self.model[made.id] = (body, kind, tags)
        return made.id

    @rule(target=known, body=texts, name=st.sampled_from(FILES))
    def append_by_hand(self, body: str, name: str) -> str:
        self.count += 1
        id = f"hand_{self.count}"
        path = self.folder / name
        text = path.read_text(encoding="utf-8")
        if "```\nopen" in text:
            return "first" + name[:1]  # a person's text behind an open fence belongs to it
        body = body if body.isalpha() else "plain"
        path.write_text(text + "\n" + segment_text(id, body), encoding="utf-8")
        self.model[id] = (body, "fact", ())
        return id

    @rule(id=known, body=texts | st.none(), kind=kinds | st.none(), tags=tags | st.none())
    def update(
        self, id: str, body: str | None, kind: str | None, tags: tuple[str, ...] | None
    ) -> None:
        if id not in self.model:
            return
        old = self.model[id]
        done = self.store.update(SESSION, id, body=body, kind=kind, tags=tags)
        new = (body or old[0], kind or old[1], old[2] if tags is None else tags)
        assert (done.id, done.changed) == (id, new != old)
        self.model[id] = new

    @rule(id=known)
    def edit_by_hand(self, id: str) -> None:
        for name in FILES:
            path = self.folder / name
            text = path.read_text(encoding="utf-8")
            if id in self.model and f"id: {id}\n" in text:
                start = text.index("kind: ", text.index(f"id: {id}\n"))
                end = text.index("\n", start)
                path.write_text(text[:start] + "kind: goal" + text[end:], encoding="utf-8")
                body, _, its_tags = self.model[id]
                self.model[id] = (body, "goal", its_tags)

    @rule(id=known)
    def forget(self, id: str) -> None:
        if id in self.model:
            assert self.store.remove(SESSION, id).removed
            self.forgotten[id] = self.model.pop(id)

    @rule(id=known)
    def unforget(self, id: str) -> None:
        if id not in self.forgotten:
            return
        text = self.forgotten[id]
        try:
            changed = self.store.unforget(SESSION, id).changed
        except ConflictError:
            assert self.model[id][:2] != text[:2]
            return
        assert changed == (id not in self.model)
        self.model.setdefault(id, text)
        del self.forgotten[id]

    @rule(id=consumes(known))
    def purge(self, id: str) -> None:
        if id in self.model or id in self.forgotten:
            assert self.store.remove(SESSION, id, purge=True).removed
            self.model.pop(id, None)
            self.forgotten.pop(id, None)

    @invariant()
    def the_files_hold_the_model(self) -> None:
        found = {
            entry.address_id: (entry.segment.body, entry.segment.kind, entry.segment.tags)
            for entry in entries(self.store, SESSION)
        }
        assert found == self.model
        assert found.keys() == {
            entry.address_id for entry in entries(open_store(self.folder), SESSION)
        }, "a fresh process reads the same"

    @invariant()
    def what_a_person_wrote_between_segments_stays(self) -> None:
        for name in FILES:
            assert (self.folder / name).read_text(encoding="utf-8").startswith(COMMENT + "\n")

    @invariant()
    def forgotten_is_what_can_come_back(self) -> None:
        assert {record.id for record in self.store.forgotten(SESSION)} == self.forgotten.keys()


TestEditsByTwoSides = EditsByTwoSides.TestCase
TestEditsByTwoSides.settings = settings(
    max_examples=max(25, settings.default.max_examples // 10), stateful_step_count=25
)
