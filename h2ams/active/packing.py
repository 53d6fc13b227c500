"""Candidates into a block that never exceeds its budget (Pure).

Strategy: reserve what the frame costs, split the rest into layers, and fill each greedily by rank
with whole items; what packing leaves over goes to on-demand, then recent, then resident. Each
candidate is rendered and counted at most once, and only if its body's known count says that it
could fit. At the end the whole text is counted: parts may cost more together than apart, so the
layer that borrowed most gives up its last item until the text fits. That last count is the cap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import ceil
from typing import TYPE_CHECKING

from h2ams.active import budget, ranking, render
from h2ams.active.block import (
    LAYERS,
    Candidate,
    Item,
    Layer,
    LayerReceipt,
    MemoryBlock,
    Receipt,
    Rejection,
)

if TYPE_CHECKING:
    from h2ams.settings import Settings
    from h2ams.tokens import TokenCounter

SLACK_TOKENS = 2  # docs/domain.md, "Hard cap": sums of parts can be too small by a token or two
NOTICE_SHARE = 8  # the notice about what is left out may cost one part in so many
JOINT_TOKENS = 2  # label and body may cost so much less together than apart
PROBE_CHARS = 8  # per token: of a longer body of unknown count, this much is counted first


@dataclass(frozen=True, slots=True)
class _Pricing:
    """How texts are rendered and counted in this block. ``count`` remembers what it counted."""

    count: Callable[[str], int]
    words: render.Labels


@dataclass(frozen=True, slots=True)
class _Piece:
    """An entry as it stands in the text."""

    entry: _Entry
    text: str
    body: str
    tokens: int
    cut: bool = False

    def item(self) -> Item:
        c = self.entry.candidate
        return Item(
            address=c.address,
            scope=c.scope,
            id=c.id,
            kind=c.kind,
            path=c.path,
            line=c.line,
            tokens=self.tokens,
            score=c.score,
            terms=c.terms,
            source_session=c.source_session,
            cut=self.cut,
        )


class _Entry:
    """A candidate with its rank in its layer, rendered and counted when asked, then remembered."""

    def __init__(self, candidate: Candidate, rank: int, pricing: _Pricing) -> None:
        self.candidate = candidate
        self.rank = rank
        self._pricing = pricing
        self._floor = candidate.tokens - JOINT_TOKENS  # of what is known so far

    @cached_property
    def whole(self) -> _Piece:
        if self.candidate.shortened:
            text = render.item(self._label, self._body, self._pricing.words.cut)
            return self._counted(_Piece(self, text, self._body, self._pricing.count(text), True))
        text = render.item(self._label, self._body)
        known = self.candidate.tokens
        # A body that begins with a letter or digit never shares a token with its label.
        if known > 0 and self._body == self.candidate.body and self._body[:1].isalnum():
            tokens = known + self._pricing.count(f"{self._label}\n")
        else:
            tokens = self._pricing.count(text)
        return self._counted(_Piece(self, text, self._body, tokens))

    def _counted(self, piece: _Piece) -> _Piece:
        self._floor = piece.tokens
        return piece

    @property
    def least(self) -> int:
        """Tokens that the item surely takes, as far as they are known without counting."""
        return self._floor

    def exceeds(self, room: int) -> bool:
        """Whether the item takes more than ``room``, found out as cheaply as possible."""
        if self._floor > room:
            return True
        body = self.candidate.body
        if self.candidate.tokens <= 0 and len(body) > room * PROBE_CHARS:
            self._floor = self._pricing.count(body[: room * PROBE_CHARS]) - JOINT_TOKENS
            if self._floor > room:
                return True
        return self.whole.tokens > room

    def fits(self, room: int) -> bool:
        return not self.exceeds(room)

    def cut(self, room: int) -> _Piece | None:
        """The beginning of the item that fits into ``room`` with label and notice."""
        notice = self._pricing.words.cut
        text = budget.cut_to_fit(
            self._body,
            room,
            self._pricing.count,
            lambda beginning: render.item(self._label, beginning, notice),
        )
        if text is None:
            return None
        body = text[len(self._label) + 1 : -len(notice) - 1]
        return _Piece(self, text, body, self._pricing.count(text), cut=True)

    @cached_property
    def _body(self) -> str:
        return render.safe_body(self.candidate.body)

    @cached_property
    def _label(self) -> str:
        return render.label(self.candidate, self._pricing.words)


@dataclass(slots=True)
class _Packing:
    """Work in progress: what is shown and left of each layer, and what repeats what."""

    room: int
    shown: dict[Layer, list[_Piece]]
    left: dict[Layer, list[_Entry]]
    repeated: dict[_Entry, str]
    noticed: bool = False

    def used(self) -> dict[Layer, int]:
        return {layer: sum(piece.tokens for piece in self.shown[layer]) for layer in LAYERS}

    def pieces(self) -> list[_Piece]:
        return [piece for layer in LAYERS for piece in self.shown[layer]]

    def left_count(self) -> int:
        return sum(len(entries) for entries in self.left.values())


def build_block(
    query: str,
    candidates: Sequence[Candidate],
    *,
    rejected: Sequence[Rejection] = (),
    total: int,
    counter: TokenCounter,
    settings: Settings,
    now: str,
    language: str = "en",
) -> MemoryBlock:
    """The block of at most ``total`` tokens as ``counter`` counts it, with its receipt.

    ``rejected`` are candidates that never got this far; they are listed too. ``now`` (ISO 8601,
    UTC) only orders: it is not in the text. The order of ``candidates`` does not matter. With
    nothing to show, or a budget below the fence's own cost, the text is "" (0 tokens).
    """
    pricing = _Pricing(cache(counter.count), render.labels(language))
    admitted, stale = ranking.admit(candidates)
    packing = _pack(_Offer.of(admitted, now, pricing), total, pricing, settings)
    outside = sum(each.reason == "budget" for each in rejected)
    text, tokens = _finish(packing, total, pricing, settings, outside)
    used = packing.used()
    limits = budget.allocate(packing.room, used, settings)
    receipt = Receipt(
        query=query,
        budget=total,
        tokens=tokens,
        frame_tokens=tokens - sum(used.values()),
        now=now,
        encoding=counter.name,
        language=language,
        layers={
            layer: LayerReceipt(
                limits[layer], used[layer], tuple(piece.item() for piece in packing.shown[layer])
            )
            for layer in LAYERS
        },
        rejected=_rejections(packing, (*stale, *rejected)),
    )
    return MemoryBlock(text, tokens, total, receipt)


@dataclass(frozen=True, slots=True)
class _Offer:
    """What is to be packed: entries best first per layer, and those that repeat a better copy."""

    queues: dict[Layer, list[_Entry]]
    repeated: dict[_Entry, Candidate]
    now: str

    @classmethod
    def of(cls, admitted: Sequence[Candidate], now: str, pricing: _Pricing) -> _Offer:
        winners = ranking.duplicates(admitted, now)
        repeats = {id(admitted[at]): winner for at, winner in winners.items()}
        queues: dict[Layer, list[_Entry]] = {}
        repeated: dict[_Entry, Candidate] = {}
        for layer in LAYERS:
            queues[layer] = []
            for rank, each in enumerate(ranking.in_order(layer, admitted, now)):
                entry = _Entry(each, rank, pricing)
                if id(each) in repeats:
                    repeated[entry] = repeats[id(each)]
                else:
                    queues[layer].append(entry)
        return cls(queues, repeated, now)

    def layers(self) -> list[Layer]:
        """The layers that might be shown."""
        repeats = {entry.candidate.layer for entry in self.repeated}
        return [layer for layer in LAYERS if self.queues[layer] or layer in repeats]


def _pack(offer: _Offer, total: int, pricing: _Pricing, settings: Settings) -> _Packing:
    """Pack once; if something did not fit, once more with room for the notice that says so."""
    frame = pricing.count(render.frame(offer.layers(), pricing.words)) + SLACK_TOKENS
    room = max(0, total - frame)
    entries = [entry for queue in offer.queues.values() for entry in queue]
    surely_left = sum(entry.least for entry in entries) > room
    packing = None if surely_left else _fill_layers(offer, room, settings)
    if packing is None or packing.left_count():
        most = len(entries) if packing is None else packing.left_count()
        notice = pricing.count(render.more(most, pricing.words)) + SLACK_TOKENS
        if notice * NOTICE_SHARE <= room:
            packing = _fill_layers(offer, room - notice, settings)
            packing.noticed = packing.left_count() > 0
    return packing or _fill_layers(offer, room, settings)


def _fill_layers(offer: _Offer, room: int, settings: Settings) -> _Packing:
    demand = _demand(offer, room, settings)
    limits = budget.allocate(room, demand, settings)
    packing = _Packing(room, {}, {}, {})
    for layer in LAYERS:
        filled = _fill(offer.queues[layer], limits[layer], may_cut=True)
        packing.shown[layer], packing.left[layer] = filled
    spare = room - sum(packing.used().values())
    for layer in budget.BORROWERS:
        more, packing.left[layer] = _fill(packing.left[layer], spare, may_cut=False)
        packing.shown[layer] += more
        spare -= sum(piece.tokens for piece in more)
    if not _revive(offer, packing, spare):
        _lengthen(packing, spare)
    for pieces in packing.shown.values():
        pieces.sort(key=lambda piece: piece.entry.rank)
    return packing


def _demand(offer: _Offer, room: int, settings: Settings) -> dict[Layer, int]:
    """What each layer could use, at most ``room``: more makes no difference.

    A repetition counts where the summary that says the same is too long to be shown whole.
    """
    share = budget.base_shares(room, settings)["resident"]
    won = {id(winner) for winner in offer.repeated.values() if winner.is_summary}
    summaries = [each for each in offer.queues["resident"] if id(each.candidate) in won]
    long = {id(each.candidate) for each in summaries if each.exceeds(share)}
    doubtful = [entry for entry, winner in offer.repeated.items() if id(winner) in long]
    demand: dict[Layer, int] = dict.fromkeys(LAYERS, 0)
    for layer in LAYERS:
        for entry in (*offer.queues[layer], *(e for e in doubtful if e.candidate.layer == layer)):
            demand[layer] = min(room, demand[layer] + entry.whole.tokens)
            if demand[layer] == room:
                break
    return demand


def _fill(
    queue: Iterable[_Entry], room: int, *, may_cut: bool
) -> tuple[list[_Piece], list[_Entry]]:
    """Greedy by rank: what fits into ``room``, and what does not.

    Only a summary is ever cut, the first that does not fit, and only if it is longer than the
    whole room or half of it or more would be left.
    """
    shown: list[_Piece] = []
    left: list[_Entry] = []
    whole_room = room
    for entry in queue:
        piece = entry.whole if entry.fits(room) else None
        if piece is None and may_cut and entry.candidate.is_summary:
            may_cut = False
            if not entry.exceeds(2 * room) or entry.exceeds(whole_room):
                piece = entry.cut(room)
        if piece is None:
            left.append(entry)
        else:
            shown.append(piece)
            room -= piece.tokens
    return shown, left


def _revive(offer: _Offer, packing: _Packing, spare: int) -> bool:
    """Show a repetition after all where the copy that won is not shown (or only its beginning).

    Whether there was any.
    """
    revived = False
    whole = {id(piece.entry.candidate) for piece in packing.pieces() if not piece.cut}
    for layer in budget.BORROWERS:
        for entry, winner in offer.repeated.items():
            if entry.candidate.layer != layer:
                continue
            packing.repeated[entry] = winner.address
            if id(winner) in whole or not entry.fits(spare):
                continue
            shown = [replace(p.entry.candidate, body=p.body) for p in packing.pieces()]
            still = ranking.duplicates([entry.candidate], offer.now, shown)
            if still:
                packing.repeated[entry] = still[0].address
                continue
            del packing.repeated[entry]
            packing.shown[layer].append(entry.whole)
            spare -= entry.whole.tokens
            revived = True
    return revived


def _lengthen(packing: _Packing, spare: int) -> None:
    """Give what is left over to the first summary that was cut."""
    pieces = packing.shown["resident"]
    at = next((at for at, piece in enumerate(pieces) if piece.cut), None)
    if at is not None and spare > 0:
        pieces[at] = pieces[at].entry.cut(pieces[at].tokens + spare) or pieces[at]


def _finish(
    packing: _Packing, total: int, pricing: _Pricing, settings: Settings, outside: int
) -> tuple[str, int]:
    """The text and its count; gives up the notice, then items, until it is at most ``total``."""
    while packing.pieces():
        notice = ""
        if packing.noticed:
            notice = render.more(packing.left_count() + outside, pricing.words)
        sections = {layer: [piece.text for piece in packing.shown[layer]] for layer in LAYERS}
        text = render.block(sections, pricing.words, notice)
        tokens = pricing.count(text)
        if tokens <= total:
            return text, tokens
        if packing.noticed:
            packing.noticed = False
        else:
            share = sum(packing.used().values()) / tokens
            _shed(packing, ceil((tokens - total) * share), settings)
    return "", 0


def _shed(packing: _Packing, excess: int, settings: Settings) -> None:
    """Take away last items worth ``excess`` tokens, each from the layer that borrowed most."""
    base = budget.base_shares(packing.room, settings)
    while excess > 0 and packing.pieces():
        used = packing.used()
        layer = max(
            (layer for layer in LAYERS if packing.shown[layer]),
            key=lambda layer: used[layer] - base[layer],
        )
        piece = packing.shown[layer].pop()
        packing.left[layer].append(piece.entry)
        excess -= max(1, piece.tokens)


def _rejections(packing: _Packing, others: Iterable[Rejection]) -> tuple[Rejection, ...]:
    """Every candidate that is not shown: by layer and rank, then those from outside by reason."""
    found: list[tuple[tuple[int, int], Rejection]] = []
    for number, layer in enumerate(LAYERS):
        for entry in packing.left[layer]:
            rejection = Rejection(entry.candidate.address, "budget")
            found.append(((number, entry.rank), rejection))
        for entry, winner in packing.repeated.items():
            if entry.candidate.layer == layer:
                rejection = Rejection(entry.candidate.address, "duplicate", winner)
                found.append(((number, entry.rank), rejection))
    found.sort(key=lambda each: each[0])
    listed = [rejection for _, rejection in found]
    known = {piece.entry.candidate.address for piece in packing.pieces()}
    known |= {each.address for each in listed}
    outside = {each for each in others if each.address not in known}
    listed += sorted(outside, key=lambda each: (each.reason, each.address, each.detail))
    return tuple(listed)
