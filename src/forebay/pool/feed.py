"""The thread that owns the consumer: it polls, hands records to the workers, and takes part in the group.

It goes on polling while handlers are slow, so that the group never takes this member for dead. While enough records
wait for a worker it fetches none; if that lasts, partitions are paused, because a poll would bring more. A partition
in which one record is stuck is paused when too much is done beyond that record; the others go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol

import orjson
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException

from forebay.errors import AuthError, ConnectorError, ForebayError, NoOffsetError, UnknownTopicError
from forebay.kafka.callbacks import called_back
from forebay.kafka.consumers import fetch, leave_group
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.settings import address, is_refusal, reading, translate
from forebay.options import Options
from forebay.pool.crew import Crew
from forebay.pool.lease import Lease
from forebay.pool.record import Record
from forebay.threads import start

log = logging.getLogger("forebay.pool")

CHUNK = 2_000  # messages taken from the library at once
# The same while handlers that wait for something have work: between two of these they have their turn. Python lets a
# thread go on for 5 ms, and a handler that has waited 5 ms for its answer would wait as long again.
SLICE = 50
QUICK_S = 0.002  # handlers that take less have the processor to wait for, and gain nothing by it
PACE = 1_000  # records after which it is looked again how long handlers take
IDLE_POLL_S = 0.1
COMMIT_LOOK_S = 0.005
FULL_S = 1.0  # so long the queue may be full before partitions are paused: that throws away what was fetched
REPORT_EVERY_S = 30.0
COMMITTED_S = 10.0  # how long the group's coordinator is waited for when partitions are assigned


class OffsetKeeper(Protocol):
    """How what is done becomes the group's offsets: by commits, or by transactions."""

    reopens: bool
    """Whether a record that is done may turn out not to be."""

    def tick(self, leases: Sequence[Lease]) -> None:
        """Often; commits when it is time."""
        ...

    def unconfirmed(self) -> int:
        """How many records are done and would be handled again if the pool died now."""
        ...

    def settle(self, leases: Sequence[Lease]) -> None:
        """Before partitions are given back: returns when what is done is committed, or cannot be."""
        ...

    def finish(self, leases: Sequence[Lease], timeout_s: float) -> None:
        """The last commit."""
        ...

    @property
    def busy(self) -> bool:
        """Whether the consumer is still in use after that."""
        ...


