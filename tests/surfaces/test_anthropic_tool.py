"""The memory tool's six commands: texts of the contract, paths, access, what the files are then."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folder import opened, segment_text, write

from h2ams import Access, Memory, Settings
from h2ams.anthropic import MemoryCommands, Outcome
from h2ams.surfaces.anthropic_strings import STRINGS, file_size


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    write(root, "sessions/s/notes.md", "# Plan\n\nFirst, second.\n")
    write(root, "sessions/other/secret.md", "Not for session s.\n")
    write(root, ".hidden.md", "hidden")
    write(root, "node_modules/x.md", "not read")
    with opened(root) as found:
        yield found


def ask(
    memory: Memory, command: str, *, tool: MemoryCommands | None = None, **given: Any
) -> Outcome:
    return (tool or MemoryCommands(memory)).run({"command": command, **given})


def text(memory: Memory, command: str, **given: Any) -> str:
    outcome = ask(memory, command, **given)
    assert not outcome.is_error, outcome.text
    return outcome.text


def error(memory: Memory, command: str, **given: Any) -> str:
    outcome = ask(memory, command, **given)
    assert outcome.is_error, outcome.text
    return outcome.text


def file(memory: Memory, path: str) -> Path:
    return Path(memory.root) / path


# -- the texts of the contract, word by word -------------------------------------------------------


def test_view_of_the_folder_shows_two_levels_without_hidden_items(memory: Memory) -> None:
    write(Path(memory.root), "sessions/s/deep/deeper.md", "x")
    user = file(memory, "user/memory.md").stat().st_size
    assert text(memory, "view", path="/memories") == (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden "
        "items and node_modules:\n"
        f"{user + 43}\t/memories\n"
        "43\t/memories/sessions\n"
        "19\t/memories/sessions/other\n"
        "24\t/memories/sessions/s\n"
        f"{user}\t/memories/user\n"
        f"{user}\t/memories/user/memory.md"
    )
    sdk = MemoryCommands(memory, style="sdk")
    assert ask(memory, "view", path="/memories", tool=sdk).text.splitlines()[:3] == [
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden "
        "items:",
        f"{user + 43}B\t/memories",
        "43B\t/memories/sessions/",
    ]


def test_view_of_a_file_numbers_its_lines(memory: Memory) -> None:
    whole = (
        "Here's the content of /memories/sessions/s/notes.md with line numbers:\n"
        "     1\t# Plan\n     2\t\n     3\tFirst, second.\n     4\t"
    )
    path = "/memories/sessions/s/notes.md"
    assert text(memory, "view", path=path) == whole
    assert text(memory, "view", path=path, view_range=[3, 3]).splitlines()[1:] == [
        "     3\tFirst, second."
    ]
    assert text(memory, "view", path=path, view_range=[2, -1]).splitlines()[1:] == [
        "     2\t",
        "     3\tFirst, second.",
        "     4\t",
    ]
    assert "[1, 4]" in error(memory, "view", path=path, view_range=[9, 12])
    assert error(memory, "view", path="/memories/nothing.md") == (
        "The path /memories/nothing.md does not exist. Please provide a valid path."
    )


def test_create_writes_a_file_once(memory: Memory) -> None:
    path = "/memories/sessions/s/progress.md"
    done = text(memory, "create", path=path, file_text="Step 1 is done.\n")
    assert done == f"File created successfully at: {path}"
    assert file(memory, "sessions/s/progress.md").read_text("utf-8") == "Step 1 is done.\n"
    told = error(memory, "create", path=path, file_text="Other.")
    assert told == f"Error: File {path} already exists"
    sdk = MemoryCommands(memory, style="sdk")
    told = ask(memory, "create", path=path, file_text="Other.", tool=sdk).text
    assert told == f"File {path} already exists"
    assert file(memory, "sessions/s/progress.md").read_text("utf-8") == "Step 1 is done.\n"
    assert [hit.record.path for hit in memory.recall("step done").hits] == [
        "sessions/s/progress.md"
    ]
    assert error(memory, "create", path="/memories/sessions", file_text="x").endswith(
        ("exists", "(see docs/format.md)")
    )


def test_str_replace_changes_a_text_that_is_there_once(memory: Memory) -> None:
    path = "/memories/sessions/s/notes.md"
    done = text(memory, "str_replace", path=path, old_str="First", new_str="Zeroth, first")
    assert done == (
        "The memory file has been edited.\n"
        "     1\t# Plan\n     2\t\n     3\tZeroth, first, second.\n     4\t"
    )
    sdk = MemoryCommands(memory, style="sdk")
    outcome = ask(memory, "str_replace", path=path, old_str="second", new_str="third", tool=sdk)
    assert outcome.text.startswith(
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):\n     1\t# Plan"
    )
    assert error(memory, "str_replace", path=path, old_str="nowhere", new_str="x") == (
        f"No replacement was performed, old_str `nowhere` did not appear verbatim in {path}."
    )
    write(Path(memory.root), "sessions/s/notes.md", "a\nb\na\n")
    assert error(memory, "str_replace", path=path, old_str="a", new_str="x") == (
        "No replacement was performed. Multiple occurrences of old_str `a` in lines: 1, 3. "
        "Please ensure it is unique"
    )
    missing = "/memories/sessions/s/none.md"
    assert error(memory, "str_replace", path=missing, old_str="a", new_str="x") == (
        f"Error: The path {missing} does not exist. Please provide a valid path."
    )
    folder = "/memories/sessions/s"
    assert "does not exist" in error(memory, "str_replace", path=folder, old_str="a", new_str="")
    told = ask(memory, "str_replace", path=folder, old_str="a", new_str="", tool=sdk).text
    assert told == f"The path {folder} is not a file."


def test_insert_puts_lines_behind_a_line(memory: Memory) -> None:
    path = "/memories/sessions/s/notes.md"
    done = text(memory, "insert", path=path, insert_line=1, insert_text="Inserted.\n")
    assert done == f"The file {path} has been edited."
    text(memory, "insert", path=path, insert_line=0, insert_text="Top.")
    text(memory, "insert", path=path, insert_line=5, insert_text="End.\n")
    assert file(memory, "sessions/s/notes.md").read_text("utf-8") == (
        "Top.\n# Plan\nInserted.\n\nFirst, second.\nEnd.\n"
    )
    assert error(memory, "insert", path=path, insert_line=9, insert_text="x") == (
        "Error: Invalid `insert_line` parameter: 9. It should be within the range of lines of the "
        "file: [0, 6]"
    )
    assert error(memory, "insert", path="/memories/x.md", insert_line=0, insert_text="x") == (
        "Error: The path /memories/x.md does not exist"
    )


def test_delete_removes_a_file_or_a_whole_folder(memory: Memory) -> None:
    text(memory, "create", path="/memories/sessions/s/a/b.md", file_text="x")
    done = text(memory, "delete", path="/memories/sessions/s/a")
    assert done == "Successfully deleted /memories/sessions/s/a"
    assert not file(memory, "sessions/s/a").exists()
    text(memory, "delete", path="/memories/sessions/s/notes.md")
    assert memory.recall("first second").hits == ()
    assert error(memory, "delete", path="/memories/sessions/s/notes.md") == (
        "Error: The path /memories/sessions/s/notes.md does not exist"
    )
    for root in ("/memories", "/memories/"):
        assert "Cannot delete the /memories directory itself" in error(memory, "delete", path=root)


def test_rename_moves_and_never_overwrites(memory: Memory) -> None:
    here, there = "/memories/sessions/s/notes.md", "/memories/sessions/s/plan/final.md"
    done = text(memory, "rename", old_path=here, new_path=there)
    assert done == f"Successfully renamed {here} to {there}"
    assert file(memory, "sessions/s/plan/final.md").read_text("utf-8").startswith("# Plan")
    assert not file(memory, "sessions/s/notes.md").exists()
    assert [hit.record.path for hit in memory.recall("first second").hits] == [
        "sessions/s/plan/final.md"
    ]
    moved = "/memories/sessions/t"
    text(memory, "rename", old_path="/memories/sessions/s", new_path=moved)
    assert not file(memory, "sessions/s").exists()
    assert file(memory, "sessions/t/plan/final.md").exists()
    target = "/memories/user/memory.md"
    told = error(memory, "rename", old_path=f"{moved}/plan/final.md", new_path=target)
    assert told == f"Error: The destination {target} already exists"
    assert error(memory, "rename", old_path=here, new_path=there) == (
        f"Error: The path {here} does not exist"
    )
    inside = f"{moved}/plan/deeper"
    assert "into itself" in error(memory, "rename", old_path=moved, new_path=inside)
    assert "directory itself" in error(memory, "rename", old_path="/memories", new_path=inside)


def test_every_text_has_both_styles_with_the_same_values() -> None:
    import string

    for name, styles in STRINGS.items():
        assert len(styles) == 2
        fields = [{field for _, field, _, _ in string.Formatter().parse(each)} for each in styles]
        if name not in ("view-range", "replace-folder", "insert-folder"):
            assert fields[0] - {None} == fields[1] - {None}, name


@pytest.mark.parametrize(
    ("size", "docs", "sdk"),
    [(0, "0", "0B"), (10, "10", "10B"), (1024, "1.0K", "1K"), (5632, "5.5K", "5.5K"),
     (1_258_291, "1.2M", "1.2M"), (1 << 41, "2048.0G", "2048G")],
)  # fmt: skip
def test_sizes_are_for_people(size: int, docs: str, sdk: str) -> None:
    assert (file_size(size, "docs"), file_size(size, "sdk")) == (docs, sdk)


@pytest.mark.parametrize(
    "command",
    [{}, {"command": "format"}, {"command": 3}, {"command": "view"}, {"command": "view", "path": 1},
     {"command": "insert", "path": "/memories/user/memory.md", "insert_line": "1",
      "insert_text": "x"},
     {"command": "view", "path": "/memories", "view_range": "1-2"},
     {"command": "create", "path": "/memories/x.md"}],
)  # fmt: skip
def test_a_malformed_command_is_an_error_text(memory: Memory, command: dict[str, Any]) -> None:
    outcome = MemoryCommands(memory).run(command)
    assert outcome.is_error and outcome.text.startswith("Error: ")


def test_a_very_long_file_is_shown_in_parts(memory: Memory) -> None:
    path = "/memories/sessions/s/long.md"
    text(memory, "create", path=path, file_text="0123456789" * 10 + "\n" + ("x" * 99 + "\n") * 2000)
    shown = text(memory, "view", path=path)
    assert len(shown) < 70_000 and shown.endswith("more lines: use view_range)")
    assert text(memory, "view", path=path, view_range=[1990, 1991]).count("x" * 99) == 2


# -- paths -----------------------------------------------------------------------------------------

ATTACKS = [
    "", "/", "memories", "/memory", "/memoriesX", "/memories/../etc/passwd", "/memories/..",
    "/memories/user/../../outside.md", "/memories/./user/memory.md", "/memories//user/memory.md",
    "/memories/user//memory.md", "/memories/user/..", "/memories/%2e%2e/outside.md",
    "/memories/%2E%2E%2Foutside.md", "/memories/..%2foutside.md", "/memories/%252e%252e/outside.md",
    "/memories/..%5coutside.md", "/memories/..\\outside.md", "/memories/user\\memory.md",
    "/memories/%c0%ae%c0%ae/outside.md", "/memories/user/memory.md\0.txt", "/memories/a\nb.md",
    "/memories/.h2ams/config.toml", "/memories/.h2ams/index.db", "/memories/user/.hidden.md",
    "/memories/.hidden.md", "/memories/node_modules/x.md", "/etc/passwd", "C:/memories/x.md",
    "/memories/C:/x.md", "../memories/user/memory.md", "/memories/sessions/../user/memory.md",
    "/memories/link.md", "/memories/linked/outside.md", "/memories/user/cross.md",
]  # fmt: skip


@pytest.mark.parametrize("style", ["docs", "sdk"])
@pytest.mark.parametrize("path", ATTACKS)
def test_a_path_that_leaves_the_root_in_any_spelling_is_refused_by_every_command(
    memory: Memory, path: str, style: Any
) -> None:
    root = Path(memory.root)
    outside = root.parent / "outside.md"
    outside.write_text("outside secret", encoding="utf-8")
    (root / "link.md").symlink_to(outside)
    (root / "linked").symlink_to(root.parent)
    (root / "user/cross.md").symlink_to(root / "sessions/other/secret.md")
    before = {each: each.read_bytes() for each in root.parent.rglob("*.md")}
    tool = MemoryCommands(memory, style=style)
    for given in (
        {"command": "view", "path": path},
        {"command": "create", "path": path, "file_text": "planted"},
        {"command": "str_replace", "path": path, "old_str": "secret", "new_str": "planted"},
        {"command": "insert", "path": path, "insert_line": 0, "insert_text": "planted"},
        {"command": "delete", "path": path},
        {"command": "rename", "old_path": path, "new_path": "/memories/user/new.md"},
        {"command": "rename", "old_path": "/memories/user/memory.md", "new_path": path},
    ):
        outcome = tool.run(given)
        assert outcome.is_error, given
        assert "secret" not in outcome.text.replace("`secret`", ""), given
    assert {each: each.read_bytes() for each in root.parent.rglob("*.md")} == before


# -- access ----------------------------------------------------------------------------------------


def test_what_the_access_may_not_read_is_not_there(memory: Memory) -> None:
    tool = MemoryCommands(memory, access=Access(session="s"))
    alone = ask(memory, "view", path="/memories", tool=tool)
    assert "other" not in alone.text and "/memories/sessions/s" in alone.text
    for path in ("/memories/sessions/other/secret.md", "/memories/sessions/other/none.md"):
        for command, given in (
            ("view", {"path": path}),
            ("str_replace", {"path": path, "old_str": "Not", "new_str": "x"}),
            ("insert", {"path": path, "insert_line": 0, "insert_text": "x"}),
            ("delete", {"path": path}),
        ):
            outcome = ask(memory, command, tool=tool, **given)
            assert outcome.is_error and "does not exist" in outcome.text, outcome
        outcome = ask(memory, "create", path=path, file_text="x", tool=tool)
        assert outcome.is_error and "may not write to sessions/other" in outcome.text
    write(Path(memory.root), "sessions/other/more.md", "x" * 5_000)
    assert ask(memory, "view", path="/memories", tool=tool) == alone
    readable = ask(memory, "create", path="/memories/user/new.md", file_text="x", tool=tool)
    assert readable.is_error and "may not write to user" in readable.text


def test_deleting_a_folder_takes_what_the_access_sees_and_leaves_the_rest(memory: Memory) -> None:
    root = Path(memory.root)
    write(root, "sessions/s/vp/bob/memory.md", segment_text("b", "Bob's own."))
    tool = MemoryCommands(memory, access=Access(session="s", vp="ann"))
    done = ask(memory, "delete", path="/memories/sessions/s", tool=tool)
    assert done.text == "Successfully deleted /memories/sessions/s"
    assert (root / "sessions/s/vp/bob/memory.md").exists()
    assert not (root / "sessions/s/notes.md").exists()
    shown = ask(memory, "view", path="/memories", tool=tool).text
    assert "bob" not in shown


def test_a_tool_for_one_scope_sees_that_scope_as_its_memories(memory: Memory) -> None:
    tool = MemoryCommands(memory, access=Access(session="new"), scope="sessions/new")
    assert ask(memory, "view", path="/memories", tool=tool).text.endswith("0\t/memories")
    made = ask(memory, "create", path="/memories/progress.md", file_text="Half done.", tool=tool)
    assert made.text == "File created successfully at: /memories/progress.md"
    assert file(memory, "sessions/new/progress.md").read_text("utf-8") == "Half done."
    shown = ask(memory, "view", path="/memories", tool=tool).text
    assert shown.endswith("\t/memories/progress.md")
    assert "Half done." in ask(memory, "view", path="/memories/progress.md", tool=tool).text


# -- what the files are afterwards -----------------------------------------------------------------


def test_segments_can_be_edited_as_text_and_their_headers_stay_readable(memory: Memory) -> None:
    path = "/memories/user/memory.md"
    text(memory, "str_replace", path=path, old_str="tabs", new_str="spaces")
    assert memory.get("user#s1").body == "Prefers spaces."
    before = file(memory, "user/memory.md").read_bytes()
    told = error(memory, "str_replace", path=path, old_str="kind: fact", new_str="kind: [")
    assert "user/memory.md:" in told and "nothing written" in told
    assert file(memory, "user/memory.md").read_bytes() == before


def test_secrets_are_replaced_in_what_is_added_and_nowhere_else(memory: Memory) -> None:
    key = "AKIAIOSFODNN7EXAMPLE"
    write(Path(memory.root), "sessions/s/notes.md", f"By hand: {key}\nline\n")
    path = "/memories/sessions/s/notes.md"
    text(memory, "str_replace", path=path, old_str="line", new_str=f"key {key}")
    text(memory, "insert", path=path, insert_line=2, insert_text=f"again {key}")
    text(memory, "create", path="/memories/sessions/s/k.md", file_text=f"and {key}")
    assert file(memory, "sessions/s/notes.md").read_text("utf-8").count(key) == 1
    assert key not in file(memory, "sessions/s/k.md").read_text("utf-8")


def test_limits_hold_for_whole_files_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "short"))
    small = Settings(encoding="estimate", max_segment_chars=100, max_file_bytes=1_000)
    with opened(root, settings=small) as memory:
        path = "/memories/user/memory.md"
        told = error(memory, "str_replace", path=path, old_str="short", new_str="y" * 101)
        assert "101 chars" in told and "max_segment_chars is 100" in told
        told = error(memory, "create", path="/memories/user/n.md", file_text="z" * 1_001)
        assert "max_file_bytes" in told
        told = error(memory, "create", path="/memories/user/summary.md", file_text="word " * 990)
        assert "summary_tokens" in told or "max_file_bytes" in told
    assert sorted(os.listdir(root / "user")) == ["memory.md"]


def test_files_that_decide_about_access_cannot_be_written(memory: Memory) -> None:
    for path in ("sessions/s/session.md", "topic/t/redirect.json", "sessions/s/ams.json"):
        told = error(memory, "create", path=f"/memories/{path}", file_text="agent: other")
        assert "not a file that tools may write" in told
        assert not file(memory, path).exists()


def test_line_ends_of_a_file_stay(memory: Memory) -> None:
    write(Path(memory.root), "sessions/s/notes.md", "one\r\ntwo\r\n")
    path = "/memories/sessions/s/notes.md"
    assert "\r" not in text(memory, "view", path=path)
    text(memory, "str_replace", path=path, old_str="one\ntwo", new_str="1\n2")
    text(memory, "insert", path=path, insert_line=1, insert_text="half")
    assert file(memory, "sessions/s/notes.md").read_bytes() == b"1\r\nhalf\r\n2\r\n"


def test_bytes_that_are_no_text_are_not_rewritten(memory: Memory) -> None:
    file(memory, "sessions/s/notes.md").write_bytes(b"caf\xe9\n")
    path = "/memories/sessions/s/notes.md"
    for command, given in (
        ("view", {}),
        ("str_replace", {"old_str": "c", "new_str": "x"}),
        ("insert", {"insert_line": 0, "insert_text": "x"}),
    ):
        assert "not UTF-8 at byte 3" in error(memory, command, path=path, **given)
    assert file(memory, "sessions/s/notes.md").read_bytes() == b"caf\xe9\n"


def test_a_scope_that_differs_by_case_alone_is_not_made(memory: Memory) -> None:
    assert "sessions/s exists" in error(
        memory, "create", path="/memories/sessions/S/x.md", file_text="x"
    )
    assert error(memory, "create", path="/memories/User/x.md", file_text="x")


@pytest.mark.parametrize("access", [None, Access(session="s1")])
@pytest.mark.parametrize("name", ["vp", "user", "topic", "feature"])
def test_no_file_can_stand_where_scopes_have_their_folder(
    tmp_path: Path, name: str, access: Access | None
) -> None:
    told = set()
    for foreign in (False, True):  # whether others are there does not show in what is said
        root = tmp_path / str(foreign)
        write(root, "sessions/s1/memory.md", segment_text("a", "alpha"))
        if foreign and name == "vp":
            write(root, "sessions/s1/vp/bob/memory.md", segment_text("b", "beta"))
        with opened(root) as memory:
            commands = MemoryCommands(memory, access=access, scope="sessions/s1")
            for command in (
                {"command": "create", "path": f"/memories/{name}", "file_text": "x"},
                {
                    "command": "rename",
                    "old_path": "/memories/memory.md",
                    "new_path": f"/memories/{name}",
                },
            ):
                done = commands.run(command)
                assert done.is_error and "folder of scopes" in done.text, done
                told.add((command["command"], done.text))
        assert not (root / "sessions/s1" / name).is_file()
    assert len(told) == 2
