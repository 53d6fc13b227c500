"""The memory tool ``memory_20250818`` on a memory folder: six commands on ``/memories``.

A command is the input of one tool call; its outcome is the text for the tool result. No SDK is
needed here: ``anthropic_sdk`` wraps this into the classes of Anthropic's SDK. ``/memories`` is the
root of the folder, or one scope in it (``scope=``), which is what a session's own tool wants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2ams.errors import ConflictError, H2amsError, NotFoundError, UnsafePathError, UsageError
from h2ams.memory.scope import parse_scope
from h2ams.surfaces.anthropic_strings import Style, file_size, say
from h2ams.surfaces.output import error_text

if TYPE_CHECKING:
    from h2ams.engine import Memory
    from h2ams.memory.access import Access
    from h2ams.memory.tree import FileTree, Node

ROOT = "/memories"
MAX_LINES = 999_999
NUMBER_WIDTH = 6
SNIPPET_LINES = 2  # before and after a replaced line
VIEW_CHARS = 60_000  # of one view; the rest is read with view_range
LEVELS = 2
# Another spelling of a separator or of dots that something behind us might decode.
_ENCODED = re.compile(r"%(?:25)*(?:2e|2f|5c|00|c0|c1|e0)", re.IGNORECASE)


class Refused(Exception):
    """A command that is answered with an error text."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The text of a tool result, and whether it is an error."""

    text: str
    is_error: bool = False


