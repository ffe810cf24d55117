"""The age of the oldest unread record: when it is looked for, and what it is while nobody looks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.connectors.contract import PartitionLag
from forebay.kafka import lag
from forebay.kafka.lag import NOTHING, OldestUnread
from forebay.kafka.options import KAFKA
from forebay.kafka.partitions import TopicPartition

OPTIONS = KAFKA.bind({"bootstrap.servers": "nowhere:1", "topic": "t", "group.id": "g"})


class Log:
    """Partitions whose record at offset n was written in second n, and how often somebody fetched."""

    def __init__(self) -> None:
        self.now, self.fetched, self.answers = 100.0, 0, True
        self.markers: set[TopicPartition] = set()
        self.oldest = OldestUnread(OPTIONS, lambda: self.now, self.look)

    def look(self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        self.fetched += len(wanted)
        if self.answers:
            found |= {key: NOTHING if key in self.markers else at * 1000 for key, at in wanted.items()}

    def age(self, committed: int, end: int, *, fresh: bool = False) -> float | None:
        [row] = self.oldest.aged([PartitionLag("t", 0, committed, end, end - committed)], fresh=fresh)
        return row.lag_s


@pytest.fixture
def log() -> Log:
    return Log()


def test_where_nothing_is_unread_nothing_is_fetched(log: Log) -> None:
    assert [log.age(7, 7) for _ in range(10)] == [0.0] * 10
    assert log.fetched == 0


def test_a_group_that_stands_still_costs_one_fetch_and_its_lag_grows_older(log: Log) -> None:
    assert log.age(40, 50) == 60.0
    log.now = 130.0
    assert log.age(40, 90) == 90.0
    assert log.fetched == 1


def test_a_group_that_moves_is_looked_at_once_in_a_while_or_when_somebody_asks_for_now(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log.age(40, 99) == 60.0
    assert [log.age(offset, 99) for offset in range(41, 50)] == [60.0] * 9
    assert log.fetched == 1
    assert log.age(50, 99, fresh=True) == 50.0
    monkeypatch.setattr(lag, "KEPT_S", -1.0)
    assert log.age(60, 99) == 40.0
    assert log.fetched == 3


def test_what_no_broker_says_in_time_is_unknown_and_not_asked_for_at_once_again(log: Log) -> None:
    log.answers = False
    assert [log.age(40, 50) for _ in range(5)] == [None] * 5
    assert log.fetched == 1


def test_markers_of_transactions_are_no_records_that_grow_old(log: Log) -> None:
    log.markers.add(("t", 0))
    assert log.age(40, 41) == 0.0


def test_a_partition_that_was_behind_and_is_not_is_forgotten(log: Log) -> None:
    assert log.age(40, 50) == 60.0
    assert log.age(50, 50) == 0.0
    log.now = 200.0
    assert log.age(50, 60) == 150.0


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 200), st.integers(0, 50)), max_size=20))
def test_whatever_the_clock_does_an_age_is_never_negative(steps: list[tuple[float, int, int]]) -> None:
    log = Log()
    for jump, committed, behind in steps:
        log.now += jump
        age = log.age(committed, committed + behind)
        assert age is not None
        assert age >= 0


def test_however_many_partitions_are_behind_a_look_is_bounded(log: Log) -> None:
    rows = [PartitionLag("t", number, 1, 2, 1) for number in range(500)]
    known = [row for row in log.oldest.aged(rows) if row.lag_s is not None]
    assert len(known) == log.fetched == lag.MOST_LOOKED_AT
