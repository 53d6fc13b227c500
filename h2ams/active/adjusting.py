"""Running an adjustment: asks the model with a time-out, keeps the result in the registry.

The model runs in a thread of its own, so that a transport that never returns costs its time-out
and nothing else; what it says later is not listened to. A failure of any kind changes nothing, and
the guarantee of a first adjustment stays open.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from h2ams.active import adjust
from h2ams.active.adjust import Adjustment, Cause
from h2ams.active.ams import task_fingerprint
from h2ams.active.block import MemoryBlock
from h2ams.active.turn import Turn
from h2ams.errors import H2amsError, ModelError, UsageError
from h2ams.memory.record import Recall, Record
from h2ams.models.request import Completion, Model, Request


@dataclass(frozen=True, slots=True)
class Prepared:
    """An adjustment that is due: what is asked, which addresses it lists, for which task."""

    cause: Cause
    request: Request
    listed: frozenset[str]
    task: str


def prepare(
    turn: Turn, recall: Recall, block: MemoryBlock, answer: str, *, wrote_memory: bool
) -> Prepared | None:
    """What to ask after the turn that ``recall`` and ``block`` belong to; None: it is not due."""
    if not turn.has_turns:
        raise UsageError("an adjustment belongs to a session or chat", hint="give an access")
    shown = [item.address for item in block.receipt.layers["on_demand"].items]
    cause = adjust.due(
        adjust_ran=turn.state().adjust_ran,
        wrote_memory=wrote_memory,
        on_demand_count=len(shown),
        used_tokens=block.tokens,
        budget_tokens=block.budget,
    )
    if cause == "not-due":
        return None
    visible = _visible(turn, recall, shown)
    request, listed = adjust.ask(
        recall.query, answer, visible, frozenset(shown), count=turn.counter.count
    )
    return Prepared(cause, request, frozenset(listed), task_fingerprint(recall.keywords))


def consult(model: Model, prepared: Prepared, time_out_s: float = adjust.TIME_OUT_S) -> Adjustment:
    """Ask; nothing is changed yet. Call it without any lock: it may take its whole time-out."""
    try:
        found = _complete(model, prepared.request, time_out_s)
        if found.finish_reason not in ("stop", "unknown"):
            return Adjustment(prepared.cause, failure=f"the answer ended: {found.finish_reason}")
        correction = adjust.read(found.text, prepared.listed)
    except H2amsError as error:
        return Adjustment(prepared.cause, failure=error.message)
    except ValueError as error:
        return Adjustment(prepared.cause, failure=str(error))
    return Adjustment(prepared.cause, ran=True, correction=correction)


def keep(turn: Turn, prepared: Prepared, found: Adjustment) -> None:
    """Make a correction true for the next turns of its task."""
    if found.ran:
        turn.change(lambda now: adjust.apply(now, found.correction, prepared.task))


def _visible(turn: Turn, recall: Recall, shown: Sequence[str]) -> list[Record]:
    """What the access may see: shown first, then this turn's matches, then the newest."""
    by_address = {record.address: record for record in turn.reader.list(None) if not record.stale}
    newest = sorted(by_address.values(), key=lambda record: record.address)
    newest.sort(key=lambda record: record.updated_at or "", reverse=True)
    order = [*shown, *(hit.record.address for hit in recall.hits)]
    order += [record.address for record in newest]
    return [by_address[each] for each in dict.fromkeys(order) if each in by_address]


def _complete(model: Model, request: Request, time_out_s: float) -> Completion:
    """The model's answer within ``time_out_s``. ``ModelError``."""
    answers: queue.SimpleQueue[Completion | H2amsError] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(model.complete(request))
        except H2amsError as error:
            answers.put(error)
        except Exception as error:  # noqa: BLE001 - in a thread nobody else would hear of it
            message = f"the model raised {type(error).__name__}"
            answers.put(ModelError("unavailable", message))

    threading.Thread(target=work, daemon=True).start()
    try:
        found = answers.get(timeout=time_out_s)
    except queue.Empty:
        raise ModelError("timeout", f"no answer within {time_out_s:g} s") from None
    if isinstance(found, H2amsError):
        raise found
    return found
