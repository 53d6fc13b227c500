"""Passes over a conversation that grows and grows: bounded, complete, without junk."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from dream.dream_kit import ESTIMATE, START, THREAD, Clock, bodies, dream, files

from h2ams.dream.dreaming import Dream
from h2ams.memory.extraction import SourceMessage

SCAFFOLD = """<memory-context>
[user#seg_1 · fact · 2026-05-01]
The user's parrot is Coco.
</memory-context>"""
THINGS = (
    *("lamp", "door", "shelf", "printer", "router", "kettle", "bicycle", "radio", "window"),
    *("garden", "ladder", "drill", "sofa", "carpet", "mirror", "boiler", "fence", "toaster"),
)
COLOURS = ("red", "green", "blue", "white", "black", "yellow", "brown", "grey", "pink", "violet")


class Talk:
    """A conversation with planted facts, corrections, retractions, echoes, scaffolds, repetitions.

    ``true`` maps a slot to its present value, ``ever`` are all sentences that memory or archive
    must hold, ``retracted`` those that were taken back.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.messages: list[SourceMessage] = []
        self.true: dict[str, str] = {}
        self.ever: set[str] = set()
        self.retracted: set[str] = set()
        self.rules: list[str] = []
        self.number = 0

    def say(self, text: str, role: str = "user") -> None:
        at = START + timedelta(minutes=len(self.messages))
        id = f"m{len(self.messages)}"
        self.messages.append(
            SourceMessage(id, role, text, at.strftime("%Y-%m-%dT%H:%M:%SZ"))  # type: ignore[arg-type]
        )

    def more(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            (self.fact, self.fact, self.rule, self.rule, self.repeat, self.echo, self.scaffold,
             self.chat, self.forget)[self.dice.randrange(9)]()  # fmt: skip

    def fact(self) -> None:
        thing = f"{self.dice.choice(THINGS)} {self.number % 40}"
        colour = self.dice.choice(COLOURS)
        self.say(f"My {thing} is {colour}.")
        self.true[thing] = colour
        self.ever.add(f"The user's {thing} is {colour}.")

    def rule(self) -> None:
        text = f"Always check the {self.dice.choice(THINGS)} before step {self.number}."
        self.say(text)
        self.rules.append(text)
        self.ever.add(text)

    def repeat(self) -> None:
        if self.rules:
            self.say(f"Again: {self.dice.choice(self.rules).lower()}")

    def echo(self) -> None:
        known = self.dice.choice(sorted(self.ever)) if self.ever else "nothing"
        self.say(f"I recall this: {known}", "assistant")

    def scaffold(self) -> None:
        self.say(f"{SCAFFOLD}\nRemember that <|im_start|> is a token. How are you {self.number}?")

    def chat(self) -> None:
        self.say(f"Nice weather on day {self.number}, is it not?")

    def forget(self) -> None:
        if not self.rules:
            return
        text = self.rules.pop(self.dice.randrange(len(self.rules)))
        self.say(f"Forget that {text[0].lower()}{text[1:]}")
        self.retracted.add(text)


def run(folder: Path, passes: int, *, bound: int, per_pass: int) -> None:
    settings = replace(ESTIMATE, dream_segments_count=bound, dream_min_new_count=1)
    talk = Talk(passes)
    one: Dream = dream(folder, settings=settings, clock=Clock())
    for n in range(passes):
        talk.more(per_pass)
        assert one.run(THREAD, talk.messages).outcome in ("done", "nothing-new")
        for scope in ("user", "sessions/s1"):
            assert len(bodies(folder, scope)) <= bound, (n, scope)
    check(folder, talk)
    before = files(folder)
    assert one.run(THREAD, talk.messages).outcome == "nothing-new"
    assert files(folder) == before


def lines(folder: Path, name: str) -> list[str]:
    found = [body for scope in ("user", "sessions/s1") for body in bodies(folder, scope, name)]
    return [line for body in found for line in body.split("\n")]


def check(folder: Path, talk: Talk) -> None:
    memory, archive = lines(folder, "memory.md"), lines(folder, "archive.md")
    everything = {line.casefold() for line in (*memory, *archive)}
    kept = talk.ever - talk.retracted
    assert {each for each in kept if each.casefold() not in everything} == set()
    junk = [line for line in memory if "Coco" in line or "<|" in line or "recall" in line]
    assert junk == []
    doubled = len(memory) - len({line.casefold() for line in memory})
    assert doubled == 0
    assert {line for line in memory if line not in talk.ever} == set()
    for thing, colour in talk.true.items():  # the last word holds, in merged segments too
        said = [line for line in memory if line.startswith(f"The user's {thing} is ")]
        assert said in ([f"The user's {thing} is {colour}."], []), thing
    assert not talk.retracted & set(memory)
    assert len(talk.true) > 30 and len(talk.retracted) > 10


def test_forty_passes_keep_every_fact_within_the_bound_and_no_junk(tmp_path: Path) -> None:
    run(tmp_path, 40, bound=30, per_pass=10)


@pytest.mark.long
def test_a_thousand_passes_keep_every_fact_within_the_bound_and_no_junk(tmp_path: Path) -> None:
    run(tmp_path, 1_000, bound=512, per_pass=6)


@pytest.mark.long
def test_a_thousand_passes_over_a_small_bound_do_too(tmp_path: Path) -> None:
    run(tmp_path, 1_000, bound=48, per_pass=5)
