"""What Dream keeps beside the memory: watermarks, plans of passes, undo records (state).

    dream/marks/<thread>.json        up to where the messages of a thread are done; no text
    dream/passes/<pass>.json         what a pass did; no text
    dream/plans/<thread>.json        validated changes of a pass that has not ended yet
    dream/undo/<scope>-<pass>.json   the files of one scope before and after a pass
    dream/debug/<thread>-….txt       requests and answers, only where they were asked for

Plans, undo records and debug files hold memory text: they are removed by every purge in their scope
(``memory/forgotten`` knows the folders), so that no undo brings back what was purged. File names
hold digests only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from h2ams.dream.records import (
    VERSION,
    PassRecord,
    Plan,
    Thread,
    Touched,
    UndoRecord,
    mark_value,
    pass_value,
    plan_value,
    read_mark,
    read_pass,
    read_plan,
    read_undo,
    renamed,
    scope_key,
    undo_value,
)
from h2ams.dream.slicing import Watermark
from h2ams.errors import StoreError
from h2ams.files import Root
from h2ams.memory.scope import Scope, parse_scope

MARKS, PASSES, PLANS, UNDO, DEBUG = (
    f"dream/{name}" for name in ("marks", "passes", "plans", "undo", "debug")
)


class Journal:
    """Reads and writes the state of Dream in one root. Call it under the lock of a pass."""

    def __init__(self, root: Root) -> None:
        self._root = root

    # -- watermarks ------------------------------------------------------------------------------

    def mark(self, thread: Thread) -> Watermark | None:
        """The watermark of ``thread``; None where no pass has ended yet."""
        value = self._load(f"{MARKS}/{thread.key}.json")
        return None if value is None else read_mark(value["mark"])

    def marks(self) -> tuple[tuple[Thread, Watermark, str], ...]:
        """All threads with their watermarks and the time that each last pass ended."""
        found = []
        for name in self._names(MARKS):
            value = self._glance(name)
            if value is not None:
                thread = Thread(parse_scope(value["scope"]), value["name"])
                found.append((thread, read_mark(value["mark"]), str(value["ended_at"])))
        return tuple(sorted(found, key=lambda each: (each[0].scope.text, each[0].name)))

    def save_mark(self, thread: Thread, mark: Watermark, ended_at: str) -> None:
        """The last write of a pass."""
        value = {
            "version": VERSION,
            "scope": thread.scope.text,
            "name": thread.name,
            "ended_at": ended_at,
            "mark": mark_value(mark),
        }
        self._save(f"{MARKS}/{thread.key}.json", value)

    # -- plans -----------------------------------------------------------------------------------

    def plan(self, thread: Thread) -> Plan | None:
        """The pass of ``thread`` that has not ended; None mostly."""
        value = self._load(f"{PLANS}/{thread.key}.json")
        if value is None:
            return None
        return read_plan(value, thread)

    def save_plan(self, plan: Plan) -> None:
        self._save(f"{PLANS}/{plan.thread.key}.json", plan_value(plan))

    def drop_plan(self, thread: Thread) -> None:
        self._remove([f"{PLANS}/{thread.key}.json"])

    # -- undo ------------------------------------------------------------------------------------

    def touched(self, pass_id: str, scope: Scope) -> UndoRecord | None:
        """What ``pass_id`` did to ``scope``; None where it did nothing, or that was purged."""
        return self._undo_record(_undo_name(pass_id, scope))

    def undo_records(self, pass_id: str) -> tuple[UndoRecord, ...]:
        """What a pass did, by scope."""
        records = (
            self._undo_record(name)
            for name in self._names(UNDO)
            if name.endswith(f"-{pass_id}.json")
        )
        found = [record for record in records if record is not None]
        return tuple(sorted(found, key=lambda record: record.scope.text))

    def save_touched(self, pass_id: str, scope: Scope, files: Iterable[Touched]) -> None:
        """Add ``files`` to the record.

        A file that the pass writes again keeps its first ``before``; one that somebody else has
        written in between does not: his text is what an undo goes back to.
        """
        old = self.touched(pass_id, scope)
        merged = {each.path: each for each in (old.files if old else ())}
        for each in files:
            known = merged.get(each.path)
            ours = known is not None and known.after == each.before
            before = known.before if known is not None and ours else each.before
            merged[each.path] = Touched(each.path, before, each.after)
        record = UndoRecord(pass_id, scope, tuple(merged.values()))
        self._save(_undo_name(pass_id, scope), undo_value(record))

    def drop_undo(self, pass_id: str) -> None:
        self._remove(name for name in self._names(UNDO) if name.endswith(f"-{pass_id}.json"))

    def _undo_record(self, name: str) -> UndoRecord | None:
        value = self._load(name)
        return None if value is None else read_undo(value)

    # -- passes ----------------------------------------------------------------------------------

    def passes(self) -> tuple[PassRecord, ...]:
        """All passes on record, the oldest first."""
        found = []
        for name in self._names(PASSES):
            value = self._glance(name)
            if value is not None:
                found.append(read_pass(value))
        return tuple(sorted(found, key=lambda each: (each.started_at, each.pass_id)))

    def find_pass(self, pass_id: str) -> PassRecord | None:
        if not _is_pass_id(pass_id):
            return None
        value = self._load(f"{PASSES}/{pass_id}.json")
        return None if value is None else read_pass(value)

    def save_pass(self, record: PassRecord) -> None:
        self._save(f"{PASSES}/{record.pass_id}.json", pass_value(record))

    def prune(self, keep_count: int) -> None:
        """Forget all but the newest ``keep_count`` passes, with their undo records."""
        old = self.passes()[:-keep_count] if keep_count else self.passes()
        for each in old:
            self.drop_undo(each.pass_id)
        self._remove(f"{PASSES}/{each.pass_id}.json" for each in old)

    # -- debug -----------------------------------------------------------------------------------

    def save_debug(self, thread: Thread, pass_id: str, number: int, text: str) -> None:
        """A request with its answer, for the owner's eyes; mode 0600 as all state."""
        name = f"{DEBUG}/{thread.key}-{pass_id}-{number:04}.txt"
        self._root.write_state(name, text.encode("utf-8", "replace"))

    # -- sessions that go or change their name ---------------------------------------------------

    def owned_by(self, holds: Callable[[Scope], bool]) -> tuple[str, ...]:
        """State files of threads, and undo records of scopes, that ``holds`` says yes to."""
        found = [name for name, value in self._all() if holds(_scope_of(value))]
        keys = {scope_key(_scope_of(value).text) for name, value in self._all() if name in found}
        debug = self._names(DEBUG)
        found += [name for name in debug if os.path.basename(name).partition("-")[0] in keys]
        return tuple(found)

    def texts(self) -> tuple[str, ...]:
        """Plans and debug files of all threads."""
        return (*self._names(PLANS), *self._names(DEBUG))

    def drop(self, names: Iterable[str]) -> int:
        """Remove state files for good; how many there were."""
        return self._remove(names)

    def rename_owner(self, holds: Callable[[Scope], bool], moved: Callable[[Scope], Scope]) -> None:
        """Watermarks and passes go to the new name. What holds text of the old files ends here:
        they are written anew under the new name, so no undo could tell them from a person's edit.
        """
        for name in self.owned_by(holds):
            value = self._load(name) if name.startswith((MARKS, PASSES)) else None
            if value is not None:
                scope = moved(_scope_of(value))
                made = renamed(value, _scope_of(value).text, scope.text)
                target = f"{MARKS}/{Thread(scope, made['name']).key}.json"
                self._save(target if name.startswith(MARKS) else name, made)
                if name.startswith(PASSES) or target == name:
                    continue
            self._remove([name])

    def _all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for folder in (MARKS, PLANS, UNDO, PASSES):
            holds_text = folder in (PLANS, UNDO)
            for name in self._names(folder):
                value = self._load(name) if holds_text else self._glance(name)
                if value is not None:
                    yield name, value

    # -- files -----------------------------------------------------------------------------------

    def _names(self, folder: str) -> list[str]:
        try:
            names = sorted(os.listdir(os.path.join(self._root.state, *folder.split("/"))))
        except FileNotFoundError:
            return []
        return [f"{folder}/{name}" for name in names if not name.startswith(".")]

    def _glance(self, name: str) -> dict[str, Any] | None:
        """A record without text where all are looked through: one that cannot be read holds up no
        other. ``doctor`` names it."""
        try:
            return self._load(name)
        except StoreError:
            return None

    def _load(self, name: str) -> dict[str, Any] | None:
        data = self._root.read_state(name)
        if data is None:
            return None
        try:
            value = json.loads(data)
            if isinstance(value, dict) and value.get("version") == VERSION:
                return value
        except (ValueError, RecursionError):
            value = None  # raised below, with what to do
        raise StoreError(
            f"state file {name} cannot be read",
            path=name,
            hint="look at it by hand, or remove it: memory itself is not in it",
        )

    def _save(self, name: str, value: Mapping[str, Any]) -> None:
        # ASCII: lone surrogates (escaped bytes) survive as \udcxx and nothing else could hold them.
        data = json.dumps(value, ensure_ascii=True, indent=1) + "\n"
        self._root.write_state(name, data.encode("ascii"))

    def _remove(self, names: Iterable[str]) -> int:
        count = 0
        for name in names:
            try:
                os.unlink(os.path.join(self._root.state, *name.split("/")))
                count += 1
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(
                    f"cannot remove {name}: {error.strerror}", path=name, hint="remove it by hand"
                ) from error
        return count


def _scope_of(value: Mapping[str, Any]) -> Scope:
    return parse_scope(str(value.get("scope", value.get("thread"))))


def _undo_name(pass_id: str, scope: Scope) -> str:
    return f"{UNDO}/{scope_key(scope.text)}-{pass_id}.json"


def _is_pass_id(text: str) -> bool:
    return text.isascii() and text.replace("-", "").isalnum()
