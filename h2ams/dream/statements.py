"""Explicit statements in what a person writes: English, Chinese and Russian (Pure).

Only what is said outright counts: "remember that", "we decided", "I prefer", "always/never", "my …
is", corrections of these, and "forget that". Quotations, code, questions and conditions are passed
over. Each statement is one sentence, in the person's words where those can stand alone, in the
third person where they cannot. "My X is Y" gives a value to the slot X.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from h2ams.text.likeness import wording
from h2ams.text.redact import placeholder
from h2ams.text.sentences import sentences

_PRIVATE = placeholder("private")  # a passage that was cut out: no part of the next sentence
_MOST_CHARS = 400  # a longer sentence is a text, not a statement

Where = str  # "user" or "work"
Language = str


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact: where it belongs, its kind, its text; ``slot`` names what it gives a value to."""

    where: Where
    kind: str
    body: str
    slot: str = ""
    forget: bool = False


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    make: Callable[[re.Match[str]], Statement | None]


_CODE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_QUOTED_LINE = re.compile(r"^\s*(?:>|\||(?:from|subject|to):\s).*$", re.MULTILINE | re.IGNORECASE)
_QUESTION = re.compile(r"[?？]\s*$|[吗呢]\s*[。.]?\s*$")
_CONDITION = re.compile(
    r"^(?:if|when|unless|suppose|imagine|maybe|perhaps|what if|should|could|would|can|do|does|did"
    r"|shall|is|are|why|how|who|where|which)\b"
    r"|^(?:如果|假如|要是|也许|可能|是否|为什么|怎么)|^(?:если|когда|может|возможно|допустим|разве"
    r"|ли|почему|зачем|как|где|кто)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"^(?:(?:ok(?:ay)?|so|well|yes|no|right|sure|thanks|thank you|great|hi|hello|hey|also|and|but"
    r"|by the way|btw|actually|please|oh|sorry|fyi|(?:one more|another) thing|again"
    r"|for the record)"
    r"[,:;.!—-]*\s+)+"
    r"|^(?:(?:ладно|хорошо|да|нет|итак|кстати|привет|спасибо|пожалуйста|ещё|еще|также|и|а"
    r"|но|на самом деле|вообще-то|извини|к слову|для протокола)[,:;.!—-]*\s+)+"
    r"|^(?:(?:好的?|对了|另外|还有|其实|嗯|是的|不|谢谢|请|顺便说一下|那么|更正一下)[，,：:。！]*\s*)+",
    re.IGNORECASE,
)
_CORRECTS = re.compile(
    r"^(?:correction|i was wrong|i misspoke|scratch that|исправление|поправка|я ошиб(?:ся|лась)"
    r"|更正|我说错了)[,:;.—，：。-]*\s*",
    re.IGNORECASE,
)


def statements(text: str, *, stored: bool = False) -> Iterator[Statement]:
    """The statements of one message (or, ``stored``, of a body that was made of one)."""
    bare = _QUOTED_LINE.sub("", _CODE.sub("\n", text)).replace(_PRIVATE, "\n")
    for sentence in sentences(bare):
        if len(sentence) > _MOST_CHARS:
            continue
        found = _statement(sentence, stored=stored)
        if found is not None:
            yield found


def _statement(sentence: str, *, stored: bool) -> Statement | None:
    line = sentence.strip().strip("-*• \t")
    if _QUESTION.search(line):
        return None
    line = _LEAD.sub("", line, count=1).strip()
    line = _CORRECTS.sub("", line, count=1).strip()
    line = _LEAD.sub("", line, count=1).strip()
    if not line or line[0] in "\"'«“「『<{[|" or _CONDITION.match(line):
        return None
    for rule in _STORED if stored else _RULES:
        match = rule.pattern.match(line)
        if match is not None:
            return rule.make(match)
    return None


def _sentence(text: str, stop: str = ".") -> str:
    """``text`` as a sentence: an upper-case beginning, a stop at its end."""
    text = " ".join(text.split()).strip(" ,;:—-，；：")
    if not text:
        return ""
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?。！？…" else text + stop


_HIS: Mapping[str, str] = {
    "my": "their",
    "mine": "theirs",
    "me": "them",
    "myself": "themselves",
}
_FIRST_PERSON = re.compile(r"\b(?:my|mine|me|myself)\b", re.IGNORECASE)


def _third(text: str) -> str:
    return _FIRST_PERSON.sub(lambda match: _HIS[match[0].lower()], text)


def _ends(text: str) -> str:
    return text.strip().rstrip(".!。！…").strip()


def _slot(text: str) -> str:
    return wording(text).text


_HEDGES = re.compile(
    r"^(?:not sure|probably|maybe|perhaps|likely|вероятно|наверное|可能|大概)\b", re.I
)
_NO_THING = frozenset(
    {
        "guess", "question", "point", "idea", "problem", "concern", "hope", "understanding", "bad",
        "fault", "turn", "worry", "fear", "suggestion", "bet", "impression",
    }
)  # fmt: skip


def _my(match: re.Match[str]) -> Statement | None:
    thing, value = match["thing"].strip(), _ends(match["value"])
    if thing.split()[-1].lower() in _NO_THING or _HEDGES.match(value) or not value:
        return None
    verb = match["verb"]
    goal = thing.lower() in ("goal", "aim", "plan")
    body = _sentence(f"The user's {thing} {verb} {_third(value)}")
    return Statement("user", "goal" if goal else "fact", body, _slot(f"en {thing}"))


def _my_ru(match: re.Match[str]) -> Statement | None:
    thing, value = match["thing"].strip(), _ends(match["value"])
    if not value or _HEDGES.match(value):
        return None
    return Statement(
        "user", "fact", _sentence(f"{thing} пользователя — {value}"), _slot(f"ru {thing}")
    )


def _my_zh(match: re.Match[str]) -> Statement | None:
    thing, value = match["thing"].strip(), _ends(match["value"])
    if not value:
        return None
    body = _sentence(f"用户的{thing}是{value}", "。")
    return Statement("user", "fact", body, _slot(f"zh {thing}"))


def _name(language: Language, form: str, stop: str = ".") -> Callable[[re.Match[str]], Statement]:
    def make(match: re.Match[str]) -> Statement:
        slots = {"en": "en name", "ru": "ru имя", "zh": "zh 名字"}
        name = _ends(re.split(r"[,;，；]| (?:but|and|но|а|и) ", match["value"])[0])
        return Statement("user", "fact", _sentence(form.format(name), stop), _slot(slots[language]))

    return make


def _prefers(form: str, stop: str = ".") -> Callable[[re.Match[str]], Statement]:
    def make(match: re.Match[str]) -> Statement:
        body = _sentence(form.format(_third(_ends(match["value"]))), stop)
        return Statement("user", "preference", body)

    return make


def _kept(
    kind: str, where: Where = "work", stop: str = "."
) -> Callable[[re.Match[str]], Statement]:
    def make(match: re.Match[str]) -> Statement:
        return Statement(where, kind, _sentence(_ends(match[0]), stop))

    return make


def _remembered(match: re.Match[str]) -> Statement | None:
    """What stands behind "remember that": a statement of its own where it is one."""
    value = match["value"].strip()
    inner = _statement(value, stored=False)
    if inner is not None and not inner.forget:
        return inner
    stop = "。" if re.search(r"[\u4e00-\u9fff]", value) else "."
    personal = re.match(r"(?:i|i'm|i've|я|мне|у меня|我)(?:\b|(?=[\u4e00-\u9fff]))", value, re.I)
    if personal and stop == ".":
        said = "Пользователь сказал" if re.search(r"[а-яё]", value, re.I) else "The user said"
        return Statement("user", "fact", f"{said}: “{_sentence(_ends(value))}”")
    if personal:
        return Statement("user", "fact", f"用户说：“{_sentence(_ends(value), stop)}”")
    return Statement("work", "fact", _sentence(_ends(value), stop))


def _forgotten(match: re.Match[str]) -> Statement:
    return Statement("work", "fact", _ends(match["value"]), forget=True)


def _rule(pattern: str, make: Callable[[re.Match[str]], Statement | None]) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), make)


