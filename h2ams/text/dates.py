"""Days that a question names: ``12 July 2022``, ``last May``, ``в мае``, ``上周`` (Pure).

Absolute dates, months and years, and what is said relative to today, in English, German, Russian
and Chinese. A date without its year is the latest one that is not in the future.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import NamedTuple

_EPOCH = datetime.date(1970, 1, 1).toordinal()
MAX_SPANS = 4  # of one question
_CLIP = 2_000  # characters that are looked at


class Span(NamedTuple):
    """``first`` and ``last`` day, in days since 1970, and the words that named them."""

    text: str
    first: int
    last: int


_MONTHS = (
    "january|jan januar января|январе|январь",
    "february|feb februar февраля|феврале|февраль",
    "march|mar märz|maerz марта|марте|март",
    "april|apr april апреля|апреле|апрель",
    "may mai мая|мае|май",
    "june|jun juni июня|июне|июнь",
    "july|jul juli июля|июле|июль",
    "august|aug august августа|августе|август",
    "september|sept|sep september сентября|сентябре|сентябрь",
    "october|oct oktober октября|октябре|октябрь",
    "november|nov november ноября|ноябре|ноябрь",
    "december|dec dezember декабря|декабре|декабрь",
)
_MONTH_OF = {
    name: number
    for number, names in enumerate(_MONTHS, 1)
    for group in names.split()
    for name in group.split("|")
}
_MONTH = "|".join(sorted(_MONTH_OF, key=len, reverse=True))
_WEEKDAYS = (
    "monday montag понедельник 周一 星期一",
    "tuesday dienstag вторник 周二 星期二",
    "wednesday mittwoch среду|среда 周三 星期三",
    "thursday donnerstag четверг 周四 星期四",
    "friday freitag пятницу|пятница 周五 星期五",
    "saturday samstag субботу|суббота 周六 星期六",
    "sunday sonntag воскресенье 周日|周天 星期日|星期天",
)
_WEEKDAY_OF = {
    name: number
    for number, names in enumerate(_WEEKDAYS)
    for group in names.split()
    for name in group.split("|")
}
_WEEKDAY = "|".join(sorted((each for each in _WEEKDAY_OF if each.isascii()), key=len, reverse=True))
_WEEKDAY_RU = "|".join(each for each in _WEEKDAY_OF if "а" <= each[0] <= "я")
_WEEKDAY_ZH = "周[一二三四五六日天]|星期[一二三四五六日天]"

_YEAR = r"(?:19|20)\d\d"
_SEP = r"(?:\s*,\s*|\s+(?:of\s+)?)"
_ABSOLUTE = re.compile(
    rf"(?P<iso>\b{_YEAR}-(?:0[1-9]|1[0-2])(?:-(?:[0-2]\d|3[01]))?\b)"
    rf"|\b(?P<d1>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?(?P<m1>{_MONTH})\b\.?"
    rf"(?:{_SEP}(?P<y1>{_YEAR})\b)?"
    rf"|\b(?P<m2>{_MONTH})\b\.?\s+(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\b(?:{_SEP}(?P<y2>{_YEAR})\b)?"
    rf"|\b(?P<m3>{_MONTH})\b\.?{_SEP}(?P<y3>{_YEAR})\b"
    rf"|\b(?:in|last|this|during|since|im|letzten|в|во|прошлом)\s+(?P<m4>{_MONTH})\b(?!\s+i\b|{_SEP}{_YEAR}\b|\s+\d)"
    rf"|(?P<y5>{_YEAR})\s*年(?:\s*(?P<m5>\d{{1,2}})\s*月(?:\s*(?P<d5>\d{{1,2}})\s*[日号號])?)?"
    rf"|(?<!\d)(?P<m6>\d{{1,2}})\s*月\s*(?P<d6>\d{{1,2}})\s*[日号號]"
    rf"|(?:去年)?(?<!\d)(?P<m7>\d{{1,2}})\s*月(?!\s*\d)(?!\s*[前后])"
    rf"|\b(?:in|during|year|в)\s+(?P<y8>{_YEAR})\b(?!-)"
)

_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "一": 1, "两": 2, "二": 2, "三": 3, "四": 4, "五": 5, "六": 6, "七": 7,
    "два": 2, "две": 2, "три": 3, "четыре": 4, "пять": 5, "zwei": 2, "drei": 3, "vier": 4,
}  # fmt: skip
_COUNT = r"(?:\d{1,3}|" + "|".join(each for each in _NUMBERS if not "一" <= each <= "鿿") + ")"
_COUNT_ZH = r"(?:\d{1,3}|[一两二三四五六七])"
_UNIT_OF = {
    "day": 1, "week": 7, "month": 30, "year": 365, "天": 1, "周": 7, "星期": 7, "月": 30, "年": 365,
    "tag": 1, "woche": 7, "monat": 30, "jahr": 365, "дн": 1, "ден": 1, "недел": 7, "месяц": 30,
    "год": 365, "лет": 365,
}  # fmt: skip
_RELATIVE = re.compile(
    r"\b(?P<today>today|heute|сегодня)\b|(?P<today_zh>今天)"
    r"|\b(?P<before>day before yesterday|vorgestern|позавчера)\b|(?P<before_zh>前天)"
    r"|\b(?P<yesterday>yesterday|last night|gestern|вчера)\b|(?P<yesterday_zh>昨天|昨晚)"
    r"|\b(?P<last_week>last week|letzte woche|letzter woche|прошл(?:ой|ую) недел[еюи])\b"
    r"|(?P<last_week_zh>上(?:个)?(?:周|星期|礼拜)(?![一二三四五六日天]))"
    r"|\b(?P<this_week>this week|diese woche|этой неделе)\b|(?P<this_week_zh>本周|这周|这个星期)"
    r"|\b(?P<last_month>last month|letzten monat|прошлом месяце)\b|(?P<last_month_zh>上个?月)"
    r"|\b(?P<this_month>this month|diesen monat|этом месяце)\b|(?P<this_month_zh>本月|这个月)"
    r"|\b(?P<last_year>last year|letztes jahr|прошлом году)\b|(?P<last_year_zh>去年)"
    r"|\b(?P<this_year>this year|dieses jahr|этом году)\b|(?P<this_year_zh>今年)"
    rf"|\b(?:last|on|letzten|am|прошл(?:ый|ую|ое)|в|во)\s+(?P<weekday>{_WEEKDAY}|{_WEEKDAY_RU})\b"
    rf"|(?P<weekday_zh>上?(?:{_WEEKDAY_ZH}))"
    rf"|\b(?P<n>{_COUNT})\s+(?P<unit>day|week|month|year)s?\s+ago\b"
    rf"|\bvor\s+(?P<n_de>{_COUNT})\s+(?P<unit_de>tag|woche|monat|jahr)e?n?\b"
    rf"|\b(?P<n_ru>{_COUNT})\s+(?P<unit_ru>дн|ден|недел|месяц|год|лет)[а-я]*\s+назад\b"
    rf"|(?P<n_zh>{_COUNT_ZH})\s*个?(?P<unit_zh>天|周|星期|月|年)[以之]?前"
)


def spans_in(text: str, today: int) -> tuple[Span, ...]:
    """Days named in ``text``, at most ``MAX_SPANS``; ``today`` in days since 1970."""
    text = text[:_CLIP].lower()
    found: dict[tuple[int, int], Span] = {}
    for span in (*_absolute(text, today), *_relative(text, today)):
        found.setdefault((span.first, span.last), span)
    return tuple(found.values())[:MAX_SPANS]


def _absolute(text: str, today: int) -> Iterator[Span]:
    for match in _ABSOLUTE.finditer(text):
        said = {key[0]: value for key, value in match.groupdict().items() if value}
        if "i" in said:
            year, month, *day = (int(part) for part in said["i"].split("-"))
            span = _span(year, month, day[0] if day else 0)
        else:
            month = _MONTH_OF.get(said.get("m", ""), 0) or int(said.get("m", 0))
            day_of_month = int(said.get("d", 0))
            year = int(said["y"]) if "y" in said else _latest(month, day_of_month, today)
            span = _span(year, month, day_of_month)
        if span is not None:
            yield Span(match[0].strip(), *span)


def _latest(month: int, day: int, today: int) -> int:
    """The year of the latest such date that is not in the future."""
    now = _date(today)
    return now.year - ((month, day or 1) > (now.month, now.day if day else 31))


def _span(year: int, month: int, day: int) -> tuple[int, int] | None:
    """First and last day of a date, a month (no day) or a year (no month); None if impossible."""
    try:
        if not month:
            return _days(datetime.date(year, 1, 1)), _days(datetime.date(year, 12, 31))
        if day:
            only = _days(datetime.date(year, month, day))
            return only, only
        following = datetime.date(year + month // 12, month % 12 + 1, 1)
        return _days(datetime.date(year, month, 1)), _days(following) - 1
    except ValueError:
        return None


def _relative(text: str, today: int) -> Iterator[Span]:
    now = _date(today)
    for match in _RELATIVE.finditer(text):
        kind = match.lastgroup or ""
        value = match[kind]
        kind = kind.removesuffix("_zh").removesuffix("_ru").removesuffix("_de")
        if kind == "unit":
            span = _ago(match, today)
        elif kind == "weekday":
            back = (now.weekday() - _WEEKDAY_OF[value.lstrip("上")]) % 7 or 7
            span = (today - back, today - back)
        else:
            span = _around(kind, now, today)
        yield Span(match[0].strip(), *span)


def _around(kind: str, now: datetime.date, today: int) -> tuple[int, int]:
    monday = today - now.weekday()
    first = today - now.day + 1
    new_year = _days(datetime.date(now.year, 1, 1))
    last_month = _date(first - 1)
    return {
        "today": (today, today),
        "yesterday": (today - 1, today - 1),
        "before": (today - 2, today - 2),
        "this_week": (monday, today),
        "last_week": (monday - 7, monday - 1),
        "this_month": (first, today),
        "last_month": (first - last_month.day, first - 1),
        "this_year": (new_year, today),
        "last_year": (_days(datetime.date(now.year - 1, 1, 1)), new_year - 1),
    }[kind]


def _ago(match: re.Match[str], today: int) -> tuple[int, int]:
    """``three weeks ago`` is a day, give or take: one for days, a few for weeks and more."""
    said = {key: value for key, value in match.groupdict().items() if value}
    count = next(value for key, value in said.items() if key in ("n", "n_de", "n_ru", "n_zh"))
    unit = next(value for key, value in said.items() if key.startswith("unit"))
    size = _UNIT_OF[unit]
    number = int(count) if count.isdecimal() else _NUMBERS[count]
    middle = today - number * size
    return middle - size // 4, middle + size // 4


def _date(day: int) -> datetime.date:
    return datetime.date.fromordinal(max(1, day + _EPOCH))


def _days(date: datetime.date) -> int:
    return date.toordinal() - _EPOCH
