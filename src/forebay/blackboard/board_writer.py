"""Writes to the blackboard's topics, and tells where things are once the broker has them. Nothing here blocks an event
loop, also while the client library's queue is full.

Plain: each record by itself, written once (idempotent producer). Transactional: whoever writes at the same
moment shares a transaction, so its cost is shared too; all of it becomes visible together or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from forebay.blackboard.options import node_prefix
from forebay.errors import ArtifactError, BlackboardError, FencedError, ForebayError, UnreachableError
from forebay.kafka.callbacks import called_back
from forebay.kafka.missing_acls import KINDS, WRITE, Acl, on_topics, on_transactions
from forebay.kafka.producer import KafkaProducer, OutgoingRecord
from forebay.kafka.settings import address, connection_settings, translate
from forebay.options import Options
from forebay.threads import keep_running

log = logging.getLogger("forebay.blackboard")

PATIENCE_S = 60.0
POLL_S = 0.1
PAUSE_S = 0.01
REASON_S = 1.0
MOST_BYTES = (
    1_000_000  # of an artifact, unless 'kafka.message.max.bytes' says otherwise: what brokers take by default
)
HEADROOM = 1 << 20  # a retry and a dead letter are the artifact and what happened to it
PARTITIONER = "murmur2_random"  # where Java's clients would put it
SHARED = 500  # writes in one transaction: few enough to be over in a moment


Placed = dict[tuple[str, int], int]
"""By topic and partition: the offset after the last record that was written there."""


class _Write:
    """Some records that are done together, and whoever waits for them."""

    def __init__(self, records: Sequence[OutgoingRecord]) -> None:
        self.records = records
        self.done: Future[Placed] = Future()
        self.done.set_running_or_notify_cancel()  # who stops waiting does not stop the write
        self.begin()

    def begin(self) -> None:
        self.queued = 0  # how many of the records the library has
        self.left = len(self.records)
        self.placed: Placed = {}
        self.error: KafkaError | None = None
        self.refused: list[OutgoingRecord] = []

    def again(self) -> list[OutgoingRecord]:
        """What is to be sent once more: what was refused, and nothing that the broker has."""
        records, self.refused = self.refused, []
        self.left, self.error = len(records), None
        return records

    @called_back
    def delivered(self, error: KafkaError | None, message: Message) -> None:
        self.left -= 1
        if error is not None:
            if self.error is None or self.error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                self.error = error
            return
        key = (message.topic(), message.partition())
        self.placed[key] = max(self.placed.get(key, 0), message.offset() + 1)

    def end(self, error: BaseException | None = None) -> None:
        """Whoever waits goes on; what came first counts."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(self.placed)
        else:
            self.done.set_exception(error)


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


def fault(error: KafkaError, options: Options, doing: str, *acls: Acl) -> ForebayError:
    """The library's error as one of ours; `acls` are what it takes to be allowed that."""
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
    return translate(error, options, doing, *acls)


