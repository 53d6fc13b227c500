"""Bad input of every kind, at random: ``python tools/fuzz.py --seconds 60``.

    --target NAME    only this one (repeatable); without it, all in turn
    --seconds N      stop after so long
    --cases N        or after so many cases
    --seed N         of the first case; case k of a target has the seed N + k

Each target draws an input from its own random numbers and works on it; what it may raise is an
``H2amsError`` and nothing else, and what must hold is asserted. A finding prints the input and the
command that runs this one case again. Exit code 1 with any finding. A target joins by one line in
``TARGETS``; what is found becomes a test with a name (tests/crash/test_fuzz.py).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from h2ams import Access, H2amsError, Memory, Settings
from h2ams.config import resolve_settings
from h2ams.errors import ConfigError
from h2ams.files import Root
from h2ams.memory import card, legacy, note, segment, summary
from h2ams.memory.scope import parse_address, parse_scope
from h2ams.settings import DEFAULTS, setting_names

NOW = datetime(2026, 12, 1, tzinfo=UTC)
PLAIN = Settings(encoding="estimate", lock_timeout_ms=5_000)
ATOMS = (
    *("---", "--- ", "---\n", "\n", "\r\n", "\r", "\n\n", "```\n", "~~~"),
    *("<!-- dream-state -->\n", "<!-- /dream-state -->", "id: ", "id: a\n"),
    *("scope: user\n", "kind: fact\n", "kind: [", "tags: ", 'tags: [a, "b"]\n'),
    *("sourceMessages: [m1]\n", "createdAt: 2026-05-04T09:30:00.000Z\n", "# H\n"),
    *("escaped: true\n", "\\", "\\---\n", "&a", "*a", "!!x", "<<: *a", "{", "}", "["),
    *("]", '"', "'", ": ", ",", "#", "~2", "..", "../", "/", "//", "\\..\\", "C:", "con"),
    *("user", "sessions/s1", "vp/", "group/g", "topic/a/b", "content.md", "memory.md"),
    *("\x00", "\x1b[31m", "\x7f", "\x85", "\u2028", "\ufeff", "\ufffe", "😀", "é", "é"),
    *("ß", "İ", "ﬁ", "认证", "한국어", "ไทย", "עברית", "\u200b", "\u202e", "*", "?"),
    *('"phrase"', "NEAR(", "AND", "OR", "NOT", "^", "words:", "a" * 300, "null", "true"),
    *("1e999", "NaN", "-0", "9" * 400, "2026-13-45", "<private>", "</private>", " "),
    *("\t", "<memory-context>", "</memory-context>", "sk-ant-api03-abcdefghijklmnop"),
    *("%2e%2e", "$(x)", "`x`"),
)  # fmt: skip


def some_text(chance: random.Random, most: int = 12) -> str:
    """Awkward pieces, random characters and plain words in any order; no lone surrogates."""
    pieces = []
    for _ in range(chance.randrange(most)):
        kind = chance.random()
        if kind < 0.6:
            pieces.append(chance.choice(ATOMS))
        elif kind < 0.8:
            pieces.append("".join(chr(any_char(chance)) for _ in range(chance.randrange(1, 6))))
        else:
            pieces.append(chance.choice(("alpha ", "beta", " gamma delta", "x\n")))
    return "".join(pieces)


def any_char(chance: random.Random) -> int:
    code = chance.randrange(chance.choice((0x80, 0x300, 0x10000, 0x110000)))
    return code if not 0xD800 <= code < 0xE000 else 0x20


def some_bytes(chance: random.Random) -> bytes:
    """A file as a person, a program or a broken disk leaves it."""
    data = bytearray(some_text(chance, 40).encode())
    if chance.random() < 0.3:
        data = bytearray(sound_file(chance))
    for _ in range(chance.choice((0, 0, 1, 3, 20))):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 1:
            del data[at : at + chance.randrange(1, 30)]
        elif kind == 2:
            data[at:at] = data[at : at + chance.randrange(1, 60)]
        elif data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
    if chance.random() < 0.05:
        data[:0] = chance.choice((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"))
    return bytes(data)


def sound_file(chance: random.Random) -> bytes:
    made = [
        segment.Segment(
            some_text(chance) or "x",
            id=f"seg_{number}",
            scope="user",
            tags=tuple(f"t{n}" for n in range(chance.randrange(3))),
            created_at="2026-05-04T09:30:00Z",
        )
        for number in range(chance.randrange(4))
    ]
    return segment.serialize(made, chance.choice(("\n", "\r\n")))


def some_json(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return chance.choice((None, True, False))
    if kind == 1:
        return chance.choice((0, -1, 1, 2, 10**30, 1.5, -1e300))
    if kind < 6:
        return chance.choice((some_text(chance, 3), "user#a", "a", "sessions/s1", "", "0" * 64))
    if kind < 8:
        return [some_json(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {some_text(chance, 2): some_json(chance, depth + 1) for _ in range(chance.randrange(4))}


def mutated(chance: random.Random, sound: bytes) -> bytes:
    """A state file with a value replaced, a key lost, bytes damaged, or something else in it."""
    kind = chance.random()
    if kind < 0.15:
        return some_bytes(chance)
    try:
        value = json.loads(sound)
    except ValueError:
        value = {}
    if kind < 0.75 and isinstance(value, dict) and value:
        key = chance.choice(sorted(value))
        if chance.random() < 0.3:
            del value[key]
        else:
            value[key] = some_json(chance)
        return json.dumps(value).encode()
    if kind < 0.85:
        return json.dumps(some_json(chance)).encode()
    data = bytearray(sound)
    for _ in range(chance.randrange(1, 5)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)


# -- targets ---------------------------------------------------------------------------------------

Show = Callable[[str, object], None]


def parse(chance: random.Random, show: Show) -> None:
    """Any bytes are read: nothing is raised, nothing lost, and what is said of them is in them."""
    data = some_bytes(chance)
    show("data", data)
    document = segment.parse(data)
    assert segment.render(document) == data
    lines = document.text.count("\n") + 1
    assert all(0 <= each.line <= lines for each in document.problems)
    assert len({each.address_id for each in document.entries}) == len(document.entries)
    sections, problems = note.parse_note(data, name="n.md", settings=DEFAULTS)
    assert all(each.line >= 0 for each in problems) and sections is not None
    summary.parse_summary(data)
    card.parse_card(data)
    legacy.parse_dream_state(data)
    legacy.parse_redirect(data, parse_scope("sessions/s1/topic/a"))


def edit(chance: random.Random, show: Show) -> None:
    """An edit of one segment keeps every other one, byte for byte, in whatever file."""
    data = some_bytes(chance)
    show("data", data)
    document = segment.parse(data)
    made = segment.Segment(some_text(chance) or "x", id="seg_new", scope="user", tags=("t",))
    show("segment", made)
    try:
        after = segment.append(document, made)
    except H2amsError:
        return
    read = segment.parse(after)
    assert made.body in [each.segment.body for each in read.entries]
    assert len(read.entries) == len(document.entries) + 1
    for place, entry in enumerate(document.entries):
        with contextlib.suppress(H2amsError):
            left = segment.parse(segment.remove(document, place))
            others = [x.segment.body for n, x in enumerate(document.entries) if n != place]
            assert [x.segment.body for x in left.entries] == others
        with contextlib.suppress(H2amsError):
            changed = segment.replace(document, place, segment.Segment(made.body, id="seg_new"))
            found = segment.parse(changed).entries
            assert found[place].segment.body == made.body
            assert [x.raw for n, x in enumerate(found) if n != place] == [
                x.raw for n, x in enumerate(document.entries) if n != place
            ]
        assert entry.raw


def folder(chance: random.Random, show: Show) -> None:
    """A folder of any files: all calls answer, the index equals a rebuild, a repair is stable."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "root"
        root.mkdir()
        for _ in range(chance.randrange(1, 6)):
            name, data = some_path(chance), some_bytes(chance)
            show(name, data)
            put(root, name, data)
        with open_folder(root) as memory:
            clock = memory._syncer.clock_ns
            memory.sync()
            use_all(memory, chance, show)
            memory._syncer.clock_ns = lambda: clock() + 10_000_000_000
            memory.sync()
            checked = memory.verify()
            assert checked.ok, checked
            memory.doctor(fix=True)
            again = memory.doctor(fix=True)
            assert again.fixed == () and again.diff == "", again
            digest = memory.verify().digest
            memory.rebuild()
            checked = memory.verify()
            assert checked.ok and checked.digest == digest


