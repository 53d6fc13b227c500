"""Catalyst scenes: their keys, their archive records, their outcomes in the game (Pure).

A scene has a stack of its own while it runs. At its end one exchange goes to the game stack (user
half: the canonical closing summary, assistant half: the public meanwhile event), one small record
stays in the archive, and the scene's stack is gone. Nothing else of it ever leaves the scene.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from h2ams.errors import UsageError
from h2ams.stacks.exchange import CHUNK_DIGITS, Exchange, Names, Round, check_text, to_json

GAME_PREFIX = "jfGameStack"  # seed 000, "Purpose and ownership"
CATALYST_PREFIX = "jfCatalystStack"
ARCHIVE_PREFIX = "jfCatalystArchives"

_PLAIN = re.compile(r"[a-z0-9_-]")
MOST_NAME_CHARS = 120


def encoded_name(name: str, what: str) -> str:
    """``name`` in small letters, digits, ``-``, ``_`` and ``%XX``: for keys and file names.

    Different names stay different, also where case does not count. A long one ends in its digest.
    """
    check_text(name, what)
    if not name:
        raise UsageError(f"{what}: empty")
    coded = "".join(
        char if _PLAIN.fullmatch(char) else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in name
    )
    if len(coded) <= MOST_NAME_CHARS:
        return coded
    return f"{coded[:40]}%~{hashlib.sha256(name.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Prefixes:
    """What the keys of a workflow begin with; the request kinds belong to them."""

    game: str = GAME_PREFIX
    catalyst: str = CATALYST_PREFIX
    archives: str = ARCHIVE_PREFIX

    def __post_init__(self) -> None:
        all = (self.game, self.catalyst, self.archives)
        if len(set(all)) < 3 or not all_plain(all):
            raise UsageError("key prefixes: three different words of letters and digits are needed")

    @property
    def game_names(self) -> Names:
        return Names(self.game)

    def scene_names(self, scene_id: str) -> Names:
        return Names(f"{self.catalyst}.{encoded_name(scene_id, 'scene id')}")

    def archive(self, number: int) -> str:
        return f"{self.archives}.{number:0{CHUNK_DIGITS}d}"

    def reserved(self, key: str) -> bool:
        """Whether ``key`` belongs to stacks and archives, not to the host."""
        return key.partition(".")[0] in (self.game, self.catalyst, self.archives)


def all_plain(words: Sequence[str]) -> bool:
    return all(re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", word) for word in words)


@dataclass(frozen=True, slots=True)
class Archive:
    """What remains of a finished scene. It stands at ``round_id``; ``number`` orders them."""

    number: int
    scene_id: str
    round_id: str
    closing_summary: str = field(repr=False)
    meanwhile_event: str = field(repr=False)
    ended_at: str

    def __post_init__(self) -> None:
        check_text(self.closing_summary, "closing summary")
        check_text(self.meanwhile_event, "meanwhile event")

    def json(self) -> str:
        return to_json(
            {
                "sceneId": self.scene_id,
                "roundId": self.round_id,
                "closingSummary": self.closing_summary,
                "meanwhileEvent": self.meanwhile_event,
                "endedAt": self.ended_at,
            }
        )

    @classmethod
    def of(cls, key: str, text: str) -> Archive:
        record = json.loads(text)
        return cls(
            int(key.rpartition(".")[2]),
            record["sceneId"],
            record["roundId"],
            record["closingSummary"],
            record["meanwhileEvent"],
            record["endedAt"],
        )

    def outcome(self) -> Exchange:
        """The direct synthetic exchange on the game stack."""
        return Exchange(self.closing_summary, self.meanwhile_event, self.round_id, synthetic=True)


def conversation(rounds: Sequence[Round], archives: Sequence[Archive]) -> list[Exchange]:
    """The game's exchanges made of ``rounds``, each followed by the outcomes that stand at it."""
    outcomes: dict[str, list[Exchange]] = {}
    for each in sorted(archives, key=lambda archive: archive.number):
        outcomes.setdefault(each.round_id, []).append(each.outcome())
    found: list[Exchange] = []
    for each_round in rounds:
        found.append(each_round.exchange())
        found += outcomes.get(each_round.id, ())
    return found


def check_rounds(rounds: Sequence[Round]) -> Mapping[str, int]:
    """Round id to position; ``UsageError`` where one occurs twice."""
    places = {each.id: at for at, each in enumerate(rounds)}
    if len(places) < len(rounds):
        raise UsageError("rounds: an id occurs twice", hint="every round has its own id")
    return places
