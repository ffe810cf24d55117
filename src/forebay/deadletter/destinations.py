"""Where letters go: a Kafka topic, files of JSON lines, or a list for tests.

`flush()` returns when every letter is durable there, and raises otherwise: the task that wrote them must
not end before.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Message

from forebay.deadletter.letter import Letter
from forebay.errors import AuthError, DeadLetterError, ForebayError, UnreachableError
from forebay.files import Draft, make_folder
from forebay.kafka.callbacks import called_back
from forebay.kafka.missing_acls import KINDS, WRITE, on_topics
from forebay.kafka.producer import KafkaProducer, OutgoingRecord
from forebay.kafka.settings import address, connection_settings, translate
from forebay.options import Options

log = logging.getLogger("forebay.deadletter")

PATIENCE_MS = 60_000  # a broker that restarts is back before; then Spark repeats the task, and then the query
SAY_S = 5.0  # a wait of this length is worth a line, and then one twice as long
POLL_S = 0.1
HELD_BYTES = 64 << 20  # of letters on their way: then they are waited for
_OUT_OF_STEP = (  # the broker has lost track of this producer; a new one has no such past
    KafkaError._FATAL,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.UNKNOWN_PRODUCER_ID,
)


class Destination(Protocol):
    """Takes letters, in order."""

    def write(self, letter: Letter) -> None: ...

    def flush(self) -> None:
        """Until all that was written is durable."""
        ...

    def close(self) -> None:
        """The task ends, perhaps without flush(): nothing half-written stays."""
        ...


class MemoryDestination:
    """For tests."""

    def __init__(self) -> None:
        self.letters: list[Letter] = []
        self.flushed = 0

    def write(self, letter: Letter) -> None:
        self.letters.append(letter)

    def flush(self) -> None:
        self.flushed = len(self.letters)

    def close(self) -> None:
        pass


class FileDestination:
    """One file of JSON lines for all letters of a task: it is there wholly or not at all.

    `name` is the task's work, so that a task that is repeated writes the same file again.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.jsonl"
        self._draft: Draft | None = None

    def write(self, letter: Letter) -> None:
        if self._draft is None:
            make_folder(self._path.parent)
            self._draft = Draft(self._path, "w")
        self._draft.file.write(json.dumps(letter.to_json()) + "\n")

    def flush(self) -> None:
        if self._draft is not None and not self._draft.file.closed:
            self._draft.publish()

    def close(self) -> None:
        if self._draft is not None:
            self._draft.discard()


class _Producers:
    """One a worker process and set of settings: a new one for each task would connect each time."""

    def __init__(self) -> None:
        self._pid = 0
        self._made: dict[tuple[tuple[str, Any], ...], KafkaProducer] = {}
        self._left: list[Any] = []  # of the process that this one was forked from: neither used nor closed

    def get(self, settings: Mapping[str, Any]) -> KafkaProducer:
        if self._pid != os.getpid():
            self._left.append(self._made)
            self._made, self._pid = {}, os.getpid()
        key = tuple(sorted(settings.items()))
        if key not in self._made:
            self._made[key] = KafkaProducer(settings)
        return self._made[key]

    def drop(self, settings: Mapping[str, Any]) -> None:
        """One that failed is not used again."""
        producer = self._made.pop(tuple(sorted(settings.items())), None)
        if producer is not None:
            producer.purge(blocking=False)
            producer.poll(0)


_PRODUCERS = _Producers()


def producer_settings(options: Options, brokers: str | None = None) -> dict[str, Any]:
    """For letters: what counts as written is written, on all replicas that are in sync."""
    return connection_settings(options) | {
        **({"bootstrap.servers": brokers} if brokers else {}),
        "acks": "all",
        "enable.idempotence": True,
        "message.timeout.ms": PATIENCE_MS,
        "reconnect.backoff.max.ms": 2_000,
        "message.max.bytes": 1_000_000_000,  # how much the topic takes is for the topic to say
        "linger.ms": 5,
        "compression.type": "lz4",  # most of a letter are headers that the one before it had too
    }


