"""Cursors of MCP lists (Pure): where a walk through a list goes on, opaque to its client.

A cursor holds the scope and the id that the last page ended with and the mark of its list: what is
listed, for whom, where. So it is good for this list alone, on any later server of the same memory
under the same access. It is no secret and opens nothing: a page is read under the server's access,
whatever a cursor says.
"""

from __future__ import annotations

import base64
import hashlib
import json

from h2ams.errors import UsageError

CURSOR_CHARS = (
    16_384  # more than the longest of ours: an id of max_scalar_chars in the worst script
)
_MARK_CHARS = 16


def list_mark(*what: object) -> str:
    """What tells one list from another: values that JSON can say."""
    text = json.dumps(what, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:_MARK_CHARS]


def write_cursor(after: tuple[str, str] | None, mark: str) -> str | None:
    """The cursor behind scope and id ``after``; None at the end of a list."""
    if after is None:
        return None
    text = json.dumps([mark, *after], ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode("utf-8")).decode("ascii")


def read_cursor(cursor: str | None, mark: str) -> tuple[str, str] | None:
    """Scope and id that ``cursor`` stands behind. ``UsageError`` where it is none of this list."""
    if cursor is None:
        return None
    try:
        if len(cursor) > CURSOR_CHARS:
            raise ValueError("too long")
        found = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        found = None
    match found:
        case [str(of), str(scope), str(id)] if of == mark:
            return scope, id
        case [str(), str(), str()]:
            raise UsageError("this cursor is of another list", hint="begin without a cursor")
    raise UsageError("not a cursor of this server", hint="begin without a cursor")
