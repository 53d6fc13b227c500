"""The inspector without any wire: a method, a path and fields in, a page out; it never raises.

Tests and the server ask it alike. One question at a time: one person looks, and the engine's own
lock would make further ones wait anyway.
"""

from __future__ import annotations

import logging
import threading
from functools import cache
from http import HTTPStatus

import jinja2
from markupsafe import Markup

from h2ams import errors
from h2ams.settings import KINDS
from h2ams.surfaces import inspect_edit, inspect_memory, inspect_records
from h2ams.surfaces.inspect_values import (
    Answer,
    Fields,
    Inspecting,
    Moved,
    Page,
    access_text,
    link,
    page_of,
    shown,
)
from h2ams.surfaces.output import error_text, first_line
from h2ams.surfaces.wording import preview

TEMPLATES = "inspect_pages"
PAGES = inspect_memory.PAGES | inspect_records.PAGES
ACTIONS = inspect_edit.ACTIONS
READING = ("GET", "HEAD")
# What the navigation shows: section, path, label, whether it is the owner's alone.
SECTIONS = (
    ("overview", "/", "Overview", False),
    ("recall", "/recall", "Recall", False),
    ("context", "/context", "Memory block", False),
    ("threads", "/threads", "Threads", False),
    ("stacks", "/stacks", "Stacks", True),
    ("dream", "/dream", "Dream", True),
)
# The status of each kind of error; the closest class counts.
STATUSES: dict[type[BaseException], int] = {
    errors.UsageError: 400,
    errors.UnsafePathError: 400,
    errors.NotFoundError: 404,
    errors.AccessError: 403,
    errors.ConflictError: 409,
    errors.ReadOnlyError: 409,
    errors.LimitError: 413,
    errors.LockTimeoutError: 503,
    errors.RootError: 503,
    errors.IndexFaultError: 503,
}

log = logging.getLogger(__name__)


class Verbatim(str):
    """Text that must come back from a form as it is: escaped, but nothing in it is spelled out."""

    __slots__ = ()


def finished(value: object) -> object:
    """What a template prints of ``value``; escaping for HTML comes after it."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup | Verbatim):
        return shown(value)
    return value


@cache
def templates() -> jinja2.Environment:
    """The packaged templates, compiled once. Everything that they print is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("h2ams.surfaces", TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finished,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals |= {"link": link, "page_of": page_of, "kinds": KINDS}
    made.globals |= {"preview": preview, "first_line": first_line}
    made.filters |= {"verbatim": Verbatim, "day": day, "minute": minute}
    return made


class Site:
    """The pages of one open memory."""

    def __init__(self, inspecting: Inspecting) -> None:
        self._inspecting = inspecting
        self._lock = threading.Lock()
        access = inspecting.access
        self._known = {
            "access": access_text(access),
            "write": inspecting.write,
            "mark": inspecting.mark,
            "root": inspecting.memory.root,
            "sections": [each[:3] for each in SECTIONS if access is None or not each[3]],
        }

    def answer(self, method: str, path: str, fields: Fields) -> Answer:
        """The page, or the page that says why there is none."""
        known = {**dict.fromkeys(PAGES, READING), **dict.fromkeys(ACTIONS, ("POST",))}
        if path not in known:
            return self.refusal(404, "There is no such page", "follow a link of these pages")
        if method not in known[path]:
            return self.refusal(405, f"{method} is not for this page", "follow a link")
        act = ACTIONS.get(path) or PAGES[path]
        try:
            with self._lock:
                found = act(self._inspecting, fields)
                if isinstance(found, Moved):
                    return Answer(303, location=found.to)
                return self.rendered(found)
        except Exception as error:  # noqa: BLE001 - the outermost frame: told on a page
            return self.failed(error)

    def failed(self, error: Exception) -> Answer:
        """The page that tells of ``error``."""
        message, hint = error_text(error)
        status = next((STATUSES[each] for each in type(error).__mro__ if each in STATUSES), 500)
        if not isinstance(error, errors.H2amsError):
            log.error("%s", message, exc_info=log.isEnabledFor(logging.DEBUG))
        return self.refusal(status, message, hint)

    def refusal(self, status: int, message: str, hint: str | None) -> Answer:
        """A page with a status that says what is wrong and what to do."""
        title = HTTPStatus(status).phrase
        values = {"message": message, "hint": hint, "status": status}
        return self.rendered(Page("error.html", title, values, "", status))

    def rendered(self, page: Page) -> Answer:
        template = templates().get_template(page.template)
        values = {**page.values, "title": page.title, "section": page.section}
        html = template.render(self._known, **values)
        return Answer(page.status, html)


def day(time: str | None) -> str:
    """The day of an ISO time, "" where there is none."""
    return (time or "")[:10]


def minute(time: str | None) -> str:
    """Day and minute of an ISO time."""
    return (time or "")[:16].replace("T", " ")
