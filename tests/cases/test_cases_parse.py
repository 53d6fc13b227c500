"""Reported cases of the layer *parse*: what people really write is read, kept and reported."""

from __future__ import annotations

import re
import time
import tracemalloc
from pathlib import Path

import pytest
from cases.kit import cli, document, few, ids, opened, segment_text, segments, write
from hypothesis import given
from hypothesis import strategies as st

from h2ams import Memory, ReadOnlyError

HEADER = "---\nid: inner\nkind: fact\n---"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def bodies(memory: Memory, scope: str) -> list[str]:
    return [record.body for record in memory.list(scope)]


# -- K02 -------------------------------------------------------------------------------------------

BAD_VALUES = [r"path: C:\\agent\\x: y", "title: *Italic*", "tags: [[link]]x"]


def test_k02_what_is_no_yaml_is_reported_and_holds_nothing_back(root: Path) -> None:
    bad = [
        f"---\nid: bad{number}\n{line}\n---\nbad words {number}\n"
        for number, line in enumerate(BAD_VALUES)
    ]
    file = write(root, "user/memory.md", *bad, segment_text("good", "good segment"))
    write(root, "global/memory.md", "---\nprose behind a rule, nothing else\n")
    write(root, "vp/ada/memory.md", segment_text("other", "good file"))
    with opened(root) as memory:
        report = memory.sync()
        assert ids(memory, "good segment") == ["good", "other"]
        assert report.failed == 4 and report.changed == 3
        lines = file.read_text().splitlines()
        errors = sorted(report.errors, key=lambda problem: (problem.path, problem.line))
        assert (errors[0].path, errors[0].line) == ("global/memory.md", 1)
        for problem, value in zip(errors[1:], BAD_VALUES, strict=True):
            assert problem.path == "user/memory.md"
            # The line of the value, or that of the next one, where YAML noticed.
            assert lines.index(value) <= problem.line <= lines.index(value) + 2
        # Their words are found all the same.
        assert {record.body for record in memory.list("user")} >= {
            f"bad words {number}" for number in range(3)
        }
        assert ids(memory, "prose behind a rule") != []


YAML_TRAPS = [
    "*a", "&a b", "[[x]]", "[x", "{", "}", "@x", "`x`", "%x", "!x y", "|", ">", "? x", "- x",
    "a: b: c", "'", '"', "'x' y", "#x", "x #y", "\\", "C:\\x", "\t", ",", "<<", "~", "*",
    "**b**", "x:", ": x",
]  # fmt: skip


@few
@given(values=st.lists(st.sampled_from(YAML_TRAPS), min_size=1, max_size=4))
def test_k02_no_value_of_a_header_holds_back_its_body_or_another_segment(
    tmp_path_factory: pytest.TempPathFactory, values: list[str]
) -> None:
    root = tmp_path_factory.mktemp("traps")
    bad = "".join(
        f"---\nid: bad{number}\ntitle: {value}\n---\nbody{number}\n\n"
        for number, value in enumerate(values)
    )
    write(root, "user/memory.md", bad + segment_text("good", "good segment"))
    with opened(root) as memory:
        found = bodies(memory, "user")
        assert found == [*(f"body{number}" for number in range(len(values))), "good segment"]
        assert memory.sync().changed == 0


# -- K04 -------------------------------------------------------------------------------------------

FORMS = {"lf": ("\n", b""), "crlf": ("\r\n", b""), "bom": ("\n", b"\xef\xbb\xbf")}
FORMS["bom+crlf"] = ("\r\n", b"\xef\xbb\xbf")
THREE = segments("First.\n\nTwo parts.", "Second.\n\n- a\n- b", "Third.", tags="[x, y]")


@pytest.mark.parametrize("form", FORMS)
def test_k04_a_byte_order_mark_and_crlf_change_nothing_that_is_read(root: Path, form: str) -> None:
    newline, bom = FORMS[form]
    file = root / "user/memory.md"
    file.parent.mkdir(parents=True)
    before = bom + THREE.replace("\n", newline).encode()
    file.write_bytes(before)
    with opened(root) as memory:
        read = [(r.id, r.kind, r.tags, r.body) for r in memory.list("user")]
        assert read == [
            ("S1", "fact", ("x", "y"), "First.\n\nTwo parts."),
            ("S2", "fact", ("x", "y"), "Second.\n\n- a\n- b"),
            ("S3", "fact", ("x", "y"), "Third."),
        ]
        memory.update("user#S2", body="Changed.\n\nTwice.")
    after = file.read_bytes()
    start, end = before.index(b"id: S2"), before.index(b"---", before.index(b"- b"))
    assert after.startswith(before[:start]) and after.endswith(before[end:])
    changed = after[start : len(after) - (len(before) - end)]
    assert b"Changed." in changed and b"Second." not in changed
    assert after.count(b"\xef\xbb\xbf") == bool(bom)
    assert (after.count(b"\r\n") == after.count(b"\n")) == (newline == "\r\n")


