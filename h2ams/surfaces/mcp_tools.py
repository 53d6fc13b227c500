"""The MCP tools: what each is called, takes and gives, and the one call behind it.

A table of values without any SDK: ``mcp_server`` puts it on the wire, tests call it directly.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from h2ams.errors import AccessError, H2amsError, NotFoundError, UsageError
from h2ams.surfaces import mcp_calls as calls
from h2ams.surfaces import mcp_schema as schema
from h2ams.surfaces.mcp_brief import Document, as_text
from h2ams.surfaces.mcp_calls import (
    BUDGET_MOST_TOKENS,
    LIST_COUNT,
    LIST_MOST,
    PAGE_CHARS,
    PAGE_MOST_CHARS,
    SEARCH_COUNT,
    SEARCH_MOST,
    Arguments,
    Run,
    Serving,
)
from h2ams.surfaces.mcp_cursor import CURSOR_CHARS
from h2ams.surfaces.output import error_document, error_text
from h2ams.surfaces.wording import preview

QUERY_CHARS = 20_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tool:
    """One tool. ``text`` makes the text form of an answer, JSON where it is None.

    ``writes``: it changes files; then ``destructive`` tells whether it may replace or remove text.
    Every tool may be called again with the same arguments without further effect.
    """

    name: str
    title: str
    about: str
    takes: schema.Schema
    gives: schema.Schema
    run: Run
    writes: bool = False
    destructive: bool = False
    text: Callable[[Document], str] | None = None

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        properties = self.takes["properties"]
        assert isinstance(properties, dict)
        return tuple(properties)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a call came to: the answer, or an error that the model can act on."""

    document: Document
    text: str
    is_error: bool = False
    wrote: bool = False


def call_tool(serving: Serving, name: str, arguments: Arguments) -> Outcome:
    """Run the tool ``name``. Errors are outcomes; ``UsageError`` only for an unknown tool."""
    tool = TOOLS.get(name)
    if tool is None:
        raise UsageError(f"there is no tool {name!a}", hint=", ".join(TOOLS))
    try:
        _check(tool, arguments)
        with serving.under_way:
            document = tool.run(serving, arguments)
    except (H2amsError, OSError) as error:
        return _failed(_advised(serving, error))
    except Exception as error:
        logger.exception("tool %s", name)
        return _failed(error)
    text = as_text(document) if tool.text is None else tool.text(document)
    return Outcome(document, text, wrote=tool.writes)


def offered(serving: Serving) -> tuple[Tool, ...]:
    """The tools of this server: none that writes where nothing may be written."""
    return tuple(tool for tool in TOOLS.values() if serving.writable or not tool.writes)


def _advised(serving: Serving, error: Exception) -> Exception:
    """``error`` with a hint that a model can follow: it has neither our commands nor our flags."""
    if isinstance(error, NotFoundError):
        error.hint = "memory_list shows what there is"
    elif isinstance(error, AccessError):
        may = ", ".join(serving.writable)
        error.hint = f"what may be written here: {may}" if may else "this server only reads"
    return error


def _failed(error: Exception) -> Outcome:
    document = error_document(error)
    message, hint = error_text(error)
    told = document["error"]
    code = told["code"] if isinstance(told, dict) else "error"
    return Outcome(document, f"{code}: {message}" + (f" ({hint})" if hint else ""), is_error=True)


def _check(tool: Tool, arguments: Arguments) -> None:
    """``UsageError`` where the arguments are not what the schema says."""
    from jsonschema import Draft202012Validator

    unknown = [name for name in arguments if name not in tool.parameters]
    if unknown:
        raise UsageError(
            f"{tool.name}: unknown parameter {', '.join(map(ascii, unknown))}",
            hint=f"it takes {', '.join(tool.parameters) or 'none'}",
        )
    for wrong in Draft202012Validator(tool.takes).iter_errors(arguments):
        where = ".".join(map(str, wrong.absolute_path))
        raise UsageError(
            f"{tool.name}: {where + ': ' if where else ''}{preview(wrong.message, most=300)}",
            hint="see the tool's input schema",
        )


# -- the table -------------------------------------------------------------------------------------

