"""Many records at a time from one consumer, and nothing lost: `forebay.Pool`."""

from forebay.pool.pool import Pool
from forebay.pool.record import Record
from forebay.pool.stats import PartitionStats, PoolStats

__all__ = ["PartitionStats", "Pool", "PoolStats", "Record"]
