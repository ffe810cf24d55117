"""Links to the brokers that are cut, silent or slow: what is read is all, and once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from links import Link, Linked, linked_broker
from sessions import catalog_of, caught_up, connect, create_source, events, name, rows
from support import Cluster, kafka_source
from waiting import eventually

from forebay.kafka import native_reader

ROWS = 4000


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    with linked_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def link(linked: Linked) -> Iterator[Link]:
    yield linked.link
    linked.link.restore()
    linked.link.speak_again()
    linked.link.slow_down(None)


@pytest.fixture(scope="module")
def cluster(linked: Linked) -> Cluster:
    return Cluster(linked)  # type: ignore[arg-type]  # a broker behind a link has an address, too


@pytest.fixture(params=["native", "librdkafka"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "librdkafka":
        monkeypatch.setattr(native_reader.NativeReader, "open", lambda *_: None)
    return str(request.param)


@pytest.mark.usefixtures("reader")
def test_a_link_that_is_slow_and_then_cut_in_the_middle_of_a_range_costs_no_record_and_doubles_none(
    cluster: Cluster, link: Link
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [b'{"n": %d, "fill": "%s"}' % (n, b"x" * 200) for n in range(ROWS)])
    options = cluster.kafka_options(topic, max_poll_records="200", max_partition_fetch_bytes="50000")
    source = kafka_source(
        options | {"kafka.reconnect.backoff.max.ms": "500", "kafka.queued.min.messages": "100"}
    )
    try:
        start = source.initial_offsets()
        end = source.latest_offsets(start, None)
        link.slow_down(500_000)
        [split] = source.plan_batches(start, end, 1)
        batches = source.read_batch(split)
        seen = [row["n"] for row in next(batches).records.to_pylist()]
        link.cut()
        for batch in batches:
            seen += [row["n"] for row in batch.records.to_pylist()]
            if ROWS // 2 < len(seen) < ROWS // 2 + 300:
                link.cut()
        assert seen == list(range(ROWS))
    finally:
        source.close()


def test_while_the_link_is_silent_or_refused_a_view_says_so_and_goes_on_by_itself(
    tmp_path: Path, cluster: Cluster, link: Link
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(10)))

    def has(count: int) -> bool:
        return sorted(rows(db, "SELECT id FROM v")) == [(n,) for n in range(count)]

    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, stall_timeout_ms=2000, connect_timeout_ms=2000))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        cluster.produce(topic, events(range(10, 20)))
        caught_up(db)
        link.cut(refuse=True)
        eventually(lambda: db.queries()[0].state == "stalled", "the cut is noticed", 60)
        assert (
            f"it waits for its brokers: cannot reach Kafka at {link.bootstrap_servers}"
            in db.queries()[0].message
        )
        assert not db.health()[source].healthy
        link.restore()
        cluster.produce(topic, events(range(20, 30)))
        eventually(lambda: has(30), "it goes on", 60)
        eventually(lambda: db.queries()[0].state == "running", "it runs")
        link.go_silent()
        began = time.monotonic()
        health = db.health()[source]
        assert time.monotonic() - began < 25  # the library itself would wait for minutes
        assert not health.healthy
        link.speak_again()
        cluster.produce(topic, events(range(30, 40)))
        eventually(lambda: has(40), "it goes on again", 60)
        eventually(lambda: db.queries()[0].state == "running", "it runs")
        with catalog_of(db) as catalog:
            assert "stalled" in [state for _, state, _ in catalog.history("v")]
    eventually(lambda: cluster.committed(source, topic) == {0: 20, 1: 20}, "the group has it all")
