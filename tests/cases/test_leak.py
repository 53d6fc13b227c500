"""Zero leak: what an access may not read changes nothing that it can observe.

A *surface* is one call with an access; its outcome is everything it gives or raises, times left
out. Two laws hold for each: no marker of a foreign scope is in an outcome, and an outcome is the
same, byte for byte, whether foreign scopes are there, changed, broken or gone. A new surface joins
by one line in ``SURFACES`` or ``COMMANDS``.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import json
import random
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from cases.kit import NOW, cli, opened, segment_text, write
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from surfaces.inspect_kit import serving, where
from surfaces.mcp_kit import client, inside, run

from h2ams import Access, H2amsError, Memory
from h2ams.active.registry import Registry
from h2ams.anthropic import MemoryCommands
from h2ams.errors import NotFoundError
from h2ams.files import Root
from h2ams.memory.intake import Incoming
from h2ams.memory.scope import parse_scope
from h2ams.models.function import FunctionModel
from h2ams.models.request import Completion
from h2ams.surfaces.cli import COMMANDS as PROGRAM_COMMANDS
from h2ams.surfaces.cli import main
from h2ams.surfaces.inspect_site import ACTIONS, PAGES, Site
from h2ams.surfaces.inspect_values import Fields, Inspecting
from h2ams.surfaces.mcp_calls import Serving, read_resource
from h2ams.surfaces.mcp_tools import call_tool
from h2ams.threads.context_engine import ContextEngine
from h2ams.threads.thread_sqlite import SqliteThreadStore
from h2ams.tokens import counter
from h2ams.upkeep.exporter import lines
from h2ams.upkeep.scopes import Scopes

# One scope of every family, inside and beside the sessions that the accesses name.
SCOPES = [
    *("user", "global", "vp/ada", "vp/bob", "agent/a1", "agent/a2", "topic/t1", "topic/t1/deep"),
    *("feature/f1", "topic/unfiled", "chat/c1", "chat/c1/vp/ada", "chat/c1/vp/bob", "chat/c2"),
    *("sessions/s1", "sessions/s1/user", "sessions/s1/vp/ada", "sessions/s1/vp/bob"),
    *("sessions/s1/topic/t1", "sessions/s1/topic/t1/deep", "sessions/s1/feature/f1"),
    *("sessions/s2", "sessions/s2/user", "sessions/s2/vp/ada", "sessions/s2/topic/t1"),
    *("sessions/s3", "sessions/s3/vp/bob", "sessions/s3/feature/f1"),  # of another agent
    *("sessions/s11", "sessions/s1.b", "vp/ada2", "chat/c11", "topic/t11"),  # begin alike
]
AGENTS = {"s1": "main", "s2": "main", "s3": "other"}  # the others have no card
IDS = ("same", "one")
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
QUERY = "common words about the project"
MESSAGE = "m_shared"


def marker(scope: str) -> str:
    """A word that stands in ``scope`` and nowhere else; no piece of it is in another marker."""
    draw = random.Random(scope)
    return "mark" + "".join(draw.choice("bcdfghjklmnpqrstvwxz") for _ in range(12))


def folder(scope: str) -> str:
    return "" if scope == "topic/unfiled" else f"{scope}/"


def plant(root: Path, scope: str, text: str = QUERY, ids: tuple[str, ...] = IDS) -> None:
    """Segments, a note, a summary and an archive in ``scope``, each with its marker."""
    word = marker(scope)
    where = folder(scope)
    write(root, f"{where}note.md", f"---\ntags: [{word}]\n---\n# {word}\n\n{text} {word}\n")
    if scope == "topic/unfiled":
        return
    header = {"sourceMessages": f"[{MESSAGE}, {word}]", "tags": f"[tag, {word}]"}
    texts = (segment_text(id, f"{text} {word} {id}", **header) for id in ids)
    write(root, f"{where}memory.md", *texts)
    write(root, f"{where}summary.md", f"Summary: {text} {word}.\n")
    write(root, f"{where}archive.md", segment_text("old", f"{text} {word} retired"))
    if holds_threads(scope):
        with threads_of(root) as engine:
            thread = engine.thread(f"of-{scope}", scope=scope)
            if not thread.rows():
                thread.append({"role": "user", "content": f"{text} {word}", "id": f"m-{word}"})


def holds_threads(scope: str) -> bool:
    found = parse_scope(scope)
    return found.family in ("sessions", "chat") and not found.member


@contextlib.contextmanager
def threads_of(root: Path) -> Iterator[ContextEngine]:
    (root / ".h2ams").mkdir(mode=0o700, exist_ok=True)
    store = SqliteThreadStore(root / ".h2ams/threads.db")
    try:
        yield ContextEngine(store, counter=counter("estimate"), now=NOW.isoformat)
    finally:
        store.close()


def spoil(root: Path, scope: str) -> None:
    """Files in ``scope`` that every reader has something to say about."""
    where, word = folder(scope), marker(scope)
    write(root, f"{where}note.md", f"---\n: [{word}\n---\n# {word}\n")
    if scope == "topic/unfiled":
        return
    write(
        root, f"{where}memory.md", f"---\nid: {word}\ntags: [x\n---\n{QUERY} {word}\n\n---\nid: cut"
    )
    (root / where / "archive.md").write_bytes(b"\xff\xfe broken " + word.encode())
    write(root, f"{where}memory (conflicted copy 2026-01-01).md", word)
    if not (root / where / "link.md").is_symlink():
        (root / where / "link.md").symlink_to(root.parent / "outside.md")


def remove(root: Path, scope: str) -> None:
    if scope == "topic/unfiled":
        (root / "note.md").unlink(missing_ok=True)
        return
    for name in ("memory.md", "note.md", "summary.md", "archive.md", "link.md"):
        (root / scope / name).unlink(missing_ok=True)
    shutil.rmtree(root / scope, ignore_errors=not (root / scope).exists())
    if holds_threads(scope):
        with threads_of(root) as engine:
            engine.store.delete(f"of-{scope}")


def may_read(access: Access, scope: str) -> bool:
    """The table of docs/domain.md once more, by hand: the judge of this test."""
    session, vp = access.session, access.vp
    if scope in ("user", "global"):
        base = session is not None or access.chat is not None
        user = access.user in (True, "read", "write") or (base and access.user is None)
        return user if scope == "user" else base
    if scope.startswith("vp/"):
        return vp is not None and scope == f"vp/{vp}"
    if scope.startswith("agent/"):
        return access.agent is not None and scope == f"agent/{access.agent}"
    if scope.startswith("chat/"):
        own = {f"chat/{access.chat}"} | ({f"chat/{access.chat}/vp/{vp}"} if vp else set())
        return (access.chat is not None and scope in own) or listed(access, scope)
    if scope.startswith("sessions/"):
        _, id, *rest = scope.split("/")
        shared = not rest or rest[0] in ("topic", "feature")
        if id == session:
            private = rest == ["user"] and access.user is not False
            return shared or private or rest == ["vp", vp]
        same_agent = AGENTS.get(id) == AGENTS.get(session or "")
        related = id in access.related_sessions and same_agent
        return (shared and related) or listed(access, scope)
    return listed(access, scope)


def listed(access: Access, scope: str) -> bool:
    found = parse_scope(scope)
    own_user = access.user is not False or found.member != "user"
    return scope in access.scopes and found.vp in (None, access.vp) and own_user


ENDED = threading.Event()  # a watch that is let in ends at once
ENDED.set()

# -- surfaces: (memory, access, a scope that the access may not read) -> outcome -------------------

Surface = Callable[[Memory, Access, str], object]
SURFACES: dict[str, Surface] = {
    "recall": lambda memory, access, _: memory.recall(QUERY, access=access, limit=100),
    "recall one": lambda memory, access, _: memory.recall(QUERY, access=access, limit=1),
    "recall rare": lambda memory, access, _: memory.recall("words tag same", access=access),
    "recall marker": lambda memory, access, scope: memory.recall(marker(scope), access=access),
    "recall piece": lambda memory, access, scope: memory.recall(marker(scope)[5:11], access=access),
    "recall prefix": lambda memory, access, scope: memory.recall(
        f"{marker(scope)[:8]}*", access=access
    ),
    "recall scopes": lambda memory, access, scope: memory.recall(
        QUERY, access=access, scopes=[scope, "*"], tags=["tag"], limit=100
    ),
    "recall foreign scope": lambda memory, access, scope: memory.recall(
        QUERY, access=access, scopes=[scope]
    ),
    "recall no scope": lambda memory, access, _: memory.recall(QUERY, access=access, scopes=[]),
    "recall filters": lambda memory, access, _: memory.recall(
        QUERY, access=access, kinds=["fact"], after="2020-01-01", min_score=0.0, limit=100
    ),
    "recall relaxed": lambda memory, access, _: memory.recall("ommo roject", access=access),
    "recall phrase": lambda memory, access, scope: memory.recall(
        f'"{QUERY} {marker(scope)}"', access=access
    ),
    "recall budget": lambda memory, access, _: memory.recall(QUERY, access=access, budget=20),
    "context": lambda memory, access, scope: memory.context(
        f"{QUERY} {marker(scope)}", access=access, budget=3000
    ),
    "context no room": lambda memory, access, _: memory.context(QUERY, access=access, budget=0),
    "context window": lambda memory, access, _: memory.context(QUERY, access=access, window=9_000),
    "context small": lambda memory, access, _: memory.context(QUERY, access=access, budget=150),
    "context zh": lambda memory, access, _: memory.context(QUERY, access=access, language="zh"),
    "list": lambda memory, access, _: memory.list(access=access),
    "list archived": lambda memory, access, _: memory.list(access=access, archived=True),
    "list scope": lambda memory, access, scope: memory.list(scope, access=access),
    "list scope archived": lambda memory, access, scope: memory.list(
        scope, access=access, archived=True
    ),
    "page": lambda memory, access, _: memory.page(access=access, limit=5),
    "page scope": lambda memory, access, scope: memory.page(scope, access=access),
    "page behind": lambda memory, access, scope: memory.page(
        access=access, after=(scope, "one"), limit=3
    ),
    "addresses": lambda memory, access, _: memory.addresses(access=access),
    "addresses of scope": lambda memory, access, scope: memory.addresses(scope, access=access),
    "addresses known": lambda memory, access, _: memory.addresses(access=access, fresh=False),
    "scope names": lambda memory, access, _: memory.scope_names(access=access, limit=3),
    "scope names like": lambda memory, access, scope: memory.scope_names(scope[:4], access=access),
    "get": lambda memory, access, scope: memory.get(f"{scope}#same", access=access),
    "get second": lambda memory, access, scope: memory.get(f"{scope}#same~2", access=access),
    "get nothing": lambda memory, access, scope: memory.get(f"{scope}#nothing", access=access),
    "sync one": lambda memory, access, scope: memory.sync([folder(scope)], access=access),
    "get archived": lambda memory, access, scope: memory.get(f"{scope}#old", access=access),
    "sources": lambda memory, access, _: memory.sources(MESSAGE, access=access),
    "scope counts": lambda memory, access, _: memory.scope_counts(access=access),
    "summary": lambda memory, access, scope: memory.summary(scope, access=access),
    "summary of user": lambda memory, access, _: memory.summary("user", access=access),
    "sources marker": lambda memory, access, scope: memory.sources(marker(scope), access=access),
    "status": lambda memory, access, _: memory.status(access=access),
    "touch": lambda memory, access, scope: memory.touch([f"{scope}#same"], access=access),
    "sync": lambda memory, access, _: memory.sync(access=access),
    "verify": lambda memory, access, _: memory.verify(access=access),
    "rebuild": lambda memory, access, _: memory.rebuild(access=access),
    "doctor": lambda memory, access, _: memory.doctor(access=access),
    "watch": lambda memory, access, _: memory.watch(stop=ENDED, access=access),
    "scope list": lambda memory, access, _: memory.scopes.list(access=access),
    "scope migrate": lambda memory, access, _: memory.scopes.migrate(access=access, dry_run=True),
}


def mcp(name: str, **arguments: object) -> Surface:
    """A call of an MCP tool; ``{scope}`` and ``{marker}`` in its arguments stand for the scope's.

    Its errors are outcomes. What it says of a write is as tight as what it says of a read.
    """

    def call(memory: Memory, access: Access, scope: str) -> object:
        told = json.dumps(arguments).replace("{scope}", scope).replace("{marker}", marker(scope))
        return call_tool(Serving(memory, access), name, json.loads(told))

    return call


def file_tool(command: str, **given: object) -> Surface:
    """A command of the Anthropic memory tool on a file of the scope."""

    def call(memory: Memory, access: Access, scope: str) -> object:
        told = json.dumps({"command": command, **given}).replace("{folder}", folder(scope))
        return MemoryCommands(memory, access=access).run(json.loads(told))

    return call


PAGES_ASKED: set[str] = set()


def inspected(path: str, *, form: bool = False, **fields: str) -> Surface:
    """A page of the inspector; {scope} and {marker} in its fields stand for the scope's.

    With ``form`` it is sent as a form, with the mark that the pages of this session carry.
    """
    PAGES_ASKED.add(path)

    def call(memory: Memory, access: Access, scope: str) -> object:
        told = json.dumps(fields).replace("{scope}", scope).replace("{marker}", marker(scope))
        site = Site(Inspecting(memory, access, form, "mark"))
        given = Fields({**json.loads(told), "mark": "mark"}.items())
        answer = site.answer("POST" if form else "GET", path, given)
        return answer.status, answer.location, answer.html

    return call


# Every page, asked in each way in which it names something.
INSPECTED: dict[str, Surface] = {
    "inspect overview": inspected("/"),
    "inspect scope": inspected("/scope", name="{scope}"),
    "inspect scope archived": inspected("/scope", name="{scope}", archived="1"),
    "inspect scope forgotten": inspected("/scope", name="user", forgotten="{scope}#same"),
    "inspect user": inspected("/scope", name="user"),
    "inspect segment": inspected("/segment", address="{scope}#same"),
    "inspect segment archived": inspected("/segment", address="{scope}#old"),
    "inspect sources": inspected("/sources", id=MESSAGE),
    "inspect sources marker": inspected("/sources", id="{marker}"),
    "inspect recall": inspected("/recall", q=QUERY, limit="100"),
    "inspect recall marker": inspected("/recall", q="{marker}"),
    "inspect recall scope": inspected("/recall", q=QUERY, scope="{scope}, *"),
    "inspect context": inspected("/context", q=f"{QUERY} {{marker}}", budget="3000"),
    "inspect context small": inspected("/context", q=QUERY, budget="150"),
    "inspect threads": inspected("/threads"),
    "inspect thread": inspected("/thread", id="of-{scope}"),
    "inspect stacks": inspected("/stacks"),
    "inspect stack": inspected("/stack", id="{marker}", owner="{scope}"),
    "inspect dream": inspected("/dream"),
    "inspect pass": inspected("/pass", id="{marker}"),
    "inspect edit": inspected(
        "/segment/edit", form=True, address="{scope}#same", body="planted", kind="fact", expect="x"
    ),
    "inspect forget": inspected(
        "/segment/forget", form=True, address="{scope}#same", expect="0" * 64
    ),
    "inspect restore": inspected("/segment/restore", form=True, address="{scope}#same"),
}
SURFACES |= INSPECTED


def exported(memory: Memory, access: Access, _: str) -> object:
    records = memory.list(access=access)
    tree = memory.tree(access=access)
    return [*lines(records, (), tree, memory.settings), *tree.files()]


SURFACES |= {
    "mcp search": mcp("memory_search", query=QUERY, limit=50, scopes=["{scope}", "*"]),
    "mcp search marker": mcp("memory_search", query="{marker}"),
    "mcp get": mcp("memory_get", address="{scope}#same"),
    "mcp context": mcp("memory_context", query=f"{QUERY} {{marker}}", budget=3000),
    "mcp explain": mcp("memory_explain", query=f"{QUERY} {{marker}}", budget=3000),
    "mcp list": mcp("memory_list", limit=200),
    "mcp list page": mcp("memory_list", limit=3),
    "mcp list scope": mcp("memory_list", scope="{scope}", archived=True),
    "mcp status": mcp("memory_status"),
    "mcp plain search": mcp("search", query=QUERY),
    "mcp fetch": mcp("fetch", id="{scope}#same"),
    "mcp add": mcp("memory_add", scope="{scope}", text="planted"),
    "mcp update": mcp("memory_update", address="{scope}#same", text="planted"),
    "mcp delete": mcp("memory_delete", address="{scope}#same"),
    "mcp resource": lambda memory, access, scope: read_resource(
        Serving(memory, access), f"{scope}#same"
    ),
    "file tool view": file_tool("view", path="/memories"),
    "file tool view folder": file_tool("view", path="/memories/{folder}"),
    "file tool view file": file_tool("view", path="/memories/{folder}note.md"),
    "file tool create": file_tool("create", path="/memories/{folder}note.md", file_text="planted"),
    "file tool edit": file_tool(
        "insert", path="/memories/{folder}note.md", insert_line=0, insert_text="planted"
    ),
    "file tool delete": file_tool("delete", path="/memories/{folder}note.md"),
    "export": exported,
}


def corrected(memory: Memory, access: Access, scope: str) -> object:
    """What a model's correction does that names segments of the scope; each time the first one."""
    registry = Registry(Root(str(memory.root)))
    if access.session is not None:
        registry.drop(access.session, access.vp)
    elif access.chat is not None:
        registry.drop(access.chat, access.vp, family="chat")
    told = json.dumps({"add": [f"{scope}#same", "same"], "evict": [], "reason": "planted"})
    model = FunctionModel(lambda _: Completion(told))
    block = memory.context(QUERY, access=access)
    done = memory.adjust(QUERY, block, access=access, model=model)
    return done, memory.context(QUERY, access=access)


