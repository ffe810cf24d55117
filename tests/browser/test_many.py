"""A hundred thousand letters and two hundred sources: the dashboard stays quick."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import expect
from support import QUIET, Cluster, unique
from visits import Visit

import forebay
from forebay.catalog import Catalog
from forebay.deadletter.letter import Letter
from forebay.runtime.known import SourceFacts
from forebay.web.backend import Backend
from forebay.web.server import Dashboard

LETTERS = int(os.environ.get("FOREBAY_MANY_LETTERS", "20000"))
SOURCES = 200
FIRST_VIEW_S = 2.0
INTERACTION_S = 0.3
# What a machine with other work on it may take besides; the bounds above are those of a machine of one's own.
TURNS = 5
PATIENCE = float(os.environ.get("FOREBAY_BROWSER_PATIENCE", "2"))
KINDS = (("TypeConversion", "amount", "amount: expected DOUBLE, found string '{n} EUR'"), ("SchemaMismatch", "id", "id: the column is NOT NULL and the record has no such field"), ("MalformedPayload", None, "invalid JSON at byte {n}"))  # fmt: skip


@pytest.fixture(scope="module")
def address(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("many") / "home"
    topic, letters = cluster.make_topic(4), cluster.make_topic(4)
    _define(home, cluster, topic, letters)
    _write(cluster, topic, letters)
    backend = Backend(home)
    backend.desk.refresh("s000", timeout=120)
    with Dashboard(backend, port=0) as dashboard:
        yield dashboard.url


def _define(home: Path, cluster: Cluster, topic: str, letters: str) -> None:
    """Two sources are made as a user makes them; the others are copies of the second in the catalog: nothing of them runs."""
    made = f"(id BIGINT NOT NULL, amount DOUBLE) FROM KAFKA (brokers = '{cluster.bootstrap_servers}', topic = '{topic}', group_id = '{{}}') FORMAT JSON"
    with forebay.connect(home=home) as session:
        session.execute(
            f"CREATE SOURCE s000 {made.format(unique('many'))} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{letters}')"
        )
        session.execute(f"CREATE SOURCE s001 {made.format(unique('many'))} ON ERROR = 'skip'")
    with closing(Catalog(home / "catalog.db")) as catalog:
        first = catalog.get("s001")
        assert first is not None
        facts = SourceFacts.from_json(first.detail["facts"], first.sql)
        assert facts is not None
        for number in range(2, SOURCES):
            text = first.sql.replace("s001", f"s{number:03}")
            detail = {"given": text, "facts": facts.to_json(text)}
            catalog.put(replace(first, name=f"s{number:03}", sql=text, detail=detail))


def _write(cluster: Cluster, topic: str, letters: str) -> None:
    producer = Producer(
        {**cluster.client, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}, logger=QUIET
    )
    now = int(time.time() * 1000)
    for number in range(LETTERS):
        kind, field, message = KINDS[number % 3]
        value = json.dumps({"id": number, "amount": f"{number} EUR"}).encode()
        letter = Letter(
            "s000", topic, number % 4, number, now, None, value, (), kind, message.format(n=number), now - number * 40, field, size=len(value)
        )  # fmt: skip
        key, body, headers = letter.to_kafka()
        producer.produce(letters, body, key, partition=number % 4, headers=headers)
        if number % 5000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def _took(act: Callable[[], object], seen: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    seen()
    return time.monotonic() - began


def _quickest(bound: float, turn: Callable[[], float]) -> float:
    """Of a few turns, the quickest: other work on the machine makes some of them slow, and none quick."""
    took = turn()
    for _ in range(TURNS - 1):
        if took <= bound:
            break
        took = min(took, turn())
    return took


def test_a_hundred_thousand_letters_and_two_hundred_sources_stay_quick(visit: Visit) -> None:
    page = visit.page
    groups, letters = ".grid tbody tr a[href*=group]", ".grid tbody tr[data-id]"
    view_s, act_s = FIRST_VIEW_S * PATIENCE, INTERACTION_S * PATIENCE
    visit.go("/audit")  # the scripts are in the browser's cache, as they are after the first day

    def open_the_group() -> float:
        visit.go("/letters", groups)
        return _took(lambda: page.locator(groups).first.click(), lambda: page.wait_for_selector(letters))

    def open_another_letter() -> float:
        row = page.locator(f"{letters}:not(.current)").first
        name = row.get_attribute("data-id")
        return _took(row.click, lambda: page.wait_for_selector(f"h2:text-is('{name}')"))

    def turn_the_page() -> float:
        shown = page.locator(".pager span[aria-live]").inner_text()  # 1–25 of 33,334
        changed = f".pager:not(:has-text('{shown}'))"
        button = page.get_by_role("button", name="Next page")
        return _took(button.click, lambda: page.wait_for_selector(changed))

    def open_the_dump() -> float:
        page.get_by_role("tab", name="Repair").click()
        page.wait_for_selector(".payload.hex", state="hidden")
        return _took(
            page.get_by_role("tab", name="Hex").click, lambda: page.wait_for_selector(".payload.hex")
        )

    def search_the_sources() -> float:
        page.get_by_label("Search").fill("")
        page.wait_for_selector(".grid tbody:has-text('s000')")
        found = ".grid tbody:not(:has-text('s000')):has-text('s190')"
        return _took(lambda: page.get_by_label("Search").fill("s19"), lambda: page.wait_for_selector(found))

    first = {
        "overview": _quickest(view_s, lambda: visit.go("/", ".node")),
        "sources": _quickest(view_s, lambda: visit.go("/sources", ".grid tbody tr")),
        "letters": _quickest(view_s, lambda: visit.go("/letters", groups)),
    }
    expect(page.locator(groups)).to_have_count(len(KINDS))
    visit.shoot("many-letters")
    first["group"] = _quickest(view_s, open_the_group)
    page.wait_for_selector(".verdict.bad")
    acts = {
        "open a letter": _quickest(act_s, open_another_letter),
        "the next page": _quickest(act_s, turn_the_page),
        "the dump": _quickest(act_s, open_the_dump),
    }
    visit.shoot("many-group")
    visit.go("/sources", ".grid tbody tr")
    expect(page.locator(".pager:visible")).to_contain_text("of 200")
    acts["search the sources"] = _quickest(act_s, search_the_sources)
    visit.shoot("many-sources")
    print({name: round(took, 2) for name, took in (first | acts).items()})
    assert {name: took for name, took in first.items() if took > view_s} == {}
    assert {name: took for name, took in acts.items() if took > act_s} == {}
