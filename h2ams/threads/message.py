"""One message of a conversation, whatever its shape (Pure): what the engine needs to know of it.

Hosts speak OpenAI chat, OpenAI Responses items, Anthropic blocks or LangChain messages. Each shape
has a reader (``shapes``); what it reads is a ``Message``: role, visible text, tool calls and their
results, images, and the ``original``, which is what is sent again. Nothing is translated from one
shape to another: what the reader does not know stays in the original and is given back untouched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Shape = Literal["openai-chat", "openai-responses", "anthropic", "langchain"]
Role = Literal["system", "user", "assistant", "tool", "other"]

MESSAGE_TOKENS = 4  # what roles and separators cost a message; OpenAI's cookbook counts 3
IMAGE_TOKENS = 1_600  # most that one image costs at the large providers after their scaling
OPAQUE_CHARS_PER_TOKEN = 4  # of encrypted or unknown items: no text to count
_INTERIM_STATUS = frozenset(
    {"in_progress", "in-progress", "running", "pending", "queued", "interim", "working", "started"}
)
_INTERIM_MARKS = ("[interim]", "[still running", "[running]", "[pending]")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. ``arguments`` is JSON text as far as the caller kept to it."""

    id: str
    name: str
    arguments: str = "{}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back for call ``call_id``. ``interim``: it is still at work."""

    call_id: str
    text: str
    interim: bool = False
    failed: bool = False
    name: str = ""
    status: str = ""  # as given, e.g. "exit 1"


@dataclass(frozen=True, slots=True)
class Image:
    """An image inside a message; ``size_bytes`` is 0 where it is only referred to."""

    media: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """``sealed``: holds something signed or opaque, so it is kept whole or dropped whole.

    ``text`` is what a person would read, without tool results. ``opaque_chars`` counts what is
    neither text nor a known part. ``binds_next``: what follows is worthless without this item.
    ``id`` is the host's, or "" where there is none.
    """

    original: Any
    shape: Shape
    role: Role
    text: str = ""
    id: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[Result, ...] = ()
    images: tuple[Image, ...] = ()
    sealed: bool = False
    opaque_chars: int = 0
    binds_next: bool = False

    @property
    def says_something(self) -> bool:
        """Whether there is more in it than results of tools."""
        return bool(self.text.strip() or self.images or self.calls)

    @property
    def is_user_turn(self) -> bool:
        """Whether a person says something here (not a mere carrier of tool results)."""
        return self.role == "user" and (bool(self.text.strip() or self.images) or not self.results)


@dataclass(frozen=True, slots=True)
class Edits:
    """What is to stand in an original instead: results and arguments by call id, images by line."""

    results: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    image: Callable[[Image], str] | None = None

    def __bool__(self) -> bool:
        return bool(self.results or self.arguments or self.image)


def count_message(message: Message, count: Callable[[str], int]) -> int:
    """Tokens of a message: its text, calls and results, images at a flat rate, opaque by length."""
    tokens = MESSAGE_TOKENS + count(message.text)
    for call in message.calls:
        tokens += count(call.name) + count(call.arguments) + MESSAGE_TOKENS
    for result in message.results:
        tokens += count(result.text) + MESSAGE_TOKENS
    tokens += IMAGE_TOKENS * len(message.images)
    return tokens + -(-message.opaque_chars // OPAQUE_CHARS_PER_TOKEN)


def image_bytes(message: Message) -> int:
    """Bytes of the images that a message carries with it."""
    return sum(image.size_bytes for image in message.images)


def canonical_json(value: object) -> str:
    """One text for one JSON value: keys sorted, no blanks; what SHA-256 is taken of."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def derived_id(thread: str, position: int, stored: object) -> str:
    """The id of a message that came without one: from its content and its place in the thread."""
    text = f"{thread}\0{position}\0{canonical_json(stored)}"
    return "m-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def is_interim(text: str, status: object = None) -> bool:
    """Whether a result says that the tool is still at work.

    By a ``status`` beside the text, by ``"status": "running"`` in a JSON object, or by a mark such
    as ``[interim]`` at its beginning.
    """
    if isinstance(status, str) and status.lower() in _INTERIM_STATUS:
        return True
    start = text[:200].lstrip()
    if start.lower().startswith(_INTERIM_MARKS):
        return True
    if not start.startswith("{") or len(text) > 20_000:
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    said = value.get("status", value.get("state"))
    return value.get("interim") is True or (
        isinstance(said, str) and said.lower() in _INTERIM_STATUS
    )
