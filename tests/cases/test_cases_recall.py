"""Reported cases of the layer *recall*: any text is a question, and never an error or syntax."""

from __future__ import annotations

import string
from pathlib import Path

import apsw
import pytest
from cases.kit import asking, cli, cli_ids, document, few, ids, opened, segments, write
from hypothesis import example, given
from hypothesis import strategies as st

from h2ams import IndexFaultError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


# -- K31, K33, K103: nothing in a query is syntax --------------------------------------------------

BAKER = "Baker's and Miller's Association meets Tuesday"


def test_k31_apostrophes_and_the_word_and_hide_nothing(root: Path) -> None:
    with asking(root, BAKER, "nothing of the kind") as ask:
        assert ask("Baker's and Miller's Association") == ["S1"]
        assert ask("baker’s AND miller’s association") == ["S1"]
        assert ask(f'"{BAKER}"') == ["S1"]


OPERATORS = ["and", "AND", "or", "OR", "not", "NOT", "near", "NEAR", "NEAR/3", "AND NOT", "OR OR"]


@pytest.mark.parametrize("word", OPERATORS)
def test_k31_operators_are_words_wherever_they_stand(root: Path, word: str) -> None:
    with asking(root, BAKER, "tea not coffee", "nothing of the kind") as ask:
        for query in (
            f"Baker {word} Miller",
            f"{word} Baker",
            f"Baker {word}",
            f"{word} Baker {word}",
        ):
            assert ask(query)[0] == "S1"
        assert "S1" in ask(f"tuesday {word} absent")
        assert ask(f"coffee {word} tea")[0] == "S2"


MAIL = "mail from ops@example.org about #launch, discount 50%, a=b"
QUERIES = ["@example", "ops@example.org", "#launch", "50%", "a=b", "launch?", "launch!", "[launch]"]


def test_k33_no_punctuation_hides_a_word(root: Path) -> None:
    with asking(root, MAIL, "something else") as ask:
        for query in QUERIES:
            assert ask(query) == ["S1"], query
        assert ask("x\\launch;") in ([], ["S1"])


FORMS = ["{}launch", "launch{}", "{}launch{}", "{} launch", "{}{}{}launch{}{}{}", "launch {}x"]
FORMS += ["discount{}launch", "launch {} absent"]


def test_k33_every_punctuation_around_and_between_words(root: Path) -> None:
    with asking(root, MAIL, "something else") as ask:
        for mark in string.punctuation:
            for form in FORMS:
                query = form.replace("{}", mark)
                assert ask(query) == ["S1"], query
            assert ask(mark) == ask(mark * 50) == [], mark


@few
@given(marks=st.text(string.punctuation, min_size=1, max_size=6), data=st.data())
def test_k33_text_that_was_stored_with_any_punctuation_is_found_by_itself(
    tmp_path_factory: pytest.TempPathFactory, marks: str, data: st.DataObject
) -> None:
    word = data.draw(st.sampled_from(["launch", "naïve", "чай", "用户", "x1"]))
    texts = [f"{marks}{word}", f"{word}{marks}", f"{word}{marks}{word}", "other words"]
    with asking(tmp_path_factory.mktemp("marks"), *(f"t {text} u" for text in texts)) as ask:
        for number, text in enumerate(texts, 1):
            assert f"S{number}" in ask(text)
            if number < len(texts):
                assert "S4" not in ask(text)


def test_k103_a_hyphen_or_the_word_or_harms_no_other_term(root: Path) -> None:
    with asking(root, "list of mistakes", "my wrong-book pages", "neither") as ask:
        assert set(ask("mistakes OR wrong-book")) == {"S1", "S2"}
        for joined in ("mistakes,wrong-book", "mistakes|wrong-book", "(mistakes) wrong-book*"):
            assert set(ask(joined)) == {"S1", "S2"}


# -- K36, K107, K108, K110: identifiers ------------------------------------------------------------


def test_k36_snake_case_is_found_whole_and_by_its_words(root: Path) -> None:
    with asking(root, "call atomic_write_json for saves", "something else") as ask:
        for query in ("atomic_write_json", "atomic write json", "ATOMIC_WRITE_JSON"):
            assert ask(query) == ["S1"]


