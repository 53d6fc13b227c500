"""A real browser: Debian's Chromium, driven by Playwright, that notes whatever goes wrong."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, Page, Playwright, Request
from surfaces.inspect_kit import Server

CHROMIUM = os.environ.get("H2AMS_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]  # fmt: skip
Scheme = Literal["light", "dark"]
WIDE, NARROW = (1280, 800), (360, 740)


def launched(playwright: Playwright) -> Browser:
    """Chromium; as root it needs to run without its sandbox."""
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=CHROMIUM, args=flags)


@dataclass
class Trouble:
    """What a page did that it must not: messages of the console, errors, requests elsewhere."""

    origin: str
    console: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("console", lambda said: self.console.append(said.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", self._asked)
        page.on("requestfailed", self._failed)
        page.on("websocket", lambda socket: self.elsewhere.append(socket.url))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(f"{self.origin}/"):
            self.elsewhere.append(request.url)

    def _failed(self, request: Request) -> None:
        if "ERR_ABORTED" not in (request.failure or ""):  # the page was left before it came
            self.refused.append(f"{request.url}: {request.failure}")

    def check(self) -> None:
        assert (self.console, self.elsewhere, self.refused) == ([], [], [])


@contextmanager
def visiting(
    browser: Browser,
    server: Server,
    *,
    scheme: Scheme = "light",
    size: tuple[int, int] = WIDE,
    scripts: bool = True,
) -> Iterator[tuple[Page, Trouble]]:
    """A page of a browser that has entered; at the end nothing must have gone wrong on it."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        java_script_enabled=scripts,
        locale="en-GB",
    )
    try:
        _give_cookie(context, server)
        page = context.new_page()
        trouble = Trouble(server.origin)
        trouble.watch(page)
        yield page, trouble
        trouble.check()
    finally:
        context.close()


def _give_cookie(context: BrowserContext, server: Server) -> None:
    name, _, value = server.cookie.partition("=")
    context.add_cookies(
        [{"name": name, "value": value, "url": server.origin, "httpOnly": True,
          "sameSite": "Strict"}]
    )  # fmt: skip


def violations(page: Page) -> list[str]:
    """What axe-core finds serious or critical on the page as it is now."""
    axe = resources.files("axe_playwright_python") / "axe.min.js"
    # By the debugger, which the policy of the page does not bind; the page itself loads nothing.
    page.evaluate(axe.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe looked at nothing"
    return [
        f"{each['impact']} {each['id']}: {json.dumps([node['html'] for node in each['nodes']])}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
