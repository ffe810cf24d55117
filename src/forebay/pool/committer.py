"""When offsets are committed, and which.

Every so often, or after so many records, what each partition's frontier has reached since the last time, with what
is done beyond it as metadata. One commit is under way at a time, and the next one starts from what the broker has
confirmed: one that fails is made again, with what is then true, after a wait that grows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic

from forebay.backoff import Backoff
from forebay.pool.completed import LIMIT, encode
from forebay.pool.lease import Lease

log = logging.getLogger("forebay.pool")


@dataclass(frozen=True)
class Commit:
    """The offset of one partition: every record before it is done, and those that the metadata names."""

    lease: Lease
    offset: int
    metadata: str


class Committer:
    """Decides; whoever owns the consumer sends. Of one thread."""

    def __init__(
        self,
        interval_s: float = 5.0,
        batch: int = 10_000,
        metadata_limit: int = LIMIT,
    ) -> None:
        self._interval_s = interval_s
        self._batch = batch
        self._limit = metadata_limit
        self._last = monotonic()
        self._counted = 0  # records that were completed when the last commit was planned
        self._confirmed = 0  # and when the last one was that the broker has
        self._backoff = Backoff()
        self._sent: list[Commit] | None = None
        self.commits = 0
        self.failures = 0

    @property
    def waiting(self) -> bool:
        """Whether a commit is under way."""
        return self._sent is not None

    @property
    def free_at(self) -> float:
        """From when on a commit may be sent: after one that failed there is a wait."""
        return self._backoff.until

    def due(self, completed: int) -> bool:
        """Whether it is time for one. `completed` counts the records that were ever completed."""
        if self._sent is not None or monotonic() < self.free_at:
            return False
        return monotonic() - self._last >= self._interval_s or completed - self._counted >= self._batch

    def plan(self, leases: Iterable[Lease], completed: int = 0) -> list[Commit]:
        """What there is to commit now; nothing where nothing has changed."""
        self._last, self._counted = monotonic(), completed
        found = self._changed(leases)
        if not found:
            self._confirmed = completed
        return found

    def unconfirmed(self, completed: int) -> int:
        """How many records would be handled again if the pool died now, those at work left out."""
        return completed - self._confirmed

    def _changed(self, leases: Iterable[Lease]) -> list[Commit]:
        found = []
        for lease in leases:
            frontier = lease.tracker.frontier()
            if frontier is None:
                continue
            metadata, _ = encode(frontier, lease.tracker.beyond(), self._limit)
            if lease.committed != (frontier, metadata):
                found.append(Commit(lease, frontier, metadata))
        return found

    def sent(self, commits: list[Commit]) -> None:
        self._sent = commits

    def confirmed(self) -> None:
        """The broker has what was sent."""
        for commit in self._sent or ():
            commit.lease.committed = commit.offset, commit.metadata
        self._sent = None
        self._confirmed = self._counted
        self._backoff.over()
        self.commits += 1

    def refused(self, reason: str, *, too_large: bool = False) -> None:
        """The broker does not have it: again, after a wait. Where the metadata was too large, with less of it."""
        self._sent = None
        self.failures += 1
        if too_large:
            self._limit //= 2
            log.warning("the broker takes less metadata than expected: now at most %d bytes", self._limit)
            self._last = float("-inf")
            return
        wait_s = self._backoff.failed()
        self._last = float("-inf")
        log.warning("offsets were not committed, again in %.1f s: %s", wait_s, reason)
