"""Offsets by transactions: what handlers send is written with the offsets of their records, or not at all.

What a handler sends stays with its record until a transaction takes it: one is begun, filled and committed within
milliseconds, in one thread, so no handler ever waits inside one. A transaction holds what the records have sent that
its offsets cover, which are those before the frontier and those that fit into the metadata; the rest waits for the
next. So a restart never repeats a record whose output is there, however far records overtake each other.

Where the broker refuses what one record has sent, that record has failed, and it alone: the transaction is aborted, the
record is not done any more, and the others are written without it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from forebay.backoff import Backoff, with_backoff
from forebay.errors import OutputError, TransactionError, UnreachableError
from forebay.kafka.callbacks import called_back
from forebay.kafka.missing_acls import KINDS, WRITE, on_group, on_topics, on_transactions
from forebay.kafka.partitions import PartitionOffset
from forebay.kafka.producer import KafkaProducer, OutgoingRecord
from forebay.kafka.settings import connection_settings, reading, translate
from forebay.options import Options
from forebay.pool.completed import encode
from forebay.pool.lease import Lease
from forebay.pool.outputs import MOST_BYTES, Outbox
from forebay.pool.record import Record

log = logging.getLogger("forebay.pool")

CALL_S = 5.0  # one try of a call to the coordinator
INTERVAL_MS = 100  # what is written is seen only after the commit
TIMEOUT_MS = (
    15_000  # how long the transaction of a pool that was killed holds up readers, unless its id comes back
)
# What the broker says of a batch of records, without saying which of them it means.
_OF_A_BATCH = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
}
# What is said of the record itself, or of the topic that it was sent to.
_OF_A_RECORD = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}


class _OutputsRefusedError(Exception):
    """Some of what was written is refused: `_errors` says of which records."""


class Transactions:
    """For one pool. Handlers end in the event loop; everything else here runs in the polling thread."""

    reopens = True

    def __init__(self, options: Options, id: str, interval_ms: int, timeout_ms: int) -> None:
        self._options = options
        self._id = id
        self._interval_s = interval_ms / 1000
        self._limit: int = options["metadata.max.bytes"]
        self._last = monotonic()
        self._backoff = Backoff()
        self._most_bytes = int(options.passed_through().get("message.max.bytes", MOST_BYTES))
        self._outgoing: list[Record] = []  # handled, what they sent is not written yet
        self._errors: dict[Record, KafkaError] = {}  # of the transaction that is being written
        self._apart: set[Record] = (
            set()
        )  # each of their outputs is a batch of its own, to see which is refused
        self.refused: Callable[[Record, OutputError], None] = lambda record, error: None  # who hears of it
        self._hurried = threading.Event()
        self._dead = False
        self.consumer: Consumer | None = None
        self.commits = 0
        self.failures = 0
        self._settings = connection_settings(options) | {
            "transactional.id": id,
            "transaction.timeout.ms": timeout_ms,
            "acks": "all",
            "linger.ms": 5,
        }
        self._producer = KafkaProducer(self._settings)
        self._stale = False  # whether there must be a new producer before the next transaction

    def prepare(self) -> None:
        """Take the id over from whoever had it: a transaction that it left open is aborted."""

        def attempt() -> None:
            try:
                self._producer.init_transactions(CALL_S)
            except KafkaException as error:
                reason = error.args[0]
                doing = f"beginning with transactional id '{self._id}'"
                found = translate(reason, self._options, doing, on_transactions(self._id))
                if reason.retriable() and not isinstance(found, UnreachableError):
                    raise UnreachableError(found.message) from None
                raise found from None

        with_backoff(attempt, timeout_s=self._options["connect.timeout.ms"] / 1000)

    def around(self, handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The handler, with an outbox for each record, emptied before each attempt."""

        async def call(given: Any) -> None:
            records: Sequence[Record] = given if isinstance(given, list) else (given,)
            for record in records:
                record._outbox = Outbox(self._most_bytes)
            await handler(given)
            # Before they are marked as done: a done record is always among these.
            self._outgoing.extend(records)

        return call

    # -- the polling thread --------------------------------------------------------------------------

    def tick(self, leases: Sequence[Lease]) -> None:
        now = monotonic()
        if now - self._last >= self._interval_s and now >= self._backoff.until:
            self._last = now
            self._transact(leases)
            ours = set(leases)
            self._keep(lambda record: record._lease in ours)

    def unconfirmed(self) -> int:
        return len(self._outgoing)

    def settle(self, leases: Sequence[Lease]) -> None:
        """What is late is nobody's: the next owner handles it, and the next tick forgets it here."""
        self._transact(leases)

    busy = False  # nothing goes on in another thread

    def hurry(self) -> None:
        """From any thread: what is waited for is waited for no longer."""
        self._hurried.set()

    def finish(self, leases: Sequence[Lease], timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        while not self._dead and not self._transact(leases) and monotonic() < deadline:
            if self._hurried.wait(max(0.0, min(self._backoff.until, deadline) - monotonic())):
                return

    def _transact(self, leases: Sequence[Lease]) -> bool:
        """One transaction of all that can be committed; False if it has to be tried again."""
        while True:
            positions: list[tuple[Lease, int, str]] = []
            covered: dict[Lease, tuple[int, frozenset[int]]] = {}
            for lease in leases:
                frontier = lease.tracker.frontier()
                if frontier is None:
                    continue
                beyond = lease.tracker.beyond()
                metadata, kept = encode(frontier, beyond, self._limit)
                covered[lease] = frontier, frozenset(beyond[:kept])
                if lease.committed != (frontier, metadata):
                    positions.append((lease, frontier, metadata))
            if not positions:
                return True
            count = len(self._outgoing)  # records may be added behind them meanwhile
            taken = [record for record in self._outgoing[:count] if _is_covered(record, covered)]
            try:
                self._write(taken, positions)
                break
            except _OutputsRefusedError:
                self._sort_out()
            except KafkaException as error:
                self._producer.flush(CALL_S)  # what was refused before may not have been heard of yet
                self._raise_if_not_allowed(taken, error.args[0])
                if not self._at_fault():
                    self._failed(error.args[0])
                    return False
                self._sort_out()
            except Exception:
                self._dead = True
                raise
        for lease, offset, metadata in positions:
            lease.committed = offset, metadata
            lease.tracker.settled(offset)
        written = set(taken)
        self._apart -= written
        self._keep(lambda record: record not in written)
        self._backoff.over()
        self.commits += 1
        return True

    def _write(self, records: Sequence[Record], positions: Sequence[tuple[Lease, int, str]]) -> None:
        assert self.consumer is not None
        producer = self._producer
        self._errors.clear()
        if self._stale:
            # After a record that was refused, the library goes on with a sequence number too many, and the broker does
            # not take the next transaction for it. A new producer of the same id begins anew.
            producer = self._producer = KafkaProducer(self._settings)
            producer.init_transactions(CALL_S)
            self._stale = False
        producer.begin_transaction()
        for record in records:
            apart = record in self._apart
            for outgoing in record._outbox.records:
                if apart:
                    self._flush()
                self._produce(record, outgoing)
            if apart:
                self._flush()
        self._flush()
        producer.send_offsets_to_transaction(
            [
                PartitionOffset(lease.topic, lease.partition, offset, text)
                for lease, offset, text in positions
            ],
            self.consumer.consumer_group_metadata(),
            CALL_S,
        )
        producer.commit(CALL_S, self._gives_up)

    def _gives_up(self, error: KafkaError) -> bool:
        if not self._hurried.is_set():
            log.warning("the transaction's commit is asked for again: %s", error.str())
        return self._hurried.is_set()

    def _produce(self, record: Record, outgoing: OutgoingRecord) -> None:
        try:
            self._producer.put(outgoing, partial(self._delivered, record))
        except KafkaException as error:
            if error.args[0].code() in _OF_A_BATCH | _OF_A_RECORD:
                self._apart.add(record)  # there is no doubt which one it is
                self._errors[record] = error.args[0]
                raise _OutputsRefusedError from None
            raise

    @called_back
    def _delivered(self, record: Record, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.setdefault(record, error)

    def _flush(self) -> None:
        if len(self._producer):
            self._producer.flush(CALL_S)  # what is not delivered by then, the commit waits for
        self._raise_if_not_allowed(list(self._errors))
        if self._at_fault():
            raise _OutputsRefusedError

    def _at_fault(self) -> dict[Record, KafkaError]:
        """The records whose outputs, or those in one batch with them, are refused."""
        found = _OF_A_BATCH | _OF_A_RECORD
        return {record: error for record, error in self._errors.items() if error.code() in found}

    def _sort_out(self) -> None:
        """Abort. Who is at fault fails alone; who may be is written apart from others the next time."""
        found = self._at_fault()
        self._abort(next(iter(found.values())))
        self._stale = True
        refused: dict[Lease, list[Record]] = {}
        for record, error in found.items():
            if error.code() in _OF_A_BATCH and record not in self._apart:
                self._apart.add(record)
                continue
            assert record._lease is not None
            refused.setdefault(record._lease, []).append(record)
        for lease, records in refused.items():
            lease.tracker.reopen(records)
            gone = set(records)
            self._apart -= gone
            self._keep(lambda record, gone=gone: record not in gone)  # type: ignore[misc]
            for record in records:
                topics = ", ".join(sorted({outgoing.topic for outgoing in record._outbox.records}))
                self.refused(
                    record, OutputError(f"what was sent to {topics} is refused: {found[record].str()}")
                )

    def _raise_if_not_allowed(self, records: Sequence[Record], error: KafkaError | None = None) -> None:
        """No fault of a record: all that come after it would fail as well."""
        found = [
            each for each in (*self._errors.values(), error) if each is not None and each.code() in KINDS
        ]
        if not found:
            return
        self._dead = True
        with contextlib.suppress(KafkaException):  # so that readers need not wait for its timeout
            self._producer.abort_transaction(CALL_S)
        topics = sorted({outgoing.topic for record in records for outgoing in record._outbox.records})
        # To have come here is to have read: where anything was written, it is that which is not allowed.
        acls = on_topics(WRITE, topics) or tuple(reading(self._options))
        group = on_group(self._options["group.id"])
        doing = f"writing with transactional id '{self._id}'"
        raise translate(found[0], self._options, doing, *acls, group, on_transactions(self._id))

    def _failed(self, error: KafkaError) -> None:
        """Abort, and let the next tick try again; TransactionError if there is no next."""
        self.failures += 1
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._limit //= 2
        wait_s = self._backoff.failed()
        log.warning("a transaction was aborted, again in %.1f s: %s", wait_s, error.str())
        self._abort(error)

    def _abort(self, error: KafkaError) -> None:
        while not error.fatal() and not self._hurried.is_set():
            try:
                self._producer.abort_transaction(CALL_S)
                return
            except KafkaException as again:
                error = again.args[0]
                if not error.retriable() and not error.fatal():
                    return  # none was begun
        if error.fatal():
            self._dead = True
            raise TransactionError(f"the transactions of '{self._id}' cannot go on: {error.str()}")

    def _keep(self, wanted: Callable[[Record], bool]) -> None:
        # The event loop may append at any moment; what it appends stays behind what is kept.
        count = len(self._outgoing)
        self._outgoing[:count] = [record for record in self._outgoing[:count] if wanted(record)]


def _is_covered(record: Record, covered: dict[Lease, tuple[int, frozenset[int]]]) -> bool:
    assert record._lease is not None
    found = covered.get(record._lease)
    if found is None:
        return False
    frontier, beyond = found
    return record.offset < frontier or record.offset in beyond
