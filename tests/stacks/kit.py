"""What tests of stacks share: a workflow on a real store, and compressors that behave as told."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from h2ams.settings import DEFAULTS, Settings
from h2ams.stacks import canonical
from h2ams.stacks.cold import ColdCopies
from h2ams.stacks.compress import (
    AttemptRecord,
    Compressed,
    Compressor,
    CompressRequest,
    CompressResult,
    Refused,
    TransportFailed,
)
from h2ams.stacks.exchange import Round
from h2ams.stacks.sqlite_store import SqliteWorkflowStore
from h2ams.stacks.transition import Surroundings
from h2ams.stacks.workflow import Workflow
from h2ams.stacks.workflow_store import WorkflowStore

SMALL = replace(
    DEFAULTS,
    stack_game_chars=400,
    stack_catalyst_chars=200,
    stack_summary_max_chars=150,
    stack_ledger_chars=60,
)
MARKER = "ZIRKONMARKE"


def round_of(number: int | str, text: str = "", *, size: int = 40) -> Round:
    """A round with texts of its own, each about ``size`` long."""
    said = text or f"text of round {number} " + "x" * size
    return Round(f"r{number}", f"ask {said}", f"answer {said}")


def rounds_of(*numbers: int) -> list[Round]:
    return [round_of(number) for number in numbers]


Behaviour = Callable[[CompressRequest], CompressResult]


def submitted_count(request: CompressRequest) -> int:
    """How many exchanges the request submits."""
    return len(canonical.parse(request.canonical_text)[1])


def good(request: CompressRequest) -> CompressResult:
    """Everything, in a few words of its own."""
    return Compressed(
        f"sum of {submitted_count(request)}", submitted_count(request), request.call_id
    )


def partly(count: int) -> Behaviour:
    """Only the first ``count`` exchanges."""
    return lambda request: Compressed("sum", count, request.call_id)


def refused(request: CompressRequest) -> CompressResult:
    return Refused("policy", request.call_id)


def failed(request: CompressRequest) -> CompressResult:
    return TransportFailed("unavailable", request.call_id)


def empty(request: CompressRequest) -> CompressResult:
    return Compressed(" \n", submitted_count(request), request.call_id)


def raising(request: CompressRequest) -> CompressResult:
    raise RuntimeError(f"cannot compress {request.canonical_text}")


def echo(request: CompressRequest) -> CompressResult:
    """A summary that copies its input."""
    return Compressed(request.canonical_text, submitted_count(request), request.call_id)


def over_claiming(request: CompressRequest) -> CompressResult:
    return Compressed("sum", submitted_count(request) + 1, request.call_id)


def counting_nothing(request: CompressRequest) -> CompressResult:
    return Compressed("sum", 0, request.call_id)


def over_cap(request: CompressRequest) -> CompressResult:
    return Compressed("s" * 151, submitted_count(request), request.call_id)


def barely(request: CompressRequest) -> CompressResult:
    """One in a hundred characters less than it got."""
    size = len(request.canonical_text) * 99 // 100
    return Compressed(request.canonical_text[:size], submitted_count(request), request.call_id)


def foreign(request: CompressRequest) -> CompressResult:
    return Compressed("sum", 1, "another-call-id")


def nonsense(request: CompressRequest) -> CompressResult:
    return {"text": request.canonical_text}  # type: ignore[return-value]


@dataclass
class Scripted:
    """A compressor that keeps its requests and behaves as its ``behaviour`` at that time."""

    behaviour: Behaviour = good
    requests: list[CompressRequest] = field(default_factory=list)

    def compress(self, request: CompressRequest) -> CompressResult:
        self.requests.append(request)
        return self.behaviour(request)


@dataclass
class Bench:
    """A workflow, its compressor and its telemetry."""

    workflow: Workflow
    store: WorkflowStore
    compressor: Scripted
    attempts: list[AttemptRecord]

    def everything(self) -> dict[str, str]:
        """The whole store."""
        return dict(self.store.items(""))

    def content(self) -> dict[str, str]:
        """The store without the records of attempts: what a stack says."""
        return {key: text for key, text in self.everything().items() if not key.endswith(".state")}

    def fill(self, count: int, *, first: int = 1) -> list[Round]:
        made = rounds_of(*range(first, first + count))
        for each in made:
            self.workflow.append_round(each)
        return made


def surroundings(attempts: list[AttemptRecord], ids: Iterator[str] | None = None) -> Surroundings:
    """A fixed clock, numbered call ids, telemetry into ``attempts``."""
    numbers = ids or (f"call-{n:08d}" for n in itertools.count(1))
    return Surroundings(
        clock=lambda: datetime(2026, 12, 1, 12, tzinfo=UTC),
        new_call_id=lambda: next(numbers),
        timer=lambda: 1.0,
        telemetry=attempts.append,
    )


def bench(
    store: WorkflowStore,
    *,
    behaviour: Behaviour = good,
    settings: Settings = SMALL,
    cold: ColdCopies | None = None,
    compressor: Compressor | None = None,
    ids: Iterator[str] | None = None,
) -> Bench:
    scripted = Scripted(behaviour)
    attempts: list[AttemptRecord] = []
    workflow = Workflow(
        store,
        compressor=compressor or scripted,
        settings=settings,
        cold=cold,
        surroundings=surroundings(attempts, ids),
    )
    return Bench(workflow, store, scripted, attempts)


@contextmanager
def on_disk(
    folder: Path,
    *,
    name: str = "w",
    cold: bool = False,
    quota_bytes: int | None = None,
    **how: object,
) -> Iterator[Bench]:
    """A bench on a SQLite store in ``folder``."""
    more = {} if quota_bytes is None else {"quota_bytes": quota_bytes}
    store = SqliteWorkflowStore(folder / f"{name}.db", **more)
    copies = ColdCopies(folder / f"{name}.cold") if cold else None
    try:
        yield bench(store, cold=copies, **how)  # type: ignore[arg-type]
    finally:
        store.close()


def said(exchanges: Sequence[tuple[str, str]]) -> list[str]:
    return [text for exchange in exchanges for text in exchange]
