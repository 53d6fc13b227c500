"""Analysis of text: the cases people reported, and what must hold for any text whatever."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from h2ams.text import words
from h2ams.text.scripts import classes, normalise
from h2ams.text.words import Query, Term, analyse, fold, parse_query

# ---------------------------------------------------------------- a naive reading of the columns


def ask(text: str) -> Query:
    return parse_query(text, max_chars=100_000)


def holds(columns: tuple[str, str], term: Term) -> bool:
    """Whether a row with these two columns matches ``term``, read as the index reads it."""
    row, forms = (each.split(" ") for each in columns)
    if term.kind == "prefix":
        return any(token.startswith(term.tokens[0]) for token in row + forms)
    if len(term.tokens) > 1:
        size = len(term.tokens)
        spans = (tuple(row[at : at + size]) for at in range(len(row) - size + 1))
        return term.tokens in spans
    return term.tokens[0] in row + forms or (term.exact is not None and term.exact in row + forms)


def matched(query: str, text: str) -> list[str]:
    columns = analyse(text)
    return [term.text for term in ask(query).terms if holds(columns, term)]


def all_found(query: str, text: str) -> bool:
    terms = ask(query).terms
    return bool(terms) and len(matched(query, text)) == len(terms)


# ---------------------------------------------------------------- strategies

_ALPHABET = st.sampled_from(
    list("abcsxyzABCT019 _-./\\:@+=&#~%?$'*,;!\"“”「」()[]\t\n\0")
    + list("éÅßıſŉøñЁёйЙЇмиΜΈς認证用户しりカ゛ーー한국어ᄒ\u1161ขา้ำกุ")
    + list("🎵👩\u200d\ufe0f🏽\u00ad\u0301\u0316\u0345\u3099’ʼ‑Ａ＂①½¨ﷺﬁ\ud800\udfff٣ِ")
)
texts = st.text(_ALPHABET, max_size=40) | st.text(max_size=40)
dense = st.text(
    st.sampled_from("用户认证保存的什么谁しりとりカタナー々한국사람ข้าวเช้ากิน漢字㐀𠀀"),
    min_size=2,
    max_size=30,
)


# ---------------------------------------------------------------- what holds for any text


@given(texts)
@example('x"用"户')
@example("“a.b* c”")
@example("O'Brien's v1.2* ＂q w＂")
@example("İSTANBUL ǅabc Ǆ ΐ ﬃ")
def test_every_term_of_a_query_is_found_in_the_text_it_was_made_of(text: str) -> None:
    columns = analyse(text)
    for term in ask(text).terms:
        assert holds(columns, term), term


@given(texts)
def test_tokens_hold_no_blank_quote_control_character_or_surrogate(text: str) -> None:
    row, forms = analyse(text)
    for token in [*row.split(" "), *forms.split(" ")]:
        assert '"' not in token
        assert token == token.lower() or not token.isascii()
        assert not any(
            each.isspace() or unicodedata.category(each) in ("Cc", "Cs") for each in token
        )
    assert "  " not in row + " " and row == row.strip()
    assert len(set(forms.split())) == len(forms.split())


@given(texts)
def test_words_of_a_text_are_those_of_its_lines_one_after_the_other(text: str) -> None:
    whole = analyse(f"{text}\n{text}")[0].split()
    assert whole == analyse(text)[0].split() * 2


@given(dense, st.data())
def test_every_two_characters_of_a_dense_run_find_its_text(run: str, data: st.DataObject) -> None:
    run = normalise(run)
    start = data.draw(st.integers(0, max(0, len(run) - 2)))
    pair = run[start : start + 2]
    if len(pair) < 2 or len(set(classes(pair))) > 1 or normalise(pair) != pair:
        return
    assert all_found(pair, f"before {run} after")


@given(dense, st.data())
def test_every_single_character_of_a_dense_run_finds_its_text(
    run: str, data: st.DataObject
) -> None:
    character = data.draw(st.sampled_from(sorted(normalise(run))))
    assert all_found(character, run)


@given(texts)
def test_the_short_way_for_plain_words_gives_what_the_long_way_gives(text: str) -> None:
    for chunk in text.split():
        plain = words._plain_word(chunk)
        assert plain is None or plain == words._analyse_pieces(chunk)


@given(
    st.from_regex(r"[\"'(\[*_`!?,;:~=/#@.+-]{0,3}[A-Za-zА-Яа-яЁё]{1,9}[)*_`.,;:!?~+#-]{0,3}'?s?",
                  fullmatch=True)
)  # fmt: skip
def test_the_short_way_agrees_on_words_in_punctuation(chunk: str) -> None:
    plain = words._plain_word(chunk)
    assert plain is None or plain == words._analyse_pieces(chunk)


@given(texts)
def test_fold_is_stable_once_applied(text: str) -> None:
    once = fold(text)
    assert fold(once) == once


@given(texts, st.integers(0, 30))
def test_a_query_of_any_length_is_cut_and_never_raises(text: str, limit: int) -> None:
    query = parse_query(text, max_chars=limit)
    assert sum(len(each) for each in query.fragments) <= 20 * limit
    assert len({(each.kind, each.tokens) for each in query.terms}) == len(query.terms)


def test_a_query_over_the_limit_is_cut_before_a_word() -> None:
    assert parse_query("alpha beta gamma", max_chars=12).keywords == ("alpha", "beta")
    assert parse_query("alpha beta gamma", max_chars=10).keywords == ("alpha", "beta")


HOSTILE = {
    "blanks": " " * 300_000,
    "nul": "\0" * 300_000,
    "one letter": "a" * 300_000,
    "dots": "a." * 150_000,
    "apostrophes": "a's" * 100_000,
    "camel": "aB" * 150_000,
    "quotes": '"“' * 150_000,
    "stars": "a*" * 150_000,
    "marks out of order": "a" + "\u0316\u0301" * 150_000,
    "thai marks out of order": "\u0e01" + "\u0e38\u0e48" * 150_000,
    "surrogates": "\ud800" * 300_000,
    "han": "用户" * 150_000,
    "emoji": "🎵" * 300_000,
    "long ligatures": "ﷺ" * 10_000,
    "joiners": "-_./\\:@+=&#~%?$'" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_time_in_proportion_to_their_length(name: str) -> None:
    start = time.perf_counter()
    analyse(HOSTILE[name])
    ask(HOSTILE[name])
    fold(HOSTILE[name])
    assert time.perf_counter() - start < 20  # what is quadratic takes many minutes


def test_memory_of_chunks_is_bounded() -> None:
    assert len(words._CHUNKS) <= words.CACHED_CHUNKS
    chunks = words._Chunks(dict.fromkeys(map(str, range(words.CACHED_CHUNKS)), ("", ())))
    assert chunks["new"] == ("new", ())
    assert len(chunks) == 1


# ---------------------------------------------------------------- reported cases


def test_k31_apostrophes_and_the_word_and_are_text_not_syntax() -> None:
    title = "Baker's and Miller's Association meets Tuesday"
    assert all_found("Baker's and Miller's Association", title)
    assert analyse("Baker’s")[0] == analyse("baker's")[0] == "baker"
    for word in ("and", "OR", "Not", "NEAR"):
        assert ask(word).terms[0].tokens == (word.lower(),)
        assert ask(word).only_stop_words


@pytest.mark.parametrize(
    "query",
    ["ops@example.org", "#launch", "50%", "a=b", "launch?", "launch!", "[launch]"],
)
def test_k33_punctuation_never_hides_the_word(query: str) -> None:
    assert all_found(query, "mail from ops@example.org about #launch, discount 50%, a=b")


@pytest.mark.parametrize("query", ["@example", "x\\launch;"])
def test_k33_a_word_that_stands_differently_is_still_found_by_its_part(query: str) -> None:
    assert matched(query, "mail from ops@example.org about #launch, discount 50%, a=b")


@pytest.mark.parametrize("query", ["atomic_write_json", "atomic write json", "ATOMIC_WRITE_JSON"])
def test_k36_snake_case_is_found_whole_and_by_its_words(query: str) -> None:
    assert all_found(query, "call atomic_write_json for saves")


def test_k37_japanese_words_inside_a_run_are_found() -> None:
    assert all_found("しりとり", "今日は成語しりとりをした")
    assert not matched("しりとり", "明日は会議")
    assert all_found("会議", "明日は会議")


def test_k38_short_words_count_next_to_long_ones() -> None:
    assert matched("quick ok", "quick check says ok to proceed") == ["quick", "ok"]
    assert matched("quick ok", "the quick brown fox") == ["quick"]
    assert all_found("修复", "修复 登录")


def test_k39_thai_words_inside_a_sentence_are_found() -> None:
    assert all_found("ข้าว", "ฉันชอบกินข้าวเช้าทุกวัน")


def test_k41_a_question_is_asked_by_its_content_words() -> None:
    query = ask("why is Codey not replying to my messages")
    assert query.keywords == ("Codey", "replying", "messages")
    assert "Codey" in matched(
        "why is Codey not replying to my messages", "Codey replies through the relay bot"
    )


def test_k95_runs_of_nul_separate_words_and_nothing_else() -> None:
    assert analyse("before-nuls " + "\0" * 10_291 + " after-nuls")[0] == "befor nul after nul"
    assert all_found("nuls", "before-nuls" + "\0" * 10_291 + "after-nuls")


def test_k103_a_hyphen_or_the_word_or_harms_no_other_term() -> None:
    query = "mistakes OR wrong-book"
    assert matched(query, "list of mistakes") == ["mistakes"]
    assert matched(query, "my wrong-book pages") == ["wrong-book", "wrong", "book"]


def test_k106_emoji_are_words_and_pieces_of_words_are_fragments() -> None:
    assert all_found("🎵", "party 🎵 at noon")
    assert all_found("party 🎵", "party🎵at noon")
    assert all_found("👧", "👩\u200d👩\u200d👧 at home")
    assert not matched("ир", "жираф в парке")
    assert ask("ир").fragments == ("ир",)
    assert "ир" in fold("ЖИРАФ в парке")


def test_k107_a_file_name_is_one_word_and_a_star_asks_for_a_beginning() -> None:
    assert matched("current.md", "see current.md") == ["current.md", "current", "md"]
    assert matched("current.md", "current plans") == ["current"]
    assert all_found("curr*", "see current.md")
    assert all_found("curr*", "current plans")
    assert ask("curr*").terms == (Term("curr*", "prefix", ("curr",)),)


@pytest.mark.parametrize("query", ["*", "**", "**bold**", "2*3", "*curr", "a*b", "foo-ba*"])
def test_k107_any_other_star_is_punctuation(query: str) -> None:
    assert all(term.kind != "prefix" for term in ask(query).terms)


@pytest.mark.parametrize("query", ["v1.1.6", "fix/release-dispatch-repo", "oceanbase-blue-116"])
def test_k108_versions_branches_and_hosts_are_found_whole(query: str) -> None:
    text = "deployed v1.1.6 from fix/release-dispatch-repo on oceanbase-blue-116"
    assert all_found(query, text)
    assert ask(query).terms[0] == Term(query, "identifier", (query,))
    assert query in analyse(text)[1].split()


def test_k108_dots_belong_to_env_and_lines_of_hyphens_ask_nothing() -> None:
    assert all_found(".env", "edit the .env file")
    assert ask("---") == Query((), (), False, ())
    assert ask("") == ask(" \t\n") == ask("---")


@pytest.mark.parametrize("query", ["updateCloudClient", "updatecloudclient", "cloud client"])
def test_k110_camel_case_is_found_whole_and_by_its_words(query: str) -> None:
    assert matched(query, "updateCloudClient retries twice")


def test_k111_each_chinese_word_counts_by_itself() -> None:
    query = "微信读书 书架 阅读偏好"
    first = matched(query, "微信读书 的 书架 很大")
    second = matched(query, "阅读偏好：历史")
    assert len(first) > len(second) > 0
    assert not matched(query, "天气")


def test_k112_greek_accents_and_final_sigma_make_no_difference() -> None:
    assert all_found("μελι", "μέλι και γάλα")
    assert all_found("ΓΑΛΑ", "μέλι και γάλα")
    assert fold("ΟΔΌΣ") == fold("οδός")


def test_k116_plurals_and_gerunds_meet_at_their_stem() -> None:
    assert matched("testing conventions", "Tests live next to the source file") == ["testing"]
    cached = "Caching is disabled for authenticated routes"
    assert matched("cached responses", cached) == ["cached"]


def test_k117_the_exact_word_can_be_told_from_its_stem() -> None:
    exact = ask("university").terms[0].exact
    assert exact == "university"
    assert exact in analyse("The university portal login uses SSO")[1].split()
    universe = analyse("The universe simulation runs; the universe resets")
    assert exact not in " ".join(universe).split()


@pytest.mark.parametrize("query", ["sanit*", "sanitiz*", "sanitize*"])
def test_k118_a_beginning_longer_than_the_stem_is_found(query: str) -> None:
    assert all_found(query, "We sanitize the HTML before saving")


# ---------------------------------------------------------------- single rules


@pytest.mark.parametrize(
    ("text", "row", "forms"),
    [
        ("getUserName", "get user name", "getusername getusernam"),
        ("HTMLParser SHA256Sum", "html parser sha256 sum", "htmlparser sha256sum"),
        ("URLs of APIs", "url of api", "urls apis"),
        ("C++ and C#, F#.", "c and c f", "c++ c# f#"),
        ("v1.2.3", "v1 2 3", "v1.2.3 1.2.3"),
        ("ABC-123:", "abc 123", "abc-123"),
        ("a1b2c3d4e5f6", "a1b2c3d4e5f6", ""),
        ("src/app/main.py", "src app main py", "src/app/main.py main.py"),
        (r"C:\temp\a.txt", "c temp a txt", r"c:\temp\a.txt a.txt"),
        ("me@mail.example.org", "me mail exampl org", None),
        ("(launch?)", "launch", ""),
        ("don't we'll can't l'homme O'Brien", "do we can homm o brien", "homme o'brien"),
        ("Ёлка ёлки", "елк елк", "елка елки"),
        ("мой МОЙ", "мо мо", "мой"),
        ("naïve Ærø", "naiv aero", "naive"),
        ("ＡＢＣ　１２３", "abc 123", ""),
        ("AI模型2024年", "ai 模型 型 2024 年", ""),
        ("用户认证", "用户 户认 认证 证", ""),
        ("soft\u00adhyphen zero\u200bwidth", "softhyphen zerowidth", None),
    ],
)
def test_text_is_cut_into_words_and_forms(text: str, row: str, forms: str | None) -> None:
    words_column, forms_column = analyse(text)
    assert words_column == row
    assert forms is None or forms_column == forms


def test_a_compound_is_asked_for_whole_and_by_its_parts() -> None:
    assert [(each.kind, each.tokens, each.exact) for each in ask("atomicWrite").terms] == [
        ("identifier", ("atomicwrite",), None),
        ("word", ("atom",), "atomic"),
        ("word", ("write",), None),
    ]


def test_a_name_with_one_letter_asks_for_no_single_letters() -> None:
    assert [each.tokens for each in ask("C++").terms] == [("c++",)]


def test_very_long_runs_are_cut_and_still_found() -> None:
    digest = "0123456789abcdef" * 20
    assert all(len(each) <= words.MAX_TOKEN_CHARS for each in analyse(digest)[0].split())
    assert all_found(digest, f"see {digest}.")


def test_quotations_are_phrases_in_addition_to_their_words() -> None:
    query = ask('say "refresh tokens rotate" now')
    phrase = next(each for each in query.terms if each.kind == "phrase")
    assert phrase == Term(
        "refresh tokens rotate", "phrase", ("refresh", "token", "rotat"), quoted=True
    )
    assert holds(analyse("Refresh tokens rotate on every use"), phrase)
    assert not holds(analyse("Rotate the refresh tokens"), phrase)
    assert [each.text for each in query.terms if each.quoted] == [
        "refresh tokens rotate", "refresh", "tokens", "rotate",
    ]  # fmt: skip


def test_a_quotation_may_end_inside_a_dense_run() -> None:
    phrase = ask("“用户认证”").terms[0]
    assert phrase.kind == "phrase"
    assert holds(analyse("用户认证系统"), phrase)
    assert not holds(analyse("认证用户"), phrase)


@pytest.mark.parametrize("query", ['"unclosed words here', '5" disk', '""', '" "', '"word"'])
def test_quotes_that_enclose_no_phrase_are_punctuation(query: str) -> None:
    assert all(each.kind != "phrase" for each in ask(query).terms)


def test_stop_words_stay_when_nothing_else_is_asked() -> None:
    query = ask("to be or not to be")
    assert query.only_stop_words
    assert query.keywords == ("to", "be", "or", "not")
    assert ask("什么").only_stop_words and ask("的").only_stop_words


@pytest.mark.parametrize(
    ("query", "keywords"),
    [
        ("When did the war start, and who would die?", ("war", "start", "die")),
        ("wer hat die Datei geschrieben", ("Datei", "geschrieben")),
        ("où est la base de données", ("base", "données")),
        ("¿dónde está la configuración del servidor?", ("configuración", "servidor")),
        ("где лежит файл настроек", ("лежит", "файл", "настроек")),
    ],
)
def test_function_words_are_left_out_in_several_languages(
    query: str, keywords: tuple[str, ...]
) -> None:
    assert ask(query).keywords == keywords


def test_stop_words_are_never_left_out_of_the_index() -> None:
    assert analyse("to be or not to be")[0] == "to be or not to be"


def test_the_version_names_all_that_decides_about_tokens() -> None:
    assert unicodedata.unidata_version in words.VERSION
