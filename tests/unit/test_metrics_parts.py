"""A session's metrics without a broker: what is read off where, and that asking neither waits nor fails."""

from __future__ import annotations

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay import column_types as types
from forebay.catalog import BatchRecord, Catalog, QueryState
from forebay.connectors.contract import HealthStatus, SourceConfig, SourceConnector, Stretch
from forebay.connectors.datagen import DatagenSource
from forebay.deadletter.identity import Identity
from forebay.deadletter.outcomes import Outcomes
from forebay.errors import CommitError, ForebayError, OptionValueError
from forebay.runtime import health
from forebay.runtime.events import BatchReport
from forebay.runtime.health import HealthWatch
from forebay.runtime.metrics import SessionCollector
from forebay.runtime.query import RunningQuery
from forebay.runtime.source_flow import SourceFlow
from forebay.source.batch_size import Cause
from forebay.source.flow_folder import Plan
from forebay.telemetry.server import MetricsServer
from forebay.telemetry.times import Times
from forebay.views.paths import ViewPaths

BATCH = BatchRecord("v", "s", 0, 10, {"TypeConversion": 2, "Other": 1}, None, (), 4, {}, 40, 1, 1, 1)


def source(name: str = "s", kind: type[DatagenSource] = DatagenSource) -> DatagenSource:
    made = kind(SourceConfig(name, "datagen", {}, pa.schema([pa.field("n", types.BIGINT)])))
    made.open()
    return made


def query(tmp_path: Path, name: str = "v") -> RunningQuery:
    def unused(*_: Any) -> Any:
        raise AssertionError

    return RunningQuery(
        name, ViewPaths(tmp_path / name), {"s": source()}, unused,
        output_mode="append", merge_keys=None, on_state=unused, evolve=unused, session_lock=threading.RLock(),
    )  # fmt: skip


class Home:
    """What a session reads its metrics off: one source is connected, and no query runs unless it is put there."""

    def __init__(self, path: Path) -> None:
        self.catalog, self.outcomes = Catalog(path), Outcomes(path)
        self.sources: dict[str, SourceConnector] = {"s": source()}
        self.queries: dict[str, RunningQuery] = {}
        self.failing: dict[str, ForebayError] = {}
        self.flows: dict[str, SourceFlow] = {}
        self.watch = HealthWatch(lambda: dict(self.sources))
        self.collector = SessionCollector(
            self.catalog,
            self.outcomes,
            lambda: self.sources,
            self.queries,
            self.watch,
            lambda: self.failing,
            lambda source: self.flows.get(source, SourceFlow(source, None, ())),
        )

    def samples(self) -> dict[tuple[str, ...], float]:
        """By the name and the values of its labels."""
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in self.collector.collect()
            for sample in family.samples
        }

    def close(self) -> None:
        self.watch.close()
        self.outcomes.close()
        self.catalog.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "catalog.db")
    yield made
    made.close()


@given(st.lists(st.floats(0, 100), max_size=20))
def test_a_bucket_counts_what_took_no_longer_than_its_bound(seconds: list[float]) -> None:
    times = Times((0.5, 1.0, 10.0))
    for each in seconds:
        times.add(each)
    assert times.buckets() == [
        (name, sum(each <= bound for each in seconds))
        for name, bound in (("0.5", 0.5), ("1.0", 1.0), ("10.0", 10.0), ("+Inf", float("inf")))
    ]
    assert times.total_s == pytest.approx(sum(seconds))


def test_counts_of_a_source_are_those_of_the_view_that_met_most_and_of_a_view_its_own(
    home: Home, tmp_path: Path
) -> None:
    home.catalog.record_batch(BATCH)
    home.catalog.record_batch(
        replace(BATCH, batch=1, rejected={"Other": 1}, dlq=0, rate_limited=0, case_mismatches=6)
    )
    home.catalog.record_batch(replace(BATCH, view="behind"))
    home.catalog.record_batch(replace(BATCH, view="elsewhere", source="of another process"))
    home.queries |= {"v": query(tmp_path), "behind": query(tmp_path, "behind")}
    found = home.samples()

    assert found["forebay_source_records_total", "s"] == 20
    assert found["forebay_source_errors_total", "s", "TypeConversion"] == 2
    assert found["forebay_source_errors_total", "s", "Other"] == 2
    assert found["forebay_source_dead_letters_total", "s"] == 1
    assert found["forebay_source_rate_limited_total", "s"] == 1
    assert found["forebay_source_skipped_total", "s"] == 2
    assert found["forebay_source_without_row_total", "s"] == 2
    assert found["forebay_source_case_mismatches_total", "s"] == 6
    assert found["forebay_source_last_error_timestamp_seconds", "s"] > 1e9
    for view, figures in {"v": (20, 4, 8, 2), "behind": (10, 3, 4, 1)}.items():
        names = ("records", "rejected", "late", "batches")
        assert tuple(found[f"forebay_query_{name}_total", view] for name in names) == figures
    assert not [key for key in found if "of another process" in key or "elsewhere" in key]


