"""Profiles for Hypothesis: ``fast`` by default, ``ci`` and ``long`` by HYPOTHESIS_PROFILE."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from postgres import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]  # fixtures for every test

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=40, **_COMMON)
settings.register_profile("ci", max_examples=150, **_COMMON)
settings.register_profile("long", max_examples=5_000, **_COMMON)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "fast")
)
