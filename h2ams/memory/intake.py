"""Taking in segments from elsewhere: many at once, with their own ids and times (Truth).

Strategy: one edit per scope, planned from what is on disk. What is there already is known by its
id, or by kind and text, and is left as it is: so the second import of the same source adds nothing,
a text that was edited here since is not overwritten, and one that was forgotten here stays so.
Redaction and limits are those of every other write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from h2ams.errors import H2amsError, LimitError, UsageError
from h2ams.files import Root
from h2ams.memory import folders as on_disk
from h2ams.memory import segment as segments
from h2ams.memory.draft import check_segment, check_size, draft
from h2ams.memory.forgotten import Keep
from h2ams.memory.scope import Scope, parse_scope
from h2ams.memory.scope_files import ARCHIVE_FILE, MEMORY_FILE, Plan, Read, ScopeFiles
from h2ams.memory.segment import Segment
from h2ams.settings import Settings


@dataclass(frozen=True, slots=True)
class Incoming:
    """One segment to take in. ``origin`` tells a person where it was found.

    ``id`` may be empty: then it is made from the text. Times are ISO 8601 or None (undated).
    """

    scope: str
    body: str
    origin: str
    id: str = ""
    kind: str = "fact"
    tags: tuple[str, ...] = ()
    source_messages: tuple[str, ...] = ()
    created_at: str | None = None
    updated_at: str | None = None


@dataclass(frozen=True, slots=True)
class Unfit:
    """Something that was not carried over, and why. ``broken``: it is no whole record of its
    format; anything else is whole and has no place here."""

    origin: str
    reason: str
    broken: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What an intake did, or would do. ``known`` were there already (or forgotten here)."""

    added: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    failed: tuple[Unfit, ...] = ()
    redacted: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def plus(self, other: Taken) -> Taken:
        return Taken(
            self.added + other.added,
            self.known + other.known,
            self.failed + other.failed,
            self.redacted + other.redacted,
            self.paths + other.paths,
        )


@dataclass(slots=True)
class _Known:
    """What a scope holds: ids of any kind of entry, and texts with their kinds."""

    ids: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)


class Intake:
    """Takes segments into the scopes of one root."""

    def __init__(self, root: Root, settings: Settings, files: ScopeFiles | None = None) -> None:
        self._root = root
        self._settings = settings
        self._files = files or ScopeFiles(root, settings)
        self._keep = Keep(root)

    def take(self, incoming: Sequence[Incoming], *, dry_run: bool = False) -> Taken:
        """Add what is not there yet, scope by scope. What cannot be written is in ``failed``."""
        by_scope: dict[str, list[Incoming]] = {}
        for each in incoming:
            by_scope.setdefault(each.scope, []).append(each)
        taken = Taken()
        for text, several in by_scope.items():
            try:
                taken = taken.plus(self._take(parse_scope(text), several, dry_run=dry_run))
            except H2amsError as error:
                failed = tuple(Unfit(each.origin, str(error)) for each in several)
                taken = taken.plus(Taken(failed=failed))
        return taken

    def _take(self, scope: Scope, incoming: list[Incoming], *, dry_run: bool) -> Taken:
        target = self._files.canonical(scope)
        made = [self._drafted(target, each) for each in incoming]

        def plan() -> Plan[Taken]:
            path = f"{on_disk.home(self._root, target)}/{MEMORY_FILE}"
            reads = self._files.reads(target, MEMORY_FILE)
            here = next((read for read in reads if read.path == path), None)
            self._files.check_writable(here)
            known = self._known(target, reads)
            taken, new = _sorted_out(target, made, known)
            if not new:
                return Plan(taken)
            if not on_disk.existing(self._root, target):
                on_disk.check_creatable(self._root, target)
            data = self._appended(here, new)
            size = here.state.size if here else 0
            check_size("max_file_bytes", self._settings.max_file_bytes, len(data), size, path)
            taken = replace(taken, paths=(path,))
            return Plan(taken, path, here.state if here else None, data)

        return self._files.run(target, plan, dry_run=dry_run)

    def _drafted(self, target: Scope, each: Incoming) -> tuple[Incoming, Segment | Unfit, bool]:
        """The segment as it may be written, or why it may not; and whether it was redacted."""
        try:
            values = draft(
                self._settings,
                body=each.body,
                kind=each.kind,
                tags=each.tags,
                source_messages=each.source_messages,
            )
            segment = Segment(
                body=values.body or "",
                id=each.id,
                scope=target.text,
                kind=each.kind,
                tags=values.tags or (),
                source_messages=values.source_messages or (),
                created_at=each.created_at,
                updated_at=each.updated_at,
            )
            check_segment(segment, None, self._settings)
            segments.serialize([segment], settings=self._settings)  # the limits of a header
        except (LimitError, UsageError) as error:
            return each, Unfit(each.origin, error.message), False
        return each, segment, bool(values.redacted)

    def _known(self, target: Scope, reads: list[Read]) -> _Known:
        known = _Known()
        for read in (*reads, *self._files.reads(target, ARCHIVE_FILE)):
            for entry in read.document.entries:
                segment = entry.segment
                known.ids |= {segment.id, entry.address_id}
                known.texts.setdefault((segment.kind, segment.body), entry.address_id)
        known.forgotten = {record.id for record in self._keep.records(target)}
        return known

    def _appended(self, here: Read | None, new: list[Segment]) -> bytes:
        """The file with ``new`` added: the first as always, the others directly behind it.

        What that gives is read back; where it is not what was meant, one is added after the other.
        """
        document = here.document if here else self._files.parse(b"")
        first, *rest = new
        data = segments.append(document, first, settings=self._settings)
        if not rest:
            return data
        newline = document.newline
        last = segments.serialize([first], newline, settings=self._settings)
        at = data.rfind(last) + len(last)
        more = newline.encode() + segments.serialize(rest, newline, settings=self._settings)
        whole = data[:at] + more + data[at:]
        ids = {each.id for each in new}
        read = [each.segment for each in self._files.parse(whole).entries]
        if [each for each in read if each.id in ids] == new:
            return whole
        for each in rest:
            data = segments.append(self._files.parse(data), each, settings=self._settings)
        return data


def _sorted_out(
    target: Scope, made: list[tuple[Incoming, Segment | Unfit, bool]], known: _Known
) -> tuple[Taken, list[Segment]]:
    """What is new, with ids that are free, and the report."""
    ids, texts = set(known.ids), dict(known.texts)
    new: list[Segment] = []
    added: list[str] = []
    old: list[str] = []
    failed: list[Unfit] = []
    redacted: list[str] = []
    for _, segment, was_redacted in made:
        if isinstance(segment, Unfit):
            failed.append(segment)
            continue
        same = texts.get((segment.kind, segment.body))
        if same is not None or (segment.id and segment.id in ids | known.forgotten):
            old.append(f"{target}#{same or segment.id}")
            continue
        id = segment.id or segments.new_id(target.text, segment.kind, segment.body, ids)
        if id in known.forgotten:
            old.append(f"{target}#{id}")
            continue
        ids.add(id)
        texts[(segment.kind, segment.body)] = id
        new.append(replace(segment, id=id))
        added.append(f"{target}#{id}")
        if was_redacted:
            redacted.append(f"{target}#{id}")
    return Taken(tuple(added), tuple(old), tuple(failed), tuple(redacted)), new
