"""Exchanges, rounds, chunks, summaries and the state of one stack, and their stored form (Pure).

A stack is ``summary? + chunk*``. Every value is exact: what was said stands as it was said, never
trimmed or normalised. Texts do not show up in a ``repr``, so that none gets into a log with one.
The stored form is canonical JSON text (``to_json``): the quota counts its bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from h2ams.errors import StoreError, UsageError

CHUNK_DIGITS = 8  # zero-padded, so that keys sort as numbers do


def to_json(value: object) -> str:
    """Canonical JSON: sorted keys, no spaces, nothing escaped that need not be."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def check_text(text: str, what: str) -> None:
    """``UsageError`` where ``text`` is none that UTF-8 can encode. It does not quote it."""
    if not isinstance(text, str):
        raise UsageError(f"{what}: not a text", hint="give a str")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{what}: character {error.start} is a lone surrogate", hint="give valid Unicode text"
        ) from None


@dataclass(frozen=True, slots=True)
class Round:
    """One record of the host's own history. Its ``id`` never changes and stands for it."""

    id: str
    user: str = field(repr=False)
    assistant: str = field(repr=False)

    def __post_init__(self) -> None:
        check_text(self.id, "round id")
        if not self.id:
            raise UsageError("round id: empty", hint="every round has an id that never changes")
        check_text(self.user, "user text of a round")
        check_text(self.assistant, "assistant text of a round")

    def exchange(self) -> Exchange:
        """The exchange that is derived from this round."""
        return Exchange(self.user, self.assistant, self.id)


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exact user text and the exact assistant text that answers it, in this order.

    ``synthetic`` marks one that the workflow wrote (a catalyst outcome); its ``round_id`` is the
    round at which it stands.
    """

    user: str = field(repr=False)
    assistant: str = field(repr=False)
    round_id: str = ""
    synthetic: bool = False

    def __post_init__(self) -> None:
        check_text(self.user, "user text")
        check_text(self.assistant, "assistant text")
        check_text(self.round_id, "round id")

    def record(self) -> dict[str, object]:
        """The stored form."""
        found: dict[str, object] = {"user": self.user, "assistant": self.assistant}
        if self.round_id:
            found["roundId"] = self.round_id
        if self.synthetic:
            found["synthetic"] = True
        return found

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Exchange:
        return cls(
            record["user"],
            record["assistant"],
            record.get("roundId", ""),
            record.get("synthetic", False),
        )


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored run of consecutive exchanges; at least one."""

    number: int
    exchanges: tuple[Exchange, ...]

    def __post_init__(self) -> None:
        if not self.exchanges or not 0 < self.number < 10**CHUNK_DIGITS:
            raise UsageError(f"chunk {self.number}: empty or out of range")

    def json(self) -> str:
        return to_json({"exchanges": [each.record() for each in self.exchanges]})

    @classmethod
    def of(cls, number: int, text: str) -> Chunk:
        return cls(number, tuple(Exchange.of(each) for each in json.loads(text)["exchanges"]))


