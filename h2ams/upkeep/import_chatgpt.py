"""A ChatGPT data export: a zip, its folder, or its ``conversations.json`` (reads only).

What ChatGPT itself remembered stands in the conversations: messages to the recipient ``bio``, and
the user's own instructions. They go into ``user``. With ``conversations`` every exchange (question
and answer of the branch that was shown last) becomes a segment of a session too.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from h2ams.errors import UsageError
from h2ams.memory.intake import Incoming, Unfit
from h2ams.upkeep.importers import Batch, Options
from h2ams.upkeep.source_text import (
    MAX_FILE_BYTES,
    moment,
    read_bytes,
    read_json,
    scope_for,
    segment_id,
    source_id,
)

PART_CHARS = 30_000  # of a long exchange: below the limit of a segment
_CONVERSATIONS = re.compile(r"(?:.*/)?conversations(?:-\d+)?\.json")
_INSTRUCTIONS = {
    "user_profile": "About the user, in their own words",
    "user_instructions": "How the user wants to be answered, in their own words",
}


def read_chatgpt(path: str, options: Options) -> Batch:
    """What the export holds. ``UsageError`` where there are no conversations in it."""
    incoming: list[Incoming] = []
    left: list[Unfit] = []
    count = 0
    for name, data in _files(path):
        found = read_json(data, name)
        if not isinstance(found, list):
            raise UsageError(f"{name}: no list of conversations", hint="use ChatGPT's own export")
        for number, each in enumerate(found, 1):
            count += 1
            if not isinstance(each, dict) or not isinstance(each.get("mapping"), dict):
                origin = f"{name}: conversation {number}"
                left.append(Unfit(origin, "no messages in it", broken=True))
                continue
            batch = _Conversation(each, name, options).read()
            incoming += batch.incoming
            left += batch.left_out
    if not count:
        raise UsageError(f"{path}: no conversations.json", hint="use ChatGPT's own export")
    if not options.conversations:
        text = f"{count} conversations, of which only what was remembered is taken"
        left.append(Unfit(path, f"{text} (--conversations takes all)"))
    return Batch(tuple(incoming), left_out=tuple(left))


def _files(path: str) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file of conversations."""
    if os.path.isdir(path):
        for name in sorted(os.listdir(path)):
            if _CONVERSATIONS.fullmatch(name):
                yield os.path.join(path, name), read_bytes(os.path.join(path, name))
        return
    data = read_bytes(path)
    if not data.startswith(b"PK\x03\x04"):
        yield path, data
        return
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if _CONVERSATIONS.fullmatch(info.filename):
                    if info.file_size > MAX_FILE_BYTES:
                        raise UsageError(f"{path}: {info.filename} is too long", hint="unpack it")
                    with archive.open(info) as file:  # a lying header is cut, and is then no JSON
                        yield f"{path}/{info.filename}", file.read(MAX_FILE_BYTES)
    except zipfile.BadZipFile as error:
        raise UsageError(f"{path}: not a whole zip: {error}", hint="download it again") from None


