"""What the Python API on the documentation site consists of: its pages and the names on them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple


class ApiPage(NamedTuple):
    """One page of the Python API: where, its title, the page that explains it, what is on it.

    ``names`` are full names; one that ends with ``.*`` stands for that module's ``__all__``.
    """

    place: str
    title: str
    see: str
    names: tuple[str, ...]


PAGES = (
    ApiPage("api/h2ams.md", "h2ams", "../python.md", ("h2ams.*",)),
    ApiPage(
        "api/scopes.md",
        "Whole scopes, files, import",
        "../python.md",
        (
            "h2ams.upkeep.scopes.Scopes", "h2ams.upkeep.scopes.ScopeInfo",
            "h2ams.memory.tree.FileTree", "h2ams.memory.tree.Node",
            "h2ams.memory.intake.Incoming", "h2ams.memory.intake.Taken",
            "h2ams.memory.intake.Unfit", "h2ams.upkeep.audit.AuditReport",
        ),
    ),
    ApiPage(
        "api/dream.md",
        "Dream and work items",
        "../dream.md",
        (
            "h2ams.upkeep.dreams.Dreams", "h2ams.upkeep.dreams.DreamRun",
            "h2ams.upkeep.dreams.DreamStatus", "h2ams.upkeep.dreams.ThreadStatus",
            "h2ams.active.reuse.WorkItem", "h2ams.active.reuse.Excerpt",
            "h2ams.active.reuse.Candidate", "h2ams.active.reuse.Reuse",
        ),
    ),
    ApiPage(
        "api/stacks.md",
        "h2ams.stacks",
        "../stacks.md",
        (
            "h2ams.stacks.workflow.Workflow", "h2ams.stacks.workflow.Preparation",
            "h2ams.stacks.exchange.Round", "h2ams.stacks.exchange.Exchange",
            "h2ams.stacks.exchange.Stack", "h2ams.stacks.exchange.Summary",
            "h2ams.stacks.compress.Compressor", "h2ams.stacks.compress.CompressRequest",
            "h2ams.stacks.compress.CompressResult", "h2ams.stacks.compress.Compressed",
            "h2ams.stacks.compress.Refused", "h2ams.stacks.compress.TransportFailed",
            "h2ams.stacks.compress.Outcome", "h2ams.stacks.transports.CallableCompressor",
            "h2ams.stacks.transports.ExtractiveCompressor",
            "h2ams.stacks.transports.HttpCompressor", "h2ams.stacks.scenes.Archive",
            "h2ams.stacks.quota.Footprint", "h2ams.stacks.workflow_store.WorkflowStore",
            "h2ams.stacks.sqlite_store.SqliteWorkflowStore",
            "h2ams.stacks.postgres_store.PostgresWorkflowStore", "h2ams.stacks.cold.ColdCopies",
        ),
    ),
    ApiPage(
        "api/threads.md",
        "h2ams.threads",
        "../threads.md",
        (
            "h2ams.threads.context_engine.ContextEngine", "h2ams.threads.context_engine.Thread",
            "h2ams.threads.context_engine.Turn", "h2ams.threads.prompt.Context",
            "h2ams.threads.prompt.ContextReceipt", "h2ams.threads.prompt.Part",
            "h2ams.threads.prompt.Limits", "h2ams.threads.compaction.Compaction",
            "h2ams.threads.flush.Flush", "h2ams.threads.flush.FlushRequest",
            "h2ams.threads.flush.FlushMessage", "h2ams.threads.flush.FlushReport",
            "h2ams.threads.thread_store.ThreadStore", "h2ams.threads.thread_store.ThreadInfo",
            "h2ams.threads.thread_store.Found", "h2ams.threads.thread_sqlite.SqliteThreadStore",
            "h2ams.threads.thread_postgres.PostgresThreadStore", "h2ams.text.fences.scrub",
            "h2ams.text.fences.StreamScrubber",
        ),
    ),
    ApiPage(
        "api/models.md",
        "h2ams.models",
        "../settings.md",
        (
            "h2ams.models.request.Model", "h2ams.models.request.Request",
            "h2ams.models.request.ModelMessage", "h2ams.models.request.Completion",
            "h2ams.models.request.Usage", "h2ams.models.openai_compatible.OpenAiCompatible",
            "h2ams.models.anthropic.Anthropic", "h2ams.models.command.CommandModel",
            "h2ams.models.function.FunctionModel", "h2ams.models.extractive.Extractive",
        ),
    ),
    ApiPage("api/anthropic.md", "h2ams.anthropic", "../anthropic.md", ("h2ams.anthropic.*",)),
)  # fmt: skip


def text_of(root: Path, page: ApiPage) -> str:
    """The source of a page of the Python API; docstrings are put in when the site is built."""
    parts = [
        f"# {page.title}",
        f"From the docstrings. How to use it: [{Path(page.see).name}]({page.see}).",
    ]
    return "\n\n".join([*parts, *(f"::: {name}" for name in names_of(root, page))]) + "\n"


def names_of(root: Path, page: ApiPage) -> list[str]:
    """The full names of what is on ``page``."""
    found: list[str] = []
    for name in page.names:
        module = name.removesuffix(".*")
        found += (
            [f"{module}.{each}" for each in exported(root, module)] if module != name else [name]
        )
    return found


def exported(root: Path, module: str) -> list[str]:
    """``__all__`` of ``module``, read without importing it."""
    path = root.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{source}: no __all__")


def anchors(root: Path) -> list[str]:
    """Anchors that the built site must have: each object of the Python API on its page."""
    return [
        f"{page.place.removesuffix('.md')}.html#{name}"
        for page in PAGES
        for name in names_of(root, page)
    ]
