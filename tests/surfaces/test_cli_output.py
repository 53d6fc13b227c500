"""Streams, errors and exit codes of the command line, with a scripted engine."""

from __future__ import annotations

import io
import json
import threading
from types import SimpleNamespace

import pytest
from fakes import ScriptedMemory
from hypothesis import given
from hypothesis import strategies as st

from h2ams import errors
from h2ams.memory.record import Hit, Record
from h2ams.surfaces.cli import main
from h2ams.surfaces.output import Bar, Output, Progress, encodable, first_line, one_line, visible


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def record(**values: object) -> Record:
    """A segment with everything in it."""
    base: dict[str, object] = {
        "scope": "user",
        "id": "seg_1",
        "kind": "preference",
        "tags": ("editor",),
        "body": "Prefers tabs.",
        "heading": "",
        "created_at": None,
        "updated_at": "2026-04-30T08:00:00Z",
        "source_messages": ("m_1",),
        "path": "user/memory.md",
        "line": 1,
        "tokens": 3,
        "digest": "d" * 64,
    }
    return Record(**(base | values))  # type: ignore[arg-type]


def recall_of(*records: Record, **values: object) -> SimpleNamespace:
    """The answer of ``Memory.recall``."""
    hits = tuple(Hit(each, 1.5, {"bm25": 1.0, "tag": 0.5}, ("tabs",)) for each in records)
    base = {"query": "q", "keywords": ("q",), "relaxed": False, "hits": hits, "degraded": ()}
    base |= {"searched_scopes": ("user",), "elapsed_ms": 0.1, "dropped_terms": (), "below_gate": ()}
    return SimpleNamespace(**(base | values))


def run(capsys: pytest.CaptureFixture[str], memory: ScriptedMemory, *words: str) -> tuple:
    """Exit code, standard output, standard error."""
    code = main(words, opener=memory.open)
    return code, *capsys.readouterr()


CODES = [
    (errors.UsageError("x"), "usage", 2),
    (errors.ScopeError("x"), "scope", 2),
    (errors.ConfigError("x"), "config", 2),
    (errors.NotFoundError("x"), "not-found", 1),
    (errors.AccessError("x"), "access", 1),
    (errors.RootError("x"), "root", 1),
    (errors.UnsafePathError("x"), "unsafe-path", 1),
    (errors.ConflictError("x", expected="a", actual="b"), "conflict", 1),
    (errors.LockTimeoutError("x", path="p", holder="pid 1"), "lock-timeout", 1),
    (errors.LimitError("x", name="max_segment_chars", limit=1, size=2), "limit", 1),
    (errors.ReadOnlyError("x"), "read-only", 1),
    (errors.StoreError("x"), "store", 1),
    (errors.IndexFaultError("x"), "index", 1),
    (errors.H2amsError("x"), "error", 1),
    (PermissionError(13, "Permission denied", "file"), "system", 1),
    (ValueError("x"), "internal", 1),
    (RecursionError(), "internal", 1),
    (KeyboardInterrupt(), "interrupted", 130),
]


