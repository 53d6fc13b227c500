"""The built site in a real browser: Debian's Chromium, driven by Playwright.

Run by ``make test-site``, after ``make docs``. Not part of the default suite, which builds no site.
Search works on a page opened from a file and on a served one; no page asks anything of another
origin; axe-core finds nothing serious, light or dark.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

BUILT = Path(__file__).resolve().parents[2] / "build" / "site"
CHROMIUM = os.environ.get("H2AMS_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
LOOKED_AT = ("index.html", "tutorial.html", "errors.html", "api/models.html")
Scheme = Literal["light", "dark"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """The address of the built site on loopback."""
    assert (BUILT / "index.html").is_file(), "make docs builds it"
    handler = functools.partial(Quiet, directory=str(BUILT))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    flags = ["--disable-gpu", "--no-first-run", "--disable-background-networking"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()


def opened(browser: Browser, address: str, scheme: Scheme = "light") -> tuple[Page, list[str]]:
    """A page, and the list that it adds to: what it asked for elsewhere, and its errors."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1300, "height": 900})
    home = "/".join(address.split("/")[:3])
    trouble: list[str] = []

    def asked(url: str) -> None:
        if not url.startswith((home, "data:", "about:", "blob:")):
            trouble.append(url)

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(address)
    return page, trouble


def search(page: Page, question: str, *pages: str) -> None:
    """Ask as a person does, key by key: no key is lost, and each of ``pages`` is among the hits."""
    page.locator(".md-search__button").click()
    field = page.get_by_placeholder("Search")
    field.press_sequentially(question, delay=50)
    expect(field).to_have_value(question)
    for each in pages:
        hit = page.locator(f"dialog[open] a[href*='{each}']").first
        expect(hit).to_be_visible(timeout=30_000)
    expect(field).to_have_value(question)


def test_a_page_opened_from_a_file_is_searched(browser: Browser) -> None:
    page, trouble = opened(browser, (BUILT / "index.html").as_uri())
    search(page, "token budget", "domain.html", "active.html")
    assert trouble == []
    page.close()


def test_a_served_page_is_searched_without_another_origin(browser: Browser, served: str) -> None:
    page, trouble = opened(browser, f"{served}/hosts/codex.html")
    search(page, "forgotten by mistake", "recovery.html")
    assert trouble == []
    page.close()


def test_no_page_asks_anything_of_another_origin(browser: Browser, served: str) -> None:
    page, trouble = opened(browser, f"{served}/index.html")
    paths = sorted(path.relative_to(BUILT).as_posix() for path in BUILT.rglob("*.html"))
    assert len(paths) > 60
    for path in paths:
        page.goto(f"{served}/{path}")
        assert trouble == [], path
    page.close()


def violations(page: Page) -> list[str]:
    """What axe-core finds serious or critical on the page."""
    page.evaluate((resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe looked at nothing"
    return [
        f"{each['impact']} {each['id']}: {json.dumps([node['html'] for node in each['nodes']][:5])}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", LOOKED_AT)
def test_a_page_is_accessible(browser: Browser, served: str, path: str, scheme: Scheme) -> None:
    page, _ = opened(browser, f"{served}/{path}", scheme)
    expect(page.locator("body")).to_have_attribute(
        "data-md-color-scheme", "slate" if scheme == "dark" else "default"
    )
    assert violations(page) == []
    page.close()
