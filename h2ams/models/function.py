"""A function of the host as a model: an SDK that it has already, or a test's script."""

from __future__ import annotations

from collections.abc import Callable

from h2ams.errors import ModelError
from h2ams.models.request import Completion, Request


class FunctionModel:
    """Calls ``function`` with each request; it gives a ``Completion`` or the visible text.

    What the function raises becomes a ``ModelError`` that names only its type: an exception's text
    may repeat the request.
    """

    def __init__(self, function: Callable[[Request], Completion | str], name: str = "function"):
        self._function = function
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"FunctionModel({self._name!r})"

    def complete(self, request: Request) -> Completion:
        """The function's answer; ``ModelError`` (empty) where it has no visible text."""
        try:
            found = self._function(request)
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a host's function does, a turn goes on
            message = f"the model function raised {type(error).__name__}"
            raise ModelError("unavailable", message) from None
        answer = Completion(found) if isinstance(found, str) else found
        if not answer.text.strip() and answer.finish_reason not in ("tool-call", "filtered"):
            raise ModelError("empty", "the model function answered no visible text")
        return answer
