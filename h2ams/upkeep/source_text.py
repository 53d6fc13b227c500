"""Reading the parts that exports have in common: JSON files, times, ids, kinds (reads only)."""

from __future__ import annotations

import hashlib
import json
import os
import re
from datetime import UTC, datetime
from typing import Any

from h2ams.errors import NotFoundError, ScopeError, UsageError
from h2ams.memory.scope import parse_scope
from h2ams.memory.values import format_time, parse_time
from h2ams.settings import KINDS

MAX_FILE_BYTES = 1024 * 1024 * 1024
_NO_ID = re.compile(r"[^\w.-]+")


def read_bytes(path: str) -> bytes:
    """All bytes of a file; ``NotFoundError``, ``UsageError`` for one that is too long."""
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise NotFoundError(f"{path}: there is no such file", path=path) from None
    if size > MAX_FILE_BYTES:
        raise UsageError(f"{path}: {size} bytes, the most is {MAX_FILE_BYTES}", hint="split it")
    with open(path, "rb") as file:
        return file.read()


def read_json(data: bytes, path: str) -> Any:
    """``data`` as JSON; ``UsageError`` with line and column where it is none."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: not UTF-8 at byte {error.start}", hint="export it again"
        ) from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply to be an export") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}", hint="export it again"
        ) from None
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{path}: not JSON: {error}", hint="export it again") from None


def moment(value: object) -> str | None:
    """An ISO time, or seconds since 1970, as ISO in UTC; None where it is neither."""
    if isinstance(value, str):
        return parse_time(value).iso
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return format_time(datetime.fromtimestamp(value, UTC))
        except (OverflowError, OSError, ValueError):
            return None
    return None


def source_id(program: str, id: object) -> str:
    """The source id ``program:id``, without blanks."""
    return f"{program}:{_NO_ID.sub('-', str(id))}"


def segment_id(program: str, id: object) -> str:
    """An id that the same record of ``program`` gets at every import."""
    digest = hashlib.sha256(f"{program}\0{id}".encode("utf-8", "replace")).hexdigest()
    return f"seg_{digest[:16]}"


def scope_for(family: str, name: str) -> str:
    """``family/name``, with the name made fit for a scope where it is not."""
    try:
        return parse_scope(f"{family}/{name}").text
    except ScopeError:
        safe = _NO_ID.sub("-", name).strip(".-")[:80] or "unnamed"
        mark = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
        return parse_scope(f"{family}/{safe}-{mark}").text


def kind_of(value: object, default: str = "fact") -> str:
    """``value`` if it is a kind of ours, else ``default``."""
    return value if isinstance(value, str) and value in KINDS else default


def text_list(value: object) -> tuple[str, ...]:
    """The texts of a list, or the one text."""
    if isinstance(value, str):
        return (value,) if value.strip() else ()
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str) and each.strip())
    return ()
