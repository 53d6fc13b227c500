"""A damaged index, page by page: answers are right or nothing, and the next call heals it.

Every class of page that SQLite's own map (dbstat) names is overwritten in several ways: header and
schema, tables, indexes, the blocks of the full-text index, the list of free pages; the WAL and its
map as well. The Markdown files are the memory: not one byte of them may change.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest
from folder import opened, segment_text, write

from h2ams import Access, H2amsError, Memory

QUERY = "alpha word1 word2"
SCOPES = ("user", "sessions/s1", "sessions/s1/vp/ada", "vp/ada", "global")
SEGMENTS = 30


@dataclass(frozen=True)
class Template:
    """A folder with its index, the pages of each class, and what a recall gives."""

    root: Path
    pages: dict[str, list[int]]
    page_bytes: int
    answer: list[tuple[str, float]]
    digest: str


def answer(memory: Memory) -> list[tuple[str, float]]:
    return [(hit.record.address, hit.score) for hit in memory.recall(QUERY, limit=30).hits]


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.md"))}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    root = tmp_path_factory.mktemp("damage") / "root"
    source = random.Random(5)
    words = [f"word{n}" for n in range(2_000)]
    for scope in SCOPES:
        head = {"tags": "[x, y]", "updatedAt": "2026-04-29T10:11:12Z"}
        texts = [
            segment_text(
                f"id{n}",
                " ".join(["alpha", *source.choices(words, k=1_500 if n == 7 else 60)]),
                sourceMessages=f"[m{n}]",
                **head,
            )
            for n in range(SEGMENTS)
        ]
        write(root, f"{scope}/memory.md", *texts)
        write(root, f"{scope}/note.md", "# One\n\nalpha note\n")
    with opened(root) as memory:
        for n in range(SEGMENTS):  # written and gone: pages of the index become free
            memory.remember("chat/c", f"{n} " + " ".join(source.choices(words, k=60)))
        (root / "chat/c/memory.md").unlink()
        memory.sync()
        expected, digest = answer(memory), memory.verify().digest
    pages, size = page_classes(root / ".h2ams/index.db")
    return Template(root, pages, size, expected, digest)


def page_classes(path: Path) -> tuple[dict[str, list[int]], int]:
    """Page numbers by "table kind", as SQLite's own map says; the page size in bytes."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found: dict[str, list[int]] = defaultdict(list)
    for name, number, kind in connection.execute("SELECT name, pageno, pagetype FROM dbstat"):
        found[f"{name} {kind}"].append(number)
    size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    trunk = int.from_bytes(path.read_bytes()[32:36], "big")
    assert trunk, "the template has free pages"
    found["freelist trunk"].append(trunk)
    return dict(found), size


