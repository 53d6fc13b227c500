"""What must not be lost when prose is condensed, harvested without a model (Pure).

A ledger is a bounded list of short lines: standing rules and decisions, labelled statements,
numbers with their words, identifiers, paths, commands, addresses. It stands beside the prose of a
summary, so that a summariser that forgets loses wording, not facts.

Strategy: a short line that tells something is kept whole, since "never exceed it" means nothing
without the sentence before; of longer text its telling sentences, and single finds with the words
around them. Nothing is remembered about a line but the line itself: how much it tells and what it
is about are functions of its text, so ledgers are merged like texts. A later statement of the same
form with other amounts or dates replaces the earlier one: "the cap is $800" after "… $500".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from h2ams.text.sentences import clip, sentences, squeeze

MAX_ENTRY_CHARS = 240  # of one line of a ledger
MAX_TEXT_CHARS = 200_000  # of one text that is looked at: beginning and end of a longer one
MAX_FINDS = 400  # single finds taken from one text
STATEMENT = 3  # a sentence that tells at least so much is kept whole
_BULLET = re.compile(r"^(?:[-*•·–]|\d{1,3}[.)])\s+")


@dataclass(frozen=True, slots=True)
class Ledger:
    """``entries``: distinct single lines, in the order in which they first appeared."""

    entries: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One ``- entry`` a line; labels that several entries share stand once, above them.

        ``harvest`` reads it back as the same entries, in the order of this text.
        """
        return "\n".join(_lines(self.entries))

    def says(self, sentence: str) -> bool:
        """Whether an entry holds ``sentence``, or says the same with other amounts or dates."""
        key, subject = _key(_BULLET.sub("", sentence.strip())), _subject(sentence)
        if not key:
            return True
        return any(
            key in _key(each) or (subject and subject == _subject(each)) for each in self.entries
        )


def harvest(texts: Iterable[str], *, most_chars: int, statements: bool = True) -> Ledger:
    """What ``texts`` (oldest first) tell, at most ``most_chars`` of ``Ledger.text``.

    ``statements=False``: only finds (identifiers, paths, commands, addresses, numbers) are taken,
    no sentences: for text that nobody here vouches for, such as a web page that says "you must".
    """
    found: list[str] = []
    for text in texts:
        found += _entries_of(_bounded(text), statements)
    return _select(found, most_chars)


def merge(older: Ledger, newer: Ledger, *, most_chars: int) -> Ledger:
    """Both in one, within the bound; ``newer`` wins where both say the same with other values."""
    return _select([*older.entries, *newer.entries], most_chars)


def telling(sentence: str) -> int:
    """How much of what must not be lost ``sentence`` holds: 0 for small talk, over 6 for rules."""
    return _telling(sentence[: 2 * MAX_ENTRY_CHARS])


# ---------------------------------------------------------------- the text of a ledger


def _lines(entries: Iterable[str]) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    plain: list[str] = []
    for entry in entries:
        shouted = _SHOUTED.match(entry)
        if shouted and entry[shouted.end() :].strip():
            groups.setdefault(shouted[0], []).append(entry)
        else:
            plain.append(entry)
    yield from (f"- {each}" for each in plain)
    for shared, group in groups.items():
        if len(group) == 1:
            yield f"- {group[0]}"
        else:
            yield shared
            yield from (f"- {each[len(shared) :].strip()}" for each in group)


def _unlabelled(lines: Iterable[str]) -> Iterator[str]:
    """Lines, with a label that stands alone put before each item of the list below it."""
    label = ""
    for line in lines:
        bare = line.strip()
        bullet = _BULLET.match(bare)
        if bullet and label and not _SHOUTED.match(bare[bullet.end() :]):
            yield f"- {label} {bare[bullet.end() :]}"
        elif bare:
            shouted = _SHOUTED.match(bare)
            alone = shouted is not None and shouted.end() == len(bare)
            label = bare if alone else label if bullet else ""
            if not alone:
                yield bare


# ---------------------------------------------------------------- what tells something

