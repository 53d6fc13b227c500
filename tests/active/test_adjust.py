"""A model corrects on-demand: when it is asked, what counts of its answer, how long it lasts."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from h2ams import Access, Memory, Settings
from h2ams.active import adjust, adjusting
from h2ams.active.adjust import Adjustment
from h2ams.active.ams import ActiveSet
from h2ams.errors import ModelError
from h2ams.memory.record import Record
from h2ams.models.function import FunctionModel
from h2ams.models.request import Request
from h2ams.tokens import counter

ACCESS = Access(session="s1", vp="ada")
COUNT = counter("estimate").count


# -- policy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ran", "wrote", "shown", "used", "expected"),
    [
        (False, False, 0, 0, "first"),
        (True, False, 9, 500, "not-due"),
        (True, True, 4, 500, "not-due"),
        (True, True, 5, 500, "new-memory"),
        (True, False, 0, 900, "not-due"),
        (True, False, 0, 901, "pressure"),
    ],
)
def test_when_a_model_is_asked(
    ran: bool, wrote: bool, shown: int, used: int, expected: str
) -> None:
    found = adjust.due(
        adjust_ran=ran,
        wrote_memory=wrote,
        on_demand_count=shown,
        used_tokens=used,
        budget_tokens=1_000,
    )
    assert found == expected


# -- contract --------------------------------------------------------------------------------------


def record(n: int, body: str = "") -> Record:
    return Record(
        scope="user",
        id=f"seg_{n}",
        kind="fact",
        tags=("t",),
        body=body or f"First sentence {n}. Second sentence {n}.",
        heading="",
        created_at=None,
        updated_at=None,
        source_messages=(),
        path="user/memory.md",
        line=1,
        tokens=9,
    )


def document(request: Request) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads(request.messages[1].content)
    return found


def test_up_to_two_hundred_segments_are_shown_whole_and_more_by_their_first_sentence() -> None:
    few, listed = adjust.ask("q", "a", [record(n) for n in range(200)], (), count=COUNT)
    assert document(few)["segments"][7]["text"] == "First sentence 7. Second sentence 7."
    assert len(listed) == 200
    many, listed = adjust.ask("q", "a", [record(n) for n in range(201)], (), count=COUNT)
    assert document(many)["segments"][7]["text"] == "First sentence 7."
    assert document(many)["segments"][7]["tags"] == ["t"]


def test_the_prompt_is_bounded_and_lists_what_is_most_telling_first() -> None:
    records = [record(n, "word " * 200) for n in range(150)]
    request, listed = adjust.ask("q", "a", records, (), count=COUNT, most_tokens=2_000)
    assert sum(COUNT(each.content) for each in request.messages) <= 2_000
    assert 0 < len(listed) < 20
    assert listed == tuple(each.address for each in records[: len(listed)])


def test_what_was_shown_is_marked_and_secrets_and_recalled_memory_stay_out() -> None:
    query = "<memory-context>old</memory-context>key ghp_abcdefghijklmnopqrstuvwxyz0123456789"
    request, _ = adjust.ask(query, "", [record(1)], {"user#seg_1"}, count=COUNT)
    text = request.messages[1].content
    assert '"shown": true' in text and "ghp_" not in text and "old" not in text


LISTED = {"user#a", "user#b", "user#c"}


@pytest.mark.parametrize(
    ("text", "add", "evict", "ignored"),
    [
        ('{"add": ["user#a"], "evict": ["user#b"], "reason": "x"}', ["user#a"], ["user#b"], 0),
        ('```json\n{"add": ["user#a"]}\n```', ["user#a"], [], 0),
        ('Sure: {"evict": ["user#c", "user#c"]}', [], ["user#c"], 1),
        (
            '{"add": ["user#a", "user#x", 7], "evict": ["user#a", "sessions/s#z"]}',
            ["user#a"],
            [],
            4,
        ),
        ('{"add": [], "evict": []}', [], [], 0),
    ],
)
def test_unknown_foreign_and_repeated_ids_are_ignored_and_counted(
    text: str, add: list[str], evict: list[str], ignored: int
) -> None:
    found = adjust.read(text, LISTED)
    assert (list(found.add), list(found.evict), found.ignored_count) == (add, evict, ignored)


@pytest.mark.parametrize("text", ["", "no", "[]", '{"add": "user#a"}', "{" * 9_999, '{"x": 1}'])
def test_an_answer_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        adjust.read(text, LISTED)


def test_a_correction_pins_and_evicts_within_its_task() -> None:
    before = ActiveSet(task="aa", pinned=("user#old",))
    correction = adjust.Correction(("user#a",), ("user#b",))
    same = adjust.apply(before, correction, "aa bb")
    assert (same.pinned, same.evicted, same.adjust_ran) == (
        ("user#a", "user#old"),
        ("user#b",),
        True,
    )
    other = adjust.apply(before, correction, "cc")
    assert other.pinned == ("user#a",)


# -- in a folder -----------------------------------------------------------------------------------


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory.open(tmp_path, create=True, settings=Settings(encoding="estimate")) as opened:
        for n in range(6):
            opened.remember("sessions/s1", f"The parser reads header number {n} of the file.")
        opened.remember("user", "Coffee is served at ten.")
        opened.remember("sessions/s2", "The parser of another session.")
        yield opened


def saying(make: Callable[[list[str]], dict[str, object]]) -> FunctionModel:
    """A model that answers with what ``make`` makes of the ids it is shown."""

    def answer(request: Request) -> str:
        ids = [str(each["id"]) for each in document(request)["segments"]]
        return json.dumps(make(ids))

    return FunctionModel(answer)


QUERY = "how does the parser read a header?"


def shown(memory: Memory, query: str = QUERY, *, commit: bool = False) -> list[str]:
    block = memory.context(query, access=ACCESS, budget=1_000, commit=commit)
    return [item.address for item in block.receipt.layers["on_demand"].items]


def run(memory: Memory, model: FunctionModel, **how: bool) -> Adjustment:
    block = memory.context(QUERY, access=ACCESS, budget=1_000)
    return memory.adjust(QUERY, block, access=ACCESS, model=model, **how)


def test_a_correction_shows_in_the_next_block_survives_a_restart_and_ends_with_the_task(
    memory: Memory,
) -> None:
    before = shown(memory)
    coffee = next(each.address for each in memory.list("user"))
    assert coffee not in before
    model = saying(lambda ids: {"add": [coffee], "evict": [before[0]], "reason": "needed"})
    found = run(memory, model)
    assert (found.cause, found.ran) == ("first", True)
    after = shown(memory)
    assert coffee in after and before[0] not in after
    rejected = memory.context(QUERY, access=ACCESS, budget=1_000).receipt.rejected
    assert (before[0], "evicted") in [(each.address, each.reason) for each in rejected]
    with Memory.open(memory.root, settings=memory.settings) as again:
        assert shown(again) == after
        assert coffee not in shown(again, "weather in Lisbon")
        shown(again, "weather in Lisbon", commit=True)  # the task has changed
        assert coffee not in shown(again)
    other = memory.context(QUERY, access=Access(session="s1", vp="bob"), budget=1_000)
    assert coffee not in other.text


def test_after_the_first_time_it_is_asked_only_for_a_reason(memory: Memory) -> None:
    calls: list[int] = []

    def count(ids: list[str]) -> dict[str, object]:
        calls.append(1)
        return {"add": [], "evict": []}

    assert run(memory, saying(count)).cause == "first"
    assert run(memory, saying(count)).cause == "not-due"
    assert run(memory, saying(count), wrote_memory=True).cause == "new-memory"
    assert len(calls) == 2


def test_a_model_sees_and_names_only_what_the_access_may_see(memory: Memory) -> None:
    seen: list[str] = []
    foreign = memory.list("sessions/s2")[0].address

    def peek(ids: list[str]) -> dict[str, object]:
        seen.extend(ids)
        return {"add": [foreign], "evict": []}

    found = run(memory, saying(peek))
    assert foreign not in seen and seen
    assert found.correction.ignored_count == 1
    assert foreign not in shown(memory)


@pytest.mark.parametrize(
    "answer", ["", "not JSON", ModelError("unavailable", "gone"), RuntimeError("bug")]
)
def test_a_failure_changes_nothing_and_the_first_time_stays_open(
    memory: Memory, answer: str | Exception
) -> None:
    def fail(request: Request) -> str:
        if isinstance(answer, Exception):
            raise answer
        return answer

    before = shown(memory)
    found = run(memory, FunctionModel(fail))
    assert not found.ran and found.failure
    assert shown(memory) == before
    assert run(memory, saying(lambda _: {"add": [], "evict": []})).cause == "first"


def test_a_model_that_never_answers_costs_its_time_out_and_is_not_listened_to_later(
    memory: Memory,
) -> None:
    release = threading.Event()
    done = threading.Event()

    def late(request: Request) -> str:
        release.wait(30)
        done.set()
        return json.dumps({"add": [], "evict": [str(document(request)["segments"][0]["id"])]})

    prepared = adjusting.Prepared(
        "first", adjust.ask("q", "a", [record(1)], (), count=COUNT)[0], frozenset(), ""
    )
    found = adjusting.consult(FunctionModel(late), prepared, time_out_s=0.1)
    assert not found.ran and "0.1 s" in found.failure
    before = shown(memory)
    release.set()
    assert done.wait(10)
    assert shown(memory) == before
    assert adjust.TIME_OUT_S == 30


def test_other_threads_recall_while_a_model_thinks(memory: Memory) -> None:
    order = itertools.count()
    times: dict[str, int] = {}

    def slow(request: Request) -> str:
        worker = threading.Thread(
            target=lambda: (memory.recall("coffee"), times.update(recall=next(order)))
        )
        worker.start()
        worker.join(20)
        times["answer"] = next(order)
        return '{"add": [], "evict": []}'

    assert run(memory, FunctionModel(slow)).ran
    assert times["recall"] < times["answer"]


def test_without_a_model_nothing_happens(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("H2AMS_MODEL", raising=False)
    block = memory.context(QUERY, access=ACCESS)
    assert memory.adjust(QUERY, block, access=ACCESS).cause == "not-due"


def test_bodies_are_never_edited(memory: Memory) -> None:
    files = {p: p.read_bytes() for p in Path(memory.root).rglob("*.md")}
    run(memory, saying(lambda ids: {"add": ids[:3], "evict": ids[3:6], "body": "x"}))
    assert files == {p: p.read_bytes() for p in Path(memory.root).rglob("*.md")}