Damage = Callable[[bytes, random.Random, bytes], bytes]  # (page, chance, another page)
DAMAGES: dict[str, Damage] = {
    "zeros": lambda page, chance, other: bytes(len(page)),
    "ones": lambda page, chance, other: b"\xff" * len(page),
    "noise": lambda page, chance, other: chance.randbytes(len(page)),
    "torn": lambda page, chance, other: page[: len(page) // 2] + chance.randbytes(len(page) // 2),
    "header": lambda page, chance, other: chance.randbytes(64) + page[64:],
    "swapped": lambda page, chance, other: other,
}
CALLS: dict[str, Callable[[Memory], object]] = {
    "recall": answer,
    "recall in a session": lambda memory: memory.recall(QUERY, access=Access(session="s1")),
    "relaxed recall": lambda memory: memory.recall("lph"),
    "context": lambda memory: memory.context(QUERY, budget=500),
    "status": lambda memory: memory.status(),
    "list": lambda memory: memory.list(),
    "sources": lambda memory: memory.sources("m3"),
    "get": lambda memory: memory.get("user#id1"),
    "sync": lambda memory: memory.sync(),
    "rebuild": lambda memory: memory.rebuild(),
    "verify": lambda memory: memory.verify(),
    "doctor": lambda memory: memory.doctor(fix=True),
    "remember": lambda memory: memory.remember("user", "alpha written meanwhile"),
    "update": lambda memory: memory.update("user#id1", body="alpha changed meanwhile"),
    "purge": lambda memory: memory.forget("user#id2", purge=True),
}
WRITING = {"remember": "alpha written meanwhile", "update": "alpha changed meanwhile", "purge": ""}


def damaged_copy(template: Template, folder: Path, page: int, how: str, seed: int) -> Path:
    root = folder / "root"
    shutil.copytree(template.root, root)
    index = root / ".h2ams/index.db"
    data = bytearray(index.read_bytes())
    chance, size = random.Random(seed), template.page_bytes
    start, other = (page - 1) * size, chance.randrange(1, len(data) // size) * size
    data[start : start + size] = DAMAGES[how](
        bytes(data[start : start + size]), chance, bytes(data[other : other + size])
    )
    index.write_bytes(data)
    return root


def check_healing(template: Template, root: Path, call: str, *, exact: bool = True) -> None:
    """Run ``call`` on the damaged folder, then let the doctor look; nothing was lost.

    Without ``exact`` the call may find nothing (a page that is another, sound page is noticed by
    ``verify`` alone); it must not fail with anything but an error of the engine.
    """
    before = files(root)
    with opened(root) as memory:
        try:
            given = CALLS[call](memory)
        except H2amsError:
            assert not exact, "one answer, or one error that says what to do"
            given = None
        if call == "recall" and exact:
            assert given == template.answer
        memory.doctor(fix=True)
        checked = memory.verify()
        assert checked.ok, checked
        if call not in WRITING:
            assert files(root) == before
            assert (answer(memory), checked.digest) == (template.answer, template.digest)
            return
        after = files(root)
        assert {name for name in before if after[name] != before[name]} == {"user/memory.md"}
        assert WRITING[call] in after["user/memory.md"].decode()
        ids = {record.id for record in memory.list("user")}
        assert {f"id{n}" for n in range(SEGMENTS)} - ids == ({"id2"} if call == "purge" else set())


def short_plan() -> Iterator[tuple[int, str, str]]:
    """(number of the class, damage, call): every damage and every call comes up in turn."""
    calls = sorted(CALLS)
    for number in range(100):
        yield number, sorted(DAMAGES)[number % len(DAMAGES)], calls[(number * 7) % len(calls)]


def test_each_class_of_page_is_there(template: Template) -> None:
    kinds = {name.rpartition(" ")[2] for name in template.pages}
    assert kinds == {"internal", "leaf", "overflow", "trunk"}
    tables = {name.rpartition(" ")[0] for name in template.pages}
    assert {"sqlite_schema", "memory_fts_data", "memory_fts_idx", "memory_segments"} <= tables
    assert {"files", "folders", "scopes", "source_msgs", "blocks", "meta"} <= tables
    assert {"memory_segments internal", "memory_fts_data internal"} <= template.pages.keys()


def test_each_class_of_page_may_be_damaged(template: Template, tmp_path: Path) -> None:
    for (number, how, call), name in zip(short_plan(), sorted(template.pages), strict=False):
        page = random.Random(number).choice(template.pages[name])
        folder = tmp_path / str(number)
        root = damaged_copy(template, folder, page, how, number)
        check_healing(template, root, call, exact=how in ("zeros", "ones", "noise", "header"))
        shutil.rmtree(folder)


@pytest.mark.long
@pytest.mark.parametrize("how", DAMAGES)
def test_each_class_of_page_may_be_damaged_before_each_call(
    template: Template, tmp_path: Path, how: str
) -> None:
    number = 0
    for _, pages in sorted(template.pages.items()):
        for call in CALLS:
            number += 1
            folder = tmp_path / str(number)
            page = random.Random(number).choice(pages)
            root = damaged_copy(template, folder, page, how, number)
            check_healing(template, root, call, exact=how in ("zeros", "ones", "noise", "header"))
            shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("body", "alpha something else"),
        ("tags", '["other"]'),
        ("kind", "goal"),
        ("heading", "no heading"),
        ("updated_at", "2001-01-01T00:00:00Z"),
        ("body", b"\xff\xfe not UTF-8"),
    ],
)
def test_a_text_that_is_not_what_the_file_says_is_found_by_verify(
    template: Template, tmp_path: Path, column: str, value: str | bytes
) -> None:
    root = tmp_path / "root"
    shutil.copytree(template.root, root)
    connection = apsw.Connection(str(root / ".h2ams/index.db"))
    cast = f"UPDATE memory_segments SET {column} = CAST(? AS TEXT) WHERE id = 'id5'"
    connection.execute(cast, (value,))
    connection.close()
    with opened(root) as memory:
        if isinstance(value, str):
            assert [each.code for each in memory.verify().problems] == ["index-differs"]
        else:  # read once, it is known to be damage
            assert answer(memory) == template.answer
        memory.doctor(fix=True)
        assert memory.verify().ok
        assert memory.get("user#id5").body.startswith("alpha word")


