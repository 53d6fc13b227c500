"""The model that the environment names, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.server import ModelServer, good

from h2ams import Memory, Settings
from h2ams.config import open_model
from h2ams.errors import ConfigError
from h2ams.models.anthropic import Anthropic
from h2ams.models.command import CommandModel
from h2ams.models.openai_compatible import OpenAiCompatible
from h2ams.models.request import ModelMessage, Request
from h2ams.settings import DEFAULTS

KEY = "sk-KEY-0123456789"


@pytest.mark.parametrize("value", [None, "", " ", "rules"])
def test_without_a_name_there_is_no_model(value: str | None) -> None:
    environ = {} if value is None else {"H2AMS_MODEL": value}
    assert open_model(DEFAULTS, environ=environ) is None


@pytest.mark.parametrize(
    ("value", "kind", "name"),
    [
        ("openai:qwen", OpenAiCompatible, "openai-compatible:qwen"),
        ("openai:org/model:free", OpenAiCompatible, "openai-compatible:org/model:free"),
        ("anthropic:c", Anthropic, "anthropic:c"),
        ("command:/usr/bin/llm 'two words'", CommandModel, "command:llm"),
    ],
)
def test_the_kinds_of_models(value: str, kind: type, name: str) -> None:
    made = open_model(DEFAULTS, environ={"H2AMS_MODEL": value, "H2AMS_MODEL_KEY": KEY})
    assert isinstance(made, kind) and made.name == name
    assert KEY not in repr(made)


@pytest.mark.parametrize("value", ["gpt", "openai:", "openai", "magic:x", "command:'", "command: "])
def test_a_name_that_is_none_is_a_usage_error_without_the_key(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model(DEFAULTS, environ={"H2AMS_MODEL": value, "H2AMS_MODEL_KEY": KEY})
    assert KEY not in str(caught.value) + str(caught.value.hint)


def test_address_key_and_patience_are_used() -> None:
    with ModelServer([good("hello")]) as server:
        environ = {
            "H2AMS_MODEL": "openai:m",
            "H2AMS_MODEL_URL": f"{server.url}/v1",
            "H2AMS_MODEL_KEY": KEY,
        }
        made = open_model(Settings(model_timeout_ms=5_000), environ=environ)
        assert made is not None
        assert made.complete(Request("t", (ModelMessage("user", "x"),))).text == "hello"
        assert server.requests[0][1]["Authorization"] == f"Bearer {KEY}"


def test_a_folder_cannot_bring_a_model_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("H2AMS_MODEL", raising=False)
    (tmp_path / ".h2ams").mkdir()
    (tmp_path / ".h2ams/config.toml").write_text('model = "command:touch /tmp/x"\n')
    with pytest.raises(ConfigError):
        Memory.open(tmp_path)
