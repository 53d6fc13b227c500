"""JSON Schemas of the MCP tools, as plain values (Pure): what a tool takes, what it gives.

Inputs are closed (``additionalProperties: false``): a parameter that nobody reads would be a wish
that is silently not met. Outputs are open: keys may be added, never changed.
"""

from __future__ import annotations

from h2ams.settings import KINDS

Schema = dict[str, object]


def text(about: str, *, longest_chars: int | None = None) -> Schema:
    """A string; ``longest_chars`` in code points."""
    limit = {} if longest_chars is None else {"maxLength": longest_chars}
    return {"type": "string", "description": about, **limit}


def whole(about: str, *, least: int = 0, most: int | None = None) -> Schema:
    """A whole number from ``least`` to ``most``."""
    limit = {} if most is None else {"maximum": most}
    return {"type": "integer", "description": about, "minimum": least, **limit}


def flag(about: str) -> Schema:
    return {"type": "boolean", "description": about}


def texts(about: str, *, most: int = 64) -> Schema:
    """A list of at most ``most`` strings."""
    return {"type": "array", "description": about, "items": {"type": "string"}, "maxItems": most}


def kind(about: str) -> Schema:
    """One of the kinds of segments."""
    return {"type": "string", "description": about, "enum": list(KINDS)}


def kinds(about: str) -> Schema:
    return {
        "type": "array",
        "description": about,
        "items": {"type": "string", "enum": list(KINDS)},
        "maxItems": len(KINDS),
    }


def takes(properties: dict[str, Schema], *required: str) -> Schema:
    """The closed schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def gives(properties: dict[str, Schema]) -> Schema:
    """The schema of a tool's answer: every property is always there; more may come."""
    return {"type": "object", "properties": properties, "required": list(properties)}


STRING: Schema = {"type": "string"}
OPTIONAL_STRING: Schema = {"type": ["string", "null"]}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
STRINGS: Schema = {"type": "array", "items": STRING}
OBJECTS: Schema = {"type": "array", "items": OBJECT}

_BRIEF = {
    "address": STRING,
    "uri": STRING,
    "scope": STRING,
    "id": STRING,
    "kind": STRING,
    "tags": STRINGS,
    "heading": STRING,
    "updated_at": OPTIONAL_STRING,
    "preview": STRING,
    "truncated": BOOLEAN,
    "length": INTEGER,
    "tokens": INTEGER,
}
BRIEFS: Schema = {"type": "array", "items": gives(_BRIEF)}
HITS: Schema = {"type": "array", "items": gives({**_BRIEF, "score": NUMBER})}
WRITTEN: dict[str, Schema] = {
    "address": STRING,
    "uri": STRING,
    "scope": STRING,
    "id": STRING,
    "path": STRING,
    "redacted": STRINGS,
    "conflict": OPTIONAL_STRING,
}
