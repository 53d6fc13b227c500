"""From parsed files to the rows of the index (Pure).

A row is a function of the segment's own bytes, its scope and its id alone: never of the clock, of
other segments or of the order of edits. That is why any history of syncs ends in what a rebuild
gives.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from h2ams.index.digest import row_digest
from h2ams.index.places import MAX_LENGTH
from h2ams.index.score import day_of
from h2ams.memory import note, segment, values
from h2ams.memory.scope import Scope
from h2ams.memory.values import clean_text
from h2ams.settings import KINDS, Settings
from h2ams.text import words as words_module
from h2ams.text.cues import cues
from h2ams.text.redact import redact


@dataclass(frozen=True, slots=True)
class Row:
    """One row of ``memory_segments`` without its place (rowid, scope number, file number)."""

    id: str
    line: int
    last_line: int
    note: bool
    over_limit: bool
    kind: str
    tags: str
    created_at: str | None
    updated_at: str | None
    day: int
    length: int
    tokens: int
    digest: str
    row_digest: str
    words: str
    forms: str
    labels: str
    roots: str
    cues: int
    sources: str
    source_ids: tuple[str, ...]
    heading: str
    body: str


@dataclass(frozen=True, slots=True)
class Item:
    """A segment that a file holds. ``build`` makes its row under the id that it is addressed by.

    It is called only where the segment differs from what the index has.
    """

    id: str
    digest: str
    line: int
    last_line: int
    build: Callable[[str], Row]


@dataclass(frozen=True, slots=True)
class Maker:
    """What making rows needs besides the file: the scope, the limits and a token count."""

    scope: Scope
    settings: Settings
    count: Callable[[str], int]

    def note_items(self, sections: Iterable[note.Section]) -> list[Item]:
        return [self._note_item(section) for section in sections]

    def content_items(self, data: bytes) -> list[Item]:
        """The one segment of a historical ``content.md``; none when it is blank."""
        body = data.decode("utf-8-sig", "replace").strip()
        if not body:
            return []
        name = hashlib.sha256(self.scope.text.encode()).hexdigest()[:12]
        digest = hashlib.sha256(data).hexdigest()
        lines = data.count(b"\n") + 1

        def build(id: str) -> Row:
            return self._row(id, 1, lines, body, "context", digest=digest, note=True)

        return [Item(f"content_{name}", digest, 1, lines, build)]

    def segment_item(self, entry: segment.Entry) -> Item:
        """The item of one entry of a parsed ``memory.md``."""
        value = entry.segment
        digest = entry.digest

        def build(id: str) -> Row:
            return self._row(
                id,
                entry.line,
                entry.last_line,
                value.body,
                value.kind,
                tags=value.tags,
                sources=value.source_messages,
                created_at=value.created_at,
                updated_at=value.updated_at,
                digest=digest,
            )

        return Item(entry.address_id, digest, entry.line, entry.last_line, build)

    def _note_item(self, section: note.Section) -> Item:
        raw = "\0".join(
            (
                section.body,
                section.kind,
                *section.tags,
                section.updated_at or "",
                section.heading,
                *section.names,
            )
        )
        digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()
        last = section.line + section.body.count("\n")

        def build(id: str) -> Row:
            return self._row(
                id,
                section.line,
                last,
                section.body,
                section.kind,
                tags=section.tags,
                updated_at=section.updated_at,
                digest=digest,
                heading=section.heading,
                names=section.names,
                note=True,
            )

        return Item(section.id, digest, section.line, last, build)

    def _row(
        self,
        id: str,
        line: int,
        last_line: int,
        body: str,
        kind: str,
        *,
        digest: str,
        tags: tuple[str, ...] = (),
        sources: tuple[str, ...] = (),
        created_at: str | None = None,
        updated_at: str | None = None,
        heading: str = "",
        names: tuple[str, ...] = (),
        note: bool = False,
    ) -> Row:
        shown = redact(clean_text(body[: self.settings.max_indexed_chars])).text
        words, forms = words_module.analyse(shown)
        tags = tuple(map(clean_text, tags))
        labels = _labels((*tags, *names, *speaker_of(shown)), clean_text(heading), self.scope)
        source_ids = tuple(map(clean_text, sources))
        sources_json = _json(source_ids)
        updated = _iso(updated_at)
        created = _iso(created_at)
        return Row(
            id=id,
            line=line,
            last_line=last_line,
            note=note,
            over_limit=len(body) > self.settings.max_segment_chars,
            kind=kind if kind in KINDS else "context",
            tags=_json(tags),
            created_at=created,
            updated_at=updated,
            day=day_of(updated or created),
            length=min(words.count(" ") + 1 if words else 0, MAX_LENGTH),
            tokens=self.count(shown),
            digest=digest,
            row_digest=row_digest(self.scope.text, id, words, forms, labels, sources_json),
            words=words,
            forms=forms,
            labels=labels,
            roots=words_module.roots(words),
            cues=cues(shown, words),
            sources=sources_json,
            source_ids=source_ids,
            heading=clean_text(heading),
            body=shown,
        )


# A name at the beginning, one to three capitalised words, and a colon; in a script without capitals
# a short one, since what is longer there is rather a heading. As people write down who said what.
UNCASED_NAME_CHARS = 3
_SPEAKER = re.compile(
    r"\s*[*_]{0,2}((?:[^\W\d_a-z][\w.'’-]{0,30})(?:[ ][^\W\d_a-z][\w.'’-]{0,30}){0,2}?)[*_]{0,2}"
    r"(?::[*_]{0,2}\s|：)"
)


def speaker_of(text: str) -> tuple[str, ...]:
    """Who says ``text``, where it begins with a name and a colon: ``Ada: I would …``."""
    found = _SPEAKER.match(text)
    if found is None or len(found[1]) > 40:
        return ()
    initials = [word[0] for word in found[1].split()]
    cased = all(each.isupper() or each.istitle() for each in initials)
    return (found[1],) if cased or _is_short_uncased(found[1]) else ()


def _is_short_uncased(name: str) -> bool:
    return len(name) <= UNCASED_NAME_CHARS and name.upper() == name.lower()


@lru_cache(maxsize=4096)
def _iso(text: str | None) -> str | None:
    return values.parse_time(text).iso if text else None


def _json(items: tuple[str, ...]) -> str:
    """A JSON list, without the library where no item needs an escape (nearly always)."""
    if not items:
        return "[]"
    text = "".join(items)
    if text.isprintable() and '"' not in text and "\\" not in text:
        return '["' + '", "'.join(items) + '"]'
    return json.dumps(items, ensure_ascii=False)


@lru_cache(maxsize=4096)
def _labels(tags: tuple[str, ...], heading: str, scope: Scope) -> str:
    """Analysed tags, heading and the words of the scope's own name."""
    names = [part for part in scope.text.split("/") if part not in _FAMILY_WORDS]
    words, forms = words_module.analyse(" \n ".join([*tags, heading, *names]))
    return f"{words} {forms}".strip()


_FAMILY_WORDS = frozenset({"sessions", "chat", "vp", "agent"})
