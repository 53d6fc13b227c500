"""Whether a scope is still the one that long work began with (Truth).

A model may think for minutes, and a scope may be deleted, renamed or migrated meanwhile. What comes
back then must not make it anew: a deleted session would hold text again, and a renamed one would
have a twin under its old name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from h2ams.errors import ConflictError
from h2ams.files import Root
from h2ams.memory import folders as on_disk
from h2ams.memory.scope import Scope

_Identity = tuple[int, int]  # device and inode of a folder


@dataclass(frozen=True, slots=True)
class Presence:
    """The folders of ``scope`` at the moment of ``seen``; none where it is yet to be made."""

    root: Root
    scope: Scope
    folders: frozenset[_Identity]

    @classmethod
    def seen(cls, root: Root, scope: Scope) -> Presence:
        """How ``scope`` stands on disk now."""
        return cls(root, scope, frozenset(_identities(root, scope)))

    def check(self) -> None:
        """``ConflictError`` where the folders are gone; call it with a lock of the scope held, so
        that no operation on it can begin before the write."""
        if self.folders and self.folders.isdisjoint(_identities(self.root, self.scope)):
            raise gone(self.scope.text)


def gone(what: str) -> ConflictError:
    """The error of work whose scope or thread went away meanwhile."""
    return ConflictError(
        f"{what} was deleted, renamed, moved or purged meanwhile: nothing more was written",
        hint="try again under the name that it has now",
        path=what,
    )


def _identities(root: Root, scope: Scope) -> Iterator[_Identity]:
    for folder in on_disk.existing(root, scope):
        try:
            found = os.stat(os.path.join(root.path, *folder.split("/")))
        except OSError:  # went this moment
            continue
        yield found.st_dev, found.st_ino
