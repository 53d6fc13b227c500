"""Making a summary's text and ledger of what is folded: the built-in way, or with a model.

Everything that goes in is redacted and free of the engine's own blocks. The model gets its text as
data, in pieces that fit its window, and no tools; what it answers is checked before it is taken.
The ledger is harvested here in both cases: rules from what people and the assistant said, single
finds from the output of tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from h2ams.models.request import Model, ModelMessage, Request
from h2ams.text.ledger import Ledger, harvest, merge
from h2ams.text.redact import redact
from h2ams.text.sentences import clip
from h2ams.threads import running_summary
from h2ams.threads.outline import Said, fit, outline
from h2ams.threads.running_summary import Flaw, Sections
from h2ams.threads.unit import Entry
from h2ams.threads.window import cut_middle

EXTRACTIVE = "extractive"  # the built-in; also the name of the transport that does the same
PURPOSE = "thread.summary"
RESULT_CHARS = 1_500  # of one tool's output, as the model sees it
ARGUMENT_CHARS = 300
PROSE_SHARE = 0.6  # of a summary that a model writes; the rest is the ledger's
LEDGER_SHARE = 0.92  # of one that is made without a model, at most
ANSWER_SHARE = 4  # of a summariser's window one part in so many is for its answer
LEAST_TASK_CHARS = 80
_LEDGER_STEP = 0.95
_LEAST_PIECE_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Digest:
    """A summary that fits: sections, ledger, the tokens of both as they stand in a prompt."""

    sections: Sections
    ledger: Ledger
    tokens: int
    invented: tuple[str, ...] = ()  # constraints that nobody stated, left out


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be condensed. ``cap_tokens``: the summary is at most that, fence included."""

    entries: Sequence[Entry]
    previous: Sections
    previous_text: str
    ledger: Ledger
    system: str
    cap_tokens: int
    prose_tokens: int
    ledger_chars: int
    key: str = ""


def clean(text: str) -> str:
    """``text`` without secrets and without what the engine itself had put into a prompt."""
    return redact(running_summary.scrub(text)).text


def harvested(entries: Sequence[Entry], older: Ledger, most_chars: int) -> Ledger:
    """``older`` with what ``entries`` tell."""
    said = [
        clean(entry.message.text)
        for entry in entries
        if entry.message.role in ("user", "assistant") and entry.message.text
    ]
    seen: list[str] = []
    for entry in entries:
        seen += [clean(call.arguments) for call in entry.message.calls]
        seen += [clean(result.text) for result in entry.message.results]
    rules = harvest(said, most_chars=most_chars)
    finds = harvest(seen, most_chars=most_chars, statements=False)
    return merge(older, merge(rules, finds, most_chars=most_chars), most_chars=most_chars)


