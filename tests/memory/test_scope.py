"""The grammar of scopes, ids and addresses."""

from __future__ import annotations

import copy
import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import ScopeError
from h2ams.memory.scope import (
    MAX_ID_CHARS,
    Scope,
    check_id,
    fold,
    parse_address,
    parse_scope,
    session_scope,
    vp_scope,
)

IDS = st.one_of(
    st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,10}[a-z0-9]", fullmatch=True).filter(
        lambda text: ".." not in text and not _is_device(text)
    ),
    st.sampled_from(["żółć", "会话.一", "пример", "ห้อง", "नमस्ते", "a", "9", "v1.2"]),
)


def _is_device(text: str) -> bool:
    stem = text.split(".")[0]
    return stem in {"con", "prn", "aux", "nul"} or (stem[:3] in {"com", "lpt"} and len(stem) == 4)


@st.composite
def scope_texts(draw: st.DrawFn) -> str:
    shape = draw(
        st.sampled_from(
            [
                "user",
                "global",
                "vp/{}",
                "agent/{}",
                "feature/{}",
                "topic/{}",
                "topic/{}/{}",
                "chat/{}",
                "chat/{}/vp/{}",
                "sessions/{}",
                "sessions/{}/user",
                "sessions/{}/vp/{}",
                "sessions/{}/feature/{}",
                "sessions/{}/topic/{}",
                "sessions/{}/topic/{}/{}",
            ]
        )
    )
    return shape.format(*(draw(IDS) for _ in range(shape.count("{}"))))


@given(scope_texts())
def test_every_form_of_the_grammar_parses_to_itself_in_nfc(text: str) -> None:
    scope = parse_scope(text)
    assert str(scope) == scope.text == unicodedata.normalize("NFC", text)
    assert parse_scope(scope.text) == scope
    assert scope.family == text.split("/")[0]


@given(scope_texts())
def test_k18_both_unicode_forms_of_a_name_are_one_scope(text: str) -> None:
    assert parse_scope(unicodedata.normalize("NFD", text)) == parse_scope(text)


@given(scope_texts(), st.sampled_from(["group", "session"]))
def test_historical_names_of_a_session_are_read_as_sessions(text: str, old: str) -> None:
    if text.startswith("sessions/"):
        assert parse_scope(text.replace("sessions", old, 1)) == parse_scope(text)


@given(st.text(max_size=30))
def test_any_text_is_a_scope_or_a_scope_error(text: str) -> None:
    try:
        scope = parse_scope(text)
    except ScopeError as refused:
        message = refused.message
    else:
        message = ""
        assert parse_scope(scope.text).text == scope.text
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user", {"member": "", "is_private": True}),
        ("global", {"is_private": False}),
        ("vp/ada", {"vp": "ada", "is_private": True}),
        ("agent/a1", {"agent": "a1", "is_private": False}),
        ("topic/auth/refresh", {"topic": ("auth", "refresh"), "session": None}),
        ("chat/c1/vp/ada", {"chat": "c1", "vp": "ada", "member": "vp", "is_private": True}),
        ("sessions/s1", {"session": "s1", "member": "", "is_private": False, "shared": True}),
        ("sessions/s1/user", {"session": "s1", "member": "user", "is_private": True}),
        ("sessions/s1/vp/ada", {"session": "s1", "vp": "ada", "is_private": True, "shared": False}),
        ("group/g1/feature/sso", {"session": "g1", "feature": "sso", "member": "feature"}),
        ("session/s1/topic/a", {"session": "s1", "topic": ("a",), "member": "topic"}),
    ],
)
def test_a_scope_tells_the_ids_it_names(text: str, expected: dict[str, object]) -> None:
    scope = parse_scope(text)
    assert {name: getattr(scope, name) for name in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        " user",
        "user ",
        "user/",
        "/user",
        "User",
        "SESSIONS/s1",
        "user/a",
        "global/x",
        "sessions",
        "sessions/",
        "sessions//vp/a",
        "sessions/s1/",
        "sessions/s1/vp",
        "sessions/s1/vp/",
        "sessions/s1/VP/a",
        "sessions/s1/user/a",
        "sessions/s1/agent/a",
        "sessions/s1/vp/a/topic/t",
        "chat/c/user",
        "chat/c/topic/t",
        "chat/c/feature/f",
        "vp/a/b",
        "topic",
        "topic/..",
        "topic/a/..",
        "topic/a/b/c",
        "agent",
        "unknown/x",
        "sessions/../user",
        "sessions/%2e%2e",
        "sessions/a%2fb",
        "sessions/a\\b",
        "sessions/a\0b",
        "sessions/a\nb",
        "sessions/a b",
        "sessions/a\u200bb",
        "sessions/a\u202eb",
        "sessions/a\ud800b",
        "sessions/s1\n",
        "C:/sessions/s1",
        "topic/node_modules",
        "sessions/🙂",
    ],
)
def test_text_outside_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(ScopeError) as caught:
        parse_scope(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    "name",
    [
        "CON",
        "nul.md",
        "a:b",
        "a?b",
        "trail.",
        "trail ",
        "COM1",
        "com¹",
        "aux.a.b",
        "LPT9.txt",
        "PrN",
    ],
)
def test_k88_names_that_some_system_cannot_hold_are_refused_on_all(name: str) -> None:
    with pytest.raises(ScopeError):
        parse_scope(f"chat/{name}")


