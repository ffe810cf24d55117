"""Reading ranges of a real log: every record once, gaps that are no losses, losses that are named."""

from __future__ import annotations

import pickle
import time
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from support import Cluster, kafka_source, numbers, read
from waiting import eventually

from forebay.errors import OffsetOutOfRangeError, OptionValueError, UnknownTopicError
from forebay.kafka.native_reader import NativeReader
from forebay.kafka.offsets import KafkaPosition, KafkaSplit, Range


def values(source: Any, *ranges: Range) -> list[tuple[int, int]]:
    """(partition, n) of what a single task reads."""
    split = pickle.loads(pickle.dumps(KafkaSplit(ranges)))
    return [
        (row["_partition"], row["n"])
        for batch in source.read_batch(split)
        for row in batch.records.to_pylist()
    ]


def delete_before(cluster: Cluster, topic: str, partition: int, offset: int) -> None:
    cut = TopicPartition(topic, partition, offset)
    for future in cluster.admin.delete_records([cut]).values():
        future.result(30)


def test_one_task_reads_exactly_its_ranges_of_several_partitions(cluster: Cluster) -> None:
    topic = cluster.make_topic(3)
    for partition in range(3):
        cluster.produce(topic, numbers(100, 1000 * partition), partition=partition)
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true", max_poll_records="7"))
    got = values(source, Range(topic, 0, 10, 20), Range(topic, 1, 0, 100), Range(topic, 2, 99, 100))
    assert [n for p, n in got if p == 0] == list(range(10, 20))
    assert [n for p, n in got if p == 1] == list(range(1000, 1100))
    assert [n for p, n in got if p == 2] == [2099]


def test_no_batch_is_larger_than_max_poll_records(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(50))
    source = kafka_source(cluster.kafka_options(topic, max_poll_records="7"))
    sizes = [batch.records.num_rows for batch in source.read_batch(KafkaSplit((Range(topic, 0, 0, 50),)))]
    assert sum(sizes) == 50
    assert max(sizes) <= 7


def test_a_range_read_again_gives_the_same_rows_and_only_those(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(60))
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    first = values(source, Range(topic, 0, 5, 25))
    assert values(source, Range(topic, 0, 40, 60)) == [(0, n) for n in range(40, 60)]
    assert values(source, Range(topic, 0, 5, 25)) == first == [(0, n) for n in range(5, 25)]
    assert values(source, Range(topic, 0, 25, 25)) == []


def test_a_small_range_is_read_without_waiting_for_a_batch_to_fill(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(3))
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    took = []
    for _ in range(7):
        began = time.monotonic()
        assert len(values(source, Range(topic, 0, 0, 3))) == 3
        took.append(time.monotonic() - began)
    assert min(took) < 0.15  # it was 0.2 and more when each poll waited its whole time-out


def test_what_compaction_removed_is_a_gap_and_not_a_loss(cluster: Cluster) -> None:
    topic = cluster.make_topic(
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="100",
        min_compaction_lag_ms="0",
        max_compaction_lag_ms="100",
        delete_retention_ms="0",
    )
    # One key: all but the last of the closed segments goes.
    cluster.produce(topic, numbers(200), partition=0, key="k")
    sent = 200

    def survivors() -> list[int]:
        return [message.offset() for message in cluster.records(topic)]

    def compacted() -> bool:
        nonlocal sent
        cluster.produce(topic, numbers(1, sent), partition=0, key="k")  # rolls the segment
        sent += 1
        return len(survivors()) < sent / 2

    eventually(compacted, "the log cleaner has run", timeout=90)
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert source.count(start, end) == sent
    kept: list[int] = []
    rows: list[dict[str, Any]] = []
    rejected: list[Any] = []

    def read_undisturbed() -> bool:
        """Read between two looks that saw the same: the cleaner may still be at work."""
        nonlocal kept, rows, rejected
        kept = survivors()
        rows, rejected = read(source, start, end)
        return survivors() == kept

    eventually(read_undisturbed, "a read while the log cleaner rests", timeout=90)
    assert [row["_offset"] for row in rows] == kept
    assert rejected == []
    assert source.lost(start, end) == ()
    # A range that lies in the gap altogether is empty, and its reader comes back.
    gap = next(low for low in range(sent) if low not in kept and low + 1 not in kept)
    assert values(source, Range(topic, 0, gap, gap + 2)) == []