SURFACES |= {
    "thread": lambda memory, access, scope: (
        memory.thread(f"of-{scope}", access=access, create=False).id
    ),
    "thread context": lambda memory, access, scope: (
        memory.thread(f"of-{scope}", access=access, create=False)
        .context({"role": "user", "content": QUERY})
        .messages
    ),
    "thread search": lambda memory, access, _: [
        hit.text
        for own in SCOPES
        if holds_threads(own) and may_read(access, own)
        for hit in memory.thread(f"of-{own}", access=access, create=False).search("common words")
    ],
    "adjust": corrected,
}
# Refused for every foreign scope, whatever is there; {} stands for it.
WRITES: dict[str, Surface] = {
    "remember": lambda memory, access, scope: memory.remember(scope, "planted", access=access),
    "remember long": lambda memory, access, scope: memory.remember(
        scope, "long " * 100_000, access=access
    ),
    "remember forced": lambda memory, access, scope: memory.remember(
        scope, "planted", access=access, expect="", force=True
    ),
    "update nothing": lambda memory, access, scope: memory.update(
        f"{scope}#nothing", kind="goal", access=access, force=True
    ),
    "update note": lambda memory, access, scope: memory.update(
        f"{scope}#note_0123456789abcdef", body="planted", access=access
    ),
    "forget dry": lambda memory, access, scope: memory.forget(
        f"{scope}#same", access=access, dry_run=True
    ),
    "forget retired": lambda memory, access, scope: memory.forget(f"{scope}#old", access=access),
    "remember same": lambda memory, access, scope: memory.remember(
        scope, f"{QUERY} {marker(scope)} same", access=access
    ),
    "remember expect": lambda memory, access, scope: memory.remember(
        scope, "planted", access=access, expect="0" * 64
    ),
    "remember dry": lambda memory, access, scope: memory.remember(
        scope, "planted", access=access, dry_run=True
    ),
    "update": lambda memory, access, scope: memory.update(
        f"{scope}#same", body="planted", access=access
    ),
    "update dry": lambda memory, access, scope: memory.update(
        f"{scope}#same", tags=["x"], access=access, dry_run=True
    ),
    "forget": lambda memory, access, scope: memory.forget(f"{scope}#same", access=access),
    "forget expect": lambda memory, access, scope: memory.forget(
        f"{scope}#same", access=access, expect="0" * 64
    ),
    "purge": lambda memory, access, scope: memory.forget(
        f"{scope}#same", access=access, purge=True
    ),
    "unforget": lambda memory, access, scope: memory.unforget(f"{scope}#same", access=access),
    "scope delete": lambda memory, access, scope: memory.scopes.delete(scope, access=access),
    "scope delete dry": lambda memory, access, scope: memory.scopes.delete(
        scope, access=access, dry_run=True
    ),
    "scope rename": lambda memory, access, scope: memory.scopes.rename(
        scope, "sessions/taken", access=access
    ),
    "scope rename to": lambda memory, access, scope: memory.scopes.rename(
        "sessions/s1", scope, access=access
    ),
    "scope clone": lambda memory, access, scope: memory.scopes.clone(
        scope, "sessions/s1", access=access
    ),
    "scope purge": lambda memory, access, scope: memory.scopes.migrate(
        scope, purge=True, access=access
    ),
    "take in": lambda memory, access, scope: memory.take_in(
        [Incoming(scope=scope, body="planted", origin="there")], access=access
    ),
    "tree create": lambda memory, access, scope: memory.tree(access=access).create(
        f"{scope}/note.md", "planted"
    ),
}
COMMANDS = {
    "recall": ["recall", QUERY, "--json"],
    "recall plain": ["recall", QUERY, "--explain"],
    "recall explain": ["recall", f"{QUERY} {{marker}}", "--explain", "--json", "--limit=99"],
    "recall scope": ["recall", QUERY, "--scope={scope}", "--scope=no/such/*"],
    "context": ["context", QUERY, "--receipt"],
    "context explain": ["context", f"{QUERY} {{marker}}", "--explain", "--budget=2000"],
    "context json": ["context", QUERY, "--json", "--language=zh"],
    "list archived": ["list", "--archived"],
    "list nothing": ["list", "{scope}", "--json", "--archived"],
    "show retired": ["show", "{scope}#old"],
    "sources marker": ["sources", "{marker}"],
    "config": ["config"],
    "sync": ["sync", "{scope}"],
    "rebuild": ["rebuild", "--json"],
    "verify": ["verify"],
    "watch": ["watch"],
    "init": ["init", "--json"],
    "remember dry": ["remember", "{scope}", "planted", "--dry-run"],
    "edit dry": ["edit", "{scope}#same", "--tag=x", "--dry-run", "--json"],
    "edit editor": ["edit", "{scope}#same"],
    "purge": ["forget", "{scope}#same", "--purge"],
    "list": ["list", "--json"],
    "list scope": ["list", "{scope}"],
    "completion scopes": ["completion", "values", "--at=1", "--", "list", ""],
    "completion addresses": ["completion", "values", "--at=1", "--", "show", "{scope}"],
    "completion sessions": ["completion", "values", "--at=1", "--", "list", "--session="],
    "completion bash": ["completion", "bash"],
    "show": ["show", "{scope}#same", "--json"],
    "sources": ["sources", MESSAGE, "--json"],
    "status": ["status", "--json"],
    "status plain": ["status"],
    "remember": ["remember", "{scope}", "planted", "--json"],
    "edit": ["edit", "{scope}#same", "--body", "planted"],
    "forget": ["forget", "{scope}#same"],
    "undo": ["forget", "{scope}#same", "--undo"],
    "doctor": ["doctor", "--json"],
    "stack list": ["stack", "list", "--json"],
    "stack show": ["stack", "show", "s2", "--text"],
    "scope list": ["scope", "list", "--json"],
    "scope delete": ["scope", "delete", "{scope}", "--yes"],
    "scope delete dry": ["scope", "delete", "{scope}", "--dry-run", "--json"],
    "scope rename": ["scope", "rename", "{scope}", "sessions/taken"],
    "scope clone": ["scope", "clone", "sessions/s1", "{scope}"],
    "scope migrate": ["scope", "migrate", "{scope}"],
    "export": ["export"],
    "import": ["import", "jsonl", "{lines}", "--scope", "{scope}"],
    "thread list": ["thread", "list", "--json"],
    "thread show": ["thread", "show", "of-{scope}"],
    "thread context": ["thread", "context", "of-{scope}", QUERY, "--json"],
    "thread search": ["thread", "search", "of-{scope}", "{marker}"],
    "thread new": ["thread", "new", "planted", "--owner", "{scope}"],
    "dream run": ["dream", "run", "{scope}", "{lines}"],
    "dream status": ["dream", "status", "--json"],
    "summary show": ["summary", "show", "{scope}"],
    "summary refresh": ["summary", "refresh", "{scope}"],
    "audit": ["audit", "--json"],
    "audit scope": ["audit", "{scope}"],
}


