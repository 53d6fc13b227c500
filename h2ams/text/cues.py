"""What kind of statement a text is, as far as its words show (Pure).

Three cues, each one bit, of an indexed text: it only asks; it tells a time; somebody speaks of
themselves. And what a question asks for: a time. Word lists, no grammar; languages as in
``stopwords``. A cue never makes a match, it only orders matches.
"""

from __future__ import annotations

import re
from functools import cache

from h2ams.text.words import analyse

ASKS, TIME, SELF = 1, 2, 4

# Patterns are made when first needed: a process that only asks needs none of the first three.
_ASIDE = r"\s*[\[(（【][^\[\]()（）【】]{0,400}[\])）】]\s*\Z"
_YEAR = r"(?<![^ ])[12]\d{3}(?![^ ])"
_ENDS_ASKING = r"[?？؟]+[\s\"'”’»」』)\]!！.*_]*\Z"

_SELF = """
i me my mine myself we us our ours ourselves
ich mich mir mein meine meinen meinem meiner wir uns unser unsere
je moi mon ma mes nous notre nos yo mi mis nosotros nuestro nuestra
я меня мне мной мой моя мое мои моего моей моих мы нас нам наш наша наше наши
"""
_SELF_CHARACTERS = "我俺咱私僕나저내제우"

_TIMES = """
yesterday today tonight tomorrow ago last next since recently weekend week month year morning
evening monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat
sun january february march april june july august september october november december century
decade
gestern heute morgen vorgestern letzte letzten letztes nächste nächsten seit woche monat jahr
montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar märz mai juni juli
oktober dezember jahrhundert
hier demain semaine mois année lundi mardi mercredi jeudi vendredi samedi dimanche janvier février
avril juin juillet août septembre octobre novembre décembre siècle
ayer hoy mañana semana año lunes martes miércoles jueves viernes sábado domingo enero febrero abril
mayo junio julio agosto septiembre octubre noviembre diciembre siglo
вчера сегодня завтра позавчера назад прошлый прошлой прошлом следующий следующей неделя неделю
недели месяц месяца год года году век века понедельник вторник среда среду четверг пятница пятницу
суббота субботу воскресенье январь января февраль февраля март марта апрель апреля май мая июнь
июня июль июля август августа сентябрь сентября октябрь октября ноябрь ноября декабрь декабря
"""
_DENSE_TIMES = """
昨天 今天 明天 前天 后天 昨晚 今晚 上周 下周 本周 这周 上個 上个 下个 去年 今年 明年 前年
上月 下月 本月 星期 礼拜 周一 周二 周三 周四 周五 周六 周日 周末 世纪 世紀 年代 月份 年前 天前
年 月 日 昨日 今日 明日 先週 来週 今週 先月 来月 今月 来年 週末 曜日
어제 오늘 내일 지난 다음 작년 올해 내년 월요 화요 수요 목요 금요 토요 일요 주말 세기
"""

# "When" asks where a sentence begins with it; elsewhere it mostly joins two sentences.
_ASKS_TIME = (
    r"(?:\A|[.?!:;\n]|\b(?:since|and|tell me|know|remember|und|seit|et|depuis|с|и)\b)\W*"
    r"(?:when|wann|quand|cuándo|cuando|когда)\b"
    r"|\b(?:how long|(?:what|which)\s+(?:year|date|day|month|time|century|decade|week)|"
    r"wie lange|combien de temps|desde cuándo|"
    r"как долго|как(?:ом|ой|ое|ого)\s+(?:год|году|месяце|веке|день|число))\b"
    r"|什么时候|什麼時候|什么时间|何时|何時|哪一?年|哪一?天|哪个月|哪个世纪|几月|几号|多久|"
    r"いつ|何年|何月|何日|언제|몇\s*년|몇\s*월"
)
_ASKING_WORDS = (
    *("when", "wann", "quand", "cuando", "how long", "what", "which", "wie lange"),
    "combien de temps",
)


# The words of ``dates`` that are written in ASCII letters: without one, and without a digit, an
# ASCII text names no day, and the patterns there need not be made (4 ms).
_DAY_WORDS = frozenset(
    [
        "january",
        "jan",
        "januar",
        "february",
        "feb",
        "februar",
        "march",
        "mar",
        "maerz",
        "april",
        "apr",
        "may",
        "mai",
        "june",
        "jun",
        "juni",
        "july",
        "jul",
        "juli",
        "august",
        "aug",
        "september",
        "sept",
        "sep",
        "october",
        "oct",
        "oktober",
        "november",
        "nov",
        "december",
        "dec",
        "dezember",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "montag",
        "dienstag",
        "mittwoch",
        "donnerstag",
        "freitag",
        "samstag",
        "sonntag",
        "today",
        "yesterday",
        "night",
        "heute",
        "gestern",
        "vorgestern",
        "day",
        "days",
        "week",
        "weeks",
        "month",
        "months",
        "year",
        "years",
        "tag",
        "tage",
        "tagn",
        "tagen",
        "woche",
        "wochee",
        "wochen",
        "wocheen",
        "monat",
        "monate",
        "monatn",
        "monaten",
        "jahr",
        "jahre",
        "jahrn",
        "jahren",
    ]
)
_NO_WORD = r"[^a-z]+"


@cache
def _pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(text, flags)


@cache
def _tokens(text: str) -> frozenset[str]:
    return frozenset(analyse(text)[0].split())


def cues(text: str, words: str) -> int:
    """Bits of the cues in ``text``, whose analysed ``words`` are given."""
    tokens = set(words.split())
    found = 0
    if "?" in text or "？" in text or "؟" in text:
        end = _pattern(_ASIDE).sub("", text[-1_000:])
        if _pattern(_ENDS_ASKING).search(end[-40:]):
            found |= ASKS
    if not (
        tokens.isdisjoint(_tokens(_TIMES)) and tokens.isdisjoint(_tokens_of(_DENSE_TIMES))
    ) or _pattern(_YEAR).search(words):
        found |= TIME
    if not tokens.isdisjoint(_tokens(_SELF)) or _has_any(text, _SELF_CHARACTERS):
        found |= SELF
    return found


def _has_any(text: str, characters: str) -> bool:
    return not text.isascii() and any(each in text for each in characters)


@cache
def _tokens_of(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


def asks_time(text: str) -> bool:
    """Whether a question asks when or how long."""
    if text.isascii() and not any(each in text.lower() for each in _ASKING_WORDS):
        return False  # none of the pattern's ASCII words
    return _pattern(_ASKS_TIME, re.IGNORECASE).search(text) is not None


def may_name_days(text: str) -> bool:
    """False only where ``dates.spans_in`` finds nothing; costs next to nothing."""
    if not text.isascii():
        return True
    low = text.lower()
    if any(each in low for each in "0123456789"):
        return True
    return not _DAY_WORDS.isdisjoint(_pattern(_NO_WORD).split(low))
