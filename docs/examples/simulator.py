"""A small game on exchange stacks: two scenes, an intervention, an outage, a restart.

    python docs/examples/simulator.py [FOLDER]

The game, its players and its "model" are made up; the memory is real. Everything is kept in FOLDER
(a temporary one by default), and what happens is printed.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence

from h2ams import Memory, Settings
from h2ams.stacks.compress import CompressRequest, CompressResult, TransportFailed
from h2ams.stacks.exchange import Round
from h2ams.stacks.transports import CallableCompressor, ExtractiveCompressor
from h2ams.stacks.workflow import Workflow

# Small thresholds, so that something happens in a few rounds.
SETTINGS = Settings(
    encoding="estimate",
    stack_game_chars=2_500,
    stack_catalyst_chars=1_200,
    stack_summary_max_chars=600,
    stack_ledger_chars=300,
)
PLACES = ("the harbour", "the salt road", "the observatory", "the old mint", "the glass market")


class Service:
    """A compressor that can be switched off: the platform's ``compress.v2`` in a game of one."""

    def __init__(self) -> None:
        self.works = True
        self._inner = ExtractiveCompressor(most_chars=500)

    def __call__(self, request: CompressRequest) -> CompressResult:
        if not self.works:
            return TransportFailed("unavailable", request.call_id)
        return self._inner.compress(request)


class Simulator:
    """The host: it has the canonical rounds, asks before each generation, and plays."""

    def __init__(self, memory: Memory, service: Service) -> None:
        self.players = ["ada", "bo"]
        self.rounds: list[Round] = []
        compressor = CallableCompressor(service, beneficiaries=self.present)
        self.game: Workflow = memory.stack("campaign", compressor=compressor, cold_copy=True)

    def present(self) -> Sequence[str]:
        """Who benefits from a compression now: asked for at every attempt."""
        return tuple(self.players)

    def play(self, number: int) -> None:
        """One round: prepare, generate, append."""
        prepared = self.game.before_generation().outcome
        if prepared.called:
            print(f"round {number}: {prepared.outcome}", lengths(prepared))
        made = generated(number)
        self.rounds.append(made)
        self.game.append_round(made)

    def scene(self, name: str, turns: int) -> None:
        """A catalyst scene with a memory of its own; only its outcome reaches the game."""
        self.game.begin_scene(name)
        for turn in range(1, turns + 1):
            prepared = self.game.before_generation(name).outcome
            if prepared.called:
                print(f"scene {name}: {prepared.outcome}", lengths(prepared))
            whisper = f"{name}, turn {turn}: a private plan nobody else may know. " * 6
            self.game.append_scene_round(name, Round(f"{name}-{turn}", "What now?", whisper))
        self.game.end_scene(
            name,
            closing_summary=f"The talks of {name} ended with a treaty.",
            meanwhile_event=f"Bells rang in {name}.",
        )
        print(f"scene {name}: ended after {turns} turns, its stack is gone")

    def intervene(self, number: int) -> None:
        """The players stop the output half-way: what they did not see never happened."""
        made = generated(number)
        shown = len(made.assistant) // 2
        outcome = self.game.intervene(made, revealed_chars=shown)
        self.rounds.append(Round(made.id, made.user, made.assistant[:shown]))
        print(f"intervention in round {number}: {outcome.outcome}", due(self.game))


def generated(number: int) -> Round:
    """What a model might have answered."""
    place = PLACES[number % len(PLACES)]
    story = f"Order {number}: {place} must hold until day {number + 30}. " + (
        f"Caravans reach {place} and the council argues about the toll of {number * 7} crowns. " * 3
    )
    return Round(f"round-{number}", f"We go to {place}.", story)


def lengths(outcome: object) -> str:
    before, after = getattr(outcome, "before_chars", 0), getattr(outcome, "after_chars", 0)
    return f"({before:,} chars, now {after:,})"


def due(game: Workflow) -> str:
    rounds = game.compression_due()
    return f"(compression is due for {', '.join(rounds)})" if rounds else "(nothing is due)"


def main(folder: str) -> None:
    service = Service()
    with Memory.open(folder, create=True, settings=SETTINGS) as memory:
        simulator = Simulator(memory, service)
        with simulator.game as game:
            game.create_game()
            for number in range(1, 10):
                simulator.play(number)
            simulator.scene("northgate", turns=5)
            service.works = False
            print("the compressor is out of reach")
            simulator.intervene(10)
            simulator.play(11)
            before = game.canonical_text()
        rounds = simulator.rounds

    print("restart")
    service.works = True
    with Memory.open(folder, settings=SETTINGS) as memory:
        simulator = Simulator(memory, service)
        simulator.rounds = rounds
        with simulator.game as game:
            assert game.canonical_text() == before, "a restart changes nothing"
            print("before the next generation", due(game))
            simulator.play(12)
            print("after it", due(game))
            simulator.scene("southgate", turns=3)
            game.edit_history([each for each in simulator.rounds if each.id != "round-3"])
            print(f"round 3 was edited away: {len(game.stack().exchanges)} exact exchanges")
            assert "private plan" not in game.canonical_text()
            footprint, plan = game.footprint(), game.plan()
            print(f"{plan.chars:,} of {plan.threshold_chars:,} chars, trigger {plan.trigger}")
            print(f"{footprint.bytes:,} of {plan.quota_bytes:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