def test_k107_a_file_name_with_a_dot_and_a_prefix(root: Path) -> None:
    with asking(root, "see current.md", "current plans") as ask:
        assert ask("current.md")[0] == "S1"
        # A star at the end of a word asks for its continuations (docs/cli.md).
        assert set(ask("curr*")) == {"S1", "S2"}
        assert set(ask('"curr"*')) <= {"S1", "S2"}


DEPLOYED = "deployed v1.1.6 from fix/release-dispatch-repo on oceanbase-blue-116"


def test_k108_versions_branches_hosts_and_dot_files(root: Path) -> None:
    with asking(root, DEPLOYED, "edit the .env file") as ask:
        for query in ("v1.1.6", "fix/release-dispatch-repo", "oceanbase-blue-116"):
            assert ask(query) == ["S1"]
        assert ask(".env") == ["S2"]
        assert ask("---") == []


IDENTIFIERS = [
    "atomic_write_json", "getUserName", "kebab-case-name", "HTTPServer2", "v2.10.3-rc.1", "C++",
    "C#", ".env", "#launch", "ABC-1234", "9fceb02d0ae598e95dc970b74767f19372d61af8",
    "src/app/main.py", r"C:\Users\ada\notes.txt", "ops@example.org",
    "fix/release-dispatch-repo", "current.md", "user.name.first", "snake_Case_Mixed",
    "F.read_text()", "--dry-run", "H2AMS_ROOT", "2026-04-29", "10.0.0.1", "node@18",
    "std::vector", "$HOME", "x86_64", "utf-8",
]  # fmt: skip


def test_k36_k107_k108_k110_every_identifier_is_found_by_itself_first(root: Path) -> None:
    bodies = [f"about {identifier} in a sentence" for identifier in IDENTIFIERS]
    with asking(root, *bodies) as ask:
        for number, identifier in enumerate(IDENTIFIERS, 1):
            for query in (identifier, f"what about {identifier}?", identifier.lower()):
                assert ask(query)[0] == f"S{number}", query


def test_k110_camel_case_is_found_whole_and_by_its_words(root: Path) -> None:
    with asking(root, "updateCloudClient retries twice", "something else") as ask:
        for query in ("updateCloudClient", "updatecloudclient", "cloud client"):
            assert ask(query) == ["S1"]


# -- K37, K38, K39, K106, K111, K112: scripts ------------------------------------------------------


def test_k37_japanese_words_inside_a_run(root: Path) -> None:
    with asking(root, "今日は成語しりとりをした", "明日は会議") as ask:
        assert ask("しりとり") == ["S1"]
        assert ask("会議") == ["S2"]


def test_k38_a_short_word_next_to_a_long_one_counts(root: Path) -> None:
    with asking(root, "the quick brown fox", "quick check says ok to proceed", "修复 登录") as ask:
        assert ask("quick ok")[0] == "S2"
        assert ask("ok") == ["S2"]
        assert ask("修复") == ["S3"]


def test_k39_a_thai_word_inside_a_sentence(root: Path) -> None:
    with asking(root, "ฉันชอบกินข้าวเช้าทุกวัน", "แมวนอน") as ask:
        assert ask("ข้าว") == ["S1"]


RUNS = [
    "今日は成語しりとりをした", "用户认证失败请重试", "ฉันชอบกินข้าวเช้าทุกวัน",
    "사용자인증에실패했습니다", "ខ្ញុំស្រឡាញ់ភាសាខ្មែរ", "ພາສາລາວ", "မြန်မာစာ",
    "データベース接続エラー",
]  # fmt: skip


@pytest.mark.parametrize("run", RUNS)
def test_k37_k39_every_piece_of_two_or_more_characters_is_found(root: Path, run: str) -> None:
    with asking(root, run, f"before {run} after", "latin words") as ask:
        for start in range(len(run)):
            for end in range(start + 2, min(start + 5, len(run)) + 1):
                assert set(ask(run[start:end])) == {"S1", "S2"}, run[start:end]


