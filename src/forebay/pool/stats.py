"""How a pool fares, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forebay.pool.pool import Pool


@dataclass(frozen=True)
class PartitionStats:
    """One assigned partition."""

    topic: str
    partition: int
    position: int | None  # the offset behind all that was read
    frontier: int | None  # every record before it is done
    committed: int | None
    lag: int | None  # from the frontier to the partition's end, as far as it is known
    uncommitted: int  # records between the frontier and the position
    paused: bool
    heavy: bool  # so far behind that it is bounded to 'heavy.workers'


@dataclass(frozen=True)
class PoolStats:
    """Counts are since the pool was started."""

    name: str
    state: str
    seconds: float
    completed: int
    retries: int
    dead_letters: int
    skipped: int
    halted: int
    workers: int  # at work now
    worker_limit: int
    queued: int  # records that a worker could take now
    commits: int
    commit_failures: int
    rebalances: int
    handler_seconds: float  # spent in handlers, in total
    partitions: tuple[PartitionStats, ...]

    @property
    def lag(self) -> int | None:
        """Over all assigned partitions; None while that of one is not known, or none is assigned."""
        lags = [one.lag for one in self.partitions if one.lag is not None]
        return sum(lags) if lags and len(lags) == len(self.partitions) else None


def stats_of(pool: Pool) -> PoolStats:
    """PoolStateError if it was never started."""
    crew, feed = pool._parts()
    partitions = tuple(
        PartitionStats(
            lease.topic,
            lease.partition,
            lease.tracker.position,
            lease.tracker.seen,
            lease.committed[0] if lease.committed else None,
            feed.lag(lease),
            len(lease.tracker),
            lease.paused,
            lease.bound is not None,
        )
        for _, lease in sorted(feed.leases.items())
    )
    return PoolStats(
        name=pool.name,
        state=pool.state,
        seconds=monotonic() - pool.started,
        completed=crew.completed,
        retries=pool.retries,
        dead_letters=pool._letters.written if pool._letters else 0,
        skipped=pool.skipped,
        halted=pool.halted,
        workers=len(crew.slots),
        worker_limit=crew.limit,
        queued=len(crew.ready),
        commits=pool._offsets.commits,
        commit_failures=pool._offsets.failures,
        rebalances=feed.rebalances,
        handler_seconds=crew.total_s,
        partitions=partitions,
    )
