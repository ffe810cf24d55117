"""Reads ranges of offsets: every record in them that the broker has, once, and nothing else.

Compaction, aborted transactions and transaction markers leave gaps; a gap is not a loss. A range is done
when a record at or past its end arrives, or when the reader stands at its end. An empty answer is no gap:
librdkafka asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from forebay.backoff import Backoff
from forebay.errors import OffsetOutOfRangeError, ReadStalledError
from forebay.kafka.consumers import CACHE, TaskConsumer, fetch
from forebay.kafka.missing_acls import READ, on_topics
from forebay.kafka.offsets import Range, judge
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.settings import TRANSIENT, address, named, translate
from forebay.options import Options

STALL_S = 120.0  # a broker that restarts is back long before; one that is not should be heard of
LOOK_S = 3.0  # after this silence it is worth asking whether the topic is still there
GRACE_S = 3.0  # how long an error that is not known to pass may go on: another leader may do better
LONGEST_WAIT_S = 1.0
POLL_S = 0.2
GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
"""No matter to who is assigned what it reads: the library looks for the group's coordinator all the same."""

FATAL = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)


def stalled(options: Options, after_s: float, rest: Iterable[Range], trouble: str) -> ReadStalledError:
    """Nothing has come for too long; `trouble` is what the broker said last."""
    return ReadStalledError(
        f"no records from Kafka at {address(options)} for {after_s:.0f} s while reading "
        + ", ".join(map(str, rest))
        + (f"; asked again and again, the last trouble was: {trouble}" if trouble else "")
    )


def read_ranges(
    ranges: Iterable[Range],
    options: Options,
    settings: Mapping[str, Any],
    on_lost: Callable[[Range], None] = lambda lost: None,
    *,
    chunk: int,
) -> Iterator[list[Message]]:
    """The records of these ranges, one range a partition, at most `chunk` at a time. Blocks while there is none yet.

    `settings` are those of the consumer, which is kept for the next who reads with the same ones.
    """
    wanted = [item for item in ranges if len(item) > 0]
    if not wanted:
        return
    with CACHE.borrow(settings) as consumer:
        yield from RangeReader(consumer, wanted, options, on_lost).chunks(chunk)


