"""The values around one turn's prompt (Pure): budgets in, window in, context and receipt out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from h2ams.errors import UsageError
from h2ams.settings import Settings
from h2ams.text.ledger import Ledger
from h2ams.threads import running_summary
from h2ams.threads.message import Message, Shape
from h2ams.threads.unit import Entry

PartName = Literal["system", "tools", "first-turn", "summary", "tail", "memory", "new"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one context, in tokens; shares are of ``flexible`` (``Settings``, "Threads")."""

    window_tokens: int
    reserve_tokens: int
    tools_tokens: int = 0
    tail_share: float = 0.40
    head_share: float = 0.10
    summary_share: float = 0.20
    summary_tokens: int = 2_000
    ledger_chars: int = 6_000
    memory_share: float = 0.15
    min_reclaim_tokens: int = 1_000
    min_saving: float = 0.10
    image_bytes: int = 20_000_000

    def __post_init__(self) -> None:
        if self.budget_tokens <= 0:
            raise UsageError(
                f"a window of {self.window_tokens} tokens with a reserve of {self.reserve_tokens}",
                hint="the reserve must be smaller than the window",
            )

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        window: int | None = None,
        reserve: int | None = None,
        tools_tokens: int = 0,
    ) -> Limits:
        """The limits that ``settings`` say; ``window`` and ``reserve`` are the host's own."""
        wanted = settings.thread_window_tokens if window is None else window
        kept = min(settings.thread_reserve_tokens, wanted // 4) if reserve is None else reserve
        return cls(
            window_tokens=wanted,
            reserve_tokens=kept,
            tools_tokens=tools_tokens,
            tail_share=settings.thread_tail_share,
            head_share=settings.thread_head_share,
            summary_share=settings.thread_summary_share,
            summary_tokens=settings.thread_summary_tokens,
            ledger_chars=settings.thread_ledger_chars,
            memory_share=settings.thread_memory_share,
            min_reclaim_tokens=min(settings.thread_min_reclaim_tokens, max(1, wanted // 20)),
            min_saving=settings.thread_min_saving,
            image_bytes=settings.thread_image_bytes,
        )

    @property
    def budget_tokens(self) -> int:
        """Window minus reserve: what a prompt may cost, tools included."""
        return self.window_tokens - self.reserve_tokens

    def flexible(self, system_tokens: int) -> int:
        """What is left beside the parts that cannot be made smaller."""
        return max(0, self.budget_tokens - system_tokens - self.tools_tokens)


@dataclass(frozen=True, slots=True)
class SummaryInWindow:
    """The running summary that the window begins with. ``tokens`` counts it as it is rendered."""

    id: str
    boundary: str
    text: str
    ledger: Ledger
    tokens: int
    covers_start: bool  # the first turn is inside it

    @property
    def rendered(self) -> str:
        return running_summary.render(self.text, self.ledger)


@dataclass(frozen=True, slots=True)
class Window:
    """What a thread's prompt is made of. ``head``: rows before the summary's range, the first turn.

    ``entries``: rows behind the summary's boundary, and carried ones from before it, in order.
    """

    thread: str
    system: str = ""
    system_tokens: int = 0
    summary: SummaryInWindow | None = None
    head: tuple[Entry, ...] = ()
    entries: tuple[Entry, ...] = ()

    @property
    def tokens(self) -> int:
        """All of it, without tools, memory and a new message."""
        rows = sum(entry.tokens for entry in (*self.head, *self.entries))
        return self.system_tokens + (self.summary.tokens if self.summary else 0) + rows


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a prompt as the receipt lists it."""

    name: PartName
    tokens: int
    rows: tuple[str, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, object]:
        """``{"name", "tokens", "rows", "why"}``."""
        return {
            "name": self.name, "tokens": self.tokens, "rows": list(self.rows), "why": self.why
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ContextReceipt:
    """Why a prompt is what it is. ``tokens`` is the sum of the parts, at most ``budget``.

    ``left_out``: rows that found no room; ``shortened``: rows of which tool output was cut;
    ``closed``: calls that got a notice for a result; ``dropped``: results without a call.
    ``compaction``: reason code of a compaction that this call ran, or "". ``notes``: codes of what
    a person should know.
    """

    tokens: int
    budget: int
    window: int
    reserve: int
    parts: tuple[Part, ...]
    left_out: tuple[str, ...] = ()
    shortened: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    compaction: str = ""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """All fields under their names."""
        return {
            "tokens": self.tokens,
            "budget": self.budget,
            "window": self.window,
            "reserve": self.reserve,
            "parts": [part.to_json() for part in self.parts],
            "left_out": list(self.left_out),
            "shortened": list(self.shortened),
            "closed": list(self.closed),
            "dropped": list(self.dropped),
            "compaction": self.compaction,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Context:
    """Messages ready to send. ``system`` is apart where the shape wants it apart (Anthropic)."""

    messages: tuple[Any, ...]
    system: str
    shape: Shape
    receipt: ContextReceipt
    read: tuple[Message, ...] = field(default=(), repr=False, compare=False)

    @property
    def tokens(self) -> int:
        return self.receipt.tokens