def digest_of(
    task: Task,
    model: Model | None,
    tokens_of: Callable[[str, Ledger], int],
    count: Callable[[str], int],
    window_tokens: int,
) -> Digest | Flaw:
    """The digest of ``task``, or what is wrong with what the model wrote.

    ``tokens_of`` counts a summary as it stands in a prompt. ``ModelError`` passes through.
    """
    ledger = harvested(task.entries, task.ledger, task.ledger_chars)
    if model is None or model.name == EXTRACTIVE:
        return _built_in(task, ledger, tokens_of)
    prose_tokens = min(task.prose_tokens, int(task.cap_tokens * PROSE_SHARE))
    asked = _ask(task, model, prose_tokens, count, window_tokens)
    if isinstance(asked, Flaw):
        return asked
    sections, invented = running_summary.supported(asked, _stated(task))
    if tokens_of(sections.text, Ledger()) > max(prose_tokens, task.cap_tokens * 4 // 5):
        return Flaw("too-long")
    ledger = _within(ledger, sections.text, task.cap_tokens, tokens_of)
    return Digest(sections, ledger, tokens_of(sections.text, ledger), invented)


def _built_in(task: Task, ledger: Ledger, tokens_of: Callable[[str, Ledger], int]) -> Digest:
    """Without a model the ledger knows best: it comes first, but for the task that is at hand."""
    said = said_in(task.entries)
    at_hand = outline(said, task.previous, Ledger()).active_task
    least = Sections(active_task=tuple(clip(line, LEAST_TASK_CHARS) for line in at_hand))
    room = task.cap_tokens - tokens_of(least.text, Ledger()) + tokens_of("", Ledger())
    room = min(room, int(task.cap_tokens * LEDGER_SHARE))
    ledger = _within(ledger, "", room, tokens_of)
    most = min(task.cap_tokens, tokens_of("", ledger) + task.prose_tokens)
    whole = outline(said, task.previous, ledger)
    sections = fit(whole, lambda each: tokens_of(each.text, ledger) <= most)
    ledger = _within(ledger, sections.text, task.cap_tokens, tokens_of)
    return Digest(sections, ledger, tokens_of(sections.text, ledger))


def _within(
    ledger: Ledger, text: str, cap_tokens: int, tokens_of: Callable[[str, Ledger], int]
) -> Ledger:
    """``ledger``, as much of it as ``cap_tokens`` leaves room for beside ``text``."""
    most = len(ledger.text)
    while ledger.entries and tokens_of(text, ledger) > cap_tokens:
        most = int(most * _LEDGER_STEP)
        ledger = merge(Ledger(), ledger, most_chars=most)
    return ledger


def said_in(entries: Sequence[Entry]) -> list[Said]:
    """What people and the assistant said, cleaned."""
    found = []
    for entry in entries:
        if entry.message.role in ("user", "assistant"):
            text = clean(entry.message.text)
            if text.strip():
                found.append(Said(entry.message.role, text))
    return found


def _stated(task: Task) -> list[str]:
    """Where a constraint may come from: people, the system prompt, and what was known before."""
    found = [clean(entry.message.text) for entry in task.entries if entry.message.role == "user"]
    known = (task.system, task.previous_text, *task.previous.constraints, *task.ledger.entries)
    return [*found, *known]


# ---------------------------------------------------------------- asking a model


def _ask(
    task: Task, model: Model, prose_tokens: int, count: Callable[[str], int], window_tokens: int
) -> Sections | Flaw:
    sections: Sections | Flaw = Flaw("nothing-to-say")
    earlier = task.previous_text
    answer = min(prose_tokens, window_tokens // ANSWER_SHARE)
    fixed = count(running_summary.INSTRUCTIONS) + answer + max(answer, count(earlier))
    room = max(_LEAST_PIECE_TOKENS, window_tokens - fixed - _LEAST_PIECE_TOKENS)
    for piece in _pieces(lines_of(task.entries), room, count):
        request = Request(
            purpose=PURPOSE,
            messages=(
                ModelMessage("system", running_summary.INSTRUCTIONS),
                ModelMessage("user", running_summary.prompt(earlier, piece)),
            ),
            max_output_tokens=answer,
            source_text=f"{earlier}\n{piece}".strip(),
            idempotency_key=task.key or None,
        )
        completion = model.complete(request)
        sections = running_summary.parse(completion.text, completion.finish_reason)
        if isinstance(sections, Flaw):
            return sections
        earlier = sections.text
    return sections


def lines_of(entries: Sequence[Entry]) -> list[str]:
    """The folded messages as data for a model: one text each."""
    found: list[str] = []
    for entry in entries:
        message = entry.message
        if message.text.strip():
            found.append(running_summary.transcript_line(message.role, clean(message.text)))
        for call in message.calls:
            arguments = clip(clean(call.arguments), ARGUMENT_CHARS)
            line = f"called {call.name}({arguments})"
            found.append(running_summary.transcript_line("assistant", line))
        for result in message.results:
            text = clean(result.text)
            short = text if len(text) <= RESULT_CHARS else cut_middle(text, RESULT_CHARS)
            found.append(running_summary.transcript_line("tool", short))
    return found


def _pieces(lines: Sequence[str], room: int, count: Callable[[str], int]) -> list[str]:
    """``lines`` joined into pieces of at most ``room`` tokens; a longer line is cut in pieces."""
    pieces: list[str] = []
    current: list[str] = []
    used = 0
    for line in (part for whole in lines for part in _parts(whole, room, count)):
        cost = count(line) + 1
        if current and used + cost > room:
            pieces.append("\n".join(current))
            current, used = [], 0
        current.append(line)
        used += cost
    if current:
        pieces.append("\n".join(current))
    return pieces


def _parts(line: str, room: int, count: Callable[[str], int]) -> list[str]:
    if count(line) < room:
        return [line]
    middle = len(line) // 2
    blank = line.find(" ", middle)
    at = blank if 0 < blank < middle + 200 else middle
    if at <= 0 or at >= len(line):
        return [line]
    return [*_parts(line[:at], room, count), *_parts(line[at:], room, count)]
