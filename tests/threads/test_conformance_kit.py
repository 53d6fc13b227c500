"""The built-in summary in a public kit that plants facts and counts what five compactions leave."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

TOOL = Path(__file__).resolve().parents[2] / "tools" / "bench_conformance.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_conformance", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_more_survives_five_rounds_at_a_fifth_of_the_size_than_the_kits_best_keeps() -> None:
    found = tool().survival(seeds=(1, 2, 3, 4), budgets=(0.2,))
    shares = {entry["compactor"]: entry["randomized"]["overall_final_survival"] for entry in found}
    ours = next(entry for entry in found if entry["compactor"] == "h2ams built-in")
    assert ours["budget_compliant"]
    assert shares["h2ams built-in"] > 0.85 >= shares["update-aware-checklist"]