@dataclass(frozen=True, slots=True)
class Summary:
    """What stands for every exchange before the first chunk.

    ``sha256`` is that of the canonical text that it replaced, ``exchanges`` and ``chars`` are how
    many exchanges and code points that was; ``covers`` counts the exchanges of all transitions
    before as well. ``ledger`` holds what was harvested from that text without a model.
    """

    text: str = field(repr=False)
    call_id: str
    sha256: str
    exchanges: int
    chars: int
    covers: int
    at: str
    ledger: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        check_text(self.text, "summary")
        if not self.text.strip():
            raise UsageError("summary: blank")

    def json(self) -> str:
        record: dict[str, object] = {
            "text": self.text,
            "compressionCallId": self.call_id,
            "sha256": self.sha256,
            "exchanges": self.exchanges,
            "chars": self.chars,
            "covers": self.covers,
            "at": self.at,
        }
        if self.ledger:
            record["ledger"] = list(self.ledger)
        return to_json(record)

    @classmethod
    def of(cls, text: str) -> Summary:
        record = json.loads(text)
        return cls(
            record["text"],
            record["compressionCallId"],
            record["sha256"],
            record["exchanges"],
            record["chars"],
            record["covers"],
            record["at"],
            tuple(record.get("ledger", ())),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is remembered of attempts on one canonical text, whose SHA-256 is ``sha256``.

    ``tries`` counts unsuccessful outcomes, ``outcome`` is the last one. ``call_id`` is there while
    the next attempt has to use the same one.
    """

    sha256: str
    tries: int = 0
    outcome: str = ""
    call_id: str = ""

    def record(self) -> dict[str, object]:
        return {
            "sha256": self.sha256,
            "tries": self.tries,
            "outcome": self.outcome,
            "callId": self.call_id,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Attempt:
        return cls(record["sha256"], record["tries"], record["outcome"], record["callId"])


@dataclass(frozen=True, slots=True)
class State:
    """What is kept beside a stack so that no question needs the whole of it.

    ``chars`` is the length of its canonical text, ``head`` a digest of everything it holds,
    ``retry`` the rounds whose forced compression is still due. ``scene_id`` and ``round_id`` are
    set for a catalyst stack, ``next_archive`` counts in the game's.
    """

    chars: int = 0
    exchanges: int = 0
    next_chunk: int = 1
    head: str = ""
    last_round: str = ""
    retry: tuple[str, ...] = ()
    attempt: Attempt | None = None
    next_archive: int = 1
    scene_id: str = ""
    round_id: str = ""

    def json(self) -> str:
        record: dict[str, object] = {
            "chars": self.chars,
            "exchanges": self.exchanges,
            "nextChunk": self.next_chunk,
            "head": self.head,
            "lastRoundId": self.last_round,
        }
        if self.retry:
            record["retry"] = list(self.retry)
        if self.attempt is not None:
            record["attempt"] = self.attempt.record()
        if self.next_archive > 1:
            record["nextArchive"] = self.next_archive
        if self.scene_id:
            record["sceneId"] = self.scene_id
            record["roundId"] = self.round_id
        return to_json(record)

    @classmethod
    def of(cls, text: str) -> State:
        record = json.loads(text)
        return cls(
            record["chars"],
            record["exchanges"],
            record["nextChunk"],
            record["head"],
            record["lastRoundId"],
            tuple(record.get("retry", ())),
            Attempt.of(record["attempt"]) if "attempt" in record else None,
            record.get("nextArchive", 1),
            record.get("sceneId", ""),
            record.get("roundId", ""),
        )


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of one stack: ``<prefix>.chunk.<n>``, ``<prefix>.summary``, ``<prefix>.state``."""

    prefix: str

    @property
    def all(self) -> str:
        """What every key of the stack begins with, and no other key."""
        return f"{self.prefix}."

    @property
    def summary(self) -> str:
        return f"{self.prefix}.summary"

    @property
    def state(self) -> str:
        return f"{self.prefix}.state"

    def chunk(self, number: int) -> str:
        return f"{self.prefix}.chunk.{number:0{CHUNK_DIGITS}d}"


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack as it was read in one piece. ``state`` is None where there is no stack."""

    names: Names
    state: State | None
    summary: Summary | None
    chunks: tuple[Chunk, ...]

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The exact exchanges, oldest first."""
        return tuple(each for chunk in self.chunks for each in chunk.exchanges)

    @classmethod
    def of(cls, names: Names, items: Sequence[tuple[str, str]]) -> Stack:
        """The stack of ``items`` (key, JSON) sorted by key; ``StoreError`` names a key that is none
        of a stack, or holds no record of one.
        """
        state: State | None = None
        summary: Summary | None = None
        chunks: list[Chunk] = []
        for key, text in items:
            kind, _, number = key[len(names.all) :].partition(".")
            try:
                if key == names.state:
                    state = State.of(text)
                elif key == names.summary:
                    summary = Summary.of(text)
                elif kind == "chunk" and number.isdecimal():
                    chunks.append(Chunk.of(int(number), text))
                else:
                    raise StoreError(f"workflow store: {key} is no key of a stack")
            except (ValueError, KeyError, TypeError, AttributeError, UsageError):
                # Without the cause: it may hold the text.
                raise StoreError(f"workflow store: {key} holds no record of a stack") from None
        return cls(names, state, summary, tuple(chunks))


def chained(head: str, *parts: str) -> str:
    """``head`` with ``parts`` added: equal only for equal parts in the same order."""
    digest = hashlib.sha256(head.encode("ascii"))
    for part in parts:
        data = part.encode("utf-8")
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()
