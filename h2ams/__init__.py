"""h2ams: a local-first, file-backed memory engine for desktop agents."""

from __future__ import annotations

from h2ams.engine import Memory
from h2ams.errors import (
    AccessError,
    ConfigError,
    ConflictError,
    H2amsError,
    IndexFaultError,
    LimitError,
    LockTimeoutError,
    NotFoundError,
    ReadOnlyError,
    RootError,
    ScopeError,
    StoreError,
    UnsafePathError,
    UsageError,
)
from h2ams.memory.access import Access
from h2ams.memory.record import Degraded, Hit, Recall, Record
from h2ams.settings import KINDS, Settings

__version__ = "0.1.0"

__all__ = [
    "KINDS",
    "Access",
    "AccessError",
    "ConfigError",
    "ConflictError",
    "Degraded",
    "H2amsError",
    "Hit",
    "IndexFaultError",
    "LimitError",
    "LockTimeoutError",
    "Memory",
    "NotFoundError",
    "ReadOnlyError",
    "Recall",
    "Record",
    "RootError",
    "ScopeError",
    "Settings",
    "StoreError",
    "UnsafePathError",
    "UsageError",
]
