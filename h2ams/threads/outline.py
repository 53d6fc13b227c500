"""The built-in summary (Pure): sections of a conversation without any model.

Every sentence is one that somebody wrote. Resolved: each request with what the answer says first;
pending: requests without an answer and sentences about what is still to be done; active task: the
last request. Merged into the sections before, and bounded: what tells least goes first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from h2ams.text.extract import extract
from h2ams.text.ledger import Ledger, telling
from h2ams.text.sentences import clip, sentences, squeeze
from h2ams.threads.running_summary import Sections, merged_lines

REQUEST_CHARS = 160
ANSWER_CHARS = 200
TASK_CHARS = 400
_PENDING = re.compile(
    r"\b(?:next step|next up|todo|to do|still (?:need|have|has|open|missing)|pending"
    r"|await(?:ing|s)?|waiting for|blocked|not (?:yet|done|finished)|open question|remains?"
    r"|later|follow[- ]?up)\b"
    r"|осталось|нужно ещё|ждём|жду|не готово|дальше|待办|待辦|下一步|还需|還需|尚未|等待",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:we|i|let['’]s|you)(?:['’]ll|\s+will|\s+have)?\s+(?:decided?|agreed?|go(?:ing)? with"
    r"|chose|choose|use|switch(?:ed)? to|settled)\b|\bdecision\b|\binstead of\b"
    r"|реш(?:или|ил|ено)|договорились|决定|決定|选择了|選擇了|採用|采用",
    re.IGNORECASE,
)


# What a line is worth by its section, beside what it tells: "resolved" grows for ever.
_WEIGHT = {"resolved": 0, "files": 1, "pending": 2, "decisions": 5, "constraints": 5}


@dataclass(frozen=True, slots=True)
class Said:
    """One message as the summary sees it: who, and the visible text (redacted, scrubbed)."""

    role: str  # user, assistant
    text: str


def outline(said: Sequence[Said], previous: Sections, ledger: Ledger) -> Sections:
    """``previous`` with what ``said`` adds; sentences that ``ledger`` holds are not repeated."""
    resolved: list[str] = []
    pending: list[str] = []
    decisions: list[str] = []
    request = ""
    task = ""
    for each in said:
        if each.role == "user":
            if request:
                pending.append(request)
            request = squeeze(extract(each.text, most_chars=REQUEST_CHARS))
            task = squeeze(extract(each.text, most_chars=TASK_CHARS)) or task
        elif request:
            answer = squeeze(extract(each.text, most_chars=ANSWER_CHARS))
            if answer:
                resolved.append(f"{request} → {answer}")
                request = ""
        for sentence in sentences(each.text)[:200]:
            if len(sentence) > ANSWER_CHARS or ledger.says(sentence):
                continue
            if _PENDING.search(sentence):
                pending.append(squeeze(sentence))
            elif _DECIDED.search(sentence):
                decisions.append(squeeze(sentence))
    if request and request != task:
        pending.append(request)
    answered = [line for line in previous.pending if line not in resolved]
    return Sections(
        active_task=(task,) if task else previous.active_task,
        pending=merged_lines(answered, pending),
        resolved=merged_lines(previous.resolved, resolved),
        constraints=tuple(line for line in previous.constraints if not ledger.says(line)),
        decisions=merged_lines(previous.decisions, decisions),
        files=tuple(line for line in previous.files if not ledger.says(line)),
    )


def fit(sections: Sections, fits: Callable[[Sections], bool]) -> Sections:
    """``sections`` with as many lines as ``fits`` admits; the task stays longest.

    The least telling and oldest lines go first, a share at a time; then the task is shortened.
    """
    while not fits(sections):
        names = ("resolved", "pending", "decisions", "files", "constraints")
        lines = [
            (_WEIGHT[name] + telling(line), at, name)
            for name in names
            for at, line in enumerate(getattr(sections, name))
        ]
        if not lines:
            break
        lines.sort(key=lambda each: (each[0], each[1]))
        gone = set(lines[: max(1, len(lines) // 6)])
        kept = {
            name: tuple(
                line
                for at, line in enumerate(getattr(sections, name))
                if (_WEIGHT[name] + telling(line), at, name) not in gone
            )
            for name in names
        }
        sections = replace(sections, **kept)
    task = " ".join(sections.active_task)
    while task and not fits(sections):
        task = clip(task, len(task) // 2) if len(task) > 20 else ""
        sections = replace(sections, active_task=(task,) if task else ())
    return sections
