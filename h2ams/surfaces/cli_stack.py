"""``stack``: exchange stacks shown, planned, compressed, restored."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from h2ams.errors import UsageError
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, checked_text, tell_empty
from h2ams.surfaces.cli_parser import Command, CommandParser
from h2ams.surfaces.wording import trigger

if TYPE_CHECKING:
    from h2ams.stacks.exchange import Chunk, Stack, Summary
    from h2ams.stacks.folder import WorkflowFolder
    from h2ams.stacks.quota import Footprint
    from h2ams.stacks.transports import ExtractiveCompressor, HttpCompressor
    from h2ams.stacks.workflow import Workflow

# action: how many names it takes
_NAMES = {"list": 0, "show": 1, "plan": 1, "compress": 1, "restore": 2}
BAR_CHARS = 24
_FINE = ("compressed", "below-threshold")

Document = dict[str, object]


def _configure(parser: CommandParser) -> None:
    parser.positional("action", metavar="ACTION", words=_NAMES, help=", ".join(_NAMES))
    parser.positional(
        "names", metavar="ID", nargs="*", help="the workflow; restore: its id and a call id"
    )
    parser.option(
        "--store",
        metavar="PATH",
        help="folder of workflow files, or postgresql://…; else workflows/ in the state folder",
    )
    parser.option("--owner", metavar="SCOPE", help="the scope that the workflow goes with")
    parser.option("--scene", metavar="ID", help="the stack of this running scene, not the game's")
    parser.option("--text", action="store_true", help="show: the canonical text itself")
    parser.option(
        "--compressor",
        metavar="extractive|URL",
        default="extractive",
        help="compress: without a model (default), or a compress.v2 service",
    )
    parser.option("--force", action="store_true", help="compress: below the threshold too")
    parser.option(
        "--cold-copy", action="store_true", help="compress: keep what restore needs, outside"
    )


def _stack(call: Call) -> int:
    args = call.args
    names = [checked_text(name, "an id") for name in args.names]
    if args.action not in _NAMES:
        raise UsageError(f"stack {args.action}: no such action", hint=f"one of {', '.join(_NAMES)}")
    if len(names) != _NAMES[args.action]:
        wanted = ("no name", "the id of a workflow", "the id of a workflow and a call id")
        raise UsageError(
            f"stack {args.action} takes {wanted[_NAMES[args.action]]}", hint="h2ams stack --help"
        )
    call.owner_only("stack")
    if args.action == "list":
        return _list(call)
    with _workflow(call, names[0]) as workflow:
        match args.action:
            case "show":
                return _show(call, names[0], workflow)
            case "plan":
                return _plan(call, names[0], workflow)
            case "compress":
                return _compress(call, names[0], workflow)
        return _restore(call, names, workflow)


# -- where the workflows are -----------------------------------------------------------------------


def _folder(call: Call) -> WorkflowFolder:
    from h2ams import config
    from h2ams.stacks.folder import FOLDER, WorkflowFolder

    settings, _ = config.resolve_settings(config.resolve_root(call.args.root), call.flags())
    path = call.args.store
    if path is None:
        state, _ = config.resolve_state(config.resolve_root(call.args.root))
        path = os.path.join(state, FOLDER)
    return WorkflowFolder(path, quota_bytes=settings.stack_quota_bytes)


def _is_postgres(call: Call) -> bool:
    return str(call.args.store or "").startswith(("postgresql://", "postgres://"))


def _workflow(call: Call, id: str) -> Workflow:
    """The workflow that the call names; it must be there."""
    from h2ams import config
    from h2ams.memory.scope import parse_scope
    from h2ams.stacks.folder import WorkflowName
    from h2ams.stacks.transition import Surroundings

    settings, _ = config.resolve_settings(config.resolve_root(call.args.root), call.flags())
    outside = Surroundings(clock=config.clock())
    compressor = _compressor(call) if call.args.action == "compress" else None
    owner = None if call.args.owner is None else parse_scope(call.args.owner)
    if not _is_postgres(call):
        return _folder(call).open(
            WorkflowName(id, owner),
            compressor=compressor,
            settings=settings,
            cold_copy=call.args.cold_copy,
            surroundings=outside,
            create=False,
        )
    from h2ams.stacks.postgres_store import PostgresWorkflowStore
    from h2ams.stacks.workflow import Workflow

    if call.args.cold_copy or owner is not None:
        raise UsageError("--cold-copy and --owner go with a folder, not with PostgreSQL")
    store = PostgresWorkflowStore(
        call.args.store, id, quota_bytes=settings.stack_quota_bytes, create=False
    )
    return Workflow(store, compressor=compressor, settings=settings, surroundings=outside)


def _compressor(call: Call) -> ExtractiveCompressor | HttpCompressor:
    from h2ams import config
    from h2ams.stacks.transports import ExtractiveCompressor, HttpCompressor

    word = call.args.compressor
    settings, _ = config.resolve_settings(config.resolve_root(call.args.root), call.flags())
    if word == "extractive":
        return ExtractiveCompressor(most_chars=min(8_000, settings.stack_summary_max_chars))
    return HttpCompressor(
        word,
        timeout_ms=settings.compress_timeout_ms,
        attempts_count=settings.compress_attempts_count,
    )


# -- actions ---------------------------------------------------------------------------------------


def _list(call: Call) -> int:
    if _is_postgres(call):
        raise UsageError("stack list works on a folder", hint="ask the server for its workflows")
    found = _folder(call).names()
    for each in found:
        call.output.line((each.id, "address"), f"  {each.owner}" if each.owner else "")
    tell_empty(call, found, "stacks")
    stacks = [{"id": each.id, "owner": str(each.owner) if each.owner else None} for each in found]
    call.output.document({"action": "list", "stacks": stacks})
    return DONE


def _show(call: Call, id: str, workflow: Workflow) -> int:
    scene = call.args.scene
    stack = workflow.stack(scene)
    planned = workflow.plan(scene)
    footprint = workflow.footprint()
    due = list(workflow.compression_due()) if scene is None else []
    scenes = list(workflow.scenes())
    attempt = None if stack.state is None else stack.state.attempt
    last = attempt.outcome if attempt is not None and planned.tries else ""
    if call.args.text:
        call.output.raw(workflow.canonical_text(scene))
    else:
        _timeline(call, stack)
        _bar(call, "chars", planned.chars, planned.threshold_chars, "chars of the threshold")
        _bar(call, "quota", footprint.bytes, planned.quota_bytes, "bytes")
        tell = call.output.line
        tell(("store  ", "dim"), _store_text(footprint))
        if scenes:
            tell(("scenes ", "dim"), ", ".join(scenes))
        if planned.tries:
            tell(("tries  ", "dim"), f"{planned.tries} on this text in vain, the last: {last}")
        if due:
            tell(("due    ", "dim"), ("forced compression of ", "bad"), ", ".join(due))
    document: Document = {
        "action": "show",
        "id": id,
        "scene": scene,
        "chars": planned.chars,
        "threshold_chars": planned.threshold_chars,
        "chunks": [_chunk_document(each) for each in stack.chunks],
        "footprint": _footprint_document(footprint, planned.quota_bytes),
        "compression_due": due,
        "scenes": scenes,
        "archives": len(workflow.archives()),
        "tries": planned.tries,
        "last_outcome": last,
    }
    if stack.summary is not None:
        document["summary"] = _summary_document(stack.summary)
    if call.args.text:
        document["text"] = workflow.canonical_text(scene)
    call.output.document(document)
    return DONE


def _plan(call: Call, id: str, workflow: Workflow) -> int:
    planned = workflow.plan(call.args.scene, force=call.args.force)
    call.output.line(trigger(planned.trigger, planned.tries))
    _bar(call, "chars", planned.chars, planned.threshold_chars, "chars of the threshold")
    _bar(call, "before", planned.before_bytes, planned.quota_bytes, "bytes")
    _bar(call, "after", planned.least_bytes, planned.quota_bytes, "bytes and the summary")
    call.output.document(
        {
            "action": "plan",
            "id": id,
            "scene": call.args.scene,
            "trigger": planned.trigger,
            "calls": planned.calls,
            "chars": planned.chars,
            "threshold_chars": planned.threshold_chars,
            "exchanges": planned.exchanges,
            "tries": planned.tries,
            "before_bytes": planned.before_bytes,
            "least_bytes": planned.least_bytes,
            "quota_bytes": planned.quota_bytes,
        }
    )
    return DONE


def _compress(call: Call, id: str, workflow: Workflow) -> int:
    with call.output.working("compressing"):
        found = workflow.compress(call.args.scene, force=call.args.force)
    reason = f" ({found.reason})" if found.reason else ""
    good = found.outcome in _FINE
    call.output.line((found.outcome, "good" if good else "bad"), reason)
    if found.outcome == "compressed":
        saved = 100 - 100 * found.after_chars / found.before_chars
        call.output.line(
            f"{found.before_chars:,} chars, now {found.after_chars:,} ({saved:.1f} % saved), "
            f"{found.represented} exchanges represented"
        )
        call.output.line(("call ", "dim"), (found.call_id, "address"))
    call.output.document(
        {
            "action": "compress",
            "id": id,
            "scene": call.args.scene,
            "outcome": found.outcome,
            "reason": found.reason,
            "call_id": found.call_id,
            "before": found.before_chars,
            "after": found.after_chars,
            "represented": found.represented,
        }
    )
    return DONE if good else PROBLEMS


def _restore(call: Call, names: list[str], workflow: Workflow) -> int:
    scene = call.args.scene
    before = workflow.chars(scene)
    workflow.restore(names[1], scene)
    after = workflow.chars(scene)
    call.output.line(f"restored: {before:,} chars, now {after:,}, proven by SHA-256")
    call.output.document(
        {
            "action": "restore",
            "id": names[0],
            "scene": scene,
            "call_id": names[1],
            "before": before,
            "after": after,
            "exchanges": len(workflow.stack(scene).exchanges),
        }
    )
    return DONE


# -- how it looks ----------------------------------------------------------------------------------


def _timeline(call: Call, stack: Stack) -> None:
    tell = call.output.line
    if stack.summary is not None:
        one = stack.summary
        saved = 100 - 100 * len(one.text) / one.chars
        tell(
            ("summary  ", "strong"),
            f"{len(one.text):>9,} chars  for {one.exchanges} exchanges, {one.chars:,} chars "
            f"({saved:.1f} % saved)  {one.at}",
        )
        tell(f"{'':9}{'':>9}        call ", (one.call_id, "address"), f"  covers {one.covers}")
    for chunk in stack.chunks:
        document = _chunk_document(chunk)
        rounds = ", ".join(each.round_id or "-" for each in chunk.exchanges[:6])
        more = ", …" if len(chunk.exchanges) > 6 else ""
        tell(
            (f"chunk {chunk.number:<3}", "strong"),
            f"{document['chars']:>9,} chars  {rounds}{more}",
        )
    if stack.summary is None and not stack.chunks:
        tell("empty")


def _bar(call: Call, label: str, value: int, limit: int, unit: str) -> None:
    """``label  [#####-----]  value of limit``."""
    share = min(1.0, value / limit) if limit else 1.0
    full = round(share * BAR_CHARS)
    drawn = f"[{'#' * full}{'-' * (BAR_CHARS - full)}]"
    style = "bad" if value >= limit else "good"
    call.output.line((f"{label:<7}", "dim"), (drawn, style), f" {value:,} of {limit:,} {unit}")


def _store_text(footprint: Footprint) -> str:
    return f"{footprint.store.bytes:,} bytes, change log {footprint.log.bytes:,} bytes"


def _footprint_document(footprint: Footprint, quota_bytes: int) -> Document:
    return {
        "bytes": footprint.bytes,
        "store_bytes": footprint.store.bytes,
        "log_bytes": footprint.log.bytes,
        "quota_bytes": quota_bytes,
    }


def _summary_document(summary: Summary) -> Document:
    return {
        "chars": len(summary.text),
        "call_id": summary.call_id,
        "sha256": summary.sha256,
        "exchanges": summary.exchanges,
        "represented_chars": summary.chars,
        "covers": summary.covers,
        "at": summary.at,
        "ledger": list(summary.ledger),
    }


def _chunk_document(chunk: Chunk) -> Document:
    from h2ams.stacks import canonical

    return {
        "number": chunk.number,
        "exchanges": len(chunk.exchanges),
        "chars": canonical.chars_of(None, chunk.exchanges),
        "rounds": [each.round_id for each in chunk.exchanges],
    }


_ABOUT = """
show prints a timeline with lengths, savings and the quota; --text the canonical text itself. plan
says what a transition would do, without a call. compress runs one if it is due, or --force; the
exit code is 1 where it came to nothing. restore puts back what a call replaced, from cold copies.
"""

COMMANDS = {"stack": Command(_configure, _stack, _ABOUT)}
