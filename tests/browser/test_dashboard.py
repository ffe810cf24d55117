"""The dashboard in a real browser, against a pipeline that runs, with poison in its topic."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sessions
from dashboards import HOSTILE, Pipeline, pipeline
from playwright.sync_api import Browser, expect
from support import Cluster
from visits import LAPTOP, PAGES, PHONE, Visit
from waiting import eventually

from forebay.web.server import Dashboard

BAD = 12


@pytest.fixture(scope="module")
def made(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    home = tmp_path_factory.mktemp("browser") / "home"
    with sessions.connect(home) as session, pipeline(session, cluster) as running:
        running.send(
            *sessions.events(range(20)),
            *(_bad(number) for number in range(100, 100 + BAD)),
            '{"id": 1, "k": ',
        )
        running.backend.desk.refresh(running.source)
        yield running


@pytest.fixture(scope="module")
def address(made: Pipeline) -> Iterator[str]:
    with Dashboard(made.backend, port=0) as dashboard:
        yield dashboard.url


def _bad(number: int) -> str:
    return sessions.event(number, v=f"{number} EUR")


def _open_group(visit: Visit) -> None:
    """From what is wrong to the letter, as somebody would go."""
    visit.go("/", ".problem")
    visit.page.get_by_role("link", name="Look at it").first.click()
    visit.page.get_by_role("link", name=re.compile("expected BIGINT")).first.click()
    expect(visit.page.locator(".verdict")).to_contain_text("refuses")


def test_from_what_is_wrong_to_a_repaired_record_in_the_view(visit: Visit, made: Pipeline) -> None:
    _open_group(visit)
    page = visit.page
    expect(page.locator(".payload mark").first).to_contain_text("EUR")
    wrong = page.locator(".payload").first.inner_text()
    id = json.loads(wrong)["id"]
    visit.shoot("desk")
    visit.type_into(".editor", wrong.replace(f'"{id} EUR"', "4711"))
    expect(page.locator(".verdict")).to_contain_text("accepts")
    visit.shoot("desk-repaired")
    page.get_by_role("button", name="Replay the repaired record").click()
    expect(page.locator(".job")).to_contain_text("1 in the view")
    visit.shoot("desk-replayed")
    assert sessions.rows(made.session, f"SELECT v FROM {made.view} WHERE id = {id}") == [(4711,)]


def test_a_replacement_repairs_the_whole_group_and_its_rows_arrive_in_the_view(
    visit: Visit, made: Pipeline
) -> None:
    _open_group(visit)
    page = visit.page
    page.get_by_role("tab", name="Whole group").click()
    page.get_by_role("button", name="Merge patch").click()
    visit.type_into(".editor", '{"v": 12}')
    expect(page.get_by_text(re.compile(r"(\d) of \1 samples would be accepted"))).to_be_visible()
    visit.shoot("desk-patch")
    page.get_by_role("button", name="Replace in a field").click()
    expect(page.get_by_text(re.compile("samples would be accepted"))).to_be_hidden()
    expect(page.get_by_label("Field")).to_have_value("v")
    page.get_by_label("Pattern").fill(" EUR$")
    expect(page.get_by_text(re.compile(r"(\d) of \1 samples would be accepted"))).to_be_visible()
    assert visit.faults() == []
    visit.shoot("desk-replacement")
    page.get_by_role("button", name="Replay all, repaired").click()
    expect(page.get_by_label("To another topic")).to_have_value("")
    page.get_by_label("At most so many a second").fill("500")
    visit.shoot("desk-replay-asked")
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.locator(".job").first).to_contain_text(re.compile(rf"{BAD - 1} of {BAD - 1} letters"))
    expect(page.locator(".job").first).to_contain_text(f"{BAD - 1} in the view")
    expect(page.locator(".tile").filter(has_text="Open").locator(".tile-value")).to_have_text("0")
    visit.go(f"/view?name={made.view}", ".grid tbody tr")
    expect(page.locator(".tile").filter(has_text="Rows").locator(".tile-value")).to_have_text(str(20 + BAD))
    visit.shoot("view")
    found = sessions.rows(made.session, f"SELECT id, v FROM {made.view} WHERE v <> 4711")
    assert sum(id == v for id, v in found) >= BAD - 1


def test_a_letter_is_discarded_with_a_reason_and_the_audit_log_has_it(visit: Visit, made: Pipeline) -> None:
    visit.go("/letters", ".grid tbody tr")
    page = visit.page
    page.get_by_role("link", name=re.compile("JSON|end|EOF")).first.click()
    page.get_by_role("tab", name="Hex").click()
    expect(page.locator(".payload.hex mark").first).to_be_visible()
    visit.shoot("desk-hex")
    page.get_by_role("tab", name=re.compile("Repair|Value")).click()
    page.get_by_role("button", name="Discard").last.click()
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()  # a reason is asked for
    page.get_by_label("Reason").fill("half a record")
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.locator(".tile").filter(has_text="Discarded").locator(".tile-value")).to_have_text("1")
    visit.go("/audit", ".grid tbody tr")
    expect(page.locator("main")).to_contain_text("half a record")
    visit.shoot("audit")


def test_a_source_is_paused_and_resumed_and_its_policy_changed_after_a_question(
    visit: Visit, made: Pipeline
) -> None:
    visit.go(f"/source?name={made.source}")
    page = visit.page
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator("main .badge").first).to_have_text("paused")
    assert made.backend.source(made.source).row.paused
    visit.shoot("source-paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("main .badge").first).to_have_text(re.compile("running|starting"))
    page.get_by_role("button", name="Change ON ERROR").click()
    page.get_by_role("radio", name=re.compile("^skip")).click()
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(page.locator("main")).to_contain_text("ON ERROR skip")
    made.backend.set_on_error(
        made.source, f"'dead_letter' WITH (dead_letter_topic = '{made.letters}')", "test"
    )


def test_the_worksheet_completes_shows_where_a_statement_is_wrong_and_draws_a_result(
    visit: Visit, made: Pipeline
) -> None:
    visit.go("/sql", ".cm-content")
    page = visit.page
    visit.type_into(".editor", "")
    page.keyboard.type(f"SELECT * FROM {made.view[:-1]}")
    expect(page.locator(".cm-tooltip-autocomplete")).to_contain_text(made.view)
    page.keyboard.press("Escape")
    visit.type_into(".editor", f"SELECT k,\n  boom FROM {made.view}")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".cm-fault")).to_have_text("boom")
    expect(page.locator("main .definition").first).to_contain_text("^")
    visit.shoot("sql-error")
    visit.type_into(".editor", f"SELECT k, count(*) AS many FROM {made.view} GROUP BY k")
    page.get_by_role("button", name="Run").click()
    expect(page.locator(".grid tbody tr")).to_have_count(2)
    page.get_by_role("button", name="Bars").click()
    expect(page.locator(".nicegui-echart canvas").first).to_be_visible()
    visit.shoot("sql-chart")


def test_a_test_record_shows_up_in_its_topic_and_in_the_live_tail(visit: Visit, made: Pipeline) -> None:
    visit.go(f"/view?name={made.view}")
    page = visit.page
    page.get_by_role("tab", name="Live tail").click()
    expect(page.get_by_text("Waiting for the next change")).to_be_visible()
    made.backend.produce(made.topic, "k", sessions.event(9001), {}, "test")
    expect(page.locator(".grid:visible tbody")).to_contain_text("9001")
    visit.go(f"/topic?name={made.topic}", ".grid tbody tr")
    page.get_by_role("button", name="Produce a test record").click()
    page.get_by_label("Value").fill(sessions.event(9002))
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    expect(page.locator(".grid tbody")).to_contain_text('"id": 9002')
    page.locator(".grid tbody tr", has_text="9002").click()
    expect(page.get_by_text("As the source reads it")).to_be_visible()
    visit.shoot("topic")


def test_a_replay_is_stopped_while_it_runs_and_a_selection_replayed_and_discarded(
    visit: Visit, made: Pipeline
) -> None:
    made.send(*(json.dumps({"id": "no number", "k": "a", "v": number}) for number in range(30)))
    made.backend.desk.refresh(made.source)
    page = visit.page
    visit.go("/letters", ".grid tbody tr a")
    page.get_by_role("link", name=re.compile("^id")).first.click()
    page.get_by_role("tab", name="Whole group").click()
    page.get_by_role("button", name="Replay all as they are").click()
    page.get_by_label("At most so many a second").fill("1")
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    running = page.locator(".job").first
    expect(running).to_contain_text(re.compile(r"[1-9]\d* of 30 letters"))
    visit.shoot("replay-running")
    page.get_by_role("button", name="Stop").click()
    expect(running.locator(".badge").first).to_have_text("stopped")
    visit.shoot("replay-stopped")
    [status, *_] = made.backend.desk.jobs()
    assert 0 < status.sent < 30
    # Each has a new letter in this list, which must not move while some are picked.
    expect(running).to_contain_text(f"{status.sent} failed again")
    assert ("stop replay", "done") in {(each.action, each.outcome) for each in made.backend.audit()}
    boxes = page.locator(".grid tbody .pick input")
    for place in range(2):
        boxes.nth(place).check()
    expect(page.get_by_text("2 letters selected")).to_be_visible()
    panel = page.get_by_role("region", name="Letters", exact=True)
    panel.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog").get_by_role("button", name="Replay").click()
    expect(page.locator(".job").first).to_contain_text("2 of 2 letters")
    page.get_by_label("Select all on this page").check()
    expect(page.get_by_text(re.compile(r"\d\d letters selected"))).to_be_visible()
    visit.shoot("letters-selected")
    panel.get_by_role("button", name="Discard").click()
    page.get_by_label("Reason").fill("a test")
    page.get_by_role("dialog").get_by_role("button", name="Discard").click()
    expect(page.locator(".tile").filter(has_text="Discarded").locator(".tile-value")).not_to_have_text("0")


def test_letters_of_kafka_connect_are_watched_and_shown(visit: Visit, made: Pipeline) -> None:
    topic = made.cluster.make_topic(1)
    about = {
        "topic": b"orders", "partition": b"3", "offset": b"17", "connector.name": b"sink", "stage": b"VALUE_CONVERTER",
        "exception.class.name": b"org.apache.kafka.connect.errors.DataException", "exception.message": b"no schema",
    }  # fmt: skip
    headers = [(f"__connect.errors.{name}", data) for name, data in about.items()]
    made.cluster.produce(topic, ['{"amount": "12 EUR"}'], headers=headers)
    page = visit.page
    visit.go("/letters")
    page.get_by_role("button", name="Watch a topic").click()
    page.get_by_role("dialog").get_by_label("Topic").fill(topic)
    page.get_by_role("dialog").get_by_role("button", name="Watch").click()
    owners = page.get_by_role("table", name="Whose letters")
    expect(owners).to_contain_text("Kafka Connect")
    page.get_by_role("link", name="no schema").click()
    expect(page.locator("main")).to_contain_text("DataException")
    expect(page.locator(".payload").first).to_contain_text("12 EUR")
    visit.shoot("letter-of-connect")
    assert visit.faults() == []
    made.backend.desk.forget_topic(topic)


@contextmanager
def _another(made: Pipeline, *flags: str, **environment: str) -> Iterator[str]:
    """The dashboard of the same home in a process of its own."""
    command = [
        sys.executable, "-m", "forebay", "ui", "--home", str(made.session.home), "--port", "0", "--no-open", *flags,
    ]  # fmt: skip
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield next(line for line in process.stderr if "dashboard at" in line).split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_with_a_token_read_only_and_hidden_payloads_a_guest_looks_and_changes_nothing(
    browser: Browser, made: Pipeline, screenshots: Path
) -> None:
    made.send(_bad(9_400))
    made.backend.desk.refresh(made.source)
    token = "a-token-of-many-letters"
    with _another(made, "--read-only", "--hide-payloads", FOREBAY_UI_TOKEN=token) as address:
        visit = Visit(browser, address, screenshots)
        page = visit.page
        visit.go(f"/source?name={made.source}", "#token")
        page.get_by_label("Token").fill("a-wrong-token-of-many-letters")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_have_text("This is not the token.")
        visit.complaints.clear()  # the browser's word about the 401
        assert visit.faults() == []
        visit.shoot("login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("main h1").first).to_contain_text(made.source)  # where the login was asked for
        expect(page.locator("header")).to_contain_text("read-only")
        expect(page.locator("header")).to_contain_text("payloads hidden")
        for name in ("Pause", "Change ON ERROR"):
            expect(page.get_by_role("button", name=name)).to_be_disabled()
        visit.shoot("source-read-only")
        visit.go("/letters", ".grid tbody tr a")
        page.get_by_role("link", name=re.compile("expected BIGINT")).first.click()
        expect(page.locator("main")).to_contain_text("payloads are hidden")
        expect(page.locator("main")).not_to_contain_text("9400 EUR")
        expect(page.get_by_role("button", name=re.compile("^Replay|^Discard")).and_(page.locator(":enabled:visible"))).to_have_count(0)  # fmt: skip
        assert visit.faults() == []
        visit.shoot("letter-hidden")
        visit.go("/sql", ".cm-content")
        visit.type_into(".editor", f"PAUSE SOURCE {made.source}")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("main")).to_contain_text("read-only")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        visit.go("/", "#token")
        visit.close()
    assert not made.backend.source(made.source).row.paused


def test_hostile_keys_values_headers_and_names_run_nothing(visit: Visit, made: Pipeline) -> None:
    names = {text: text for text in HOSTILE if "\u0000" not in text}
    for text in HOSTILE:
        value = json.dumps({"id": text, "k": text, **names})
        made.cluster.produce(
            made.topic, [text, value], key=text, headers=[(text.replace("\u0000", ""), text.encode())]
        )
    sessions.caught_up(made.session)
    made.backend.desk.refresh(made.source)
    page = visit.page
    visit.go(f"/topic?name={made.topic}", ".grid tbody tr")
    for row in page.locator(".grid tbody tr").all()[: len(HOSTILE)]:
        row.click()
    expect(page.get_by_role("heading", name="Headers")).to_be_visible()
    visit.go("/letters", ".grid tbody tr a")
    for place in range(page.locator(".grid tbody tr a[href*=group]").count()):
        visit.go("/letters", ".grid tbody tr a")
        page.locator(".grid tbody tr a[href*=group]").nth(place).click()
        expect(page.locator(".payload").first).to_be_visible()
        page.get_by_role("tab", name="Key and headers").click()
        expect(page.get_by_role("heading", name="Headers")).to_be_visible()
    visit.shoot("hostile")
    name = HOSTILE[1]
    for path in (
        "/source?name=",
        "/view?name=",
        "/topic?name=",
        "/letters/group?id=",
        "/sql?text=",
        "/letters?search=",
        "/agents?type=",
    ):
        visit.go(f"{path}{name}")
    eventually(lambda: page.evaluate("document.readyState") == "complete", "the page is there")
    visit.complaints[:] = [each for each in visit.complaints if "404" not in each]


def test_axe_finds_nothing_serious_on_any_page_in_light_and_in_dark(visit: Visit, made: Pipeline) -> None:
    """All pages in light; in dark, where nothing but the colours differs, those that have all of them."""
    mine = {
        "source": f"/source?name={made.source}",
        "view": f"/view?name={made.view}",
        "topic": f"/topic?name={made.topic}",
    }
    made.cluster.produce(made.topic, [_bad(9_100)])  # others have replayed what there was
    [group, *_] = eventually(
        lambda: [each.id for each in made.backend.desk.groups(state="open").groups], "a letter is open"
    )
    light = {**PAGES, **mine, "group": f"/letters/group?id={group}"}
    dark = {name: light[name] for name in ("overview", "source", "group", "sql")}
    found: list[str] = []
    for scheme, pages in (("light", light), ("dark", dark)):
        page = visit.resize(LAPTOP, scheme)
        for name, path in pages.items():
            visit.go(path)
            if name == "group":
                expect(page.locator(".payload").first).to_be_visible()
            visit.shoot(f"{name}-{scheme}")
            found += [f"{name} in {scheme}: {fault}" for fault in visit.faults()]
    assert found == []


WIDER = """() => [...document.querySelectorAll("body *")].filter(
    each => each.getBoundingClientRect().right > window.innerWidth).slice(-5).map(each => each.outerHTML.slice(0, 300))"""


def test_a_phone_shows_every_page_without_scrolling_sideways(visit: Visit, made: Pipeline) -> None:
    page = visit.resize(PHONE)
    fits = f"document.documentElement.scrollWidth <= {PHONE['width']}"
    pages = {**PAGES, "source": f"/source?name={made.source}", "view": f"/view?name={made.view}"}
    for name, path in pages.items():
        visit.go(path)
        # A chart has its width a moment after its page.
        eventually(lambda: page.evaluate(fits), f"{name} fits, where these do not: {page.evaluate(WIDER)}")
        if name in ("overview", "letters", "source"):
            visit.shoot(f"{name}-phone", full=True)
    visit.go("/letters", ".grid tbody tr a")
    page.locator(".grid tbody tr a[href*=group]").first.click()
    expect(page.locator(".payload").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    visit.shoot("group-phone", full=True)
