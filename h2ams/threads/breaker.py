"""The breaker against compacting again and again (Pure): strikes, and when they are forgotten.

A pass that saved less than ``min_saving``, found nothing to fold, or failed (transport, bad
summary) is a strike; two of them stop automatic compaction until the window has really grown since
or another model summarises. Its value is kept as a row of the thread, so it outlives the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_STRIKES = 2
GROWTH = 0.10  # "really grown": so much larger than at the last strike


@dataclass(frozen=True, slots=True)
class Breaker:
    """``at_tokens``: the window at the last strike; ``model``: who summarised then."""

    strikes: int = 0
    at_tokens: int = 0
    model: str = ""

    def allows(self, window_tokens: int, model: str) -> bool:
        """Whether an automatic pass may run on a window of this size."""
        if self.strikes < MOST_STRIKES or model != self.model:
            return True
        return window_tokens >= self.at_tokens * (1 + GROWTH)

    def strike(self, window_tokens: int, model: str) -> Breaker:
        """One pass more that was no use. Another model begins to count anew."""
        strikes = self.strikes if model == self.model else 0
        return Breaker(min(strikes + 1, MOST_STRIKES), window_tokens, model)

    def to_json(self) -> dict[str, object]:
        """``{"strikes", "at_tokens", "model"}``."""
        return {"strikes": self.strikes, "at_tokens": self.at_tokens, "model": self.model}

    @classmethod
    def of(cls, payload: Mapping[str, Any] | None) -> Breaker:
        """The breaker that a state row holds; a closed one where there is none."""
        if not payload:
            return cls()
        return cls(
            int(payload.get("strikes", 0)),
            int(payload.get("at_tokens", 0)),
            str(payload.get("model", "")),
        )
