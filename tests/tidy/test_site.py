"""The pages of the documentation site: in the navigation, complete, with links that hold."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidy.site_tools import ROOT, check_site, make_site, site_api

import h2ams
import h2ams.anthropic
from h2ams import Memory

DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
DECISION = re.compile(r"\d{4}-[\w-]+\.md")


def named(nav: Any) -> list[str]:
    """Every page that a navigation names, in order."""
    if isinstance(nav, str):
        return [nav]
    return [
        page for each in (nav.values() if isinstance(nav, dict) else nav) for page in named(each)
    ]


def pages() -> set[str]:
    """Every page of the site; single decisions are named by their table."""
    staged = {place for place in make_site.places(ROOT).values() if place.endswith(".md")}
    staged |= {page.place for page in site_api.PAGES}
    return {page for page in staged if not DECISION.fullmatch(Path(page).name)}


def test_every_page_has_a_place_in_the_navigation() -> None:
    missing = sorted(pages() - set(named(yaml.safe_load(CONFIG)["nav"])))
    assert missing == [], (
        f"put {', '.join(missing)} into nav in mkdocs.yml, under the heading for its readers"
    )


def test_the_navigation_names_each_page_once_and_no_other() -> None:
    found = named(yaml.safe_load(CONFIG)["nav"])
    assert len(found) == len(set(found))
    assert set(found) - pages() == set()


def test_the_site_names_no_address_and_no_fonts_of_elsewhere() -> None:
    assert "://" not in CONFIG
    assert yaml.safe_load(CONFIG)["theme"]["font"] is False


def test_the_table_of_decisions_has_each_with_a_status() -> None:
    text = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w-]+\.md)\) \| [^|]+ \| ([^|]+) \|$", text, re.M)
    there = sorted(p.name for p in (DOCS / "decisions").glob("[0-9]*.md"))
    assert sorted(name for _, name, _ in rows) == there
    assert all(name.startswith(number) for number, name, _ in rows)
    assert all(re.fullmatch(r"in force|replaced by \d{4}", status) for _, _, status in rows)


# -- the Python API ------------------------------------------------------------------------------


def api_names() -> set[str]:
    return {name for page in site_api.PAGES for name in site_api.names_of(ROOT, page)}


def imported() -> set[str]:
    """Full names of what the snippets and examples of the pages import from the package."""
    texts = [path.read_text(encoding="utf-8") for path in (DOCS / "examples").glob("*.py")]
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        texts += re.findall(
            r"^```py(?:thon)?\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S
        )
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    found = [each for each in nodes if isinstance(each, ast.ImportFrom)]
    return {
        f"{each.module}.{name.name}"
        for each in found
        if each.module and each.module.split(".")[0] == "h2ams"
        for name in each.names
    }


def test_every_public_name_is_on_a_page_of_the_python_api() -> None:
    assert {f"h2ams.{name}" for name in h2ams.__all__} - api_names() == set()
    assert {f"h2ams.anthropic.{name}" for name in h2ams.anthropic.__all__} - api_names() == set()


def test_whatever_the_pages_import_is_on_a_page_of_the_python_api() -> None:
    assert len(imported()) > 8
    assert imported() - api_names() == set()


def test_every_name_of_the_python_api_is_there() -> None:
    for full in sorted(api_names()):
        module, _, name = full.rpartition(".")
        assert hasattr(importlib.import_module(module), name), full


def test_every_method_of_a_public_class_says_what_it_does() -> None:
    silent = []
    for kind in (getattr(h2ams, name) for name in h2ams.__all__):
        for name in dir(kind) if isinstance(kind, type) else ():
            member = inspect.getattr_static(kind, name)
            inner = getattr(member, "__func__", getattr(member, "fget", member))
            own = inspect.isfunction(inner) and inner.__module__.startswith("h2ams")
            if own and not name.startswith("_") and not inner.__doc__:
                silent.append(f"{kind.__name__}.{name}")
    assert silent == []


# -- pages that explain --------------------------------------------------------------------------


def test_the_page_on_ranking_explains_every_term_of_a_score(tmp_path: Path) -> None:
    text = (DOCS / "recall.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(\w+)` \| ", text.split("## The terms of a score")[1], re.M))
    with Memory.open(tmp_path / "m", create=True) as memory:
        memory.remember("user", "Deploys run on Friday.")
        terms = set(memory.recall("deploys").hits[0].terms)
    assert explained == terms | {"semantic", "window"}


def test_the_weights_on_the_page_on_ranking_are_the_defaults() -> None:
    text = (DOCS / "recall.md").read_text(encoding="utf-8")
    told = re.findall(r"`(\w+)` \[([\d.,]+)( %)?\]", text)
    assert len(told) > 15
    for name, value, percent in told:
        number = float(value.replace(",", "")) / (100 if percent else 1)
        assert number == getattr(h2ams.Settings(), name), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_list_a_table_and_a_heading_stand_apart_from_the_text_before(page: Path) -> None:
    """The repository's view and the site read them alike then."""
    before = ""
    in_block = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_block = not in_block
        elif not in_block and before.strip():
            told = f"{page.name}:{number}: put an empty line before it"
            assert not line.startswith("#"), told
            assert not (before.startswith("|") and line[:1] not in ("|", "<", "")), told
            goes_on = before.startswith(" ") or ITEM.match(before)
            assert goes_on or not ITEM.match(line), told
            assert before.startswith(("|", "<!--")) or not line.startswith("| "), told
        before = line