class Writer:
    """Plain writes. One producer, and a thread that hears what became of the records.

    While the library's queue is full, writes wait in a line, and the thread takes them from there in turn.

    A broker refuses a whole batch for its size, and a batch may hold records of several writes. So what is refused for its
    size is sent once more, record by record, with nothing else on the way.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer = KafkaProducer(producer_settings(options))
        self._line: deque[_Write] = deque()
        self._too_large: deque[_Write] = deque()  # in company; each is tried alone
        self._queueing = threading.Lock()  # never held while anything is waited for
        self._ended = threading.Event()
        self._thread = keep_running("forebay-board-writer", self._run, self._ended)

    async def write(self, records: Sequence[OutgoingRecord]) -> Placed:
        """Until the broker has all of them."""
        return await asyncio.wrap_future(self.send(records))

    def send(self, records: Sequence[OutgoingRecord]) -> Future[Placed]:
        """Never blocks. The future has what goes wrong."""
        write = _Write(records)
        with self._queueing:
            if self._line or self._too_large or not self._queue(write):
                self._line.append(write)
        return write.done

    def close(self) -> None:
        """What was sent is written first, for as long as that may take."""
        deadline = monotonic() + PATIENCE_S
        while self._line or self._too_large or self._producer.flush(POLL_S):
            if monotonic() >= deadline or not self._thread.is_alive():
                break
            sleep(PAUSE_S)  # the thread makes room
        self._ended.set()
        self._thread.join()
        for write in (*self._too_large, *self._line):
            write.end(UnreachableError(f"Kafka at {address(self._options)} took no records before the end"))

    def _queue(self, write: _Write) -> bool:
        """Whether all of it is in the library's queue, or never will be."""
        for record in write.records[write.queued :]:
            try:
                if not self._producer.offer(record, partial(self._delivered, write, record)):
                    return False
            except KafkaException as error:
                acls = on_topics(WRITE, [record.topic])
                write.end(fault(error.args[0], self._options, f"writing to '{record.topic}'", *acls))
                return True
            except Exception as error:  # nobody else must suffer for what is wrong with it
                write.end(error)
                return True
            write.queued += 1
        return True

    @called_back
    def _delivered(
        self, write: _Write, record: OutgoingRecord, error: KafkaError | None, message: Message
    ) -> None:
        write.delivered(error, message)
        if error is not None:
            write.refused.append(record)
        if write.left:
            return
        if write.error is not None and write.error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._too_large.append(write)
        else:
            self._end(write)

    def _end(self, write: _Write) -> None:
        if write.error is None:
            write.end()
        else:
            topics = sorted({record.topic for record in write.records})
            acls = on_topics(WRITE, topics)
            write.end(fault(write.error, self._options, f"writing to {', '.join(topics)}", *acls))

    def _run(self) -> None:
        while not self._ended.is_set():
            with contextlib.suppress(KafkaException):  # it has failed for good, as each write hears by itself
                self._producer.poll(POLL_S)
                if self._too_large:
                    self._send_alone()
            self._take_from_the_line()

    def _send_alone(self) -> None:
        """Writes that were refused for their size, when nothing else is on the way: new ones wait in the line meanwhile."""
        while self._too_large and not self._producer.flush(POLL_S):
            write = self._too_large[0]
            for record in write.again():
                self._producer.put(record, write.delivered)
                self._producer.flush(PATIENCE_S)
            self._end(write)
            self._too_large.popleft()

    def _take_from_the_line(self) -> None:
        while self._line and not self._too_large:
            with self._queueing:
                if not self._queue(self._line[0]):
                    return
                self._line.popleft()


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
        # An id that nobody has chosen is another one each time.
        chosen = options["transactional.id"] is not None
        self._ids = on_transactions(id if chosen else node_prefix(options), prefixed=not chosen)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._producer = self._open()
        self._fatal: ForebayError | None = None
        self._ended = threading.Event()
        self._thread = keep_running("forebay-board-writer", self._run, self._ended)

    async def write(self, records: Sequence[OutgoingRecord]) -> Placed:
        return await asyncio.wrap_future(self.send(records))

    def send(self, records: Sequence[OutgoingRecord]) -> Future[Placed]:
        if self._fatal is not None:
            raise self._fatal
        write = _Write(records)
        self._queue.put(write)
        return write.done

    def close(self) -> None:
        self._queue.put(None)
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(queue.Empty):  # what a thread that has just failed has left
            while True:
                if (write := self._queue.get_nowait()) is not None:
                    write.end(BlackboardError("the store was closed before it was written"))

    def _open(self) -> KafkaProducer:
        producer = KafkaProducer(self._settings)
        try:
            producer.init_transactions(PATIENCE_S)
        except KafkaException as error:
            raise fault(error.args[0], self._options, "opening transactions", self._ids) from None
        return producer

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            writes = [first]
            while len(writes) < SHARED:
                try:
                    found = self._queue.get_nowait()
                except queue.Empty:
                    break
                if found is None:
                    self._queue.put(None)
                    break
                writes.append(found)
            try:
                self._together(writes)
            finally:  # whatever was raised: nobody waits for ever
                for write in writes:
                    write.end(BlackboardError("the write broke off; the program's log says why"))

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
                self._abort(anew=True)
                if len(writes) > 1:  # one of them is at fault, and the others must not suffer for it
                    for write in writes:
                        self._together([write])
                    return
            for write in writes:
                write.end(error)
            return
        for write in writes:
            write.end()

    def _transact(self, writes: list[_Write]) -> None:
        doing = "publishing in a transaction"
        for write in writes:
            write.begin()
        try:
            self._producer.begin_transaction()
            for write in writes:
                for record in write.records:
                    self._producer.put(record, write.delivered)
            self._producer.flush(PATIENCE_S)
            for write in writes:
                if write.error is not None and write.error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    raise fault(write.error, self._options, doing)
            self._producer.commit(PATIENCE_S, lambda _: False)  # says why, if anything else was not delivered
        except KafkaException as error:
            self._producer.flush(
                REASON_S
            )  # a transaction that has failed says so before it says whose record it was
            topics = sorted({record.topic for write in writes for record in write.records})
            refused = next((write.error for write in writes if write.error is not None), error.args[0])
            known = refused.code() in (*KINDS, KafkaError.MSG_SIZE_TOO_LARGE)
            reason = refused if known else error.args[0]
            raise fault(reason, self._options, doing, *on_topics(WRITE, topics), self._ids) from None

    def _abort(self, *, anew: bool = False) -> None:
        """After this the next transaction can be begun; that one raises what cannot be helped.

        After a record that the broker has refused, the library goes on with a sequence number too many, and the next
        transaction would be aborted for it, whoever's it is. So then it begins `anew`.
        """
        failed = anew
        try:
            self._producer.abort_transaction(PATIENCE_S)
        except KafkaException as error:
            reason = fault(error.args[0], self._options, "ending a transaction")
            if isinstance(reason, FencedError):
                self._fatal = reason  # to begin anew would be to take the id back
                return
            failed = failed or error.args[0].fatal()
        if failed:
            # A new producer of the same id: the broker ends what the old one left.
            try:
                self._producer = self._open()
            except FencedError as fenced:
                self._fatal = fenced
            except ForebayError as away:
                log.warning("no new transactions for now: %s", away.message)
