"""What the overview marks as the bottleneck, and what lists say of a view: from a catalog and the plans of reads, without running one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from homes import finished_view

from forebay.catalog import BatchRecord, Catalog, Definition, QueryState
from forebay.runtime.home import Home
from forebay.runtime.known import SourceFacts
from forebay.runtime.source_flow import flow_folder, pause
from forebay.source.batch_size import Cause
from forebay.source.flow_folder import ALL, ASIDE, Plan
from forebay.web.backend import Backend
from forebay.web.model import Node

VIEWS = ("fast", "slow")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A source with two views that run in this process."""
    home = tmp_path / "home"
    for view in VIEWS:
        finished_view(home, view, pa.table({"id": [1]}))
    catalog = Catalog(home / "catalog.db")
    facts = SourceFacts("test", {}, ("id",), None)  # no broker is asked for a connector that is not Kafka's
    catalog.put(Definition("s", "source", "CREATE SOURCE s", 1, {"facts": facts.to_json("CREATE SOURCE s")}))
    for view in VIEWS:
        catalog.set_state(view, QueryState.RUNNING, "", os.getpid())
    catalog.close()
    return home


def plan(home: Path, read: str, views: tuple[str, ...], cause: Cause, why: str) -> None:
    now = int(time.time() * 1000)
    flow_folder(home, "s").write(
        Plan(read, views, os.getpid(), now, 500, 9_000, 500, cause, why, behind=1_000)
    )


def narrow(home: Path) -> list[Node]:
    backend = Backend(home)
    try:
        return [node for node in backend.overview().nodes if node.bottleneck]
    finally:
        backend.close()


def test_while_all_get_on_nothing_is_the_bottleneck(home: Path) -> None:
    plan(home, ALL, VIEWS, Cause.GREW, "the last batch took 100 ms")
    assert narrow(home) == []


def test_a_failed_view_is_the_bottleneck_with_its_reason(home: Path) -> None:
    catalog = Catalog(home / "catalog.db")
    catalog.set_state("slow", QueryState.FAILED, "division by zero", os.getpid())
    catalog.close()
    (found,) = narrow(home)
    assert (found.id, found.state) == ("view:slow", "failed")
    assert found.why == "it is failed: division by zero"


def test_a_slow_table_is_the_bottleneck_and_not_the_views_that_share_its_read(home: Path) -> None:
    plan(home, ALL, VIEWS, Cause.BACKPRESSURE, "500 records are in flight")
    plan(home, f"{ASIDE}slow", ("slow",), Cause.KEPT, "the table of view slow has not taken its batch yet")
    (found,) = narrow(home)
    assert found.id == "view:slow"
    assert (
        found.why == "its table is slower than the topic: the table of view slow has not taken its batch yet"
    )


def test_a_view_whose_own_read_is_held_back_is_the_bottleneck(home: Path) -> None:
    plan(home, "slow", ("slow",), Cause.BACKPRESSURE, "500 records are in flight")
    (found,) = narrow(home)
    assert (found.id, "500 records are in flight" in found.why) == ("view:slow", True)


def test_nothing_waits_for_a_source_that_is_paused(home: Path) -> None:
    plan(home, ALL, VIEWS, Cause.BACKPRESSURE, "500 records are in flight")
    catalog = Catalog(home / "catalog.db")
    pause(home, catalog, "s")
    catalog.close()
    assert narrow(home) == []


@pytest.fixture
def backend(home: Path) -> Iterator[Backend]:
    catalog = Catalog(home / "catalog.db")
    catalog.record_batch(BatchRecord("fast", "s", 0, 10, {}, None, (), 0, {}, 1_234))
    catalog.record_batch(BatchRecord("slow", "s", 0, 10, {}, None, (), 0, {}, 0))  # counted after a crash
    catalog.close()
    made = Backend(home)
    yield made
    made.close()


def test_a_view_says_how_long_its_newest_batch_took_and_nothing_where_nobody_knows(backend: Backend) -> None:
    assert {row.name: row.batch_ms for row in backend.views()} == {"fast": 1_234, "slow": None}
    assert backend.view("fast").row.batch_ms == 1_234


def readers(backend: Backend) -> dict[str, str]:
    return {node.id: node.name for node in backend.overview().nodes if node.kind == "reader"}


def test_who_subscribes_to_a_view_in_this_process_is_a_reader_on_the_graph(backend: Backend) -> None:
    assert readers(backend) == {}
    other = Home(backend.home)
    try:
        first = iter(other.subscribe("fast", timeout=30))
        next(first)
        assert readers(backend) == {"reader:fast": "1 following"}
        second = backend.tail("fast", after=-1, timeout=30)
        next(second)
        with backend.following("slow"):
            assert readers(backend) == {"reader:fast": "2 following", "reader:slow": "1 following"}
        for each in (first, second):
            each.close()  # type: ignore[attr-defined]
        list(other.subscribe("fast", timeout=0))  # takes what is there, and is gone
        assert readers(backend) == {}
    finally:
        other.close()


def test_a_reader_of_a_view_of_the_same_name_in_another_home_is_none_of_this_one(
    backend: Backend, tmp_path: Path
) -> None:
    finished_view(tmp_path / "other", "fast", pa.table({"id": [1]}))
    other = Home(tmp_path / "other")
    try:
        following = iter(other.subscribe("fast", timeout=30))
        next(following)
        assert readers(backend) == {}
        following.close()  # type: ignore[attr-defined]
    finally:
        other.close()


@pytest.mark.parametrize(
    ("options", "read", "others"),
    [
        ({"topic": "orders"}, ["orders"], ["orders-dlq", "order", ""]),
        ({"topics": "orders, refunds"}, ["orders", "refunds"], ["orders, refunds", "order"]),
        (
            {"topic.pattern": "orders-.*"},
            ["orders-eu", "orders-us"],
            ["orders", "x-orders-eu", "orders-.*x\n"],
        ),
    ],
)
def test_a_source_reads_the_topics_that_it_names_lists_or_has_a_pattern_of(
    tmp_path: Path, options: dict[str, str], read: list[str], others: list[str]
) -> None:
    catalog = Catalog(tmp_path / "catalog.db")
    facts = SourceFacts("kafka", {**options, "bootstrap.servers": "127.0.0.1:1"}, ("id",), None)
    catalog.put(Definition("s", "source", "CREATE SOURCE s", 1, {"facts": facts.to_json("CREATE SOURCE s")}))
    catalog.close()
    backend = Backend(tmp_path)
    try:
        assert [topic for topic in (*read, *others) if list(backend.readers_of(topic)) == ["s"]] == read
    finally:
        backend.close()
