"""What the tests on the real broker share: topics with leaders, records that have arrived."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from waiting import eventually

from forebay import column_types as types
from forebay.connectors.contract import RejectedRecord, SourceConfig, SourceConnector
from forebay.deadletter.letter import Letter
from forebay.devstack import DevStack
from forebay.devstack.registry_service import RegistryServer
from forebay.devstack.stack import start_all
from forebay.kafka.connector import KafkaSource

# librdkafka writes to stderr unless it is given a logger.
QUIET = logging.getLogger("tests.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

_numbers = itertools.count(1)

NUMBERS = pa.schema([pa.field("n", types.BIGINT)])


@dataclass(frozen=True)
class Stack:
    """A broker that is there already, and a registry beside it."""

    bootstrap_servers: str
    registry: RegistryServer

    @property
    def schema_registry_url(self) -> str:
        return self.registry.url


@contextmanager
def registry_beside(broker: DevStack, folder: Path) -> Iterator[Stack]:
    registry = RegistryServer(folder)
    start_all([registry])
    try:
        yield Stack(broker.bootstrap_servers, registry)
    finally:
        registry.stop()


def unique(prefix: str) -> str:
    """A name nobody else uses on this broker."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


class Cluster:
    """The tests' own hands on a broker: an admin client, a producer, a consumer."""

    def __init__(self, stack: DevStack | Stack, **client: str) -> None:
        self.stack = stack
        self.client: dict[str, Any] = {"bootstrap.servers": stack.bootstrap_servers, **client}
        self.admin = AdminClient({**self.client, "topic.metadata.refresh.interval.ms": "-1"}, logger=QUIET)
        self._producer: Producer | None = None

    @property
    def bootstrap_servers(self) -> str:
        return self.stack.bootstrap_servers

    def make_topic(self, partitions: int = 4, *, name: str = "", **config: str) -> str:
        """A new topic whose partitions all have a leader; `min_cleanable_…` sets `min.cleanable.…`."""
        topic = name or unique("topic")
        settings = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}
        self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(30)
        self.await_leaders(topic, partitions)
        return topic

    def await_leaders(self, topic: str, partitions: int) -> None:
        def ready() -> bool:
            found = self.admin.list_topics(topic, timeout=10).topics[topic]
            return (
                found.error is None
                and len(found.partitions) == partitions
                and all(each.leader >= 0 and each.error is None for each in found.partitions.values())
            )

        eventually(ready, f"{topic} has {partitions} partitions with leaders")

    def config(self, topic: str, name: str) -> str:
        """A setting of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return str(self.admin.describe_configs([resource])[resource].result(30)[name].value)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        eventually(lambda: topic not in self.admin.list_topics(timeout=10).topics, f"{topic} is gone")

    def produce(
        self,
        topic: str,
        values: Iterable[bytes | str | None],
        *,
        partition: int | None = None,
        key: bytes | str | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp: int | None = None,
    ) -> list[Message]:
        """Write the values in order and return once each has arrived.

        Without a partition and a key, the values go to the partitions in turn.
        """
        if self._producer is None:
            # A request that has to be sent again, as to a topic that was just made, must not come behind those after it.
            in_order = {"acks": "all", "linger.ms": 1, "enable.idempotence": True}
            self._producer = Producer({**self.client, **in_order}, logger=QUIET)
        # The producer's own look: one that knows a topic does not notice new partitions by itself for minutes.
        count = len(self._producer.list_topics(topic, timeout=10).topics[topic].partitions)
        delivered: list[Message] = []
        failures: list[Any] = []

        def on_delivery(error: Any, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failures.append(error)

        for number, value in enumerate(values):
            more: dict[str, Any] = {}
            if partition is not None:
                more["partition"] = partition
            elif key is None:
                more["partition"] = number % count
            if timestamp is not None:
                more["timestamp"] = timestamp
            while True:
                try:
                    self._producer.produce(
                        topic,
                        value,
                        key=key,
                        headers=list(headers) if headers else None,
                        on_delivery=on_delivery,
                        **more,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0
        assert failures == []
        return delivered

    def watermarks(self, topic: str) -> dict[int, tuple[int, int]]:
        """Low and high watermark of each partition, as a consumer of its own sees them."""
        consumer = self.consumer(unique("watermarks"))
        try:
            partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            return {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)
                for number in sorted(partitions)
            }
        finally:
            consumer.close()

    def records(self, topic: str) -> list[Message]:
        """All that is committed in a topic, in order of partition and offset."""
        consumer = self.consumer(unique("reading"), **{"enable.partition.eof": True})  # of committed records
        found: list[Message] = []
        try:
            lows = {number: low for number, (low, _) in self.watermarks(topic).items()}
            consumer.assign([TopicPartition(topic, number, low) for number, low in lows.items()])
            while lows:
                message = consumer.poll(30)
                assert message is not None, f"{topic}: partitions {sorted(lows)} do not come to an end"
                if message.error() is None:
                    found.append(message)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    del lows[message.partition()]
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition(), message.offset()))

    def values(self, topic: str) -> list[bytes]:
        return [message.value() for message in self.records(topic)]

    def letters(self, topic: str) -> list[Letter]:
        """Every dead letter in a topic, repeated ones too."""
        return [Letter.from_kafka(each.key(), each.value(), each.headers()) for each in self.records(topic)]

    def committed(self, group: str, topic: str) -> dict[int, int]:
        """The group's committed offsets, -1001 where there is none."""
        consumer = self.consumer(group)
        try:
            partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            asked = [TopicPartition(topic, number) for number in sorted(partitions)]
            return {found.partition: found.offset for found in consumer.committed(asked, timeout=10)}
        finally:
            consumer.close()

    def committed_metadata(self, group: str, topic: str) -> dict[int, str]:
        """What is kept with the group's committed offsets."""
        consumer = self.consumer(group)
        try:
            asked = [TopicPartition(topic, number) for number in sorted(self.watermarks(topic))]
            return {found.partition: found.metadata or "" for found in consumer.committed(asked, timeout=10)}
        finally:
            consumer.close()

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group, as another consumer of it would have."""
        consumer = self.consumer(group)
        try:
            asked = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=asked, asynchronous=False)
        finally:
            consumer.close()

    def consumer(self, group: str, **more: Any) -> Consumer:
        return Consumer({**self.client, "group.id": group, "enable.auto.commit": False, **more}, logger=QUIET)

    def producer(self, **more: Any) -> Producer:
        """For a test that does not wait for each of its records; `linger_ms` sets `linger.ms`."""
        given = {key.replace("_", "."): value for key, value in more.items()}
        return Producer({**self.client, "acks": "all", "linger.ms": 5, **given}, logger=QUIET)

    def transactional_producer(self, **more: Any) -> Producer:
        producer = Producer({**self.client, "transactional.id": unique("tx"), **more}, logger=QUIET)
        producer.init_transactions(30)
        return producer

    def kafka_options(self, topic: str, **more: str) -> dict[str, str]:
        """Options of a source on that topic, JSON, from the first record; `group_id` sets `group.id`."""
        return {
            "connector": "kafka",
            "bootstrap.servers": self.bootstrap_servers,
            "topic": topic,
            "group.id": unique("group"),
            "format": "json",
            "startup.mode": "earliest",
            **{key.replace("_", "."): value for key, value in more.items()},
        }


def numbers(count: int, first: int = 0) -> list[bytes]:
    """Values for a source of `NUMBERS`."""
    return [b'{"n": %d}' % number for number in range(first, first + count)]


def kafka_source(options: Mapping[str, str], schema: pa.Schema = NUMBERS) -> KafkaSource:
    given = {key: text for key, text in options.items() if key != "connector"}
    return KafkaSource(SourceConfig("s", "kafka", given, schema))


def read(
    source: SourceConnector, start: dict[str, Any], end: dict[str, Any], parallelism: int = 2
) -> tuple[list[dict[str, Any]], list[RejectedRecord]]:
    """All rows and all rejected records between two positions, as the tasks would read them."""
    rows: list[dict[str, Any]] = []
    rejected: list[RejectedRecord] = []
    for split in source.plan_batches(start, end, parallelism):
        for batch in source.read_batch(split):
            rows += batch.records.to_pylist()
            rejected += batch.rejected
    return rows, rejected