class RangeReader:
    """Reads a few ranges with one consumer. `on_lost` hears of ranges that are gone, when that is allowed."""

    def __init__(
        self,
        consumer: TaskConsumer,
        ranges: Sequence[Range],
        options: Options,
        on_lost: Callable[[Range], None] | None = None,
    ) -> None:
        self._consumer = consumer
        self._open: dict[TopicPartition, Range] = {(r.topic, r.partition): r for r in ranges if len(r)}
        self._next: dict[TopicPartition, int] = {key: r.start for key, r in self._open.items()}
        self._options = options
        self._on_lost = on_lost
        self._moved = self._looked = time.monotonic()
        self._reassign = False
        self._sure: set[TopicPartition] = (
            set()
        )  # whose first event was the offset we asked for, or came twice
        self._doubted: set[TopicPartition] = set()
        self._ignored: set[TopicPartition] = set()  # until they are assigned anew
        self._refused: dict[TopicPartition, float] = {}  # since when there have been errors and no records
        self._again = Backoff()
        self._trouble = ""

    def chunks(self, size: int) -> Iterator[list[Message]]:
        """The records, at most `size` at a time, each partition's in order."""
        self._assign()
        while self._open:
            kept = [message for message in fetch(self._consumer, size, POLL_S) if self._accept(message)]
            if self._reassign:
                # Only here: what was fetched has been taken, so that nothing is fetched twice.
                self._assign()
            if kept:
                yield kept
                self._moved = time.monotonic()  # whoever took them may have been long about it
            elif self._open and self._consumer.refusal is not None:
                rest = ", ".join(str(self._rest(key)) for key in self._open)
                raise translate(self._consumer.refusal, self._options, f"reading {rest}")
            elif time.monotonic() - self._moved > STALL_S:
                raise stalled(self._options, STALL_S, map(self._rest, self._open), self._trouble)
            elif time.monotonic() - max(self._moved, self._looked) > LOOK_S:
                self._look_for_topics()

    def _assign(self) -> None:
        # Finished partitions are not paused, only left unread: pausing outlives the assignment, and resuming
        # after the next one may go on where the last reader of this consumer stood.
        self._consumer.assign([PartitionOffset(*key, self._next[key]) for key in self._open])
        self._reassign = False
        self._ignored.clear()

    def _look_for_topics(self) -> None:
        """The library waits for a topic that is gone as if it were about to come."""
        for topic in {topic for topic, _ in self._open}:
            try:
                error = self._consumer.list_topics(topic, timeout=LOOK_S).topics[topic].error
            except KafkaException:
                continue  # the broker is away: that is waited for
            if error is not None and error.code() in FATAL:
                raise translate(error, self._options, f"reading {topic}", *on_topics(READ, [topic]))
        self._looked = time.monotonic()

    def _accept(self, message: Message) -> bool:
        error = message.error()
        key = (message.topic(), message.partition())
        if error is not None:
            self._on_event(error, key, message)
            return False
        item = self._open.get(key)
        if item is None:  # past the end of its range, fetched ahead
            return False
        offset = message.offset()
        if offset < self._next[key] or not self._believe(key, offset):
            return False
        self._moved = time.monotonic()
        self._refused.pop(key, None)
        self._again.over()
        self._next[key] = offset + 1
        if offset >= item.end - 1:
            self._finish(key)
        return bool(offset < item.end)

    def _believe(self, key: TopicPartition, offset: int) -> bool:
        """Whether an event is of this assignment. A first one that skips offsets must come twice.

        It may be a gap in the log, which is not a loss; but if it were left over from whoever had this
        consumer before, believing it would be one.
        """
        if key in self._ignored:
            return False
        if key in self._sure or offset == self._next[key] or key in self._doubted:
            self._sure.add(key)
            return True
        self._doubted.add(key)
        self._ignored.add(key)
        self._reassign = True
        return False

    def _on_event(self, error: KafkaError, key: TopicPartition, message: Message) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if key in self._open and self._believe(key, message.offset()):
                self._at_end(key, message.offset())
        elif error.code() in GONE:
            if key in self._open:
                self._trouble = named(error)
                self._gone(key)
        elif error.code() in FATAL:
            raise translate(error, self._options, f"reading {key[0]}-{key[1]}", *on_topics(READ, key[:1]))
        elif error.code() != NO_GROUP:
            self._on_trouble(error, key)

    def _on_trouble(self, error: KafkaError, key: TopicPartition) -> None:
        """The library asks again by itself. We wait, for a while if the error is not known to pass."""
        self._trouble = named(error)
        if key not in self._open or error.code() in TRANSIENT:
            return
        now = time.monotonic()
        if now - self._refused.setdefault(key, now) > GRACE_S:
            raise translate(error, self._options, f"reading {key[0]}-{key[1]}")

    def _at_end(self, key: TopicPartition, end: int) -> None:
        """The log ends at `end` for this reader: right at the range's end, or before it."""
        item = self._open[key]
        if end >= item.end:
            self._moved = time.monotonic()
            self._finish(key)
            return
        _, high = self._watermarks(key)
        if high < item.end:
            self._lose(Range(*key, max(high, self._next[key]), item.end))
            self._finish(key)

    def _gone(self, key: TopicPartition) -> None:
        """The broker does not have the offset we asked for."""
        lost, resume = judge(self._rest(key), *self._watermarks(key))
        if lost is not None:
            self._lose(lost)
        if resume is None:
            self._finish(key)
        else:
            if lost is None:  # the broker has it after all: it is asked again, later each time
                time.sleep(min(LONGEST_WAIT_S, self._again.failed()))
            self._next[key] = resume
            self._reassign = True  # seeking is refused to a partition whose reading has failed

    def _lose(self, lost: Range) -> None:
        if self._on_lost is None:
            raise OffsetOutOfRangeError(f"{len(lost)} records are gone before they were read: {lost}")
        self._on_lost(lost)

    def _finish(self, key: TopicPartition) -> None:
        del self._open[key]

    def _rest(self, key: TopicPartition) -> Range:
        return Range(*key, self._next[key], self._open[key].end)

    def _watermarks(self, key: TopicPartition) -> tuple[int, int]:
        try:
            low, high = self._consumer.get_watermark_offsets(PartitionOffset(*key), timeout=10.0)
        except KafkaException as error:
            raise translate(
                error.args[0],
                self._options,
                f"asking for the offsets of {key[0]}-{key[1]}",
                *on_topics(READ, key[:1]),
            ) from None
        return low, high
