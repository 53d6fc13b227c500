"""Analysis of text by script, one for index and query (Pure).

``analyse`` turns a text into the words of two full-text columns, ``parse_query`` turns what
somebody asks into terms that are found there. Both cut a text the same way: at blanks into
chunks, a chunk into pieces (a word or compound of words, a run of a dense script, a symbol), a
compound into its parts. Nothing in a query is syntax except ``"quoted phrases"`` and one ``*`` at
the end of a word (``curr*``); ``and``, ``OR``, ``near`` are words like all others.

Dense scripts (Han, Kana, Hangul, Thai …) are cut into overlapping pairs of characters, and the
last character of a run stands alone as well: so each character begins a token, a word of two
characters is one token, and a single character is found by prefix.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from operator import add
from typing import Literal

import Stemmer

from h2ams.text.irregular import LEMMAS
from h2ams.text.scripts import classes, fold, normalise
from h2ams.text.stopwords import dense_stop, stop_words

__all__ = ["VERSION", "Query", "Term", "analyse", "fold", "parse_query"]

# Recorded with an index: another value means other tokens, so the index is built anew.
VERSION = f"2/unicode-{unicodedata.unidata_version}/snowball-{Stemmer.version()}"

MAX_TOKEN_CHARS = 128  # a longer run is cut into several tokens; SHA-512 in hex fits
MAX_WHOLE_CHARS = 256  # longer compounds (URLs) have no whole form, only parts
MAX_STEM_CHARS = 40  # longer runs of letters are no words
MAX_CACHED_CHUNK_CHARS = 64
CACHED_CHUNKS = 65_536  # about 20 MB when full
CACHED_QUERY_CHUNKS = 8_192
SLICE_CHARS = 65_536  # work on long runs is done in slices to bound memory

TermKind = Literal["word", "identifier", "phrase", "prefix", "pair", "date"]


@dataclass(frozen=True, slots=True)
class Term:
    """One thing that is looked up. A row matches if it has the tokens or the exact form.

    ``tokens`` and ``exact`` may stand in either column; several tokens follow each other in
    ``words``. A ``prefix`` has one token, the beginning of what is looked for.
    """

    text: str
    kind: TermKind
    tokens: tuple[str, ...]
    exact: str | None = None
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What a text asks for: ``terms`` in order of first occurrence, each only once.

    ``keywords`` are reported to people, ``fragments`` are folded pieces for a reading by
    substring. ``only_stop_words``: nothing but function words was asked, so they are kept.
    """

    terms: tuple[Term, ...]
    keywords: tuple[str, ...]
    only_stop_words: bool
    fragments: tuple[str, ...]
    text: str = field(default="", compare=False)  # what was asked, as far as it was analysed


# ---------------------------------------------------------------- pieces of a chunk

_JOIN = r"[-_./\\:@+=&#~%?$']{1,3}"
_RUN = "[Aa0][Aa0m]*"
_PIECE = re.compile(
    rf"(?P<word>[.#@$]?{_RUN}(?:{_JOIN}{_RUN}){{0,63}}(?:\+\+|\#)?)"
    "|(?P<dense>h+|k+|t+)"
    "|(?P<symbol>s)"
)
# Inside a run: before an upper-case letter after a lower-case one (getUser), before the last
# capital of several when a word begins there (HTMLParser, SHA256Sum); everything between runs.
_BORDER = re.compile("(?<=[am])(?=A)|(?<=[A0])(?=A[am])|[^Aa0m]+")
_ACRONYMS = re.compile(r"[A-Z]{2,}s")
_COMPONENTS = re.compile(r"[/\\:@?=&~%$]+")
_VERSION = re.compile(r"v(\d+(?:\.\d+)+)")
_PREFIX = re.compile(r"[Aa][Aa0m]+\*")


def _pieces(chunk: str) -> Iterator[tuple[str, str]]:
    """(``word`` | ``dense`` | ``symbol``, its normalised text), in order."""
    text = normalise(chunk)
    for match in _PIECE.finditer(classes(text)):
        yield match.lastgroup or "", text[match.start() : match.end()]


_SUFFIXES = frozenset({"s", "re", "ve", "ll", "d", "m"})
_ELISIONS = frozenset({"l", "d", "j", "m", "t", "s", "c", "n", "qu", "jusqu", "lorsqu", "puisqu"})
_NEGATIONS = {"can": "can", "won": "will", "shan": "shall"}


