"""How far each partition is read, so that none runs further ahead in event time than the drift.

Event times are known of what was read alone. So they are measured: how far event time went from one batch to the next, by
offset. That pace says where a partition will be in event time at the end of the batch that is planned. The batch is divided
so that nobody will then be more than the drift ahead of the slowest active partition. The slowest moves within the batch,
too: partitions that are in step are cut nowhere, and a backlog is read in full batches.

A pace is believed for a few times the records that it was measured over. A partition without one, or one that is nearly
the drift ahead, gets a small batch. One that is further ahead gets nothing until the slowest has come nearer or is idle.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forebay.connectors.alignment import Alignment, HeldBack
from forebay.kafka.offsets import Range, allocate
from forebay.kafka.partitions import TopicPartition

SMALL = 100  # records: enough to measure a pace, and little to be ahead by
BELIEVED = 8  # times as many records as the pace was measured over
SAMPLES = 8  # batches
ROUNDS = 4  # what one partition must not have goes to others, which moves the slowest: this settles quickly

Silence = Mapping[TopicPartition, float | None]


@dataclass(frozen=True)
class EventPace:
    """Of a partition: the greatest event time that was read, and how far event time goes from offset to offset."""

    newest_us: int | None
    slow_us: float | None = None  # the least that was measured; None before there are two batches to compare
    fast_us: float | None = None  # and the most
    most: int = SMALL  # records that this is believed for


class PaceMeter:
    """Of one partition."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int | None]] = deque(maxlen=SAMPLES)

    def see(self, offset: int, newest_us: int | None) -> None:
        """Up to this offset, the greatest event time is this."""
        if self._samples and offset < self._samples[-1][0]:
            self._samples.clear()  # it was set back
        if self._samples and offset == self._samples[-1][0]:
            self._samples[-1] = offset, newest_us
        else:
            self._samples.append((offset, newest_us))

    def pace(self) -> EventPace:
        newest_us = self._samples[-1][1]
        timed = [(offset, at) for offset, at in self._samples if at is not None]
        known = timed if newest_us is not None else self._samples  # records without event time have no pace
        most = max(SMALL, BELIEVED * (known[-1][0] - known[0][0]))
        if len(timed) < 2:
            return EventPace(newest_us, most=most)
        # The whole window and its last batch: what went on lately, and what may come back.
        steps = [_step(timed[0], timed[-1]), _step(timed[-2], timed[-1])]
        return EventPace(newest_us, min(steps), max(steps), most)


def _step(one: tuple[int, int], other: tuple[int, int]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


class Aligner:
    """Of one source, in the process that plans. `wanted` None: partitions need not stay together."""

    def __init__(self) -> None:
        self.wanted: Alignment | None = None
        self.held = HeldBack()  # by the last plan
        self._meters: dict[TopicPartition, PaceMeter] = {}

    def divide(
        self,
        available: Sequence[Range],
        limit: int | None,
        position: Mapping[TopicPartition, int],
        silence: Silence,
    ) -> list[Range]:
        """What of the ranges goes into the next batch; `position` is what was read before it."""
        plain = allocate(available, limit)
        self.held = HeldBack()
        if self.wanted is None:
            return plain
        division = _Division(self.wanted, self._paces(self.wanted, position), silence)
        found, most = division.of(available, plain, limit)
        less = [_key(item) for item in plain if len(item) > most[_key(item)]]
        ahead = tuple(key for key in less if most[key] < division.pace(key).most)
        self.held = HeldBack(ahead, division.slowest, tuple(key for key in less if key not in ahead))
        return found

    def _paces(
        self, wanted: Alignment, position: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EventPace]:
        self._meters = {key: self._meters.get(key) or PaceMeter() for key in position}
        for key, meter in self._meters.items():
            meter.see(position[key], wanted.newest_us.get(key))
        return {key: meter.pace() for key, meter in self._meters.items()}


class _Division:
    """Of one batch."""

    def __init__(
        self, wanted: Alignment, paces: Mapping[TopicPartition, EventPace], silence: Silence
    ) -> None:
        self._drift_us = wanted.drift_ms * 1000
        self._paces = paces
        # What holds others back: active, and of a known time.
        self._times = {
            key: pace.newest_us
            for key, pace in paces.items()
            if pace.newest_us is not None and _active(silence, key, wanted.idle_ms)
        }
        self.slowest = min(self._times, key=lambda key: (self._times[key], key), default=None)

    def pace(self, key: TopicPartition) -> EventPace:
        return self._paces.get(key) or EventPace(None)

    def of(
        self, available: Sequence[Range], plain: Sequence[Range], limit: int | None
    ) -> tuple[list[Range], dict[TopicPartition, int]]:
        """The ranges, and the most records that each partition may have."""
        found = list(plain)
        most: dict[TopicPartition, int] = {}
        for left in reversed(range(ROUNDS)):
            reached = self._reached(found)
            most = {_key(item): self._most(_key(item), reached) for item in available}
            if all(len(item) <= most[_key(item)] for item in found):
                break
            # What is left out goes to others; in the end it is only left out.
            found = (
                allocate([_cut(item, most[_key(item)]) for item in available], limit)
                if left
                else [_cut(item, most[_key(item)]) for item in found]
            )
        return [item for item in found if len(item)], most

    def _reached(self, planned: Sequence[Range]) -> float:
        """How far the slowest active partition will be in event time, if this is read."""
        counts = {_key(item): len(item) for item in planned}
        return min(
            (at + (self._paces[key].slow_us or 0.0) * counts.get(key, 0) for key, at in self._times.items()),
            default=math.inf,
        )

    def _most(self, key: TopicPartition, reached: float) -> int:
        pace = self.pace(key)
        if key not in self._times or self.slowest is None:
            return pace.most
        at = self._times[key]
        if at - self._times[self.slowest] > self._drift_us:
            return 0
        if not pace.fast_us:
            return pace.most
        return max(SMALL, int(min(pace.most, (reached + self._drift_us - at) / pace.fast_us)))


def _active(silence: Silence, key: TopicPartition, idle_ms: int) -> bool:
    """Of partitions that others read, in a group that is shared, nobody here knows."""
    if key not in silence:
        return False
    quiet_s = silence[key]
    return quiet_s is None or quiet_s * 1000 < idle_ms


def _key(item: Range) -> TopicPartition:
    return item.topic, item.partition


def _cut(item: Range, most: int) -> Range:
    return Range(item.topic, item.partition, item.start, min(item.end, item.start + most))
