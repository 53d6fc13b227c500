"""docs/settings.md names every setting with its default, and no other."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from h2ams.settings import DEFAULTS, Settings, parse_setting

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
ROW = re.compile(r"^\| `([a-z0-9_]+)` \| `?([^`|]+?)`? \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
UNITS = {"bytes": "bytes", "chars": "chars", "tokens": "tokens", "ms": "ms", "days": "days"}


def rows() -> list[tuple[str, str, str]]:
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [(name, default, unit.strip()) for name, default, unit, _ in found]


def test_every_setting_stands_on_the_page_in_order_and_no_other() -> None:
    assert [name for name, _, _ in rows()] == [each.name for each in fields(Settings)]


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    for name, default, _ in rows():
        assert parse_setting(name, default) == getattr(DEFAULTS, name), name


def test_the_unit_on_the_page_is_the_one_that_ends_the_name() -> None:
    for name, _, unit in rows():
        ending = name.rpartition("_")[2]
        if ending in UNITS:
            assert unit == UNITS[ending], name