def test_a_source_without_records_has_counters_that_are_0(home: Home) -> None:
    found = home.samples()
    assert found["forebay_source_records_total", "s"] == found["forebay_source_skipped_total", "s"] == 0
    assert ("forebay_source_last_error_timestamp_seconds", "s") not in found


def test_what_was_done_with_letters_is_told_and_what_is_still_in_the_ledger(home: Home) -> None:
    limited = (Stretch("t", 0, 5, 9, 3), Stretch("t", 1, 0, 1, 1))
    home.catalog.record_batch(replace(BATCH, limited=limited))
    home.outcomes.discard("s", {Identity("t", 0, 1): "", Identity("t", 0, 2): ""}, "load test")
    home.outcomes.discard("another", {Identity("t", 0, 1): ""}, "load test")
    found = home.samples()
    assert found["forebay_source_ledger_records", "s"] == 4
    states = {key[2]: value for key, value in found.items() if key[0] == "forebay_source_settled_letters"}
    assert states == {"replayed": 0, "failed_again": 0, "discarded": 2}
    home.catalog.settle_ledger("s", limited[0])
    home.outcomes.reopen("s", [Identity("t", 0, 1)])
    found = home.samples()
    assert found["forebay_source_ledger_records", "s"] == 1
    assert found["forebay_source_settled_letters", "s", "discarded"] == 1


def test_a_view_tells_its_state_and_how_long_its_batches_take(home: Home, tmp_path: Path) -> None:
    running = home.queries["v"] = query(tmp_path)
    running.state = QueryState.RETRYING
    for batch, (took_ms, records) in enumerate([(40, 5), (3_000, 5), (7, 0)]):
        running.on_progress(BatchReport(batch, took_ms, 0, ()), records)
    found = home.samples()
    states = {state: found["forebay_query_state", "v", state] for state in QueryState}
    assert states == dict.fromkeys(QueryState, 0) | {QueryState.RETRYING: 1}
    assert found["forebay_query_batch_seconds_bucket", "v", "0.05"] == 1
    assert found["forebay_query_batch_seconds_bucket", "v", "5.0"] == 2
    assert found["forebay_query_batch_seconds_count", "v"] == 2  # one without records is no work
    assert found["forebay_query_batch_seconds_sum", "v"] == pytest.approx(3.04)


def test_offsets_that_cannot_be_committed_are_told(home: Home) -> None:
    assert home.samples()["forebay_source_commit_failing", "s"] == 0
    home.failing["s"] = CommitError("no")
    assert home.samples()["forebay_source_commit_failing", "s"] == 1


def test_after_the_session_there_is_nothing_to_tell_and_asking_does_not_fail(home: Home) -> None:
    home.catalog.close()
    assert home.samples() == {}


class _Asked(DatagenSource):
    """Answers when it is let, and says that somebody asks."""

    def __init__(self, config: SourceConfig) -> None:
        super().__init__(config)
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.fault: Exception | None = None

    def health_check(self) -> HealthStatus:
        self.asked.set()
        assert self.may_answer.wait(30)
        if self.fault is not None:
            raise self.fault
        return HealthStatus(True, "here")


def _until_asked_again(connector: _Asked) -> None:
    connector.asked.clear()
    assert connector.asked.wait(30)


def test_the_last_word_is_at_hand_while_a_source_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.01)
    slow = source("slow", _Asked)
    assert isinstance(slow, _Asked)
    watch = HealthWatch(lambda: {"slow": slow})
    try:
        assert slow.asked.wait(30)
        assert watch.last() == {}  # nobody knows yet, and nobody waits
        slow.may_answer.set()
        _until_asked_again(slow)
        assert watch.last()["slow"].healthy
        slow.may_answer.clear()
        _until_asked_again(slow)
        assert watch.last()["slow"].healthy
        monkeypatch.setattr(health, "KEPT_S", 0.0)
        assert not watch.last()["slow"].healthy  # what was true long ago is not told as if it were now
    finally:
        slow.may_answer.set()
        watch.close()


