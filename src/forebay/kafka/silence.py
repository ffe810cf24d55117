"""How long each partition has had nothing to read, as the brokers have confirmed it.

A timer alone would call a partition silent that nobody looked at. Here time counts only between two looks that found the
reader at the partition's end, at the same offset. Nothing counts while brokers are away or the source is paused: what was
written meanwhile comes later.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.kafka.partitions import TopicPartition


class SilenceClock:
    """Of one source, in the process that plans it. Begins anew with that process."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}  # of partitions that were read to the end at the last look
        self._silent_s: dict[TopicPartition, float] = {}
        self._looked: float | None = None
        self._unread: set[TopicPartition] = set()

    def look(
        self, position: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float
    ) -> None:
        """The brokers say where the partitions end, and `position` is what was read."""
        passed_s = 0.0 if self._looked is None else now - self._looked
        read = {key: end for key, end in ends.items() if position.get(key, 0) >= end}
        self._silent_s = {
            key: self._silent_s.get(key, 0.0) + passed_s if self._ends.get(key) == end else 0.0
            for key, end in read.items()
        }
        self._ends, self._unread, self._looked = read, set(ends) - set(read), now

    def stand_still(self) -> None:
        """Until the next look nothing counts: brokers are away, or nobody looks."""
        self._looked = None

    def silence(self) -> dict[TopicPartition, float | None]:
        """By partition: seconds of silence, None where there is something to read. Empty before the first look."""
        return {**self._silent_s, **dict.fromkeys(self._unread)}
