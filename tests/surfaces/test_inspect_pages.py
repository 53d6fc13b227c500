"""Pages of the inspector, asked without a wire: what they show and refuse, and how safely."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from folder import PLAIN, opened, segment_text, write
from hypothesis import given
from hypothesis import strategies as st
from surfaces.inspect_kit import (
    HOSTILE,
    SMALL,
    addresses_on,
    asked,
    build,
    hostile_folder,
    where,
)

from h2ams import Access, H2amsError, Memory
from h2ams.errors import (
    AccessError,
    ConflictError,
    IndexFaultError,
    LimitError,
    LockTimeoutError,
    NotFoundError,
    ReadOnlyError,
    RootError,
    ScopeError,
    StoreError,
    UsageError,
)
from h2ams.surfaces.inspect_memory import SCOPES_COUNT
from h2ams.surfaces.inspect_site import ACTIONS, PAGES, Site
from h2ams.surfaces.inspect_values import (
    HITS_MOST,
    SEGMENTS_COUNT,
    Inspecting,
    bar,
    diff_lines,
    paged,
    shown,
)

# What no page may hold: what drives a browser or deceives a reader, and what UTF-8 cannot hold.
DRIVING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
QUESTION = "why are rowids grouped by scope?"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    root = tmp_path_factory.mktemp("inspect") / "memory"
    build(root)
    with opened(root, settings=SMALL) as memory:
        yield memory


class Seen(HTMLParser):
    """What a browser would make of a page: its elements, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(memory: Memory, address: str, access: Access | None = None, status: int = 200) -> Seen:
    answer = asked(memory, address, access)
    assert answer.status == status, answer.html
    return Seen(answer.html)


# -- what the pages show ---------------------------------------------------------------------------


def test_the_overview_shows_counts_scopes_problems_and_the_state_of_the_index(
    world: Memory,
) -> None:
    text = page(world, "/").text
    status = world.status()
    assert "in sync" in text and status.index.digest in text
    assert f"{status.tokens:,}" in text
    assert "topic/broken/memory.md:4" in text and "invalid-yaml" in text
    for each in world.scope_counts():
        assert each.scope in text
    assert sum(each.segments for each in world.scope_counts()) == status.segments
    assert sum(each.notes for each in world.scope_counts()) == status.notes


def test_a_scope_shows_its_segments_with_file_and_line_and_its_summary(world: Memory) -> None:
    text = page(world, "/scope?name=user").text
    for record in world.list("user"):
        assert record.address in text and f"{record.path}:{record.line}" in text
    assert world.summary("user")[1].text in text
    retired = page(world, "/scope?name=sessions/core&archived=1").text
    archived = world.list("sessions/core", archived=True)
    assert archived and all(record.address in retired for record in archived)


def test_a_segment_shows_everything_that_is_known_of_it(world: Memory) -> None:
    record = next(each for each in world.list("sessions/core") if each.source_messages)
    text = page(world, where("/segment", address=record.address)).text
    for part in (record.body, record.digest, f"{record.path}:{record.line}", *record.tags):
        assert part in text
    cited = page(world, where("/sources", id=record.source_messages[0])).text
    assert record.address in cited
    assert "No segment cites" in page(world, "/sources?id=nothing").text


def test_recall_shows_each_term_of_each_score(world: Memory) -> None:
    answer = asked(world, where("/recall", q=QUESTION))
    hits = world.recall(QUESTION).hits
    assert addresses_on(answer.html) == [hit.record.address for hit in hits]
    text = Seen(answer.html).text
    for hit in hits:
        assert f"{hit.score:.3f}" in text
        assert f"{hit.record.path}:{hit.record.line}" in text
        for value in hit.terms.values():
            assert f"{value:.3f}" in text
    assert len(re.findall(r"<dt><span class=\"swatch", answer.html)) == sum(
        len(hit.terms) for hit in hits
    )