@pytest.mark.parametrize(("error", "name", "code"), CODES, ids=lambda each: str(each)[:20])
def test_K60_every_error_is_one_line_and_with_json_one_document(
    capsys: pytest.CaptureFixture[str], error: BaseException, name: str, code: int
) -> None:
    memory = ScriptedMemory(recall=error)
    got, out, err = run(capsys, memory, "recall", "q")
    assert (got, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("h2ams: ") and "Traceback" not in err
    got, out, err = run(capsys, memory, "recall", "q", "--json")
    document = json.loads(out)["error"]
    assert (got, document["code"], err.count("\n")) == (code, name, 1)
    assert {"code", "message", "hint"} <= document.keys()
    assert memory.closed


def test_the_fields_of_an_error_are_in_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(get=errors.ConflictError("x", expected="a", actual="b", path="p"))
    _, out, _ = run(capsys, memory, "show", "user#a", "--json")
    document = json.loads(out)["error"]
    assert (document["expected"], document["actual"], document["path"]) == ("a", "b", "p")


def test_the_traceback_is_shown_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(recall=ValueError("inner"))
    _, _, err = run(capsys, memory, "recall", "q")
    assert "--debug" in err and "Traceback" not in err
    _, out, err = run(capsys, memory, "recall", "q", "--debug", "--json")
    assert "Traceback" in err and json.loads(out)["error"]["code"] == "internal"


@pytest.mark.parametrize(
    "words",
    [
        ["--json"],
        ["--json", "nonsense"],
        ["recall", "--json"],
        ["--help", "--json"],
        ["recall", "--help", "--json"],
        ["--version", "--json"],
        ["status", "x", "--json"],
    ],
)
def test_K60_json_mode_prints_one_document_before_anything_is_opened(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    main(words)
    assert len(json.loads(capsys.readouterr().out)) > 0


def test_an_error_message_of_several_lines_becomes_one(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(recall=errors.StoreError("a\nb\x1b[31m", hint="c\nd"))
    assert run(capsys, memory, "recall", "q")[2] == "h2ams: a b\\x1b[31m (c d)\n"


def test_what_qualifies_an_answer_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    degraded = (SimpleNamespace(code="index-rebuilt", message="it was broken"),)
    answer = recall_of(record(), degraded=degraded, relaxed=True, dropped_terms=("the", "of"))
    code, out, err = run(capsys, ScriptedMemory(recall=answer), "recall", "q")
    assert code == 0 and "user#seg_1" in out
    assert err.splitlines() == [
        "h2ams: index-rebuilt: it was broken",
        "h2ams: not looked up, too many words: the of",
        "h2ams: no exact match; these match in part",
    ]


def test_no_hits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, ScriptedMemory(recall=recall_of()), "recall", "q")
    assert (code, out, err) == (0, "", "h2ams: nothing matches (scopes searched: 1)\n")


def test_access_flags_become_the_access(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(recall=recall_of())
    run(
        capsys, memory, "--session=s", "--vp=v", "--related", "a,b", "recall", "q",
        "--related", "c", "--also", "topic/x", "--user=write",
    )  # fmt: skip
    access = memory.call("recall")[1]["access"]
    assert (access.session, access.vp, access.user) == ("s", "v", "write")
    assert set(access.related_sessions) == {"a", "b", "c"}
    assert [str(each) for each in access.scopes] == ["topic/x"]


@pytest.mark.parametrize(
    ("words", "user"), [(["--user"], "read"), (["--no-user"], False), (["--chat", "c"], None)]
)
def test_the_user_flags_have_three_meanings(
    capsys: pytest.CaptureFixture[str], words: list[str], user: object
) -> None:
    memory = ScriptedMemory(recall=recall_of())
    run(capsys, memory, "recall", "q", *words)
    assert memory.call("recall")[1]["access"].user == user


def test_without_access_flags_it_is_the_owner(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(recall=recall_of())
    run(capsys, memory, "recall", "two", "words", "--kind", "fact,goal", "--tag", "a,b")
    words, how = memory.call("recall")
    assert words == ("two words",) and how["access"] is None
    assert (how["kinds"], how["tags"]) == (("fact", "goal"), ("a,b",))


def test_a_dash_reads_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfvom B\xc3\xa4r\r\n"), encoding="ascii")
    monkeypatch.setattr("sys.stdin", data)
    memory = ScriptedMemory(recall=recall_of())
    run(capsys, memory, "recall", "-")
    assert memory.call("recall")[0] == ("vom Bär",)


def test_input_that_is_no_utf_8_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"ok \xff")))
    code, _, err = run(capsys, ScriptedMemory(), "remember", "user", "-")
    assert code == 2 and "byte 3" in err
    code, _, err = run(capsys, ScriptedMemory(), "remember", "user", "x\udcff")
    assert code == 2 and "UTF-8" in err


def test_control_characters_of_memory_do_not_reach_a_terminal() -> None:
    stdout = Terminal()
    output = Output(json=False, stdout=stdout, stderr=io.StringIO())
    output.line("\x1b]0;title\x07", ("\x9b31m", "address"))
    output.raw("\x1b[2J\r\nnext\n")
    text = stdout.getvalue()
    assert "\\x1b]0;title\\x07" in text and "\\x9b31m" in text and "\\x1b[2J\nnext" in text
    assert "\x9b" not in text and "\x1b]" not in text and "\x1b[2J" not in text


def test_piped_text_is_exact_and_never_coloured() -> None:
    stdout = io.StringIO()
    output = Output(json=False, stdout=stdout, stderr=io.StringIO())
    output.raw("\x1b[2J\r\n")
    output.diff("+\x1b\r\n")
    output.line(("x", "address"))
    assert stdout.getvalue() == "\x1b[2J\r\n+\x1b\r\nx\n"


@pytest.mark.parametrize(
    ("name", "value", "coloured"),
    [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)],
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, coloured: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)
    stdout = Terminal()
    Output(json=False, stdout=stdout, stderr=io.StringIO()).line(("x", "address"))
    assert ("\x1b[" in stdout.getvalue()) == coloured


