"""``thread``: conversations, what the next prompt would be, and where they were condensed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from h2ams.errors import UsageError
from h2ams.surfaces.cli_common import DONE, PROBLEMS, Call, checked_text, counted, tell_empty
from h2ams.surfaces.cli_parser import Command, CommandParser, whole
from h2ams.surfaces.output import one_line
from h2ams.surfaces.wording import message_text

if TYPE_CHECKING:
    from h2ams.engine import Memory
    from h2ams.threads.compaction import Compaction
    from h2ams.threads.context_engine import ContextEngine, Thread
    from h2ams.threads.prompt import Context
    from h2ams.threads.thread_store import Row

# action: whether it takes the name of a thread, and whether text follows it
_ACTIONS = {
    "list": (False, False),
    "new": (True, False),
    "append": (True, True),
    "show": (True, False),
    "context": (True, True),
    "compact": (True, False),
    "restart": (True, True),
    "search": (True, True),
    "delete": (True, False),
}
LINE_CHARS = 88
_FINE = ("compacted", "prepass", "not-needed", "nothing-to-fold", "restarted")

Document = dict[str, object]


def _configure(parser: CommandParser) -> None:
    parser.positional("action", metavar="ACTION", words=_ACTIONS, help=", ".join(_ACTIONS))
    parser.positional("words", metavar="ID [TEXT]", nargs="*", help="the thread; - reads the text")
    parser.option(
        "--store", metavar="PATH", help="a file of threads, or postgresql://…; else threads.db"
    )
    parser.option("--system", metavar="TEXT", help="new: the system prompt, kept as it is")
    parser.option("--owner", metavar="SCOPE", help="new: the session or chat it belongs to")
    parser.option("--role", metavar="ROLE", default="user", help="append: user or assistant")
    parser.option(
        "--messages", action="store_true", help="append: the text is JSON lines, one message each"
    )
    parser.option("--window", metavar="TOKENS", type=whole, help="the model's window")
    parser.option("--reserve", metavar="TOKENS", type=whole, help="kept free for the answer")
    parser.option("--tools", metavar="TOKENS", type=whole, default=0, help="what the tools cost")
    parser.option("--force", action="store_true", help="compact: also below the budget")
    parser.option("--no-memory", action="store_true", help="context: without recalled memory")
    parser.option("--receipt", action="store_true", help="context: why each part is in it")
    parser.option("-n", metavar="COUNT", dest="limit", type=whole, help="show, search: at most")


def _thread(call: Call) -> int:
    args = call.args
    if args.action not in _ACTIONS:
        raise UsageError(
            f"thread {args.action}: no such action", hint=f"one of {', '.join(_ACTIONS)}"
        )
    named, spoken = _ACTIONS[args.action]
    words = [checked_text(word, "a word") for word in args.words]
    if named and not words:
        raise UsageError(f"thread {args.action} needs the name of a thread", hint="h2ams thread -h")
    if (not named and words) or (not spoken and len(words) > 1):
        raise UsageError(f"thread {args.action}: too many words", hint="h2ams thread --help")
    with call.open() as memory, _engine(call, memory) as engine:
        if args.action == "list":
            return _list(call, engine)
        text = call.text(" ".join(words[1:]), "the text") if len(words) > 1 else ""
        return _on_thread(call, memory, engine, words[0], text)


@contextmanager
def _engine(call: Call, memory: Memory) -> Iterator[ContextEngine]:
    if call.args.store is None:
        yield memory.threads
        return
    engine = memory.open_threads(call.args.store)
    try:
        yield engine
    finally:
        engine.store.close()


def _on_thread(call: Call, memory: Memory, engine: ContextEngine, id: str, text: str) -> int:
    from h2ams.upkeep.thread_folder import open_thread

    args = call.args
    access = call.access()

    def recalled(query: str, budget: int) -> str:
        return memory.context(query, access=access, budget=budget).text

    new = args.action == "new"
    known = engine.store.info(id)
    thread = open_thread(
        engine,
        id,
        access=access,
        memory=None if args.no_memory else recalled,
        system=args.system if new else None,
        scope=args.owner if new else None,
        window=args.window,
        reserve=args.reserve,
        tools=args.tools,
        create=new,
    )
    match args.action:
        case "new":
            return _new(call, thread, made=known is None)
        case "append":
            return _append(call, thread, text)
        case "show":
            return _show(call, thread)
        case "context":
            return _context(call, thread, text)
        case "compact":
            with call.output.working("compacting"):
                done = thread.compact(force=args.force)
            return _compaction(call, id, "compact", done)
        case "restart":
            return _compaction(call, id, "restart", thread.restart(text))
        case "search":
            return _search(call, thread, text)
    removed = engine.store.delete(id)
    call.output.line(f"deleted {id}" if removed else f"there was no {id}")
    call.output.document({"action": "delete", "id": id, "deleted": removed})
    return DONE


# -- actions ---------------------------------------------------------------------------------------


def _list(call: Call, engine: ContextEngine) -> int:
    from h2ams.upkeep.thread_folder import threads_for

    found = threads_for(engine, call.access())
    for each in found:
        owner = f"  {each.scope}" if each.scope else ""
        call.output.line((each.id, "address"), f"  {counted(each.message_count, 'message')}{owner}")
    threads = [
        {"id": each.id, "scope": each.scope, "messages": each.message_count} for each in found
    ]
    call.output.document({"action": "list", "threads": threads})
    return DONE


def _new(call: Call, thread: Thread, *, made: bool) -> int:
    info = thread.info
    call.output.line((info.id, "address"), "" if made else "  was there already")
    call.output.document(
        {
            "action": "new", "id": info.id, "scope": info.scope, "created": made,
            "messages": info.message_count,
        }
    )  # fmt: skip
    return DONE


def _append(call: Call, thread: Thread, text: str) -> int:
    if not text.strip():
        raise UsageError("thread append: no text", hint="h2ams thread append ID TEXT, or ID -")
    if call.args.messages:
        messages: list[Any] = _json_lines(text)
    elif call.args.role in ("user", "assistant"):
        messages = [{"role": call.args.role, "content": text}]
    else:
        raise UsageError(
            f"thread append: role {call.args.role!r}",
            hint="user or assistant; tool calls and results come with --messages",
        )
    ids = thread.append(*messages)
    for id in ids:
        call.output.line((id, "address"))
    call.output.document({"action": "append", "id": thread.id, "rows": list(ids)})
    return DONE


def _json_lines(text: str) -> list[Any]:
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise UsageError(
                f"line {number} is not JSON: {error}", hint="one message a line"
            ) from None
        except RecursionError:
            raise UsageError(
                f"line {number} is nested too deeply", hint="one message a line"
            ) from None
    return found


def _show(call: Call, thread: Thread) -> int:
    rows = [row for row in thread.rows() if row.kind != "state"]
    if call.args.limit is not None:
        rows = rows[-call.args.limit :] if call.args.limit else []
    tell = call.output.line
    for row in rows:
        if row.kind == "summary":
            _summary_line(call, row)
        else:
            mark = {"user": "strong", "assistant": "address"}.get(row.role, "dim")
            words = one_line(message_text(row))
            tell((f"{row.role:<10}", mark), f"{row.tokens:>6}  ", words[:LINE_CHARS])
    if not rows:
        tell("empty")
    info = thread.info
    call.output.document(
        {
            "action": "show",
            "id": info.id,
            "scope": info.scope,
            "system": info.system,
            "messages": info.message_count,
            "rows": [_row_document(row) for row in rows],
        }
    )
    return DONE


def _summary_line(call: Call, row: Row) -> None:
    """The line that a person sees where the conversation was condensed, or begun afresh."""
    payload = row.payload
    what = "begun afresh" if row.origin == "restart" else "summary"
    before, after = payload.get("before_tokens", 0), payload.get("after_tokens", 0)
    state = "" if row.valid else ", taken back by an edit"
    rows = counted(int(payload.get("covered_rows", 0)), "row")
    line = f"{what} of {rows}: {before} -> {after} tokens{state}"
    call.output.line((f"──── {line} ".ljust(LINE_CHARS, "─"), "good" if row.valid else "dim"))
    for each in str(payload.get("text", "")).splitlines()[:12]:
        call.output.line(("    " + one_line(each)[: LINE_CHARS - 4], "dim"))
    if payload.get("ledger"):
        call.output.line((f"    ledger: {len(payload['ledger'])} entries", "dim"))


def _row_document(row: Row) -> Document:
    found: Document = {
        "id": row.id,
        "seq": row.seq,
        "kind": row.kind,
        "role": row.role,
        "created_at": row.created_at,
        "tokens": row.tokens,
        "message": row.payload if row.kind == "message" else None,
        "summary": None,
    }
    if row.kind == "summary":
        payload = row.payload
        found["summary"] = {
            "boundary": row.boundary,
            "origin": row.origin,
            "valid": row.valid,
            "text": payload.get("text", ""),
            "ledger": payload.get("ledger", []),
            "covered_rows": payload.get("covered_rows", 0),
            "before_tokens": payload.get("before_tokens", 0),
            "after_tokens": payload.get("after_tokens", 0),
            "sha256": payload.get("sha256", ""),
            "model": payload.get("model", ""),
        }
    return found


def _context(call: Call, thread: Thread, text: str) -> int:
    context = thread.context(text if text.strip() else None)
    for message in context.messages:
        call.output.line(json.dumps(message, ensure_ascii=False))
    if call.args.receipt:
        _receipt(call, context)
    call.output.document(
        {
            "action": "context",
            "id": thread.id,
            "messages": list(context.messages),
            "system": context.system,
            "shape": context.shape,
            "receipt": context.receipt.to_json(),
        }
    )
    return DONE


def _receipt(call: Call, context: Context) -> None:
    receipt = context.receipt
    tell = call.output.line
    tell()
    tell(
        (f"{receipt.tokens} of {receipt.budget} tokens", "strong"), f", {receipt.reserve} kept free"
    )
    for part in receipt.parts:
        rows = f", {counted(len(part.rows), 'row')}" if part.rows else ""
        tell(f"  {part.name:<10} {part.tokens:>7}{rows}  ", (part.why, "dim"))
    for name, found in (
        ("left out", receipt.left_out), ("shortened", receipt.shortened),
        ("closed", receipt.closed), ("dropped", receipt.dropped), ("notes", receipt.notes),
    ):  # fmt: skip
        if found:
            tell(f"  {name:<10} ", ", ".join(found))
    if receipt.compaction:
        tell(f"  compaction {receipt.compaction}")


def _compaction(call: Call, id: str, action: str, done: Compaction) -> int:
    good = done.outcome in _FINE
    call.output.line((done.code, "good" if good else "bad"))
    if done.inserted or done.after_tokens != done.before_tokens:
        call.output.line(f"{done.before_tokens} tokens, now {done.after_tokens}")
    if done.flush_error:
        call.output.line(("memory flush failed: ", "bad"), done.flush_error)
    call.output.document({"action": action, "id": id, **done.to_json()})
    return DONE if good else PROBLEMS


def _search(call: Call, thread: Thread, text: str) -> int:
    limit = 10 if call.args.limit is None else call.args.limit
    hits = thread.search(text, limit=limit)
    for hit in hits:
        call.output.line(
            (f"{hit.thread}#{hit.message}", "address"), f"  {hit.role}  {hit.score:.3f}"
        )
        call.output.line(f"  {one_line(hit.text)[:LINE_CHARS]}")
    tell_empty(call, hits, "matches")
    call.output.document(
        {"action": "search", "id": thread.id, "query": text, "hits": [h.to_json() for h in hits]}
    )
    return DONE


_ABOUT = """
new ID makes a thread, append ID TEXT adds a message (or many, --messages), show ID draws it with
the lines where it was condensed. context ID TEXT prints the messages that would go to a model, one
JSON document a line, and condenses the thread first where it is over its budget. compact condenses
it now (exit code 1 where that came to nothing), restart ID [TEXT] begins afresh behind such a line,
with TEXT in place of what was said. search ID TEXT looks into other threads.
"""

COMMANDS = {"thread": Command(_configure, _thread, _ABOUT)}