def test_a_source_whose_check_fails_does_not_silence_the_others_and_one_that_is_gone_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.01)
    broken, fine = source("broken", _Asked), source("fine", _Asked)
    assert isinstance(broken, _Asked)
    assert isinstance(fine, _Asked)
    broken.fault = RuntimeError("a fault of its own")
    broken.may_answer.set()
    fine.may_answer.set()
    sources: dict[str, SourceConnector] = {"broken": broken, "fine": fine}
    watch = HealthWatch(lambda: dict(sources))
    try:
        _until_asked_again(fine)
        _until_asked_again(fine)
        told = watch.last()
        assert (told["broken"].healthy, told["broken"].message) == (False, "a fault of its own")
        assert told["fine"].healthy
        sources["fine"] = source("fine")  # dropped and made again: another one
        assert "fine" not in watch.last() or watch.last()["fine"].message != "here"
    finally:
        watch.close()


def test_the_page_of_metrics_has_every_name_with_its_labels_and_no_other(home: Home) -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", page, re.MULTILINE)
    told = {
        family.name + ("_total" if family.type == "counter" else ""): family._labelnames
        for family in home.collector.collect()
        if isinstance(family, CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily)
    }
    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows} == told


def test_a_port_that_is_taken_is_an_error_of_ours(home: Home) -> None:
    server = MetricsServer(home.collector, 0)
    try:
        with pytest.raises(OptionValueError, match=f"port {server.port}"):
            MetricsServer(home.collector, server.port)
    finally:
        server.close()


def listening(port: int) -> set[str]:
    """The addresses of this machine on which somebody listens at this port, as the system says."""
    found = [each for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    return {each.laddr.ip for each in found if each.laddr.port == port}


def test_metrics_are_served_to_this_machine_alone_unless_told_otherwise(home: Home) -> None:
    server = MetricsServer(home.collector, 0)
    try:
        assert listening(server.port) == {"127.0.0.1"}
        assert b"forebay_" in urllib.request.urlopen(server.address).read()
    finally:
        server.close()
    for host, address in (("0.0.0.0", "0.0.0.0"), ("localhost", "127.0.0.1"), ("::1", "::1")):
        try:
            server = MetricsServer(home.collector, 0, host)
        except OptionValueError:
            assert host == "::1"  # a machine without IPv6
            continue
        try:
            assert listening(server.port) <= {address, "::1"}
            assert b"forebay_" in urllib.request.urlopen(server.address).read()
        finally:
            server.close()
    with pytest.raises(OptionValueError, match="host 'no such host'") as refused:
        MetricsServer(home.collector, 0, "no such host")
    assert refused.value.option == "metrics.host"


def test_a_collector_that_fails_fails_one_scrape_and_says_so_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Collector):
        fails = True

        def collect(self) -> Iterator[Metric]:
            if self.fails:
                raise LookupError("not there yet")
            yield GaugeMetricFamily("there", "Now.", 1)

    broken = Broken()
    server = MetricsServer(broken, 0)
    try:
        with pytest.raises(urllib.error.HTTPError, match="500"):
            urllib.request.urlopen(server.address)
        assert "not there yet" in caplog.text
        broken.fails = False
        assert b"there 1.0" in urllib.request.urlopen(server.address).read()
    finally:
        server.close()


def test_the_flow_of_a_source_is_told_with_its_causes(home: Home) -> None:
    plan = Plan("all", ("v", "w"), 1, 0, 100, 5000, 20_000, Cause.GREW, "grew: …", 1000, 300.0, 100.0)
    stuck = replace(plan, read="view-x", views=("x",), cause=Cause.BACKPRESSURE, arrives=400.0)
    home.flows["s"] = SourceFlow("s", 12, (plan, stuck))
    found = home.samples()
    assert found["forebay_source_paused", "s"] == 1
    assert found["forebay_source_in_flight_records", "s"] == 200
    assert found["forebay_source_in_flight_bytes", "s"] == 10_000
    assert found["forebay_source_batch_limit_records", "s", "all"] == 20_000
    assert found["forebay_source_batch_decision", "s", "all", "grew"] == 1
    assert found["forebay_source_batch_decision", "s", "view-x", "backpressure"] == 1
    assert found["forebay_query_catch_up_seconds", "v"] == found["forebay_query_catch_up_seconds", "w"] == 5
    assert found["forebay_query_catch_up_seconds", "x"] == float("inf")
