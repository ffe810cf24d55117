"""Offsets by plain commits of the consumer.

A commit waits for its answer in a thread of its own, so that polling goes on meanwhile. (The library can also tell the
answer to a callback, but that queues up behind all records that were fetched before.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic, sleep

from confluent_kafka import Consumer, KafkaError

from forebay.kafka.consumers import commit_offsets
from forebay.kafka.partitions import PartitionOffset
from forebay.pool.committer import Commit, Committer
from forebay.pool.lease import Lease
from forebay.threads import start

log = logging.getLogger("forebay.pool")

TRIES = 5  # of a commit before partitions are given back: the group waits for us meanwhile
SETTLE_S = 5.0  # how long one that is under way is waited for then: it must not arrive after the last one


def send(consumer: Consumer, commits: Sequence[Commit]) -> KafkaError | None:
    """Commit, and wait for the answer; None if the broker has it."""
    positions = [PartitionOffset(c.lease.topic, c.lease.partition, c.offset, c.metadata) for c in commits]
    failed = commit_offsets(consumer, positions)
    return None if failed is None else failed[1]


class Sending:
    """One commit on its way."""

    def __init__(self, consumer: Consumer, commits: Sequence[Commit]) -> None:
        # Until the broker has said otherwise: a commit that nobody has confirmed is made again.
        self.error: KafkaError | None = KafkaError(KafkaError._FAIL, "the commit broke off")
        # A daemon: the library may wait for minutes for a broker that is away.
        self._thread = start("forebay-pool-commit", partial(self._send, consumer, commits), self._failed)

    def _send(self, consumer: Consumer, commits: Sequence[Commit]) -> None:
        self.error = send(consumer, commits)

    def _failed(self, error: Exception) -> None:
        self.error = KafkaError(KafkaError._FAIL, f"{type(error).__name__}: {error}")

    def answered(self, timeout_s: float = 0.0) -> bool:
        if timeout_s > 0:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()


class Commits:
    """Sends what the committer plans. `completed` counts the records that were ever done. Of the polling thread."""

    reopens = False

    def __init__(self, committer: Committer, completed: Callable[[], int]) -> None:
        self._committer = committer
        self._completed = completed
        self._sending: Sending | None = None
        self.consumer: Consumer | None = None

    @property
    def commits(self) -> int:
        return self._committer.commits

    @property
    def failures(self) -> int:
        return self._committer.failures

    def unconfirmed(self) -> int:
        return self._committer.unconfirmed(self._completed())

    def tick(self, leases: Sequence[Lease]) -> None:
        self._hear()
        completed = self._completed()
        if self._committer.due(completed):
            self._send(self._committer.plan(leases, completed))

    def settle(self, leases: Sequence[Lease]) -> None:
        """In this thread, which is inside the library's callback: when it returns, the partitions are somebody else's.

        A commit that is under way is waited for: the library tries one again whose coordinator was away, and if that
        arrived behind the last one, the group's offsets would go back.
        """
        self._hear(SETTLE_S)
        if self._sending is not None:
            log.warning(
                "a commit has no answer for %.0f s: what the next one covers may be handled again", SETTLE_S
            )
        assert self.consumer is not None
        for _ in range(TRIES):
            commits = self._committer.plan(leases, self._completed())
            if not commits:
                return
            self._committer.sent(commits)
            error = send(self.consumer, commits)
            self._answered(error)
            if error is None:
                return

    def finish(self, leases: Sequence[Lease], timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        while monotonic() < deadline:
            self._hear(deadline - monotonic())
            if self._sending is not None:
                break
            commits = self._committer.plan(leases, self._completed())
            if not commits:
                return
            sleep(max(0.0, min(self._committer.free_at, deadline) - monotonic()))
            self._send(commits)
        if self._committer.plan(leases):
            log.warning("the last offsets were not committed in time: what they cover is handled again")

    def hurry(self) -> None:
        """Nothing here waits for longer than its time-out."""

    @property
    def busy(self) -> bool:
        """Whether the consumer is still in use."""
        return self._sending is not None and not self._sending.answered()

    def _send(self, commits: list[Commit]) -> None:
        if commits:
            assert self.consumer is not None
            self._committer.sent(commits)
            self._sending = Sending(self.consumer, commits)

    def _hear(self, timeout_s: float = 0.0) -> None:
        """Take the answer, if it is there."""
        sending = self._sending
        if sending is None or not sending.answered(timeout_s):
            return
        self._sending = None
        self._answered(sending.error)

    def _answered(self, error: KafkaError | None) -> None:
        if error is None:
            self._committer.confirmed()
        else:
            too_large = error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
            self._committer.refused(error.str(), too_large=too_large)
