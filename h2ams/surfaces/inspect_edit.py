"""The changes that the inspector can make, with ``--write``: editing, forgetting, bringing back.

Each goes through the engine with the digest of what the person saw: where somebody else has changed
the segment since, nothing is written, and what was typed comes back beside what is there now.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING

from h2ams.errors import AccessError, ConflictError, H2amsError, NotFoundError, UsageError
from h2ams.memory.scope import parse_address
from h2ams.settings import KINDS
from h2ams.surfaces.inspect_values import Act, Fields, Inspecting, Moved, Page, link
from h2ams.surfaces.output import error_text

if TYPE_CHECKING:
    from h2ams.memory.record import Record


def edit(site: Inspecting, fields: Fields) -> Page | Moved:
    """Write the body, kind and tags of a form."""
    check_form(site, fields)
    address = fields.needed("address")
    body = fields.text("body").replace("\r\n", "\n").replace("\r", "\n")
    try:
        if not body.strip():
            raise UsageError("the text is empty", hint="to remove the segment, forget it")
        result = site.memory.update(
            address,
            body=body,
            kind=fields.needed("kind"),
            tags=fields.words("tags"),
            access=site.access,
            expect=fields.needed("expect"),
        )
    except (AccessError, NotFoundError):
        raise  # nothing that could be shown beside what was typed, or that a second try could mend
    except H2amsError as error:
        return refused(site, fields, body, error)
    done = "redacted" if result.redacted else "changed" if result.changed else "same"
    return Moved(link("/segment", address=result.address, done=done))


def refused(site: Inspecting, fields: Fields, body: str, error: H2amsError) -> Page:
    """What was typed, what is there now, and why nothing was written."""
    message, hint = error_text(error)
    record = current(site, fields.needed("address"))
    kind = fields.text("kind")
    if record is not None and kind not in KINDS:  # a list would show its first one instead
        kind = record.kind
    values: dict[str, object] = {
        "message": message,
        "hint": hint,
        "is_conflict": isinstance(error, ConflictError),
        "address": fields.needed("address"),
        "body": body,
        "kind": kind,
        "tags": fields.text("tags"),
        "record": record,
    }
    status = 409 if isinstance(error, ConflictError) else 400
    return Page("refused.html", "Nothing was written", values, "overview", status)


def current(site: Inspecting, address: str) -> Record | None:
    """The segment as it is now, None where it is gone."""
    try:
        return site.memory.get(address, access=site.access)
    except NotFoundError:
        return None


def forget(site: Inspecting, fields: Fields) -> Page | Moved:
    """Remove a segment; it can be brought back."""
    check_form(site, fields)
    address = fields.needed("address")
    site.memory.forget(address, access=site.access, expect=fields.needed("expect"))
    scope, _ = parse_address(address)
    return Moved(link("/scope", name=scope.text, done="forgotten", forgotten=address))


def bring_back(site: Inspecting, fields: Fields) -> Page | Moved:
    """Take a ``forget`` back."""
    check_form(site, fields)
    result = site.memory.unforget(fields.needed("address"), access=site.access)
    return Moved(link("/segment", address=result.address, done="restored"))


def check_form(site: Inspecting, fields: Fields) -> None:
    """``AccessError`` unless the form is one that these pages showed to this browser."""
    if not site.write:
        raise AccessError("this inspector only reads", hint="start h2ams inspect with --write")
    if not site.mark or not hmac.compare_digest(
        fields.text("mark").encode("utf-8", "replace"), site.mark.encode("ascii")
    ):
        raise AccessError("the form is not one of this session", hint="load its page again")


ACTIONS: dict[str, Act] = {
    "/segment/edit": edit,
    "/segment/forget": forget,
    "/segment/restore": bring_back,
}
