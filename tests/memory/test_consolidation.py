"""What a scope holds after changes: merged, bounded, and nothing lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.memory.consolidation import Consolidated, Held, consolidate, says_the_same
from h2ams.memory.extraction import Known
from h2ams.memory.scope import parse_scope
from h2ams.memory.segment import Segment
from h2ams.memory.validation import Change

USER = parse_scope("user")
NOW = "2026-05-09T00:00:00Z"
LONG = (
    "The ledger service keeps its postings in PostgreSQL and sends a copy to the archive bucket "
    "every night at two."
)


def add(body: str, source: str = "m1", **more: object) -> Change:
    values: dict[str, object] = {"kind": "fact", "tags": (), "created_at": "2026-05-01T00:00:00Z"}
    values |= {"updated_at": values["created_at"], **more}
    return Change("add", USER, body=body, source_messages=(source,), **values)  # type: ignore[arg-type]


def held(*bodies: str, **more: object) -> list[Held]:
    return [
        Held(
            f"seg_{n}",
            Segment(
                body=body,
                id=f"seg_{n}",
                scope="user",
                kind="fact",
                source_messages=(f"old{n}",),
                created_at=f"2026-04-{n + 1:02}T00:00:00Z",
                updated_at=f"2026-04-{n + 1:02}T00:00:00Z",
                **more,  # type: ignore[arg-type]
            ),
        )
        for n, body in enumerate(bodies)
    ]


def done(
    before: list[Held], *changes: Change, archive: tuple[Held, ...] = (), most: int = 512
) -> Consolidated:
    return consolidate("user", before, archive, changes, now=NOW, most_count=most, most_chars=2_000)


def bodies(found: Consolidated) -> list[str]:
    return [each.segment.body for each in found.after]


def seen(one: Held) -> Known:
    return Known(one.id, one.segment.kind, one.segment.tags, one.segment.body)


def test_a_new_fact_is_added_with_the_times_of_its_messages() -> None:
    (made,) = done([], add("Tea is at five.")).added
    assert (made.created_at, made.source_messages) == ("2026-05-01T00:00:00Z", ("m1",))
    undated = replace(add("Tea is at five."), created_at=None, updated_at=None)
    assert done([], undated).added[0].created_at == NOW


@pytest.mark.parametrize("again", ["Tea is at five.", "tea is at FIVE", "- Tea is at five"])
def test_an_equal_fact_unites_the_sources_and_keeps_id_and_creation(again: str) -> None:
    found = done(held("Tea is at five."), add(again))
    assert not found.added
    made = found.replaced["seg_0"]
    assert (made.body, made.source_messages) == ("Tea is at five.", ("old0", "m1"))
    assert (made.id, made.created_at, made.updated_at) == (
        "seg_0",
        "2026-04-01T00:00:00Z",
        "2026-05-01T00:00:00Z",
    )


def test_a_fact_that_says_nothing_new_from_the_same_message_changes_nothing() -> None:
    found = done(held("Tea is at five."), add("Tea is at five.", "old0"))
    assert not found.changes and found.skipped_count == 1


def test_the_more_detailed_text_wins_and_the_other_goes_to_the_archive() -> None:
    longer = f"{LONG} The job is called night-copy."
    found = done(held(LONG), add(longer))
    assert bodies(found) == [longer]
    assert [segment.body for _, segment in found.archived] == [LONG]
    found = done(held(longer), add(LONG))
    assert bodies(found) == [longer] and not found.archived
    assert found.replaced["seg_0"].source_messages == ("old0", "m1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LONG, LONG.replace("two", "2 o'clock")),
        (LONG, LONG.replace("keeps", "never keeps")),
        (f"{LONG} Port 5432.", f"{LONG} Port 5433."),
        ("Tea is at five.", "Tea is at six."),
        ("Чай в пять.", "Чай не в пять."),
    ],
)
def test_texts_that_differ_in_a_number_or_a_denial_are_two_facts(one: str, other: str) -> None:
    assert not says_the_same(one, other)
    assert bodies(done(held(one), add(other))) == [one, other]


def test_an_update_keeps_the_old_text_in_the_archive() -> None:
    before = held("Tea is at four.")
    change = Change(
        "update", USER, seen(before[0]), body="Tea is at five.", source_messages=("m1",)
    )
    found = done(before, change)
    assert bodies(found) == ["Tea is at five."]
    ((_, old),) = found.archived
    assert (old.body, old.tags) == ("Tea is at four.", ("superseded",))
    assert old.id != "seg_0"
    assert found.replaced["seg_0"].source_messages == ("old0", "m1")


def test_a_retired_text_goes_to_the_archive_under_its_id() -> None:
    before = held("Tea is at four.", "Coffee at ten.")
    found = done(before, Change("retire", USER, seen(before[0])))
    assert bodies(found) == ["Coffee at ten."]
    assert found.removed == ("seg_0",)
    assert found.archived[0][1].id == "seg_0"


def test_text_that_somebody_changed_meanwhile_stays() -> None:
    before = held("Tea is at four.")
    edited = [replace(before[0], segment=replace(before[0].segment, body="Tea is at three."))]
    update = Change(
        "update", USER, seen(before[0]), body="Tea is at five.", source_messages=("m1",)
    )
    found = done(edited, update)
    assert bodies(found) == ["Tea is at three.", "Tea is at five."]
    assert found.added[0].tags == ("conflict",) and found.conflicts == (found.added[0].id,)
    found = done(edited, Change("retire", USER, seen(before[0])))
    assert not found.changes and found.missed_count == 1


def test_what_may_not_be_rewritten_stays_as_it_is() -> None:
    before = [replace(each, fixed=True) for each in held("Tea is at four.")]
    update = Change("update", USER, seen(before[0]), body="Tea is at five.", source_messages=("m",))
    found = done(before, add("Tea is at four."), update, Change("retire", USER, seen(before[0])))
    assert not found.changes


def test_what_the_archive_has_from_the_same_message_is_not_learned_again() -> None:
    before = held("Tea is at four.")
    update = Change(
        "update", USER, seen(before[0]), body="Tea is at five.", source_messages=("m1",)
    )
    first = done(before, update)
    archive = tuple(Held(segment.id, segment) for _, segment in first.archived)
    found = done(list(first.after), add("Tea is at four.", "old0"), archive=archive)
    assert not found.changes
    later = done(list(first.after), add("Tea is at four.", "m7"), archive=archive)
    assert bodies(later) == ["Tea is at five.", "Tea is at four."]  # said again: true again


def test_past_the_bound_the_oldest_of_one_kind_become_one() -> None:
    before = held(*(f"Fact number {n} about the tea room." for n in range(6)))
    found = done(before, add("Something quite new."), most=6)
    assert len(found.after) == 6
    assert found.merged and not found.archived
    text = "\n".join(bodies(found))
    assert all(each.segment.body in text for each in before)
    again = done(list(found.after), add("fact number 0 about the tea room", "m8"), most=6)
    assert len(again.after) == 6 and not again.added  # a line of a merged segment is known


def test_what_cannot_be_merged_goes_to_the_archive() -> None:
    before = held(*(f"{n} " + "x" * 1_500 for n in range(3)))
    found = done(before, add("y " * 900), most=3)
    assert len(found.after) == 3
    assert [segment.body for _, segment in found.archived] == [before[0].segment.body]


def test_a_scope_that_has_not_grown_is_not_made_smaller() -> None:
    before = held(*(f"Fact number {n}." for n in range(6)))
    assert not done(before, add("Fact number 3.", "old3"), most=3).changes


FACTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.integers(0, 9), st.booleans()), min_size=1, max_size=30
)


@given(FACTS, st.integers(1, 8))
def test_no_fact_is_lost_no_bound_broken_and_twice_is_once(
    facts: list[tuple[str, int, bool]], most: int
) -> None:
    before: list[Held] = []
    archive: list[Held] = []
    said: set[str] = set()
    for number, (topic, value, update) in enumerate(facts):
        body = f"The {topic} is {value}."
        old = next((each for each in before if each.segment.body.startswith(f"The {topic}")), None)
        change = add(body, f"m{number}")
        if update and old is not None and "\n" not in old.segment.body:
            change = Change("update", USER, seen(old), body=body, source_messages=(f"m{number}",))
        said.add(body)
        found = done(before, change, archive=tuple(archive), most=most)
        assert found == done(before, change, archive=tuple(archive), most=most)
        before = list(found.after)
        archive += [Held(segment.id, segment) for _, segment in found.archived]
        assert len(before) <= most
        ids = [each.id for each in (*before, *archive)]
        assert len(ids) == len(set(ids))
        again = done(before, change, archive=tuple(archive), most=most)
        if change.name == "add":
            assert not again.added
    text = "\n".join(each.segment.body for each in (*before, *archive))
    assert all(body in text for body in said)
