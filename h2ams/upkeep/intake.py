"""An import as a whole: segments, then the summaries of scopes that have none yet."""

from __future__ import annotations

from collections.abc import Sequence

from h2ams.errors import H2amsError
from h2ams.files import Root
from h2ams.memory.intake import Incoming, Intake, Taken, Unfit
from h2ams.memory.scope import parse_scope
from h2ams.memory.store import Store
from h2ams.settings import Settings
from h2ams.upkeep.importers import SummaryText


def take_in(
    root: Root,
    settings: Settings,
    store: Store,
    incoming: Sequence[Incoming],
    summaries: Sequence[SummaryText],
    *,
    dry_run: bool,
) -> Taken:
    """Write what is not there yet; see ``engine.Memory.take_in``."""
    taken = Intake(root, settings).take(incoming, dry_run=dry_run)
    for each in summaries:
        taken = taken.plus(_take_summary(store, each, dry_run=dry_run))
    return taken


def _take_summary(store: Store, each: SummaryText, *, dry_run: bool) -> Taken:
    try:
        scope = parse_scope(each.scope)
        there = store.summary(scope, each.language)
        if there is not None:
            return Taken(known=(f"{scope}#summary",))
        result = store.write_summary(scope, each.text, each.language, expect="", dry_run=dry_run)
    except H2amsError as error:
        return Taken(failed=(Unfit(each.origin, str(error)),))
    redacted = (result.address,) if result.redacted else ()
    return Taken((result.address,), redacted=redacted, paths=(result.path,))