class PoolFeed:
    """`hand_over` takes records to the event loop; `decode` fills in their values, where there is a format. A `static`
    member has a name of its own in the group, and keeps its partitions when it is gone for a while."""

    def __init__(
        self,
        options: Options,
        consumer: Consumer,
        crew: Crew,
        offsets: OffsetKeeper,
        hand_over: Callable[[list[Record]], None],
        decode: Callable[[list[Record]], None] | None = None,
        static: bool = False,
    ) -> None:
        self._options = options
        self._consumer = consumer
        self._crew = crew
        self._offsets = offsets
        self._hand_over = hand_over
        self._decode = decode
        self._static = static
        self._queue_size: int = options["queue.size"]
        self._window: int = options["max.uncommitted"]
        self._drain_s: float = options["drain.timeout.ms"] / 1000
        self._stop = threading.Event()
        self._full_since: float | None = None
        self._all_paused = False
        self._reported = float("-inf")
        self._slow, self._pace = True, (0.0, 0)
        self._ends: dict[TopicPartition, int] = {}
        self.quiet = False  # fetch nothing more, and poll on
        self.leases: dict[TopicPartition, Lease] = {}
        self.handed = 0
        self.rebalances = 0
        self.refusal: KafkaError | None = None

    @called_back
    def on_error(self, error: KafkaError) -> None:
        """The library's word on its connections."""
        if is_refusal(error):
            self.refusal = error
        elif monotonic() - self._reported > REPORT_EVERY_S:  # the library reports each try to connect
            self._reported = monotonic()
            log.warning("Kafka at %s: %s", address(self._options), error.str())

    # -- the life of the thread ----------------------------------------------------------------------

    def run(self) -> None:
        """Until `stop()`. Raises what ends it otherwise. Leaves the group only in `close()`."""
        topics = self._options["topics"] or ([self._options["topic"]] if self._options["topic"] else None)
        pattern = self._options["topic.pattern"]
        self._consumer.subscribe(
            list(topics) if topics else [f"^({pattern})$"],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )
        while not self._stop.is_set():
            self._receive(self._fetch())
            self._pause_and_resume()
            self._offsets.tick(list(self.leases.values()))
            if self.refusal is not None:
                raise AuthError(
                    f"{address(self._options)} refused the connection: {self.refusal.str()}"
                ) from None

    def stop(self) -> None:
        self._stop.set()
        self._crew.fed.set()

    def close(self, timeout_s: float) -> None:
        """After `run()`, when no handler is at work any more: the last commit, and out of the group."""
        leases = list(self.leases.values())
        try:
            self._offsets.finish(leases, timeout_s)
        finally:
            self.leases.clear()  # what close() revokes is settled
            if self._offsets.busy:
                closed = False  # to close a consumer that another thread is in is to crash
            else:
                failures: list[Exception] = []
                closing = start(
                    "forebay-pool-close",
                    partial(leave_group, self._consumer, timeout_s / 2, static=self._static),
                    failures.append,
                )
                closing.join(max(1.0, timeout_s))
                closed = not closing.is_alive() and not failures
            if not closed:
                log.warning(
                    "the consumer could not leave its group in time: its partitions wait for the session to end"
                )

    def abandon(self) -> None:
        """Instead of `run()` and `close()`: of a pool whose start failed."""
        self._consumer.close()

    @called_back
    def on_statistics(self, text: str) -> None:
        """The library's own figures, from time to time: where each partition ends."""
        topics = orjson.loads(text)["topics"]
        end = "ls_offset" if self._options["isolation.level"] == "read_committed" else "hi_offset"
        self._ends = {
            (topic, int(number)): found[end]
            for topic, of_topic in topics.items()
            for number, found in of_topic["partitions"].items()
            if found[end] >= 0
        }

    def lag(self, lease: Lease) -> int | None:
        """From what is done to the partition's end, as far as that is known. From any thread."""
        end = self._ends.get((lease.topic, lease.partition))
        done = (
            lease.tracker.seen if lease.tracker.seen is not None else lease.committed and lease.committed[0]
        )
        return max(0, end - done) if end is not None and done is not None else None

    # -- fetching ------------------------------------------------------------------------------------

    def _fetch(self) -> list[Any]:
        waiting = len(self._crew.ready) + self.handed - self._crew.taken
        room = self._queue_size - waiting
        unsafe = self._offsets.unconfirmed() >= self._window
        # Partitions that were paused stay so until there is room worth fetching for.
        if self.quiet or unsafe or (self._all_paused and room < self._queue_size // 2):
            room = 0
        if room > 0:
            self._full_since = None
            if self._all_paused:
                self._pause_all(False)
            most = SLICE if waiting and self._handlers_wait() else CHUNK
            return fetch(self._consumer, min(room, most), IDLE_POLL_S)
        now = monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since < FULL_S and not self.quiet:
            if unsafe:
                self._stop.wait(COMMIT_LOOK_S)
                return []
            self._crew.wait_for_room(self.handed, self._queue_size // 2 + 1, IDLE_POLL_S)
            return []
        if not self._all_paused:
            self._pause_all(True)
        message = self._consumer.poll(IDLE_POLL_S)
        return [] if message is None else [message]

    def _handlers_wait(self) -> bool:
        """Whether handlers have lately taken longer than they would with nothing to wait for."""
        spent, done = self._crew.total_s - self._pace[0], self._crew.completed - self._pace[1]
        if done >= PACE:
            self._pace = self._crew.total_s, self._crew.completed
            self._slow = spent / done > QUICK_S
        return self._slow

    def _receive(self, messages: Sequence[Any]) -> None:
        runs: dict[TopicPartition, list[Any]] = {}
        events: list[Any] = []
        for message in messages:
            if message.error() is not None:
                events.append(message)
                continue
            place = message.topic(), message.partition()
            if place in runs:
                runs[place].append(message)
            else:
                runs[place] = [message]
        records: list[Record] = []
        for place, run in runs.items():
            lease = self.leases.get(place)
            if lease is None:  # taken away meanwhile
                continue
            offsets = [message.offset() for message in run]
            if lease.goes_back(offsets):
                lease = self._begin_again(lease, offsets[0])
            records += lease.receive(run, offsets)
        for event in events:
            self._event(event)
        if records:
            if self._decode is not None:
                self._decode(records)
            self.handed += len(records)
            self._hand_over(records)

    def _begin_again(self, lease: Lease, offset: int) -> Lease:
        """What was fetched before is handled all the same, but says nothing about the new offsets."""
        log.warning(
            "%s goes on at offset %d, before what was read already: its records were deleted or replaced",
            lease,
            offset,
        )
        fresh = self.leases[lease.topic, lease.partition] = self._lease(lease.topic, lease.partition)
        fresh.paused = lease.paused
        return fresh

    def _event(self, message: Any) -> None:
        error: KafkaError = message.error()
        lease = self.leases.get((message.topic(), message.partition()))
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if lease is not None:
                lease.tracker.passed(message.offset())
        elif code == KafkaError._AUTO_OFFSET_RESET:
            raise NoOffsetError(f"{message.topic()}-{message.partition()}: {error.str()}")
        elif code == KafkaError._MAX_POLL_EXCEEDED:
            log.warning("the group has taken this member for dead, which joins again: %s", error.str())
        else:
            topics = [message.topic()] if message.topic() else []
            found = translate(error, self._options, "reading", *reading(self._options, *topics))
            if isinstance(found, (AuthError, UnknownTopicError)) or error.fatal():
                raise found
            log.warning("%s", found.message)

    # -- backpressure --------------------------------------------------------------------------------

    def _pause_and_resume(self) -> None:
        for lease in self.leases.values():
            lease.tracker.frontier()
            size = len(lease.tracker)
            if not lease.paused and size >= self._window:
                oldest = lease.tracker.oldest()
                log.warning(
                    "%s is paused: %d records are beyond offset %s, which is not done", lease, size - 1,
                    oldest.offset if oldest else "?",
                )  # fmt: skip
                self._set_paused([lease], True)
            elif lease.paused and not self._all_paused and size < self._window // 2:
                self._set_paused([lease], False)

    def _pause_all(self, pause: bool) -> None:
        self._all_paused = pause
        if pause:
            self._set_paused([lease for lease in self.leases.values() if not lease.paused], True)
        # To resume is left to _pause_and_resume, which knows those that are paused for reasons of their own.

    def _set_paused(self, leases: Sequence[Lease], pause: bool) -> None:
        if not leases:
            return
        partitions = [PartitionOffset(lease.topic, lease.partition) for lease in leases]
        (self._consumer.pause if pause else self._consumer.resume)(partitions)
        for lease in leases:
            lease.paused = pause

    # -- the group -----------------------------------------------------------------------------------

    @called_back
    def _assigned(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        self.rebalances += 1
        found = {} if self.quiet else self._committed(partitions)
        for partition in partitions:
            place = partition.topic, partition.partition
            offset, metadata = found.get(place, (OFFSET_INVALID, None))
            self.leases[place] = self._lease(*place, offset, metadata)
            if offset >= 0:
                partition.offset = offset  # exactly there, so that offset and metadata are of one commit
        if self._options["partition.assignment.strategy"] == "cooperative-sticky":
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        if self._all_paused:
            self._set_paused([self.leases[p.topic, p.partition] for p in partitions], True)
        log.info("assigned: %s", _names(partitions))

    def _lease(self, topic: str, partition: int, offset: int = -1, metadata: str | None = None) -> Lease:
        return Lease(topic, partition, offset, metadata, keep=self._offsets.reopens)

    def _committed(
        self, partitions: list[PartitionOffset]
    ) -> Mapping[TopicPartition, tuple[int, str | None]]:
        """Offset and metadata of the group. If it cannot be had, the library finds the offset by itself."""
        try:
            answer = self._consumer.committed(partitions, timeout=COMMITTED_S)
        except KafkaException as error:
            log.warning(
                "what was done beyond the committed offsets is not known and is handled again: %s",
                error.args[0].str(),
            )
            return {}
        for tp in answer:
            if tp.error is not None:
                log.warning(
                    "%s-%d: the group's offset is not known: %s", tp.topic, tp.partition, tp.error.str()
                )
        return {(tp.topic, tp.partition): (tp.offset, tp.metadata) for tp in answer if tp.error is None}

    @called_back
    def _revoked(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        leases = self._leave(partitions)
        if not self._crew.wait_until_idle(leases, self._drain_s):
            log.warning(
                "handlers of %s did not end within %.1f s: what they do is done again by the next owner",
                _names(partitions), self._drain_s,
            )  # fmt: skip
        self._offsets.settle(leases)
        # A partition that is paused when it goes would come back paused.
        self._set_paused([lease for lease in leases if lease.paused], False)
        log.info("revoked: %s", _names(partitions))

    @called_back
    def _lost(self, consumer: Consumer, partitions: list[PartitionOffset]) -> None:
        """Somebody else may have them already: nothing is committed."""
        leases = self._leave(partitions)
        self._set_paused([lease for lease in leases if lease.paused], False)
        log.warning("lost: %s; what was not committed is handled again by the next owner", _names(partitions))

    def _leave(self, partitions: Sequence[PartitionOffset]) -> list[Lease]:
        places = [(tp.topic, tp.partition) for tp in partitions]
        leases = [self.leases.pop(place) for place in places if place in self.leases]
        self.rebalances += bool(leases)
        for lease in leases:
            lease.closing = True
        return leases


def _names(partitions: Sequence[PartitionOffset]) -> str:
    return ", ".join(f"{tp.topic}-{tp.partition}" for tp in partitions) or "nothing"


def as_error(error: BaseException, options: Options) -> BaseException:
    """What ended the thread, as one of ours where it is the library's."""
    if isinstance(error, KafkaException):
        return translate(error.args[0], options, "reading")
    if isinstance(error, ForebayError):
        return error
    found = ConnectorError(f"the pool's polling thread has failed: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