_STRONG = re.compile(
    r"\b(?:never|always|must(?:n['’]t)?|do not|don['’]t|may not|cannot|can['’]t|shall|only|until"
    r"|ever|nobody|no one|untouched|off limits|forbidden|prohibited|not allowed|no longer"
    r"|from now on|at all times|under no circumstances|at most|at least|required?|requires"
    r"|without (?:explicit |prior )?(?:approval|consent|permission|asking))\b"
    r"|\b(?:niemals|immer|muss|müssen|darf|dürfen|nur|nunca|siempre|debe|solo|jamais|toujours|doit)\b"
    r"|никогда|всегда|нельзя|обязательно|\bтолько\b|запрещ|должн|\bне (?:надо|нужно|трогай|меняй)"
    r"|必须|必須|不要|不能|不得|不许|禁止|绝不|絕不|永远|永遠|总是|總是|只能|只用|务必|務必|一律|严禁"
    r"|必ず|絶対|ないで(?:ください)?|のみ|반드시|금지|절대|항상",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:prefer(?:s|red|ence)?|wants?|should|avoid|deadline|budget|cap(?:ped)?|limit(?:ed)?|decided"
    r"|decision|agreed|chose|remember|important|current(?:ly)?|next (?:step|up)|awaiting|blocked"
    r"|goal|codename|owner|owns|approv(?:e|al|er)|instead of|moved to|changed to|renamed|now)\b"
    r"|предпочита|\bхоч|решил|\bлучше\b|\b(?:нужно|надо)\b|дедлайн|лимит|бюджет|важно|запомни|срок"
    r"|应该|應該|希望|偏好|喜欢|喜歡|决定|決定|截止|预算|預算|上限|记住|記住|下一步|目标"
    r"|べき|希望|決定|締切|予算|결정|마감|예산|선호",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?:[A-ZА-ЯЁ][A-ZА-ЯЁ_/-]*(?: [A-ZА-ЯЁ_/-]+){0,3}|[^\W\d_][\w -]{1,24})[:：]\s*\S"
)
_SHOUTED = re.compile(r"^[A-ZА-ЯЁ][A-ZА-ЯЁ _/-]{2,30}:")
_AMOUNT = (
    r"(?:[$€£¥₽₹]\s?\d[\d.,' ]*\d|[$€£¥₽₹]\s?\d|\b\d[\d.,]*\s?(?:[$€£¥₽₹%‰]|USD|EUR|RUB|CNY|JPY)"
    r"|\b\d[\d.,]*\s?(?:ms|s|sec|min|h|hours?|days?|weeks?|months?|years?|[kKMGT]i?[bB]|km|kg|px|rps"
    r"|tokens?|chars?|bytes?|rows?|requests?)\b)"
)
_DATE = (
    r"(?:\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?Z?)?|\b\d{1,2}[./]\d{1,2}[./]\d{2,4}\b"
    r"|\b\d{1,2}:\d{2}\b|\d{1,4}年(?:\d{1,2}月(?:\d{1,2}日)?)?)"
)
_VALUE = re.compile(f"{_AMOUNT}|{_DATE}")
_URL = r"\b[a-z][a-z0-9+.-]{1,15}://[^\s<>\"'`）)\]}，。]{3,200}"
_PATH = (
    r"(?<![\w/])(?:~|\.{1,2})?/(?:[\w.@+-]+/){0,12}[\w.@+-]*\w|\b(?:[\w.@+-]+/){1,12}[\w.@+-]*\w"
    r"|\b[A-Za-z]:\\[\w\\.-]+|\b[\w-]+\.(?:py|pyi|js|ts|tsx|jsx|rs|go|c|h|cpp|java|kt|rb|php|sh|sql"
    r"|md|txt|json|ya?ml|toml|ini|cfg|csv|tsv|html?|css|xml|lock|log|db|env|proto|ipynb|pdf|png)\b"
)
_COMMAND = r"`[^`\n]{2,160}`|(?:^|(?<=\n))\s*[$❯#>]\s[^\n]{2,160}"
_IDENTIFIER = (
    r"\b[A-Za-z][A-Za-z0-9]*(?:[_.:-][A-Za-z0-9]+)*\d[\w-]*\b"  # JUDGE-004, us-west-2, v1.2
    r"|\b[0-9a-f]*(?:\d[a-f]|[a-f]\d)[0-9a-f]{5,}\b"
    r"|\b[a-z]+(?:_[a-z0-9]+)+\b|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"  # snake_case, CONSTANT_CASE
    r"|\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b|#\d{1,9}\b|@[\w-]{2,40}"
)
_NUMBER = r"(?<![\w.])[-+]?\d+(?:[.,:]\d+)*(?![\w])"
_NAME = re.compile(
    r"(?<=[^\s.!?:])\s(?:[A-ZА-ЯЁ][\w'’-]+\s){1,3}[A-ZА-ЯЁ][\w'’-]+|^[A-Z]\w+ [A-Z]\w+ "
)
_HARD = re.compile(f"{_URL}|{_COMMAND}|{_PATH}|{_IDENTIFIER}")
_FIND = re.compile(
    f"(?P<whole>{_URL}|{_COMMAND}|{_PATH}|{_IDENTIFIER})|(?P<value>{_AMOUNT}|{_DATE})"
    f"|(?P<number>{_NUMBER})"
)
_DIGIT = re.compile(r"\d")