_QUERY = schema.text(
    'What to look for, in any language. Words are words; "quotes" keep a phrase together, a star '
    "at the end of a word matches its continuations.",
    longest_chars=QUERY_CHARS,
)
_ADDRESS = schema.text("SCOPE#ID, as memory_search and memory_list give it.")
_EXPECT = schema.text("Change only if the segment still has this digest (memory_get gives it).")
_TAGS = schema.texts("Tags.")
_SOURCES = schema.texts("Ids of the messages that this came from.")
_BUDGET = schema.whole("Tokens that the block must not exceed.", least=0, most=BUDGET_MOST_TOKENS)


def _block_text(document: Document) -> str:
    """The block; where it is empty, why: a blank answer looks like a fault."""
    if document["text"]:
        return str(document["text"])
    if document["rejected_count"]:
        return f"No memory fits into {document['budget']} tokens (memory_explain says why)."
    return "No memory matches this question."


_TABLE = (
    Tool(
        "memory_search",
        "Search memory",
        "Ranked matches for a question: addresses, scores and previews. Read a whole text with "
        "memory_get. No hits is an answer, not an error.",
        schema.takes(
            {
                "query": _QUERY,
                "limit": schema.whole(
                    f"At most so many hits (default {SEARCH_COUNT}).", least=1, most=SEARCH_MOST
                ),
                "kinds": schema.kinds("Only these kinds."),
                "tags": schema.texts("Only segments with one of these tags."),
                "scopes": schema.texts("Only these scopes; * matches within a name."),
                "after": schema.text("Only changed at or after this time (ISO 8601)."),
                "before": schema.text("Only changed before this time (ISO 8601)."),
            },
            "query",
        ),
        schema.gives(
            {
                "hits": schema.HITS,
                "relaxed": schema.BOOLEAN,
                "keywords": schema.STRINGS,
                "degraded": schema.OBJECTS,
                "left_out": schema.INTEGER,
            }
        ),
        calls.search,
    ),
    Tool(
        "memory_get",
        "Read one memory",
        "The text at an address, a page at a time: where truncated is true, go on at next_offset.",
        schema.takes(
            {
                "address": _ADDRESS,
                "offset": schema.whole("Where the page begins, in characters (default 0)."),
                "limit": schema.whole(
                    f"Characters of the page (default {PAGE_CHARS}).", least=1, most=PAGE_MOST_CHARS
                ),
            },
            "address",
        ),
        schema.gives(
            {
                "address": schema.STRING,
                "uri": schema.STRING,
                "scope": schema.STRING,
                "id": schema.STRING,
                "kind": schema.STRING,
                "tags": schema.STRINGS,
                "body": schema.STRING,
                "offset": schema.INTEGER,
                "length": schema.INTEGER,
                "truncated": schema.BOOLEAN,
                "next_offset": {"type": ["integer", "null"]},
                "digest": schema.STRING,
                "path": schema.STRING,
                "line": schema.INTEGER,
            }
        ),
        calls.get,
    ),
    Tool(
        "memory_context",
        "Memory block for a question",
        "The memory that matters for a question, as one text that never exceeds its budget: what "
        "always applies, what was used recently, what matches.",
        schema.takes(
            {
                "query": _QUERY,
                "budget": _BUDGET,
                "language": schema.text("Language of summaries: en or zh (default en)."),
            },
            "query",
        ),
        schema.gives(
            {
                "text": schema.STRING,
                "tokens": schema.INTEGER,
                "budget": schema.INTEGER,
                "addresses": schema.STRINGS,
                "rejected_count": schema.INTEGER,
            }
        ),
        calls.context,
        text=_block_text,
    ),
    Tool(
        "memory_add",
        "Remember",
        "Add one memory to a scope (user, global, sessions/ID, …). The same text again changes "
        "nothing. Secrets and <private> parts are replaced before writing.",
        schema.takes(
            {
                "scope": schema.text("Where it belongs; memory_status tells what may be written."),
                "text": schema.text("What to remember: one thing, in full sentences."),
                "kind": schema.kind("What sort of memory it is (default fact)."),
                "tags": _TAGS,
                "source_messages": _SOURCES,
            },
            "scope",
            "text",
        ),
        schema.gives({**schema.WRITTEN, "created": schema.BOOLEAN}),
        calls.add,
        writes=True,
    ),
    Tool(
        "memory_update",
        "Change a memory",
        "Change text, kind, tags or sources of one memory; what is left out stays as it is.",
        schema.takes(
            {
                "address": _ADDRESS,
                "text": schema.text("The new text, whole."),
                "kind": schema.kind("The new kind."),
                "tags": schema.texts("The new tags; they replace the old ones."),
                "source_messages": schema.texts("The new message ids; they replace the old ones."),
                "expect": _EXPECT,
            },
            "address",
        ),
        schema.gives({**schema.WRITTEN, "changed": schema.BOOLEAN}),
        calls.update,
        writes=True,
        destructive=True,
    ),
    Tool(
        "memory_delete",
        "Forget a memory",
        "Remove one memory from its file. The owner can bring it back (h2ams forget --undo).",
        schema.takes({"address": _ADDRESS, "expect": _EXPECT}, "address"),
        schema.gives({**schema.WRITTEN, "removed": schema.BOOLEAN}),
        calls.delete,
        writes=True,
        destructive=True,
    ),
    Tool(
        "memory_list",
        "List memories",
        "The segments of a scope, or of all readable scopes, by scope and id, a page at a time.",
        schema.takes(
            {
                "scope": schema.text("Only this scope."),
                "archived": schema.flag("The retired segments instead."),
                "cursor": schema.text(
                    "Go on behind a page: its next_cursor, with scope and archived as they were.",
                    longest_chars=CURSOR_CHARS,
                ),
                "limit": schema.whole(
                    f"At most so many (default {LIST_COUNT}).", least=1, most=LIST_MOST
                ),
            }
        ),
        schema.gives(
            {
                "segments": schema.BRIEFS,
                "total": schema.INTEGER,
                "next_cursor": schema.OPTIONAL_STRING,
            }
        ),
        calls.list_segments,
    ),
    Tool(
        "memory_status",
        "State of the memory",
        "How much is remembered, whether the index is fresh, what this server may see and "
        "write (writable), and problems in the files.",
        schema.takes({}),
        schema.gives(
            {
                "root": schema.STRING,
                "scopes": schema.INTEGER,
                "segments": schema.INTEGER,
                "notes": schema.INTEGER,
                "tokens": schema.INTEGER,
                "index": schema.OBJECT,
                "access": schema.OBJECT,
                "writable": schema.STRINGS,
                "problems_count": schema.INTEGER,
                "problems": schema.OBJECTS,
                "degraded": schema.OBJECTS,
            }
        ),
        calls.status,
    ),
    Tool(
        "memory_explain",
        "Explain a memory block",
        "Why each candidate is in the block for a question or not: layer, score terms, or the "
        "reason it stayed out.",
        schema.takes({"query": _QUERY, "budget": _BUDGET}, "query"),
        schema.gives(
            {
                "tokens": schema.INTEGER,
                "budget": schema.INTEGER,
                "frame_tokens": schema.INTEGER,
                "now": schema.STRING,
                "layers": schema.OBJECT,
                "items_count": schema.INTEGER,
                "rejected_count": schema.INTEGER,
                "candidates": schema.OBJECTS,
                "left_out": schema.INTEGER,
            }
        ),
        calls.explain,
    ),
    Tool(
        "search",
        "Search",
        "The same search as memory_search, in the form that research hosts expect.",
        schema.takes({"query": _QUERY}, "query"),
        schema.gives({"results": schema.OBJECTS}),
        calls.plain_search,
    ),
    Tool(
        "fetch",
        "Fetch",
        "One text by the id that search gave; metadata says whether it was cut.",
        schema.takes({"id": _ADDRESS}, "id"),
        schema.gives(
            {
                "id": schema.STRING,
                "title": schema.STRING,
                "text": schema.STRING,
                "url": schema.STRING,
                "metadata": schema.OBJECT,
            }
        ),
        calls.fetch,
    ),
)
TOOLS = {tool.name: tool for tool in _TABLE}
