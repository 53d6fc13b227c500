"""Every limit is a setting; what is over it is an error or a problem with the setting's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, opened, segment_text, write

from h2ams import Access, ConfigError, LimitError, Memory
from h2ams.settings import Settings, parse_setting


def limited(**limits: int) -> Settings:
    return replace(PLAIN, **limits)


def over(memory: Memory, scope: str, body: str, **how: object) -> LimitError:
    with pytest.raises(LimitError) as caught:
        memory.remember(scope, body, **how)
    return caught.value


def problems(memory: Memory) -> set[str]:
    return {f"{each.code}: {each.message}" for each in memory.sync().problems}


@pytest.mark.parametrize(
    ("name", "limit", "body", "how"),
    [
        ("max_file_bytes", 400, "x" * 300, {}),
        ("max_segment_chars", 10, "x" * 11, {}),
        ("max_header_lines", 4, "x", {}),
        ("max_header_bytes", 150, "x", {"tags": [f"tag{n}" for n in range(30)]}),
        ("max_scalar_chars", 60, "x", {"tags": ["t" * 61]}),
        ("max_scopes_count", 1, "x", {}),
    ],
)
def test_a_write_over_a_limit_is_refused_by_its_name_and_nothing_is_written(
    tmp_path: Path, name: str, limit: int, body: str, how: dict[str, object]
) -> None:
    root = tmp_path / "root"
    file = write(root, "user/memory.md", segment_text("a", "y" * 100))
    before = file.read_bytes()
    with opened(root, settings=limited(**{name: limit})) as memory:
        memory.sync()
        scope = "vp/new" if name == "max_scopes_count" else "user"
        error = over(memory, scope, body, **how)
        assert (error.name, error.limit) == (name, limit) and error.size > limit
        assert name in str(error) and error.hint
        assert file.read_bytes() == before and not (root / "vp").exists()


@pytest.mark.parametrize(
    ("name", "limit", "text"),
    [
        ("max_file_bytes", 400, segment_text("a", "alpha " * 100)),
        ("max_segment_chars", 10, segment_text("a", "alpha " * 100)),
        ("max_header_lines", 4, segment_text("a", "alpha", one=1, two=2, three=3, four=4)),
        ("max_header_bytes", 100, segment_text("a", "alpha", tags=[f"t{n}" for n in range(40)])),
        ("max_scalar_chars", 20, segment_text("a", "alpha", tags=["t" * 30])),
        ("max_depth_count", 1, segment_text("a", "alpha")),
    ],
)
def test_a_hand_edit_over_a_limit_is_reported_by_its_name_and_the_rest_is_read(
    tmp_path: Path, name: str, limit: int, text: str
) -> None:
    root = tmp_path / "root"
    where = "vp/deep/sub" if name == "max_depth_count" else "vp/deep"
    file = write(root, f"{where}/memory.md", text)
    write(root, "user/memory.md", segment_text("b", "beta"))
    with opened(root, settings=limited(**{name: limit})) as memory:
        found = problems(memory)
        if name == "max_segment_chars":  # it is indexed and flagged
            assert [hit.record.over_limit for hit in memory.recall("alpha").hits] == [True]
        else:
            assert any(name in each for each in found), found
        assert [hit.record.id for hit in memory.recall("beta").hits] == ["b"]
        assert file.read_text(encoding="utf-8") == text
        assert memory.verify().ok


def test_more_scopes_than_the_limit_stop_a_sync_and_no_turn(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for number in range(3):
        write(root, f"vp/v{number}/memory.md", segment_text("a", f"alpha {number}"))
    with opened(root) as memory:
        memory.sync()
    write(root, "vp/v3/memory.md", segment_text("a", "alpha 3"))
    with opened(root, settings=limited(max_scopes_count=3)) as memory:
        for call in (memory.sync, memory.rebuild):
            with pytest.raises(LimitError) as caught:
                call()
            assert (caught.value.name, caught.value.size) == ("max_scopes_count", 4)
        found = memory.recall("alpha")
        assert len(found.hits) == 3, "what was known is still found"
        assert [each.code for each in found.degraded] == ["over-limit"]
        assert "over-limit" in {each.code for each in memory.status().degraded}
    with opened(root) as memory:  # raised again: as before
        assert len(memory.recall("alpha").hits) == 4 and memory.verify().ok


def test_a_limit_that_is_no_number_is_refused_by_its_name() -> None:
    for text in ("many", "-1", "1.5", "1e9", "nan", ""):
        with pytest.raises(ConfigError, match="max_file_bytes"):
            replace(PLAIN, max_file_bytes=parse_setting("max_file_bytes", text))


def test_an_error_over_max_scopes_count_does_not_tell_how_many_others_there_are(
    tmp_path: Path,
) -> None:
    told = set()
    for count in (2, 5):
        root = tmp_path / str(count)
        for number in range(count):
            write(root, f"vp/v{number}/memory.md", segment_text("a", f"alpha {number}"))
        with opened(root) as memory:
            memory.sync()
        with (
            opened(root, settings=limited(max_scopes_count=2)) as memory,
            pytest.raises(LimitError) as caught,
        ):
            memory.remember("sessions/s1", "New.", access=Access(session="s1"))
        told.add((str(caught.value), caught.value.size, caught.value.current))
    assert len(told) == 1