class _Conversation:
    """One conversation of the export."""

    def __init__(self, found: dict[str, Any], name: str, options: Options) -> None:
        self._found = found
        self._options = options
        self._id = str(found.get("conversation_id") or found.get("id") or found.get("title"))
        self._title = str(found.get("title") or "untitled")
        self._origin = f"{name}: {self._title}"
        self._unread: Counter[str] = Counter()

    def read(self) -> Batch:
        shown = self._branch()
        messages = [_message(node) for node in self._found["mapping"].values()]
        incoming: list[Incoming] = []
        for message in messages:
            incoming += self._remembered(message)
        if self._options.conversations:
            incoming += self._exchanges([_message(node) for node in shown])
            others = sum(bool(_role(each)) for each in messages)
            others -= sum(bool(_role(_message(node))) for node in shown)
            if others:
                self._unread["messages of branches that were edited away"] = others
        left = [Unfit(self._origin, f"{n} {what}") for what, n in sorted(self._unread.items())]
        return Batch(tuple(incoming), left_out=tuple(left))

    def _branch(self) -> list[dict[str, Any]]:
        """The nodes from the first message to the one that was shown last."""
        mapping = self._found["mapping"]
        at = self._found.get("current_node")
        if at not in mapping:
            leaves = [name for name, node in mapping.items() if not node.get("children")]
            at = leaves[-1] if leaves else None
        found: list[dict[str, Any]] = []
        seen = set()
        while at in mapping and at not in seen:
            seen.add(at)
            found.append(mapping[at])
            at = mapping[at].get("parent")
        return found[::-1]

    def _remembered(self, message: dict[str, Any]) -> Iterator[Incoming]:
        content = message.get("content")
        if not isinstance(content, dict):
            return
        scope = self._options.scope or "user"
        when = moment(message.get("create_time")) or moment(self._found.get("create_time"))
        if message.get("recipient") == "bio" and _author(message) == "assistant":
            text = "\n".join(part for part in content.get("parts", ()) if isinstance(part, str))
            if text.strip():
                yield self._segment(scope, text.strip(), message, "fact", ("chatgpt",), when)
        elif content.get("content_type") == "user_editable_context":
            for name, title in _INSTRUCTIONS.items():
                said = content.get(name)
                if isinstance(said, str) and said.strip():
                    body = f"{title}:\n\n{said.strip()}"
                    tags = ("chatgpt", "instructions")
                    # The same instructions stand in every conversation: one id for one text.
                    yield Incoming(
                        scope=scope,
                        body=body,
                        origin=self._origin,
                        id=segment_id("chatgpt", f"{name}\0{said}"),
                        kind="preference",
                        tags=tags,
                        created_at=when,
                        updated_at=when,
                    )

    def _segment(
        self,
        scope: str,
        body: str,
        message: dict[str, Any],
        kind: str,
        tags: tuple[str, ...],
        when: str | None,
    ) -> Incoming:
        id = message.get("id") or body
        return Incoming(
            scope=scope,
            body=body,
            origin=self._origin,
            id=segment_id("chatgpt", id),
            kind=kind,
            tags=tags,
            source_messages=(source_id("chatgpt", id),),
            created_at=when,
            updated_at=when,
        )

    def _exchanges(self, messages: list[dict[str, Any]]) -> Iterator[Incoming]:
        """One segment for each question with its answer, in parts where it is long."""
        scope = scope_for("sessions", f"chatgpt-{self._id}")
        groups: list[list[dict[str, Any]]] = []
        for message in messages:
            role = _role(message)
            if role == "user":
                groups.append([message])
            elif role == "assistant" and groups:
                groups[-1].append(message)
            elif role:
                self._unread[f"messages of the role {role}"] += 1
        for group in groups:
            lines = [f"{_role(each).capitalize()}: {self._text(each)}" for each in group]
            ids = tuple(source_id("chatgpt", each["id"]) for each in group if each.get("id"))
            first = group[0].get("id") or lines[0]
            when = moment(group[0].get("create_time"))
            for number, part in enumerate(_parts("\n\n".join(lines)), 1):
                yield Incoming(
                    scope=scope,
                    body=f"{self._title}\n\n{part}",
                    origin=self._origin,
                    id=segment_id("chatgpt", f"exchange {first} {number}"),
                    kind="context",
                    tags=("chatgpt",),
                    source_messages=ids,
                    created_at=when,
                    updated_at=moment(group[-1].get("create_time")) or when,
                )

    def _text(self, message: dict[str, Any]) -> str:
        texts: list[str] = []
        for part in message["content"].get("parts", ()):
            if isinstance(part, str):
                texts.append(part)
            else:
                self._unread["images and other attachments"] += 1
        return "\n".join(texts).strip()


def _message(node: object) -> dict[str, Any]:
    message = node.get("message") if isinstance(node, dict) else None
    return message if isinstance(message, dict) else {}


def _author(message: dict[str, Any]) -> str:
    author = message.get("author")
    return str(author.get("role", "")) if isinstance(author, dict) else ""


def _role(message: dict[str, Any]) -> str:
    """Who says something to whom it may concern: "" for hidden, empty and tool-bound messages."""
    content = message.get("content")
    if not isinstance(content, dict) or message.get("recipient", "all") != "all":
        return ""
    if content.get("content_type") not in ("text", "multimodal_text"):
        return ""
    has_text = any(part for part in content.get("parts", ()))
    return _author(message) if has_text and _author(message) != "system" else ""


def _parts(text: str) -> Iterator[str]:
    """``text`` in parts of at most ``PART_CHARS``, cut between paragraphs where there are any."""
    while len(text) > PART_CHARS:
        cut = text.rfind("\n\n", PART_CHARS // 2, PART_CHARS)
        cut = PART_CHARS if cut < 0 else cut
        yield text[:cut].rstrip()
        text = text[cut:].lstrip()
    if text:
        yield text
