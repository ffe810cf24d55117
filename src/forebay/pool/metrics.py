"""Prometheus metrics of a pool. Nothing is counted twice: they are read off the pool when somebody asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from forebay.errors import PoolStateError
from forebay.pool.crew import SECONDS
from forebay.telemetry.times import buckets

if TYPE_CHECKING:
    from forebay.pool.pool import Pool
    from forebay.pool.stats import PoolStats

_COUNTERS = {
    "completed": ("forebay_pool_records", "Records that are done."),
    "retries": ("forebay_pool_retries", "Attempts that failed and were made again."),
    "dead_letters": ("forebay_pool_dead_letters", "Dead letters that are durable."),
    "skipped": ("forebay_pool_skipped", "Records that failed and were skipped."),
    "commits": ("forebay_pool_commits", "Commits that the broker has confirmed."),
    "commit_failures": ("forebay_pool_commit_failures", "Commits that failed, and were made again."),
    "rebalances": ("forebay_pool_rebalances", "Changes of what is assigned."),
}
_GAUGES = {
    "halted": ("forebay_pool_halted_records", "Records that failed and hold up the commit."),
    "workers": ("forebay_pool_workers", "Workers that are employed."),
    "worker_limit": ("forebay_pool_worker_limit", "The most workers there may be."),
    "queued": ("forebay_pool_queued_records", "Records that wait for a worker."),
}


class PoolCollector(Collector):
    """`prometheus_client.REGISTRY.register(pool.collector())`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Of a pool that has not begun: the same families, without a sample. Who registers a collector asks it at once."""
        try:
            found = [self._pool.stats()]
        except PoolStateError:
            found = []
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["pool"])
            for stats in found:
                counter.add_metric([stats.name], getattr(stats, field))
            yield counter
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["pool"])
            for stats in found:
                gauge.add_metric([stats.name], getattr(stats, field))
            yield gauge
        yield from self._partitions(found)
        times = HistogramMetricFamily(
            "forebay_pool_handler_seconds", "How long handlers take.", labels=["pool"]
        )
        for stats in found:
            counts, total_s = self._pool.handler_times()
            times.add_metric([stats.name], buckets(SECONDS, counts), total_s)
        yield times

    def _partitions(self, found: Sequence[PoolStats]) -> Iterator[Metric]:
        group = self._pool.options["group.id"]
        lag = GaugeMetricFamily(
            "kafka_consumergroup_lag",
            "Records that are not done.",
            labels=["consumergroup", "topic", "partition"],
        )
        open_ = GaugeMetricFamily(
            "forebay_pool_uncommitted_records",
            "Records between the first unfinished one and the last that was read.",
            labels=["pool", "topic", "partition"],
        )
        heavy = GaugeMetricFamily(
            "forebay_pool_heavy_partition",
            "1 while the partition is so far behind that its workers are bounded.",
            labels=["pool", "topic", "partition"],
        )
        for stats in found:
            for one in stats.partitions:
                heavy.add_metric([stats.name, one.topic, str(one.partition)], one.heavy)
                if one.lag is not None:
                    lag.add_metric([group, one.topic, str(one.partition)], one.lag)
                open_.add_metric([stats.name, one.topic, str(one.partition)], one.uncommitted)
        yield from (lag, open_, heavy)
