"""A folder that the historical engine wrote is read completely, and nothing in it is changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from folder import opened

from h2ams import Access
from h2ams.active.registry import Registry
from h2ams.files import Root
from h2ams.memory.scope import parse_scope

LEGACY = Path(__file__).resolve().parents[1] / "data/legacy"
EXPECTED = json.loads((LEGACY / "expected.json").read_text(encoding="utf-8"))["segments"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    shutil.copytree(LEGACY, folder)
    (folder / "expected.json").unlink()
    return folder


def everything(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".h2ams" not in path.parts
    }


def test_every_segment_is_there_with_all_its_values(root: Path) -> None:
    before = everything(root)
    with opened(root) as memory:
        found = {(record.scope, record.id): record for record in memory.list()}
        for each in EXPECTED:
            record = found.pop((each["scope"], each["id"]))
            assert record.body == each["body"]
            assert record.kind == each["kind"]
            assert list(record.tags) == each["tags"]
            assert list(record.source_messages) == each["source_messages"]
        assert list(found) == [("sessions/s_demo/feature/sso", "content_060b1c378cf0")]
        for each in EXPECTED:
            for message in each["source_messages"]:
                assert each["id"] in {record.id for record in memory.sources(message)}
        assert memory.verify().ok
        assert memory.sync().changed == 0
    assert everything(root) == before


def test_what_must_never_reach_a_prompt_does_not(root: Path) -> None:
    access = Access(session="s_demo", vp="linus")
    with opened(root) as memory:
        texts = [
            memory.context(query, access=who, budget=6_000).text
            for query in ("persona stub GRACE-ONLY-7431", "dream state lastDreamAt", "must not")
            for who in (access, None)
        ]
        assert not any("Persona stub" in text or "lastDreamAt" in text for text in texts)
        assert not any("must not be read" in text for text in texts)
        assert not any("GRACE-ONLY" in text for text in texts[::2])


def test_summaries_content_and_redirects_are_followed(root: Path) -> None:
    access = Access(session="s_demo", vp="linus")
    with opened(root) as memory:
        english = memory.context("single sign-on", access=access, budget=2_000).text
        chinese = memory.context("single sign-on", access=access, budget=2_000, language="zh").text
        assert "Single sign-on with OIDC" in english and "单点登录采用" not in english
        assert "单点登录采用" in chinese
        assert "The SSO feature ships behind a flag" in english
        (record,) = memory.list("sessions/s_demo/topic/login")
        assert record.address == "sessions/s_demo/topic/auth/refresh#seg_88f3d811"
        assert memory.get("group/g_old#seg_951b85e2").scope == "sessions/g_old"
        assert memory.get("session/m_one#seg_0b5d33ee").scope == "sessions/m_one"


def test_the_active_set_is_hydrated_and_the_old_file_stays(root: Path) -> None:
    access = Access(session="s_demo", vp="linus")
    old = (root / "sessions/s_demo/ams.json").read_bytes()
    with opened(root) as memory:
        block = memory.context("nothing of this matches zzqqxx", access=access, budget=2_000)
        shown = [item.address for item in block.receipt.layers["on_demand"].items]
        assert shown == ["sessions/s_demo/vp/linus#seg_695dbceb"]
        memory.context("linter", access=access, budget=2_000, commit=True)
        state = Registry(Root(root)).load("s_demo", "linus")
        assert state.adjust_ran
        assert "seg_gone0000" not in str(state)
        assert memory.store.dream_state(parse_scope("sessions/s_demo")) is not None
    assert (root / "sessions/s_demo/ams.json").read_bytes() == old
