"""What a source has done so far, in numbers: `Session.metrics()`, and columns of `forebay_catalog.sources`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forebay.catalog import Catalog, QueryState, Totals
from forebay.connectors.contract import HealthStatus, PartitionLag, SourceConnector
from forebay.runtime.states import state_of_source
from forebay.runtime.status import view_state, views_over
from forebay.source.watermarks import Decision


@dataclass(frozen=True, repr=False)
class SourceMetrics:
    """A source as `Session.metrics()` gives it. What nobody knows is None, and not 0."""

    source: str
    state: str
    records: int  # read in all its life, good and bad; of the view that has met most
    bytes: int  # of their keys and values
    errors: int  # of the records: did not decode
    batches: int
    commits: int | None  # of the group's offsets, by this process
    commit_failures: int | None
    rebalances: int | None
    lag: int | None  # records that the group has not committed
    lag_s: float | None  # how old the oldest of them is
    batch_ms_mean: float | None  # over the batches that the catalog keeps
    batch_ms_p99: int | None
    paused_partitions: int | None  # all, while it is paused or held back; None if their number is not known
    watermark_ms: int | None
    last_batch_ms: int | None  # when one ended, in milliseconds since 1970
    records_per_s: float | None  # read a second, over the last minute

    def __repr__(self) -> str:
        lag = "unknown" if self.lag is None else f"{self.lag:,}"
        return f"<metrics of source {self.source}: {self.state}, {self.records:,} records, {self.errors:,} errors, lag {lag}>"


def source_metrics(
    catalog: Catalog,
    source: str,
    health: HealthStatus | None,
    own: Mapping[str, float],
    *,
    paused: bool,
    watermark: Decision | None,
) -> SourceMetrics:
    """`health` is the last word of its brokers, `own` what its connector has counted in this process, if it has one."""
    totals = max(catalog.totals(source=source), key=lambda each: each.records, default=None)
    times = None if totals is None else catalog.batch_times(totals.view)
    partitions = health.partitions if health is not None and health.healthy else ()
    state = state_now(catalog, source)
    stopped = paused or state in (QueryState.PAUSED, QueryState.BACKPRESSURED)
    return SourceMetrics(
        source,
        str(state),
        totals.records if totals else 0,
        totals.bytes if totals else 0,
        _errors(totals),
        times.batches if times else 0,
        _count(own, "commits_total"),
        _count(own, "commit_failures_total"),
        _count(own, "rebalances_total"),
        sum(each.lag for each in partitions) if partitions else None,
        oldest(partitions),
        round(times.mean_ms, 1) if times else None,
        times.p99_ms if times else None,
        (len(partitions) or None) if stopped else 0,
        watermark.watermark_ms if watermark else None,
        times.last_ms if times else None,
        round(times.records_per_s, 1) if times else None,
    )


def state_now(catalog: Catalog, source: str) -> QueryState:
    """The worst of its views' states, by the catalog: also of those that another process runs."""
    return state_of_source(view_state(catalog, view)[0] for view in views_over(catalog, source))


def oldest(partitions: tuple[PartitionLag, ...]) -> float | None:
    """The age of the oldest unread record of all; None if it is not known of one that is behind."""
    if not partitions or any(each.lag and each.lag_s is None for each in partitions):
        return None
    return max(each.lag_s or 0.0 for each in partitions)


def own_counts(connector: SourceConnector | None) -> Mapping[str, float]:
    """What a connector has counted by itself; nothing of one that is not connected here."""
    return {} if connector is None else connector.metrics().custom


def _errors(totals: Totals | None) -> int:
    return sum(totals.rejected.values()) if totals else 0


def _count(own: Mapping[str, float], name: str) -> int | None:
    return int(own[name]) if name in own else None
