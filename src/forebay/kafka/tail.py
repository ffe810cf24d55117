"""Reads a topic from some place on, up to its end or for ever, without a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from confluent_kafka import Message

from forebay.errors import OptionValueError
from forebay.kafka.admin import Cluster
from forebay.kafka.consumers import CACHE
from forebay.kafka.offsets import Partition, Range
from forebay.kafka.reader import RangeReader
from forebay.kafka.settings import consumer_settings
from forebay.options import Options

CHUNK = 500
LOOK_S = 0.1  # how often the end is asked for, of a topic that is followed


def start_of(cluster: Cluster, partitions: list[Partition], text: str) -> dict[Partition, int]:
    """Where `beginning`, `end`, an offset or a time is in each partition, within what it holds."""
    low, high = cluster.earliest(partitions), cluster.latest(partitions)
    word = text.strip().lower()
    if word == "beginning":
        return low
    if word == "end":
        return high
    if word.isdigit():
        wanted = dict.fromkeys(partitions, int(word))
    else:
        wanted = cluster.at_timestamp(partitions, _milliseconds(text))
    return {key: min(max(wanted[key], low[key]), high[key]) for key in partitions}


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise OptionValueError(
            f"--from cannot be {text!r}",
            option="from",
            remedy="beginning, end, an offset such as 120, or a time such as 2026-01-15T10:00:00 (UTC unless it says)",
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def read(
    cluster: Cluster,
    options: Options,
    start: Mapping[Partition, int],
    *,
    follow: bool,
    idle: Callable[[], None] = lambda: None,
    lost: Callable[[Range], None] = lambda gone: None,
) -> Iterator[list[Message]]:
    """All records from `start` on: those that are there now, or with `follow` those that come, too.

    `idle` is called while there is nothing, and may raise to end it. `lost` hears of ranges that retention took.
    """
    position = dict(start)
    while True:
        ends = cluster.latest(position)
        ranges = [Range(*key, at, ends[key]) for key, at in sorted(position.items()) if ends[key] > at]
        if ranges:
            with CACHE.borrow(consumer_settings(options)) as consumer:
                yield from RangeReader(consumer, ranges, options, lost).chunks(CHUNK)
            position.update({(item.topic, item.partition): item.end for item in ranges})
        if not follow:
            return
        if not ranges:
            idle()
            time.sleep(LOOK_S)