@pytest.mark.parametrize(
    "name", ["console", "con-1", "comet", "com", "com10", "lpt", "nula", "xcon"]
)
def test_names_that_only_resemble_devices_are_ids(name: str) -> None:
    assert check_id(name) == name


@pytest.mark.parametrize("name", [".", "..", ".a", "a.", "a..b", "...", ""])
def test_dots_at_an_end_or_in_a_row_are_refused(name: str) -> None:
    with pytest.raises(ScopeError, match="vp"):
        check_id(name, "vp")


def test_an_id_has_at_most_128_characters_counted_in_nfc() -> None:
    assert check_id("x" * MAX_ID_CHARS)
    assert len(check_id("z\u0307" * MAX_ID_CHARS)) == MAX_ID_CHARS
    with pytest.raises(ScopeError):
        check_id("x" * (MAX_ID_CHARS + 1))


def test_an_error_about_a_very_long_text_stays_one_short_line() -> None:
    with pytest.raises(ScopeError) as caught:
        parse_scope("sessions/" + "x" * 100_000)
    assert len(caught.value.message) < 300


@given(IDS)
def test_k87_spellings_that_differ_by_case_or_form_fold_to_one(name: str) -> None:
    for other in (name.upper(), name.lower(), unicodedata.normalize("NFD", name), name.casefold()):
        assert fold(other) == fold(name)


@given(st.text())
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_k87_josep_and_josep_are_two_scopes_of_one_fold() -> None:
    upper, lower = parse_scope("vp/Josep"), parse_scope("vp/josep")
    assert upper != lower
    assert fold(upper.text) == fold(lower.text)
    assert fold("vp/josefa") != fold("vp/josep")


@pytest.mark.parametrize(
    ("text", "scope", "name"),
    [
        ("user#seg_1", "user", "seg_1"),
        ("group/g1#seg_1~2", "sessions/g1", "seg_1~2"),
        ("sessions/s1/vp/ada#a#b c/ü", "sessions/s1/vp/ada", "a#b c/ü"),
    ],
)
def test_an_address_is_a_scope_and_any_id(text: str, scope: str, name: str) -> None:
    assert parse_address(text) == (parse_scope(scope), name)


@pytest.mark.parametrize(
    "text", ["", "user", "user#", "#seg_1", "nowhere#x", "user#a\nb", "user#a\0"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ScopeError):
        parse_address(text)


def test_scopes_are_values() -> None:
    scope = parse_scope("group/s1")
    assert {scope: 1}[Scope("sessions/s1")] == 1
    assert scope != "sessions/s1"
    assert pickle.loads(pickle.dumps(scope)) == copy.copy(scope) == scope
    assert sorted([parse_scope("vp/b"), parse_scope("user"), parse_scope("vp/a")]) == [
        parse_scope("user"),
        parse_scope("vp/a"),
        parse_scope("vp/b"),
    ]


def test_the_small_constructors_check_their_ids() -> None:
    assert session_scope("s1").text == "sessions/s1"
    assert vp_scope("ada").text == "vp/ada"
    assert vp_scope("ada", session="s1").text == "sessions/s1/vp/ada"
    assert vp_scope("ada", chat="c1").text == "chat/c1/vp/ada"
    for wrong in ("a/vp/b", "..", ""):
        with pytest.raises(ScopeError):
            session_scope(wrong)
