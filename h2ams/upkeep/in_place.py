"""Folders of other programs that are Markdown already: opened where they are, nothing copied.

A survey says what will be found there and what will not be read, and writes nothing. Opening such a
folder as a root keeps its index beside it (``config.keep_state_beside``), so that no byte of the
folder changes; it stays the other program's, which goes on writing to it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from h2ams.errors import NotFoundError, UsageError
from h2ams.memory.intake import Unfit
from h2ams.memory.layout import ROOT, Place, Role, enter, role

LISTED_MOST = 1_000  # single files in a report; further ones are only counted
TEXT_BYTES = 1024 * 1024  # of a file that is looked into


@dataclass(frozen=True, slots=True)
class Survey:
    """``root``: the folder to open. ``notes``: Markdown files that will be read."""

    root: str
    notes: int
    left_out: tuple[Unfit, ...]


@dataclass(frozen=True, slots=True)
class _Format:
    """How to know a folder of this program, and what of its texts means nothing here."""

    is_one: Callable[[str], bool]
    hint: str
    marks: tuple[tuple[re.Pattern[str], str], ...] = ()


def _has(*names: str) -> Callable[[str], bool]:
    return lambda folder: any(os.path.exists(os.path.join(folder, name)) for name in names)


def _has_notes(folder: str) -> bool:
    return any(name.endswith(".md") for _, _, names in os.walk(folder) for name in names)


_FORMATS = {
    "claude-code": _Format(
        lambda folder: _has("MEMORY.md", "memory", "CLAUDE.md")(folder) or _has_notes(folder),
        "give the folder with MEMORY.md, such as ~/.claude/projects/NAME/memory",
        ((re.compile(r"^@\S+", re.M), "files that CLAUDE.md takes in with @ (open them too)"),),
    ),
    "openclaw": _Format(
        _has("MEMORY.md", "memory", "SOUL.md", "USER.md", "AGENTS.md"),
        "give the agent's workspace, such as ~/.openclaw/workspace",
    ),
    "obsidian": _Format(
        lambda folder: _has(".obsidian")(folder) or _has_notes(folder),
        "give the folder of the vault",
        (
            (re.compile(r"^```(?:dataview|dataviewjs|tasks|query)\b", re.M), "queries of plugins"),
            (re.compile(r"!\[\[[^\]\n]+\]\]"), "embedded notes and files (their own text is read)"),
        ),
    ),
    "basic-memory": _Format(
        _has_notes,
        "give the folder of the project",
        (
            (
                re.compile(r"^\s*- [\w ]+ \[\[[^\]\n]+\]\]", re.M),
                "relations (found as text, not followed)",
            ),
            (
                re.compile(r"^\s*- \[[^\]\n ]+\] ", re.M),
                "categories of observations (found as text, no kinds)",
            ),
        ),
    ),
}


def survey(format: str, path: str) -> Survey:
    """Look through the folder at ``path``. ``NotFoundError``; ``UsageError`` for no such folder."""
    root = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(root):
        raise NotFoundError(f"{path}: there is no such folder", hint=_FORMATS[format].hint)
    if format == "claude-code" and not _has("MEMORY.md")(root) and _has("memory")(root):
        root = os.path.join(root, "memory")
    known = _FORMATS[format]
    if not known.is_one(root):
        raise UsageError(f"{root} is no folder of {format}", hint=known.hint)
    looked = _Look(known)
    looked.folder(root, "", ROOT)
    return Survey(root, looked.notes, looked.report(root))


class _Look:
    """One walk through a folder."""

    def __init__(self, format: _Format) -> None:
        self._format = format
        self.notes = 0
        self._left: list[Unfit] = []
        self._more: Counter[str] = Counter()
        self._marks: Counter[str] = Counter()

    def folder(self, root: str, folder: str, place: Place) -> None:
        try:
            with os.scandir(os.path.join(root, folder)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self._leave(folder or ".", f"cannot be read: {error.strerror}")
            return
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_symlink():
                self._link(root, path)
            elif entry.is_dir(follow_symlinks=False):
                inner = enter(place, entry.name)
                if inner is None:
                    continue  # hidden: the program's own settings
                if inner.problem:
                    self._leave(path, inner.problem)
                else:
                    self.folder(root, path, inner)
            else:
                self._file(root, path, place)

    def _file(self, root: str, path: str, place: Place) -> None:
        found, detail = role(place, path.rpartition("/")[2])
        if found is Role.CONFLICT_COPY:
            self._leave(path, "a sync tool's copy of a file that changed twice")
        elif found is not Role.IGNORED:
            self.notes += 1
            self._text(os.path.join(root, path))
        elif detail == "not-markdown":
            self._leave(path, "not Markdown")
        elif detail not in ("hidden", "temporary"):
            self._leave(path, detail)

    def _link(self, root: str, path: str) -> None:
        real = os.path.realpath(os.path.join(root, path))
        if not real.startswith(os.path.realpath(root) + os.sep):
            self._leave(path, "a link that leads out of the folder")

    def _text(self, path: str) -> None:
        if not self._format.marks:
            return
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(TEXT_BYTES)
        except OSError:
            return  # the sync that follows reports it
        for pattern, meaning in self._format.marks:
            self._marks[meaning] += len(pattern.findall(text))

    def _leave(self, path: str, reason: str) -> None:
        if len(self._left) < LISTED_MOST:
            self._left.append(Unfit(path, reason))
        else:
            self._more[reason] += 1

    def report(self, root: str) -> tuple[Unfit, ...]:
        more = [Unfit(root, f"{count} more: {why}") for why, count in sorted(self._more.items())]
        marks = [Unfit(root, f"{n} {what}") for what, n in sorted(self._marks.items()) if n]
        return (*self._left, *more, *marks)
