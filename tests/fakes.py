"""Doubles that stand where a contract is: no mocks, no patching.

``ScriptedMemory`` is what the command line may be given in place of ``Memory.open``. Only for what
the real engine cannot be brought to do at will: faults, interrupts, conflicts, slow work. It keeps
each call, and answers it from its script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ScriptedMemory:
    """``script`` maps a method to its answer: a value, an exception to raise, or a function."""

    root = "/memory"

    def __init__(self, **script: object) -> None:
        self.script = script
        self.calls: list[tuple[str, tuple[object, ...], dict[str, Any]]] = []
        self.closed = False

    def open(self, root: str | None, **how: object) -> ScriptedMemory:
        """In place of ``Memory.open``."""
        self.calls.append(("open", (root,), how))
        return self

    def __enter__(self) -> ScriptedMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name not in self.script:
            raise AttributeError(name)
        answer = self.script[name]

        def method(*words: object, **how: object) -> object:
            self.calls.append((name, words, how))
            if isinstance(answer, BaseException):
                raise answer
            return answer(*words, **how) if callable(answer) else answer

        return method

    def call(self, name: str) -> tuple[tuple[object, ...], dict[str, Any]]:
        """Words and keywords of the only call of ``name``."""
        found = [(words, how) for called, words, how in self.calls if called == name]
        assert len(found) == 1, found
        return found[0]