def test_k106_emoji_and_short_pieces(root: Path) -> None:
    bodies = ("party 🎵 at noon", "жираф в парке")
    with asking(root, *bodies) as ask:
        assert ask("party 🎵") == ["S1"]
        assert ask("🎵") == ["S1"]
        # Pieces inside a word are found by the relaxed reading, when nothing else is.
        assert ask("ир") in ([], ["S2"])
        for query in ("🎵", "party 🎵", "ир"):
            assert cli_ids(root, query) == ask(query)


def test_k111_each_word_of_a_chinese_question_counts_by_itself(root: Path) -> None:
    with asking(root, "微信读书 的 书架 很大", "阅读偏好：历史", "天气") as ask:
        assert ask("微信读书 书架 阅读偏好") == ["S1", "S2"]


def test_k112_greek_accents_make_no_difference(root: Path) -> None:
    with asking(root, "μέλι και γάλα", "νερό") as ask:
        for query in ("μελι", "μέλι", "ΜΕΛΙ", "γαλα", "ΓΆΛΑ"):
            assert ask(query) == ["S1"]


# -- K41, K116, K117, K118: sentences and stems ----------------------------------------------------

FILLER = [f"ordinary text number {n} about work and messages" for n in range(40)]


def test_k41_a_question_finds_what_its_one_rare_word_is_about(root: Path) -> None:
    with asking(root, "Codey replies through the relay bot", *FILLER) as ask:
        assert ask("why is Codey not replying to my messages")[0] == "S1"


FUNCTION_WORDS = (
    "why is the not to my a of and or how do i we they what when where can should would please "
    "tell me about any this that with for from in on at it was are be"
)
SOME_FUNCTION_WORDS = st.lists(st.sampled_from(FUNCTION_WORDS.split()), max_size=12)


@pytest.fixture(scope="module")
def codey(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("codey")
    write(root, "sessions/s/memory.md", segments("Codey replies through the relay bot", *FILLER))
    return root


@given(
    before=SOME_FUNCTION_WORDS,
    after=SOME_FUNCTION_WORDS,
    word=st.sampled_from(["Codey", "relay", "bot"]),
)
def test_k41_any_sentence_with_one_rare_word_finds_it_first(
    codey: Path, before: list[str], after: list[str], word: str
) -> None:
    with opened(codey) as memory:
        assert ids(memory, " ".join([*before, word, *after]) + "?")[0] == "S1"


def test_k116_plurals_and_gerunds_meet(root: Path) -> None:
    with asking(
        root, "Tests live next to the source file", "Caching is disabled for authenticated routes"
    ) as ask:
        assert "S1" in ask("testing conventions")
        assert "S2" in ask("cached responses")


UNIVERSE = (
    "The universe simulation runs; the universe resets",
    "The university portal login uses SSO",
)


def test_k117_the_exact_word_ranks_above_its_stem_on_every_surface(root: Path) -> None:
    with asking(root, *UNIVERSE) as ask:
        found = ask("university")
        assert found[0] == "S2"
        assert cli_ids(root, "university") == found


def test_k118_a_prefix_longer_than_the_stem(root: Path) -> None:
    with asking(root, "We sanitize the HTML before saving", "something else") as ask:
        for length in range(3, len("sanitize") + 1):
            assert ask("sanitize"[:length] + "*") == ["S1"]


@pytest.mark.parametrize("word", ["relational", "happiness", "running", "университеты", "γλώσσες"])
def test_k116_k118_every_prefix_and_the_word_itself_find_it(root: Path, word: str) -> None:
    with asking(root, f"about {word} here", "something else") as ask:
        for length in range(2, len(word) + 1):
            assert ask(word[:length] + "*") == ["S1"]
        assert ask(word.upper()) == ask(word.capitalize()) == ["S1"]


# -- K42 and K120: the order -----------------------------------------------------------------------


def test_k42_better_matches_have_higher_scores(root: Path) -> None:
    long = "kiwi with a long text of " + " ".join(f"filler{n}" for n in range(20)) + " words"
    write(root, "sessions/s/memory.md", segments("kiwi kiwi kiwi", long, "no match"))
    with opened(root) as memory:
        first, second = memory.recall("kiwi").hits
        assert (first.record.id, second.record.id) == ("S1", "S2")
        assert first.score > second.score > 0
        assert first.terms["bm25"] > second.terms["bm25"] > 0
        for hit in (first, second):
            assert hit.score == pytest.approx(sum(hit.terms.values()), abs=1e-6)


@few
@given(counts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), min_size=1, max_size=20))
def test_k42_scores_never_rise_down_the_list_and_are_sums_of_their_terms(
    tmp_path_factory: pytest.TempPathFactory, counts: list[tuple[int, int]]
) -> None:
    root = tmp_path_factory.mktemp("scores")
    texts = [" ".join(["kiwi"] * times + ["plum"] * other + ["end"]) for times, other in counts]
    write(root, "sessions/s/memory.md", segments(*texts))
    with opened(root) as memory:
        hits = memory.recall("kiwi", limit=100).hits
        assert len(hits) == sum(times > 0 for times, _ in counts)
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert all(score > 0 for score in scores)
        for hit in hits:
            assert hit.score == pytest.approx(sum(hit.terms.values()), abs=1e-6)
        assert memory.recall("kiwi", limit=100).hits == hits


