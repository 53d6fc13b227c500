"""Every reported case that is due has a test that names it: ``test_k33_…``."""

from __future__ import annotations

import json
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
CASES = json.loads((TESTS / "data/cases.json").read_text(encoding="utf-8"))
FUNCTION = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
ID = re.compile(r"(?<=_)k\d+(?=_|$)", re.IGNORECASE)


def named() -> dict[str, list[str]]:
    """Case id to the tests that name it."""
    found: dict[str, list[str]] = {}
    for path in TESTS.rglob("test_*.py"):
        for name in FUNCTION.findall(path.read_text(encoding="utf-8")):
            for id in ID.findall(name):
                found.setdefault(id.upper(), []).append(f"{path.name}::{name}")
    return found


def test_every_due_case_has_a_test() -> None:
    tests = named()
    assert [case["id"] for case in CASES if case["id"] not in tests] == []


def test_every_case_that_a_test_names_is_listed() -> None:
    known = {case["id"] for case in CASES}
    assert {id: tests for id, tests in named().items() if id not in known} == {}


def test_the_list_names_each_case_once_with_its_layer() -> None:
    ids = [case["id"] for case in CASES]
    assert len(ids) == len(set(ids))
    for case in CASES:
        assert set(case) == {"id", "layer", "about"} and all(case.values())
        assert re.fullmatch(r"K\d{2,3}", case["id"])
