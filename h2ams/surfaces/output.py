"""What a call prints: plain text or one JSON document, notes and errors on standard error.

Strategy: in JSON mode nothing is printed before the end, so that standard output holds exactly one
document whatever happens: the result, or ``{"error": …}`` in its place. Text from memory is data:
control characters in it are made visible, so that it cannot drive a terminal. Colour (rich, loaded
late) and progress appear only on a terminal.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from h2ams.errors import H2amsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from threading import Event
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

PROGRESS_DELAY_S = 0.5  # docs/cli.md: progress only for work over half a second

_CODES = {
    "ScopeError": "scope",
    "ConfigError": "config",
    "UsageError": "usage",
    "NotFoundError": "not-found",
    "AccessError": "access",
    "RootError": "root",
    "UnsafePathError": "unsafe-path",
    "ConflictError": "conflict",
    "LockTimeoutError": "lock-timeout",
    "LimitError": "limit",
    "ReadOnlyError": "read-only",
    "StoreError": "store",
    "IndexFaultError": "index",
    "ContextOverflow": "overflow",
    "ModelError": "model",
    "H2amsError": "error",
    "OSError": "system",
    "KeyboardInterrupt": "interrupted",
}
_FIELDS = ("path", "expected", "actual", "holder", "name", "limit", "size", "current", "needed")

# C0 but tab and newline, DEL and C1: what a terminal would obey.
_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_VISIBLE = {code: f"\\x{code:02x}" for code in _CONTROLS if chr(code) not in "\t\n"}
_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}  # json leaves these alone
_STYLES = {"address": "cyan", "dim": "dim", "strong": "bold", "good": "green", "bad": "red"}
_STYLES |= {"+": "green", "-": "red", "@": "cyan"}


def visible(text: str) -> str:
    """``text`` with its control characters spelled out; line ends become ``\\n``."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str) -> str:
    """``text`` as one line without control characters."""
    return visible(" ".join(text.split()))


def first_line(text: str, limit: int) -> str:
    """The first line with something in it, cut to ``limit`` chars with an ellipsis."""
    line = visible(next((each.strip() for each in text.splitlines() if each.strip()), ""))
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def score_terms(terms: Mapping[str, float]) -> list[str]:
    """The terms of a score that count, the greatest first: ``bm25 1.047``."""
    ranked = sorted(terms.items(), key=lambda term: -abs(term[1]))
    return [f"{name} {value:.3f}" for name, value in ranked if value]


def encodable(text: str) -> str:
    """``text`` that UTF-8 can encode: lone surrogates (bytes of broken files) become U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: object, *, indent: int | None = 2) -> str:
    """``value`` as JSON text in readable UTF-8, without anything that a terminal would obey."""
    import json  # plain text does without

    return json.dumps(value, ensure_ascii=False, indent=indent).translate(_JSON_CONTROLS)


def error_document(error: BaseException) -> dict[str, object]:
    """``{"error": {"code", "message", "hint", …}}``; the error's own fields follow where set."""
    names = (each.__name__ for each in type(error).__mro__)
    code = next((_CODES[name] for name in names if name in _CODES), "internal")
    message, hint = error_text(error)
    body: dict[str, object] = {"code": code, "message": message, "hint": hint}
    if isinstance(error, H2amsError):
        fields = ((name, getattr(error, name, None)) for name in _FIELDS)
        body |= {name: value for name, value in fields if value is not None}
    return {"error": body}


def error_text(error: BaseException) -> tuple[str, str | None]:
    """What happened and what to do, each on one line."""
    if isinstance(error, H2amsError):
        return one_line(str(error)), one_line(error.hint) if error.hint else None
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", None
    if isinstance(error, OSError) and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return one_line(": ".join([*names, error.strerror])), None
    text = one_line(f"{type(error).__name__}: {error}")
    return f"unexpected {text}", "this is a fault in h2ams: --debug shows where"


