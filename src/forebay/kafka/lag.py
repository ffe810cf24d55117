"""How far a source's group is behind, as the brokers see it: in records, and in seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from confluent_kafka import KafkaError, KafkaException

from forebay.connectors.contract import HealthStatus, PartitionLag
from forebay.kafka.admin import Cluster, Topic, partitions_of
from forebay.kafka.consumers import CACHE
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.settings import consumer_settings
from forebay.options import Options

LOOK_S = 2.0  # the longest time in which one look waits for the oldest unread records
KEPT_S = 5.0  # while a group moves: how old the age of its oldest unread record may be
MOST_LOOKED_AT = 64  # partitions a look: each answer may be as large as a producer's batch

NOTHING = -1  # in place of a timestamp: all that is unread are markers of transactions, or is in an open one


def lag_of(cluster: Cluster, topics: Mapping[str, Topic]) -> list[PartitionLag]:
    """A partition a row. Where the group has no offset, all that the partition holds is ahead of it.

    A partition ends where its log ends, as `kafka-consumer-groups` has it: what is in an open transaction counts.
    """
    partitions = partitions_of(topics)
    ends, committed = cluster.log_ends(partitions), cluster.committed(partitions)
    starts = cluster.earliest([key for key in partitions if key not in committed])
    return [
        PartitionLag(*key, committed.get(key), ends[key], ends[key] - committed.get(key, starts.get(key, 0)))
        for key in sorted(partitions)
    ]


def behind_group(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> int:
    """Records up to these ends that the group has not read: what others have read is in its offsets alone."""
    return sum(max(0, ends[key] - at) for key, at in cluster.committed(ends).items())


def connected(
    details: Mapping[str, str], brokers: int, lags: Sequence[PartitionLag], answered_s: float | None
) -> HealthStatus:
    """The health of a source whose brokers answer."""
    total = sum(each.lag for each in lags)
    found = {**details, "brokers": str(brokers), "total_lag": str(total)}
    found |= {f"lag.{each.topic}.{each.partition}": str(each.lag) for each in lags}
    return HealthStatus(
        True, f"Connected to {brokers} broker(s), lag: {total}", found, tuple(lags), answered_s
    )


@dataclass(frozen=True)
class _Seen:
    offset: int  # where the group stood
    timestamp_ms: int | None  # of the first record that it has not read; None if no answer came in time
    age_s: float | None  # then
    at: float


class OldestUnread:
    """How old the first record is that a group has not read, a partition each.

    Only a fetch knows a record's time. So nothing is fetched where nothing is unread or where the group stands still,
    and where it moves, once in five seconds.
    """

    def __init__(
        self,
        options: Options,
        now: Callable[[], float] = time.time,
        look: Callable[..., object] | None = None,
    ) -> None:
        self._options = options
        self._now = now
        self._look = look or self._fetch
        self._seen: dict[TopicPartition, _Seen] = {}
        self._lock = threading.Lock()  # who asks now and who watches may be two threads

    def aged(self, lags: Iterable[PartitionLag], *, fresh: bool = False) -> list[PartitionLag]:
        """The same with `lag_s`: 0 where nothing is unread, None where nobody could say in time. `fresh`: as of now."""
        rows = list(lags)
        behind = {(row.topic, row.partition): row.end - row.lag for row in rows if row.lag > 0}
        with self._lock:
            self._seen = {key: seen for key, seen in self._seen.items() if key in behind}
            wanted = {key: at for key, at in behind.items() if self._is_stale(key, at, fresh)}
            if wanted:
                self._learn(dict(list(wanted.items())[:MOST_LOOKED_AT]))
            return [replace(row, lag_s=self._age((row.topic, row.partition), row)) for row in rows]

    def _is_stale(self, key: TopicPartition, at: int, fresh: bool) -> bool:
        seen = self._seen.get(key)
        if seen is None:
            return True
        if seen.offset == at and seen.timestamp_ms not in (None, NOTHING):
            return False  # the record is the same
        return fresh or time.monotonic() - seen.at > KEPT_S

    def _learn(self, wanted: Mapping[TopicPartition, int]) -> None:
        found: dict[TopicPartition, int] = {}
        self._look(wanted, found)
        for key, at in wanted.items():
            stamp = found.get(key)
            age = None if stamp is None else 0.0 if stamp == NOTHING else self._since(stamp)
            self._seen[key] = _Seen(at, stamp, age, time.monotonic())

    def _age(self, key: TopicPartition, row: PartitionLag) -> float | None:
        if row.lag <= 0:
            return 0.0
        seen = self._seen.get(key)
        if seen is None or seen.timestamp_ms in (None, NOTHING):
            return None if seen is None else seen.age_s
        if seen.offset == row.end - row.lag:
            return self._since(seen.timestamp_ms or 0)
        return seen.age_s  # the group has moved on since: as of the last look

    def _since(self, timestamp_ms: int) -> float:
        # Clocks differ, and producers may write any time: a record from the future is not old.
        return round(max(0.0, self._now() - timestamp_ms / 1000), 3)

    def _fetch(self, wanted: Mapping[TopicPartition, int], found: dict[TopicPartition, int]) -> None:
        """The time of the first record at or behind each offset. What does not come in time is left out."""
        settings = consumer_settings(
            self._options,
            # What the group has not read may be gone: then the oldest that is still there counts.
            **{"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 1, "queued.min.messages": 1},
        )
        deadline = time.monotonic() + LOOK_S
        try:
            with CACHE.borrow(settings) as consumer:
                consumer.assign([PartitionOffset(*key, at) for key, at in wanted.items()])
                while len(found) < len(wanted) and (left := deadline - time.monotonic()) > 0:
                    message = consumer.poll(left)
                    if message is None:
                        continue
                    key = (message.topic(), message.partition())
                    error = message.error()
                    if error is None:
                        found.setdefault(key, max(0, message.timestamp()[1]))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        found.setdefault(key, NOTHING)
        except KafkaException:
            return  # not known now
