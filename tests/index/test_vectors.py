"""The semantic side: vectors follow the segments, see nothing foreign, and leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from folder import PLAIN, age, ids, opened, segment_text, write
from hypothesis import given, settings
from hypothesis import strategies as st

from h2ams import Access, Memory
from h2ams.index import encoder as encoder_module
from h2ams.memory.record import Hit

SEMANTIC = replace(PLAIN, semantic=True)
PUP = "The puppy chews on slippers whenever nobody is home."
RATES = "The central bank raised interest rates again."
RECIPE = "Knead the dough for ten minutes and let it rise."
QUESTION = "a young dog eats shoes in an empty house"  # shares no word with PUP


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def three(root: Path, scope: str = "user") -> Path:
    return write(
        root,
        f"{scope}/memory.md",
        segment_text("rates", RATES),
        segment_text("pup", PUP),
        segment_text("recipe", RECIPE, kind="workflow", tags="[kitchen]"),
    )


def table(memory: Memory) -> dict[str, tuple[bytes, bytes]]:
    """Key and vector of every row by address; of vectors without a segment by rowid."""
    with memory._index.reading() as connection:
        rows = connection.execute(
            "SELECT coalesce(s.name || '#' || m.id, v.rowid), v.key, v.vector FROM vectors v"
            " LEFT JOIN memory_segments m ON m.rowid = v.rowid LEFT JOIN scopes s ON s.no = m.scope"
        ).fetchall()
    return {str(name): (key, vector) for name, key, vector in rows}


def has_table(memory: Memory) -> bool:
    with memory._index.reading() as connection:
        found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'vectors'")
        return bool(found.fetchone()[0])


def only_semantic(hits: tuple[Hit, ...]) -> list[str]:
    return [hit.record.id for hit in hits if not hit.matched]


# -- what is found ---------------------------------------------------------------------------------


def test_a_text_that_shares_no_word_with_the_question_is_found(root: Path) -> None:
    three(root)
    with opened(root) as memory:
        assert ids(memory, QUESTION) == []
    with opened(root, settings=SEMANTIC) as memory:
        found = memory.recall(QUESTION)
    assert found.hits[0].record.id == "pup"
    assert found.hits[0].terms["semantic"] == found.hits[0].score > 0
    assert found.hits[0].matched == ()


def test_the_score_stays_the_sum_of_its_terms_and_the_order_that_of_the_scores(root: Path) -> None:
    bodies = (PUP, RATES, RECIPE, "A dog and a puppy share slippers.", "Dogs need a walk.")
    write(root, "user/memory.md", *(segment_text(f"s{n}", b) for n, b in enumerate(bodies)))
    with opened(root, settings=SEMANTIC) as memory:
        hits = memory.recall("which dog chews slippers").hits
    assert len(hits) >= 3
    for hit in hits:
        assert hit.score == pytest.approx(sum(hit.terms.values()), abs=1e-6)
        assert hit.terms["semantic"] >= 0
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].terms["semantic"] > 0 and hits[0].matched


def test_fewer_wanted_hits_are_the_first_of_more(root: Path) -> None:
    write(
        root,
        "user/memory.md",
        *(segment_text(f"n{n:03}", f"Dog number {n} chews shoe {n % 7}.") for n in range(150)),
        segment_text("pup", PUP),
    )
    with opened(root, settings=SEMANTIC) as memory:
        many = ids(memory, "dog chews shoe", limit=140)
        assert len(many) == 140
        for count in (1, 5, 20, 100):
            assert ids(memory, "dog chews shoe", limit=count) == many[:count]


def test_a_question_in_another_script_is_answered_by_words_alone(root: Path) -> None:
    bodies = ("用户认证每天轮换令牌", "Щенок грызёт тапки", "tokens rotate daily 认证")
    write(root, "user/memory.md", *(segment_text(f"s{n}", b) for n, b in enumerate(bodies)))
    for question in ("认证令牌", "щенок и тапки", "토큰"):
        with opened(root) as memory:
            plain = memory.recall(question)
        with opened(root, settings=SEMANTIC) as memory:
            assert memory.recall(question).hits == plain.hits


def test_filters_hold_for_what_only_the_vectors_find(root: Path) -> None:
    three(root)
    three(root, "sessions/s1")
    with opened(root, settings=replace(SEMANTIC, semantic_floor=0.0)) as memory:

        def of(**filters: object) -> set[str]:
            found = memory.recall(QUESTION, **filters)  # type: ignore[arg-type]
            return {hit.record.address for hit in found.hits}

        assert of(scopes=["sessions/*"]) <= {
            f"sessions/s1#{id}" for id in ("pup", "rates", "recipe")
        }
        assert "sessions/s1#pup" in of(scopes=["sessions/*"])
        assert of(kinds=["workflow"]) == {"user#recipe", "sessions/s1#recipe"}
        assert of(tags=["kitchen"]) == {"user#recipe", "sessions/s1#recipe"}
        assert of(after="2030-01-01") == set()


def test_the_block_of_a_context_holds_it_and_keeps_its_budget(root: Path) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        block = memory.context(QUESTION, budget=300)
        assert "puppy" in block.text
        assert block.tokens <= 300
        assert memory.context(QUESTION, budget=300).text == block.text


def test_above_the_limit_of_segments_only_lexical_hits_are_looked_at(root: Path) -> None:
    three(root)
    with opened(root, settings=replace(SEMANTIC, semantic_segments_count=2)) as memory:
        assert ids(memory, QUESTION) == []
        (hit, *_) = memory.recall("puppy").hits
        assert hit.record.id == "pup" and hit.terms["semantic"] > 0


# -- access ----------------------------------------------------------------------------------------


def test_foreign_scopes_change_no_result_no_score_and_no_order(tmp_path: Path) -> None:
    alone, crowded = tmp_path / "alone", tmp_path / "crowded"
    for root in (alone, crowded):
        three(root, "sessions/mine")
        three(root, "user")
    for number in range(30):
        text = f"{PUP} Dog number {number} destroys shoes."
        write(crowded, f"sessions/other{number}/memory.md", segment_text("x", text))
        write(crowded, f"sessions/mine/vp/eve{number}/memory.md", segment_text("x", text))
    access = Access(session="mine", vp="me")
    found = []
    for root in (alone, crowded):
        with opened(root, settings=replace(SEMANTIC, semantic_floor=0.0)) as memory:
            memory.sync()
            for question in (QUESTION, "puppy slippers", "interest"):
                recall = memory.recall(question, access=access)
                assert recall.hits
                found.append([(h.record.address, h.score, h.terms) for h in recall.hits])
    assert found[:3] == found[3:]


# -- following the files ---------------------------------------------------------------------------

WORDS = ("dog", "bank", "dough", "river", "token", "认证", "письмо", "green", "tea", "wrist")
bodies = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
states = st.dictionaries(
    st.sampled_from(["user", "sessions/a", "sessions/a/topic/t", "vp/x"]),
    st.dictionaries(st.sampled_from("abcdef"), bodies, max_size=6),
    min_size=1,
)


@settings(max_examples=15)
@given(history=st.lists(states, min_size=2, max_size=4), data=st.data())
def test_any_history_of_edits_ends_in_the_vectors_of_a_rebuild(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[dict[str, dict[str, str]]],
    data: st.DataObject,
) -> None:
    root = tmp_path_factory.mktemp("history")
    write(root, "vp/anchor/memory.md", segment_text("anchor", "stays"))
    with opened(root, settings=SEMANTIC) as memory:
        for state in history:
            for scope in ("user", "sessions/a", "sessions/a/topic/t", "vp/x"):
                path = root / scope / "memory.md"
                path.unlink(missing_ok=True)
                if scope in state:
                    order = data.draw(st.permutations(sorted(state[scope].items())))
                    write(root, f"{scope}/memory.md", *(segment_text(*each) for each in order))
            memory.sync()
            verification = memory.verify()
            assert verification.ok, verification.problems
        grown = table(memory)
        memory.rebuild()
        assert table(memory) == grown


def test_an_edit_changes_the_vectors_of_the_segment_and_six_neighbours_only(root: Path) -> None:
    bodies = {
        id: f"Text number {n} about {w}."
        for n, (id, w) in enumerate(zip("abcdefgh", WORDS[:8], strict=True))
    }
    file = write(root, "user/memory.md", *(segment_text(*each) for each in bodies.items()))
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        before = table(memory)
        file.write_text(file.read_text("utf-8").replace("about dough", "about butter"), "utf-8")
        memory.sync()
        after = table(memory)
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {f"user#{id}" for id in "abcdef"}


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("DELETE FROM vectors WHERE rowid % 3 = 1", "1 vectors are missing"),
        ("INSERT INTO vectors SELECT 7, key, key FROM vectors LIMIT 1", "1 vectors are left over"),
        ("UPDATE vectors SET vector = zeroblob(256)", "3 vectors are not of their segment"),
        ("UPDATE vectors SET vector = x'00'", "3 vectors are not of their segment"),
        ("UPDATE vectors SET key = x'00'", "3 vectors are not of their segment"),
    ],
)  # fmt: skip
def test_verify_tells_what_is_wrong_and_the_doctor_mends_it(
    root: Path, damage: str, says: str
) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        assert memory.verify().ok
        with memory._index.writing() as connection:
            connection.execute(damage)
        found = memory.verify()
        assert not found.ok
        assert [(each.code, each.message) for each in found.problems] == [("vectors-differ", says)]
        memory.doctor(fix=True)
        assert memory.verify().ok
        assert ids(memory, QUESTION)[:1] == ["pup"]


# -- on and off ------------------------------------------------------------------------------------


def test_switched_on_for_an_existing_index_it_works_at_the_next_recall(root: Path) -> None:
    three(root)
    with opened(root) as memory:
        memory.sync()
        assert not has_table(memory)
    with opened(root, settings=SEMANTIC) as memory:
        access = Access(session="any")
        found = memory.recall(QUESTION, access=access)
        assert [hit.record.id for hit in found.hits[:1]] == ["pup"]
        assert memory.verify().ok


def test_switched_off_the_vectors_are_gone_after_the_next_sync(root: Path) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        assert len(table(memory)) == 3
    with opened(root) as memory:
        assert ids(memory, QUESTION) == []
        memory.sync()
        assert not has_table(memory)
        assert ids(memory, "puppy") == ["pup"]
        assert memory.verify().ok


def test_edits_while_it_was_off_are_in_the_vectors_when_it_is_on_again(root: Path) -> None:
    file = three(root)
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
    file.write_text(file.read_text("utf-8").replace(PUP, "Bonds fell."), "utf-8")
    age(file)
    with opened(root) as memory:
        memory.sync(["user/memory.md"])
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        assert memory.verify().ok
        assert "pup" not in only_semantic(memory.recall(QUESTION).hits)


def test_another_version_of_the_encoder_makes_all_vectors_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        with memory._index.writing() as connection:
            connection.execute("UPDATE vectors SET vector = zeroblob(256)")
        monkeypatch.setattr(encoder_module.Encoder, "version", "2/other")
        memory.sync()
        assert memory.verify().ok
        assert ids(memory, QUESTION)[:1] == ["pup"]


def test_a_purged_text_leaves_neither_vector_nor_key_in_the_files_of_the_index(root: Path) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        memory.sync()
        key, vector = table(memory)["user#pup"]
        state = Path(memory.state)
        kept = b"".join(each.read_bytes() for each in state.glob("index.db*"))
        assert vector in kept and key in kept
        memory.forget("user#pup", purge=True)
        assert "user#pup" not in table(memory)
        assert memory.verify().ok
        left = b"".join(each.read_bytes() for each in state.glob("index.db*"))
    assert vector not in left
    assert key not in left


# -- without the packages --------------------------------------------------------------------------


@pytest.fixture
def without_wordllama(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)  # as if it were not installed


@pytest.mark.usefixtures("without_wordllama")
def test_without_the_package_recall_is_by_words_and_says_so(root: Path) -> None:
    three(root)
    with opened(root, settings=SEMANTIC) as memory:
        found = memory.recall("puppy")
        assert [hit.record.id for hit in found.hits] == ["pup"]
        (told,) = [each for each in found.degraded if each.code == "semantic-missing"]
        assert "wordllama" in told.message and "pip install 'h2ams[semantic]'" in told.message
        assert any(each.code == "semantic-missing" for each in memory.status().degraded)
        assert not has_table(memory)


def test_a_recall_with_the_setting_off_imports_nothing_of_it(root: Path) -> None:
    three(root)
    program = (
        "import sys, h2ams\n"
        f"with h2ams.Memory.open({str(root)!r}) as memory:\n"
        "    assert memory.recall('puppy').hits\n"
        "names = ('numpy', 'tokenizers', 'h2ams.index.vectors', 'h2ams.index.hybrid')\n"
        "print([name for name in names if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_recall_with_the_setting_on_never_imports_the_slow_package_itself(root: Path) -> None:
    three(root)
    (root / ".h2ams").mkdir()
    (root / ".h2ams" / "config.toml").write_text("semantic = true\n", encoding="utf-8")
    program = (
        "import sys, h2ams\n"
        f"with h2ams.Memory.open({str(root)!r}) as memory:\n"
        f"    assert memory.recall({QUESTION!r}).hits[0].record.id == 'pup'\n"
        "print([name for name in ('wordllama', 'requests', 'pydantic') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
