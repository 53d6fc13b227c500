"""What survives repeated compaction: the built-in summary against ``compaction-conformance-kit``.

    python tools/bench_conformance.py [SEEDS]

The kit plants twenty canaries (rules, constraints, facts, goals, preferences) in a conversation,
has it compacted five times at a budget that is a share of the first text, each time from the result
of the time before, and counts which canaries can still be answered word by word.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from compaction_kit import CompactedContext, run_budget_benchmark
from compaction_kit.compactors import (
    LossyTruncationCompactor,
    NaiveSummaryCompactor,
    UpdateAwareChecklistCompactor,
)

from h2ams.text.ledger import Ledger, harvest
from h2ams.threads import shapes
from h2ams.threads.digesting import Digest, Task, digest_of
from h2ams.threads.running_summary import LEDGER_TITLE, Sections, parse
from h2ams.threads.unit import Entry

SEEDS = (1, 2, 3, 4)  # the kit's own
BUDGETS = (0.1, 0.2, 0.3)


def summary_text(text: str, ledger: Ledger) -> str:
    """A summary as it stands inside its fence."""
    return f"{text}\n\n{LEDGER_TITLE}\n{ledger.text}" if ledger.entries else text


def read_back(text: str) -> tuple[Sections, Ledger]:
    """The summary of the round before, from its text alone, as the engine has it from its row."""
    prose, _, lines = text.partition(LEDGER_TITLE)
    sections = parse(prose, "stop")
    ledger = harvest([lines], most_chars=len(lines))
    return (sections if isinstance(sections, Sections) else Sections()), ledger


class BuiltIn:
    """The engine's summary without a model, its budget counted in chars as the kit does."""

    name = "h2ams built-in"

    def compact(
        self, turns: list[Any], round_num: int = 1, budget_chars: int | None = None
    ) -> CompactedContext:
        most = budget_chars or 1 << 30
        previous, ledger = read_back(turns[0].text) if round_num > 1 else (Sections(), Ledger())
        entries = [
            Entry(f"r{n}", n, shapes.make("openai-chat", _role(turn.role), turn.text), 0)
            for n, turn in enumerate(turns if round_num == 1 else (), start=1)
        ]
        task = Task(entries, previous, previous.text, ledger, "", most, most, most)
        made = digest_of(task, None, lambda *parts: len(summary_text(*parts)), len, most)
        assert isinstance(made, Digest)
        text = summary_text(made.sections.text, made.ledger)
        return CompactedContext(text=text, compactor_name=self.name, round_num=round_num)


def _role(role: str) -> Any:
    return "assistant" if role == "assistant" else "user"


def survival(seeds: Sequence[int] = SEEDS, budgets: Sequence[float] = BUDGETS) -> list[Any]:
    """The kit's entries for the built-in summary and for three of its own compactors."""
    others = (UpdateAwareChecklistCompactor, NaiveSummaryCompactor, LossyTruncationCompactor)
    factories: dict[str, Any] = {BuiltIn.name: BuiltIn}
    factories |= {each.name: each for each in others}
    found: list[Any] = run_budget_benchmark(factories, budgets=budgets, seeds=seeds)["entries"]
    return found


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    seeds = tuple(range(1, count + 1)) if count else SEEDS
    print(f"five rounds, {len(seeds)} conversations, share of canaries that survive\n")
    print("| budget | compactor | survival | within budget | size |")
    print("| --- | --- | --- | --- | --- |")
    for entry in survival(seeds):
        share = entry["randomized"]["overall_final_survival"]
        print(
            f"| {entry['budget_fraction']:.0%} | {entry['compactor']} | {share:.1%}"
            f" | {'yes' if entry['budget_compliant'] else 'no'}"
            f" | {entry['mean_final_output_ratio']:.1%} |"
        )


if __name__ == "__main__":
    main()
