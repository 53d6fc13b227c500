"""The parts inside a message's content, of all families at once (Pure).

Content is a text or a list of parts: ``text``, ``input_text``, ``output_text``, ``image_url``,
``input_image``, ``image`` with a ``source``, documents and files, and what nobody here knows. Names
of parts do not collide between the families, so one reader serves them all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from h2ams.threads.message import Image

TEXTS = frozenset({"text", "input_text", "output_text", "refusal", "summary_text"})
IMAGES = frozenset({"image_url", "input_image", "image", "computer_screenshot"})
SEALED = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction"})


@dataclass(slots=True)
class Content:
    """What a content holds: texts in order, images, whether something is sealed or unknown."""

    texts: list[str] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    sealed: bool = False
    opaque_chars: int = 0

    @property
    def text(self) -> str:
        return "\n".join(each for each in self.texts if each)


def read_content(content: object, skip: Iterable[str] = ()) -> Content:
    """Read a content; parts whose type is in ``skip`` are the caller's business."""
    found = Content()
    skipped = frozenset(skip)
    if isinstance(content, str):
        found.texts.append(content)
    elif isinstance(content, list | tuple):
        for part in content:
            _read_part(part, skipped, found)
    elif content is not None:
        found.opaque_chars += opaque_size(content)
    return found


def _read_part(part: object, skipped: frozenset[str], found: Content) -> None:
    if isinstance(part, str):
        found.texts.append(part)
        return
    if not isinstance(part, dict):
        found.opaque_chars += opaque_size(part)
        return
    kind = part.get("type")
    if kind in skipped:
        return
    text = part.get("text", part.get("refusal"))
    if (kind in TEXTS or kind is None) and isinstance(text, str):
        found.texts.append(text)
    elif kind in IMAGES:
        found.images.append(_image(part))
    else:
        found.sealed = found.sealed or kind in SEALED or "signature" in part
        found.opaque_chars += opaque_size(part)


def opaque_size(value: object) -> int:
    """Chars of a value as JSON: what an unknown part adds to a request."""
    try:
        return len(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError):
        return len(str(value))


def _image(part: dict[str, Any]) -> Image:
    """Media type and size of an image part, inline as base64 or by address."""
    source = part.get("source")
    if isinstance(source, dict):
        data = source.get("data")
        media = source.get("media_type")
        return Image(str(media or "image"), _base64_size(data) if isinstance(data, str) else 0)
    address = part.get("image_url", part.get("url", part.get("data", "")))
    if isinstance(address, dict):
        address = address.get("url", "")
    address = address if isinstance(address, str) else ""
    if address.startswith("data:"):
        head, _, data = address.partition(",")
        return Image(head[5:].partition(";")[0] or "image", _base64_size(data))
    media = part.get("mime_type", part.get("media_type"))
    if isinstance(part.get("base64"), str):
        return Image(str(media or "image"), _base64_size(part["base64"]))
    if part.get("source_type") == "base64" and isinstance(part.get("data"), str):
        return Image(str(media or "image"), _base64_size(part["data"]))
    return Image(str(media or "image"))


def _base64_size(data: str) -> int:
    return len(data) * 3 // 4


def without_images(content: object, line: Callable[[Image], str], kind: str = "text") -> object:
    """``content`` with a text part in the place of each image; the same object where none is."""
    if not isinstance(content, list | tuple):
        return content
    changed = [
        {"type": kind, "text": line(_image(part))}
        if isinstance(part, dict) and part.get("type") in IMAGES
        else part
        for part in content
    ]
    return (
        changed
        if any(new is not old for new, old in zip(changed, content, strict=True))
        else (content)
    )
