"""Brokers that are away, or come back."""

from __future__ import annotations

import logging
import re
import time

import pytest
from conftest import MakeSource
from support import Cluster, numbers, read
from waiting import eventually

from forebay import backoff
from forebay.connectors.contract import ConnectorState, SourceCheckpoint
from forebay.devstack import DevStack
from forebay.errors import AuthError, CommitError, UnknownTopicError, UnreachableError
from forebay.kafka.offsets import KafkaPosition

# -- backoff ----------------------------------------------------------------------------------------------


def test_waits_double_from_a_tenth_of_a_second_to_thirty_seconds() -> None:
    waiting = backoff.Backoff()
    assert [waiting.failed() for _ in range(11)] == [
        0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0,
    ]  # fmt: skip
    assert waiting.until > time.monotonic() + 29
    waiting.over()
    assert waiting.until == 0.0
    assert waiting.failed() == 0.1


def test_an_unreachable_broker_is_tried_again_and_each_wait_is_told() -> None:
    tries: list[float] = []
    told: list[float] = []

    def attempt() -> str:
        tries.append(time.monotonic())
        if len(tries) < 4:
            raise UnreachableError("away")
        return "here"

    assert backoff.with_backoff(attempt, timeout_s=None, notify=lambda _, wait: told.append(wait)) == "here"
    assert told == [0.1, 0.2, 0.4]
    assert tries[-1] - tries[0] >= 0.7


@pytest.mark.parametrize("error", [AuthError("no"), UnknownTopicError("no"), ValueError("no")])
def test_what_does_not_pass_by_itself_is_not_tried_again(error: Exception) -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise error

    with pytest.raises(type(error)):
        backoff.with_backoff(attempt, timeout_s=None)
    assert len(tries) == 1


def test_the_last_failure_is_raised_when_the_time_is_up() -> None:
    tries = []

    def attempt() -> None:
        tries.append(1)
        raise UnreachableError(f"away {len(tries)}")

    began = time.monotonic()
    with pytest.raises(UnreachableError) as caught:
        backoff.with_backoff(attempt, timeout_s=1.0)
    assert time.monotonic() - began < 2.0
    assert len(tries) > 1
    assert caught.value.message == f"away {len(tries)}"


# -- nobody there -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "which", [{"topic": "orders"}, {"topic.pattern": "orders.*"}], ids=["topic", "pattern"]
)
def test_an_unreachable_broker_is_tried_for_as_long_as_told_and_named(
    nowhere: str, kafka_source: MakeSource, caplog: pytest.LogCaptureFixture, which: dict[str, str]
) -> None:
    options = {"bootstrap.servers": nowhere, "group.id": "g", "connect.timeout.ms": "2500", **which}
    source = kafka_source(options)
    began = time.monotonic()
    with caplog.at_level(logging.INFO, "forebay.kafka"), pytest.raises(UnreachableError) as caught:
        source.open()
    assert 1.0 <= time.monotonic() - began < 6  # a little longer than told: the try in flight ends
    assert nowhere in caught.value.message
    assert "Connection refused" in caught.value.message
    assert caught.value.exit_code == 3
    waits = [float(wait) for wait in re.findall(r"trying again in ([\d.]+) s", caplog.text)]
    assert waits
    assert waits == [0.1, 0.2, 0.4, 0.8][: len(waits)]
    warned = [each for each in caplog.records if each.levelno >= logging.WARNING and "again" in each.message]
    assert len(warned) == max(0, len(waits) - 2)  # the first half second passes without a word
    assert source.state is ConnectorState.FAILED


def test_health_of_a_source_whose_broker_is_away_is_bad_and_never_raises(
    nowhere: str, kafka_source: MakeSource
) -> None:
    source = kafka_source({"bootstrap.servers": nowhere, "group.id": "g", "topic": "orders"})
    health = source.health_check()
    assert not health.healthy
    assert nowhere in health.message
    assert health.details == {"group.id": "g", "topics": "orders", "state": "created"}


# -- an outage --------------------------------------------------------------------------------------------


def test_a_source_waits_out_a_broker_that_goes_away_and_comes_back(
    kafka_source: MakeSource, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic = cluster.make_topic(2)
    cluster.produce(topic, numbers(6))
    options = cluster.kafka_options(topic, connect_timeout_ms="30000")
    source = kafka_source(options)
    source.open()
    start = source.initial_offsets()
    middle = source.latest_offsets(start, None)
    source.commit_offsets(SourceCheckpoint(middle, 0))

    mortal_broker.kill_broker()
    assert source.latest_offsets(middle, None) == middle
    assert source.latest_offsets(start, None) == start
    assert not source.health_check().healthy
    with pytest.raises(UnreachableError, match=mortal_broker.bootstrap_servers):
        source.end_offsets()
    began = time.monotonic()
    with pytest.raises(CommitError):
        source.commit_offsets(SourceCheckpoint(middle, 0))
    assert time.monotonic() - began < 45  # the library's own patience is a minute

    mortal_broker.start_broker()
    again = Cluster(mortal_broker)
    again.await_leaders(topic, 2)
    again.produce(topic, numbers(4, 6))
    end = eventually(
        lambda: (found := source.latest_offsets(middle, None)) != middle and found,
        "the source goes on",
        timeout=60,
    )
    while source.count(middle, end) < 4:
        end = source.latest_offsets(middle, None)
    assert sorted(row["n"] for row in read(source, middle, end)[0]) == [6, 7, 8, 9]
    assert sorted(row["n"] for row in read(source, start, end)[0]) == list(range(10))
    source.commit_offsets(SourceCheckpoint(end, 1))
    assert {item.lag for item in source.lag()} == {0}
    assert source.health_check().healthy


def test_reading_goes_on_after_an_outage_in_the_middle_of_a_range(
    kafka_source: MakeSource, mortal_broker: DevStack
) -> None:
    cluster = Cluster(mortal_broker)
    topic = cluster.make_topic(1)
    cluster.produce(topic, numbers(3000))
    source = kafka_source(
        cluster.kafka_options(topic, max_poll_records="100", max_partition_fetch_bytes="2000")
        | {
            "kafka.queued.min.messages": "100",
            "kafka.queued.max.messages.kbytes": "4",
            "kafka.reconnect.backoff.max.ms": "500",
        }
    )
    start = source.initial_offsets()
    end = source.latest_offsets(start, None)
    assert KafkaPosition.from_json(end).next == {(topic, 0): 3000}
    (split,) = source.plan_batches(start, end, 1)
    batches = source.read_batch(split)
    seen = [row["n"] for row in next(batches).records.to_pylist()]
    mortal_broker.kill_broker()
    mortal_broker.start_broker()
    seen += [row["n"] for batch in batches for row in batch.records.to_pylist()]
    assert seen == list(range(3000))
