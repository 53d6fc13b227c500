"""Random operations with a compressor that behaves anyhow, against a model of a few lines.

The model knows texts and counts, no keys, no JSON and no log. After each step: exact alternation;
canonical text as the model has it; never neither prefix nor summary; the footprint as recomputed
and within the quota; the log replays to the store; nothing private in the game or in requests.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from stacks import kit

from h2ams.errors import ConflictError, QuotaExceeded
from h2ams.stacks import canonical, quota
from h2ams.stacks.cold import ColdCopies
from h2ams.stacks.compress import Compressed, CompressRequest, CompressResult, Outcome
from h2ams.stacks.exchange import Round
from h2ams.stacks.log import replay
from h2ams.stacks.postgres_store import PostgresWorkflowStore
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.workflow_store import Snapshot, TransactionalStore

# Logic is tested here, not durability: a disk that takes its time for each commit would only wait.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
PRIVATE = "SCENEPRIVATE"
HIDDEN = "NEVERREVEALED"
GAME = None
QUOTA = 9_000
LIMITS = kit.replace(kit.SMALL, stack_game_chars=250, stack_catalyst_chars=130)
THRESHOLDS = {True: LIMITS.stack_game_chars, False: LIMITS.stack_catalyst_chars}

WORDS = st.sampled_from(
    ["", "plain", "[user 3]\nabc\n\n", "\n\n", "émigré 😀", "w " * 30, "budget $800 id AB-12", "\0"]
)
SCENES = st.sampled_from(["s", "s.t"])
BEHAVIOURS = st.sampled_from(
    [
        *("good", "good", "partly", "refused", "failed", "raising", "empty", "echo", "over-cap"),
        *("over-claiming", "nothing", "foreign", "late-append", "late-edit", "late-rival"),
    ]
)
FAILURES = {
    "refused": "refused",
    "failed": "failed",
    "raising": "failed",
    "foreign": "failed",
    "empty": "empty",
    "echo": "not-smaller",
    "over-cap": "not-smaller",
    "over-claiming": "invalid-count",
    "nothing": "invalid-count",
}
PLAIN: dict[str, kit.Behaviour] = {
    "refused": kit.refused,
    "failed": kit.failed,
    "raising": kit.raising,
    "foreign": kit.foreign,
    "empty": kit.empty,
    "echo": kit.echo,
    "over-cap": kit.over_cap,
    "over-claiming": kit.over_claiming,
    "nothing": kit.counting_nothing,
}


@dataclass
class Said:
    """One exchange as the model knows it."""

    user: str
    assistant: str
    round_id: str
    outcome: bool = False


@dataclass
class Model:
    """One stack: a summary, and what is exact behind it."""

    summary: str | None = None
    exact: list[Said] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    tries: int = 0
    tried: str = ""  # the text that the tries were about
    at: str = ""  # a scene's round

    def text(self, count: int | None = None) -> str:
        found = "" if self.summary is None else f"[summary {len(self.summary)}]\n{self.summary}\n\n"
        for each in self.exact[:count]:
            found += f"[user {len(each.user)}]\n{each.user}\n\n"
            found += f"[assistant {len(each.assistant)}]\n{each.assistant}\n\n"
        return found

    def tries_now(self) -> int:
        return self.tries if self.tried == self.text() else 0


class Stacks(RuleBasedStateMachine):
    """One game in one store, restarted, copied and driven into its quota."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY))
        self.files = 0
        self.stacks: dict[str | None, Model] = {GAME: Model()}
        self.archives: list[tuple[str, Said]] = []
        self.rounds: list[Round] = []
        self.host: dict[str, str] = {}
        self.base: dict[str, str] = {}
        self.number = 0
        self.unsure = False  # a full store had no room for a record of attempts
        self.left: list[tuple[int, Snapshot]] = []
        self.requests: list[CompressRequest] = []
        self.call: Callable[[CompressRequest], CompressResult] = kit.good
        self.open()

    def open(self) -> None:
        self.store = self.store_of(self.files)
        self.cold = ColdCopies(self.folder / f"{self.files}.cold")
        ids = (f"call-{self.number}-{count:06d}" for count in range(10**6))
        self.bench = kit.bench(self.store, settings=LIMITS, cold=self.cold, ids=ids)
        self.bench.compressor.behaviour = self.called
        self.workflow = self.bench.workflow

    def store_of(self, number: int) -> TransactionalStore:
        return SqliteWorkflowStore(self.folder / f"{number}.db", quota_bytes=QUOTA)

    def called(self, request: CompressRequest) -> CompressResult:
        self.requests.append(request)
        return self.call(request)

    def round(self, words: str, more: str = "") -> Round:
        self.number += 1
        return Round(f"r{self.number}", f"ask {self.number} {words}", f"{more}say {words}")

    def within_quota(self, act: Callable[[], object]) -> bool:
        """Whether it was done; if it was refused for the quota, nothing has changed."""
        before = self.store.snapshot()
        try:
            act()
        except QuotaExceeded as error:
            refused = error
        else:
            return True
        assert refused.needed > QUOTA == refused.limit
        assert self.store.snapshot() == before
        event("refused for the quota")
        return False

    # -- ordinary life ---------------------------------------------------------------------------

    @rule(each=st.lists(WORDS, min_size=1, max_size=4))
    def append(self, each: list[str]) -> None:
        for words in each:
            self.append_one(self.round(words))

    def append_one(self, made: Round) -> None:
        if self.within_quota(lambda: self.workflow.append_round(made)):
            self.appended(GAME, made)

    def appended(self, key: str | None, made: Round) -> None:
        model = self.stacks[key]
        model.exact.append(Said(made.user, made.assistant, made.id))
        model.tries = 0
        if key is GAME:
            self.rounds.append(made)

    @rule(scene=SCENES)
    def begin_scene(self, scene: str) -> None:
        if scene in self.stacks:
            with pytest.raises(ConflictError):
                self.workflow.begin_scene(scene, round_id="r1")
        elif self.rounds and self.within_quota(lambda: self.workflow.begin_scene(scene)):
            self.stacks[scene] = Model(at=self.rounds[-1].id)

    @rule(scene=SCENES, each=st.lists(WORDS, min_size=1, max_size=3))
    def append_to_scene(self, scene: str, each: list[str]) -> None:
        for words in each if scene in self.stacks else []:
            self.append_one_to(scene, self.round(words, PRIVATE))

    def append_one_to(self, scene: str, made: Round) -> None:
        if self.within_quota(lambda: self.workflow.append_scene_round(scene, made)):
            self.appended(scene, made)

    @rule(scene=SCENES, words=WORDS)
    def end_scene(self, scene: str, words: str) -> None:
        if scene not in self.stacks:
            return
        self.number += 1
        closing, event = f"closing {self.number}", f"meanwhile {words}"
        at = self.rounds[-1].id if self.rounds else self.stacks[scene].at

        def act() -> None:
            self.workflow.end_scene(scene, closing_summary=closing, meanwhile_event=event)

        if self.within_quota(act):
            outcome = Said(closing, event, at, outcome=True)
            self.archives.append((scene, outcome))
            self.stacks[GAME].exact.append(outcome)
            self.stacks[GAME].tries = 0
            del self.stacks[scene]

    # -- reconstruction --------------------------------------------------------------------------

    @rule(keep=st.lists(st.booleans(), max_size=12), edited=st.booleans())
    def edit_history(self, keep: list[bool], edited: bool) -> None:
        self.rebuild(self.surviving(keep, edited), self.workflow.edit_history)

    @rule(share=st.floats(0, 1))
    def reset(self, share: float) -> None:
        self.rebuild(self.rounds[: int(share * len(self.rounds))], self.workflow.reset)

    def surviving(self, keep: list[bool], edited: bool) -> list[Round]:
        flags = [*keep, *[True] * len(self.rounds)]
        found = [each for each, kept in zip(self.rounds, flags, strict=False) if kept]
        if edited and found:
            found[0] = Round(found[0].id, f"{found[0].user}!", found[0].assistant)
        return found

    def rebuild(self, rounds: list[Round], act: Callable[[list[Round]], None]) -> None:
        calls = len(self.requests)
        if self.within_quota(lambda: act(rounds)):
            self.rebuilt(rounds)
        assert len(self.requests) == calls

    def rebuilt(self, rounds: list[Round]) -> None:
        ids = [each.id for each in rounds]
        self.rounds = list(rounds)
        self.archives = [each for each in self.archives if each[1].round_id in ids]
        for scene in [key for key in self.stacks if key is not GAME]:
            if self.stacks[scene].at not in ids:
                del self.stacks[scene]
        game = self.stacks[GAME]
        game.summary, game.exact = None, []
        for each in rounds:
            game.exact.append(Said(each.user, each.assistant, each.id))
            game.exact += [outcome for _, outcome in self.archives if outcome.round_id == each.id]
        game.flagged = [each for each in game.flagged if each in ids]

    # -- compression -----------------------------------------------------------------------------

    @rule(scene=st.none() | SCENES, behaviour=BEHAVIOURS, share=st.floats(0, 1))
    def generate(self, scene: str | None, behaviour: str, share: float) -> None:
        self.before_generation(scene, behaviour, share)

    def before_generation(self, scene: str | None, behaviour: str, share: float) -> None:
        if scene not in self.stacks:
            return
        flagged = bool(self.stacks[GAME].flagged)
        seen = self.watch(behaviour, share, GAME if flagged else scene)
        found = self.workflow.before_generation(scene)
        assert (found.retried is not None) == flagged
        if found.retried is not None:
            self.check(GAME, found.retried, seen[:1], behaviour, forced=True)
            if scene is GAME:
                assert len(seen) <= 1
                return
            seen = seen[1:]
        if scene in self.stacks:
            self.check(scene, found.outcome, seen, behaviour, forced=False)

    @rule(scene=st.none() | SCENES, vain=st.sampled_from(sorted(FAILURES)))
    def generate_in_vain(self, scene: str | None, vain: str) -> None:
        for _ in range(3):
            self.before_generation(scene, vain, 0.0)

    @rule(scene=st.none() | SCENES, behaviour=BEHAVIOURS, share=st.floats(0, 1))
    def compress(self, scene: str | None, behaviour: str, share: float) -> None:
        if scene in self.stacks:
            seen = self.watch(behaviour, share, scene)
            self.check(scene, self.workflow.compress(scene), seen, behaviour, forced=True)

    @rule(words=WORDS, behaviour=BEHAVIOURS, share=st.floats(0, 1))
    def intervene(self, words: str, behaviour: str, share: float) -> None:
        shown = self.round(words)
        whole = Round(shown.id, shown.user, f"{shown.assistant}{HIDDEN}")
        seen = self.watch(behaviour, share, GAME, on_call=lambda: self.intervened(shown))
        found: list[Outcome] = []

        def act() -> None:
            found.append(self.workflow.intervene(whole, revealed_chars=len(shown.assistant)))

        if self.within_quota(act):
            self.check(GAME, found[0], seen, behaviour, forced=True)

    def intervened(self, shown: Round) -> None:
        """The exchange is there with its flag before anybody is asked."""
        self.appended(GAME, shown)
        self.stacks[GAME].flagged.append(shown.id)
        assert self.workflow.compression_due() == tuple(self.stacks[GAME].flagged)

    def watch(
        self,
        behaviour: str,
        share: float,
        target: str | None,
        *,
        on_call: Callable[[], None] | None = None,
    ) -> list[tuple[Model, int]]:
        """Make the compressor behave; the list gets, per call, the stack then and the count."""
        seen: list[tuple[Model, int]] = []
        start = len(self.requests)

        def call(request: CompressRequest) -> CompressResult:
            first = len(self.requests) == start + 1
            if on_call is not None and first:
                on_call()
            key = self.asked_about(request)
            model = self.stacks[key]
            assert request.canonical_text == model.text()
            count = len(model.exact)
            if behaviour == "partly":
                count = 1 + int(share * (count - 1))
            seen.append((Model(model.summary, list(model.exact)), count))
            if behaviour.startswith("late") and first:
                self.interfere(behaviour, key)
            if behaviour in PLAIN:
                return PLAIN[behaviour](request)
            return Compressed(f"sum {count}", count, request.call_id)

        self.call = call
        return seen

    def asked_about(self, request: CompressRequest) -> str | None:
        if request.kind.startswith("paxhistoria.game"):
            return GAME
        return next(
            key
            for key, each in self.stacks.items()
            if key is not GAME and each.text() == request.canonical_text
        )

    def interfere(self, behaviour: str, key: str | None) -> None:
        """What somebody else does while the compressor works."""
        if behaviour == "late-append":
            made = self.round("late", "" if key is GAME else PRIVATE)
            if key is GAME:
                act = lambda: self.workflow.append_round(made)  # noqa: E731
            else:
                act = lambda: self.workflow.append_scene_round(key, made)  # noqa: E731
            if self.within_quota(act):
                self.appended(key, made)
        elif behaviour == "late-edit":
            self.rebuild(self.surviving([], True), self.workflow.edit_history)
        else:
            model, waiting = self.stacks[key], self.call
            self.call = kit.refused  # a rival's call that comes to nothing is no change
            rival = self.workflow.compress(key)
            assert rival.outcome == "refused"
            model.tries, model.tried = model.tries_now() + 1, model.text()
            self.call = waiting

    def check(
        self,
        key: str | None,
        found: Outcome,
        seen: list[tuple[Model, int]],
        behaviour: str,
        *,
        forced: bool,
    ) -> None:
        """The outcome is what the model says, and the model becomes what it has to."""
        event(f"outcome {found.outcome}")
        model = self.stacks.get(key) or Model()
        if not seen:
            text = model.text()
            due = bool(model.exact) and (forced or len(text) >= THRESHOLDS[key is GAME])
            if due:
                assert found.outcome == "exhausted" and not forced
                assert self.unsure or model.tries_now() >= 2
            else:
                assert found.outcome == "below-threshold"
            return
        then, count = seen[0]
        assert forced or len(then.text()) >= THRESHOLDS[key is GAME]
        assert found.before_chars == len(then.text())
        expected = self.expected(key, then, count, behaviour)
        if found.outcome == "quota-exceeded":
            assert expected == "compressed"
            assert self.store.footprint().bytes + 2 * 1_000 > QUOTA
            expected = "quota-exceeded"
        assert found.outcome == expected
        if expected == "compressed":
            self.published(model, count, found)
        elif expected != "superseded" and model.text() == then.text():
            model.tries, model.tried = model.tries_now() + 1, model.text()
            self.unsure |= self.store.footprint().bytes + 600 > QUOTA

    def expected(self, key: str | None, then: Model, count: int, behaviour: str) -> str:
        if behaviour in FAILURES:
            return FAILURES[behaviour]
        if len(f"[summary {len(f'sum {count}')}]\nsum {count}\n\n") >= len(then.text(count)):
            return "not-smaller"
        now = self.stacks.get(key) or Model()
        same = len(now.exact) >= count and now.text(count) == then.text(count)
        return "compressed" if same else "superseded"

    def published(self, model: Model, count: int, found: Outcome) -> None:
        gone = {each.round_id for each in model.exact[:count] if not each.outcome}
        model.summary, model.exact = f"sum {count}", model.exact[count:]
        model.flagged = [each for each in model.flagged if each not in gone]
        model.tries = 0
        assert found.after_chars == len(model.text()) < found.before_chars or model.exact
        assert found.represented == count

    @rule(scene=st.none() | SCENES)
    def restore(self, scene: str | None) -> None:
        if scene not in self.stacks or self.stacks[scene].summary is None:
            return
        summary = self.workflow.stack(scene).summary
        assert summary is not None
        behind = self.workflow.stack(scene).exchanges
        if not self.within_quota(lambda: self.workflow.restore(summary.call_id, scene)):
            return
        stack, model = self.workflow.stack(scene), self.stacks[scene]
        restored = stack.exchanges[: len(stack.exchanges) - len(behind)]
        assert stack.exchanges[len(restored) :] == behind and len(restored) == summary.exchanges
        text = canonical.text_of(stack.summary, restored)
        assert canonical.sha256_of(text) == summary.sha256 and len(text) == summary.chars
        model.summary = None if stack.summary is None else stack.summary.text
        model.exact = [
            *(Said(e.user, e.assistant, e.round_id, e.synthetic) for e in restored),
            *model.exact,
        ]
        model.tries = 0

    # -- around it -------------------------------------------------------------------------------

    @rule(key=st.sampled_from(["gold", "map"]), size=st.integers(0, 4_000), gone=st.booleans())
    def cheat(self, key: str, size: int, gone: bool) -> None:
        value = None if gone else "x" * size
        if self.within_quota(lambda: self.workflow.cheat({key: value})):
            self.host = replay(self.host, {key: None if value is None else f'"{value}"'})

    @rule()
    def checkpoint(self) -> None:
        self.workflow.checkpoint()
        self.base = dict(self.store.items(""))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.open()
        self.unsure = True if self.unsure else self.unsure

    @rule()
    def plan(self) -> None:
        calls, before = len(self.requests), self.store.snapshot()
        for key in self.stacks:
            planned = self.workflow.plan(key)
            assert planned.chars == len(self.stacks[key].text())
            assert planned.before_bytes == self.store.footprint().bytes
        assert (len(self.requests), self.store.snapshot()) == (calls, before)

    @precondition(lambda self: len(self.left) < 2)
    @rule()
    def go_on_with_a_copy(self) -> None:
        """The copy is the game from now on; what was copied must never change again."""
        original = self.store
        self.left.append((self.files, original.snapshot()))
        self.files += 1
        other = self.store_of(self.files)
        self.workflow.duplicate(other, cold=ColdCopies(self.folder / f"{self.files}.cold")).close()
        original.close()
        self.open()

    # -- what must hold --------------------------------------------------------------------------

    @invariant()
    def each_stack_says_what_the_model_says(self) -> None:
        if not hasattr(self, "stacks"):
            return
        for key, model in self.stacks.items():
            stack = self.workflow.stack(key)
            text = self.workflow.canonical_text(key)
            assert text == model.text()
            assert self.workflow.chars(key) == len(text)
            summary, pairs = canonical.parse(text)  # exact alternation
            assert summary == model.summary
            assert list(pairs) == [(each.user, each.assistant) for each in model.exact]
            assert [e.synthetic for e in stack.exchanges] == [e.outcome for e in model.exact]
        assert set(self.workflow.scenes()) == {key for key in self.stacks if key is not GAME}
        assert self.workflow.compression_due() == tuple(self.stacks[GAME].flagged)
        archived = [
            (each.scene_id, each.closing_summary, each.round_id)
            for each in self.workflow.archives()
        ]
        assert archived == [(scene, said.user, said.round_id) for scene, said in self.archives]

    @invariant()
    def every_round_is_exact_or_represented(self) -> None:
        if not hasattr(self, "stacks"):
            return
        exact = {each.round_id for each in self.stacks[GAME].exact if not each.outcome}
        missing = [each for each in self.rounds if each.id not in exact]
        assert not missing or self.workflow.stack().summary is not None

    @invariant()
    def the_figures_agree(self) -> None:
        if not hasattr(self, "stacks"):
            return
        found = self.store.snapshot()
        assert self.store.footprint() == quota.recomputed(found.items, found.log)
        assert self.store.footprint().bytes <= QUOTA
        assert replay(self.base, found.log) == found.items
        assert {key: found.items[key] for key in self.host} == self.host

    @invariant()
    def nothing_private_is_stored_or_sent(self) -> None:
        if not hasattr(self, "stacks"):
            return
        for key, text in self.store.items(""):
            assert HIDDEN not in text
            assert PRIVATE not in text or key.startswith("jfCatalystStack.")
        for each in self.requests:
            assert HIDDEN not in each.canonical_text
            assert PRIVATE not in each.canonical_text or "catalyst" in each.kind
        self.requests.clear()

    def teardown(self) -> None:
        if not hasattr(self, "stacks"):
            return
        for number, before in self.left:
            again = self.store_of(number)
            assert again.snapshot() == before
            again.close()
        self.store.close()
        shutil.rmtree(self.folder)


_FAST = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
_LONG = settings(_FAST, max_examples=600, stateful_step_count=60)
_POSTGRES = settings(_LONG, max_examples=60, stateful_step_count=40)

TestStacks = Stacks.TestCase
TestStacks.settings = _FAST


@pytest.mark.long
class TestStacksLong(Stacks.TestCase):
    settings = _LONG


class StacksOnPostgres(Stacks):
    """The same game in PostgreSQL."""

    server = ""

    def store_of(self, number: int) -> TransactionalStore:
        name = f"{self.folder.name}-{number}"
        return PostgresWorkflowStore(self.server, name, quota_bytes=QUOTA)


@pytest.mark.long
class TestStacksOnPostgres(StacksOnPostgres.TestCase):
    settings = _POSTGRES

    @pytest.fixture(autouse=True)
    def server(self, postgres_url: str) -> None:
        StacksOnPostgres.server = postgres_url
