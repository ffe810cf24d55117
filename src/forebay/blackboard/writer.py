"""Writes to the blackboard's topics, and tells where things are once the broker has them.

Plain: each record by itself, written once (idempotent producer). Transactional: whoever writes at the same
moment shares a transaction, so its cost is shared too; all of it becomes visible together or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from forebay.errors import ArtifactError, FencedError, ForebayError, UnreachableError
from forebay.kafka.callbacks import called_back
from forebay.kafka.settings import CLIENT_LOG, connection_settings, translate
from forebay.options import Options

log = logging.getLogger("forebay.blackboard")

PATIENCE_S = 60.0
POLL_S = 0.1
MOST_BYTES = (
    1_000_000  # of an artifact, unless 'kafka.message.max.bytes' says otherwise: what brokers take by default
)
HEADROOM = 1 << 20  # a retry and a dead letter are the artifact and what happened to it
PARTITIONER = "murmur2_random"  # where Java's clients would put it
SHARED = 500  # writes in one transaction: few enough to be over in a moment


class Outgoing(NamedTuple):
    """A record on its way. A value of None is a tombstone."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


Placed = dict[tuple[str, int], int]
"""By topic and partition: the offset after the last record that was written there."""


class _Write:
    """Some records that are done together, and whoever waits for them."""

    def __init__(self, records: Sequence[Outgoing]) -> None:
        self.records = records
        self.done: Future[Placed] = Future()
        self.done.set_running_or_notify_cancel()  # who stops waiting does not stop the write
        self.begin()

    def begin(self) -> None:
        self.left = len(self.records)
        self.placed: Placed = {}
        self.error: KafkaError | None = None

    @called_back
    def delivered(self, error: KafkaError | None, message: Message) -> None:
        self.left -= 1
        if error is not None:
            self.error = error
            return
        key = (message.topic(), message.partition())
        self.placed[key] = max(self.placed.get(key, 0), message.offset() + 1)


def most_bytes(options: Options) -> int:
    """The largest artifact that is published."""
    return int(options.passed_through().get("message.max.bytes", MOST_BYTES))


def producer_settings(options: Options) -> dict[str, Any]:
    return connection_settings(options) | {
        "message.max.bytes": most_bytes(options) + HEADROOM,
        "client.id": options["client.id"],
        "acks": options["acks"],
        "enable.idempotence": options["enable.idempotence"] and options["acks"] == "all",
        "linger.ms": options["linger.ms"],
        "batch.size": options["batch.size"],
        "partitioner": PARTITIONER,
        "message.timeout.ms": int(PATIENCE_S * 1000),
        "reconnect.backoff.max.ms": 2_000,
    }


def fault(error: KafkaError, options: Options, doing: str) -> ForebayError:
    """The library's error as one of ours."""
    if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
        return FencedError(f"another program has taken over this one's transactions while {doing}")
    if error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        return UnreachableError(
            f"Kafka at {options['bootstrap.servers']} took no records for {PATIENCE_S:.0f} s while {doing}"
        )
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return ArtifactError(
            f"an artifact is larger than the topic takes, while {doing}",
            remedy="publish a reference to where it is, or raise max.message.bytes of the topics and "
            "'kafka.message.max.bytes'",
        )
    return translate(error, options, doing)


def produce(producer: Producer, record: Outgoing, delivered: Any, make_room: Callable[[], object]) -> None:
    """Into the library's queue, as soon as there is room in it."""
    while True:
        try:
            producer.produce(
                record.topic, record.value, record.key, headers=list(record.headers), on_delivery=delivered
            )
            return
        except BufferError:
            make_room()


