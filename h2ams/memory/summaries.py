"""Reading and replacing the summary of a scope (Truth).

Strategy: one function decides which text stands for a scope, over layouts and languages; a write
replaces the text and the values that the engine owns in front of it (``updatedAt``, ``basis``),
in the form that the file has, and copies every other line there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NoReturn

from h2ams.errors import ConflictError, ReadOnlyError, UsageError
from h2ams.files import FileState, Root
from h2ams.memory import folders as on_disk
from h2ams.memory.draft import check_size, draft
from h2ams.memory.forgotten import Keep
from h2ams.memory.front import read_front
from h2ams.memory.scope import Scope
from h2ams.memory.scope_files import Plan, ScopeFiles, WriteResult, result_of
from h2ams.memory.segment import Segment
from h2ams.memory.summary import Summary, parse_summary
from h2ams.memory.values import Problem, format_time
from h2ams.settings import Settings
from h2ams.tokens import TokenCounter, counter

SummaryJournal = Callable[[bytes | None, bytes], None]  # the file before and after, before a write

SUMMARY_ID = "summary"
CONTENT_FILE = "content.md"
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")
_COMMENT = re.compile(r"<!--[ \t]*updatedAt:[^\n]*-->[ \t\r]*(?:\n|\Z)")
_OWN_LINE = re.compile(r"(?:updatedAt|basis)[ \t]*:")


class Summaries:
    """The part of the store that reads and writes summaries."""

    def __init__(
        self,
        root: Root,
        settings: Settings,
        files: ScopeFiles,
        keep: Keep,
        *,
        clock: Callable[[], datetime],
        counter: TokenCounter | None,
    ) -> None:
        self._root = root
        self._settings = settings
        self._files = files
        self._keep = keep
        self._clock = clock
        self._counter = counter

    def read(self, folders: Iterable[str], language: str) -> tuple[str, Summary] | None:
        """``Store.summary`` over the folders of a scope, in their order."""
        folders = tuple(folders)
        for name in (CONTENT_FILE, *dict.fromkeys((summary_file(language), summary_file("en")))):
            for folder in folders:
                path = f"{folder}/{name}"
                state = self._root.read(path)
                if state is None:
                    continue
                found = parse_summary(state.data, settings=self._settings)
                if found.text.strip() and not found.is_stub:
                    return path, found
        return None

    def write(
        self,
        target: Scope,
        text: str,
        language: str,
        *,
        basis: str | None,
        expect: str | None,
        dry_run: bool,
        now: str | None = None,
        journal: SummaryJournal | None = None,
    ) -> WriteResult:
        """``Store.write_summary`` for a scope whose redirects were followed."""
        cleaned = draft(self._settings, body=text)
        body = cleaned.body or ""
        name = summary_file(language)
        first: list[FileState | None] = []
        edit: list[tuple[bytes | None, bytes]] = []

        def plan() -> Plan[WriteResult]:
            path = f"{on_disk.home(self._root, target)}/{name}"
            state = self._root.read(path)
            first.append(state)
            saved_meanwhile = _data(first[0]) != _data(state)
            actual = state.sha256 if state else ""
            if saved_meanwhile or (expect is not None and expect != actual):
                self._refuse(target, path, body, expect, actual, keep=not dry_run)
            after = self._rewritten(path, state, body, basis, now)
            result = result_of(
                target,
                SUMMARY_ID,
                path,
                created=state is None,
                changed=after != _data(state),
                redacted=cleaned.redacted,
                problems=self._shadowed(path),
            )
            edit[:] = [(state.data if state else None, after)]
            return self._files.plan(result, path, state, after)

        def told(_: WriteResult) -> None:
            if journal is not None:
                journal(*edit[0])

        return self._files.run(target, plan, journal=told, dry_run=dry_run)

    def _rewritten(
        self, path: str, state: FileState | None, body: str, basis: str | None, at: str | None
    ) -> bytes:
        """The file with ``body`` as its text; its very bytes where it says so already."""
        data = _data(state)
        now = parse_summary(data, settings=self._settings) if state else None
        if now is not None and now.text.strip() == body and basis in (None, now.basis):
            return data
        try:
            old = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ReadOnlyError(
                f"{path}: not UTF-8 at byte {error.start}; it is read but not rewritten",
                hint="save it as UTF-8",
                path=path,
            ) from error
        size = self._count(body)
        current = self._count(now.text) if now else 0
        check_size("summary_tokens", self._settings.summary_tokens, size, current, path)
        now_text = at or format_time(self._clock())
        return rewritten(old, body, now_text, basis, self._settings).encode("utf-8")

    def _count(self, text: str) -> int:
        if self._counter is None:
            self._counter = counter(self._settings.encoding)
        return self._counter.count(text)

    def _shadowed(self, path: str) -> tuple[Problem, ...]:
        """A problem where ``content.md`` stands for the scope, so that nobody sees the summary."""
        content = f"{path.rpartition('/')[0]}/{CONTENT_FILE}"
        if self._root.read(content) is None:
            return ()
        return (Problem("summary-shadowed", f"{content} is shown in its place", 1, path),)

    def _refuse(
        self,
        target: Scope,
        path: str,
        body: str,
        expect: str | None,
        actual: str,
        *,
        keep: bool,
    ) -> NoReturn:
        hint = "read it again and repeat the change"
        if keep:
            made = Segment(body=one_newline(body), id=SUMMARY_ID, scope=target.text)
            hint = f"{hint}; your text is kept in {self._keep.keep_conflict(target, made)}"
        raise ConflictError(
            f"{path} is not what it was: nothing was written",
            hint=hint,
            path=path,
            expected=expect,
            actual=actual,
        )


def summary_file(language: str) -> str:
    """Name of the summary in ``language``; English is the default one. ``UsageError`` otherwise."""
    if not _LANGUAGE.fullmatch(language):
        raise UsageError(f"not a language: {language!r}", hint="use a code such as en or zh")
    return "summary.md" if language.lower() == "en" else f"summary.{language.lower()}.md"


def one_newline(text: str) -> str:
    """``text`` with every line break, a lone carriage return too, as the engine writes them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def rewritten(old: str, body: str, now: str, basis: str | None, settings: Settings) -> str:
    """The text of a summary file with a new body, in the form and newline style of ``old``.

    The historical form (a comment with ``updatedAt``) stays unless a basis is to be recorded. In
    frontmatter, lines of other keys are copied, as comments where they are no YAML without the
    lines of ours. The old body goes. It reads back as ``body``, ``now`` and ``basis``.
    """
    bom = "\ufeff" if old.startswith("\ufeff") else ""
    text = old[len(bom) :].replace("\r\n", "\n")
    newline = "\r\n" if "\r\n" in old[: old.find("\n") + 1] else "\n"
    if _COMMENT.match(text) and basis is None:
        made = f"<!-- updatedAt: {now} -->\n{body}\n"
    else:
        region = text[: read_front(text, settings).body_start].split("\n")[1:-2]
        others = [line for line in region if not _OWN_LINE.match(line)]
        made = _with_front(others, body, now, basis)
        if parse_summary(made.encode("utf-8"), settings=settings) != Summary(body, now, basis):
            made = _with_front([f"# {line}" for line in others], body, now, basis)
    return bom + made.replace("\n", newline)


def _with_front(others: list[str], body: str, now: str, basis: str | None) -> str:
    own = [f"updatedAt: {now}", *([] if basis is None else [f"basis: {basis}"])]
    return "\n".join(["---", *others, *own, "---", body, ""])


def _data(state: FileState | None) -> bytes:
    return state.data if state else b""