BUDGETS = [f"budget {'line ' * (n % 7)}{'budget ' * (n % 4)}item {n % 5}" for n in range(30)]


def test_k120_the_best_of_one_is_the_first_of_ten(root: Path) -> None:
    with asking(root, *BUDGETS) as ask:
        lists = {limit: ask("budget", limit=limit) for limit in (1, 2, 6, 10)}
        for fewer in lists:
            for more in lists:
                if fewer < more:
                    assert lists[more][:fewer] == lists[fewer]
        assert cli_ids(root, "budget", "-n", "1") == lists[1]


@few
@example(words=["w1"] * 100, query=["w1"])
@given(
    words=st.lists(st.sampled_from([f"w{n}" for n in range(6)]), min_size=1, max_size=100),
    query=st.lists(st.sampled_from([f"w{n}" for n in range(8)]), min_size=1, max_size=4),
)
def test_k120_every_shorter_list_begins_every_longer_one(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], query: list[str]
) -> None:
    bodies = [" ".join(words[start : start + 1 + start % 5]) for start in range(len(words))]
    with asking(tmp_path_factory.mktemp("lists"), *bodies) as ask:
        whole = ask(" ".join(query), limit=200)
        assert len(whole) == len(set(whole))
        for limit in range(len(whole) + 1):
            assert ask(" ".join(query), limit=limit) == whole[:limit]


# -- K122 ------------------------------------------------------------------------------------------


def test_k122_without_fts5_every_call_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Without(apsw.Connection):
        def execute(self, statements: str, *args: object, **options: object) -> apsw.Cursor:
            if "CREATE VIRTUAL TABLE" in statements:
                raise apsw.SQLError("no such module: fts5")
            return super().execute(statements, *args, **options)

    write(root, "user/memory.md", segments("alpha"))
    monkeypatch.setattr(apsw, "Connection", Without)
    with opened(root) as memory:
        for call in (memory.status, memory.doctor, lambda: memory.recall("alpha")):
            with pytest.raises(IndexFaultError) as caught:
                call()
            assert "FTS5" in str(caught.value)


def test_k121_a_query_that_matches_nothing_is_an_answer_like_any_other(root: Path) -> None:
    write(root, "sessions/s/memory.md", segments(*(f"{FILLER[n % 40]} {n}" for n in range(2000))))
    with opened(root) as memory:
        memory.sync()
        files = [root / ".h2ams" / name for name in ("index.db", "index.db-wal")]
        before = [(file.read_bytes(), file.stat().st_mtime_ns) for file in files]
        assert ids(memory, "zzqqxx") == []
        assert [(file.read_bytes(), file.stat().st_mtime_ns) for file in files] == before
    found = document(cli(root, "recall", "zzqqxx", "--json"))
    assert (found["hits"], found["degraded"]) == ([], [])
