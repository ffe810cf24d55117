"""Consumers kept between tasks: connecting costs more than reading a small batch.

A cached consumer holds its connections and nothing else: it is unassigned after each use, because one
that sits at the end of a partition goes on fetching, and Spark seldom brings the same partition back.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from forebay import threads
from forebay.kafka.partitions import PartitionOffset
from forebay.kafka.settings import CLIENT_LOG, is_refusal

HEARD_S = 1.0  # by then a broker has said that a group is not for us
LEAVE_POLL_S = 0.02
IDLE_CLOSE_S = 30.0  # below the minute after which Spark itself ends an idle Python worker


def fetch(consumer: Consumer, most: int, wait_s: float) -> list[Message]:
    """What is here; else what comes next. consume() with a time-out would wait until it has as many as asked for."""
    found: list[Message] = consumer.consume(most, 0)
    if not found and (message := consumer.poll(wait_s)) is not None:
        found = [message, *(consumer.consume(most - 1, 0) if most > 1 else ())]
    return found


def committed_offsets(
    consumer: Consumer, partitions: Sequence[PartitionOffset], timeout_s: float
) -> list[PartitionOffset]:
    """A group's offsets. KafkaException where they cannot be had; of a consumer that never joins its group.

    Who may not use the group learns that only from an event of the consumer; the question itself goes unanswered.
    """
    while consumer.poll(0) is not None:
        pass  # what was said before is about another time
    began = time.monotonic()
    for wait_s in (min(HEARD_S, timeout_s), timeout_s):
        try:
            found: list[PartitionOffset] = consumer.committed(
                list(partitions), timeout=max(0.1, wait_s - (time.monotonic() - began))
            )
            return found
        except KafkaException as error:
            unanswered = error.args[0]
            if unanswered.code() not in (KafkaError._TIMED_OUT, KafkaError._WAIT_COORD):
                raise
        while (event := consumer.poll(0)) is not None:
            if event.error() is not None and event.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise KafkaException(event.error())
    raise KafkaException(unanswered)


def commit_offsets(consumer: Consumer, offsets: Sequence[PartitionOffset]) -> tuple[str, KafkaError] | None:
    """Write a group's offsets and wait for the answer. None if the broker has them; else of what, and why not."""
    try:
        answer = consumer.commit(offsets=list(offsets), asynchronous=False)
    except KafkaException as error:
        return "", error.args[0]
    except RuntimeError:  # the consumer is closed
        return "", KafkaError(KafkaError._DESTROY)
    failed = next((found for found in answer or () if found.error is not None), None)
    return None if failed is None else (f"{failed.topic}-{failed.partition}", failed.error)


def leave_group(consumer: Consumer, patience_s: float, *, static: bool = False) -> None:
    """Out of the group and closed, and so that the group hears of it: it would wait for this member until its session is over.

    Closing alone is not enough. While the group divides its partitions, the broker holds the request to join and reads
    nothing behind it; and of a cooperative member that has no partitions, the library tells nobody. A static member stays.
    """
    try:
        if not static:
            until = time.monotonic() + patience_s
            consumer.unsubscribe()
            while consumer.memberid() and time.monotonic() < until:
                consumer.poll(LEAVE_POLL_S)
    finally:
        consumer.close()


class TaskConsumer(Consumer):  # type: ignore[misc]
    """Keeps the library's word that a connection was refused: to a reader that is silence, and no event."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.refusal: KafkaError | None = None
        super().__init__({**settings, "error_cb": self._on_error}, logger=CLIENT_LOG)

    def _on_error(self, error: KafkaError) -> None:
        if is_refusal(error):
            self.refusal = error


class ConsumerCache:
    """Idle consumers by their settings; each is used by one reader at a time."""

    def __init__(self, idle_close_s: float = IDLE_CLOSE_S) -> None:
        self._idle_close_s = idle_close_s
        self._lock = threading.Lock()
        self._idle: dict[tuple[tuple[str, Any], ...], list[tuple[TaskConsumer, float]]] = {}
        self._reaper: threading.Thread | None = None
        self._pid = os.getpid()
        self._left: list[Any] = []

    @contextmanager
    def borrow(self, settings: Mapping[str, Any]) -> Iterator[TaskConsumer]:
        """A consumer of these settings. One whose use failed is closed, not kept."""
        key = tuple(sorted(settings.items()))
        consumer = self._take(key) or TaskConsumer(settings)
        consumer.refusal = None  # of another task, which got over it
        try:
            yield consumer
            consumer.unassign()
        except BaseException:
            consumer.close()
            raise
        self._give_back(key, consumer)

    def idle(self) -> int:
        with self._mine():
            return sum(len(consumers) for consumers in self._idle.values())

    def close(self) -> None:
        """Close what is idle now."""
        self._close_older_than(float("inf"))

    def _mine(self) -> threading.Lock:
        """The lock, of a cache that belongs to this process."""
        if self._pid != os.getpid():
            # A client does not survive a fork, nor does a lock that another thread held. What the parent
            # left is neither used nor closed, and stays referenced: to be collected is to be closed,
            # which waits for threads that are not here.
            self._left.append(self._idle)
            self._idle, self._reaper, self._lock, self._pid = {}, None, threading.Lock(), os.getpid()
        return self._lock

    def _take(self, key: tuple[tuple[str, Any], ...]) -> TaskConsumer | None:
        with self._mine():
            consumers = self._idle.get(key)
            return consumers.pop()[0] if consumers else None

    def _give_back(self, key: tuple[tuple[str, Any], ...], consumer: TaskConsumer) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append((consumer, time.monotonic()))
            if self._reaper is None:
                self._reaper = threads.keep_running("forebay-consumers", self._reap, threading.Event())

    def _reap(self) -> None:
        while True:
            time.sleep(self._idle_close_s / 4)
            self._close_older_than(time.monotonic() - self._idle_close_s)

    def _close_older_than(self, moment: float) -> None:
        with self._mine():
            stale = [c for consumers in self._idle.values() for c, since in consumers if since <= moment]
            self._idle = {
                key: kept
                for key, consumers in self._idle.items()
                if (kept := [(c, since) for c, since in consumers if since > moment])
            }
        for consumer in stale:
            consumer.close()


CACHE = ConsumerCache()
atexit.register(CACHE.close)