def outcome(surface: Surface, memory: Memory, access: Access, foreign: str) -> str:
    """All that the call gives or raises, without times."""
    try:
        given_back = repr(surface(memory, access, foreign))
    except H2amsError as error:
        given_back = f"{type(error).__name__}: {error} {error.hint} {error.path} {vars(error)}"
    return timeless(given_back)


def timeless(text: str) -> str:
    return re.sub(r"""(['"]?elapsed_ms['"]?[=:] ?)[0-9.e-]+""", r"\1_", text)


def build(root: Path, scopes: list[str]) -> None:
    root.mkdir(exist_ok=True)
    for id, agent in AGENTS.items():
        write(root, f"sessions/{id}/session.md", f"---\nagent: {agent}\n---\n")
    for scope in scopes:
        plant(root, scope)


# -- accesses --------------------------------------------------------------------------------------

OPTIONAL = {
    "session": [None, "s1", "s1", "s2", "s3"],
    "vp": [None, "ada", "bob"],
    "chat": [None, None, "c1"],
    "agent": [None, None, "a1"],
    "user": [None, True, False, "read", "write"],
}
LISTS = {
    "related_sessions": ["s1", "s2", "s3", "s11", "none"],
    "scopes": ["topic/t1", "feature/f1", "topic/unfiled", "chat/c2", "vp/bob", "sessions/s2/vp/bob",
               "agent/a2", "sessions/s11", "sessions/s2/user"],
}  # fmt: skip
ACCESSES = st.builds(
    Access,
    **{name: st.sampled_from(values) for name, values in OPTIONAL.items()},
    **{name: st.lists(st.sampled_from(values), max_size=2) for name, values in LISTS.items()},
)
SOME = [
    Access(),
    Access(session="s1", vp="ada"),
    Access(session="s1", user=False),
    Access(session="s1", vp="bob", related_sessions=["s2", "s3"], user="write"),
    Access(chat="c1", vp="ada"),
    Access(agent="a1"),
    Access(session="s1", scopes=["topic/t1", "vp/bob"]),
    Access(user=True),
    Access(session="s2", chat="c1", vp="ada", agent="a1", related_sessions=["s1"]),
]


