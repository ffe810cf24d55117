"""Where a source starts, how far it goes, and what it makes of topics that change under it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from conftest import MakeSource
from support import Cluster, numbers, read, unique
from waiting import eventually

from forebay.errors import (
    ForebayError,
    NoOffsetError,
    OffsetOutOfRangeError,
    OptionValueError,
    TopicRecreatedError,
    UnknownTopicError,
)
from forebay.kafka.admin import Cluster as KafkaCluster
from forebay.kafka.connector import KafkaSource
from forebay.kafka.offsets import KafkaPosition

Next = dict[int, int]


def next_of(offsets: dict[str, Any]) -> Next:
    return {partition: offset for (_, partition), offset in KafkaPosition.from_json(offsets).next.items()}


def first_change(source: KafkaSource, start: dict[str, Any]) -> dict[str, Any]:
    """The next position that is not `start`: metadata is up to a second old."""
    found = eventually(lambda: (end := source.latest_offsets(start, None)) != start and end, "something new")
    assert isinstance(found, dict)
    return found


def raised(
    kind: type[ForebayError], source: KafkaSource, position: dict[str, Any]
) -> Callable[[], ForebayError | None]:
    """A condition to wait for: looking for more records fails in this way."""

    def look() -> ForebayError | None:
        try:
            source.latest_offsets(position, None)
        except kind as error:
            return error
        return None

    return look


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> str:
    """Two partitions of ten records; record n has the timestamp 1,700,000,000,000 + 1000 n."""
    topic = cluster.make_topic(2)
    for partition in range(2):
        for n in range(10):
            cluster.produce(topic, numbers(1, n), partition=partition, timestamp=1_700_000_000_000 + 1000 * n)
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startup_mode": "earliest"}, {0: 0, 1: 0}),
        ({"startup_mode": "latest"}, {0: 10, 1: 10}),
        ({"startup_mode": "timestamp", "startup_timestamp_ms": "1700000003000"}, {0: 3, 1: 3}),
        ({"startup_mode": "timestamp", "startup_timestamp_ms": "1700000003001"}, {0: 4, 1: 4}),
        ({"startup_mode": "timestamp", "startup_timestamp_ms": "0"}, {0: 0, 1: 0}),
        ({"startup_mode": "timestamp", "startup_timestamp_ms": "1800000000000"}, {0: 10, 1: 10}),
        ({"startup_mode": "specific-offsets", "startup_specific_offsets": "0:4,1:10"}, {0: 4, 1: 10}),
        ({"startup_mode": "specific-offsets", "startup_specific_offsets": "1:4"}, {0: 0, 1: 4}),
        ({"startup_mode": "group-offsets"}, {0: 0, 1: 0}),
        ({"startup_mode": "group-offsets", "auto_offset_reset": "latest"}, {0: 10, 1: 10}),
    ],
    ids=lambda value: ",".join(map(str, value.values())),
)
def test_a_source_without_a_checkpoint_starts_where_it_is_told(
    cluster: Cluster, filled: str, kafka_source: MakeSource, options: dict[str, str], expected: Next
) -> None:
    source = kafka_source(cluster.kafka_options(filled, **options))
    assert next_of(source.initial_offsets()) == expected


@pytest.mark.parametrize(
    ("committed", "reset", "expected"),
    [
        ({0: 6, 1: 2}, "earliest", {0: 6, 1: 2}),
        ({1: 10}, "earliest", {0: 0, 1: 10}),
        ({1: 3}, "latest", {0: 10, 1: 3}),
        ({0: 6, 1: 2}, "none", {0: 6, 1: 2}),
    ],
)
def test_a_first_start_takes_the_groups_offsets_where_it_has_some(
    cluster: Cluster, filled: str, kafka_source: MakeSource, committed: Next, reset: str, expected: Next
) -> None:
    options = cluster.kafka_options(filled, startup_mode="group-offsets", auto_offset_reset=reset)
    cluster.commit(options["group.id"], filled, committed)
    assert next_of(kafka_source(options).initial_offsets()) == expected


def test_without_a_reset_policy_a_partition_without_an_offset_is_an_error_that_names_it(
    cluster: Cluster, filled: str, kafka_source: MakeSource
) -> None:
    options = cluster.kafka_options(filled, startup_mode="group-offsets", auto_offset_reset="none")
    cluster.commit(options["group.id"], filled, {0: 6})
    with pytest.raises(NoOffsetError) as caught:
        kafka_source(options).initial_offsets()
    assert options["group.id"] in caught.value.message
    assert f"{filled}-1" in caught.value.message
    assert f"{filled}-0" not in caught.value.message


def test_a_specific_offset_of_a_partition_that_is_not_there_is_an_error(
    cluster: Cluster, filled: str, kafka_source: MakeSource
) -> None:
    options = cluster.kafka_options(
        filled, startup_mode="specific-offsets", startup_specific_offsets="0:1,7:3"
    )
    with pytest.raises(OptionValueError, match=f"{filled}-7, which is not there") as caught:
        kafka_source(options).initial_offsets()
    assert caught.value.option == "startup.specific.offsets"


@pytest.mark.parametrize("origin", ["specific-offsets", "group-offsets"])
def test_an_offset_past_the_end_to_start_at_is_an_error_with_the_range(
    cluster: Cluster, filled: str, kafka_source: MakeSource, origin: str
) -> None:
    options = cluster.kafka_options(filled, startup_mode=origin)
    if origin == "specific-offsets":
        options["startup.specific.offsets"] = "0:12"
    else:
        cluster.commit(options["group.id"], filled, {0: 12})
    with pytest.raises(OffsetOutOfRangeError, match=rf"{filled}-0 \[10, 12\) is not there"):
        kafka_source(options).initial_offsets()


@pytest.mark.parametrize("lenient", [False, True])
def test_an_offset_to_start_at_whose_records_are_gone_is_an_error_unless_that_is_allowed(
    cluster: Cluster, kafka_source: MakeSource, lenient: bool
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(10))
    options = cluster.kafka_options(topic, startup_mode="group-offsets")
    cluster.commit(options["group.id"], topic, {0: 2})
    for future in cluster.admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result(30)
    if lenient:
        source = kafka_source(options | {"fail.on.data.loss": "false"})
        assert next_of(source.initial_offsets()) == {0: 5}
    else:
        with pytest.raises(OffsetOutOfRangeError, match=rf"{topic}-0 \[2, 5\) is not there"):
            kafka_source(options).initial_offsets()


def test_offsets_of_several_topics_must_name_their_topics(cluster: Cluster, kafka_source: MakeSource) -> None:
    one, two = cluster.make_topic(1), cluster.make_topic(1)
    options = cluster.kafka_options("", startup_mode="specific-offsets", startup_specific_offsets="0:0")
    del options["topic"]
    options["topics"] = f"{one}, {two}"
    with pytest.raises(OptionValueError, match="must name the topic"):
        kafka_source(options).initial_offsets()
    cluster.produce(two, numbers(3))
    options["startup.specific.offsets"] = f'{{"{two}": {{"0": 2}}}}'
    found = KafkaPosition.from_json(kafka_source(options).initial_offsets())
    assert found.next == {(one, 0): 0, (two, 0): 2}


def test_several_topics_are_read_as_one_source(cluster: Cluster, kafka_source: MakeSource) -> None:
    one, two = cluster.make_topic(2), cluster.make_topic(1)
    cluster.produce(one, numbers(4))
    cluster.produce(two, numbers(3, 100))
    options = cluster.kafka_options("")
    del options["topic"]
    source = kafka_source(options | {"topics": f"{one},{two},{one}"})
    source.open()
    start = source.initial_offsets()
    rows, _ = read(source, start, source.latest_offsets(start, None))
    assert sorted(row["n"] for row in rows) == [0, 1, 2, 3, 100, 101, 102]


@pytest.mark.parametrize("limit", [1, 2, 7, 20, 21])
def test_no_more_records_than_the_limit_are_planned_and_none_is_left_out(
    cluster: Cluster, filled: str, kafka_source: MakeSource, limit: int
) -> None:
    source = kafka_source(cluster.kafka_options(filled, include_metadata="true"))
    position = source.initial_offsets()
    seen: list[tuple[int, int]] = []
    while (end := source.latest_offsets(position, limit)) != position:
        rows, _ = read(source, position, end)
        assert 0 < len(rows) <= limit
        assert source.count(position, end) == len(rows)
        seen += [(row["_partition"], row["_offset"]) for row in rows]
        position = end
    assert sorted(seen) == [(partition, n) for partition in range(2) for n in range(10)]


def test_the_end_is_where_the_source_ended_when_it_last_looked(
    cluster: Cluster, filled: str, kafka_source: MakeSource
) -> None:
    source = kafka_source(cluster.kafka_options(filled))
    assert source.known_end() is None
    start = source.initial_offsets()
    source.latest_offsets(start, 1)
    known = source.known_end()
    assert known is not None
    assert next_of(known) == next_of(source.end_offsets()) == {0: 10, 1: 10}


def test_a_topic_made_anew_is_an_error_that_says_so(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(3))
    source = kafka_source(cluster.kafka_options(topic))
    position = source.latest_offsets(source.initial_offsets(), None)
    cluster.delete_topic(topic)
    cluster.make_topic(1, name=topic)
    cluster.produce(topic, numbers(9))  # more than were read: offsets alone would not tell

    for looking in (kafka_source(cluster.kafka_options(topic)), source):
        error = eventually(raised(TopicRecreatedError, looking, position), "the topic is seen to be another")
        assert f"topic '{topic}' was deleted and created again" in error.message
        assert f"{topic}-0 [0, 3)" in error.message


@pytest.mark.parametrize("now", ["refilled", "gone"])
def test_a_batch_that_was_planned_of_another_topic_is_not_read_of_this_one(
    cluster: Cluster, kafka_source: MakeSource, now: str
) -> None:
    """Planned, then the process died: whoever repeats the batch has its offsets from the log, and never looked itself."""
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(3))
    planner = kafka_source(cluster.kafka_options(topic))
    start = planner.initial_offsets()
    end = planner.latest_offsets(start, None)
    again = kafka_source(cluster.kafka_options(topic))
    assert len(again.plan_batches(start, end, 2)) == 1
    cluster.delete_topic(topic)
    if now == "gone":
        with pytest.raises(UnknownTopicError, match=f"topic '{topic}'"):
            kafka_source(cluster.kafka_options(topic)).plan_batches(start, end, 2)
        return
    cluster.make_topic(1, name=topic)
    cluster.produce(topic, numbers(9, 100))
    with pytest.raises(TopicRecreatedError, match=f"topic '{topic}' was deleted and created again") as caught:
        kafka_source(cluster.kafka_options(topic)).plan_batches(start, end, 2)
    assert f"{topic}-0 [0, 3)" in caught.value.message
    # What was read can still be counted by what was written down of it.
    assert [split.spans() for split in planner.splits(start, end, 1)] == [[(topic, 0, 0, 3)]]


def test_a_topic_that_is_gone_is_an_error_that_says_so(cluster: Cluster, kafka_source: MakeSource) -> None:
    topic, other = cluster.make_topic(1), cluster.make_topic(1)
    cluster.produce(topic, numbers(3))
    by_name = kafka_source(cluster.kafka_options(topic))
    options = cluster.kafka_options("")
    del options["topic"]
    by_pattern = kafka_source(options | {"topic.pattern": f"{topic}|{other}"})
    positions = [source.latest_offsets(source.initial_offsets(), None) for source in (by_name, by_pattern)]
    cluster.delete_topic(topic)

    for source, position in zip((by_name, by_pattern), positions, strict=True):
        error = eventually(raised(UnknownTopicError, source, position), "the topic is seen to be gone")
        assert f"topic '{topic}'" in error.message
    eventually(
        lambda: "[0, 3) was read" in str(raised(UnknownTopicError, by_pattern, positions[1])()),
        "the new list of topics tells how far it was read",
    )


@pytest.mark.parametrize("mode", ["earliest", "latest"])
def test_a_new_partition_is_picked_up_and_read_from_its_first_offset(
    cluster: Cluster, kafka_source: MakeSource, mode: str
) -> None:
    topic = cluster.make_topic(1)
    source = kafka_source(cluster.kafka_options(topic, startup_mode=mode))
    start = source.initial_offsets()
    assert source.latest_offsets(start, None) == start
    cluster.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    cluster.await_leaders(topic, 3)
    cluster.produce(topic, numbers(4), partition=2)
    position, seen = start, []
    while len(seen) < 4:
        end = first_change(source, position)
        seen += [row["n"] for row in read(source, position, end)[0]]
        assert source.lost(position, end) == ()
        position = end
    assert seen == [0, 1, 2, 3]
    assert next_of(position) == {0: 0, 1: 0, 2: 4}
    assert source.latest_offsets(position, None) == position


def test_a_topic_that_comes_to_match_the_pattern_is_picked_up(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    prefix = unique("wild")
    first = cluster.make_topic(1, name=f"{prefix}-a")
    cluster.make_topic(1, name=f"{prefix}-a.not")
    options = cluster.kafka_options("")
    del options["topic"]
    source = kafka_source(options | {"topic.pattern": f"{prefix}-[a-z]"})
    source.open()
    start = source.initial_offsets()
    assert set(KafkaPosition.from_json(start).next) == {(first, 0)}
    second = cluster.make_topic(1, name=f"{prefix}-b")
    cluster.produce(second, numbers(2))
    end = first_change(source, start)
    while not KafkaPosition.from_json(end).next.get((second, 0)):
        end = first_change(source, end)
    assert [row["n"] for row in read(source, start, end)[0]] == [0, 1]
    assert set(KafkaPosition.from_json(end).ids) == {first, second}


def test_a_bound_holds_back_records_and_partitions_that_came_after_it(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(5))
    source = kafka_source(cluster.kafka_options(topic))
    start, bound = source.initial_offsets(), source.end_offsets()
    cluster.produce(topic, numbers(5, 5))
    cluster.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    cluster.await_leaders(topic, 2)
    cluster.produce(topic, numbers(3, 100), partition=1)
    end = source.latest_offsets(start, None, bound)
    assert next_of(end) == {0: 5}
    assert source.reached(end, bound)
    assert source.latest_offsets(end, None, bound) == end
    eventually(lambda: len(next_of(source.latest_offsets(end, None))) == 2, "the new partition")


def test_a_wrong_topic_is_an_error_at_open_that_lists_near_names(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    topic = cluster.make_topic(1, name=unique("shipments"))
    with pytest.raises(UnknownTopicError) as caught:
        kafka_source(cluster.kafka_options(topic.replace("shipments", "shipmets"))).open()
    assert f"'{topic}'" in caught.value.remedy
    assert cluster.bootstrap_servers in caught.value.message
    with pytest.raises(UnknownTopicError) as caught:
        kafka_source(cluster.kafka_options("zzzzzzzz")).open()
    assert "topics there: " in caught.value.remedy


def test_a_pattern_that_matches_nothing_is_an_error_at_open(
    cluster: Cluster, kafka_source: MakeSource
) -> None:
    cluster.make_topic(1)
    options = cluster.kafka_options("")
    del options["topic"]
    with pytest.raises(UnknownTopicError, match=r"matches 'nothing-like-it-\.\*'"):
        kafka_source(options | {"topic.pattern": "nothing-like-it-.*"}).open()


def test_the_longer_nothing_comes_the_less_the_broker_is_asked_and_a_record_still_shows_at_once(
    cluster: Cluster, kafka_source: MakeSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.make_topic(1)
    source = kafka_source(cluster.kafka_options(topic) | {"poll.timeout.ms": "1000"})
    source.open()
    start, asked = source.initial_offsets(), 0
    latest = KafkaCluster.latest

    def counted(self: KafkaCluster, partitions: Any) -> Any:
        nonlocal asked
        asked += 1
        return latest(self, partitions)

    monkeypatch.setattr(KafkaCluster, "latest", counted)
    eventually(
        lambda: source.latest_offsets(start, None) == start and source._planner.quiet_s > 5,
        "five quiet seconds",
    )
    asked = 0
    assert source.latest_offsets(start, None) == start
    assert 2 <= asked <= 11
    cluster.produce(topic, [b"x"])
    asked = 0
    assert source.latest_offsets(start, None) != start
    assert asked <= 2  # at once, and not when the quiet second is over
