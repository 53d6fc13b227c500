"""The memory tool as classes of Anthropic's SDK, for its tool runner (sync and async).

Imported only where the SDK is installed: ``h2ams.anthropic`` asks for it by name. Commands block,
so the async tool runs each in a worker thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anyio.to_thread import run_sync

from h2ams.surfaces.anthropic_tool import MemoryCommands, Outcome

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

    from h2ams.engine import Memory
    from h2ams.memory.access import Access
    from h2ams.surfaces.anthropic_strings import Style


def _text(outcome: Outcome) -> str:
    """The text of a tool result; errors are raised as the tool runner wants them."""
    if outcome.is_error:
        raise ToolError(outcome.text)
    return outcome.text


class MemoryTool(BetaAbstractMemoryTool):
    """``memory_20250818`` on an open memory, for ``client.beta.messages.tool_runner``."""

    def __init__(
        self,
        memory: Memory,
        *,
        access: Access | None = None,
        scope: str = "",
        style: Style = "docs",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._commands = MemoryCommands(memory, access=access, scope=scope, style=style)

    def call(self, input: object) -> str:
        """Run one command as the model gave it."""
        return _text(self._commands.run(_as_mapping(input)))

    def execute(self, command: BetaMemoryTool20250818Command) -> str:
        return self.call(command.to_dict())

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return self.execute(command)

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return self.execute(command)

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return self.execute(command)

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return self.execute(command)

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return self.execute(command)

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return self.execute(command)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """``MemoryTool`` for ``AsyncAnthropic``."""

    def __init__(
        self,
        memory: Memory,
        *,
        access: Access | None = None,
        scope: str = "",
        style: Style = "docs",
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._commands = MemoryCommands(memory, access=access, scope=scope, style=style)

    async def call(self, input: object) -> str:
        """Run one command as the model gave it."""
        return _text(await run_sync(self._commands.run, _as_mapping(input)))

    async def execute(self, command: BetaMemoryTool20250818Command) -> str:
        return await self.call(command.to_dict())

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return await self.execute(command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return await self.execute(command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return await self.execute(command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return await self.execute(command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return await self.execute(command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return await self.execute(command)


def _as_mapping(input: object) -> dict[str, Any]:
    return dict(input) if isinstance(input, dict) else {}