def _contract(word: str) -> str:
    """``word`` without possessive, contraction or elision: Baker's, we'll, don't, l'homme."""
    while "'" in word:
        head, _, tail = word.rpartition("'")
        low = tail.lower()
        if low in _SUFFIXES:
            word = head
        elif low == "t" and head[-1:] in ("n", "N"):
            word = _NEGATIONS.get(head.lower(), head[:-1] or head)
        else:
            break
    head, mark, tail = word.partition("'")
    return tail if mark and head.lower() in _ELISIONS else word


def _parts(word: str) -> list[str]:
    """The simple words of a compound: ``getUserName`` and ``get_user_name`` have three."""
    if word.isalnum() and (word[1:].islower() or not word[1:]):
        return [word]
    found: list[str] = []
    start = 0
    for border in _BORDER.finditer(classes(word)):
        if border.start() > start:
            found.append(word[start : border.start()])
        start = border.end()
    if start < len(word):
        found.append(word[start:])
    return _rejoin_acronyms(found)


def _rejoin_acronyms(parts: list[str]) -> list[str]:
    """``UR``, ``Ls`` was ``URLs``: the plural of an acronym is one word."""
    joined: list[str] = []
    for part in parts:
        if len(part) == 2 and joined and _ACRONYMS.fullmatch(joined[-1] + part):
            joined[-1] += part
        else:
            joined.append(part)
    return joined


# ---------------------------------------------------------------- stems


class _Stemmers(threading.local):
    """Snowball's stemmers, which must not be shared by threads."""

    def __init__(self) -> None:
        self.latin = Stemmer.Stemmer("english", 0)
        self.cyrillic = Stemmer.Stemmer("russian", 0)
        self.greek = Stemmer.Stemmer("greek", 0)


_STEMMERS = _Stemmers()


def _stem(folded: str) -> str:
    """The stem of a folded word of letters only; anything else as it is."""
    if len(folded) > MAX_STEM_CHARS or not folded.isalpha():
        return folded
    first = folded[0]
    if first < "\u0250":
        stem = _STEMMERS.latin.stemWord(LEMMAS.get(folded, folded))
    elif "\u0400" <= first < "\u0530":
        stem = _STEMMERS.cyrillic.stemWord(folded)
    elif "\u0370" <= first < "\u0400":
        stem = _STEMMERS.greek.stemWord(folded)
    else:
        return folded
    return str(stem) or folded


@dataclass(frozen=True, slots=True)
class _Compound:
    """A word piece: its folded parts, their stems, its whole form if that is more than a part."""

    surface: str
    parts: tuple[str, ...]
    stems: tuple[str, ...]
    whole: str | None


def _compound(piece: str) -> _Compound:
    surface = _contract(piece) if "'" in piece else piece
    folded: list[str] = []
    parts = _parts(surface)
    for part in parts:
        text = fold(part)
        if len(text) <= MAX_TOKEN_CHARS:
            folded.append(text)
        else:
            cuts = range(0, len(text), MAX_TOKEN_CHARS)
            folded.extend(text[cut : cut + MAX_TOKEN_CHARS] for cut in cuts)
    simple = len(parts) == 1 and parts[0] == surface
    whole = None if simple or len(surface) > MAX_WHOLE_CHARS else fold(surface)
    return _Compound(surface, tuple(folded), tuple(map(_stem, folded)), whole)


def _forms(word: _Compound) -> Iterator[str]:
    """What stands in the second column for ``word``: see ``analyse``."""
    for part, stem in zip(word.parts, word.stems, strict=True):
        if part != stem:
            yield part
    if word.whole is None:
        return
    yield word.whole
    if word.whole.isalpha():  # camelCase: the plain word and its plural are found as well
        yield _stem(word.whole)
    version = _VERSION.fullmatch(word.whole)
    if version:
        yield version[1]
    components = _COMPONENTS.split(word.whole)
    if len(components) > 1:
        yield from (each for each in components if not each.isalnum() and each)


# ---------------------------------------------------------------- index side

# One ordinary word with ordinary punctuation around it: most of all chunks there are.
_PLAIN_WORD = re.compile(
    r"""["'(\[{<*_`!?,;:~=/-]*(?:([A-Za-z][a-z]*)|([А-Яа-яЁё][а-яё]*))["')\]}>*_`.,;:!?~=/-]*"""
)


def _plain_word(chunk: str) -> tuple[str, tuple[str, ...]] | None:
    """What ``_analyse_pieces`` gives, at a fifth of the cost; ``None`` where it might not."""
    match = _PLAIN_WORD.fullmatch(chunk)
    if match is None or len(chunk) > MAX_STEM_CHARS:
        return None
    word = match[1]
    folded = word.lower() if word else match[2].lower().replace("ё", "е")
    stem = _stem(folded)
    return stem, () if stem == folded else (folded,)


