"""Options and words of the command line, before anything runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2ams.errors import UsageError
from h2ams.surfaces.cli import COMMANDS, describe_command, load_command
from h2ams.surfaces.cli_parser import CommandParser, add_global_options


def parse(*words: str) -> object:
    """The namespace that ``h2ams words…`` runs with."""
    parser = CommandParser("h2ams")
    add_global_options(parser)
    before, name, after = parser.split_command(words)
    assert name is not None
    describe_command(parser, name, load_command(name))
    return parser.parse_args(parser.sort_words([*before, *after]).for_argparse())


def test_global_options_parse_before_and_after_the_command_and_add_up() -> None:
    args = parse(
        "--related", "a", "--root", "x", "recall", "q", "--related=b", "--json", "--related", "c"
    )
    assert (args.related, args.root, args.json, args.query) == (["a", "b", "c"], "x", True, ["q"])


EVERYWHERE = [
    ["--json"],
    ["-v"],
    ["--session", "s1"],
    ["--user"],
    ["--user=write"],
    ["--no-user"],
    ["--related", "recall"],
]
OF_RECALL = [
    ["--kind", "fact"],
    ["--kind=goal"],
    ["-n", "3"],
    ["-n3"],
    ["-vn", "3"],
    ["--tag", "-x"],
]
BEFORE = st.lists(st.sampled_from(EVERYWHERE), max_size=6)
AFTER = st.lists(st.sampled_from([*EVERYWHERE, *OF_RECALL]), max_size=6)


@given(before=BEFORE, between=st.lists(st.tuples(st.sampled_from("abc"), AFTER), min_size=1))
def test_options_mean_the_same_wherever_they_stand(
    before: list[list[str]], between: list[tuple[str, list[list[str]]]]
) -> None:
    options = [*before, *(group for _, groups in between for group in groups)]
    words = [word for word, _ in between]
    flat = [word for group in options for word in group]
    mixed = [word for group in before for word in group] + ["recall"]
    for word, groups in between:
        mixed += [word, *(each for group in groups for each in group)]
    args = parse(*mixed)
    assert args == parse("recall", *flat, "--", *words)
    assert args.query == words


def test_a_value_may_begin_with_a_dash() -> None:
    args = parse("edit", "user#a", "--body", "- a list", "--tag", "-", "--source=--x")
    assert (args.body, args.tag, args.source) == ("- a list", ["-"], ["--x"])


def test_two_dashes_can_be_the_value_of_an_option() -> None:
    for words in (["--tag", "--"], ["--tag=--"]):
        assert parse("remember", "user", "text", *words).tag == ["--"]
    assert parse("status", "--session", "--").session == "--"
    for words in (["-n", "--"], ["-n--"], ["--limit=--"], ["--min-score", "--"]):
        with pytest.raises(UsageError, match="'--'"):
            parse("recall", "q", *words)


def test_an_option_is_never_taken_for_the_value_of_another() -> None:
    with pytest.raises(UsageError, match="--body: expected one argument"):
        parse("edit", "user#a", "--body", "--json")
    assert parse("edit", "user#a", "--body=--json").body == "--json"


def test_a_negative_number_is_a_word() -> None:
    args = parse("remember", "user", "-5", "--json")
    assert (args.scope, args.text, args.json) == ("user", "-5", True)


@pytest.mark.parametrize("text", ["--", "-x", "--json", "-", ""])
def test_after_two_dashes_every_word_is_text(text: str) -> None:
    args = parse("remember", "--", "user", text)
    assert (args.scope, args.text, args.json) == ("user", text, False)
    assert parse("recall", "--json", "--", text, "--").query == [text, "--"]


def test_user_alone_reads_and_takes_no_word_for_its_value() -> None:
    assert parse("recall", "--user", "write").user == "read"
    assert parse("--user", "recall", "q").user == "read"
    assert parse("recall", "q", "--user=write").user == "write"
    assert parse("recall", "q", "--no-user").user == "no"
    assert parse("recall", "q").user is None
    with pytest.raises(UsageError):
        parse("recall", "q", "--user=everything")


@pytest.mark.parametrize(
    "words",
    [
        ["recall"],
        ["remember", "user"],
        ["remember", "user", "two", "words"],
        ["recall", "q", "--jso"],
        ["recall", "q", "--sess", "x"],
        ["recall", "q", "-n"],
        ["recall", "q", "-n", "three"],
        ["status", "extra"],
    ],
)
def test_a_wrong_call_is_a_usage_error_with_the_help_to_read(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(*words)
    assert caught.value.hint == f"h2ams {words[0]} --help"


@pytest.mark.parametrize(
    ("word", "meant"),
    [("search", "recall"), ("serch", "recall"), ("lst", "list"), ("rm", "forget")],
)
def test_an_unknown_command_names_the_one_that_was_meant(word: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_command(word)
    assert caught.value.hint == f"did you mean h2ams {meant}?"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_of_it_has_help(name: str) -> None:
    parser = CommandParser("h2ams")
    add_global_options(parser)
    describe_command(parser, name, load_command(name))
    assert COMMANDS[name][1] in (parser.description or "")
    for action in [*parser.options, *parser.positionals]:
        assert action.help, action
