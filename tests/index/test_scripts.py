"""Each script is served alike: words of two characters, and parallel questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from folder import opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st

HAN = "用户认证保存的什么漢字學習北京天气数据库設計測試记忆搜索引擎"
KANA = "しりとりカタナーひらがなテスト"
HANGUL = "사용자인증저장검색기억한국어"
RUN = st.one_of(
    *(st.text(st.sampled_from(script), min_size=2, max_size=12) for script in (HAN, KANA, HANGUL))
)


@given(st.lists(st.lists(RUN, min_size=1, max_size=4), min_size=1, max_size=8))
def test_every_word_of_two_characters_of_every_segment_finds_its_segment(
    tmp_path_factory: pytest.TempPathFactory, bodies: list[list[str]]
) -> None:
    root = tmp_path_factory.mktemp("pairs")
    texts = ["，".join(runs) for runs in bodies]
    write(root, "user/memory.md", *(segment_text(f"s{n}", text) for n, text in enumerate(texts)))
    with opened(root) as memory:
        for number, runs in enumerate(bodies):
            for pair in {run[at : at + 2] for run in runs for at in range(len(run) - 1)}:
                found = memory.recall(pair, limit=100)
                assert not found.relaxed or number not in _holding(texts, pair)
                assert f"s{number}" in {hit.record.id for hit in found.hits}, (pair, texts[number])


def _holding(texts: list[str], pair: str) -> list[int]:
    return [number for number, text in enumerate(texts) if pair in text]


FACTS = {
    "en": [
        ("The backup runs every night at two.", "When does the backup run?"),
        ("Anna is allergic to peanuts.", "What is Anna allergic to?"),
        ("The database was moved to Frankfurt.", "Where was the database moved?"),
        ("We chose tabs over spaces.", "Did we choose tabs or spaces?"),
        ("The printer needs a new cartridge.", "What does the printer need?"),
    ],
    "ru": [
        ("Резервное копирование идёт каждую ночь в два часа.", "Когда идёт резервное копирование?"),
        ("У Анны аллергия на арахис.", "На что у Анны аллергия?"),
        ("Базу данных перенесли во Франкфурт.", "Куда перенесли базу данных?"),
        ("Мы выбрали табуляцию вместо пробелов.", "Выбрали мы табуляцию или пробелы?"),
        ("Принтеру нужен новый картридж.", "Что нужно принтеру?"),
    ],
    "zh": [
        ("备份每天凌晨两点运行。", "备份什么时候运行？"),
        ("安娜对花生过敏。", "安娜对什么过敏？"),
        ("数据库迁移到了法兰克福。", "数据库迁移到了哪里？"),
        ("我们选择了制表符而不是空格。", "我们选择制表符还是空格？"),
        ("打印机需要新的墨盒。", "打印机需要什么？"),
    ],
    "ja": [
        ("バックアップは毎晩二時に実行される。", "バックアップはいつ実行されますか？"),
        ("アンナはピーナッツアレルギーです。", "アンナは何のアレルギーですか？"),
        ("データベースはフランクフルトに移された。", "データベースはどこに移されましたか？"),
        ("私たちはタブを選んだ。", "タブとスペースのどちらを選んだ？"),
        ("プリンターには新しいカートリッジが必要だ。", "プリンターには何が必要ですか？"),
    ],
    "ko": [
        ("백업은 매일 밤 두 시에 실행된다.", "백업은 언제 실행되나요?"),
        ("안나는 땅콩 알레르기가 있다.", "안나는 무슨 알레르기가 있나요?"),
        ("데이터베이스를 프랑크푸르트로 옮겼다.", "데이터베이스를 어디로 옮겼나요?"),
        ("우리는 탭을 선택했다.", "탭과 공백 중 무엇을 선택했나요?"),
        ("프린터에 새 카트리지가 필요하다.", "프린터에 무엇이 필요한가요?"),
    ],
    "de": [
        ("Die Sicherung läuft jede Nacht um zwei.", "Wann läuft die Sicherung?"),
        ("Anna ist gegen Erdnüsse allergisch.", "Wogegen ist Anna allergisch?"),
        ("Die Datenbank wurde nach Frankfurt verlegt.", "Wohin wurde die Datenbank verlegt?"),
        ("Wir haben Tabulatoren gewählt.", "Haben wir Tabulatoren oder Leerzeichen gewählt?"),
        ("Der Drucker braucht eine neue Patrone.", "Was braucht der Drucker?"),
    ],
}


@pytest.mark.parametrize("language", sorted(FACTS))
def test_parallel_questions_find_their_fact_first_in_every_language(
    tmp_path: Path, language: str
) -> None:
    """All languages in one scope; no flag says which one is asked in."""
    for each, facts in FACTS.items():
        segments = (segment_text(f"{each}{n}", fact) for n, (fact, _) in enumerate(facts))
        write(tmp_path / "root", f"sessions/s/topic/{each}/memory.md", *segments)
    with opened(tmp_path / "root") as memory:
        for number, (_, question) in enumerate(FACTS[language]):
            hits = memory.recall(question, limit=10).hits
            assert hits[0].record.id == f"{language}{number}", question
