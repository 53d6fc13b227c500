"""The pre-pass: shorter, never longer, the same again, and nothing that must not be touched."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from threads import recorded
from threads.kit import COUNT, assistant, entries, tool, tool_turns, user

from h2ams.threads.prepass import MARK, shorten_arguments, shrink
from h2ams.threads.unit import Entry

LONG = "compiling module number one of many\n" * 60


def everything(_: Entry) -> bool:
    return True


def result_texts(rows: Any) -> list[str]:
    return [result.text for entry in rows for result in entry.message.results]


def test_an_old_result_becomes_one_line_that_says_what_it_was() -> None:
    call = assistant("", ("c1", "shell", '{"cmd": "make all"}'))
    rows = entries([call, tool("c1", LONG + "\nexit code: 2")])
    done = shrink(rows, everything, COUNT)
    line = result_texts(done.entries)[0]
    assert line.startswith(MARK) and "\n" not in line
    for part in ("shell", "make all", "exit 2", str(len(LONG) + 13), "lines"):
        assert part in line
    assert (
        done.freed_tokens == sum(e.tokens for e in rows) - sum(e.tokens for e in done.entries) > 0
    )


def test_of_identical_results_the_newest_stays_and_the_others_refer_to_it() -> None:
    messages = []
    for n in (1, 2, 3):
        messages += [assistant("", (f"c{n}", "read", '{"path": "a"}')), tool(f"c{n}", LONG)]
    rows = entries(messages)
    newest = rows[-1]
    done = shrink(rows, lambda entry: entry is not newest, COUNT)
    texts = result_texts(done.entries)
    assert "c3" in texts[0] and "c3" in texts[1] and texts[2] == LONG


def test_the_same_output_of_another_tool_is_not_the_same() -> None:
    rows = entries(
        [
            assistant("", ("c1", "read", "{}")),
            tool("c1", LONG),
            assistant("", ("c2", "stat", "{}")),
            tool("c2", LONG),
        ]
    )
    texts = result_texts(shrink(rows, everything, COUNT).entries)
    assert all(text.startswith(MARK) for text in texts)


def test_stale_images_become_a_line() -> None:
    rows = entries(recorded.OPENAI_CHAT)
    done = shrink(rows, everything, COUNT)
    assert done.entries[1].message.images == ()
    assert "image left out: image/png" in done.entries[1].message.text
    assert "is the build green?" in done.entries[1].message.text


def test_long_values_in_arguments_are_shortened_and_stay_json() -> None:
    arguments = json.dumps({"path": "a.py", "text": "x = 1\n" * 200, "more": ["y" * 900, 3]})
    rows = entries([assistant("", ("c1", "write", arguments)), tool("c1", "ok")])
    done = shrink(rows, everything, COUNT)
    shorter = json.loads(done.entries[0].message.calls[0].arguments)
    assert shorter["path"] == "a.py" and "1200 chars" in shorter["text"]
    assert shorter["more"][1] == 3 and len(shorter["more"][0]) < 200
    assert result_texts(done.entries) == ["ok"]


def test_arguments_that_are_no_json_are_left_alone() -> None:
    broken = '{"text": "' + "x" * 2_000
    assert shorten_arguments(broken) == broken


def test_what_is_sealed_protected_interim_or_short_is_left_alone() -> None:
    for messages in (recorded.ANTHROPIC[:2], recorded.OPENAI_RESPONSES[1:2]):
        rows = entries(messages)
        assert shrink(rows, everything, COUNT).entries is rows
    running = entries([assistant("", ("c", "run", "{}")), tool("c", "[interim] " + LONG)])
    assert shrink(running, everything, COUNT).entries is running
    short = entries([assistant("", ("c", "run", "{}")), tool("c", "ok, done")])
    assert shrink(short, everything, COUNT).entries is short
    long = entries([assistant("", ("c", "run", "{}")), tool("c", LONG)])
    assert shrink(long, lambda _: False, COUNT).entries is long


def test_unchanged_history_is_the_same_object() -> None:
    rows = entries([user("a"), assistant("b")])
    assert shrink(rows, everything, COUNT).entries is rows
    once = shrink(entries(tool_turns(3)), everything, COUNT).entries
    assert shrink(once, everything, COUNT).entries is once


def test_the_pass_changes_no_message_that_it_was_given() -> None:
    for messages in recorded.ALL.values():
        before = copy.deepcopy(messages)
        shrink(entries(messages), everything, COUNT)
        assert messages == before


def test_each_result_of_a_message_gets_a_line_only_where_the_line_is_shorter() -> None:
    name = "tool_with_a_rather_long_name_for_a_short_result"
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": {"q": "字" * 60}} for id in ("a", "b")
    ]
    small = "x " * 121  # over the length that is kept, and cheaper than its line
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": LONG},
        {"type": "tool_result", "tool_use_id": "b", "content": "1" * 241},
    ]
    rows = entries([{"role": "assistant", "content": calls}, {"role": "user", "content": results}])
    texts = result_texts(shrink(rows, everything, COUNT).entries)
    assert texts[0].startswith(MARK)
    assert COUNT(texts[1]) <= COUNT("1" * 241) and len(texts[1]) <= 241
    results[1]["content"] = small
    rows = entries([{"role": "assistant", "content": calls}, {"role": "user", "content": results}])
    texts = result_texts(shrink(rows, everything, COUNT).entries)
    assert texts[0].startswith(MARK) and texts[1] == small


OUTPUTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        (LONG, LONG + "!", "字" * 600, "{}", '{"a": "' + "b" * 800 + '"}', MARK + "x]")
    ),
    st.text(alphabet="ab \n🙂字", min_size=200, max_size=700),
)
ARGUMENTS = st.one_of(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(OUTPUTS, st.integers(), st.lists(OUTPUTS, max_size=2)),
        max_size=3,
    ).map(json.dumps),
    st.text(max_size=700),
)


@given(st.lists(st.tuples(ARGUMENTS, OUTPUTS, st.booleans()), max_size=6), st.integers(0, 12))
def test_the_pass_is_idempotent_never_longer_and_keeps_json(
    calls: list[tuple[str, str, bool]], protected: int
) -> None:
    messages: list[Any] = []
    for n, (arguments, output, image) in enumerate(calls):
        messages.append(assistant("", (f"c{n}", "run", arguments)))
        messages.append(tool(f"c{n}", output))
        if image:
            messages.append(recorded.OPENAI_CHAT[1])
    rows = entries(messages)
    old = {entry.id for entry in rows[: max(0, len(rows) - protected)]}
    once = shrink(rows, lambda entry: entry.id in old, COUNT)
    twice = shrink(once.entries, lambda entry: entry.id in old, COUNT)
    assert twice.entries is once.entries and twice.freed_tokens == 0
    for before, after in zip(rows, once.entries, strict=True):
        assert after.tokens <= before.tokens
        assert (after is before) or (before.id in old and before.id in once.replaced)
        for was, now in zip(before.message.calls, after.message.calls, strict=True):
            assert (was.id, was.name) == (now.id, now.name)
            assert len(now.arguments) <= len(was.arguments)
            if now.arguments != was.arguments:
                assert set(json.loads(now.arguments)) == set(json.loads(was.arguments))
        for one, other in zip(before.message.results, after.message.results, strict=True):
            assert one.call_id == other.call_id and len(other.text) <= len(one.text)
    assert shrink(rows, lambda entry: entry.id in old, COUNT).replaced == once.replaced
