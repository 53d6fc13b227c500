"""Typed requests and results of ``compress.v2``, and what becomes of them (Pure).

A compressor is a transport: it gets a request and gives one typed result. It never chooses what is
compressed; the workflow never chooses who pays. Reasons and errors are codes of a closed list:
what a service says in free words may quote the prompt, and goes nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from h2ams.errors import UsageError
from h2ams.stacks.exchange import check_text

VERSION = "compress.v2"  # seed 000, "Platform call"
GAME_KIND = "paxhistoria.game-agent-stack.v1"
CATALYST_KIND = "paxhistoria.catalyst-agent-stack.v1"

OutcomeCode = Literal[
    "compressed",
    "below-threshold",  # nothing to do: no call
    "exhausted",  # two unsuccessful outcomes on this very text: no call until it changes
    "refused",
    "failed",  # the transport
    "empty",
    "invalid-count",
    "not-smaller",  # than what it replaces, or over its cap (reason over-cap)
    "superseded",  # the prefix changed meanwhile
    "quota-exceeded",
]

# Why a service says no, and why a transport fails; anything else is "other".
REASONS = frozenset(
    {
        "policy",
        "billing",
        "quota",
        "too-large",
        "rate-limited",
        "unauthorized",
        "forbidden",
        "unsupported-kind",
        "bad-request",
        "conflict",
        "unavailable",
        "timeout",
        "connection",
        "bad-reply",
        "server-error",
        "call-id-mismatch",
        "no-compressor",
        "too-short",
        "callable-raised",
        "other",
    }
)
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{8,128}")


def reason_code(text: object) -> str:
    """``text`` if it is a known code, else ``other``."""
    return text if isinstance(text, str) and text in REASONS else "other"


def check_call_id(call_id: str) -> str:
    """``call_id`` if it has the form of one; ``UsageError`` otherwise."""
    if not isinstance(call_id, str) or not _CALL_ID.fullmatch(call_id):
        raise UsageError("call id: 8 to 128 letters, digits, - or _ are needed")
    return call_id


@dataclass(frozen=True, slots=True)
class CompressRequest:
    """One request. The transport fills ``beneficiaries`` in, anew for every attempt."""

    kind: str
    canonical_text: str = field(repr=False)
    call_id: str
    beneficiaries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_text(self.canonical_text, "canonical text")
        check_call_id(self.call_id)

    def document(self) -> dict[str, object]:
        """The body that goes over the wire."""
        return {
            "version": VERSION,
            "kind": self.kind,
            "canonicalText": self.canonical_text,
            "beneficiaries": list(self.beneficiaries),
            "callId": self.call_id,
        }


@dataclass(frozen=True, slots=True)
class Compressed:
    """A summary of the first ``represented_count`` exchanges and of the summary before them."""

    text: str = field(repr=False)
    represented_count: int
    call_id: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The service said no. ``reason`` is a code of ``REASONS``."""

    reason: str
    call_id: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", reason_code(self.reason))


@dataclass(frozen=True, slots=True)
class TransportFailed:
    """There is no answer that could be used. ``error`` is a code of ``REASONS``."""

    error: str
    call_id: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", reason_code(self.error))


CompressResult = Compressed | Refused | TransportFailed


class Compressor(Protocol):
    """A transport of requests. It raises nothing: what goes wrong is a result."""

    def compress(self, request: CompressRequest) -> CompressResult: ...


def result_of(document: object, call_id: str) -> CompressResult:
    """The result that a reply's JSON ``document`` to the request ``call_id`` stands for."""
    if not isinstance(document, Mapping) or document.get("version") != VERSION:
        return TransportFailed("bad-reply", call_id)
    if document.get("callId") != call_id:
        return TransportFailed("call-id-mismatch", call_id)
    status = document.get("status")
    if status == "refused":
        return Refused(reason_code(document.get("reason")), call_id)
    text, count = document.get("text"), document.get("representedCount")
    if status != "compressed" or not isinstance(text, str) or type(count) is not int:
        return TransportFailed("bad-reply", call_id)
    return Compressed(text, count, call_id)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one wish to compress. ``reason`` is a code, "" where there is none to give.

    ``before_chars`` and ``after_chars`` are lengths of the stack's canonical text.
    """

    outcome: OutcomeCode
    before_chars: int
    after_chars: int
    call_id: str = ""
    represented: int = 0
    reason: str = ""

    @property
    def called(self) -> bool:
        """Whether the compressor was called."""
        return bool(self.call_id)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Telemetry of one call: numbers and codes, never a text."""

    call_id: str
    kind: str
    canonical_chars: int
    represented: int
    outcome: OutcomeCode
    reason: str
    duration_ms: float
    forced: bool

    def fields(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Judged:
    """What is wrong with a result."""

    outcome: OutcomeCode
    reason: str = ""


def judge(
    result: CompressResult,
    request: CompressRequest,
    lengths: Sequence[int],
    summary_part_chars: int,
    *,
    most_chars: int,
) -> Compressed | Judged:
    """``result``, if it may be published for ``request``; otherwise why not.

    ``lengths`` are canonical lengths: of the old summary (0 without one), then of each exchange
    that was submitted. ``summary_part_chars`` is what the new one would add to a canonical text;
    its text may have at most ``most_chars``.
    """
    if result.call_id != request.call_id:
        return Judged("failed", "call-id-mismatch")
    if isinstance(result, Refused):
        return Judged("refused", result.reason)
    if isinstance(result, TransportFailed):
        return Judged("failed", result.error)
    if not result.text.strip():
        return Judged("empty")
    if not 1 <= result.represented_count < len(lengths):
        return Judged("invalid-count")
    if summary_part_chars >= sum(lengths[: result.represented_count + 1]):
        return Judged("not-smaller")
    if len(result.text) > most_chars:
        return Judged("not-smaller", "over-cap")
    return result
