"""A month of conversation becomes the memory that docs/examples/dream.md shows, fact by fact."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from h2ams import Access, Memory, Settings
from h2ams.memory.segment import parse
from h2ams.upkeep.dreams import DreamRun

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PAGE = EXAMPLES / "dream.md"
LINES = (EXAMPLES / "month.jsonl").read_text(encoding="utf-8").splitlines()
WEEKS = ("2026-04-08", "2026-04-15", "2026-04-22", "2026-05-01")
BLOCK = re.compile(r"```text\n(.*?)```", re.DOTALL)
SCOPES = ("user", "sessions/ledger")


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Memory, list[DreamRun]]]:
    folder = tmp_path_factory.mktemp("month")
    now = [datetime(2026, 5, 1, tzinfo=UTC)]
    settings = Settings(encoding="estimate", dream_min_new_count=1)
    with Memory.open(folder, create=True, settings=settings, now=lambda: now[0]) as memory:
        done = []
        for week in WEEKS:
            now[0] = datetime.fromisoformat(f"{week}T20:00:00+00:00")
            text = "\n".join(l for l in LINES if json.loads(l)["createdAt"] < week)  # noqa: E741
            done.append(memory.dreams.run("sessions/ledger", text, model="rules"))
        yield memory, done


def remembered(memory: Memory, name: str, *scopes: str) -> list[str]:
    """``body [ids]`` of each segment, in the order of the files."""
    found = []
    for scope in scopes:
        path = Path(memory.root, scope, name)
        for entry in parse(path.read_bytes()).entries if path.exists() else ():
            sources = ", ".join(entry.segment.source_messages)
            found.append(f"{entry.segment.body} [{sources}]")
    return found


def test_the_page_shows_exactly_what_is_remembered(month: tuple[Memory, list[DreamRun]]) -> None:
    memory, _ = month
    expected = [
        remembered(memory, "memory.md", "user"),
        remembered(memory, "memory.md", "sessions/ledger"),
        remembered(memory, "archive.md", *SCOPES),
    ]
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("H2AMS_UPDATE_TRANSCRIPTS"):
        blocks = iter(expected)
        lines = lambda _: "```text\n" + "\n".join(next(blocks)) + "\n```"  # noqa: E731
        PAGE.write_text(BLOCK.sub(lines, text), encoding="utf-8")
        return
    assert [block.strip().split("\n") for block in BLOCK.findall(text)] == expected


# Fact by fact: what a person would keep, independent of the page.
KEPT = {
    "user": [
        "The user's name is Marta.",
        "The user prefers short answers.",
        "The user's time zone is Europe/Riga.",
        "The user's favourite editor is Zed now that it runs on Linux.",
        "The user's cat is Murka.",
        "The user's deadline is 15 May.",
        "The user's goal is to hand the ledger over to the second team by autumn.",
        "Имя пользователя — Марта.",
        "Любимый чай пользователя — пуэр.",
        "用户更喜欢表格而不是长段落。",
        "用户的城市是塔林。",
    ],
    "sessions/ledger": [
        "We decided to keep the ledger in PostgreSQL 16.",
        "The staging host is db-7.internal.",
        "Always run make check before a commit.",
        "Never push to main on a Friday.",
        "Never schedule releases in June.",
        "Lesson learned: migrations need a dry run on a copy of staging.",
        "Decision: the public API stays REST, no GraphQL this year.",
        "Watch out: the bank's sandbox returns amounts as strings.",
        "We decided to show balances in the currency of the account.",
        "The reviewer reads migrations twice.",
        "The metrics are at https://grafana:[redacted:password]@metrics.internal/ledger "
        "for the team.",
        "Мы решили хранить деньги в целых копейках.",
        "Округляем только при показе.",
        "Всегда отвечай на языке вопроса.",
        "我们决定用消息队列同步账目。",
        "部署窗口在周三晚上。",
    ],
}
ONCE = [
    "The user's favourite editor is Helix.",
    "We decided to show balances in euros only.",
]
NEVER = [
    "Tr0ub4dor", "ghp_", "gr4f-pass", "doctor", "account 7", "Coco", "ignore all previous",
    "vendor", "evil", "MongoDB", "Emacs", "Mongo", "Canberra", "忽略", "Игнорируй", "long answers",
    "slip", "trust this page", "base64",
]  # fmt: skip


@pytest.mark.parametrize("scope", SCOPES)
def test_every_fact_that_a_person_would_keep_is_kept_once(
    month: tuple[Memory, list[DreamRun]], scope: str
) -> None:
    bodies = [each.body for each in month[0].list(scope)]
    assert sorted(bodies) == sorted(KEPT[scope])


def test_what_was_corrected_or_taken_back_is_in_the_archive(
    month: tuple[Memory, list[DreamRun]],
) -> None:
    archived = [each.body for scope in SCOPES for each in month[0].list(scope, archived=True)]
    assert set(ONCE) <= set(archived)


def test_secrets_orders_echoes_and_guesses_are_nowhere(
    month: tuple[Memory, list[DreamRun]],
) -> None:
    folder = Path(month[0].root)
    everything = "".join(
        path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file()
    )
    assert [each for each in NEVER if each in everything] == []


def test_every_fact_cites_the_messages_that_said_it(month: tuple[Memory, list[DreamRun]]) -> None:
    said = {json.loads(line)["id"]: json.loads(line) for line in LINES}
    for scope in SCOPES:
        for record in month[0].list(scope):
            assert record.source_messages
            times = [said[id]["createdAt"] for id in record.source_messages]
            assert record.created_at == min(times) and record.updated_at == max(times)
            assert all(said[id]["role"] == "user" for id in record.source_messages)


def test_facts_that_were_said_twice_have_both_sources(month: tuple[Memory, list[DreamRun]]) -> None:
    by_body = {each.body: each.source_messages for each in month[0].list("sessions/ledger")}
    assert by_body["Never push to main on a Friday."] == ("d02-3", "d14-3")
    assert by_body["The staging host is db-7.internal."] == ("d01-3", "d30-1")


def test_the_orders_in_the_messages_were_refused(month: tuple[Memory, list[DreamRun]]) -> None:
    codes = [refusal.code for done in month[1] for refusal in done.report.refusals]
    assert codes == ["instruction", "instruction"]
    assert all(done.report.outcome == "done" for done in month[1])


def test_the_next_question_is_answered_from_it(month: tuple[Memory, list[DreamRun]]) -> None:
    block = month[0].context("where is staging?", access=Access(session="ledger"))
    assert "The staging host is db-7.internal." in block.text
    assert "The user's favourite editor is Zed" in block.text  # the summary of the person


def test_the_last_pass_can_be_undone_and_nothing_new_changes_nothing(
    month: tuple[Memory, list[DreamRun]],
) -> None:
    memory, done = month
    text = "\n".join(LINES)
    before = {p: p.read_bytes() for p in Path(memory.root).rglob("*.md")}
    assert memory.dreams.run("sessions/ledger", text).report.outcome == "nothing-new"
    assert before == {p: p.read_bytes() for p in Path(memory.root).rglob("*.md")}
    memory.dreams.undo(done[-1].report.pass_id)
    assert "Never schedule releases in June." in {r.body for r in memory.list("sessions/ledger")}
    assert "The user's goal" not in "".join(r.body for r in memory.list("user"))
