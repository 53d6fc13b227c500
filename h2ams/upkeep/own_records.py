"""The engine's own records in the state folder that cannot be read, for ``doctor`` to name.

Each is looked at the way that its owner reads it, and none is changed: what nothing else holds is
for a person to restore or to move away. The index is not among them: it is made anew by itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from h2ams.errors import H2amsError, StoreError
from h2ams.files import Root
from h2ams.memory.values import Problem
from h2ams.stacks.folder import FOLDER, WorkflowFolder
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.upkeep.thread_folder import FILE

UNREADABLE = "state-unreadable"
_JSON_FOLDERS = (
    "dream/marks",
    "dream/passes",
    "dream/plans",
    "dream/undo",
    "forgotten",
)
_AMS = "ams"


def unreadable_records(root: Root) -> list[Problem]:
    """One problem for each record that its owner could not read."""
    found = [*_json_problems(root), *_thread_problems(root), *_workflow_problems(root)]
    return [Problem(UNREADABLE, message, 0, path) for path, message in found]


def _json_problems(root: Root) -> Iterator[tuple[str, str]]:
    folders = [*_JSON_FOLDERS, *(f"{_AMS}/{each}" for each in _names(root, _AMS))]
    for folder in folders:
        for name in _names(root, folder):
            path = f"{folder}/{name}"
            if name.startswith(".") or not name.endswith(".json"):
                continue
            try:
                data = root.read_state(path)
                if data is not None and not isinstance(json.loads(data), dict):
                    yield _place(root, path), "it is not what the engine wrote"
            except (ValueError, RecursionError):
                yield _place(root, path), "it is not what the engine wrote"
            except StoreError as error:
                yield _place(root, path), error.message


def _names(root: Root, folder: str) -> list[str]:
    try:
        return root.state_names(folder)
    except StoreError:  # a file in its place: whoever needs the folder says so
        return []


def _thread_problems(root: Root) -> Iterator[tuple[str, str]]:
    path = os.path.join(root.state, FILE)
    if not os.path.lexists(path):
        return
    try:
        store = SqliteThreadStore(path)
        try:
            store.list()
        finally:
            store.close()
    except H2amsError as error:
        yield _place(root, FILE), error.message


def _workflow_problems(root: Root) -> Iterator[tuple[str, str]]:
    folder = WorkflowFolder(os.path.join(root.state, FOLDER))
    for name in folder.names():
        try:
            folder.store(name, create=False).close()
        except StoreError as error:
            yield _place(root, f"{FOLDER}/{name.path}.db"), error.message


def _place(root: Root, name: str) -> str:
    """``name`` as a path below the root; absolute where the state folder is elsewhere."""
    path = os.path.join(root.state, *name.split("/"))
    inside = path.startswith(root.path.rstrip(os.sep) + os.sep)
    return os.path.relpath(path, root.path) if inside else path
