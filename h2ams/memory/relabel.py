"""The names of scopes that stand inside of files, when a scope gets another name (Pure).

The folder decides what scope a segment belongs to; the ``scope:`` line of its header only repeats
it. In headers of the writer's exact form that value is replaced, and not one byte more; lines that
a person wrote in any other form stay and are reported as disagreeing. Redirects name topics of
their own session and are changed where the topic that they lead to is renamed.
"""

from __future__ import annotations

import json
from dataclasses import replace

from h2ams.errors import ScopeError
from h2ams.memory import rewrite
from h2ams.memory.legacy import parse_redirect
from h2ams.memory.lifecycle_plan import holds, renamed
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.segment import Entry, parse, render
from h2ams.settings import Settings

_OWN_KEYS = ("id", "scope", "kind", "tags", "sourceMessages", "createdAt", "updatedAt")


def with_scope_lines(data: bytes, old: Scope, new: Scope, settings: Settings) -> bytes:
    """``data`` with ``new`` in the scope lines that name ``old`` or what lies in it.

    Changing it again changes nothing. A file that is not UTF-8 stays as it is.
    """
    document = parse(data, settings=settings)
    if document.read_only:
        return data
    text = document.text
    for entry in reversed(document.entries):
        line = _scope_line(text, entry)
        wanted = _wanted(entry.segment.scope, old, new)
        if line is not None and wanted is not None:
            start, end = line
            text = f"{text[:start]}scope: {rewrite.scalar(wanted)}{text[end:]}"
    if text == document.text:
        return data
    changed = render(replace(document, text=text))
    return changed if _same_but_scopes(data, changed, settings) else data


def with_redirect(data: bytes, at: Scope, old: Scope, new: Scope) -> bytes:
    """A ``redirect.json`` of the topic ``at``; it leads to ``new`` if it led to ``old``."""
    target = parse_redirect(data, at)
    if isinstance(target, str) or not holds(old, target):
        return data
    wanted = renamed(target, old, new)
    if wanted.session != at.session:
        return data  # it moved to another session, which a redirect cannot name
    was, will = ("/".join(scope.topic) for scope in (target, wanted))
    spelled = json.dumps(was, ensure_ascii=False).encode()
    if data.count(spelled) == 1:
        changed = data.replace(spelled, json.dumps(will, ensure_ascii=False).encode())
    else:
        value = {**json.loads(data.decode("utf-8-sig")), "canonical": will}
        changed = json.dumps(value, ensure_ascii=False).encode()
    return changed if parse_redirect(changed, at) == wanted else data


def _wanted(written: str, old: Scope, new: Scope) -> str | None:
    try:
        scope = parse_scope(written)
    except ScopeError:
        return None
    return renamed(scope, old, new).text if holds(old, scope) else None


def _scope_line(text: str, entry: Entry) -> tuple[int, int] | None:
    """Where the scope line of a header in the writer's form begins and ends, without its break."""
    if not entry.has_header or entry.read_only:
        return None
    opening = text.index("\n", entry.start) + 1
    closing = text.rfind("\n", 0, entry.body_start - 1) + 1
    lines = text[opening:closing].split("\n")
    keys = tuple(line.partition(":")[0] for line in lines if line.strip())
    if keys[: len(_OWN_KEYS)] != _OWN_KEYS or keys[len(_OWN_KEYS) :] not in ((), ("escaped",)):
        return None
    start = opening + len(lines[0]) + 1
    return start, start + len(lines[1].removesuffix("\r"))


def _same_but_scopes(before: bytes, after: bytes, settings: Settings) -> bool:
    """Whether nothing but scopes reads differently: what is written is read back first."""
    old, new = (parse(data, settings=settings).entries for data in (before, after))
    return [_facts(entry) for entry in old] == [_facts(entry) for entry in new]


def _facts(entry: Entry) -> object:
    return entry.address_id, replace(entry.segment, scope=""), entry.read_only
