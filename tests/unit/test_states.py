"""States of queries: what a source has from its views, what to do about them, and when a query is stalled."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from forebay import column_types as types
from forebay.catalog import BatchRecord, Catalog, Definition, EventKind, QueryState
from forebay.catalog.catalog import HISTORY_KEPT
from forebay.connectors.contract import SourceConfig
from forebay.connectors.datagen import DatagenSource
from forebay.errors import UnreachableError
from forebay.runtime.events import read_report
from forebay.runtime.query import RunningQuery
from forebay.runtime.stalls import StallWatch
from forebay.runtime.states import BAD, WORST_FIRST, hint_of, state_of_source
from forebay.source.batch_size import Cause
from forebay.source.flow_folder import FlowFolder, Plan
from forebay.views.paths import ViewPaths


def test_every_state_has_its_place_and_every_bad_one_says_what_to_do() -> None:
    assert set(WORST_FIRST) == set(QueryState)
    assert all(hint_of(state) for state in BAD)
    assert hint_of(QueryState.RUNNING) == hint_of(QueryState.STOPPED) == ""
    assert "START VIEW v," in hint_of(QueryState.FAILED, view="v")
    assert hint_of(QueryState.PAUSED, source="s").startswith("RESUME SOURCE s ")


@given(st.lists(st.sampled_from(QueryState)))
def test_a_source_is_in_the_worst_state_of_its_views(states: list[QueryState]) -> None:
    found = state_of_source(states)
    if states:
        assert WORST_FIRST.index(found) == min(map(WORST_FIRST.index, states))
    else:
        assert found is QueryState.CREATED


# -- stalled ----------------------------------------------------------------------------------------------


class Run(RunningQuery):
    """A query that has as much to read as it is told, and never runs."""

    def __init__(self, path: Path, states: list[tuple[QueryState, str]]) -> None:
        def unused(*_: Any) -> Any:
            raise AssertionError

        source = DatagenSource(SourceConfig("s", "datagen", {}, pa.schema([pa.field("n", types.BIGINT)])))
        super().__init__(
            "v", ViewPaths(path), {"s": source}, unused, output_mode="append", merge_keys=None,
            on_state=lambda name, state, message: states.append((state, message)), evolve=unused,
            session_lock=threading.RLock(),
        )  # fmt: skip
        self.behind, self.away, self.asked = 5, False, 0
        self.run = "run"
        self.set_state(QueryState.RUNNING, "")

    def unread(self) -> int:
        self.asked += 1
        if self.away:
            raise UnreachableError("nobody there")
        return self.behind


class Watched:
    """A query, and a watch with a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.states: list[tuple[QueryState, str]] = []
        self.run, self.now, self.looks = Run(path, self.states), 1000.0, 0
        self.watch = StallWatch(self._runs, lambda: self.now, 0.001)

    def _runs(self) -> list[Run]:
        self.looks += 1
        return [self.run]

    def later(self, seconds: float) -> None:
        """After so long, and two looks."""
        self.look()
        self.now += seconds
        self.look()

    def look(self) -> None:
        seen = self.looks
        eventually(lambda: self.looks > seen + 1, "the watch looks")

    def message(self) -> str:
        return self.states[-1][1]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path)
    yield made
    made.watch.close()


def test_a_query_with_something_to_read_and_no_batch_for_a_minute_is_stalled_and_says_what_it_waits_for(
    watched: Watched,
) -> None:
    watched.later(59)
    assert watched.run.state is QueryState.RUNNING
    assert watched.run.asked == 0
    watched.later(2)
    assert watched.run.state is QueryState.STALLED
    assert watched.message() == "no batch for 61 s, and 5 records to read: it waits for its start"
    watched.run._writing = (7, time.monotonic())
    assert watched.run.waits_for().startswith("batch 7, which has been read and written for ")


def test_a_query_with_nothing_to_read_is_not_stalled_however_long_and_is_seldom_asked(
    watched: Watched,
) -> None:
    watched.run.behind = 0
    for _ in range(5):
        watched.later(61)
    assert watched.run.state is QueryState.RUNNING
    assert watched.run.asked <= 5


def test_a_batch_ends_a_stall_and_so_does_reading_being_paused_and_resumed(watched: Watched) -> None:
    watched.later(61)
    assert watched.run.state is QueryState.STALLED
    watched.run.progress.reported += 1
    watched.look()
    assert watched.run.state is QueryState.RUNNING
    watched.run.set_state(QueryState.PAUSED, "")
    watched.later(500)
    assert watched.run.state is QueryState.PAUSED
    watched.run.set_state(QueryState.RUNNING, "")
    watched.later(59)
    assert watched.run.state is QueryState.RUNNING  # its time begins anew


