"""The journal of operations on scopes: what is under way, or was when a process died (state).

One small file per operation below ``<root>/.h2ams/journal/``, whatever the state folder is: all who
open the root must see it, as with locks. It is durable before the first change and goes after the
last. Asking whether there is any costs one look at a folder.
"""

from __future__ import annotations

from h2ams.errors import ConflictError, StoreError
from h2ams.files import Root
from h2ams.memory import lifecycle_plan as plans
from h2ams.memory.lifecycle_plan import Operation
from h2ams.memory.scope import Scope

LOCK = "scope operation"  # held while an operation runs, or is finished for a dead process


def pending(root: Root) -> tuple[Operation, ...]:
    """The operations that are not finished, oldest name first.

    ``StoreError`` for a file that cannot be read: it may stand for half a change.
    """
    found = []
    for name in root.own_names(plans.JOURNAL):
        if name.startswith(".") or not name.endswith(".json"):
            continue  # a temporary of a process that died: nothing had begun
        path = f"{plans.JOURNAL}/{name}"
        data = root.read_own(path)
        if data is None:
            continue  # finished at this moment
        try:
            found.append(plans.parse(data))
        except ValueError as error:
            raise StoreError(
                f"{path} in .h2ams cannot be read: {error}",
                path=path,
                hint="an operation on a scope was interrupted: see docs/recovery.md",
            ) from error
    return tuple(found)


def write(root: Root, operation: Operation) -> None:
    """Make ``operation`` durable as it is now."""
    root.write_own(_name(operation), plans.render(operation))


def drop(root: Root, operation: Operation) -> None:
    """The operation is finished, or has never begun."""
    root.remove_own(_name(operation))


def check_free(root: Root, scope: Scope) -> None:
    """``ConflictError`` where an operation covers ``scope``; call it with the scope's lock held."""
    for operation in pending(root):
        if operation.covers(scope):
            raise ConflictError(
                f"{scope}: {operation.title} is running: nothing was written",
                hint="try again when it has finished",
                path=scope.text,
            )


def sweep(root: Root) -> None:
    """Remove what processes that died left of lines not yet written; call it with the lock held."""
    for name in root.own_names(plans.JOURNAL):
        if name.startswith("."):
            root.remove_own(f"{plans.JOURNAL}/{name}")


def _name(operation: Operation) -> str:
    return f"{plans.JOURNAL}/{operation.op}.json"
