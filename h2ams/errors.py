"""The exception tree (Pure). Everything the engine raises on purpose is an ``H2amsError``.

    H2amsError                  message says what and where; ``hint`` says what to do
    |-- UsageError              the call itself is wrong (exit code 2)
    |   |-- ScopeError          a scope, id or address outside the grammar
    |   `-- ConfigError         a setting, flag or configuration file that cannot be used
    |-- NotFoundError           the address, scope or file is not there (for this access)
    |-- AccessError             outside of what this access may write or run
    |-- StoreError              the files
    |   |-- RootError           the memory folder is missing, unreadable or not a folder
    |   |-- UnsafePathError     a path or link that would leave the root
    |   |-- ConflictError       a precondition failed, or the same segment changed meanwhile
    |   |-- LockTimeoutError    another process holds the lock; names the lock and its holder
    |   |-- LimitError          a named limit with the limit and the size that would be
    |   |   `-- QuotaExceeded   a workflow's store and change log would be over their quota
    |   |-- DamagedError        a record of its own that cannot be read and is left alone
    |   `-- ReadOnlyError       the engine may read but not rewrite this file or segment
    |-- IndexFaultError         the derived database cannot be used (never lost memory)
    |-- ModelError              a language model gave no usable answer; ``failure`` says how
    `-- ContextOverflow         what must be in a prompt is larger than its window

Errors carry fields; nothing in the project matches on message text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


class H2amsError(Exception):
    """Base of all errors of the engine. ``str(error)`` is one line, without the hint."""

    def __init__(self, message: str, *, hint: str | None = None, path: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.path = path


class UsageError(H2amsError):
    """The call itself is wrong: nothing was read or changed."""


class ScopeError(UsageError):
    """A scope, id or address that the grammar refuses."""


class ConfigError(UsageError):
    """A setting, flag or configuration file that cannot be used."""


class NotFoundError(H2amsError):
    """There is no such address, scope or file for this access."""


class AccessError(H2amsError):
    """The access given does not allow this operation."""


class StoreError(H2amsError):
    """Reading or writing the Markdown files failed."""


class RootError(StoreError):
    """The memory folder is missing, unreadable or not a folder."""


class UnsafePathError(StoreError):
    """A path or a link that would leave the root; it was not followed."""


class ConflictError(StoreError):
    """A precondition failed: the text is no longer what the caller saw. Nothing was written."""

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        path: str | None = None,
        expected: str | None = None,
        actual: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint, path=path)
        self.expected = expected
        self.actual = actual


class LockTimeoutError(StoreError):
    """A lock was not free in time. ``holder`` is what the lock file says: pid and host."""

    def __init__(self, message: str, *, path: str, holder: str | None = None) -> None:
        super().__init__(
            message, path=path, hint="wait for the other process or raise lock_timeout_ms"
        )
        self.holder = holder


class LimitError(StoreError):
    """A named limit was exceeded. ``limit`` and ``size`` share the unit in the limit's name."""

    def __init__(
        self,
        message: str,
        *,
        name: str,
        limit: int,
        size: int,
        current: int | None = None,
        path: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=f"raise the setting {name} or write less")
        self.name = name
        self.limit = limit
        self.size = size
        self.current = current


class QuotaExceeded(LimitError):
    """A projection would bring store and change log of a workflow over their quota (bytes)."""

    def __init__(self, *, needed: int, limit: int) -> None:
        super().__init__(
            f"the workflow would take {needed:,} bytes, its quota is {limit:,}",
            name="stack_quota_bytes",
            limit=limit,
            size=needed,
        )
        self.hint = "compress the stacks, or make a checkpoint to empty the change log"

    @property
    def needed(self) -> int:
        """Bytes that the projection would have needed."""
        return self.size


class DamagedError(StoreError):
    """A record that nothing else holds (a workflow, a cold copy) cannot be read. It stays as it is:
    only a person, or a backup, can mend it."""


class ReadOnlyError(StoreError):
    """The engine may read but not rewrite this file or segment (bad bytes, repeated keys)."""


class IndexFaultError(H2amsError):
    """The derived database cannot be opened or built here. Memory itself is untouched.

    ``reason`` is what the disk or the database said, where one of them did.
    """

    def __init__(
        self, message: str, *, hint: str | None = None, path: str | None = None, reason: str = ""
    ) -> None:
        super().__init__(message, hint=hint, path=path)
        self.reason = reason


Failure = Literal[
    "unavailable",  # no connection, 5xx, the command is missing
    "rate-limited",
    "timeout",
    "refused",  # 4xx: the same request would fail again
    "bad-reply",  # not the protocol: HTML, a cut stream, no JSON
    "empty",  # no visible text: nothing, blanks, or reasoning only
    "truncated-input",  # the server read much less than was sent
]


class ModelError(H2amsError):
    """No usable answer. ``retryable`` says whether the same call may succeed later."""

    def __init__(self, failure: Failure, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.failure = failure

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.failure not in ("refused", "truncated-input")


class ContextOverflow(H2amsError):
    """What may not be left out of a prompt exceeds what its window leaves.

    ``needed`` and ``limit`` in tokens; ``parts`` says what each mandatory part costs.
    """

    def __init__(self, needed: int, limit: int, parts: Mapping[str, int]) -> None:
        said = ", ".join(f"{name} {tokens}" for name, tokens in parts.items())
        super().__init__(
            f"the prompt needs {needed} tokens, the window leaves {limit}: {said}",
            hint="use a larger window or a smaller reserve, fewer tools, or a shorter message",
        )
        self.needed = needed
        self.limit = limit
        self.parts = dict(parts)
