"""h2ams: a local-first, file-backed memory engine for desktop agents.

Names are loaded when they are first used, so that a process pays only for the parts it needs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from h2ams.active.block import MemoryBlock, Receipt
    from h2ams.engine import Memory
    from h2ams.errors import (
        AccessError,
        ConfigError,
        ConflictError,
        H2amsError,
        IndexFaultError,
        LimitError,
        LockTimeoutError,
        ModelError,
        NotFoundError,
        ReadOnlyError,
        RootError,
        ScopeError,
        StoreError,
        UnsafePathError,
        UsageError,
    )
    from h2ams.index.sync import SyncReport
    from h2ams.index.verify import Verification
    from h2ams.memory.access import Access
    from h2ams.memory.record import Degraded, Hit, Recall, Record
    from h2ams.memory.store import WriteResult
    from h2ams.memory.values import Problem
    from h2ams.settings import KINDS, Settings
    from h2ams.upkeep.doctor import DoctorReport
    from h2ams.upkeep.status import Status

__version__ = "0.1.0"

__all__ = [
    "KINDS",
    "Access",
    "AccessError",
    "ConfigError",
    "ConflictError",
    "Degraded",
    "DoctorReport",
    "H2amsError",
    "Hit",
    "IndexFaultError",
    "LimitError",
    "LockTimeoutError",
    "Memory",
    "MemoryBlock",
    "ModelError",
    "NotFoundError",
    "Problem",
    "ReadOnlyError",
    "Recall",
    "Receipt",
    "Record",
    "RootError",
    "ScopeError",
    "Settings",
    "Status",
    "StoreError",
    "SyncReport",
    "UnsafePathError",
    "UsageError",
    "Verification",
    "WriteResult",
]

_MODULES = {
    "h2ams.active.block": ("MemoryBlock", "Receipt"),
    "h2ams.engine": ("Memory",),
    "h2ams.index.sync": ("SyncReport",),
    "h2ams.index.verify": ("Verification",),
    "h2ams.memory.access": ("Access",),
    "h2ams.memory.record": ("Degraded", "Hit", "Recall", "Record"),
    "h2ams.memory.store": ("WriteResult",),
    "h2ams.memory.values": ("Problem",),
    "h2ams.settings": ("KINDS", "Settings"),
    "h2ams.upkeep.doctor": ("DoctorReport",),
    "h2ams.upkeep.status": ("Status",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOME.get(name, "h2ams.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
