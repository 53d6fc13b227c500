"""README says how to install the package and each of its extras."""

from __future__ import annotations

import tomllib

import pytest
from package.distribution import ROOT, extras_for_users

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("extra", extras_for_users(PROJECT["optional-dependencies"]))
def test_an_extra_has_its_line(extra: str) -> None:
    assert f"| `pip install 'h2ams[{extra}]'` | " in README


def test_no_extra_is_named_that_does_not_exist() -> None:
    section = README.partition("## Installing")[2].partition("\n## ")[0]
    named = {
        extra for part in section.split("h2ams[")[1:] for extra in part.partition("]")[0].split(",")
    }
    assert named == set(extras_for_users(PROJECT["optional-dependencies"]))
