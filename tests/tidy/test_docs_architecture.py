"""Pages that name modules, files and pages name those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "h2ams"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CODE = sorted([*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *ROOT.glob("tools/*.py")])
LINK = re.compile(r"\]\(([^)#:]+)(?:#([^)]*))?\)")
TEST = re.compile(r"`(tests/[\w/.-]+)`")
QUOTED_SECTION = re.compile(r'(docs/[a-z-]+\.md), "([^"\n]+(?:\n[^"\n]+)?)"')


def modules() -> set[str]:
    found = {path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py")}
    return {name for name in found if not name.endswith("__init__")}


def table() -> tuple[set[str], set[str]]:
    """Modules that the table of docs/architecture.md names, and those that it calls pure."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.split("## Modules", 1)[1].split("\n## ", 1)[0]
    named: set[str] = set()
    pure: set[str] = set()
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        names = set(re.findall(r"`([^`]+)`", line.split("|")[1]))
        named |= names
        if line.split("|")[2].strip() == "P":
            pure |= names
    return named, pure


def test_the_table_of_modules_names_each_module_and_no_other() -> None:
    named, _ = table()
    stars = {name for name in named if name.endswith("*")}
    covered = {each for each in modules() if any(each.startswith(star[:-1]) for star in stars)}
    assert named - stars - modules() == set()
    assert modules() - named - covered == set()


def test_the_table_calls_pure_what_calls_itself_pure() -> None:
    named, pure = table()
    for name in sorted(name for name in named if not name.endswith("*")):
        text = (PACKAGE / f"{name}.py").read_text(encoding="utf-8")
        says = "(Pure" in text.split('"""')[1]
        assert says == (name in pure), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, _ in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    for name in TEST.findall(page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_sections_that_the_code_cites_are_there() -> None:
    for path in CODE:
        for page, title in QUOTED_SECTION.findall(path.read_text(encoding="utf-8")):
            text = (ROOT / page).read_text(encoding="utf-8")
            heading = " ".join(title.split())
            assert re.search(rf"^#+ .*{re.escape(heading)}", text, re.MULTILINE), (
                path,
                page,
                title,
            )
