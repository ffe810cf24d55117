"""What the tests of the dead-letter tools share: letters as a source's tasks write them, and their records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import inside
from confluent_kafka import Message
from sessions import create_source, name
from support import Cluster

import forebay
from forebay.deadletter.letter import Letter
from forebay.deadletter.policy import ErrorPolicy
from forebay.deadletter.router import letter
from forebay.kafka.rows import RowDecoder

COLUMNS = "id BIGINT NOT NULL, price DOUBLE"
GOOD = b'{"id": 1, "price": 2.5}'
BROKEN = b'{"id": 1, "pri'
NO_ID = b'{"price": 1.5}'
TEXT_PRICE = b'{"id": 7, "price": "cheap"}'
BINARY = bytes(range(256))


@dataclass
class Case:
    """A source with a dead-letter topic, on topics that nobody else uses."""

    cluster: Cluster
    source: str
    topic: str
    dlq: str

    def statement(self, **options: str) -> str:
        made = create_source(
            self.cluster, self.source, self.topic, COLUMNS, auto_offset_reset="earliest", **options
        )
        return f"{made} ON ERROR = 'dead_letter' WITH (dead_letter_topic = '{self.dlq}')"

    def fail(self, session: forebay.Session, values: Sequence[bytes | None], **more: object) -> list[Letter]:
        """Produce records, decode them as the source does, and write letters of those that are bad."""
        sent = self.cluster.produce(self.topic, values, **more)  # type: ignore[arg-type]
        places = {(message.partition(), message.offset()) for message in sent}
        # A producer's own word of what it sent has no headers.
        there = [m for m in self.cluster.records(self.topic) if (m.partition(), m.offset()) in places]
        letters = self.letters(session, there)
        self.write(letters)
        return letters

    def letters(self, session: forebay.Session, messages: Sequence[Message]) -> list[Letter]:
        connector = inside.connector_of(session, self.source)
        rows = RowDecoder(connector.config.schema, connector.options)
        return [
            letter(self.source, bad, ErrorPolicy(), int(time.time() * 1000))
            for batch in rows.decode(messages, whole=True)
            for bad in batch.rejected
        ]

    def write(self, letters: Sequence[Letter]) -> None:
        for each in letters:
            key, value, headers = each.to_kafka()
            self.cluster.produce(self.dlq, [value], key=key, headers=headers)


def case(cluster: Cluster, partitions: int = 2) -> Case:
    source = name("letters")
    return Case(cluster, source, cluster.make_topic(partitions), cluster.make_topic(2))
