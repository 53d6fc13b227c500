"""The MCP server over loopback HTTP: the SDK's client gets in, everybody else stays out."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from cases.kit import cli
from folder import segment_text, write
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from surfaces.mcp_kit import INITIALIZE, command, run, surroundings

from h2ams.surfaces.mcp_http import MAX_BODY_BYTES


class Server:
    """``h2ams mcp --http`` in a process of its own, on a free port."""

    def __init__(self, root: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            command(root, "--http", "--port", "0", *words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=root.parent,
            env=surroundings(root),
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/mcp; the bearer token is in (\S+)", line)
        assert found is not None, line
        self.port = int(found[1])
        self.token_file = Path(found[2])
        self.token = self.token_file.read_text("ascii").strip()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def end(self) -> tuple[int, bytes]:
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=30)
        return self.process.returncode, out


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("http") / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs over spaces."))
    write(root, "sessions/other/memory.md", segment_text("s3", "Prefers nothing."))
    started = Server(root, "--session", "s", "--user=write")
    yield started
    assert started.end() == (0, b"")


def request(
    server: Server,
    method: str = "POST",
    path: str = "/mcp",
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, bytes]:
    """One request with right headers but for those given; an empty header is left out."""
    sent = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {server.token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            if value:
                connection.putheader(name, value)
        data = json.dumps(INITIALIZE).encode() if body is None else body
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_client_of_the_sdk_with_the_token_is_served(server: Server, mode: str) -> None:
    async def test() -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as web,
            Client(streamable_http_client(server.url, http_client=web), mode=mode) as host,
        ):
            result = await host.call_tool("memory_search", {"query": "prefers"})
            found = (result.structured_content or {})["hits"]
            assert [hit["address"] for hit in found] == ["user#s1"]
            assert (await host.list_tools()).tools
            (only,) = (await host.list_resources()).resources
            assert only.uri == "h2ams://user/s1"

    run(test)


def test_a_hand_edit_is_told_over_http_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    server = Server(root, "--owner")

    async def test() -> None:
        headers = {"Authorization": f"Bearer {server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as web,
            Client(streamable_http_client(server.url, http_client=web)) as host,
            host.listen(resource_subscriptions=["h2ams://user/s1"]) as heard,
        ):
            write(root, "user/memory.md", segment_text("s1", "Prefers spaces."))
            event = await anext(aiter(heard))
            assert getattr(event, "uri", None) == "h2ams://user/s1"

    try:
        run(test)
    finally:
        assert server.end()[0] == 0


def test_a_right_request_passes(server: Server) -> None:
    status, body = request(server)
    assert status == 200 and b"protocolVersion" in body
    status, _ = request(server, Origin=f"http://127.0.0.1:{server.port}")
    assert status == 200
    status, _ = request(server, Host=f"localhost:{server.port}")
    assert status == 200


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil",
     "127.0.0.1:{port}@evil.example", "localhost.evil.example:{port}", "0.0.0.0:{port}"],
)  # fmt: skip
def test_a_wrong_host_is_refused(server: Server, host: str) -> None:
    status, body = request(server, Host=host.format(port=server.port))
    assert status in (400, 421) and b"protocolVersion" not in body  # 400: HTTP/1.1 wants a Host


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://127.0.0.1:{port}", "http://127.0.0.1",
     "http://127.0.0.1:1", "http://127.0.0.1:{port}.evil", "file://", "http://localhost:{port}/"],
)  # fmt: skip
def test_a_wrong_origin_is_refused(server: Server, origin: str) -> None:
    status, body = request(server, Origin=origin.format(port=server.port))
    assert status == 403 and b"protocolVersion" not in body


def test_without_the_token_there_is_no_answer(server: Server) -> None:
    wrong = ["", "Bearer", "Bearer ", "Bearer x", f"Basic {server.token}", server.token]
    wrong += [f"Bearer {server.token}x", f"Bearer {server.token[:-1]}", f"bearer  {server.token}"]
    for value in wrong:
        status, body = request(server, Authorization=value)
        assert status == 401, value
        assert b"protocolVersion" not in body


def test_paths_lead_nowhere_else(server: Server) -> None:
    for path in (
        "/", "/mcp/", "/mcp/../mcp", "//mcp", "/%6dcp", "/mcp%2f..%2f..%2fetc%2fpasswd",
        "/../../etc/passwd", "/MCP", "/mcp;x", "/.h2ams/mcp-token", "/user/memory.md",
        f"http://127.0.0.1:{server.port}/../mcp",
    ):  # fmt: skip
        status, body = request(server, "GET", path, b"")
        assert status in (400, 404), path
        assert b"tabs" not in body and server.token.encode() not in body


def test_an_oversized_body_is_refused_declared_or_not(server: Server) -> None:
    big = b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * MAX_BODY_BYTES + b'"}'
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            f"Authorization: Bearer {server.token}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nContent-Length: {len(big)}\r\n\r\n"
        )
        line.sendall(head.encode())  # not even one byte of the body is needed to refuse it
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall(re.sub(r"Content-Length: \d+", "Transfer-Encoding: chunked", head).encode())
        try:
            for start in range(0, len(big), 65_536):
                part = big[start : start + 65_536]
                line.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            line.sendall(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b" 413 " in line.recv(4096).split(b"\r\n")[0]
    assert request(server)[0] == 200


def test_other_methods_and_types_are_refused(server: Server) -> None:
    assert request(server, "PUT")[0] == 405
    assert request(server, "OPTIONS")[0] == 405
    assert request(server, Content_Type="text/plain")[0] in (400, 415)
    assert request(server, body=b"not json")[0] == 400


def test_it_listens_on_loopback_alone_and_the_token_is_for_this_user_alone(server: Server) -> None:
    bound = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
        if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
    ]
    assert bound == [f"0100007F:{server.port:04X}"]
    assert stat.S_IMODE(server.token_file.stat().st_mode) == 0o600
    assert len(server.token) >= 40


def test_the_token_stays_the_same_and_a_file_without_one_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    first = Server(root, "--owner", "--token-file", "token")
    assert first.end()[0] == 0
    second = Server(root, "--owner", "--token-file", "token")
    assert second.end()[0] == 0
    assert first.token == second.token == (tmp_path / "token").read_text("ascii").strip()
    (tmp_path / "token").write_text("short\n", encoding="ascii")
    done = cli(root, "mcp", "--owner", "--http", "--port", "0", "--token-file", "token")
    assert done.code == 2 and "delete the file" in done.err


def test_a_port_in_use_is_a_usage_error(server: Server, tmp_path: Path) -> None:
    root = tmp_path / "memory"
    root.mkdir()
    done = cli(root, "mcp", "--owner", "--http", "--port", str(server.port))
    assert (done.code, done.out) == (2, "")
    assert f"port {server.port}" in done.err
    assert cli(root, "mcp", "--owner", "--http", "--port", "70000").code == 2
