"""After a rename: the old name inside of files becomes the new one (Truth).

What is changed, and what is left to people, says ``relabel``. Each file is replaced only if it is
still the one that was read; doing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from h2ams.errors import StoreError
from h2ams.files import Changed, Root
from h2ams.memory import layout, relabel
from h2ams.memory.lifecycle_plan import Failed, Operation
from h2ams.memory.places import has_scope_lines
from h2ams.memory.scope import Scope, parse_scope
from h2ams.settings import Settings
from h2ams.trees import Trees

_TRIES = 8  # an editor that saves more often than this while one line is changed has its way


class Relabelling:
    """Changes names of scopes in the files of one root."""

    def __init__(self, root: Root, settings: Settings, trees: Trees) -> None:
        self._root = root
        self._settings = settings
        self._trees = trees

    def run(self, operation: Operation) -> list[Failed]:
        """Scope lines and redirects that name the old scope; the files where it stays."""
        old, new = operation.scope, operation.target
        assert new is not None, operation
        failed: list[Failed] = []

        def scope_lines(data: bytes) -> bytes:
            return relabel.with_scope_lines(data, old, new, self._settings)

        for move in operation.moves:
            for path in self._trees.walk(move.target):
                if has_scope_lines(path):
                    self._rewrite(path, scope_lines, failed)
        for path, at in self._redirects(new):
            self._rewrite(path, _redirect(at, old, new), failed)
        return failed

    def _rewrite(self, path: str, change: Callable[[bytes], bytes], failed: list[Failed]) -> None:
        for _ in range(_TRIES):
            try:
                self._root.sweep_temps(path.rpartition("/")[0])  # ours, if we died here before
                state = self._root.read(path)
                if state is None or (after := change(state.data)) == state.data:
                    return
                self._root.replace(path, after, expect=state)
                return
            except Changed:
                continue  # somebody saved: look again
            except StoreError as error:  # the folder counts: nothing is read wrongly
                failed.append(Failed(path, f"the old name stays in it: {error}"))
                return
        failed.append(Failed(path, "the old name stays in it: it changes all the time"))

    def _redirects(self, topic: Scope) -> Iterator[tuple[str, Scope]]:
        """The ``redirect.json`` files beside ``topic``, with the topics that they stand in."""
        if not topic.topic:
            return
        session = topic.session
        holder = parse_scope("topic/x" if session is None else f"sessions/{session}/topic/x")
        for name in layout.folder_names(holder):
            for path in self._trees.walk(name.rpartition("/")[0]):
                folder, _, file = path.rpartition("/")
                place = layout.place_of(folder)
                if file == layout.REDIRECT_FILE and place is not None and place.is_scope:
                    assert place.scope is not None
                    yield path, place.scope


def _redirect(at: Scope, old: Scope, new: Scope) -> Callable[[bytes], bytes]:
    return lambda data: relabel.with_redirect(data, at, old, new)
