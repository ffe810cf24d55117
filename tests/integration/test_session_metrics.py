"""A session's metrics on a real broker: they agree with it, and do without it while it is away."""

from __future__ import annotations

import time

import pytest
from sessions import caught_up, checkpointed, create_source, event, events, name, notes, rows
from support import Cluster
from waiting import eventually

from forebay.cli.run import _line
from forebay.devstack import DevStack
from forebay.runtime import health
from forebay.runtime.metrics import SessionCollector
from forebay.runtime.session import Session


def samples(collector: SessionCollector) -> dict[tuple[str, ...], float]:
    """By the name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in collector.collect()
        for sample in family.samples
    }


def lag(collector: SessionCollector, group: str, topic: str) -> dict[int, float]:
    found = samples(collector)
    return {
        int(key[3]): value
        for key, value in found.items()
        if key[:3] == ("kafka_consumergroup_lag", group, topic)
    }


def test_metrics_agree_with_the_brokers_and_with_the_tables(db: Session, cluster: Cluster) -> None:
    topic, source, view = cluster.make_topic(2), name("src"), name("view")
    bad = ['{"id": 1, "k"', event(1, v="ten"), event(1, v=2.5)]
    values = [*events(range(7)), *bad]
    cluster.produce(topic, values)
    policy = f"ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{topic}-dlq')"
    db.execute(f"{create_source(cluster, source, topic)} {policy}")
    collector = db.collector()
    eventually(lambda: lag(collector, source, topic) == {0: 5, 1: 5}, "the lag of a group without offsets")

    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    caught_up(db)
    found = samples(collector)
    assert found["forebay_source_healthy", source] == found["forebay_source_brokers", source] == 1
    assert found["forebay_source_records_total", source] == 10
    assert found["forebay_source_bytes_total", source] == sum(len(value) for value in values)
    assert found["forebay_source_errors_total", source, "MalformedPayload"] == 1
    assert found["forebay_source_errors_total", source, "TypeConversion"] == 2
    assert found["forebay_query_records_total", view] == 10
    assert found["forebay_query_state", view, "running"] == 1
    assert found["forebay_query_batch_seconds_count", view] == found["forebay_query_batches_total", view] == 1
    assert found["forebay_source_commits_total", source] >= 1
    assert found["forebay_source_commit_failing", source] == 0
    columns = "errors_total, dlq_total, skipped, rate_limited"
    query = f"SELECT {columns} FROM forebay_catalog.source_errors WHERE source_name = '{source}'"
    assert rows(db, query) == [(3, 3, 0, 0)]
    told = ("dead_letters", "skipped", "rate_limited")
    assert [found[f"forebay_source_{each}_total", source] for each in told] == [3, 0, 0]
    ends, committed = cluster.watermarks(topic), cluster.committed(source, topic)
    behind = {number: ends[number][1] - committed[number] for number in range(2)}
    eventually(lambda: lag(collector, source, topic) == behind == {0: 0, 1: 0}, "the lag after a commit")
    db.execute(f"DROP SOURCE {source} CASCADE")
    assert not [key for key in samples(collector) if source in key]


def test_offsets_that_cannot_be_committed_are_shown_wherever_somebody_looks(
    db: Session, cluster: Cluster
) -> None:
    topic, source, view = cluster.make_topic(1), name("src"), name("view")
    collector = db.collector()
    db.execute(create_source(cluster, source, topic))
    db.execute(f"CREATE MATERIALIZED VIEW {view} AS SELECT id FROM {source}")
    member = cluster.consumer(source)  # whoever joins the group keeps its offsets from everybody else
    try:
        member.subscribe([topic])
        eventually(lambda: member.poll(0.1) is None and member.assignment(), "the member has joined")
        cluster.produce(topic, events(range(5)))
        eventually(lambda: source in db.commit_errors(), "a commit has failed", timeout=60)
        found = samples(collector)
        assert found["forebay_source_commit_failing", source] == 1
        assert found["forebay_source_commit_failures_total", source] >= 1
        (shown,) = [query for query in db.queries() if query.view == view]
        assert shown.state == "running"
        assert f"group '{source}' are not committed: it has an active member" in shown.message
        assert shown.message in _line([shown], None).plain
        told = notes(db, f"DESCRIBE EXTENDED SOURCE {source}")
        assert f"Commits fail: {shown.message}" in told
        failed = (
            f"SELECT message FROM forebay_catalog.events WHERE name = '{source}' AND kind = 'commit_failed'"
        )
        assert rows(db, failed) == [(shown.message,)]  # once, however often it is tried
    finally:
        member.close()
    eventually(lambda: samples(collector)["forebay_source_commit_failing", source] == 0, "it is over", 60)
    assert [query.message for query in db.queries() if query.view == view] == [""]
    assert cluster.committed(source, topic) == checkpointed(db.home, view, topic) == {0: 5}
    db.execute(f"DROP SOURCE {source} CASCADE")


def test_while_the_broker_is_away_a_scrape_says_so_at_once_and_without_a_lag(
    db: Session, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(5)))
    db.execute(create_source(cluster, source, topic))
    collector = db.collector()
    longest = 0.0

    def healthy() -> float | None:
        nonlocal longest
        began = time.monotonic()
        found = samples(collector).get(("forebay_source_healthy", source))
        longest = max(longest, time.monotonic() - began)
        return found

    eventually(lambda: healthy() == 1, "the broker answers")
    assert lag(collector, source, topic) == {0: 5}
    mortal_broker.kill_broker()
    eventually(lambda: healthy() == 0, "the outage is noticed")
    assert lag(collector, source, topic) == {}
    mortal_broker.start_broker()
    eventually(lambda: healthy() == 1, "and its end", timeout=60)
    assert lag(collector, source, topic) == {0: 5}
    assert longest < 1.0
    db.execute(f"DROP SOURCE {source}")


def test_sources_come_and_go_while_they_are_asked_for_their_lag(
    db: Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.0)
    topic, source = cluster.make_topic(1), name("src")
    cluster.produce(topic, events(range(5)))
    collector = db.collector()
    for _ in range(10):
        db.execute(create_source(cluster, source, topic))
        db.execute(f"DROP SOURCE {source}")
        assert not lag(collector, source, topic)  # what is gone is not told of
    db.execute(create_source(cluster, source, topic))
    eventually(lambda: lag(collector, source, topic) == {0: 5}, "the last one is asked as the first was")
    db.execute(f"DROP SOURCE {source}")
