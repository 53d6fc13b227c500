"""The Anthropic memory tool on a memory folder, for hosts.

    from h2ams.anthropic import MemoryTool        # needs the extra h2ams[anthropic]
    tool = MemoryTool(memory, access=Access(session="s1"), scope="sessions/s1")
    client.beta.messages.tool_runner(..., tools=[tool])

``MemoryCommands`` needs no SDK: ``MemoryCommands(memory).run({"command": "view", …})`` gives the
text of the tool result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from h2ams.errors import ConfigError
from h2ams.surfaces.anthropic_tool import MemoryCommands, Outcome

if TYPE_CHECKING:
    from h2ams.surfaces.anthropic_sdk import AsyncMemoryTool, MemoryTool

__all__ = ["AsyncMemoryTool", "MemoryCommands", "MemoryTool", "Outcome"]


def __getattr__(name: str) -> object:
    if name not in ("AsyncMemoryTool", "MemoryTool"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from h2ams.surfaces import anthropic_sdk
    except ImportError as error:
        raise ConfigError(
            f"{name} needs the package anthropic: pip install 'h2ams[anthropic]' ({error})",
            hint="pip install 'h2ams[anthropic]'",
        ) from error
    return getattr(anthropic_sdk, name)
