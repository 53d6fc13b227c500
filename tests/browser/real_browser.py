"""The inspector in a real browser: `make test-browser`. Not part of the default suite.

With ``H2AMS_SCREENSHOTS=1`` the pictures of docs/images are made anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from browser.kit import NARROW, WIDE, Scheme, launched, violations, visiting
from folder import segment_text, write
from playwright.sync_api import Browser, Page, expect, sync_playwright
from surfaces.inspect_kit import Server, addresses_on, build, hostile_folder, serving, where

from h2ams.surfaces.inspect_site import PAGES

REPOSITORY = Path(__file__).resolve().parents[2]
IMAGES = REPOSITORY / "docs/images"
QUESTION = "why are rowids grouped by scope?"
SEGMENT = "sessions/core/topic/index#seg_8e3c7a9e0178bdc1"
STATIC = {
    "overview": "/",
    "scope": "/scope?name=user",
    "scope-retired": "/scope?name=sessions/core&archived=1",
    "segment": where("/segment", address=SEGMENT),
    "sources": "/sources?id=measured-before-build",
    "recall-empty": "/recall",
    "recall": where("/recall", q=QUESTION, kind="decision"),
    "context": where("/context", q=QUESTION, budget="900"),
    "threads": "/threads",
    "thread": "/thread?id=planning",
    "stacks": "/stacks",
    "stack": "/stack?id=campaign",
    "scene": "/stack?id=campaign&scene=southgate",
    "dream": "/dream",
}
NAMES = (*STATIC, "pass")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = launched(playwright)
        yield running
        running.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("browser") / "memory"
    build(root)
    with serving(root, "--write") as running:
        yield running


def path_of(server: Server, name: str) -> str:
    if name != "pass":
        return STATIC[name]
    found = re.search(r'href="(/pass\?id=[^"]+)"', server.page("/dream"))
    assert found is not None
    return found[1]


def test_every_page_is_visited() -> None:
    assert {each.partition("?")[0] for each in STATIC.values()} | {"/pass"} == {*PAGES}


# -- the door --------------------------------------------------------------------------------------


def test_the_printed_address_opens_the_overview_once(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path / "memory", "user/memory.md", segment_text("s1", "Prefers tabs."))
    server = Server(tmp_path / "memory")
    try:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_url(f"{server.origin}/")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        (cookie,) = context.cookies()
        assert cookie.get("httpOnly") and cookie.get("sameSite") == "Strict"
        assert page.evaluate("document.cookie") == ""
        page.reload()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        context.close()
        stranger = browser.new_context()
        late = stranger.new_page()
        answer = late.goto(server.url)
        assert answer is not None and answer.status == 401
        expect(late.get_by_role("heading", level=1)).to_have_text("Unauthorized")
        stranger.close()
    finally:
        assert server.end()[0] == 0


def test_a_page_of_another_port_can_neither_read_nor_frame_nor_send_forms(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    """The other port is the same site to a browser, so it sends the cookie along."""
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    with serving(root) as stranger, visiting(browser, server) as (page, trouble):
        page.route(
            f"{stranger.origin}/evil",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f"<iframe src='{server.origin}/'></iframe><form method='post'"
                f" action='{server.origin}/segment/forget'><button>x</button></form>",
            ),
        )
        page.goto(f"{stranger.origin}/evil")
        blocked = page.evaluate(
            "to => fetch(to + '/', {credentials: 'include'}).then(() => 'read', () => 'no')",
            server.origin,
        )
        assert blocked == "no"
        assert "Overview" not in (page.frames[1].content() if len(page.frames) > 1 else "")
        page.get_by_role("button").click()
        page.wait_for_url(f"{server.origin}/segment/forget")
        assert "wrong Origin" in page.content() or "another site" in page.content()
        trouble.console.clear()  # the browser says what it refused to the other page
        trouble.elsewhere.clear()
        trouble.refused.clear()


# -- every page, light and dark, wide and narrow ---------------------------------------------------


@pytest.mark.parametrize("scheme", get_args(Scheme))
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious_and_nothing_goes_wrong(
    browser: Browser, server: Server, name: str, scheme: Scheme
) -> None:
    with visiting(browser, server, scheme=scheme) as (page, _):
        page.goto(server.origin + path_of(server, name))
        for each in page.locator("details").all():
            each.evaluate("details => details.open = true")
        assert violations(page) == []
        assert page.locator("main h1").count() == 1
        assert page.locator("header, nav, main, footer").count() >= 4


def test_axe_would_find_what_is_wrong(browser: Browser, server: Server) -> None:
    with visiting(browser, server) as (page, _):
        page.goto(server.origin + "/recall")
        page.evaluate("document.querySelector('label[for=q]').remove()")
        page.evaluate("document.querySelector('#q').removeAttribute('aria-describedby')")
        assert any("label" in each for each in violations(page))


@pytest.mark.parametrize("address", ["/nothing", "/segment?address=user%23none", "/recall?limit=x"])
def test_axe_finds_nothing_serious_on_pages_that_refuse(
    browser: Browser, server: Server, address: str
) -> None:
    for scheme in get_args(Scheme):
        with visiting(browser, server, scheme=scheme) as (page, trouble):
            page.goto(server.origin + address)
            assert violations(page) == []
            assert [
                each for each in trouble.console if "404" not in each and "400" not in each
            ] == []
            trouble.console.clear()  # a browser tells of the status in its console


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["narrow", "wide"])
@pytest.mark.parametrize("name", NAMES)
def test_no_page_is_wider_than_its_window(
    browser: Browser, server: Server, name: str, size: tuple[int, int]
) -> None:
    with visiting(browser, server, size=size) as (page, _):
        page.goto(server.origin + path_of(server, name))
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        outside = page.evaluate(
            """() => [...document.querySelectorAll('main *')].filter(each =>
                !each.closest('.scroll, pre, svg, details:not([open])') &&
                each.getBoundingClientRect().right > innerWidth + 1).map(each => each.outerHTML)"""
        )
        assert outside == []


def test_a_page_scales_to_large_type(browser: Browser, server: Server) -> None:
    with visiting(browser, server, size=NARROW) as (page, _):
        page.goto(server.origin + path_of(server, "recall"))
        page.evaluate("document.documentElement.style.fontSize = '32px'")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]


# -- the keyboard alone ----------------------------------------------------------------------------


def focused(page: Page) -> str:
    return str(
        page.evaluate("document.activeElement.textContent.trim() || document.activeElement.id")
    )


def test_the_keyboard_alone_finds_a_segment_edits_and_forgets_it(
    browser: Browser, tmp_path: Path
) -> None:
    root = tmp_path / "memory"
    file = write(root, "user/memory.md", segment_text("s1", "Prefers tabs over spaces."))
    with serving(root, "--write") as server, visiting(browser, server) as (page, _):
        page.goto(server.origin)
        press = page.keyboard.press
        press("Tab")
        assert focused(page) == "Skip to the content"
        assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
        press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        page.goto(server.origin)
        tab_to(page, "Recall")
        press("Enter")
        page.wait_for_url("**/recall")
        tab_to(page, "q")
        page.keyboard.type("tabs")
        expect(page.get_by_role("status")).to_have_text("1 match")
        tab_to(page, "user#s1")
        press("Enter")
        page.wait_for_url("**/segment?**")
        tab_to(page, "Prefers tabs over spaces.")  # the text field
        press("Control+A")
        page.keyboard.type("Prefers blanks.")
        tab_to(page, "Save")
        press("Enter")
        expect(page.get_by_role("status")).to_have_text("The change is written.")
        assert "Prefers blanks." in file.read_text("utf-8")
        tab_to(page, "Forget this segment …")
        press("Enter")
        tab_to(page, "Forget it")
        press("Enter")
        expect(page.get_by_role("status")).to_contain_text("user#s1 was forgotten.")
        assert "blanks" not in file.read_text("utf-8")
        tab_to(page, "Bring it back")
        press("Enter")
        expect(page.get_by_role("status")).to_have_text("It is back.")
        assert "Prefers blanks." in file.read_text("utf-8")


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until the element with this text or id has the focus, which must be visible."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if focused(page) == wanted:
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", wanted
            return
    raise AssertionError(f"the keyboard does not lead to {wanted!r}")


def test_the_focus_is_visible_on_everything_that_can_have_it(
    browser: Browser, server: Server
) -> None:
    with visiting(browser, server) as (page, _):
        for name in ("overview", "recall", "context", "segment", "pass"):
            page.goto(server.origin + path_of(server, name))
            seen = 0
            while True:
                page.keyboard.press("Tab")
                if page.evaluate("document.activeElement === document.body") or seen > 40:
                    break
                style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
                assert style == "solid", page.evaluate("document.activeElement.outerHTML")
                seen += 1
            assert seen > 6, name


# -- live and without a script ---------------------------------------------------------------------


def test_recall_is_live_and_shows_what_the_page_by_its_button_shows(
    browser: Browser, server: Server
) -> None:
    with visiting(browser, server) as (page, _):
        page.goto(f"{server.origin}/recall")
        page.get_by_label("Question").press_sequentially("rowids", delay=20)
        expect(page.get_by_role("status")).to_contain_text("match")
        expect(page.get_by_role("heading", level=2)).to_contain_text("match")
        page.wait_for_url("**/recall?q=rowids")
        expect(page.get_by_label("Question")).to_be_focused()
        live = page.locator("#results").inner_html()
        assert addresses_on(live) == addresses_on(server.page("/recall?q=rowids"))
        page.reload()
        assert page.locator("#results").inner_html() == live
        page.get_by_text("Narrow it down").click()
        page.get_by_label("At most").fill("1")
        expect(page.get_by_role("status")).to_have_text("1 match")


def test_a_wrong_field_is_said_beside_the_form_while_typing(
    browser: Browser, server: Server
) -> None:
    with visiting(browser, server) as (page, trouble):
        page.goto(f"{server.origin}/recall?q=rowids&limit=5")
        page.get_by_label("At most").fill("many")
        expect(page.get_by_role("alert")).to_contain_text("not a whole number")
        assert page.get_by_label("Question").input_value() == "rowids"
        assert all("400" in each for each in trouble.console)
        trouble.console.clear()


@pytest.mark.parametrize("path", ["/recall", "/context"])
def test_without_scripts_the_forms_work_by_their_button(
    browser: Browser, server: Server, path: str
) -> None:
    with visiting(browser, server, scripts=False) as (page, _):
        page.goto(server.origin + path)
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_role("button").click()
        page.wait_for_url(f"**{path}?**")
        assert SEGMENT in page.content()
        page.goto(server.origin + where("/segment", address=SEGMENT))
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status")).to_contain_text("no byte was changed")


def test_when_the_inspector_has_ended_the_page_says_so(browser: Browser, tmp_path: Path) -> None:
    write(tmp_path / "memory", "user/memory.md", segment_text("s1", "Prefers tabs."))
    server = Server(tmp_path / "memory")
    server.enter()
    with visiting(browser, server) as (page, trouble):
        page.goto(f"{server.origin}/recall")
        assert server.end()[0] == 0  # also while a browser holds its connections
        page.get_by_label("Question").fill("tabs")
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        trouble.console.clear()
        trouble.refused.clear()


def test_reduced_motion_and_colour_schemes_are_followed(browser: Browser, server: Server) -> None:
    grounds = []
    for scheme in get_args(Scheme):
        with visiting(browser, server, scheme=scheme) as (page, _):
            page.emulate_media(reduced_motion="reduce")
            page.goto(server.origin)
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert page.evaluate("document.getAnimations().length") == 0
    light, dark = (sum(map(int, re.findall(r"\d+", each)[:3])) for each in grounds)
    assert light > 700 and dark < 100


# -- text is text ----------------------------------------------------------------------------------


def test_hostile_texts_run_nothing_and_change_no_page(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "memory"
    addresses = hostile_folder(root)
    pages = ["/", "/recall?q=hostile&limit=100", "/context?q=hostile&budget=9000"]
    pages += [where("/segment", address=each) for each in addresses.values()]
    pages += [where("/scope", name=each.partition("#")[0]) for each in addresses.values()]
    with serving(root, "--write") as server, visiting(browser, server) as (page, _):
        for path in pages:
            page.goto(server.origin + path)
            assert page.title().endswith("h2ams") and "owned" not in page.title(), path
            assert page.locator("main h1").count() == 1
            assert page.locator("img, iframe, object, embed, base, main style").count() == 0
            assert page.locator("a:not([href^='/']):not([href^='#'])").count() == 0


def test_a_script_that_got_into_a_page_would_not_run(browser: Browser, server: Server) -> None:
    """The second wall: the policy stops inline scripts, handlers, styles and foreign loads."""
    with visiting(browser, server) as (page, trouble):
        page.goto(server.origin)
        page.evaluate(
            """() => { document.body.insertAdjacentHTML('beforeend',
                `<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="
                   onerror="document.title='owned'">
                 <p id="styled" style="color: rgb(1, 2, 3)">x</p>`);
              const script = document.createElement('script');
              script.textContent = "document.title = 'owned'";
              document.body.append(script); }"""
        )
        page.wait_for_function("document.querySelector('#styled') !== null")
        assert page.title() == "Overview · h2ams"
        colour = page.evaluate("getComputedStyle(document.querySelector('#styled')).color")
        assert colour != "rgb(1, 2, 3)"
        assert len([each for each in trouble.console if "Content Security Policy" in each]) >= 3
        trouble.console.clear()
        trouble.elsewhere.clear()
        trouble.refused.clear()


# -- pictures --------------------------------------------------------------------------------------

PICTURES: dict[str, tuple[str, Scheme, tuple[int, int]]] = {
    "inspect-overview": ("overview", "light", (1100, 760)),
    "inspect-recall": ("recall", "light", (1100, 820)),
    "inspect-context": ("context", "light", (1100, 900)),
    "inspect-thread": ("thread", "dark", (1100, 900)),
    "inspect-stack": ("stack", "light", (1100, 900)),
    "inspect-pass": ("pass", "dark", (1100, 900)),
    "inspect-segment": ("segment", "light", (1100, 900)),
    "inspect-narrow": ("recall", "dark", (390, 844)),
}


@pytest.mark.parametrize("picture", PICTURES)
def test_the_pictures_of_the_docs_are_made_of_these_pages(
    browser: Browser, server: Server, tmp_path: Path, picture: str
) -> None:
    name, scheme, size = PICTURES[picture]
    wanted = os.environ.get("H2AMS_SCREENSHOTS") == "1"
    place = (IMAGES if wanted else tmp_path) / f"{picture}.png"
    with visiting(browser, server, scheme=scheme, size=size) as (page, _):
        page.goto(server.origin + path_of(server, name))
        if name == "thread":
            page.locator(".fold").scroll_into_view_if_needed()
            page.evaluate("document.querySelector('.fold').scrollIntoView({block: 'center'})")
        page.screenshot(path=place)
    assert place.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (IMAGES / f"{picture}.png").stat().st_size < 250_000  # the ones that are shipped
    assert f"images/{picture}.png" in (REPOSITORY / "docs/inspect.md").read_text("utf-8")