@lru_cache(maxsize=4_096)
def _telling(sentence: str) -> int:
    score = 0
    if _STRONG.search(sentence):
        score += 5
    if _WEAK.search(sentence):
        score += 3
    if _SHOUTED.match(sentence):
        score += 5
    elif _LABEL.match(sentence):
        score += 1
    if _VALUE.search(sentence):
        score += 2
    if _HARD.search(sentence):
        score += 2
    elif _DIGIT.search(sentence):
        score += 1
    if _NAME.search(sentence):
        score += 1
    return max(0, score - 4) if sentence.endswith(("?", "？", "؟")) else score


# ---------------------------------------------------------------- harvesting


def _bounded(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    half = MAX_TEXT_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


def _entries_of(text: str, statements: bool) -> Iterator[str]:
    left = MAX_FINDS
    for line in _unlabelled(text.splitlines()):
        bare = _BULLET.sub("", line.strip())
        if not bare:
            continue
        if statements and len(bare) <= MAX_ENTRY_CHARS:
            if max(map(telling, sentences(bare)), default=0) >= STATEMENT or _is_bullet(line, bare):
                yield squeeze(bare)
            elif left > 0:
                for find in _finds(bare):
                    left -= 1
                    yield find
            continue
        for sentence in sentences(bare):
            if statements and telling(sentence) >= STATEMENT and len(sentence) <= MAX_ENTRY_CHARS:
                yield squeeze(sentence)
            elif left > 0:
                for find in _finds(sentence):
                    left -= 1
                    yield find


def _is_bullet(line: str, bare: str) -> bool:
    """A short line of a list that holds a find: an entry of a ledger that is read again."""
    return len(bare) < len(line.strip()) and _FIND.search(bare) is not None


_NO_WORD = re.compile(r"[!-~]{301,}")  # encoded data; also bounds what the patterns look back on
_PIECE_CHARS = 2_000
_WORDS_BEFORE = re.compile(r"(?:[^\s.,;:!?()\[\]{}\"]+\s+){1,3}$")
_WORDS_BEHIND = re.compile(r"\s*[^\s.,;:!?()\[\]{}\"]+(?:\s+[^\s.,;:!?()\[\]{}\"]+)?")


def _finds(sentence: str) -> Iterator[str]:
    """Single finds: names as they are, numbers with the words around them."""
    sentence = _NO_WORD.sub(" ", sentence)
    for start in range(0, len(sentence), _PIECE_CHARS):
        yield from _finds_in(sentence[start : start + _PIECE_CHARS])


def _finds_in(sentence: str) -> Iterator[str]:
    for match in _FIND.finditer(sentence):
        if match["whole"]:
            entry = match["whole"].strip().strip("`").lstrip("$❯> ").rstrip(".,:;")
        else:
            entry = _with_words(sentence, match.start(), match.end())
        if 2 <= len(entry) <= MAX_ENTRY_CHARS:
            yield squeeze(entry)


def _with_words(sentence: str, start: int, end: int) -> str:
    before = _WORDS_BEFORE.search(sentence, max(0, start - 60), start)
    behind = _WORDS_BEHIND.match(sentence, end, end + 40)
    first = before.start() if before else start
    last = behind.end() if behind else end
    words = sentence[first:last].strip()
    return words if any(each.isalpha() for each in words) else ""


# ---------------------------------------------------------------- selecting

_TRIMMED = " \t.,;:!?。，；：！？\"'`*_"


def _key(entry: str) -> str:
    """What makes two entries the same: case, width of blanks and outer punctuation do not."""
    return squeeze(entry).strip(_TRIMMED).casefold()


def _subject(entry: str) -> str:
    """What a statement is about: the statement without its amounts and dates; "" for others."""
    if telling(entry) < STATEMENT:
        return ""
    masked = _VALUE.sub("\x00", _key(entry))
    return masked if "\x00" in masked and len(masked) >= 16 else ""


def _select(entries: Iterable[str], most_chars: int) -> Ledger:
    """Distinct entries in order, the latest of one subject, the most telling within the bound."""
    distinct: dict[str, str] = {}
    subjects: dict[str, str] = {}
    for raw in entries:
        entry = clip(squeeze(raw), MAX_ENTRY_CHARS)
        key = _key(entry)
        if not key or key in distinct:
            continue
        subject = _subject(entry)
        if subject:
            distinct.pop(subjects.get(subject, ""), None)
            subjects[subject] = key
        distinct[key] = entry
    kept = _within(list(_without_parts(distinct)), most_chars)
    return Ledger(tuple(kept))


def _without_parts(distinct: dict[str, str]) -> Iterator[str]:
    """Entries, but no single find that a statement holds already."""
    said = "\n".join(key for key, entry in distinct.items() if telling(entry) >= STATEMENT)
    for key, entry in distinct.items():
        if telling(entry) >= STATEMENT or len(said) > MAX_TEXT_CHARS or key not in said:
            yield entry


def _within(entries: list[str], most_chars: int) -> list[str]:
    """The most telling entries that fit, in their order. Rules: older first; the rest: newer."""
    if len(Ledger(tuple(entries)).text) <= most_chars:
        return entries
    ranks = [_rank(telling(each)) for each in entries]

    def place(at: int) -> tuple[int, int]:
        return -ranks[at], at if ranks[at] >= _STANDING else -at

    chosen: set[int] = set()
    headed: dict[str, int] = {}
    left = most_chars + 1
    for at in sorted(range(len(entries)), key=place):
        cost = _cost(entries[at], headed)
        if cost <= left:
            chosen.add(at)
            left -= cost
            label = _label(entries[at])
            headed[label] = headed.get(label, 0) + 1
    kept = [each for at, each in enumerate(entries) if at in chosen]
    while len(Ledger(tuple(kept)).text) > most_chars:  # a label without a blank behind it
        kept.pop()
    return kept


def _label(entry: str) -> str:
    found = _SHOUTED.match(entry)
    return found[0] if found else ""


def _cost(entry: str, headed: Mapping[str, int]) -> int:
    """Chars that ``entry`` adds to the text in which ``headed`` counts entries by label."""
    label = _label(entry)
    full = len(entry) + 3
    before = headed.get(label, 0) if label else 0
    if before == 0:
        return full
    # With the second of a label it becomes a line of its own, and the first is shorter by as much.
    return full - len(label) - 1


_STANDING = 3  # from this class on the older entry is kept before the newer one


def _rank(score: int) -> int:
    """Classes: 4 rules, 3 statements of weight, 2 statements, 1 names and values, 0 numbers."""
    return sum(score >= least for least in (2, STATEMENT, 5, 8))