_THING = r"(?P<thing>[^,.;:!?]{1,60}?)"
_VALUE = r"(?P<value>\S.*)$"
_EN_MY = rf"my {_THING} (?P<verb>is now|are now|is|are)(?: now| called)? {_VALUE}"
_RU_MY = rf"(?:теперь )?(?:мой|моя|моё|мое|мои) {_THING}\s*(?:—|–|-| это|:)\s*(?:теперь )?{_VALUE}"
_ZH_MY = r"我的(?P<thing>[^，。；：！？,.]{1,20}?)(?:现在)?(?:是|叫|为)(?P<value>\S.*)$"

_RULES = (
    # Forgetting comes first: "forget that we decided …" decides nothing.
    _rule(rf"forget (?:that|about|what i said about) {_VALUE}", _forgotten),
    _rule(rf"it(?:'s| is) no longer (?:true|the case) that {_VALUE}", _forgotten),
    _rule(
        rf"(?:забудь(?:те)?|больше не помни)(?:,)? (?:что|про|о том,? что|об?) {_VALUE}", _forgotten
    ),
    _rule(r"(?:忘掉|忘记|不要再记得)(?:关于)?[：:，,]?\s*(?P<value>\S.*)$", _forgotten),
    # Remember
    _rule(
        rf"(?:remember|note|keep in mind|bear in mind|don't forget)(?: that|:| —| -) ?{_VALUE}",
        _remembered,
    ),
    _rule(
        rf"(?:запомни(?:те)?|помни(?:те)?|учти(?:те)?|имей(?:те)? в виду|не забудь(?:те)?)"
        rf"(?:, что|: | — |, | что ) ?{_VALUE}",
        _remembered,
    ),
    _rule(r"(?:请?(?:你)?(?:记住|记得|记下|注意|别忘了))[：:，,]?\s*(?P<value>\S.*)$", _remembered),
    # Names
    _rule(rf"(?:my name is|call me) {_VALUE}", _name("en", "The user's name is {}")),
    _rule(rf"меня зовут {_VALUE}", _name("ru", "Имя пользователя — {}")),
    _rule(r"我叫(?P<value>\S.*)$", _name("zh", "用户的名字是{}", "。")),
    # My … is
    _rule(_EN_MY, _my),
    _rule(_RU_MY, _my_ru),
    _rule(_ZH_MY, _my_zh),
    # Decisions
    _rule(
        r"(?:we(?:'ve| have)?(?: just| now| finally)? (?:decided|agreed|settled on|chose)\b"
        r"|(?:our |the )?decision(?: is|:)|(?:it's|it is) decided:?)\s*\S.*$",
        _kept("decision"),
    ),
    _rule(
        r"(?:мы (?:(?:уже|всё-таки|окончательно|теперь) )?"
        r"(?:решили|договорились|выбрали|остановились на)"
        r"|(?:наше )?решение(?: —| -|:)|решено[:,]?)\s*\S.*$",
        _kept("decision"),
    ),
    _rule(
        r"(?:我们(?:已经|刚刚|最终)?(?:决定|商定|选定)(?:了)?|决定[：:])\s*\S.*$",
        _kept("decision", stop="。"),
    ),
    # Preferences
    _rule(
        rf"i(?:'d| would)? (?:much |really |always |still )?prefer {_VALUE}",
        _prefers("The user prefers {}"),
    ),
    _rule(rf"i(?:'d| would) rather {_VALUE}", _prefers("The user would rather {}")),
    _rule(
        r"i (?:really )?(?:like|love) (?P<value>\S.* (?:better|best|more)\b.*)$",
        _prefers("The user likes {}"),
    ),
    _rule(
        rf"i (?:really )?(?:hate|dislike|can't stand) {_VALUE}", _prefers("The user dislikes {}")
    ),
    _rule(
        rf"я (?:больше |очень |всегда )?предпочитаю {_VALUE}",
        _prefers("Пользователь предпочитает {}"),
    ),
    _rule(
        rf"мне (?:больше|лучше) нрав(?:ится|ятся) {_VALUE}",
        _prefers("Пользователю больше нравится {}"),
    ),
    _rule(rf"я (?:терпеть не могу|не люблю) {_VALUE}", _prefers("Пользователь не любит {}")),
    _rule(
        r"我(?:更|比较|还是)?(?:喜欢|偏好|倾向于|习惯)(?P<value>\S.*)$",
        _prefers("用户更喜欢{}", "。"),
    ),
    _rule(r"我(?:不喜欢|讨厌)(?P<value>\S.*)$", _prefers("用户不喜欢{}", "。")),
    # Conventions
    _rule(r"(?:always|never) \S.*$", _kept("project-convention")),
    _rule(r"(?:from now on|as a rule|by convention),? \S.*$", _kept("project-convention")),
    _rule(r"(?:всегда|никогда|отныне|впредь),? \S.*$", _kept("project-convention")),
    _rule(
        r"(?:总是|始终|永远|务必|一律|从不|绝不|千万不要|以后)\S.*$",
        _kept("project-convention", stop="。"),
    ),
    # Lessons and pitfalls
    _rule(r"(?:lesson learned|lesson|урок|вывод|教训)\s*[:：—-]\s*\S.*$", _kept("lesson")),
    _rule(
        r"(?:pitfall|gotcha|watch out|beware|осторожно|подводный камень|坑)\s*[:：—-]\s*\S.*$",
        _kept("pitfall"),
    ),
)
# A body that was made of "my X is Y" names its slot again.
_STORED = (
    _rule(rf"the user's {_THING} (?P<verb>is now|are now|is|are) {_VALUE}", _my),
    _rule(rf"{_THING} пользователя — {_VALUE}", _my_ru),
    _rule(r"用户的(?P<thing>[^，。；：！？,.]{1,20}?)(?:是)(?P<value>\S.*)$", _my_zh),
)
