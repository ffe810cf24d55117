"""How a session's sources fare, on a real broker: lag in records and seconds, states, tables of the catalog."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fresh
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sessions import catalog_of, caught_up, connect, create_source, event, events, name, rows
from support import Cluster
from waiting import eventually

from forebay.devstack import DevStack, kraft
from forebay.devstack.artifacts import KAFKA, load_set
from forebay.devstack.download import resolve
from forebay.errors import WaitTimeoutError
from forebay.jvm.java import find_java
from forebay.runtime.session import Session

HOUR_S = 3600


def java_lag(cluster: Cluster, group: str) -> dict[int, tuple[int, int, int]]:
    """Committed, end and lag of each partition that the group has an offset for, by Kafka's own client."""
    done = subprocess.run(
        [find_java().path, "-XX:TieredStopAtLevel=1", "-cp", kraft.classpath(resolve(load_set(KAFKA))),
         str(Path(__file__).with_name("GroupLag.java")), cluster.bootstrap_servers, group],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if "compiler" in done.stderr and done.returncode:
        pytest.skip("this Java has no compiler")
    assert done.returncode == 0, done.stderr
    found = [[int(each) for each in line.split()] for line in done.stdout.splitlines()]
    return {partition: (committed, end, lag) for partition, committed, end, lag in found}


@pytest.fixture
def lagging(db: Session, cluster: Cluster) -> Iterator[tuple[str, str]]:
    """A source whose group has read a part of its topic, and the topic: nobody reads it now."""
    topic, source = cluster.make_topic(4), name("src")
    hour_ago = int((time.time() - HOUR_S) * 1000)
    for partition in (0, 3):
        cluster.produce(topic, events(range(2)), partition=partition, timestamp=hour_ago - HOUR_S * 1000)
        cluster.produce(topic, events(range(3)), partition=partition, timestamp=hour_ago)
    cluster.produce(topic, events(range(3)), partition=1, timestamp=hour_ago + 2 * HOUR_S * 1000)
    cluster.commit(source, topic, {0: 2, 1: 1, 2: 0, 3: 5})
    db.execute(create_source(cluster, source, topic))
    yield source, topic
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_lag_equals_kafka_consumer_groups_also_while_a_transaction_is_open(
    db: Session, cluster: Cluster, lagging: tuple[str, str]
) -> None:
    source, topic = lagging
    producer = cluster.transactional_producer()
    producer.begin_transaction()
    for _ in range(4):
        producer.produce(topic, event(1), partition=2)
    producer.flush(30)
    try:
        found = {each.partition: each for each in db.lag() if each.source == source}
        ours = {number: (each.committed, each.end, each.lag) for number, each in found.items()}
        assert ours == java_lag(cluster, source)
        assert {number: lag for number, (_, _, lag) in ours.items()} == {0: 3, 1: 2, 2: 4, 3: 0}
        assert found[2].lag_s == 0.0  # what is in an open transaction cannot be read yet
    finally:
        producer.abort_transaction(30)


def test_lag_in_seconds_is_the_age_of_the_oldest_unread_record_wherever_somebody_looks(
    db: Session, lagging: tuple[str, str]
) -> None:
    source, topic = lagging

    def right(found: dict[int, float | None]) -> bool:
        ages = [found.get(number) for number in range(4)]
        assert ages[0] is not None
        # The oldest unread of partition 0 is an hour old; of 1 it is from the future; nothing is unread in 2 and 3.
        return ages[1:] == [0.0, 0.0, 0.0] and HOUR_S <= ages[0] < HOUR_S + 120

    assert right({each.partition: each.lag_s for each in db.lag() if each.source == source})
    assert right({row[3]: row[7] for row in rows(db, "SHOW LAG") if row[0] == source})
    query = f"SELECT partition, lag_seconds FROM forebay_catalog.partitions WHERE source = '{source}'"
    assert right(dict(rows(db, query)))
    done = fresh.forebay(db.home, "lag", "-o", "json")
    assert right(
        {each["partition"]: each["lag_s"] for each in json.loads(done.out) if each["source"] == source}
    )

    registry = CollectorRegistry()
    registry.register(db.collector())
    labels = [{"source": source, "topic": topic, "partition": str(number)} for number in range(4)]
    eventually(lambda: registry.get_sample_value("forebay_source_lag_seconds", labels[0]), "it is asked for")
    assert right(
        {n: registry.get_sample_value("forebay_source_lag_seconds", each) for n, each in enumerate(labels)}
    )
    assert generate_latest(registry).decode().count("kafka_consumergroup_lag{") >= 4
    [shown] = [each for each in db.sources() if each.name == source]
    assert (shown.lag, shown.state) == (5, "created")
    assert shown.lag_s is not None
    assert shown.lag_s > HOUR_S


def test_health_metrics_and_the_tables_of_the_catalog_agree(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    cluster.produce(topic, [*events(range(9)), "not json"])
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)

    health = db.health()[source]
    assert (health.healthy, health.message) == (True, "Connected to 1 broker(s), lag: 0")
    assert health.last_success is not None
    assert 0 <= health.last_success < 30
    assert health.details == {
        "group.id": source, "topics": topic, "state": "running", "brokers": "1", "total_lag": "0",
        f"lag.{topic}.0": "0", f"lag.{topic}.1": "0",
    }  # fmt: skip

    db.watch_health()
    [found] = [
        each
        for each in eventually(lambda: _watched(db, source), "the brokers are watched")
        if each.source == source
    ]
    assert (found.state, found.records, found.errors, found.lag, found.lag_s) == ("running", 10, 1, 0, 0.0)
    assert found.batches >= 1
    assert found.commits is not None
    assert found.commits >= 1
    assert found.rebalances is None  # it reads alone: nobody takes its partitions
    assert found.batch_ms_mean is not None
    assert found.batch_ms_p99 is not None
    assert 0 < found.batch_ms_mean <= found.batch_ms_p99
    assert (found.records_per_s, found.paused_partitions) == (0.2, 0)  # ten in the last minute

    columns = (
        "state, healthy, views, lag, records, errors, batches, batch_ms_p99, group_id, records_per_second"
    )
    assert rows(db, f"SELECT {columns} FROM forebay_catalog.sources WHERE name = '{source}'") == [
        ("running", True, view, 0, 10, 1, found.batches, found.batch_ms_p99, source, 0.2)
    ]
    query = f"SELECT records, rejected, duration_ms FROM forebay_catalog.batches WHERE view = '{view}'"
    batches = rows(db, query)
    assert sum(batch[0] for batch in batches) == 10
    assert sum(batch[1] for batch in batches) == 1
    assert all(batch[2] > 0 for batch in batches)
    told = rows(db, f"SELECT kind, state FROM forebay_catalog.events WHERE name = '{view}'")
    assert told == [
        ("state", "created"), ("state", "starting"), ("state", "running"), ("rejected", None),
    ]  # fmt: skip
    spark = f"SELECT upper(state) AS s FROM forebay_catalog.sources WHERE name = '{source}'"  # which Spark answers
    assert rows(db, spark) == [("RUNNING",)]
    elsewhere = fresh.forebay(
        db.home, "sql", "-o", "json", "-e",
        f"SELECT name, lag FROM forebay_catalog.sources WHERE name = '{source}'",
    )  # fmt: skip
    assert json.loads(elsewhere.out) == [{"name": source, "lag": 0}], elsewhere.words
    db.execute(f"DROP SOURCE {source} CASCADE")
    assert rows(db, f"SELECT * FROM forebay_catalog.events WHERE name IN ('{source}', '{view}')") == []


def _watched(db: Session, source: str) -> list[object] | None:
    found = db.metrics()
    return list(found) if any(each.source == source and each.lag == 0 for each in found) else None


def test_a_view_that_does_not_get_on_is_stalled_says_what_it_waits_for_and_runs_again_by_itself(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(5)))
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, stall_timeout_ms=1000))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        table, free = db._views.running["v"].table, threading.Event()
        add = table.add
        monkeypatch.setattr(table, "add", lambda *args: free.wait(60) and add(*args))
        try:
            cluster.produce(topic, events(range(5, 9)))
            eventually(lambda: db.queries()[0].state == "stalled", "it is noticed")
            [shown] = db.queries()
            assert (
                "and 4 records to read: it waits for batch 1, which has been read and written"
                in shown.message
            )
            assert "'stall.timeout.ms'" in shown.hint
            health = db.health()[source]
            assert not health.healthy
            assert health.message.startswith("view 'v' is stalled: no batch for ")
            assert health.details["state"] == "stalled"
            assert health.details["hint"] == shown.hint
        finally:
            free.set()
        caught_up(db)
        eventually(lambda: db.queries()[0].state == "running", "it runs")
        assert db.health()[source].healthy
        with catalog_of(db) as catalog:
            assert [state for _, state, _ in catalog.history("v")] == [
                "created", "starting", "running", "stalled", "running",
            ]  # fmt: skip