def test_the_filters_of_recall_are_those_of_the_engine(world: Memory) -> None:
    asked_for = {
        "kind": ({"kind": "decision"}, {"kinds": ["decision"]}),
        "tag": ({"tag": "rowid"}, {"tags": ["rowid"]}),
        "scope": ({"scope": "*/core/topic/*, user"}, {"scopes": ["*/core/topic/*", "user"]}),
        "after": ({"after": "2026-12-01"}, {"after": "2026-12-01"}),
        "before": ({"before": "2026-12-01"}, {"before": "2026-12-01"}),
        "limit": ({"limit": "3"}, {"limit": 3}),
    }  # fmt: skip
    seen = set()
    for fields, options in asked_for.values():
        answer = asked(world, where("/recall", q="scope", **fields))
        found = [hit.record.address for hit in world.recall("scope", **options).hits]
        assert addresses_on(answer.html) == found
        seen.add(tuple(found))
    assert len(seen) > 4  # or else the filters did nothing


def test_the_block_shows_layers_as_bars_and_every_rejected_candidate_with_its_reason(
    world: Memory,
) -> None:
    block = world.context(QUESTION, budget=900)
    seen = page(world, where("/context", q=QUESTION, budget="900"))
    assert block.text in seen.text and f"{block.tokens} of {block.budget} tokens" in seen.text
    assert block.receipt.rejected
    for each in block.receipt.rejected:
        assert each.address in seen.text and each.reason in seen.text
    labels = [each["aria-label"] for each in seen.named("svg")]
    assert labels[0] == f"{block.tokens} of {block.budget} tokens used"
    drawn = [each for each in seen.named("rect") if "part" in each["class"]]
    assert drawn and all(0 <= float(each["x"]) <= 1000 for each in drawn)
    for layer in block.receipt.layers.values():
        assert f"{layer.used} of {layer.limit} tokens" in seen.text
        for item in layer.items:
            assert item.address in seen.text and f"{item.path}:{item.line}" in seen.text
    # Looking is no turn: nothing counts as used.
    assert world.context(QUESTION, budget=900).receipt == block.receipt


def test_a_thread_is_a_timeline_with_its_summaries_and_what_they_saved(world: Memory) -> None:
    assert "planning" in page(world, "/threads").text
    text = page(world, "/thread?id=planning").text
    rows = [row for row in world.thread("planning", create=False).rows() if row.kind != "state"]
    summary = next(row for row in rows if row.kind == "summary")
    before, after = summary.payload["before_tokens"], summary.payload["after_tokens"]
    assert f"{before} → {after} tokens" in text
    assert f"{100 - 100 * after / before:.1f} % saved" in text
    timeline = text[text.index("Timeline") :]
    assert timeline.index("Part 10 keeps") < timeline.index("% saved")
    assert timeline.index("% saved") < timeline.index("And now the tests.")
    assert "You are a careful planner." in text


def test_a_stack_is_a_timeline_with_summary_savings_and_quota(world: Memory) -> None:
    listed = page(world, "/stacks").text
    assert "campaign" in listed and "sessions/core" in listed
    text = page(world, "/stack?id=campaign").text
    with world.stack("campaign", create=False) as workflow:
        stack, footprint = workflow.stack(), workflow.footprint()
        quota = workflow.plan().quota_bytes
    assert stack.summary is not None
    saved = 100 - 100 * len(stack.summary.text) / stack.summary.chars
    assert f"{saved:.1f} % saved" in text and stack.summary.call_id in text
    assert f"{footprint.bytes:,} of {quota:,} bytes" in text
    assert "The guard was fooled." in text and "A bell rang in the city." in text
    for exchange in stack.exchanges:
        assert exchange.assistant in text
    scene = page(world, "/stack?id=campaign&scene=southgate").text
    assert "I climb." in scene and "The guard was fooled." not in scene
    assert "Hello?" in page(world, "/stack?id=notes&owner=sessions/core").text
    page(world, "/stack?id=notes", status=404)
    page(world, "/stack?id=campaign&scene=nowhere", status=404)


