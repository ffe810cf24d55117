"""Topics full of trades, for peers to read."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SYMBOLS = ("AAPL", "AMZN", "GOOG", "META", "MSFT", "NVDA", "TSLA", "V")
VENUES = ("XNAS", "XNYS", "BATS", "ARCX")
FIRST_MS = 1_768_471_200_000
CHUNK = 2_000  # records to one partition before the next has its turn
_SETTINGS = {
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "acks": 1,
}


def trades(records: int, first: int = 0) -> Iterator[bytes]:
    """JSON trades of about 120 bytes. Ids and times differ in each; the rest repeats, so that it is cheap."""
    middles = [
        b',"symbol":"%s","price":%.2f,"quantity":%d,"side":"%s","venue":"%s","event_time":'
        % (
            SYMBOLS[i % len(SYMBOLS)].encode(),
            100 + (i * 37 % 10_000) / 100,
            1 + i * 13 % 500,
            b"buy" if i % 3 else b"sell",
            VENUES[i % len(VENUES)].encode(),
        )
        for i in range(1_009)  # a prime, so that no partition gets one symbol only
    ]
    for i in range(first, first + records):
        yield b'{"trade_id":%d%s%d}' % (i, middles[i % 1_009], FIRST_MS + i)


def produce(bootstrap_servers: str, topic: str, records: int, partitions: int) -> None:
    """A topic full of JSON trades."""
    fill(bootstrap_servers, topic, trades(records), records, partitions)


def fill(
    bootstrap_servers: str,
    topic: str,
    values: Iterable[bytes],
    records: int,
    partitions: int,
    chunk: int = CHUNK,
    keys: int = 0,
) -> None:
    """Create the topic and fill it evenly; returns when the broker has every record.

    A small `chunk` keeps partitions close to each other in event time. With `keys`, records have one of so many
    keys, each in one partition.
    """
    create(bootstrap_servers, topic, partitions)
    producer = Producer({"bootstrap.servers": bootstrap_servers, **_SETTINGS})
    for index, value in enumerate(values):
        key = index % keys if keys else None
        partition = (index // chunk if key is None else key) % partitions
        _send(producer, topic, value, partition, None if key is None else b"k%d" % key)
    producer.flush()
    there = count(bootstrap_servers, topic, partitions)
    if there != records:
        raise RuntimeError(f"{records} records were produced, the topic has {there}")


def create(bootstrap_servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()


def _send(producer: Producer, topic: str, value: bytes, partition: int, key: bytes | None = None) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition, key=key)
            return
        except BufferError:
            producer.poll(0.1)


class Trickle(threading.Thread):
    """So many records a second, evenly, until stopped. `value` makes a record of its number and the time in ms."""

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        rate: int,
        value: Callable[[int, int], bytes],
        first: int = 0,
    ) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic, self._partitions, self._rate, self._value = topic, partitions, rate, value
        self._over = threading.Event()
        self._began = 0.0  # when it began to make records at this rate, and how many there were then
        self._first = first
        self._stamps: list[tuple[int, int]] = [(0, first)]  # when, and how many there were after it

    @property
    def made(self) -> int:
        return self._stamps[-1][1]

    def run(self) -> None:
        self.go_on(self._rate)
        while not self._over.is_set():
            due = self._first + int((time.monotonic() - self._began) * self._rate)
            stamp = time.time_ns() // 1_000_000
            for number in range(self.made, due):
                _send(self._producer, self._topic, self._value(number, stamp), number % self._partitions)
            if due > self.made:
                self._stamps.append((stamp, due))
            self._producer.poll(0)
            self._over.wait(0.002)
        self._producer.flush()

    def go_on(self, rate: int) -> None:
        """From now on so many a second."""
        self._began, self._first, self._rate = time.monotonic(), self.made, rate

    def between(self, begin_ms: float, end_ms: float) -> range:
        """The numbers of the records that were made from then until before then."""
        return numbers_between(self._stamps, begin_ms, end_ms)

    def stop(self) -> None:
        self._over.set()
        self.join()


def numbers_between(stamps: Sequence[tuple[int, int]], begin_ms: float, end_ms: float) -> range:
    """Of (time, how many there were after it), in order of time."""
    before = [bisect_left(stamps, at, key=lambda each: each[0]) for at in (begin_ms, end_ms)]
    first, last = (stamps[max(0, place - 1)][1] for place in before)
    return range(first, last)


def count(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """How many records a topic that nothing was deleted from has."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "benchmark-count"})
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p))[1] for p in range(partitions)]
    finally:
        consumer.close()
    return sum(ends)


def delete(bootstrap_servers: str, topics: Iterable[str]) -> None:
    """Gone, to save the disk; a topic that is gone already is no trouble."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    for future in admin.delete_topics(list(topics)).values():
        with suppress(KafkaException):
            future.result()
