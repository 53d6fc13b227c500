"""The built site in a real browser: search works without a network, nothing is from elsewhere.

Run by ``make test-site``, after ``make docs``. Not part of the default suite, which builds no site.
Chromium opens a copy of the first page with a script behind it that does what a person does and
sends what it saw to a server of this test.
"""

from __future__ import annotations

import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "site"
DEADLINE_S = 60
QUESTION = "token budget"

# Opens the search, asks, waits for links, and writes down what it saw.
_PROBE = """
<script>
const soon = (look) => new Promise((done) => {
  const timer = setInterval(() => {
    const found = look();
    if (found) { clearInterval(timer); done(found); }
  }, 50);
});
const roots = () => [...document.querySelectorAll("*")].map((each) => each.shadowRoot);
const dialog = () => roots().find((each) => each && each.querySelector("dialog"));
const links = () => [...dialog().querySelectorAll("a[href]")].map((each) => each.href);
(async () => {
  await soon(dialog);
  document.querySelector(".md-search__button").click();
  const input = await soon(() => dialog().querySelector("input"));
  await soon(() => dialog().querySelector("dialog[open]"));
  const text = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value");
  text.set.call(input, "QUESTION");
  input.dispatchEvent(new Event("input", { bubbles: true }));
  const found = await soon(() => (links().length ? links() : null));
  const loaded = performance.getEntriesByType("resource").map((each) => each.name);
  const body = JSON.stringify({ found, loaded });
  fetch("SERVER/seen", { method: "POST", mode: "no-cors", body });
})();
</script>
"""


class Server(http.server.ThreadingHTTPServer):
    """Serves the site on loopback; ``seen`` gets what a probe sends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.SimpleHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Server)
        self.server.seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A copy of the built site with a page that has the probe, served."""
    assert (BUILT / "index.html").is_file(), "make docs builds it"
    folder = tmp_path / "site"
    shutil.copytree(BUILT, folder)
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert text.count("</body>") == 1
    with Server(folder) as found:
        probe = _PROBE.replace("QUESTION", QUESTION).replace("SERVER", found.address)
        page = text.replace("</body>", f"{probe}</body>")
        (folder / "probe.html").write_text(page, encoding="utf-8")
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def seen(address: str, server: Server, profile: Path) -> dict[str, Any]:
    """What the probe saw at ``address``. No host name is resolved: nothing else can be loaded."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser, "needs Chromium: apt-get install chromium"
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--window-size=1300,900",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={profile}", f"{address}/probe.html",
    ]  # fmt: skip
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        return server.seen.get(timeout=DEADLINE_S)
    except queue.Empty:
        raise AssertionError(f"the search of {address} gave no page in {DEADLINE_S} s") from None
    finally:
        process.terminate()
        process.wait(timeout=DEADLINE_S)


def check(address: str, server: Server, profile: Path) -> list[str]:
    """That the search at ``address`` finds the right pages; what the page loaded."""
    found = seen(address, server, profile)
    pages = [link.removeprefix(f"{address}/").partition("?")[0] for link in found["found"]]
    assert "domain.html" in pages and "active.html" in pages
    assert [each for each in found["loaded"] if not each.startswith((address, "data:"))] == []
    return list(found["loaded"])


def test_a_page_opened_from_a_file_is_searched_without_a_network(
    server: Server, tmp_path: Path
) -> None:
    check((tmp_path / "site").as_uri(), server, tmp_path / "profile")


def test_a_served_page_is_searched_and_loads_nothing_from_elsewhere(
    server: Server, tmp_path: Path
) -> None:
    loaded = check(server.address, server, tmp_path / "profile")
    assert len(loaded) >= 3  # style, script, index of the search
