"""Where a Kafka source without a checkpoint starts: the group, a time, given offsets, or an end of the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from forebay.errors import NoOffsetError, OffsetOutOfRangeError, OptionValueError
from forebay.kafka.admin import Cluster
from forebay.kafka.offsets import Range
from forebay.kafka.partitions import TopicPartition
from forebay.options import Options

log = logging.getLogger("forebay.kafka")


class Beginning:
    """Of one source, by its options."""

    def __init__(self, options: Options, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster

    def of(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset to read of each. Blocks while it asks."""
        mode = self._options["startup.mode"]
        if mode == "earliest":
            return self._cluster.earliest(partitions)
        if mode == "latest":
            return self._cluster.latest(partitions)
        if mode == "timestamp":
            return self._cluster.at_timestamp(partitions, self._options["startup.timestamp.ms"])
        given = (
            self._specific(partitions) if mode == "specific-offsets" else self._cluster.committed(partitions)
        )
        self._check_in_range(given, "startup.specific.offsets" if mode == "specific-offsets" else "the group")
        return given | self._reset([key for key in partitions if key not in given])

    def _specific(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        wanted: Mapping[str, Mapping[str, int]] = self._options["startup.specific.offsets"]
        topics = {topic for topic, _ in partitions}
        if "" in wanted and len(topics) != 1:
            raise OptionValueError(
                "'startup.specific.offsets' must name the topic of each offset when there are several",
                option="startup.specific.offsets",
                remedy='for example {"orders": {"0": 42}}',
            )
        found = {
            (topic or next(iter(topics)), int(number)): offset
            for topic, numbers in wanted.items()
            for number, offset in numbers.items()
        }
        unknown = [key for key in found if key not in set(partitions)]
        if unknown:
            topic, number = unknown[0]
            raise OptionValueError(
                f"'startup.specific.offsets' names {topic}-{number}, which is not there",
                option="startup.specific.offsets",
            )
        return found

    def _check_in_range(self, given: dict[TopicPartition, int], origin: str) -> None:
        low, high = self._cluster.earliest(given), self._cluster.latest(given)
        for key, offset in given.items():
            if offset < low[key] and not self._options["fail.on.data.loss"]:
                log.warning("%s is gone; going on without it", Range(*key, offset, low[key]))
                given[key] = low[key]
            elif not low[key] <= offset <= high[key]:
                missing = (
                    Range(*key, offset, low[key]) if offset < low[key] else Range(*key, high[key], offset)
                )
                raise OffsetOutOfRangeError(
                    f"{origin} says to start {key[0]}-{key[1]} at {offset}, but the broker has "
                    f"[{low[key]}, {high[key]}): {missing} is not there"
                )

    def _reset(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        policy = self._options["auto.offset.reset"]
        if policy == "none" and partitions:
            listed = ", ".join(f"{topic}-{number}" for topic, number in partitions)
            raise NoOffsetError(f"group '{self._options['group.id']}' has no offset for {listed}")
        return self._cluster.latest(partitions) if policy == "latest" else self._cluster.earliest(partitions)