def test_a_long_line_is_not_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    stdout = Terminal()
    Output(json=False, stdout=stdout, stderr=io.StringIO()).line("word " * 30, "[bold]:smile:")
    assert stdout.getvalue().count("\n") == 1 and "[bold]:smile:" in stdout.getvalue()


@given(st.text(alphabet=st.characters(), max_size=40))
def test_whatever_is_printed_can_be_encoded_and_json_stays_json(text: str) -> None:
    stdout = io.StringIO()
    output = Output(json=True, stdout=stdout, stderr=io.StringIO())
    output.document({"text": text})
    output.finish()
    printed = stdout.getvalue()
    printed.encode("utf-8")
    assert json.loads(printed)["text"] == encodable(text)
    assert not any(ch in printed for ch in "\x1b\x7f\x9b")
    assert len(one_line(text).splitlines()) <= 1
    assert len(first_line(text, 10)) <= 10
    assert visible(visible(text)) == visible(text)


def test_progress_appears_on_a_terminal_and_is_gone_at_the_end() -> None:
    seen = threading.Event()

    class Watched(Terminal):
        def write(self, text: str) -> int:
            seen.set()
            return super().write(text)

    stream = Watched()
    with Progress("searching", stream, delay_s=0.01):
        assert seen.wait(10)
    assert "searching" in stream.getvalue()


def test_quick_work_and_pipes_show_no_progress() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    with Progress("searching", terminal, delay_s=60):
        pass
    with Progress("searching", pipe, delay_s=0):
        pass
    assert terminal.getvalue() == pipe.getvalue() == ""


def test_a_reader_that_goes_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for words in (["recall", "q"], ["recall", "q", "--json"], ["--help"]):
        stderr = io.StringIO()
        monkeypatch.setattr("sys.stdout", Closed())
        monkeypatch.setattr("sys.stderr", stderr)
        assert main(words, opener=ScriptedMemory(recall=recall_of(record())).open) == 141
        assert stderr.getvalue() == ""


def test_explain_shows_the_terms_of_a_score(capsys: pytest.CaptureFixture[str]) -> None:
    memory = ScriptedMemory(recall=recall_of(record(body="\n".join(map(str, range(20))))))
    _, out, _ = run(capsys, memory, "recall", "q", "--explain")
    assert "score 1.500 = bm25 1.000 + tag 0.500; matched: tabs" in out
    assert "… 12 more lines" in out


def test_a_kept_conflict_is_told_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    result = SimpleNamespace(
        scope="user", id="a", address="user#a", path="user/memory.md", created=False, changed=True,
        removed=False, diff="", problems=(), redacted=("token",), conflict="user#b",
    )  # fmt: skip
    memory = ScriptedMemory(update=result)
    code, out, err = run(capsys, memory, "edit", "user#a", "--body", "mine")
    assert (code, out) == (1, "changed user#a\n")
    assert "user#b" in err and "token" in err
    code, out, _ = run(capsys, memory_json := ScriptedMemory(update=result), "edit", "user#a",
                       "--kind", "fact", "--json")  # fmt: skip
    assert code == 1 and json.loads(out)["conflict"] == "user#b"
    assert memory_json.call("update")[1]["body"] is None


def test_the_log_of_v_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    def recall(*_: object, **__: object) -> SimpleNamespace:
        logging.getLogger("h2ams.test").info("heard")
        return recall_of()

    _, out, err = run(capsys, ScriptedMemory(recall=recall), "recall", "q", "-v", "--json")
    assert "heard" in err and json.loads(out)["hits"] == []
    _, _, err = run(capsys, ScriptedMemory(recall=recall), "recall", "q")
    assert "heard" not in err and not logging.getLogger("h2ams").handlers


def test_a_progress_bar_is_drawn_on_a_terminal_alone() -> None:
    for stream, drawn in ((Terminal(), True), (io.StringIO(), False)):
        with Bar(stream, delay_s=0.0) as draw:
            for done in range(3):
                draw(done, 3, "extracting")
        assert ("extracting" in stream.getvalue()) == drawn


def test_a_progress_bar_waits_half_a_second() -> None:
    stream = Terminal()
    with Bar(stream) as draw:
        draw(1, 2, "extracting")
    assert stream.getvalue() == ""
