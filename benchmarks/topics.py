"""Topics full of trades, for peers to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap_servers, **_SETTINGS})
    for index, value in enumerate(values):
        key = index % keys if keys else None
        partition = (index // chunk if key is None else key) % partitions
        while True:
            try:
                producer.produce(topic, value, partition=partition, key=None if key is None else b"k%d" % key)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    there = count(bootstrap_servers, topic, partitions)
    if there != records:
        raise RuntimeError(f"{records} records were produced, the topic has {there}")


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
