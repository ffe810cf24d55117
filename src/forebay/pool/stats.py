"""How a pool fares, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from time import monotonic
from typing import TYPE_CHECKING, Any

from forebay.tables import counted, html_lines, html_table

if TYPE_CHECKING:
    from forebay.pool.pool import Pool


@dataclass(frozen=True, repr=False)
class PartitionStats:
    """One assigned partition of a running pool."""

    topic: str
    partition: int
    position: int | None  # the offset behind all that was read
    frontier: int | None  # every record before it is done
    committed: int | None
    lag: int | None  # from the frontier to the partition's end, as far as it is known
    uncommitted: int  # records between the frontier and the position
    paused: bool
    heavy: bool  # so far behind that it is bounded to 'heavy.workers'

    def __repr__(self) -> str:
        marks = "".join(f", {name}" for name in ("paused", "heavy") if getattr(self, name))
        return (
            f"<partition {self.topic}/{self.partition}: lag {_known(self.lag)} (read to {_known(self.position)}, done to "
            f"{_known(self.frontier)}, committed {_known(self.committed)}){marks}>"
        )


@dataclass(frozen=True, repr=False)
class PoolStats:
    """How a pool fares at one moment, as `Pool.stats()` gives it. Counts are since the pool was started."""

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

    def __repr__(self) -> str:
        return f"<{self._line()}>"

    def _line(self) -> str:
        parts = [
            f"pool {self.name}: {self.state} for {self.seconds:,.1f} s",
            f"{self.completed:,} done",
            f"lag {_known(self.lag)} in {counted(len(self.partitions), 'partition')}",
            f"{self.workers:,} of {self.worker_limit:,} workers busy",
            f"{self.queued:,} queued",
        ]
        failures = {
            "retried": self.retries,
            "dead-lettered": self.dead_letters,
            "skipped": self.skipped,
            "halted": self.halted,
            "commits failed": self.commit_failures,
        }
        return ", ".join([*parts, *(f"{count:,} {name}" for name, count in failures.items() if count)])

    def _repr_html_(self) -> str:
        columns = [field.name for field in fields(PartitionStats)]
        rows = ([getattr(each, name) for name in columns] for each in self.partitions)
        table = html_table(columns, rows) if self.partitions else ""
        return table + html_lines([self._line()])


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


@dataclass(frozen=True)
class PartitionGaps:
    """What holds a partition's frontier back: `open` records that are not done, and `beyond` that are, behind it."""

    topic: str
    partition: int
    open: int
    beyond: int


def gaps_of(pool: Pool) -> list[PartitionGaps]:
    """By partition; for another thread than the pool's. Takes time for each record between frontier and position."""
    _, feed = pool._parts()
    found = []
    for _, lease in sorted(feed.leases.items()):
        done = [record.done for record in lease.tracker.glance()]
        found.append(PartitionGaps(lease.topic, lease.partition, done.count(False), done.count(True)))
    return found


def hot_keys_of(pool: Pool, most: int = 10) -> list[tuple[bytes, int]]:
    """Keys with the most records that wait for one another, where the pool keeps the order of keys."""
    _, feed = pool._parts()
    waiting: dict[bytes, int] = {}
    for _, lease in sorted(feed.leases.items()):
        for lane, queue in _copied(lease.lanes):
            if isinstance(lane, bytes) and lane and queue:
                waiting[lane] = waiting.get(lane, 0) + len(queue)
    return sorted(waiting.items(), key=lambda each: -each[1])[:most]


def _copied(lanes: Any) -> list[tuple[Any, Any]]:
    """The event loop changes them meanwhile; a copy that fails is made again, and a few are enough."""
    for _ in range(5):
        try:
            return list(lanes.items())
        except RuntimeError:
            continue
    return []


def _known(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"