# -- whole files -----------------------------------------------------------------------------------


def cut(share: float) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        os.truncate(path, int(path.stat().st_size * share))

    return do


def overwrite(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


WHOLE: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "empty": cut(0),
    "half": cut(0.5),
    "odd end": lambda path: os.truncate(path, path.stat().st_size - 777),
    "text": overwrite(b"this is no database " * 1_000),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\xff" * 10_000) and None,
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)) and None,
}


@pytest.mark.parametrize("how", WHOLE)
@pytest.mark.parametrize("name", ["index.db", "index.db-wal", "index.db-shm"])
def test_each_file_of_the_index_may_be_cut_emptied_or_overwritten(
    template: Template, tmp_path: Path, name: str, how: str
) -> None:
    root = tmp_path / "root"
    shutil.copytree(template.root, root)
    leave_a_wal(root)
    WHOLE[how](root / ".h2ams" / name)
    with opened(root) as memory:
        assert len(answer(memory)) == 30
        memory.doctor(fix=True)
        assert memory.verify().ok
        assert {record.body for record in memory.list("chat/late")} == {"alpha in the WAL"}
    assert (root / "chat/late/memory.md").exists()


def leave_a_wal(root: Path) -> None:
    """A write that is in the WAL alone, as a killed process leaves it."""
    source = root / ".h2ams"
    kept = root.parent / "kept"
    with opened(root) as memory:
        memory.remember("chat/late", "alpha in the WAL")
        kept.mkdir()
        for name in ("index.db", "index.db-wal", "index.db-shm"):
            shutil.copyfile(source / name, kept / name)
    for name in ("index.db", "index.db-wal", "index.db-shm"):
        shutil.copyfile(kept / name, source / name)
    assert (source / "index.db-wal").stat().st_size > 0


def test_frames_of_the_wal_may_be_damaged(template: Template, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    shutil.copytree(template.root, whole / "root")
    leave_a_wal(whole / "root")
    wal = (whole / "root/.h2ams/index.db-wal").read_bytes()
    for number, offset in enumerate([0, 8, 24, 32, 56, 32 + 4_120, len(wal) // 2, len(wal) - 9]):
        root = tmp_path / str(number) / "root"
        shutil.copytree(whole / "root", root)
        data = bytearray(wal)
        data[offset : offset + 8] = b"\xa5" * 8
        (root / ".h2ams/index.db-wal").write_bytes(data)
        with opened(root) as memory:
            assert [record.body for record in memory.list("chat/late")] == ["alpha in the WAL"]
            memory.sync()
            assert memory.verify().ok


def test_what_happens_to_the_files_while_they_are_open_is_noticed(
    template: Template, tmp_path: Path
) -> None:
    for number, how in enumerate(("gone", "half", "text", "zeros")):
        root = tmp_path / str(number) / "root"
        shutil.copytree(template.root, root)
        with opened(root) as memory:
            assert answer(memory) == template.answer
            WHOLE[how](root / ".h2ams/index.db")
            memory.remember("user", "alpha written meanwhile")
            with opened(root) as other:
                found = {record.body for record in other.list("user")}
                assert "alpha written meanwhile" in found and len(found) == SEGMENTS + 2
                other.doctor(fix=True)
                assert other.verify().ok
            memory.sync()
            assert memory.verify().ok


@pytest.mark.parametrize("tables", ["meta (x)", "meta (key, value)", "segments (x)"])
def test_a_database_of_another_program_in_place_of_the_index_is_set_aside(
    tmp_path: Path, tables: str
) -> None:
    root = tmp_path / "root"
    with opened(root, create=True) as memory:
        memory.remember("user", "Prefers tabs.")
    for each in (root / ".h2ams").glob("index.db*"):
        each.unlink()
    connection = apsw.Connection(str(root / ".h2ams/index.db"))
    connection.execute(f"CREATE TABLE {tables}")
    connection.close()
    with opened(root) as memory:
        memory.remember("user", "Likes tabs a lot.")
        assert len(memory.recall("tabs").hits) == 2
        assert memory.verify().ok
