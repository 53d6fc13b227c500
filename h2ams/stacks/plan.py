"""What each operation writes, as a value: one projection of store and log (Pure).

A plan is made from a stack as it was read, and says which keys are set and deleted. Every stack's
state record changes with its stack and holds a digest of it (``State.head``), so a projection
expects that record unchanged: whatever else happened to the stack meanwhile makes it fail whole.
All plans are linear in what they read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from h2ams.errors import StoreError, UsageError
from h2ams.stacks import canonical
from h2ams.stacks.exchange import (
    Attempt,
    Chunk,
    Exchange,
    Names,
    Round,
    Stack,
    State,
    Summary,
    chained,
    to_json,
)
from h2ams.stacks.scenes import Archive, Prefixes, check_rounds, conversation

CHUNK_CHARS = 8_192  # a rebuild fills a chunk up to this canonical length


@dataclass(frozen=True, slots=True)
class Projection:
    """``changes``: key to JSON, None deletes. ``expect``: what those keys must hold before."""

    changes: Mapping[str, str | None] = field(repr=False)
    expect: Mapping[str, str | None] = field(repr=False)

    def joined(self, other: Projection) -> Projection:
        """Both in one projection; they touch different stacks."""
        return Projection({**self.changes, **other.changes}, {**self.expect, **other.expect})


def read_state(text: str | None) -> State:
    """The state record, or that of a stack without one."""
    return State() if text is None else State.of(text)


def append(
    names: Names,
    before: str | None,
    exchanges: Sequence[Exchange],
    *,
    last_round: str = "",
    retry: Sequence[str] = (),
    attempt: Attempt | None = None,
    next_archive: int | None = None,
) -> Projection:
    """One new chunk with ``exchanges`` behind the stack whose state record is ``before``.

    The cost is that of the new exchanges. ``retry`` names rounds whose compression is due.
    """
    state = read_state(before)
    chunk = Chunk(state.next_chunk, tuple(exchanges))
    text = chunk.json()
    after = replace(
        state,
        chars=state.chars + sum(map(canonical.exchange_chars, exchanges)),
        exchanges=state.exchanges + len(exchanges),
        next_chunk=state.next_chunk + 1,
        head=chained(state.head, str(chunk.number), text),
        last_round=last_round or state.last_round,
        retry=tuple(dict.fromkeys((*state.retry, *retry))),
        attempt=attempt,
        next_archive=state.next_archive if next_archive is None else next_archive,
    )
    return Projection(
        {names.chunk(chunk.number): text, names.state: after.json()}, {names.state: before}
    )


def record_attempt(names: Names, before: str, attempt: Attempt | None) -> Projection:
    """Only what is remembered of attempts changes."""
    after = replace(State.of(before), attempt=attempt).json()
    return Projection({names.state: after}, {names.state: before})


def replaced(
    stack: Stack, summary: Summary | None, chunks: Sequence[Chunk], state: State
) -> Projection:
    """Make ``stack`` hold ``summary`` and ``chunks``; what stays is not written again.

    ``state`` gives all that does not follow from the content.
    """
    names = stack.names
    before = {chunk.number: chunk for chunk in stack.chunks}
    kept = {chunk.number for chunk in chunks}
    changes: dict[str, str | None] = {
        names.chunk(number): None for number in before if number not in kept
    }
    head = ""
    if summary is not None:
        head = chained(head, "summary", summary.json())
        changes[names.summary] = summary.json()
    elif stack.summary is not None:
        changes[names.summary] = None
    for chunk in chunks:
        text = chunk.json()
        head = chained(head, str(chunk.number), text)
        if before.get(chunk.number) != chunk:
            changes[names.chunk(chunk.number)] = text
    exchanges = [each for chunk in chunks for each in chunk.exchanges]
    after = replace(
        state,
        chars=canonical.chars_of(summary, exchanges),
        exchanges=len(exchanges),
        next_chunk=max(state.next_chunk, chunks[-1].number + 1 if chunks else 1),
        head=head,
    )
    changes[names.state] = after.json()
    expected = None if stack.state is None else stack.state.json()
    return Projection(changes, {names.state: expected})


# -- compression ---------------------------------------------------------------------------------


def represented(stack: Stack, count: int) -> tuple[tuple[Chunk, ...], tuple[Chunk, ...], bool]:
    """The chunks of the first ``count`` exchanges, those after them, and whether one was split.

    The two parts of a split chunk have its number.
    """
    gone: list[Chunk] = []
    left: list[Chunk] = []
    split = False
    for chunk in stack.chunks:
        size = len(chunk.exchanges)
        if count >= size:
            gone.append(chunk)
        elif count > 0:
            gone.append(Chunk(chunk.number, chunk.exchanges[:count]))
            left.append(Chunk(chunk.number, chunk.exchanges[count:]))
            split = True
        else:
            left.append(chunk)
        count = max(0, count - size)
    return tuple(gone), tuple(left), split


def prefix_sha256(stack: Stack, count: int) -> str:
    """SHA-256 of the canonical text of the summary and the first ``count`` exchanges."""
    text = canonical.text_of(stack.summary, stack.exchanges[:count])
    return canonical.sha256_of(text)


def publish(stack: Stack, summary: Summary) -> Projection:
    """The summary in, the ``summary.exchanges`` exchanges that it represents out."""
    assert stack.state is not None
    gone, left, _ = represented(stack, summary.exchanges)
    included = {each.round_id for chunk in gone for each in chunk.exchanges if not each.synthetic}
    state = replace(
        stack.state,
        retry=tuple(each for each in stack.state.retry if each not in included),
        attempt=None,
    )
    return replaced(stack, summary, left, state)


# -- cold copies ---------------------------------------------------------------------------------


def cold_text(stack: Stack, count: int, call_id: str) -> str:
    """What a cold copy holds: the summary and the first ``count`` exchanges, exactly."""
    gone, _, split = represented(stack, count)
    return to_json(
        {
            "callId": call_id,
            "sha256": prefix_sha256(stack, count),
            "summary": None if stack.summary is None else stack.summary.json(),
            "chunks": [[chunk.number, chunk.json()] for chunk in gone],
            "split": split,
        }
    )


def unfolded(stack: Stack, cold: str) -> Stack:
    """``stack`` with its summary replaced by what it stands for, as the cold copy ``cold`` says.

    ``StoreError`` where the copy is not of this summary or not what was represented (SHA-256).
    """
    assert stack.summary is not None
    record = json.loads(cold)
    old = None if record["summary"] is None else Summary.of(record["summary"])
    chunks = [Chunk.of(number, text) for number, text in record["chunks"]]
    exchanges = [each for chunk in chunks for each in chunk.exchanges]
    found = canonical.sha256_of(canonical.text_of(old, exchanges))
    if found != stack.summary.sha256 or record["callId"] != stack.summary.call_id:
        raise StoreError(f"cold copy of call {stack.summary.call_id}: its SHA-256 does not fit")
    behind = list(stack.chunks)
    if record["split"] and behind and behind[0].number == chunks[-1].number:
        rest = behind.pop(0)
        chunks[-1] = Chunk(rest.number, chunks[-1].exchanges + rest.exchanges)
    return Stack(stack.names, stack.state, old, (*chunks, *behind))


def restore(stack: Stack, whole: Stack) -> Projection:
    """Put ``whole``, unfolded from ``stack``, in its place."""
    assert stack.state is not None
    state = replace(stack.state, attempt=None)
    return replaced(stack, whole.summary, whole.chunks, state)


# -- reconstruction ------------------------------------------------------------------------------


def packed(exchanges: Sequence[Exchange], *, chunk_chars: int = CHUNK_CHARS) -> list[Chunk]:
    """``exchanges`` in chunks from number 1 on: the same ones always give the same chunks."""
    chunks: list[Chunk] = []
    waiting: list[Exchange] = []
    chars = 0
    for each in exchanges:
        size = canonical.exchange_chars(each)
        if waiting and chars + size > chunk_chars:
            chunks.append(Chunk(len(chunks) + 1, tuple(waiting)))
            waiting, chars = [], 0
        waiting.append(each)
        chars += size
    if waiting:
        chunks.append(Chunk(len(chunks) + 1, tuple(waiting)))
    return chunks


@dataclass(frozen=True, slots=True)
class Scene:
    """A running scene as a rebuild needs it: its keys and its state record."""

    names: Names
    keys: tuple[str, ...]
    state: str


def rebuild(
    game: Stack,
    rounds: Sequence[Round],
    archives: Sequence[Archive],
    scenes: Sequence[Scene],
    prefixes: Prefixes,
) -> Projection:
    """The game as ``rounds`` and the outcomes at them give it; what belongs to others goes.

    The game's content afterwards depends on ``rounds`` and the archives alone.
    """
    places = check_rounds(rounds)
    kept = [each for each in archives if each.round_id in places]
    chunks = packed(conversation(rounds, kept))
    old = game.state or State()
    text = canonical.text_of(None, (each for chunk in chunks for each in chunk.exchanges))
    same = old.attempt is not None and old.attempt.sha256 == canonical.sha256_of(text)
    state = State(
        last_round=rounds[-1].id if rounds else "",
        retry=tuple(each for each in old.retry if each in places),
        attempt=old.attempt if same else None,
        next_archive=1 + max((each.number for each in kept), default=0),
    )
    projection = replaced(game, None, chunks, state)
    changes = dict(projection.changes)
    for each in archives:
        if each.round_id not in places:
            changes[prefixes.archive(each.number)] = None
    expect = dict(projection.expect)
    for scene in scenes:
        expect[scene.names.state] = scene.state
        if State.of(scene.state).round_id not in places:
            changes.update(dict.fromkeys(scene.keys))
    return Projection(changes, expect)


# -- scenes --------------------------------------------------------------------------------------


def begin_scene(names: Names, scene_id: str, round_id: str) -> Projection:
    """An empty stack for the scene; there must be none."""
    if not round_id:
        raise UsageError(
            "scene: the game has no round yet at which it could stand", hint="give round_id"
        )
    state = State(scene_id=scene_id, round_id=round_id)
    return Projection({names.state: state.json()}, {names.state: None})


def end_scene(
    scene: Scene, game: Names, before: str | None, archive: Archive, prefixes: Prefixes
) -> Projection:
    """Outcome into the game, record into the archive, the scene's stack away: one projection."""
    outcome = append(
        game,
        before,
        [archive.outcome()],
        next_archive=archive.number + 1,
    )
    changes: dict[str, str | None] = {**dict.fromkeys(scene.keys), **outcome.changes}
    changes[prefixes.archive(archive.number)] = archive.json()
    return Projection(changes, {**outcome.expect, scene.names.state: scene.state})