class Output:
    """The two streams of one call.

    In JSON mode ``line`` and ``raw`` print nothing and ``document`` is kept until ``finish``; in
    plain mode it is the other way round.
    """

    def __init__(self, *, json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None):
        self.json = json
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        self._document: Mapping[str, object] | None = None
        self._console: Console | None = None
        for stream in (self.stdout, self.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:  # not the streams of a test or an embedding program
                reconfigure(encoding="utf-8", errors="replace", newline="\n")

    def line(self, *parts: str | tuple[str, str]) -> None:
        """One line of plain text; a part may be ``(text, style)`` with a style of ``_STYLES``."""
        if self.json:
            return
        texts = [part if isinstance(part, tuple) else (part, "") for part in parts]
        if not self.coloured:
            self._write("".join(visible(text) for text, _ in texts) + "\n")
            return
        from rich.text import Text

        styled = [(visible(text), _STYLES.get(style, "")) for text, style in texts]
        self._rich().print(Text.assemble(*styled), soft_wrap=True)

    def raw(self, text: str) -> None:
        """Plain text as it is, to be piped into something; on a terminal with visible controls."""
        if not self.json:
            self._write(visible(text) if self.stdout.isatty() else text)

    def diff(self, text: str) -> None:
        """A unified diff: coloured on a terminal, otherwise byte for byte (it can be applied)."""
        if not self.coloured:
            self.raw(text)
            return
        for line in text.splitlines():
            self.line((line, line[:1]))

    def document(self, document: Mapping[str, object]) -> None:
        """The JSON document of this call. The last one given is the one that is printed."""
        self._document = document

    def note(self, text: str) -> None:
        """One line for a person on standard error."""
        self._say(f"h2ams: {one_line(text)}\n")

    def failed(self, error: BaseException) -> None:
        """One line on standard error, and in JSON mode the error as the document."""
        message, hint = error_text(error)
        self.note(f"{message} ({hint})" if hint else message)
        if self.json:
            self._document = error_document(error)

    def finish(self) -> None:
        """Print the JSON document, flush. ``BrokenPipeError`` goes to the caller."""
        if self.json:
            self._write(to_json(self._document or {}) + "\n")
            self._document = None
        self.stdout.flush()

    def flush(self) -> None:
        """Show what was printed so far: for a command that goes on for long."""
        self.stdout.flush()

    def working(self, label: str) -> Progress:
        """A context: shows ``label`` and seconds on a terminal while the work lasts."""
        return Progress(label, self.stderr)

    def bar(self) -> Bar:
        """A context: gives a function (done, total, what) that draws a bar on a terminal."""
        return Bar(self.stderr)

    @contextmanager
    def logging(self, level: int) -> Iterator[None]:
        """Log to standard error while the context lasts: 1 the engine's notices, 2 everything."""
        import logging

        handler = logging.StreamHandler(self.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger = logging.getLogger("h2ams" if level == 1 else None)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO if level == 1 else logging.DEBUG)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    @property
    def coloured(self) -> bool:
        """Whether standard output is a terminal that wants colour (https://no-color.org)."""
        wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return wanted and not self.json and self.stdout.isatty()

    def _rich(self) -> Console:
        if self._console is None:
            from rich.console import Console

            self._console = Console(file=self.stdout, highlight=False, markup=False, emoji=False)
        return self._console

    def _write(self, text: str) -> None:
        self.stdout.write(encodable(text))

    def _say(self, text: str) -> None:
        self.stderr.write(encodable(text))
        self.stderr.flush()


class Progress:
    """Seconds on standard error while something lasts, from half a second on, on a terminal only.

    The work itself runs in the calling thread; a daemon thread draws, and has cleared its line
    when the context ends.
    """

    def __init__(self, label: str, stream: TextIO, *, delay_s: float = PROGRESS_DELAY_S) -> None:
        self._label = label
        self._stream = stream
        self._delay_s = delay_s
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        if not self._stream.isatty() or os.environ.get("TERM") == "dumb":
            return
        from threading import Event, Thread

        done = Event()
        thread = Thread(target=self._draw, args=(done,), daemon=True)

        def stop() -> None:
            done.set()
            thread.join()

        self._stop = stop
        thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _draw(self, done: Event) -> None:
        from time import monotonic

        begin = monotonic() - self._delay_s
        if done.wait(self._delay_s):
            return
        from rich.console import Console

        console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
        with console.status(f"{self._label} …") as status:
            while not done.wait(self._delay_s):
                status.update(f"{self._label} … {monotonic() - begin:.0f} s")


class Bar:
    """A progress bar on standard error, from half a second on, on a terminal only."""

    def __init__(self, stream: TextIO, *, delay_s: float = PROGRESS_DELAY_S) -> None:
        self._stream = stream
        self._delay_s = delay_s
        self._begin = 0.0
        self._progress: RichProgress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Callable[[int, int, str], None]:
        from time import monotonic

        self._begin = monotonic()
        shown = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        return self._draw if shown else _no_bar

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _draw(self, done: int, total: int, what: str) -> None:
        from time import monotonic

        if self._progress is None:
            if monotonic() - self._begin < self._delay_s:
                return
            from rich.console import Console
            from rich.progress import Progress as RichProgress

            console = Console(file=self._stream, highlight=False, markup=False, emoji=False)
            self._progress = RichProgress(console=console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task(what, total=total)
        if self._task is not None:
            self._progress.update(self._task, description=what, completed=done, total=total)


def _no_bar(done: int, total: int, what: str) -> None:
    """Not on a terminal: nothing is drawn."""