# -- links, as they are turned -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "text", "turned"),
    [
        ("README.md", "[a](docs/cli.md#x)", "[a](../cli.md#x)"),
        ("README.md", "[b](docs/hosts/)", "[b](../hosts/README.md)"),
        ("README.md", "[folder](scopes/)", "folder"),
        ("README.md", "[nowhere](docs/nowhere.md)", "[nowhere](docs/nowhere.md)"),
        ("docs/reliability.md", "[s](../SECURITY.md)", "[s](project/security.md)"),
        ("docs/hosts/codex.md", "[../mcp.md](../mcp.md)", "[MCP server](../mcp.md)"),
        ("docs/cli.md", "`[a](scopes/)`", "`[a](scopes/)`"),
        ("docs/cli.md", "[`config`](settings.md)", "[`config`](settings.md)"),
        ("docs/cli.md", "```md\n[a](../README.md)\n```", "```md\n[a](../README.md)\n```"),
        ("docs/cli.md", "[mail](mailto:a@b.c), [here](#x)", "[mail](mailto:a@b.c), [here](#x)"),
    ],
)
def test_a_link_leads_where_the_page_lies_on_the_site(source: str, text: str, turned: str) -> None:
    assert make_site.turned(text, source, make_site.places(ROOT), ROOT) == turned


def test_all_pages_are_brought_together(tmp_path: Path) -> None:
    make_site.stage(ROOT, tmp_path / "pages")
    there = {p.relative_to(tmp_path / "pages").as_posix() for p in tmp_path.rglob("*.md")}
    assert pages() <= there
    assert "::: h2ams.Memory\n" in (tmp_path / "pages/api/h2ams.md").read_text(encoding="utf-8")


# -- what is checked of a built site -------------------------------------------------------------

_HEAD = '<link rel="canonical" href="https://example.org/"><link rel="stylesheet" href="a.css">'


def built(folder: Path, first: str = "", second: str = "", style: str = "") -> list[str]:
    """The problems of a site of two pages with these bodies, and a style sheet."""
    folder.mkdir(exist_ok=True)
    link = '<a href="b.html#there">b</a>'
    (folder / "index.html").write_text(f"{_HEAD}{link}{first}", encoding="utf-8")
    (folder / "b.html").write_text(f'<h1 id="there">B</h1>{second}', encoding="utf-8")
    (folder / "a.css").write_text(style, encoding="utf-8")
    return list(check_site.problems_of(folder, ["b.html#there"]))


def test_a_sound_site_has_no_problems(tmp_path: Path) -> None:
    elsewhere = '<a href="https://example.org">a link is not loaded</a><img src="a.css" alt="x">'
    assert built(tmp_path, elsewhere, '<a href="index.html?h=x">back</a>') == []


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="c.html">', "c.html leads nowhere"),
        ('<a href="b.html#gone">', "b.html#gone: gone is not there"),
        ('<a href="#gone">', "#gone: gone is not there"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<script src="//cdn.example/x.js"></script>', "loads //cdn.example/x.js"),
        ('<link rel="preconnect" href="https://f.example">', "loads https://f.example"),
        ('<img src="https://t.example/p.gif" alt="p">', "loads https://t.example/p.gif"),
        ('<img srcset="https://t.example/p 2x" alt="p">', "loads https://t.example/p"),
        ('<iframe src="http://t.example/"></iframe>', "loads http://t.example/"),
        ("<p style=\"background: url('https://t.example/')\">", "loads https://t.example/"),
        ("<style>@import 'https://t.example/a.css';</style>", "loads https://t.example/a.css"),
        ('<img src="a.css">', "image a.css has no text"),
        ('<p id="x"></p><p id="x"></p>', "id x stands twice"),
    ],
)
def test_what_is_wrong_with_a_page_is_found(tmp_path: Path, body: str, problem: str) -> None:
    assert built(tmp_path, body) == [f"index.html: {problem}"]


def test_what_a_style_sheet_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    style = "@import url(https://f.example/css); p { background: url(data:image/png;base64,AA==) }"
    assert built(tmp_path, style=style) == ["a.css: loads https://f.example/css"]


def test_pages_that_nothing_leads_to_and_missing_anchors_are_found(tmp_path: Path) -> None:
    built(tmp_path)
    (tmp_path / "lost.html").write_text("<p>", encoding="utf-8")
    assert check_site.problems_of(tmp_path) == ["lost.html: no page leads there"]
    (tmp_path / "lost.html").unlink()
    wanted = ["b.html#there", "b.html#gone", "c.html#x"]
    assert check_site.problems_of(tmp_path, wanted) == [
        "b.html: gone is not there",
        "c.html: x is not there",
    ]
    assert check_site.problems_of(tmp_path / "nothing") == ["index.html: not there"]


def test_the_check_ends_with_one_where_there_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built(tmp_path)
    assert check_site.main([str(tmp_path)]) == 0
    built(tmp_path, '<a href="c.html">')
    assert check_site.main([str(tmp_path)]) == 1
    assert "index.html: c.html leads nowhere" in capsys.readouterr().err