def _pairs(run: str) -> Iterator[str]:
    """Overlapping pairs of a dense ``run`` and its last character, joined, slice by slice."""
    for start in range(0, len(run) - 1, SLICE_CHARS):
        part = run[start : start + SLICE_CHARS + 1]
        yield " ".join(map(add, part, part[1:]))
    yield run[-1]


def _analyse_pieces(chunk: str) -> tuple[str, tuple[str, ...]]:
    """Words of a chunk, joined; its forms."""
    words: list[str] = []
    forms: dict[str, None] = {}
    for kind, piece in _pieces(chunk):
        if kind == "word":
            word = _compound(piece)
            words.extend(word.stems)
            forms.update(dict.fromkeys(_forms(word)))
        elif kind == "dense":
            words.extend(_pairs(piece))
        else:
            words.append(piece)
        if len(words) > SLICE_CHARS:
            words = [" ".join(words)]
    return " ".join(words), tuple(forms)


class _Chunks(dict[str, tuple[str, tuple[str, ...]]]):
    """Analyses of short chunks, bounded: looked up without a call in Python when known."""

    def __missing__(self, chunk: str) -> tuple[str, tuple[str, ...]]:
        value = _plain_word(chunk) or _analyse_pieces(chunk)
        if len(chunk) <= MAX_CACHED_CHUNK_CHARS:
            if len(self) >= CACHED_CHUNKS:
                self.clear()
            self[chunk] = value
        return value


_CHUNKS = _Chunks()


def analyse(text: str) -> tuple[str, str]:
    """``(words, forms)`` of any ``text``: tokens for two columns, separated by one blank.

    ``words`` keeps the order of the text: stems, parts of compounds, pairs of dense scripts,
    symbols. ``forms`` are distinct and only what ``words`` has not: folded surfaces that differ
    from their stem, whole compounds and their components. No token holds a blank, a quote, a
    control character or a surrogate. Memoised for short chunks, so ordinary prose is cheap.
    """
    found = list(map(_CHUNKS.__getitem__, text.split()))
    words = " ".join([each for each, _ in found if each])
    return words, " ".join(dict.fromkeys(chain.from_iterable([forms for _, forms in found])))


# ---------------------------------------------------------------- roots

ROOT_CHARS = 5  # of a stem; words that share so much are often related: adopter, adoption
ROOT_MARK = "~"  # no other token begins with it
CACHED_ROOTS = 65_536


def _root(token: str) -> str:
    """The root token of one token of ``words``; empty where it has none."""
    first = token[0]
    if "\u3400" <= first <= "\u9fff" or first >= "\U00020000":
        return ROOT_MARK + first
    return ROOT_MARK + token[:ROOT_CHARS] if len(token) >= ROOT_CHARS and token.isalpha() else ""


class _Roots(dict[str, str]):
    """Roots of tokens, bounded."""

    def __missing__(self, token: str) -> str:
        if len(self) >= CACHED_ROOTS:
            self.clear()
        value = self[token] = _root(token)
        return value


_ROOTS = _Roots()


def roots(words: str) -> str:
    """Roots of analysed ``words``, each once: beginnings of stems, single Han characters.

    Two words with one root are related more often than not, in any alphabet; two Han words with a
    common character too. A weak sign, for words of a question that hardly any text has.
    """
    found = dict.fromkeys(map(_ROOTS.__getitem__, words.split()))
    found.pop("", None)
    return " ".join(found)


def roots_of(term: Term) -> tuple[str, ...]:
    """The root tokens that stand for ``term``; none for phrases, prefixes and quotations."""
    if term.quoted or len(term.tokens) != 1 or term.kind not in ("word", "pair"):
        return ()
    if term.kind == "word":
        root = _ROOTS[term.tokens[0]]
        return (root,) if root else ()
    return tuple(dict.fromkeys(root for each in term.tokens[0] if (root := _root(each))))


# ---------------------------------------------------------------- query side

_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»「」『』", '"'))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A term with the folded word that decides whether it is a stop word, and its keyword."""

    term: Term
    stop: str | None
    keyword: str | None
    fragment: str | None
    bound: bool = False  # only binds, in a dense script


