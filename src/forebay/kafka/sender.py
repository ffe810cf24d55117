"""Writes records to a topic, and knows of each whether it has arrived."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from forebay import patience
from forebay.errors import ForebayError
from forebay.kafka import causes
from forebay.kafka.callbacks import called_back
from forebay.kafka.envelope import Envelope
from forebay.kafka.missing_acls import WRITE, on_topics
from forebay.kafka.probe import LIMIT_S
from forebay.kafka.producer import ROOM_S, KafkaProducer, OutgoingRecord
from forebay.kafka.settings import address, connection_settings, translate
from forebay.options import Options

PATIENCE_S = 5.0  # without a record that arrives: then the broker is away
LINGER_MS = 5
QUEUED = 100_000  # records under way


class Sender:
    """A producer for one topic, in a `with` block; leaving it waits until all has arrived, or raises."""

    def __init__(self, topic: str, options: Options, patience_s: float = PATIENCE_S) -> None:
        self.arrived = 0
        self.last: tuple[int, int] | None = None  # partition and offset of the last that arrived
        self._topic = topic
        self._options = options
        self._patience_s = patience_s
        self._failed: KafkaError | None = None
        self._moved = time.monotonic()
        self._settings = settings = connection_settings(options) | {
            "acks": "all",
            "enable.idempotence": True,  # a request that is repeated must not write a record twice
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": QUEUED,
        }
        self._producer = KafkaProducer(settings)
        self._heard = called_back(self._on_delivery)

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        if kind is None:
            self.flush()
        elif not issubclass(kind, KeyboardInterrupt):
            self._producer.purge()  # what cannot arrive must not hold up the end
        self._producer.poll(0)

    def send(self, given: Envelope) -> None:
        """Hand a record over; waits while too many are under way."""
        record = OutgoingRecord(
            self._topic, given.key, given.value, given.headers, given.partition, given.timestamp_ms
        )
        if not len(self._producer):
            self._moved = time.monotonic()  # nothing was waited for until now
        try:
            while not self._producer.offer(record, self._heard):
                self._look(ROOM_S)
        except KafkaException as error:
            raise self._refused(error.args[0]) from None
        self._look(0)

    def flush(self) -> None:
        """Until all that was handed over has arrived."""
        with patience.waiting():
            while len(self._producer):
                self._look(0.05)
        self._raise_if_failed()

    def _look(self, wait_s: float) -> None:
        self._producer.hear(wait_s)
        self._raise_if_failed()
        still_s = time.monotonic() - self._moved if len(self._producer) else 0.0
        if still_s > 1.0:
            patience.say(f"reaching brokers at {address(self._options)}")
        if still_s > self._patience_s:
            raise self._away()

    def _away(self) -> ForebayError:
        doing, where = f"writing to '{self._topic}'", address(self._options)
        found = causes.probe(self._options, self._settings, self._producer.heard).found(LIMIT_S)
        return causes.certain(found, self._settings, where, doing) or causes.unreachable(
            found, self._producer.heard, self._options, doing, "no answer"
        )

    def _raise_if_failed(self) -> None:
        failed = self._failed or self._producer.refusal
        if failed is not None:
            raise self._refused(failed)

    def _refused(self, error: KafkaError) -> ForebayError:
        doing = f"writing to '{self._topic}'"
        return translate(error, self._options, doing, *on_topics(WRITE, [self._topic]))

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        self._moved = time.monotonic()
        if error is None:
            self.arrived += 1
            self.last = message.partition(), message.offset()
        elif error.code() != KafkaError._PURGE_QUEUE:
            self._failed = self._failed or error