def test_a_view_over_a_broker_that_is_frozen_is_stalled_and_waited_for_and_then_has_every_record_once(
    tmp_path: Path, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(50)))
    with connect(tmp_path / "home") as db:
        quickly = {"stall_timeout_ms": 1000, "connect_timeout_ms": 2000}
        db.execute(create_source(cluster, source, topic, **quickly))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        process = mortal_broker.broker.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            eventually(lambda: db.queries()[0].state == "stalled", "it is noticed")
            assert "it waits for its brokers" in db.queries()[0].message
            with pytest.raises(WaitTimeoutError, match=r"not caught up with .* after 1 s .*FB3001"):
                db.wait(until_caught_up=True, timeout=1)
            with ThreadPoolExecutor(1) as waiting:
                waited = waiting.submit(lambda: db.wait(until_caught_up=True, timeout=90))
                with pytest.raises(
                    TimeoutError
                ):  # it waits while the broker is frozen, longer than one question takes
                    waited.result(5)
                os.kill(process.pid, signal.SIGCONT)
                waited.result()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        cluster.produce(topic, events(range(50, 120)))
        caught_up(db)  # it has just woken, and may say for a moment that it does not know its partitions yet
        assert sorted(rows(db, "SELECT id FROM v")) == [(n,) for n in range(120)]
        eventually(lambda: db.queries()[0].state == "running", "it runs")


