"""What Dream keeps, as state that scopes own: listed, deleted and renamed with them.

Watermarks and the records of passes follow a rename. Undo records, unfinished plans and debug files
hold the text of files as they were: they end with a rename, and a copy of a scope gets none.
"""

from __future__ import annotations

from h2ams.dream.journal import Journal
from h2ams.files import Root
from h2ams.memory.lifecycle_plan import holds, renamed
from h2ams.memory.scope import Scope


class DreamState:
    """Calls may be repeated after a crash. A scope is a family here: a session with all in it, a
    role with what it owns in all sessions and chats."""

    name = "dream"
    is_cloned = False
    lock: str | None = None
    may_be_late = False

    def __init__(self, root: Root) -> None:
        self._journal = Journal(root)

    def list(self, scope: Scope) -> tuple[str, ...]:
        """The state files of ``scope``, below the state folder."""
        return self._journal.owned_by(lambda each: holds(scope, each))

    def delete(self, scope: Scope) -> tuple[str, ...]:
        """Remove them all; nothing is left for later.

        Plans and debug files of other threads may hold text of the scope: they go as with a purge.
        """
        self._journal.drop((*self.list(scope), *self._journal.texts()))
        return ()

    def rename(self, old: Scope, new: Scope) -> None:
        self._journal.rename_owner(
            lambda each: holds(old, each), lambda each: renamed(each, old, new)
        )

    def clone(self, old: Scope, new: Scope) -> tuple[str, ...]:
        """Nothing: a copy has no passes of its own yet."""
        return ()
