"""How large the records of a log are, before any of them was read: by the first ones of some partitions."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import KafkaException

from forebay.kafka.consumers import TaskConsumer, fetch
from forebay.kafka.offsets import Range
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.settings import consumer_settings
from forebay.options import Options

PARTITIONS = 8  # the largest: enough to say what a batch has, few enough for one look
RECORDS = 1_000
FETCH_BYTES = 64 << 10  # of each partition; a record that is larger comes alone
PATIENCE_S = 1.0  # the brokers have just said where these partitions end
POLL_S = 0.1


def record_bytes(ranges: Sequence[Range], options: Options) -> float | None:
    """The mean of keys and values over these ranges, by a few records; None where none came in time."""
    sampled = sorted(ranges, key=len, reverse=True)[:PARTITIONS]
    if not sampled:
        return None
    fetched = {"max.partition.fetch.bytes": FETCH_BYTES, "queued.max.messages.kbytes": FETCH_BYTES >> 10}
    try:
        means = _means(sampled, consumer_settings(options, **fetched))
    except KafkaException:
        return None  # whoever reads them says what is wrong
    if not means:
        return None
    largest = max(means.values())  # of those that nobody has looked at: rather too much than too little
    total = sum(len(item) * means.get((item.topic, item.partition), largest) for item in ranges)
    return total / sum(map(len, ranges))


def _means(ranges: Sequence[Range], settings: Mapping[str, Any]) -> dict[TopicPartition, float]:
    sizes: dict[TopicPartition, list[int]] = defaultdict(list)
    until = time.monotonic() + PATIENCE_S
    with closing(TaskConsumer(settings)) as consumer:
        consumer.assign([PartitionOffset(item.topic, item.partition, item.start) for item in ranges])
        while len(sizes) < len(ranges) and time.monotonic() < until:
            for message in fetch(consumer, RECORDS, POLL_S):
                if message.error() is None:
                    size = len(message.key() or b"") + len(message.value() or b"")
                    sizes[message.topic(), message.partition()].append(size)
    return {key: sum(found) / len(found) for key, found in sizes.items()}
