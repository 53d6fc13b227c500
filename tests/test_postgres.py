"""The server that the tests start is real, and each test has a schema to itself."""

from __future__ import annotations

import psycopg


def put(url: str) -> list[tuple[int]]:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (7)")
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT number FROM kept").fetchall()


def test_a_test_gets_a_real_server(postgres_url: str) -> None:
    assert put(postgres_url) == [(7,)]


def test_the_next_test_sees_nothing_of_it(postgres_url: str) -> None:
    assert put(postgres_url) == [(7,)]