class MemoryCommands:
    """Runs the tool's commands on an open memory under one access (None: the owner)."""

    def __init__(
        self,
        memory: Memory,
        *,
        access: Access | None = None,
        scope: str = "",
        style: Style = "docs",
    ) -> None:
        self._memory = memory
        self._access = access
        self._base = parse_scope(scope).text if scope else ""
        self._style = style

    def run(self, command: Mapping[str, Any]) -> Outcome:
        """Run one command, ``{"command": "view", "path": "/memories", …}``."""
        name = command.get("command")
        run = _COMMANDS.get(name) if isinstance(name, str) else None
        if run is None:
            return Outcome(self._say("refused", why=f"Unknown command: {name}"), True)
        try:
            needed = {key: _typed(command, key, kind) for key, kind in _NEEDED[str(name)].items()}
            return Outcome(run(self, **needed))
        except Refused as error:
            return Outcome(str(error), True)
        except UnsafePathError:
            return Outcome(self._say("escapes", path=_shown(command)), True)
        except (H2amsError, OSError) as error:
            message, hint = error_text(error)
            why = f"{message} ({hint})" if hint else message
            return Outcome(self._say("refused", why=why), True)

    # -- the six commands --------------------------------------------------------------------------

    def _view(self, path: str, view_range: list[int] | None) -> str:
        where, tree = self._place(path), self._tree()
        node = tree.node(where)
        if node is None:
            if where != self._base:
                raise self._no("view-missing", path=path)
            return self._folder_text(path, where, [], 0)
        if node.is_folder:
            return self._folder_text(path, where, tree.nodes(where, LEVELS), node.size)
        return self._file_text(path, tree.read(where), view_range)

    def _folder_text(self, path: str, where: str, nodes: list[Node], size: int) -> str:
        lines = [self._say("view-folder", path=path)]
        lines.append(f"{file_size(size, self._style)}\t{path}")
        for node in nodes:
            shown = f"{path.rstrip('/')}/{node.path[len(where) :].lstrip('/')}"
            size_text = file_size(node.size, self._style)
            if node.is_folder:
                lines.append(self._say("folder-line", size=size_text, path=shown))
            else:
                lines.append(f"{size_text}\t{shown}")
        return "\n".join(lines)

    def _file_text(self, path: str, text: str, view_range: list[int] | None) -> str:
        lines = _lines(text)
        if len(lines) > MAX_LINES:
            raise self._no("too-many-lines", path=path)
        start, end = 1, len(lines)
        if view_range:
            start, end = max(1, view_range[0]), view_range[1]
            end = len(lines) if end == -1 else min(end, len(lines))
            if start > end:
                raise self._no("view-range", range=view_range, lines=len(lines))
        shown, used = [self._say("view-file", path=path)], 0
        for number in range(start, end + 1):
            line = _numbered(number, lines[number - 1])
            used += len(line)
            if used > VIEW_CHARS and number > start:
                shown.append(self._say("more-lines", left=end - number + 1))
                break
            shown.append(line)
        return "\n".join(shown)

    def _create(self, path: str, file_text: str) -> str:
        where = self._place(path)
        try:
            self._tree().create(where, file_text)
        except ConflictError as error:
            raise self._no("create-exists", path=path) from error
        return self._say("created", path=path)

    def _str_replace(self, path: str, old_str: str, new_str: str) -> str:
        where, tree = self._place(path), self._tree()
        self._need_file(tree, where, path, "replace")
        places: list[int] = []

        def change(text: str, added: str) -> str:
            windows, plain = _unified(text)
            old = _unified(old_str)[1] if windows else old_str
            found = _places(plain, old)
            if not found:
                raise self._no("replace-none", old_str=old_str, path=path)
            if len(found) > 1:
                lines = ", ".join(str(plain.count("\n", 0, at) + 1) for at in found)
                raise self._no("replace-many", old_str=old_str, lines=lines)
            places[:] = [plain.count("\n", 0, found[0])]
            made = plain[: found[0]] + added + plain[found[0] + len(old) :]
            return made.replace("\n", "\r\n") if windows else made

        text = tree.edit(where, new_str, change)
        lines = _lines(text)
        first = max(0, places[0] - SNIPPET_LINES)
        shown = range(first, min(len(lines), places[0] + SNIPPET_LINES + 1))
        snippet = [_numbered(index + 1, lines[index]) for index in shown]
        return "\n".join([self._say("replaced"), *snippet])

    def _insert(self, path: str, insert_line: int, insert_text: str) -> str:
        where, tree = self._place(path), self._tree()
        self._need_file(tree, where, path, "insert")

        def change(text: str, added: str) -> str:
            windows, plain = _unified(text)
            lines = plain.split("\n")
            if lines[-1] == "":
                lines.pop()
            if not 0 <= insert_line <= len(lines):
                raise self._no("insert-line", line=insert_line, lines=len(lines))
            new = (_unified(added)[1] if windows else added).removesuffix("\n")
            made = "\n".join([*lines[:insert_line], new, *lines[insert_line:]]) + "\n"
            return made.replace("\n", "\r\n") if windows else made

        tree.edit(where, insert_text, change)
        return self._say("inserted", path=path)

    def _delete(self, path: str) -> str:
        where, tree = self._place(path), self._tree()
        if where == self._base:
            raise self._no("delete-root")
        try:
            tree.delete(where)
        except NotFoundError as error:
            raise self._no("delete-missing", path=path) from error
        return self._say("deleted", path=path)

    def _rename(self, old_path: str, new_path: str) -> str:
        old, new, tree = self._place(old_path), self._place(new_path), self._tree()
        if self._base in (old, new):
            raise self._no("rename-root")
        try:
            tree.rename(old, new)
        except NotFoundError as error:
            raise self._no("rename-missing", path=old_path) from error
        except ConflictError as error:
            raise self._no("rename-exists", path=new_path) from error
        return self._say("renamed", old_path=old_path, new_path=new_path)

    # -- helpers -----------------------------------------------------------------------------------

    def _tree(self) -> FileTree:
        return self._memory.tree(access=self._access)

    def _place(self, path: str) -> str:
        """The path below the root that ``path`` names, "" for the root itself."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise self._no("no-memory-path", path=path)
        relative = path[len(ROOT) + 1 :].removesuffix("/")
        parts = relative.split("/") if relative else []
        if _ENCODED.search(path) or any(part in ("", ".", "..") for part in parts):
            raise self._no("escapes", path=path)
        if any(char in path for char in "\\\0\n\r"):
            raise self._no("escapes", path=path)
        return "/".join([*([self._base] if self._base else []), *parts])

    def _need_file(self, tree: FileTree, where: str, path: str, name: str) -> None:
        node = tree.node(where)
        if node is None:
            raise self._no(f"{name}-missing", path=path)
        if node.is_folder:
            raise self._no(f"{name}-folder", path=path)

    def _say(self, name: str, **values: object) -> str:
        return say(self._style, name, **values)

    def _no(self, name: str, **values: object) -> Refused:
        return Refused(self._say(name, **values))


_COMMANDS: dict[str, Any] = {
    "view": MemoryCommands._view,
    "create": MemoryCommands._create,
    "str_replace": MemoryCommands._str_replace,
    "insert": MemoryCommands._insert,
    "delete": MemoryCommands._delete,
    "rename": MemoryCommands._rename,
}
_NEEDED: dict[str, dict[str, str]] = {
    "view": {"path": "text", "view_range": "range"},
    "create": {"path": "text", "file_text": "text"},
    "str_replace": {"path": "text", "old_str": "text", "new_str": "text or nothing"},
    "insert": {"path": "text", "insert_line": "number", "insert_text": "text"},
    "delete": {"path": "text"},
    "rename": {"old_path": "text", "new_path": "text"},
}


def _typed(command: Mapping[str, Any], key: str, kind: str) -> Any:
    """The value of ``key``; ``UsageError`` where it is missing or of another type."""
    value = command.get(key)
    if kind == "range" and value is None:
        return None
    if kind == "text or nothing" and value is None:
        return ""
    right = {
        "text": isinstance(value, str),
        "text or nothing": isinstance(value, str),
        "number": isinstance(value, int) and not isinstance(value, bool),
        "range": isinstance(value, list | tuple)
        and len(value) == 2
        and all(isinstance(each, int) for each in value),
    }
    if not right[kind]:
        raise UsageError(f"Invalid `{key}` parameter: {value!r}")
    return value


def _shown(command: Mapping[str, Any]) -> str:
    return str(command.get("path") or command.get("new_path") or command.get("old_path"))


def _unified(text: str) -> tuple[bool, str]:
    """Whether every line of ``text`` ends in CR LF, and then the text with LF alone.

    A model never writes the CR; in mixed files each byte counts as it is.
    """
    windows = "\r\n" in text and text.count("\n") == text.count("\r\n") == text.count("\r")
    return windows, text.replace("\r\n", "\n") if windows else text


def _lines(text: str) -> list[str]:
    return _unified(text)[1].split("\n")


def _places(text: str, wanted: str) -> list[int]:
    """Offsets of ``wanted`` in ``text``, overlapping ones too; none for an empty text."""
    found: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def _numbered(number: int, line: str) -> str:
    return f"{number:>{NUMBER_WIDTH}}\t{line}"
