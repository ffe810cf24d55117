"""Offsets by transactions: what handlers send is written with the offsets of their records, or not at all.

What a handler sends stays with its record until a transaction takes it: one is begun, filled and committed within
milliseconds, in one thread, so no handler ever waits inside one. A transaction holds what the records have sent that
its offsets cover, which are those before the frontier and those that fit into the metadata; the rest waits for the
next. So a restart never repeats a record whose output is there, however far records overtake each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from forebay.backoff import Backoff, with_backoff
from forebay.errors import TransactionError, UnreachableError
from forebay.kafka.settings import CLIENT_LOG, connection_settings, translate
from forebay.options import Options
from forebay.pool.completed import encode
from forebay.pool.lease import Lease
from forebay.pool.record import Record

log = logging.getLogger("forebay.pool")

CALL_S = 5.0  # one try of a call to the coordinator
INTERVAL_MS = 100  # what is written is seen only after the commit
TIMEOUT_MS = (
    15_000  # how long the transaction of a pool that was killed holds up readers, unless its id comes back
)


class Transactions:
    """For one pool. Handlers end in the event loop; everything else here runs in the polling thread."""

    def __init__(self, options: Options, id: str, interval_ms: int, timeout_ms: int) -> None:
        self._options = options
        self._id = id
        self._interval_s = interval_ms / 1000
        self._limit: int = options["metadata.max.bytes"]
        self._last = monotonic()
        self._backoff = Backoff()
        self._outgoing: list[Record] = []  # handled, what they sent is not written yet
        self._hurried = threading.Event()
        self._dead = False
        self.consumer: Consumer | None = None
        self.commits = 0
        self.failures = 0
        settings = connection_settings(options) | {
            "transactional.id": id,
            "transaction.timeout.ms": timeout_ms,
            "acks": "all",
            "linger.ms": 5,
        }
        self._producer = Producer(settings, logger=CLIENT_LOG)

    def prepare(self) -> None:
        """Take the id over from whoever had it: a transaction that it left open is aborted."""

        def attempt() -> None:
            try:
                self._producer.init_transactions(CALL_S)
            except KafkaException as error:
                reason = error.args[0]
                found = translate(reason, self._options, f"beginning with transactional id '{self._id}'")
                if reason.retriable() and not isinstance(found, UnreachableError):
                    raise UnreachableError(found.message) from None
                raise found from None

        with_backoff(attempt, timeout_s=self._options["connect.timeout.ms"] / 1000)

    def around(self, handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        """The handler, with an outbox for each record, emptied before each attempt."""

        async def call(given: Any) -> None:
            records: Sequence[Record] = given if isinstance(given, list) else (given,)
            for record in records:
                record._outbox = []
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
        except KafkaException as error:
            self._failed(error.args[0])
            return False
        for lease, offset, metadata in positions:
            lease.committed = offset, metadata
        written = set(taken)
        self._keep(lambda record: record not in written)
        self._backoff.over()
        self.commits += 1
        return True

    def _write(self, records: Sequence[Record], positions: Sequence[tuple[Lease, int, str]]) -> None:
        assert self.consumer is not None
        producer = self._producer
        producer.begin_transaction()
        for record in records:
            for message in record._outbox:
                while True:
                    try:
                        producer.produce(**message)
                        break
                    except BufferError:
                        producer.poll(0.1)
        producer.send_offsets_to_transaction(
            [TopicPartition(lease.topic, lease.partition, offset, text) for lease, offset, text in positions],
            self.consumer.consumer_group_metadata(),
            CALL_S,
        )
        while True:
            try:
                producer.commit_transaction(CALL_S)
                return
            except KafkaException as error:
                # Whether it took place is not known; asked again, the answer is the same as to the first call.
                if self._hurried.is_set() or not error.args[0].retriable():
                    raise
                log.warning("the transaction's commit is asked for again: %s", error.args[0].str())

    def _failed(self, error: KafkaError) -> None:
        """Abort, and let the next tick try again; TransactionError if there is no next."""
        self.failures += 1
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
            self._limit //= 2
        wait_s = self._backoff.failed()
        log.warning("a transaction was aborted, again in %.1f s: %s", wait_s, error.str())
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