def some_path(chance: random.Random) -> str:
    parts = []
    for _ in range(chance.randrange(3)):
        usual = (
            "user",
            "sessions",
            "s1",
            "vp",
            "ada",
            "group",
            "topic",
            "chat",
            "t",
            "agent",
            ".x",
        )
        parts.append(chance.choice((*usual, some_text(chance, 3))))
    names = ("memory.md", "content.md", "summary.md", "note.md", "archive.md", "session.md")
    return "/".join((*parts, chance.choice((*names, "redirect.json", "ams.json", "summary.zh.md"))))


def put(root: Path, name: str, data: bytes) -> None:
    """Write the file where the file system takes the name and it stays inside the root."""
    path = root / name.lstrip("/")
    with contextlib.suppress(OSError, ValueError):
        if root not in path.resolve().parents:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def use_all(memory: Memory, chance: random.Random, show: Show) -> None:
    """Every reading call for the owner and for an access, and writes to what is there."""
    text = some_text(chance)
    show("query", text)
    access = Access(session="s1", vp="ada", user="write")
    for each in (None, access):
        hits = memory.recall(text, access=each, limit=5).hits
        memory.recall("alpha", access=each)
        block = memory.context(text or "alpha", access=each, budget=200, commit=each is not None)
        assert block.tokens <= 200
        memory.status(access=each)
        for record in memory.list(access=each)[:5]:
            assert memory.get(record.address, access=each).digest == record.digest
        for hit in hits:
            assert memory.get(hit.record.address, access=each).body == hit.record.body
    for record in memory.list()[:3]:
        with contextlib.suppress(H2amsError):
            memory.update(record.address, tags=["fuzz"])
            memory.forget(record.address)
            memory.unforget(record.address)
    with contextlib.suppress(H2amsError):
        memory.remember("user", text)


