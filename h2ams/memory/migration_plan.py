"""What becomes of one file when a historical folder is brought into the canonical one (Pure).

Two versions of a file may meet. Segments are united by id: the newer wins, as it does for readers
before. Notes that differ both stay, under two names. Of everything else readers take the canonical
one, so it stays; what loses is kept where the old folder is set aside, and told.
"""

from __future__ import annotations

from dataclasses import dataclass

from h2ams.errors import ReadOnlyError
from h2ams.memory import segment as segments
from h2ams.memory.layout import Role
from h2ams.memory.legacy import Held, parse_dream_state, union
from h2ams.memory.segment import Document, Entry
from h2ams.memory.summary import parse_summary
from h2ams.settings import Settings

_HERE, _THERE = "here", "there"


@dataclass(frozen=True, slots=True)
class Decision:
    """``data`` is what the canonical file becomes, None: it stays as it is.

    ``beside``: the other version becomes a file of its own beside it. ``told``: what a person may
    want to know, one line each, without paths.
    """

    data: bytes | None = None
    beside: bool = False
    told: tuple[str, ...] = ()


def decide(role: Role, here: bytes | None, there: bytes, settings: Settings) -> Decision:
    """What to do with ``there``, the file of the historical folder, beside ``here``.

    Asked again with its own result it answers that nothing is to be done. ``ReadOnlyError`` where
    two files of segments cannot be united.
    """
    if here is None:
        return Decision(there)
    if here == there:
        return Decision()
    if role in (Role.MEMORY, Role.ARCHIVE):
        return _united(here, there, settings)
    if role is Role.DREAM_STATE:
        old, new = (parse_dream_state(data).last_at or "" for data in (here, there))
        return Decision(there if new > old else None, told=("the newer watermark counts",))
    if role is Role.SUMMARY:
        summary = parse_summary(here, settings=settings)
        blank = summary.is_stub or not summary.text.strip()
        return Decision(there if blank else None, told=() if blank else (_OTHER,))
    if role in (Role.NOTE, Role.CONTENT):
        return Decision(beside=True)
    return Decision(told=(_OTHER,))


_OTHER = "another version of it is set aside"


def _united(here: bytes, there: bytes, settings: Settings) -> Decision:
    """One file with the segments of both: those of ``here`` where they stand, new ones behind."""
    ours, theirs = (segments.parse(data, settings=settings) for data in (here, there))
    for document in (ours, theirs):
        if document.read_only:
            raise ReadOnlyError(
                f"cannot be united with the canonical one: {document.read_only}",
                hint="unite the two by hand, then migrate again",
            )
    united = union([(_HERE, ours), (_THERE, theirs)])
    told = tuple(
        f"{held.entry.address_id} is there twice: the newer is used, the other one set aside"
        for held in united.beaten
        if not _is_same(held, united.held)
    )
    wanted = {held.entry.address_id: held.entry.segment for held in united.held}
    data = there if not ours.text.strip() else _merged(ours, united.held, settings)
    result = segments.parse(data, settings=settings)
    if {entry.address_id: entry.segment for entry in result.entries} != wanted:
        raise ReadOnlyError(
            "cannot be united with the canonical one without a change",
            hint="unite the two by hand, then migrate again",
        )
    return Decision(None if data == here else data, told=told)


def _merged(ours: Document, held: tuple[Held, ...], settings: Settings) -> bytes:
    places = {entry.address_id: index for index, entry in enumerate(ours.entries)}
    theirs = [each.entry for each in held if each.path == _THERE]
    newer = {places[each.address_id]: each for each in theirs if each.address_id in places}
    data = segments.exchange(ours, newer) if newer else segments.render(ours)
    document = segments.parse(data, settings=settings)
    more = [each for each in theirs if each.address_id not in places]
    return segments.append_entries(document, more, settings=settings)


def _is_same(beaten: Held, held: tuple[Held, ...]) -> bool:
    """Whether the beaten entry says what the winner says: nobody needs to be told."""
    winner = next(each.entry for each in held if each.entry.address_id == beaten.entry.address_id)
    return _without_scope(winner) == _without_scope(beaten.entry)


def _without_scope(entry: Entry) -> tuple[object, ...]:
    value = entry.segment
    return (value.body, value.kind, value.tags, value.source_messages, value.updated_at)
