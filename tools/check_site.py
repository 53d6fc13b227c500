"""Check a built site: python tools/check_site.py FOLDER [PAGE#ANCHOR …]

Errors are: a link that leads nowhere, an anchor that is not there, a page that cannot be reached
from the first one, anything that a page would load from another origin, an image without a text,
two elements with one id, and a named anchor that is not there. The check reads the files alone and
needs nothing but Python.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements that load something, and the attribute that says what. <a href> only leads there.
LOADS = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src", "link": "href",
    "object": "data", "script": "src", "source": "src", "track": "src", "video": "src",
}  # fmt: skip
# Relations of <link> that name a page and load nothing.
NAMED = {"canonical", "next", "prev"}
_CSS_LOADS = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")
_START = "index.html"
_ON_ITS_OWN = "404.html"  # servers show it; nothing leads there


@dataclass(slots=True)
class Page(HTMLParser):
    """What a page names: its ids, what it links to, what it loads."""

    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    untold: list[str] = field(default_factory=list)
    _in_style: bool = False

    def __post_init__(self) -> None:
        HTMLParser.__init__(self, convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if given.get("id"):
            self.ids.append(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "img" and not given.get("alt"):
            self.untold.append(given.get("src", "?"))
        source = given.get(LOADS.get(tag, ""))
        if source and not (tag == "link" and set(given.get("rel", "").split()) <= NAMED):
            self.loads.append(source)
        for each in given.get("srcset", "").split(","):
            self.loads += each.split()[:1]
        self.loads += css_loads(given.get("style", ""))
        self._in_style = tag == "style"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += css_loads(data)


def css_loads(text: str) -> list[str]:
    """What a style sheet loads, apart from data inside itself."""
    found = [one or other for one, other in _CSS_LOADS.findall(text)]
    return [each for each in found if not each.startswith(("data:", "#"))]


def is_elsewhere(address: str) -> bool:
    """Whether ``address`` names another origin."""
    parts = urlsplit(address)
    return bool(parts.scheme or parts.netloc) and parts.scheme != "data"


def problems_of(folder: Path, wanted: Iterable[str] = ()) -> list[str]:
    """All that is wrong with the site in ``folder``, one line each; ``wanted``: PAGE#ANCHOR."""
    pages = {}
    for path in sorted(folder.rglob("*.html")):
        page = pages[path] = Page()
        page.feed(path.read_text(encoding="utf-8"))
        page.close()
    if folder / _START not in pages:
        return [f"{_START}: not there"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        found += [f"{name}: {each}" for each in _of_page(path, page, folder, pages)]
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder).as_posix()
        loads = css_loads(path.read_text(encoding="utf-8"))
        found += [f"{name}: loads {each}" for each in loads if is_elsewhere(each)]
    for each in wanted:
        name, _, anchor = each.partition("#")
        if anchor not in getattr(pages.get(folder / name), "ids", ()):
            found.append(f"{name}: {anchor} is not there")
    reached = _reached(folder, pages)
    for path in pages.keys() - reached:
        name = path.relative_to(folder).as_posix()
        if name != _ON_ITS_OWN:
            found.append(f"{name}: no page leads there")
    return sorted(found)


def _of_page(path: Path, page: Page, folder: Path, pages: dict[Path, Page]) -> list[str]:
    found = [f"image {each} has no text" for each in page.untold]
    twice = sorted(each for each, count in Counter(page.ids).items() if count > 1)
    found += [f"id {each} stands twice" for each in twice]
    found += [f"loads {each}" for each in page.loads if is_elsewhere(each)]
    at_home = [each for each in page.loads if not is_elsewhere(each)]
    for link in [*page.links, *at_home]:
        if is_elsewhere(link) or link.startswith("data:"):
            continue
        target, anchor = _target(path, link, folder)
        if not target.is_file():
            found.append(f"{link} leads nowhere")
        elif anchor and target in pages and anchor not in pages[target].ids:
            found.append(f"{link}: {anchor} is not there")
    return found


def _target(path: Path, link: str, folder: Path) -> tuple[Path, str]:
    parts = urlsplit(link)
    if parts.path.startswith("/"):  # of a 404 page, which a server shows at any place
        target = folder / unquote(parts.path.lstrip("/"))
    else:
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    return (target / _START if target.is_dir() else target), unquote(parts.fragment)


def _reached(folder: Path, pages: dict[Path, Page]) -> set[Path]:
    waiting = [folder / _START]
    reached: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in reached or path not in pages:
            continue
        reached.add(path)
        waiting += [_target(path, link, folder)[0] for link in pages[path].links]
    return reached


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]).resolve()
    found = problems_of(folder, arguments[1:])
    for each in found:
        print(each, file=sys.stderr)
    count = len(list(folder.rglob("*.html")))
    print(f"{count} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
