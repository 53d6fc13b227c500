"""Which folders of a scope really exist on this disk, in the spelling they have there (Truth).

Strategy: names are compared in NFC, so that a folder that some system wrote decomposed is found
under its canonical name and is written to as it stands; the grammar says which names to look for,
the disk how they are spelled. Creating is stricter than finding: an id that differs from an
existing one only by case or Unicode form is refused, on every file system alike.
"""

from __future__ import annotations

import os
import unicodedata

from h2ams.errors import ScopeError, StoreError, UnsafePathError
from h2ams.files import Root
from h2ams.memory import layout
from h2ams.memory.legacy import Followed, follow
from h2ams.memory.scope import Scope, fold


def existing(root: Root, scope: Scope) -> tuple[str, ...]:
    """Existing folders of ``scope`` itself (redirects not followed), canonical layout first.

    ``UnsafePathError`` where one is a link that leads outside of the root.
    """
    found: list[str] = []
    for name in layout.folder_names(scope):
        found.extend(_spellings(root, name))
    return tuple(found)


def home(root: Root, scope: Scope) -> str:
    """The folder that new segments of ``scope`` go to: canonical layout, existing or not.

    A parent that exists in another Unicode form is used as it is spelled.
    """
    name = layout.folder_names(scope)[0]
    parent = ""
    for part in name.split("/"):
        spelled = _in_folder(root, parent, part)
        parent = _join(parent, spelled[0] if spelled else part)
    return parent


def followed(root: Root, scope: Scope) -> Followed:
    """Where the redirects of a topic lead; any other scope costs nothing here."""
    if not scope.topic:
        return Followed(scope)
    return follow(
        scope,
        lambda topic: _read_redirect(root, topic),
        lambda topic: bool(existing(root, topic)),
    )


def check_own(root: Root, path: str, scope: Scope) -> None:
    """``UnsafePathError`` where ``path`` leads through a link into another scope's folder.

    A link to a file outside of any scope folder is a person's choice; one into another scope would
    show its text, or take writes, across the border.
    """
    real = os.path.relpath(root.absolute(path), root.path).replace(os.sep, "/")
    if real != path and layout.crosses_scopes(real, scope):
        raise UnsafePathError(
            f"{path} is a link into the scope folder {os.path.dirname(real)}: not followed",
            path=path,
            hint="put the text into the scope itself",
        )


def check_creatable(root: Root, scope: Scope) -> None:
    """``ScopeError`` where an id differs from an existing one only by case or Unicode form.

    A scope that exists (in any layout) passes. Level by level: a name that is there in one of the
    layouts is the name meant; where there is none, no other form of it may stand beside.
    """
    names = [name.split("/") for name in layout.folder_names(scope)]
    families = [parts[0] for parts in names]
    parents = [entry for family in families for entry in _in_folder(root, "", family)]
    if families[0] not in parents:
        _refuse_other_form(root, [""], names[0], 0)
    for depth in range(1, len(names[0])):
        part = names[0][depth]
        exact = [
            _join(parent, entry) for parent in parents for entry in _in_folder(root, parent, part)
        ]
        if not exact:
            _refuse_other_form(root, parents, names[0], depth)
            return
        parents = exact


def _refuse_other_form(root: Root, parents: list[str], canonical: list[str], depth: int) -> None:
    for parent in parents:
        other = _other_form(root, parent, canonical[depth])
        if other is not None:
            wanted = "/".join(canonical)
            there = unicodedata.normalize("NFC", "/".join([*canonical[:depth], other]))
            raise ScopeError(
                f"scope {wanted}: {there} exists and differs only by case or Unicode form",
                hint=f"use {there}",
            )


def _other_form(root: Root, parent: str, part: str) -> str | None:
    wanted = fold(part)
    for entry in _names(root, parent):
        if fold(entry) == wanted and unicodedata.normalize("NFC", entry) != part:
            return entry
    return None


def _read_redirect(root: Root, scope: Scope) -> tuple[str, bytes] | None:
    for folder in existing(root, scope):
        path = f"{folder}/{layout.REDIRECT_FILE}"
        state = root.read(path)
        if state is not None:
            return path, state.data
    return None


def _spellings(root: Root, name: str) -> list[str]:
    """Existing folders whose relative path is ``name`` in NFC, exact spelling first."""
    if _one_spelling(name) and not root.folds_case:
        return [name] if os.path.isdir(root.absolute(name)) else []
    parents = [""]
    for part in name.split("/"):
        parents = [
            _join(parent, entry) for parent in parents for entry in _in_folder(root, parent, part)
        ]
    return parents


def _in_folder(root: Root, parent: str, part: str) -> list[str]:
    """Sub-folders of ``parent`` that are ``part`` in NFC, exact spelling first."""
    found = [part] if os.path.isdir(root.absolute(_join(parent, part))) else []
    if found and root.folds_case and part not in _names(root, parent):
        found = []  # the disk means a folder that is spelled otherwise
    if _one_spelling(part):
        return found
    for entry in sorted(_names(root, parent)):
        if entry != part and unicodedata.normalize("NFC", entry) == part and entry not in found:
            found.append(entry)
    return found


def _one_spelling(text: str) -> bool:
    """Whether no other text has ``text`` as its NFC: ASCII but for K, which KELVIN SIGN becomes."""
    return text.isascii() and "K" not in text


def _names(root: Root, parent: str) -> list[str]:
    """Names of the folders in ``parent``; none where it does not exist."""
    try:
        with os.scandir(root.absolute(parent) if parent else root.path) as entries:
            return [entry.name for entry in entries if entry.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        where = parent or root.path
        raise StoreError(
            f"cannot list folder {where}: {error.strerror}",
            path=parent,
            hint="check its permissions",
        ) from error


def _join(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name
