"""The workflow of one game: what a game or a desktop agent calls.

``Workflow`` owns the shape of its stacks, their canonical text, thresholds and publication. It
reads what an operation needs, plans one projection (``plan``), and writes it; where another worker
was faster it plans again. Compression runs in ``before_generation``, ``intervene`` and ``compress``
alone; every other operation calls no compressor. Errors and logs never hold a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from h2ams.errors import ConflictError, NotFoundError, UsageError
from h2ams.settings import DEFAULTS, Settings
from h2ams.stacks import canonical, plan
from h2ams.stacks.cold import ColdCopies
from h2ams.stacks.compress import CATALYST_KIND, GAME_KIND, Compressor, Outcome
from h2ams.stacks.exchange import (
    Attempt,
    Names,
    Round,
    Stack,
    State,
    Summary,
    check_text,
    to_json,
)
from h2ams.stacks.plan import Projection, Scene, TransitionPlan
from h2ams.stacks.quota import Footprint
from h2ams.stacks.scenes import Archive, Prefixes
from h2ams.stacks.transition import (
    MOST_TRIES,
    Surroundings,
    Target,
    Transitions,
    project,
    read_stack,
)
from h2ams.stacks.workflow_store import Snapshot, WorkflowStore


@dataclass(frozen=True, slots=True)
class Preparation:
    """What was done before a generation.

    ``outcome`` is about the stack that is generated from; ``retried`` about the game's flagged
    compression, None where none was due.
    """

    outcome: Outcome
    retried: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Kinds:
    """Request kinds of the two sorts of stacks."""

    game: str = GAME_KIND
    catalyst: str = CATALYST_KIND


class Workflow:
    """One game's memory in ``store``.

    Without a ``compressor`` every compression fails and everything stays exact. With ``cold``
    what a summary replaces is kept outside of the quota, and ``restore`` can bring it back.
    """

    def __init__(
        self,
        store: WorkflowStore,
        *,
        compressor: Compressor | None = None,
        settings: Settings = DEFAULTS,
        cold: ColdCopies | None = None,
        prefixes: Prefixes | None = None,
        kinds: Kinds | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._store = store
        self._compressor = compressor
        self._settings = settings
        self._cold = cold
        self._prefixes = prefixes or Prefixes()
        self._kinds = kinds or Kinds()
        self._outside = surroundings or Surroundings()
        self._game = self._prefixes.game_names
        self._transitions = Transitions(store, compressor, settings, self._outside, cold)
        self._sweep()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def __enter__(self) -> Workflow:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- looking ---------------------------------------------------------------------------------

    def stack(self, scene: str | None = None) -> Stack:
        """The game's stack, or that of a running scene."""
        stack = read_stack(self._store, self._names(scene))
        if scene is not None and stack.state is None:
            raise _no_scene()
        return stack

    def canonical_text(self, scene: str | None = None) -> str:
        """The canonical text of a stack, as it would be submitted."""
        return canonical.stack_text(self.stack(scene))

    def chars(self, scene: str | None = None) -> int:
        """Length of the canonical text in code points; costs the same for every length."""
        return self._state(scene).chars

    def over_threshold(self, scene: str | None = None) -> bool:
        """Whether the stack has reached its threshold; costs the same for every length."""
        return self.chars(scene) >= self._target(scene).threshold_chars

    def compression_due(self) -> tuple[str, ...]:
        """Rounds whose forced compression failed and will be tried again."""
        return self._state(None).retry

    def archives(self) -> tuple[Archive, ...]:
        """What remains of the scenes that have ended, oldest first."""
        items = self._store.items(f"{self._prefixes.archives}.")
        return tuple(Archive.of(key, text) for key, text in items)

    def scenes(self) -> tuple[str, ...]:
        """Ids of the running scenes."""
        return tuple(State.of(each.state).scene_id for each in self._scenes())

    def ledger(self, scene: str | None = None) -> tuple[str, ...]:
        """Identifiers, numbers and constraints of what the summary represents, word for word."""
        summary = self.stack(scene).summary
        return () if summary is None else summary.ledger

    def footprint(self) -> Footprint:
        """Bytes of store and change log."""
        return self._store.footprint()

    def plan(self, scene: str | None = None, *, force: bool = False) -> TransitionPlan:
        """What a transition of that stack would do now, without a call."""
        stack, target = self.stack(scene), self._target(scene)
        state = stack.state or State()
        attempt = self._transitions.attempt_on(
            stack, canonical.sha256_of(canonical.stack_text(stack))
        )
        before = least = self._store.footprint().bytes
        if state.exchanges:
            least = self._store.preview(plan.emptied(stack).changes).bytes
        return TransitionPlan(
            plan.trigger_of(
                state,
                threshold_chars=target.threshold_chars,
                forced=force,
                exhausted=attempt.tries >= MOST_TRIES,
            ),
            state.chars,
            target.threshold_chars,
            state.exchanges,
            attempt.tries,
            before,
            least,
            self._store.quota_bytes,
        )

    # -- the game --------------------------------------------------------------------------------

    def create_game(self) -> None:
        """Begin a new game here, without any memory. ``ConflictError`` where there is one."""
        self._project(lambda: Projection({self._game.state: State().json()}, self._nothing()))

    def convert_to_live(self, rounds: Sequence[Round]) -> None:
        """Seed a game that has no memory yet with the canonical rounds that it imports."""
        self._check_no_memory()
        self._rebuild(rounds)

    def append_round(self, round: Round) -> None:
        """Add the exchange of one finished round. The cost is that of the round."""
        self._append(self._game, round)

    def before_generation(self, scene: str | None = None) -> Preparation:
        """To be called before each generation from the game's stack, or from a scene's.

        A flagged compression is tried again first; if it fails again, generation goes on with the
        exact exchange. Then the stack is compressed if it has reached its threshold.
        """
        if scene is not None:
            self._state(scene)  # it must be running
        retried = None
        if self._state(None).retry:
            retried = self._transitions.run(self._target(None), forced=True)
            if scene is None:
                return Preparation(retried, retried)
        return Preparation(self._transitions.run(self._target(scene), forced=False), retried)

    def compress(self, scene: str | None = None, *, force: bool = True) -> Outcome:
        """One transition now, below the threshold too unless ``force`` is False."""
        self._state(scene)
        return self._transitions.run(self._target(scene), forced=force)

    def intervene(self, round: Round, *, revealed_chars: int | None = None) -> Outcome:
        """End the round in the middle of its output and compress at once.

        Only the first ``revealed_chars`` code points of the assistant text (None: all of it) were
        shown; the rest is discarded here and goes nowhere. The exchange is durable together with a
        flag, in one projection, before the compressor is asked; a publication clears the flag.
        """
        if revealed_chars is not None and revealed_chars < 0:
            raise UsageError("revealed_chars: must be 0 or more")
        revealed = replace(round, assistant=round.assistant[:revealed_chars])

        def planned() -> Projection:
            stack = read_stack(self._store, self._game)
            text = canonical.text_of(stack.summary, (*stack.exchanges, revealed.exchange()))
            attempt = Attempt(canonical.sha256_of(text), call_id=self._outside.new_call_id())
            return plan.append(
                self._game,
                None if stack.state is None else stack.state.json(),
                [revealed.exchange()],
                last_round=revealed.id,
                retry=[revealed.id],
                attempt=attempt,
            )

        self._project(planned)
        return self._transitions.run(self._target(None), forced=True)

    def edit_history(self, rounds: Sequence[Round]) -> None:
        """The host's history was edited: make the game's stack anew of the surviving ``rounds``.

        Outcomes of scenes stand at their rounds again; archives and running scenes whose round did
        not survive go in the same projection. The same rounds give byte-identical stacks.
        """
        self._rebuild(rounds)

    def reset(self, rounds: Sequence[Round] = ()) -> None:
        """Go back to ``rounds``, by default to the beginning. See ``edit_history``."""
        self._rebuild(rounds)

    def cheat(self, changes: Mapping[str, object]) -> Footprint:
        """Write keys of the host's own (None deletes one), under the same quota."""
        return self._store.project(dict(self._checked(changes)))

    # -- scenes ----------------------------------------------------------------------------------

    def begin_scene(self, scene_id: str, *, round_id: str | None = None) -> None:
        """Begin a catalyst scene at a round, by default the game's last one. It starts empty."""
        names = self._names(scene_id)

        def planned() -> Projection:
            if self._store.get(names.state) is not None:
                raise ConflictError(
                    "scene: it is running already", hint="end it, or use another id"
                )
            at = self._state(None).last_round if round_id is None else round_id
            return plan.begin_scene(names, scene_id, at)

        self._project(planned)

    def append_scene_round(self, scene_id: str, round: Round) -> None:
        """Add the exchange of one round of a running scene."""
        self._append(self._names(scene_id), round, scene=True)

    def end_scene(
        self,
        scene_id: str,
        *,
        closing_summary: str,
        meanwhile_event: str,
        round_id: str | None = None,
    ) -> Archive:
        """Publish the scene's outcome and remove its stack, in one projection.

        ``closing_summary`` (canonical) and ``meanwhile_event`` (public) become one exchange of the
        game; nothing else leaves the scene. It stands at ``round_id``, by default the game's last
        round, or the one at which the scene began.
        """
        names = self._names(scene_id)
        found: list[Archive] = []

        def planned() -> Projection:
            items = self._store.items(names.all)
            scene = _scene(names, items)
            if scene is None:
                raise _no_scene()
            before = self._store.get(self._game.state)
            game = plan.read_state(before)
            at = round_id or game.last_round or State.of(scene.state).round_id
            archive = Archive(
                game.next_archive,
                scene_id,
                at,
                closing_summary,
                meanwhile_event,
                self._outside.now(),
            )
            found.append(archive)
            return plan.end_scene(scene, self._game, before, archive, self._prefixes)

        self._project(planned)
        self._forget_cold(names)
        return found[-1]

    # -- copies ----------------------------------------------------------------------------------

    def duplicate(self, store: WorkflowStore, *, cold: ColdCopies | None = None) -> Workflow:
        """A copy of this workflow in the empty ``store``; the two share nothing afterwards."""
        store.load(self._of_its_own(self._store.snapshot()))
        if self._cold is not None and cold is not None:
            self._cold.copy_to(cold)
        return Workflow(
            store,
            compressor=self._compressor,
            settings=self._settings,
            cold=cold,
            prefixes=self._prefixes,
            kinds=self._kinds,
            surroundings=self._outside,
        )

    def restore(self, call_id: str, scene: str | None = None) -> None:
        """Put back, exactly, what the compression ``call_id`` and all later ones replaced.

        Each is proven by the SHA-256 in its summary. ``NotFoundError`` where no cold copy is kept.
        """
        names = self._names(scene)
        unfolded: list[str] = []

        def planned() -> Projection:
            stack = whole = read_stack(self._store, names)
            unfolded.clear()
            while call_id not in unfolded:
                if whole.summary is None or self._cold is None:
                    raise _no_cold(call_id)
                current = whole.summary.call_id
                kept = self._cold.get(names.prefix, current)
                if kept is None:
                    raise _no_cold(current)
                whole = plan.unfolded(whole, kept)
                unfolded.append(current)
            return plan.restore(stack, whole)

        self._project(planned)
        assert self._cold is not None
        for each in unfolded:
            self._cold.delete(names.prefix, each)

    def change_log(self) -> dict[str, str | None]:
        """What changed since the last checkpoint: key to JSON text, None for a delete."""
        return self._store.change_log()

    def checkpoint(self) -> None:
        """Whoever follows the change log has everything: empty it."""
        self._store.checkpoint()

    # -- inside ----------------------------------------------------------------------------------

    def _names(self, scene: str | None) -> Names:
        return self._game if scene is None else self._prefixes.scene_names(scene)

    def _target(self, scene: str | None) -> Target:
        names, settings = self._names(scene), self._settings
        if scene is None:
            return Target(names, self._kinds.game, settings.stack_game_chars)
        return Target(names, self._kinds.catalyst, settings.stack_catalyst_chars)

    def _state(self, scene: str | None) -> State:
        text = self._store.get(self._names(scene).state)
        if text is None and scene is not None:
            raise _no_scene()
        return plan.read_state(text)

    def _project(self, planned: Callable[[], Projection]) -> None:
        project(self._store, planned)

    def _append(self, names: Names, round: Round, *, scene: bool = False) -> None:
        def planned() -> Projection:
            before = self._store.get(names.state)
            if scene and before is None:
                raise _no_scene()
            return plan.append(names, before, [round.exchange()], last_round=round.id)

        self._project(planned)

    def _rebuild(self, rounds: Sequence[Round]) -> None:
        def planned() -> Projection:
            game = read_stack(self._store, self._game)
            scenes = self._scenes()
            return plan.rebuild(game, rounds, self.archives(), scenes, self._prefixes)

        before = self._scenes()
        self._project(planned)
        self._forget_cold(self._game)
        running = {each.names for each in self._scenes()}
        for each in before:
            if each.names not in running:
                self._forget_cold(each.names)

    def _scenes(self) -> list[Scene]:
        stacks: dict[str, list[tuple[str, str]]] = {}
        for key, text in self._store.items(f"{self._prefixes.catalyst}."):
            prefix = ".".join(key.split(".", 2)[:2])
            stacks.setdefault(prefix, []).append((key, text))
        found = (_scene(Names(prefix), items) for prefix, items in stacks.items())
        return [each for each in found if each is not None]

    def _nothing(self) -> dict[str, str | None]:
        self._check_no_memory()
        return {self._game.state: None}

    def _check_no_memory(self) -> None:
        state = self._state(None)
        if state.exchanges or state.head or self.archives() or self._scenes():
            raise ConflictError("workflow: the game has memory already", hint="reset it first")

    def _checked(self, changes: Mapping[str, object]) -> Mapping[str, str | None]:
        checked: dict[str, str | None] = {}
        for key, value in changes.items():
            check_text(key, "key")
            if not key or self._prefixes.reserved(key):
                raise UsageError(
                    f"key {key!a}: empty, or it belongs to the stacks",
                    hint="use keys of your own",
                )
            try:
                checked[key] = None if value is None else to_json(value)
            except (TypeError, ValueError, RecursionError):
                raise UsageError(f"key {key!a}: its value is no JSON") from None
            check_text(checked[key] or "", f"value of {key!a}")
        return checked

    def _of_its_own(self, snapshot: Snapshot) -> Snapshot:
        """``snapshot`` without call ids to be used again: those are the old game's."""
        items, log = dict(snapshot.items), dict(snapshot.log)
        for key, text in snapshot.items.items():
            if self._prefixes.reserved(key) and key.endswith(".state"):
                state = State.of(text)
                if state.attempt is not None and state.attempt.call_id:
                    attempt = replace(state.attempt, call_id="")
                    items[key] = log[key] = replace(state, attempt=attempt).json()
        return Snapshot(items, log, snapshot.fresh)

    def _forget_cold(self, names: Names) -> None:
        if self._cold is not None:
            self._cold.delete(names.prefix)

    def _sweep(self) -> None:
        """Remove cold copies that no summary leads to: a crash left them."""
        if self._cold is None:
            return
        for prefix in sorted({each.stack for each in self._cold.names()}):
            text = self._store.get(Names(prefix).summary)
            self._cold.sweep(prefix, None if text is None else Summary.of(text).call_id)


def _scene(names: Names, items: Sequence[tuple[str, str]]) -> Scene | None:
    state = next((text for key, text in items if key == names.state), None)
    return None if state is None else Scene(names, tuple(key for key, _ in items), state)


def _no_scene() -> NotFoundError:
    return NotFoundError("scene: there is none running with this id", hint="begin_scene first")


def _no_cold(call_id: str) -> NotFoundError:
    return NotFoundError(
        f"call {call_id}: no cold copy leads back to it",
        hint="cold copies are kept only where the workflow was opened with them",
    )
