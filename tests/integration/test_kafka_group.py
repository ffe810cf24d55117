"""The consumer group as a mirror of the checkpoint, and what is said of it."""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from conftest import MakeSource
from support import Cluster, numbers, read
from waiting import eventually

from forebay.connectors.contract import SourceCheckpoint
from forebay.errors import CommitError
from forebay.kafka import connector
from forebay.kafka.connector import KafkaSource
from forebay.kafka.offsets import KafkaPosition


def admins_view(cluster: Cluster, group: str, topic: str) -> dict[int, int]:
    """The group's offsets as kafka-consumer-groups would show them."""
    (future,) = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        found.partition: found.offset
        for found in future.result(30).topic_partitions
        if found.topic == topic and found.offset >= 0
    }


def test_lag_equals_what_admin_and_consumer_see_partition_by_partition(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(4)
    for partition, count in enumerate((10, 5, 0, 3)):
        cluster.produce(topic, numbers(count), partition=partition)
    options = cluster.kafka_options(topic)
    source = kafka_source(options)
    source.open()
    before = source.lag()
    assert [(item.partition, item.committed, item.end, item.lag) for item in before] == [
        (0, None, 10, 10), (1, None, 5, 5), (2, None, 0, 0), (3, None, 3, 3),
    ]  # fmt: skip

    position = KafkaPosition({(topic, 0): 7, (topic, 1): 5, (topic, 2): 0, (topic, 3): 1}).to_json()
    checkpoint = SourceCheckpoint(position, 3)
    assert source.current_offsets() is None
    source.commit_offsets(checkpoint)
    assert source.current_offsets() == checkpoint

    group = options["group.id"]
    ends = {number: high for number, (_, high) in cluster.watermarks(topic).items()}
    committed = cluster.committed(group, topic)
    assert committed == admins_view(cluster, group, topic) == {0: 7, 1: 5, 2: 0, 3: 1}
    assert [(item.topic, item.partition, item.committed, item.end, item.lag) for item in source.lag()] == [
        (topic, number, committed[number], ends[number], ends[number] - committed[number])
        for number in range(4)
    ]


def test_reading_alone_commits_nothing(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(5))
    options = cluster.kafka_options(topic)
    source = kafka_source(options)
    start = source.initial_offsets()
    assert len(read(source, start, source.latest_offsets(start, None))[0]) == 5
    source.close()
    assert cluster.committed(options["group.id"], topic) == {0: -1001}


def test_a_commit_that_the_group_refuses_is_an_error_and_is_not_remembered(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(2))
    options = cluster.kafka_options(topic)
    member = cluster.consumer(options["group.id"])
    try:
        member.subscribe([topic])
        eventually(lambda: member.poll(0.1) is None and member.assignment(), "the member has joined")
        source = kafka_source(options)
        with pytest.raises(CommitError, match=options["group.id"]) as refused:
            source.commit_offsets(SourceCheckpoint(KafkaPosition({(topic, 0): 2}).to_json(), 0))
        assert "an active member ('rdkafka' on 127.0.0.1)" in refused.value.message
        assert "group.mode = 'shared'" in refused.value.remedy
        assert source.current_offsets() is None
        assert source.metrics().custom == {"commits_total": 0.0, "commit_failures_total": 1.0}
    finally:
        member.close()
    source.commit_offsets(SourceCheckpoint(KafkaPosition({(topic, 0): 2}).to_json(), 0))
    assert cluster.committed(options["group.id"], topic) == {0: 2}


def test_a_second_source_that_commits_to_the_group_is_noticed_and_named(
    cluster: Cluster, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "LOOK_S", 0.0)
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(9))
    options = cluster.kafka_options(topic)
    one, two = kafka_source(options), kafka_source(options)

    def commit(source: KafkaSource, offset: int) -> None:
        source.commit_offsets(SourceCheckpoint(KafkaPosition({(topic, 0): offset}).to_json(), 0))

    commit(one, 2)
    commit(one, 3)
    assert one.group_trouble() == ""
    commit(two, 5)
    commit(one, 4)
    assert f"this source left {topic}-0 at 3, and it is at 5 now" in one.group_trouble()
    assert "group.id of its own" in one.group_trouble()
    commit(one, 6)
    assert one.group_trouble() == "", "the other is gone"


def test_health_says_how_many_brokers_answer_and_how_far_behind_the_group_is(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(5))
    options = cluster.kafka_options(topic)
    source = kafka_source(options)
    source.open()
    health = source.health_check()
    assert health.healthy
    assert health.message == "Connected to 1 broker(s), lag: 5"
    assert health.details["group.id"] == options["group.id"]
    assert health.details["topics"] == topic
    assert health.details[f"lag.{topic}.0"] == "3"
    assert health.details[f"lag.{topic}.1"] == "2"


def test_metrics_count_records_errors_and_commits(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, [*numbers(4), b"not json"])
    source = kafka_source(cluster.kafka_options(topic))
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    read(source, start, end)
    source.commit_offsets(SourceCheckpoint(end, 0))
    metrics = source.metrics()
    assert (metrics.records_total, metrics.errors_total) == (4, 1)
    assert metrics.custom == {"commits_total": 1.0, "commit_failures_total": 0.0}
    assert metrics.records_per_sec > 0