def test_a_pass_of_dream_shows_the_diff_of_each_file(world: Memory) -> None:
    (record,) = world.dreams.status().passes
    assert record.pass_id in page(world, "/dream").text
    text = page(world, where("/pass", id=record.pass_id)).text
    _, changes = world.dreams.changes(record.pass_id)
    assert {each.scope for each in changes} == {"sessions/core", "user"}
    for each in changes:
        assert each.path in text
        for line in each.diff.splitlines()[2:]:
            assert line in text
    assert "+We decided to ship the indexer in May." in text


def test_the_diff_of_a_pass_that_was_undone_is_gone_and_that_is_said(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    talk = [{"id": "m1", "role": "user", "content": "We decided to ship in May."}]
    with opened(root) as memory:
        done = memory.dreams.run("sessions/s1", talk, model="rules")
        memory.dreams.undo(done.report.pass_id)
        text = page(memory, where("/pass", id=done.report.pass_id)).text
        assert "This pass was undone." in text
        assert "ship in May" not in text
        assert "undone" in page(memory, "/dream").text


def test_looking_changes_no_file(world: Memory) -> None:
    def files() -> dict[Path, bytes]:
        kept = (path for path in Path(world.root).rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in kept if ".db" not in path.name}

    (record,) = world.dreams.status().passes
    addresses = [
        *PAGES, "/scope?name=user", "/thread?id=planning", "/stack?id=campaign",
        where("/recall", q=QUESTION), where("/context", q=QUESTION, budget="900"),
        where("/segment", address="user#none"), where("/pass", id=record.pass_id),
    ]  # fmt: skip
    asked(world, "/")
    before = files()
    for address in addresses:
        asked(world, address)
    assert files() == before and len(before) > 30


# -- an empty folder, many things ------------------------------------------------------------------


def test_an_empty_folder_has_pages_that_say_so(tmp_path: Path) -> None:
    with opened(tmp_path / "memory") as memory:
        for address in ("/", "/recall", "/context", "/threads", "/stacks", "/dream"):
            assert 'class="empty"' in asked(memory, address).html, address
        assert "No matches" in page(memory, "/recall?q=anything").text
        assert "The block is empty" in page(memory, "/context?q=anything&budget=5").text


def test_many_segments_come_in_pages_and_none_is_lost(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    count = 2 * SEGMENTS_COUNT + 7
    write(root, "user/memory.md", *(segment_text(f"s{n}", f"Text {n}.") for n in range(count)))
    with opened(root) as memory:
        seen: list[str] = []
        address: str | None = "/scope?name=user"
        while address:
            html = asked(memory, address).html
            seen += re.findall(r'<h3 class="mono"><a[^>]*>user#(s\d+)<', html)
            after = re.search(r'rel="next" href="([^"]*)"', html)
            address = after[1].replace("&amp;", "&") if after else None
        assert seen == [f"s{n}" for n in range(count)]
        last = page(memory, "/scope?name=user&page=999999999").text
        assert "Page 3 of 3" in last


def test_many_scopes_come_in_pages_too(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    names = [f"topic/t{number:03}" for number in range(SCOPES_COUNT + 3)]
    for name in names:
        write(root, f"{name}/memory.md", segment_text("s", "Text."))
    with opened(root) as memory:
        first, second = (asked(memory, f"/?scopes={number}").html for number in (1, 2))
    link = re.compile(r'href="/scope\?name=topic%2F(t\d+)"')
    assert [f"topic/{each}" for each in link.findall(first) + link.findall(second)] == names
    assert 'href="/?scopes=2"' in first and 'href="/?scopes=1"' in second


@given(st.lists(st.integers(), max_size=50), st.none() | st.integers(0, 99), st.integers(1, 9))
def test_pages_part_what_there_is(things: list[int], wanted: int | None, most: int) -> None:
    found, pages = paged(things, wanted, most)
    assert list(found) == things[pages.first - 1 : pages.first - 1 + most]
    assert 1 <= pages.number <= pages.count and pages.total == len(things)
    every = [
        each for number in range(1, pages.count + 1) for each in paged(things, number, most)[0]
    ]
    assert every == things
    assert (pages.before is None) == (pages.number == 1)
    assert (pages.after is None) == (pages.number == pages.count)


@given(
    st.lists(st.tuples(st.text(max_size=3), st.floats(-1e9, 1e9)), max_size=9),
    st.floats(-1e9, 1e9),
)
def test_a_bar_is_never_longer_than_its_whole(
    values: list[tuple[str, float]], whole: float
) -> None:
    made = bar("label", values, whole)
    assert [part.name for part in made.parts] == [name for name, _ in values]
    ends = 0.0
    for part in made.parts:
        assert part.length >= 0 and part.start + part.length <= 1000.1
        assert part.start >= ends - 0.06 * len(values)
        ends = part.start + part.length


def test_a_diff_comes_line_by_line_with_its_signs() -> None:
    lines = diff_lines("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n")
    assert [(each.sign, each.text) for each in lines] == [
        ("@", "@@ -1 +1 @@"), ("-", "-old"), ("+", "+new"), (" ", " same")
    ]  # fmt: skip


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nothing", 404), ("/recall/", 404), ("//recall", 404), ("/../etc/passwd", 404),
        ("/static/../../etc/passwd", 404), ("/scope", 400), ("/scope?name=no/such", 400),
        ("/scope?name=user/../global", 400), ("/scope?name=topic/none", 404),
        ("/scope?name=", 400), ("/segment", 400), ("/segment?address=user", 400),
        ("/segment?address=user%23none", 404), ("/segment?address=%00", 400),
        ("/segment?address=user%2523x", 400), ("/sources", 400), ("/thread?id=none", 404),
        ("/thread?id=%00%FF", 404), ("/stack?id=none", 404), ("/stack?id=../../x", 404),
        ("/stack?id=campaign&owner=no/such/owner", 404), ("/pass?id=../../plans", 404),
        ("/pass?id=none", 404), ("/recall?q=x&limit=-1", 400), ("/recall?q=x&limit=abc", 400),
        ("/recall?q=x&limit=1e3", 400), ("/recall?q=x&limit=" + "9" * 5000, 400),
        ("/recall?q=x&limit=٣", 400), ("/recall?q=x&kind=nonsense", 400),
        ("/recall?q=x&after=yesterday", 400), ("/scope?name=user&page=x", 400),
        ("/context?q=x&budget=-5", 400), ("/context?q=x&window=x", 400),
        ("/context?q=x&language=../x", 400),
    ],
)  # fmt: skip
def test_a_bad_request_has_a_page_with_the_right_status_and_no_traceback(
    world: Memory, address: str, status: int
) -> None:
    answer = asked(world, address)
    assert answer.status == status, answer.html
    seen = Seen(answer.html)
    assert [each["role"] for each in seen.named("div") if "role" in each] == ["alert"]
    assert "Traceback" not in answer.html and len(answer.html) < 10_000


@pytest.mark.parametrize(
    "address",
    ["/recall?q=x&q=y&nonsense=1&page=&limit=", "/recall?q=%22&limit=999999999", "/recall?q=%00",
     "/recall?q=%ff%fe", "/recall?q=a*+NEAR(+OR+)", "/recall?" + "q=" + "word+" * 20_000,
     "/recall?q=+++", "/context?q=x&budget=0", "/context?q=x&budget=999999999", "/?page=0",
     "/scope?name=USER%2f..", "/threads?page=7", "/?page=7&owner=1&access=x"],
)  # fmt: skip
def test_an_odd_request_is_answered(world: Memory, address: str) -> None:
    answer = asked(world, address)
    assert answer.status in (200, 400)
    assert "Traceback" not in answer.html


def test_huge_limits_are_cut_and_that_is_said(world: Memory) -> None:
    text = page(world, "/recall?q=scope&limit=999999999").text
    assert f"At most {HITS_MOST} matches are shown here." in text


def test_only_the_methods_of_a_page_are_answered(world: Memory) -> None:
    for path in PAGES:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            assert asked(world, path, method=method).status == 405
    for path in ACTIONS:
        for method in ("GET", "HEAD", "PUT"):
            assert asked(world, path, method=method, write=True).status == 405


def test_what_is_the_owners_is_refused_to_others_and_not_in_their_navigation(
    world: Memory,
) -> None:
    access = Access(session="core")
    for address in ("/stacks", "/stack?id=campaign", "/stack?id=none", "/dream", "/pass?id=none"):
        text = page(world, address, access, 403).text
        assert "the owner's to see" in text
    assert "/stacks" not in asked(world, "/", access).html
    assert page(world, "/thread?id=planning", access).named("ol")
    page(world, "/thread?id=planning", Access(session="storage"), 404)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("x"), 400), (ScopeError("x"), 400), (NotFoundError("x"), 404),
        (AccessError("x"), 403), (ConflictError("x"), 409), (ReadOnlyError("x"), 409),
        (LimitError("x", name="n", limit=1, size=2), 413), (RootError("x"), 503),
        (LockTimeoutError("x", path="p"), 503), (IndexFaultError("x"), 503),
        (StoreError("x"), 500), (H2amsError("x"), 500), (OSError(28, "full", "x"), 500),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_every_kind_of_error_has_its_status(world: Memory, error: Exception, status: int) -> None:
    answer = Site(Inspecting(world, None)).failed(error)
    assert answer.status == status and "x" in Seen(answer.html).text