def parted(access: Access) -> tuple[list[str], list[str]]:
    """(own, foreign) scopes of ``access``."""
    own = [scope for scope in SCOPES if may_read(access, scope)]
    return own, [scope for scope in SCOPES if scope not in own]


# -- no marker ever appears ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    root = tmp_path_factory.mktemp("world")
    build(root, SCOPES)
    with opened(root) as memory:
        memory.sync()
        yield memory


# An access is small as it is: shrinking would only take minutes.
@settings(max_examples=max(20, settings().max_examples // 2), phases=UNSHRUNK)
@given(access=ACCESSES, data=st.data())
def test_no_outcome_holds_a_marker_of_a_foreign_scope(
    world: Memory, access: Access, data: st.DataObject
) -> None:
    own, foreign = parted(access)
    asked = data.draw(st.sampled_from(foreign))
    outcomes = {
        name: outcome(surface, world, access, asked)
        for name, surface in (SURFACES | WRITES).items()
    }
    for name, text in outcomes.items():
        for scope in foreign:
            if scope != asked or name in ("list", "status", "recall", "sources"):
                assert marker(scope) not in text, (name, scope)
            if scope != asked and scope not in access.scopes:
                assert not re.search(rf"(?<![\w/.]){re.escape(scope)}(?=['#])", text), (name, scope)
    for scope in own:  # or else nothing would be tested
        assert marker(scope) in outcomes["list"] or scope == "topic/unfiled"
        assert scope in outcomes["recall"]
    for name in WRITES:
        assert outcomes[name].startswith("AccessError"), name


# -- foreign scopes change nothing -----------------------------------------------------------------


def all_outcomes(root: Path, access: Access, foreign: list[str]) -> dict[str, str]:
    """The outcome of every surface, each asked about another foreign scope."""
    surfaces = SURFACES | WRITES
    asked = itertools.cycle(foreign)
    with opened(root) as memory:
        return {
            f"{name} {scope}": outcome(surface, memory, access, scope)
            for (name, surface), scope in zip(surfaces.items(), asked, strict=False)
        }


def assert_equal(before: dict[str, str], after: dict[str, str]) -> None:
    assert before.keys() == after.keys()
    for name in before:
        assert before[name] == after[name], name


@pytest.mark.parametrize("access", SOME, ids=lambda access: repr(access)[7:60])
def test_foreign_scopes_that_come_change_break_and_go_are_not_noticed(
    tmp_path: Path, access: Access
) -> None:
    root = tmp_path / "memory"
    own, foreign = parted(access)
    build(root, own)
    alone = all_outcomes(root, access, foreign)
    for scope in foreign:
        plant(root, scope)
    assert_equal(alone, all_outcomes(root, access, foreign))
    for scope in foreign:
        plant(root, scope, text=f"common common words {scope}", ids=("same", "two", "three"))
    assert_equal(alone, all_outcomes(root, access, foreign))
    for scope in foreign:
        spoil(root, scope)
    assert_equal(alone, all_outcomes(root, access, foreign))
    with opened(root) as memory:
        memory.sync()
        memory.rebuild()
    assert_equal(alone, all_outcomes(root, access, foreign))
    for scope in sorted(foreign, key=len, reverse=True):
        if not any(each.startswith(f"{scope}/") for each in own):
            remove(root, scope)
    assert_equal(alone, all_outcomes(root, access, foreign))


@settings(max_examples=max(5, settings().max_examples // 20), phases=UNSHRUNK)
@given(access=ACCESSES, order=st.randoms(use_true_random=False))
def test_an_index_that_met_foreign_scopes_first_answers_the_same(
    tmp_path_factory: pytest.TempPathFactory, access: Access, order: random.Random
) -> None:
    own, foreign = parted(access)
    root = tmp_path_factory.mktemp("order") / "memory"
    mixed = [*own, *foreign]
    order.shuffle(mixed)
    build(root, [])
    with opened(root) as memory:
        for scope in mixed:
            plant(root, scope)
            memory.sync()
    among_others = all_outcomes(root, access, foreign)
    shutil.rmtree(root)
    build(root, own)
    assert_equal(all_outcomes(root, access, foreign), among_others)


def test_a_commit_records_nothing_of_foreign_scopes(tmp_path: Path) -> None:
    access = Access(session="s1", vp="ada")
    own, foreign = parted(access)
    states = []
    for scopes in (own, SCOPES):
        root = tmp_path / f"memory{len(states)}"
        build(root, scopes)
        with opened(root) as memory:
            for query in (QUERY, *(marker(scope) for scope in foreign)):
                memory.context(query, access=access, commit=True)
            block = memory.context("another task", access=access)
        kept = sorted((root / ".h2ams/ams").rglob("*.json"))
        states.append(([path.read_text() for path in kept], repr(block).replace(str(root), "")))
        assert not any(marker(scope) in "".join(states[-1][0]) for scope in SCOPES)
    assert states[0] == states[1]


# -- writes across the border ----------------------------------------------------------------------


@pytest.mark.parametrize("access", SOME, ids=lambda access: repr(access)[7:60])
def test_a_write_across_the_border_is_refused_alike_whether_there_is_something_or_not(
    world: Memory, access: Access
) -> None:
    _, foreign = parted(access)
    before = {path: path.read_bytes() for path in Path(world.root).rglob("*.md")}
    refusals: dict[str, set[str]] = {}
    there = {scope: scope for scope in foreign}
    missing = {"vp/nobody": "vp/nobody", "chat/none": "chat/none", "sessions/none": "sessions/none"}
    for scope in (there | missing).values():
        for name, write_to in WRITES.items():
            text = outcome(write_to, world, access, scope)
            refusals.setdefault(name, set()).add(
                text.replace(scope, "{}").replace(marker(scope), "_")
            )
    for name, texts in refusals.items():
        assert len(texts) == 1, name
        assert next(iter(texts)).startswith("AccessError"), name
    assert {path: path.read_bytes() for path in Path(world.root).rglob("*.md")} == before


# -- the command line ------------------------------------------------------------------------------

FLAGS = ["--session=s1", "--vp=ada", "--related=s2"]
FLAGGED = Access(session="s1", vp="ada", related_sessions=["s2"])


def printed(root: Path, name: str, scope: str, flags: Sequence[str] = FLAGS) -> str:
    """Code and all output of a command, by the program itself in this process."""
    lines_file = root.parent / "lines.jsonl"
    lines_file.write_text('{"text": "planted"}\n', encoding="utf-8")
    known = {"{scope}": scope, "{marker}": marker(scope), "{lines}": str(lines_file)}
    words = list(COMMANDS[name])
    for mark, text in known.items():
        words = [word.replace(mark, text) for word in words]
    out, err = io.StringIO(), io.StringIO()
    where = ["--root", str(root), "--set", "encoding=estimate"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words, *where, *flags])
    if "--json" in words:
        json.loads(out.getvalue())
    assert "Traceback" not in err.getvalue()
    return timeless(f"{code}\n{out.getvalue()}\n{err.getvalue()}")


def test_the_command_line_as_a_process_prints_the_same(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    build(root, SCOPES)
    with opened(root) as memory:
        memory.sync()
    for name in ("recall", "status", "edit"):
        words = [word.replace("{scope}", "vp/bob") for word in COMMANDS[name]]
        done = cli(root, *words, *FLAGS)
        assert timeless(f"{done.code}\n{done.out}\n{done.err}") == printed(root, name, "vp/bob")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_with_access_flags_is_as_tight(tmp_path: Path, name: str) -> None:
    root = tmp_path / "memory"
    own, foreign = parted(FLAGGED)
    build(root, own)
    asked = "sessions/s1/vp/bob"
    with opened(root) as memory:
        memory.sync()
    alone = printed(root, name, asked)
    for scope in foreign:
        plant(root, scope)
    spoil(root, "sessions/s3")
    with opened(root) as memory:
        memory.sync()
    among_others = printed(root, name, asked)
    assert among_others == alone
    given = marker(asked) if any("{marker}" in word for word in COMMANDS[name]) else ""
    assert not any(marker(scope) in among_others for scope in foreign if marker(scope) != given)
    assert any(marker(scope) in alone for scope in own) or name not in ("recall", "context", "list")


def flags_of(access: Access) -> list[str]:
    """The flags that give the access."""
    flags = [
        f"--{name}={value}"
        for name in ("session", "chat", "vp", "agent")
        if (value := getattr(access, name)) is not None
    ]
    user = {None: [], False: ["--no-user"], True: ["--user"]}
    flags += user.get(access.user, [f"--user={access.user}"])
    flags += [f"--related={each}" for each in access.related_sessions]
    # Even the access to nothing is an access: an empty list is not the owner.
    return [*flags, *(f"--also={each}" for each in access.scopes)] or ["--also="]


@pytest.mark.parametrize("access", SOME, ids=lambda access: repr(access)[7:60])
def test_every_command_is_as_tight_for_every_kind_of_access(
    tmp_path: Path, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("H2AMS_NOW", NOW.isoformat())
    monkeypatch.setenv("VISUAL", "false")  # an editor that would be started is an error
    root = tmp_path / "memory"
    own, foreign = parted(access)
    flags = flags_of(access)
    asked = dict(zip(COMMANDS, itertools.cycle(foreign), strict=False))
    build(root, own)
    with opened(root) as memory:
        memory.sync()
    alone = {name: printed(root, name, scope, flags) for name, scope in asked.items()}
    for scope in foreign:
        plant(root, scope)
    for scope in foreign[::3]:
        spoil(root, scope)
    with opened(root) as memory:
        memory.sync()
    before = {path: path.read_bytes() for path in root.rglob("*.md") if path.is_file()}
    assert_equal(alone, {name: printed(root, name, scope, flags) for name, scope in asked.items()})
    after = {path: path.read_bytes() for path in root.rglob("*.md") if path.is_file()}
    assert after == before
    for name, scope in asked.items():
        assert not any(marker(each) in alone[name] for each in foreign if each != scope), name


# -- nobody forgets to join ------------------------------------------------------------------------

# Commands that read and write no scopes, each with the reason why it is not asked here.
APART: dict[str, str] = {
    "mcp": "it serves until its client goes; its calls are surfaces, and a client asks below",
    "setup": "it reads and writes files of host programs, and no memory",
    "inspect": "it serves until it is ended; its pages are surfaces, and a browser asks below",
}


class Recorder:
    """Notes the names of what is called on it, however deep."""

    def __init__(self, names: set[str], root: Path) -> None:
        self._names = names
        self.root = str(root)  # a real folder: some surfaces keep state of their own there

    def __getattr__(self, name: str) -> Recorder:
        self._names.add(name)
        return self

    def __call__(self, *words: object, **how: object) -> Recorder:
        return self


def takes_access(owner: type) -> set[str]:
    """Names of the public methods that take an access."""
    return {
        name
        for name, each in inspect.getmembers(owner, callable)
        if not name.startswith("_") and "access" in inspect.signature(each).parameters
    }


def test_every_call_that_takes_an_access_is_in_the_suite(tmp_path: Path) -> None:
    names: set[str] = set()
    for surface in (SURFACES | WRITES).values():
        with contextlib.suppress(TypeError):  # what is called is noted before it disappoints
            surface(Recorder(names, tmp_path), Access(), "vp/bob")  # type: ignore[arg-type]
    assert takes_access(Memory) - names == set()
    assert takes_access(Scopes) - names == set()


def test_every_command_is_in_the_suite() -> None:
    asked = {words[0] for words in COMMANDS.values()}
    assert set(PROGRAM_COMMANDS) - asked - set(APART) == set()
    assert all(APART.values()) and not set(APART) & asked


# -- one scope at a time ---------------------------------------------------------------------------


def one_by_one(root: Path, access: Access, scopes: Sequence[str]) -> int:
    """Each of ``scopes`` comes, changes, breaks and goes alone; the count of outcomes compared."""
    own, foreign = parted(access)
    build(root, own)
    alone = all_outcomes(root, access, foreign)
    compared = 0
    for scope in scopes:
        if any(each.startswith(f"{scope}/") for each in own):
            continue  # its folder cannot go: an own scope lies in it
        for change in (plant, spoil, remove):
            change(root, scope)
            after = all_outcomes(root, access, foreign)
            assert_equal(alone, after)
            compared += len(after)
    return compared


@pytest.mark.parametrize("number", range(3))
def test_a_single_foreign_scope_is_not_noticed(tmp_path: Path, number: int) -> None:
    access = SOME[1 + 2 * number]
    _, foreign = parted(access)
    assert one_by_one(tmp_path / "memory", access, foreign[number::12]) > 100


@pytest.mark.long
@pytest.mark.parametrize("access", SOME, ids=lambda access: repr(access)[7:60])
def test_no_single_foreign_scope_is_noticed_by_any_access(tmp_path: Path, access: Access) -> None:
    _, foreign = parted(access)
    assert one_by_one(tmp_path / "memory", access, foreign) > 1_000


# -- an empty list of scopes -----------------------------------------------------------------------

NOTHING = [
    Access(),
    Access(scopes=[]),
    Access(scopes=(), related_sessions=()),
    Access(user=False),
    Access(related_sessions=["s1", "s2"]),  # related to no session
    Access(session="nobody-yet", user=False, scopes=[]),
]


@pytest.mark.parametrize("access", NOTHING, ids=lambda access: repr(access)[7:60])
def test_an_access_to_nothing_sees_nothing(world: Memory, access: Access) -> None:
    for query in (QUERY, "ommo", marker("user"), f"{marker('vp/bob')[:8]}*", ""):
        found = world.recall(query, access=access, limit=100)
        shown = {hit.record.scope for hit in found.hits}
        assert shown <= ({"global"} if access.session else set())
    assert {x.scope for x in world.list(access=access)} <= ({"global"} if access.session else set())
    assert world.sources(marker("user"), access=access) == ()
    if access.session is None:
        status = world.status(access=access)
        assert (status.scopes, status.segments, status.notes, status.tokens) == (0, 0, 0, 0)
        assert world.context(QUERY, access=access).text == ""
        assert world.recall(QUERY, access=access).searched_scopes == ()


@pytest.mark.parametrize("access", [None, *SOME], ids=lambda access: repr(access)[:60])
def test_a_recall_in_an_empty_list_of_scopes_finds_nothing(
    world: Memory, access: Access | None
) -> None:
    for scopes in ([], (), ["no/such/scope"], ["sessions/none/*"], [""]):
        found = world.recall(QUERY, access=access, scopes=scopes, limit=100)
        assert found.hits == () and found.searched_scopes == ()
    assert world.recall(QUERY, scopes=None).hits


def test_an_empty_scope_on_the_command_line_is_no_scope(world: Memory, tmp_path: Path) -> None:
    for words in (["--scope="], ["--scope", ","], ["--also="], ["--related", ","]):
        done = cli(Path(world.root), "recall", QUERY, "--json", *words)
        assert (done.code, json.loads(done.out)["hits"]) == (0, []), words


# -- what was kept of before -----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["address", "bare id"])
def test_an_active_set_that_names_foreign_segments_shows_none_of_them(
    tmp_path: Path, form: str
) -> None:
    """State of an earlier time, of another VP, or edited: the ids are asked for anew."""
    access = Access(session="s1", vp="ada")
    own, foreign = parted(access)
    named = [f"{scope}#same" if form == "address" else "same" for scope in foreign]
    outcomes = []
    for number, scopes in enumerate((own, SCOPES)):
        root = tmp_path / f"memory{number}"
        build(root, scopes)
        state = {"version": 1, "recentIds": named, "onDemandIds": named}
        write(root, "sessions/s1/ams.json", json.dumps(state))
        with opened(root) as memory:
            blocks = [memory.context(QUERY, access=access, commit=True) for _ in range(3)]
        kept = [path.read_text() for path in sorted((root / ".h2ams/ams").rglob("*.json"))]
        outcomes.append(timeless(f"{blocks} {kept}").replace(str(root), ""))
        assert not any(marker(scope) in outcomes[-1] for scope in foreign)
    assert outcomes[0] == outcomes[1]


# -- the MCP server, as its clients see it ---------------------------------------------------------


async def everything(host: Client, foreign: str) -> str:
    """All that a client can learn: descriptions, resources, calls and their errors."""
    seen: list[object] = [await host.list_tools(), await host.list_resource_templates()]
    cursor = None
    while True:
        page = await host.list_resources(cursor=cursor)
        seen.append(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    for uri in (f"h2ams://{foreign}/same", "h2ams://user/same", f"h2ams://{foreign}/none"):
        try:
            seen.append(await host.read_resource(uri))
        except MCPError as error:
            seen.append(repr(error))
    for name, asked in (
        ("memory_search", {"query": QUERY, "limit": 50}),
        ("memory_search", {"query": marker(foreign), "scopes": [foreign]}),
        ("memory_list", {"limit": 200}),
        ("memory_status", {}),
        ("memory_add", {"scope": foreign, "text": "planted"}),
        ("memory_get", {"address": f"{foreign}#same"}),
    ):
        seen.append(await host.call_tool(name, asked))
    return timeless(repr(seen))


@pytest.mark.parametrize("transport", ["in this process", "stdio"])
def test_a_client_of_the_mcp_server_learns_nothing_of_foreign_scopes(
    tmp_path: Path, transport: str
) -> None:
    root = tmp_path / "memory"
    own, foreign = parted(FLAGGED)
    build(root, own)
    asked = "sessions/s1/vp/bob"

    def learned() -> str:
        found: list[str] = []

        async def ask() -> None:
            if transport == "stdio":
                async with client(root, *FLAGS) as host:
                    found.append(await everything(host, asked))
                return
            with opened(root) as memory:
                async with inside(memory, FLAGGED) as host:
                    found.append(await everything(host, asked))

        run(ask)
        return found[0]

    alone = learned()
    for scope in foreign:
        plant(root, scope)
    spoil(root, "sessions/s3")
    with opened(root) as memory:
        memory.sync()
    among_others = learned()
    assert among_others == alone
    assert not any(marker(scope) in among_others for scope in foreign if scope != asked)
    assert all(marker(scope) in alone for scope in own if scope != "topic/unfiled")


# -- summaries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("access", SOME, ids=lambda access: repr(access)[7:60])
def test_the_summary_of_a_foreign_scope_is_not_there(world: Memory, access: Access) -> None:
    """Also where a related session belongs to another agent: that is known from its card alone."""
    own, foreign = parted(access)
    for scope in foreign:
        with pytest.raises(NotFoundError):
            world.summary(scope, access=access)
        html = str(INSPECTED["inspect scope"](world, access, scope))
        assert marker(scope) not in html
    for scope in own:
        if scope != "topic/unfiled":
            assert marker(scope) in world.summary(scope, access=access)[1].text


# -- the inspector, as a browser sees it -----------------------------------------------------------


def test_every_page_of_the_inspector_is_in_the_suite() -> None:
    assert {*PAGES, *ACTIONS} == PAGES_ASKED


def test_a_browser_at_the_inspector_learns_nothing_of_foreign_scopes(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    own, foreign = parted(FLAGGED)
    build(root, own)
    asked = "sessions/s1/vp/bob"
    paths = [
        "/", "/threads", "/stacks", "/dream", where("/sources", id=MESSAGE),
        where("/recall", q=QUERY, limit="100"), where("/context", q=QUERY, budget="3000"),
        where("/scope", name=asked), where("/segment", address=f"{asked}#same"),
        where("/thread", id=f"of-{asked}"), "/nothing",
        *(where("/scope", name=scope) for scope in own),
    ]  # fmt: skip

    def learned() -> str:
        with serving(root, access=tuple(FLAGS)) as server:
            answers = [server.ask("GET", path) for path in paths]
        return "\n".join(f"{each.status} {each.data.decode()}" for each in answers)

    alone = learned()
    for scope in foreign:
        plant(root, scope)
    spoil(root, "sessions/s3")
    with opened(root) as memory:
        memory.sync()
    among_others = learned()
    assert among_others == alone
    assert not any(marker(scope) in among_others for scope in foreign)
    assert all(marker(scope) in alone for scope in own)
