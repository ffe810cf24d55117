"""Partitions that stay together in event time: for random partitions, paces, drifts and sizes of batches, by the planner's part."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from forebay.connectors.alignment import Alignment
from forebay.kafka.alignment import BELIEVED, SMALL, Aligner
from forebay.kafka.offsets import Range, allocate
from forebay.kafka.partitions import TopicPartition

IDLE_MS = 3_000
TOPIC = "t"


@dataclass
class Log:
    """A partition whose event time goes evenly: `first_us`, and `step_us` more with each record."""

    first_us: int
    step_us: int
    records: int
    read: int = 0

    @property
    def newest_us(self) -> int | None:
        return self.first_us + (self.read - 1) * self.step_us if self.read else None

    @property
    def unread(self) -> int:
        return self.records - self.read


@dataclass
class Reading:
    """Batch after batch, as the process that plans sees it."""

    logs: list[Log]
    drift_ms: int
    idle: set[int] = field(default_factory=set)
    aligner: Aligner = field(default_factory=Aligner)

    def batch(self, limit: int) -> dict[int, int]:
        """Records of the next one, by partition; it is read at once."""
        newest = {(TOPIC, n): log.newest_us for n, log in enumerate(self.logs) if log.newest_us is not None}
        self.aligner.wanted = Alignment(self.drift_ms, IDLE_MS, newest)
        silence: dict[TopicPartition, float | None] = {
            (TOPIC, n): None if log.unread else 60.0 if n in self.idle else 0.0
            for n, log in enumerate(self.logs)
        }
        position = {(TOPIC, n): log.read for n, log in enumerate(self.logs)}
        found = self.aligner.divide(self.available(), limit, position, silence)
        for item in found:
            assert item.start == self.logs[item.partition].read
            self.logs[item.partition].read = item.end
        return {item.partition: len(item) for item in found}

    def available(self) -> list[Range]:
        return [Range(TOPIC, n, log.read, log.records) for n, log in enumerate(self.logs) if log.unread]

    def slowest_us(self) -> int:
        """Of those that hold others back."""
        return min(
            log.newest_us
            for n, log in enumerate(self.logs)
            if log.newest_us is not None and (log.unread or n not in self.idle)
        )


logs = st.lists(
    st.builds(
        Log,
        first_us=st.integers(0, 10**9),
        step_us=st.sampled_from([0, 1, 1_000, 50_000, 1_000_000]),
        records=st.integers(1, 50_000),
    ),
    min_size=1,
    max_size=5,
)
drifts = st.sampled_from([0, 10, 1_000, 60_000])
limits = st.integers(5, 20_000)


@given(logs, drifts, limits)
def test_no_partition_is_read_further_ahead_than_the_drift_and_a_small_batch_and_all_is_read(
    logs: list[Log], drift_ms: int, limit: int
) -> None:
    source = Reading(logs, drift_ms)
    batches = 0
    while any(log.unread for log in logs):
        began = {n for n, log in enumerate(logs) if log.read}
        got = source.batch(limit)
        batches += 1
        if not got:
            # Only partitions that are read to their end hold others back, and they are idle after a while.
            done = {n for n, log in enumerate(logs) if not log.unread}
            assert done - source.idle
            source.idle |= done
            continue
        assert sum(got.values()) <= limit
        if not any(log.unread or n not in source.idle for n, log in enumerate(logs)):
            break
        slowest = source.slowest_us()
        for n, count in got.items():
            newest = logs[n].newest_us
            assert newest is not None
            if n in began:  # before, nobody knows its time: it gets a small batch
                assert newest - slowest <= drift_ms * 1000 + SMALL * logs[n].step_us
            else:
                assert count <= SMALL
    assert batches <= 3 * sum(log.records // min(SMALL, limit) + 2 for log in logs)


@given(logs, drifts, limits)
def test_the_slowest_partition_is_never_held_back_by_its_time(
    logs: list[Log], drift_ms: int, limit: int
) -> None:
    source = Reading(logs, drift_ms)
    for _ in range(20):
        known = [(log.newest_us, n) for n, log in enumerate(logs) if log.newest_us is not None]
        unread = {n for n, log in enumerate(logs) if log.unread}
        got = source.batch(limit)
        if known and (slowest := min(known)[1]) in unread:
            assert got.get(slowest, 0) > 0


@given(
    steps=st.lists(st.sampled_from([1, 100, 10_000]), min_size=1, max_size=6),
    limit=st.integers(2_000, 200_000),
    drift_ms=st.sampled_from([1_000, 60_000]),
)
def test_a_backlog_that_is_in_step_is_read_in_full_batches(
    steps: list[int], limit: int, drift_ms: int
) -> None:
    """Partitions of different densities that span the same days of event time."""
    source = Reading([Log(0, step, 10**12 // step) for step in steps], drift_ms)
    sizes = [sum(source.batch(limit).values()) for _ in range(12)]
    grown, believed = 0, SMALL
    while believed < limit:
        grown, believed = grown + 1, believed * BELIEVED
    assert all(size >= 0.95 * limit for size in sizes[grown + 2 :])
    assert not source.aligner.held.unmeasured


@given(logs, limits)
def test_without_a_drift_all_is_as_it_was(logs: list[Log], limit: int) -> None:
    aligner = Aligner()
    available = Reading(logs, 0).available()
    assert aligner.divide(available, limit, {}, {}) == allocate(available, limit)
    assert not aligner.held


def test_records_without_event_time_are_read_in_batches_that_grow() -> None:
    aligner = Aligner()
    aligner.wanted = Alignment(1_000, IDLE_MS, {})
    at, sizes = 0, []
    for _ in range(5):
        [found] = aligner.divide([Range(TOPIC, 0, at, 10**6)], None, {(TOPIC, 0): at}, {(TOPIC, 0): None})
        at = found.end
        sizes.append(len(found))
    assert sizes == [100, 800, 7_200, 64_800, 583_200]


def test_who_is_held_back_and_for_whom_is_said() -> None:
    source = Reading([Log(0, 1_000, 10_000), Log(10**9, 1_000, 10_000)], 1_000)
    source.batch(5_000)
    assert str(source.aligner.held) == "aligned: how fast event time goes is measured first in t-0, t-1"
    assert source.batch(5_000) == {0: SMALL}
    held = source.aligner.held
    assert held.names == ("t-1",)
    assert str(held) == "aligned: less is read of t-1, not to be too far ahead of t-0"