def test_a_query_whose_partitions_wait_for_others_in_event_time_is_not_stalled(
    watched: Watched, tmp_path: Path
) -> None:
    flow = FlowFolder(tmp_path / "flow")
    watched.run.flows = {"s": flow}
    held = Plan(
        watched.run.read, ("v",), os.getpid(), 0, 0, 0, 100, Cause.ALIGNED, "aligned: …", 5, ahead=("t-1",)
    )
    flow.write(held)
    watched.later(61)
    assert watched.run.state is QueryState.RUNNING
    flow.write(replace(held, records=3))  # a batch is in flight, and does not end
    watched.later(61)
    assert watched.run.state is QueryState.STALLED


def test_brokers_that_are_away_are_what_a_query_waits_for_until_they_answer(watched: Watched) -> None:
    watched.run.away = True
    watched.later(61)
    assert watched.message() == "no batch for 61 s: it waits for its brokers: nobody there"
    watched.run.away, watched.run.behind = False, 0
    watched.later(61)
    assert watched.run.state is QueryState.RUNNING


def test_a_clock_that_is_set_makes_nobody_stalled(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    for wall in (0.0, 1e10, 5.0):
        monkeypatch.setattr(time, "time", lambda wall=wall: wall)
        watched.look()
    assert watched.run.state is QueryState.RUNNING
    assert watched.states == [(QueryState.RUNNING, "")]


# -- history ----------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    made = Catalog(tmp_path / "catalog.db")
    yield made
    made.close()


BATCH = BatchRecord("v", "s", 0, 10, {"Other": 1}, "t-0 at 3: no", (("t", 0, 5, 9),), 0, {}, 40)


def test_events_are_in_the_order_in_which_they_happened_whatever_the_clock_said(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wall in (100.0, 50.0, 200.0):
        monkeypatch.setattr(time, "time", lambda wall=wall: wall)
        catalog.note("s", EventKind.COMMIT_FAILED, str(wall))
    catalog.set_state("v", QueryState.RUNNING, "", 1)
    assert [each.message for each in catalog.events("s")] == ["100.0", "50.0", "200.0"]
    assert [(each.name, each.kind, each.state) for each in catalog.events()][-1] == ("v", "state", "running")


def test_a_view_that_is_busy_takes_nothing_from_the_history_of_another(catalog: Catalog) -> None:
    catalog.set_state("quiet", QueryState.RUNNING, "", 1)
    for number in range(HISTORY_KEPT + 5):
        catalog.note("busy", EventKind.COMMIT_FAILED, str(number))
    assert len(catalog.history("quiet")) == 1
    assert len(catalog.events("busy")) == HISTORY_KEPT


def test_the_first_record_of_a_kind_that_does_not_decode_is_an_event_and_so_is_every_loss(
    catalog: Catalog,
) -> None:
    catalog.record_batch(BATCH)
    catalog.record_batch(BatchRecord("v", "s", 1, 10, {"Other": 1, "TypeConversion": 2}, "e", (), 0, {}, 40))
    assert [(each.kind, each.message) for each in catalog.events("v")] == [
        ("rejected", "Other in source 's': t-0 at 3: no"),
        ("lost", "t-0 [5, 9) of source 's' was gone before it was read"),
        ("rejected", "TypeConversion in source 's': e"),
    ]
    catalog.put(Definition("v", "view", "…", 1))
    catalog.drop("v")
    assert catalog.events() == []


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=300))
def test_of_a_views_batches_the_mean_and_the_99th_percentile_are_known(
    tmp_path_factory: pytest.TempPathFactory, took: list[int]
) -> None:
    made = Catalog(tmp_path_factory.mktemp("home") / "catalog.db")
    try:
        made.record_batch(
            *(BatchRecord("v", "s", n, 1, {}, None, (), 0, {}, ms) for n, ms in enumerate(took)),
            BatchRecord("v", "s", len(took), 1, {}, None, (), 0, {}, 0),  # counted after a crash
        )
        found = made.batch_times("v")
        assert found is not None
        assert found.batches == len(took) + 1
        assert found.mean_ms == pytest.approx(sum(took) / len(took))
        assert sum(each <= found.p99_ms for each in took) >= 0.99 * len(took)
        assert sum(each < found.p99_ms for each in took) < 0.99 * len(took)
        assert made.batch_times("w") is None
    finally:
        made.close()


def test_a_batch_that_ends_before_it_began_by_the_wall_clock_took_no_time() -> None:
    assert (
        read_report('{"batchId": 3, "durationMs": {"triggerExecution": -5000}, "sources": []}').took_ms == 0
    )
