"""README says how to install the package and each of its extras; every page knows the checkout.

Nothing is published: what a reader can do is install from a checkout, so no page may begin with a
name that an index does not have.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from package.distribution import ROOT, extras_for_users

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Installing")[2].partition("\n## ")[0]
USERS = extras_for_users(PROJECT["optional-dependencies"])
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.parent.name != "decisions"
)
INSTALL = re.compile(r"pip install '?(h2ams|\.)(?:\[([\w,]+)\])?(?=['`\s])")


def places(text: str) -> list[tuple[str, str]]:
    """(what is installed, its extras) of each installing command, in order."""
    return [(each[1], each[2] or "") for each in INSTALL.finditer(text)]


@pytest.mark.parametrize("extra", USERS)
def test_an_extra_has_its_line(extra: str) -> None:
    assert f"| `pip install '.[{extra}]'` | " in SECTION


def test_no_extra_is_named_that_does_not_exist() -> None:
    named = {extra for _, extras in places(SECTION) for extra in extras.split(",") if extra}
    assert named == set(USERS)


def test_readme_installs_from_a_checkout_first_and_says_what_it_will_be_once_published() -> None:
    found = places(SECTION)
    assert found[0] == (".", "")
    assert "h2ams" in {what for what, _ in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_checkout_comes_before_the_published_name(page: Path) -> None:
    from_checkout: set[str] = set()
    for what, extras in places(page.read_text(encoding="utf-8")):
        if what == ".":
            from_checkout.add(extras)
        else:
            assert extras in from_checkout, f"say that it is pip install '.[{extras}]' so far"
