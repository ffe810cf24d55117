"""Feeds the index from the compacted topics: a thread with a consumer that follows them for ever.

It belongs to no group: each process has all of the index. `wait_for` is how a reader waits until the index
has what it wants to see. The thread never ends by itself: what it cannot do now it tries again, and whoever waits
meanwhile hears why. Where a topic was made anew, or has lost records that the index has, its part is made anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from forebay.backoff import Backoff, with_backoff
from forebay.blackboard.board_topics import BoardTopics
from forebay.blackboard.index import Fed, Index
from forebay.errors import AuthError, ForebayError, IndexBehindError, UnreachableError
from forebay.kafka.admin import Cluster, partitions_of
from forebay.kafka.consumers import fetch
from forebay.kafka.missing_acls import READ, on_topics
from forebay.kafka.partitions import PartitionOffset, TopicPartition
from forebay.kafka.reader import NO_GROUP
from forebay.kafka.settings import CLIENT_LOG, reader_settings, translate
from forebay.options import Options
from forebay.threads import keep_running

log = logging.getLogger("forebay.blackboard")

CHUNK = 2_000  # records in one SQLite transaction
POLL_S = 0.1
TOPICS_AGE_S = 5.0  # partitions that are added, and topics that are made anew, are found within it
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)


class _LogLostError(Exception):
    """A partition does not have the offset that the index goes on at."""

    def __init__(self, topic: str) -> None:
        self.topic = topic


class IndexFeed:
    """From start() to close()."""

    def __init__(self, options: Options, topics: BoardTopics, index: Index) -> None:
        self._options = options
        self._index = index
        self._names = topics.indexed
        self._cluster = Cluster(options)
        self._topic_ids: dict[str, str] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._missing: dict[TopicPartition, int] = {}  # what has to be reached before the index is whole
        self.trouble: ForebayError | None = None
        # Brokers that are away: whoever waits goes on waiting, and metrics say that the log is not followed.
        self.away: ForebayError | None = None
        self.log_number = (
            0  # grows when a topic turns out to be another log than before: offsets mean others then
        )
        self.taken = 0  # records, since the start
        self._news = threading.Condition()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Connect, and come to where the topics end now: after this the index is complete."""
        # Topics that were made a moment ago have no leaders yet, which is waited for, too.
        with_backoff(self._look, timeout_s=self._options["connect.timeout.ms"] / 1000)
        self._thread = keep_running("forebay-board", self._run, self._ended, self._failed)
        self.wait_for({}, timeout_s=None)

    def _look(self) -> None:
        """What the topics are now, and where to go on in them."""
        described = self._cluster.describe(self._names)
        ids = {name: topic.id for name, topic in described.items()}
        keys = partitions_of(described)
        starts, ends = self._cluster.earliest(keys), self._cluster.latest(keys)
        known = self._index.positions(ids)
        lost = {
            topic for (topic, number), at in known.items()
            if not starts.get((topic, number), 0) <= at <= ends.get((topic, number), 0)
        }  # fmt: skip
        if lost:
            log.warning(
                "the index has records that %s no longer have: the log was truncated, or records were deleted",
                ", ".join(sorted(lost)),
            )
            self._index.forget(lost)
        with self._news:
            before = self._reached
            self._topic_ids = ids
            self._reached = {
                key: starts[key] if key[0] in lost else max(known.get(key, 0), starts[key]) for key in keys
            }
            self._missing = {key: end for key, end in ends.items() if self._reached[key] < end}
            if any(self._reached.get(key, 0) < offset for key, offset in before.items()):
                self.log_number += 1
            self._news.notify_all()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._news:
            self._news.notify_all()
        self._cluster.close()

    def ends(self) -> dict[TopicPartition, int]:
        """Where the topics end now, for a reader of this isolation level."""
        return self._cluster.latest(list(self._reached))

    def has(self, wanted: Mapping[TopicPartition, int]) -> bool:
        """Whether all before these offsets is in the index, and all that was in the log when it was begun."""
        return not self._missing and all(
            self._reached.get(key, 0) >= offset for key, offset in wanted.items()
        )

    def wait_for(self, wanted: Mapping[TopicPartition, int], timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._news:
            log_number = self.log_number
            while not self.has(wanted):
                if self.trouble is not None:
                    raise self.trouble
                if self._ended.is_set():
                    return
                if log_number != self.log_number and wanted:
                    raise IndexBehindError(
                        "a topic of the blackboard was made anew or has lost records, and with it what was waited for",
                        remedy="ask again: the index is made anew by itself",
                    )
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise self._behind({**wanted, **self._missing}, timeout_s)
                self._news.wait(left)

    def _behind(self, wanted: Mapping[TopicPartition, int], timeout_s: float | None) -> IndexBehindError:
        (topic, number), offset = next(
            (key, offset) for key, offset in wanted.items() if self._reached.get(key, 0) < offset
        )
        return IndexBehindError(
            f"after {timeout_s:g} s the index has {topic}-{number} up to offset "
            f"{self._reached.get((topic, number), 0)} and not up to {offset}"
        )

    def _settings(self) -> dict[str, Any]:
        return reader_settings(self._options, "forebay-board") | {
            "client.id": self._options["client.id"],
            "fetch.wait.max.ms": 500,
            "queued.max.messages.kbytes": 16_384,
        }

    def _run(self) -> None:
        """Until close(). Those who wait hear of whatever it raises, and it is run again."""
        if self.trouble is not None:
            self._look()
        consumer = Consumer(self._settings(), logger=CLIENT_LOG)
        try:
            self._assign(consumer)
            self._follow(consumer)
        finally:
            consumer.close()

    def _follow(self, consumer: Consumer) -> None:
        away, looked = Backoff(), time.monotonic()
        while not self._ended.is_set():
            try:
                self._take(fetch(consumer, CHUNK, POLL_S))
                if time.monotonic() - looked > TOPICS_AGE_S:
                    looked = time.monotonic()
                    self._find_partitions(consumer)
                away.over()
                self.trouble = None
            except _LogLostError as lost:
                log.warning("%s no longer has the records that come after the index", lost.topic)
                self._index.forget([lost.topic])
                self._look()
                self._assign(consumer)
            except KafkaException as error:
                found = translate(
                    error.args[0],
                    self._options,
                    "reading the blackboard's topics",
                    *on_topics(READ, self._names),
                )
                if not found.retryable:
                    raise found from None
                self._ended.wait(away.failed())

    def _assign(self, consumer: Consumer) -> None:
        consumer.assign([PartitionOffset(*key, offset) for key, offset in self._reached.items()])

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, ForebayError):  # a full disk, a file that was taken away
            error = IndexBehindError(
                f"the index does not follow the log: {type(error).__name__}: {error}",
                remedy="it is tried again by itself; see the log for what is wrong",
            )
        with self._news:
            self.trouble = error
            self._news.notify_all()

    def _find_partitions(self, consumer: Consumer) -> None:
        """A topic may grow: what is in a partition that nobody reads would be missing, and nobody would know."""
        try:
            described = self._cluster.describe(self._names)
        except UnreachableError as error:
            self.away = error
            return
        self.away = None
        if any(topic.id != self._topic_ids[name] for name, topic in described.items()):
            log.warning("a topic of the blackboard was deleted and made again")
            self._look()
            self._assign(consumer)
            return
        new = set(partitions_of(described)) - set(self._reached)
        if new:
            with self._news:
                self._reached.update(dict.fromkeys(new, 0))
            self._assign(consumer)

    def _take(self, messages: list[Message]) -> None:
        records: list[Fed] = []
        reached: dict[TopicPartition, int] = {}
        for message in messages:
            error = message.error()
            key = (message.topic(), message.partition())
            if error is None:
                reached[key] = message.offset() + 1
                _, at_ms = message.timestamp()
                records.append(Fed(*key, message.offset(), at_ms, message.key() or b"", message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[key] = message.offset()
            elif error.code() in _GONE:
                raise _LogLostError(key[0])
            elif error.code() == NO_GROUP:
                continue
            else:
                doing = f"reading {key[0]}"
                found = translate(error, self._options, doing, *on_topics(READ, key[:1]))
                if isinstance(found, AuthError) or not found.retryable:
                    raise found
        if not reached:
            return
        self._index.apply(records, reached, self._topic_ids)
        self.taken += len(records)
        with self._news:
            self._reached.update(reached)
            if self._missing:
                self._missing = {
                    key: end for key, end in self._missing.items() if self._reached.get(key, 0) < end
                }
            self._news.notify_all()
