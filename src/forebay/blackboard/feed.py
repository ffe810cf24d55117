"""Feeds the index from the compacted topics: a thread with a consumer that follows them for ever.

It belongs to no group: each process has all of the index. `wait_for` is how a reader waits until the index
has what it wants to see.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from forebay.backoff import Backoff, with_backoff
from forebay.blackboard.index import Fed, Index, Partition
from forebay.blackboard.topics import Topics
from forebay.errors import (
    AuthError,
    ForebayError,
    IndexBehindError,
    TopicRecreatedError,
    UnreachableError,
)
from forebay.kafka.admin import Cluster, partitions_of
from forebay.kafka.settings import CLIENT_LOG, connection_settings, translate
from forebay.options import Options

log = logging.getLogger("forebay.blackboard")

CHUNK = 2_000  # records in one SQLite transaction
POLL_S = 0.1
TOPICS_AGE_S = 5.0  # partitions that are added are found within it


class Feed:
    """From start() to close(). What went wrong for good is raised to whoever waits."""

    def __init__(self, options: Options, topics: Topics, index: Index) -> None:
        self._options = options
        self._index = index
        self._names = topics.indexed
        self._cluster = Cluster(options)
        self._topic_ids: dict[str, str] = {}
        self._reached: dict[Partition, int] = {}
        self._fatal: ForebayError | None = None
        self.taken = 0  # records, since the start
        self._news = threading.Condition()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Connect, and come to where the topics end now: after this the index is complete."""
        # Topics that were made a moment ago have no leaders yet, which is waited for, too.
        with_backoff(self._look, timeout_s=self._options["connect.timeout.ms"] / 1000)
        consumer = Consumer(self._settings(), logger=CLIENT_LOG)
        consumer.assign([TopicPartition(*key, offset) for key, offset in self._reached.items()])
        self._thread = threading.Thread(target=self._run, args=(consumer,), name="forebay-board", daemon=True)
        self._thread.start()
        self.wait_for(with_backoff(self.ends, timeout_s=None), timeout_s=None)

    def _look(self) -> None:
        described = self._cluster.describe(self._names)
        self._topic_ids = {name: topic.id for name, topic in described.items()}
        keys = partitions_of(described)
        starts = self._cluster.earliest(keys)
        known = self._index.positions(self._topic_ids)
        self._reached = {key: max(known.get(key, 0), starts[key]) for key in keys}

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        with self._news:
            self._news.notify_all()
        self._cluster.close()

    def ends(self) -> dict[Partition, int]:
        """Where the topics end now, for a reader of this isolation level."""
        return self._cluster.latest(list(self._reached))

    def has(self, wanted: Mapping[Partition, int]) -> bool:
        """Whether all before these offsets is in the index."""
        return all(self._reached.get(key, 0) >= offset for key, offset in wanted.items())

    def wait_for(self, wanted: Mapping[Partition, int], timeout_s: float | None) -> None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._news:
            while not self.has(wanted):
                if self._fatal is not None:
                    raise self._fatal
                if self._ended.is_set():
                    return
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    (topic, number), offset = next(
                        (key, offset) for key, offset in wanted.items() if self._reached.get(key, 0) < offset
                    )
                    raise IndexBehindError(
                        f"after {timeout_s:g} s the index has {topic}-{number} up to offset "
                        f"{self._reached.get((topic, number), 0)} and not up to {offset}"
                    )
                self._news.wait(left)

    def _settings(self) -> dict[str, Any]:
        return connection_settings(self._options) | {
            "client.id": self._options["client.id"],
            "group.id": "forebay-board",  # the library wants one; it is neither joined nor committed to
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self._options["isolation.level"],
            "enable.partition.eof": True,  # the only word on how far a partition goes past its last record
            "fetch.queue.backoff.ms": 5,
            "fetch.wait.max.ms": 500,
            "queued.max.messages.kbytes": 16_384,
        }

    def _run(self, consumer: Consumer) -> None:
        away, looked = Backoff(), time.monotonic()
        try:
            while not self._ended.is_set():
                try:
                    self._take(self._fetch(consumer))
                    if time.monotonic() - looked > TOPICS_AGE_S:
                        looked = time.monotonic()
                        self._find_partitions(consumer)
                    away.over()
                except KafkaException as error:
                    found = translate(error.args[0], self._options, "reading the blackboard's topics")
                    if not found.retryable:
                        raise found from None
                    self._ended.wait(away.failed())
        except ForebayError as error:
            self._fail(error)
        except Exception as error:  # a full disk, a file that was taken away: readers must hear of it
            self._fail(IndexBehindError(f"the index is fed no more: {error!r}"))
        finally:
            consumer.close()

    def _fetch(self, consumer: Consumer) -> list[Message]:
        """What is there, or the first that comes: consume() with a time would wait until it has as many as asked for."""
        found: list[Message] = consumer.consume(CHUNK, 0)
        if not found and (message := consumer.poll(POLL_S)) is not None:
            found = [message, *consumer.consume(CHUNK, 0)]
        return found

    def _find_partitions(self, consumer: Consumer) -> None:
        """A topic may grow: what is in a partition that nobody reads would be missing, and nobody would know."""
        try:
            described = self._cluster.describe(self._names)
        except UnreachableError:
            return
        keys = set(partitions_of(described))
        new = keys - set(self._reached)
        if any(topic.id != self._topic_ids[name] for name, topic in described.items()):
            raise TopicRecreatedError(
                "a topic of the blackboard was deleted and made again",
                remedy="start again: the index is made anew",
            )
        if new:
            with self._news:
                self._reached.update(dict.fromkeys(new, 0))
            consumer.assign([TopicPartition(*key, offset) for key, offset in self._reached.items()])

    def _fail(self, error: ForebayError) -> None:
        log.error("the index of the blackboard has stopped: %s", error)
        with self._news:
            self._fatal = error
            self._news.notify_all()

    def _take(self, messages: list[Message]) -> None:
        records: list[Fed] = []
        reached: dict[Partition, int] = {}
        for message in messages:
            error = message.error()
            key = (message.topic(), message.partition())
            if error is None:
                reached[key] = message.offset() + 1
                _, at_ms = message.timestamp()
                records.append(Fed(*key, message.offset(), at_ms, message.key() or b"", message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                reached[key] = message.offset()
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise IndexBehindError(
                    f"{key[0]}-{key[1]} no longer has what comes after the index: {error.str()}",
                    remedy="start again: the index is made anew",
                )
            else:
                found = translate(error, self._options, f"reading {key[0]}")
                if isinstance(found, AuthError) or not found.retryable:
                    raise found
        if not reached:
            return
        self._index.apply(records, reached, self._topic_ids)
        self.taken += len(records)
        with self._news:
            self._reached.update(reached)
            self._news.notify_all()
