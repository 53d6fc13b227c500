"""The inspector as a process: one browser gets in, all others stay out, and it ends at once."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cases.kit import cli
from folder import segment_text, write
from surfaces.command_line import PROGRAM, environment
from surfaces.inspect_kit import DEADLINE_S, Server, serving, where
from surfaces.test_inspect_edit import fields_of

from h2ams.surfaces.inspect_http import FILES, HEADERS, MAX_BODY_BYTES, MOST_FIELDS
from h2ams.surfaces.inspect_site import ACTIONS, PAGES

TEXT = b"Prefers tabs"
SEGMENT = where("/segment", address="user#s1")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("http") / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs over spaces."))
    write(root, "sessions/other/memory.md", segment_text("s3", "Prefers nothing."))
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[Server]:
    with serving(root, "--write") as started:
        yield started


# -- the door --------------------------------------------------------------------------------------


def test_the_printed_address_works_once_and_gives_a_cookie_that_opens_every_page(
    root: Path,
) -> None:
    server = Server(root)
    try:
        assert len(server.token) >= 40
        assert server.ask("GET", "/").status == 401
        wrong = server.ask("GET", f"/enter?token={server.token}x")
        assert wrong.status == 401 and "set-cookie" not in wrong.headers
        assert server.ask("HEAD", f"/enter?token={server.token}").status == 405  # a link preview
        answer = server.ask("GET", f"/enter?token={server.token}")
        cookie = answer.headers["set-cookie"]
        assert answer.status == 200 and server.token not in cookie
        name, *options = [part.strip().lower() for part in cookie.split(";")]
        assert name.startswith(f"h2ams_inspect_{server.port}=") and len(name) > 60
        assert {"httponly", "samesite=strict", "path=/"} == set(options)
        again = server.ask("GET", f"/enter?token={server.token}")
        assert again.status == 401 and "set-cookie" not in again.headers
        server.cookie = cookie.partition(";")[0]
        assert TEXT in server.ask("GET", SEGMENT).data
        reloaded = server.ask("GET", f"/enter?token={server.token}")
        assert reloaded.status == 200 and "set-cookie" not in reloaded.headers
    finally:
        assert server.end()[0] == 0


def test_without_the_cookie_no_page_says_anything(server: Server) -> None:
    cookie = server.cookie
    name, _, value = cookie.partition("=")
    wrong = ["x", cookie[:-1], cookie + "x", cookie.upper(), f"other={value}", f"{name}=",
             f'"{cookie}', "a=b; c"]  # fmt: skip
    asked = [("", path) for path in (*PAGES, SEGMENT, *ACTIONS, "/nothing")]
    for said, path in (*asked, *((each, SEGMENT) for each in wrong)):
        for form in (None, {"x": "y"}):
            answer = server.ask("POST" if form else "GET", path, form=form, Cookie=said)
            assert answer.status == 401, (said, path)
            assert TEXT not in answer.data
    for others in ("a=b", 'other={"json": [1, "x"]}', "lonely", 'quote="; x', "=; ;;", "é=ü"):
        beside = server.ask("GET", SEGMENT, Cookie=f"{others}; {cookie}; c=d")
        assert beside.status == 200, others  # cookies of other servers on this machine


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil",
     "127.0.0.1:{port}@evil.example", "localhost.evil.example:{port}", "0.0.0.0:{port}",
     "[::1]:{port}"],
)  # fmt: skip
def test_a_wrong_host_is_refused(server: Server, host: str) -> None:
    answer = server.ask("GET", SEGMENT, Host=host.format(port=server.port))
    assert answer.status == 421 and TEXT not in answer.data


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1",
     "http://127.0.0.1:1", "http://127.0.0.1:{port}.evil", "file://", "http://localhost:{port}/"],
)  # fmt: skip
def test_a_wrong_origin_is_refused(server: Server, origin: str) -> None:
    said = origin.format(port=server.port)
    assert server.ask("GET", SEGMENT, Origin=said).status == 403
    form = fields_of(server.page(SEGMENT)) | {"body": "Planted."}
    assert server.ask("POST", "/segment/edit", form=form, Origin=said).status == 403
    assert TEXT in server.ask("GET", SEGMENT).data


def test_a_form_without_an_origin_or_of_another_type_is_refused(server: Server) -> None:
    form = fields_of(server.page(SEGMENT)) | {"body": "Planted."}
    assert server.ask("POST", "/segment/edit", form=form, Origin="").status == 403
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json", "x"):
        assert server.ask("POST", "/segment/edit", form=form, Content_Type=kind).status == 415
    assert server.ask("POST", "/segment/edit", body=b"x=y", Origin=server.origin).status == 415
    assert TEXT in server.ask("GET", SEGMENT).data


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_what_another_site_or_port_makes_the_browser_ask_is_refused(
    server: Server, site: str
) -> None:
    assert server.ask("GET", SEGMENT, Sec_Fetch_Site=site).status == 403
    assert server.ask("GET", "/static/inspect.css", Sec_Fetch_Site=site).status == 403
    for own in ("none", "same-origin"):
        assert server.ask("GET", SEGMENT, Sec_Fetch_Site=own).status == 200


def test_every_answer_has_the_strict_headers(server: Server) -> None:
    seen = set()
    for path, headers in (
        ("/", {}), (SEGMENT, {}), ("/nothing", {}), ("/segment?address=x", {}),
        ("/static/inspect.js", {}), ("/enter", {}), ("/", {"Cookie": "x"}), ("/", {"Host": "evil"}),
        ("/", {"Origin": "null"}),
    ):  # fmt: skip
        answer = server.ask("GET", path, **headers)
        seen.add(answer.status)
        for name, value in HEADERS.items():
            assert answer.headers[name] == value, (path, name)
        assert "server" not in answer.headers
    assert seen == {200, 400, 401, 403, 404, 421}
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert HEADERS["cache-control"] == "no-store"


def test_no_page_needs_an_inline_script_or_style_or_anything_from_elsewhere(
    server: Server,
) -> None:
    for path in ("/", SEGMENT, "/recall?q=tabs", "/context?q=tabs", "/threads", "/nothing"):
        html = server.ask("GET", path).data.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", html), path
        assert re.findall(r"<script[^>]*>([^<]*)</script>", html) == [""]
        assert not re.search(r'(?:href|src|action)="(?!/|#)', html), path
        assert not re.search(r'(?:href|src|action)="//', html), path
    for name in FILES:
        text = server.ask("GET", f"/static/{name}").data.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", text), name


def test_paths_lead_nowhere_else(server: Server) -> None:
    for path in (
        "/../../etc/passwd", "/static/../../../etc/passwd", "/static/..%2f..%2fcli.py",
        "/static/%2e%2e/%2e%2e/cli.py", "/static/", "/static/layout.html", "/static//etc/passwd",
        "/static/inspect.css/", "/static/inspect.css%00.html", "/user/memory.md",
        "/.h2ams/index.db", "/recall/../segment", "//segment", "/enter/", "/ENTER", "/segment;x",
        "/%00",
        "/static/..\\..\\cli.py", "/%ff", "/" + "a/" * 2000,
    ):  # fmt: skip
        answer = server.ask("GET", path)
        assert answer.status in (400, 404), path
        assert TEXT not in answer.data and b"root:" not in answer.data, path


def test_wrong_methods_are_refused(server: Server) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        form = {"x": "y"}
        assert server.ask(method, SEGMENT, form=form).status == 405, method
    assert server.ask("POST", "/", form={"x": "y"}).status == 405
    assert server.ask("GET", "/segment/edit").status == 405
    assert server.ask("POST", "/static/inspect.css", form={"x": "y"}).status == 405
    assert server.ask("POST", f"/enter?token={server.token}", form={"x": "y"}).status == 405
    head = server.ask("HEAD", SEGMENT)
    assert (head.status, head.data) == (200, b"")


def test_an_oversized_body_is_refused_declared_or_not(server: Server) -> None:
    big = b"body=" + b"x" * MAX_BODY_BYTES
    head = (
        f"POST /segment/edit HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
        f"Cookie: {server.cookie}\r\nOrigin: {server.origin}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(big)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(head.encode())  # not even one byte of the body is needed to refuse it
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    with socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE_S) as line:
        line.sendall(re.sub(r"Content-Length: \d+", "Transfer-Encoding: chunked", head).encode())
        try:
            for start in range(0, len(big), 65_536):
                part = big[start : start + 65_536]
                line.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            line.sendall(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    assert server.ask("GET", "/", body=big).status == 413
    assert server.ask("GET", SEGMENT).status == 200


def test_forms_that_are_none_are_refused(server: Server) -> None:
    kinds = {"Content_Type": "application/x-www-form-urlencoded", "Origin": server.origin}
    for body in (b"body=%ff", b"\xff\xfe", b"&".join(b"x=y" for _ in range(MOST_FIELDS + 1))):
        assert server.ask("POST", "/segment/edit", body=body, **kinds).status == 400, body[:20]
    assert server.ask("GET", "/recall?" + "x=y&" * (MOST_FIELDS + 1)).status == 400


def test_it_listens_on_loopback_alone(server: Server) -> None:
    bound = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
        if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
    ]
    assert bound == [f"0100007F:{server.port:04X}"]


# -- writing over the wire -------------------------------------------------------------------------


def test_a_form_is_written_and_a_concurrent_hand_edit_is_a_conflict(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    path = write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    with serving(root, "--write") as server:
        form = fields_of(server.page(SEGMENT)) | {"body": "Prefers blanks — «ёлка» 漢字."}
        done = server.ask("POST", "/segment/edit", form=form)
        assert (done.status, done.headers["location"]) == (303, f"{SEGMENT}&done=changed")
        assert "Prefers blanks — «ёлка» 漢字." in path.read_text("utf-8")
        path.write_text(path.read_text("utf-8").replace("blanks", "neither"), encoding="utf-8")
        late = server.ask("POST", "/segment/edit", form=form | {"body": "Mine."})
        assert late.status == 409
        assert "neither" in late.data.decode() and "Mine." in late.data.decode()
        assert "neither" in path.read_text("utf-8") and "Mine." not in path.read_text("utf-8")


def test_many_questions_at_once_are_all_answered_while_files_change(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    path = write(root, "user/memory.md", segment_text("s1", "Prefers tabs 0."))
    pages = ["/", "/recall?q=tabs", "/context?q=tabs", SEGMENT, "/scope?name=user", "/threads"]
    with serving(root) as server, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(server.ask, "GET", pages[at % len(pages)]) for at in range(60)]
        for number in range(1, 20):
            write(root, "user/memory.md", segment_text("s1", f"Prefers tabs {number}."))
        assert {each.result().status for each in asked} == {200}
        assert b"Prefers tabs 19." in server.ask("GET", "/recall?q=tabs").data
    assert "Prefers tabs 19." in path.read_text("utf-8")


# -- starting and ending ---------------------------------------------------------------------------


def test_it_needs_to_know_what_it_may_show(root: Path) -> None:
    done = cli(root, "inspect", "--port", "0")
    assert (done.code, done.out) == (2, "") and "--owner for everything" in done.err
    assert cli(root, "inspect", "--owner", "--session", "s").code == 2
    assert cli(root, "inspect", "--owner", "--json").code == 2


def test_what_it_shows_is_fixed_by_the_access_flags(root: Path) -> None:
    with serving(root, access=("--session", "s")) as server:
        assert TEXT in server.ask("GET", "/recall?q=prefers").data
        assert b"nothing" not in server.ask("GET", "/recall?q=prefers&owner=1&session=other").data
        assert server.ask("GET", where("/segment", address="sessions/other#s3")).status == 404
        assert server.ask("GET", "/stacks").status == 403


def test_a_port_in_use_is_a_usage_error(server: Server, root: Path) -> None:
    done = cli(root, "inspect", "--owner", "--port", str(server.port))
    assert (done.code, done.out) == (2, "")
    assert f"port {server.port}" in done.err and "--port" in done.err
    assert cli(root, "inspect", "--owner", "--port", "70000").code == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_it_ends_at_once_also_with_a_browser_that_holds_connections(
    root: Path, number: signal.Signals
) -> None:
    server = Server(root)
    server.enter()
    lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
    lines[0].sendall(b"GET / HTTP/1.1\r\nHost: half a request")
    began = time.monotonic()
    code, out, err = server.end(number)
    took = time.monotonic() - began
    for line in lines:
        line.close()
    assert (code, out) == (0, b"")
    assert b"Traceback" not in err and took < 10
    assert cli(root, "inspect", "--owner", "--port", str(server.port), "--json").code == 2


def test_a_browser_is_opened_from_a_terminal_only(root: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n', encoding="utf-8")
    browser.chmod(0o755)
    server = Server(root, "--open")
    _, _, err = server.end()
    assert b"no terminal" in err and not opened.exists()
    words = ["inspect", "--owner", "--port", "0", "--open", "--root", str(root)]
    leader, follower = os.openpty()
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        stdin=follower, stdout=follower, stderr=follower,
        env=environment(tmp_path, BROWSER=str(browser)),
    )  # fmt: skip
    os.close(follower)
    deadline = time.monotonic() + DEADLINE_S
    while not (opened.exists() and opened.read_text("utf-8").endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    assert running.wait(DEADLINE_S) == 0
    os.close(leader)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/enter\?token=[\w-]+\n", opened.read_text("utf-8"))


def test_without_the_extra_it_says_what_to_install(root: Path, tmp_path: Path) -> None:
    for name in ("starlette", "uvicorn", "jinja2"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('no such package')\n", "utf-8")
        env = environment(tmp_path)
        env["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{env['PYTHONPATH']}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "inspect", "--owner", "--root", str(root)],
            env=env, capture_output=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        (tmp_path / f"{name}.py").unlink()
        assert done.returncode == 1
        assert f"needs the package {name}" in done.stderr.decode()
        assert "h2ams[inspect]" in done.stderr.decode()


def test_a_recall_imports_none_of_it() -> None:
    code = (
        "import sys; from h2ams.surfaces.cli import main\n"
        "main(['recall', 'x', '--root', sys.argv[1]])\n"
        "found = [name for name in sys.modules if name.split('.')[0] in"
        " ('starlette', 'uvicorn', 'jinja2', 'markupsafe') or 'inspect_' in name]\n"
        "assert not found, found"
    )
    folder = Path(__file__).resolve().parents[2] / "scopes"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