def transact(cluster: Cluster, topic: str, commits: list[bool], size: int = 5) -> list[int]:
    """Write transactions one after the other; the numbers of those that were committed."""
    producer = cluster.transactional_producer()
    committed: list[int] = []
    for number, commit in enumerate(commits):
        producer.begin_transaction()
        for value in numbers(size, number * size):
            producer.produce(topic, value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
            committed += range(number * size, number * size + size)
        else:
            producer.abort_transaction(30)
    # The broker answers before it has written the marker.
    end = len(commits) * (size + 1)
    eventually(lambda: cluster.watermarks(topic)[0][1] == end, "the last marker is in the log")
    return committed


@pytest.mark.parametrize(
    "commits",
    [[True], [False], [True, False], [False, True], [True, False, True, False, False]],
    ids=lambda commits: "".join("ca"[not commit] for commit in commits),
)
def test_records_of_aborted_transactions_are_never_seen_and_markers_end_no_range_early(
    cluster: Cluster, commits: list[bool]
) -> None:
    topic = cluster.make_topic(1)
    committed = transact(cluster, topic, commits)
    options = cluster.kafka_options(topic)
    source = kafka_source(options)
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert source.count(start, end) == len(commits) * 6  # five records and a marker each
    rows, rejected = read(source, start, end)
    assert [row["n"] for row in rows] == committed
    assert rejected == []
    everything, _ = read(kafka_source({**options, "isolation.level": "read_uncommitted"}), start, end)
    assert len(everything) == 5 * len(commits)


def test_a_range_of_nothing_but_a_marker_is_empty_and_ends(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    transact(cluster, topic, [True, False])
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    assert values(source, Range(topic, 0, 5, 6)) == []
    assert values(source, Range(topic, 0, 6, 12)) == []
    assert values(source, Range(topic, 0, 11, 12)) == []


def test_an_open_transaction_bounds_how_far_there_is_to_read(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(4), partition=0)
    producer = cluster.transactional_producer()
    producer.begin_transaction()
    producer.produce(topic, numbers(1, 4)[0], partition=0)
    producer.flush(30)
    cluster.produce(topic, numbers(3, 5), partition=0)  # after the open one, and committed: not stable yet
    options = cluster.kafka_options(topic)
    source = kafka_source(options)
    start = source.initial_offsets()
    bounded = source.latest_offsets(start, None)
    assert KafkaPosition.from_json(bounded).next == {(topic, 0): 4}
    assert KafkaPosition.from_json(source.end_offsets()).next == {(topic, 0): 4}
    assert [row["n"] for row in read(source, start, bounded)[0]] == [0, 1, 2, 3]
    assert source.latest_offsets(bounded, None) == bounded
    dirty = kafka_source({**options, "isolation.level": "read_uncommitted"})
    assert KafkaPosition.from_json(dirty.latest_offsets(start, None)).next == {(topic, 0): 8}
    producer.commit_transaction(30)
    end = eventually(
        lambda: (found := source.latest_offsets(bounded, None)) != bounded and found, "the transaction ends"
    )
    assert [row["n"] for row in read(source, bounded, end)[0]] == [4, 5, 6, 7]


def test_records_that_are_gone_before_planning_are_an_error_that_names_the_range(cluster: Cluster) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(20), partition=0)
    source = kafka_source(cluster.kafka_options(topic))
    start = source.initial_offsets()
    delete_before(cluster, topic, 0, 7)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        source.latest_offsets(start, None)
    assert f"7 records are gone before they were read: {topic}-0 [0, 7)" in caught.value.message
    assert "fail.on.data.loss" in caught.value.remedy


def test_told_to_go_on_a_source_goes_on_and_names_what_is_gone(cluster: Cluster) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(20), partition=0)
    source = kafka_source(cluster.kafka_options(topic, fail_on_data_loss="false"))
    start = source.initial_offsets()
    delete_before(cluster, topic, 0, 7)
    end = source.latest_offsets(start, None)
    assert source.lost(start, end) == ((topic, 0, 0, 7),)
    assert source.count(start, end) == 13
    rows, rejected = read(source, start, end)
    assert [row["n"] for row in rows] == list(range(7, 20))
    assert rejected == []


