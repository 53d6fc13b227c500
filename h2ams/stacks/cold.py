"""Cold copies: what a summary stands for, kept exactly, outside of the quota (Truth).

One compressed file (zlib) for each transition of a workflow, named by stack, call id and the call
id of the summary before it, so that the names alone tell which copies still belong to a summary.
A copy is durable before the projection that deletes the chunks; one whose projection never came is
an orphan and goes at a later opening.
"""

from __future__ import annotations

import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass

from h2ams.atomic import FaultHook, Writer, errors_named
from h2ams.errors import DamagedError
from h2ams.stacks.compress import check_call_id

ORPHAN_S = 60.0  # between a copy and its projection lie milliseconds
_SUFFIX = ".z"
_NONE = "-"


@dataclass(frozen=True, slots=True)
class ColdName:
    """Whose copy a file is. ``previous`` is the call id of the summary before, or ""."""

    stack: str
    call_id: str
    previous: str

    @property
    def file(self) -> str:
        return f"{self.stack}~{self.call_id}~{self.previous or _NONE}{_SUFFIX}"

    @classmethod
    def of(cls, file: str) -> ColdName | None:
        stack, _, rest = file.removesuffix(_SUFFIX).partition("~")
        while rest.count("~") > 1:  # a long scene id has one in its name
            more, _, rest = rest.partition("~")
            stack = f"{stack}~{more}"
        call_id, tilde, previous = rest.partition("~")
        if not file.endswith(_SUFFIX) or not tilde:
            return None
        return cls(stack, call_id, "" if previous == _NONE else previous)


class ColdCopies:
    """The cold copies of one workflow in the folder ``path``, which is made when needed."""

    def __init__(self, path: str | os.PathLike[str], *, hook: FaultHook | None = None) -> None:
        self.path = os.path.abspath(path)
        self._writer = Writer(hook)

    def put(self, name: ColdName, text: str) -> None:
        """Keep ``text``; it is on the disk when this returns."""
        check_call_id(name.call_id)
        self._put(name, zlib.compress(text.encode("utf-8")))

    def _put(self, name: ColdName, data: bytes) -> None:
        path = os.path.join(self.path, name.file)
        with errors_named("write", path):
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            self._writer.overwrite(path, data, mode=0o600)
            self._writer.sync_folder(os.path.dirname(self.path))

    def get(self, stack: str, call_id: str) -> str | None:
        """The copy of that call, None where there is none; ``StoreError`` for a damaged one."""
        name = next((each for each in self.names(stack) if each.call_id == call_id), None)
        if name is None:
            return None
        try:
            return zlib.decompress(self._bytes(name)).decode("utf-8")
        except (zlib.error, UnicodeDecodeError):
            path = os.path.join(self.path, name.file)
            raise DamagedError(f"cold copy {path} is damaged", path=path) from None

    def _bytes(self, name: ColdName) -> bytes:
        path = os.path.join(self.path, name.file)
        with errors_named("read", path), open(path, "rb") as file:
            return file.read()

    def names(self, stack: str | None = None) -> list[ColdName]:
        """All copies, or those of one stack. What is no file of ours (a link, a folder) is none."""
        try:
            with os.scandir(self.path) as entries:
                files = sorted(each.name for each in entries if each.is_file(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [name for name in map(ColdName.of, files) if name is not None]
        return [each for each in found if stack is None or each.stack == stack]

    def delete(self, stack: str, call_id: str | None = None) -> None:
        """Remove the copies of ``stack``, or that of one call."""
        for each in self.names(stack):
            if call_id is None or each.call_id == call_id:
                self._remove(each)

    def clear(self) -> None:
        """Remove all of them."""
        for each in self.names():
            self._remove(each)

    def sweep(self, stack: str, call_id: str | None) -> None:
        """Remove the copies of ``stack`` that do not lead to its summary's call ``call_id``."""
        names = {each.call_id: each for each in self.names(stack)}
        while call_id in names:
            call_id = names.pop(call_id).previous
        for each in names.values():
            with suppress(FileNotFoundError):
                age_s = time.time() - os.stat(os.path.join(self.path, each.file)).st_mtime
                if age_s > ORPHAN_S:
                    self._remove(each)

    def copy_to(self, other: ColdCopies) -> None:
        """Put all copies into ``other`` too, as they are: a damaged one is told when it is used."""
        for each in self.names():
            other._put(each, self._bytes(each))

    def _remove(self, name: ColdName) -> None:
        path = os.path.join(self.path, name.file)
        with errors_named("remove", path), suppress(FileNotFoundError):
            os.unlink(path)
            self._writer.sync_folder(self.path)