def _want_word(piece: str, quoted: bool) -> Iterator[_Wanted]:
    word = _compound(piece)
    if word.whole is not None:
        term = Term(word.surface, "identifier", (word.whole,), quoted=quoted)
        yield _Wanted(term, None, word.surface, fold(piece))
        if len(word.parts) == 1 and len(word.parts[0]) == 1:
            return  # C++ is not asking for every c
    for part, stem in zip(word.parts, word.stems, strict=True):
        shown = word.surface if len(word.parts) == 1 and word.whole is None else part
        term = Term(shown, "word", (stem,), part if part != stem else None, quoted)
        alone = word.whole is None
        yield _Wanted(term, part, shown if alone else None, part if alone else None)


def _want_dense(run: str, quoted: bool) -> Iterator[_Wanted]:
    if len(run) == 1:
        stop = dense_stop(run)
        yield _Wanted(Term(run, "prefix", (run,), quoted=quoted), None, run, run, stop)
        return
    for pair in map(add, run, run[1:]):
        stop = dense_stop(pair)
        yield _Wanted(Term(pair, "pair", (pair,), quoted=quoted), None, run, run, stop)


def _want_chunk(chunk: str, quoted: bool) -> Iterator[_Wanted]:
    plain = normalise(chunk)
    if plain.endswith("*") and len(plain) <= MAX_TOKEN_CHARS and _PREFIX.fullmatch(classes(plain)):
        start = fold(plain[:-1])
        yield _Wanted(Term(plain, "prefix", (start,), quoted=quoted), None, plain, start)
        return
    for kind, piece in _pieces(chunk):
        if kind == "word":
            yield from _want_word(piece, quoted)
        elif kind == "dense":
            yield from _want_dense(piece, quoted)
        else:
            yield _Wanted(Term(piece, "word", (piece,), quoted=quoted), None, piece, piece)


def _want_phrase(text: str) -> Iterator[_Wanted]:
    """The words of a quotation next to each other, if there are two or more."""
    last = ""
    for chunk in text.split():
        for kind, _ in _pieces(chunk):
            last = kind
    tokens = analyse(text)[0].split()
    if last == "dense":  # in a longer run of the text, the last character has a neighbour
        tokens.pop()
    if len(tokens) > 1:
        shown = " ".join(text.split())
        yield _Wanted(Term(shown, "phrase", tuple(tokens), quoted=True), None, shown, None)


@lru_cache(CACHED_QUERY_CHUNKS)
def _want_again(chunk: str) -> tuple[_Wanted, ...]:
    """What a short chunk outside quotations asks for: questions share most of their words."""
    return tuple(_want_chunk(chunk, quoted=False))


def _wanted(text: str) -> Iterator[_Wanted]:
    segments = text.translate(_QUOTES).split('"')
    for number, segment in enumerate(segments):
        quoted = number % 2 == 1 and number < len(segments) - 1
        if quoted:
            yield from _want_phrase(segment)
        for chunk in segment.split():
            if quoted or len(chunk) > MAX_CACHED_CHUNK_CHARS:
                yield from _want_chunk(chunk, quoted)
            else:
                yield from _want_again(chunk)


def _clip(text: str, max_chars: int) -> str:
    """At most ``max_chars`` of ``text``, cut before a word where there is one."""
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    if not text[max_chars : max_chars + 1].isspace():
        words = cut.rsplit(maxsplit=1)
        cut = words[0] if len(words) == 2 else cut
    return cut


def parse_query(text: str, *, max_chars: int) -> Query:
    """What ``text`` asks for. Any string, any length (cut at ``max_chars``); never raises.

    Each term is found in ``analyse(text)``. Stop words are left out unless nothing else is
    asked; a compound is a term as a whole and by its parts; a dense run by its pairs.
    """
    text = _clip(text, max_chars)
    every = list(_wanted(text))
    stops = stop_words(each.stop for each in every if each.stop is not None)
    kept = [each for each in every if not each.bound and each.stop not in stops]
    only_stop_words = bool(every) and not kept
    terms: dict[tuple[str, ...], Term] = {}
    for each in every if only_stop_words else kept:
        terms.setdefault((each.term.kind, *each.term.tokens), each.term)
    shown = every if only_stop_words else kept
    return Query(
        terms=tuple(terms.values()),
        keywords=tuple(dict.fromkeys(each.keyword for each in shown if each.keyword)),
        only_stop_words=only_stop_words,
        fragments=tuple(
            dict.fromkeys(
                each.fragment
                for each in shown
                if each.fragment and (len(each.fragment) > 1 or not each.fragment.isascii())
            )
        ),
        text=text,
    )