# -- what a transition would do ------------------------------------------------------------------

Trigger = Literal["threshold", "retry", "forced", "none", "exhausted"]


@dataclass(frozen=True, slots=True)
class TransitionPlan:
    """What a transition would do now, without a call.

    ``chars`` and ``threshold_chars`` measure the canonical text, ``exchanges`` would be submitted.
    ``before_bytes`` is the footprint; ``least_bytes`` what it would be with everything represented
    by a summary of one character.
    """

    trigger: Trigger
    chars: int
    threshold_chars: int
    exchanges: int
    tries: int
    before_bytes: int
    least_bytes: int
    quota_bytes: int

    @property
    def calls(self) -> bool:
        """Whether the compressor would be called."""
        return self.trigger in ("threshold", "retry", "forced")

    @property
    def summary_room_bytes(self) -> int:
        """Bytes that a summary may add before the quota refuses it."""
        return self.quota_bytes - self.least_bytes


def emptied(stack: Stack) -> Projection:
    """The publication of a summary of one character that represents every exchange."""
    count = len(stack.exchanges)
    chars = canonical.chars_of(stack.summary, stack.exchanges)
    covers = count if stack.summary is None else stack.summary.covers + count
    return publish(stack, Summary("-", "0" * 32, "0" * 64, count, chars, covers, "-" * 29))


def trigger_of(state: State, *, threshold_chars: int, forced: bool, exhausted: bool) -> Trigger:
    """Why a transition would call the compressor, or why not."""
    if not state.exchanges:
        return "none"
    if state.retry:
        return "retry"
    if forced:
        return "forced"
    if state.chars < threshold_chars:
        return "none"
    return "exhausted" if exhausted else "threshold"