class Writer:
    """Plain writes. One producer, and a thread that hears what became of the records."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer = Producer(producer_settings(options), logger=CLIENT_LOG)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="forebay-board-writer", daemon=True)
        self._thread.start()

    async def write(self, records: Sequence[Outgoing]) -> Placed:
        """Until the broker has all of them."""
        return await asyncio.wrap_future(self.send(records))

    def send(self, records: Sequence[Outgoing]) -> Future[Placed]:
        write = _Write(records)
        for record in records:
            try:
                # The thread makes room.
                produce(
                    self._producer, record, partial(self._delivered, write), lambda: self._ended.wait(0.01)
                )
            except KafkaException as error:
                raise fault(error.args[0], self._options, f"writing to '{record.topic}'") from None
        return write.done

    def close(self) -> None:
        self._producer.flush(PATIENCE_S)
        self._ended.set()
        self._thread.join()

    @called_back
    def _delivered(self, write: _Write, error: KafkaError | None, message: Message) -> None:
        write.delivered(error, message)
        if write.left:
            return
        if write.error is None:
            write.done.set_result(write.placed)
        else:
            topics = ", ".join(sorted({record.topic for record in write.records}))
            write.done.set_exception(fault(write.error, self._options, f"writing to {topics}"))

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(KafkaException):  # it has failed for good, as each write hears by itself
                self._producer.poll(POLL_S)


class TransactionalWriter:
    """Writes in transactions, one after another; what waits meanwhile goes into the next one."""

    def __init__(self, options: Options, id: str) -> None:
        self._options = options
        settings = producer_settings(options)
        settings.pop("message.timeout.ms")
        self._settings = settings | {
            "transactional.id": id,
            "transaction.timeout.ms": options["transaction.timeout.ms"],
        }
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._producer = self._open()
        self._fatal: ForebayError | None = None
        self._thread = threading.Thread(target=self._run, name="forebay-board-writer", daemon=True)
        self._thread.start()

    async def write(self, records: Sequence[Outgoing]) -> Placed:
        return await asyncio.wrap_future(self.send(records))

    def send(self, records: Sequence[Outgoing]) -> Future[Placed]:
        if self._fatal is not None:
            raise self._fatal
        write = _Write(records)
        self._queue.put(write)
        return write.done

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _open(self) -> Producer:
        producer = Producer(self._settings, logger=CLIENT_LOG)
        try:
            producer.init_transactions(PATIENCE_S)
        except KafkaException as error:
            raise fault(error.args[0], self._options, "opening transactions") from None
        return producer

    def _run(self) -> None:
        while True:
            first = self._queue.get()
            if first is None:
                return
            writes, more = [first], True
            while more and len(writes) < SHARED:
                try:
                    found = self._queue.get_nowait()
                except queue.Empty:
                    break
                if found is None:
                    self._queue.put(None)
                    more = False
                else:
                    writes.append(found)
            self._together(writes)

    def _together(self, writes: list[_Write]) -> None:
        try:
            if self._fatal is not None:
                raise self._fatal
            try:
                self._transact(writes)
            except UnreachableError:
                self._abort()
                self._transact(writes)  # nobody has seen the first try
        except Exception as error:  # whoever waits for a write must hear of it, whatever it is
            if isinstance(error, FencedError):
                self._fatal = error
            else:
                self._abort()
                if len(writes) > 1:  # one of them is at fault, and the others must not suffer for it
                    for write in writes:
                        self._together([write])
                    return
            for write in writes:
                write.done.set_exception(error)
            return
        for write in writes:
            write.done.set_result(write.placed)

    def _transact(self, writes: list[_Write]) -> None:
        doing = "publishing in a transaction"
        for write in writes:
            write.begin()
        try:
            self._producer.begin_transaction()
            for write in writes:
                for record in write.records:
                    produce(self._producer, record, write.delivered, lambda: self._producer.poll(POLL_S))
            self._producer.flush(PATIENCE_S)
            for write in writes:
                if write.error is not None and write.error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise fault(write.error, self._options, doing)
            commit(self._producer)  # says why, if anything else was not delivered
        except KafkaException as error:
            raise fault(error.args[0], self._options, doing) from None

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].fatal():
                # A new producer of the same id: the broker ends what the old one left.
                self._producer = self._open()


def commit(producer: Producer) -> None:
    """The library tells when a commit may be tried again: then the broker has not decided yet."""
    while True:
        try:
            producer.commit_transaction(PATIENCE_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
