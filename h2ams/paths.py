"""Paths that stay below a root, folders that exist, links (looks, never writes; for ``files``)."""

from __future__ import annotations

import os
import re
import stat

from h2ams.atomic import reason
from h2ams.errors import RootError, UnsafePathError

# One test for every path of a scan; what it catches is looked at slowly, and may be harmless.
_DOUBTFUL = re.compile(r"\A\Z|[\0\\]|\A/|/\Z|//|\A[A-Za-z]:|(?:\A|/)\.\.?(?:/|\Z)")
_REPARSE_POINT = 0x400  # FILE_ATTRIBUTE_REPARSE_POINT: junctions are links too


def existing_folder(text: str) -> str:
    """Absolute real path of an existing, readable folder; ``RootError`` otherwise."""
    if not text:
        raise RootError("memory folder: empty path", hint="name a folder", path=text)
    try:
        path = os.path.realpath(text)
        with os.scandir(path):
            os.stat(os.path.join(path, "."))  # a folder without x can be listed but not entered
    except (OSError, ValueError) as error:
        raise root_error(text, error) from error
    return path


def root_error(text: str, error: OSError | ValueError) -> RootError:
    shown = os.path.abspath(text) if "\0" not in text else repr(text)
    missing = isinstance(error, FileNotFoundError)
    hint = "h2ams init makes it" if missing else "check the path, its mount and its permissions"
    return RootError(f"memory folder {shown}: {reason(error)}", hint=hint, path=shown)


def checked_parts(relative: str) -> list[str]:
    """Checked parts of a relative path with ``/`` between them; none for ""."""
    if not _DOUBTFUL.search(relative) and (relative.isascii() or _can_be_named(relative)):
        return relative.split("/")
    if relative == "":
        return []
    if "\0" in relative:
        raise unsafe(relative, "holds a NUL")
    if "\\" in relative:
        raise unsafe(relative, "holds a backslash, a separator on other systems")
    if relative[0] == "/":
        raise unsafe(relative, "is absolute")
    if re.match(r"[A-Za-z]:(?:/|$)", relative) or os.path.splitdrive(relative)[0]:
        raise unsafe(relative, "names a drive")
    if not _can_be_named(relative):
        raise unsafe(relative, "is no text that a file name can hold")
    parts = relative.split("/")
    for part in parts:
        if part in ("", ".", ".."):
            raise unsafe(relative, f"holds the part {part!r}")
    return parts


def _can_be_named(relative: str) -> bool:
    try:
        os.fsencode(relative)
    except UnicodeEncodeError:
        return False
    return True


def unsafe(shown: str, why: str) -> UnsafePathError:
    return UnsafePathError(
        f"path {shown!a} {why}",
        path=shown,
        hint="paths are relative to the memory folder and stay inside it",
    )


def refuse_link(path: str, shown: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if is_link(status):
        raise unsafe(shown, "is a link; the engine follows none among its own files")


def refuse_no_file(path: str) -> None:
    """``UnsafePathError`` where anything but a file stands at ``path``, a file of the engine's."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISREG(status.st_mode) and not is_link(status):
        return
    what = "link" if is_link(status) else "folder" if stat.S_ISDIR(status.st_mode) else "device"
    raise UnsafePathError(
        f"{path} is a {what}, but the engine keeps a file there",
        path=path,
        hint=f"move the {what} away and try again: the file is made anew",
    )


def is_link(status: os.stat_result) -> bool:
    attributes: int = getattr(status, "st_file_attributes", 0)
    return stat.S_ISLNK(status.st_mode) or bool(attributes & _REPARSE_POINT)
