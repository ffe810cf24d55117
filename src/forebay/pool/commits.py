"""Offsets by plain commits of the consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from forebay.pool.committer import Commit, Committer
from forebay.pool.lease import Lease

log = logging.getLogger("forebay.pool")

TRIES = 5  # of a commit before partitions are given back: the group waits for us meanwhile
POLL_S = 0.1


class Commits:
    """Sends what the committer plans. `completed` counts the records that were ever done."""

    def __init__(self, committer: Committer, completed: Callable[[], int]) -> None:
        self._committer = committer
        self._completed = completed
        self.consumer: Consumer | None = None

    @property
    def commits(self) -> int:
        return self._committer.commits

    @property
    def failures(self) -> int:
        return self._committer.failures

    def on_commit(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """The answer to a commit, told while the consumer polls."""
        if not self._committer.waiting:
            return
        failed = error or next((tp.error for tp in partitions if tp.error is not None), None)
        if failed is None:
            self._committer.confirmed()
        else:
            self._committer.refused(
                failed.str(), too_large=failed.code() == KafkaError.OFFSET_METADATA_TOO_LARGE
            )

    def tick(self, leases: Sequence[Lease]) -> None:
        completed = self._completed()
        if self._committer.due(completed):
            self._send(self._committer.plan(leases, completed))

    def unconfirmed(self) -> int:
        return self._committer.unconfirmed(self._completed())

    def settle(self, leases: Sequence[Lease]) -> None:
        for _ in range(TRIES):
            commits = self._committer.plan(leases, self._completed())
            if not commits:
                return
            reason = self._synchronously(commits)
            if reason is None:
                return
            log.warning("offsets were not committed before their partitions were given back: %s", reason)

    def finish(self, leases: Sequence[Lease], timeout_s: float) -> None:
        """Polls for the answer instead of waiting in the library, which knows no timeout."""
        assert self.consumer is not None
        deadline = monotonic() + timeout_s
        self.consumer.pause([TopicPartition(lease.topic, lease.partition) for lease in leases])
        while True:
            if self._committer.free:
                commits = self._committer.plan(leases)
                if not commits:
                    return
                self._send(commits)
            self.consumer.poll(POLL_S)
            if monotonic() > deadline:
                log.warning("the last offsets were not committed in time: what they cover is handled again")
                return

    def _send(self, commits: list[Commit]) -> None:
        if not commits:
            return
        assert self.consumer is not None
        self._committer.sent(commits)
        try:
            self.consumer.commit(offsets=_partitions(commits), asynchronous=True)
        except KafkaException as error:
            self._committer.refused(error.args[0].str())

    def _synchronously(self, commits: list[Commit]) -> str | None:
        """None if the broker has them, otherwise why not."""
        assert self.consumer is not None
        try:
            answer = self.consumer.commit(offsets=_partitions(commits), asynchronous=False)
        except KafkaException as error:
            return str(error.args[0].str())
        failed = next((tp.error for tp in answer or () if tp.error is not None), None)
        if failed is not None:
            return str(failed.str())
        for commit in commits:
            commit.lease.committed = commit.offset, commit.metadata
        return None


def _partitions(commits: Sequence[Commit]) -> list[TopicPartition]:
    return [TopicPartition(c.lease.topic, c.lease.partition, c.offset, c.metadata) for c in commits]