class Shared:
    """One small folder for the targets that do not change it."""

    def __init__(self) -> None:
        self._base = tempfile.TemporaryDirectory(prefix="h2ams-fuzz-")
        root = Path(self._base.name) / "root"
        for scope in ("user", "sessions/s1", "sessions/s1/vp/ada", "vp/bob", "topic/t"):
            data = segment.serialize(
                [
                    segment.Segment(
                        f"{scope} alpha beta {n} 认证 getUserName", id=f"id{n}", tags=("x",)
                    )
                    for n in range(5)
                ]
            )
            put(root, f"{scope}/memory.md", data)
        self.memory = Memory.open(root, settings=PLAIN, now=lambda: NOW)
        self.memory.sync()

    def close(self) -> None:
        self.memory.close()
        self._base.cleanup()


SHARED: list[Shared] = []


def shared() -> Memory:
    if not SHARED:
        SHARED.append(Shared())
    return SHARED[0].memory


def query(chance: random.Random, show: Show) -> None:
    """No text is syntax, none raises, and a result is what the access may see."""
    text = some_text(chance, 20)
    access = chance.choice((None, Access(session="s1", vp="ada"), Access(vp="bob"), Access()))
    show("query", text)
    show("access", access)
    found = shared().recall(text, access=access, limit=20)
    scores = [hit.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    assert all(hit.record.scope in found.searched_scopes for hit in found.hits)
    block = shared().context(text, access=access, budget=chance.choice((0, 1, 40, 300)))
    assert block.tokens <= block.budget
    with contextlib.suppress(H2amsError):
        shared().recall("alpha", scopes=[some_text(chance, 3)], after=some_text(chance, 2))
    with contextlib.suppress(H2amsError):
        shared().recall("alpha", tags=[some_text(chance, 2)], kinds=[some_text(chance, 1)])


def ids(chance: random.Random, show: Show) -> None:
    """A scope, address or path is refused or means one place inside the root."""
    text = some_text(chance, 4) + chance.choice(("", "", "", "\ud800", "\udcff"))
    show("text", text)
    with contextlib.suppress(H2amsError):
        scope = parse_scope(text)
        assert parse_scope(scope.text) == scope
        root = Root(shared().root)
        assert root.absolute(scope.text).startswith(root.path)
    with contextlib.suppress(H2amsError):
        scope, id = parse_address(text)
        assert parse_address(f"{scope}#{id}") == (scope, id)
    for call in (
        lambda: Access(session=text, vp=text),
        lambda: Access(scopes=[text], related_sessions=[text]),
        lambda: shared().get(text),
        lambda: shared().get(f"user#{text}"),
        lambda: shared().list(text),
        lambda: shared().sources(text),
        lambda: shared().sync([text]),
        lambda: shared().remember(text, "x", dry_run=True),
        lambda: shared().update(f"user#{text}", body="x", dry_run=True),
        lambda: shared().forget(f"{text}#id0", dry_run=True),
        lambda: shared().touch([text]),
        lambda: Root(shared().root).read(text),
    ):
        with contextlib.suppress(H2amsError):
            call()


def state(chance: random.Random, show: Show) -> None:
    """Whatever stands in a state file: a cold start or one clear error, and the memory is read."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "root"
        access = Access(session="s1", vp="ada", user="write")
        put(root, "user/memory.md", b"---\nid: a\n---\nalpha\n\n---\nid: b\n---\nbeta\n")
        put(root, "sessions/s1/topic/old/redirect.json", b'{"version":1,"canonical":"new"}')
        put(root, "sessions/s1/ams.json", b'{"version":1,"recentIds":["a"],"onDemandIds":["b"]}')
        with open_folder(root) as memory:
            memory.context("alpha", access=access, commit=True)
            memory.forget("user#b")
            with contextlib.suppress(H2amsError):
                memory.update("user#a", body="x", expect="0" * 64)
        files = [path for path in sorted(root.rglob("*")) if is_state(root, path)]
        path = chance.choice(files)
        data = mutated(chance, path.read_bytes())
        show(str(path.relative_to(root)), data)
        path.write_bytes(data)
        with open_folder(root) as memory:
            assert memory.recall("alpha", access=access).hits
            memory.context("alpha", access=access, commit=True)
            memory.status()
            for call in (
                lambda: memory.unforget("user#b"),
                lambda: memory.remember("sessions/s1/topic/old", "text"),
                lambda: memory.forget("user#a", purge=True),
                lambda: memory.touch(["user#a"], access=access),
                lambda: memory.store.dream_state(parse_scope("sessions/s1")),
            ):
                with contextlib.suppress(H2amsError):
                    call()
            memory.doctor(fix=True)
            assert memory.verify().ok


class Died(BaseException):
    """In place of a kill: nothing in between may catch it."""


def journal(chance: random.Random, show: Show) -> None:
    """An operation on a scope that died half-way, and its journal damaged: finished, undone, or one
    error that says where; what does not belong to the operation is never touched."""
    with tempfile.TemporaryDirectory() as base:
        root = Path(base) / "root"
        for name in ("user", "sessions/s1", "sessions/s1/vp/ada", "group/s1", "vp/ada", "chat/c"):
            put(root, f"{name}/memory.md", b"---\nid: a\n---\nalpha " + name.encode() + b"\n")
        untouched = {name: (root / name / "memory.md").read_bytes() for name in ("user", "chat/c")}
        left = chance.randrange(1, 60)

        def hook(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Died

        with contextlib.suppress(Died), open_folder(root) as memory:
            memory.sync()
            memory._root._writer._hook = hook
            scopes = memory.scopes
            chance.choice(
                (
                    lambda: scopes.delete("sessions/s1"),
                    lambda: scopes.rename("sessions/s1", "sessions/s2"),
                    lambda: scopes.clone("sessions/s1", "sessions/s2"),
                    lambda: scopes.migrate(),
                )
            )()
        files = sorted((root / ".h2ams/journal").glob("*.json"))
        for path in files:
            data = (
                mutated(chance, path.read_bytes()) if chance.random() < 0.8 else path.read_bytes()
            )
            show(path.name, data)
            path.write_bytes(data)
        with contextlib.suppress(H2amsError), open_folder(root) as memory:
            memory.sync()
            assert memory.verify().ok
        for path in files:
            path.unlink(missing_ok=True)
        with open_folder(root) as memory:  # what a person does about a journal that nobody can read
            memory.sync()
            assert memory.verify().ok
        for name, data in untouched.items():
            assert (root / name / "memory.md").read_bytes() == data, name


def open_folder(root: Path) -> Memory:
    return Memory.open(root, settings=PLAIN, now=lambda: NOW)


def is_state(root: Path, path: Path) -> bool:
    own = path.relative_to(root).parts[0] == ".h2ams"
    kept = not path.name.startswith("index.db") and "locks" not in path.parts
    return path.is_file() and (path.suffix == ".json" or (own and kept))


def config(chance: random.Random, show: Show) -> None:
    """Settings are values of their type, or a ``ConfigError`` says which is not."""
    lines = []
    for _ in range(chance.randrange(6)):
        name = chance.choice((*setting_names(), some_text(chance, 2)))
        value = chance.choice(("1", "-1", "0", "1.5", '"x"', "true", "1e400", "[1]", "nan", "inf"))
        lines.append(f"{name} = {chance.choice((value, some_text(chance, 2)))}")
    data = "\n".join(lines).encode()
    if chance.random() < 0.2:
        data = some_bytes(chance)
    show("config.toml", data)
    with tempfile.TemporaryDirectory() as base:
        put(Path(base), ".h2ams/config.toml", data)
        environ = {"HOME": base, f"H2AMS_{chance.choice(setting_names()).upper()}": "7"}
        try:
            settings, _ = resolve_settings(base, environ=environ)
        except ConfigError:
            return
        with (
            contextlib.suppress(H2amsError),
            Memory.open(Path(base), settings=settings, now=lambda: NOW) as memory,
        ):
            memory.recall("alpha")


def command(chance: random.Random, show: Show) -> None:
    """Any words on the command line: an exit code, one line of error, in JSON one document."""
    from h2ams.surfaces.cli import COMMANDS, main

    names = [name for name in COMMANDS if name not in ("watch", "edit", "inspect")]
    words = [chance.choice(names)]
    options = (
        "--json",
        "--session",
        "--vp=ada",
        "--also",
        "--limit",
        "--kind",
        "--tag",
        "--explain",
    )
    options += (
        "--dry-run",
        "--fix",
        "--budget=9",
        "--set",
        "--expect",
        "--user",
        "-v",
        "--archived",
    )
    for _ in range(chance.randrange(5)):
        usual = ("user", "alpha", "user#id0", "sessions/s1", "5")
        words.append(
            chance.choice((chance.choice(options), chance.choice(usual), some_text(chance, 2)))
        )
    words = [word for word in words if word not in ("-", "--purge") and "\0" not in word]
    show("words", words)
    shared()
    out, err = io.StringIO(), io.StringIO()
    place = ["--root", SHARED[0].memory.root, "--set", "encoding=estimate"]
    if words[0] == "init":
        words = ["init"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words[:1], *place, *words[1:]])
    assert code in (0, 1, 2), code
    assert "Traceback" not in err.getvalue(), err.getvalue()
    options_end = words.index("--") if "--" in words else len(words)
    if "--json" in words[:options_end]:
        json.loads(out.getvalue())


TARGETS: dict[str, Callable[[random.Random, Show], None]] = {
    "parse": parse,
    "edit": edit,
    "folder": folder,
    "query": query,
    "ids": ids,
    "state": state,
    "journal": journal,
    "config": config,
    "command": command,
}


# -- the run ---------------------------------------------------------------------------------------


def case(name: str, seed: int) -> str:
    """Run one case; "" or what was found, with its input."""
    inputs: list[str] = []

    def show(what: str, value: object) -> None:
        inputs.append(f"  {what}: {value!r}"[:4_000])

    try:
        TARGETS[name](random.Random(f"{name} {seed}"), show)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - that is what is looked for
        lines = [f"{name}: case {seed}", *inputs, traceback.format_exc().rstrip()]
        again = f"python tools/fuzz.py --target {name} --seed {seed} --cases 1"
        return "\n".join([*lines, f"again: {again}", ""])
    return ""


def cases(names: list[str], seed: int) -> Iterator[tuple[str, int]]:
    number = seed
    while True:
        for name in names:
            yield name, number
        number += 1


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="random bad input")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--cases", type=int, help="of each target")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(words)
    names = args.target or list(TARGETS)
    seconds = args.seconds if args.seconds or args.cases else 30.0
    until = time.monotonic() + (seconds or float("inf"))
    counts, found = Counter[str](), 0
    os.environ["H2AMS_NOW"] = NOW.isoformat()
    try:
        for name, seed in cases(names, args.seed):
            if time.monotonic() > until or (args.cases and seed >= args.seed + args.cases):
                break
            counts[name] += 1
            finding = case(name, seed)
            if finding:
                found += 1
                print(finding, flush=True)
    finally:
        while SHARED:
            SHARED.pop().close()
    total = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"{sum(counts.values())} cases ({total}), seed {args.seed}: {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