def test_records_that_are_gone_between_planning_and_reading_are_an_error_with_the_range(
    cluster: Cluster,
) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(40))
    source = kafka_source(cluster.kafka_options(topic))
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    delete_before(cluster, topic, 1, 9)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        read(source, start, end)
    assert f"9 records are gone before they were read: {topic}-1 [0, 9)" in caught.value.message


@pytest.mark.parametrize("gone", [9, 20])
def test_told_to_go_on_a_task_goes_on_and_reports_what_is_gone(cluster: Cluster, gone: int) -> None:
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(40))  # twenty a partition, even numbers in the first
    source = kafka_source(cluster.kafka_options(topic, fail_on_data_loss="false"))
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    delete_before(cluster, topic, 1, gone)
    rows, rejected = read(source, start, end)
    assert sorted(row["n"] for row in rows) == sorted([*range(0, 40, 2), *range(2 * gone + 1, 40, 2)])
    (report,) = rejected
    assert (report.topic, report.partition, report.offset) == (topic, 1, 0)
    assert report.message == f"{gone} records are gone: {topic}-1 [0, {gone})"


def test_a_range_that_ends_past_the_end_of_the_log_is_an_error_with_what_is_missing(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(5))
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    with pytest.raises(OffsetOutOfRangeError, match=rf"3 records .*{topic}-0 \[5, 8\)"):
        values(source, Range(topic, 0, 0, 8))
    with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0 \[7, 9\)"):
        values(source, Range(topic, 0, 7, 9))


def test_reading_a_topic_that_is_gone_says_so(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(5))
    source = kafka_source(cluster.kafka_options(topic))
    cluster.delete_topic(topic)
    with pytest.raises(UnknownTopicError, match=topic):
        list(source.read_batch(KafkaSplit((Range(topic, 0, 0, 5),))))


def test_a_repeated_first_batch_that_would_start_past_its_end_is_an_error(cluster: Cluster) -> None:
    topic = cluster.make_topic(1)
    source = kafka_source(cluster.kafka_options(topic))
    with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0 \[3, 9\) would be left out"):
        source.plan_batches(
            KafkaPosition({(topic, 0): 9}).to_json(), KafkaPosition({(topic, 0): 3}).to_json(), 2
        )


@pytest.mark.parametrize("key", ["kafka.error_cb", "kafka.no.such.setting", "kafka.default.topic.config"])
def test_a_setting_that_the_client_refuses_is_an_option_error_at_open(cluster: Cluster, key: str) -> None:
    source = kafka_source(cluster.kafka_options(cluster.make_topic(1)) | {key: "x"})
    with pytest.raises(OptionValueError, match="the Kafka client refuses its settings"):
        source.open()


def test_a_consumer_that_is_used_again_and_again_skips_nothing(cluster: Cluster) -> None:
    """A partition that one reader had finished with must start anew for the next, not where it stood."""
    topic = cluster.make_topic(3)
    for partition in range(3):
        cluster.produce(topic, numbers(600, 1000 * partition), partition=partition)
    source = kafka_source(cluster.kafka_options(topic, include_metadata="true"))
    for start in range(0, 600, 20):
        got = values(source, *(Range(topic, partition, start, start + 20) for partition in range(3)))
        wanted = [
            (partition, 1000 * partition + n) for partition in range(3) for n in range(start, start + 20)
        ]
        assert sorted(got) == wanted, f"at {start}"


@pytest.mark.parametrize("native", [True, False], ids=["native", "librdkafka"])
def test_a_record_larger_than_a_fetch_may_be_is_read_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(NativeReader, "open", lambda *_: None)
    topic = cluster.make_topic(1, max_message_bytes="8000000")
    producer = cluster.producer(message_max_bytes=8_000_000)
    for number, size in enumerate((10, 3_000_000, 10, 1_500_000, 10)):
        producer.produce(topic, b'{"n": %d, "fill": "%s"}' % (number, b"x" * size))
        assert producer.flush(30) == 0  # each in a batch of its own
    few = {"fetch_max_bytes": "1000000", "max_partition_fetch_bytes": "1000"}
    source = kafka_source(cluster.kafka_options(topic, **few))
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert [row["n"] for row in read(source, start, end)[0]] == [0, 1, 2, 3, 4]
