"""Messages of four families: read, paired, counted, given back as they came."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from threads import recorded
from threads.kit import COUNT, assistant, engine, tool, user

from h2ams.errors import UsageError
from h2ams.threads import shapes
from h2ams.threads.message import (
    IMAGE_TOKENS,
    Edits,
    count_message,
    derived_id,
    image_bytes,
    is_interim,
)

FAMILIES = sorted(recorded.ALL)


def pairs(family: str) -> tuple[set[str], set[str]]:
    read = [shapes.read(each) for each in recorded.ALL[family]]
    calls = {call.id for message in read for call in message.calls}
    results = {result.call_id for message in read for result in message.results}
    return calls, results


@pytest.mark.parametrize("family", FAMILIES)
def test_every_message_of_a_family_is_known_as_of_that_family(family: str) -> None:
    marked = {"openai-chat": 4, "openai-responses": 9, "anthropic": 4, "langchain": 6}
    found = [shapes.detect(each, default=family) for each in recorded.ALL[family]]  # type: ignore[arg-type]
    assert found.count(family) == len(found) or family == "langchain"
    plain = [shapes.detect(each) for each in recorded.ALL[family]]
    assert plain.count(family) >= marked[family]  # what says nothing of itself reads as chat


@pytest.mark.parametrize("family", FAMILIES)
def test_calls_and_results_pair_by_their_ids(family: str) -> None:
    calls, results = pairs(family)
    assert calls and calls == results


@pytest.mark.parametrize("family", FAMILIES)
def test_the_original_is_given_back_untouched_and_is_the_same_object(family: str) -> None:
    before = copy.deepcopy(recorded.ALL[family])
    for each, was in zip(recorded.ALL[family], before, strict=True):
        read = shapes.read(each, family)  # type: ignore[arg-type]
        assert read.original is each
        assert each == was


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_gives_back_the_objects_of_the_turn_in_their_order(
    family: str, tmp_path: Path
) -> None:
    thread = engine(tmp_path).thread("t", shape=family)  # type: ignore[arg-type]
    turn = thread.turn()
    given = [each for each in recorded.ALL[family] if _role(each) != "developer"]
    turn.append(*given)
    sent = turn.context().messages
    by_identity = [each for each in given if any(each is other for other in sent)]
    assert by_identity == given
    turn.close()
    stored = thread.context().messages
    assert [_plain(each) for each in stored] == [_plain(each) for each in sent]


def _role(each: Any) -> object:
    return each.get("role") if isinstance(each, dict) else each.type


def _plain(each: Any) -> Any:
    from h2ams.threads.shape_langchain import is_langchain, to_dict

    return to_dict(each) if is_langchain(each) else each


def test_text_calls_results_images_and_opaque_parts_are_all_counted() -> None:
    chat = [shapes.read(each) for each in recorded.OPENAI_CHAT]
    assert count_message(chat[1], COUNT) > IMAGE_TOKENS
    assert count_message(chat[1], COUNT) < IMAGE_TOKENS + 50  # base64 is no text
    assert count_message(chat[2], COUNT) > COUNT("read_screen") + COUNT('{"region": "all"}')
    assert count_message(chat[4], COUNT) > COUNT("A terminal with pytest output.")
    opaque = shapes.read(recorded.OPENAI_RESPONSES[1])
    assert count_message(opaque, COUNT) >= 100
    unknown = shapes.read(recorded.ANTHROPIC[6], "anthropic")
    assert unknown.opaque_chars > 0


def test_images_say_how_many_bytes_they_bring() -> None:
    message = shapes.read(recorded.OPENAI_CHAT[1])
    assert message.images[0].media == "image/png"
    assert abs(image_bytes(message) - len(recorded.PIXEL) * 50 * 3 // 4) < 4
    assert image_bytes(shapes.read(recorded.OPENAI_RESPONSES[9])) > 1_000
    assert image_bytes(shapes.read(recorded.ANTHROPIC[4], "anthropic")) > 500
    link = user([{"type": "image_url", "image_url": {"url": "https://e.org/a.png"}}])  # type: ignore[arg-type]
    assert image_bytes(shapes.read(link)) == 0


def test_signed_and_opaque_messages_are_sealed_and_never_edited() -> None:
    for message in (recorded.ANTHROPIC[1], recorded.ANTHROPIC[3]):
        read = shapes.read(message, "anthropic")
        assert read.sealed
        edits = Edits(arguments={call.id: "{}" for call in read.calls}, image=lambda _: "x")
        assert shapes.edit(read, edits) is read
    assert shapes.read(recorded.OPENAI_RESPONSES[1]).sealed
    assert shapes.read(recorded.OPENAI_RESPONSES[10]).sealed
    assert not shapes.read(recorded.ANTHROPIC[2], "anthropic").sealed


@pytest.mark.parametrize("family", FAMILIES)
def test_an_edit_changes_the_result_alone_and_not_the_original(family: str) -> None:
    before = copy.deepcopy(recorded.ALL[family])
    changed = 0
    for each in recorded.ALL[family]:
        read = shapes.read(each, family)  # type: ignore[arg-type]
        if not read.results or read.images:
            continue
        edits = Edits(results={result.call_id: "short" for result in read.results})
        edited = shapes.edit(read, edits)
        assert [result.text for result in edited.results] == ["short"] * len(read.results)
        assert [r.call_id for r in edited.results] == [r.call_id for r in read.results]
        changed += 1
    assert changed >= 1 and recorded.ALL[family] == before


def test_arguments_and_images_are_edited_in_every_family() -> None:
    call = assistant("", ("c", "write", '{"text": "long"}'))
    edited = shapes.edit(shapes.read(call), Edits(arguments={"c": '{"text": "s"}'}))
    assert edited.calls[0].arguments == '{"text": "s"}'
    item = shapes.edit(
        shapes.read(recorded.OPENAI_RESPONSES[2]), Edits(arguments={"call_1": '{"path": ""}'})
    )
    assert item.original["arguments"] == '{"path": ""}'
    block = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {"a": 1}}],
    }
    made = shapes.edit(shapes.read(block), Edits(arguments={"t": '{"a": 2}'}))
    assert made.original["content"][0]["input"] == {"a": 2}
    object_ = shapes.edit(
        shapes.read(recorded.LANGCHAIN[1]), Edits(arguments={"lc_1": '{"path": "z"}'})
    )
    assert object_.original.tool_calls[0]["args"] == {"path": "z"}
    assert recorded.LANGCHAIN[1].tool_calls[0]["args"] == {"path": "a.py"}
    image = shapes.edit(shapes.read(recorded.OPENAI_CHAT[1]), Edits(image=lambda _: "no image"))
    assert image.images == () and "no image" in image.text
    inside = shapes.edit(
        shapes.read(recorded.ANTHROPIC[4], "anthropic"), Edits(image=lambda _: "no image")
    )
    assert inside.images == () and "by the way" in inside.text


def test_results_that_are_still_at_work_are_known_as_interim() -> None:
    assert is_interim("", "in_progress") and is_interim('{"status": "running", "pct": 3}')
    assert is_interim("[interim] half of it") and is_interim('{"interim": true}')
    assert not is_interim('{"status": "done"}') and not is_interim("running late today")
    assert not is_interim('{"status": "running"') and not is_interim("[1, 2]")
    chat = [shapes.read(each) for each in recorded.OPENAI_CHAT]
    assert chat[3].results[0].interim and not chat[5].results[0].interim
    assert shapes.read(tool("c", "x", interim=True)).results[0].interim


def test_objects_of_an_sdk_are_read_as_what_they_dump() -> None:
    class Dumps:
        def model_dump(self, **how: object) -> dict[str, Any]:
            assert how == {"exclude_none": True}
            return {"role": "assistant", "content": "from an object"}

    assert shapes.read(Dumps()).text == "from an object"


def test_langchain_objects_are_stored_as_langchain_writes_them() -> None:
    stored = shapes.stored(shapes.read(recorded.LANGCHAIN[1]))
    assert stored["type"] == "ai" and stored["data"]["tool_calls"][0]["id"] == "lc_1"
    again = shapes.read(json.loads(json.dumps(stored)))
    assert again.shape == "langchain"
    assert again.calls == shapes.read(recorded.LANGCHAIN[1]).calls


def test_a_host_can_have_its_langchain_objects_made_again(tmp_path: Path) -> None:
    def revive(message: dict[str, Any]) -> Any:
        return recorded.HumanMessage(message["data"]["content"], type=message["type"])

    made = engine(tmp_path, revive=revive)
    thread = made.thread("t", shape="langchain")
    thread.append(recorded.HumanMessage("hello"), recorded.AIMessage("hi"))
    assert [each.content for each in thread.context().messages] == ["hello", "hi"]


def test_what_is_no_message_is_refused_in_words() -> None:
    for wrong in (5, [], {"content": "no role"}, object()):
        with pytest.raises(UsageError):
            shapes.read(wrong)
    with pytest.raises(UsageError, match="JSON"):
        shapes.stored(shapes.read({"role": "user", "content": "x", "extra": object()}))


def test_a_missing_id_follows_from_content_and_position() -> None:
    one = derived_id("t", 0, user("a"))
    assert one == derived_id("t", 0, {"content": "a", "role": "user"})
    assert len({one, derived_id("t", 1, user("a")), derived_id("u", 0, user("a"))}) == 3


def test_old_function_calls_without_ids_pair_by_name() -> None:
    call = shapes.read(
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    )
    result = shapes.read({"role": "function", "name": "f", "content": "42"})
    assert call.calls[0].id == result.results[0].call_id
