"""What the memory tool says, in the two styles of its public contract (Pure): one table.

``docs`` is the style of the public documentation, ``sdk`` that of the file-system tools in
Anthropic's own SDK. A model was trained on both. Texts are templates for ``str.format``.
"""

from __future__ import annotations

from typing import Literal

Style = Literal["docs", "sdk"]

_NO_PLACE = "The path {path} does not exist. Please provide a valid path."
_RANGE = "It should be within the range"

# name: (docs, sdk)
STRINGS: dict[str, tuple[str, str]] = {
    "view-folder": (
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items "
        "and node_modules:",
        "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:",
    ),
    "folder-line": ("{size}\t{path}", "{size}\t{path}/"),
    "view-file": ("Here's the content of {path} with line numbers:",) * 2,
    "view-missing": (_NO_PLACE, _NO_PLACE),
    "view-range": (
        "Error: Invalid `view_range` parameter: {range}. " + _RANGE + " of lines of the file: "
        "[1, {lines}]",
        "Invalid `view_range` parameter: {range}. " + _RANGE + " [1, {lines}].",
    ),
    "too-many-lines": ("File {path} exceeds maximum line limit of 999,999 lines.",) * 2,
    "more-lines": ("({left} more lines: use view_range)",) * 2,
    "created": ("File created successfully at: {path}",) * 2,
    "create-exists": ("Error: File {path} already exists", "File {path} already exists"),
    "replaced": (
        "The memory file has been edited.",
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):",
    ),
    "replace-missing": (f"Error: {_NO_PLACE}", _NO_PLACE),
    "replace-folder": (f"Error: {_NO_PLACE}", "The path {path} is not a file."),
    "replace-none": (
        "No replacement was performed, old_str `{old_str}` did not appear verbatim in {path}.",
    )
    * 2,
    "replace-many": (
        "No replacement was performed. Multiple occurrences of old_str `{old_str}` in lines: "
        "{lines}. Please ensure it is unique",
    )
    * 2,
    "inserted": ("The file {path} has been edited.",) * 2,
    "insert-missing": ("Error: The path {path} does not exist", _NO_PLACE),
    "insert-folder": ("Error: The path {path} does not exist", "The path {path} is not a file."),
    "insert-line": (
        "Error: Invalid `insert_line` parameter: {line}. " + _RANGE + " of lines of the file: "
        "[0, {lines}]",
        "Invalid `insert_line` parameter: {line}. " + _RANGE + " [0, {lines}].",
    ),
    "deleted": ("Successfully deleted {path}",) * 2,
    "delete-missing": (
        "Error: The path {path} does not exist",
        "The path {path} does not exist",
    ),
    "delete-root": (
        "Error: Cannot delete the /memories directory itself",
        "Cannot delete the /memories directory itself",
    ),
    "renamed": ("Successfully renamed {old_path} to {new_path}",) * 2,
    "rename-missing": (
        "Error: The path {path} does not exist",
        "The path {path} does not exist",
    ),
    "rename-exists": (
        "Error: The destination {path} already exists",
        "The destination {path} already exists",
    ),
    "rename-root": (
        "Error: Cannot rename the /memories directory itself",
        "Cannot rename the /memories directory itself",
    ),
    "no-memory-path": (
        "Error: Path must start with /memories, got: {path}",
        "Path must start with /memories, got: {path}",
    ),
    "escapes": (
        "Error: Path {path} would escape /memories directory",
        "Path {path} would escape /memories directory",
    ),
    "refused": ("Error: {why}", "{why}"),
}


def say(style: Style, name: str, **values: object) -> str:
    """The text called ``name`` in ``style`` with its values."""
    return STRINGS[name][style == "sdk"].format(**values)


def file_size(size_bytes: int, style: Style) -> str:
    """A size for people: ``5.5K``; docs style keeps one digit (``4.0K``), the SDK's only if any."""
    if size_bytes == 0:
        return "0B" if style == "sdk" else "0"
    power = min((size_bytes.bit_length() - 1) // 10, 3)
    size = size_bytes / 1024**power
    unit = "BKMG"[power]
    if style == "sdk":
        return f"{int(size)}{unit}" if size == int(size) else f"{size:.1f}{unit}"
    return f"{size_bytes}" if power == 0 else f"{size:.1f}{unit}"