# -- K05 and K06 -----------------------------------------------------------------------------------

RULES = "A\n\n---\n\nstatus: open\n\n---\n\nB"
LAST = "Keep this final line."
INSIDE = f"## Installation\n\n---\n\n{HEADER}\nexample"
FENCED = {
    "backticks": f"```md\n{INSIDE}\n```\n\n{LAST}",
    "tildes": f"~~~\n{INSIDE}\n~~~\n\n{LAST}",
    "four backticks": f"````\n```\n{INSIDE}\n````\n\n{LAST}",
    "unclosed": f"```md\n{INSIDE}\n\n{LAST}",
}
BODIES = {"rules": RULES} | FENCED


@pytest.mark.parametrize("name", BODIES)
def test_k05_k06_a_body_written_by_hand_is_one_segment(root: Path, name: str) -> None:
    body = BODIES[name]
    file = write(root, "user/memory.md", segment_text("one", body))
    data = file.read_bytes()
    with opened(root) as memory:
        (record,) = memory.list("user")
        assert (record.id, record.body) == ("one", body)
        assert not memory.update("user#one", body=body).changed
        assert file.read_bytes() == data
        memory.remember("user", "Another one.")
        assert bodies(memory, "user").count(body) == 1
        assert sorted(bodies(memory, "user")) == sorted([body, "Another one."])
        for line in data.splitlines():  # nothing lost
            assert line in file.read_bytes().splitlines()


@pytest.mark.parametrize("name", BODIES)
def test_k05_k06_write_read_write_gives_the_same_bytes(root: Path, name: str) -> None:
    body = BODIES[name]
    written = []
    for folder in (root, root.with_name("again")):
        with opened(folder) as memory:
            address = memory.remember("user", body).address
            record = memory.get(address)
            assert record.body == body
            body = record.body
            assert [each.address for each in memory.list()] == [address]
            assert not memory.remember("user", body).created
            assert not memory.update(address, body=body).changed
        written.append((folder / "user/memory.md").read_bytes())
    assert written[0] == written[1]


def test_k05_a_rule_before_prose_loses_nothing_and_a_rewrite_adds_nothing(root: Path) -> None:
    text = "---\nprose without a closing rule\n\nand more of it\n"
    file = write(root, "user/memory.md", text)
    with opened(root) as memory:
        (record,) = memory.list("user")
        assert "prose without a closing rule" in record.body and "and more of it" in record.body
        done = memory.remember("user", "New text.")
        assert text in file.read_text()
        memory.forget(done.address, purge=True)
    assert file.read_text() == text


LINES = st.sampled_from(
    ["", "text", "---", "--- ", "----", "```", "```md", "~~~", "````", "    ---", "## Heading",
     "id: x", "kind: fact", "status: open", "- item", "\\", "\\---", "<!-- dream-state -->",
     "<!-- /dream-state -->", "<!-- c -->", "# id: y", "***", "===", "> ---", "\t", "| --- |"]
)  # fmt: skip


@few
@given(texts=st.lists(st.lists(LINES, min_size=1, max_size=9), min_size=1, max_size=4))
def test_k05_k06_every_text_that_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]]
) -> None:
    root = tmp_path_factory.mktemp("bodies")
    wanted = dict.fromkeys("\n".join(["begin", *lines, LAST]) for lines in texts)
    with opened(root) as memory:
        for text in wanted:
            memory.remember("user", text)
        assert bodies(memory, "user") == list(wanted)


# -- K69 and K70 -----------------------------------------------------------------------------------

MISSING = {
    "kind empty": "kind:",
    "kind null": "kind: null",
    "no kind": "",
    "tags empty": "kind: context\ntags:",
    "updated empty": "kind: context\nupdatedAt:",
    "type empty": "type:",
    "type null": "type: null",
}


def test_k69_missing_and_null_values_have_defaults_and_are_indexed_once(root: Path) -> None:
    texts = [
        f"---\nid: a{number}\n{lines}{chr(10) if lines else ''}---\nbody{number}\n"
        for number, lines in enumerate(MISSING.values())
    ]
    write(root, "user/memory.md", *texts)
    with opened(root) as memory:
        assert memory.sync().added == len(MISSING)
        assert [(r.id, r.kind, r.tags, r.updated_at, r.body) for r in memory.list("user")] == [
            (f"a{number}", "context", (), None, f"body{number}") for number in range(len(MISSING))
        ]
        again = memory.sync()
        assert (again.changed, again.added, again.updated, again.deleted) == (0, 0, 0, 0)
        assert memory.verify().ok


