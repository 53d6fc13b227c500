"""Access: the table of who reads and writes what, against a naive reading of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import AccessError, ScopeError, UsageError
from h2ams.memory.access import OTHER, RELATED, SESSION, USER, Access, Gate
from h2ams.memory.scope import Scope, parse_scope

SESSIONS, CHATS, VPS, AGENTS = ("s1", "s2", "s3"), ("c1", "s1"), ("ada", "linus"), ("a1", "a2")
UNIVERSE = [
    parse_scope(text)
    for text in (
        ["user", "global", "feature/f", "topic/t", "topic/t/u", "topic/unfiled"]
        + [f"vp/{vp}" for vp in VPS]
        + [f"agent/{agent}" for agent in AGENTS]
        + [f"chat/{chat}{rest}" for chat in CHATS for rest in ("", "/vp/ada", "/vp/linus")]
        + [
            f"sessions/{session}{rest}"
            for session in (*SESSIONS, "s10")
            for rest in (
                "",
                "/user",
                "/vp/ada",
                "/vp/linus",
                "/feature/f",
                "/topic/t",
                "/topic/t/u",
            )
        ]
    )
]


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    return Access(
        session=draw(st.sampled_from([None, *SESSIONS])),
        vp=draw(st.sampled_from([None, *VPS])),
        chat=draw(st.sampled_from([None, *CHATS])),
        agent=draw(st.sampled_from([None, *AGENTS])),
        user=draw(st.sampled_from([None, True, False, "read", "write"])),
        related_sessions=draw(st.lists(st.sampled_from(SESSIONS), max_size=2)),
        scopes=draw(st.lists(st.sampled_from(UNIVERSE), max_size=2)),
    )


AGENT_RECORDS = st.dictionaries(
    st.sampled_from(SESSIONS), st.sampled_from([None, "one", "two"]), max_size=3
)


def naive_read(access: Access, scope: Scope, agents: Mapping[str, str | None]) -> bool:
    """The table, cell by cell and slowly."""
    text, vp = scope.text, access.vp
    inside = access.session is not None or access.chat is not None
    is_user = text == "user" or text.endswith("/user")
    if is_user and access.user is False:
        return False
    if scope.vp is not None and scope.vp != vp:
        return False
    if text == "user" and (inside or access.user in (True, "read", "write")):
        return True
    if text == "global" and inside:
        return True
    if access.session is not None and scope.session == access.session:
        return True
    if access.chat is not None and scope.chat == access.chat:
        return True
    if vp is not None and text == f"vp/{vp}":
        return True
    if access.agent is not None and text == f"agent/{access.agent}":
        return True
    if scope.session in access.related_sessions and not scope.is_private:
        own = agents.get(access.session) if access.session else None
        if agents.get(scope.session or "") == own:
            return True
    return text in access.scopes and scope.family != "agent"


def naive_write(access: Access, scope: Scope) -> bool:
    if access.agent is not None:
        return scope.text == f"agent/{access.agent}"
    if scope.vp is not None and scope.vp != access.vp:
        return False
    if scope.text == "user":
        return access.user == "write"
    if access.session is not None and scope.session == access.session:
        return not (scope.member == "user" and access.user is False)
    return access.chat is not None and scope.chat == access.chat


@given(accesses(), AGENT_RECORDS)
def test_reading_is_exactly_the_table(access: Access, agents: dict[str, str | None]) -> None:
    gate = Gate(access, agents)
    for scope in UNIVERSE:
        assert gate.may_read(scope) == naive_read(access, scope, agents), (access, scope)


@given(accesses(), AGENT_RECORDS)
def test_writing_is_exactly_the_table(access: Access, agents: dict[str, str | None]) -> None:
    gate = Gate(access, agents)
    for scope in UNIVERSE:
        assert gate.may_write(scope) == naive_write(access, scope), (access, scope)


@given(accesses(), AGENT_RECORDS)
def test_nothing_can_be_written_that_cannot_be_read(
    access: Access, agents: dict[str, str | None]
) -> None:
    gate = Gate(access, agents)
    assert all(gate.may_read(scope) for scope in UNIVERSE if gate.may_write(scope))


@given(accesses(), AGENT_RECORDS)
def test_another_vps_private_path_is_never_readable(
    access: Access, agents: dict[str, str | None]
) -> None:
    gate = Gate(access, agents)
    foreign = [scope for scope in UNIVERSE if scope.vp is not None and scope.vp != access.vp]
    assert not any(gate.may_read(scope) or gate.may_write(scope) for scope in foreign)


@given(accesses(), AGENT_RECORDS)
def test_a_related_session_gives_only_shared_scopes_and_its_label(
    access: Access, agents: dict[str, str | None]
) -> None:
    gate = Gate(access, agents)
    for scope in UNIVERSE:
        source = gate.source_session(scope)
        if source is not None:
            assert source == scope.session != access.session
            assert source in access.related_sessions
            assert not scope.is_private or scope.text in access.scopes
        elif gate.may_read(scope) and scope.session not in (None, access.session):
            assert scope.text in access.scopes


@given(accesses(), AGENT_RECORDS)
def test_names_and_prefixes_for_sql_select_what_may_be_read(
    access: Access, agents: dict[str, str | None]
) -> None:
    gate = Gate(access, agents)
    names = {scope.text for scope in gate.own_scopes()}
    for scope in UNIVERSE:
        selected = scope.text in names or scope.text.startswith(gate.families())
        assert selected == gate.may_read(scope)


@given(accesses(), AGENT_RECORDS)
def test_what_is_readable_has_a_rank_and_own_scopes_come_closest_first(
    access: Access, agents: dict[str, str | None]
) -> None:
    gate = Gate(access, agents)
    ranks = [gate.closeness(scope) for scope in gate.own_scopes()]
    assert ranks == sorted(ranks)
    assert all(SESSION <= gate.closeness(scope) <= OTHER for scope in UNIVERSE)


def test_an_access_with_nothing_in_it_sees_nothing() -> None:
    gate = Gate(Access())
    assert not gate.is_owner
    assert not any(gate.may_read(scope) or gate.may_write(scope) for scope in UNIVERSE)
    assert (gate.own_scopes(), gate.families()) == ((), ())


def test_the_owner_sees_and_writes_everything() -> None:
    gate = Gate(None)
    assert gate.is_owner
    assert all(gate.may_read(scope) and gate.may_write(scope) for scope in UNIVERSE)
    assert gate.families() == ("",)
    assert all(gate.source_session(scope) is None for scope in UNIVERSE)


def test_one_order_of_closeness_everywhere() -> None:
    access = Access(
        session="s1", vp="ada", chat="c1", related_sessions=["s2"], scopes=["topic/t", "feature/f"]
    )
    order = [
        "sessions/s1",
        "sessions/s1/vp/ada",
        "sessions/s1/user",
        "sessions/s1/topic/t",
        "chat/c1",
        "vp/ada",
        "user",
        "global",
        "sessions/s2",
        "topic/t",
    ]
    gate = Gate(access)
    assert [gate.closeness(parse_scope(text)) for text in order] == list(range(10))
    assert gate.closeness(parse_scope("sessions/s2/topic/t")) == RELATED


def test_weak_words_are_gated_in_broad_scopes_only() -> None:
    gate = Gate(Access(session="s1", vp="ada", related_sessions=["s2"], scopes=["topic/t"]))
    broad = [scope.text for scope in UNIVERSE if gate.may_read(scope) and gate.broad(scope)]
    assert broad == [
        "user",
        "global",
        "topic/t",
        "sessions/s2",
        "sessions/s2/feature/f",
        "sessions/s2/topic/t",
        "sessions/s2/topic/t/u",
    ]
    owner = Gate(None)
    assert [scope.text for scope in UNIVERSE if owner.broad(scope)] == ["user", "global"]


def test_related_sessions_count_only_on_the_same_agent() -> None:
    access = Access(session="s1", related_sessions=["s2", "s3"])
    second, third = parse_scope("sessions/s2"), parse_scope("sessions/s3")
    same = Gate(access, {"s1": "one", "s2": "one", "s3": "two"})
    assert (same.may_read(second), same.may_read(third)) == (True, False)
    none_recorded = Gate(access, {"s3": "two"})
    assert (none_recorded.may_read(second), none_recorded.may_read(third)) == (True, False)


def test_k14_one_sessions_access_never_reaches_a_session_of_a_longer_name() -> None:
    gate = Gate(Access(session="s1"))
    for rest in ("", "/topic/t", "/feature/f", "/user"):
        assert not gate.may_read(parse_scope(f"sessions/s10{rest}"))
        assert not gate.may_write(parse_scope(f"sessions/s10{rest}"))


def test_user_write_opens_the_user_scope_and_nothing_else() -> None:
    reader, writer = (Gate(Access(session="s1", user=user)) for user in ("read", "write"))
    differing = [scope for scope in UNIVERSE if reader.may_write(scope) != writer.may_write(scope)]
    assert differing == [parse_scope("user")]
    assert reader.closeness(parse_scope("user")) == USER


def test_a_child_agent_reads_as_its_parent_and_writes_only_its_own_scope() -> None:
    parent = Gate(Access(session="s1", vp="ada"))
    child = Gate(Access(session="s1", vp="ada", agent="a1", user="write"))
    own = parse_scope("agent/a1")
    assert [scope for scope in UNIVERSE if child.may_write(scope)] == [own]
    readable = [scope for scope in UNIVERSE if parent.may_read(scope)]
    assert [scope for scope in UNIVERSE if child.may_read(scope) and scope != own] == readable


def test_a_refused_write_says_the_same_whatever_is_there() -> None:
    gate = Gate(Access(session="s1", vp="ada"))
    gate.check_write(parse_scope("sessions/s1/vp/ada"))
    with pytest.raises(AccessError, match="may not write to sessions/s1/vp/linus") as caught:
        gate.check_write(parse_scope("sessions/s1/vp/linus"))
    assert caught.value.hint


def test_an_access_is_a_checked_value_in_canonical_form() -> None:
    access = Access(
        session="z\u0307", related_sessions=iter(["s2", "s2"]), scopes=["group/g1/topic/t"]
    )
    assert access == Access(session="ż", related_sessions=("s2",), scopes=("sessions/g1/topic/t",))
    assert access.session == "ż"
    assert hash(access) == hash(Access(session="ż", related_sessions=["s2"], scopes=access.scopes))


def test_a_changed_copy_of_an_access_is_checked_again() -> None:
    access = Access(session="s1", scopes=["group/g1"])
    assert replace(access, session="s2") == Access(session="s2", scopes=["sessions/g1"])
    with pytest.raises(ScopeError):
        replace(access, session="../s2")


@pytest.mark.parametrize(
    "wrong",
    [
        {"session": "../s1"},
        {"vp": ""},
        {"chat": "a/b"},
        {"agent": "CON"},
        {"related_sessions": ["ok", "no/path"]},
        {"scopes": ["sessions/../user"]},
    ],
)
def test_ids_outside_of_the_grammar_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ScopeError):
        Access(**wrong)  # type: ignore[arg-type]  # wrong values on purpose


def test_one_text_where_a_list_belongs_is_refused() -> None:
    with pytest.raises(UsageError):
        Access(related_sessions="s1")
    with pytest.raises(UsageError):
        Access(scopes="topic/t")
    with pytest.raises(UsageError):
        Access(user="yes")  # type: ignore[arg-type]  # a wrong value on purpose
