"""The pre-pass (Pure): old tool output becomes short without any model.

Outside the tail and the first turn: a result of a tool becomes one line that says what it was; the
older ones of identical results become a reference to the newest; images become a line; long values
inside the arguments of calls are shortened, and the arguments stay valid JSON. Sealed messages are
left alone. What would not get shorter is left alone, so the pass never adds a token; what it has
written it knows again, so a second pass changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from h2ams.text.sentences import clip, squeeze
from h2ams.threads import shapes
from h2ams.threads.message import Call, Edits, Image, Message, Result, count_message
from h2ams.threads.unit import Entry

KEPT_RESULT_CHARS = 240  # a shorter result is left as it is
KEPT_VALUE_CHARS = 200  # a shorter value of an argument too
LINE_ARGUMENT_CHARS = 80  # of the arguments in a line about a result
MARK = "[tool output left out: "
_SAME = "[same output as that of call "
_IMAGE = "[image left out: "
_WRITTEN = re.compile(rf"(?:{re.escape(MARK)}|{re.escape(_SAME)}).{{0,400}}\]", re.DOTALL)
_EXIT = re.compile(
    r"\b(?:exit(?:ed)?(?:[ _-]?(?:code|status))?(?: with)?|returncode)\W{0,4}(-?\d{1,3})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Prepass:
    """``entries`` after the pass (the very same object where nothing changed).

    ``replaced``: the new message by row id; ``freed_tokens``: what the request got shorter by.
    """

    entries: Sequence[Entry]
    replaced: dict[str, Message]
    freed_tokens: int = 0


def shrink(
    entries: Sequence[Entry],
    old: Callable[[Entry], bool],
    count: Callable[[str], int],
) -> Prepass:
    """Shorten what ``old`` allows of ``entries``."""
    calls = {call.id: call for entry in entries for call in entry.message.calls}
    newest = _newest_of_identical(entries, calls)
    changed: list[Entry] = []
    replaced: dict[str, Message] = {}
    freed = 0
    for entry in entries:
        shorter = _shorter(entry, calls, newest, count) if old(entry) else entry
        if shorter is not entry:
            replaced[entry.id] = shorter.message
            freed += entry.tokens - shorter.tokens
        changed.append(shorter)
    if not replaced:
        return Prepass(entries, {})
    return Prepass(tuple(changed), replaced, freed)


def _newest_of_identical(entries: Sequence[Entry], calls: dict[str, Call]) -> dict[str, str]:
    """For each call whose output a later call gave again, the newest such call."""
    latest: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for entry in entries:
        for result in entry.message.results:
            if result.call_id in calls and len(result.text) > KEPT_RESULT_CHARS:
                digest = hashlib.sha256(result.text.encode("utf-8", "surrogatepass")).hexdigest()
                key = f"{calls[result.call_id].name}\0{digest}"
                groups.setdefault(key, []).append(result.call_id)
    for same in groups.values():
        for call_id in same[:-1]:
            if call_id != same[-1]:
                latest[call_id] = same[-1]
    return latest


def _shorter(
    entry: Entry, calls: dict[str, Call], newest: dict[str, str], count: Callable[[str], int]
) -> Entry:
    message = entry.message
    if message.sealed:
        return entry
    edits = Edits(
        results={
            each.call_id: line
            for each in message.results
            if (line := _result_line(each, calls.get(each.call_id), newest, count))
        },
        arguments={
            each.id: shorter
            for each in message.calls
            if (shorter := shorten_arguments(each.arguments)) != each.arguments
        },
        image=_image_line if message.images else None,
    )
    if not edits:
        return entry
    edited = shapes.edit(message, edits)
    tokens = count_message(edited, count)
    if edited.original is message.original or tokens >= entry.tokens:
        return entry
    return replace(entry, message=edited, tokens=tokens)


def _result_line(
    result: Result, call: Call | None, newest: dict[str, str], count: Callable[[str], int]
) -> str:
    """The line for a result; "" where the result is to stay."""
    text = result.text
    if len(text) <= KEPT_RESULT_CHARS or result.interim or call is None:
        return ""
    if len(text) < 600 and _WRITTEN.fullmatch(text):
        return ""
    if result.call_id in newest:
        line = f"{_SAME}{newest[result.call_id]}]"
    else:
        line = f"{MARK}{_about(result, call)}]"
    return line if len(line) < len(text) and count(line) < count(text) else ""


def _about(result: Result, call: Call) -> str:
    """Tool, arguments in short, how it ended, how much it was."""
    text = result.text
    arguments = clip(squeeze(call.arguments), LINE_ARGUMENT_CHARS)
    exit_code = _EXIT.search(text[:400]) or _EXIT.search(text[-400:])
    ended = "failed" if result.failed else f"exit {exit_code[1]}" if exit_code else "done"
    lines = text.count("\n") + 1
    return f"{clip(call.name, 60)}({arguments}) {ended}, {len(text)} chars, {lines} lines"


def _image_line(image: Image) -> str:
    size = f", {image.size_bytes // 1024} KiB" if image.size_bytes else ""
    return f"{_IMAGE}{clip(image.media, 40)}{size}]"


def shorten_arguments(arguments: str) -> str:
    """``arguments`` with long texts inside shortened: valid JSON, or the same text as before."""
    if len(arguments) <= KEPT_VALUE_CHARS * 2:
        return arguments
    try:
        value = json.loads(arguments)
        if not isinstance(value, dict):
            return arguments
        shorter = json.dumps(_short(value), ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or thousands of levels of it
        return arguments  # cutting it could make the call mean something else
    return shorter if len(shorter) < len(arguments) else arguments


def _short(value: object) -> object:
    if isinstance(value, str) and len(value) > KEPT_VALUE_CHARS:
        head = clip(value, KEPT_VALUE_CHARS // 2)
        return head if head.endswith("chars]") else f"{head} [{len(value)} chars]"
    if isinstance(value, dict):
        return {key: _short(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_short(each) for each in value]
    return value