def test_k70_a_repeated_key_is_reported_and_the_segment_left_alone(root: Path) -> None:
    file = write(
        root,
        "user/memory.md",
        "---\nid: a1\ntags: [x]\nid: b2\n---\nrepeated words\n",
        segment_text("good", "good words"),
    )
    data = file.read_bytes()
    with opened(root) as memory:
        (problem,) = memory.sync().errors
        assert (problem.path, problem.line) == ("user/memory.md", 4)
        assert "id" in problem.message.split()
        record = memory.list("user")[0]
        assert (record.id, record.tags, record.body) == ("b2", ("x",), "repeated words")
        with pytest.raises(ReadOnlyError):
            memory.update("user#b2", body="changed")
        with pytest.raises(ReadOnlyError):
            memory.forget("user#b2")
        assert file.read_bytes() == data
        memory.update("user#good", body="better words")
        assert file.read_bytes().startswith(data[: data.index(b"id: good")])


KEYS = ("id", "scope", "kind", "tags", "sourceMessages", "createdAt", "updatedAt", "mine")


@pytest.mark.parametrize("key", KEYS)
def test_k70_each_repeated_key_is_named_with_its_line(root: Path, key: str) -> None:
    text = f"---\nid: first\n{key}: one\nkind: fact\n{key}: two\n---\nrepeated words\n"
    write(root, "user/memory.md", text)
    with opened(root) as memory:
        problems = [
            each for each in memory.sync().errors if each.line == 5 or key in ("id", "kind")
        ]
        assert any(key in re.split(r"\W+", each.message) for each in problems)
        assert bodies(memory, "user") == ["repeated words"]


# -- K71 and K73 -----------------------------------------------------------------------------------


def bomb(levels: int = 9, width: int = 9) -> str:
    lines = ["a0: &a0 [" + ", ".join(["x"] * width) + "]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]")
    return "\n".join(lines)


def test_k71_bombs_and_huge_values_are_refused_by_a_named_limit_at_once(root: Path) -> None:
    write(
        root,
        "user/memory.md",
        f"---\nid: bomb\n{bomb()}\ntags: *a8\n---\nbomb body\n",
        f"---\nid: {'7' * 5000}\n---\nhuge body\n",
        segment_text("good", "good segment"),
    )
    with opened(root) as memory:
        memory.sync(["vp"])  # everything imported and opened
        tracemalloc.start()
        started = time.process_time()
        report = memory.sync()
        spent, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert spent < 1 and peak < 50 * 1024 * 1024
        first, second = report.errors
        assert (first.path, second.path) == ("user/memory.md",) * 2
        assert "aliases" in first.message
        assert "max_scalar_chars" in second.message and "5000" in second.message
        assert ids(memory, "good segment") == ["good"]
        assert bodies(memory, "user") == ["bomb body", "huge body", "good segment"]


def test_k73_bytes_that_are_no_utf8_are_reported_and_never_rewritten(root: Path) -> None:
    write(root, "vp/a/memory.md", segment_text("A", "Grüße aus Köln"))
    broken = write(root, "vp/b/memory.md", segment_text("B", "broken"))
    broken.write_bytes(broken.read_bytes().replace(b"broken", b"5 \xa2 broken"))
    wide = write(root, "vp/c/memory.md")
    wide.write_bytes(segment_text("C", "sechzehn Grüße").encode("utf-16"))
    data = broken.read_bytes(), wide.read_bytes()
    env = {"PYTHONUTF8": "0", "LC_ALL": "C"}
    done = cli(root, "sync", "--json", env=env)
    assert done.code == 1, done
    assert {each["path"] for each in document(done)["errors"]} == {
        "vp/b/memory.md",
        "vp/c/memory.md",
    }
    listed = document(cli(root, "list", "--json", env=env))["segments"]
    assert {each["id"]: each["body"] for each in listed}["A"] == "Grüße aus Köln"
    found = document(cli(root, "recall", "-", "--json", env=env, stdin="Grüße Köln".encode()))
    assert found["hits"][0]["id"] == "A"
    for scope in ("vp/b", "vp/c"):
        refused = cli(root, "remember", scope, "more", "--json", env=env)
        assert refused.code == 1
        assert document(refused)["error"]["code"] == "read-only"
    assert cli(root, "forget", "vp/b#B", env=env).code == 1
    assert (broken.read_bytes(), wide.read_bytes()) == data


@few
@given(noise=st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=5))
def test_k73_no_bytes_stop_a_sync_or_are_rewritten(
    tmp_path_factory: pytest.TempPathFactory, noise: list[bytes]
) -> None:
    root = tmp_path_factory.mktemp("bytes")
    write(root, "user/memory.md", segment_text("good", "good segment"))
    files = [write(root, f"vp/v{number}/memory.md") for number in range(len(noise))]
    for file, data in zip(files, noise, strict=True):
        file.write_bytes(segment_text("x", "word").encode() + data)
    with opened(root) as memory:
        memory.sync()
        assert ids(memory, "good segment") == ["good"]
        assert memory.verify().ok
    assert all(file.read_bytes().endswith(data) for file, data in zip(files, noise, strict=True))