def test_partitions_that_come_and_go_are_events_and_those_of_others_stall_nobody(
    tmp_path: Path, cluster: Cluster
) -> None:
    topic, source = cluster.make_topic(2), name("src")
    cluster.produce(topic, events(range(10)))
    with connect(tmp_path / "home") as db:
        db.execute(create_source(cluster, source, topic, group_mode="shared"))
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id FROM {source}")
        caught_up(db)
        [run] = db._views.runs()
        eventually(lambda: run.unread() == 0, "the group has it all")
        other = cluster.consumer(source, **{"partition.assignment.strategy": "cooperative-sticky"})
        try:
            other.subscribe([topic])
            eventually(lambda: other.poll(0.1) is None and other.assignment(), "somebody else has joined")
            [theirs] = other.assignment()
            cluster.produce(topic, events(range(10, 12)), partition=theirs.partition)
            assert run.unread() == 0  # they are for somebody else to read
        finally:
            other.close()
        found = rows(
            db, f"SELECT message FROM forebay_catalog.events WHERE name = '{source}' AND kind = 'rebalance'"
        )
        assert found[0][0].startswith("assigned: ")
        assert any(message.startswith("revoked: ") for (message,) in found)
        [told] = db.metrics()
        assert told.rebalances is not None
        assert told.rebalances >= len(found)
        everything = [(n,) for n in range(12)]
        eventually(
            lambda: sorted(rows(db, "SELECT id FROM v")) == everything, "the partition is back, and read", 60
        )