class KafkaDestination:
    """Letters as records of a topic. A broker that is away is waited for, up to PATIENCE_MS."""

    def __init__(self, source: str, topic: str, options: Options, brokers: str | None = None) -> None:
        self._source = source
        self._topic = topic
        self._options = options
        self._where = brokers or address(options)
        self._settings = producer_settings(options, brokers)
        self._waiting = 0
        self._held = 0
        self._failed: list[tuple[Letter, KafkaError]] = []

    def write(self, letter: Letter) -> None:
        producer = _PRODUCERS.get(self._settings)
        key, value, headers = letter.to_kafka()
        self._held += len(value or b"")
        if self._held > HELD_BYTES:
            self._await(producer, 0)
            self._held = len(value or b"")
        try:
            producer.put(OutgoingRecord(self._topic, key, value, headers), partial(self._delivered, letter))
        except KafkaException as error:
            _PRODUCERS.drop(self._settings)
            raise self.error(error.args[0]) from None
        self._waiting += 1
        producer.hear(0)

    def flush(self) -> None:
        if not self._waiting and not self._failed:
            return
        producer = _PRODUCERS.get(self._settings)
        try:
            self._await(producer, 0)
            while self._failed:
                self._again(producer)
        except BaseException:
            _PRODUCERS.drop(self._settings)
            raise

    def close(self) -> None:
        """What was sent without a flush may arrive or not: the task that is repeated sends it again."""

    @called_back
    def _delivered(self, letter: Letter, error: KafkaError | None, _: Message) -> None:
        self._waiting -= 1
        if error is not None:
            self._failed.append((letter, error))

    def _await(self, producer: KafkaProducer, most: int) -> None:
        """Until no more than `most` letters wait."""
        began, say_s = time.monotonic(), SAY_S
        producer.forget()
        while self._waiting > most:
            producer.hear(POLL_S)
            if producer.refusal is not None:
                raise self.error(producer.refusal)
            if time.monotonic() - began > say_s:
                say_s *= 2
                self.say_waiting(self._waiting, producer.heard.words)

    def say_waiting(self, letters: int, trouble: str) -> None:
        log.warning(
            "source '%s': %d dead letters wait for Kafka at %s%s",
            self._source, letters, self._where, f": {trouble}" if trouble else "",
        )  # fmt: skip

    def _again(self, producer: KafkaProducer) -> None:
        """What the topic found too large, one at a time, and smaller until it fits."""
        failed, self._failed = self._failed, []
        for _, error in failed:
            if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                raise self.error(error, producer.heard.words)
        for letter, _ in failed:
            smaller = letter  # alone it may fit: a batch of letters is refused as one
            while True:
                self.write(smaller)
                self._await(producer, 0)
                if not self._failed:
                    break
                _, error = self._failed.pop()
                if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
                    raise self.error(error, producer.heard.words)
                if not smaller.value:
                    raise DeadLetterError(
                        f"the letter of {_place(letter)} is larger than topic '{self._topic}' takes, even "
                        "without its value",
                        remedy=f"raise max.message.bytes of topic '{self._topic}'",
                    )
                smaller = smaller.cut(len(smaller.value) // 2)

    def error(self, error: KafkaError, trouble: str = "") -> ForebayError:
        """The library's word on letters that it did not get rid of, as one of our errors."""
        doing = f"writing dead letters of source '{self._source}' to topic '{self._topic}'"
        if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return UnreachableError(
                f"Kafka at {self._where} took no dead letters of source '{self._source}' for "
                f"{PATIENCE_MS // 1000} s{': ' + trouble if trouble else ''}; the batch is not committed"
            )
        unallowed = error.code() in KINDS
        if not unallowed and (error.fatal() or error.code() in _OUT_OF_STEP):
            return UnreachableError(
                f"Kafka at {self._where} must be connected to anew while {doing}: {error.str()}"
            )
        found = translate(error, self._options, doing, *on_topics(WRITE, [self._topic]))
        for text in ("message", "remedy"):
            setattr(found, text, getattr(found, text).replace(address(self._options), self._where))
        if found.retryable or isinstance(found, AuthError):
            return found
        return DeadLetterError(f"{doing} at {self._where}: {error.str()}")


def _place(letter: Letter) -> str:
    return f"{letter.topic}-{letter.partition} at offset {letter.offset}"
