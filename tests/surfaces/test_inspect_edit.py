"""Changing memory on a page: under a condition, with the mark of the form, and nothing is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from folder import opened, segment_text, write
from surfaces.inspect_kit import HOSTILE, MARK, asked, hostile_folder, where

from h2ams import Access, Memory
from h2ams.surfaces.inspect_values import Answer

ADDRESS = "user#s1"
FORM = re.compile(r'<form method="post" action="/segment/edit".*?</form>', re.DOTALL)
INPUT = re.compile(r'<input (?:type="hidden" |id="tags" )name="(\w+)" value="([^"]*)">')
TEXT = re.compile(r"<textarea[^>]*>\n(.*?)</textarea>", re.DOTALL)
KIND = re.compile(r"<option selected>([\w-]+)</option>")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    root = tmp_path / "memory"
    first = segment_text("s1", "Prefers tabs over spaces.", kind="preference", tags="[editor]")
    write(root, "user/memory.md", first, segment_text("s2", "Another one."))
    write(root, "user/notes.md", "# Notes\n\nA note.\n")
    with opened(root) as found:
        yield found


def form_on(memory: Memory, address: str, access: Access | None = None) -> dict[str, str]:
    """The fields of the form that a page shows, as a browser would send them."""
    html = asked(memory, where("/segment", address=address), access, write=True).html
    return fields_of(html)


def fields_of(html: str) -> dict[str, str]:
    form = FORM.search(html)
    assert form is not None, html
    fields = {name: unescape(value) for name, value in INPUT.findall(form[0])}
    body, kind = TEXT.search(form[0]), KIND.search(form[0])
    assert body is not None and kind is not None
    return fields | {"body": unescape(body[1]).replace("\n", "\r\n"), "kind": kind[1]}


def sent(memory: Memory, path: str, form: dict[str, str], access: Access | None = None) -> Answer:
    return asked(memory, path, access, method="POST", write=True, form=form)


def file(memory: Memory) -> str:
    return (Path(memory.root) / "user/memory.md").read_text("utf-8")


def test_an_edit_changes_the_segment_and_no_other_byte(memory: Memory) -> None:
    before = file(memory)
    form = form_on(memory, ADDRESS)
    assert form["body"] == "Prefers tabs over spaces." and form["tags"] == "editor"
    form |= {"body": "Prefers two blanks.\r\nAlways.", "tags": "editor, style", "kind": "fact"}
    answer = sent(memory, "/segment/edit", form)
    assert (answer.status, answer.location) == (303, "/segment?address=user%23s1&done=changed")
    record = memory.get(ADDRESS)
    assert (record.body, record.kind) == ("Prefers two blanks.\nAlways.", "fact")
    assert record.tags == ("editor", "style")
    rest = before[before.index("---\nid: s2") :]
    assert file(memory).endswith(rest)
    assert "The change is written." in asked(memory, answer.location).html


def test_a_form_sent_as_it_is_changes_no_byte(memory: Memory) -> None:
    before = file(memory)
    answer = sent(memory, "/segment/edit", form_on(memory, ADDRESS))
    assert answer.location.endswith("done=same")
    assert file(memory) == before


def test_a_hand_edit_in_between_is_a_conflict_and_nothing_is_lost(memory: Memory) -> None:
    form = form_on(memory, ADDRESS)
    path = Path(memory.root) / "user/memory.md"
    path.write_text(file(memory).replace("tabs over", "only"), encoding="utf-8")
    hand = file(memory)
    form["body"] = "Prefers <b>what I typed</b>."
    answer = sent(memory, "/segment/edit", form)
    assert answer.status == 409
    assert file(memory) == hand
    assert "Prefers only spaces." in answer.html  # what is there now
    again = fields_of(answer.html)  # and what was typed, ready to be sent knowingly
    assert again["body"] == "Prefers <b>what I typed</b>."
    assert again["expect"] == memory.get(ADDRESS).digest
    assert sent(memory, "/segment/edit", again).status == 303
    assert memory.get(ADDRESS).body == "Prefers <b>what I typed</b>."


def test_an_edit_of_a_segment_that_is_gone_shows_what_was_typed(memory: Memory) -> None:
    form = form_on(memory, ADDRESS)
    memory.forget(ADDRESS)
    answer = sent(memory, "/segment/edit", form | {"body": "Typed long ago."})
    assert answer.status == 409
    assert "The segment is gone." in answer.html and "Typed long ago." in answer.html


@pytest.mark.parametrize(
    "change",
    [{"body": " \r\n "}, {"body": "x" * 200_000}, {"kind": "nonsense"}],
    ids=["blank", "too long", "kind"],
)
def test_what_cannot_be_written_comes_back_with_the_reason(
    memory: Memory, change: dict[str, str]
) -> None:
    before = file(memory)
    form = form_on(memory, ADDRESS) | {"body": "Typed with care."} | change
    answer = sent(memory, "/segment/edit", form)
    assert answer.status == 400
    assert file(memory) == before
    assert "Nothing was written" in answer.html
    again = fields_of(answer.html)
    assert again["body"].strip() == form["body"].strip()
    assert again["kind"] == "preference"


def test_a_secret_that_is_typed_is_replaced_and_that_is_said(memory: Memory) -> None:
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8" * 3
    form = form_on(memory, ADDRESS) | {"body": f"The key is {secret}."}
    answer = sent(memory, "/segment/edit", form)
    assert answer.location.endswith("done=redacted") and secret not in file(memory)
    assert "what looked like a secret was replaced" in asked(memory, answer.location).html


def test_forgetting_needs_the_digest_that_was_seen_and_can_be_taken_back(memory: Memory) -> None:
    before = file(memory)
    form = form_on(memory, ADDRESS)
    wrong = sent(memory, "/segment/forget", form | {"expect": "0" * 64})
    assert wrong.status == 409 and file(memory) == before
    done = sent(memory, "/segment/forget", form)
    assert done.status == 303 and "Prefers tabs" not in file(memory)
    page = asked(memory, done.location, write=True).html
    assert "user#s1</span> was forgotten" in page and "Bring it back" in page
    back = sent(memory, "/segment/restore", {"mark": MARK, "address": ADDRESS})
    assert back.location == "/segment?address=user%23s1&done=restored"
    assert memory.get(ADDRESS).body == "Prefers tabs over spaces."


@pytest.mark.parametrize("path", ["/segment/edit", "/segment/forget", "/segment/restore"])
def test_a_form_without_the_mark_of_this_session_is_refused(memory: Memory, path: str) -> None:
    before = file(memory)
    form = form_on(memory, ADDRESS) | {"body": "Planted."}
    for mark in ("", "wrong", MARK + "x", MARK[:-1], "\udcff", "é"):
        assert sent(memory, path, form | {"mark": mark}).status == 403
    del form["mark"]
    assert sent(memory, path, form).status == 403
    assert file(memory) == before


@pytest.mark.parametrize("path", ["/segment/edit", "/segment/forget", "/segment/restore"])
def test_without_write_nothing_can_be_changed(memory: Memory, path: str) -> None:
    before = file(memory)
    form = form_on(memory, ADDRESS) | {"body": "Planted."}
    assert asked(memory, path, method="POST", write=False, form=form).status == 403
    assert file(memory) == before
    html = asked(memory, where("/segment", address=ADDRESS)).html
    assert "<form" not in html and "reading only" in html


def test_an_access_writes_where_it_may_and_is_shown_no_form_elsewhere(memory: Memory) -> None:
    reader, writer = Access(session="s", user="read"), Access(session="s", user="write")
    html = asked(memory, where("/segment", address=ADDRESS), reader, write=True).html
    assert "<form" not in html and "may not write to user" in html
    form = form_on(memory, ADDRESS)
    assert sent(memory, "/segment/edit", form | {"body": "Planted."}, reader).status == 403
    assert sent(memory, "/segment/forget", form, reader).status == 403
    assert sent(memory, "/segment/edit", form | {"body": "Mine."}, writer).status == 303
    assert memory.get(ADDRESS).body == "Mine."


def test_a_note_and_a_masked_secret_are_edited_in_their_file(memory: Memory) -> None:
    secret = "The key is sk-proj-" + "a1B2c3D4e5F6g7H8" * 3 + " for the build."
    write(Path(memory.root), "global/memory.md", segment_text("s3", secret))
    note = next(record for record in memory.list("user") if record.is_note)
    for address in (note.address, "global#s3"):
        html = asked(memory, where("/segment", address=address), write=True).html
        assert "<form" not in html and "Not to be changed here" in html
    assert "a1B2c3D4" not in html  # what is shown is masked, and so it must not be written back
    assert secret in (Path(memory.root) / "global/memory.md").read_text("utf-8")


def test_hostile_texts_survive_their_form_or_have_none(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    addresses = hostile_folder(root)
    with opened(root) as memory:
        before = {path: path.read_bytes() for path in root.rglob("*.md")}
        edited = 0
        for name, address in addresses.items():
            html = asked(memory, where("/segment", address=address), write=True).html
            if "<textarea" not in html:
                assert name in ("control", "null", "bytes"), name
                assert "Not to be changed here" in html
                continue
            answer = sent(memory, "/segment/edit", fields_of(html))
            assert answer.location.endswith("done=same"), name
            edited += 1
        assert edited == len(HOSTILE) - 3
        assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