def test_every_address_of_a_block_leads_to_a_page(world: Memory) -> None:
    for budget in ("60", "300", "900"):
        html = asked(world, where("/context", q=QUESTION, budget=budget)).html
        links = {each.replace("&amp;", "&") for each in re.findall(r'href="(/s[^"]+)"', html)}
        links -= {"/static/inspect.css", "/stacks"}
        assert len(links) > 10
        assert all(asked(world, each).status == 200 for each in links - {"/static/icon.svg"})


def test_a_folder_that_is_removed_while_it_is_looked_at_is_said(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    with opened(root, state=tmp_path / "state") as memory:
        assert asked(memory, "/recall?q=tabs").status == 200
        shutil.rmtree(root)
        for address in ("/", "/recall?q=tabs", "/context?q=tabs", "/scope?name=user"):
            answer = asked(memory, address)
            assert answer.status == 503, (address, answer.html)
            assert str(root) in Seen(answer.html).text
        write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
        assert "Prefers tabs." in page(memory, "/recall?q=tabs").text


def test_an_index_that_breaks_while_it_is_looked_at_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    write(root, "user/memory.md", segment_text("s1", "Prefers tabs."))
    with opened(root) as memory:
        assert asked(memory, "/").status == 200
    data = bytearray((root / ".h2ams/index.db").read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    (root / ".h2ams/index.db").write_bytes(data)
    with opened(root) as memory:
        text = page(memory, "/recall?q=tabs").text
        assert "Prefers tabs." in text and "damaged" in text


def test_an_unexpected_error_is_a_page_too(world: Memory, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        root = "nowhere"

        def __getattr__(self, name: str) -> object:
            raise RuntimeError("not <b>expected</b>")

    answer = asked(Broken(), "/")  # type: ignore[arg-type]
    assert answer.status == 500
    assert "not <b>expected</b>" in Seen(answer.html).text
    assert "Traceback" not in answer.html
    assert "RuntimeError" in caplog.text


# -- text is text ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Memory, dict[str, str]]]:
    root = tmp_path_factory.mktemp("hostile") / "memory"
    addresses = hostile_folder(root)
    with opened(root, settings=PLAIN) as memory:
        yield memory, addresses


def elements(html: str) -> list[tuple[str, tuple[str, ...]]]:
    """The elements of a page with the names of their attributes."""
    return [(tag, tuple(attributes)) for tag, attributes in Seen(html).elements]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_text_adds_no_element_and_no_attribute(
    hostile: tuple[Memory, dict[str, str]], tmp_path: Path, name: str
) -> None:
    memory, addresses = hostile
    html = asked(memory, where("/segment", address=addresses[name]), write=True).html
    write(tmp_path, "topic/t0/memory.md", segment_text("x", "harmless", tags="[tag]"))
    with opened(tmp_path) as other:
        plain = asked(other, "/segment?address=topic/t0%23x", write=True).html
    mine = [each for each in elements(html) if each[0] != "form" or "class" in each[1]]
    body = Seen(html).text
    assert "hostile" in body
    if "<textarea" in html:  # it may be edited here: the page has the same elements
        assert elements(html) == elements(plain)
    else:
        assert set(mine) <= {*elements(plain), ("p", ("class",))}
    assert not any(attribute.startswith("on") for _, names in mine for attribute in names)
    for _, attributes in Seen(html).elements:
        for each in ("href", "src", "action"):
            assert re.match(r"[/#]", attributes.get(each, "/")), attributes


@pytest.mark.parametrize("path", ["/recall", "/context", "/scope"])
def test_hostile_texts_are_shown_as_they_are_on_every_page(
    hostile: tuple[Memory, dict[str, str]], path: str
) -> None:
    memory, addresses = hostile
    for name, address in addresses.items():
        fields = {"name": address.partition("#")[0]} if path == "/scope" else {"q": "hostile"}
        html = asked(memory, where(path, **fields, limit="100", budget="9000")).html
        text = Seen(html).text
        record = memory.get(address)
        if path == "/context":
            continue
        assert shown(record.body)[:60] in text, name
        assert all(tag != "script" or "src" in names for tag, names in elements(html))
        assert not DRIVING.search(html)
        html.encode("utf-8")


@pytest.mark.parametrize("field", ["q", "kind", "tag", "scope", "after", "limit", "budget", "id"])
@pytest.mark.parametrize("text", [HOSTILE["script"], HOSTILE["attribute"], HOSTILE["override"]])
def test_a_hostile_question_is_text_too(world: Memory, field: str, text: str) -> None:
    for path in ("/recall", "/context", "/segment", "/scope", "/thread", "/stack", "/pass"):
        fields = {"q": "x", "address": text, "name": text} | {field: text}
        html = asked(world, where(path, **fields)).html
        seen = Seen(html)
        assert [each for each in seen.named("script") if "src" not in each] == []
        assert seen.named("img") == [] and "\u202e" not in html
        assert not any(name.startswith("on") for _, each in seen.elements for name in each)


@given(st.text(st.characters(codec=None), max_size=30))
def test_whatever_is_shown_can_be_encoded_and_drives_nothing(text: str) -> None:
    said = shown(text)
    said.encode("utf-8")
    assert not DRIVING.search(said)
    assert shown(said) == said


def test_names_of_scopes_and_threads_are_text(tmp_path: Path) -> None:
    root = tmp_path / "memory"
    with opened(root) as memory:
        name = "<script>owned()</script>\u202e"
        memory.thread(name).append({"role": "user", "content": HOSTILE["script"]})
        with memory.stack(name) as workflow:
            workflow.create_game()
        for address in ("/threads", where("/thread", id=name), "/stacks", where("/stack", id=name)):
            answer = asked(memory, address)
            assert answer.status == 200, (address, answer.html)
            assert "<script>owned" not in answer.html and "\u202e" not in answer.html
            assert "<script>owned()</script>\\u202e" in Seen(answer.html).text
